"""A long run over time: how many jobs waited, how many slots were used, how long jobs waited, how late they ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, SECOND
from headway.model.schedule import NOT_YET, Schedule
from headway.model.workload import IntArray
from headway.pictures.canvas import (
    ALARM,
    COLOURS,
    INK,
    TimeUnit,
    entitle,
    figure,
    finish,
    number,
    time_axis,
    time_unit_for,
    time_unit_of,
    time_words,
    whole,
)
from headway.pictures.series import Changes, Excerpt, awaited, edges_of, excerpt_of, means, running, tier_words, waiting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SPANS: Final = (12, 100)  # least and greatest number of equal spans of time for which jobs are summed up
_JOBS: Final = 20  # wanted in each span, on average
_BAND: Final = (5, 95)  # percentiles


def timeline(
    schedule: Schedule,
    path: str | Path | None = None,
    *,
    start: float | None = None,
    end: float | None = None,
    slots: int | None = None,
    title: str = "",
) -> Figure:
    """Draw what happened over time, for runs with too many jobs for a Gantt chart.

    Panels from the top: jobs that waited to start; slots that tasks ran on; how long jobs waited; and, if jobs have due
    dates, how late they ended (below 0: how early). The last two group jobs by the time of their release. For each
    group they show the median, and a band with nine of ten jobs; if there are few jobs, a point for each. A job that
    never ended counts as ended at the end of the run. Jobs that failed count as late, but are not drawn. Cancelled jobs
    are left out.

    Args:
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        start, end: draw only the time between them, in seconds on the schedule's clock.
        slots: how many slots there are, for a line; default: as many as were up on average.

    Raises:
        InvalidInput: no part of the run is between `start` and `end`.
        HeadwayError: there are no jobs, matplotlib is not installed, or the file cannot be written.
    """
    if not len(schedule):
        raise HeadwayError("the schedule has no jobs to draw")
    excerpt = excerpt_of(schedule, start, end)
    has_due = (schedule.due < NEVER) & ~schedule.has(JobStatus.CANCELLED)
    fields = 4 if has_due.any() else 3
    drawn, axes = figure(11, 0.9 + 1.8 * fields, fields, 1, sharex=True)
    time_axis(axes[-1, 0], time_unit_of(excerpt.begin, excerpt.end), excerpt.begin, excerpt.end)
    queue, use, wait, *lateness = axes[:, 0]
    _queue(queue, schedule, excerpt)
    _use(use, schedule, excerpt, slots)
    _wait(wait, schedule, excerpt)
    if lateness:
        _lateness(lateness[0], schedule, has_due, excerpt)
    entitle(drawn, title)
    return finish(drawn, path)


def _queue(axes: Axes, schedule: Schedule, excerpt: Excerpt) -> None:
    most, means_over = _course(axes, waiting(schedule), excerpt, COLOURS[1], "waiting")
    _entitle(axes, f"Jobs waiting to start: at most {number(most)} at once{means_over}", "jobs")


def _use(axes: Axes, schedule: Schedule, excerpt: Excerpt, slots: int | None) -> None:
    _, means_over = _course(axes, running(schedule), excerpt, COLOURS[0], "tasks run")
    waited = awaited(schedule)
    if len(waited.at):
        edges, _ = edges_of(waited, excerpt)
        heights = means(waited.at, waited.by, edges)
        axes.stairs(heights, edges / _length(excerpt), color=COLOURS[1], linewidth=1, label="allocated, not used yet")
    span = schedule.until - schedule.begin
    up = slots if slots is not None else schedule.offered / span if span else 0
    if up:
        axes.axhline(up, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="slots there are")
    axes.set_ylim(0, max(axes.get_ylim()[1], up * 1.08))
    _entitle(axes, f"Slots that tasks run on{tier_words(schedule)}{means_over}", "slots")
    _name(axes)


def _wait(axes: Axes, schedule: Schedule, excerpt: Excerpt) -> None:
    started = schedule.start != NOT_YET
    found = _within(schedule.release[started], (schedule.start - schedule.release)[started], excerpt)
    time_unit = time_unit_for(int(found.values.max(initial=0)))
    _spread(axes, found, excerpt, time_unit, COLOURS[2])
    axes.set_ylim(bottom=0)
    told = f": median {_time(found, 50)}, longest {_time(found, 100)}" if len(found.values) else ""
    _entitle(axes, f"Wait of the jobs released then{told}", f"wait ({time_unit.name})")


def _lateness(axes: Axes, schedule: Schedule, has_due: NDArray[np.bool_], excerpt: Excerpt) -> None:
    ended = np.where(schedule.has(JobStatus.SUCCEEDED), schedule.end, schedule.until)
    failed = has_due & schedule.has(JobStatus.FAILED)
    drawn = has_due & ~failed
    found = _within(schedule.release[drawn], (ended - np.where(drawn, schedule.due, 0))[drawn], excerpt)
    without = len(_within(schedule.release[failed], schedule.due[failed], excerpt).values)
    time_unit = time_unit_for(int(np.abs(found.values).max(initial=0)))
    _spread(axes, found, excerpt, time_unit, COLOURS[4])
    axes.axhline(0, color=ALARM, linewidth=1, label="the due date")
    low, high = axes.get_ylim()
    # How early jobs end says little, and may be so much that late jobs would be invisible.
    cut = high > 0 and low < -high and bool((found.values > 0).any()) and not _are_few(found)
    axes.set_ylim(-high if cut else min(low, -0.05 * high), max(high, -0.05 * low))
    jobs = len(found.values) + without
    share = f": {number(100 * (int((found.values > 0).sum()) + without) / jobs)} % late" if jobs else ""
    failures = f", with {without:,} that failed" if without else ""
    below = "; early ones are cut off" if cut else ""
    _entitle(axes, f"End minus due date, of the jobs released then{share}{failures}{below}", f"late ({time_unit.name})")
    _name(axes)


class _JobTimes(NamedTuple):
    """A time in microseconds for each of some jobs, and the job's release; columns of shape (jobs,)."""

    release: IntArray
    values: IntArray


