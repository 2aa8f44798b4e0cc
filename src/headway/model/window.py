"""What is measured of a service: one window after the other."""

from __future__ import annotations

from headway.model.instant import Duration, Instant
from headway.model.value import value


@value
class Window:
    """What a service did in a while. A request belongs to the window in which it arrives.

    Attributes:
        start, length: when, and for how long.
        arrivals: how many requests came.
        in_time: how many of these were answered within the threshold.
        queued: how many requests waited at its end.
        instances: how many instances there were, on average over the window.
        processing: mean processing time of the requests that were answered in it, in microseconds; 0: there were none.
        processing_variation: squared coefficient of variation of their processing times.
        arrival_variation: the same of the times between two arrivals.
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

    @property
    def end(self) -> Instant:
        """When it ended."""
        return self.start + self.length

    @property
    def share(self) -> float:
        """The share of its requests that were answered in time; 1 without requests."""
        return self.in_time / self.arrivals if self.arrivals else 1.0
