"""Workloads from columns that a program has, with times in seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.errors import InvalidInput
from headway.model.instant import NEVER, SECOND
from headway.model.job import SHAPES, PenaltyShape, TaskSpec
from headway.model.workload import BagTimes, IntArray, Workload, workload_us

LARGEST_SECONDS = NEVER // SECOND // 4
"""The greatest time of a workload in seconds. The sum of a few such times is still a valid instant."""

Planned = tuple[float, int, Sequence[int]] | tuple[float, int, Sequence[int], Sequence[int]]
"""A task of a workflow: its run time in seconds, its cores, the tasks before it, the bytes that each sends to it."""


def workload_of(
    *,
    release: ArrayLike,
    runtime: ArrayLike,
    tasks: ArrayLike = 1,
    width: ArrayLike = 1,
    estimate: ArrayLike | None = None,
    due: ArrayLike | None = None,
    priority: ArrayLike = 0.0,
    rate: ArrayLike = 1.0,
    user: Sequence[Any] | NDArray[Any] | str = "",
    kind: ArrayLike | None = None,
    cpu: ArrayLike = math.nan,
    shape: Sequence[PenaltyShape | str] | PenaltyShape | str = "linear",
    label: Sequence[Any] | NDArray[Any] | None = None,
    task_runtimes: Mapping[int, Sequence[float]] | None = None,
    class_runtimes: Mapping[int, Mapping[str, float]] | None = None,
    profiles: Mapping[int, Mapping[str, float]] | None = None,
    workflows: Mapping[int, Sequence[Planned]] | None = None,
    after: Mapping[int, Sequence[int]] | None = None,
) -> Workload:
    """A workload from columns, with jobs in any order. A single value stands for a whole column.

    Args:
        release, runtime, estimate, due: seconds; NaN or None where there is no estimate or no due date.
        kind: one of `headway.model.job.Kind`; default rigid where `width` is above 1, else bag.
        shape: how the penalty of a late job grows with its tardiness: linear, sqrt or square.
        label: names of the jobs; default their positions before sorting.
        task_runtimes: for bags whose tasks differ, by position: the run time of each task, seconds.
        class_runtimes: for bags, by position: the run time of a task on nodes of a class, seconds. On other nodes it
            follows from `runtime` and the speed of the node.
        profiles: the estimates that the scheduler gets for `class_runtimes`, in the same form.
        workflows: for workflows, by position: for each task its run time in seconds, the cores it needs, the numbers
            of the tasks that come before it, and optionally the bytes that each of these sends to it.
        after: by position, the positions of the jobs that a job comes after.

    Returns:
        The jobs in order of (release, position given). The columns are in microseconds, as everywhere inside Headway;
        `Workload.seconds` returns a column in seconds.

    Raises:
        InvalidInput: a time is negative, too large, or no number; or there is no such shape.

    >>> workload_of(release=[0, 60], runtime=[90, 1.5], due=[None, 120]).seconds("due").tolist()
    [nan, 120.0]
    """
    jobs = len(np.atleast_1d(np.asarray(release)))
    flows = {
        job: tuple(
            TaskSpec(_one(lasts, f"workflows[{job}][{number}]"), cores, tuple(before), tuple(*sends))
            for number, (lasts, cores, before, *sends) in enumerate(plan)
        )
        for job, plan in (workflows or {}).items()
    }
    unequal, classes, told = task_runtimes or {}, class_runtimes or {}, profiles or {}
    bags = {
        job: BagTimes(
            tasks=tuple(_one(lasts, f"task_runtimes[{job}]") for lasts in unequal.get(job, ())),
            classes=_by_class(classes.get(job, {}), f"class_runtimes[{job}]"),
            profile=_by_class(told.get(job, {}), f"profiles[{job}]"),
        )
        for job in sorted({*unequal, *classes, *told})
    }
    return workload_us(
        release=_microseconds(release, "release", jobs),
        runtime=_microseconds(runtime, "runtime", jobs),
        tasks=_whole(tasks),
        width=_whole(width),
        estimate=_microseconds(math.nan if estimate is None else estimate, "estimate", jobs, unsaid=-1),
        due=_microseconds(math.nan if due is None else due, "due", jobs, unsaid=NEVER),
        priority=np.asarray(priority, dtype=np.float64),
        rate=np.asarray(rate, dtype=np.float64),
        user=user,
        kind=None if kind is None else np.asarray(kind, dtype=np.int8),
        cpu=np.asarray(cpu, dtype=np.float64),
        shape=_shapes(shape, jobs),
        label=label,
        workflows=flows,
        after={job: tuple(before) for job, before in (after or {}).items()},
        bags=bags,
    )


def _shapes(given: Sequence[PenaltyShape | str] | PenaltyShape | str, jobs: int) -> list[int]:
    each = [given] * jobs if isinstance(given, PenaltyShape | str) else list(given)
    if len(each) != jobs:
        raise InvalidInput("length of shape", len(each), f"{jobs}, as of release")
    return [shape_place(shape, f"shape[{position}]") for position, shape in enumerate(each)]


def shape_place(shape: PenaltyShape | str, field: str) -> int:
    """The place of a shape in `SHAPES`.

    Raises:
        InvalidInput: there is no such shape.
    """
    try:
        return SHAPES.index(PenaltyShape(shape))
    except ValueError:
        raise InvalidInput(field, shape, ", ".join(one.value for one in SHAPES)) from None


def _whole(values: ArrayLike) -> IntArray:
    return np.asarray(values, dtype=np.int64)


def _by_class(times: Mapping[str, float], field: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, _one(lasts, f"{field}[{name!r}]")) for name, lasts in times.items())


def _one(seconds: float, field: str) -> int:
    return int(_microseconds([seconds], field, 1)[0])


def _microseconds(seconds: ArrayLike, field: str, jobs: int, *, unsaid: int | None = None) -> IntArray:
    """A column of times in microseconds.

    Args:
        unsaid: the value for NaN and None; None: neither is allowed.

    Raises:
        InvalidInput: a value is not a valid time.
    """
    allowed = f"seconds, 0 to {LARGEST_SECONDS}" + ("" if unsaid is None else ", or none")
    try:
        given = np.asarray(seconds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(field, seconds, allowed) from error
    given = np.full(jobs, given) if given.ndim == 0 else given
    if given.shape != (jobs,):
        raise InvalidInput(f"length of {field}", len(given), f"{jobs}, as of release")
    missing = np.isnan(given) if unsaid is not None else np.zeros(jobs, dtype=np.bool_)
    wrong = np.flatnonzero(~(missing | ((given >= 0) & (given <= LARGEST_SECONDS))))
    if len(wrong):
        raise InvalidInput(f"{field}[{wrong[0]}]", float(given[wrong[0]]), allowed)
    whole: IntArray = np.rint(np.where(missing, 0.0, given) * SECOND).astype(np.int64)
    return np.where(missing, unsaid or 0, whole)
