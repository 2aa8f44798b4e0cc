"""How long the garbage collector may block the event loop.

Objects dropped here are hardly ever part of a cycle, so there is little to find. By itself the collector runs when the
number of objects has grown by a threshold. While tasks end as fast as others start, it does not grow. So hundreds of
thousands of new objects gather, and then a listing that makes some more waits until all of them are looked at. So new
objects are looked at after a number of events, a few milliseconds' worth. Survivors are then almost left alone.
"""

from __future__ import annotations

import gc
from typing import Final

EVENTS_AT_ONCE: Final = 100
"""The objects of this many events are looked at together."""

_MORE: Final = 5000
"""When there are this many new objects, they are looked at whatever the events."""

_SELDOM: Final = 10_000
"""Runs over new objects for each run over all, which with 100,000 open jobs takes some hundred milliseconds."""


def spare_collector() -> None:
    """Make the collector leave existing objects alone, and look at all others rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MORE, 1, _SELDOM)


class Collecting:
    """Looks at new objects, a few at a time."""

    def __init__(self) -> None:
        self._events = 0

    def follow(self, events: int) -> None:
        """This many more events were recorded."""
        self._events += events
        if self._events >= EVENTS_AT_ONCE:
            self._events = 0
            gc.collect(1)
