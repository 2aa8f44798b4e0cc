"""A finished run as columns: what became of each job, which job had how many slots when, and what the rounds cost.

A simulation or a journal gives it; measures and pictures read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.actions import JobStatus
from headway.model.instant import from_seconds
from headway.model.job import Kind, Service, TaskSpec
from headway.model.node import NodeSpec
from headway.model.power import PowerState, Switching
from headway.model.renting import Money
from headway.model.slots import Slots, runs
from headway.model.window import Window
from headway.model.workload import FloatArray, IntArray, Workload, in_seconds

NOT_YET: Final = -1
"""Stands in a column of instants for what has not happened."""


STATUSES: Final = tuple(JobStatus)
"""A job's status in a schedule is its place in this tuple."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Changes of how many slots a job has and runs on, in the order they happened; columns of shape (changes,).

    Attributes:
        at: microseconds, never falling.
        job: positions in the schedule.
        slots: how many slots are allocated to the job from then on; 0: none.
        running: on how many slots its tasks run in the foreground from then on. Fewer than it has while it waits for
            another job's task to end there, or for more slots; more where it lost slots on which its tasks still run.
    """

    at: IntArray
    job: IntArray
    slots: IntArray
    running: IntArray


@dataclass(frozen=True, slots=True)
class Attempts:
    """Which slots an attempt ran on, and when; columns of shape (runs,).

    An attempt on slots that are not all consecutive, or on several nodes, has a row for each run of consecutive slots
    of one node.

    Attributes:
        job: positions in the schedule.
        task: numbers of the tasks of these jobs.
        node: positions in `Schedule.nodes`.
        first, count: number of the first slot of the run, and how many there are, >= 1.
        start, end: microseconds.
        wasted: whether its work was lost (killed, or its node went down), so that the task had to be redone.
        behind: whether it ran in the background; an attempt that changed its tier has rows for each.
    """

    job: IntArray
    task: IntArray
    node: IntArray
    first: IntArray
    count: IntArray
    start: IntArray
    end: IntArray
    wasted: NDArray[np.bool_]
    behind: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """What became of a service.

    Attributes:
        terms: what it was to do.
        windows: its windows, in order; requests that were answered in a later window than their own count in theirs.
    """

    terms: Service
    windows: tuple[Window, ...]

    @property
    def penalty(self) -> float:
        """What its windows have cost in all (Chang16, equation 2)."""
        return math.fsum([self.terms.penalty(window.share) for window in self.windows])


@dataclass(frozen=True, slots=True)
class RentalRow:
    """A machine that was asked for.

    Attributes:
        number, node: its number, and the name of the node that it was, or was to be.
        site, type: of the offer.
        job: the position in the schedule of the job that it was rented for; None: for no one job.
        user: whose job that was; empty: of nobody.
        asked: microseconds, when it was asked for.
        since, until: from when on it counted as billed, and when it was gone; `NEVER`: not yet. Equal: there was none.
        cost: what was billed, in millionths; what is not over costs what it would if it were given back.
        why: the policy's words.
    """

    number: int
    node: str
    site: str
    type: str
    job: int | None
    user: str
    asked: int
    since: int
    until: int
    cost: Money
    why: str


PowerChange = tuple[int, int, PowerState]
"""When, which node, and its state from then on."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What became of each job of a workload; columns of shape (jobs,), in the order of the workload.

    Attributes:
        label, release, tasks, width, runtime, due, priority, rate, user, shape: as in `Workload`.
        start: microseconds, when its first attempt started; `NOT_YET` if none did.
        end: microseconds, when nothing more could happen to it; `NOT_YET` if that never came.
        slots: the largest number of slots it had at once.
        status: what became of it, as a place in `STATUSES`; a job that did not end was still held, waiting or running.
        holdings: which job had how many slots when; None: every job had its `slots` from its start to its end.
        rounds: microseconds, the instants of the rounds, never falling; one entry for each round.
        begin, until: microseconds, first and last instant of the run.
        busy: slot-microseconds in which attempts ran in the foreground, those whose work was lost included.
        lost: those of them whose work was lost.
        kills: attempts that were killed, to be redone.
        migrations: attempts that continued on other slots with their work kept.
        alone: microseconds that the work of each job takes on slots of its own; None: as long as from its start to
            its end. A job that ran in the background stays longer than that.
        offered: the capacity: slot-microseconds in which slots were up, from `begin` to `until`.
        decisions: the number of rounds.
        decision_seconds: the real time that all rounds took.
        attempts: what ran where, if it was recorded.
        refused: how many parts of the policy's plans were refused, by rule.
        services: what became of the services beside the jobs, in the order given.
        power: where nodes were switched off and on, each change: microseconds, the place of the node in `nodes`, and
            its state from then on; in the order of time.
        present: when which node was up, as node, first and last instant (`NEVER`: it still is), and how many slots it
            had then, where what ran where was recorded.
        switching: the settings by which that was done, by site; see `headway.model.power.settings_of`.
        rentals: the machines that were asked for, in this order.
        nodes: each node that there was, and the slots that it ever had, as a bit set; empty where that is not recorded.
            A node may have the slots of one that has left.
        workflows, task_labels: as in `Workload`.
    """

    label: NDArray[Any]
    release: IntArray
    tasks: IntArray
    width: IntArray
    runtime: IntArray
    due: IntArray
    priority: FloatArray
    rate: FloatArray
    user: NDArray[Any]
    shape: NDArray[np.int8]
    start: IntArray
    end: IntArray
    slots: IntArray
    status: NDArray[np.int8]
    holdings: Holdings | None
    rounds: IntArray
    begin: int
    until: int
    busy: int
    offered: int
    decisions: int
    decision_seconds: float
    attempts: Attempts | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    kills: int = 0
    migrations: int = 0
    alone: IntArray | None = None
    services: tuple[ServiceRecord, ...] = ()
    nodes: tuple[tuple[NodeSpec, Slots], ...] = ()
    power: tuple[PowerChange, ...] = ()
    present: tuple[tuple[int, int, int, int], ...] = ()
    switching: Mapping[str, Switching] = field(default_factory=dict)
    rentals: tuple[RentalRow, ...] = ()
    workflows: Mapping[int, tuple[TaskSpec, ...]] = field(default_factory=dict)
    task_labels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.release)

    @property
    def refusals(self) -> int:
        """How many parts of the policy's plans were refused, >= 0."""
        return sum(self.refused.values())

    def seconds(self, column: str) -> FloatArray:
        """A column of times in seconds, NaN if there is none: `release`, `start`, `end`, `runtime` or `due`.

        Raises:
            InvalidInput: it is not a column of times.
        """
        return in_seconds(self, column, ("release", "start", "end", "runtime", "due"))

    def held_at(self, seconds: float) -> dict[int, int]:
        """How many slots each job had right after this instant, by its position; jobs without slots are left out."""
        instant = from_seconds(seconds)
        if self.holdings is None:
            there = np.flatnonzero((self.start != NOT_YET) & (self.start <= instant) & (self.end > instant))
            return {int(job): int(self.slots[job]) for job in there}
        changes = self.holdings
        until = int(np.searchsorted(changes.at, instant, side="right"))
        held = dict(zip(changes.job[:until].tolist(), changes.slots[:until].tolist(), strict=True))
        return {job: slots for job, slots in sorted(held.items()) if slots}

    def task_label(self, job: int, task: int) -> str:
        """What a task of the job at this position is called: as in its file, or else by its number."""
        labels = self.task_labels.get(job)
        return str(task) if labels is None else labels[task]

    def has(self, *statuses: JobStatus) -> NDArray[np.bool_]:
        """Which jobs have one of these statuses, shape (jobs,)."""
        return np.isin(self.status, [STATUSES.index(status) for status in statuses])


