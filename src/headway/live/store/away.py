"""Time in which nothing could be fetched does not count as time in which it was kept.

The server was down, the machine slept, or its clock was set forward: such a gap is recorded, and everything that could
not be fetched then is kept longer by it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from headway.live.store.rows import Rows
from headway.model.instant import SECOND, Duration, Instant

AWAY_LEAST: Final[Duration] = 60 * SECOND
"""A shorter gap counts as time in which the server was up."""

GAPS_MAX: Final = 1000
"""The latest gaps that are remembered."""

_PREFIX: Final = "away "


class Away:
    """The gaps of one journal.

    Args:
        db: the journal's file.
        rows: reads it.
        transaction: makes what is written durable; raises `NotNow` if it cannot.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        rows: Rows,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._db = db
        self._transaction = transaction
        self._new: list[tuple[Instant, Instant]] = []
        self._gaps = sorted(
            (int(name.removeprefix(_PREFIX)), int(until))
            for name, until, _ in rows.of("meta", "WHERE name GLOB ?", (f"{_PREFIX}*",))
        )

    def last_seen(self) -> Instant | None:
        """The last instant at which the server is known to have been up; None if it never was."""
        events = self._db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        metrics = self._db.execute("SELECT max(at) FROM node_metrics").fetchone()
        return max((int(row[0]) for row in (events, metrics) if row and row[0] is not None), default=None)

    def note(self, since: Instant, until: Instant) -> None:
        """Record a gap in which nothing could be fetched. `keep` makes it durable."""
        if until - since >= AWAY_LEAST:
            self._gaps.append((since, until))
            self._new.append((since, until))

    def keep(self) -> None:
        """Make durable what was recorded.

        Raises:
            NotNow: not now.
        """
        if not self._new:
            return
        forgotten, gaps = self._gaps[:-GAPS_MAX], self._gaps[-GAPS_MAX:]
        with self._transaction() as db:
            db.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", [(_name(since), until) for since, until in self._new]
            )
            db.executemany("DELETE FROM meta WHERE name = ?", [(_name(since),) for since, _ in forgotten])
        self._gaps, self._new = gaps, []

    def before(self, now: Instant, keep: Duration) -> Instant:
        """What was stored at this instant or earlier could be fetched for as long as `keep`."""
        at = now - keep
        for since, until in reversed(self._gaps):
            if until <= at:
                break
            at -= until - since
        return at


def _name(since: Instant) -> str:
    return f"{_PREFIX}{since}"
