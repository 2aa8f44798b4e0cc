"""What is measured of a service: one window after the other."""

from __future__ import annotations

from typing import Final

from headway.model.instant import Duration, Instant
from headway.model.value import value

RESPONSE_BOUNDS: Final[tuple[float, ...]] = tuple([round(10 ** (step / 5), 6) for step in range(-20, 11)])
"""Upper bounds of the histogram of response times, in seconds: 0.0001 to 100, five for each power of ten."""


@value
class Window:
    """What a service did in a while.

    It has two kinds of numbers. *By arrival*: how many requests came in it, and how many of these were rejected, or
    answered in time. *By end*: how many were answered, failed or timed out in it, and how long these took. So a request
    that takes longer than its window counts once as an arrival, late, and once where it ends.

    Attributes:
        start, length: when, and for how long.
        arrivals: how many requests came.
        in_time: how many of these were answered within the threshold.
        queued: how many requests waited at its end.
        instances: how many instances there were, on average over the window.
        processing: mean processing time of the requests that were answered in it, in microseconds; 0: there were none.
        processing_variation: squared coefficient of variation of their processing times.
        arrival_variation: the same of the times between two arrivals.
        rejected: how many of the requests that came found the queue full.
        answered: how many requests were answered in it.
        failed: how many failed in it: the handler failed, instances died, or the service ended.
        timed_out: how many had waited, or were worked on, for too long.
        gone: how many ended in it because their callers had gone.
        response: mean response time, from arrival, of the requests that were answered in it, in microseconds; 0: there
            were none.
        responses: how many were answered after so many seconds, from arrival: one number for each of `RESPONSE_BOUNDS`,
            those that took no longer than it and longer than the one before; then those above all. Empty: not known.
        warm_up: how long an instance took from its launch until it answered requests, in microseconds: the mean of all
            that were launched so far; 0: none has been ready by then.
    """

    start: Instant
    length: Duration
    arrivals: int = 0
    in_time: int = 0
    queued: int = 0
    instances: float = 0.0
    processing: float = 0.0
    processing_variation: float = 0.0
    arrival_variation: float = 0.0
    rejected: int = 0
    answered: int = 0
    failed: int = 0
    timed_out: int = 0
    gone: int = 0
    response: float = 0.0
    responses: tuple[int, ...] = ()
    warm_up: float = 0.0

    @property
    def end(self) -> Instant:
        """When it ended."""
        return self.start + self.length

    @property
    def share(self) -> float:
        """The share of its requests that were answered in time; 1 without requests."""
        return self.in_time / self.arrivals if self.arrivals else 1.0
