"""Tables in CSV files with a heading: rows of cells by column, and what a cell may hold.

Columns come in any order. An empty cell, and a column that is absent, stand for the default.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import Instant, from_seconds
from headway.model.job import SHAPES
from headway.times import span_of
from headway.traces.columns import shape_place
from headway.traces.swf import LARGEST

TIME_CELL: Final = "seconds, 0 or more, or a duration such as 1h30m"
COUNT_CELL: Final = "a whole number from 1 to 2147483647"
AMOUNT_CELL: Final = "a number, 0 or more"
SHAPE: Final = ", ".join(shape.value for shape in SHAPES)


def heading(path: Path, cells: Sequence[str], allowed: Sequence[str], hint: str) -> list[str]:
    """The names of the columns, from the first line.

    Args:
        hint: what to do about a file that is no such table.

    Raises:
        InvalidInput: a column is unknown or there twice, or there is no heading.
    """
    names = [cell.strip().lower() for cell in cells]
    all_of_them = ", ".join(allowed)
    if not any(names):
        why = f"The file has no heading. {hint}"
        raise InvalidInput("heading", "", all_of_them, source=str(path), line=1, hint=why)
    for position, name in enumerate(names):
        if name not in allowed:
            what = did_you_mean(name, allowed) if set(names) & set(allowed) else hint
            raise InvalidInput("column", name, all_of_them, source=str(path), line=1, hint=what)
        if name in names[:position]:
            raise InvalidInput("column", name, "each column once", source=str(path), line=1)
    return names


class Cells:
    """The cells of a row, by column."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def text(self, name: str) -> str:
        """A cell as it is; empty: it is not said."""
        return self._cells.get(name, "")

    def get(self, name: str, default: Any, read: Callable[[str], Any], allowed: str) -> Any:
        """What a cell says.

        Args:
            read: makes it out of the text; raises `ValueError` or `InvalidInput` if it is not allowed.

        Raises:
            InvalidInput: the cell has a value that is not allowed.
        """
        cell = self._cells.get(name)
        if not cell:
            return default
        try:
            return read(cell)
        except (ValueError, InvalidInput):
            raise InvalidInput(name, cell, allowed) from None


def rows(path: Path, text: TextIO, columns: Callable[[Sequence[str]], list[str]]) -> Iterator[tuple[int, Cells]]:
    """The number of each line that is not empty, and its cells.

    Args:
        columns: the names of the columns, from the cells of the first line.

    Raises:
        InvalidInput: it is no CSV, or a row has another number of cells than the heading.
    """
    lines = csv.reader(text)
    try:
        names = columns(next(lines, []))
        for cells in lines:
            if not cells:
                continue
            if len(cells) != len(names):
                allowed = f"{len(names)}, as in the heading"
                raise InvalidInput("number of cells", len(cells), allowed, source=str(path), line=lines.line_num)
            yield lines.line_num, Cells(dict(zip(names, map(str.strip, cells), strict=True)))
    except csv.Error as error:
        raise InvalidInput("line", str(error), "CSV", source=str(path), line=lines.line_num) from error


def time_of(cell: str) -> Instant:
    """A time in microseconds, see `TIME_CELL`."""
    seconds = float(cell) if cell[-1:].isdigit() else span_of(cell, "time")
    if not 0 <= seconds <= LARGEST:
        raise ValueError
    return from_seconds(seconds)


def count_of(cell: str) -> int:
    """A number of things, see `COUNT_CELL`."""
    count = int(cell)
    if not 1 <= count < 2**31:
        raise ValueError
    return count


def number_of(cell: str) -> float:
    """Any number that is finite."""
    number = float(cell)
    if not math.isfinite(number):
        raise ValueError
    return number


def amount_of(cell: str) -> float:
    """A number, 0 or more."""
    amount = number_of(cell)
    if amount < 0:
        raise ValueError
    return amount


def shape_of(cell: str) -> int:
    """The place of a penalty's shape in `SHAPES`."""
    return shape_place(cell.lower(), "shape")


def share_of(cell: str) -> float:
    """A number from 0 to 1."""
    share = float(cell)
    if not 0 <= share <= 1:
        raise ValueError
    return share
