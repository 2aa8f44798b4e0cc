"""Which slot ran which job when, in which of its two places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.instant import NEVER
from headway.model.node import NodeSpec
from headway.model.schedule import NOT_YET, Attempts, Schedule
from headway.model.slots import numbers
from headway.pictures.canvas import (
    ALARM,
    COLOURS,
    FAINT,
    INK,
    SOFT,
    TimeUnit,
    entitle,
    figure,
    finish,
    time_axis,
    time_unit_of,
    whole,
    wrap,
)
from headway.pictures.series import Excerpt, excerpt_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS: Final = 2_000  # with more, bars are thinner than their edges, so a grid of pixels is drawn instead
_GRID: Final = (700, 1800)  # rows and columns of that grid, at most
_PLACES_MAX: Final = 350  # rows at most if each slot has one for each of its two places; thinner ones flicker
_NOTE: Final = f"Labels in bars are jobs. Colours distinguish neighbours; they repeat after {len(COLOURS)} jobs."
_NOTE_OF_TASKS: Final = f"Labels in bars are tasks. Their colours repeat after {len(COLOURS)} tasks."
_LIGHT: Final = tuple(f"#{(int(colour[1:], 16) & 0xFEFEFE) // 2 + 0x7F7F7F:06x}" for colour in COLOURS)
_STRIP: Final = 0.36  # height of the background place; the foreground is seen above it
_SLOTS_NAMED: Final = 24
_NODES_NAMED: Final = 40
_NODES_DIVIDED: Final = 200  # with more nodes, lines between them would cover the bars
_LEAST_LETTERS: Final = 5  # points; smaller labels cannot be read
_BRIGHT: Final = 0.257  # luminance above which dark letters are easier to read than white ones
# What pixels stand for. Twelve colours cannot distinguish so many jobs, so they show what became of them.
_INSTANT: Final = "task without a length"
_FATES: Final = (
    ("#7f9cbf", "ran"),
    ("#d6604d", "ran, and its job ended late"),
    ("#c3d2e3", "ran in the background of the slot"),
    ("#454a52", "work was lost"),
)
_RAN, _LATE, _BEHIND, _LOST = range(1, 5)


def gantt(
    schedule: Schedule,
    path: str | Path | None = None,
    *,
    start: float | None = None,
    end: float | None = None,
    slots: int | None = None,
    title: str = "",
) -> Figure:
    """Draw a Gantt chart: slots upwards, a bar for each attempt, a colour for each job (repeated after twelve jobs).

    Attempts whose work was lost are hatched. Jobs that ended late have red edges. Bars show the job's label if there is
    room. What ran in the background is a lighter strip along the lower edge of its slot. More than 2,000 bars cannot be
    distinguished: then colours show what became of jobs. To see single jobs, draw a shorter span of time.

    If there are several nodes, and not too many, slots stand by site and node, which are named. If there is only one
    job, and it is a workflow, bars show its tasks.

    Args:
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        start, end: draw only the time between them, in seconds on the schedule's clock.
        slots: how many there are; default up to the highest that was used.

    Raises:
        InvalidInput: no part of the run is between `start` and `end`.
        HeadwayError: the schedule has no attempts, matplotlib is not installed, or the file cannot be written.
    """
    attempts = schedule.attempts
    if attempts is None or not len(attempts):
        raise HeadwayError("the schedule has no attempts to draw", "Let the simulation record attempts (record=True).")
    excerpt = excerpt_of(schedule, start, end)
    slots = slots or int((attempts.first + attempts.count).max())
    attempts = _within(attempts, excerpt)
    small = len(attempts) <= _BARS
    strips = _strips(schedule, slots)
    attempts = _in_strips(_slot_by_slot(attempts), strips)
    by_task = len(schedule) == 1 and 0 in schedule.workflows
    time_unit = time_unit_of(excerpt.begin, excerpt.end)
    height = 0.45 if attempts.behind.any() else 0.28
    drawn, ((axes,),) = figure(11, float(np.clip(1.6 + height * slots, 2.8, 7.2)))
    time_axis(axes, time_unit, excerpt.begin, excerpt.end)
    axes.set_ylim(0, slots)
    if small:
        _bars(axes, schedule, attempts, slots, excerpt, by_task=by_task)
    else:
        _pixels(axes, schedule, attempts, slots, excerpt)
    if strips:
        _name_nodes(axes, strips)
    else:
        axes.set_ylabel("slot", color=INK)
        _name_slots(axes, slots)
    (_legend if small else _legend_of_pixels)(axes, schedule, attempts)
    note = _NOTE_OF_TASKS if by_task else _NOTE
    entitle(drawn, title, " ".join(filter(None, (note if small else "", _never_ran(schedule)))))
    if small:
        _label(drawn, axes, schedule, attempts, time_unit, by_task=by_task)
    return finish(drawn, path)


@dataclass(frozen=True, slots=True)
class _Strip:
    """A part of the picture's height that belongs to one node.

    Attributes:
        spec: the node.
        slots: the numbers of its slots, upwards.
        low: where it begins.
    """

    spec: NodeSpec
    slots: tuple[int, ...]
    low: int


def _strips(schedule: Schedule, slots: int) -> list[_Strip]:
    """The nodes upwards, those of a site together; empty if there is one, or if nodes had the same slots in turn."""
    taken = 0
    for _, held in schedule.nodes:
        if taken & held:
            return []
        taken |= held
    if not 2 <= len(schedule.nodes) <= _NODES_DIVIDED or taken.bit_count() != slots:
        return []
    sites = {spec.site: place for place, (spec, _) in reversed(list(enumerate(schedule.nodes)))}
    found: list[_Strip] = []
    low = 0
    for spec, held in sorted(schedule.nodes, key=lambda node: sites[node[0].site]):
        found.append(_Strip(spec, tuple(numbers(held)), low))
        low += held.bit_count()
    return found


def _in_strips(attempts: Attempts, strips: list[_Strip]) -> Attempts:
    """The attempts where the strips are: with their first slot as its place from below."""
    place = {slot: strip.low + above for strip in strips for above, slot in enumerate(strip.slots)}
    if all(place[slot] == slot for slot in place):
        return attempts
    # A row is a run of slots of one node, and these stand upwards: where the first one goes, the others follow.
    return replace(attempts, first=np.array([place[slot] for slot in attempts.first.tolist()], dtype=np.int64))


def _within(attempts: Attempts, excerpt: Excerpt) -> Attempts:
    """The attempts that ran in the excerpt, also those without a length."""
    rows = (attempts.start <= excerpt.end) & (attempts.end >= excerpt.begin)
    rows &= (attempts.end > excerpt.begin) | (attempts.start == attempts.end)
    rows &= (attempts.start < excerpt.end) | (attempts.start == attempts.end)
    return _rows(attempts, np.flatnonzero(rows))


def _rows(attempts: Attempts, rows: NDArray[np.int64]) -> Attempts:
    return Attempts(*(getattr(attempts, name)[rows] for name in Attempts.__slots__))


def _slot_by_slot(attempts: Attempts) -> Attempts:
    """The attempts, with a row for each slot of those in the background, because their strips are drawn one by one."""
    behind = attempts.behind
    rows = np.repeat(np.arange(len(attempts)), np.where(behind, attempts.count, 1))
    first = attempts.first[rows] + np.arange(len(rows)) - np.searchsorted(rows, rows)
    return Attempts(
        job=attempts.job[rows],
        task=attempts.task[rows],
        node=attempts.node[rows],
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


def _never_ran(schedule: Schedule) -> str:
    """How many jobs have no bar because they never ran, as a sentence. Empty if there are none."""
    jobs = int(np.count_nonzero(schedule.start == NOT_YET))
    never = "1 job" if jobs == 1 else f"{jobs:,} jobs"
    return f"{never} of {len(schedule):,} never ran." if jobs else ""


def _name_slots(axes: Axes, slots: int) -> None:
    if slots <= _SLOTS_NAMED:
        axes.set_yticks(np.arange(slots) + 0.5, [str(slot) for slot in range(slots)])
        axes.tick_params(axis="y", length=0)
    else:
        whole(axes.yaxis)


def _name_nodes(axes: Axes, strips: list[_Strip]) -> None:
    """Name nodes at the left and sites at the right, with lines between them."""
    begins = {strip.low: strip.spec.site for strip in strips}
    sites = dict.fromkeys(begins.values())
    before = strips[0].spec.site
    for low, site in begins.items():
        if low:
            axes.axhline(low, color=INK if site != before else SOFT, linewidth=1.2 if site != before else 0.5, zorder=4)
        before = site
    if len(strips) <= _NODES_NAMED:
        middles = [strip.low + len(strip.slots) / 2 for strip in strips]
        axes.set_yticks(middles, [wrap(strip.spec.name, 1.2, 8) for strip in strips], fontsize=8)
        axes.tick_params(axis="y", length=0)
        axes.set_ylabel("node" if len(sites) > 1 else f"node of {before}", color=INK)
    else:
        axes.set_ylabel("slot, by node", color=INK)
        whole(axes.yaxis)
    for site in sites if len(sites) > 1 else ():
        of_site = [strip for strip in strips if strip.spec.site == site]
        middle = (of_site[0].low + of_site[-1].low + len(of_site[-1].slots)) / 2
        how: dict[str, Any] = {"rotation": -90, "va": "center", "ha": "left", "color": INK, "fontsize": 8}
        axes.annotate(site, (1.005, middle), xycoords=("axes fraction", "data"), **how)


def _bars(
    axes: Axes, schedule: Schedule, attempts: Attempts, slots: int, excerpt: Excerpt, *, by_task: bool = False
) -> None:
    from matplotlib.collections import PolyCollection

    time_unit = time_unit_of(excerpt.begin, excerpt.end)
    left, right = attempts.start / time_unit.length, attempts.end / time_unit.length
    behind = attempts.behind
    low, high = attempts.first + 0.06, attempts.first + np.where(behind, _STRIP, attempts.count - 0.06)
    corners = np.stack(
        [np.stack(corner, axis=-1) for corner in ((left, low), (left, high), (right, high), (right, low))], axis=1
    )
    faces = _faces(attempts, by_task=by_task)
    late, wasted = _late(schedule)[attempts.job], attempts.wasted
    span = max(excerpt.end - excerpt.begin, 1)
    narrow = (attempts.end - attempts.start) / span < 0.002  # a white edge would cover them
    for tier, (which, edge, width, hatch) in product(
        (~behind, behind),
        (
            (~late & ~wasted & ~narrow, "white", 0.4, None),
            (~late & ~wasted & narrow, "face", 0.8, None),
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
    instants = attempts.start == attempts.end
    if instants.any():
        at = left[instants], (attempts.first + attempts.count / 2)[instants]
        axes.scatter(*at, s=16, marker="D", color=list(faces[instants]), clip_on=False, zorder=3, label=_INSTANT)
    for slot in range(1, slots if slots <= 60 else 0):
        axes.axhline(slot, color=FAINT, linewidth=0.5, zorder=0)


def _faces(attempts: Attempts, *, by_task: bool) -> NDArray[np.str_]:
    """The colour of each bar."""
    colour = (attempts.task if by_task else attempts.job) % len(COLOURS)
    return np.where(attempts.behind, np.array(_LIGHT)[colour], np.array(COLOURS)[colour])


def _label(
    drawn: Figure, axes: Axes, schedule: Schedule, attempts: Attempts, time_unit: TimeUnit, *, by_task: bool = False
) -> None:
    """Write the labels of jobs or tasks into the bars that have room for them in the finished layout."""
    drawn.draw_without_rendering()
    behind, two_tiers = attempts.behind, bool(attempts.behind.any())
    # Strips may lie over all but the upper part of the highest slot. Where that is too thin, labels lie over strips.
    slot = float(np.diff(axes.transData.transform([(0, 0), (0, 1)])[:, 1])[0]) * 72 / drawn.dpi
    over = two_tiers & ~behind & (attempts.count > 1) & ((0.94 - _STRIP) * slot < _LEAST_LETTERS / 0.95)
    low = attempts.first + np.where(two_tiers & ~behind & ~over, attempts.count - 1 + _STRIP, 0.06)
    high = attempts.first + np.where(behind, _STRIP, attempts.count - 0.06)
    begin, end = axes.get_xlim()
    left, right = (np.clip(edge / time_unit.length, begin, end) for edge in (attempts.start, attempts.end))
    corners = axes.transData.transform(np.stack((left, low), axis=-1))
    room = axes.transData.transform(np.stack((right, high), axis=-1)) - corners
    over |= attempts.wasted  # and over hatches
    columns = behind, over, (left + right) / 2, (low + high) / 2, room, _faces(attempts, by_task=by_task)
    labels = schedule.label[attempts.job].tolist()
    if by_task:
        labels = [schedule.task_label(0, task) for task in attempts.task.tolist()]
    for label, is_behind, lies_over, x, y, (width, height), face in zip(
        labels, *(part.tolist() for part in columns), strict=True
    ):
        ink = INK if is_behind or _luminance(face) > _BRIGHT else "white"
        size = min(6 if is_behind else 7.5, 0.95 * height * 72 / drawn.dpi)
        if size < _LEAST_LETTERS or width < 0.45 * size * drawn.dpi / 72 * len(str(label)):
            continue
        text = axes.text(x, y, str(label), ha="center", va="center", fontsize=size, color=ink, clip_on=True)
        if text.get_window_extent().width > width - 2:
            text.remove()
        elif lies_over:
            text.set_bbox({"facecolor": face, "edgecolor": "none", "pad": 0.8})


def _luminance(colour: str) -> float:
    """How bright a colour looks, 0 to 1.

    Source: relative luminance as of WCAG 2.1.
    """
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _pixels(axes: Axes, schedule: Schedule, attempts: Attempts, slots: int, excerpt: Excerpt) -> None:
    from matplotlib.colors import ListedColormap

    behind = attempts.behind
    places = 2 if behind.any() and 2 * slots <= _PLACES_MAX else 1
    rows, columns = min(slots * places, _GRID[0]), _GRID[1]
    span = max(excerpt.end - excerpt.begin, 1)
    grid = np.zeros((rows, columns), dtype=np.uint8)
    low = attempts.first * rows // slots
    high = np.maximum(low + 1, -(-(attempts.first + attempts.count) * rows // slots))
    high = np.where(behind & (places == 2), low + 1, high)
    # As fractions, because microseconds times pixels may exceed the range of an integer.
    left = np.clip((attempts.start - excerpt.begin) / span * columns, 0, columns - 1).astype(np.int64)
    right = np.rint(np.clip((attempts.end - excerpt.begin) / span * columns, 0, columns)).astype(np.int64)
    right = np.maximum(left + 1, right)
    fate = _fates(schedule, attempts)
    # What matters most is on top: late jobs above others, lost work above both.
    order = np.lexsort((fate, behind if places == 2 else ~behind))
    for y0, y1, x0, x1, shade in zip(*(array[order].tolist() for array in (low, high, left, right, fate)), strict=True):
        grid[y0:y1, x0:x1] = shade
    begin, end = axes.get_xlim()
    axes.imshow(
        grid,
        cmap=ListedColormap(["white", *(colour for colour, _ in _FATES)]),
        vmin=0,
        vmax=len(_FATES),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(begin, end, 0, slots),
    )


def _fates(schedule: Schedule, attempts: Attempts) -> NDArray[np.uint8]:
    """What a pixel of each attempt stands for, as a number from 1."""
    late = _late(schedule)[attempts.job]
    fate = np.where(attempts.wasted, _LOST, np.where(late, _LATE, np.where(attempts.behind, _BEHIND, _RAN)))
    return fate.astype(np.uint8)


def _legend(axes: Axes, schedule: Schedule, attempts: Attempts) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = []
    if (_late(schedule)[attempts.job] & ~attempts.wasted).any():
        entries.append(Patch(facecolor="white", edgecolor=ALARM, linewidth=1.2, label="job ended late"))
    if attempts.wasted.any():
        entries.append(Patch(facecolor="white", hatch="////", edgecolor=INK, linewidth=0.4, label="work was lost"))
    if attempts.behind.any():
        entries.append(Patch(facecolor=FAINT, linewidth=0, label="in the background of the slot"))
    if (attempts.start == attempts.end).any():
        entries.append(Line2D([], [], color=INK, marker="D", markersize=4, linestyle="none", label=_INSTANT))
    _above(axes, entries)


def _legend_of_pixels(axes: Axes, schedule: Schedule, attempts: Attempts) -> None:
    from matplotlib.patches import Patch

    present = np.unique(_fates(schedule, attempts)).tolist()
    _above(axes, [Patch(facecolor=_FATES[fate - 1][0], linewidth=0, label=_FATES[fate - 1][1]) for fate in present])


def _above(axes: Axes, entries: list[Any]) -> None:
    if entries:
        axes.legend(
            handles=entries,
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=len(entries),
            frameon=False,
            fontsize=8,
            labelcolor=INK,
        )
