"""Kim12's job profiles: which parameters matter, estimates from similar past runs, and due dates that can be kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Final, NamedTuple

from headway import pictures
from headway.history.bounds import MovingBound
from headway.history.factors import Factors
from headway.pictures import Mean
from headway.reproduce.experiment import Progress, Result
from headway.reproduce.kim12.eairs import MATTER, RUNS, Run, draw
from headway.reproduce.tables import Table

FIRST: Final = 100
"""So many runs are history before the first is estimated."""

WORKED_OUT_EVERY: Final = 25
"""What matters is worked out again after so many runs."""

SURE: Final = 0.9
"""Due dates are advised that are kept with this probability."""

WAYS: Final = ("similar runs", "last two runs", "median of all runs")
"""How run times are estimated."""


class Estimated(NamedTuple):
    """What one sample gave.

    Attributes:
        seed: of the sample.
        influence: of each parameter at the end.
        found: how many of the parameters that matter are among as many strongest ones.
        errors: median relative error of each of `WAYS`.
        kept: which share of the advised due dates was kept, had each run begun at once.
        slack: by how much due dates were later than the ends, relative to run times; the median.
    """

    seed: int
    influence: dict[str, float]
    found: int
    errors: tuple[float, ...]
    kept: float
    slack: float


def estimated(seed: int) -> Estimated:
    """One sample, run after run in order of time."""
    runs = draw(seed)
    errors: list[list[float]] = [[] for _ in WAYS]
    kept, slack, due = [], [], MovingBound(SURE)
    factors = _factors(runs[:FIRST])
    for number in range(FIRST, len(runs)):
        run = runs[number]
        if not number % WORKED_OUT_EVERY:
            factors = _factors(runs[:number])
        sample = factors.sample(run.parameters)
        told = (
            sample.quantile(0.5),
            fmean(one.took for one in runs[number - 2 : number]),
            median(one.took for one in runs[:number]),
        )
        for way, value in zip(errors, told, strict=True):
            way.append(abs(value - run.took) / run.took)
        date = due.bound(sample)
        due.learn(date, run.took)
        kept.append(run.took <= date)
        slack.append(date / run.took - 1)
    strongest = list(factors.influence)[: len(MATTER)]
    return Estimated(
        seed,
        dict.fromkeys(runs[0].parameters, 0.0) | factors.influence,
        len(set(strongest) & set(MATTER)),
        tuple(median(way) for way in errors),
        fmean(kept),
        median(slack),
    )


def _factors(runs: Sequence[Run]) -> Factors:
    return Factors([one.parameters for one in runs], [one.took for one in runs])


def perform(seeds: range, progress: Progress) -> Result:
    """All samples."""
    found = []
    for seed in seeds:
        found.append(estimated(seed))
        progress(len(found))
    names = sorted(found[0].influence, key=lambda name: -fmean(one.influence[name] for one in found))
    influences = {name: [one.influence[name] for one in found] for name in names}
    about = (
        f"{len(found)} samples of {RUNS} runs of a made-up flow solver, of which the first {FIRST} are history. Of its "
        f"{len(names)} parameters these matter: {', '.join(MATTER)}. The trace of the paper is not public, and it "
        "prints no numbers."
    )
    tables = (
        Table(
            "How much each parameter is found to matter",
            ("parameter", "matters", "influence", "least", "most"),
            [
                (name, "yes" if name in MATTER else "no", *(f"{value:.1%}" for value in (fmean(of), min(of), max(of))))
                for name, of in influences.items()
            ],
        ),
        Table(
            "Median relative error of estimates",
            ("estimate from", "mean", "least", "most"),
            [
                (way, *(f"{value:.1%}" for value in (fmean(of), min(of), max(of))))
                for way, of in zip(WAYS, zip(*(one.errors for one in found), strict=True), strict=True)
            ],
        ),
        Table(
            f"Due dates advised to be kept with {SURE:.0%}",
            ("", "mean", "least", "most"),
            [
                ("kept", *(f"{value:.1%}" for value in _three([one.kept for one in found]))),
                (
                    "later than the end by, of the run time",
                    *(f"{value:.0%}" for value in _three([one.slack for one in found])),
                ),
            ],
        ),
    )
    columns = ("seed", "found", *(f"error, {way}" for way in WAYS), "kept", "slack", *names)
    rows = [
        (one.seed, one.found, *one.errors, one.kept, one.slack, *(one.influence[name] for name in names))
        for one in found
    ]
    return Result(about, tables, (), columns, rows, {"influence.png": partial(_draw, influences)})


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    return fmean(values), min(values), max(values)


def _draw(influences: dict[str, list[float]], path: Path) -> None:
    told = {name: Mean(fmean(of), stdev(of) if len(of) > 1 else 0.0) for name, of in influences.items()}
    pictures.bars({"": told}, path, measure="influence on the run time", spread="standard deviation")
