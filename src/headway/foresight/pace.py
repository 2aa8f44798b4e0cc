"""How much of a busy machine forecasts may take: they run in its gaps, and where it has none, a bounded share of it.

What forecasts need is done by copies of their process that run only while nothing else wants a processor (`copies`). On
a machine with an idle processor that is at once. On one where everything computes all the time such a copy would never
end. So a question may also be paid for: after some time it is answered with the priority of the forecasting process,
and the time of processor that this takes must be earned, `SHARE` for each second that passes, before the next question
is paid for. Nobody waits
longer than `LONGEST_WAIT` for that.

When an answer comes depends on the clock; what it says does not: it is the same work either way.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from headway.foresight.copies import begun_in_copies

SHARE: Final = 0.03
"""Of one processor that forecasts may take from others."""

LONGEST_WAIT: Final = 6.0
"""Seconds after a paid question when the next one is paid for, whatever that one took. So, if somebody always asks, an
answer is followed by the next within twice this time, and twice the time that it takes to make one."""

T = TypeVar("T")


class Begun(Protocol):
    """Does works in copies of this process, see `begun_in_copies`."""

    def __call__(
        self, works: Sequence[Callable[[], T]], *, gives_way: bool = False, seconds: float | None = None
    ) -> dict[int, T]:
        """What the works gave that were ready in time."""
        ...


def spent() -> float:
    """Seconds of processor that this process and its copies have taken."""
    taken = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in taken)


class Pace:
    """Decides which work takes its share of the processors, and which waits for a gap.

    Args:
        clock: seconds that pass.
        spent: seconds of processor that were taken, by this process and its copies.
        copies: do the work.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = spent,
        copies: Begun = begun_in_copies,
    ) -> None:
        self._clock = clock
        self._spent = spent
        self._copies = copies
        self._earned = clock()
        self._free = 0.0

    @property
    def is_paid(self) -> bool:
        """Whether what is done now takes its share."""
        return self._clock() >= self._earned

    @contextmanager
    def question(self) -> Iterator[None]:
        """While this lasts, one question is answered; what that took is paid for as a whole, at its end."""
        before, self._free = self._spent(), 0.0
        try:
            yield
        finally:
            took, now = self._spent() - before - self._free, self._clock()
            self._earned = min(max(self._earned, now) + took / SHARE, now + LONGEST_WAIT)

    def all(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """What the works give, in order, each done by a copy of this process; see `Copies`."""
        found: dict[int, T] = {}
        wait = self._earned - self._clock()
        if wait > 0:
            before = self._spent()
            found = self._copies(works, gives_way=True, seconds=wait)
            self._free += self._spent() - before
        left = [place for place in range(len(works)) if place not in found]
        if left:
            done = self._copies([works[place] for place in left])
            found |= {place: done[number] for number, place in enumerate(left)}
        return [found[place] for place in range(len(works))]

    def one(self, work: Callable[[], T]) -> T:
        """What the work gives, done here if it is paid for."""
        return work() if self.is_paid else self.all((work,))[0]
