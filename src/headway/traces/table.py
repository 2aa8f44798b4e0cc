"""Headway's own workload file: CSV with a heading and one line for each job. An empty cell stands for the default.

Times are numbers of seconds, or durations such as `1h30m`.

| column | meaning | default |
| --- | --- | --- |
| job | its label, which no other line has | the number of its line, without the heading |
| release | earliest start | 0 |
| tasks | tasks of a bag | 1 |
| width | slots that a rigid job needs at once; a job with a width and one task is rigid | 1 |
| runtime | how long a task really runs on a node of speed factor 1 | the estimate |
| estimate | its expected run time; `none` if not known | the run time |
| due | wanted completion, on the clock of the releases | none |
| priority | higher is more important | 0 |
| rate | penalty of tardiness, for each unit of the shape | 1 |
| shape | how the penalty grows with the seconds of tardiness: linear, sqrt or square | linear |
| user | who submitted it | no user |
| cpu | mean CPU use of its processes, 0 to 1 | not known |
| after | labels of jobs that must have succeeded before it starts, `;` between them | none |
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import NEVER, seconds_text
from headway.model.job import SHAPES, Kind
from headway.model.workload import Workload, workload_us
from headway.traces.cells import (
    AMOUNT_CELL,
    COUNT_CELL,
    SHAPE,
    TIME_CELL,
    Cells,
    amount_of,
    count_of,
    heading,
    number_of,
    rows,
    shape_of,
    share_of,
    time_of,
)
from headway.traces.files import reading, writing
from headway.traces.formats import READABLE_HINT

TABLE_COLUMNS: Final = (
    "job",
    "release",
    "tasks",
    "width",
    "runtime",
    "estimate",
    "due",
    "priority",
    "rate",
    "shape",
    "user",
    "cpu",
    "after",
)
UNSAID: Final = "none"
AND: Final = ";"


def read_table(path: str | Path) -> Workload:
    """The workload in a CSV file, plain or gzipped. Its columns are in any order, and most may be absent.

    A due date before the release is allowed, and mentioned in `notes`.

    Raises:
        InvalidInput: a column is unknown, missing or there twice, or a cell has a value that is not allowed. The
            message names file, line, column, value and what is allowed.
        HeadwayError: the file cannot be read.
    """
    path = Path(path)
    with reading(path, "utf-8-sig") as text:
        return _jobs(path, rows(path, text, lambda cells: _heading(path, cells)))


def labels(text: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The line number of each job of a readable table, and the job's label in a list of one entry."""
    lines = csv.reader(text)
    names = [cell.strip().lower() for cell in next(lines)]
    for position, cells in enumerate(filter(None, lines), 1):
        yield lines.line_num, [dict(zip(names, map(str.strip, cells), strict=True)).get("job") or str(position)]


def _heading(path: Path, cells: Sequence[str]) -> list[str]:
    names = heading(path, cells, TABLE_COLUMNS, READABLE_HINT)
    if not {"runtime", "estimate"} & set(names):
        raise InvalidInput("columns", ",".join(names), "runtime, estimate or both among them", source=str(path), line=1)
    return names


def _jobs(path: Path, lines: Iterable[tuple[int, Cells]]) -> Workload:
    # Arrays hold a number in eight bytes, lists in forty.
    columns: dict[str, Any] = {name: array("q") for name in ("release", "tasks", "width", "runtime", "estimate", "due")}
    columns |= {
        "priority": array("d"),
        "rate": array("d"),
        "cpu": array("d"),
        "kind": array("q"),
        "shape": array("b"),
        "job": [],
        "user": [],
    }
    named: dict[int, tuple[int, str]] = {}
    labels: set[str] = set()
    early: list[int] = []
    for line, cells in lines:
        try:
            job = _job(cells, len(labels) + 1)
            if job["job"] in labels:
                raise InvalidInput("job", job["job"], "a name that no other line has")
        except InvalidInput as flaw:
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=str(path), line=line) from None
        if after := job.pop("after"):
            named[len(labels)] = line, after
        labels.add(job["job"])
        for name, value in job.items():
            columns[name].append(value)
        if job["due"] < job["release"]:
            early.append(line)
    if not labels:
        raise InvalidInput("number of jobs", 0, "1 or more", source=str(path))
    # Labels become numbers only if they are all printed as they were written.
    numeric = all(label.isdecimal() and len(label) < 19 and str(int(label)) == label for label in labels)
    label = columns.pop("job")
    after = _after(path, named, label, columns["release"])
    note = f"jobs due before their release: {len(early)}, first in line {early[0]}" if early else ""
    return workload_us(
        label=np.array(label, dtype=np.int64 if numeric else object),
        user=np.array(columns.pop("user"), dtype=object),
        notes=(note,) if note else (),
        after=after,
        **columns,
    )


