"""Predictions held against what came."""

from __future__ import annotations

from statistics import fmean, median

import pytest

from headway import NodeSpec, workload_of
from headway.history.bounds import LEVELS
from headway.history.trial import Watched, compared, quality
from headway.policies.registry import find
from headway.sim.kernel import Simulation

BOUNDS = [(1, 2, 3, 4, 5), (10, 20, 30, 40, 50), (0, 0, 1, 1, 2)]
TOOK = [2.5, 45, 7]


def lost(level: float, bound: float, took: float) -> float:
    return level * (took - bound) if took >= bound else (1 - level) * (bound - took)


def test_it_is_as_its_definitions_say() -> None:
    found = quality(BOUNDS, TOOK)
    assert found.jobs == 3
    assert found.within_90 == pytest.approx(2 / 3)
    assert found.within_50 == pytest.approx(1 / 3)
    assert found.error == pytest.approx(fmean([0.5, 15, 6]))
    assert found.width_90 == median([4, 40, 2])
    each = [
        lost(level, bound, took)
        for row, took in zip(BOUNDS, TOOK, strict=True)
        for level, bound in zip(LEVELS, row, strict=True)
    ]
    assert found.pinball == pytest.approx(fmean(each))


def test_a_single_number_counts_as_every_bound() -> None:
    found = quality([(3,), (30,), (1,)], TOOK)
    assert (found.within_90, found.within_50, found.width_90) == (None, None, None)
    assert found.error == quality(BOUNDS, TOOK).error
    assert found.pinball == pytest.approx(
        fmean(lost(lev, b, t) for b, t in ((3, 2.5), (30, 45), (1, 7)) for lev in LEVELS)
    )


def test_jobs_are_asked_about_when_they_come_and_taught_when_they_end() -> None:
    """One slot: job 1 comes while job 0 runs, so it knows nothing of it; job 3 knows the two before it."""
    log = workload_of(release=[0, 10, 200, 300], runtime=[50, 30, 20, 40], estimate=[100] * 4, user=["ann"] * 4)
    watched = Watched(cut=True)
    schedule = Simulation(log, [NodeSpec("a", 1)], find, "easy", predictor=watched).run()
    assert schedule.seconds("start").tolist() == [0, 50, 200, 300], "predictions change nothing"
    assert [one.job.id for one in watched.asked] == [0, 1, 2, 3]
    assert [one.last_two for one in watched.asked] == [100, 100, 40, 25]
    assert [one.user for one in watched.asked] == [100] * 4
    assert [one.took for one in watched.asked] == [50, 30, 20, 40]
    medians = watched.asked[0].bounds[2], watched.asked[1].bounds[2]
    assert medians == pytest.approx((100, 100)), "the median of what is expected of any"
    assert watched.asked[2].bounds[2] < watched.asked[0].bounds[2]
    found = compared(watched.asked)
    assert list(found) == ["predicted", "last-two", "user"]
    assert found["user"].error == pytest.approx(fmean([50, 70, 80, 60]))
    assert found["last-two"].error == pytest.approx(fmean([50, 70, 20, 15]))
