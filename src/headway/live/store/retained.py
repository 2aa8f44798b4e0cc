"""How long results and files are kept: the tables of acknowledgements, of uploads, and of files that results name.

They are in the journal's file and described in docs/reference/journal.md. Deleting is done in small parts, so that
no request has to wait.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

import msgspec

from headway.live.store.vouching import sum_of
from headway.model.instant import Instant
from headway.model.job import JobId
from headway.wire import TaskResult

RETAINED_SCHEMA: Final = f"""
CREATE TABLE acknowledged (
    job INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
    {sum_of("acknowledged")}
);
CREATE TABLE uploads (
    name TEXT PRIMARY KEY, used INTEGER NOT NULL, size INTEGER NOT NULL,
    {sum_of("uploads")}
) WITHOUT ROWID;
CREATE INDEX uploads_used ON uploads (used);
CREATE TABLE outputs (
    job INTEGER NOT NULL, task INTEGER NOT NULL, upload TEXT NOT NULL,
    {sum_of("outputs")},
    PRIMARY KEY (job, task, upload)
) WITHOUT ROWID;
CREATE INDEX outputs_upload ON outputs (upload);
CREATE INDEX acknowledged_job ON acknowledged (job);
CREATE INDEX messages_ends ON messages (at) WHERE task IS NULL;
"""

PUT_ACKNOWLEDGED: Final = "INSERT INTO acknowledged VALUES (?, ?, ?, ?, ?)"
PUT_UPLOAD: Final = """INSERT INTO uploads VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET used = max(used, excluded.used), size = max(size, excluded.size)"""
PUT_OUTPUT: Final = "INSERT OR IGNORE INTO outputs VALUES (?, ?, ?)"

AFTER_ALL_TASKS: Final = 2**62
"""Greater than the number of any task."""

SIZE_MAX: Final = 1 << 20
"""At most so many bytes of results are deleted in one transaction, but at least one result: their pages take time."""

_FORGET_WORK: Final = """UPDATE jobs SET functions = NULL, work = NULL
    WHERE id = ? AND ended IS NOT NULL AND functions IS NOT NULL"""
"""Of a job whose failed tasks can be run again as long as there are results; of others little is kept, and stays."""

_IN = "job = ? AND task >= ? AND task < ?"

R = TypeVar("R", bound=tuple[Any, ...])

_result = msgspec.msgpack.Decoder(TaskResult)


class Retained:
    """Reads the tables, and deletes what need not be kept.

    Args:
        db: the journal's file.
        transaction: makes what is written durable; raises `NotNow` if it cannot.

    Attributes:
        stored: bytes of the output files that belong to results, and of uploads.
        stored_of: bytes of the output files that belong to results, by the user of their jobs.
        forgotten: the number of the last message that was deleted without an acknowledgement, because its time was
            over; 0 if there was none.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._db = db
        self._transaction = transaction
        (files,) = db.execute("SELECT coalesce(sum(files), 0) FROM messages WHERE files > 0").fetchone()
        (uploads,) = db.execute("SELECT coalesce(sum(size), 0) FROM uploads").fetchone()
        self.stored = int(files + uploads)
        by_user = db.execute(
            "SELECT user, sum(files) FROM messages JOIN jobs ON jobs.id = job WHERE files > 0 GROUP BY user"
        )
        self.stored_of: Counter[str] = Counter(dict(by_user))
        row = db.execute("SELECT value FROM meta WHERE name = 'forgotten'").fetchone()
        self.forgotten = int(row[0]) if row else 0

    def clear(self, jobs: Sequence[JobId], limit: int, *, unasked: bool = False) -> tuple[int, list[JobId], list[str]]:
        """Delete messages and results of ended jobs, up to a limit.

        Args:
            unasked: not on request, but because their time is over.

        Returns:
            How many of these jobs had any, and have none now; the jobs that are still to be cleared; and the paths of
            output files, which the caller removes.

        Raises:
            NotNow: not now.
        """
        cleared, paths, freed, size_max = 0, list[str](), Counter[JobId](), SIZE_MAX
        left, forgotten = list(jobs), self.forgotten
        with self._transaction() as db:
            while left and limit > 0 and size_max > 0:
                job = left[0]
                if db.execute("SELECT 1 FROM jobs WHERE id = ? AND ended IS NOT NULL", (job,)).fetchone():
                    found = db.execute(  # the message that the job has ended is the last one, because it has no task
                        "SELECT length(result), number, task, files, CASE WHEN files > 0 THEN result END FROM messages"
                        " WHERE job = ? ORDER BY task DESC LIMIT ?",
                        (job, limit),
                    ).fetchall()
                    rows = within(found, size_max)
                    db.executemany("DELETE FROM messages WHERE number = ?", [row[1:2] for row in rows])
                    freed[job] += sum(files for *_, files, _ in rows)
                    paths += _paths(result for *_, result in rows if result)
                    if unasked:
                        forgotten = max(forgotten, *(row[1] for row in rows), 0)
                    limit -= len(rows)
                    size_max -= sum(size or 0 for size, *_ in rows)
                    is_last = bool(rows) and rows[-1][2] is None
                    if not is_last and (limit <= 0 or len(rows) < len(found)):
                        break
                    for table in ("outputs", "acknowledged"):
                        db.execute(f"DELETE FROM {table} WHERE job = ?", (job,))
                    db.execute(_FORGET_WORK, (job,))
                    cleared += is_last
                limit -= 1
                del left[0]
            if forgotten != self.forgotten:
                db.execute("INSERT OR REPLACE INTO meta VALUES ('forgotten', ?)", (forgotten,))
        self._free(freed)
        self.forgotten = forgotten
        return cleared, left, paths

    def clear_acknowledged(
        self, until: Instant, limit: int, again: Instant = 0, is_used: Callable[[JobId], bool] = lambda job: False
    ) -> list[str]:
        """Delete results that were acknowledged at an instant or before, up to a limit.

        Of an open job, the message stays without its result, because it counts what is done. The last message of an
        ended job is deleted with its last result.

        Args:
            again: an instant after `until`.
            is_used: whether tasks of a job may still get the results of others; they are looked at again as if they
                were acknowledged at `again`.

        Returns:
            The paths of their output files, which the caller removes.

        Raises:
            NotNow: not now.
        """
        paths, freed, size_max = list[str](), Counter[JobId](), SIZE_MAX
        with self._transaction() as db:
            while limit > 0 and size_max > 0:
                row = db.execute(
                    "SELECT rowid, job, first, last, number FROM acknowledged WHERE at <= ? ORDER BY rowid LIMIT 1",
                    (until,),
                ).fetchone()
                if row is None:
                    break
                rowid, job, first, last, number = row
                if is_used(job):
                    db.execute("DELETE FROM acknowledged WHERE rowid = ?", (rowid,))
                    db.execute(PUT_ACKNOWLEDGED, (job, first, last, number, again))
                    limit -= 1
                    continue
                ended = not db.execute("SELECT 1 FROM jobs WHERE id = ? AND ended IS NULL", (job,)).fetchone()
                here = f"{_IN} AND number <= ?" + ("" if ended else " AND result IS NOT NULL")
                all_found = db.execute(
                    f"SELECT length(result), task, files FROM messages WHERE {here} ORDER BY task LIMIT ?",
                    (job, first, last, number, limit),
                ).fetchall()
                found = within(all_found, size_max)
                if found:
                    size_max -= sum(size or 0 for size, *_ in found)
                    some = (job, first, found[-1][1] + 1)
                    rows = db.execute(f"SELECT result FROM messages WHERE {here} AND files > 0", (*some, number))
                    paths += _paths(result for (result,) in rows)
                    freed[job] += sum(files for *_, files in found)
                    if ended:
                        db.execute(f"DELETE FROM messages WHERE {here}", (*some, number))
                    else:
                        db.execute(f"UPDATE messages SET result = NULL, files = 0 WHERE {here}", (*some, number))
                    db.execute(f"DELETE FROM outputs WHERE {_IN}", some)
                if len(found) == limit or len(found) < len(all_found):  # there may be more
                    db.execute("UPDATE acknowledged SET first = ? WHERE rowid = ?", (found[-1][1] + 1, rowid))
                    break
                db.execute("DELETE FROM acknowledged WHERE rowid = ?", (rowid,))
                if ended:
                    db.execute(
                        "DELETE FROM messages WHERE job = ?1 AND number <= ?2"
                        " AND NOT EXISTS (SELECT 1 FROM messages WHERE job = ?1 AND task IS NOT NULL)",
                        (job, number),
                    )
                    if not db.execute("SELECT 1 FROM messages WHERE job = ?", (job,)).fetchone():
                        db.execute(_FORGET_WORK, (job,))
                limit -= 1 + len(found)
        self._free(freed)
        return paths

    def keep(self, files: Iterable[tuple[JobId, int]]) -> None:
        """Output files of so many bytes belong to results of these jobs from now on."""
        for job, size in files:
            self.stored += size
            self.stored_of[self._user_of(job)] += size

    def _free(self, files: Mapping[JobId, int]) -> None:
        for job, size in files.items():
            if size:
                self.stored -= size
                self.stored_of[self._user_of(job)] -= size

    def _user_of(self, job: JobId) -> str:
        row = self._db.execute("SELECT user FROM jobs WHERE id = ?", (job,)).fetchone()
        return "" if row is None else str(row[0])

    def oldest(self) -> Instant | None:
        """When the oldest acknowledgement was made that is still to be followed; None if there is none."""
        row = self._db.execute("SELECT at FROM acknowledged ORDER BY rowid LIMIT 1").fetchone()
        return None if row is None else int(row[0])

    def ended_until(self, until: Instant, limit: int) -> list[JobId]:
        """The first jobs, up to a limit, that had ended at an instant and still have results."""
        rows = self._db.execute(
            "SELECT job FROM messages WHERE task IS NULL AND at <= ? ORDER BY at LIMIT ?", (until, limit)
        )
        return [job for (job,) in rows]

    def has_files(self, job: JobId) -> bool:
        """Whether output files belong to results of a job, or may do so later because it is open."""
        is_open = "SELECT 1 FROM jobs WHERE id = ? AND ended IS NULL"
        files = "SELECT 1 FROM messages WHERE job = ? AND files > 0 LIMIT 1"
        return any(self._db.execute(query, (job,)).fetchone() for query in (is_open, files))

    def has_upload(self, name: str) -> bool:
        """Whether the file of this name is kept."""
        return self._db.execute("SELECT 1 FROM uploads WHERE name = ?", (name,)).fetchone() is not None

    def upload_size(self, name: str) -> int | None:
        """How many bytes the file of this name has, as far as that is known; None: it is not kept."""
        row = self._db.execute("SELECT size FROM uploads WHERE name = ?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def uploads(self) -> set[str]:
        """Names of all files that are kept."""
        return {name for (name,) in self._db.execute("SELECT name FROM uploads")}

    def keep_upload(self, name: str, now: Instant, size: int) -> None:
        """Record that a file of this many bytes is there, and is used now.

        Raises:
            NotNow: not now.
        """
        is_new = not self.has_upload(name)
        with self._transaction() as db:
            db.execute(PUT_UPLOAD, (name, now, size))
        self.stored += size if is_new else 0

    def drop_upload(self, name: str, unused_since: Instant) -> bool:
        """Delete the row of a file, unless it was used since an instant; returns whether it was deleted.

        Raises:
            NotNow: not now.
        """
        with self._transaction() as db:
            row = db.execute("SELECT size FROM uploads WHERE name = ? AND used < ?", (name, unused_since)).fetchone()
            if row is not None:
                db.execute("DELETE FROM uploads WHERE name = ?", (name,))
        self.stored -= row[0] if row else 0
        return row is not None


def within(rows: list[R], size_max: int) -> list[R]:
    """The first rows, which begin with a size or None, up to the one with which they reach this many bytes.

    >>> within([(3,), (None,), (4,), (1,)], 7), within([(9,), (1,)], 7)
    ([(3,), (None,), (4,)], [(9,)])
    """
    for place, row in enumerate(rows):
        size_max -= row[0] or 0
        if size_max <= 0:
            return rows[: place + 1]
    return rows


def _paths(bodies: Iterable[bytes]) -> list[str]:
    """Paths of the files with the whole output of results."""
    endings = [ending for body in bodies for ending in _result.decode(body).endings]
    return [path for ending in endings for path in (ending.stdout_path, ending.stderr_path) if path]
