"""Quantities that change in steps, over time: one run over another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from headway.errors import HeadwayError
from headway.model.workload import FloatArray
from headway.pictures.canvas import COLOURS, FAINT, INK, figure, save

_PAIRED: Final = 2

Curve = tuple[FloatArray, FloatArray]
"""Instants in seconds, rising, and what the quantity is from each of them on; both of shape (steps,)."""


def steps(
    panels: Mapping[str, Mapping[str, Curve]],
    path: str | Path,
    *,
    measure: str,
    shaded: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
) -> None:
    """Draw a field for each panel, one below the other on one scale of time, in it the curves over each other.

    The first curve of a panel is drawn broad and pale, so that the others can be seen upon it.

    Args:
        panels: curves by name, by title of the panel.
        measure: name of the quantity.
        shaded: a span of time, in seconds, that is shaded in a panel.
        path: its end says the format (.png, .svg, .pdf).

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    if not panels or not all(panels.values()):
        raise HeadwayError("there is nothing to draw")
    drawn, axes = figure(9, 1.0 + 2.4 * len(panels), len(panels))
    end = max(float(at[-1]) for curves in panels.values() for at, _ in curves.values())
    for cell, (name, curves) in zip(axes.flat, panels.items(), strict=True):
        if shaded and name in shaded:
            cell.axvspan(*shaded[name], color=FAINT, linewidth=0)
        for place, (label, (at, values)) in enumerate(curves.items()):
            under = place == 0 and len(curves) >= _PAIRED
            cell.step(
                np.append(at, end),
                np.append(values, values[-1]),
                where="post",
                color=COLOURS[place],
                linewidth=5 if under else 1.4,
                alpha=0.45 if under else 1,
                label=label,
            )
        cell.set_xlim(0, end)
        cell.set_ylim(bottom=0)
        cell.yaxis.get_major_locator().set_params(integer=True)
        cell.set_ylabel(measure, color=INK, fontsize=9)
        cell.set_title(name, loc="left", fontsize=10, color=INK)
        cell.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper right")
    axes.flat[-1].set_xlabel("time (s)", color=INK)
    if title:
        drawn.suptitle(title, x=0.01, ha="left", color=INK, fontsize=12)
    save(drawn, path)
