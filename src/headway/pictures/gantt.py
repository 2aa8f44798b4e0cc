"""Which slot ran which job when, in which of its two places."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.instant import NEVER
from headway.model.schedule import NOT_YET, Attempts, Schedule
from headway.pictures.canvas import ALARM, COLOURS, FAINT, INK, Clock, clock_for, figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BARS: Final = 2_000  # above this bars are thinner than their edges, and a grid of pixels is drawn instead
_GRID: Final = (700, 1800)  # rows and columns of that grid, at most
_WASTED: Final = "#000000"
_LIGHT: Final = tuple(f"#{(int(colour[1:], 16) & 0xFEFEFE) // 2 + 0x7F7F7F:06x}" for colour in COLOURS)
_STRIP: Final = 0.36  # height of the background place; the foreground is seen above it


def gantt(schedule: Schedule, path: str | Path, *, slots: int | None = None, title: str = "") -> None:
    """Draw a Gantt chart: a bar an attempt, slots upwards, a colour a job (colours come again after twelve jobs).

    Attempts whose work was lost are hatched (black where bars are too small to be hatched); jobs that ended late have
    red edges; bars with room enough carry the job's label. What ran in the background is a lighter strip along the
    lower edge of its slot. Many attempts are drawn as a grid of pixels; where a slot has only one row of it, the
    background is seen only where there is no foreground.

    Args:
        slots: how many there are; default up to the highest that was used.
        path: its end says the format (.png, .svg, .pdf).

    Raises:
        HeadwayError: the schedule has no attempts, matplotlib is not installed, or the file cannot be written.
    """
    attempts = schedule.attempts
    if attempts is None or not len(attempts):
        raise HeadwayError("the schedule has no attempts to draw", "Let the simulation record attempts.")
    attempts = _slot_by_slot(attempts)
    slots = slots or int((attempts.first + attempts.count).max())
    clock = clock_for(schedule.until - schedule.begin)
    height = 0.45 if attempts.behind.any() else 0.28
    drawn, ((axes,),) = figure(11, float(np.clip(1.4 + height * slots, 2.6, 7)))
    small = len(attempts) <= _BARS
    (_bars if small else _pixels)(axes, schedule, attempts, slots, clock)
    axes.set_xlim(schedule.begin / clock.length, max(schedule.until, schedule.begin + 1) / clock.length)
    axes.set_ylim(0, slots)
    axes.set_xlabel(f"time ({clock.unit})", color=INK)
    axes.set_ylabel("slot", color=INK)
    if slots <= 24:
        axes.set_yticks(np.arange(slots) + 0.5, [str(slot) for slot in range(slots)])
        axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    _legend(axes, schedule, attempts, small)
    save(drawn, path)


def _slot_by_slot(attempts: Attempts) -> Attempts:
    """The same with a row a slot for what ran in the background: its strips do not hang together."""
    behind = attempts.behind
    rows = np.repeat(np.arange(len(attempts)), np.where(behind, attempts.count, 1))
    first = attempts.first[rows] + np.arange(len(rows)) - np.searchsorted(rows, rows)
    return Attempts(
        job=attempts.job[rows],
        first=first,
        count=np.where(behind, 1, attempts.count)[rows],
        start=attempts.start[rows],
        end=attempts.end[rows],
        wasted=attempts.wasted[rows],
        behind=behind[rows],
    )


def _late(schedule: Schedule) -> NDArray[np.bool_]:
    ended = np.where(schedule.end == NOT_YET, schedule.until, schedule.end)
    return (schedule.due < NEVER) & (ended > schedule.due)


def _bars(axes: Axes, schedule: Schedule, attempts: Attempts, slots: int, clock: Clock) -> None:
    from matplotlib.collections import PolyCollection

    left, right = attempts.start / clock.length, attempts.end / clock.length
    behind, two_tiers = attempts.behind, bool(attempts.behind.any())
    low, high = attempts.first + 0.06, attempts.first + np.where(behind, _STRIP, attempts.count - 0.06)
    corners = np.stack(
        [np.stack(corner, axis=-1) for corner in ((left, low), (left, high), (right, high), (right, low))], axis=1
    )
    colour = attempts.job % len(COLOURS)
    faces = np.where(behind, np.array(_LIGHT)[colour], np.array(COLOURS)[colour])
    late, wasted = _late(schedule)[attempts.job], attempts.wasted
    span = max(schedule.until - schedule.begin, 1)
    narrow = (attempts.end - attempts.start) / span < 0.002  # a white edge would leave nothing of it
    for tier, (which, edge, width, hatch) in product(
        (~behind, behind),
        (
            (~late & ~wasted & ~narrow, "white", 0.4, None),
            (~late & ~wasted & narrow, "face", 0.4, None),
            (late & ~wasted, ALARM, 1.2, None),
            (wasted, INK, 0.4, "////"),
        ),
    ):
        which = which & tier
        axes.add_collection(
            PolyCollection(
                list(corners[which]), facecolors=faces[which], edgecolors=edge, linewidths=width, hatch=hatch
            )
        )
    for slot in range(1, slots if slots <= 60 else 0):
        axes.axhline(slot, color=FAINT, linewidth=0.5, zorder=0)
    # Strips may lie over all but the upper part of the highest slot. A letter is about 0.6 % of the picture wide and
    # 3 % of the highest picture high.
    bottom = np.where(two_tiers & ~behind, attempts.first + attempts.count - 1 + _STRIP, low)
    labels = schedule.label[attempts.job]
    for label, is_behind, x0, x1, y0, y1 in zip(
        *(column.tolist() for column in (labels, behind, left, right, bottom, high)), strict=True
    ):
        if (x1 - x0) * clock.length / span > 0.006 * (len(str(label)) + 1) and (y1 - y0) / slots > 0.03:
            size, ink = (6, INK) if is_behind else (7.5, "white")
            middle = (x0 + x1) / 2, (y0 + y1) / 2
            axes.text(*middle, label, ha="center", va="center", fontsize=size, color=ink, clip_on=True)


def _pixels(axes: Axes, schedule: Schedule, attempts: Attempts, slots: int, clock: Clock) -> None:
    from matplotlib.colors import ListedColormap

    behind = attempts.behind
    places = 2 if behind.any() and 2 * slots <= _GRID[0] else 1
    rows, columns = min(slots * places, _GRID[0]), _GRID[1]
    span = max(schedule.until - schedule.begin, 1)
    grid = np.zeros((rows, columns), dtype=np.uint8)
    low = attempts.first * rows // slots
    high = np.maximum(low + 1, -(-(attempts.first + attempts.count) * rows // slots))
    high = np.where(behind & (places == 2), low + 1, high)
    # As fractions, for microseconds times pixels can pass the range of an integer.
    left = ((attempts.start - schedule.begin) / span * columns).astype(np.int64)
    right = np.maximum(left + 1, np.rint((attempts.end - schedule.begin) / span * columns).astype(np.int64))
    colour = attempts.job % len(COLOURS)
    shade = np.where(attempts.wasted, 2 * len(COLOURS) + 1, np.where(behind, len(COLOURS) + colour, colour) + 1)
    order = np.argsort(behind if places == 2 else ~behind, kind="stable")
    for y0, y1, x0, x1, colour in zip(
        *(array[order].tolist() for array in (low, high, left, right, shade)), strict=True
    ):
        grid[y0:y1, x0:x1] = colour
    axes.imshow(
        grid,
        cmap=ListedColormap(["white", *COLOURS, *_LIGHT, _WASTED]),
        vmin=0,
        vmax=2 * len(COLOURS) + 1,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(schedule.begin / clock.length, schedule.until / clock.length, 0, slots),
    )


def _legend(axes: Axes, schedule: Schedule, attempts: Attempts, small: bool) -> None:
    from matplotlib.patches import Patch

    entries = []
    if small and _late(schedule)[attempts.job].any():
        entries.append(Patch(facecolor="white", edgecolor=ALARM, linewidth=1.2, label="job ended late"))
    if attempts.wasted.any():
        face, hatch = ("white", "////") if small else (_WASTED, None)
        entries.append(Patch(facecolor=face, hatch=hatch, edgecolor=INK, linewidth=0.4, label="work was lost"))
    if attempts.behind.any():
        entries.append(Patch(facecolor=FAINT, linewidth=0, label="in the background of the slot"))
    if entries:
        axes.legend(
            handles=entries,
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=3,
            frameon=False,
            fontsize=8,
            labelcolor=INK,
        )
