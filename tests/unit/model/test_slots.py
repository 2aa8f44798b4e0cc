"""Sets of slots as bit sets, compared with Python's own sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.model.slots import (
    NO_SLOTS,
    NUMBERS_AT_ONCE,
    below,
    bounds,
    count,
    cut,
    end_of_shared,
    first,
    lowest,
    numbers,
    of_bounds,
    of_numbers,
    outside,
    runs,
    shared,
    size,
    span,
    take_out,
    unite,
)

sets = st.frozensets(st.integers(0, 300), max_size=60) | st.builds(
    lambda first, length: frozenset(range(first, first + length)), st.integers(0, 300), st.integers(0, 90)
)


def bits(members: frozenset[int]) -> int:
    return sum(1 << member for member in members)


@given(sets)
def test_count_and_numbers(members: frozenset[int]) -> None:
    assert count(bits(members)) == len(members)
    assert list(numbers(bits(members))) == sorted(members)


large = st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 9_000)), max_size=5) | st.lists(
    st.tuples(st.integers(0, 20_000), st.integers(1, 3)), max_size=80
)


def together(parts: list[tuple[int, int]]) -> tuple[int, list[int]]:
    """A set of many slots, and the same as a sorted list."""
    slots = NO_SLOTS
    for begin, length in parts:
        slots |= span(begin, length)
    return slots, [slot for slot, bit in enumerate(reversed(f"{slots:b}")) if bit == "1"]


@given(large, st.integers(0, 30_000))
def test_sets_of_many_slots(parts: list[tuple[int, int]], wanted: int) -> None:
    slots, members = together(parts)
    assert list(numbers(slots)) == members
    assert list(numbers(lowest(slots, wanted))) == members[:wanted]
    assert of_numbers(members) == of_numbers(iter(members)) == slots
    assert not members or first(slots) == members[0]


@given(large, st.integers(0, 30_000))
def test_the_lowest_slots_cut_out_of_bounds_and_put_back(parts: list[tuple[int, int]], wanted: int) -> None:
    slots, _ = together(parts)
    found = bounds(slots)
    assert of_bounds(found) == slots
    assert all(here < after for here, after in pairwise(found))
    taken = cut(found, wanted)
    assert of_bounds(taken) == lowest(slots, wanted)
    assert found == bounds(slots ^ lowest(slots, wanted))
    unite(found, taken)
    assert found == bounds(slots)


@given(large, large)
def test_bounds_of_a_union(parts: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    slots, more = together(parts)[0], together(others)[0]
    more ^= more & slots
    found = bounds(slots)
    unite(found, bounds(more))
    assert found == bounds(slots | more)


@given(large, large)
def test_bounds_of_what_two_sets_have_in_common(parts: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    some, more = together(parts)[0], together(others)[0]
    found = shared(bounds(some), bounds(more))
    assert found == bounds(some & more)
    assert size(found) == count(some & more)
    assert end_of_shared(bounds(some), bounds(more)) == (some & more).bit_length()


@given(large, large)
def test_bounds_of_a_set_without_a_part(parts: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    some, more = together(parts)[0], together(others)[0]
    assert outside(some, more) == some & ~more
    left = bounds(some)
    take_out(left, bounds(some & more))
    assert left == bounds(some & ~more)


@given(st.integers(0, 3 * NUMBERS_AT_ONCE))
def test_below(number: int) -> None:
    assert below(number) == span(0, number)


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
