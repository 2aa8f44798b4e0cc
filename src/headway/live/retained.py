"""How long results and files are kept: the tables of acknowledgements, of uploads, and of what results keep of them.

They are in the journal's file and described in docs/reference/journal.md. What may go is let go of in small parts, so
that whoever waits for the server is not kept waiting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from headway.live.vouching import sum_of
from headway.model.instant import Instant
from headway.model.job import JobId
from headway.wire import TaskResult

SCHEMA: Final = f"""
CREATE TABLE acknowledged (
    job INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
    {sum_of("acknowledged")}
);
CREATE TABLE uploads (
    name TEXT PRIMARY KEY, used INTEGER NOT NULL,
    {sum_of("uploads")}
) WITHOUT ROWID;
CREATE TABLE outputs (
    job INTEGER NOT NULL, task INTEGER NOT NULL, upload TEXT NOT NULL,
    {sum_of("outputs")},
    PRIMARY KEY (job, task, upload)
) WITHOUT ROWID;
CREATE INDEX outputs_upload ON outputs (upload);
CREATE INDEX acknowledged_job ON acknowledged (job);
CREATE INDEX messages_ends ON messages (at) WHERE task IS NULL;
"""

ACKNOWLEDGED: Final = "INSERT INTO acknowledged VALUES (?, ?, ?, ?, ?)"
UPLOADS: Final = "INSERT INTO uploads VALUES (?, ?) ON CONFLICT DO UPDATE SET used = max(used, excluded.used)"
OUTPUTS: Final = "INSERT OR IGNORE INTO outputs VALUES (?, ?, ?)"

LAST: Final = 2**62
"""Greater than the number of any task."""

_IN = "job = ? AND task >= ? AND task < ?"
_ENDED = "(SELECT ended IS NOT NULL FROM jobs WHERE id = job)"  # of this job alone: not a list of all that ended

_result = msgspec.msgpack.Decoder(TaskResult)


class Retained:
    """Reads the tables, and lets go of what need not be kept.

    Args:
        db: the journal's file.
        transaction: makes what is written durable; raises `NotNow` where that cannot be.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._db = db
        self._transaction = transaction

    def clear(self, jobs: Sequence[JobId]) -> tuple[int, list[str]]:
        """Let go of the messages and results of ended jobs.

        Returns:
            How many of these jobs had any, and the paths of their output files, which are the caller's to remove.

        Raises:
            NotNow: not now.
        """
        with self._transaction() as db:
            had, paths = 0, list[str]()
            for job in jobs:
                paths += _paths(db.execute(f"SELECT result FROM messages WHERE job = ? AND files AND {_ENDED}", (job,)))
                had += db.execute(f"DELETE FROM messages WHERE job = ? AND {_ENDED}", (job,)).rowcount > 0
                for table in ("outputs", "acknowledged"):
                    db.execute(f"DELETE FROM {table} WHERE job = ? AND {_ENDED}", (job,))
            return had, paths

    def clear_acknowledged(self, until: Instant, limit: int) -> list[str]:
        """Let go of results that were acknowledged at an instant or before, of at most so many.

        Of a job that goes on, a message without its result stays: it counts what is done. With the last result of an
        ended job goes its last message.

        Returns:
            The paths of their output files, which are the caller's to remove.

        Raises:
            NotNow: not now.
        """
        with self._transaction() as db:
            paths = list[str]()
            while limit > 0:
                row = db.execute(
                    "SELECT rowid, job, first, last, number FROM acknowledged WHERE at <= ? ORDER BY rowid LIMIT 1",
                    (until,),
                ).fetchone()
                if row is None:
                    break
                rowid, job, first, last, number = row
                ended = db.execute("SELECT ended IS NOT NULL FROM jobs WHERE id = ?", (job,)).fetchone()[0]
                here = f"{_IN} AND number <= ?" + ("" if ended else " AND result IS NOT NULL")
                found = [
                    task
                    for (task,) in db.execute(
                        f"SELECT task FROM messages WHERE {here} ORDER BY task LIMIT ?",
                        (job, first, last, number, limit),
                    )
                ]
                if found:
                    some = (job, first, found[-1] + 1)
                    paths += _paths(db.execute(f"SELECT result FROM messages WHERE {here} AND files", (*some, number)))
                    if ended:
                        db.execute(f"DELETE FROM messages WHERE {here}", (*some, number))
                    else:
                        db.execute(f"UPDATE messages SET result = NULL, files = 0 WHERE {here}", (*some, number))
                    db.execute(f"DELETE FROM outputs WHERE {_IN}", some)
                if len(found) == limit:  # there may be more
                    db.execute("UPDATE acknowledged SET first = ? WHERE rowid = ?", (found[-1] + 1, rowid))
                    break
                db.execute("DELETE FROM acknowledged WHERE rowid = ?", (rowid,))
                if ended:
                    db.execute(
                        "DELETE FROM messages WHERE job = ?1 AND number <= ?2"
                        " AND NOT EXISTS (SELECT 1 FROM messages WHERE job = ?1 AND task IS NOT NULL)",
                        (job, number),
                    )
                limit -= 1 + len(found)
            return paths

    def oldest(self) -> Instant | None:
        """When the acknowledgement was made that is to be followed next; None if there is none."""
        row = self._db.execute("SELECT at FROM acknowledged ORDER BY rowid LIMIT 1").fetchone()
        return None if row is None else int(row[0])

    def ended_until(self, until: Instant, limit: int) -> list[JobId]:
        """Jobs that had ended at an instant, and whose results have not been let go of; the first so many."""
        rows = self._db.execute(
            "SELECT job FROM messages WHERE task IS NULL AND at <= ? ORDER BY at LIMIT ?", (until, limit)
        )
        return [job for (job,) in rows]

    def has_upload(self, name: str) -> bool:
        """Whether the file of this name is kept."""
        return self._db.execute("SELECT 1 FROM uploads WHERE name = ?", (name,)).fetchone() is not None

    def uploads(self) -> set[str]:
        """Names of all files that are kept."""
        return {name for (name,) in self._db.execute("SELECT name FROM uploads")}

    def keep_upload(self, name: str, now: Instant) -> None:
        """A file is there, and used now.

        Raises:
            NotNow: not now.
        """
        with self._transaction() as db:
            db.execute(UPLOADS, (name, now))

    def drop_uploads(self, unused_since: Instant) -> list[str]:
        """Let go of files that no open job needs, no result keeps, and nobody has used since; their names.

        Raises:
            NotNow: not now.
        """
        with self._transaction() as db:
            old = db.execute(
                "SELECT name FROM uploads WHERE used < ? AND name NOT IN (SELECT upload FROM outputs)", (unused_since,)
            ).fetchall()
            wanted = needed(db) if old else set()
            gone = [name for (name,) in old if name not in wanted]
            db.executemany("DELETE FROM uploads WHERE name = ?", [(name,) for name in gone])
            return gone


def needed(db: sqlite3.Connection) -> set[str]:
    """Names of the functions and uploads that open jobs need."""
    return {name for row in db.execute("SELECT functions FROM jobs WHERE ended IS NULL") for name in row[0].split()}


def _paths(rows: sqlite3.Cursor) -> list[str]:
    """Paths of the files that hold the whole output of results."""
    results = [_result.decode(body) for (body,) in rows]
    endings = [ending for result in results for ending in (result.ending, *result.members)]
    return [path for ending in endings for path in (ending.stdout_path, ending.stderr_path) if path]
