"""A core that follows a journal while its server writes it: questions about the state cost the server nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput
from headway.live.store.decisions import event_of, replay
from headway.live.store.journal import state_of
from headway.live.store.rows import Rows
from headway.live.store.schema import FILE, connect_to_read
from headway.model.instant import Instant, to_seconds
from headway.model.snapshot import PolicySource


class Follower:
    """Reads a journal from a stored state on, and keeps a core at its end.

    Args:
        folder: the data directory; its server may run.
        policies: finds a policy by its text. It is not asked for what was decided: that is recorded.
        at: an instant; the core stays at the last event until then. None: it goes on.

    Attributes:
        core: the scheduler as it was after event `seq`.
        seq: the number of the last event read.

    Raises:
        InvalidInput: the journal knows nothing of that instant any more.
        HeadwayError: there is no journal, or it cannot be read.
    """

    def __init__(self, folder: Path, policies: PolicySource, *, at: Instant | None = None) -> None:
        self._path = folder / FILE
        self._at = at
        self._policies = policies
        try:
            self._db = connect_to_read(self._path)
        except sqlite3.Error as error:
            raise _unreadable(self._path, error) from error
        try:
            self._rows = Rows(self._db, self._path)
            self._load()
            self.catch_up()
        except BaseException:
            self._db.close()
            raise

    def _load(self) -> None:
        """Begin with the last stored state that is not after the instant.

        Raises:
            InvalidInput, HeadwayError: as of the class.
        """
        first = None
        try:
            for row in self._rows.of("snapshots", "ORDER BY seq DESC", body="NULL"):
                record = state_of(row[2])
                if self._at is None or record.now <= self._at:
                    self.seq, self.core = int(row[0]), Scheduler.restore(record, self._policies)
                    return
                first = record.now
        except sqlite3.Error as error:
            raise _unreadable(self._path, error) from error
        if first is None:
            raise HeadwayError(f"{self._path} has no state", "No server has been started on it yet.")
        raise InvalidInput(
            "--at", to_seconds(self._at or 0), f"{to_seconds(first):.3f} or later, with which the journal begins"
        )

    def catch_up(self) -> int:
        """Read what was written since; returns how many events that were.

        Raises:
            HeadwayError: the journal cannot be read, or events were deleted that had not been read.
        """
        which, values = "WHERE seq > ? ORDER BY seq", [self.seq]
        if self._at is not None:
            which, values = "WHERE seq > ? AND at <= ? ORDER BY seq", [self.seq, self._at]
        before = self.seq
        try:
            for seq, _, kind, body, _ in self._rows.of("events", which, values):
                if seq != self.seq + 1:  # what lies between was deleted as too old: a stored state has it
                    self._load()
                    return self.catch_up() + self.seq - before
                replay(self.core, event_of(kind, body), body)
                self.seq = int(seq)
        except sqlite3.Error as error:
            raise _unreadable(self._path, error) from error
        return self.seq - before

    def state(self, now: Instant | None = None) -> StateRecord:
        """The state as a record.

        Args:
            now: the time it is; None: that of the last event, or the instant asked for.
        """
        record = self.core.dump()
        until = self._at if now is None else now
        return record if until is None else replace(record, now=max(record.now, until))

    def close(self) -> None:
        """Read no more."""
        self._db.close()


def _unreadable(path: Path, error: Exception) -> HeadwayError:
    return HeadwayError(f"{path} cannot be read: {error}", "Name a data directory of `headway up`.")