def _within(release: IntArray, values: IntArray, excerpt: Excerpt) -> _JobTimes:
    inside = (release >= excerpt.begin) & (release <= excerpt.end)
    return _JobTimes(release[inside], values[inside])


def _time(found: _JobTimes, percentile: float) -> str:
    return time_words(int(np.percentile(found.values, percentile)))


def _length(excerpt: Excerpt) -> int:
    return time_unit_of(excerpt.begin, excerpt.end).length


def _course(axes: Axes, changes: Changes, excerpt: Excerpt, colour: str, name: str) -> tuple[float, str]:
    """Draw summed changes as an area. Returns the largest value, and a remark if means are drawn."""
    edges, exact = edges_of(changes, excerpt)
    heights = means(changes.at, changes.by, edges)
    axes.stairs(heights, edges / _length(excerpt), fill=True, color=colour, linewidth=0, label=name)
    levels = np.cumsum(changes.by)
    last = np.append(np.diff(changes.at) > 0, True)  # the sum of all changes of one instant
    seen = levels[last & (changes.at >= excerpt.begin) & (changes.at <= excerpt.end)]
    axes.set_ylim(0, max(1.0, float(heights.max()) * 1.08))
    whole(axes.yaxis)
    told = "" if exact else f" (means over {time_words(int(edges[1] - edges[0]))})"
    return float(max(seen.max(initial=0), round(heights[0]))), told


def _spread(axes: Axes, found: _JobTimes, excerpt: Excerpt, time_unit: TimeUnit, colour: str) -> None:
    """Draw each job if there are few; else, for each span of the time of release, the median and a band."""
    if _are_few(found):
        release, values = found.release / _length(excerpt), found.values / time_unit.length
        axes.scatter(
            release, values, s=20, color=colour, linewidth=0, alpha=0.8, clip_on=False, label="a job", zorder=3
        )
        if len(values):
            axes.set_ylim(*_limits(values.min(), values.max()))
        _name(axes)
        return
    spans = int(np.clip(len(found.values) // _JOBS, *_SPANS))
    edges = np.linspace(excerpt.begin, max(excerpt.end, excerpt.begin + SECOND), spans + 1)
    span = np.clip(np.searchsorted(edges, found.release, side="right") - 1, 0, spans - 1)
    order = np.argsort(span, kind="stable")
    low, middle, high = np.full((3, spans), np.nan)
    for at, group in zip(*_groups(span[order], found.values[order]), strict=True):
        low[at], middle[at], high[at] = np.percentile(group, (_BAND[0], 50, _BAND[1])) / time_unit.length
    scaled = edges / _length(excerpt)
    named = f"{_BAND[0]}th to {_BAND[1]}th percentile"
    axes.stairs(high, scaled, baseline=low, fill=True, color=colour, alpha=0.3, linewidth=0, label=named)
    axes.hlines(middle, scaled[:-1], scaled[1:], color=colour, linewidth=2, label="median")
    if len(found.values):
        axes.set_ylim(*_limits(np.nanmin(low), np.nanmax(high)))
    _name(axes)


def _are_few(found: _JobTimes) -> bool:
    """Whether there are so few jobs that each can be drawn."""
    return len(found.values) < _JOBS * _SPANS[0]


def _limits(low: float, high: float) -> tuple[float, float]:
    room = 0.06 * (high - low) or 1.0
    return min(0.0, low - room), max(0.0, high) + room


def _groups(keys: IntArray, values: IntArray) -> tuple[list[int], list[IntArray]]:
    """Values by their key, in order of keys."""
    found, first = np.unique(keys, return_index=True)
    return found.tolist(), np.split(values, first[1:])


def _entitle(axes: Axes, words: str, unit: str) -> None:
    axes.set_title(words, loc="left", fontsize=9.5, color=INK)
    axes.set_ylabel(unit, color=INK, fontsize=9)


def _name(axes: Axes) -> None:
    """Draw a legend above the panel, on the right."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=3, frameon=False, fontsize=8, labelcolor=INK)
