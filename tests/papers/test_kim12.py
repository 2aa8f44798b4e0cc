"""Kim12's estimates: what matters is found, estimates are better than without, and advised due dates are kept."""

from __future__ import annotations

from statistics import fmean

import pytest

from headway.reproduce.kim12.eairs import MATTER, RUNS, draw
from headway.reproduce.kim12.estimates import estimated

pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")


def test_runs_are_the_same_for_a_seed() -> None:
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len(draw(1)) == RUNS


@pytest.mark.thorough
def test_most_of_what_matters_is_found_and_due_dates_are_kept() -> None:
    found = [estimated(seed) for seed in range(4)]
    assert all(max(one.influence, key=lambda name: one.influence[name]) in MATTER[:2] for one in found)
    assert fmean(one.found for one in found) >= len(MATTER) - 1
    for one in found:
        similar, last_two, median = one.errors
        assert similar < 0.5 * min(last_two, median)
        assert 0.87 <= one.kept <= 0.94
