"""Policies compared: a panel of bars for each measure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.instant import SECOND
from headway.pictures.canvas import (
    INK,
    SOFT,
    clock_for,
    entitle,
    figure,
    finish,
    name_lines,
    number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WITH_DUE_DATES: Final = (
    "deadline_miss_rate",
    "deadline_miss_penalty",
    "priority_violation_rate",
    "wait_mean",
    "bounded_slowdown_mean",
)
WITHOUT: Final = ("wait_mean", "response_mean", "bounded_slowdown_mean")
COSTS: Final = ("kills", "work_lost", "migrations")
"""Drawn besides the usual measures if they are not 0."""

RULE: Final = "linear scale from 0"
"""The scale of every panel, as each says."""

_DARK: Final = "Dark bars are the best in their panel."
_BEST: Final = "#2f5f96"
_OTHERS: Final = "#b7c7da"
_NEITHER: Final = "#7f9cbf"

_SPREADS: Final = {
    "wait": "Wait",
    "response": "Response time",
    "bounded_slowdown": "Slowdown",
    "tardiness": "Tardiness",
}
_OF: Final = {"mean": "mean", "p50": "median", "p95": "95th percentile", "p99": "99th percentile", "max": "maximum"}


class Measure(NamedTuple):
    """How a measure is drawn: its name in words, its unit (`s`: a suitable unit of time), and what is better."""

    words: str
    unit: str = ""
    better: str = ""


_LESS: Final = "less"
_SHARE: Final = "%"
MEASURES: Final = {
    **{
        f"{name}_{part}": Measure(f"{words}, {of}", "" if name == "bounded_slowdown" else "s", _LESS)
        for name, words in _SPREADS.items()
        for part, of in _OF.items()
    },
    "deadline_miss_rate": Measure("Due dates missed", _SHARE, _LESS),
    "deadline_miss_penalty": Measure("Penalty of missed due dates", "priority × seconds", _LESS),
    "total_penalty": Measure("Penalty by rate", "rate × seconds", _LESS),
    "priority_violation_rate": Measure("Jobs passed over by lower priorities", _SHARE, _LESS),
    "priority_violation_rate_rounds": Measure("The same, over rounds", _SHARE, _LESS),
    "utilisation": Measure("Utilisation", _SHARE, "more"),
    "work_lost": Measure("Work that had to be redone", "slot-s", _LESS),
    "kills": Measure("Tasks killed", "", _LESS),
    "migrations": Measure("Migrations", "", _LESS),
    "makespan": Measure("Makespan", "s", _LESS),
    "decision_ms_mean": Measure("Time of a round, mean", "ms", _LESS),
    "decision_seconds_total": Measure("Time of all rounds", "s", _LESS),
    "refusals": Measure("Parts of plans refused", "", _LESS),
    "jobs_succeeded": Measure("Jobs that succeeded", "", "more"),
    "jobs_failed": Measure("Jobs that failed", "", _LESS),
    "jobs_unfinished": Measure("Jobs that never ended", "", _LESS),
}
"""The known measures. Other measures are drawn with their name alone, and do not say what is better."""


def comparison(
    metrics: Mapping[str, Mapping[str, float]],
    path: str | Path | None = None,
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw measures of several policies: a panel for each measure, with a bar and its value for each policy.

    Every panel has a linear scale from 0, and says whether less or more is better. The best bars of a panel are dark.

    Args:
        metrics: the result of `summarise`, by policy.
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        names: the measures to draw. Default: the usual ones. If no job has a due date, response times take the place
            of measures of due dates. Kills, work redone and migrations are drawn if there were any.
        title: above the picture: which log, how many slots, what load.
        note: a line below it.

    Raises:
        InvalidInput: a measure is not among the metrics of every policy.
        HeadwayError: there is nothing to compare, matplotlib is not installed, or the file cannot be written.
    """
    if names is None:
        names = _usual(metrics.values())
    if not metrics or not names:
        raise HeadwayError("there is nothing to compare")
    known = [name for name in next(iter(metrics.values())) if all(name in told for told in metrics.values())]
    for name in names:
        if name not in known:
            raise InvalidInput("measure", name, ", ".join(known), hint=did_you_mean(name, known))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    policies = [name_lines(policy) for policy in metrics]
    lines = sum(policy.count("\n") + 1 for policy in policies) + len(policies)
    widest = max(len(line) for policy in policies for line in policy.splitlines())
    drawn, axes = figure(0.6 + 0.085 * widest + 3.2 * columns, 0.5 + rows * (1.15 + 0.17 * lines), rows, columns)
    for place, cell in enumerate(axes.flat):
        if place >= len(names):
            cell.set_visible(False)
            continue
        values = [float(told[names[place]]) for told in metrics.values()]
        _bars(cell, names[place], policies if place % columns == 0 else [""] * len(policies), values)
    entitle(drawn, title, f"{note} {_DARK}" if note else _DARK)
    return finish(drawn, path)


