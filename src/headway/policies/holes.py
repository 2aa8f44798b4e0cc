"""When slots of nodes are free, as arrays of holes: where a task fits first is found for all nodes at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.model.instant import Duration, Instant
from headway.model.workload import IntArray

NO_END: Final = 2**63 - 1
"""Where the last hole of a node ends: beyond all instants."""

Times = IntArray | int
"""Times by number of node, or one for all."""

Fit = tuple[int, Instant, Instant]
"""The number of a node, and the start and the end of a task there."""


class _Level:
    """The longest intervals in which so many slots are free throughout that tasks with so many cores fit.

    Attributes:
        needs: how many slots such a task needs, by number of node.
        node, start, end: of each hole; rows without one end before they start.
        count: how many rows are in use.
        starts, rows: of each node, the starts of its holes, rising, and their rows.
    """

    __slots__ = ("count", "end", "needs", "node", "rows", "start", "starts", "vacant")

    def __init__(self, needs: list[int], sizes: Sequence[int], begin: Instant) -> None:
        fits = [number for number, size in enumerate(sizes) if needs[number] <= size]
        self.needs = needs
        self.count = len(fits)
        room = max(16, 2 * self.count)
        self.node: NDArray[np.intp] = np.zeros(room, dtype=np.intp)
        self.start: IntArray = np.zeros(room, dtype=np.int64)
        self.end: IntArray = np.full(room, NO_END, dtype=np.int64)
        self.node[: self.count] = fits
        self.start[: self.count] = begin
        self.starts: list[list[Instant]] = [[] for _ in sizes]
        self.rows: list[list[int]] = [[] for _ in sizes]
        for row, number in enumerate(fits):
            self.starts[number].append(begin)
            self.rows[number].append(row)
        self.vacant: list[int] = []

    def copy(self) -> _Level:
        """The same, to be changed apart from this."""
        other = _Level([], (), 0)
        other.needs, other.count = self.needs, self.count
        other.node, other.start, other.end = self.node.copy(), self.start.copy(), self.end.copy()
        other.starts = [list(starts) for starts in self.starts]
        other.rows = [list(rows) for rows in self.rows]
        other.vacant = list(self.vacant)
        return other

    def cut(self, node: int, begin: Instant, end: Instant) -> None:
        """An interval within a hole is taken."""
        starts, rows = self.starts[node], self.rows[node]
        place = bisect_right(starts, begin) - 1
        row = rows[place]
        hole_end = int(self.end[row])
        if begin > starts[place]:
            self.end[row] = begin
            if hole_end > end:
                new = self._new_row()
                self.node[new], self.start[new], self.end[new] = node, end, hole_end
                starts.insert(place + 1, end)
                rows.insert(place + 1, new)
        elif hole_end > end:
            self.start[row] = starts[place] = end
        else:
            self.end[row] = -1
            self.vacant.append(row)
            del starts[place], rows[place]

    def advance(self, now: Instant) -> None:
        """Forget the holes before an instant."""
        for starts, rows in zip(self.starts, self.rows, strict=True):
            gone = 0
            while gone < len(rows) and self.end[rows[gone]] <= now:
                self.end[rows[gone]] = -1
                gone += 1
            if gone:
                self.vacant += rows[:gone]
                del starts[:gone], rows[:gone]
            if starts and starts[0] < now:
                starts[0] = self.start[rows[0]] = now

    def _new_row(self) -> int:
        if self.vacant:
            return self.vacant.pop()
        if self.count == len(self.node):
            self.node = np.resize(self.node, 2 * self.count)
            self.start = np.resize(self.start, 2 * self.count)
            self.end = np.resize(self.end, 2 * self.count)
        self.count += 1
        return self.count - 1


class Holes:
    """When how many slots of nodes are free, from an instant on. A node that is wide enough exists for each task.

    Args:
        sizes: how many slots each node has.
        needs: for each number of cores that tasks need, how many slots that is on each node.
        begin: the instant; it is the left bound of the first holes.
    """

    __slots__ = ("_free", "_levels", "_times")

    def __init__(self, sizes: Sequence[int], needs: dict[int, list[int]], begin: Instant) -> None:
        self._times: list[list[Instant]] = [[begin] for _ in sizes]
        self._free: list[list[int]] = [[size] for size in sizes]
        self._levels = {cores: _Level(needed, sizes, begin) for cores, needed in needs.items()}

    def copy(self) -> Holes:
        """The same, to be changed apart from this."""
        other = Holes((), {}, 0)
        other._times = [list(times) for times in self._times]
        other._free = [list(free) for free in self._free]
        other._levels = {cores: level.copy() for cores, level in self._levels.items()}
        return other

    def has(self, widths: set[int]) -> bool:
        """Whether tasks of all these numbers of cores can be looked for."""
        return widths <= self._levels.keys()

    def advance(self, now: Instant) -> None:
        """Forget what was before an instant: it is the left bound of the first holes then."""
        for times, free in zip(self._times, self._free, strict=True):
            gone = bisect_right(times, now) - 1
            if gone > 0:
                del times[:gone], free[:gone]
            times[0] = now
        for level in self._levels.values():
            level.advance(now)

    def soonest(self, cores: int, lasts: Times, ready: Times, costs: Any = None) -> Fit:
        """Where a task ends first, holes between others included; ties by order of nodes, then of time.

        Args:
            lasts: how long it takes, > 0, by node.
            ready: when it may start, by node.
            costs: what is added to its end, by node; None: nothing.
        """
        level = self._levels[cores]
        node, start, end = level.node[: level.count], level.start[: level.count], level.end[: level.count]
        begins: Any = np.maximum(start, ready if isinstance(ready, int) else ready[node])
        ends = begins + (lasts if isinstance(lasts, int) else lasts[node])
        return _first(node, begins, ends, ends if costs is None else ends + costs[node], ends <= end)

    def best_hole(self, cores: int, lasts: Times, ready: Times) -> Fit:
        """The hole that a task fills best: the least of hole less task, its end disregarded; ties as in `soonest`.

        A hole is bounded on both sides: by the beginning or work, and by work. Where the task fits into none, it goes
        to the node where it ends first.
        """
        level = self._levels[cores]
        node, start, end = level.node[: level.count], level.start[: level.count], level.end[: level.count]
        begins: Any = np.maximum(start, ready if isinstance(ready, int) else ready[node])
        taken = lasts if isinstance(lasts, int) else lasts[node]
        ends = begins + taken
        fits = (ends <= end) & (end < NO_END)
        if fits.any():
            return _first(node, begins, ends, end - start - taken, fits)
        return _first(node, begins, ends, ends, end == NO_END)

    def on(self, number: int, cores: int, lasts: Duration, ready: Instant) -> Fit:
        """Where a task ends first on one node."""
        level = self._levels[cores]
        starts, rows, end = level.starts[number], level.rows[number], level.end
        for place in range(max(0, bisect_right(starts, ready) - 1), len(starts)):
            begin = max(starts[place], ready)
            if begin + lasts <= end[rows[place]]:
                return number, begin, begin + lasts
        raise ValueError(f"node {number} has no {cores} cores")

    def take(self, node: int, begin: Instant, end: Instant, slots: int) -> None:
        """Take slots of a node for a while; where there are fewer, all that there are."""
        times, free = self._times[node], self._free[node]
        first = bisect_left(times, begin)
        if first == len(times) or times[first] != begin:
            times.insert(first, begin)
            free.insert(first, free[first - 1])
        last = bisect_left(times, end, first)
        if last == len(times) or times[last] != end:
            times.insert(last, end)
            free.insert(last, free[last - 1])
        before = free[first:last]
        after = [max(0, slots_free - slots) for slots_free in before]
        free[first:last] = after
        for level in self._levels.values():
            need, cut_from = level.needs[node], -1
            for place, (had, has) in enumerate(zip(before, after, strict=True), first):
                if has < need <= had:
                    cut_from = place if cut_from < 0 else cut_from
                elif cut_from >= 0:
                    level.cut(node, times[cut_from], times[place])
                    cut_from = -1
            if cut_from >= 0:
                level.cut(node, times[cut_from], end)


def _first(node: Any, begins: Any, ends: Any, rank: Any, fits: Any) -> Fit:
    """Of the rows that fit the one of the least rank, then of the first node, then the first one there."""
    ranks = np.where(fits, rank, NO_END)
    row = int(ranks.argmin())
    least = ranks[row]
    ties = (ranks == least).nonzero()[0]
    if len(ties) > 1:
        row = min(ties.tolist(), key=lambda row: (node[row], begins[row]))
    return int(node[row]), int(begins[row]), int(ends[row])
