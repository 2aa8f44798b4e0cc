"""A workload as columns: what the readers give, the transforms change and the simulator runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import NEVER, SECOND, Duration
from headway.model.job import SHAPES, JobSpec, Kind, TaskSpec

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def in_seconds(table: object, column: str, allowed: Sequence[str]) -> FloatArray:
    """A column of a workload or schedule in seconds; NaN for what is unknown (-1) or never comes.

    Raises:
        InvalidInput: it is not one of those allowed.
    """
    if column not in allowed:
        raise InvalidInput("column", column, ", ".join(allowed), hint=did_you_mean(column, allowed))
    times: IntArray = getattr(table, column)
    return np.where((times < 0) | (times >= NEVER), np.nan, times / SECOND)


@dataclass(frozen=True, slots=True)
class BagTimes:
    """How long the tasks of one bag really run if one figure is not enough, and what the scheduler knows of it.

    Attributes:
        tasks: microseconds that each task really runs on a node of speed factor 1; empty: all as `Workload.runtime`.
        classes: microseconds that a task of run time `Workload.runtime` really takes on nodes of a class, by
            `NodeSpec.node_class`; on others its run time and their speed count.
        sizes, profile: what the scheduler learns with the job, as in `JobSpec`.
    """

    tasks: tuple[Duration, ...] = ()
    classes: tuple[tuple[str, Duration], ...] = ()
    sizes: tuple[float, ...] = ()
    profile: tuple[tuple[str, Duration], ...] = ()

    def times(self, factor: float) -> BagTimes:
        """All times multiplied."""
        return BagTimes(
            tuple(round(run_time * factor) for run_time in self.tasks),
            tuple((node_class, round(run_time * factor)) for node_class, run_time in self.classes),
            self.sizes,
            tuple((node_class, round(run_time * factor)) for node_class, run_time in self.profile),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of (release, position), a column an attribute, all of shape (jobs,).

    The position in the columns is the job's id in a simulation, so it breaks ties.

    Attributes:
        label: the job's name in its file; ints or strings.
        release: microseconds on the log's clock, never falling from one job to the next.
        tasks: tasks of the job, >= 1; 1 for a rigid job.
        width: slots it needs at once, >= 1; 1 unless rigid.
        runtime: microseconds a task really runs on a node of speed factor 1, >= 0.
        estimate: its estimate in microseconds, -1 if unknown.
        due: microseconds on the log's clock, `NEVER` without a due date.
        priority, rate: as in `JobSpec`.
        user: the user's name or number as in the file; "" if unknown.
        kind: one of `Kind`, as numbers.
        cpu: the mean share of a processor, 0 to 1, that a process of the job would use if it had one for itself; NaN if
            unknown.
        shape: how the penalty of a late job grows with its tardiness, as places in `SHAPES`.
        uses: by position, rigid jobs whose processes differ: the share of each, one a process.
        workflows: the tasks of each job that is a workflow, by position; their estimates are their run times.
        task_labels: what the file calls the tasks of a workflow, by position; of other jobs numbers are their names.
        bags: by position, bags whose tasks or nodes are not alike.
        after: by position, jobs that come after others: the positions of these, each smaller than its own.
        dropped: how many records a reader left out, by reason.
        notes: what people should know about the work of a reader or transform, one sentence each.
    """

    label: NDArray[Any]
    release: IntArray
    tasks: IntArray
    width: IntArray
    runtime: IntArray
    estimate: IntArray
    due: IntArray
    priority: FloatArray
    rate: FloatArray
    user: NDArray[Any]
    kind: NDArray[np.int8]
    cpu: FloatArray
    shape: NDArray[np.int8]
    uses: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    workflows: Mapping[int, tuple[TaskSpec, ...]] = field(default_factory=dict)
    task_labels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    bags: Mapping[int, BagTimes] = field(default_factory=dict)
    after: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.release)

    def seconds(self, column: str) -> FloatArray:
        """A column of times in seconds, NaN if there is none: `release`, `runtime`, `estimate` or `due`.

        Raises:
            InvalidInput: it is not a column of times.
        """
        return in_seconds(self, column, ("release", "runtime", "estimate", "due"))

    def take(self, rows: IntArray | slice) -> Workload:
        """The jobs at these positions, in this order; `rows` must leave releases in order."""
        positions = np.arange(len(self), dtype=np.int64)[rows]
        columns = {name: getattr(self, name)[positions] for name in COLUMNS}
        moved = dict(enumerate(positions.tolist()))
        workflows = {new: self.workflows[old] for new, old in moved.items() if old in self.workflows}
        labels = {new: self.task_labels[old] for new, old in moved.items() if old in self.task_labels}
        bags = {new: self.bags[old] for new, old in moved.items() if old in self.bags}
        uses = {new: self.uses[old] for new, old in moved.items() if old in self.uses} if self.uses else {}
        place = {old: new for new, old in moved.items()} if self.after else {}
        after = {
            new: tuple(sorted(place[before] for before in self.after[old] if before in place))
            for new, old in moved.items()
            if old in self.after
        }
        rest: dict[str, Any] = {"bags": bags, "uses": uses, "after": after}
        return replace(self, workflows=workflows, task_labels=labels, **rest, **columns)


