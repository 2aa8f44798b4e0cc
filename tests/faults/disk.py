"""A disk in memory for a real journal, which fails, refuses, delays and dies by a seed.

What SQLite has committed on it is there after a crash; of what was not committed there is nothing. The bytes of the
database are all that goes from one process to the next.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from headway.errors import NoSuchUpload
from headway.live.room import Free
from headway.live.store.disk import Disk
from headway.live.store.mark import Mark, Reached
from headway.live.store.opening import OpenJournal
from headway.live.store.schema import make_tables
from headway.live.store.verification import check_whole_in
from headway.live.store.vouching import Vouching, define
from headway.live.uploads import Uploads

from .virtual import Died, Life, VirtualLoop

SIZE = 1 << 40


class SimMark(Mark):
    """Where the mark is written; it survives the process."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def write(self, reached: Reached) -> None:
        """Record how far the journal has come, or fail."""
        self._disk.marks(reached)

    def close(self) -> None:
        """Nothing is to be closed."""


class SimUploads(Uploads):
    """No uploads, and no folder for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.placing = Counter()

    def size(self, name: str) -> int:
        """Nothing is here."""
        raise NoSuchUpload(name)

    def size_of(self, name: str) -> int:
        """Nothing is here."""
        return 0

    def remove_strays(self, known: Any) -> None:
        """Nothing is here."""


class _Connection(sqlite3.Connection):
    """A connection that asks its disk before each statement, and after a commit."""

    disk: SimDisk
    life: Life

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        self.disk.before(self, sql)
        cursor = super().execute(sql, values)
        if sql == "COMMIT":
            self.disk.after_commit(self)
        return cursor

    @property
    def in_transaction(self) -> bool:
        if self.life.dead:
            raise Died
        return super().in_transaction

    def executemany(self, sql: str, values: Any, /) -> sqlite3.Cursor:
        self.disk.before(self, sql)
        return super().executemany(sql, values)


class SimDisk(Disk):
    """One disk, for one process after the other.

    Args:
        loop: its time.
        random: decides what fails.
        rates: how likely each fault is, at each chance for it: `full`, `busy`, `broken`, `stall`, `die`, `mark`.

    Attributes:
        calm: nothing fails any more.
        life: the process that uses it.
        faults: how often each fault happened.
        commits: transactions that were committed.
    """

    def __init__(self, loop: VirtualLoop, random: Random, rates: dict[str, float]) -> None:
        self._loop = loop
        self._random = random
        self._rates = rates
        self.calm = False
        self.life: Life | None = None
        self.faults: dict[str, int] = {}
        self.commits = 0
        self.full_until = 0.0
        self.free_bytes = SIZE
        self.on_death: Callable[[], None] = lambda: None
        self._bytes: bytes | None = None
        self._db: _Connection | None = None
        self._mark: Reached | None = None
        self._is_made = False
        self._name = Path("/the/simulated/disk")

    # What the journal asks

    def open(self, *, accept_loss: bool) -> OpenJournal:
        """Open what the last process has left, after the same check as that of a data directory."""
        assert self._db is None, "two processes use the disk"
        db = sqlite3.connect(":memory:", isolation_level=None, factory=_Connection, check_same_thread=True)
        assert self.life is not None
        db.disk, db.life = self, self.life
        self._db = db
        if not self._is_made:  # as the lock of a data directory says: a start that died in it begins again
            epoch = f"{self._random.getrandbits(128):032x}"
            vouching = make_tables(db, epoch)
            self._mark, self._is_made = vouching.reached, True
        else:
            db.deserialize(self._bytes)
            define(db)
            check_whole_in(db, self._mark, self._name)
        (epoch,) = db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        return OpenJournal(-1, db, Vouching(epoch, db), SimMark(self), epoch)

    def unlock(self, lock: int) -> None:
        """The process has closed its connection."""
        assert self._db is None, "the bytes were not kept"

    def size(self) -> int:
        """Bytes of what is stored."""
        return len(self._bytes or b"")

    def log_size(self) -> int:
        """There is no log beside it."""
        return 0

    def free_on(self, folder: Path) -> Free:
        """As much as it is said to have."""
        return Free(SIZE, self.free_bytes)

    def uploads(self, size_max: int, check_room: Callable[[int], None]) -> Uploads:
        """None."""
        return SimUploads(self._name / "uploads")

    # What happens to it

    def crash(self) -> None:
        """The process is gone: what it had not committed is gone too."""
        db = self._db
        if db is None:
            return
        if sqlite3.Connection.in_transaction.__get__(db):
            sqlite3.Connection.execute(db, "ROLLBACK")
        self._bytes = db.serialize()
        db.close()
        self._db = None

    def _happens(self, fault: str) -> bool:
        if self.calm or self._random.random() >= self._rates.get(fault, 0.0):
            return False
        self.faults[fault] = self.faults.get(fault, 0) + 1
        return True

    def before(self, db: _Connection, sql: str) -> None:
        """A statement is about to run."""
        if db.life.dead:
            raise Died
        word = sql[:6]
        if word == "BEGIN ":
            if self._happens("busy"):
                raise _error(sqlite3.SQLITE_BUSY, "database is locked")
        elif word in ("INSERT", "UPDATE", "DELETE"):
            if not self.calm and self._loop.time() < self.full_until:
                raise _error(sqlite3.SQLITE_FULL, "database or disk is full")
            if self._happens("full"):
                self.full_until = self._loop.time() + self._random.choice((0.0, 0.5, 3.0))
                raise _error(sqlite3.SQLITE_FULL, "database or disk is full")
        elif word == "COMMIT":
            if self._happens("stall"):
                self._loop.stall(self._random.choice((0.01, 0.2, 2.0)))
            if self._happens("broken"):
                raise _error(sqlite3.SQLITE_IOERR, "disk I/O error")
            if self._happens("die"):
                self._die(db, "before a commit")

    def after_commit(self, db: _Connection) -> None:
        """A transaction is durable; its process does not know it yet."""
        self.commits += 1
        if self._happens("die"):
            self._die(db, "after a commit")

    def _die(self, db: _Connection, when: str) -> None:
        db.life.die()
        self.on_death()
        raise Died(when)

    def marks(self, reached: Reached) -> None:
        """The mark is written without waiting: it may be lost, and then stays behind."""
        if self._happens("mark"):
            raise OSError(28, "no space left on device")
        self._mark = reached


def _error(code: int, said: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(said)
    error.sqlite_errorcode = code
    return error
