"""How many units each service and the batch jobs get, at the least penalty in all (Chang16 V.B, equations 7, 8 and 13).

The parts are: what each service costs in the coming window by the number of its units, the best split of any number of
units among the services (`Splits`), what the batch jobs cost by the number of theirs, and the split between both kinds.
`dp` is the paper's method; `sf` and `pp` are those with which the paper compares it.

Source: T.-W. Chang et al., "Resource Provision for Batch and Interactive Workloads in Data Centers", HPCC 2016.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from headway.model.instant import Duration, Instant
from headway.model.value import value
from headway.model.workload import FloatArray, IntArray
from headway.policies.listing import Outcomes

UNBOUNDED: Final = 2**31 - 1

Surplus = Literal["first", "even"]
"""Who gets units that lower no penalty: equation 8 leaves it open. `first`: the first services, as a program gives
them that tries every split in turn; `even`: all services equally many."""

TRIED: Final = 64
"""For at most so many numbers of units the batch jobs are scheduled. With so few units in all, as in the paper, for
each."""


@value
class Tariff:
    """What a service costs in the coming window, by the number of its units.

    Attributes:
        costs: its penalty with 0, 1, ... units, >= 0, never rising; with more than are listed it is the last one.
        least: it has at least so many units while there are enough.
        most: it has at most so many.
    """

    costs: tuple[float, ...]
    least: int = 0
    most: int = UNBOUNDED


@value
class Provision:
    """Who gets how many units in the coming window.

    Attributes:
        services: the units of each service, in the order given.
        batch: those of the batch jobs. Units that no service may have are among them.
        penalty: what is expected to be paid in the window.
    """

    services: tuple[int, ...]
    batch: int
    penalty: float


class Splits:
    """The best split of 0, 1, ... `units` units among services: D(i, m) of equations 7 and 8.

    A service first has its least. If there are too few units for that, the services that come first have theirs, as far
    as units are left. Then the program looks for the split of the others that costs least, and gives those that lower
    no penalty as `surplus` says.

    Attributes:
        costs: the penalty of all services, by the number of units that they may have in all.
        taken: how many units they then have; all, unless each has its most.
        least: how many units they have at least, all together, if there are as many.
    """

    def __init__(self, tariffs: Sequence[Tariff], units: int, surplus: Surplus = "even") -> None:
        self._tariffs, self._surplus = tariffs, surplus
        self._sure = sum([tariff.least for tariff in tariffs])
        self.least = min(self._sure, units)
        room = max(0, units - self._sure)
        best = np.zeros(1)
        self._merges: list[_Merge] = []
        for one in tariffs:
            self._merges.append(_Merge(best, one, room))
            best = self._merges[-1].best
        # How many of the units beyond the least are of use: with fewer, more is paid.
        steps = np.arange(len(best)) * np.append(True, np.diff(best) < 0)
        self._useful: list[int] = np.maximum.accumulate(steps).tolist()
        self.costs: list[float] = [self._starving(some) for some in range(min(self._sure, units + 1))]
        self.costs += best.tolist()[: units + 1 - len(self.costs)]
        self.costs += [self.costs[-1]] * (units + 1 - len(self.costs))
        most = sum([max(one.least, min(one.most, units)) for one in tariffs])
        self.taken: list[int] = [min(some, most) for some in range(units + 1)]

    def split(self, units: int) -> tuple[int, ...]:
        """The units of each service if all may have so many."""
        if units < self._sure:
            return self._starved(units)
        left = self._useful[min(units - self._sure, len(self._useful) - 1)]
        found = [0] * len(self._tariffs)
        for place in range(len(self._tariffs) - 1, -1, -1):
            more = self._merges[place].choice(left)
            found[place] = self._tariffs[place].least + more
            left -= more
        self._add(found, self.taken[units] - sum(found))
        return tuple(found)

    def _add(self, found: list[int], surplus: int) -> None:
        """Give units that lower no penalty to services that may have more."""
        while surplus:
            able = [place for place, one in enumerate(self._tariffs) if found[place] < one.most]
            if self._surplus == "first":
                able = able[:1]
            each = -(-surplus // len(able))
            for place in able:
                more = min(each, surplus, self._tariffs[place].most - found[place])
                found[place] += more
                surplus -= more

    def _starved(self, units: int) -> tuple[int, ...]:
        found: list[int] = []
        for one in self._tariffs:
            found.append(min(one.least, units))
            units -= found[-1]
        return tuple(found)

    def _starving(self, units: int) -> float:
        split = self._starved(units)
        return math.fsum([_cost(one, some) for one, some in zip(self._tariffs, split, strict=True)])


def _cost(one: Tariff, units: int) -> float:
    return one.costs[min(units, len(one.costs) - 1)]


class _Merge:
    """Equation 8 for all numbers of units beyond the least at once, where one more service comes in.

    Only numbers of its units are tried with which it pays less than with any fewer: others never do better. Behind the
    end of an array nothing changes any more.

    Attributes:
        best: the least penalty of the services so far.
    """

    def __init__(self, others: FloatArray, one: Tariff, room: int) -> None:
        costs = np.array(one.costs[: one.most + 1])[one.least : one.least + room + 1]
        if not len(costs):
            costs = np.array(one.costs[-1:])
        lowest = np.append(math.inf, np.minimum.accumulate(costs)[:-1])
        self._more: IntArray = np.flatnonzero(costs < lowest)
        self._costs: FloatArray = costs[self._more]
        length = min(room, len(others) - 1 + int(self._more[-1])) + 1
        self._others = np.append(others, np.full(max(0, length - len(others)), others[-1]))
        self.best: FloatArray = np.full(length, math.inf)
        sums = np.empty(length)
        for more, cost in zip(self._more.tolist(), self._costs.tolist(), strict=True):
            part = np.add(self._others[: length - more], cost, out=sums[more:])
            np.minimum(self.best[more:], part, out=self.best[more:])

    def choice(self, units: int) -> int:
        """How many of these units beyond the least the service has: of equal choices, the fewest."""
        units = min(units, len(self.best) - 1)
        tried = int(np.searchsorted(self._more, units, side="right"))
        return int(self._more[np.argmin(self._others[units - self._more[:tried]] + self._costs[:tried])])


def batch_cost(found: Outcomes, units: int, window: Duration, now: Instant) -> Callable[[int], float]:
    """c_B(m) for a window: the penalties of the batch jobs by the number of units, brought to the window.

    The paper multiplies each penalty by the length of the window and divides it by the time until the last job ends.
    With the end of each number by itself, few units would look cheap, for the end moves away as the penalty grows. So
    the end is that with all `units`. A window never costs more than the whole.
    """
    long = found.of(units)[1] - now
    part = 1.0 if long <= window else window / long
    return lambda some: found.of(some)[0] * part


def worth_a_look(services: Splits, cost: Callable[[int], float], units: int) -> list[float]:
    """c_B(0), ... c_B(units), infinite where it is not worth a look; `dp` finds the same with them as with all.

    Between two numbers of units that are known, no split costs less than the services with as many as the lower number
    leaves them, and the batch jobs with the higher one. So of the parts between known numbers, that which may cost
    least is halved, until none can do better than the best that is known, or `TRIED` numbers are. What makes it inexact
    beyond that: list scheduling may take longer with more units, if rarely and by little.
    """
    if units <= TRIED:
        return [cost(some) for some in range(units + 1)]
    costs = [math.inf] * (units + 1)
    best, left = (math.inf, 0), TRIED

    def look(some: int) -> None:
        nonlocal best, left
        left -= 1
        costs[some] = cost(some)
        best = min(best, (services.costs[units - some] + costs[some], some))

    parts: list[tuple[float, int, int]] = []

    def part(low: int, high: int) -> None:
        if high - low > 1:
            heapq.heappush(parts, (services.costs[units - low] + costs[high], low, high))

    low, high = units - services.taken[units], units - services.least
    look(low)
    look(high)
    part(low, high)
    while parts and parts[0][:2] < best and left:
        _, low, high = heapq.heappop(parts)
        middle = (low + high) // 2
        look(middle)
        part(low, middle)
        part(middle, high)
    return costs


def dp(services: Splits, batch: Sequence[float], units: int) -> Provision:
    """The least penalty of both kinds together (equation 13); of equal ones, the most units for services.

    Args:
        batch: c_B(0), ... c_B(units); infinite without units while jobs are left.
    """
    best = services.least
    for some in range(best, services.taken[units] + 1):
        if services.costs[some] + batch[units - some] <= services.costs[best] + batch[units - best]:
            best = some
    return _provision(services, batch, units, best)


def sf(services: Splits, batch: Sequence[float], units: int) -> Provision:
    """Half of the units for either kind (SF); all for services if no batch job is left. Services have their least."""
    return _provision(services, batch, units, max(services.least, units - units // 2) if any(batch) else units)


def pp(
    services: Splits,
    batch: Sequence[float],
    units: int,
    recent_services: float,
    recent_batch: float,
    reserve: float = 0.1,
) -> Provision:
    """Units in proportion to the recent penalties of both kinds (PP); half for either if there are none.

    Either has at least this share of the units, rounded down, but one at least, and services have their least. With no
    batch job left, services have all.

    Args:
        recent_services: what they paid in the last window.
        recent_batch: what the jobs that are late by now would pay if they ended now.
    """
    total = recent_services + recent_batch
    part = recent_services / total if total > 0 else 0.5
    least = min(units // 2, max(1, math.floor(reserve * units)))
    some = max(services.least, min(units - least, max(least, math.floor(units * part + 0.5))))
    return _provision(services, batch, units, some if any(batch) else units)


def _provision(services: Splits, batch: Sequence[float], units: int, some: int) -> Provision:
    split = services.split(some)
    others = units - sum(split)
    return Provision(split, others, services.costs[some] + batch[others])
