"""How reliable the mean of one simulation is: batch means, without the start of the run.

Jobs that follow each other wait for the same things, so the spread of single jobs says nothing about the error of their
mean. Means of long batches of jobs are nearly independent, so their spread does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from headway.errors import InvalidInput
from headway.model.workload import FloatArray

BATCHES: Final = 20
"""The default number of batches: 10 to 30 are usual; more would be shorter and less independent."""

WARM_UP: Final = 0.05
"""The default share of the jobs at the start that is left out: the cluster was empty then."""

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the range in which the true one probably lies.

    Attributes:
        mean: of the batches.
        low, high: bounds of the confidence interval, mean - half width and mean + half width.
        batches: how many there were, >= 2.
        correlation: between the means of neighbouring batches, in [-1, 1]; 0 if all are the same.
    """

    mean: float
    low: float
    high: float
    batches: int
    correlation: float

    @property
    def half_width(self) -> float:
        """Half of the interval, >= 0."""
        return (self.high - self.low) / 2

    @property
    def is_correlated(self) -> bool:
        """Whether neighbouring batches are so similar that the interval is probably too narrow.

        One series in forty of 20 independent batches says yes. It is von Neumann's test at 5 % in its normal
        approximation; our correlation is slightly smaller than in his test, because the first and the last mean count
        half. Fewer batches help, or more jobs.
        """
        spread = math.sqrt((self.batches - 2) / (self.batches**2 - 1))
        return self.correlation > 1.645 * spread

    def times(self, factor: float) -> Interval:
        """The same in another unit, factor > 0."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor, self.batches, self.correlation)


def batch_means(
    values: ArrayLike, batches: int = BATCHES, *, warm_up: float = WARM_UP, confidence: float = CONFIDENCE
) -> Interval:
    """The mean of a measure over jobs, with a confidence interval from the means of equally long batches.

    Args:
        values: the measure of each job in order of release, shape (jobs,).
        batches: how many, >= 2.
        warm_up: share of the jobs at the start that is left out, in [0, 1).
        confidence: of the interval, in (0, 1).

    Raises:
        InvalidInput: an argument is out of its range, a value is not a number, or fewer jobs are left than batches.

    >>> found = batch_means([9, 9, 1, 3, 2, 4, 3, 5], 3, warm_up=0.25)
    >>> found.mean, round(found.half_width, 3), found.batches
    (3.0, 2.484, 3)

    Source: Law & Kelton, "Simulation Modeling and Analysis", the method of batch means.
    """
    return interval(means_of_batches(values, batches, warm_up), confidence)


def means_of_batches(values: ArrayLike, batches: int = BATCHES, warm_up: float = WARM_UP) -> FloatArray:
    """The mean of each batch, shape (batches,); arguments and errors as of `batch_means`.

    Jobs at the start that would make batches unequal are left out with the warm-up.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise InvalidInput("values", f"of shape {numbers.shape}", "one number a job")
    if not np.isfinite(numbers).all():
        job = int(np.flatnonzero(~np.isfinite(numbers))[0])
        hint = "Leave out jobs that did not end."
        raise InvalidInput(f"value of job {job}", float(numbers[job]), "a finite number", hint=hint)
    if not 0 <= warm_up < 1:
        raise InvalidInput("warm_up", warm_up, "a share of the jobs, 0 or more and below 1")
    left = len(numbers) - math.ceil(warm_up * len(numbers))
    if left < 2:
        raise InvalidInput("jobs after the warm-up", left, "2 or more", hint="Give a shorter warm-up or more jobs.")
    if not 2 <= batches <= left:
        hint = "Give fewer batches, a shorter warm-up or more jobs."
        raise InvalidInput("batches", batches, f"2 to {left}, the number of jobs after the warm-up", hint=hint)
    length = left // batches
    means: FloatArray = numbers[len(numbers) - batches * length :].reshape(batches, length).mean(axis=1)
    return means


def interval(means: FloatArray, confidence: float = CONFIDENCE) -> Interval:
    """The interval from means of batches, shape (batches,), two or more.

    Raises:
        InvalidInput: `confidence` is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise InvalidInput("confidence", confidence, "above 0 and below 1, as 0.95")
    mean, away = float(means.mean()), means - means.mean()
    squares = float(away @ away)
    half = student(confidence, len(means) - 1) * math.sqrt(squares / (len(means) - 1) / len(means))
    correlation = float(away[1:] @ away[:-1]) / squares if squares else 0.0
    return Interval(mean, mean - half, mean + half, len(means), correlation)


@lru_cache
def student(confidence: float, freedom: int) -> float:
    """The t such that a variable with Student's distribution is between -t and t with this probability.

    Args:
        confidence: in (0, 1).
        freedom: degrees of freedom, >= 1.

    >>> round(student(0.95, 10), 3)
    2.228

    Source: Abramowitz & Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4, inverted by bisection.
    """
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        low, high = (angle, high) if _within(angle, freedom) < confidence else (low, angle)
    return math.sqrt(freedom) * math.tan(high)


def _within(angle: float, freedom: int) -> float:
    """The probability that |t| <= sqrt(freedom) tan(angle)."""
    odd = freedom % 2
    cosine = math.cos(angle)
    term, total = cosine if odd else 1.0, 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= (step - 1) / step * cosine * cosine
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
