"""Times and spans as people write and read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from rich.table import Table

from headway import InvalidInput, wire
from headway.cli import show
from headway.cli.explain import promise_line
from headway.cli.live import print_tasks
from headway.cli.show import bytes_in, instant_in, plain, print_table, promised, seconds_in, span, when
from headway.model.events import Outcome

MIDNIGHT = datetime(2030, 1, 31).timestamp()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (9.99, "10 s"),
        (0.00025, "0.25 ms"),
        (-0.000001, "-0.001 ms"),
        (2.8e-14, "0 s"),
        (42.4, "42 s"),
        (119, "119 s"),
        (120, "2 min"),
        (900, "15 min"),
        (905, "15 min 05 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (3_659, "1 h"),
        (172_799, "47 h 59 min"),
        (172_800, "2 d"),
        (200_000, "2 d 07 h"),
    ],
)
def test_spans_in_words(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_instants_seen_from_now() -> None:
    assert when(None) == ""
    assert when(90, 0) == "in 90 s"
    assert when(0, 3) == "3 s ago"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), (" 2 d ", 172_800), ("3min", 180), (".5s", 0.5)]
)
def test_spans_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_in(text, "due") == seconds
    assert instant_in(text, "due", 1_000.0) == 1_000 + seconds


def test_iso_times() -> None:
    assert instant_in("2030-01-31T18:00", "due") == datetime(2030, 1, 31, 18).timestamp()
    assert instant_in("2030-01-31 18:00+00:00", "due") == datetime(2030, 1, 31, 18, tzinfo=UTC).timestamp()


def test_midnight_is_the_end_of_a_day_too() -> None:
    assert instant_in("tomorrow 24:00", "due", MIDNIGHT) == MIDNIGHT + 2 * 86_400
    assert instant_in("24:00", "due", MIDNIGHT + 1) == MIDNIGHT + 86_400


@pytest.mark.parametrize("text", ["", "soon", "24:01", "5 parsecs", "2030-13-01", "-5s"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--due is .*tomorrow 6:00"):
        instant_in(text, "--due")


def test_what_is_no_span() -> None:
    with pytest.raises(InvalidInput, match="--estimate is 'long'"):
        seconds_in("long", "--estimate")


def test_reports_as_json_have_seconds() -> None:
    report: Any = wire.AttemptReport(1, 2, 3, ("a/0",), started=1.5, expected_end=2.0)
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
            "hindered": "",
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
def test_columns_that_are_missed_least_are_left_out_where_there_is_no_room(capsys: pytest.CaptureFixture[str]) -> None:
    columns, row = ("job", "user", "done", "due", "since"), ("1", "u" * 40, "10000/10000, 3 failed", "d" * 9, "s" * 40)
    print_table(columns, [row], right=("job", "done"), fold=("done",), spare=("since", "user"))
    assert printed(capsys) == [
        "job user done due",
        f"1 {row[1]} 10000/10000, 3 {row[3]}",
        "failed",
        "Left out: since. A wider terminal or --json shows them.",
    ]


@pytest.mark.usefixtures("narrow")
def test_a_table_that_cannot_fit_is_printed_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [f"{number} min" for number in range(10, 22)]
    print_table([f"c{number}" for number in range(12)], [cells, ["", *cells[1:]]], title="Times")
    first = [f"c{number:<3} {cell}" for number, cell in enumerate(cells)]
    assert capsys.readouterr().out.splitlines() == ["Times", *first, "", *first[1:]]


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 120])
def test_tables_fit_whatever_terminal_there_is(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    row = (
        "17",
        "a name of many words " * 3,
        "somebody",
        "succeeded",
        "10 of 10",
        "in 1 h, 5 min late",
        "3 s ago",
    )
    names = ("job", "name", "user", "status", "done", "due", "since")
    print_table(names, [row, row], right=("job", "done"), fold=("name", "user", "due", "since"))
    print_table(("", ""), [("status", "waiting"), ("holds", ", ".join(f"node-{n}/0" for n in range(30)))], fold=("",))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    said = " ".join(" ".join(lines).split())
    assert said.count("10 of 10") == 2
    assert said.count("succeeded") == 2
    assert said.count("many") == 6


@pytest.mark.usefixtures("narrow")
def test_a_table_that_is_too_wide_is_turned_if_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    headings = [f"measure {number}" for number in range(9)]
    rows = [(policy, *(f"{number} s" for number in range(9))) for policy in ("fcfs", "easy")]
    print_table(("policy", *headings), rows, turn=True)
    assert printed(capsys) == ["policy fcfs easy", *(f"measure {n} {n} s {n} s" for n in range(9))]
    print_table(("policy", *headings[:3]), [row[:4] for row in rows], turn=True)
    assert printed(capsys)[0] == "policy measure 0 measure 1 measure 2"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 << 20),
        ("2g", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("2GB", 2_000_000_000),
        ("1T", 1 << 40),
        ("2048k", 2 << 20),
        ("1048576", 1 << 20),
        ("1048576B", 1 << 20),
    ],
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert bytes_in(text, "--memory-limit") == size


@pytest.mark.parametrize("text", ["", "2", "512", "1023K", "-1G", "2 bags", "G", "1e9", "9999999999T"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a number with M or G, as 512M or 2G, of 1M at least"):
        bytes_in(text, "--memory-limit")


def test_control_characters_in_a_table_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("job", "name"), [("1", "\x1b[31mred\a\x9b")])
    printed = capsys.readouterr().out
    assert r"\x1b[31mred\x07\x9b" in printed
    assert not {"\x1b", "\a", "\x9b"} & set(printed)


def test_a_promise_that_has_passed_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert promised(None) == ""
    assert promised(1_000_120.0) == "in 2 min"
    assert promised(999_999.5) == "any moment now"
    assert promised(999_880.0) == "late, by 2 min"
    assert promise_line("Its start on a", 1_000_120.0).startswith("Its start on a is promised at ")
    assert promise_line("Its start", 999_999.5) == "Its start is promised any moment now."
    assert promise_line("Its start", 999_880.0).endswith(", 2 min ago: it is late.")


def test_tasks_are_listed_with_late_starts_and_what_hinders_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    waits = wire.TaskState(0, "ready", node="a", start=999_880.0)
    runs = wire.TaskState(1, "running", number=1, slots=("a/0",), start=999_880.0)
    print_tasks([waits, runs], as_json=False)
    first, second = capsys.readouterr().out.splitlines()[2:4]
    assert "late, by 2 min" in first
    assert second.rstrip().endswith("2 min ago")
    print_tasks([msgspec.structs.replace(runs, hindered="it waits for room")], as_json=False)
    assert "it waits for room" in capsys.readouterr().out


def test_a_long_table_looks_as_rich_lays_it_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        (str(number), f"täsk {number}", "word " * 30 if number % 7 == 0 else "a, b", "日本" if number % 5 else "x")
        for number in range(40)
    ]

    def printed(laid_out: int) -> str:
        monkeypatch.setattr(show, "LAID_OUT_MAX", laid_out)
        print_table(("task", "name", "because", "on"), rows, title="Tasks", right=("task",), fold=("because",))
        return capsys.readouterr().out

    assert printed(3) == printed(len(rows))


def test_the_rows_of_a_long_table_cost_little_each(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[int] = []
    add_row = Table.add_row
    monkeypatch.setattr(Table, "add_row", lambda table, *cells: (laid_out.append(1), add_row(table, *cells))[1])
    print_table(("task", "state"), [(str(number), "ready") for number in range(5 * show.LAID_OUT_MAX)])
    assert len(laid_out) == show.LAID_OUT_MAX
