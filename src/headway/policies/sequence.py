"""In which order batch jobs go to the slots, by what it costs when they are late (Chang16 V.B.2).

Every order is made of the jobs' loads, not of a snapshot: so it serves rounds, estimates for any number of slots, and
experiments alike. `docs/papers/chang16.md` explains how the order by equation 12 is found fast.

Source: T.-W. Chang et al., "Resource Provision for Batch and Interactive Workloads in Data Centers", HPCC 2016.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import PenaltyShape, cost_of
from headway.model.value import value

LOOKAHEAD: Final = 2.0
"""How many mean times of a job ahead a due date is felt by `atc`; the source of the rule has 1.5 to 4.5, mostly 2."""


@value
class Load:
    """What is left of a job of which no task depends on another, as far as its order is concerned.

    Attributes:
        tasks: how many have not started, >= 0.
        run_time: how long each of them takes, in microseconds.
        due: the due date; `NEVER` if there is none.
        rate: penalty per unit of the shape, >= 0.
        shape: how the penalty grows with tardiness. Orders take it as linear, estimates as it is.
        until: when its running tasks have ended, if any run.
    """

    tasks: int
    run_time: Duration
    due: Instant = NEVER
    rate: float = 1.0
    shape: PenaltyShape = PenaltyShape.LINEAR
    until: Instant = 0

    def alone(self, slots: int) -> Duration:
        """How long its tasks take with all slots for themselves, `slots` >= 1."""
        return self.run_time * -(-self.tasks // slots)

    def penalty(self, end: Instant) -> float:
        """The penalty if it ends at this instant."""
        return self.penalty_of(end - self.due) if self.due < NEVER else 0.0

    def penalty_of(self, late: Duration) -> float:
        """The penalty of being late by so much."""
        return cost_of(self.rate, self.shape, late)


Order = Callable[[Sequence[Load], int, Instant], Iterator[int]]
"""Puts loads in order for a number of slots from an instant on; gives their positions, one after the other.

