"""When jobs end, with bounds, in two ways, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headway.errors import HeadwayError
from headway.model.instant import SECOND
from headway.pictures.canvas import INK, entitle, figure, finish, legend, name_lines, time_unit_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WAYS: Final = ("#4477aa", "#cc6677")
JOBS_DRAWN_MAX: Final = 60
"""More jobs than that cannot be told apart."""

DUES_WITHIN: Final = (-0.25, 2.0)
"""The axis reaches to due dates, but only to these multiples of the farthest end: bounds must stay readable."""


class JobEnds(NamedTuple):
    """When a job ends, in each way.

    Attributes:
        name: of it.
        due: seconds from now on; None: it is not due.
        ways: (median, low, high) in seconds from now on, in each way; None: beyond reach, or it is not there.
    """

    name: str
    due: float | None
    ways: tuple[tuple[float | None, float | None, float | None], ...]


def ends(rows: Sequence[JobEnds], ways: Sequence[str], path: str | Path | None = None, *, title: str = "") -> Figure:
    """Draw for each job a line from the lower to the upper bound of its end in each way, with a dot at the median.

    Args:
        rows: the jobs from above to below; only the first `JOBS_DRAWN_MAX` are drawn.
        ways: their names.
            Due dates that are much farther away than all ends are arrows at the edge.
        path: where to write it; its end says the format (.png, .svg, .pdf). None: it is only returned.

    Raises:
        HeadwayError: there is nothing to draw, matplotlib is not installed, or the file cannot be written.
    """
    if not rows:
        raise HeadwayError("there is nothing to draw")
    drawn, ((axes,),) = figure(9, 1.2 + 0.3 * min(len(rows), JOBS_DRAWN_MAX))
    shown = rows[:JOBS_DRAWN_MAX]
    known = [one for row in shown for way in row.ways for one in way if one is not None]
    dues = [row.due for row in shown if row.due is not None]
    farthest = max((abs(one) for one in known or dues), default=60.0)
    left = max(DUES_WITHIN[0] * farthest, min((*dues, 0.0)))
    far = min(DUES_WITHIN[1] * farthest, max((*dues, farthest)))
    margin = 0.03 * (far - left)
    unit = time_unit_for(round(max(far, -left) * SECOND))
    scale = unit.length / SECOND
    for place, row in enumerate(shown):
        for number, (median, low, high) in enumerate(row.ways):
            y = place + 0.18 * (2 * number - 1)
            colour = _WAYS[number % 2]
            if low is not None:
                line = low / scale, (far + margin if high is None else high) / scale
                axes.plot(line, (y, y), color=colour, linewidth=3, alpha=0.5)
            if median is not None:
                axes.plot((median / scale,), (y,), "o", color=colour, markersize=4)
        if row.due is not None:
            if left <= row.due <= far:
                axes.plot((row.due / scale,) * 2, (place - 0.4, place + 0.4), color=INK, linewidth=1.2)
            else:
                edge, arrow = (far, ">") if row.due > far else (left, "<")
                axes.plot((edge / scale,), (place,), arrow, color=INK, markersize=5)
    axes.set_yticks(range(len(shown)), [row.name for row in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim((left - margin) / scale, (far + margin) / scale)
    axes.set_xlabel(f"time from now on ({unit.name})", color=INK)
    handles = [
        *(
            axes.plot((), (), color=colour, marker="o", linewidth=3, label=name)[0]
            for colour, name in zip(_WAYS, map(name_lines, ways), strict=False)
        ),
        axes.plot((), (), color=INK, linewidth=1.2, label="due")[0],
    ]
    legend(axes, handles)
    others = len(rows) - len(shown)
    note = "Lines hold the end in 90 % of the futures, dots are medians."
    if any(not left <= due <= far for due in dues):
        note += " Arrows: due farther away."
    entitle(
        drawn,
        title,
        note + (f" {others:,} more {'job is' if others == 1 else 'jobs are'} not shown." if others else ""),
    )
    return finish(drawn, path)