COLUMNS: tuple[str, ...] = (
    "label",
    "release",
    "tasks",
    "width",
    "runtime",
    "estimate",
    "due",
    "priority",
    "rate",
    "user",
    "kind",
    "cpu",
    "shape",
)
"""The names of the columns of a workload."""


def workload_us(
    *,
    release: Sequence[int] | IntArray,
    runtime: Sequence[int] | IntArray,
    tasks: Sequence[int] | IntArray | int = 1,
    width: Sequence[int] | IntArray | int = 1,
    estimate: Sequence[int] | IntArray | int = -1,
    due: Sequence[int] | IntArray | int = NEVER,
    priority: Sequence[float] | FloatArray | float = 0.0,
    rate: Sequence[float] | FloatArray | float = 1.0,
    user: Sequence[Any] | NDArray[Any] | str = "",
    kind: Sequence[int] | NDArray[np.int8] | int | None = None,
    cpu: Sequence[float] | FloatArray | float = math.nan,
    shape: Sequence[int] | NDArray[np.int8] | int = 0,
    uses: Mapping[int, tuple[float, ...]] | None = None,
    label: Sequence[Any] | NDArray[Any] | None = None,
    workflows: Mapping[int, tuple[TaskSpec, ...]] | None = None,
    task_labels: Mapping[int, tuple[str, ...]] | None = None,
    bags: Mapping[int, BagTimes] | None = None,
    after: Mapping[int, tuple[int, ...]] | None = None,
    dropped: Mapping[str, int] | None = None,
    notes: tuple[str, ...] = (),
) -> Workload:
    """A workload from columns in any order of release; single values stand for a whole column.

    People are offered `headway.workload_of`, which takes seconds.

    Args:
        release, runtime, estimate, due: microseconds.
        kind: default rigid where `width` is above 1, else bag.
        label: default the positions before sorting.
        after: positions before sorting, as all that goes by position.

    Returns:
        The jobs in order of (release, position given).

    Raises:
        InvalidInput: a job comes after one that follows it in that order.
    """
    jobs = len(release)

    def column(values: Any, dtype: Any) -> NDArray[Any]:
        array = np.asarray(values, dtype=dtype)
        return np.full(jobs, array) if array.ndim == 0 else array

    widths = column(width, np.int64)
    kinds = np.where(widths > 1, int(Kind.RIGID), int(Kind.BAG)) if kind is None else kind
    plain = Workload(
        label=np.arange(jobs) if label is None else np.asarray(label),
        release=column(release, np.int64),
        tasks=column(tasks, np.int64),
        width=widths,
        runtime=column(runtime, np.int64),
        estimate=column(estimate, np.int64),
        due=column(due, np.int64),
        priority=column(priority, np.float64),
        rate=column(rate, np.float64),
        user=column(user, object if not isinstance(user, str) else None),
        kind=column(kinds, np.int8),
        cpu=column(cpu, np.float64),
        shape=column(shape, np.int8),
        uses=dict(uses or {}),
        workflows=dict(workflows or {}),
        task_labels=dict(task_labels or {}),
        bags=dict(bags or {}),
        after=dict(after or {}),
        dropped=dict(dropped or {}),
        notes=notes,
    )
    found = plain.take(np.argsort(plain.release, kind="stable").astype(np.int64))
    for position, before in found.after.items():
        if before and before[-1] >= position:
            of, named = found.label[position], found.label[before[-1]]
            raise InvalidInput("after", named, "jobs that are released before it", source=f"job {of}")
    return found


def told_by(specs: Sequence[JobSpec]) -> dict[str, Any]:
    """Columns that hold whatever becomes of jobs, as arguments of `workload_us`; no terms that may be changed."""
    return {
        "label": [spec.id for spec in specs],
        "tasks": [spec.tasks for spec in specs],
        "width": [spec.width for spec in specs],
        "estimate": [-1 if spec.estimate is None else spec.estimate for spec in specs],
        "rate": [spec.rate for spec in specs],
        "shape": [SHAPES.index(spec.shape) for spec in specs],
        "user": [spec.user for spec in specs],
        "kind": [int(spec.kind) for spec in specs],
    }
