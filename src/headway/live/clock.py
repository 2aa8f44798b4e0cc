"""Time as the driver sees it; tests can use a clock of their own (`headway.testing.ManualClock`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from headway.model.instant import SECOND, Duration, Instant, to_seconds

_FAR: Final[Duration] = 3600 * SECOND

CLOCK_STEP_LEAST: Final[Duration] = SECOND // 2
"""How far the machine's clock must be off before it counts as set."""

CLOCK_LOOK_SECONDS: Final = 2.0
"""How often the clock is compared."""

CATCH_UP: Final = 1000
"""When time is ahead of the machine's clock, it comes nearer by one microsecond in this many."""


@dataclass(frozen=True, slots=True)
class Step:
    """The machine's clock was set, or stood still while the machine slept.

    Attributes:
        by: how far time has jumped forward to agree with it again; 0 if the clock was set back.
        detail: for people.
    """

    by: Duration
    detail: str


class Clock(Protocol):
    """Tells the time and calls back. Time never goes back, and does not stand still."""

    def now(self) -> Instant:
        """Microseconds since the Unix epoch."""
        ...

    def call_at(self, at: Instant, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at this instant, or an hour from now if that is sooner; returns a function that
        cancels this.
        """
        ...

    def go_on_from(self, last: Instant) -> Duration:
        """Let time be this instant or later, as it was before; returns how far it is then ahead of the
        machine's clock.
        """
        ...

    def watch(self, stepped: Callable[[Step], None]) -> Callable[[], None]:
        """Call back after each step; returns a function that cancels this."""
        ...


class SystemClock(Clock):
    """The machine's clock as it was when this was made, and from there the time that the machine runs.

    Setting the machine's clock later is a step. If it is set forward, time jumps with it. If it is set back, time goes
    on and is ahead at first, and runs a thousandth slower until both agree. A machine that slept was set forward.
    """

    def __init__(self) -> None:
        self._anchor(ahead=0)

    def _anchor(self, ahead: Duration) -> None:
        """From here on time follows the machine's clock, ahead by this much."""
        self._ran = time.monotonic_ns() // 1000
        self._base = time.time_ns() // 1000 + ahead
        self._ahead = ahead
        self._slept = _slept()

    def now(self) -> Instant:
        """Microseconds since the Unix epoch."""
        ran = time.monotonic_ns() // 1000 - self._ran
        return self._base + ran - min(self._ahead, ran // CATCH_UP)

    def call_at(self, at: Instant, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back by the event loop."""
        # Time may jump, so a far instant is checked again in between.
        delay = min(max(0, at - self.now()), _FAR) / SECOND
        return asyncio.get_running_loop().call_later(delay, callback).cancel

    def go_on_from(self, last: Instant) -> Duration:
        """Be ahead of the machine's clock if that is behind the last known instant."""
        ahead = max(0, max(last, self.now()) - time.time_ns() // 1000)
        self._anchor(ahead)
        return ahead

    def look(self) -> Step | None:
        """Whether the machine's clock was set since the last comparison; if so, time agrees with it where possible."""
        ahead = self.now() - time.time_ns() // 1000
        off = ahead - (self._ahead - min(self._ahead, (time.monotonic_ns() // 1000 - self._ran) // CATCH_UP))
        if abs(off) < CLOCK_STEP_LEAST:
            return None
        slept = _slept() - self._slept
        was = self.now()
        self._anchor(max(0, ahead))
        said = f"the machine slept for {to_seconds(slept):.1f} s" if slept >= CLOCK_STEP_LEAST else "the clock was set"
        how = f"{said} {'back' if off > 0 else 'forward'} by {to_seconds(abs(off)):.1f} s"
        if slept >= CLOCK_STEP_LEAST and off < 0:
            how = said
        if ahead <= 0:
            return Step(max(0, self.now() - was), f"{how}: time has jumped to it")
        return Step(0, f"{how}: time goes on, and is {to_seconds(ahead):.1f} s ahead of it")

    def watch(self, stepped: Callable[[Step], None]) -> Callable[[], None]:
        """Compare every `CLOCK_LOOK_SECONDS`."""
        loop = asyncio.get_running_loop()
        timer = [loop.call_later(CLOCK_LOOK_SECONDS, lambda: look())]

        def look() -> None:
            timer[0] = loop.call_later(CLOCK_LOOK_SECONDS, look)
            step = self.look()
            if step is not None:
                stepped(step)

        return lambda: timer[0].cancel()


class Alarm:
    """One callback of a clock, which may be moved and cancelled.

    Args:
        clock: calls back.
        ring: what is called.

    Attributes:
        at: when it rings next; None: not at all.
    """

    def __init__(self, clock: Clock, ring: Callable[[], object]) -> None:
        self.at: Instant | None = None
        self._clock = clock
        self._ring = ring
        self._call_off: Callable[[], object] = lambda: None
        self._stopped = False

    def set(self, at: Instant) -> None:
        """Ring at this instant, and at no other."""
        if at != self.at and not self._stopped:
            self.off()
            self.at, self._call_off = at, self._clock.call_at(at, self._rung)

    def soon(self) -> None:
        """Ring in the next turn of the event loop."""
        self.off()
        if not self._stopped:
            self.at, self._call_off = self._clock.now(), asyncio.get_running_loop().call_soon(self._rung).cancel

    def off(self) -> None:
        """Do not ring."""
        if self.at is not None:
            self.at = None
            self._call_off()

    def stop(self) -> None:
        """Never ring again, whatever is set later."""
        self._stopped = True
        self.off()

    def _rung(self) -> None:
        self.at = None
        self._ring()


async def sleep(clock: Clock, duration: Duration) -> None:
    """Wait this long by a clock."""
    woken = asyncio.Event()
    call_off = clock.call_at(clock.now() + duration, woken.set)
    try:
        await woken.wait()
    finally:
        call_off()


def _slept() -> Duration:
    """How long the machine has slept since it was started, if it reports that."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()) // 1000
