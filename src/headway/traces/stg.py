"""Task graphs of the Standard Task Graph Set: text, a line for each task.

```
3                  # tasks, without the two dummies
0   0   0          # number, processing time, how many tasks it waits for, their numbers
1   5   1   0
...
```

Source: Tobita & Kasahara, "A standard task graph set for fair evaluation of multiprocessor scheduling algorithms",
Journal of Scheduling 5, 2002.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from headway.errors import InvalidInput
from headway.traces.graphs import FILE_TASKS_MAX, TIME, Graph, ReadWorkflow, is_time

DUMMIES: Final = 2
_COMMENT: Final = "#"


def read_stg(text: Iterable[str], source: str, name: str) -> ReadWorkflow:
    """The workflow in the lines of a file. Processing times are seconds, and tasks send each other nothing.

    The first line says how many tasks there are. If there are two more, the first and the last of them are the dummies,
    entry and exit, which take no time. They are left out.

    Args:
        source: what errors call the file.
        name: of the workflow.

    Raises:
        InvalidInput: a line is wrong, or tasks wait for each other in a circle. The message names the line.
    """
    rows = ((line, row.split(_COMMENT)[0].split()) for line, row in enumerate(text, 1))
    rows = ((line, cells) for line, cells in rows if cells)
    line, cells = next(rows, (1, []))
    told = _whole(cells[0]) if len(cells) == 1 else None
    if told is None or not 1 <= told <= FILE_TASKS_MAX:
        raise InvalidInput(
            "number of tasks",
            " ".join(cells[:3]),
            f"a whole number from 1 to {FILE_TASKS_MAX}",
            source=source,
            line=line,
        )
    times: list[tuple[str, float]] = []
    lines = array("q")
    before: list[array[int]] = []
    for line, cells in rows:
        if len(times) == told + DUMMIES:
            raise InvalidInput("task", cells[0], f"{told} tasks, and two dummies", source=source, line=line)
        label, seconds, parents = _row(cells, len(times), told + DUMMIES, source, line)
        times.append((label, seconds))
        before.append(parents)
        lines.append(line)
    dummies = len(times) == told + DUMMIES
    if not dummies and len(times) != told:
        raise InvalidInput("number of tasks", len(times), f"{told}, or with dummies {told + DUMMIES}", source=source)
    left_out = {0, len(times) - 1} if dummies else set()
    for number in left_out:
        _check_dummy(number, times, before, source, lines[number])
    graph = Graph(source)
    kept = [number for number in range(len(times)) if number not in left_out]
    for number in kept:
        graph.add(*times[number])
    for position, number in enumerate(kept):
        for parent in before[number]:
            if parent >= len(times) or (parent == len(times) - 1 and dummies):
                allowed = f"numbers of tasks, 0 to {len(times) - 1 - dummies}"
                raise InvalidInput(f"what task {number} waits for", parent, allowed, source=source, line=lines[number])
            if parent not in left_out:
                graph.link(parent - dummies, position)

    def refuse(position: int, way: str) -> InvalidInput:
        number = kept[position]
        allowed = "tasks that do not wait for it"
        return InvalidInput(f"what task {number} waits for", way, allowed, source=source, line=lines[number])

    return graph.finish(name, refuse)


def _row(cells: list[str], number: int, tasks: int, source: str, line: int) -> tuple[str, float, array[int]]:
    """A task: its label, its processing time, and for which tasks it waits."""

    def refuse(field: str, value: object, allowed: str) -> InvalidInput:
        return InvalidInput(field, value, allowed, source=source, line=line)

    if len(cells) < 3:
        raise refuse("number of fields", len(cells), "3 or more: task, processing time, how many tasks it waits for")
    if _whole(cells[0]) != number:
        raise refuse("number of the task", cells[0], f"{number}: tasks are numbered from 0, in order")
    try:
        seconds = float(cells[1])
    except ValueError:
        seconds = -1.0
    if not is_time(seconds):
        raise refuse("processing time", cells[1], TIME)
    count = _whole(cells[2])
    if count != len(cells) - 3:
        raise refuse("how many tasks it waits for", cells[2], f"{len(cells) - 3}, as many as the line names")
    parents = array("q")
    for cell in cells[3:]:
        parent = _whole(cell)
        if parent is None or not 0 <= parent < tasks:
            raise refuse(f"what task {number} waits for", cell, f"numbers of tasks, 0 to {tasks - 1}")
        parents.append(parent)
    return cells[0], seconds, parents


def _check_dummy(number: int, times: list[tuple[str, float]], before: list[array[int]], source: str, line: int) -> None:
    """See that a dummy takes no time, and that the first one waits for nothing."""
    if times[number][1]:
        said = "0, because it is a dummy: the file has two tasks more than its first line says"
        raise InvalidInput(f"processing time of task {number}", times[number][1], said, source=source, line=line)
    if number == 0 and before[0]:
        allowed = "none, because it is a dummy"
        raise InvalidInput("what task 0 waits for", before[0][0], allowed, source=source, line=line)


def _whole(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 10 else None
