"""How long jobs run by those before them."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.history.predictors import LAST, LastTwo, Predictor, Similar, predictor, quantile_of
from headway.model.job import JobSpec, Rigid


def job(**terms: Any) -> JobSpec:
    return Rigid(1, **{"user": "ann", "name": "flow", "estimate": 100, "width": 4, **terms})


def learnt(made: Predictor, *took: int, **terms: Any) -> Predictor:
    for each in took:
        made.learn(job(**terms), each)
    return made


def test_the_last_two_of_the_same_user_count_whatever_they_were() -> None:
    known = learnt(learnt(LastTwo(), 90, 10), 31, name="other", width=1)
    assert known.run_time(job(name="third"), 0.5) == 20
    assert known.run_time(job(user="bob"), 0.5) is None


def test_one_run_is_too_few() -> None:
    for made in (LastTwo(), Similar()):
        assert learnt(made, 10).run_time(job(), 0.5) is None
        assert learnt(made, 10).run_time(job(), 0.5) == 10


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, 1),
        ({"width": 5}, 2),
        ({"width": 5, "estimate": 7}, 3),
        ({"width": 5, "estimate": None}, 3),
        ({"name": "new"}, 4),
        ({"user": "bob"}, None),
    ],
)
def test_the_most_alike_count(terms: dict[str, Any], expected: int | None) -> None:
    """What is less alike has run last, so that it would count if the narrower had not been asked first."""
    known = Similar()
    learnt(known, 1, 1)
    learnt(known, *[2] * LAST, width=2)
    learnt(known, *[3] * LAST, estimate=9)
    learnt(known, *[4] * LAST, name="old")
    assert known.run_time(job(**terms), 0.5) == expected


def test_old_runs_are_forgotten() -> None:
    known = learnt(Similar(), *[1000] * 10, *[10] * LAST)
    assert known.run_time(job(), 1.0) == 10


@pytest.mark.parametrize(("quantile", "expected"), [(0.0, 10), (0.1, 14), (0.5, 30), (0.75, 40), (1.0, 90)])
def test_a_quantile_lies_between_the_run_times_next_to_it(quantile: float, expected: int) -> None:
    assert quantile_of([10, 20, 30, 40, 90], quantile) == expected
    assert learnt(Similar(), 90, 10, 40, 20, 30).run_time(job(), quantile) == expected


def test_predictors_have_names() -> None:
    assert predictor("user") is None
    assert isinstance(predictor("last-two"), LastTwo)
    assert isinstance(predictor("predicted"), Similar)
    with pytest.raises(InvalidInput, match="estimates is 'best'; allowed: one of user, last-two, predicted"):
        predictor("best")
