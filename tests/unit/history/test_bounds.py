"""Bounds on run times hold as often as they say, also where programs change."""

from __future__ import annotations

from random import Random

import pytest

from headway.history.bounds import LEVELS, RunTimeBounds
from headway.model.instant import SECOND
from headway.model.job import JobSpec, Rigid

HOUR = 3600


def job(number: int, estimate: float | None = HOUR, user: str = "ann") -> JobSpec:
    said = None if estimate is None else round(estimate * SECOND)
    return Rigid(number, estimate=said, user=user, name="flow")


def held(bounds: RunTimeBounds, took: list[float], estimate: float | None = HOUR) -> float:
    """Jobs come one after the other, each when the one before has ended. Which share is within the bounds of 90 %?"""
    within = []
    for number, each in enumerate(took):
        told = bounds.of(job(number, estimate))
        if told is not None:
            assert list(told) == sorted(told)
            within.append(told[0] <= each <= told[-1])
        bounds.learn(job(number, estimate), round(each * SECOND))
    return sum(within) / len(within)


@pytest.mark.parametrize("seed", range(3))
def test_nine_in_ten_are_within(seed: int) -> None:
    chance = Random(seed)
    assert 0.88 <= held(RunTimeBounds(), [chance.lognormvariate(5, 1) for _ in range(3000)]) <= 0.92


@pytest.mark.parametrize("seed", range(3))
def test_also_where_a_program_changes_again_and_again(seed: int) -> None:
    """Every forty jobs it takes another time, up to a hundred times as long."""
    chance = Random(seed)
    took = [chance.lognormvariate(mean, 0.1) for mean in (chance.uniform(2, 7) for _ in range(100)) for _ in range(40)]
    assert 0.87 <= held(RunTimeBounds(), took) <= 0.92


@pytest.mark.parametrize("seed", range(3))
def test_also_where_many_jobs_run_equally_long(seed: int) -> None:
    """What runs just as long as a bound is within, at either end."""
    chance = Random(seed)
    assert 0.88 <= held(RunTimeBounds(), [chance.choice(range(10, 130, 10)) for _ in range(3000)]) <= 0.92


def test_where_jobs_are_cut_no_bound_exceeds_the_estimate() -> None:
    for cut, most in ((True, 100.0), (False, 500.0)):
        bounds = RunTimeBounds(cut=cut)
        for number in range(30):
            bounds.of(job(number, 100.0))
            bounds.learn(job(number, 100.0), 500 * SECOND)
        told = bounds.of(job(99, 100.0))
        assert told is not None
        assert told[-1] == pytest.approx(most, rel=0.5 if not cut else 0)


def test_of_what_nothing_is_known_nothing_is_said() -> None:
    assert RunTimeBounds().of(job(1, None)) is None


def test_one_run_gives_bounds_around_it() -> None:
    bounds = RunTimeBounds()
    bounds.learn(job(1, None), 50 * SECOND)
    assert bounds.of(job(2, None)) == (50,) * len(LEVELS)


def test_where_many_jobs_of_a_user_are_open_bounds_are_wider() -> None:
    bounds, chance = RunTimeBounds(), Random(1)
    for number in range(40):
        bounds.of(job(number))
        bounds.learn(job(number), round(chance.uniform(10, 90) * SECOND))
    told = [bounds.of(job(number)) for number in range(100, 132)]
    alone = bounds.of(job(200, user="bob"))
    assert alone is not None
    first, last = told[0], told[-1]
    assert first is not None
    assert last is not None
    assert last[0] < first[0] < first[-1] < last[-1]
    assert last[2] == first[2], "the median stays"
    for number in range(100, 132):
        bounds.learn(job(number), 50 * SECOND)
    again = bounds.of(job(300))
    assert again is not None
    assert again[-1] - again[0] < last[-1] - last[0]
