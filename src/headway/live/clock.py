"""Time as the driver sees it; a test puts a clock of its own in its place (`headway.testing.ManualClock`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from headway.model.instant import SECOND, Duration, Instant

_FAR: Final[Duration] = 3600 * SECOND


class Clock(Protocol):
    """Tells the time and calls back."""

    def now(self) -> Instant:
        """Microseconds since the Unix epoch."""
        ...

    def call_at(self, at: Instant, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at this instant, or an hour from now if that is sooner; returns what calls it off."""
        ...


class SystemClock(Clock):
    """The machine's clock."""

    def now(self) -> Instant:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000

    def call_at(self, at: Instant, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back by the event loop."""
        # The loop's clock does not follow when the machine's is set, so a far instant is looked at again in between.
        delay = min(max(0, at - self.now()), _FAR) / SECOND
        return asyncio.get_running_loop().call_later(delay, callback).cancel
