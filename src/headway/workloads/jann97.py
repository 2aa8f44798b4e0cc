"""The workload of Jann et al. 1997: ranges of widths, each with its own stream of arrivals and run times.

The structure is the paper's. Its tables are lost: the default ranges are our own fit, by the paper's method, to the
first part of the log of the machine that it modelled, the CTC SP2. `fit` makes ranges from any log.

Source: Jann, Pattnaik, Franke, Wang, Skovira and Riodan, "Modeling of workload in MPPs", JSSPP 1997.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Unpack

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.workload import FloatArray, IntArray, Workload
from headway.workloads.distributions import HyperErlang, draw_weighted, fit_hyper_erlang
from headway.workloads.generated import Extras, chances, check_size, generated


@dataclass(frozen=True, slots=True)
class Range:
    """Jobs of certain widths.

    Attributes:
        widths: rising; `jobs` has how many jobs had each of them.
        jobs: how probable each width is.
        gap: seconds between arrivals.
        runtime: seconds.
    """

    widths: tuple[int, ...]
    jobs: tuple[float, ...]
    gap: HyperErlang
    runtime: HyperErlang

    def up_to(self, processors: int) -> Range | None:
        """The jobs that fit on so many processors, arriving more rarely in proportion; None if none fits."""
        fitting = [(width, jobs) for width, jobs in zip(self.widths, self.jobs, strict=True) if width <= processors]
        if not fitting:
            return None
        widths, jobs = zip(*fitting, strict=True)
        return replace(self, widths=widths, jobs=jobs, gap=self.gap.times(sum(self.jobs) / sum(jobs)))

    def width_mean(self) -> float:
        """The mean width."""
        return sum(width * jobs for width, jobs in zip(self.widths, self.jobs, strict=True)) / sum(self.jobs)


def _fitted(
    jobs: dict[int, int], gap: tuple[int, float, float, float], runtime: tuple[int, float, float, float]
) -> Range:
    return Range(tuple(jobs), tuple(map(float, jobs.values())), HyperErlang(*gap), HyperErlang(*runtime))


CTC: Final[tuple[Range, ...]] = (
    _fitted({1: 7405}, (1, 1.4838e-04, 2.3068e-03, 0.06915), (4, 1.1863e-04, 6.7919e-03, 0.38895)),
    _fitted({2: 1725}, (1, 3.6216e-05, 8.7244e-04, 0.09571), (8, 1.7583e-04, 4.0339e-02, 0.30866)),
    _fitted({3: 374, 4: 1985}, (1, 6.2297e-05, 1.3343e-03, 0.12907), (5, 1.4280e-04, 3.2117e-02, 0.20721)),
    _fitted(
        {5: 466, 6: 232, 7: 20, 8: 1121}, (1, 7.1819e-05, 1.6240e-03, 0.21520), (2, 9.5936e-05, 3.0416e-03, 0.22334)
    ),
    _fitted(
        {9: 134, 10: 401, 11: 37, 12: 193, 14: 10, 15: 65, 16: 1435},
        (1, 6.7169e-05, 7.1552e-04, 0.10641),
        (3, 1.1272e-04, 2.1789e-02, 0.31659),
    ),
    _fitted(
        {17: 64, 18: 107, 19: 3, 20: 112, 21: 32, 22: 1, 24: 66, 25: 37, 26: 49, 27: 3, 30: 6, 31: 1, 32: 617},
        (1, 3.3801e-05, 3.7867e-04, 0.12487),
        (3, 1.0457e-04, 1.9791e-02, 0.31796),
    ),
    _fitted(
        {
            33: 148,
            34: 57,
            36: 5,
            37: 14,
            40: 15,
            41: 18,
            42: 1,
            48: 19,
            49: 1,
            50: 23,
            51: 2,
            54: 3,
            60: 5,
            63: 1,
            64: 464,
        },
        (1, 5.5519e-05, 1.5189e-03, 0.44160),
        (3, 1.0124e-04, 8.8624e-03, 0.41709),
    ),
    _fitted(
        {
            65: 16,
            66: 4,
            67: 3,
            69: 1,
            70: 2,
            71: 3,
            78: 2,
            81: 3,
            94: 1,
            96: 13,
            97: 2,
            100: 4,
            101: 2,
            114: 6,
            120: 5,
            127: 6,
            128: 127,
        },
        (2, 3.3450e-05, 4.6356e-04, 0.50297),
        (5, 1.2144e-04, 1.2040e-01, 0.32282),
    ),
    _fitted(
        {129: 52, 130: 2, 150: 3, 161: 1, 175: 1, 180: 1, 184: 2, 192: 7, 200: 9, 250: 1, 256: 20},
        (2, 5.7852e-06, 2.7865e-04, 0.16914),
        (1, 2.9307e-04, 7.6387e-03, 0.34992),
    ),
    _fitted(
        {257: 1, 258: 1, 264: 1, 290: 1, 300: 8, 306: 27, 308: 1, 320: 9, 322: 1},
        (1, 1.6706e-06, 1.7637e-05, 0.14792),
        (6, 1.4389e-04, 3.1568e-02, 0.20611),
    ),
)
"""Our fit to the jobs of the CTC SP2 submitted until 12 September 1996: 17,826 in the log; the paper has 17,440."""


def jann97(
    jobs: int = 10_000,
    seed: int = 0,
    processors: int = 322,
    *,
    ranges: Sequence[Range] = CTC,
    **extras: Unpack[Extras],
) -> Workload:
    """A workload as in Jann et al. 1997: each range of widths has its own arrivals and run times.

    reading: a width within a range is drawn as often as it is in the log.

    Args:
        jobs: 1 or more.
        seed: 0 or more.
        processors: of the machine; wider jobs do not arrive.
        ranges: see `CTC` and `fit`.
        extras: see `Extras`.

    Raises:
        InvalidInput: an argument is not allowed.
    """
    check_size(jobs, processors)
    rng, _, _ = chances(seed)
    fitting = [part for one in ranges if (part := one.up_to(processors)) is not None]
    if not fitting:
        raise InvalidInput("processors", processors, "as many as the narrowest job of the ranges needs, or more")
    horizon = 1.1 * jobs / sum(1 / part.gap.moment(1) for part in fitting)
    rngs = rng.spawn(len(fitting))
    arrivals = [np.empty(0) for _ in fitting]
    while True:
        arrivals = [
            _arrivals(part.gap, one, known, horizon) for part, one, known in zip(fitting, rngs, arrivals, strict=True)
        ]
        counts = [int(np.searchsorted(known, horizon)) for known in arrivals]
        if sum(counts) >= jobs:
            break
        horizon *= 1.5
    release = np.concatenate([known[:count] for known, count in zip(arrivals, counts, strict=True)])
    width = np.concatenate(
        [
            draw_weighted(one, np.array(part.widths), np.array(part.jobs), count)
            for part, one, count in zip(fitting, rngs, counts, strict=True)
        ]
    )
    runtime = np.concatenate(
        [part.runtime.draw(one, count) for part, one, count in zip(fitting, rngs, counts, strict=True)]
    )
    order = np.argsort(release, kind="stable")[:jobs]
    return generated(
        release[order], width[order], np.maximum(1.0, runtime[order]), seed=seed, processors=processors, extras=extras
    )


def _arrivals(gap: HyperErlang, rng: np.random.Generator, known: FloatArray, horizon: float) -> FloatArray:
    """Arrivals until the horizon has passed, beginning with those already known."""
    end = known[-1] if len(known) else 0.0
    while end <= horizon:
        more = end + np.cumsum(gap.draw(rng, 1000))
        known, end = np.concatenate([known, more]), more[-1]
    return known


def fit(workload: Workload) -> tuple[Range, ...]:
    """The ranges that a workload has: widths up to 1, 2, 4, 8 and so on, each fitted to three moments.

    Run times of 0 are left out.

    Raises:
        InvalidInput: the gaps or run times of a range have no such fit.
    """
    found = []
    low = 0
    while low < workload.width.max():
        high = max(1, 2 * low)
        these = (workload.width > low) & (workload.width <= high)
        if these.any():
            found.append(_fit_range(low + 1, high, workload.take(np.flatnonzero(these))))
        low = high
    return tuple(found)


def _fit_range(low: int, high: int, jobs: Workload) -> Range:
    gaps = np.diff(jobs.release)
    runtimes = jobs.runtime[jobs.runtime > 0]
    widths, counts = np.unique(jobs.width, return_counts=True)
    fits = []
    for name, values in (("gaps", gaps), ("run times", runtimes)):
        try:
            fits.append(_fit_values(values))
        except InvalidInput as flaw:
            field = f"moments of the {name} of {len(jobs)} jobs of {low} to {high} processors"
            raise InvalidInput(field, flaw.value, flaw.allowed, hint=flaw.hint) from None
    return Range(tuple(widths.tolist()), tuple(map(float, counts.tolist())), *fits)


def _fit_values(values: IntArray) -> HyperErlang:
    seconds = values / SECOND
    return fit_hyper_erlang(*(float((seconds**order).mean()) if len(seconds) else 0.0 for order in (1, 2, 3)))
