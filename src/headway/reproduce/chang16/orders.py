"""Chang16's second experiment, figures 6 and 7: what late jobs cost under several orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple, get_args

import numpy as np

from headway import pictures
from headway.metrics import summarise
from headway.model.workload import FloatArray, Workload
from headway.pictures import Mean
from headway.reproduce.chang16.experiment import Asked, Experiment
from headway.reproduce.chang16.samples import ARRIVALS, JOBS, Arrival, Rates, cluster, draw
from headway.reproduce.experiment import Progress, Result, Statement, draws, range_of, ratio
from headway.reproduce.processes import done
from headway.reproduce.tables import Table
from headway.sim.experiment import run

POLICIES: Final = ("edf", "greedy", "lst", "lstr", "hprf", "wspt", "atc", "tempo")
"""Those of the paper, the first five; then orders by rate and work, and Headway's own default."""

RATES: Final[tuple[Rates, ...]] = get_args(Rates)
MEASURES: Final = ("total_penalty", "deadline_miss_rate", "makespan")
NEAR: Final = 0.1
"""Ten percentage points: an improvement this near to the published one counts as the same, as for MEASY14."""

FIGURES: Final[dict[Rates, tuple[str, str, float]]] = {
    "equal": ("fig6", "edf", 0.6667),
    "random": ("fig7", "hprf", 0.5),
}
"""The figure of each kind of rates, the policy that `greedy` is compared with there, and by how much it is better."""

Setting = tuple[Rates, Arrival]


class _Work(NamedTuple):
    """One sample. One process runs it under all policies."""

    jobs: Workload
    policies: tuple[str, ...]


class Runs:
    """All runs.

    Args:
        penalties: the total penalty of each sample, shape (samples,), by setting and policy.
    """

    def __init__(self, penalties: Mapping[tuple[Rates, Arrival, str], FloatArray]) -> None:
        self.penalties = penalties
        self.policies = tuple(dict.fromkeys(policy for _, _, policy in penalties))

    def relative(self, setting: Setting, policy: str, to: str) -> tuple[float, FloatArray]:
        """The mean penalty under a policy divided by that under another one: of the samples, and of draws of them."""
        ours, others = self.penalties[*setting, policy], self.penalties[*setting, to]
        again = draws(len(ours))
        first = np.vstack((np.arange(len(ours)), again))
        found = ratio(ours[first].mean(axis=1), others[first].mean(axis=1))
        return float(found[0]), found[1:]


def runs(asked: Asked) -> int:
    """How many simulations it takes."""
    return len(asked.seeds) * len(RATES) * len(ARRIVALS) * len(_policies(asked))


def perform(asked: Asked, progress: Progress) -> Result:
    """Run every policy on every sample, with equal and random rates, submitted as logged and all at the start."""
    policies = _policies(asked)
    settings = [(seed, rates, arrival) for rates, arrival in product(RATES, ARRIVALS) for seed in asked.seeds]
    works = [_Work(draw(asked.log, *setting), policies) for setting in settings]
    found: dict[int, list[tuple[float, ...]]] = {}
    for place, measured in done(_measured, works, asked.processes):
        found[place] = measured
        progress(len(found) * len(policies))
    rows = [
        (*setting, policy, *measured)
        for place, setting in enumerate(settings)
        for policy, measured in zip(policies, found[place], strict=True)
    ]
    penalties = {
        (rates, arrival, policy): np.array([row[4] for row in rows if row[1:4] == (rates, arrival, policy)])
        for rates, arrival, policy in product(RATES, ARRIVALS, policies)
    }
    return result(Runs(penalties), rows)


def result(ran: Runs, rows: Sequence[Sequence[object]] = ()) -> Result:
    """What the runs say."""
    samples = len(next(iter(ran.penalties.values())))
    return Result(
        about=(
            f"{JOBS} jobs on 64 units, {samples} samples. Penalties are means over the samples, divided by those of "
            "another policy; in brackets is the range of 90 % if the samples are drawn again."
        ),
        tables=tuple(_table(ran, to, rates) for to, rates in (("edf", RATES), ("hprf", ("random",)))),
        statements=tuple(_statement(ran, rates, arrival) for rates, arrival in product(RATES, ARRIVALS)),
        columns=("seed", "rates", "arrival", "policy", *MEASURES),
        rows=rows,
        pictures={f"{FIGURES[rates][0]}.png": partial(_draw, ran, rates) for rates in RATES},
    )


def _policies(asked: Asked) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*POLICIES, *asked.added)))


def _measured(work: _Work) -> list[tuple[float, ...]]:
    metrics = [summarise(run(work.jobs, cluster(), policy)) for policy in work.policies]
    return [tuple(float(each[name]) for name in MEASURES) for each in metrics]


def _table(ran: Runs, to: str, kinds: Sequence[Rates]) -> Table:
    settings = list(product(kinds, ARRIVALS))
    columns = ("policy", *(f"{rates}, {ARRIVALS[arrival]}" for rates, arrival in settings))
    rows = [(policy, *(_cell(*ran.relative(setting, policy, to)) for setting in settings)) for policy in ran.policies]
    return Table(f"Total penalty relative to {to}, by rates and by when jobs come", columns, rows)


def _cell(value: float, again: FloatArray) -> str:
    low, high = range_of(again)
    return f"{value:.3f} ({low:.2f} to {high:.2f})"


def _statement(ran: Runs, rates: Rates, arrival: Arrival) -> Statement:
    figure, other, published = FIGURES[rates]
    value, again = ran.relative((rates, arrival), "greedy", other)
    low, high = range_of(1 - again)
    words = f"{rates} rates, jobs {ARRIVALS[arrival]}: greedy is below {other} by (figure {figure[-1]})"
    return Statement(words, published, 1 - value, low, high, NEAR, neutral=0.0)


def _draw(ran: Runs, rates: Rates, path: Path) -> None:
    figure, other, published = FIGURES[rates]
    samples = len(next(iter(ran.penalties.values())))

    def mean(arrival: Arrival, policy: str) -> Mean:
        value, again = ran.relative((rates, arrival), policy, other)
        return Mean(value, float(again.std()))

    panels = {
        f"jobs {words}": {policy: mean(arrival, policy) for policy in ran.policies}
        | {"greedy, published": Mean(1 - published, 0)}
        for arrival, words in ARRIVALS.items()
    }
    pictures.bars(
        panels,
        path,
        measure=f"total penalty ({other}: 1)",
        spread="standard error of the ratio, by drawing the samples again",
        better="less",
        title=f"Figure {figure[-1]} of Chang16: {rates} penalty rates; {samples} samples of {JOBS} jobs on 64 units",
    )


EXPERIMENT: Final = Experiment("orders", "What late jobs cost under several orders (figures 6 and 7)", runs, perform)
