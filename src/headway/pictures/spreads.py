"""Measures of many runs: bars, lines over a quantity, and the plane of two measures, each mean with its spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headway.errors import HeadwayError
from headway.pictures.canvas import COLOURS, FAINT, INK, figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS: Final = "osD^vP*Xh<>p"


class Mean(NamedTuple):
    """A mean, and the error to either side of it (0 or not a number: none is drawn)."""

    value: float
    error: float


class Point(NamedTuple):
    """A policy in the plane of two measures."""

    x: Mean
    y: Mean


def bars(
    panels: Mapping[str, Mapping[str, Mean]], path: str | Path, *, measure: str, log: bool = False, title: str = ""
) -> None:
    """Draw a field for each panel, in it a bar for each policy with its error.

    Args:
        panels: a mean for each policy, by title of the panel.
        measure: what is drawn, for the scale.
        log: whether the scale is logarithmic.
        path: its end says the format (.png, .svg, .pdf).

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    drawn, cells = _fields(panels, width=4.2, height=3.6)
    for cell, (name, means) in zip(cells, panels.items(), strict=False):
        places = np.arange(len(means))
        values, errors = _columns(means.values())
        cell.bar(places, values, width=0.66, color=_colours(means))
        cell.errorbar(places, values, yerr=errors, fmt="none", ecolor=INK, capsize=3, linewidth=1)
        for place, value, error in zip(places.tolist(), values.tolist(), errors.tolist(), strict=True):
            text = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
            cell.annotate(
                text, (place, value + error), (0, 3), textcoords="offset points", ha="center", fontsize=7.5, color=INK
            )
        cell.set_xticks(places, list(means), rotation=25, ha="right", fontsize=8)
        cell.tick_params(axis="x", length=0)
        _scale(cell, log)
        cell.margins(y=0.12)
        cell.set_ylabel(measure, color=INK, fontsize=9)
        cell.set_title(name, loc="left", fontsize=10, color=INK)
    _finish(drawn, path, title)


def lines(
    panels: Mapping[str, Mapping[str, Mapping[float, Mean]]],
    path: str | Path,
    *,
    over: str,
    measure: str,
    log: bool = False,
    level: float | None = None,
    title: str = "",
) -> None:
    """Draw a field for each panel, in it a line for each policy with a band as wide as its error.

    Args:
        panels: means by what they are drawn over, for each policy, by title of the panel.
        over, measure: names of the two scales.
        log: whether the scale of the measure is logarithmic.
        level: that the lines are to be seen against, marked; the scale need not begin at 0 then.
        path: its end says the format (.png, .svg, .pdf).

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    drawn, cells = _fields(panels, width=4.8, height=3.6)
    for cell, (name, policies) in zip(cells, panels.items(), strict=False):
        for colour, marker, (policy, means) in zip(_colours(policies), _MARKERS, policies.items(), strict=False):
            at = list(means)
            values, errors = _columns(means.values())
            cell.plot(at, values, color=colour, marker=marker, markersize=4, linewidth=1.5, label=policy)
            cell.fill_between(at, values - errors, values + errors, color=colour, alpha=0.15, linewidth=0)
        if level is None:
            _scale(cell, log)
        else:
            cell.axhline(level, color=INK, linewidth=1, linestyle=":")
        cell.set_xlabel(over, color=INK, fontsize=9)
        cell.set_ylabel(measure, color=INK, fontsize=9)
        cell.set_title(name, loc="left", fontsize=10, color=INK)
    _legend(drawn, cells[0])
    _finish(drawn, path, title)


def plane(
    panels: Mapping[str, Mapping[str, Point]], path: str | Path, *, x: str, y: str, log: bool = True, title: str = ""
) -> None:
    """Draw a field for each panel, in it a point for each policy, with its errors on both measures.

    Args:
        panels: a point for each policy, by title of the panel.
        x, y: names of the measures.
        log: whether the scale of y is logarithmic.
        path: its end says the format (.png, .svg, .pdf).

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    drawn, cells = _fields(panels, width=3.2, height=2.7)
    for cell, (name, points) in zip(cells, panels.items(), strict=False):
        for colour, marker, (policy, point) in zip(_colours(points), _MARKERS, points.items(), strict=False):
            errors = [np.nan_to_num(part.error) for part in point]
            cell.errorbar(
                point.x.value,
                point.y.value,
                xerr=errors[0],
                yerr=errors[1],
                color=colour,
                marker=marker,
                markersize=6,
                linewidth=1,
                linestyle="none",
                label=policy,
                alpha=0.9,
            )
        _scale(cell, log)
        cell.margins(0.12)
        cell.grid(color=FAINT, linewidth=0.5)
        cell.set_xlabel(x, color=INK, fontsize=8)
        cell.set_ylabel(y, color=INK, fontsize=8)
        cell.set_title(name, loc="left", fontsize=9.5, color=INK)
    _legend(drawn, cells[0])
    _finish(drawn, path, title)


def _fields(panels: Mapping[str, Mapping[str, object]], width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    """A figure with as many fields as there are panels, four in a row at most; fields left over are not seen."""
    if not panels or not any(panels.values()):
        raise HeadwayError("there is nothing to draw")
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    drawn, axes = figure(width * columns, height * rows + 0.6, rows, columns)
    cells = list(axes.flat)
    for cell in cells[len(panels) :]:
        cell.set_visible(False)
    return drawn, cells


def _colours(names: Mapping[str, object]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(names))]


def _columns(means: Any) -> tuple[Any, Any]:
    values, errors = np.array([*means], dtype=np.float64).reshape(-1, 2).T
    return values, np.nan_to_num(errors)


def _scale(cell: Axes, log: bool) -> None:
    if log:
        cell.set_yscale("log")
        cell.tick_params(axis="y", which="both", labelsize=8, colors=INK)
    else:
        cell.set_ylim(bottom=0)


def _legend(drawn: Figure, cell: Axes) -> None:
    handles, labels = cell.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8, labelcolor=INK)


def _finish(drawn: Figure, path: str | Path, title: str) -> None:
    if title:
        drawn.suptitle(title, x=0.01, ha="left", color=INK, fontsize=12)
    save(drawn, path)
