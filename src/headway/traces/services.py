"""A table of services for simulations: CSV with a heading and one line for each service. An empty cell is the default.

Times are numbers of seconds, or durations such as `200ms`.

| column | meaning | default |
| --- | --- | --- |
| service | its name, which no other line has | |
| requests | the file of its requests, from the folder of the table | |
| processing | how long an instance takes for a request | what the file of requests says |
| threshold | an answer later than this is late | 1 |
| fraction | share of the answers of a window that are to be in time | 0.9 |
| rate | penalty of a window for each unit of the shape | 1 |
| shape | how the penalty grows with the share that is missing: linear, sqrt or square | linear |
| min | instances that it has at least | 1 |
| max | instances that it has at most | as many as there are slots |
| window | how long a window is | 20 |
| release | when it comes, on the clock of the jobs | 0 |
| warm_up | how long a new instance takes until it answers | 0 |

A file of requests is a log of a web server (Common Log Format), whose first request's hour begins at 0, or CSV with the
columns `arrival`, in order, and `processing`; either may be gzipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import SECOND, to_seconds
from headway.model.job import SHAPES
from headway.model.workload import FloatArray
from headway.traces.cells import (
    AMOUNT_CELL,
    COUNT_CELL,
    SHAPE,
    Cells,
    amount_of,
    count_of,
    heading,
    rows,
    shape_of,
    time_of,
)
from headway.traces.files import reading
from headway.traces.http import read_http_log

SERVICE_COLUMNS: Final = (
    *("service", "requests", "processing", "threshold", "fraction", "rate", "shape", "min", "max"),
    *("window", "release", "warm_up"),
)
REQUEST_COLUMNS: Final = ("arrival", "processing")

_TIME: Final = "seconds, 0 or more, or a duration such as 200ms"
_LONG: Final = "seconds, above 0, or a duration such as 200ms"
_FRACTION: Final = "a number above 0, at most 1"
_HINT: Final = "docs/reference/workloads.md describes tables of services."
_BROKEN_MAX: Final = 1_000
"""So many lines of the log of a web server may be broken."""


class RequestTrace(NamedTuple):
    """The requests of a service.

    Attributes:
        arrivals: when they come, in seconds, rising.
        processing: how long an instance takes for each, in seconds; None: the file does not say it.
        note: what was left out; empty: nothing.
    """

    arrivals: FloatArray
    processing: FloatArray | None
    note: str = ""


class ServiceTable(NamedTuple):
    """A table of services.

    Attributes:
        terms: of each, the arguments of `headway.ServiceLoad` by name.
        notes: what was left out of their requests.
    """

    terms: list[dict[str, Any]]
    notes: list[str]


def read_services(path: str | Path) -> ServiceTable:
    """The services in a CSV file.

    Raises:
        InvalidInput: a column is unknown, missing or there twice, or a cell has a value that is not allowed. The
            message names file, line, column, value and what is allowed.
        HeadwayError: a file cannot be read.
    """
    path = Path(path)
    found, notes = list[dict[str, Any]](), list[str]()
    with reading(path, "utf-8-sig") as text:
        for line, cells in rows(path, text, lambda first: _heading(path, first, SERVICE_COLUMNS, SERVICE_COLUMNS[:2])):
            try:
                terms = _terms(cells)
                if terms["name"] in [other["name"] for other in found]:
                    raise InvalidInput("service", terms["name"], "a name that no other line has")
                _add(terms, cells, path.parent / cells.text("requests"), notes)
            except InvalidInput as flaw:
                if flaw.source:
                    raise
                raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=str(path), line=line) from None
            found.append(terms)
    if not found:
        raise InvalidInput("number of services", 0, "1 or more", source=str(path))
    return ServiceTable(found, list(dict.fromkeys(notes)))


def _add(terms: dict[str, Any], cells: Cells, file: Path, notes: list[str]) -> None:
    """Add the requests of a service to its terms.

    Raises:
        InvalidInput: they and the line of the service do not agree, or their file is wrong.
    """
    requests = read_requests(file)
    if requests.processing is None and terms["processing"] is None:
        raise InvalidInput("processing", "", f"{_TIME}: {file.name} does not say it")
    if requests.processing is not None and terms["processing"] is not None:
        raise InvalidInput("processing", cells.text("processing"), f"nothing: {file.name} says it")
    first = float(requests.arrivals[0])
    if terms["begin"] > first:
        raise InvalidInput("release", cells.text("release"), f"no later than the first request, at {first:g} s")
    terms["arrivals"] = requests.arrivals
    if requests.processing is not None:
        terms["processing"] = requests.processing
    notes += [requests.note] if requests.note else []


def read_requests(path: str | Path) -> RequestTrace:
    """The requests in a file: the log of a web server, or CSV.

    Raises:
        InvalidInput: the content is wrong, or there is no request.
        HeadwayError: the file cannot be read.
    """
    path = Path(path)
    with reading(path, "latin-1") as text:
        first = text.readline()
    if "[" in first:
        log = read_http_log(path, broken_max=_BROKEN_MAX)
        note = f"{path.name}: broken lines left out: {log.broken}, the first: {log.flaws[0]}" if log.broken else ""
        return RequestTrace(log.instants / SECOND, None, note)
    arrivals, processing = list[int](), list[Any]()
    with reading(path, "utf-8-sig") as text:
        for line, cells in rows(path, text, lambda cells: _heading(path, cells, REQUEST_COLUMNS, ("arrival",))):
            try:
                at, takes = (cells.get(name, None, time_of, _TIME) for name in REQUEST_COLUMNS)
                if at is None or (arrivals and at < arrivals[-1]):
                    allowed = "seconds, no less than in the line before"
                    raise InvalidInput("arrival", cells.text("arrival"), allowed)
                if processing and (takes is None) != (processing[-1] is None):
                    raise InvalidInput("processing", cells.text("processing"), "a time in each line, or in none")
            except InvalidInput as flaw:
                raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=str(path), line=line) from None
            arrivals.append(at)
            processing.append(takes)
    if not arrivals:
        raise InvalidInput("number of requests", 0, "1 or more", source=str(path))
    return RequestTrace(_seconds(arrivals), None if processing[0] is None else _seconds(processing))


def _heading(path: Path, cells: Sequence[str], allowed: Sequence[str], needed: Iterable[str]) -> list[str]:
    names = heading(path, cells, allowed, _HINT)
    for name in needed:
        if name not in names:
            said = ",".join(names)
            raise InvalidInput("columns", said, f"{name} among them", source=str(path), line=1, hint=_HINT)
    return names


def _terms(cells: Cells) -> dict[str, Any]:
    """What a line says but the requests, as `ServiceLoad` calls it.

    Raises:
        InvalidInput: a cell has a value that is not allowed.
    """

    def span(name: str, default: float | None, allowed: str) -> float | None:
        found = cells.get(name, None, time_of, allowed)
        if found == 0 and allowed is _LONG:
            raise InvalidInput(name, cells.text(name), allowed)
        return default if found is None else to_seconds(found)

    for name in SERVICE_COLUMNS[:2]:
        if not cells.text(name):
            raise InvalidInput(name, "", "a name" if name == "service" else "the name of a file")
    least, most = cells.get("min", 1, _least, "a whole number, 0 or more"), cells.get("max", None, count_of, COUNT_CELL)
    if most is not None and least > most:
        raise InvalidInput("min", least, f"at most {most}, which is max")
    return {
        "name": cells.text("service"),
        "processing": span("processing", None, _TIME),
        "threshold": span("threshold", 1.0, _LONG),
        "fraction": cells.get("fraction", 0.9, _fraction, _FRACTION),
        "rate": cells.get("rate", 1.0, amount_of, AMOUNT_CELL),
        "shape": SHAPES[cells.get("shape", 0, shape_of, SHAPE)],
        "least": least,
        "most": most,
        "window": span("window", 20.0, _LONG),
        "begin": span("release", 0.0, _TIME),
        "warm_up": span("warm_up", 0.0, _TIME),
    }


def _least(cell: str) -> int:
    return 0 if cell == "0" else count_of(cell)


def _fraction(cell: str) -> float:
    fraction = float(cell)
    if not 0 < fraction <= 1:
        raise ValueError
    return fraction


def _seconds(instants: Sequence[int]) -> FloatArray:
    return np.array(instants, dtype=np.float64) / SECOND
