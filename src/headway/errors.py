"""What Headway tells a person when something they gave it cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HeadwayError(Exception):
    """An error meant for a person: what is wrong, and in `hint` what to do next.

    Commands print it without a traceback and end with exit status 2; the HTTP interface answers with its
    message.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n{self.hint}" if self.hint else message


class InvalidInput(HeadwayError):
    """A field of a file or a request has a value that is not allowed."""

    def __init__(
        self,
        field: str,
        value: object,
        allowed: str,
        *,
        source: str = "",
        line: int | None = None,
        hint: str = "",
    ) -> None:
        place = f"{source}:{line}: " if source and line is not None else f"{source}: " if source else ""
        super().__init__(f"{place}{cut(field)} is {shown(value)}; allowed: {allowed}", hint)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.source = source
        self.line = line


SHOWN_MAX = 400
"""Characters of a value that an error shows."""


def cut(text: str) -> str:
    """A text as it can stand in an error, however long it is.

    >>> len(cut("x" * 1_000_000))
    400
    """
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 20]}{' ... (cut)':>20}"[:SHOWN_MAX]


def shown(value: object) -> str:
    """A value as an error shows it, whatever was given.

    >>> shown("a"), shown(10**5000)
    ("'a'", 'a whole number of thousands of digits')
    """
    try:
        return cut(repr(value))
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a whole number of thousands of digits"
    except RecursionError:
        return "something of many layers"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that offers the known names nearest to a name that is not known; empty when none is near.

    >>> did_you_mean("prioritty", ["priority", "due"])
    'Did you mean priority?'
    """
    near = get_close_matches(name[:SHOWN_MAX].lower(), list(known))
    return f"Did you mean {' or '.join(near)}?" if near else ""


def in_short(text: str) -> str:
    """What others have said, as it can stand in a table, a log and the journal: one line that can be printed, cut.

    >>> in_short("out of\\nmemory"), len(in_short("x" * 1_000_000))
    ('out of\\\\nmemory', 500)
    """
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:500])
    return line if len(line) <= 500 and len(text) <= 500 else f"{line[:497]}..."
