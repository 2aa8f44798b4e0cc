"""What is expected of the run time of a job whose name is new, and how much that counts beside other jobs.

Other programs may be estimated in other ways. How often they are is learnt from the first jobs of names: each may have
been drawn from the jobs that were known before, or from what is expected of any job. How likely either is says how the
share of the prior moves (a mixture of two whose share is learnt on the way; Cappé and Moulines, "On-line
expectation-maximization algorithm for latent data models", JRSS B 71(3), 2009). So where all users ask for three times
what they need, that holds for the next new one too.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from typing import Final

PRIOR: Final = (0.4, 0.6, 0.75, 0.85, 0.95, 1.05, 1.15, 1.3, 1.6, 2.2)
"""Shares of an estimate that are expected before anything has ended: it is about right, sometimes half, or double."""

PRIOR_SHARE: Final = 1 / 3
"""How much of the weight these have before anything is learnt of that."""

COUNTS_AS: Final = 10
"""As if that had been learnt from so many names."""

NEW_NAMES_MAX: Final = 200
"""No more than so many names count: each later one as much as one of so many."""

KERNEL: Final = 0.25
"""Shares of an estimate that differ by this, as a logarithm, are somewhat alike: the width of a kernel."""

SURPRISE: Final = 0.02
"""The least likelihood of anything: what neither expects says nothing of which is right."""

LEAST_SHARE: Final = 1e-6
"""Smaller shares of an estimate count as this one."""


class PriorShare:
    """Learns how much of the weight `PRIOR` has for jobs of new names.

    Attributes:
        share: above 0 and below 1.
    """

    def __init__(self) -> None:
        self.share = PRIOR_SHARE
        self._names = COUNTS_AS

    def learn(self, took: float, known: Iterable[tuple[float, float]]) -> None:
        """The first job of a name has ended.

        Args:
            took: how long it ran, as a share of its estimate.
            known: the same of the jobs that were known before, at least one, each with its weight.
        """
        jobs = list(known)
        by_jobs = _likelihood(took, jobs)
        by_prior = _likelihood(took, [(share, 1.0) for share in PRIOR])
        drawn = self.share * by_prior / (self.share * by_prior + (1 - self.share) * by_jobs)
        self._names = min(NEW_NAMES_MAX, self._names + 1)
        self.share += (drawn - self.share) / self._names


def _likelihood(took: float, known: list[tuple[float, float]]) -> float:
    """How likely a share of an estimate is among others that have weights, up to a constant factor."""
    at = log(max(took, LEAST_SHARE))
    near = sum(weight * exp(-0.5 * ((log(max(share, LEAST_SHARE)) - at) / KERNEL) ** 2) for share, weight in known)
    return SURPRISE + near / sum(weight for _, weight in known)
