"""What commands print: tables for people, JSON for programs, times and spans in words."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from headway.errors import InvalidInput
from headway.model.instant import Duration, from_seconds
from headway.model.job import BYTES_MAX
from headway.times import age_text, away_text, clock_text
from headway.times import instant_of as instant_in
from headway.times import span_of as seconds_in
from headway.times import span_text as span

if TYPE_CHECKING:  # a simulation prints no report, and they take a fifth of its start-up to load
    from headway.wire import JobReport

__all__ = [
    "age",
    "amount",
    "as_json",
    "bytes_in",
    "clock",
    "counted",
    "done",
    "duration_in",
    "instant_in",
    "limit_in",
    "period_in",
    "plain",
    "print_json",
    "print_table",
    "SpanType",
    "seconds_in",
    "shown",
    "span",
    "span_in",
    "when",
]

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON; times in seconds since the epoch.")

WIDTH_UNSEEN: Final = 200
"""Columns of a table that goes to a file or a pipe."""

FOLDED: Final = (20, 8)
"""Columns that text may be folded to, and those where more is needed; longer words are cut then."""

COLUMN_GAP: Final = 2
"""Columns between those of a table."""

LAID_OUT_MAX: Final = 200
"""Rows of a table that Rich lays out; of the others only those that take several lines, because it takes 1 ms a row."""


def print_json(value: Any) -> None:
    """Print reports, or lists of them, as JSON."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """A report for JSON: bytes become text."""
    import msgspec

    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return msgspec.to_builtins(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)


def counted(count: int, noun: str) -> str:
    """A number and its noun, in the plural if needed.

    >>> counted(1, "job"), counted(0, "open job"), counted(1200, "slot")
    ('1 job', 'no open jobs', '1,200 slots')
    """
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s" if count else f"no {noun}s"


def begun(text: str) -> str:
    """The same as the beginning of a sentence: its first letter is large.

    >>> begun("no jobs")
    'No jobs'
    """
    return text[:1].upper() + text[1:]


def done(job: JobReport) -> str:
    """How many tasks have succeeded, how many of all; then how many have failed and were cancelled, if any.

    Of a service nothing is: its instances run until it ends.
    """
    if job.kind == "service":
        return ""
    others = ((job.failed, "failed"), (job.cancelled, "cancelled"))
    return ", ".join([f"{job.done}/{job.tasks}", *(f"{count} {word}" for count, word in others if count)])


_CONTROLS: Final = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) != "\n"}


def shown(text: str) -> str:
    """A text that is safe for a terminal: names may contain control characters.

    >>> print(shown("a\\x1b[31mb"))
    a\\x1b[31mb
    """
    return text.translate(_CONTROLS)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
    turn: bool = False,
    spare: Sequence[str] = (),
) -> None:
    """Print a table that fits the terminal. Empty columns are left out.

    If it is too wide, the columns named in `fold` are folded at spaces. If that is not enough, those named in `spare`
    are left out, one after the other, and a line below says so. At last each row is printed as several lines,
    `COLUMN  TEXT`. Other columns are never folded, because numbers must not be cut in two.

    Args:
        columns: headings.
        rows: texts, one for each column.
        title: a line above.
        right: columns that are aligned to the right.
        fold: columns of text. Those that are aligned to the right have numbers, and no word of them is cut.
        turn: if the table is too wide, rows become columns under the texts of the first column.
        spare: columns that may be left out, those first that are missed least.
    """
    kept = [place for place in range(len(columns)) if not rows or any(row[place] for row in rows)]
    columns, rows = [columns[place] for place in kept], [[shown(row[place]) for place in kept] for row in rows]
    texts = [[name, *(row[place] for row in rows)] for place, name in enumerate(columns)]
    natural = [max(map(_cells, column)) for column in texts]
    words = [max(_cells(word) for text in column for word in text.split() or [""]) for column in texts]
    room, missed = _room(), [name for name in spare if name in columns]
    for folded_to in FOLDED:
        least = [
            min(words[place] if name in right else min(folded_to, words[place]), natural[place])
            if name in fold
            else natural[place]
            for place, name in enumerate(columns)
        ]
        for number in range(len(missed) + 1):
            stay = [place for place, name in enumerate(columns) if name not in missed[:number]]
            wide, narrow = [natural[place] for place in stay], [least[place] for place in stay]
            widths = fitted(wide, narrow, room - COLUMN_GAP * len(stay))
            if widths is not None:
                heads, cut = [columns[place] for place in stay], [[row[place] for place in stay] for row in rows]
                _print_columns(heads, cut, widths, title, right)
                if number:
                    click.echo(f"Left out: {', '.join(missed[:number])}. A wider terminal or --json shows them.")
                return
        if turn:
            columns, *rows = zip(columns, *rows, strict=True)
            print_table(columns, rows, title=title, right=columns[1:])
            return
    _print_records(columns, rows, title, room)


def _room() -> int:
    """The width of a line."""
    from rich.console import Console

    is_told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console().width if is_told else WIDTH_UNSEEN


def fitted(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Widths of columns that fit together; None if there is not enough room.

    Each step narrows the column whose text then takes the fewest lines, so that rows stay as low as they can.

    >>> fitted([10, 30, 20], [10, 5, 5], 40), fitted([10, 30], [10, 25], 30)
    ([10, 18, 12], None)
    """
    if sum(least) > room:
        return None
    widths = list(natural)
    while sum(widths) > room:
        wider = (place for place in range(len(widths)) if widths[place] > least[place])
        widths[min(wider, key=lambda place: natural[place] / (widths[place] - 1))] -= 1
    return widths


def _cells(text: str) -> int:
    """How many places of a line a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _print_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], title: str, right: Sequence[str]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def print_part(part: Sequence[Sequence[str]], *, is_first: bool) -> None:
        table = Table(
            title=title or None if is_first else None,
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            show_header=is_first and any(name.strip() for name in columns),
        )
        for name, width in zip(columns, widths, strict=True):
            justify: Literal["right", "left"] = "right" if name in right else "left"
            table.add_column(name, justify=justify, overflow="fold", width=width)
        for row in part:
            table.add_row(*map(Text, row))
        Console(width=sum(widths) + COLUMN_GAP * len(columns), highlight=False).print(table, crop=False)

    print_part(rows[:LAID_OUT_MAX], is_first=True)
    for fits, part in groupby(rows[LAID_OUT_MAX:], lambda row: _fits(row, widths)):
        if not fits:
            print_part(list(part), is_first=False)
            continue
        to_right = [name in right for name in columns]
        click.echo("\n".join(_line(row, widths, to_right) for row in part))


def _fits(row: Sequence[str], widths: Sequence[int]) -> bool:
    """Whether a row takes one line."""
    return all(_cells(text) <= width and "\n" not in text for text, width in zip(row, widths, strict=True))


def _line(row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    """A row that takes one line, as Rich lays it out."""
    cells = []
    for text, width, is_right in zip(row, widths, to_right, strict=True):
        space = " " * (width - _cells(text))
        cells.append(space + text if is_right else text + space)
    return (" " * COLUMN_GAP).join(cells)


def _print_records(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, room: int) -> None:
    """Print each row as a block of lines, with an empty line between two."""
    name_width = max(map(len, columns))
    if title:
        click.echo(title)
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for name, text in zip(columns, row, strict=True):
            if text:
                lines = textwrap.wrap(text, max(FOLDED[-1], room - name_width - COLUMN_GAP)) or [""]
                for place, line in enumerate(lines):
                    click.echo(f"{'' if place else name:{name_width}}{' ' * COLUMN_GAP}{line}".rstrip())


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


def when(instant: float | None, now: float | None = None) -> str:
    """An instant relative to now: `in 5 min`, `3.1 s ago`; empty for no time."""
    return "" if instant is None else away_text(instant, now)


LIKELY: Final = 0.5
"""What has at least this probability is more likely than not."""

ANY_MOMENT: Final = "any moment now"
"""When something is expected that was expected before now."""


OVERDUE_SECONDS: Final = 1.0
"""A promise that passed longer ago is late; until then what was promised may just be happening."""


def promised(instant: float | None) -> str:
    """A promised start relative to now; one that has passed is said to be late. Empty for no time."""
    if instant is None:
        return ""
    late = time.time() - instant
    return until(instant) if late < OVERDUE_SECONDS else f"late, by {span(late)}"


def until(instant: float) -> str:
    """When something is expected, relative to now."""
    return away_text(instant) if instant > time.time() else ANY_MOMENT


def share(probability: float) -> str:
    """A probability over some futures: none of them, or all, is not never or always.

    >>> share(0.974), share(1.0), share(0.0)
    ('97 %', '> 99 %', '< 1 %')
    """
    if probability < 0.01:
        return "< 1 %"
    return "> 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


def at_least(probability: float) -> str:
    """A probability with which something is promised: rounded down.

    >>> at_least(0.9), at_least(40 / 41), at_least(0.001)
    ('90 %', '97 %', '< 1 %')
    """
    return share(probability) if probability < 0.01 else f"{int(100 * probability + 1e-9)} %"


def asked_for(probability: float) -> str:
    """A probability as somebody wants it, with all of its digits.

    >>> asked_for(0.9), asked_for(0.9999)
    ('90 %', '99.99 %')
    """
    return f"{100 * probability:.12g} %"


def age(instant: float | None, now: float | None = None) -> str:
    """How long ago, in one unit; empty for no time."""
    return "" if instant is None else age_text(instant, now)


def clock(instant: float | None) -> str:
    """Local date and time; empty for no time."""
    return "" if instant is None else clock_text(instant)


MEMORY_UNITS: Final = {
    **{f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    "": 1,
    "b": 1,
}
"""Bytes of units of memory, in small letters."""


def bytes_in(text: str, field: str, least: str = "1M") -> int:
    """Bytes of an amount, such as `512M`, `2G` (of 1024) or `2GB` (of 1000).

    Args:
        least: the smallest that is allowed.

    Raises:
        InvalidInput: it is not valid.
    """
    size = _size(text)
    if not _size(least) <= size < BYTES_MAX:
        units = "M or G, as 512M or 2G" if least.endswith("M") else "K or M, as 100K or 2M"
        raise InvalidInput(field, text, f"a number with {units}, of {least} at least")
    return int(size)


def _size(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text.lower())
    return float(match[1]) * MEMORY_UNITS[match[2]] if match and match[2] in MEMORY_UNITS else 0.0


def duration_in(text: str, field: str) -> Duration:
    """Microseconds of a span such as `90s`, or 0.

    Raises:
        InvalidInput: it is not valid.
    """
    return from_seconds(seconds_in(text, field))


class SpanType(click.ParamType):
    """A span as the value of an option, in seconds; `90`, `90s`, `1h30m`."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds.

        Raises:
            InvalidInput: it is not a span.
        """
        return value if isinstance(value, float) else seconds_in(value, param.opts[0] if param else "value")


def limit_in(text: str, field: str) -> float:
    """Seconds of a span that is more than 0.

    Raises:
        InvalidInput: it is not valid.
    """
    seconds = seconds_in(text, field)
    if seconds <= 0:
        raise InvalidInput(field, text, "more than 0, as 90s or 1h30m")
    return seconds


def energy_text(joules: float) -> str:
    """Energy for people.

    >>> energy_text(12.34), energy_text(1800.0), energy_text(7.2e6)
    ('12.3 J', '0.5 Wh', '2 kWh')
    """
    if abs(joules) < 360:
        return f"{joules:.3g} J"
    return f"{joules / 3600:.3g} Wh" if abs(joules) < 3.6e6 else f"{joules / 3.6e6:.4g} kWh"


def span_in(text: str, field: str) -> Duration | None:
    """Microseconds of a span, or None for `none`.

    Raises:
        InvalidInput: it is neither.
    """
    return None if text == "none" else duration_in(text, field)


def period_in(text: str | None) -> float | None:
    """Seconds between rounds: a span, or 0 for `none`; None if not given.

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


def money(amount: float) -> str:
    """An amount, with as many digits as it needs: at least two behind the point.

    >>> money(12.0), money(0.0125)
    ('12.00', '0.0125')
    """
    digits = f"{amount:.4f}".rstrip("0")
    whole, _, part = digits.partition(".")
    return f"{whole}.{part:<02}" if len(part) < 2 else digits
