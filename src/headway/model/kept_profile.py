"""The profile of a pool that promises a start to every waiting job, kept from round to round.

A policy asks for it once; from then on the core tells it what starts, what ends and which promises change. What else
happens (nodes, allocations, moves) drops it, and the next round that needs it builds it again. It follows from the
state alone: a core that is restored without it decides alike, only its first round takes longer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from operator import attrgetter

from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId
from headway.model.profile import Profile

Place = tuple[Instant, int, Duration]
"""What a promise takes: from when on, how many slots, for how long."""

FACTS_MAX = 1024
"""So many are known at most; then they are looked for again, because most are about jobs that have started."""


class Facts:
    """Before which instants a profile has no place for so many slots.

    Attributes:
        slots: so many.
        begins: by duration, in which order they were asked for: there is no place before. It may have been taken since.
        shortest: no duration is less.
        latest: none of the instants is later.
    """

    __slots__ = ("begins", "latest", "shortest", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.begins: dict[Duration, Instant] = {}
        self.shortest: Duration = NEVER
        self.latest: Instant = 0

    def add(self, duration: Duration, begin: Instant) -> None:
        """There is no place for so long before this instant."""
        self.begins[duration] = begin
        if begin > self.latest:
            self.latest = begin
        if duration < self.shortest:
            self.shortest = duration

    def correct(self, start: Instant, duration: Duration) -> None:
        """Now there is a place from an instant on, for so long."""
        if duration < self.shortest or start >= self.latest:
            return
        for wanted, begin in self.begins.items():
            if start < begin and wanted <= duration:
                self.begins[wanted] = start


_by_slots = attrgetter("slots")


class KeptProfile:
    """Free slots over time beside all that runs and all that is promised.

    Args:
        now: the instant of the round.
        free: how many slots are free now.
        ends: what runs, as `(expected end, slots)`.
        promised: what each promise takes.

    Attributes:
        profile: what is left, from the last instant that counted on. Neighbouring steps differ once they were changed.
        promised: the place of each promise, by job. One that has begun although the job still waits moves with time.
        unconfirmed: jobs for which a round wants something else than before, until the core has done it.
        soonest: no promise begins before this instant.
        facts: what is known, by slots.
        rising: the same with rising slots.
        known: how many facts there are in all.
    """

    __slots__ = ("facts", "known", "profile", "promised", "rising", "soonest", "unconfirmed")

    def __init__(self, now: Instant, free: int, ends: list[tuple[Instant, int]], promised: dict[JobId, Place]) -> None:
        changes = list(ends)
        for begin, slots, duration in promised.values():
            changes += (begin, -slots), (begin + duration, slots)
        self.profile = Profile.build(now, free, changes)
        self.promised = promised
        self.unconfirmed: set[JobId] = set()
        self.soonest = min([begin for begin, _, _ in promised.values()], default=NEVER)
        self.facts: dict[int, Facts] = {}
        self.rising: list[Facts] = []
        self.known = 0

    # What the core tells

    def start(self, now: Instant, job: JobId, slots: int, end: Instant) -> None:
        """A job has started; it is expected to run until then."""
        self.unconfirmed.discard(job)
        place = self.promised.pop(job, None)
        if place is not None:
            if place[0] == now and place[1] == slots and now + place[2] == end:
                return  # it is where it was promised to be
            self._give(now, *place)
        self.advance(now)
        self._change(now, end, -slots)

    def end(self, now: Instant, slots: int, end: Instant) -> None:
        """What was expected to run on so many slots until then has ended."""
        self.advance(now)
        if end > now:
            self._change(now, end, slots)
            self._look_again(now, end)

    def promise(self, now: Instant, job: JobId, start: Instant | None) -> bool:
        """A job is promised a start, or none any more.

        Returns:
            Whether it was known, or could be followed. If not, the profile must be dropped.
        """
        self.unconfirmed.discard(job)
        place = self.promised.get(job)
        if start is None:
            if place is not None:
                del self.promised[job]
                self._give(now, *place)
            return True
        return place is not None and place[0] == start

    # What a round asks

    def advance(self, now: Instant) -> None:
        """The time until now is over."""
        times = self.profile.times
        if times[0] < now:
            step = bisect_right(times, now) - 1
            if step:
                del times[:step]
                del self.profile.free[:step]
            times[0] = now

    def catch_up(self, now: Instant) -> None:
        """The time until now is over; a promise that has begun begins now, because its job still waits."""
        self.advance(now)
        if now <= self.soonest:
            return
        late = [(job, place) for job, place in self.promised.items() if place[0] < now]
        for job, (begin, slots, duration) in late:
            self._change(max(now, begin + duration), now + duration, -slots)
            self.promised[job] = now, slots, duration
        self.soonest = min([place[0] for place in self.promised.values()], default=NEVER)

    def earliest(self, slots: int, duration: Duration, until: Instant = NEVER) -> Instant:
        """The first instant at which this many slots are free for this long; `NEVER` if there is none.

        If it is later than `until`, some instant after that.
        """
        facts, begin = self.facts.get(slots), 0
        if facts is None:
            facts = self.facts[slots] = Facts(slots)
            insort(self.rising, facts, key=_by_slots)
        if duration in facts.begins:
            begin = facts.begins[duration]
        else:
            self.known += 1
        for fewer in self.rising:
            if fewer.slots > slots:
                break
            if fewer.latest > begin:
                for shorter, first in fewer.begins.items():
                    if first > begin and shorter <= duration:
                        begin = first
        if begin <= until:
            begin = self.profile.earliest(slots, duration, begin, until)
        facts.add(duration, begin)
        return begin

    def keep(self, job: JobId, begin: Instant, slots: int, duration: Duration) -> None:
        """Promise a job without a promise this place."""
        self._change(begin, begin + duration, -slots)
        self.promised[job] = begin, slots, duration
        self.unconfirmed.add(job)
        if begin < self.soonest:
            self.soonest = begin

    def bring_forward(self, job: JobId) -> Instant:
        """Promise a job the earliest start that the promises of all others leave; returns that start.

        An earlier place either ends before the job begins, or it begins earlier and goes on into the job's own place.
        So what the job itself takes need not be given back to find it.
        """
        begin, slots, duration = self.promised[job]
        profile = self.profile
        times, free = profile.times, profile.free
        if begin <= times[0]:
            return begin
        found = begin
        facts = self.facts.get(slots)
        if facts is None or facts.begins.get(duration, 0) + duration <= begin:
            earlier = self.earliest(slots, duration, begin - duration)
            if earlier + duration <= begin:
                found = earlier
        step = bisect_left(times, begin) - 1
        if free[step] >= slots:
            while step and free[step - 1] >= slots:
                step -= 1
            found = min(found, times[step])
        if found < begin:
            self._change(found, min(begin, found + duration), -slots)
            freed = max(begin, found + duration)
            self._change(freed, begin + duration, slots)
            self._look_again(freed, begin + duration)
            self.promised[job] = found, slots, duration
            self.unconfirmed.add(job)
            if found < self.soonest:
                self.soonest = found
        return found

    def is_overdrawn(self) -> bool:
        """Whether more is promised than there is."""
        return min(self.profile.free) < 0

    def check(
        self, now: Instant, free: int, ends: list[tuple[Instant, int]], promises: Iterable[tuple[JobId, Instant]]
    ) -> None:
        """Derive everything again and compare.

        Raises:
            AssertionError: it disagrees with the state.
        """
        if self.unconfirmed:
            return  # it is built again
        self.advance(now)
        assert {job: max(begin, now) for job, begin in promises} == {
            job: max(place[0], now) for job, place in self.promised.items()
        }, "places of promises"
        again = KeptProfile(now, free, ends, dict(self.promised))
        assert _steps(again.profile) == _steps(self.profile), "kept profile"
        assert all(self.soonest <= place[0] for place in self.promised.values()), "soonest promise"
        for slots, facts in self.facts.items():
            for duration, begin in facts.begins.items():
                assert self.profile.earliest(slots, duration, 0) >= begin or begin <= now, "first place"
                assert facts.shortest <= duration, "the shortest of facts"
                assert begin <= facts.latest, "the latest of facts"
        assert sorted(self.facts) == [facts.slots for facts in self.rising], "facts in order"

    def _give(self, now: Instant, begin: Instant, slots: int, duration: Duration) -> None:
        """Give back what a promise has taken."""
        self.advance(now)
        begin, end = max(now, begin), begin + duration
        if end > begin:
            self._change(begin, end, slots)
            self._look_again(begin, end)

    def _change(self, begin: Instant, end: Instant, more: int) -> None:
        """So many slots more are free from one instant to another; steps that differ no longer become one."""
        if end <= begin:
            return
        times, free = self.profile.times, self.profile.free
        first = bisect_left(times, begin)
        if first == len(times) or times[first] != begin:
            times.insert(first, begin)
            free.insert(first, free[first - 1])
        last = bisect_left(times, end, first)
        if last == len(times) or times[last] != end:
            times.insert(last, end)
            free.insert(last, free[last - 1])
        for step in range(first, last):
            free[step] += more
        if free[last] == free[last - 1]:
            del times[last]
            del free[last]
        if first and free[first] == free[first - 1]:
            del times[first]
            del free[first]

    def _look_again(self, begin: Instant, end: Instant) -> None:
        """More is free between these instants: what would fit there may have an earlier place than is known."""
        if self.known > FACTS_MAX:
            self.facts.clear()
            self.rising.clear()
            self.known = 0
            return
        times, free = self.profile.times, self.profile.free
        first = bisect_right(times, begin) - 1
        last = bisect_left(times, end, first)
        inside = free[first:last]
        most, least, steps = max(inside), min(inside), len(times)
        left, right = first, last
        for facts in reversed(self.rising):
            slots = facts.slots
            if slots > most:
                continue
            if slots > least:
                for start, duration in self._places(slots, first, last):
                    facts.correct(start, duration)
                continue
            # They are free all the time between, so the place goes on at both sides, farther for fewer slots.
            while left and free[left - 1] >= slots:
                left -= 1
            while right < steps and free[right] >= slots:
                right += 1
            facts.correct(times[left], NEVER if right == steps else times[right] - times[left])

    def _places(self, slots: int, first: int, last: int) -> list[tuple[Instant, Duration]]:
        """Where this many slots are free in these steps and around them: from when on and for how long; only those that
        last longer than all before.
        """
        times, free = self.profile.times, self.profile.free
        steps, found, longest = len(times), list[tuple[Instant, Duration]](), 0
        while first and free[first] >= slots and free[first - 1] >= slots:
            first -= 1
        step = first
        while step < last:
            if free[step] < slots:
                step += 1
                continue
            start = times[step]
            while step < steps and free[step] >= slots:
                step += 1
            duration = NEVER if step == steps else times[step] - start
            if duration > longest:
                longest = duration
                found.append((start, duration))
        return found


def _steps(profile: Profile) -> list[tuple[Instant, int]]:
    """The steps of a profile that differ from the one before."""
    pairs = list(zip(profile.times, profile.free, strict=True))
    return [pair for place, pair in enumerate(pairs) if not place or pairs[place - 1][1] != pair[1]]
