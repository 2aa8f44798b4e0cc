"""Many futures of a state: each draws how long everything runs, and simulates on under the state's own policy.

The core, the policy and the rules are those that will be applied to the jobs, so nothing about a policy is written
twice. Draws are stratified: the levels of a job over all futures are spread evenly, so that few futures reach far into
both tails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from headway.core.record import StateRecord
from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.foresight.copies import Copies, in_copies
from headway.history.similar import runs_on
from headway.model.instant import LONGEST, SECOND, Duration, Instant
from headway.model.job import AnyJob, JobId, JobSpec, Service, TaskKey
from headway.model.policy import PolicySource
from headway.model.renting import UNIT
from headway.model.slots import Slots
from headway.model.workload import Workload
from headway.sim.ends import Ends, Over
from headway.sim.forecast import WORLD
from headway.sim.kernel import Simulation
from headway.sim.specs import specs as to_come
from headway.sim.states import Origin

FUTURES: Final = 40
"""How many futures are simulated unless told otherwise."""

FEWEST: Final = 9
"""With many open jobs there are fewer futures, but not fewer than these: the latest of 9 ends is late enough with 90 %,
see `advice.tellable`."""

TASKS_DRAWN: Final = 30_000
"""So many tasks are simulated in all futures together, unless that would be fewer futures than `FEWEST`. The more jobs
are open, the more a task counts: rounds look at all that wait."""

MANY_OPEN: Final = 1000
"""With so many open jobs a task counts twice."""

SHARED_FATE: Final = 0.5
"""In so large a share of the futures all jobs of a user run long, or short, together: what one user submits fails, or
runs to its limit, together."""

FUTURE_WORK_MAX: Final = 100_000
"""A future ends after so many events; what has not happened by then is not known."""

Floats = NDArray[np.float64]

Part = tuple[Floats, Floats, Floats, Floats]
"""Of some futures the columns of `Futures`: start, end, later and money."""


def futures_for(state: StateRecord) -> int:
    """How many futures of a state are drawn where somebody waits for the answer."""
    tasks = sum(job.spec.tasks if job.unfinished is None else job.unfinished for job in state.jobs)
    return max(FEWEST, min(FUTURES, TASKS_DRAWN * MANY_OPEN // max(1, tasks * (MANY_OPEN + len(state.jobs)))))


class RunTime(Protocol):
    """How long a task runs, in seconds on a slot of speed factor 1, and how sure that is."""

    def quantile(self, level: float) -> float:
        """It runs at most so long with this probability, 0 to 1."""
        ...

    def below(self, seconds: float) -> float:
        """The probability that it runs at most so long."""
        ...


RunTimesOf = Callable[[AnyJob, int], RunTime]
"""The run time of a task of a job."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """A run time that is known, in seconds."""

    seconds: float

    def quantile(self, level: float) -> float:
        """It runs so long, at any level."""
        return self.seconds

    def below(self, seconds: float) -> float:
        """0 or 1."""
        return float(seconds >= self.seconds)


@dataclass(frozen=True, slots=True)
class Futures:
    """What became of the jobs of a state in each future.

    Attributes:
        at: the instant of the state.
        jobs: those that were open; services are left out, they do not end.
        start, end: when each first starts (of those that had not) and ends: a row for each future, a column for each
            job; seconds from `at` on; nan where it did not happen.
        later: what became of the jobs that came, a row for each future: how many came, how many of them were late, what
            they cost, and how long they waited in the mean, in seconds; nan: none came.
        money: what rented machines have cost by then, a row for each future: those there are, since they were asked
            for, and those that are rented later; nan: none can be rented, and none is.
    """

    at: Instant
    jobs: tuple[JobId, ...]
    start: Floats
    end: Floats
    later: Floats
    money: Floats

    def without(self, jobs: Collection[JobId]) -> Futures:
        """The same of the other jobs."""
        kept = [place for place, job in enumerate(self.jobs) if job not in jobs]
        others = tuple(self.jobs[place] for place in kept)
        return replace(self, jobs=others, start=self.start[:, kept], end=self.end[:, kept])


def draw_futures(
    state: StateRecord | Origin,
    policies: PolicySource,
    run_times: RunTimesOf,
    *,
    policy: str | None = None,
    count: int = FUTURES,
    seed: int = 0,
    arrivals: Callable[[np.random.Generator], Workload | None] | None = None,
    within: Duration = 0,
    work_max: int = FUTURE_WORK_MAX,
    processes: int = 1,
    copies: Copies | None = None,
) -> Futures:
    """Simulate a number of futures of a state.

    The same arguments give the same futures everywhere: the work is bounded by a count, not by time, and it does not
    matter how many processes there are.

    Args:
        state: as `Scheduler.dump` gives it, or its `Origin`; it is not changed.
        policies, policy: the source of policies, and the one to use from now on; None: the one of the state.
        run_times: how long each task runs. Tasks of a job are long or short together.
        count: how many futures, >= 1.
        seed: fixes all draws.
        arrivals: draws jobs that come later, with releases from `state.now` on; None: nobody submits anything.
        within: jobs that come within this time count for `Futures.later`, and are simulated to their ends.
        work_max: see `FUTURE_WORK_MAX`.
        processes: so many copies of this one share the work; it must have one thread only.
        copies: do their parts; None: if there are several, all at once, see `in_copies`.

    Raises:
        HeadwayError: there is no such policy, or a copy of the process was killed.
    """
    origin = Origin.of(state)
    state = origin.state
    jobs = tuple(job.spec.id for job in state.jobs if not isinstance(job.spec, Service))
    ran = {
        (job.spec.id, attempt.task): max(0.0, (state.now - attempt.start) / SECOND)
        for job in state.jobs
        for attempt in job.attempts
        if attempt.running
    }
    began = {job.spec.id for job in state.jobs if job.ended or any(attempt.running for attempt in job.attempts)}
    waiting = np.array([job not in began for job in jobs], dtype=bool)
    specs = {job.spec.id: job.spec for job in state.jobs}
    levels = _levels(count, {job: specs[job].user for job in jobs}, seed)
    known: dict[TaskKey, RunTime] = {}

    rents = state.market is not None

    def draw(numbers: range) -> Part:
        start, end = (np.full((len(numbers), len(jobs)), np.nan) for _ in range(2))
        later, money = np.full((len(numbers), 4), np.nan), np.full((len(numbers), 1), np.nan)
        for row, number in enumerate(numbers):
            told, came = drawn(number)
            start[row] = _seconds(told.start, jobs, state.now)
            end[row] = _seconds(told.end, jobs, state.now)
            later[row] = _became(came, told)
            if rents:
                money[row] = told.paid() / UNIT
        return start, end, later, money

    first_id = max((job.spec.id for job in state.jobs), default=-1) + 1

    def drawn(number: int) -> tuple[Ends, list[JobSpec]]:
        later = None if arrivals is None else arrivals(np.random.default_rng((seed, number)))
        counted = 0 if later is None else int(np.searchsorted(later.release, state.now + within, side="right"))
        came = [] if later is None else list(to_come(later.take(slice(counted)), first_id=first_id))
        told: list[Ends] = []

        def recorder(core: Scheduler, told: list[Ends] = told) -> Recorder:
            told.append(Ends(core, (*jobs, *(job.id for job in came)), work_max))
            return told[0]

        timing = _Drawn(dict(zip(jobs, levels[number].tolist(), strict=True)), specs, run_times, known, ran)
        future = Simulation.from_state(
            origin,
            policies,
            policy,
            world=WORLD,
            timing=timing,
            arrivals=later,
            first_id=first_id,
            recorder=recorder,
        )
        if jobs or came:
            with contextlib.suppress(Over):
                future.advance()
        return told[0], came

    if processes > 1 or copies is not None:
        start, end, later, money = shared(draw, count, processes, copies or in_copies)
    else:
        start, end, later, money = draw(range(count))
    start[:, ~waiting] = np.nan
    return Futures(state.now, jobs, start, end, later, money[:, 0])


def _became(came: Sequence[JobSpec], told: Ends) -> list[float]:
    """How many of the jobs that came were late, what they cost, and how long they waited in the mean."""
    if not came:
        return [0.0, 0.0, 0.0, np.nan]
    late, cost, waited = 0, 0.0, 0.0
    for job in came:
        start, end = told.start.get(job.id), told.end.get(job.id)
        waited += np.inf if start is None else (start - job.release) / SECOND
        if job.due is not None:
            late += end is None or end > job.due
            cost += np.inf if end is None else job.penalty_of(max(0, end - job.due))
    return [float(len(came)), float(late), cost, waited / len(came)]


def shared(draw: Callable[[range], Part], count: int, processes: int, copies: Copies) -> Part:
    """Let copies of this process draw parts of the futures, and put them together in order.

    Raises:
        HeadwayError: one was killed, or raised.
    """
    found = copies([partial(draw, range(number, count, processes)) for number in range(min(processes, count))])
    start, end, later, money = (np.empty((count, part.shape[1])) for part in found[0])
    for number, parts_of_one in enumerate(found):
        for whole, part in zip((start, end, later, money), parts_of_one, strict=True):
            whole[number::processes] = part
    return start, end, later, money


def _levels(count: int, users: Mapping[JobId, str], seed: int) -> Floats:
    """For each job, levels that are spread evenly over the futures: a row for each future.

    Jobs of one user share their fate: in `SHARED_FATE` of the futures the levels of all of them are that of their user.
    They depend on no other job, so a state with one job more has the same.
    """
    drawn: Floats = np.empty((count, len(users)))
    of_users: dict[str, tuple[NDArray[np.bool_], Floats]] = {}
    for column, (job, user) in enumerate(users.items()):
        if user not in of_users:
            rng = np.random.default_rng((seed, crc32(user.encode()), 1))
            together = rng.permutation(count) < SHARED_FATE * count
            of_users[user] = together, _spread(rng, int(together.sum()))
        together, level = of_users[user]
        drawn[together, column] = level
        drawn[~together, column] = _spread(np.random.default_rng((seed, job)), count - len(level))
    return drawn


def _spread(rng: np.random.Generator, count: int) -> Floats:
    """Levels that are spread evenly, in an order by chance."""
    levels: Floats = (rng.permutation(count) + rng.random(count)) / count
    return levels


def _seconds(at: dict[JobId, Instant], jobs: Sequence[JobId], since: Instant) -> list[float]:
    return [(at[job] - since) / SECOND if job in at else np.nan for job in jobs]


class _Drawn:
    """Run times of one future; a `Timing`."""

    def __init__(
        self,
        levels: dict[JobId, float],
        specs: dict[JobId, AnyJob],
        run_times: RunTimesOf,
        known: dict[TaskKey, RunTime],
        ran: dict[TaskKey, float],
    ) -> None:
        self._levels = levels
        self._specs = specs
        self._run_times = run_times
        self._known = known
        self._ran = ran
        self._first = set(ran)

    @property
    def plain(self) -> Sequence[int] | None:
        """None: what has run for a while runs longer."""
        return None

    def run_time(self, job: int, task: int, attempt: int, slots: Slots, state: State) -> int:
        """How long an attempt runs in all."""
        if job not in self._levels:
            return LONGEST  # an instance of a service runs until it is asked to end
        place = job, task
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._run_times(self._specs[job], task)
        speed = state.slowest(slots)
        level = self._levels[job]
        if place not in self._first:
            return max(1, round(found.quantile(level) / speed * SECOND))
        self._first.discard(place)  # it is known that it has run for so long
        ran = self._ran[place] * speed
        has_run = found.below(ran)
        took = found.quantile(has_run + level * (1 - has_run))
        if took < ran:  # longer than anything that is known
            estimate = self._specs[job].estimate
            took = runs_on(ran, level, estimate / SECOND if estimate else None)
        return max(1, round(took / speed * SECOND))
