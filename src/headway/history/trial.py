"""Predictions of a log's run times, held against how long its jobs ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.history.bounds import LEVELS, RunTimeBounds
from headway.history.predictors import LastTwo
from headway.model.instant import SECOND, Duration
from headway.model.job import ESTIMATE_DEFAULT, JobId, JobSpec

Floats = NDArray[np.float64]

MEDIAN_PLACE: Final = LEVELS.index(0.5)


@dataclass(frozen=True, slots=True)
class PredictedJob:
    """A job when it came, what was predicted then, and how long it ran, in seconds.

    Attributes:
        bounds: one for each of `LEVELS`; if nothing was known, the user's estimate for each.
        user: the estimate of its user, or the default.
        last_two: the mean of its user's last two jobs, but at most the estimate, if its user gave one; if there were
            fewer jobs, `user`.
    """

    job: JobSpec
    bounds: tuple[float, ...]
    user: float
    last_two: float
    took: float


@dataclass(frozen=True, slots=True)
class Quality:
    """How good the predictions of many jobs were.

    Attributes:
        jobs: how many were predicted.
        within_90, within_50: shares of those that ran for a time between the bounds; None: there were no bounds.
        pinball: mean pinball loss over `LEVELS`, in seconds: what a bound of a level misses, weighted such that the
            true quantile loses least. One number counts as the bound of every level.
        error: mean distance of the median, or of the number, from the run time, in seconds.
        width_90: median distance between the bounds of 90 %, in seconds; None: there were no bounds.
    """

    jobs: int
    within_90: float | None
    within_50: float | None
    pinball: float
    error: float
    width_90: float | None


class Watched:
    """A `Predictor` that keeps what it predicts to itself, so that the schedule does not depend on it.

    Args:
        cut: see `RunTimeBounds`.
        default: the estimate of a job whose user gave none.

    Attributes:
        asked: the jobs that have ended, in the order of their ends.
    """

    def __init__(self, *, cut: bool, default: Duration = ESTIMATE_DEFAULT) -> None:
        self.asked: list[PredictedJob] = []
        self._default = default
        self._bounds = RunTimeBounds(cut=cut)
        self._last_two = LastTwo()
        self._told: dict[JobId, PredictedJob] = {}

    def run_time(self, job: JobSpec, quantile: float) -> None:
        """Nothing; but what could have been said is remembered."""
        user = job.estimate or self._default
        last_two = self._last_two.run_time(job, quantile)
        bounds = self._bounds.of(job) or (user / SECOND,) * len(LEVELS)
        mean = user if last_two is None else min(job.estimate or last_two, last_two)
        self._told[job.id] = PredictedJob(job, bounds, user / SECOND, mean / SECOND, 0.0)

    def learn(self, job: JobSpec, took: Duration) -> None:
        """The tasks of a job have run so long in the mean."""
        self.asked.append(replace(self._told.pop(job.id), took=took / SECOND))
        self._bounds.learn(job, took)
        self._last_two.learn(job, took)


def quality(bounds: Sequence[Sequence[float]], took: Sequence[float]) -> Quality:
    """How good predictions were.

    Args:
        bounds: for each job one for each of `LEVELS`, rising, or a single number.
        took: how long each job ran.
    """
    told: Floats = np.array(bounds, dtype=np.float64).reshape(len(took), -1)
    came: Floats = np.array(took, dtype=np.float64)
    is_interval = told.shape[1] == len(LEVELS)
    each = told if is_interval else np.repeat(told, len(LEVELS), axis=1)
    short = came[:, None] - each
    loss = np.maximum(np.array(LEVELS) * short, (np.array(LEVELS) - 1) * short)

    def within(low: int, high: int) -> float | None:
        if not is_interval:
            return None
        return float(np.mean((told[:, low] <= came) & (came <= told[:, high])))

    return Quality(
        len(took),
        within(0, -1),
        within(1, -2),
        float(loss.mean()),
        float(np.abs(came - each[:, MEDIAN_PLACE]).mean()),
        float(np.median(told[:, -1] - told[:, 0])) if is_interval else None,
    )


Others = Callable[[Sequence[PredictedJob]], dict[str, Sequence[Sequence[float]]]]
"""Other predictions of the same jobs, by name."""


def compared(asked: Sequence[PredictedJob], others: Others | None = None) -> dict[str, Quality]:
    """The quality of each predictor on the same jobs, of which there must be one.

    Users are among them if one gave an estimate.
    """
    told: dict[str, Sequence[Sequence[float]]] = {
        "predicted": [one.bounds for one in asked],
        "last-two": [(one.last_two,) for one in asked],
    }
    if any(one.job.estimate is not None for one in asked):
        told["user"] = [(one.user,) for one in asked]
    if others is not None:
        told |= others(asked)
    return {name: quality(bounds, [one.took for one in asked]) for name, bounds in told.items()}
