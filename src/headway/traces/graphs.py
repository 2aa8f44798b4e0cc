"""Workflows as readers of files build them: tasks by their labels, in any order, and what each waits for."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import NEVER, Instant, from_seconds
from headway.model.job import BYTES_MAX, PenaltyShape, TaskSpec
from headway.model.node import SLOT_COUNT_MAX
from headway.traces.swf import LARGEST

FILE_TASKS_MAX: Final = 1_000_000
"""Tasks that the workflows of one file may have together."""

EDGES_MAX: Final = 10_000_000
"""How often a task of one file may wait for another, in all."""

TIME: Final = f"seconds, 0 to {LARGEST:g}"
CORES: Final = f"a number from 1 to {SLOT_COUNT_MAX}"
BYTES: Final = f"a whole number of bytes, 0 to {BYTES_MAX}"

_CYCLE_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ReadTerms:
    """The terms of a workflow that its file tells, as in `Workload`."""

    release: Instant = 0
    due: Instant = NEVER
    priority: float = 0.0
    rate: float = 1.0
    shape: PenaltyShape = PenaltyShape.LINEAR
    user: str = ""


NO_TERMS: Final = ReadTerms()


@dataclass(frozen=True, slots=True)
class ReadWorkflow:
    """A workflow of a file.

    Attributes:
        name: what the job is called: the name of its file without endings, unless the file says it.
        labels: what the file calls each task; empty: their numbers.
        tasks: in an order in which each comes after those that it waits for; else in that of the file.
        terms: those that the file tells.
    """

    name: str
    labels: tuple[str, ...]
    tasks: tuple[TaskSpec, ...]
    terms: ReadTerms = NO_TERMS


class Graph:
    """Tasks of one workflow in the order of their file, and which waits for which.

    Attributes:
        numbers: the position of each task in the file, by its label.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.numbers: dict[str, int] = {}
        self._labels: list[str] = []
        self._run_times = array("q")
        self._cores = array("q")
        self._before: list[dict[int, int]] = []
        self._edges = 0

    def add(self, label: str, seconds: float, cores: float = 1) -> None:
        """Add a task, whose label is not there yet. Parts of a core count as a whole one.

        Raises:
            HeadwayError: there are too many.
        """
        if len(self._labels) >= FILE_TASKS_MAX:
            raise HeadwayError(f"{self._source} has more than {FILE_TASKS_MAX:,} tasks", "Split it into several files.")
        self.numbers[label] = len(self._labels)
        self._labels.append(label)
        self._run_times.append(from_seconds(seconds))
        self._cores.append(int(-(-cores // 1)))
        self._before.append({})

    def link(self, parent: int, child: int, sent: int = 0) -> None:
        """Let a task wait for another, which sends it this many bytes, in addition to those of an earlier call.

        Raises:
            HeadwayError: there are too many such pairs.
        """
        before = self._before[child]
        if parent not in before:
            self._edges += 1
            if self._edges > EDGES_MAX:
                raise HeadwayError(f"tasks of {self._source} wait for others more than {EDGES_MAX:,} times")
        before[parent] = min(before.get(parent, 0) + sent, BYTES_MAX)

    def parents(self, child: int) -> Sequence[int]:
        """For which tasks a task waits."""
        return list(self._before[child])

    def label(self, position: int) -> str:
        """What the file calls a task."""
        return self._labels[position]

    def __len__(self) -> int:
        return len(self._labels)

    def finish(self, name: str, refuse: Callable[[int, str], InvalidInput]) -> ReadWorkflow:
        """The workflow, with its tasks in order.

        Args:
            refuse: the error for a task that waits for itself, by its position and the way from it to itself.

        Raises:
            InvalidInput: some tasks wait for each other in a circle.
        """
        order = self._order()
        if len(order) < len(self._labels):
            position, way = self._circle(order)
            raise refuse(position, way)
        place = array("q", bytes(8 * len(order)))
        for number, position in enumerate(order):
            place[position] = number
        tasks = []
        for position in order:
            before = sorted((place[parent], sent) for parent, sent in self._before[position].items())
            sends = tuple([sent for _, sent in before])
            tasks.append(
                TaskSpec(
                    self._run_times[position],
                    self._cores[position],
                    tuple([number for number, _ in before]),
                    sends if any(sends) else (),
                )
            )
        return ReadWorkflow(name, tuple([self._labels[position] for position in order]), tuple(tasks))

    def _order(self) -> list[int]:
        """Positions of all tasks that are in no circle and behind none: each time the first in the file that can be."""
        missing = array("q", [len(before) for before in self._before])
        followers: list[list[int]] = [[] for _ in self._before]
        for child, before in enumerate(self._before):
            for parent in before:
                followers[parent].append(child)
        ready = [position for position, count in enumerate(missing) if not count]
        heapify(ready)
        order = []
        while ready:
            position = heappop(ready)
            order.append(position)
            for child in followers[position]:
                missing[child] -= 1
                if not missing[child]:
                    heappush(ready, child)
        return order

    def _circle(self, order: Sequence[int]) -> tuple[int, str]:
        """A task in a circle, and the way along the circle in words."""
        done = set(order)
        position = next(position for position in range(len(self._labels)) if position not in done)
        seen: dict[int, int] = {}
        way: list[int] = []
        while position not in seen:  # each task that is left waits for another one that is left
            seen[position] = len(way)
            way.append(position)
            position = min(parent for parent in self._before[position] if parent not in done)
        circle = [*way[seen[position] :], position]
        labels = [self._labels[each] for each in circle]
        if len(labels) > _CYCLE_SHOWN:
            labels[_CYCLE_SHOWN // 2 : 1 - _CYCLE_SHOWN // 2] = ["..."]
        return position, " after ".join(labels)


def bytes_of(value: float) -> int | None:
    """An amount of bytes as a file has it; None if it is not allowed.

    >>> bytes_of(4096), bytes_of(1.5e3), bytes_of(-1), bytes_of(0.5), bytes_of(float("nan"))
    (4096, 1500, None, None, None)
    """
    return int(value) if 0 <= value <= BYTES_MAX and value == int(value) else None


def is_time(seconds: float) -> bool:
    """Whether a number of seconds may be a run time."""
    return 0 <= seconds <= LARGEST


def is_cores(cores: float) -> bool:
    """Whether a number may be that of the cores of a task."""
    return 1 <= cores <= SLOT_COUNT_MAX
