"""Runs policies on samples and loads, all on exactly the same jobs, in as many processes as there are cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from headway import policy_files
from headway.metrics import summarise
from headway.metrics.collect import Metrics
from headway.model.instant import to_seconds
from headway.model.job import ESTIMATE_DEFAULT
from headway.model.workload import FloatArray, Workload
from headway.reproduce.processes import done
from headway.reproduce.samples import WORKERS, Estimates, Log, cluster, draw
from headway.sim.experiment import run
from headway.traces.transforms import with_load

SPARE_PRIORITY: Final = "deadline:spare=priority,foresight=false"
SPARE_DUE: Final = "deadline:spare=due,foresight=false"
"""`deadline` as in the thesis, with its two rules for leftover slots."""

POLICIES: Final = ("priority", "proportion", "workload", SPARE_PRIORITY, SPARE_DUE, "edf")
"""The policies of the thesis, with `deadline` under both rules for leftover slots, and EDF."""

BEYOND: Final = "tempo"
"""What the sweep compares with them: Headway's own policy for both measures at once."""

LOADS: Final = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5)
"""Loads of the sweep: the work of all jobs divided by the capacity from the first release to the last."""

SAMPLES: Final = 50


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one sample under one policy.

    Attributes:
        policy: the text that named it.
        load: the load to which the gaps were scaled; None: the gaps are as the recipe leaves them.
        seed: of the sample, and of the speeds.
        heterogeneous: whether the speeds of the machines differ.
        metrics: as of `headway.metrics.summarise`.
    """

    policy: str
    load: float | None
    seed: int
    heterogeneous: bool
    metrics: Metrics


class Spread(NamedTuple):
    """A measure over samples: mean, standard deviation (NaN for a single sample), and number of samples."""

    mean: float
    deviation: float
    samples: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.samples)


Progress = Callable[[int, int], None]
"""Called with the number of runs that have ended, and of all runs."""


class _Work(NamedTuple):
    """One sample at one load on one cluster. One process runs it under all policies."""

    jobs: Workload
    policies: tuple[str, ...]
    load: float | None
    seed: int
    heterogeneous: bool
    estimate_default: float
    period: float | None


def sweep(
    log: Log,
    policies: Sequence[str] = POLICIES,
    loads: Sequence[float | None] = LOADS,
    samples: int | Iterable[int] = SAMPLES,
    *,
    heterogeneous: Sequence[bool] = (False, True),
    estimates: Estimates = "known",
    estimate_default: float = to_seconds(ESTIMATE_DEFAULT),  # a constant
    period: float | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Run every policy on every sample at every load, on 20 workers that are alike or differ in speed.

    Each sample is drawn once. All policies get exactly the same jobs, batches and speeds.

    Args:
        loads: None stands for the gaps that the recipe gives.
        samples: how many (seeds 0, 1, ...), or their seeds.
        heterogeneous: which clusters.
        estimates, estimate_default, period: as of `draw` and `headway.sim.experiment.run`.
        processes: how many at once; default one for each core. With one, only this process works.
        progress: called after each sample.

    Returns:
        A row for each run, in order of cluster, load, sample, policy.

    Raises:
        InvalidInput: a policy is unknown, or a load is not above 0.
    """
    for text in policies:
        policy_files.find(text)
    seeds = range(samples) if isinstance(samples, int) else tuple(samples)
    drawn = {seed: draw(log, seed, estimates=estimates) for seed in seeds}
    works = [
        _Work(
            drawn[seed] if load is None else with_load(drawn[seed], load, WORKERS),
            tuple(policies),
            load,
            seed,
            differ,
            estimate_default,
            period,
        )
        for differ in heterogeneous
        for load in loads
        for seed in seeds
    ]
    found: dict[int, list[Row]] = {}
    for place, rows in done(_rows, works, processes):
        found[place] = rows
        if progress is not None:
            progress(len(found) * len(policies), len(works) * len(policies))
    return [row for place in range(len(works)) for row in found[place]]


def _rows(work: _Work) -> list[Row]:
    nodes = cluster(work.seed if work.heterogeneous else None)
    schedules = (
        (policy, run(work.jobs, nodes, policy, estimate_default=work.estimate_default, period=work.period))
        for policy in work.policies
    )
    return [
        Row(policy, work.load, work.seed, work.heterogeneous, summarise(schedule)) for policy, schedule in schedules
    ]


def column(rows: Iterable[Row], measure: str, policy: str, load: float | None, heterogeneous: bool) -> FloatArray:
    """A measure of every sample under one policy at one load on one cluster, in order of seeds."""
    mine = sorted(
        (row.seed, row.metrics[measure])
        for row in rows
        if (row.policy, row.load, row.heterogeneous) == (policy, load, heterogeneous)
    )
    return np.array([value for _, value in mine], dtype=np.float64)


def spread(values: FloatArray) -> Spread:
    """Mean and spread of a measure over samples."""
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan, len(values))
