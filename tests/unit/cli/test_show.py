"""Times and spans as people write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from headway import InvalidInput, wire
from headway.cli.show import instant_in, plain, print_table, seconds_in, span, when
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
        {
            "job": 1,
            "task": 2,
            "attempt": 3,
            "slots": ["a/0"],
            "started": 1.5,
            "expected_end": 2.0,
            "tier": "foreground",
            "goal": [],
        }
    ]
    ending = plain(wire.TaskEnding(Outcome.EXITED, stdout=b"\xff", exit_code=2))
    assert (ending["outcome"], ending["stdout"], ending["exit_code"]) == ("exited", "\ufffd", 2)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have 80 columns."""
    monkeypatch.setattr("headway.cli.show.WIDTH_UNSEEN", 80)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if "─" not in line]


@pytest.mark.usefixtures("narrow")
def test_free_text_is_folded_and_numbers_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("job", "name", "due", "user"), [("1", "word " * 30, "in 1 h 06 min", "")], fold=("name",))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("word") == 30
    assert "in 1 h 06 min" in out
    assert "user" not in out


@pytest.mark.usefixtures("narrow")
def test_a_table_that_cannot_fit_is_wider_than_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [f"{number} min 00 s" for number in range(10, 22)]
    print_table([f"c{number}" for number in range(12)], [cells])
    assert printed(capsys)[1] == " ".join(cells)


@pytest.mark.usefixtures("narrow")
def test_a_table_that_is_too_wide_is_turned_if_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    headings = [f"measure {number}" for number in range(9)]
    rows = [(policy, *(f"{number} s" for number in range(9))) for policy in ("fcfs", "easy")]
    print_table(("policy", *headings), rows, turn=True)
    assert printed(capsys) == ["policy fcfs easy", *(f"measure {n} {n} s {n} s" for n in range(9))]
    print_table(("policy", *headings[:3]), [row[:4] for row in rows], turn=True)
    assert printed(capsys)[0] == "policy measure 0 measure 1 measure 2"
