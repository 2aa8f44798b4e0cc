"""On how many slots the tasks of each job ran over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.errors import HeadwayError
from headway.model.schedule import Schedule
from headway.model.workload import FloatArray, IntArray
from headway.pictures.canvas import COLOURS, FAINT, INK, entitle, figure, finish, legend, time_axis, time_unit_of, whole
from headway.pictures.series import Changes, Excerpt, awaited, edges_of, excerpt_of, means, running, tier_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN: Final = len(COLOURS)


def allocation(
    schedule: Schedule,
    path: str | Path | None = None,
    *,
    start: float | None = None,
    end: float | None = None,
    title: str = "",
) -> Figure:
    """Draw on how many slots the tasks of each job ran over time, as stacked bands.

    The largest jobs have a band each, all others share one. A band is as high as the job's bars in the Gantt chart are
    together. A second panel shows slots that are allocated to a job on which it does not run yet, because another job's
    task must end there first, or because the job waits for more slots. The dashed line is the mean number of slots that
    were up. With very many changes, means over short spans of time are drawn.

    Args:
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        start, end: draw only the time between them, in seconds on the schedule's clock.

    Raises:
        InvalidInput: no part of the run is between `start` and `end`.
        HeadwayError: no task ever ran, matplotlib is not installed, or the file cannot be written.
    """
    excerpt = excerpt_of(schedule, start, end)
    ran, waited = running(schedule), awaited(schedule)
    sizes = _sizes(ran, len(schedule), excerpt)
    holders = np.unique(ran.job[(sizes[ran.job] > 0) | ((ran.at >= excerpt.begin) & (ran.at <= excerpt.end))])
    if not len(ran.at):
        raise HeadwayError("no task of the schedule ran")
    awaits = _sizes(waited, len(schedule), excerpt).any()
    shown = np.sort(holders[np.argsort(-sizes[holders], kind="stable")[:_SHOWN]])
    drawn, axes = figure(
        11, 5.6 if awaits else 4.5, 2 if awaits else 1, 1, sharex=True, height_ratios=[3, 1][: 1 + awaits]
    )
    bands = _Bands(schedule, shown, len(np.setdiff1d(holders, shown)))
    handles = bands.draw(axes[0, 0], ran, excerpt)
    tiers = tier_words(schedule).replace(" ", "\n", 1)
    axes[0, 0].set_ylabel(f"slots that tasks run on{tiers}", color=INK)
    up = schedule.offered / max(schedule.until - schedule.begin, 1)
    if up:
        label = "slots that are up (mean)"
        handles.append(axes[0, 0].axhline(up, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=label))
        axes[0, 0].set_ylim(0, max(axes[0, 0].get_ylim()[1], 1.08 * up))
    if awaits:
        bands.draw(axes[1, 0], waited, excerpt)
        axes[1, 0].set_ylabel("allocated,\nnot used yet", color=INK)
    time_unit = time_unit_of(excerpt.begin, excerpt.end)
    time_axis(axes[-1, 0], time_unit, excerpt.begin, excerpt.end)
    entitle(drawn, title)
    legend(axes[0, 0], handles[::-1])
    return finish(drawn, path)


class _Bands:
    """A band for each large job, and one for all others. Their colours are the same in both panels."""

    def __init__(self, schedule: Schedule, shown: IntArray, others: int) -> None:
        self.band = np.full(len(schedule), len(shown))
        self.band[shown] = np.arange(len(shown))
        self.colours = [*_colours(shown), *[FAINT] * (others > 0)]
        rest = "1 other job" if others == 1 else f"{others:,} other jobs"
        self.names = [f"job {label}" for label in schedule.label[shown]] + [rest] * (others > 0)

    def draw(self, axes: Axes, changes: Changes, excerpt: Excerpt) -> list[object]:
        """Stack the bands; returns their entries for a legend."""
        time_unit = time_unit_of(excerpt.begin, excerpt.end)
        edges, steps = edges_of(changes, excerpt)
        heights: list[FloatArray] = []
        for number in range(len(self.names)):
            mine = self.band[changes.job] == number
            height = means(changes.at[mine], changes.by[mine], edges)
            heights.append(np.append(height, height[-1]))
        stacked = axes.stackplot(
            edges / time_unit.length,
            heights,
            colors=self.colours,
            labels=self.names,
            step="post",
            linewidth=0,
            antialiased=steps,
        )
        axes.set_ylim(0, max(1.0, float(np.sum(heights, axis=0).max()) * 1.08))
        whole(axes.yaxis)
        return [*stacked]


def _sizes(changes: Changes, jobs: int, excerpt: Excerpt) -> FloatArray:
    """Relative slot time of each job within the excerpt, shape (jobs,)."""
    length = max(excerpt.end - excerpt.begin, 1)
    after = (excerpt.end - np.clip(changes.at, excerpt.begin, excerpt.end)) / length
    sizes = np.bincount(changes.job, weights=changes.by * after, minlength=jobs)
    # A run that begins and ends in one instant has no area, but rounding may leave a trace of one.
    return np.where(np.abs(sizes) < 1e-12, 0.0, sizes)


def _colours(jobs: IntArray) -> list[str]:
    """Colours of jobs as in a Gantt chart, but no colour twice."""
    free = dict.fromkeys(COLOURS)
    found: dict[int, str] = {}
    for job in jobs.tolist():
        colour = COLOURS[job % len(COLOURS)]
        if colour in free:
            del free[colour]
            found[job] = colour
    rest = iter(free)
    return [found[job] if job in found else next(rest) for job in jobs.tolist()]
