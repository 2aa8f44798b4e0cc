"""The figures as pictures."""

from __future__ import annotations

from pathlib import Path

from headway import pictures
from headway.metrics.batches import Interval
from headway.pictures import Mean
from headway.reproduce.measy14.figures import MEASURES, Figure, Runs, load_text, per_job
from headway.reproduce.measy14.runs import Measure, Setting

Lines = dict[str, dict[float, Mean]]


def draw(figure: Figure, runs: Runs, path: Path) -> None:
    """Draw a figure: a field for each measure (for the logs, each log), a line with its interval for each policy."""
    title = f"{figure.label}: {figure.title}"
    if figure.name == "fig8":
        lines = {
            source: {
                setting.load or 0.0: Mean(per_job(run), 0.0)
                for setting, run in figure.points(runs, "measy")
                if setting.source == source
            }
            for source in figure.sources
        }
        pictures.lines({title: lines}, path, over="offered load", measure="migrations a job under MEASY")
    elif figure.name == "logs":
        panels = {
            f"{source}, {load_text(load)}": {
                policy.upper(): _mean(runs[Setting(source, load, policy)].mean("slowdown"))
                for policy in figure.policies
            }
            for source in figure.sources
            for load in figure.loads
        }
        pictures.bars(panels, path, measure=MEASURES["slowdown"], log=True, title=title)
    else:
        over, lines_of = ("offered load", _by_load) if len(figure.costs) == 1 else ("cost of a migration (s)", _by_cost)
        fields = {words: lines_of(figure, runs, measure) for measure, words in MEASURES.items()}
        pictures.lines(fields, path, over=over, measure="", log=True, title=title)


def _by_load(figure: Figure, runs: Runs, measure: Measure) -> Lines:
    return {
        policy.upper(): {setting.load or 0.0: _mean(run.mean(measure)) for setting, run in figure.points(runs, policy)}
        for policy in figure.policies
    }


def _by_cost(figure: Figure, runs: Runs, measure: Measure) -> Lines:
    """MEASY at each load, and KEASY, to which the cost is no matter."""
    (source,) = figure.sources
    return {
        f"{policy.upper()}, load {load_text(load)}": {
            cost: _mean(
                runs[Setting(source, load, policy, cost=cost if policy == "measy" else figure.costs[0])].mean(measure)
            )
            for cost in figure.costs
        }
        for load in figure.loads
        for policy in ("measy", "keasy")
    }


def _mean(found: Interval) -> Mean:
    return Mean(found.mean, found.half_width)
