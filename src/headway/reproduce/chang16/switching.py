"""What it costs to move the border between batch jobs and services, beyond the paper: instances that warm up, and tasks
that are redone.

The third experiment with services that need 60 % of the units, where a new instance takes some time until it answers.
Batch jobs give up their units when tasks end, or at once. `dp` knows of neither cost; `ahead` does, unless it is told
not to (`switching=false`). All have the same order of batch jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from headway import pictures
from headway.metrics import summarise
from headway.model.workload import FloatArray, Workload
from headway.pictures import Mean
from headway.reproduce.chang16.experiment import Asked, Experiment
from headway.reproduce.chang16.mixed import MEASURES, Requests, offered, open_logs, services
from headway.reproduce.chang16.samples import cluster, draw
from headway.reproduce.experiment import Progress, Result, draws, range_of, ratio
from headway.reproduce.processes import done
from headway.reproduce.tables import Table
from headway.sim.experiment import run

LOAD: Final = 0.6
"""The share of the units that services need."""

WARM_UPS: Final = (0.0, 5.0, 20.0)
"""Seconds until a new instance answers; the last is a window."""

TOPS: Final[dict[str, str]] = {
    "dp": "services:top=dp,model=fluid,batch=atc",
    "ahead, costs not counted": "services:top=ahead,switching=false",
    "ahead": "services:top=ahead",
}

BORDERS: Final[dict[str, str]] = {"when tasks end": "", "at once": ",kill=true"}
"""When batch jobs give up their units."""

Setting = tuple[str, float]
"""Of `BORDERS`, and of `WARM_UPS`."""


class _Work(NamedTuple):
    """One sample in one setting. One process runs it under all methods."""

    jobs: Workload
    services: tuple[Requests, ...]
    border: str
    warm_up: float


class Runs:
    """All runs.

    Args:
        penalties: by border, warm-up and method the penalties of each sample (`MEASURES`), shape (samples, 2).
    """

    def __init__(self, penalties: Mapping[tuple[str, float, str], FloatArray]) -> None:
        self.penalties = penalties
        self.samples = len(next(iter(penalties.values())))

    def relative(self, setting: Setting, top: str, to: str) -> tuple[float, FloatArray]:
        """The mean total penalty of a method divided by that of another one: of the samples, and of draws of them."""
        first = np.vstack((np.arange(self.samples), draws(self.samples)))
        ours, others = (self.penalties[*setting, one].sum(axis=1)[first].mean(axis=1) for one in (top, to))
        found = ratio(ours, others)
        return float(found[0]), found[1:]


def runs(asked: Asked) -> int:
    """How many simulations it takes."""
    return len(asked.seeds) * len(BORDERS) * len(WARM_UPS) * len(TOPS)


def perform(asked: Asked, progress: Progress) -> Result:
    """Run every method on every sample, with each warm-up and each border."""
    logs = open_logs()
    settings = list(product(BORDERS, WARM_UPS, asked.seeds))
    samples = {seed: (draw(asked.log, seed, "random", "logged"), services(logs, seed, LOAD)) for seed in asked.seeds}
    works = [_Work(*samples[seed], border, warm_up) for border, warm_up, seed in settings]
    found: dict[int, list[tuple[float, ...]]] = {}
    for place, measured in done(_measured, works, asked.processes):
        found[place] = measured
        progress(len(found) * len(TOPS))
    rows = [
        (seed, border, warm_up, top, *measured)
        for place, (border, warm_up, seed) in enumerate(settings)
        for top, measured in zip(TOPS, found[place], strict=True)
    ]
    return result(rows, logs.name)


def result(rows: Sequence[tuple[object, ...]], name: str) -> Result:
    """What the runs say."""
    ran = Runs(
        {
            key: np.array([row[4:] for row in rows if row[1:4] == key], dtype=np.float64)
            for key in product(BORDERS, WARM_UPS, TOPS)
        }
    )
    return Result(
        about=(
            f"The third experiment with services that need {LOAD:.0%} of the units, {ran.samples} samples; requests: "
            f"{name}. A new instance takes the warm-up until it answers. Penalties are means over the samples, divided "
            "by those of another method; in brackets is the range of 90 % if the samples are drawn again."
        ),
        tables=tuple(_table(ran, border) for border in BORDERS),
        statements=(),
        columns=("seed", "border", "warm_up", "method", *MEASURES),
        rows=rows,
        pictures={"switching.png": partial(_draw, ran)},
    )


def _measured(work: _Work) -> list[tuple[float, ...]]:
    loads = offered(work.services, work.warm_up)
    policies = [policy + BORDERS[work.border] for policy in TOPS.values()]
    metrics = [summarise(run(work.jobs, cluster(), policy, services=loads)) for policy in policies]
    return [tuple(float(each[name]) for name in MEASURES) for each in metrics]


def _table(ran: Runs, border: str) -> Table:
    plain, full = "ahead, costs not counted", "ahead"
    columns = ("warm-up", "dp", f"{plain}, to dp", f"{full}, to dp", f"{full}, to {plain}")
    rows = []
    for warm_up in WARM_UPS:
        setting = (border, warm_up)
        mean = float(ran.penalties[*setting, "dp"].sum(axis=1).mean())
        pairs = ((plain, "dp"), (full, "dp"), (full, plain))
        rows.append((f"{warm_up:g} s", f"{mean:,.0f}", *(_cell(*ran.relative(setting, *pair)) for pair in pairs)))
    return Table(f"Total penalty; batch jobs give up units {border}", columns, rows)


def _cell(value: float, again: FloatArray) -> str:
    low, high = range_of(again)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _draw(ran: Runs, path: Path) -> None:
    def mean(top: str, setting: Setting) -> Mean:
        value, again = ran.relative(setting, top, "dp")
        return Mean(value, float(again.std()))

    pictures.bars(
        {
            f"{warm_up:g} s, {border}": {top: mean(top, (border, warm_up)) for top in TOPS}
            for border, warm_up in product(BORDERS, WARM_UPS)
        },
        path,
        measure="penalty (dp: 1)",
        spread="standard error of the ratio, by drawing the samples again",
        better="less",
        title=f"Costs of moving the border, by warm-up and by when batch jobs give up units; {ran.samples} samples",
    )


EXPERIMENT: Final = Experiment("switching", "What it costs to move the border (beyond the paper)", runs, perform)
