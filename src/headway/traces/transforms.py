"""Transforms of workloads, and recipes made of them. Each takes a workload and returns a new one, so they compose.

Releases stay in order, and a due date moves with its release. Random choices depend on a seed alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import LONGEST, NEVER, SECOND, Duration, Instant
from headway.model.job import Kind
from headway.model.workload import COLUMNS, FloatArray, IntArray, Workload, workload_us

PRIORITY_HIGHEST: Final = 100


def first(workload: Workload, jobs: int) -> Workload:
    """The first `jobs` jobs in order of release, or all if there are fewer.

    Raises:
        InvalidInput: `jobs` is less than 1.
    """
    if jobs < 1:
        raise InvalidInput("first", jobs, "1 job or more")
    return workload.take(slice(0, jobs))


def between(workload: Workload, start: Instant, end: Instant) -> Workload:
    """The jobs released at `start` or later and before `end`.

    Raises:
        InvalidInput: there is no such job.
    """
    low, high = np.searchsorted(workload.release, (start, end)).tolist()
    if low >= high:
        raise InvalidInput("slice", (start, end), "instants between which a job is released")
    return workload.take(slice(low, high))


def together(*workloads: Workload) -> Workload:
    """The jobs of several workloads on one clock, in order of release; of equal ones, in the order given.

    >>> from headway.traces.columns import workload_of
    >>> one, other = workload_of(release=[0, 20], runtime=[1, 2]), workload_of(release=[10], runtime=[3])
    >>> together(one, other).seconds("runtime").tolist()
    [1.0, 3.0, 2.0]
    """
    offsets = np.cumsum([0, *map(len, workloads)]).tolist()
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in workloads]) for name in COLUMNS if name != "label"
    }
    by_place: dict[str, Any] = {
        name: {
            place + offset: found
            for one, offset in zip(workloads, offsets, strict=False)
            for place, found in getattr(one, name).items()
        }
        for name in ("uses", "workflows", "task_labels", "bags")
    }
    by_place["after"] = {
        place + offset: tuple([before + offset for before in found])
        for one, offset in zip(workloads, offsets, strict=False)
        for place, found in one.after.items()
    }
    labels = [label for one in workloads for label in one.label.tolist()]
    dropped = sum((Counter(one.dropped) for one in workloads), Counter[str]())
    notes = tuple(dict.fromkeys([note for one in workloads for note in one.notes]))
    return workload_us(**columns, **by_place, label=list(map(str, labels)), dropped=dropped, notes=notes)


def sample(workload: Workload, share: float, seed: int) -> Workload:
    """Consecutive jobs from a random start. They are this share of all jobs, but at least one.

    Raises:
        InvalidInput: `share` is not in (0, 1], or `seed` is below 0.
    """
    if not 0 < share <= 1:
        raise InvalidInput("sample", share, "a share above 0, at most 1")
    if seed < 0:
        raise InvalidInput("seed", seed, "0 or more")
    jobs = max(1, round(share * len(workload)))
    start = int(np.random.default_rng(seed).integers(0, len(workload) - jobs + 1))
    return workload.take(slice(start, start + jobs))


def from_zero(workload: Workload) -> Workload:
    """The same workload on a clock that is 0 at the first release."""
    return _released_at(workload, workload.release - workload.release[0])


def scale_runtimes(workload: Workload, factor: float) -> Workload:
    """Run times and estimates times a factor; releases and due dates stay.

    Raises:
        InvalidInput: `factor` is not a number above 0, or times get beyond what an instant can be.
    """
    _check_factor("run time factor", factor)
    plans = {
        position: tuple(replace(task, estimate=round(task.estimate * factor)) for task in plan)
        for position, plan in workload.workflows.items()
    }
    estimate = np.where(workload.estimate < 0, workload.estimate, _times(workload.estimate, factor))
    bags = {position: times.times(factor) for position, times in workload.bags.items()}
    return replace(workload, runtime=_times(workload.runtime, factor), estimate=estimate, workflows=plans, bags=bags)


def scale_gaps(workload: Workload, factor: float) -> Workload:
    """The times between releases times a factor; the first release stays.

    Raises:
        InvalidInput: `factor` is not a number above 0, or times get beyond what an instant can be.
    """
    _check_factor("gap factor", factor)
    begin = workload.release[0]
    return _released_at(workload, begin + _times(workload.release - begin, factor))


def scale_times(workload: Workload, factor: float) -> Workload:
    """All times multiplied by a factor, also the time from release to due date; the first release stays.

    Raises:
        InvalidInput: `factor` is not a number above 0, or times get beyond what an instant can be.
    """
    scaled = scale_gaps(scale_runtimes(workload, factor), factor)
    allowed = _times(np.where(workload.due >= NEVER, 0, workload.due - workload.release), factor)
    return replace(scaled, due=np.where(workload.due >= NEVER, NEVER, scaled.release + allowed))


def cut_at_estimates(workload: Workload) -> Workload:
    """Jobs that run longer than their estimate end there; `notes` count them. Workflows stay."""
    longer = runs_longer(workload)
    if not longer.any():
        return workload
    note = f"jobs that ran longer than their estimate, and are cut there: {int(longer.sum())}"
    runtime = np.where(longer, workload.estimate, workload.runtime)
    return replace(workload, runtime=runtime, notes=(*workload.notes, note))


def runs_longer(workload: Workload) -> NDArray[np.bool_]:
    """Which jobs have an estimate and run longer, shape (jobs,). Workflows never count."""
    told = (workload.estimate >= 0) & (workload.kind != Kind.WORKFLOW)
    longer: NDArray[np.bool_] = told & (workload.runtime > workload.estimate)
    return longer


def batches(workload: Workload, within: Duration = SECOND) -> Workload:
    """Jobs released no more than `within` after the first of their batch are released together with it.

    A batch begins with the first job that belongs to none (Lin14 6.3). Due dates stay.
    """
    release = workload.release
    together = np.empty_like(release)
    begin = 0
    while begin < len(release):
        end = int(np.searchsorted(release, release[begin] + within, side="right"))
        together[begin:end] = release[begin]
        begin = end
    return replace(workload, release=together)


def as_bags(workload: Workload) -> Workload:
    """Each processor of a rigid job becomes a task, as long as the job was; workflows stay.

    If the processes differ in CPU use, each task gets their mean.
    """
    rigid = workload.kind == Kind.RIGID
    return replace(
        workload,
        tasks=np.where(rigid, workload.width, workload.tasks),
        width=np.where(rigid, 1, workload.width),
        kind=np.where(rigid, Kind.BAG, workload.kind).astype(np.int8),
        uses={},
    )


def as_rigid(workload: Workload) -> Workload:
    """Each bag becomes one task that needs a slot for each of the bag's tasks at once; workflows stay."""
    bag = workload.kind == Kind.BAG
    return replace(
        workload,
        tasks=np.where(bag, 1, workload.tasks),
        width=np.where(bag, workload.tasks, workload.width),
        kind=np.where(bag, Kind.RIGID, workload.kind).astype(np.int8),
    )


