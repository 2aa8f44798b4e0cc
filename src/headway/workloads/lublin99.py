"""The workload of Lublin and Feitelson: a daily cycle, run times correlated with widths, one stream of jobs or two.

Source: Lublin and Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid jobs",
J. Parallel Distrib. Comput. 63(11), 2003; constants as in the program of 1999.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Unpack

import numpy as np

from headway.errors import InvalidInput
from headway.model.workload import FloatArray, IntArray, Workload
from headway.workloads.distributions import draw_gamma_up_to, gamma_cdf
from headway.workloads.generated import Extras, chances, check_number, check_size, generated

BUCKETS: Final = 48
BUCKET: Final = 1800
"""Seconds."""

DAY_START: Final = 11
"""The bucket in which the curve of a day begins."""

LONGEST_RUN: Final = 12
LONGEST_GAP: Final = 13
"""The greatest logarithm of a run time, and of a gap: greater ones are drawn again."""

SELDOM: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStream:
    """The constants of one stream of jobs.

    Attributes:
        serial, powers: shares of all jobs that have one processor, and a power of two of them.
        low, middle, high: the logarithm to base 2 of the width of a parallel job is uniform in low..middle or in
            middle..high. Low is an absolute value; middle and high are distances below the logarithm of the processors.
        low_share: the probability that it is in low..middle.
        run_shape1, run_scale1, run_shape2, run_scale2: two Gamma distributions of the logarithm of the run time.
        run_slope, run_base: the probability of the first one is run_slope width + run_base, limited to 0..1.
        gap_shape, gap_scale: the Gamma distribution of the logarithm of gaps in the rush hours.
        gap_all_day: how many times greater the shape is for the whole day.
        day_shape, day_scale: the Gamma curve of arrivals over the day, in half-hours.

    Raises:
        InvalidInput: one is out of its range, or nearly all draws of a distribution would exceed what is allowed.
    """

    serial: float
    powers: float
    low: float
    middle: float
    high: float
    low_share: float
    run_shape1: float
    run_scale1: float
    run_shape2: float
    run_scale2: float
    run_slope: float
    run_base: float
    gap_shape: float
    gap_scale: float
    gap_all_day: float
    day_shape: float
    day_scale: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("serial", "powers", "low_share"):
                check_number(field.name, value, 0, 1)
            elif field.name in ("run_slope", "run_base"):
                check_number(field.name, value, -1e3, 1e3)
            elif field.name in ("low", "middle", "high"):
                check_number(field.name, value, 0, 31)
            else:
                check_number(field.name, value, 0, 1e4, above=True)
        for name, shape, scale, most in (
            ("run", self.run_shape1, self.run_scale1, LONGEST_RUN),
            ("run", self.run_shape2, self.run_scale2, LONGEST_RUN),
            ("gap", self.gap_shape * self.gap_all_day, self.gap_scale, LONGEST_GAP),
        ):
            if gamma_cdf(shape, most / scale) < SELDOM:
                allowed = f"a logarithm of at most {most} in one draw of a hundred or more often"
                raise InvalidInput(f"{name}_shape, {name}_scale", (shape, scale), allowed)

    def widths(self, rng: np.random.Generator, processors: int, jobs: int) -> IntArray:
        """So many widths, none above `processors`."""
        all_bits = math.log2(processors)
        middle = max(self.low, all_bits - self.middle)
        high = max(middle, all_bits - self.high)
        kind, part, place = rng.random(jobs), rng.random(jobs), rng.random(jobs)
        bits = np.where(
            part <= self.low_share, self.low + (middle - self.low) * place, middle + (high - middle) * place
        )
        bits = np.where(kind <= self.serial + self.powers, np.floor(bits + 0.5), bits)
        width = np.where(kind <= self.serial, 1, np.floor(2.0**bits + 0.5))
        return np.minimum(width, processors).astype(np.int64)

    def runtimes(self, rng: np.random.Generator, width: IntArray) -> FloatArray:
        """The run time of a job of each width, whole seconds; some are 0."""
        share = np.clip(self.run_slope * width + self.run_base, 0, 1)
        logarithm = np.full(len(width), np.inf)
        while len(again := np.flatnonzero(logarithm > LONGEST_RUN)):
            first = rng.random(len(again)) < share[again]
            shape = np.where(first, self.run_shape1, self.run_shape2)
            logarithm[again] = rng.gamma(shape, np.where(first, self.run_scale1, self.run_scale2))
        runtime: FloatArray = np.floor(np.exp(logarithm))
        return runtime

    def day(self) -> FloatArray:
        """How often jobs arrive in each half-hour of a day, 1 on average.

        Raises:
            InvalidInput: the curve is so narrow that none arrive in some half-hours.
        """
        weight = np.empty(BUCKETS)
        for bucket in range(DAY_START, DAY_START + BUCKETS):
            above, below = ((bucket + half) / self.day_scale for half in (0.5, -0.5))
            weight[(bucket - 1) % BUCKETS] = gamma_cdf(self.day_shape, above) - gamma_cdf(self.day_shape, below)
        if weight.min() <= 0:
            allowed = "a curve that leaves no half-hour of the day out"
            raise InvalidInput("day_shape, day_scale", (self.day_shape, self.day_scale), allowed)
        relative: FloatArray = weight / weight.mean()
        return relative

    def arrivals(self, rng: np.random.Generator, jobs: int) -> FloatArray:
        """When so many jobs arrive: whole seconds from midnight of the first day, in order."""
        shape = self.gap_shape * self.gap_all_day
        passed = np.cumsum(np.exp(draw_gamma_up_to(rng, shape, self.gap_scale, LONGEST_GAP, jobs))) / BUCKET
        ends = np.cumsum(self.day())
        ends[-1] = BUCKETS
        days, rest = np.divmod(passed, BUCKETS)
        bucket = np.searchsorted(ends, rest)
        into = (rest - np.concatenate([[0.0], ends])[bucket]) / np.diff(ends, prepend=0.0)[bucket]
        exact = (days * BUCKETS + bucket + into) * BUCKET
        # The program rounds each step down to whole seconds.
        return np.cumsum(np.floor(np.diff(exact, prepend=0.0)))


BATCH_STREAM: Final = JobStream(
    serial=0.2927,
    powers=0.6686,
    low=1.2,
    middle=2,
    high=0,
    low_share=0.875,
    run_shape1=6.57,
    run_scale1=0.823,
    run_shape2=639.1,
    run_scale2=0.0156,
    run_slope=-0.003,
    run_base=0.6986,
    gap_shape=6.0415,
    gap_scale=0.8531,
    gap_all_day=1.0519,
    day_shape=6.1271,
    day_scale=5.2740,
)
INTERACTIVE_STREAM: Final = JobStream(
    serial=0.1541,
    powers=0.625,
    low=1,
    middle=4,
    high=1.5,
    low_share=0.705,
    run_shape1=3.8351,
    run_scale1=0.6605,
    run_shape2=7.073,
    run_scale2=0.6856,
    run_slope=-0.0118,
    run_base=0.9156,
    gap_shape=6.5510,
    gap_scale=0.6621,
    gap_all_day=0.9797,
    day_shape=8.9186,
    day_scale=3.6680,
)
TYPELESS: Final = JobStream(
    serial=0.244,
    powers=0.576,
    low=0.8,
    middle=2.5,
    high=0,
    low_share=0.86,
    run_shape1=4.2,
    run_scale1=0.94,
    run_shape2=312,
    run_scale2=0.03,
    run_slope=-0.0054,
    run_base=0.78,
    gap_shape=10.2303,
    gap_scale=0.4871,
    gap_all_day=1.0225,
    day_shape=8.1737,
    day_scale=3.9631,
)
"""The published constants: two streams that belong together, or all jobs in one."""


def lublin99(
    jobs: int = 10_000,
    seed: int = 0,
    processors: int = 128,
    *,
    streams: Sequence[JobStream] = (TYPELESS,),
    **extras: Unpack[Extras],
) -> Workload:
    """A workload as in Lublin and Feitelson; the clock is 0 at midnight.

    reading: on a machine other than the published one of 128 processors, the limits of widths move with the logarithm
        of its size.

    Args:
        jobs: 1 or more.
        seed: 0 or more.
        processors: of the machine; no job is wider.
        streams: (`INTERACTIVE_STREAM`, `BATCH_STREAM`) for jobs of two types, merged by time; at the same instant the
            first named comes first.
        extras: see `Extras`.

    Raises:
        InvalidInput: an argument is not allowed.
    """
    check_size(jobs, processors)
    if not streams:
        raise InvalidInput("streams", streams, "one or more")
    rngs = chances(seed)[0].spawn(len(streams))
    release = np.concatenate([stream.arrivals(rng, jobs) for stream, rng in zip(streams, rngs, strict=True)])
    widths = [stream.widths(rng, processors, jobs) for stream, rng in zip(streams, rngs, strict=True)]
    parts = zip(streams, rngs, widths, strict=True)
    runtime = np.concatenate([stream.runtimes(rng, width) for stream, rng, width in parts])
    order = np.argsort(release, kind="stable")[:jobs]
    width = np.concatenate(widths)[order]
    return generated(release[order], width, runtime[order], seed=seed, processors=processors, extras=extras)
