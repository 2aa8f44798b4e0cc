"""When jobs end, with bounds, in two ways, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headway.errors import HeadwayError
from headway.pictures.canvas import INK, entitle, figure, finish, legend, name_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WAYS: Final = ("#4477aa", "#cc6677")
JOBS_DRAWN_MAX: Final = 60
"""More jobs than that cannot be told apart."""


class JobEnds(NamedTuple):
    """When a job ends, in each way.

    Attributes:
        name: of it.
        due: hours from now on; None: it is not due.
        ways: (median, low, high) in hours from now on, in each way; None: beyond reach, or it is not there.
    """

    name: str
    due: float | None
    ways: tuple[tuple[float | None, float | None, float | None], ...]


def ends(rows: Sequence[JobEnds], ways: Sequence[str], path: str | Path | None = None, *, title: str = "") -> Figure:
    """Draw for each job a line from the lower to the upper bound of its end in each way, with a dot at the median.

    Args:
        rows: the jobs from above to below; only the first `JOBS_DRAWN_MAX` are drawn.
        ways: their names.
        path: where to write it; its end says the format (.png, .svg, .pdf). None: it is only returned.

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    if not rows:
        raise HeadwayError("there is nothing to draw")
    drawn, ((axes,),) = figure(9, 1.2 + 0.3 * min(len(rows), JOBS_DRAWN_MAX))
    shown = rows[:JOBS_DRAWN_MAX]
    known = [one for row in shown for way in row.ways for one in way if one is not None]
    far = 1.05 * max((*known, *(row.due for row in shown if row.due is not None)), default=1.0)
    for place, row in enumerate(shown):
        for number, (median, low, high) in enumerate(row.ways):
            y = place + 0.18 * (2 * number - 1)
            colour = _WAYS[number % 2]
            if low is not None:
                axes.plot((low, far if high is None else high), (y, y), color=colour, linewidth=3, alpha=0.5)
            if median is not None:
                axes.plot((median,), (y,), "o", color=colour, markersize=4)
        if row.due is not None:
            axes.plot((row.due, row.due), (place - 0.4, place + 0.4), color=INK, linewidth=1.2)
    axes.set_yticks(range(len(shown)), [row.name for row in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel("hours from now on")
    handles = [
        *(
            axes.plot((), (), color=colour, marker="o", linewidth=3, label=name)[0]
            for colour, name in zip(_WAYS, map(name_lines, ways), strict=False)
        ),
        axes.plot((), (), color=INK, linewidth=1.2, label="due")[0],
    ]
    legend(axes, handles)
    left = len(rows) - len(shown)
    note = "Lines hold the end in 90 % of the futures, dots are medians."
    entitle(drawn, title, note + (f" {left:,} more jobs are not shown." if left else ""))
    return finish(drawn, path)
