"""Orders of batch jobs against their definitions, written out slowly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random

import pytest

from headway.model.instant import NEVER, Duration, Instant
from headway.policies.sequence import LOOKAHEAD, SEQUENCES, Load, by_tardiness_cost, greedy, whole


def drawn(chance: Random) -> tuple[list[Load], int, Instant]:
    """Loads that are alike in some respect, or differ a lot; a number of slots; an instant."""
    longest, latest = chance.choice([1, 3, 10, 100, 1000]), chance.choice([1, 10, 100, 1000, 10_000])

    def rate() -> float:
        kinds = (1.0, float(chance.randint(0, 9)), 1000 * chance.random(), 2.0 ** chance.randint(-30, 30))
        return chance.choice(kinds)

    loads = [
        Load(
            chance.randint(0, 6),
            chance.randint(0, longest),
            NEVER if chance.random() < 0.1 else chance.randint(-latest, latest),
            rate(),
        )
        for _ in range(chance.randint(0, 12))
    ]
    return loads, chance.randint(1, 5), chance.randint(-50, 50)


def greedy_by_definition(loads: Sequence[Load], slots: int, now: Instant) -> Iterator[int]:
    """Equation 12 for each job that is left, each time; exact. Of equals the shortest, then the earliest due date."""
    left = [place for place, load in enumerate(loads) if load.due < NEVER]

    def delay(place: int, start: Instant) -> Duration:
        return max(0, start + loads[place].alone(slots) - loads[place].due)

    def cost(chosen: int) -> tuple[Fraction | int, Duration, Instant, int]:
        lasts = loads[chosen].alone(slots)
        others = (place for place in left if place != chosen)
        added = sum(Fraction(loads[p].rate) * (delay(p, now + lasts) - delay(p, now)) for p in others)
        return added, lasts, loads[chosen].due, chosen

    while left:
        best = min(left, key=cost)
        left.remove(best)
        now += loads[best].alone(slots)
        yield best
    yield from (place for place, load in enumerate(loads) if load.due >= NEVER)


@pytest.mark.parametrize("seed", range(20))
def test_greedy_decides_as_equation_12_does(seed: int) -> None:
    chance = Random(seed)
    for _ in range(40):
        loads, slots, now = drawn(chance)
        assert list(greedy(loads, slots, now)) == list(greedy_by_definition(loads, slots, now)), (loads, slots, now)


@pytest.mark.parametrize("seed", range(5))
def test_atc_decides_as_its_index_does(seed: int) -> None:
    chance = Random(seed)
    for _ in range(40):
        loads = [
            Load(chance.randint(1, 6), chance.randint(1, 50), chance.randint(0, 300), chance.uniform(1, 9))
            for _ in range(chance.randint(1, 12))
        ]
        slots = chance.randint(1, 5)
        works = [load.tasks * load.run_time / slots for load in loads]
        scale, at, left = LOOKAHEAD * sum(works) / len(works), 0.0, list(range(len(loads)))
        for found in by_tardiness_cost(loads, slots, 0):
            slack = [max(0.0, load.due - work - at) for load, work in zip(loads, works, strict=True)]
            index = [
                load.rate / work * math.exp(-short / scale)
                for load, work, short in zip(loads, works, slack, strict=True)
            ]
            assert index[found] == pytest.approx(max(index[place] for place in left))
            left.remove(found)
            at += works[found]
        assert not left


JOBS = [Load(2, 10, 60, 2.0), Load(4, 5, 25, 9.0), Load(1, 40, NEVER, 30.0), Load(1, 8, 9, 1.0)]


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("edf", [3, 1, 0, 2]),
        ("lst", [3, 1, 0, 2]),  # slack 1, 15, 50 with two slots
        ("lstr", [3, 1, 0, 2]),  # 1/9, 15/25, 50/60
        ("hprf", [2, 1, 0, 3]),
        ("wspt", [2, 1, 3, 0]),  # 30/40, 9/20, 1/8, 2/20
    ],
)
def test_orders_that_are_sorted(order: str, found: list[int]) -> None:
    assert list(SEQUENCES[order](JOBS, 2, 0)) == found


def test_lstr_with_due_dates_that_have_passed() -> None:
    """Slack in proportion to a time below zero would put the latest job last."""
    loads = [Load(1, 10, 50), Load(1, 10, 20), Load(1, 10, 5)]
    assert list(SEQUENCES["lstr"](loads, 1, 30)) == [2, 1, 0]


@pytest.mark.parametrize("order", SEQUENCES)
def test_jobs_that_differ_in_nothing_keep_their_order_and_none_is_lost(order: str) -> None:
    assert list(SEQUENCES[order]([], 3, 0)) == []
    assert list(SEQUENCES[order]([Load(2, 7, 100, 3.0)] * 5, 3, 0)) == [0, 1, 2, 3, 4]
    chance = Random(order)
    for _ in range(50):
        loads, slots, now = drawn(chance)
        assert sorted(SEQUENCES[order](loads, slots, now)) == list(range(len(loads)))


def test_only_as_much_is_computed_as_is_asked_for() -> None:
    loads = [Load(1, 1 + place, 1000 + place, 1.0) for place in range(10_000)]
    assert next(greedy(loads, 4, 0)) == 0
    assert next(by_tardiness_cost(loads, 4, 0)) == 0


def test_rates_are_compared_exactly() -> None:
    assert whole([0.5, 3.0, 0.25]) == [2, 12, 1]
    assert whole([]) == []
    tiny, huge = whole([5e-324, 1e308])
    assert Fraction(huge, tiny) == Fraction(1e308) / Fraction(5e-324)
