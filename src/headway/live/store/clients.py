"""Clients of the journal: each text under which messages are asked for has a number in the other tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence


class Clients:
    """The numbers. A number without a submission is in memory only: a client that only asks writes nothing.

    Args:
        db: the journal's file.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._numbers: dict[str, int] = {name: number for number, name in db.execute("SELECT id, name FROM clients")}
        self._db = db
        self._last = max(self._numbers.values(), default=0)
        self._new: dict[int, str] = {}
        self._lately: set[int] = set()
        self._before: set[int] = set()

    def number(self, name: str) -> int:
        """The number of a text, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            # Not one that was used before: a caller may still wait under it.
            self._last = number = self._last + 1
            self._numbers[name] = number
            self._new[number] = name
        self._lately.add(number)
        return number

    def known(self, name: str) -> int:
        """The number of a text; 0 if it has none."""
        return self._numbers.get(name, 0)

    def name(self, number: int) -> str:
        """The text of a number; empty if it has none any more."""
        row = self._db.execute("SELECT name FROM clients WHERE id = ?", (number,)).fetchone()
        return self._new.get(number, "") if row is None else str(row[0])

    def to_record(self, number: int) -> list[tuple[int, str]]:
        """What must be recorded before a number is used in another table."""
        return [(number, self._new[number])] if number in self._new else []

    def recorded(self, rows: Sequence[tuple[int, str]]) -> None:
        """Everything that had to be recorded is durable."""
        for number, _ in rows:
            self._new.pop(number, None)

    def look_again(self) -> None:
        """From here on `lately` counts from when this was called before."""
        self._before, self._lately = self._lately, set()

    def lately(self, number: int) -> bool:
        """Whether a number was asked for since `look_again` was called the time before the last."""
        return number in self._lately or number in self._before

    def forget(self, names: Sequence[str]) -> None:
        """These texts are no longer recorded."""
        for name in names:
            self._numbers.pop(name, None)

    def forget_new(self, is_used: Callable[[int], bool]) -> None:
        """Drop numbers without submissions, except those that are in use."""
        for number, name in [(number, name) for number, name in self._new.items() if not is_used(number)]:
            del self._new[number]
            self._numbers.pop(name, None)
