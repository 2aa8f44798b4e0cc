"""Sets of slots as bit sets, compared with Python's own sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.model.slots import NO_SLOTS, count, lowest, numbers, runs, span

sets = st.frozensets(st.integers(0, 300), max_size=60) | st.builds(
    lambda first, length: frozenset(range(first, first + length)), st.integers(0, 300), st.integers(0, 90)
)


def bits(members: frozenset[int]) -> int:
    return sum(1 << member for member in members)


@given(sets)
def test_count_and_numbers(members: frozenset[int]) -> None:
    assert count(bits(members)) == len(members)
    assert list(numbers(bits(members))) == sorted(members)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 5_000)), max_size=5), st.integers(0, 30_000))
def test_sets_of_many_slots(parts: list[tuple[int, int]], wanted: int) -> None:
    slots = NO_SLOTS
    for first, length in parts:
        slots |= span(first, length)
    members = [slot for slot, bit in enumerate(reversed(f"{slots:b}")) if bit == "1"]
    assert list(numbers(slots)) == members
    assert list(numbers(lowest(slots, wanted))) == members[:wanted]


@given(st.integers(0, 300), st.integers(0, 200))
def test_span(first: int, length: int) -> None:
    assert span(first, length) == bits(frozenset(range(first, first + length)))


@given(sets)
def test_runs_cover_the_set_with_as_few_runs_as_can_be(members: frozenset[int]) -> None:
    found = list(runs(bits(members)))
    assert [slot for first, length in found for slot in range(first, first + length)] == sorted(members)
    assert all(length >= 1 for _, length in found)
    ends = [first + length for first, length in found]
    assert all(end < first for end, (first, _) in zip(ends, found[1:], strict=False))


@given(sets, st.integers(-3, 200))
def test_lowest(members: frozenset[int], wanted: int) -> None:
    assert lowest(bits(members), wanted) == bits(frozenset(sorted(members)[: max(0, wanted)]))


def test_nothing_is_the_empty_set() -> None:
    assert (NO_SLOTS, count(NO_SLOTS), list(numbers(NO_SLOTS)), list(runs(NO_SLOTS))) == (0, 0, [], [])
    assert lowest(NO_SLOTS, 3) == NO_SLOTS == span(7, 0)
