"""Amounts in whole parts add up as fractions do, however different they are."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from headway.policies.lin14 import in_whole_parts

AMOUNTS = st.lists(st.floats(min_value=0.0, max_value=1e12) | st.integers(0, 10**12), min_size=1, max_size=20)


@given(AMOUNTS, st.integers(1, 1_000))
def test_a_proportion_of_slots_is_exactly_that_of_fractions(amounts: list[float], slots: int) -> None:
    """The plain way: as fractions."""
    parts = in_whole_parts(amounts)
    total = sum(map(Fraction, amounts))
    if not total:
        assert not any(parts)
        return
    for amount, part in zip(amounts, parts, strict=True):
        assert -(-slots * part // sum(parts)) == ceil(slots * Fraction(amount) / total)
