"""The distributions that workload models consist of, with many values drawn at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from headway.errors import InvalidInput
from headway.model.workload import FloatArray, IntArray

MOST_STAGES = 100


@dataclass(frozen=True, slots=True)
class HyperErlang:
    """A hyper-Erlang distribution of common order: `stages` exponential stages, all of one of two rates.

    Attributes:
        stages: 1 or more; with 1 it is hyper-exponential.
        first_rate, second_rate: of a stage, 1/s.
        first_share: the probability of the first rate, 0 to 1.
    """

    stages: int
    first_rate: float
    second_rate: float
    first_share: float

    def moment(self, order: int) -> float:
        """The mean of the power of this order, in seconds to that power."""
        rising = math.prod(range(self.stages, self.stages + order))
        first, second = self.first_share, 1 - self.first_share
        return (first / self.first_rate**order + second / self.second_rate**order) * rising

    def times(self, factor: float) -> HyperErlang:
        """The distribution of the values times a factor."""
        return replace(self, first_rate=self.first_rate / factor, second_rate=self.second_rate / factor)

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """So many values, in seconds."""
        rate = np.where(rng.random(count) < self.first_share, self.first_rate, self.second_rate)
        return rng.standard_gamma(self.stages, count) / rate


def fit_hyper_erlang(first: float, second: float, third: float) -> HyperErlang:
    """The hyper-Erlang distribution of lowest order that has these three moments.

    Args:
        first, second, third: the means of the values, of their squares and of their cubes, > 0.

    Raises:
        InvalidInput: no order up to 100 has them: their coefficient of variation is too small, or the third moment
                does not fit the other two.

    >>> fit_hyper_erlang(1.5, 5.0, 27.0)
    HyperErlang(stages=1, first_rate=0.5, second_rate=1.0, first_share=0.5)

    Source: Jann et al., "Modeling of workload in MPPs", JSSPP 1997.
    """
    if first > 0 and second > 0 and third > 0:
        for stages in range(1, MOST_STAGES + 1):
            # The moments of the mean length of a stage; there are two such lengths.
            a, b, c = first / stages, second / (stages * (stages + 1)), third / (stages * (stages + 1) * (stages + 2))
            if b - a * a <= 0:
                continue
            total, product = (c - a * b) / (b - a * a), (a * c - b * b) / (b - a * a)
            inner = total * total - 4 * product
            if inner <= 0 or product <= 0 or total <= 0:
                continue
            long = (total + math.sqrt(inner)) / 2
            short = product / long
            if short < a < long:
                found = HyperErlang(stages, 1 / long, 1 / short, (a - short) / (long - short))
                if math.isclose(found.moment(3), third, rel_tol=1e-6):
                    return found  # else it only just has them: its long branch is too rare to be told
    raise InvalidInput(
        "moments",
        (first, second, third),
        "three moments that a hyper-Erlang distribution has",
        hint="Give more values: few ones, or all alike, have moments that none has.",
    )


def gamma_cdf(shape: float, value: float) -> float:
    """The probability that a Gamma variable of this shape and scale 1 is at most `value`.

    >>> round(gamma_cdf(1, 1.0), 12) == round(1 - math.exp(-1.0), 12)
    True
    """
    if value <= 0:
        return 0.0
    if value > shape + 40 * math.sqrt(shape) + 100:
        return 1.0
    term = math.exp(shape * math.log(value) - value - math.lgamma(shape + 1))
    total, step = term, shape
    while term > total * 1e-17:
        step += 1
        term *= value / step
        total += term
    return min(total, 1.0)


def draw_gamma_up_to(rng: np.random.Generator, shape: float, scale: float, most: float, count: int) -> FloatArray:
    """So many Gamma variables, each drawn again until it is at most `most`."""
    drawn = rng.gamma(shape, scale, count)
    while len(again := np.flatnonzero(drawn > most)):
        drawn[again] = rng.gamma(shape, scale, len(again))
    return drawn


def draw_weighted(rng: np.random.Generator, values: IntArray, weights: FloatArray, count: int) -> IntArray:
    """So many of these values, drawn by weight; weights need not sum to 1."""
    bounds = np.cumsum(weights)
    drawn: IntArray = values[np.searchsorted(bounds, rng.random(count) * bounds[-1], side="right")]
    return drawn
