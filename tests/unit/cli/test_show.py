"""Times and spans as people write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from headway import InvalidInput, wire
from headway.cli.show import instant_in, plain, seconds_in, span, when
from headway.model.events import Outcome
from headway.model.instant import SECOND


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (9.99, "10 s"),
        (42.4, "42 s"),
        (119, "119 s"),
        (120, "2 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (172_799, "47 h 59 min"),
        (200_000, "2 d 07 h"),
    ],
)
def test_spans_in_words(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_instants_seen_from_now() -> None:
    assert when(None) == ""
    assert when(90 * SECOND, 0) == "in 90 s"
    assert when(0, 3 * SECOND) == "3 s ago"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), (" 2 d ", 172_800), ("3min", 180), (".5s", 0.5)]
)
def test_spans_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_in(text, "due") == seconds
    assert instant_in(text, "due") == seconds


def test_iso_times() -> None:
    assert instant_in("2030-01-31T18:00", "due") == datetime(2030, 1, 31, 18)
    assert instant_in("2030-01-31 18:00+00:00", "due").isoformat() == "2030-01-31T18:00:00+00:00"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "2030-13-01", "-5s", "1e3"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--due is .*ISO time"):
        instant_in(text, "--due")


def test_what_is_no_span() -> None:
    with pytest.raises(InvalidInput, match="--estimate is 'long'"):
        seconds_in("long", "--estimate")


def test_reports_as_json_have_seconds() -> None:
    report: Any = wire.AttemptReport(1, 2, 3, ("a/0",), started=1_500_000, expected_end=2_000_000)
    assert plain([report]) == [
        {"job": 1, "task": 2, "attempt": 3, "slots": ["a/0"], "started": 1.5, "expected_end": 2.0}
    ]
    ending = plain(wire.TaskEnding(Outcome.EXITED, stdout=b"\xff", exit_code=2))
    assert (ending["outcome"], ending["stdout"], ending["exit_code"]) == ("exited", "\ufffd", 2)
