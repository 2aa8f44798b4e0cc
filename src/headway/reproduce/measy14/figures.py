"""The figures of MEASY14: the settings that each needs, and its numbers as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from headway.metrics.batches import Interval
from headway.reproduce.measy14.runs import COST, JOBS, LOADS, LOGS, POLICIES, Measure, Run, Setting, Use
from headway.reproduce.tables import Table, number_text

Runs = Mapping[Setting, Run]

MEASURES: Final[Mapping[Measure, str]] = {"response": "mean response time (s)", "slowdown": "mean bounded slowdown"}

COSTS: Final = (20.0, 120.0, 240.0, 480.0, 720.0, 900.0, 1200.0, 1500.0, 1800.0)
"""Costs in figures 13 and 14, in seconds. reading: the text names 480, 900 and 1500 s; these surround them."""

COST_LOADS: Final = (0.5, 0.7, 0.9)
"""Loads of figures 13 and 14. reading: the text says for which costs migration "always" pays. So the loads must include
some where it is seldom needed, some where it is often needed, and some between. The paper's own loads are lost with the
picture."""

LOG_LOADS: Final = (None, 0.9)
"""Loads of the logs: as they are (0.6 to 0.85), then the highest load of the models."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the paper, or of the logs, which the paper does not use.

    Attributes:
        name: its name in commands.
        title: what it shows.
        sources, loads, policies, use: what is run, in all combinations.
        costs: costs of a migration, for MEASY.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    policies: tuple[str, ...] = POLICIES
    loads: tuple[float | None, ...] = LOADS
    use: Use = "told"
    costs: tuple[float, ...] = (COST,)

    @property
    def label(self) -> str:
        """The name that people read."""
        return f"Figure {self.name.removeprefix('fig')}" if self.name.startswith("fig") else "Real logs"

    def settings(self) -> Iterator[Setting]:
        """The runs that it needs."""
        for source, load, policy in product(self.sources, self.loads, self.policies):
            for cost in self.costs if policy == "measy" else (COST,):
                yield Setting(source, load, policy, self.use, cost)

    def points(self, runs: Runs, policy: str, cost: float = COST) -> Iterator[tuple[Setting, Run]]:
        """The runs of one policy, by source and load."""
        for source, load in product(self.sources, self.loads):
            setting = Setting(source, load, policy, self.use, cost)
            yield setting, runs[setting]


def _figures() -> Iterator[Figure]:
    without_reasy = ("easy", "keasy", "measy")
    models = tuple(JOBS)
    for number, model in enumerate(models, 6):
        yield Figure(f"fig{number}", f"{model}, against load", (model,))
    yield Figure("fig8", "migrations", models, ("measy",))
    for number, model in enumerate(models, 9):
        yield Figure(f"fig{number}", f"{model}, CPU use not told", (model,), without_reasy, use="untold")
    for number, model in enumerate(models, 11):
        yield Figure(f"fig{number}", f"{model}, CPU use 100 %", (model,), without_reasy, use="full")
    for number, model in enumerate(models, 13):
        title = f"{model}, against the cost of a migration"
        yield Figure(f"fig{number}", title, (model,), without_reasy, COST_LOADS, costs=COSTS)
    yield Figure("logs", "real estimates, CPU use as logged", tuple(LOGS), loads=LOG_LOADS)


FIGURES: Final[Mapping[str, Figure]] = {figure.name: figure for figure in _figures()}
"""Figures 6 to 14, and the logs, by name."""


STAR: Final = "* Neighbouring batches are alike: the interval is likely to be too narrow."
"""The meaning of a star in a table."""


def tables(figure: Figure, runs: Runs) -> Iterator[Table]:
    """The numbers of a figure, in a table for each measure: means ± half of their 95 % confidence interval."""
    if figure.name == "fig8":
        yield _migrations(figure, runs)
        return
    for measure, words in MEASURES.items():
        title = f"{figure.label}: {words}, {figure.title}"
        if len(figure.costs) > 1:
            yield _costs(figure, runs, measure, title)
        else:
            yield _loads(figure, runs, measure, title)


def _loads(figure: Figure, runs: Runs, measure: Measure, title: str) -> Table:
    rows = []
    for source, load in product(figure.sources, figure.loads):
        here = {policy: runs[Setting(source, load, policy, figure.use)] for policy in figure.policies}
        name = f"{source}, {load_text(load)}" if len(figure.sources) > 1 else load_text(load)
        means = (mean_text(run.mean(measure)) for run in here.values())
        rows.append((name, *means, share_text(here["measy"].gain(here["easy"], measure))))
    return Table(title, ("load", *map(str.upper, figure.policies), "MEASY to EASY"), rows)


def _costs(figure: Figure, runs: Runs, measure: Measure, title: str) -> Table:
    (source,) = figure.sources
    rows = []
    for policy in ("easy", "keasy"):
        means = (mean_text(runs[Setting(source, load, policy)].mean(measure)) for load in figure.loads)
        rows.append((policy.upper(), *means))
    for cost in figure.costs:
        cells = []
        for load in figure.loads:
            run, killing = runs[Setting(source, load, "measy", cost=cost)], runs[Setting(source, load, "keasy")]
            cells.append(f"{number_text(run.mean(measure).mean)} ({share_text(run.gain(killing, measure))})")
        rows.append((f"MEASY, {cost:g} s", *cells))
    columns = ("cost", *(f"load {load_text(load)}" for load in figure.loads))
    return Table(f"{title} (in brackets: less than KEASY by)", columns, rows)


def _migrations(figure: Figure, runs: Runs) -> Table:
    rows = [
        (load_text(load), *(f"{per_job(runs[Setting(source, load, 'measy')]):.3f}" for source in figure.sources))
        for load in figure.loads
    ]
    return Table(f"{figure.label}: migrations a job under MEASY", ("load", *figure.sources), rows)


def per_job(run: Run) -> float:
    """Migrations per job."""
    return run.migrations / run.jobs


def load_text(load: float | None) -> str:
    """A load as it is written in tables."""
    return "as logged" if load is None else f"{load:g}"


def mean_text(found: Interval) -> str:
    """A mean ± half of its interval, with a star if that is probably too narrow."""
    return f"{number_text(found.mean)} ± {number_text(found.half_width)}{'*' * found.is_correlated}"


def share_text(found: Interval) -> str:
    """A gain in percent ± half of its interval, with a star if that is probably too narrow."""
    return f"{found.mean:+.1%} ± {found.half_width:.1%}{'*' * found.is_correlated}"
