"""Measures as pure functions of arrays; times are in any one unit unless a unit is named."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.model.instant import Instant
from headway.model.job import PENALTY_MAX, SHAPES, PenaltyShape
from headway.model.schedule import NOT_YET
from headway.model.workload import FloatArray, IntArray

_SQRT, _SQUARE = SHAPES.index(PenaltyShape.SQUARE_ROOT), SHAPES.index(PenaltyShape.SQUARE)


def wait(release: ArrayLike, start: ArrayLike) -> NDArray[Any]:
    """How long each job waited for its first start: start - release, shape (jobs,).

    >>> wait([0, 5], [3, 5])
    array([3, 0])
    """
    waits: NDArray[Any] = np.asarray(start) - np.asarray(release)
    return waits


def response(release: ArrayLike, end: ArrayLike) -> NDArray[Any]:
    """How long each job stayed in the system: end - release, shape (jobs,).

    >>> response([0, 5], [9, 7])
    array([9, 2])
    """
    stays: NDArray[Any] = np.asarray(end) - np.asarray(release)
    return stays


def bounded_slowdown(wait: ArrayLike, run: ArrayLike, floor: float = 10.0) -> FloatArray:
    """How many times longer than ideal each job stayed: max(1, (wait + run) / max(run, floor)).

    Args:
        wait: seconds from release to start, shape (jobs,), each >= 0.
        run: seconds from start to completion, shape (jobs,), each >= 0.
        floor: seconds, > 0. Shorter runs count as this long.

    Returns:
        Ratios without unit, shape (jobs,), each >= 1, in the order given.

    Raises:
        ValueError: the shapes differ, a time is negative, or `floor` is not positive.

    >>> bounded_slowdown([0.0, 60.0], [100.0, 1.0])
    array([1. , 6.1])

    Source: Feitelson & Rudolph, "Metrics and benchmarking for parallel job scheduling", JSSPP 1998.
    """
    waits, runs = np.asarray(wait, dtype=np.float64), np.asarray(run, dtype=np.float64)
    if waits.shape != runs.shape:
        raise ValueError(f"{waits.shape} waits and {runs.shape} runs")
    if not floor > 0 or (waits < 0).any() or (runs < 0).any():
        raise ValueError("times must be 0 or more, and the floor above 0")
    return np.maximum(1.0, (waits + runs) / np.maximum(runs, floor))


def tardiness(end: ArrayLike, due: ArrayLike) -> NDArray[Any]:
    """How late each job was: max(0, end - due), shape (jobs,); 0 for jobs whose due date is `NEVER`.

    >>> tardiness([9, 9], [7, 12])
    array([2, 0])
    """
    late: NDArray[Any] = np.maximum(np.asarray(end) - np.asarray(due), 0)
    return late


def deadline_miss_rate(late: ArrayLike) -> float:
    """Share of late jobs among those that have a due date; 0 if none has.

    Args:
        late: tardiness of each job with a due date (or whether it missed it), shape (jobs,).

    >>> deadline_miss_rate([0, 3, 0, 0.5])
    0.5
    """
    lates = np.asarray(late)
    return float((lates > 0).mean()) if len(lates) else 0.0


def deadline_miss_penalty(priority: ArrayLike, late_seconds: ArrayLike) -> float:
    """Sum over jobs of priority times seconds of tardiness.

    >>> deadline_miss_penalty([100, 1], [2.0, 30.0])
    230.0

    Source: Lin14 6.3.2.
    """
    return float(np.asarray(priority, dtype=np.float64) @ np.asarray(late_seconds, dtype=np.float64))


def penalties(
    rate: ArrayLike, late_seconds: ArrayLike, shape: PenaltyShape | ArrayLike = PenaltyShape.LINEAR
) -> FloatArray:
    """What each job costs: its penalty rate times the penalty shape of its seconds of tardiness, at most `PENALTY_MAX`.

    Args:
        rate, late_seconds: each >= 0, shape (jobs,).
        shape: one for all jobs, or the place of each one's in `SHAPES`.

    >>> penalties([2, 1], [9.0, 4.0], [SHAPES.index(PenaltyShape.SQUARE_ROOT), SHAPES.index(PenaltyShape.SQUARE)])
    array([ 6., 16.])

    Source: DN13 (shapes), Chang16 (rates).
    """
    late = np.asarray(late_seconds, dtype=np.float64)
    places = np.asarray(SHAPES.index(shape) if isinstance(shape, PenaltyShape) else shape)
    grown = np.where(places == _SQRT, np.sqrt(late), np.where(places == _SQUARE, np.square(late), late))
    with np.errstate(over="ignore"):
        costs = np.asarray(rate, dtype=np.float64) * grown
    return np.minimum(costs, PENALTY_MAX)


def total_penalty(
    rate: ArrayLike, late_seconds: ArrayLike, shape: PenaltyShape | ArrayLike = PenaltyShape.LINEAR
) -> float:
    """Sum over jobs of `penalties`.

    >>> total_penalty([2, 1], [9.0, 4.0], PenaltyShape.SQUARE_ROOT)
    8.0
    """
    return float(penalties(rate, late_seconds, shape).sum())


def utilisation(busy: float, offered: float) -> float:
    """Busy capacity divided by all capacity; NaN if there was none.

    >>> utilisation(30, 40)
    0.75
    """
    return busy / offered if offered else float("nan")


def makespan(release: ArrayLike, end: ArrayLike) -> float:
    """From the first release to the last end; 0 without jobs.

    >>> makespan([2, 5], [9, 7])
    7.0
    """
    releases, ends = np.asarray(release), np.asarray(end)
    return float(ends.max() - releases.min()) if len(ends) else 0.0


def percentiles(values: ArrayLike, shares: ArrayLike = (50, 95, 99)) -> FloatArray:
    """The values below which these percentages of all lie, with linear interpolation between neighbours.

    NaN if there are no values.

    >>> percentiles([1, 2, 3, 4], (50, 100))
    array([2.5, 4. ])
    """
    # As numpy.percentile does it to the last bit, which first loads masked arrays: as long as simulating 600 jobs.
    numbers, wanted = np.sort(np.asarray(values, dtype=np.float64)), np.asarray(shares, dtype=np.float64)
    if not len(numbers):
        return np.full(wanted.shape, np.nan)
    place = wanted / 100 * (len(numbers) - 1)
    before = np.floor(place).astype(np.int64)
    low, high, part = numbers[before], numbers[np.minimum(before + 1, len(numbers) - 1)], place - before
    return np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))


class ShareSteps(NamedTuple):
    """A share of the jobs in the system over time, as steps; arrays of shape (steps,).

    Attributes:
        at: microseconds, rising: each step lasts to the next, the last one has no end.
        share: in [0, 1].
        present: jobs in the system.
    """

    at: IntArray
    share: FloatArray
    present: IntArray


def violated_share(
    priority: FloatArray,
    enter: IntArray,
    leave: IntArray,
    change_at: IntArray,
    change_job: IntArray,
    change_slots: IntArray,
) -> ShareSteps:
    """Which share of the jobs in the system is violated: has no slot while a job of lower priority has one.

    What happens at one instant counts as one change, and a job is in the system from the instant it enters to the
    instant it leaves. One sweep over the changes with counts by priority: O((jobs + changes) log jobs).

    Args:
        priority, enter, leave: of each job, shape (jobs,); leave is `NOT_YET` for one that never did.
        change_at, change_job, change_slots: a job has this many slots from an instant on, shape (changes,);
            those of one instant in the order in which they happened. Leaving ends a job's allocation.

    Returns:
        The share after each instant at which anything changed.

    Source: Lin14 6.3.2.
    """
    jobs, left = len(priority), np.flatnonzero(leave != NOT_YET)
    when = np.concatenate((enter, change_at, leave[left]))
    who = np.concatenate((np.arange(jobs), change_job, left))
    kinds = (np.full(jobs, _ENTERS), np.where(change_slots > 0, _HOLDS, _LETS_GO), np.full(len(left), _LEAVES))
    what = np.concatenate(kinds).astype(np.int8)
    # A job enters before it has slots and leaves afterwards; changes of an instant keep their order.
    order = np.lexsort((np.array([0, 1, 1, 2], dtype=np.int8)[what], when))
    who, what = who[order], what[order]
    at, first = np.unique(when[order], return_index=True)
    ranks, rank = np.unique(priority, return_inverse=True)
    sweep = _RankCounts(rank.tolist(), len(ranks))
    share, present = np.empty(len(at)), np.empty(len(at), dtype=np.int64)
    ends = np.append(first[1:], len(order))
    for block in range(0, len(at), _BLOCK):
        begin = offset = int(first[block])
        block_ends = ends[block : block + _BLOCK].tolist()
        whos, whats = who[begin : block_ends[-1]].tolist(), what[begin : block_ends[-1]].tolist()
        for instant, end in enumerate(block_ends, block):
            for change in range(begin - offset, end - offset):
                sweep.change(whos[change], whats[change])
            begin = end
            present[instant] = sweep.present
            share[instant] = sweep.violated() / sweep.present if sweep.present else 0.0
    return ShareSteps(at, share, present)


_ENTERS, _LETS_GO, _HOLDS, _LEAVES = range(4)
_BLOCK = 1 << 15  # how many instants' changes are Python objects at once; all of them would take much memory


class _RankCounts:
    """The jobs that wait and those that have slots, counted by rank of priority; rank 0 is the lowest.

    Waiting jobs are counted in a Fenwick tree, so those above a rank are found in O(log ranks). The lowest rank that
    has slots is the top of a heap, from which ranks are dropped once none of their jobs has any.
    """

    def __init__(self, rank_of: list[int], ranks: int) -> None:
        self.rank_of = rank_of
        self.tree = [0] * (ranks + 1)
        self.waiting = self.present = 0
        self.holding = [0] * ranks
        self.holding_ranks: list[int] = []
        self.status = bytearray([_LEAVES]) * len(rank_of)

    def change(self, job: int, what: int) -> None:
        was, rank = self.status[job], self.rank_of[job]
        if what == was or (what in (_HOLDS, _LETS_GO) and was == _LEAVES) or (what == _LETS_GO and was == _ENTERS):
            return  # nothing new, or news of a job that is not in the system
        waited, waits = was in (_ENTERS, _LETS_GO), what in (_ENTERS, _LETS_GO)
        if waited != waits:
            self.waiting += waits - waited
            node, by = rank + 1, waits - waited
            while node < len(self.tree):
                self.tree[node] += by
                node += node & -node
        self.holding[rank] += (what == _HOLDS) - (was == _HOLDS)
        if what == _HOLDS and self.holding[rank] == 1:
            heappush(self.holding_ranks, rank)
        self.present += (was == _LEAVES) - (what == _LEAVES)
        self.status[job] = what

    def violated(self) -> int:
        """How many jobs have no slots while one of lower rank has some."""
        while self.holding_ranks and not self.holding[self.holding_ranks[0]]:
            heappop(self.holding_ranks)
        if not self.holding_ranks:
            return 0
        node, not_above = self.holding_ranks[0] + 1, 0
        while node:
            not_above += self.tree[node]
            node &= node - 1
        return self.waiting - not_above


def over_time(steps: ShareSteps, until: Instant) -> float:
    """The share averaged over the time in which any job is in the system, up to `until`; 0 if none ever is.

    reading: Lin14's average priority violation rate.

    >>> over_time(ShareSteps(np.array([0, 10, 20]), np.array([0.5, 0.0, 1.0]), np.array([2, 0, 1])), 50)
    0.875
    """
    lasts = np.diff(np.clip(np.append(steps.at, until), None, until)) * (steps.present > 0)
    whole = int(lasts.sum())
    return float(steps.share @ lasts) / whole if whole else 0.0


def over_instants(steps: ShareSteps, instants: IntArray) -> float:
    """The share averaged over instants (planning rounds) at which any job is in the system; 0 if there is none.

    The state at an instant is the one after everything that happens at it; an instant named twice counts twice.

    >>> over_instants(ShareSteps(np.array([0, 10]), np.array([0.5, 0.0]), np.array([2, 1])), np.array([0, 0, 10]))
    0.3333333333333333
    """
    step = np.searchsorted(steps.at, instants, side="right") - 1
    step = step[step >= 0]
    step = step[steps.present[step] > 0]
    return float(steps.share[step].mean()) if len(step) else 0.0
