"""What batch jobs and services must cost at least, whoever shares out the units: a clairvoyant's bound.

The bound is a Lagrangian one. Each unit gets a price for each window, and everything that needs units pays for them.
Without the prices, what is needed in a window may not exceed the units; with them it may, and the least cost of all
parts by themselves, less the price of all units, is at most what any schedule costs that keeps to the units. That holds
for all prices >= 0. Good ones are searched for; a bad search gives a lower bound that is less good, never a wrong one.

*Batch jobs.* Take a job of work `p` that uses at most `r` units at once, with due date `d` and rate `w`. It costs at
least the sum over its work of `w / p * g(t)`, where `t` is when the work is done, and `g(t) = t + p / (2 r) - d` from
`d` on and 0 before. The sum is largest if all work is done as late as it may be, from `C - p / r` to its completion
`C`, and there the mean of `g` is at most `max(0, C - d)`. So tasks may be stopped, split and moved. Within a step, work
costs what it does at the step's start, and behind the last step as much as in it.

*Services*, if units may change hands at any instant (`"any"`): a request that is in time takes its processing time of a
unit, at some instant from its arrival until the threshold has passed. The shortest ones are taken. What waits from
before is forgotten, and what is late takes nothing. The unit that each service has at least serves for nothing while
there is a request whose threshold has not passed.

*Services*, if units change hands only when windows end, and at once (`"windows"`): each number of units answers the
requests of a window as they come, exactly, from an empty queue. More units, or a shorter queue, never make a request
later. What has not begun when the window ends counts as if a unit were free then.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from typing import Final, Literal, NamedTuple

import numpy as np

from headway.model.instant import SECOND
from headway.model.workload import FloatArray, IntArray, Workload
from headway.policies.listing import SlotTimes, ends
from headway.policies.sequence import Load, by_tardiness_cost

STEP: Final = 5.0
"""Seconds for which the work of batch jobs costs the same."""

PER_WINDOW: Final = 4
"""Steps of a window of services."""

UNITS_LEAST: Final = 1
"""Units that each service has."""

PATIENCE: Final = 15
"""After so many steps of the search that find nothing better, they become half as long."""

Border = Literal["any", "windows"]
"""When units may change hands."""


class Answered(NamedTuple):
    """The requests of a service, and what is agreed; times in seconds.

    Attributes:
        arrivals, processing: when each request comes, in order, and how long it takes.
        threshold, fraction, rate: as those of a service.
    """

    arrivals: FloatArray
    processing: FloatArray
    threshold: float
    fraction: float
    rate: float


class Curve(NamedTuple):
    """What a window costs by what a service has beyond its least; the amounts rise, and the costs fall.

    Attributes:
        amounts: seconds of one unit.
        costs: penalties, of the same shape.
    """

    amounts: FloatArray
    costs: FloatArray


def lower_bound(
    jobs: Workload,
    services: Sequence[Answered],
    units: int,
    windows: int,
    border: Border,
    *,
    known: float,
    trials: int = 400,
) -> float:
    """A number below which the total penalty of batch jobs and services never is.

    Each service has one unit at least while there are windows.

    Args:
        jobs: bags with linear penalties.
        windows: how many windows the services last.
        known: the total penalty of some schedule; it only guides the search.
        trials: how many prices are tried.
    """
    batch = _Batch(jobs, units, windows)
    curves = [_curves(one, windows, border) for one in services]
    price = _first_prices(jobs, max(1, units - UNITS_LEAST * len(services)), batch.windows)
    best, best_price, length, failed = -np.inf, price, 1.0, 0
    for _ in range(trials):
        cost, used = batch.least(price)
        for one in curves:
            for place, curve in enumerate(one):
                # Work on the requests of a window may be done a threshold later, in the window behind.
                payer = place if border == "windows" or price[place] <= price[place + 1] else place + 1
                paid = curve.costs + price[payer] * curve.amounts
                choice = int(paid.argmin())
                cost += float(paid[choice])
                used[payer] += curve.amounts[choice]
        held = UNITS_LEAST * len(services) * STEP * PER_WINDOW
        cost += held * float(price[:windows].sum())
        used[:windows] += held
        room = units * STEP * PER_WINDOW
        cost -= room * float(price.sum())
        if cost > best:
            failed = 0 if cost > best + 1e-3 * abs(best) else failed
            best, best_price = cost, price
        else:
            failed += 1
        if failed > PATIENCE:
            price, length, failed = best_price, length / 2, 0
            continue
        missing = used - room
        missing[(price <= 0) & (missing < 0)] = 0
        missing[-1] = 0  # behind the last step there is room without end
        total = float((missing**2).sum())
        if not total:
            break
        price = np.maximum(0, price + missing * (length * max(known - best, known / 500) / total))
    return max(0.0, float(best))


class _Batch:
    """The batch jobs, divided into steps of time.

    Attributes:
        windows: how many windows are looked at.
    """

    def __init__(self, jobs: Workload, units: int, windows: int) -> None:
        release, due = jobs.release / SECOND, jobs.due / SECOND
        self._work = jobs.runtime / SECOND * jobs.tasks
        at_once = np.minimum(jobs.tasks, units)
        whole = float(release.max()) + 2 * float(self._work.sum()) / units
        self.windows = max(windows + 1, int(whole / (STEP * PER_WINDOW)) + 1)
        begin = STEP * np.arange(self.windows * PER_WINDOW)
        late = begin + (self._work / at_once / 2 - due)[:, None]
        costs = (jobs.rate / self._work)[:, None] * np.where(begin >= due[:, None], late, 0.0)
        self._costs = np.where(begin + STEP > release[:, None], costs, np.inf)
        self._most = np.repeat((at_once * STEP)[:, None], len(begin), axis=1)
        self._most[:, -1] = np.maximum(self._most[:, -1], self._work)

    def least(self, price: FloatArray) -> tuple[float, FloatArray]:
        """The least cost by these prices of the windows, and the work in each: each job takes its cheapest steps."""
        costs = self._costs + np.repeat(price, PER_WINDOW)
        order = np.argsort(costs, axis=1)
        most = np.take_along_axis(self._most, order, axis=1)
        taken = np.clip(self._work[:, None] - (np.cumsum(most, axis=1) - most), 0.0, most)
        paid = np.take_along_axis(costs, order, axis=1)[taken > 0] @ taken[taken > 0]
        used: FloatArray = np.bincount(order.ravel() // PER_WINDOW, taken.ravel(), self.windows).astype(np.float64)
        return float(paid), used


def _curves(one: Answered, windows: int, border: Border) -> list[Curve]:
    """What each window costs by what the service has beyond its least."""
    length = STEP * PER_WINDOW
    edges = np.searchsorted(one.arrivals, length * np.arange(windows + 1))
    found = []
    for place in range(windows):
        part = slice(int(edges[place]), int(edges[place + 1]))
        came, takes = one.arrivals[part], one.processing[part]
        if not len(came):
            found.append(Curve(np.zeros(1), np.zeros(1)))
        elif border == "any":
            found.append(_by_work(one, came, takes))
        else:
            found.append(_by_units(one, came, takes, (place + 1) * length))
    return found


def _by_work(one: Answered, came: FloatArray, takes: FloatArray) -> Curve:
    """The shortest requests first; the least units serve while one may be in time, for nothing."""
    free = UNITS_LEAST * float(np.minimum(np.append(np.diff(came), np.inf), one.threshold).sum())
    work = np.append(0.0, np.cumsum(np.sort(takes[takes <= one.threshold])))
    costs = _costs(one, np.arange(len(work)), len(came))
    last = int(np.argmin(costs)) + 1
    return Curve(np.maximum(0.0, work - free)[:last], costs[:last])


def _by_units(one: Answered, came: FloatArray, takes: FloatArray, end: float) -> Curve:
    """With its least units, one more, and so on, until all that is paid for is in time."""
    in_time: list[int] = []
    latest = (np.maximum(came, end) + takes - came <= one.threshold).tolist()  # if they begin when the window has ended
    requests, most = list(zip(came.tolist(), takes.tolist(), strict=True)), int((takes <= one.threshold).sum())
    while not in_time or in_time[-1] < min(most, one.fraction * len(came)):
        in_time.append(_in_time(requests, latest, UNITS_LEAST + len(in_time), end, one.threshold))
    amounts = STEP * PER_WINDOW * np.arange(len(in_time), dtype=np.float64)
    return Curve(amounts, _costs(one, np.array(in_time), len(came)))


def _in_time(
    requests: Sequence[tuple[float, float]], latest: Sequence[bool], units: int, end: float, threshold: float
) -> int:
    """How many requests so many units answer in time, from an empty queue."""
    free, found = [0.0] * units, 0
    for place, (came, takes) in enumerate(requests):
        begin = max(came, free[0])
        if begin >= end:
            return found + sum(latest[place:])
        heapreplace(free, begin + takes)
        found += begin + takes - came <= threshold
    return found


def _costs(one: Answered, in_time: IntArray, came: int) -> FloatArray:
    costs: FloatArray = one.rate * np.maximum(0.0, one.fraction - in_time / came)
    return costs


def _first_prices(jobs: Workload, units: int, windows: int) -> FloatArray:
    """The rates of the jobs that will still be late, by a good order of all of them, for each unit."""
    rows = zip(jobs.tasks.tolist(), jobs.runtime.tolist(), jobs.due.tolist(), jobs.rate.tolist(), strict=True)
    loads = [Load(*row) for row in rows]
    end = np.array(ends(loads, list(by_tardiness_cost(loads, units, 0)), SlotTimes([(0, units)])))
    rates = np.where(end > jobs.due, jobs.rate, 0.0)
    middle = STEP * PER_WINDOW * SECOND * (np.arange(windows) + 0.5)
    price = np.array([float(rates[end > at].sum()) for at in middle]) / units
    price[-1] = 0.0
    return price
