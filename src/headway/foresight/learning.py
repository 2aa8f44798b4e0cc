"""How long tasks run, learnt from the jobs that have ended."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from headway.foresight.futures import Exactly, RunTime
from headway.model.instant import SECOND, Duration
from headway.model.job import ESTIMATE_DEFAULT, AnyJob, Bag
from headway.model.workload import Workload

OWN: Final = 30
"""So many last jobs that are alike tell how long the next one runs."""

FEW: Final = 10
"""With fewer, as many jobs that are less alike are added, and `PRIOR`."""

LEAST: Final = 3
"""So many jobs without an estimate say how long others like them run."""

PRIOR: Final = (0.4, 0.6, 0.75, 0.85, 0.95, 1.05, 1.15, 1.3, 1.6, 2.2)
"""Shares of an estimate that are expected before anything has ended: it is about right, sometimes half, or double."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Run times as shares of an estimate that similar jobs took, in order."""

    estimate: float
    shares: tuple[float, ...]

    def quantile(self, level: float) -> float:
        """It runs at most so long with this probability."""
        last = len(self.shares) - 1
        return float(np.interp(level * last, range(last + 1), self.shares)) * self.estimate

    def below(self, seconds: float) -> float:
        """The probability that it runs at most so long."""
        return float(np.searchsorted(self.shares, seconds / self.estimate, side="right")) / len(self.shares)


class RunTimesKnown:
    """How long tasks run, by the last jobs like theirs that had ended; a `RunTimesOf`.

    With an estimate, what earlier jobs of the same user and name took of theirs says how long. With few of these, so do
    others of the user, and of all, beside `PRIOR`: other programs may be estimated in other ways. Without, only jobs of
    the same user and name say anything: what is known of them is times, not shares of an estimate.

    Args:
        default: the core's estimate of a task whose job has none.
    """

    def __init__(self, default: Duration) -> None:
        self._default = default
        self._seen: dict[tuple[str, ...], deque[float]] = defaultdict(lambda: deque(maxlen=OWN))

    def learn(self, spec: AnyJob, took: Duration) -> None:
        """A job has ended, whose tasks ran so long in the mean."""
        if took > 0:
            for like in _likes(spec):
                self._seen[like].append(took / (spec.estimate or self._default))

    def __call__(self, spec: AnyJob, task: int) -> RunTime:
        """The run time of a task of a job."""
        same, *others = _likes(spec) or (NOTHING,)
        similar = list(self._seen.get(same, ()))
        if len(similar) < FEW and spec.estimate:
            similar += PRIOR
            for like in others:
                if len(similar) < 2 * FEW:
                    similar += list(self._seen.get(like, ()))[-FEW:]
        estimate = (spec.estimate or self._default) / SECOND
        return Shares(estimate, tuple(sorted(similar))) if similar else Exactly(estimate)

    def knows(self, spec: AnyJob) -> bool:
        """Whether anything is known of the run times of a job: an estimate, or the past."""
        return bool(spec.estimate) or any(len(self._seen.get(like, ())) >= LEAST for like in _likes(spec))


NOTHING: Final = ("", "", "")
"""What no job is like."""


def _likes(spec: AnyJob) -> tuple[tuple[str, ...], ...]:
    """To what a job belongs, the narrowest first."""
    if spec.estimate:
        return (spec.user, spec.name), (spec.user,), ()
    return ((spec.user, spec.name, "without"),) if spec.name else ()


class RunTimesOfLog:
    """The same for the jobs of a log, by their positions, for trials of forecasts: a user's jobs are all alike."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known = RunTimesKnown(ESTIMATE_DEFAULT)

    def _terms(self, position: int) -> AnyJob:
        log = self._workload
        estimate = max(0, int(log.estimate[position])) or None  # below 0: there is none
        return Bag(id=position, release=0, user=str(log.user[position]), name="job", estimate=estimate)

    def learn(self, position: int) -> None:
        """A job has ended."""
        self._known.learn(self._terms(position), int(self._workload.runtime[position]))

    def expected(self, position: int) -> RunTime:
        """How long the tasks of a job run, by what has been learnt."""
        return self._known(self._terms(position), 0)