@dataclass(frozen=True, slots=True)
class TaskRun:
    """An attempt whose work counts, in one place: a task that moved with its work has several.

    Attributes:
        job: its position in the schedule.
        task: its number.
        nodes: names of the nodes; several for a rigid job on several of them.
        start, end: microseconds.
        slots: how many.
    """

    job: int
    task: int
    nodes: tuple[str, ...]
    start: int
    end: int
    slots: int


def task_runs(schedule: Schedule, job: int | None = None) -> list[TaskRun]:
    """What ran of each task and was not lost, in order of job, task and start.

    Args:
        job: only of the job at this position; None: of all.

    Raises:
        HeadwayError: it was not recorded.
    """
    attempts = schedule.attempts
    if attempts is None:
        hint = "Let the simulation record attempts (record=True)."
        raise HeadwayError("the schedule does not say what ran where", hint)
    kept = np.flatnonzero(~attempts.wasted if job is None else ~attempts.wasted & (attempts.job == job))
    order = kept[np.lexsort((attempts.first[kept], attempts.start[kept], attempts.task[kept], attempts.job[kept]))]
    columns = (attempts.job, attempts.task, attempts.start, attempts.end, attempts.node, attempts.count)
    found: list[TaskRun] = []
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    for (of, task, start, end), parts in groupby(rows, key=itemgetter(0, 1, 2, 3)):
        nodes, counts = zip(*(part[4:] for part in parts), strict=True)
        names = tuple([schedule.nodes[node][0].name for node in dict.fromkeys(nodes)])
        found.append(TaskRun(of, task, names, start, end, sum(counts)))
    return found


Integers = Sequence[int] | IntArray


