"""Requests drawn within hours: the numbers are kept, and the bursts of the log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.model.instant import HOUR
from headway.workloads.hours import even, superposed

COUNTS = st.lists(st.integers(0, 30), max_size=6).map(np.array)
INSTANTS = np.array([0, 5, 5, 90, HOUR, 3 * HOUR + 7, 3 * HOUR + 8])  # the third hour is empty
SIZES = np.arange(7) * 100


@given(COUNTS.map(lambda counts: counts.astype(np.int64)), st.integers(0, 9))
def test_the_numbers_per_hour_are_those_given(counts: np.ndarray, seed: int) -> None:
    for instants, sizes in (superposed(counts, INSTANTS, SIZES, seed), even(counts, SIZES, seed)):
        assert len(instants) == len(sizes) == counts.sum()
        assert np.bincount(instants // HOUR, minlength=len(counts)).tolist() == counts.tolist()
        assert np.all(np.diff(instants) >= 0)


def test_requests_keep_their_time_within_the_hour_and_their_size() -> None:
    instants, sizes = superposed(np.array([50, 7]), INSTANTS, SIZES, 1)
    known = set(zip((INSTANTS % HOUR).tolist(), SIZES.tolist(), strict=True))
    assert set(zip((instants % HOUR).tolist(), sizes.tolist(), strict=True)) <= known
    again, _ = superposed(np.array([50, 7]), INSTANTS, SIZES, 1)
    assert (again == instants).all()
    assert (superposed(np.array([50, 7]), INSTANTS, SIZES, 2)[0] != instants).any()


def test_arguments() -> None:
    none = np.zeros(0, dtype=np.int64)
    with pytest.raises(InvalidInput, match="counts is -1; allowed: 0 or more"):
        even(np.array([-1]), SIZES, 1)
    with pytest.raises(InvalidInput, match=r"instants is .*; allowed: one request or more"):
        superposed(np.array([1]), none, none, 1)
    with pytest.raises(InvalidInput, match=r"sizes is .*; allowed: one size or more"):
        even(np.array([1]), none, 1)
