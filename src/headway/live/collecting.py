"""How long the garbage collector may hold the event loop.

What is dropped here is hardly ever a cycle, so there is little to find. By itself the collector looks when there are so
many objects more than there were. While tasks end as others start there never are, so hundreds of thousands of new
ones gather, and then a listing that makes some more waits until all of them are looked at. So new ones are looked at
after so many events, a few milliseconds' worth; those that are still there are left alone from then on, nearly.
"""

from __future__ import annotations

import gc
from typing import Final

EVENTS_AT_ONCE: Final = 100
"""Events whose objects are looked at together."""

_MORE: Final = 5000
"""So many objects more than there were are looked at whatever the events."""

_SELDOM: Final = 10_000
"""Looks at what is new for each one at everything, which with 100,000 open jobs takes some hundred milliseconds."""


def spare_collector() -> None:
    """Have the collector leave alone what is there now, and look at all the rest seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MORE, 1, _SELDOM)


class Collecting:
    """Looks at what is new, a little at a time."""

    def __init__(self) -> None:
        self._events = 0

    def follow(self, events: int) -> None:
        """So many events more were recorded."""
        self._events += events
        if self._events >= EVENTS_AT_ONCE:
            self._events = 0
            gc.collect(1)
