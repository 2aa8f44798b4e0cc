"""How late the event loop handles what is due: what every caller waits for besides the work itself."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from time import perf_counter
from typing import Final

BOUNDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the classes into which delays are sorted, in seconds; longer ones are in a last class."""

DELAY_LOOK_SECONDS: Final = 0.25


class LoopDelay:
    """Checks a few times a second how late the loop is, and counts the delays.

    Attributes:
        counts: checks by class of `BOUNDS`, each without those of the classes before.
        seconds: the sum of all delays.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self._next: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Check from now on, in the running event loop."""
        self._due = perf_counter() + DELAY_LOOK_SECONDS
        self._next = asyncio.get_running_loop().call_later(DELAY_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop checking."""
        if self._next is not None:
            self._next.cancel()

    def note(self, seconds: float) -> None:
        """The loop was late by this much."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def _look(self) -> None:
        self.note(max(0.0, perf_counter() - self._due))
        self.start()
