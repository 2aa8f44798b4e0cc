"""Policies compared: a field of bars a measure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.pictures.canvas import COLOURS, INK, figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WITH_DUE_DATES: Final = (
    "wait_mean",
    "bounded_slowdown_mean",
    "deadline_miss_rate",
    "deadline_miss_penalty",
    "priority_violation_rate",
    "utilisation",
)
WITHOUT: Final = ("wait_mean", "response_mean", "bounded_slowdown_mean", "utilisation")
_IN_SECONDS: Final = ("wait", "response", "tardiness", "makespan", "decision_seconds")
_MAGNITUDES: Final = 50  # bars that differ by more are drawn on a logarithmic scale


def comparison(
    metrics: Mapping[str, Mapping[str, float]], path: str | Path, *, names: Sequence[str] | None = None, title: str = ""
) -> None:
    """Draw what measures say of policies: a field for each measure, in it a bar for each policy with its value.

    Args:
        metrics: what `summarise` says, by policy.
        names: the measures to draw. Without, the usual ones; where no job has a due date response stands for what
            says how due dates are met, and kills and migrations are drawn where there were any.
        path: its end says the format (.png, .svg, .pdf).

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
    widest = max(map(len, metrics))
    drawn, axes = figure(1.5 + 0.07 * widest + 3.1 * columns, rows * (0.9 + 0.32 * len(metrics)), rows, columns)
    for place, cell in enumerate(axes.flat):
        if place >= len(names):
            cell.set_visible(False)
            continue
        values = [float(told[names[place]]) for told in metrics.values()]
        _bars(cell, names[place], list(metrics) if place % columns == 0 else [""] * len(metrics), values)
    drawn.suptitle(title, x=0.01, ha="left", color=INK, fontsize=12)
    save(drawn, path)


def _usual(told: Collection[Mapping[str, float]]) -> Sequence[str]:
    if any(one["jobs_due"] for one in told):
        return WITH_DUE_DATES
    return [*WITHOUT, *(name for name in ("kills", "migrations") if any(one[name] for one in told))]


def _bars(axes: Axes, name: str, policies: Sequence[str], values: Sequence[float]) -> None:
    # The first policy stands on top; what is no number has no bar.
    heights = range(len(values), 0, -1)
    lengths = [0.0 if math.isnan(value) else value for value in values]
    axes.barh(heights, lengths, height=0.66, color=[COLOURS[place % len(COLOURS)] for place in range(len(values))])
    above = [value for value in lengths if value > 0]
    if above and max(above) > _MAGNITUDES * min(above):
        decade = math.floor(math.log10(min(above)))  # whole, so that no tick stands beside that of 0
        axes.set_xscale("symlog", linthresh=10.0**decade)
    else:
        axes.locator_params(axis="x", nbins=5)
    for height, value, length in zip(heights, values, lengths, strict=True):
        told = "–" if math.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        axes.annotate(told, (length, height), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
    axes.set_yticks(list(heights), policies)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.22)
    axes.set_xlim(left=0)
    unit = " (s)" if name.startswith(_IN_SECONDS) else ""
    axes.set_title(f"{name.replace('_', ' ')}{unit}", loc="left", fontsize=9.5, color=INK)