def _after(
    path: Path, named: Mapping[int, tuple[int, str]], label: Sequence[str], release: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """The positions of the jobs that others come after, from their labels.

    Args:
        named: by position, the line number and the labels as written.

    Raises:
        InvalidInput: there is no such job, or it is released after the job that comes after it.
    """
    places = {name: position for position, name in enumerate(label)} if named else {}
    found: dict[int, tuple[int, ...]] = {}
    for position, (line, text) in named.items():
        before = []
        for name in filter(None, map(str.strip, text.split(AND))):
            place = places.get(name)
            if place is None or (release[place], place) >= (release[position], position):
                hint = "" if place is None else f"Give job {name} an earlier line, and a release that is not later."
                allowed = "labels of jobs that stand before it in order of release, then of line"
                raise InvalidInput("after", name, allowed, source=str(path), line=line, hint=hint)
            before.append(place)
        found[position] = tuple(dict.fromkeys(before))
    return found


def _job(cells: Cells, position: int) -> dict[str, Any]:
    """The values of one line, in the units of a workload.

    Raises:
        InvalidInput: a cell has a value that is not allowed.
    """
    get = cells.get
    tasks = get("tasks", 1, count_of, COUNT_CELL)
    width = get("width", 1, count_of, COUNT_CELL)
    if tasks > 1 and width > 1:
        raise InvalidInput("width", width, "1 where a job has several tasks: a rigid job is one task")
    unsaid = cells.text("estimate") == UNSAID
    estimate = -1 if unsaid else get("estimate", None, time_of, f"{TIME_CELL}, or {UNSAID}")
    runtime = get("runtime", None if unsaid else estimate, time_of, TIME_CELL)
    if runtime is None:
        raise InvalidInput("runtime", "", f"{TIME_CELL}; it may be empty only beside an estimate")
    return {
        "job": cells.text("job") or str(position),
        "release": get("release", 0, time_of, TIME_CELL),
        "tasks": tasks,
        "width": width,
        "runtime": runtime,
        "estimate": runtime if estimate is None else estimate,
        "due": get("due", NEVER, time_of, f"{TIME_CELL}; empty for none"),
        "priority": get("priority", 0.0, number_of, "a number"),
        "rate": get("rate", 1.0, amount_of, AMOUNT_CELL),
        "shape": get("shape", 0, shape_of, SHAPE),
        "user": cells.text("user"),
        "cpu": get("cpu", math.nan, share_of, "a number from 0 to 1; empty where unknown"),
        "after": cells.text("after"),
        "kind": int(Kind.RIGID if tasks == 1 and cells.text("width") else Kind.BAG),
    }


def write_table(workload: Workload, path: str | Path) -> None:
    """Write a workload so that `read_table` gives the same jobs again; gzipped if the name ends in .gz.

    If the processes of a job differ in CPU use, their mean is written.

    Raises:
        InvalidInput: the workload contains a workflow, for which the file has no columns.
        HeadwayError: the file cannot be written.
    """
    if (workload.kind == Kind.WORKFLOW).any():
        raise InvalidInput("kind", "workflow", "rigid or bag", source=str(path))
    with writing(Path(path)) as text:
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(TABLE_COLUMNS)
        lines.writerows(_cells(workload))


def _cells(workload: Workload) -> Iterable[tuple[object, ...]]:
    columns = (*("label" if name == "job" else name for name in TABLE_COLUMNS if name != "after"), "kind")
    rows = zip(*(getattr(workload, name).tolist() for name in columns), strict=True)
    for position, row in enumerate(rows):
        job, release, tasks, width, runtime, estimate, due, priority, rate, shape, user, cpu, kind = row
        rigid = kind == Kind.RIGID
        yield (
            job,
            seconds_text(release),
            "" if rigid else tasks,
            width if rigid else "",
            seconds_text(runtime),
            UNSAID if estimate < 0 else seconds_text(estimate),
            "" if due >= NEVER else seconds_text(due),
            _number_text(priority),
            _number_text(rate),
            SHAPES[shape].value,
            user,
            "" if math.isnan(cpu) else _number_text(cpu),
            AND.join(str(workload.label[before]) for before in workload.after.get(position, ())),
        )


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
