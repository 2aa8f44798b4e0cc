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
    entitle,
    figure,
    finish,
    name_lines,
    number,
    time_unit_for,
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
    "makespan",
)
WITHOUT: Final = ("wait_mean", "response_mean", "bounded_slowdown_mean", "makespan")
COSTS: Final = ("kills", "work_lost", "migrations")
"""Drawn besides the usual measures if they are not 0."""

RULE: Final = "linear scale from 0"
"""The scale of every panel, as each says."""

_DARK: Final = "Dark bars are the best in their panel."
_PARTIAL: Final = "Hatched: some jobs did not end well. Means leave them out, so hatched bars are never the best."
_ALIKE: Final = "The same under every policy, so not drawn"
_BEST: Final = "#2f5f96"
_OTHERS: Final = "#b7c7da"
_NEITHER: Final = "#7f9cbf"
_HATCH: Final = "////"

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
    "jobs_unfinished": Measure("Jobs that did not end", "", _LESS),
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
    If jobs failed or did not end under a policy, this is said below its name. Its bars are hatched and never the best,
    because most means leave such jobs out.

    Args:
        metrics: the result of `summarise`, by policy.
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        names: the measures to draw. Default: the usual ones. If no job has a due date, response times take the place
            of measures of due dates. Kills, work redone and migrations are drawn if there were any. Usual measures
            that are the same under all policies are not drawn, but named in a line below the picture.
        title: above the picture: which log, how many slots, what load.
        note: a line below it.

    Raises:
        InvalidInput: a measure is not among the metrics of every policy.
        HeadwayError: there is nothing to compare, matplotlib is not installed, or the file cannot be written.
    """
    alike: Sequence[str] = ()
    if names is None:
        names, alike = _usual(metrics.values())
    if not metrics or not names:
        raise HeadwayError("there is nothing to compare")
    known = [name for name in next(iter(metrics.values())) if all(name in told for told in metrics.values())]
    for name in names:
        if name not in known:
            raise InvalidInput("measure", name, ", ".join(known), hint=did_you_mean(name, known))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    partial = [_partial(told) for told in metrics.values()]
    policies = [
        name_lines(policy) + (f"\n({remark})" if remark else "")
        for policy, remark in zip(metrics, partial, strict=True)
    ]
    lines = sum(policy.count("\n") + 1 for policy in policies) + len(policies)
    widest = max(len(line) for policy in policies for line in policy.splitlines())
    drawn, axes = figure(0.6 + 0.085 * widest + 3.2 * columns, 0.5 + rows * (1.15 + 0.17 * lines), rows, columns)
    for place, cell in enumerate(axes.flat):
        if place >= len(names):
            cell.set_visible(False)
            continue
        values = [float(told[names[place]]) for told in metrics.values()]
        labels = policies if place % columns == 0 else [""] * len(policies)
        _bars(cell, names[place], labels, values, [not remark for remark in partial])
    first = next(iter(metrics.values()))
    left_out = f"{_ALIKE}: {'; '.join(_told(name, first[name]) for name in alike)}." if alike else ""
    notes = (note, _DARK, _PARTIAL if any(partial) else "", left_out)
    entitle(drawn, title, " ".join(filter(None, notes)))
    return finish(drawn, path)


def _usual(told: Collection[Mapping[str, float]]) -> tuple[Sequence[str], Sequence[str]]:
    """The measures to draw by default, and those that are left out because they are the same under all policies."""
    is_due = any(one["jobs_due"] for one in told)
    usual = [*(WITH_DUE_DATES if is_due else WITHOUT), *(name for name in COSTS if any(one[name] for one in told))]
    alike = [name for name in usual if len({_text(name, one[name]) for one in told}) == 1]
    if len(told) < 2 or len(alike) == len(usual):
        return usual, ()
    drawn = [name for name in usual if name not in alike]
    if is_due and "deadline_miss_rate" in drawn and not any(one["deadline_miss_penalty"] for one in told):
        # No job has a priority above 0, so the penalty does not say how late jobs are.
        drawn.insert(1, "tardiness_mean")
    return drawn, alike


def _partial(told: Mapping[str, float]) -> str:
    """How many jobs failed or did not end, in words. Empty if there are none."""
    of = f"of {told['jobs']:,} jobs" if "jobs" in told else "jobs"
    counts = {"failed": told.get("jobs_failed", 0), "did not end": told.get("jobs_unfinished", 0)}
    return ", ".join(f"{count:,} {of} {what}" for what, count in counts.items() if count)


def _measure(name: str) -> Measure:
    return MEASURES.get(name, Measure(name.replace("_", " ").capitalize()))


def _text(name: str, value: float) -> str:
    """A value with its unit, for a sentence."""
    factor, unit = _unit(_measure(name).unit, abs(value) if math.isfinite(value) else 0.0)
    return f"{number(value / factor)} {unit}".rstrip() if value or unit == _SHARE else "0"


def _told(name: str, value: float) -> str:
    """A measure and its value, for a sentence."""
    words = _measure(name).words
    return f"{words[0].lower()}{words[1:]} ({_text(name, value)})"


def _bars(axes: Axes, name: str, policies: Sequence[str], values: Sequence[float], complete: Sequence[bool]) -> None:
    # The first policy is on top; a value that is not a number has no bar.
    measure = _measure(name)
    factor, unit = _unit(measure.unit, max((abs(value) for value in values if math.isfinite(value)), default=0.0))
    heights = range(len(values), 0, -1)
    lengths = [value / factor if math.isfinite(value) else 0.0 for value in values]
    texts = [number(value / factor) for value in values]
    compared = [value if whole else math.nan for value, whole in zip(values, complete, strict=True)]
    best = _best(compared, texts, measure.better)
    is_best = [text == best and whole for text, whole in zip(texts, complete, strict=True)]
    colours = [_NEITHER if not measure.better else _BEST if first else _OTHERS for first in is_best]
    bars = axes.barh(heights, lengths, height=0.66, color=colours)
    for bar, whole in zip(bars, complete, strict=True):
        if not whole:
            bar.set(hatch=_HATCH, edgecolor="white", linewidth=0)
    for height, length, text, first in zip(heights, lengths, texts, is_best, strict=True):
        axes.annotate(
            text,
            (max(length, 0.0), height),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
            weight="bold" if first else "normal",
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
        time_unit = time_unit_for(round(min(most, 1e12) * SECOND))
        return time_unit.length / SECOND, unit.replace("s", time_unit.name) if unit == "s" else f"slot-{time_unit.name}"
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
