"""Requests of one service, simulated exactly: first come, first served, by a number of units that changes.

The queue goes on to an instant at a time, so that the number of units can be changed in between. A request belongs to
the window in which it comes. It is in time if it is answered within the threshold; while it waits it counts as late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from typing import Final

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.workload import FloatArray, IntArray

EDGES: Final[FloatArray] = 10 ** np.arange(2, 9.05, 0.1)
"""Edges of the buckets of response times, in microseconds: ten for each power of ten, from 0.1 ms to 1,000 s. What is
faster is in a bucket before them, and what is slower in one behind."""


@dataclass(slots=True)
class ArrivalWindow:
    """What came in a window, and what has become of it.

    Attributes:
        start, end: it holds the requests that come at its start or later, and before its end.
        arrivals: how many came.
        rejected: how many of them found the queue full.
        answered: how many of them have an instance by now, which answers them.
        in_time: how many of those within the threshold.
        processing: mean processing time of those that came, in microseconds; 0 if none came.
        processing_scv: its squared coefficient of variation.
        arrival_scv: that of the times between arrivals, of which the first is that since the arrival before the window;
            1 if there are less than two.
        responses: how many response times are in each bucket (`EDGES`).
        waiting: requests of this and of earlier windows that wait at its end.
    """

    start: Instant
    end: Instant
    arrivals: int
    rejected: int = 0
    answered: int = 0
    in_time: int = 0
    processing: float = 0.0
    processing_scv: float = 0.0
    arrival_scv: float = 1.0
    responses: IntArray = field(default_factory=lambda: np.zeros(len(EDGES) + 1, dtype=np.int64))
    waiting: int = 0

    def share(self) -> float:
        """The share of its requests that are in time; 1 if none came."""
        return self.in_time / self.arrivals if self.arrivals else 1.0

    def rate(self) -> float:
        """Requests that came in a second."""
        return self.arrivals * SECOND / (self.end - self.start)


class SimulatedRequests:
    """The requests of one service, and the units that answer them.

    Of an instant, units are changed first, then requests come.

    Args:
        arrivals: when each request comes, in order, in microseconds.
        processing: how long a unit takes for each, >= 0.
        threshold: how long an answer in time may take.
        units: how many serve at the start.
        warm_up: how long a unit that is added later takes until it serves.
        room: how many requests can wait; one that finds so many waiting is rejected.
        start: when the first window begins; no request comes earlier.

    Attributes:
        units: how many there are, with those that warm up.
        windows: one for each call of `advance`.
        now: how far it has gone.

    Raises:
        InvalidInput: an argument has a value that is not allowed.
    """

    def __init__(
        self,
        arrivals: Sequence[int] | IntArray,
        processing: Sequence[int] | IntArray,
        threshold: Duration,
        *,
        units: int = 0,
        warm_up: Duration = 0,
        room: int | None = None,
        start: Instant = 0,
    ) -> None:
        self._arrivals = np.asarray(arrivals, dtype=np.int64)
        self._processing = np.asarray(processing, dtype=np.int64)
        count = len(self._arrivals)
        if self._arrivals.ndim != 1 or self._processing.shape != self._arrivals.shape:
            raise InvalidInput("processing", self._processing.shape, f"a time for each of {count} arrivals")
        if count and (self._arrivals[0] < start or np.any(np.diff(self._arrivals) < 0)):
            raise InvalidInput("arrivals", int(self._arrivals[0]), f"rising instants from {start} on")
        if np.any(self._processing < 0):
            raise InvalidInput("processing", int(self._processing.min()), "microseconds, 0 or more")
        for name, number in (("threshold", threshold), ("units", units), ("warm_up", warm_up), ("room", room)):
            if number is not None and number < 0:
                raise InvalidInput(name, number, "0 or more")
        self.now = start
        self.units = units
        self.windows: list[ArrivalWindow] = []
        self._threshold = threshold
        self._warm_up = warm_up
        self._room = NEVER if room is None else room
        self._free = [start] * units  # a heap: from when on each unit takes a request
        self._warming: list[Instant] = []  # when those that were added will serve, the last one last
        self._next = 0
        self._waiting: deque[tuple[Instant, Duration]] = deque()
        self._busy_time = 0

    def resize(self, units: int) -> list[Instant]:
        """Have so many units from now on; when each of those is free that are taken away, soonest first.

        Units that have not yet warmed up go first, the latest one before others; then those that are free soonest. A
        unit finishes its request before it goes.

        Raises:
            InvalidInput: the number is negative.
        """
        if units < 0:
            raise InvalidInput("units", units, "0 or more")
        ready = self.now + self._warm_up
        for _ in range(units - self.units):
            heappush(self._free, ready)
            if self._warm_up:
                self._warming.append(ready)
        gone: list[Instant] = []
        if units < self.units:
            rest, fewer = sorted(self._free), self.units - units
            while self._warming and len(gone) < fewer:
                rest.remove(self._warming.pop())
                gone.append(self.now)
            left = fewer - len(gone)
            gone += [max(self.now, at) for at in rest[:left]]
            self._free = rest[left:]  # in order, so a heap
        self.units = units
        return gone

    def advance(self, until: Instant) -> ArrivalWindow:
        """Go on to an instant; the window from now to then.

        What happens in the window to requests of earlier ones is added to their windows.

        Raises:
            InvalidInput: the instant has passed.
        """
        if until <= self.now:
            raise InvalidInput("until", until, f"later than {self.now}")
        first = self._next
        last = int(np.searchsorted(self._arrivals, until))
        window = self._measured(first, last, until)
        self.windows.append(window)
        waiting, free, room = self._waiting, self._free, self._room
        arrivals = self._arrivals[first:last].tolist()
        processing = self._processing[first:last].tolist()
        came: list[Instant] = []
        ends: list[Instant] = []
        for at, long in zip(arrivals, processing, strict=True):
            while waiting and free and free[0] <= at:
                self._answer(came, ends)
            if not waiting and free and free[0] <= at:
                heapreplace(free, at + long)
                came.append(at)
                ends.append(at + long)
                self._busy_time += long
            elif len(waiting) < room:
                waiting.append((at, long))
            else:
                window.rejected += 1
        while waiting and free and free[0] < until:
            self._answer(came, ends)
        self._next, self.now = last, until
        self._warming = [ready for ready in self._warming if ready > until]
        window.waiting = len(waiting)
        self._settle(came, ends)
        return window

    def busy_time(self) -> Duration:
        """The unit time of all requests that have an instance by now."""
        return self._busy_time

    def queued(self) -> int:
        """How many requests wait now."""
        return len(self._waiting)

    def _answer(self, came: list[Instant], ends: list[Instant]) -> None:
        """Let the unit that is free first answer the request that has waited longest."""
        at, long = self._waiting.popleft()
        end = max(self._free[0], at) + long
        heapreplace(self._free, end)
        came.append(at)
        ends.append(end)
        self._busy_time += long

    def _measured(self, first: int, last: int, until: Instant) -> ArrivalWindow:
        window = ArrivalWindow(self.now, until, last - first)
        if last > first:
            window.processing, window.processing_scv = _mean_and_scv(self._processing[first:last])
        gaps = np.diff(self._arrivals[max(0, first - 1) : last])
        if len(gaps) > 1:
            mean, scv = _mean_and_scv(gaps)
            window.arrival_scv = scv if mean else 1.0
        return window

    def _settle(self, came: list[Instant], ends: list[Instant]) -> None:
        """Count what has been answered in the windows in which it came. Answers are in the order of arrivals."""
        if not came:
            return
        times = np.array(ends, dtype=np.int64) - np.array(came, dtype=np.int64)
        windows = self.windows[bisect_right(self.windows, came[0], key=_start_of) - 1 :]
        bounds = np.searchsorted(came, [window.start for window in windows])
        for window, low, high in zip(windows, bounds, [*bounds[1:], len(came)], strict=True):
            if low < high:
                window.answered += int(high - low)
                window.in_time += int((times[low:high] <= self._threshold).sum())
                buckets = np.searchsorted(EDGES, times[low:high])
                window.responses += np.bincount(buckets, minlength=len(EDGES) + 1)


def _start_of(window: ArrivalWindow) -> Instant:
    return window.start


def _mean_and_scv(values: IntArray) -> tuple[float, float]:
    mean = float(values.mean())
    return mean, float(values.var()) / mean**2 if mean else 0.0
