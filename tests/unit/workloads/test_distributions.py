"""Distributions: closed forms compared with draws, and a fit that has the given moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.workloads.distributions import (
    HyperErlang,
    draw_gamma_up_to,
    draw_weighted,
    fit_hyper_erlang,
    gamma_cdf,
)

SKEWED = HyperErlang(4, 1.1863e-4, 6.7919e-3, 0.38895)


@pytest.mark.parametrize("stages", [1, 2, 7, 30])
@pytest.mark.parametrize("value", [0.01, 0.5, 3.0, 20.0, 90.0])
def test_the_distribution_of_a_sum_of_stages_is_erlangs(stages: int, value: float) -> None:
    later = sum(math.exp(k * math.log(value) - value - math.lgamma(k + 1)) for k in range(stages))
    assert gamma_cdf(stages, value) == pytest.approx(1 - later, abs=1e-12)


def test_a_gamma_variable_is_above_zero_and_somewhere() -> None:
    assert (gamma_cdf(8.2, 0.0), gamma_cdf(8.2, -1.0), gamma_cdf(8.2, 1e6)) == (0.0, 0.0, 1.0)
    drawn = np.random.default_rng(1).gamma(8.2, 1.0, 100_000)
    for value in (4.0, 8.0, 13.0):
        assert gamma_cdf(8.2, value) == pytest.approx((drawn <= value).mean(), abs=0.006)


def test_moments_are_those_of_the_density() -> None:
    """Integrated numerically over the density, which the closed form does not use."""
    x = np.linspace(0, 1_000_000, 2_000_001)
    density = sum(
        share * rate**SKEWED.stages * x ** (SKEWED.stages - 1) * np.exp(-rate * x) / math.factorial(SKEWED.stages - 1)
        for share, rate in ((SKEWED.first_share, SKEWED.first_rate), (1 - SKEWED.first_share, SKEWED.second_rate))
    )
    step = x[1] - x[0]
    for order in (1, 2, 3):
        assert SKEWED.moment(order) == pytest.approx(float((density * x**order).sum() * step), rel=1e-4)


def test_draws_have_the_moments_and_a_factor_scales_them() -> None:
    drawn = SKEWED.draw(np.random.default_rng(3), 400_000)
    for order in (1, 2):
        error = math.sqrt((SKEWED.moment(2 * order) - SKEWED.moment(order) ** 2) / len(drawn))
        assert abs((drawn**order).mean() - SKEWED.moment(order)) < 4 * error
    assert SKEWED.times(2.5).moment(3) == pytest.approx(2.5**3 * SKEWED.moment(3))


@given(
    st.integers(1, 8),
    st.floats(1e-5, 1e-3),
    st.floats(2.0, 500.0),
    st.floats(0.05, 0.95),
)
def test_a_fit_has_the_moments_it_was_given(stages: int, rate: float, ratio: float, share: float) -> None:
    """Its order is the least possible for them, so at most that of the distribution they came from."""
    given_moments = [HyperErlang(stages, rate, rate * ratio, share).moment(order) for order in (1, 2, 3)]
    fitted = fit_hyper_erlang(*given_moments)
    assert fitted.stages <= stages
    assert 0 < fitted.first_share < 1
    assert fitted.first_rate < fitted.second_rate
    assert [fitted.moment(order) for order in (1, 2, 3)] == pytest.approx(given_moments, rel=1e-6)


@pytest.mark.parametrize("moments", [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (2.0, 3.0, 1.0), (1.0, 50.0, 2500.0)])
def test_moments_that_none_has_are_refused(moments: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInput, match="three moments that a hyper-Erlang distribution has"):
        fit_hyper_erlang(*moments)


def test_draws_up_to_a_limit_are_those_that_happen_to_be_below() -> None:
    below = draw_gamma_up_to(np.random.default_rng(5), 4.0, 1.0, 5.0, 100_000)
    free = np.random.default_rng(6).gamma(4.0, 1.0, 200_000)
    assert below.max() <= 5.0
    assert below.mean() == pytest.approx(free[free <= 5.0].mean(), abs=0.02)


def test_weights_say_how_often_a_value_is_drawn() -> None:
    drawn = draw_weighted(np.random.default_rng(7), np.array([3, 5, 9]), np.array([1.0, 0.0, 3.0]), 40_000)
    assert set(drawn.tolist()) == {3, 9}
    assert (drawn == 9).mean() == pytest.approx(0.75, abs=0.01)
