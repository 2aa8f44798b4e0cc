"""Logs of web servers in the Common Log Format: a line for each request, with its time, status and size.

    local - - [24/Oct/1994:13:41:41 -0600] "GET index.html HTTP/1.0" 200 150

And tables of requests per hour: the heading `datetime,view`, then a line such as `1995/06/01 00:00:00,65` for each hour
with requests.

Source: the Internet Traffic Archive, http://ita.ee.lbl.gov/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import HOUR, SECOND
from headway.model.workload import IntArray
from headway.traces.files import reading

_TIME: Final = re.compile(r"\[(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\]")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FLAWS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class HttpLog:
    """The requests of a log, in order of time.

    Attributes:
        instants: when each came, in microseconds since the start of the first one's hour.
        sizes: bytes of each response; 0 where the log has `-`.
        status: of each, the status of HTTP.
        start: that start of an hour.
        broken: how many lines were left out.
        flaws: what is wrong with the first of them.
    """

    instants: IntArray
    sizes: IntArray
    status: IntArray
    start: datetime
    broken: int = 0
    flaws: tuple[InvalidInput, ...] = ()

    def per_hour(self) -> IntArray:
        """How many requests came in each hour, from `start` on."""
        return np.bincount(self.instants // HOUR)


def read_http_log(path: str | Path, *, broken_max: int = 0) -> HttpLog:
    """A log in the Common Log Format, plain or gzipped.

    Quotation marks may be missing, and users be named. Requests of the same second keep their order.

    Args:
        broken_max: so many lines may be broken; they are left out and counted.

    Raises:
        InvalidInput: more lines are broken, or there is no request. The message names file, line, field, value and what
            is allowed.
        HeadwayError: the file cannot be read.
    """
    path = Path(path)
    rows: list[tuple[int, int, int]] = []
    flaws: list[InvalidInput] = []
    broken = 0
    with reading(path, "latin-1") as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                rows.append(_row(line.rstrip(), str(path), number))
            except InvalidInput as flaw:
                broken += 1
                if broken > broken_max:
                    raise
                flaws.append(flaw)
    if not rows:
        raise InvalidInput("log", "empty", "one request or more", source=str(path))
    rows.sort(key=lambda row: row[0])
    table = np.array(rows, dtype=np.int64)
    first = int(table[0, 0]) // 3600 * 3600
    start = datetime.fromtimestamp(first, UTC)
    return HttpLog((table[:, 0] - first) * SECOND, table[:, 2], table[:, 1], start, broken, tuple(flaws[:_FLAWS_MAX]))


def read_hourly(path: str | Path) -> IntArray:
    """The requests of each hour, from the first hour of the table to its last; 0 for hours that it leaves out.

    Raises:
        InvalidInput: a line is wrong; the message names file, line, field, value and what is allowed.
        HeadwayError: the file cannot be read.
    """
    path = Path(path)
    found: list[tuple[int, int]] = []
    with reading(path, "utf-8-sig") as text:
        for number, line in enumerate(text, 1):
            hour, _, count = line.strip().partition(",")
            if number == 1:
                if (hour, count) != ("datetime", "view"):
                    raise InvalidInput("heading", line.strip(), "datetime,view", source=str(path), line=1)
                continue
            try:
                at = datetime.strptime(hour, "%Y/%m/%d %H:%M:%S").replace(tzinfo=UTC)
            except ValueError as error:
                allowed = "a time such as 1995/06/01 00:00:00"
                raise InvalidInput("datetime", hour, allowed, source=str(path), line=number) from error
            if not count.isdecimal():
                raise InvalidInput("view", count, "a whole number, 0 or more", source=str(path), line=number)
            found.append((int(at.timestamp()) // 3600, int(count)))
    if not found:
        raise InvalidInput("table", "empty", "one hour or more", source=str(path))
    first = min(hour for hour, _ in found)
    counts = np.zeros(max(hour for hour, _ in found) - first + 1, dtype=np.int64)
    for each, many in found:
        counts[each - first] += many
    return counts


def _row(line: str, source: str, number: int) -> tuple[int, int, int]:
    """Seconds since 1970, status and size."""
    when = _TIME.search(line)
    at = None if when is None else _seconds(when)
    if at is None:
        said = line if when is None else when[0]
        raise InvalidInput("time", said, "a time such as [24/Oct/1994:13:41:41 -0600]", source=source, line=number)
    words = line.rsplit(maxsplit=2)
    if len(words) < 3 or not re.fullmatch(r"[1-5]\d\d", words[1]):
        said = words[1] if len(words) == 3 else line
        raise InvalidInput("status", said, "a number from 100 to 599", source=source, line=number)
    if not re.fullmatch(r"-|\d{1,15}", words[2]):
        raise InvalidInput("size", words[2], "bytes, 0 or more, or -", source=source, line=number)
    return at, int(words[1]), 0 if words[2] == "-" else int(words[2])


def _seconds(when: re.Match[str]) -> int | None:
    """Seconds since 1970; None if there is no such time."""
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = when.groups()
    if month not in _MONTHS:
        return None
    try:
        local = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        return None
    ahead = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    return int((local - ahead if sign == "+" else local + ahead).timestamp())
