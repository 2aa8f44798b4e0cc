"""How long jobs run by those before them, as one number."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.history.predictors import LastTwo, Predictor, predictor
from headway.history.similar import Similar
from headway.model.instant import SECOND
from headway.model.job import JobSpec, Rigid


def job(**terms: Any) -> JobSpec:
    return Rigid(1, **{"user": "ann", "name": "flow", "estimate": 100 * SECOND, "width": 4, **terms})


def learnt(made: Predictor, *took: float, **terms: Any) -> Predictor:
    for each in took:
        made.learn(job(**terms), round(each * SECOND))
    return made


def test_the_last_two_of_the_same_user_count_whatever_they_were() -> None:
    known = learnt(learnt(LastTwo(), 90, 10), 30, name="other", width=1)
    assert known.run_time(job(name="third"), 0.5) == 20 * SECOND
    assert known.run_time(job(user="bob"), 0.5) is None


def test_of_the_last_two_one_is_too_few() -> None:
    known = learnt(LastTwo(), 10)
    assert known.run_time(job(), 0.5) is None
    assert learnt(known, 10).run_time(job(), 0.5) == 10 * SECOND


def test_of_similar_jobs_it_is_the_quantile() -> None:
    known = learnt(Similar(), *range(1, 21))
    sample = Similar.sample(known, job())  # type: ignore[arg-type]
    assert sample is not None
    for quantile in (0.0, 0.2, 0.75, 1.0):
        assert known.run_time(job(), quantile) == pytest.approx(sample.quantile(quantile) * SECOND, abs=1)


def test_an_estimate_alone_is_no_prediction() -> None:
    assert Similar().run_time(job(), 0.5) is None


def test_predictors_have_names() -> None:
    assert predictor("user") is None
    assert isinstance(predictor("last-two"), LastTwo)
    assert isinstance(predictor("predicted"), Similar)
    with pytest.raises(InvalidInput, match="estimates is 'best'; allowed: one of user, last-two, predicted"):
        predictor("best")
