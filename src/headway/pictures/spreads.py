"""Measures of many runs, as means with their spread: bars, lines over a quantity, and one measure against another.

Panels of one measure have the same scale, so that they can be compared. Each scale says whether it is linear or
logarithmic and, if the caller knows, whether less or more is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from headway.errors import HeadwayError
from headway.pictures.canvas import COLOURS, FAINT, INK, entitle, figure, finish, legend, name_lines, number, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_MARKERS: Final = "osD^vP*Xh<>p"
_SIZES: Final = (11.0, 5.0)
"""Sizes in points of the first and the last marker in one place. They differ, so that each is visible."""

_WIDTHS: Final = (2.6, 1.3)
"""Widths in points of the first and the last line, for the same reason."""

_USUAL: Final = 6.0
"""Size in points of a marker that overlaps no other."""

_COLUMNS: Final = 4

LINEAR: Final = "linear scale from 0"
BELOW_0: Final = "linear scale"
LOG: Final = "logarithmic scale"
LOG_WITH_0: Final = "logarithmic scale, 0 set apart"


class Mean(NamedTuple):
    """A mean, and its error on either side (0 or NaN: no error is drawn)."""

    value: float
    error: float


class Point(NamedTuple):
    """A policy's means of two measures."""

    x: Mean
    y: Mean


def bars(
    panels: Mapping[str, Mapping[str, Mean]],
    path: str | Path | None = None,
    *,
    measure: str,
    spread: str = "",
    better: str = "",
    log: bool = False,
    title: str = "",
) -> Figure:
    """Draw bars: in each panel a bar for each policy with its error. All panels have the same scale.

    A logarithmic scale has no 0 at which a bar could begin, so points are drawn instead. If no mean is below 0, errors
    that reach below 0 are cut off there.

    Args:
        panels: a mean for each policy, by title of the panel.
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        measure: the name of the measure, for the scale.
        spread: what the errors are, such as `95 % interval`.
        better: `less` or `more`, if one of them is.
        log: whether the scale is logarithmic.

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    names = [[name_lines(policy) for policy in means] for means in panels.values()]
    lines = [line for field in names for name in field for line in name.splitlines()]
    tallest = max((max((name.count("\n") for name in field), default=0) * len(field) for field in names), default=0)
    most = max(map(len, names), default=0)
    drawn, cells = _fields(panels, 2.9 + 0.075 * max(map(len, lines), default=0), 0.9 + 0.34 * most + 0.14 * tallest)
    every = _columns(mean for means in panels.values() for mean in means.values())
    for cell, (name, means) in zip(cells, panels.items(), strict=False):
        places = np.arange(len(means), 0, -1)
        values, errors = _columns(means.values())
        if log:
            cell.scatter(values, places, s=40, color=_colours(means), zorder=3, clip_on=False)
        else:
            cell.barh(places, np.nan_to_num(values), height=0.62, color=_colours(means))
        seen = np.where(errors > 0, errors, np.nan)
        cell.errorbar(values, places, xerr=seen, fmt="none", ecolor=INK, capsize=3, linewidth=1, zorder=4)
        cell.set_ylim(0.4, len(means) + 0.6)
        cell.set_yticks(places, [name_lines(policy) for policy in means], fontsize=8)
        cell.tick_params(axis="y", length=0)
        rule = _scale(cell.xaxis, log, *every)
        low, high = cell.get_xlim()
        cell.set_xlim(low, high * (high / low) ** 0.25 if rule == LOG else high + 0.28 * (high - min(low, 0.0)))
        for place, value, error in zip(places.tolist(), values.tolist(), errors.tolist(), strict=True):
            at = (0.0 if math.isnan(value) else value + error, place)
            cell.annotate(number(value), at, (6, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK)
        cell.set_xlabel(_told(measure, rule, better), color=INK, fontsize=8.5)
        cell.set_title(name, loc="left", fontsize=10, color=INK)
    entitle(drawn, title, _errors(spread))
    return finish(drawn, path)


def lines(
    panels: Mapping[str, Mapping[str, Mapping[float, Mean]]],
    path: str | Path | None = None,
    *,
    over: str,
    measure: str,
    spread: str = "",
    better: str = "",
    log: bool = False,
    level: tuple[float, str] | None = None,
    title: str = "",
) -> Figure:
    """Draw lines: in each panel a line for each policy, with a band as wide as its error.

    Earlier lines are wider, so that they stay visible below later ones. All panels have the same scale, unless each
    shows a measure of its own.

    Args:
        panels: means by their position on the lower scale, for each policy, by title of the panel.
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        over, measure: names of the two scales. An empty `measure` means that the panels' titles name their measures.
        spread: what the bands are, such as `95 % interval`.
        better: `less` or `more`, if one of them is.
        log: whether the scale of the measure is logarithmic.
        level: a value to mark, with which the lines are compared, and its name. The scale need not begin at 0 then.

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    drawn, cells = _fields(panels, width=4.8, height=3.8)
    shown = {
        name: [mean for means in policies.values() for mean in means.values()] for name, policies in panels.items()
    }
    for cell, (name, policies) in zip(cells, panels.items(), strict=False):
        widths = np.linspace(*_WIDTHS, len(policies))
        for colour, marker, width, (policy, means) in zip(
            _colours(policies), _markers(policies), widths.tolist(), policies.items(), strict=True
        ):
            at = list(means)
            values, errors = _columns(means.values())
            cell.plot(
                at,
                values,
                color=colour,
                marker=marker,
                markersize=3.2 + 1.4 * width,
                linewidth=width,
                label=policy,
                clip_on=False,
            )
            cell.fill_between(at, values - errors, values + errors, color=colour, alpha=0.15, linewidth=0)
        every = _columns(chain.from_iterable(shown.values()) if measure else shown[name])
        if level is None:
            rule = _scale(cell.yaxis, log, *every)
        else:
            rule = _about(cell.yaxis, level[0], *every)
            cell.axhline(level[0], color=INK, linewidth=1, linestyle=":", label=level[1])
        cell.set_xlabel(over, color=INK, fontsize=9)
        cell.set_ylabel(_told(measure, rule, better), color=INK, fontsize=9)
        cell.set_title(name, loc="left", fontsize=10, color=INK)
    _name(cells, len(panels), _named(cells[: len(panels)]))
    entitle(drawn, title, f"Bands: {spread}." if spread else "")
    return finish(drawn, path)


