"""How many slots will be free when, by estimates: a step function of time that placements lower."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from headway.model.instant import NEVER, Duration, Instant


@dataclass(slots=True)
class Profile:
    """Free slots from each instant on until the next; the last step lasts for ever.

    Attributes:
        times: instants at which the number changes, rising; the first is now.
        free: how many slots are free from each on. Negative where more is promised than there is (nodes went down).
    """

    times: list[Instant]
    free: list[int]

    @classmethod
    def build(cls, now: Instant, free: int, ends: Iterable[tuple[Instant, int]]) -> Profile:
        """From what is free now and `(instant, more or fewer slots)`, in any order; past instants count as now."""
        changes: dict[Instant, int] = {}
        for at, slots in ends:
            at = max(at, now)
            changes[at] = changes.get(at, 0) + slots
        times, level = [now], [free + changes.pop(now, 0)]
        for at in sorted(changes):
            times.append(at)
            level.append(level[-1] + changes[at])
        return cls(times, level)

    def earliest(self, slots: int, duration: Duration, after: Instant, until: Instant = NEVER) -> Instant:
        """The first instant from `after` on at which this many slots are free for this long; `NEVER` if there
        is none.

        If it is later than `until`, the answer is some instant after `until` and not after the first one.
        """
        return self.find(slots, duration, after, until)[0]

    def find(self, slots: int, duration: Duration, after: Instant, until: Instant = NEVER) -> tuple[Instant, int, int]:
        """As `earliest`, with the numbers of two steps: that in which the instant is, and the first one that does not
        begin before the end. They mean nothing if there is no such instant until `until`.
        """
        times, free = self.times, self.free
        start = max(after, times[0])
        step = bisect_right(times, start) - 1
        last = len(times)
        while step < last:
            if free[step] < slots:
                step += 1
                if step < last:
                    start = times[step]
                    if start > until:
                        return start, step, step
                continue
            end, ahead = start + duration, step + 1
            while ahead < last and times[ahead] < end:
                if free[ahead] < slots:
                    break
                ahead += 1
            else:
                return start, step, ahead
            step = ahead
        return NEVER, last, last

    def take(self, start: Instant, duration: Duration, slots: int) -> None:
        """Lower the number of free slots by this many for this long; a negative number gives them back."""
        if duration <= 0:
            return
        first, last = self._step(start), self._step(start + duration)
        for step in range(first, last):
            self.free[step] -= slots

    def admit(self, slots: int, duration: Duration) -> bool:
        """Whether this many slots are free from now on for this long; if they are, they are taken."""
        now = self.times[0]
        if self.earliest(slots, max(1, duration), now) != now:
            return False
        self.take(now, max(1, duration), slots)
        return True

    def steps(self, most: int) -> list[tuple[int, Duration]]:
        """How many slots, up to `most`, are free from now on for how long: fewer for longer.

        >>> Profile([0, 10, 20, 30], [4, 2, 3, 1]).steps(3)
        [(3, 10), (2, 30), (1, 4611686018427387904)]
        """
        found, level = [], most
        for at, free in zip(self.times, self.free, strict=True):
            if free < level:
                found.append((level, at - self.times[0]))
                level = free
        return [*found, (level, NEVER)]

    def _step(self, at: Instant) -> int:
        step = bisect_left(self.times, at)
        if step == len(self.times) or self.times[step] != at:
            self.times.insert(step, at)
            self.free.insert(step, self.free[step - 1])
        return step
