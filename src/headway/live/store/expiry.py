"""Deletes expired rows: events, snapshots, ended jobs, idempotency keys, clients, functions, uploads.

Each step looks at a bounded number of rows and takes a transaction of its own, so that it delays no caller; indexes
find what is due. If something due may have to stay for another reason, a step continues after the last one, and starts
over at the end (`Walk`). The triggers of the schema count what is deleted, see `live.store.vouching`, and numbers of
events, messages and jobs continue from the greatest there ever was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from headway.live.store.away import Away
from headway.live.store.retained import SIZE_MAX, within
from headway.model.instant import Duration, Instant
from headway.model.job import JobId

EVENTS_MAX: Final = 2_000_000
"""About how many events are kept at most, if they are deleted at all."""

INCIDENTS_MAX: Final = 10_000
"""How many incidents older than the events are kept at most."""

SPACES: Final = 4
"""About how many snapshots are kept for the time of the kept events: events are deleted up to one of these."""

PAGES_KEPT: Final = 1024
"""How many empty pages stay in the file, ..."""

PAGES_SHARE: Final = 8
"""... or all pages divided by this, if that is more."""


@dataclass(slots=True)
class Walk:
    """How far a table has been searched; `after` is the order key of the last row that was looked at."""

    after: tuple[Any, ...] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the next step starts over."""
        return self.after is None