def plane(
    panels: Mapping[str, Mapping[str, Point]],
    path: str | Path | None = None,
    *,
    x: str,
    y: str,
    spread: str = "",
    better: str = "",
    log: bool = True,
    title: str = "",
) -> Figure:
    """Draw one measure against another: in each panel a point for each policy, with its errors on both measures.

    If several points are in one place, each is smaller than the one before it, so that all are visible. All panels
    have the same two scales, which are named beside the leftmost panels and below the lowest ones.

    Args:
        panels: a point for each policy, by title of the panel.
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        x, y: names of the measures.
        spread: what the errors are, such as `standard error`.
        better: `less` or `more`, if one of them is, of both.
        log: whether the scale of y is logarithmic.

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    drawn, cells = _fields(panels, width=3.2, height=2.9)
    across, up = (_columns(point[part] for points in panels.values() for point in points.values()) for part in (0, 1))
    for place, (cell, name) in enumerate(zip(cells, panels, strict=False)):
        rules = _scale(cell.xaxis, False, *across), _scale(cell.yaxis, log, *up)
        cell.set_xlim(-0.08 * cell.get_xlim()[1], cell.get_xlim()[1])
        if rules[1] == LINEAR:
            cell.set_ylim(-0.08 * cell.get_ylim()[1], cell.get_ylim()[1])
        cell.grid(color=FAINT, linewidth=0.5)
        if place + _COLUMNS >= len(panels):
            cell.set_xlabel(_told(x, rules[0], better), color=INK, fontsize=8)
        if place % _COLUMNS == 0:
            cell.set_ylabel(_told(y, rules[1], better), color=INK, fontsize=8)
        cell.set_title(name, loc="left", fontsize=9.5, color=INK)
    # Which markers overlap is known only once the panels have their places.
    drawn.draw_without_rendering()
    for cell, points in zip(cells, panels.values(), strict=False):
        _mark(cell, points)
    _name(cells, len(panels), _markers_of(panels))
    entitle(drawn, title, _errors(spread))
    return finish(drawn, path)


def _told(measure: str, rule: str, better: str) -> str:
    """The name of a scale: the measure, and in a line of its own how it is scaled and what is better."""
    how = f"{rule}, {better} is better" if better else rule
    return f"{measure}\n{how}" if measure else how


def _name(cells: Sequence[Axes], panels: int, handles: Sequence[Any]) -> None:
    """Draw the legend: in the first place without a panel, else to the right of the panels."""
    if panels == len(cells):
        legend(cells[min(_COLUMNS, panels) - 1], handles)
        return
    free = cells[panels]
    free.set_visible(True)
    free.set_axis_off()
    free.set_xticks([])
    free.set_yticks([])
    legend(free, handles, inside=True)


def _mark(cell: Axes, points: Mapping[str, Point]) -> None:
    across, up = (_columns([point[part] for point in points.values()]) for part in (0, 1))
    sizes = _nested(cell.transData.transform(np.stack((across[0], up[0]), axis=-1)), cell.figure.dpi)
    for colour, marker, size, (policy, point) in zip(
        _colours(points), _markers(points), sizes, points.items(), strict=True
    ):
        cell.errorbar(
            point.x.value,
            point.y.value,
            xerr=np.nan_to_num(point.x.error),
            yerr=np.nan_to_num(point.y.error),
            color=colour,
            marker=marker,
            markersize=size,
            markeredgecolor="white" if size != _USUAL else None,
            markeredgewidth=0.6 if size != _USUAL else None,
            linewidth=1,
            linestyle="none",
            label=policy,
            clip_on=False,
        )


def _nested(at: Any, dpi: float) -> list[float]:
    """Sizes of markers in points: the usual size, or if they overlap, each smaller than the one before it."""
    near = _SIZES[0] * dpi / 72 * 0.75
    sizes = [_USUAL] * len(at)
    left = set(range(len(at)))
    while left:
        group, reached = set[int](), {min(left)}
        while reached:
            group |= reached
            left -= reached
            reached = {one for one in left for other in reached if np.hypot(*(at[one] - at[other])) < near}
        for place, size in zip(sorted(group), np.linspace(*_SIZES, len(group)).tolist(), strict=True):
            sizes[place] = size if len(group) > 1 else _USUAL
    return sizes


def _fields(panels: Mapping[str, Mapping[str, object]], width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    """A figure with axes for each panel, at most four in a row; axes that are left over are hidden."""
    if not panels or not any(panels.values()):
        raise HeadwayError("there is nothing to draw")
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    drawn, axes = figure(width * columns, height * rows + 0.6, rows, columns)
    cells = list(axes.flat)
    for cell in cells[len(panels) :]:
        cell.set_visible(False)
    return drawn, cells


def _colours(names: Mapping[str, object]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(names))]


def _markers(names: Mapping[str, object]) -> list[str]:
    return [_MARKERS[place % len(_MARKERS)] for place in range(len(names))]


def _columns(means: Iterable[Mean]) -> tuple[Any, Any]:
    values, errors = np.array([*means], dtype=np.float64).reshape(-1, 2).T
    return values, np.nan_to_num(errors)


def _named(cells: Sequence[Axes]) -> list[Any]:
    """The names that are drawn in any panel, each once."""
    found: dict[str, Any] = {}
    for cell in cells:
        for handle, name in zip(*cell.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    for name, handle in found.items():
        handle.set_label(name)
    return list(found.values())


def _markers_of(panels: Mapping[str, Mapping[str, Point]]) -> list[Any]:
    """A marker of the usual size for each policy of any panel, for the legend."""
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for points in panels.values():
        for colour, marker, policy in zip(_colours(points), _markers(points), points, strict=True):
            mark = Line2D([], [], color=colour, marker=marker, markersize=_USUAL, linestyle="none", label=policy)
            found.setdefault(policy, mark)
    return list(found.values())


def _errors(spread: str) -> str:
    return f"Error bars: {spread}." if spread else ""


def _scale(axis: Axis, log: bool, values: Any, errors: Any) -> str:
    """Scale an axis for these values and their errors. Returns a description of the scale.

    If 0 is among the values, a logarithmic axis has 0 at its end, set apart from the rest. Bands and error bars that
    reach below the least value are cut off a decade below it; on a linear axis at 0, unless a value is below 0.
    """
    named: Literal["x", "y"] = "x" if axis is axis.axes.xaxis else "y"
    limits, scale = (getattr(axis.axes, f"set_{named}{part}") for part in ("lim", "scale"))
    above = values[values > 0]
    most = float(np.nanmax(values + errors, initial=0.0)) or 1.0
    axis.axes.tick_params(axis=named, which="both", labelsize=8.5, colors=INK)
    if not log or not len(above):
        if not (values < 0).any():
            limits(0.0, most * 1.08)
            return LINEAR
        limits(float(np.nanmin(values - errors)) * 1.08, most * 1.08)
        return BELOW_0
    bottom = 10.0 ** math.floor(math.log10(float(above.min())))
    top = most * 1.5
    if not (values == 0).any():
        scale("log")
        reached = (values - errors)[values - errors > 0]
        limits(max(float(np.min(reached, initial=above.min())), float(above.min()) / 10) / 1.3, top)
        _decades(axis)
        return LOG
    scale("symlog", linthresh=bottom, linscale=0.5)
    limits(0.0, top)
    _decades(axis, apart=bottom)
    return LOG_WITH_0


def _about(axis: Axis, level: float, values: Any, errors: Any) -> str:
    """Scale an axis for values that are compared with a level. Returns a description of the scale."""
    reached = [level, *(values - errors), *(values + errors)]
    low, high = float(np.nanmin(reached)), float(np.nanmax(reached))
    room = 0.05 * (high - low) or 1.0
    axis.axes.set_ylim(low - room, high + room)
    return BELOW_0


def _decades(axis: Axis, *, apart: float | None = None) -> None:
    """Set ticks at powers of ten, and between them if there are few. Below the lowest, 0 may stand apart."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    begin, end = sorted(axis.get_view_interval())
    least = begin if apart is None else apart
    powers = [10.0**power for power in range(math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(end)) + 1)]
    inside = sum(begin <= power <= end for power in powers)
    between = (1, 2, 5) if inside < 2 else (1, 3) if inside == 2 else (1,)
    ticks = [power * digit for power in powers for digit in between if least <= power * digit <= end]
    axis.set_major_locator(FixedLocator([0.0] * (apart is not None) + ticks[:: -(-len(ticks) // 8)]))
    axis.set_major_formatter(FuncFormatter(tick))
    axis.set_minor_locator(NullLocator())
