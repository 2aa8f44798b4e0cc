"""The figures as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headway import pictures
from headway.metrics.batches import Interval
from headway.pictures import Mean
from headway.reproduce.measy14.figures import MEASURES, Figure, Runs, load_text, per_job
from headway.reproduce.measy14.runs import LOGS, Measure, Setting
from headway.workloads.measy14 import PROCESSORS

Lines = dict[str, dict[float, Mean]]

SPREAD: Final = "95 % confidence interval, from batch means"


def draw(figure: Figure, runs: Runs, path: Path) -> None:
    """Draw a figure. It has a panel for each measure, with a line and its interval for each policy (or each load).

    The picture of the logs has a panel for each log and load. Each policy has a bar there, as a share of EASY's value.
    """
    title = _title(figure, runs)
    if figure.name == "fig8":
        _migrations(figure, runs, path, title)
    elif figure.name == "logs":
        _logs(figure, runs, path, title)
    elif len(figure.costs) > 1:
        panels = {words: _by_cost(figure, runs, measure) for measure, words in MEASURES.items()}
        pictures.lines(
            panels,
            path,
            over="cost of a migration (s)",
            measure="less than under KEASY by (%)",
            spread=SPREAD,
            better="more",
            level=(0, "as under KEASY"),
            title=title,
        )
    else:
        panels = {words: _by_load(figure, runs, measure) for measure, words in MEASURES.items()}
        pictures.lines(
            panels, path, over="offered load", measure="", spread=SPREAD, better="less", log=True, title=title
        )


def _title(figure: Figure, runs: Runs) -> str:
    """The title: what is shown, the number of jobs and slots."""
    if figure.name == "logs":
        return f"{figure.label}: {figure.title}"
    jobs = {setting.source: f"{runs[setting].jobs:,} jobs" for setting in figure.settings()}
    told = next(iter(jobs.values())) if len(jobs) == 1 else " and ".join(f"{jobs[name]} of {name}" for name in jobs)
    return f"{figure.label} of MEASY14: {figure.title}; {told} on {PROCESSORS} slots"


def _by_load(figure: Figure, runs: Runs, measure: Measure) -> Lines:
    return {
        policy.upper(): {setting.load or 0.0: _mean(run.mean(measure)) for setting, run in figure.points(runs, policy)}
        for policy in figure.policies
    }


def _by_cost(figure: Figure, runs: Runs, measure: Measure) -> Lines:
    (source,) = figure.sources
    killing = {load: runs[Setting(source, load, "keasy")] for load in figure.loads}
    return {
        f"MEASY, load {load_text(load)}": {
            cost: _mean(runs[Setting(source, load, "measy", cost=cost)].gain(killing[load], measure).times(100))
            for cost in figure.costs
        }
        for load in figure.loads
    }


def _migrations(figure: Figure, runs: Runs, path: Path, title: str) -> None:
    lines = {
        source: {load or 0.0: Mean(per_job(runs[Setting(source, load, "measy")]), 0.0) for load in figure.loads}
        for source in figure.sources
    }
    measure = "migrations per job"
    pictures.lines({"MEASY": lines}, path, over="offered load", measure=measure, better="less", title=title)


def _logs(figure: Figure, runs: Runs, path: Path, title: str) -> None:
    def ratio(source: str, load: float | None, policy: str) -> Mean:
        gain = runs[Setting(source, load, policy)].gain(runs[Setting(source, load, "easy")], "slowdown")
        return Mean(1 - gain.mean, gain.half_width)

    panels = {
        f"{source}, {LOGS[source][1]:,} slots, load {load_text(load)}": {
            policy.upper(): ratio(source, load, policy) for policy in figure.policies
        }
        for load in figure.loads
        for source in figure.sources
    }
    measure = f"{MEASURES['slowdown']} (under EASY: 1)"
    pictures.bars(panels, path, measure=measure, spread=SPREAD, better="less", title=title)


def _mean(found: Interval) -> Mean:
    return Mean(found.mean, found.half_width)
