"""Run times of the jobs of a log, learnt from those that have ended, for trials of forecasts."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from headway.foresight.futures import Exactly, RunTime
from headway.model.instant import SECOND
from headway.model.job import ESTIMATE_DEFAULT
from headway.model.workload import Workload

OWN: Final = 30
"""So many last jobs of a user tell how long the next one runs."""

FEW: Final = 10
"""With fewer, as many of the last jobs of all users are added."""


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


class RunTimesOfLog:
    """Shares of their estimates that the last jobs of the same user took."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._of_user: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=OWN))
        self._of_all: deque[float] = deque(maxlen=2 * FEW)

    def _estimate(self, position: int) -> float:
        return (int(self._workload.estimate[position]) or ESTIMATE_DEFAULT) / SECOND

    def learn(self, position: int) -> None:
        """A job has ended."""
        share = int(self._workload.runtime[position]) / SECOND / self._estimate(position)
        self._of_user[str(self._workload.user[position])].append(share)
        self._of_all.append(share)

    def expected(self, position: int) -> RunTime:
        """How long the tasks of a job run, by what has been learnt."""
        own = self._of_user[str(self._workload.user[position])]
        similar = [*own, *self._of_all] if len(own) < FEW else [*own]
        estimate = self._estimate(position)
        return Shares(estimate, tuple(sorted(similar))) if similar else Exactly(estimate)
