"""Results as tables of texts, for the screen and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """Numbers as texts; a row is a list with one cell for each column."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as Markdown, its title in bold above it."""
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = (f"| {' | '.join(cells)} |" for cells in (self.columns, rule, *self.rows))
        return f"**{self.title}**\n\n" + "\n".join(lines) + "\n"


def number_text(value: float) -> str:
    """A number with three digits, or from 100 on as a whole number.

    >>> number_text(12345.6), number_text(12.345), number_text(0.5)
    ('12,346', '12.3', '0.5')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
