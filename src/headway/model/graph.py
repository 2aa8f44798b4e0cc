"""Workflows as graphs: their longest way, and the levels of their tasks."""

from __future__ import annotations

from collections.abc import Sequence

from headway.model.instant import Duration
from headway.model.job import TaskSpec


def critical_path(tasks: Sequence[TaskSpec]) -> tuple[int, ...]:
    """The tasks of the longest way through a workflow, first to last; empty for none.

    The way is as long as the run times of its tasks together. What tasks send each other takes no time here. Of equal
    ways it is the one whose tasks have the smaller numbers, from its end.

    >>> critical_path([TaskSpec(2), TaskSpec(3), TaskSpec(1, after=(0, 1)), TaskSpec(9, after=(0,))])
    (0, 3)
    """
    ends: list[Duration] = []
    before: list[int] = []
    for task in tasks:
        latest = max(task.after, key=lambda number: (ends[number], -number), default=-1)
        before.append(latest)
        ends.append(task.estimate + (ends[latest] if latest >= 0 else 0))
    way, number = [], max(range(len(ends)), key=lambda number: (ends[number], -number), default=-1)
    while number >= 0:
        way.append(number)
        number = before[number]
    return tuple(reversed(way))


def length_of(tasks: Sequence[TaskSpec]) -> Duration:
    """How long the critical path of a workflow is: no schedule on nodes of speed factor 1 is shorter.

    >>> length_of([TaskSpec(2), TaskSpec(9, after=(0,))])
    11
    """
    return sum([tasks[number].estimate for number in critical_path(tasks)])


def levels(tasks: Sequence[TaskSpec]) -> list[int]:
    """The level of each task: 0 where none is before it, else one more than the highest of those before it.

    >>> levels([TaskSpec(1), TaskSpec(1, after=(0,)), TaskSpec(1, after=(0, 1))])
    [0, 1, 2]
    """
    found: list[int] = []
    for task in tasks:
        found.append(1 + max([found[before] for before in task.after], default=-1))
    return found
