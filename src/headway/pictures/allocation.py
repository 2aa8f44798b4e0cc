"""How many slots each job held over time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from headway.errors import HeadwayError
from headway.model.schedule import NOT_YET, Schedule
from headway.model.workload import FloatArray, IntArray
from headway.pictures.canvas import COLOURS, FAINT, INK, clock_for, figure, save

_SHOWN: Final = len(COLOURS)
_STEPS: Final = 1_500  # above this steps are averaged over as many equal spans of time


def allocation(schedule: Schedule, path: str | Path, *, title: str = "") -> None:
    """Draw the slots that jobs held over time, one upon the other: the jobs that held most by name, the others as one.

    The dashed line is the capacity that was offered, on average over the run. With very many changes, means over short
    spans of time are drawn.

    Args:
        path: its end says the format (.png, .svg, .pdf).

    Raises:
        HeadwayError: no job ever held a slot, matplotlib is not installed, or the file cannot be written.
    """
    at, job, change = _changes(schedule)
    if not len(at):
        raise HeadwayError("no job of the schedule ever held a slot")
    clock = clock_for(schedule.until - schedule.begin)
    drawn, ((axes,),) = figure(11, 4.5)
    held = -np.bincount(job, weights=change * ((at - schedule.begin) / clock.length), minlength=len(schedule))
    holders = np.unique(job)
    shown = np.sort(holders[np.argsort(-held[holders], kind="stable")[:_SHOWN]])
    band = np.full(len(schedule), len(shown))
    band[shown] = np.arange(len(shown))
    others = len(holders) - len(shown)

    times = np.unique(np.concatenate(([schedule.begin], at, [schedule.until])))
    steps = len(times) <= _STEPS
    edges = times if steps else np.linspace(schedule.begin, schedule.until, _STEPS + 1).astype(np.int64)
    heights = []
    for number in range(len(shown) + (others > 0)):
        mine = band[job] == number
        heights.append(_means(at[mine], change[mine], edges))
    colours = [*COLOURS[: len(shown)], *[FAINT] * (others > 0)]
    names = [str(label) for label in schedule.label[shown]] + [f"{others} other jobs"] * (others > 0)
    drawn_heights = [np.append(height, height[-1]) for height in heights]
    axes.stackplot(
        edges / clock.length, drawn_heights, colors=colours, labels=names, step="post", linewidth=0, antialiased=steps
    )
    span = schedule.until - schedule.begin
    if schedule.offered and span:
        axes.axhline(schedule.offered / span, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="offered")
    axes.set_xlim(edges[0] / clock.length, edges[-1] / clock.length)
    axes.set_ylim(bottom=0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(f"time ({clock.unit})", color=INK)
    axes.set_ylabel("slots held", color=INK)
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(
        handles[::-1], labels[::-1], loc="outside right upper", frameon=False, fontsize=8, labelcolor=INK, title="job"
    )
    save(drawn, path)


def _changes(schedule: Schedule) -> tuple[IntArray, IntArray, IntArray]:
    """When which job came to hold how many slots more (or less); in order of time, and each job ends with none."""
    left = np.where(schedule.end == NOT_YET, schedule.until, schedule.end)
    if schedule.holdings is None:
        job = np.flatnonzero(schedule.start != NOT_YET)
        at = np.concatenate((schedule.start[job], left[job]))
        change = np.concatenate((schedule.slots[job], -schedule.slots[job]))
        job = np.concatenate((job, job))
    else:
        order = np.argsort(schedule.holdings.job, kind="stable")
        at, job, slots = (getattr(schedule.holdings, name)[order] for name in ("at", "job", "slots"))
        same = np.diff(job, prepend=-1) == 0
        change = slots - np.where(same, np.roll(slots, 1), 0)
        last = np.flatnonzero(np.diff(job, append=-1) != 0)
        last = last[slots[last] > 0]
        at = np.concatenate((at, left[job[last]]))
        change = np.concatenate((change, -slots[last]))
        job = np.concatenate((job, job[last]))
    order = np.argsort(at, kind="stable")
    return at[order], job[order], change[order]


def _means(at: IntArray, change: IntArray, edges: IntArray) -> FloatArray:
    """The mean of a sum of changes between each two edges, shape (edges - 1,); no two edges are equal."""
    # The area under the steps is linear between changes, so that interpolation is exact.
    area = np.concatenate(([0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(at).astype(np.float64))))
    return np.diff(np.interp(edges, at, area)) / np.diff(edges)