@dataclass(frozen=True, slots=True)
class Course:
    """What became of the jobs of a workload, in its order.

    Attributes:
        start, end, slots, status, alone, attempts, nodes, power, present, switching, rentals: as in `Schedule`. Default
            of `slots`: the width of a rigid job, the tasks of another; of `status`: succeeded if there is an end, else
            waiting.
        holdings: columns `at`, `job`, `slots` and `running`; without the last, tasks run on all allocated slots.
    """

    start: Integers
    end: Integers
    slots: Integers | None = None
    status: Sequence[int] | NDArray[np.int8] | None = None
    holdings: tuple[Integers, Integers, Integers] | tuple[Integers, Integers, Integers, Integers] | None = None
    alone: Integers | None = None
    attempts: Attempts | None = None
    nodes: tuple[tuple[NodeSpec, Slots], ...] = ()
    power: tuple[PowerChange, ...] = ()
    present: tuple[tuple[int, int, int, int], ...] = ()
    switching: Mapping[str, Switching] = field(default_factory=dict)
    rentals: tuple[RentalRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run took in all, as in `Schedule`.

    Attributes:
        begin, until: default the first release, and the last end (or the last release, if nothing ended after it).
        busy: default the work of the jobs that succeeded.
        offered: default all slots of the cluster, from `begin` to `until`.
    """

    rounds: Integers = ()
    begin: int | None = None
    until: int | None = None
    busy: int | None = None
    offered: int | None = None
    lost: int = 0
    kills: int = 0
    migrations: int = 0
    decisions: int = 0
    decision_seconds: float = 0.0
    refused: Mapping[str, int] = field(default_factory=dict)


NO_TOTALS: Final = Totals()


def schedule_of(workload: Workload, course: Course, capacity: int, totals: Totals = NO_TOTALS) -> Schedule:
    """A schedule from what a run recorded; columns that are arrays already are shared, not copied.

    Args:
        workload: the jobs that ran, all of them.
        capacity: slots of the cluster; used instead of `Totals.offered` if they never changed.
    """
    slots, status, begin, until, busy = course.slots, course.status, totals.begin, totals.until, totals.busy

    def column(values: Integers) -> IntArray:
        return np.asarray(values, dtype=np.int64)

    ends = column(course.end)
    if status is None:
        succeeded, waiting = STATUSES.index(JobStatus.SUCCEEDED), STATUSES.index(JobStatus.WAITING)
        status = np.where(ends == NOT_YET, waiting, succeeded)
    statuses = np.asarray(status, dtype=np.int8)
    if slots is None:
        slots = np.where(workload.kind == Kind.RIGID, workload.width, workload.tasks)
    if begin is None:
        begin = int(workload.release[0]) if len(workload) else 0
    if until is None:
        until = max(int(workload.release[-1]), int(ends.max()), begin) if len(workload) else begin
    if busy is None:
        done = statuses == STATUSES.index(JobStatus.SUCCEEDED)
        sizes = (workload.tasks * workload.width)[done].astype(np.float64)
        busy = int(sizes @ workload.runtime[done])
    held = course.holdings
    return Schedule(
        label=workload.label,
        release=workload.release,
        tasks=workload.tasks,
        width=workload.width,
        runtime=workload.runtime,
        due=workload.due,
        priority=workload.priority,
        rate=workload.rate,
        user=workload.user,
        shape=workload.shape,
        start=column(course.start),
        end=ends,
        slots=column(slots),
        status=statuses,
        holdings=None if held is None else Holdings(*map(column, (*held, held[2])[:4])),
        rounds=column(totals.rounds),
        begin=begin,
        until=until,
        busy=busy,
        offered=capacity * (until - begin) if totals.offered is None else totals.offered,
        decisions=totals.decisions,
        decision_seconds=totals.decision_seconds,
        attempts=course.attempts,
        refused=dict(totals.refused),
        lost=totals.lost,
        kills=totals.kills,
        migrations=totals.migrations,
        alone=None if course.alone is None else column(course.alone),
        nodes=course.nodes,
        power=course.power,
        present=course.present,
        switching=course.switching,
        rentals=course.rentals,
        workflows=workload.workflows,
        task_labels=workload.task_labels,
    )


AttemptRow = tuple[int, int, int, Slots, int, int, bool, bool]
"""Job, task, node, the slots as a bit set, start, end, whether the work was lost, and whether it ran behind."""


def attempts_of(rows: Iterable[AttemptRow]) -> Attempts:
    """Attempts from a row for each node on which one ran.

    >>> attempts_of([(0, 0, 0, 0b1011, 0, 5, False, False)]).first.tolist()
    [0, 3]
    """
    flat = [
        (job, task, node, first, count, start, end, wasted, behind)
        for job, task, node, on, start, end, wasted, behind in rows
        for first, count in runs(on)
    ]
    job, task, node, first, count, start, end, wasted, behind = np.array(flat, dtype=np.int64).reshape(-1, 9).T
    return Attempts(job, task, node, first, count, start, end, wasted.astype(np.bool_), behind.astype(np.bool_))
