"""What the next window costs with those behind it in view: what `services:top=ahead` decides by.

Two things are left to later windows. Batch jobs that get fewer units end later, and so do all behind them. And requests
that are not answered wait: a service answers in order, so no answer is in time until those that wait have theirs.

Both are told in one measure, the *price* of a unit for a second: what it is worth to have it in some later window. A
backlog counts as a job: its work is what waits, and its rate what a window costs without an answer in time. So the
price is the sum of the rates of all that will still be late then, divided by the units: one unit more for a second
brings all of them forward by so much. docs/policies/services.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headway.model.instant import SECOND, Duration, Instant
from headway.model.workload import FloatArray
from headway.policies.listing import SlotTimes, ends, total_penalty
from headway.policies.provision import TRIED, Tariff
from headway.policies.sequence import Load, Order

LONG_QUEUE: Final = 10
"""In so many windows a queue becomes as long as it will."""

HORIZON: Final = 180
"""So many windows are looked at; with the paper's 20 s, an hour."""

TO_COME: Final = 2.0
"""What a delay costs, in parts of what it costs those batch jobs that are there: others will come behind them, and it
delays these, too. As many as are there is a guess that needs no knowledge."""


def delays(loads: Sequence[Load], most: int, usual: int, order: Order, window: Duration, now: Instant) -> list[float]:
    """What the batch jobs cost with 0, 1, ... `most` units for a window, and with the usual number behind it.

    Not what they cost in all counts, but the differences. More units than are usual help no more: services never have
    so few that batch jobs get them.

    Args:
        usual: as many as services can leave, >= 1.

    Returns:
        Penalties, never rising, shape (most + 1,).
    """
    if not any(load.tasks for load in loads):
        return [0.0] * (most + 1)
    chosen = list(order(loads, usual, now))
    tried = sorted({round(part * usual / TRIED) for part in range(TRIED + 1)} if usual > TRIED else range(usual + 1))
    costs = [
        TO_COME * total_penalty(loads, ends(loads, chosen, SlotTimes([(now, some), (now + window, usual - some)])))
        for some in tried
    ]
    lowest = np.minimum.accumulate(np.interp(np.arange(most + 1), tried, costs))
    return [float(cost) for cost in lowest]


def with_lost(costs: Sequence[float], lost: Sequence[float], price: float) -> list[float]:
    """What the batch jobs cost by the number of their units, if work is lost where units are taken from them.

    Args:
        costs: with 0, 1, ... units, if nothing is lost; see `delays`.
        lost: the work that is lost if 1, 2, ... of the units that they have are taken, in seconds of one unit.
        price: of a unit for a second.
    """
    more = [0.0] * len(costs)
    for taken, work in enumerate(lost, 1):
        if len(lost) - taken < len(more):
            more[len(lost) - taken] = TO_COME * price * work
    return [cost + one for cost, one in zip(costs, more, strict=True)]


def prices(loads: Sequence[Load], units: int, order: Order, window: Duration, now: Instant) -> FloatArray:
    """What a unit is worth for a second, in the window behind the next one, the one behind that, and so on.

    Args:
        loads: the batch jobs and the backlogs.
        units: how many work on them.

    Returns:
        Penalty for a unit and a second, >= 0, never rising, up to the first window in which nothing is late, but for
        `HORIZON` windows at most.
    """
    found = np.array(ends(loads, list(order(loads, units, now)), SlotTimes([(now, units)])), dtype=np.int64)
    rates = np.array([load.rate if end > load.due else 0.0 for load, end in zip(loads, found, strict=True)])
    late = [float(rates[found > now + place * window].sum()) / units for place in range(1, HORIZON + 1)]
    last = next((place for place, price in enumerate(late, 1) if not price), HORIZON)
    return np.array(late[:last])


@dataclass(frozen=True, slots=True)
class TariffAhead:
    """What a service costs by the number of its units, and what becomes of requests that wait.

    Attributes:
        tariff: the next window by itself; what waits now is part of it.
        later: a window behind it without requests from before, with 0, 1, ... units.
        worst: a window without an answer in time.
        load: how many units are busy on average if there are enough.
        waiting: the work that waits now, in seconds of one unit.
        has: how many units it has now, >= 0.
        late: how long a unit that it gets takes until it serves, in seconds, >= 0.
    """

    tariff: Tariff
    later: tuple[float, ...]
    worst: float
    load: float
    waiting: float
    has: int = 0
    late: float = 0.0

    def backlog(self, units: int, window: Duration, now: Instant) -> Load:
        """What waits, as a job that so many units can work on."""
        rate = max(0.0, self.worst - min(self.later)) * SECOND / window
        return Load(units, max(1, round(self.waiting * SECOND / units)), now, rate)

    def ahead(self, price: FloatArray, window: Duration) -> Tariff:
        """The tariff with what the next window leaves to later ones.

        Work that is left waits until the service has units enough to answer all of it, or forever. The best instant for
        that is taken: until then windows cost the worst and their work is added to what waits; from then on each window
        costs the least that it may, with its units. All by the prices, against having nothing left.

        Units that the service does not have yet are late: by that much they answer less in the next window, and those
        that it will want behind it and does not have by then are paid for while they warm up.

        Args:
            price: of a unit for a second, in the windows behind the next one; see `prices`.
        """
        tariff, seconds = self.tariff, window / SECOND
        units = np.maximum(np.arange(len(self.later)), tariff.least)
        paid = np.array(self.later) + seconds * price[:, None] * units
        wanted, good = units[paid.argmin(axis=1)], paid.min(axis=1)
        lost = np.append(0.0, np.cumsum(self.worst + seconds * price * tariff.least - good))
        grown = max(0.0, self.load - tariff.least) * seconds * np.arange(len(price))
        length = max(len(tariff.costs) - 1, int(self.load + self.waiting / seconds) + 2, self.has)
        some = np.arange(min(tariff.most, length) + 1)
        slow = np.maximum(0, some - self.has) * min(self.late, seconds)
        left = np.maximum(0.0, self.waiting + (self.load - some) * seconds + slow)
        begin = lost[:-1] + price * (grown + self.late * np.maximum(0, wanted - tariff.least))
        begin = np.broadcast_to(begin, (len(some), len(price))).copy()
        begin[:, 0] = price[0] * self.late * np.maximum(0, wanted[0] - some)
        later = (begin + price * left[:, None]).min(axis=1)
        costs = np.array(tariff.costs)[np.minimum(some, len(tariff.costs) - 1)] + np.minimum(later, lost[-1])
        return replace(tariff, costs=tuple(np.minimum.accumulate(costs).tolist()))
