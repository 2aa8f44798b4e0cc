"""What commands print: tables for people, JSON for programs, times and spans in words."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import click
import msgspec

from headway.errors import InvalidInput
from headway.model.instant import Duration, Instant, from_seconds, to_seconds

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON; times in seconds since the epoch.")

TIMES: Final = frozenset(
    (
        *("submitted", "release", "due", "started", "ended", "expected_end", "promise", "start", "estimate", "period"),
        *("at", "answered", "every", "mean", "spread", "lost"),
    )
)
"""Fields of reports that are in microseconds."""

UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

WIDTH_UNSEEN: Final = 200
"""Columns of a table that goes to a file or a pipe."""

FOLDED_LEAST: Final = 20
"""Columns that free text may be folded to; longer words are cut then."""

GAP: Final = 2
"""Columns between those of a table."""


def print_json(value: Any) -> None:
    """Print reports, or lists of them, as JSON; their times in seconds."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any, field: str = "") -> Any:
    """A report as JSON has it: microseconds become seconds, bytes text."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name), name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: plain(part, str(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if field in TIMES and value is not None:
        return to_seconds(value)
    return msgspec.to_builtins(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)


def counted(count: int, noun: str) -> str:
    """A number and its noun, in the plural where it must be."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
    turn: bool = False,
) -> None:
    """Print a table; a column in which nothing stands is left out.

    Where it is wider than the terminal only the columns named in `fold` are folded; if that is not enough, lines are
    longer than the terminal is wide, for no number may be cut in two.

    Args:
        columns: headings.
        rows: texts, one for each column.
        title: a line above.
        right: columns that are aligned to the right.
        fold: columns of free text.
        turn: rows become columns, under the texts of the first column, where the table is too wide as it is.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDTH_UNSEEN, highlight=False)
    kept = [place for place in range(len(columns)) if not rows or any(row[place] for row in rows)]
    columns, rows = [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]

    def least(place: int) -> int:
        """Columns of the terminal that a column must have."""
        texts = [columns[place], *(row[place] for row in rows)]
        if columns[place] in fold:
            return min(FOLDED_LEAST, max(cell_len(word) for text in texts for word in text.split() or [""]))
        return max(map(cell_len, texts))

    needed = sum(least(place) + GAP for place in range(len(columns)))
    if turn and needed > console.width:
        columns, *rows = zip(columns, *rows, strict=True)
        print_table(columns, rows, title=title, right=columns[1:])
        return
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_header=any(columns),
    )
    for place, name in enumerate(columns):
        justify: Literal["right", "left"] = "right" if name in right else "left"
        folds = name in fold
        table.add_column(name, justify=justify, overflow="fold", no_wrap=not folds, min_width=least(place))
    for row in rows:
        table.add_row(*map(Text, row))
    console.width = max(console.width, needed)
    console.print(table, crop=False)


def span(seconds: float) -> str:
    """How long, in words.

    >>> span(0.25), span(42), span(4000), span(200_000)
    ('0.25 s', '42 s', '1 h 06 min', '2 d 07 h')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for limit, unit, small, part in ((172_800, 86_400, 3600, "d {:02} h"), (3600, 3600, 60, "h {:02} min")):
        if whole >= limit:
            return f"{whole // unit} " + part.format(whole % unit // small)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02} s"


def amount(name: str, value: float) -> str:
    """A number in the unit that the end of its name says.

    >>> amount("scratch.free_bytes", 2.5e9), amount("cpu_share", 0.25), amount("load", 1.234)
    ('2.5 GB', '25 %', '1.23')
    """
    if name.endswith("_share"):
        return f"{100 * value:.0f} %"
    if name.endswith("_seconds"):
        return span(value)
    if name.endswith(("_bytes", "_bytes_per_second")):
        power = min(4, int(math.log(abs(value), 1000))) if abs(value) >= 1 else 0
        rate = "/s" if name.endswith("_per_second") else ""
        return f"{value / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}{rate}"
    return f"{value:.3g}"


def when(instant: Instant | None, now: Instant | None = None) -> str:
    """When, seen from now: `in 5 min 00 s`, `3.1 s ago`; empty for no time."""
    if instant is None:
        return ""
    away = to_seconds(instant - (time.time_ns() // 1000 if now is None else now))
    return f"in {span(away)}" if away > 0 else f"{span(-away)} ago"


def clock(instant: Instant | None) -> str:
    """Date and time here; empty for no time."""
    return "" if instant is None else datetime.fromtimestamp(to_seconds(instant)).strftime("%Y-%m-%d %H:%M:%S")


def seconds_in(text: str, field: str) -> float:
    """A span such as `90s`, `1.5h`, `2d` or `90` (seconds).

    Raises:
        InvalidInput: it is none.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] or "s") not in UNITS:
        raise InvalidInput(field, text, "a number with s, m, h or d, as 90s or 1.5h")
    return float(match[1]) * UNITS[match[2] or "s"]


def duration_in(text: str, field: str) -> Duration:
    """Microseconds of a span such as `90s`, or 0.

    Raises:
        InvalidInput: it is none, or longer than any.
    """
    try:
        return from_seconds(seconds_in(text, field))
    except ValueError:
        raise InvalidInput(field, text, "a span below a hundred thousand years") from None


def span_in(text: str, field: str) -> Duration | None:
    """Microseconds of a span, or None for `none`.

    Raises:
        InvalidInput: it is neither.
    """
    return None if text == "none" else duration_in(text, field)


def period_in(text: str | None) -> float | None:
    """Seconds between rounds: a span, or 0 for `none`; None where nothing was said.

    Raises:
        InvalidInput: it is neither.
    """
    if text is None or text == "none":
        return None if text is None else 0.0
    try:
        seconds = seconds_in(text, "period")
    except InvalidInput:
        seconds = 0.0
    if seconds <= 0:
        raise InvalidInput("--period", text, "more than 0, as 30s or 5m, or none")
    return seconds


def instant_in(text: str, field: str) -> datetime | float:
    """A span from now on, such as `90s`, or an ISO time, local unless it names a zone.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        return datetime.fromisoformat(text) if "-" in text else seconds_in(text, field)
    except (ValueError, InvalidInput):
        allowed = "a span from now on, as 90s or 1.5h, or an ISO time, as 2030-01-31T18:00"
        raise InvalidInput(field, text, allowed) from None
