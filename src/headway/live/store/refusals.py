"""The table of refused requests, in the journal's file: no event, for they change nothing.

It is described in docs/reference/journal.md. Nothing of the server depends on it: it may be emptied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from headway.model.instant import Instant

REFUSALS_MAX: Final = 100_000
"""How many rows there may be; older ones are deleted first."""

REFUSALS_TABLE: Final = (
    "refusals (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, user TEXT NOT NULL, peer TEXT NOT NULL,"
    " request TEXT NOT NULL, status INTEGER NOT NULL, code TEXT NOT NULL, detail TEXT NOT NULL, times INTEGER NOT NULL)"
)
"""Refused requests; older journals get this table when they are opened."""


class RefusalRow(NamedTuple):
    """Requests that were refused alike within a short time.

    Attributes:
        at: when the last of them was.
        user: who sent them; empty: nobody who is known.
        peer: from which address.
        request: the name of their route.
        status, code, detail: of the answer to the last.
        times: how many.
    """

    at: Instant
    user: str
    peer: str
    request: str
    status: int
    code: str
    detail: str
    times: int


class RefusalTable:
    """Writes and reads the table.

    Args:
        db: the journal's file.
        transaction: makes what is written durable; raises `NotNow` where that cannot be.
    """

    def __init__(
        self, db: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._db = db
        self._transaction = transaction

    def write(self, rows: Iterable[RefusalRow]) -> None:
        """Add rows.

        Raises:
            NotNow: nothing was written.
        """
        with self._transaction() as db:
            db.executemany("INSERT INTO refusals VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def latest(self, user: str | None, since: Instant, limit: int) -> list[RefusalRow]:
        """The latest rows of an instant or later, at most `limit`, in order.

        Args:
            user: only of this one; None: of all.
        """
        rows = self._db.execute(
            "SELECT at, user, peer, request, status, code, detail, times FROM refusals"
            " WHERE at >= ?1 AND (?2 IS NULL OR user = ?2) ORDER BY number DESC LIMIT ?3",
            (since, user, limit),
        ).fetchall()
        return [RefusalRow(*row) for row in reversed(rows)]

    def drop(self, since: Instant, limit: int) -> bool:
        """Delete rows from before an instant, and those that are too many; returns whether there may be more.

        Raises:
            NotNow: not now.
        """
        (last,) = self._db.execute("SELECT coalesce(max(number), 0) FROM refusals").fetchone()
        gone = self._db.execute(
            "SELECT number FROM refusals WHERE at < ? OR number <= ? ORDER BY number LIMIT ?",
            (since, last - REFUSALS_MAX, limit),
        ).fetchall()
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM refusals WHERE number = ?", gone)
        return len(gone) == limit
