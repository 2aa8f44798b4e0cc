"""Bounds on run times that hold: the levels of a sample are moved until as many jobs are within as were to be.

Jobs that come next differ from those before them more than these among themselves. So the 95 % level of a sample holds
for fewer than 95 % of the jobs. Which level does is learnt on the way: after each job a level is moved up a little if
the job ran longer than the bound, and down if it did not, such that both cancel out where the bound holds (adaptive
conformal inference, Gibbs and Candes, NeurIPS 2021).

Jobs that a user has submitted together share their fate: if a bound fails for one, it fails for all, long before
anything is learnt from it. So bounds are wider the more jobs of the user are open.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from math import log2
from typing import Final

from headway.history.similar import Sample, Similar
from headway.model.instant import SECOND, Duration
from headway.model.job import JobId, JobSpec

LEVELS: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the bounds: 90 % lie between the first and the last, 50 % between the second and the fourth."""

LEVEL_GAIN: Final = 0.01
"""How far a level is moved by one job, at most."""

REACH: Final = 0.3
"""How far a level may go beyond the sample, whose levels lie between 0 and 1."""

STRETCH: Final = 12.0
"""Beyond the sample, a bound is its last run time times 1 + 12 times what the level exceeds 1 by."""

SHRINK: Final = 3.0
"""The same below the first: 1 - 3 times what the level lacks to 0."""

CROWD: Final = 0.12
"""How far the outermost levels are moved outward each time the number of a user's open jobs doubles."""


class MovingBound:
    """One bound: where it was held against what came, its level is moved until it holds as often as it should.

    Args:
        wanted: the share of run times that are to be no longer, between 0 and 1.
    """

    def __init__(self, wanted: float) -> None:
        self._wanted = self._level = wanted
        self._most = 0.5 if wanted < 0.5 else 1 + REACH  # where most jobs run equally long, no level keeps enough below

    def bound(self, sample: Sample, together: int = 0) -> float:
        """A run time, in seconds.

        Args:
            together: how many other bounds wait for what comes of them and share the fate of this one.
        """
        level = self._level + CROWD * (2 * self._wanted - 1) * log2(1 + together)
        level = min(1 + REACH, max(-REACH, level))
        if level > 1:
            return sample.seconds[-1] * (1 + STRETCH * (level - 1))
        if level < 0:
            return sample.seconds[0] * max(0.0, 1 + SHRINK * level)
        return sample.quantile(level)

    def learn(self, bound: float, took: float) -> None:
        """What came of a bound that was told."""
        is_below = took < bound if self._wanted < 0.5 else took <= bound  # what is at a bound is within
        moved = self._level + LEVEL_GAIN * (self._wanted - is_below)
        self._level = min(self._most, max(-REACH, moved))


class RunTimeBounds:
    """Predicts run times with bounds, and learns what came of them.

    Args:
        cut: whether no job runs longer than its estimate, because it is killed then; so it is in most logs.
    """

    def __init__(self, *, cut: bool = False) -> None:
        self._similar = Similar()
        self._held = [MovingBound(level) for level in LEVELS]
        self._told: dict[JobId, tuple[float, ...]] = {}
        self._open: Counter[str] = Counter()
        self._cut = cut

    def of(self, job: JobSpec) -> tuple[float, ...] | None:
        """Bounds on the run time of a task, in seconds: one for each of `LEVELS`, rising; None: nothing is known."""
        sample = self._similar.sample(job)
        if sample is None:
            return None
        most = job.estimate / SECOND if self._cut and job.estimate else float("inf")
        together = self._open[job.user]
        told = tuple(accumulate((min(most, held.bound(sample, together)) for held in self._held), max))
        self._told[job.id] = told
        self._open[job.user] += 1
        return told

    def learn(self, job: JobSpec, took: Duration) -> None:
        """The tasks of a job have run so long in the mean."""
        told = self._told.pop(job.id, None)
        if told is not None:
            self._open[job.user] -= 1
            for held, bound in zip(self._held, told, strict=True):
                held.learn(bound, took / SECOND)
        self._similar.learn(job, took)
