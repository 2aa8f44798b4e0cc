"""The step function of free slots, compared with one that is queried instant by instant."""

from __future__ import annotations

from random import Random

from headway.model.instant import NEVER
from headway.model.profile import Profile


class Slow:
    """How many slots are free at each of the next sixty instants, and the same as at the last after that."""

    def __init__(self, now: int, free: int, changes: list[tuple[int, int]]) -> None:
        self.now = now
        self.free = [free + sum(more for at, more in changes if max(at, now) <= instant) for instant in range(60)]

    def earliest(self, slots: int, duration: int, after: int) -> int:
        for start in range(max(self.now, after), 60):
            if all(self.free[min(59, at)] >= slots for at in range(start, start + duration)):
                return start
        return NEVER

    def take(self, start: int, duration: int, slots: int) -> None:
        for at in range(start, min(60, start + duration)):
            self.free[at] -= slots


def test_as_a_slow_twin() -> None:
    asked = never = 0
    for seed in range(400):
        chance = Random(seed)
        now = chance.randint(0, 5)
        changes = [(chance.randint(0, 15), chance.randint(-2, 3)) for _ in range(chance.randint(0, 6))]
        free = chance.randint(0, 4)
        fast, slow = Profile.build(now, free, changes), Slow(now, free, changes)
        for _ in range(8):
            slots, duration, after = chance.randint(1, 4), chance.randint(1, 6), chance.randint(0, 12)
            found = fast.earliest(slots, duration, after)
            assert found == slow.earliest(slots, duration, after), f"seed {seed}"
            asked, never = asked + 1, never + (found == NEVER)
            if found < NEVER and chance.random() < 0.8:
                back = chance.random() < 0.2
                for profile in (fast, slow):
                    profile.take(found, duration, -slots if back else slots)
            assert [fast.times[0], sorted(set(fast.times))] == [now, fast.times], f"seed {seed}"
    assert 0 < never < asked / 2


def test_what_is_past_counts_as_now() -> None:
    assert Profile.build(10, 1, [(3, 2), (10, 1), (12, -4)]) == Profile([10, 12], [4, 0])


def test_the_last_step_lasts_for_ever() -> None:
    profile = Profile.build(0, 2, [(5, -1), (9, 3)])
    assert profile.earliest(4, 10**15, 0) == 9
    assert profile.earliest(5, 1, 0) == NEVER


def test_a_take_of_no_length_changes_nothing() -> None:
    profile = Profile.build(0, 2, [])
    profile.take(3, 0, 2)
    assert profile == Profile([0], [2])


def test_what_is_admitted_takes_its_slots_for_as_long_as_it_lasts() -> None:
    profile = Profile([0], [4])
    assert profile.admit(3, 10)
    assert not profile.admit(2, 1)
    assert profile.earliest(2, 1, 0) == 10
    assert Profile([0, 5], [4, 1]).admit(3, 0), "what lasts no time still needs its slots now"
    at_once = Profile([0], [1])
    assert at_once.admit(1, 0)
    assert not at_once.admit(1, 0)
    assert at_once.earliest(1, 5, 0) == 1
