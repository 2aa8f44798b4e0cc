"""How much of a busy machine forecasts may take: what is idle, and where nothing is, a bounded share.

A question is answered with the priority of the forecasting process, and the time of processor that this takes must be
earned, `PACE_SHARE` for each second that passes, before the next one is. That takes `LONGEST_WAIT` at most, or
`AWAITED_WAIT` where somebody waits for the answer, also if that begins only while the question waits. Until then a
question is answered at once if a processor is idle, by copies that run only while nothing else wants one (`copies`).

Copies that fill the short gaps of a busy machine cost it a fifth of its rate, although they give way. So it is tried
first whether a processor is idle for longer.

When an answer comes depends on the clock; what it says does not: it is the same work either way.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from headway.foresight.copies import COPY_LOOK_SECONDS, begun_in_copies

PACE_SHARE: Final = 0.03
"""Of one processor that forecasts may take from others."""

LONGEST_WAIT: Final = 6.0
"""Seconds after a question when the next one is paid for, whatever that one took. So, if somebody always asks, an
answer is followed by the next within twice this time, and twice the time that it takes to make one."""

AWAITED_WAIT: Final = 3.0
"""The same where somebody waits for the answer, because there is none that is young enough. What is not earned by then
is still to be earned by the next one."""

TRIAL: Final = 0.05
"""Seconds for which a copy tries to compute all the time, to find out whether a processor is idle."""

IDLE: Final = 0.85
"""The share of them that it must get."""

TRIAL_PATIENCE: Final = 0.25
"""Seconds after which a trial has failed, if it has not begun or ended."""

T = TypeVar("T")


class Begun(Protocol):
    """Does works in copies of this process, see `begun_in_copies`."""

    def __call__(
        self, works: Sequence[Callable[[], T]], *, gives_way: bool = False, left: Callable[[], float] | None = None
    ) -> dict[int, T]:
        """What the works gave that were ready in time."""
        ...


def spent() -> float:
    """Seconds of processor that this process and its copies have taken."""
    taken = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in taken)


def is_idle() -> bool:
    """Whether a processor is idle now, for longer than a moment."""
    until = time.monotonic() + TRIAL_PATIENCE
    return begun_in_copies((_got_most,), gives_way=True, left=lambda: until - time.monotonic()).get(0, False)


def nobody_waits() -> bool:
    """Nobody begins to wait."""
    return False


def _got_most() -> bool:
    """Compute for a while; whether that was let go on most of the time."""
    began, until = time.thread_time(), time.monotonic() + TRIAL
    while time.monotonic() < until:
        pass
    return time.thread_time() - began >= IDLE * TRIAL


class Pace:
    """Decides which work takes its share of the processors, and which waits until that is earned.

    Args:
        clock: seconds that pass.
        spent: seconds of processor that were taken, by this process and its copies.
        copies: do the work.
        idle: tells whether a processor is idle.
        sleep: lets seconds pass.
        hurried: tells whether somebody has begun to wait for the answer to the question in hand.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = spent,
        copies: Begun = begun_in_copies,
        idle: Callable[[], bool] = is_idle,
        sleep: Callable[[float], None] = time.sleep,
        hurried: Callable[[], bool] = nobody_waits,
    ) -> None:
        self._clock = clock
        self._spent = spent
        self._copies = copies
        self._idle = idle
        self._sleep = sleep
        self._hurried = hurried
        self._earned = self._due = self._ended = clock()
        self._free = 0.0

    @property
    def is_paid(self) -> bool:
        """Whether what is done now takes its share."""
        return self._clock() >= self._due

    @contextmanager
    def question(self, *, awaited: bool = False) -> Iterator[None]:
        """While this lasts, one question is answered; what that took is paid for as a whole, at its end.

        Args:
            awaited: somebody waits for the answer.
        """
        before, self._free = self._spent(), 0.0
        self._due = self._earned
        if awaited:
            self._hurry()
        try:
            yield
        finally:
            took, now = self._spent() - before - self._free, self._clock()
            self._earned = self._due = min(max(self._earned, now) + took / PACE_SHARE, now + LONGEST_WAIT)
            self._ended = now

    def _hurry(self) -> None:
        """Somebody waits for the answer to the question in hand."""
        self._due = min(self._due, self._ended + AWAITED_WAIT)

    def _left(self) -> float:
        """Seconds until the question in hand is answered with the usual priority; that may be sooner than it was."""
        if self._hurried():
            self._hurry()
        return self._due - self._clock()

    def all(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """What the works give, in order, each done by a copy of this process; see `Copies`."""
        found: dict[int, T] = {}
        if self._left() > 0:
            before = self._spent()
            if self._idle():
                found = self._copies(works, gives_way=True, left=self._left)
            while len(found) < len(works) and (left := self._left()) > 0:
                self._sleep(min(left, COPY_LOOK_SECONDS))
            self._free += self._spent() - before
        missing = [place for place in range(len(works)) if place not in found]
        if missing:
            done = self._copies([works[place] for place in missing])
            found |= {place: done[number] for number, place in enumerate(missing)}
        return [found[place] for place in range(len(works))]

    def one(self, work: Callable[[], T]) -> T:
        """What the work gives, done here if it is paid for."""
        return work() if self.is_paid else self.all((work,))[0]