def _usual(told: Collection[Mapping[str, float]]) -> Sequence[str]:
    names = WITH_DUE_DATES if any(one["jobs_due"] for one in told) else WITHOUT
    costs = [name for name in COSTS if any(one[name] for one in told)]
    # Work that had to be redone counts as use, but is not useful.
    return [*names, *costs] if "work_lost" in costs else [*names, "utilisation", *costs]


def _bars(axes: Axes, name: str, policies: Sequence[str], values: Sequence[float]) -> None:
    # The first policy is on top; a value that is not a number has no bar.
    measure = MEASURES.get(name, Measure(name.replace("_", " ").capitalize()))
    factor, unit = _unit(measure.unit, max((abs(value) for value in values if math.isfinite(value)), default=0.0))
    heights = range(len(values), 0, -1)
    lengths = [value / factor if math.isfinite(value) else 0.0 for value in values]
    texts = [number(value / factor) for value in values]
    best = _best(values, texts, measure.better)
    colours = [_NEITHER if not measure.better else _BEST if text == best else _OTHERS for text in texts]
    axes.barh(heights, lengths, height=0.66, color=colours)
    for height, length, text in zip(heights, lengths, texts, strict=True):
        axes.annotate(
            text,
            (max(length, 0.0), height),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
            weight="bold" if text == best else "normal",
        )
    axes.set_yticks(list(heights), policies)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylim(0.4, len(values) + 0.6)
    axes.set_xlim(min(0.0, *lengths) * 1.1, max(0.0, *lengths) * 1.28 or 1.0)
    axes.set_xlabel(f"{unit}, {RULE}" if unit else RULE, fontsize=8, color=SOFT)
    axes.set_title(measure.words, loc="left", fontsize=10, color=INK, pad=17 if measure.better else 6)
    if measure.better:
        axes.annotate(
            f"{measure.better} is better",
            (0, 1),
            (0, 5),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8,
            color=SOFT,
        )


def _unit(unit: str, most: float) -> tuple[float, str]:
    """A divisor so that the largest value has few digits, and the name of the resulting unit."""
    if unit == _SHARE:
        return 0.01, unit
    if unit in ("s", "slot-s"):
        clock = clock_for(round(min(most, 1e12) * SECOND))
        return clock.length / SECOND, unit.replace("s", clock.unit) if unit == "s" else f"slot-{clock.unit}"
    for factor, words in ((1e9, "billions"), (1e6, "millions"), (1e3, "thousands")):
        if most >= 10 * factor or (most >= factor and factor > 1e3):
            return factor, f"{words} of {unit}" if unit else words
    return 1.0, unit


def _best(values: Sequence[float], texts: Sequence[str], better: str) -> str:
    """The text of the best value. Values with the same text count as equally good."""
    told = {value: text for value, text in zip(values, texts, strict=True) if math.isfinite(value)}
    if not told or not better:
        return ""
    return told[min(told) if better == _LESS else max(told)]
