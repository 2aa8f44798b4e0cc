"""What a service did: numbers, window after window.

A window is told when one threshold has passed since its end. By then it is known of each of its arrivals whether it was
answered in time, so a told window never changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from headway.model.instant import SECOND, from_seconds
from headway.model.window import RESPONSE_BOUNDS, Window
from headway.services.terms import ServiceSettings


class Moments:
    """Mean and squared coefficient of variation of numbers that come one by one (Welford's method)."""

    __slots__ = ("_squares", "count", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, number: float) -> None:
        """One more."""
        self.count += 1
        off = number - self.mean
        self.mean += off / self.count
        self._squares += off * (number - self.mean)

    @property
    def variation(self) -> float:
        """Variance by squared mean; 0 without two numbers, or if all are 0."""
        return self._squares / self.count / self.mean**2 if self.count > 1 and self.mean else 0.0


class OpenWindow:
    """A window that is not told yet. Its numbers are those of `Window`."""

    __slots__ = (
        *("answered", "arrivals", "failed", "gaps", "gone", "in_time", "instance_seconds", "processing"),
        *("queued", "rejected", "response", "responses", "start", "timed_out"),
    )

    def __init__(self, start: float) -> None:
        self.start = start
        self.arrivals = self.rejected = self.in_time = self.queued = 0
        self.answered = self.failed = self.timed_out = self.gone = 0
        self.instance_seconds = 0.0
        self.processing = Moments()
        self.response = Moments()
        self.gaps = Moments()
        self.responses = [0] * (len(RESPONSE_BOUNDS) + 1)

    def told(self, length: float) -> Window:
        """As it is told."""
        return Window(
            start=from_seconds(self.start),
            length=max(1, from_seconds(length)),
            arrivals=self.arrivals,
            rejected=self.rejected,
            in_time=self.in_time,
            answered=self.answered,
            failed=self.failed,
            timed_out=self.timed_out,
            gone=self.gone,
            queued=self.queued,
            instances=self.instance_seconds / length,
            processing=self.processing.mean * SECOND,
            processing_variation=self.processing.variation,
            arrival_variation=self.gaps.variation,
            response=self.response.mean * SECOND,
            responses=tuple(self.responses),
        )


class WindowMeter:
    """Counts what a service does.

    Args:
        settings: those of the service.
        now: when it begins.

    Attributes:
        current: the window that is open since the last `roll`.
        queued, ready: how many requests wait and how many instances are ready; the owner sets the first before a
            `roll`, and `ready` by `has_ready`.
        due: when `roll` has something to do.
    """

    __slots__ = ("_ended", "_last_arrival", "_ready_since", "_settings", "current", "due", "queued", "ready")

    def __init__(self, settings: ServiceSettings, now: float) -> None:
        self._settings = settings
        self._ended: deque[OpenWindow] = deque()
        self._last_arrival: float | None = None
        self._ready_since = now
        self.current = OpenWindow(now)
        self.queued = self.ready = 0
        self.due = now + settings.window

    def roll(self, now: float) -> list[Window]:
        """End the windows whose time is over; returns those that are to be told."""
        length = self._settings.window
        while now >= (end := self.current.start + length):
            self._count_ready(end)
            self.current.queued = self.queued
            self._ended.append(self.current)
            self.current = OpenWindow(end)
        told = []
        while self._ended and now >= self._ended[0].start + length + self._settings.threshold:
            told.append(self._ended.popleft().told(length))
        self.due = self.current.start + length
        if self._ended:
            self.due = min(self.due, self._ended[0].start + length + self._settings.threshold)
        return told

    def rest(self, now: float) -> list[Window]:
        """The windows that have not been told, because the service ends. The last one is as long as it was."""
        self._count_ready(now)
        self.current.queued = self.queued
        length, told = self._settings.window, [tally.told(self._settings.window) for tally in self._ended]
        if now > self.current.start:
            told.append(self.current.told(min(length, now - self.current.start)))
        self._ended.clear()
        return told

    def arrived(self, now: float) -> OpenWindow:
        """A request has come; returns the window to which it belongs."""
        tally = self.current
        tally.arrivals += 1
        if self._last_arrival is not None:
            tally.gaps.add(now - self._last_arrival)
        self._last_arrival = now
        return tally

    def answered(self, of: OpenWindow, response: float, spent: float) -> None:
        """A request of the window `of` was answered after `response` seconds; `spent` of them by the instance."""
        tally = self.current
        tally.answered += 1
        tally.responses[bisect_left(RESPONSE_BOUNDS, response)] += 1
        tally.processing.add(spent)
        tally.response.add(response)
        if response <= self._settings.threshold:
            of.in_time += 1

    def has_ready(self, ready: int, now: float) -> None:
        """From now on so many instances are ready."""
        self._count_ready(now)
        self.ready = ready

    def _count_ready(self, until: float) -> None:
        self.current.instance_seconds += self.ready * (until - self._ready_since)
        self._ready_since = until
