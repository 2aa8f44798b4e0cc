"""A workload in the style of Feitelson 1996: discrete widths, very different run times, jobs that are run repeatedly.

The paper has the shape of the width distribution: harmonic of order 1.5, with small widths and powers of two raised by
hand. It also says that wide jobs tend to run longer, and that jobs are run again. How far widths were raised, and the
mean run times, are lost: ours give the aggregates that MEASY14 prints, on its 320 processors.

Source: Feitelson, "Packing schemes for gang scheduling", JSSPP 1996.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Unpack

import numpy as np

from headway.errors import InvalidInput
from headway.model.workload import FloatArray, Workload
from headway.workloads.distributions import draw_weighted
from headway.workloads.generated import Extras, chances, check_number, check_size, check_whole, generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Feitelson96:
    """The parameters of the model.

    Attributes:
        order: the weight of a width n is n^-order.
        powers: the weight of each power of two above 1 instead.
        small, small_below: widths below `small_below` have `small` times their weight.
        short, long: mean run times of the two branches, seconds, short <= long.
        short_share, short_fall: the probability of the short branch is short_share - short_fall n / processors.
        repeat_order, repeat_most: a job is run k times, k <= repeat_most, with probability falling as k^-repeat_order.
        think: mean time between the end of a run and the next one's submission, seconds; exponential.
        arrival_load: the offered load that new jobs arrive for.

    Raises:
        InvalidInput: one is out of its range.
    """

    order: float = 1.5
    powers: float = 1.0175
    small: float = 4.587
    small_below: int = 10
    short: float = 1642.4
    long: float = 16930.0
    short_share: float = 0.95
    short_fall: float = 0.20
    repeat_order: float = 2.5
    repeat_most: int = 64
    think: float = 0.0
    arrival_load: float = 0.45

    def __post_init__(self) -> None:
        for name in ("order", "repeat_order"):
            check_number(name, getattr(self, name), 0, 20)
        for name in ("small", "powers"):
            check_number(name, getattr(self, name), 0, 1e9)
        check_whole("small_below", self.small_below, 1, 2**31 - 1)
        check_whole("repeat_most", self.repeat_most, 1, 10_000)
        check_number("short", self.short, 0, 1e9, above=True)
        check_number("long", self.long, self.short, 1e9)
        check_number("short_share", self.short_share, 0, 1)
        check_number("short_fall", self.short_fall, self.short_share - 1, self.short_share)
        check_number("think", self.think, 0, 1e9)
        check_number("arrival_load", self.arrival_load, 0, 1e6, above=True)

    def widths(self, processors: int) -> FloatArray:
        """The probability of each width from 1 to `processors`.

        Raises:
            InvalidInput: no width has a weight.
        """
        width = np.arange(1, processors + 1)
        weight = width ** -float(self.order)
        weight[(width > 1) & (width & (width - 1) == 0)] = self.powers
        weight[width < self.small_below] *= self.small
        if not weight.any():
            raise InvalidInput("small", self.small, f"above 0 where widths up to {processors} are all narrow")
        probability: FloatArray = weight / weight.sum()
        return probability

    def short_probability(self, processors: int) -> FloatArray:
        """The probability of the short branch of run times, by width from 1 to `processors`."""
        return self.short_share - self.short_fall * np.arange(1, processors + 1) / processors

    def repeats(self) -> FloatArray:
        """The probability of each number of runs of a job, from 1 on."""
        weight = np.arange(1, self.repeat_most + 1) ** -float(self.repeat_order)
        probability: FloatArray = weight / weight.sum()
        return probability


PUBLISHED_STYLE: Final = Feitelson96()

MOST_PROCESSORS: Final = 10_000_000
"""Each possible width has a probability of its own."""


def feitelson96(
    jobs: int = 10_000,
    seed: int = 0,
    processors: int = 320,
    *,
    model: Feitelson96 = PUBLISHED_STYLE,
    **extras: Unpack[Extras],
) -> Workload:
    """A workload in the style of Feitelson 1996.

    New jobs arrive at random (Poisson). The runs of a job have the same width and run time. There is no feedback from a
    schedule: a run is submitted when the one before would have ended if it had started at once, plus its user's think
    time.

    Args:
        jobs: number of runs, 1 or more: the first ones to be submitted.
        seed: 0 or more.
        processors: of the machine; no job is wider.
        model: its parameters.
        extras: see `Extras`; `load` scales all gaps, including those between runs of a job.

    Raises:
        InvalidInput: an argument is not allowed.
    """
    check_size(jobs, processors)
    check_whole("processors", processors, 1, MOST_PROCESSORS)
    rng, _, _ = chances(seed)
    width_share, short = model.widths(processors), model.short_probability(processors)
    wide = np.arange(1, processors + 1)
    repeats = model.repeats()
    runs_mean = float(repeats @ np.arange(1, len(repeats) + 1))
    work_mean = float(width_share @ (wide * (short * model.short + (1 - short) * model.long)))
    gap = runs_mean * work_mean / (processors * model.arrival_load)
    # As many series as runs are enough, because each has at least one run.
    starts = np.cumsum(rng.exponential(gap, jobs))
    width = draw_weighted(rng, wide, width_share, jobs)
    mean = np.where(rng.random(jobs) < short[width - 1], model.short, model.long)
    runtime = np.maximum(1.0, rng.exponential(mean))
    runs = draw_weighted(rng, np.arange(1, len(repeats) + 1), repeats, jobs)
    which = np.repeat(np.arange(jobs), runs)
    passed = np.cumsum(runtime[which] + model.think * rng.standard_exponential(len(which)))
    release = starts[which] + passed - passed[np.cumsum(runs) - runs][which]
    order = np.argsort(release, kind="stable")[:jobs]
    return generated(
        release[order], width[which[order]], runtime[which[order]], seed=seed, processors=processors, extras=extras
    )
