"""Reads rows of the journal and compares each with its checksum, so that no changed row is passed on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from headway.errors import Damaged, JournalBusy, JournalFull
from headway.live.store.vouching import BODIES, GUARDED, UNREADABLE, body_sum, row_sum

_NO_ROOM: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_HELD: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def not_whole(folder: Path) -> str:
    """What to do about a damaged journal while a server uses it; `verification.whole_again` is for other times."""
    return (
        f"`headway check {folder}` lists all that is wrong. End the server; then `headway restore BACKUP {folder}` puts"
        f" a backup in its place, or `headway up --data {folder} --accept-loss` starts with what is whole."
    )


class Rows:
    """Reads the tables of `GUARDED`.

    Args:
        db: the journal's file.
        path: where it is.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def of(
        self, table: str, which: str, values: Sequence[Any] = (), *, body: str = "NULL"
    ) -> Iterator[tuple[Any, ...]]:
        """Whole rows of a table, with the columns that `GUARDED` lists, and last what was read of the body.

        Args:
            which: what follows the table's name in the statement; its `?` come after those of `body`.
            body: for tables in `BODIES`, an expression that is the body, or NULL if it is not wanted.

        Raises:
            Damaged: a row was changed on the disk, or the file cannot be read there.
            NotNow: another program has locked the file.
        """
        columns = GUARDED[table]
        at = columns.split(", ").index(BODIES[table][1]) if table in BODIES else None
        try:
            for content, its_sum, *row in self._db.execute(
                f"SELECT {body}, sum, {columns} FROM {table} {which}", values
            ):
                if row_sum(*row) != its_sum or (
                    content is not None and at is not None and body_sum(content) != row[at]
                ):
                    raise self._changed(table, row[0])
                yield (*row, content)
        except UNREADABLE as error:
            refuse(error, self._path)

    def one(self, table: str, which: str, values: Sequence[Any] = (), *, body: str = "NULL") -> tuple[Any, ...] | None:
        """The first of such rows; None if there is none. Raises as `of`."""
        return next(self.of(table, which, values, body=body), None)

    def _changed(self, table: str, key: object) -> Damaged:
        name = GUARDED[table].split(",")[0]
        return Damaged(
            f"{self._path} is damaged: the row of {table} with {name} {key!r} is not as it was written",
            not_whole(self._path.parent),
        )


def refuse(error: Exception, path: Path) -> NoReturn:
    """Turn an error of SQLite into one of ours.

    Raises:
        NotNow: it passes by itself, or when there is room again.
        Damaged: any other.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _NO_ROOM:
        raise JournalFull(
            f"{path} cannot grow: {error}",
            "Make room on its disk. What was accepted is kept, and goes on by itself when there is room.",
        ) from error
    if code in _HELD:
        raise JournalBusy(
            f"{path} is locked by another program: {error}",
            "End its transaction. What was accepted is kept, and goes on by itself when the lock is gone.",
        ) from error
    raise Damaged(f"{path} is damaged: it cannot be read: {error}", not_whole(path.parent)) from error
