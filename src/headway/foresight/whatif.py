"""What would become of the open jobs if something were otherwise: futures of a state as it is, and of it changed.

Both have the same draws, so what differs between them follows from the change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.foresight.coming import DrawnArrivals
from headway.foresight.futures import FUTURES, Floats, Futures, RunTimesOf, draw_futures
from headway.foresight.present import RunTimesTold
from headway.model.events import Event, JobSubmitted
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.job import NAME_MAX, AnyJob, JobId, JobSpec
from headway.model.policy import PolicySource
from headway.model.workload import Workload
from headway.sim.specs import specs


class Quantiles(NamedTuple):
    """A quantity over all futures: its median, and bounds between which it is in 90 % of them; None: beyond reach."""

    median: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Later:
    """What becomes of the jobs that come.

    Attributes:
        jobs: how many come.
        late, cost: how many of them are late, and what they cost.
        wait: how long they wait in the mean, in seconds, over the futures in which some come; None: in none.
    """

    jobs: Quantiles
    late: Quantiles
    cost: Quantiles
    wait: Quantiles


@dataclass(frozen=True, slots=True)
class Side:
    """What becomes of the jobs in one way.

    Attributes:
        jobs: their ids.
        start, end: when they start and end, seconds since the Unix epoch; a start is that of jobs which had not begun.
        on_time: by job, with which probability it is on time; NaN: it is not due.
        penalty: by job, what it costs in the mean.
        late, cost, over: jobs that are late, what all cost, and when the last has ended.
        later: what becomes of the jobs that come later; None: none are counted.
        money: what rented machines cost until then, those there are since they were asked for; None: none are rented.
    """

    jobs: tuple[JobId, ...]
    start: tuple[Quantiles, ...]
    end: tuple[Quantiles, ...]
    on_time: tuple[float, ...]
    penalty: tuple[float, ...]
    late: Quantiles
    cost: Quantiles
    over: Quantiles
    later: Later | None
    money: Quantiles | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Both ways.

    Attributes:
        at: the instant, in microseconds since the Unix epoch.
        specs: the terms of the jobs, also of those that were added.
        guessed: jobs of whose run times nothing is known: each of their tasks counts as taking the default.
        due: when each is due.
        now, then: as it is, and changed.
    """

    at: Instant
    specs: Mapping[JobId, AnyJob]
    due: Mapping[JobId, Instant]
    now: Side
    then: Side
    guessed: tuple[JobId, ...] = ()


def added(workload: Workload, now: Instant, last: JobId) -> tuple[list[JobSubmitted], RunTimesTold]:
    """The jobs of a workload as if all came now, and how long their tasks run.

    Due dates keep their distance from the release. Each job is named by its label.

    Args:
        last: the greatest id of a job so far, also of those that have ended; 0: there was none.
    """
    first = last + 1
    events = []
    for spec, label in zip(specs(workload, first_id=first), workload.label.tolist(), strict=True):
        due = None if spec.due is None else now + spec.due - spec.release
        events.append(JobSubmitted(now, replace(spec, release=now, due=due, name=str(label)[:NAME_MAX])))
    return events, {first + place: _run_times(workload, place) for place in range(len(workload))}


def _run_times(workload: Workload, place: int) -> tuple[Duration, ...]:
    """How long the tasks of a job run: one time for all of them, or one each."""
    if place in workload.workflows:
        return tuple([task.estimate for task in workload.workflows[place]])
    unlike = workload.bags[place].tasks if place in workload.bags else ()
    return unlike or (int(workload.runtime[place]),)


def what_if(
    state: StateRecord,
    policies: PolicySource,
    run_times: RunTimesOf,
    *,
    changes: Sequence[Event] = (),
    policy: str | None = None,
    arrivals: tuple[DrawnArrivals | None, DrawnArrivals | None] = (None, None),
    within: Duration = 0,
    count: int = FUTURES,
    seed: int = 0,
    unknown: Callable[[StateRecord], AbstractSet[JobId]] = lambda state: frozenset(),
) -> WhatIf:
    """Simulate futures of a state as it is and changed.

    Args:
        state: as `present` reads it.
        run_times: how long each task runs.
        changes: what happens now in the second case.
        policy: the policy from now on in the second case; None: the same.
        arrivals: what comes later in the first and in the second case.
        within: jobs that come within this time are counted.
        count, seed: of the futures.
        unknown: the open jobs of a state of which nothing tells how long they run.

    Raises:
        HeadwayError: there is no such policy, or a change is not possible.
    """
    changed = state
    if changes:
        core = Scheduler.restore(state, policies)
        for event in changes:
            core.handle(event)
        changed = core.dump()
    sides = [
        (
            one,
            draw_futures(one, policies, run_times, policy=text, count=count, seed=seed, arrivals=later, within=within),
        )
        for one, text, later in ((state, None, arrivals[0]), (changed, policy, arrivals[1]))
    ]
    due = {job.spec.id: _due(job.spec, job.due) for one, _ in sides for job in one.jobs}
    terms = {job.spec.id: job.spec for one, _ in sides for job in one.jobs}
    now, then = (_side(found, terms, due, are_counted=within > 0) for _, found in sides)
    return WhatIf(state.now, terms, due, now, then, tuple(sorted(unknown(changed))))


def _due(spec: AnyJob, changed: Instant | None) -> Instant:
    if changed is not None:
        return changed
    return NEVER if spec.due is None else spec.due


def _side(found: Futures, terms: Mapping[JobId, AnyJob], due: Mapping[JobId, Instant], *, are_counted: bool) -> Side:
    at = found.at / SECOND
    late, cost = np.zeros(len(found.end)), np.zeros(len(found.end))
    on_time, penalty = [], []
    for column, job in enumerate(found.jobs):
        ends = found.end[:, column]
        if due[job] >= NEVER:
            on_time.append(float("nan"))
            penalty.append(0.0)
            continue
        by = np.where(np.isnan(ends), np.inf, ends + (found.at - due[job]) / SECOND)
        costs = np.array([_cost(terms[job], one) for one in by.tolist()])
        late += by > 0
        cost += costs
        on_time.append(float((by <= 0).mean()))
        penalty.append(float(costs.mean()))
    ends = np.where(np.isnan(found.end), np.inf, found.end)
    last = ends.max(axis=1) if ends.shape[1] else np.zeros(len(ends))
    return Side(
        found.jobs,
        tuple(_quantiles(column + at) for column in found.start.T),
        tuple(_quantiles(column + at) for column in found.end.T),
        tuple(on_time),
        tuple(penalty),
        _quantiles(late),
        _quantiles(cost),
        _quantiles(last + at),
        _later(found.later) if are_counted else None,
        None if np.isnan(found.money).all() else _quantiles(found.money),
    )


def _later(became: Floats) -> Later:
    jobs, late, cost, wait = became.T
    return Later(*map(_quantiles, (jobs, late, cost, wait[jobs > 0])))


def _cost(spec: JobSpec, late: float) -> float:
    return float("inf") if late == float("inf") else spec.penalty_of(round(max(0.0, late) * SECOND))


def _quantiles(values: Floats) -> Quantiles:
    """Of one value for each future; NaN: it did not happen in that one."""
    if np.isnan(values).all():
        return Quantiles(None, None, None)
    ordered = np.sort(np.where(np.isnan(values), np.inf, values))
    last = len(ordered) - 1
    told = [float(ordered[place]) for place in (round(last * 0.5), math.floor(last * 0.05), math.ceil(last * 0.95))]
    median, low, high = (None if np.isinf(one) else one for one in told)
    return Quantiles(median, low, high)
