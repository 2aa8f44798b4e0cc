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

FACTS_MAX = 1024
"""If more are known they are dropped and looked for again, because most are about jobs that have started."""

LOOK_EVERY = 64
"""How many corrections pass until it is seen how many facts are known."""


class PromisedPlace:
    """What a promise takes.

    Attributes:
        begin: from when on. Once that has passed although the job still waits, it moves with time.
        slots: how many slots.
        duration: for how long.
        confirmed: whether the core has it so. If not, a round wants something else than before.
        looked: by the corrections until then nothing ends before it begins, see `KeptProfile.corrections`.
        facts: those of so many slots, once they were looked at.
    """

    __slots__ = ("begin", "confirmed", "duration", "facts", "looked", "slots")

    def __init__(self, begin: Instant, slots: int, duration: Duration, looked: int = -1) -> None:
        self.begin = begin
        self.slots = slots
        self.duration = duration
        self.confirmed = True
        self.looked = looked
        self.facts: PlaceFacts | None = None


class PlaceFacts:
    """Before which instants a profile has no place for so many slots.

    Attributes:
        slots: so many.
        durations: for so long; rising.
        begins: before this instant there is no place for as long as the duration in the same position, or longer; they
            rise, too. It may have been taken since.
        latest: the last of `begins`; 0 if there is none.
        corrected: the last of the corrections that changed them, see `KeptProfile.corrections`.
    """

    __slots__ = ("begins", "corrected", "durations", "latest", "slots")

    def __init__(self, slots: int, corrected: int) -> None:
        self.slots = slots
        self.corrected = corrected
        self.latest: Instant = 0
        self.durations: list[Duration] = []
        self.begins: list[Instant] = []

    def bound(self, duration: Duration) -> Instant:
        """There is no place for so long before this instant."""
        position = bisect_right(self.durations, duration)
        return self.begins[position - 1] if position else 0

    def add(self, duration: Duration, begin: Instant) -> None:
        """There is no place for so long before this instant, which is not before the bound that is known."""
        durations, begins = self.durations, self.begins
        first = bisect_left(durations, duration)
        if first and begins[first - 1] >= begin:
            return
        last, known = first, len(begins)
        while last < known and begins[last] <= begin:
            last += 1
        if last == known:
            self.latest = begin
        if first == last:
            durations.insert(first, duration)
            begins.insert(first, begin)
            return
        durations[first], begins[first] = duration, begin
        if last > first + 1:
            del durations[first + 1 : last]
            del begins[first + 1 : last]

    def correct(self, start: Instant, duration: Duration, correction: int) -> None:
        """Now there may be a place from an instant on, for so long."""
        durations, begins = self.durations, self.begins
        if start >= self.latest or duration < durations[0]:
            return
        first, last = bisect_right(begins, start), bisect_right(durations, duration)
        if first >= last:
            return
        self.corrected = correction
        shortest, latest = durations[first], begins[last - 1]
        del durations[first:last]
        del begins[first:last]
        if duration < NEVER and (first == len(durations) or durations[first] > duration + 1):
            durations.insert(first, duration + 1)  # for longer it still holds
            begins.insert(first, latest)
        if not first or begins[first - 1] < start:
            durations.insert(first, shortest)
            begins.insert(first, start)
        self.latest = begins[-1]

    def forget(self, correction: int) -> None:
        """Nothing is known any more."""
        self.durations.clear()
        self.begins.clear()
        self.latest = 0
        self.corrected = correction


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
        promised: the place of each promise, by job.
        unconfirmed: of how many jobs the core does not yet have what a round wants.
        soonest: no promise begins before this instant.
        freed: since all promises were looked at, nothing has become free before this instant.
        before: while all promises are looked at, how many slots are at most free just before each step, by its
            instant.
        facts: what is known, by slots.
        rising: the same with rising slots.
        corrections: how often something has become free.
    """

    __slots__ = (
        "before",
        "corrections",
        "facts",
        "freed",
        "profile",
        "promised",
        "rising",
        "soonest",
        "unconfirmed",
    )

    def __init__(
        self, now: Instant, free: int, ends: list[tuple[Instant, int]], promised: dict[JobId, PromisedPlace]
    ) -> None:
        changes, soonest = list(ends), NEVER
        for place in promised.values():
            begin, slots = place.begin, place.slots
            changes += (begin, -slots), (begin + place.duration, slots)
            if begin < soonest:
                soonest = begin
        self.profile = Profile.build(now, free, changes)
        self.promised = promised
        self.unconfirmed = 0
        self.soonest = soonest
        self.freed: Instant = 0
        self.before: dict[Instant, int] = {}
        self.corrections = 0
        self.facts: dict[int, PlaceFacts] = {}
        self.rising: list[PlaceFacts] = []

    # What the core tells

    def start(self, now: Instant, job: JobId, slots: int, end: Instant) -> None:
        """A job has started; it is expected to run until then."""
        place = self.promised.pop(job, None)
        if place is not None:
            self.confirm(place)
            if place.begin == now and place.slots == slots and now + place.duration == end:
                return  # it is where it was promised to be
            self._give(now, place)
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
        place = self.promised.get(job)
        if place is None:
            return start is None
        self.confirm(place)
        if start is None:
            del self.promised[job]
            self._give(now, place)
            return True
        return place.begin == start

    def confirm(self, place: PromisedPlace) -> None:
        """The core has it so."""
        if not place.confirmed:
            place.confirmed = True
            self.unconfirmed -= 1

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
        soonest = NEVER
        for place in self.promised.values():
            begin = place.begin
            if begin < now:
                end = begin + place.duration
                self._change(max(now, end), now + place.duration, -place.slots)
                place.begin = begin = now
            if begin < soonest:
                soonest = begin
        self.soonest = soonest

    def want(self, place: PromisedPlace) -> None:
        """A round wants this promise as it is now, or the job to start; the core has yet to do it."""
        if place.confirmed:
            place.confirmed = False
            self.unconfirmed += 1

    def add(self, job: JobId, slots: int, duration: Duration) -> PromisedPlace | None:
        """Promise a job without a promise the earliest start that the others leave; None if there is none."""
        facts = self._facts(slots)
        begin, first, last = self.profile.find(slots, duration, self._bound(facts, duration))
        facts.add(duration, begin)
        if begin == NEVER:
            return None
        self._take(begin, first, begin + duration, last, -slots)
        place = self.promised[job] = PromisedPlace(begin, slots, duration, self.corrections)
        if begin < self.soonest:
            self.soonest = begin
        return place

    def look(self) -> Instant:
        """All promises are looked at now, with `bring_forward`; only those that begin after the instant that this
        returns can be earlier than they are.

        An earlier place takes slots that have become free before the job begins.
        """
        freed, self.freed = self.freed, NEVER
        self.before = dict(zip(self.profile.times[1:], self.profile.free, strict=False))
        return freed

    def bring_forward(self, place: PromisedPlace) -> None:
        """Move a promise to the earliest start that the promises of all others leave.

        An earlier place either ends before the job begins, or it begins earlier and goes on into the job's own place.
        So what the job itself takes need not be given back to find it.
        """
        begin, slots, duration = place.begin, place.slots, place.duration
        profile = self.profile
        times, free = profile.times, profile.free
        if begin <= times[0]:
            return
        found, near = begin, -1
        facts = place.facts
        if facts is None:
            facts = place.facts = self._facts(slots)
        if facts.corrected > place.looked:
            if facts.bound(duration) + duration <= begin:
                after = self._bound(facts, duration)
                if after + duration <= begin:
                    after = profile.earliest(slots, duration, after, begin - duration)
                    if after + duration <= begin:
                        found = after
                facts.add(duration, after)
            place.looked = self.corrections
        if self.before.get(begin, slots) >= slots:
            step = bisect_left(times, begin) - 1
            if free[step] >= slots:
                while step and free[step - 1] >= slots:
                    step -= 1
                if times[step] < found:
                    found, near = times[step], step
        if found < begin:
            near = self._change(found, min(begin, found + duration), -slots, near)
            freed = max(begin, found + duration)
            near = self._change(freed, begin + duration, slots, near)
            self._look_again(freed, begin + duration, near)
            place.begin = found
            if found < self.soonest:
                self.soonest = found

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
        assert self.unconfirmed == sum(not place.confirmed for place in self.promised.values()), "unconfirmed"
        if self.unconfirmed:
            return  # it is built again
        self.advance(now)
        assert {job: max(begin, now) for job, begin in promises} == {
            job: max(place.begin, now) for job, place in self.promised.items()
        }, "places of promises"
        again = KeptProfile(now, free, ends, dict(self.promised))
        assert _steps(again.profile) == _steps(self.profile), "kept profile"
        assert all(self.soonest <= place.begin for place in self.promised.values()), "soonest promise"
        for slots, facts in self.facts.items():
            for duration, begin in zip(facts.durations, facts.begins, strict=True):
                assert self.profile.earliest(slots, duration, 0) >= begin or begin <= now, "first place"
            assert facts.latest == max([0, *facts.begins]), "the latest of facts"
            for numbers in (facts.durations, facts.begins):
                assert sorted(set(numbers)) == numbers, "facts rise"
        assert sorted(self.facts) == [facts.slots for facts in self.rising], "facts in order"

    def _facts(self, slots: int) -> PlaceFacts:
        facts = self.facts.get(slots)
        if facts is None:
            facts = self.facts[slots] = PlaceFacts(slots, self.corrections)
            insort(self.rising, facts, key=_by_slots)
        return facts

    def _bound(self, facts: PlaceFacts, duration: Duration) -> Instant:
        """There is no place for so long before this instant: what is true for fewer slots is true for more."""
        bound = facts.bound(duration)
        for fewer in self.rising:
            if fewer is facts:
                break
            if fewer.latest > bound:
                bound = max(bound, fewer.bound(duration))
        return bound

    def _give(self, now: Instant, place: PromisedPlace) -> None:
        """Give back what a promise has taken."""
        self.advance(now)
        begin, end = max(now, place.begin), place.begin + place.duration
        if end > begin:
            self._change(begin, end, place.slots)
            self._look_again(begin, end)

    def _change(self, begin: Instant, end: Instant, more: int, near: int = -1) -> int:
        """So many slots more are free from one instant to another.

        Args:
            near: a step not long before; -1: none is known.

        Returns:
            A step not long before; -1 if there was none.
        """
        if end <= begin:
            return near
        times = self.profile.times
        first = last = self._step(begin, near)
        steps = len(times)
        while last < steps and times[last] < end:
            last += 1
        self._take(begin, first, end, last, more)
        return max(0, first - 1) if near >= 0 else -1

    def _step(self, at: Instant, near: int) -> int:
        """The step that contains an instant, from a step not long before; -1: none is known."""
        times = self.profile.times
        if near < 0:
            return bisect_right(times, at) - 1
        last = len(times) - 1
        while near < last and times[near + 1] <= at:
            near += 1
        return near

    def _take(self, begin: Instant, first: int, end: Instant, last: int, more: int) -> None:
        """So many slots more are free from one instant to another; steps that differ no longer become one.

        Args:
            first: in which step it begins.
            last: which is the first step that does not begin before the end.
        """
        times, free = self.profile.times, self.profile.free
        if last == len(times) or times[last] != end:
            times.insert(last, end)
            free.insert(last, free[last - 1])
        if times[first] != begin:
            first += 1
            last += 1
            times.insert(first, begin)
            free.insert(first, free[first - 1])
        for step in range(first, last):
            free[step] += more
        if free[last] == free[last - 1]:
            self._join(last)
        if first and free[first] == free[first - 1]:
            self._join(first)

    def _join(self, step: int) -> None:
        """A step has as many free slots as the one before: they become one."""
        times = self.profile.times
        self.before.pop(times[step], None)
        del times[step]
        del self.profile.free[step]

    def _look_again(self, begin: Instant, end: Instant, near: int = -1) -> None:
        """More is free between these instants: what would fit there may have an earlier place than is known.

        Args:
            near: a step not long before; -1: none is known.
        """
        if begin < self.freed:
            self.freed = begin
        times, free = self.profile.times, self.profile.free
        first = last = self._step(begin, near)
        most = least = free[first]
        steps, before, now = len(times), self.before, times[0]
        while last < steps and times[last] < end:
            level = free[last]
            most, least = max(most, level), min(least, level)
            last += 1
            if last < steps:
                before[times[last]] = level
        self.corrections += 1
        correction = self.corrections
        if not correction % LOOK_EVERY and sum([len(facts.begins) for facts in self.rising]) > FACTS_MAX:
            for facts in self.rising:
                facts.forget(correction)
            return
        left, right = first, last
        for facts in reversed(self.rising):
            slots = facts.slots
            if slots > most or facts.latest <= now:
                continue
            if slots > least:
                for start, duration in self._places(slots, first, last):
                    facts.correct(start, duration, correction)
                continue
            # They are free all the time between, so the place goes on at both sides, farther for fewer slots.
            while left and free[left - 1] >= slots:
                left -= 1
            while right < steps and free[right] >= slots:
                right += 1
            start = times[left]
            if start < facts.latest:
                facts.correct(start, NEVER if right == steps else times[right] - start, correction)

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
