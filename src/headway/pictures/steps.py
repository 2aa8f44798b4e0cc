"""A quantity that changes in steps, over time: several courses of it, each as it was had in several ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.errors import HeadwayError
from headway.model.workload import FloatArray
from headway.pictures.canvas import FAINT, INK, entitle, figure, finish, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COURSES: Final = ("#4477aa", "#cc6677", "#55a868", "#ee9944")
_BROAD: Final = (5.0, 0.4)  # width and opacity of the first of a course's curves, so that the others are seen upon it
_FINE: Final = (1.4, 1.0)

Curve = tuple[FloatArray, FloatArray]
"""Instants in seconds, rising, and what the quantity is from each of them on; both of shape (steps,)."""


def steps(
    courses: Mapping[str, Mapping[str, Curve]],
    path: str | Path | None = None,
    *,
    measure: str,
    shaded: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
) -> Figure:
    """Draw courses over each other, a colour each; of each the first curve broad and pale, the others fine upon it.

    Fine curves of all courses but the first are dashed: those of the first are seen beneath.

    Args:
        courses: curves by how they were had ("" where there is nothing to say of it), by name of the course.
        path: where to write it; its end says the format (.png, .svg, .pdf). None: it is only returned.
        measure: name of the quantity.
        shaded: spans of time in seconds that are shaded, by what they are.

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    curves = [(name, way, curve) for name, ways in courses.items() for way, curve in ways.items()]
    if not curves:
        raise HeadwayError("there is nothing to draw")
    drawn, ((axes,),) = figure(10, 4)
    end = max(float(at[-1]) for _, _, (at, _) in curves)
    for name, (begin, until) in (shaded or {}).items():
        axes.axvspan(begin, until, color=FAINT, linewidth=0, alpha=0.6, label=name)
    colours = dict(zip(courses, _COURSES, strict=False))
    for name, way, (at, values) in curves:
        is_broad = len(courses[name]) > 1 and way == next(iter(courses[name]))
        width, opacity = _BROAD if is_broad else _FINE
        axes.step(
            np.append(at, end),
            np.append(values, values[-1]),
            where="post",
            color=colours.get(name, INK),
            linewidth=width,
            alpha=opacity,
            linestyle="-" if is_broad or name == next(iter(courses)) else (0, (4, 2)),
            label=f"{name}, {way}" if way else name,
        )
    axes.set_xlim(0, end)
    axes.set_ylim(bottom=0)
    whole(axes.yaxis)
    axes.set_xlabel("time (s)", color=INK)
    axes.set_ylabel(measure, color=INK)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right", bbox_to_anchor=(1, 1), ncols=5)
    entitle(drawn, title)
    return finish(drawn, path)
