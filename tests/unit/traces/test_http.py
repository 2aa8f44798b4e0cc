"""Logs of web servers: what is read, and what is said of lines that cannot be."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import SECOND
from headway.traces.http import read_hourly, read_http_log

GOOD = """local - - [24/Oct/1994:13:41:41 -0600] "GET index.html HTTP/1.0" 200 150\r
remote - - [24/Oct/1994:13:43:13 -0600] "GET 1.gif 302 -
local - villain [24/Oct/1994:20:43:12 +0100] "GET a b.html HTTP/1.0" 401 7
local [24/Oct/1994:21:00:00 +0000] "GET / 1350.0" 200 3185

"""


def test_requests_are_in_order_from_the_hour_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(GOOD.encode()))
    log = read_http_log(path)
    assert log.start == datetime(1994, 10, 24, 19, tzinfo=UTC)
    assert (log.instants // SECOND).tolist() == [2501, 43 * 60 + 12, 43 * 60 + 13, 7200]
    assert log.sizes.tolist() == [150, 7, 0, 3185]
    assert log.status.tolist() == [200, 401, 302, 200]
    assert (log.broken, log.flaws) == (0, ())
    assert log.per_hour().tolist() == [3, 0, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", r"log:5: time is 'nothing'; allowed: a time such as \[24/Oct/1994:13:41:41 -0600\]"),
        ('l - - [24/Okt/1994:13:41:41 -0600] "GET" 200 1', r"log:5: time is '\[24/Okt/1994:13:41:41 -0600\]'"),
        ('l - - [31/Feb/1994:13:41:41 -0600] "GET" 200 1', "log:5: time is"),
        (
            'l - - [24/Oct/1994:13:41:41 -0600] "GET" index.html -',
            "status is 'index.html'; allowed: a number from 100 to",
        ),
        ('l - - [24/Oct/1994:13:41:41 -0600] "GET /" 200 -5', "log:5: size is '-5'; allowed: bytes, 0 or more, or -"),
        ("[24/Oct/1994:13:41:41 -0600]", "status is '\\[24/Oct/1994:13:41:41 -0600\\]'; allowed"),
    ],
)
def test_a_broken_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "log"
    path.write_text(GOOD.rstrip() + f"\n{line}\n")
    with pytest.raises(InvalidInput, match=message):
        read_http_log(path)
    log = read_http_log(path, broken_max=1)
    assert (len(log.instants), log.broken, [flaw.line for flaw in log.flaws]) == (4, 1, [5])


def test_no_log(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidInput, match="empty: log is 'empty'; allowed: one request or more"):
        read_http_log(tmp_path / "empty")
    with pytest.raises(HeadwayError, match="cannot read"):
        read_http_log(tmp_path / "absent")


def test_numbers_per_hour(tmp_path: Path) -> None:
    path = tmp_path / "hours.csv"
    path.write_text("datetime,view\n1995/06/30 23:00:00,4\n1995/07/01 01:00:00,2\n")
    assert read_hourly(path).tolist() == [4, 0, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hour,view\n", "hours.csv:1: heading is 'hour,view'; allowed: datetime,view"),
        ("datetime,view\n1995-06-30,4\n", "hours.csv:2: datetime is '1995-06-30'; allowed: a time such as"),
        ("datetime,view\n1995/06/30 23:00:00,-4\n", "hours.csv:2: view is '-4'; allowed: a whole number, 0 or more"),
        ("datetime,view\n", "table is 'empty'; allowed: one hour or more"),
    ],
)
def test_a_broken_table(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hours.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_hourly(path)


def test_calgary_has_as_many_requests_as_the_table_of_its_hours_says(shared_data: Callable[[str], Path]) -> None:
    log = read_http_log(shared_data("http/calgary-1995-07.log.gz"), broken_max=20)
    hourly = read_hourly(shared_data("http/hourly-calgary.csv"))
    first = (datetime(1995, 7, 1) - datetime(1994, 10, 24, 13)).days * 24 + 11
    assert log.broken == 0
    assert (log.per_hour() == hourly[first : first + len(log.per_hour())]).all()