def priorities_by_user(workload: Workload) -> Workload:
    """Each user's jobs get one priority from 1 to 100: the fewer jobs a user has, the higher (Lin14 6.3).

    reading: users are sorted by falling number of jobs, then by falling user id, so the smaller id has the higher
    priority. User number k of n, counted from 0, gets `1 + 99 k / (n - 1)`, rounded to a whole number. A single user
    gets 100. Ids that are whole numbers are compared as numbers and come before others.
    """
    users, which, jobs = np.unique(workload.user.astype(str), return_inverse=True, return_counts=True)
    names = users.tolist()
    rising = sorted(range(len(names)), key=lambda user: _user_order(names[user]), reverse=True)
    rising.sort(key=lambda user: -jobs[user])
    priority = np.empty(len(names))
    priority[rising] = np.rint(np.linspace(1, PRIORITY_HIGHEST, len(names))) if len(names) > 1 else PRIORITY_HIGHEST
    return replace(workload, priority=priority[which])


def _user_order(user: str) -> tuple[bool, int, str]:
    numeric = user.isdecimal()
    return not numeric, int(user) if numeric else 0, user


def due_dates(workload: Workload, *, factor: float = 2.0, shared_by: int | None = None) -> Workload:
    """Due dates by rule: release + factor x run time; a job with many tasks gets more time.

    Args:
        factor: > 0.
        shared_by: a job with at least this many tasks gets `tasks / shared_by` times as long, because it is assumed to
            run on this many slots (Lin14 6.3 with 4); None: the number of tasks does not matter.

    Raises:
        InvalidInput: `factor` is not a number above 0, or due dates get beyond what an instant can be; or `shared_by`
            is less than 1.
    """
    _check_factor("due_factor", factor)
    wanted = factor * workload.runtime
    if shared_by is not None:
        if shared_by < 1:
            raise InvalidInput("shared_by", shared_by, "1 or more")
        wanted = wanted * np.maximum(workload.tasks / shared_by, 1.0)
    last = float(np.max(workload.release + wanted, initial=0.0))
    if last >= NEVER:
        raise InvalidInput(
            "due_factor", factor, f"at most about {factor * NEVER / last:.2g}: times must fit the calendar"
        )
    return replace(workload, due=workload.release + np.rint(wanted).astype(np.int64))