class Expiry:
    """Deletes rows of the journal.

    Args:
        db: the journal's file.
        transaction: makes what is written durable; raises `NotNow` if it cannot.
        away: the gaps in which nothing could be fetched.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        away: Away,
    ) -> None:
        self._db = db
        self._away = away
        self._transaction = transaction
        self._events_gone = 0

    def drop_snapshots(self, keep: Duration | None, now: Instant) -> int:
        """Delete snapshots that are not needed. Returns the number of the event after which events are kept.

        The last two stay. Before them one stays from which the time `keep` can be replayed, and some in between, so
        that this one can move on; if events are kept for ever (None) it is the first.

        Raises:
            NotNow: not now.
        """
        rows = self._db.execute("SELECT seq, at FROM snapshots ORDER BY seq").fetchall()
        if not rows:
            return 0
        last_two, earlier = rows[-2:], rows[:-1]
        base = rows[0]
        if keep is not None:
            since, first = self._away.before(now, keep), rows[-1][0] - EVENTS_MAX
            old = [row for row in earlier if row[1] <= since or row[0] < first]
            base = old[-1] if old else base
        stay = [base]
        if keep is not None:
            for row in earlier:
                if row[0] <= base[0]:
                    continue
                if row[1] - stay[-1][1] >= keep // SPACES or row[0] - stay[-1][0] >= EVENTS_MAX // SPACES:
                    stay.append(row)
        gone = [(seq,) for seq, at in rows if (seq, at) not in stay and (seq, at) not in last_two]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM snapshots WHERE seq = ?", gone)
        return int(base[0])

    def drop_events(self, until: int, limit: int) -> bool:
        """Delete events with numbers up to `until`, except incidents; returns whether there may be more.

        Raises:
            NotNow: not now.
        """
        if self._events_gone >= until:
            return False
        rows = self._db.execute(
            "SELECT seq, kind FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (self._events_gone, until, limit),
        ).fetchall()
        gone = [(seq,) for seq, kind in rows if kind != "Incident"]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM events WHERE seq = ?", gone)
        self._events_gone = rows[-1][0] if len(rows) == limit else until
        return len(rows) == limit

    def drop_incidents(self, until: int, since: Instant, limit: int) -> bool:
        """Delete incidents with event numbers up to `until` that are older than `since`, or too many.

        Returns:
            Whether there may be more.

        Raises:
            NotNow: not now.
        """
        latest = self._db.execute(
            "SELECT seq FROM events WHERE kind = 'Incident' ORDER BY seq DESC LIMIT 1 OFFSET ?", (INCIDENTS_MAX - 1,)
        ).fetchone()
        first = latest[0] if latest else 0
        rows = self._db.execute(
            "SELECT seq, at FROM events WHERE kind = 'Incident' AND seq <= ? ORDER BY seq LIMIT ?", (until, limit)
        ).fetchall()
        gone = [(seq,) for seq, at in rows if at < since or seq < first]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM events WHERE seq = ?", gone)
        return len(gone) == limit

    def drop_jobs(self, until: Instant, limit: int, walk: Walk) -> list[JobId]:
        """Delete the rows of jobs that had ended at an instant and have no messages left; returns their ids.

        Raises:
            NotNow: not now.
        """
        rows = self._db.execute(
            "SELECT ended, id FROM jobs WHERE ended IS NOT NULL AND (ended, id) > (?, ?) AND ended <= ?"
            " ORDER BY ended, id LIMIT ?",
            (*(walk.after or (-1, -1)), until, limit),
        ).fetchall()
        walk.after = rows[-1] if len(rows) == limit else None
        there = "SELECT 1 FROM messages WHERE job = ? LIMIT 1"
        gone = [job for _, job in rows if not self._db.execute(there, (job,)).fetchone()]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM jobs WHERE id = ?", [(job,) for job in gone])
                for table in ("acknowledged", "job_statistics", "job_losses", "service_costs", "job_money", "job_work"):
                    db.executemany(f"DELETE FROM {table} WHERE job = ?", [(job,) for job in gone])
        return gone

    def drop_keys(self, until: Instant, limit: int) -> bool:
        """Delete idempotency keys of submissions accepted at an instant or before; returns whether there may be more.

        Raises:
            NotNow: not now.
        """
        rows = self._db.execute(
            "SELECT caller, key FROM submissions WHERE at <= ? ORDER BY at LIMIT ?", (until, limit)
        ).fetchall()
        if rows:
            with self._transaction() as db:
                db.executemany("DELETE FROM submissions WHERE caller = ? AND key = ?", rows)
        return len(rows) == limit

    def drop_clients(self, is_used: Callable[[int], bool], limit: int, walk: Walk) -> list[str]:
        """Delete clients without jobs, unless they are in use; returns their texts.

        Raises:
            NotNow: not now.
        """
        rows = self._db.execute(
            "SELECT id, name FROM clients WHERE id > ? ORDER BY id LIMIT ?", (*(walk.after or (0,)), limit)
        ).fetchall()
        walk.after = rows[-1][:1] if len(rows) == limit else None
        there = "SELECT 1 FROM jobs WHERE client = ? LIMIT 1"
        gone = [row for row in rows if not (is_used(row[0]) or self._db.execute(there, row[:1]).fetchone())]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM clients WHERE id = ?", [(number,) for number, _ in gone])
        return [name for _, name in gone]

    def drop_blobs(self, unused_since: Instant, needs: Callable[[str], bool], limit: int, walk: Walk) -> list[str]:
        """Delete functions that were not used since an instant and that no job needs; returns their names.

        Raises:
            NotNow: not now.
        """
        names = self._unused("blobs", "length(body)", unused_since, limit, walk)
        kept = self._kept() if names else set()
        gone = [name for name in names if not (name in kept or needs(name))]
        if gone:
            with self._transaction() as db:
                db.executemany("DELETE FROM blobs WHERE name = ?", [(name,) for name in gone])
        return gone

    def unused_uploads(self, unused_since: Instant, needs: Callable[[str], bool], limit: int, walk: Walk) -> list[str]:
        """Files that were not used since an instant, that no open job needs and no result keeps."""
        there = "SELECT 1 FROM outputs WHERE upload = ? LIMIT 1"
        names = self._unused("uploads", "0", unused_since, limit, walk)
        kept = self._kept() if names else set()
        return [
            name for name in names if not (name in kept or needs(name) or self._db.execute(there, (name,)).fetchone())
        ]

    def _kept(self) -> set[str]:
        """Functions and uploads of ended jobs whose failed tasks can be run again."""
        rows = self._db.execute("SELECT functions FROM jobs WHERE ended IS NOT NULL AND functions IS NOT NULL")
        return {name for (names,) in rows for name in names.split()}

    def _unused(self, table: str, size: str, since: Instant, limit: int, walk: Walk) -> list[str]:
        rows = self._db.execute(
            f"SELECT {size}, used, name FROM {table} WHERE used < ? AND (used, name) > (?, ?)"
            " ORDER BY used, name LIMIT ?",
            (since, *(walk.after or (-1, "")), limit),
        ).fetchall()
        some = within(rows, SIZE_MAX)
        walk.after = some[-1][1:] if len(rows) == limit or len(some) < len(rows) else None
        return [name for *_, name in some]

    def give_back(self, pages: int) -> bool:
        """Give empty pages of the file back to the disk, if there are many; returns whether there were any.

        Some are kept for the next rows, so that the file need not grow.
        """
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (all_,) = self._db.execute("PRAGMA page_count").fetchone()
        if free <= max(PAGES_KEPT, all_ // PAGES_SHARE):
            return False
        self._db.execute(f"PRAGMA incremental_vacuum({int(pages)})").fetchall()
        return True