Only as much is computed as is asked for. Loads that differ in nothing keep the order in which they are given."""


def by_due_date(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """EDF: earliest due date first."""
    return iter(sorted(range(len(loads)), key=lambda place: loads[place].due))


def by_slack(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """LST: least slack first. The slack is what is left until the due date if the job had all slots from now on."""
    return iter(sorted(range(len(loads)), key=lambda place: loads[place].due - loads[place].alone(slots)))


def by_slack_rate(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """LSTR: least slack in proportion to the time until the due date first.

    In the paper, where all jobs are there at time 0, that is the due date itself. Jobs whose due date has passed come
    first, by slack.
    """

    def key(place: int) -> tuple[float, float]:
        load = loads[place]
        if load.due >= NEVER:
            return math.inf, 0.0
        slack, left = load.due - now - load.alone(slots), load.due - now
        return (slack / left, slack) if left > 0 else (-math.inf, slack)

    return iter(sorted(range(len(loads)), key=key))


def by_rate(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """HPRF: highest penalty rate first."""
    return iter(sorted(range(len(loads)), key=lambda place: -loads[place].rate))


def by_weight(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """WSPT: highest penalty rate for the work that is left first.

    Source: W. E. Smith, "Various optimizers for single-stage production", Naval Research Logistics Quarterly 3, 1956.
    """
    return iter(sorted(range(len(loads)), key=lambda place: -loads[place].rate / _work(loads[place])))


def by_tardiness_cost(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """ATC: highest apparent tardiness cost first: rate for work, discounted by slack, at the time when a job is chosen.

    The discount is `exp(-slack / (LOOKAHEAD * mean))`, with the mean time of a job on all slots, by work. In logarithms
    all jobs with slack gain on those without at one pace, so two heaps find the order: O(n log n).

    Source: A. Vepsalainen, T. Morton, "Priority rules for job shops with weighted tardiness costs", Management Science
    33(8), 1987.
    """
    if not loads:
        return
    works = [_work(load) / slots for load in loads]
    scale = LOOKAHEAD * math.fsum(works) / len(works)
    worth = [
        math.log(load.rate) - math.log(work) if load.rate > 0 else -math.inf
        for load, work in zip(loads, works, strict=True)
    ]
    latest = [load.due - work for load, work in zip(loads, works, strict=True)]
    late: list[tuple[float, int]] = []
    early = [(latest[place] / scale - worth[place], place) for place in range(len(loads))]
    heapify(early)
    in_order_of_slack = sorted(range(len(loads)), key=lambda place: -latest[place])  # the next at the end
    gone = [False] * len(loads)
    at = float(now)
    for _ in loads:
        while in_order_of_slack and latest[in_order_of_slack[-1]] <= at:
            place = in_order_of_slack.pop()
            if not gone[place]:
                heappush(late, (-worth[place], place))
        while early and (gone[early[0][1]] or latest[early[0][1]] <= at):
            heappop(early)
        if early and (not late or (early[0][0] - at / scale, early[0][1]) < late[0]):
            place = heappop(early)[1]
        else:
            place = heappop(late)[1]
        gone[place] = True
        at += works[place]
        yield place


def _work(load: Load) -> float:
    """The slot time of what is left, > 0."""
    return max(1, load.tasks * load.run_time)


def greedy(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """Next the job that adds the least penalty to the others while it has all slots (Chang16, equation 12).

    Of equals the shortest comes first, then the earliest due date. Jobs without a due date cost nothing when they wait:
    they come last.

    The penalties are exact, however large or small the rates are. What others lose while a job of length `e` runs is
    `F(e)`, convex in `e` and the same for all, less the job's own part. So the jobs are looked at by rising length, and
    the search ends where `F` alone has outgrown the best by more than any own part. A job that stays in time even
    if it is next has no own part: of these only the shortest counts.
    """
    return _Greedy(loads, slots, now).order()


class _Greedy:
    """The search of `greedy`. Jobs are numbered by rank: by length, then due date, then as given.

    Attributes:
        length: by rank, the time on all slots.
        latest: by rank, the last start with which the job is in time.
        rate: by rank, a whole number in proportion to the rate.
        safe: ranks of those that are in time even if they start next; rising.
        pressed: ranks of the others; rising.
        ahead: ranks by last start, see `after`; `after[-1]` is the first whose last start has not come.
    """

    def __init__(self, loads: Sequence[Load], slots: int, now: Instant) -> None:
        timed = [place for place, load in enumerate(loads) if load.due < NEVER]
        lengths = [load.alone(slots) for load in loads]
        timed.sort(key=lambda place: (lengths[place], loads[place].due))
        self.now = now
        self.places = timed
        self.untimed = [place for place, load in enumerate(loads) if load.due >= NEVER]
        self.length = [lengths[place] for place in timed]
        self.latest = [loads[place].due - lengths[place] for place in timed]
        self.rate = whole([loads[place].rate for place in timed])
        ranks = range(len(timed))
        self.safe = list(ranks)
        self.pressed: list[int] = []
        self.by_pressure = sorted(ranks, key=lambda rank: self.latest[rank] - self.length[rank], reverse=True)
        self.heaviest: list[tuple[int, int]] = []
        by_latest = sorted(ranks, key=lambda rank: self.latest[rank])
        self.after = [-1] * (len(timed) + 1)
        self.before = [-1] * (len(timed) + 1)
        last = -1
        for rank in by_latest:
            self.after[last], self.before[rank] = rank, last
            last = rank
        self.after[last], self.before[-1] = -1, last
        self.late_rate = 0
        self.gone = [False] * len(timed)

    def order(self) -> Iterator[int]:
        for _ in range(len(self.places)):
            self._pass_time()
            rank = self._best()
            self._take(rank)
            yield self.places[rank]
        yield from self.untimed

    def _pass_time(self) -> None:
        """Note who is late by now, and who would be if it started next."""
        now, latest, length, after = self.now, self.latest, self.length, self.after
        rank = after[-1]
        while rank >= 0 and latest[rank] <= now:
            self._unlink(rank)
            self.late_rate += self.rate[rank]
            rank = after[-1]
        by_pressure = self.by_pressure
        while by_pressure and latest[by_pressure[-1]] - length[by_pressure[-1]] < now:
            rank = by_pressure.pop()
            if not self.gone[rank]:
                del self.safe[bisect_left(self.safe, rank)]
                insort(self.pressed, rank)
                heappush(self.heaviest, (-self.rate[rank], rank))

    def _best(self) -> int:
        now, latest, length, rate, after = self.now, self.latest, self.length, self.rate, self.after
        heaviest, late_rate = self.heaviest, self.late_rate
        while heaviest and self.gone[heaviest[0][1]]:
            heappop(heaviest)
        most = -heaviest[0][0] if heaviest else 0
        safe = self.safe[0] if self.safe else len(self.places)
        best, least, is_first = -1, 0, True
        slope, offset = late_rate, 0  # F(e) = slope * e - offset
        coming = after[-1]
        for rank in self._candidates(safe):
            lasts = length[rank]
            while coming >= 0 and latest[coming] < now + lasts:
                slope += rate[coming]
                offset += rate[coming] * (latest[coming] - now)
                coming = after[coming]
            costs = slope * lasts - offset
            if not is_first and costs - most * lasts > least and slope >= most:
                break
            if rank != safe:
                costs -= rate[rank] * (lasts if latest[rank] <= now else lasts - (latest[rank] - now))
            if is_first or costs < least:
                best, least, is_first = rank, costs, False
        return best

    def _candidates(self, safe: int) -> Iterator[int]:
        """Those that are pressed and the shortest of the others, by rank."""
        is_due = safe < len(self.places)
        for rank in self.pressed:
            if is_due and safe < rank:
                yield safe
                is_due = False
            yield rank
        if is_due:
            yield safe

    def _take(self, rank: int) -> None:
        self.gone[rank] = True
        if self.latest[rank] <= self.now:
            self.late_rate -= self.rate[rank]
        else:
            self._unlink(rank)
        ranks = self.safe if self.safe and self.safe[0] == rank else self.pressed
        del ranks[bisect_left(ranks, rank)]
        self.now += self.length[rank]

    def _unlink(self, rank: int) -> None:
        before, after = self.before[rank], self.after[rank]
        self.after[before], self.before[after] = after, before


def whole(rates: Sequence[float]) -> list[int]:
    """Whole numbers in exact proportion to some rates.

    >>> whole([0.5, 3.0, 0.25])
    [2, 12, 1]
    """
    ratios = [rate.as_integer_ratio() for rate in rates]
    common = max((denominator for _, denominator in ratios), default=1)  # all are powers of 2
    return [numerator * (common // denominator) for numerator, denominator in ratios]


SEQUENCES: Final[dict[str, Order]] = {
    "greedy": greedy,
    "edf": by_due_date,
    "lst": by_slack,
    "lstr": by_slack_rate,
    "hprf": by_rate,
    "wspt": by_weight,
    "atc": by_tardiness_cost,
}
"""The orders that users can name."""
