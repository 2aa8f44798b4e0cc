"""The graph of a workflow: which task waits for which, and its critical path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.errors import InvalidInput
from headway.model.graph import critical_path, levels
from headway.model.job import TaskSpec
from headway.pictures.canvas import ALARM, COLOURS, FAINT, INK, SOFT, entitle, figure, finish, time_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headway.model.workload import FloatArray

TASKS_DRAWN_MAX: Final = 500
"""With more tasks, a picture shows nothing but lines."""

_SWEEPS: Final = 8  # rounds in which tasks go where those are that they wait for, or that wait for them
_LABELLED_MAX: Final = 60
_LABEL_MAX: Final = 18  # letters
_AREAS: Final = (14.0, 220.0)  # of the mark of a task, in square points: of the shortest, and of the longest


def workflow(
    tasks: Sequence[TaskSpec], path: str | Path | None = None, *, labels: Sequence[str] = (), title: str = ""
) -> Figure:
    """Draw the graph of a workflow: tasks from left to right after those that they wait for, the critical path in red.

    The area of a mark grows with the run time of its task. Labels are drawn if there are few tasks.

    Args:
        path: the file to write; its ending sets the format (.png, .svg, .pdf). None: the figure is only returned.
        labels: what the tasks are called; default their numbers.

    Raises:
        InvalidInput: there are no tasks, or more than 500; or the path names no format.
        HeadwayError: matplotlib is not installed, or the file cannot be written.
    """
    if not 1 <= len(tasks) <= TASKS_DRAWN_MAX:
        raise InvalidInput("number of tasks to draw", len(tasks), f"1 to {TASKS_DRAWN_MAX}")
    across, up = places(tasks)
    columns, rows = int(across.max()) + 1, float(up.max() - up.min()) + 1
    labelled = len(tasks) <= _LABELLED_MAX
    height = float(np.clip(0.9 + (0.36 if labelled else 0.24) * rows, 2.6, 8.0))
    drawn, ((axes,),) = figure(float(np.clip(1.2 + 1.1 * columns, 5.0, 14.0)), height)
    axes.set_axis_off()
    way = critical_path(tasks)
    _edges(axes, tasks, across, up, way)
    _marks(axes, tasks, across, up, way)
    if labelled:
        _labels(axes, labels or [str(number) for number in range(len(tasks))], across, up)
    axes.margins(0.06, 0.08)
    entitle(drawn, title, _note(tasks, way))
    return finish(drawn, path)


def places(tasks: Sequence[TaskSpec]) -> tuple[FloatArray, FloatArray]:
    """Where the tasks of a workflow stand: to the right by level, and upwards so that edges cross little.

    Tasks of a level are sorted again and again by the mean height of those that they wait for, then of those that wait
    for them (Sugiyama, Tagawa & Toda, "Methods for visual understanding of hierarchical system structures", IEEE SMC
    11, 1981).
    """
    level = levels(tasks)
    followers: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for before in task.after:
            followers[before].append(number)
    by_level: list[list[int]] = [[] for _ in range(max(level) + 1)]
    for number, of in enumerate(level):
        by_level[of].append(number)
    up = np.zeros(len(tasks))
    for members in by_level:
        _stack(up, members)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        for members in by_level if forwards else reversed(by_level):
            near = {task: tasks[task].after if forwards else followers[task] for task in members}
            mean = {task: float(np.mean(up[list(by)])) if by else float(up[task]) for task, by in near.items()}
            members.sort(key=lambda task: (mean[task], task))
            _stack(up, members)
    return np.array(level, dtype=np.float64), up


def _stack(up: FloatArray, members: Sequence[int]) -> None:
    """Put tasks one above the other, around the middle."""
    for place, task in enumerate(members):
        up[task] = place - (len(members) - 1) / 2


def _edges(axes: Axes, tasks: Sequence[TaskSpec], across: FloatArray, up: FloatArray, way: Sequence[int]) -> None:
    from matplotlib.collections import LineCollection

    after = dict(zip(way[1:], way, strict=False))
    pairs = [(before, number) for number, task in enumerate(tasks) for before in task.after]
    for red, colour, width in ((False, SOFT if len(pairs) < 200 else FAINT, 0.6), (True, ALARM, 1.6)):
        chosen = [pair for pair in pairs if (after.get(pair[1]) == pair[0]) is red]
        ends = [[(across[number], up[number]) for number in pair] for pair in chosen]
        axes.add_collection(LineCollection(ends, colors=colour, linewidths=width, zorder=1 + red))


def _marks(axes: Axes, tasks: Sequence[TaskSpec], across: FloatArray, up: FloatArray, way: Sequence[int]) -> None:
    lasts = np.array([task.estimate for task in tasks], dtype=np.float64)
    areas = _AREAS[0] + (_AREAS[1] - _AREAS[0]) * lasts / max(float(lasts.max()), 1.0)
    on_way = np.isin(np.arange(len(tasks)), way)
    faces = [ALARM if red else COLOURS[0] for red in on_way.tolist()]
    axes.scatter(across, up, s=areas, c=faces, edgecolors="white", linewidths=0.6, zorder=3)


def _labels(axes: Axes, labels: Sequence[str], across: FloatArray, up: FloatArray) -> None:
    for label, x, y in zip(labels, across.tolist(), up.tolist(), strict=True):
        short = label if len(label) <= _LABEL_MAX else f"{label[:4]}…{label[5 - _LABEL_MAX :]}"
        axes.annotate(short, (x, y), (0, -8), textcoords="offset points", ha="center", va="top", fontsize=6, color=INK)


def _note(tasks: Sequence[TaskSpec], way: Sequence[int]) -> str:
    whole, longest = sum(task.estimate for task in tasks), sum(tasks[number].estimate for number in way)
    edges = sum(len(task.after) for task in tasks)
    return (
        f"{len(tasks):,} tasks and {edges:,} edges. Red: the critical path, {time_words(longest)} of "
        f"{time_words(whole)} of work, without transfers. The larger a mark, the longer the task."
    )