def missing_due_dates(workload: Workload, factor: float) -> Workload:
    """As `due_dates`, for the jobs that have no due date.

    Raises:
        InvalidInput: `factor` is not a number above 0, or due dates get beyond what an instant can be.
    """
    given = due_dates(workload, factor=factor)
    return replace(workload, due=np.where(workload.due < NEVER, workload.due, given.due))


def work(workload: Workload) -> FloatArray:
    """Slot-seconds each job needs on nodes of speed factor 1, shape (jobs,)."""
    amounts = (workload.tasks * workload.width * (workload.runtime / SECOND)).astype(np.float64)
    for position, plan in workload.workflows.items():
        amounts[position] = sum(task.cores * task.estimate for task in plan) / SECOND
    for position, times in workload.bags.items():
        if times.tasks:
            amounts[position] = sum(times.tasks) / SECOND
    return amounts


def offered_load(workload: Workload, slots: int) -> float:
    """The load: the work of all jobs divided by the capacity of the slots from the first release to the last.

    Raises:
        InvalidInput: `slots` is less than 1, or all jobs have the same release.
    """
    if slots < 1:
        raise InvalidInput("slots", slots, "1 or more")
    span = int(workload.release[-1] - workload.release[0]) / SECOND
    if span == 0:
        raise InvalidInput("time between the first and the last release", 0, "more than 0 to speak of a load")
    return float(work(workload).sum()) / (slots * span)


def with_load(workload: Workload, load: float, slots: int) -> Workload:
    """Gaps scaled so that the load on these slots becomes `load`.

    Raises:
        InvalidInput: `load` is not a number above 0, or so small that the last job is released beyond the calendar; or
            the workload has no work, or only one release.
    """
    _check_factor("load", load)
    offered = offered_load(workload, slots)
    if offered == 0:
        raise InvalidInput("work of all jobs", 0, "more than 0 to scale the load")
    least = offered * float(workload.release[-1] - workload.release[0]) / (LONGEST // 2)
    if load < least:
        raise InvalidInput("load", load, f"{least:.2g} or more, or the last job is released beyond the calendar")
    return scale_gaps(workload, offered / load)


def lin14(
    workload: Workload, *, seed: int, share: float = 0.01, runtimes: float = 0.001, gaps: float = 0.1
) -> Workload:
    """The workload of the trace-based simulation of Lin14 6.3, from a log.

    - Consecutive jobs from a random start, 1 % of the log.
    - Run times x 0.001, gaps x 0.1.
    - Each processor of a job becomes a task with the job's run time.
    - Jobs released within 1 s of the first of their batch are released with it.
    - Priorities by user, counted in the sample.
    - Due 2 x run time after release; with 4 tasks or more, 2 x run time x tasks / 4.

    reading: batches are made after the gaps are scaled, on the clock of the scaled releases. The clock is 0 at the
    first release.
    """
    drawn = as_bags(sample(workload, share, seed))
    scaled = scale_gaps(scale_runtimes(from_zero(drawn), runtimes), gaps)
    return due_dates(priorities_by_user(batches(scaled)), factor=2.0, shared_by=4)


RECIPES: Final[Mapping[str, Callable[..., Workload]]] = {"lin14": lin14}
"""Named transforms that turn a log into a workload as a paper did. Each takes the workload and a seed."""


def by_recipe(workload: Workload, name: str, *, seed: int) -> Workload:
    """The workload that a recipe makes of a log.

    Raises:
        InvalidInput: there is no recipe of this name.
    """
    if name not in RECIPES:
        raise InvalidInput("recipe", name, ", ".join(RECIPES), hint=did_you_mean(name, RECIPES))
    return RECIPES[name](workload, seed=seed)


def _check_factor(name: str, factor: float) -> None:
    if not 0 < factor < float("inf"):
        raise InvalidInput(name, factor, "a number above 0")


def _times(durations: IntArray, factor: float) -> Any:
    longest = int(np.abs(durations).max(initial=0))
    if longest * float(factor) >= NEVER:
        raise InvalidInput("factor on times", factor, f"less than {NEVER / longest:g}: times must fit the calendar")
    return np.rint(durations * factor).astype(np.int64)


def _released_at(workload: Workload, release: IntArray) -> Workload:
    due = np.where(workload.due >= NEVER, NEVER, workload.due + (release - workload.release))
    return replace(workload, release=release, due=due)
