"""How the journal's file proves itself: a checksum for each row, the sums of all rows, and a chain of its transactions.

- Each row of the tables in `GUARDED` has a checksum of its other columns, `sum`, which SQLite computes when it stores
  the row. So a row that was changed on the disk is recognized wherever it is read.
- Triggers count every row that is added or deleted, and add up the checksums by table. So rows that were lost, or that
  came back with an old page, are recognized by the sums, though each row is right by itself.
- Each transaction that changes such a table adds a row to `chain`: its number, these sums, and a digest of them and of
  the previous digest. So two journals with the same digest have had exactly the same transactions.

Code that deletes or changes rows need not think of this: the triggers count a plain `DELETE` or `UPDATE` in a
transaction of the journal. The functions that they call exist only where `attach` was called, so another program cannot
write to the file by accident: it gets the error `unknown function: row_sum()`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from headway.errors import Damaged, HeadwayError
from headway.live.store.mark import Reached

GUARDED: Final = {
    "meta": "name, value",
    "events": "seq, at, kind, body",
    "snapshots": "seq, at, body",
    "clients": "id, name",
    "submissions": "caller, key, digest, first, jobs, cursor, at",
    "jobs": "id, client, name, user, status, submitted, started, ended, done, failed, spec, functions, work_sum",
    "blobs": "name, used, body",
    "messages": "number, client, job, task, at, word, files, result_sum",
    "acknowledged": "job, first, last, number, at",
    "uploads": "name, used, size",
    "outputs": "job, task, upload",
}
"""The columns that a row's checksum covers, by table; the first one identifies the row in messages."""

BODIES: Final = {"jobs": ("work", "work_sum"), "messages": ("result", "result_sum")}
"""Columns that may be large and are not always read: each has its own checksum, which the row's checksum covers."""

NUMBERED: Final = {"events": "seq", "messages": "number", "jobs": "id"}
"""Columns whose values are given in order and never reused, even when the row is gone."""

CHAIN_KEPT: Final = 1000
"""How many digests are kept at least: more than a mark can be behind, unless the machine lost power."""

SQLITE_LEAST: Final = (3, 31, 0)
"""The first SQLite with computed columns."""

UNREADABLE: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file may raise: SQLite also quotes the file in its errors."""

_PRUNE_EVERY: Final = 256
SUM_BITS: Final = (1 << 64) - 1
"""Checksums are added up modulo 2**64."""

encode = msgspec.msgpack.Encoder().encode


class Sums(msgspec.Struct):
    """The number of rows of each table, and their checksums modulo 2**64; the greatest numbers by `NUMBERED`."""

    rows: dict[str, int] = msgspec.field(default_factory=dict)
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    greatest: dict[str, int] = msgspec.field(default_factory=dict)

    def copy(self) -> Sums:
        """An equal one."""
        return Sums(dict(self.rows), dict(self.totals), dict(self.greatest))


_sums = msgspec.msgpack.Decoder(Sums)


def row_sum(*values: Any) -> int:
    """The checksum of a row's columns, as SQLite stores integers: 64 bits with a sign.

    >>> row_sum(1, "a", None) == row_sum(1, "a", None), row_sum(1, "a", None) == row_sum(1, "b", None)
    (True, False)
    """
    return int.from_bytes(blake2b(encode(values), digest_size=8).digest(), "little", signed=True)


def body_sum(body: bytes | None) -> int | None:
    """The checksum of a body; None if there is none."""
    return None if body is None else int.from_bytes(blake2b(body, digest_size=8).digest(), "little", signed=True)


def sum_of(table: str) -> str:
    """The definition of the column `sum` of a table, and of the checksum of its body if it has one."""
    body, its_sum = BODIES.get(table, ("", ""))
    own = f"{its_sum} INTEGER AS (body_sum({body})) STORED,\n    " if body else ""
    return f"{own}sum INTEGER AS (row_sum({GUARDED[table]})) STORED"


def triggers() -> str:
    """The statements that create the triggers and the table `chain`."""
    said = ["CREATE TABLE chain (number INTEGER PRIMARY KEY, digest BLOB NOT NULL, sums BLOB NOT NULL);"]
    for table in GUARDED:
        number = f"NEW.{NUMBERED[table]}" if table in NUMBERED else "0"
        added = f"SELECT vouch_added('{table}', NEW.sum, {number});"
        gone = f"SELECT vouch_gone('{table}', OLD.sum);"
        said.append(f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN {added} END;")
        said.append(f"CREATE TRIGGER {table}_gone AFTER DELETE ON {table} BEGIN {gone} END;")
        said.append(f"CREATE TRIGGER {table}_changed AFTER UPDATE ON {table} BEGIN {gone} {added} END;")
    return "\n".join(said)


def digest_of(before: bytes, number: int, sums: bytes) -> bytes:
    """The digest of a transaction that follows the one with the digest `before`."""
    return blake2b(before + number.to_bytes(8, "little") + sums, digest_size=16).digest()


def define(db: sqlite3.Connection) -> None:
    """Add the functions that compute checksums to a connection."""
    db.create_function("row_sum", -1, row_sum, deterministic=True)
    db.create_function("body_sum", 1, body_sum, deterministic=True)


def check_version() -> None:
    """Check that this SQLite can compute columns.

    Raises:
        HeadwayError: it is too old.
    """
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        raise HeadwayError(
            f"this Python has SQLite {sqlite3.sqlite_version}; the journal needs"
            f" {'.'.join(map(str, SQLITE_LEAST))} or newer",
            "Use a Python that was built with a newer one.",
        )


def last_of(db: sqlite3.Connection) -> tuple[int, bytes, Sums]:
    """Number, digest and sums of the last transaction; in a new file those before the first one.

    Raises:
        Damaged: they cannot be read.
    """
    row = db.execute("SELECT number, digest, sums FROM chain ORDER BY number DESC LIMIT 1").fetchone()
    if row is None:
        return 0, b"", Sums()
    number, digest, sums = row
    try:
        return number, digest, _sums.decode(sums)
    except (msgspec.MsgspecError, TypeError) as error:
        raise Damaged(f"transaction {number} of the chain cannot be read: {error}") from error


def reached_by(epoch: str, number: int, digest: bytes, sums: Sums) -> Reached:
    """A transaction as the mark has it."""
    return Reached(epoch, number, digest, *(sums.greatest.get(table, 0) for table in NUMBERED))


class Vouching:
    """Follows what a connection changes, and writes the chain.

    Args:
        epoch: of the journal.
        db: its file, opened for writing.

    Attributes:
        reached: the last transaction.
        sums: as of the last transaction.

    Raises:
        Damaged: the end of the chain cannot be read.
        HeadwayError: this SQLite is too old.
    """

    def __init__(self, epoch: str, db: sqlite3.Connection) -> None:
        self._db = db
        self._epoch = epoch
        self._now: Sums | None = None
        attach(db, self._added, self._gone)
        number, digest, self.sums = last_of(db)
        self.reached = reached_by(epoch, number, digest, self.sums)

    def end(self) -> Reached | None:
        """Write the transaction's row of the chain, as its last statement; None if no guarded table was changed."""
        now = self._now
        if now is None:
            return None
        number, sums = self.reached.number + 1, encode(now)
        digest = digest_of(self.reached.digest, number, sums)
        self._db.execute("INSERT INTO chain VALUES (?, ?, ?)", (number, digest, sums))
        if number % _PRUNE_EVERY == 0:
            self._db.execute("DELETE FROM chain WHERE number <= ?", (number - CHAIN_KEPT,))
        return reached_by(self._epoch, number, digest, now)

    def number_from(self, greatest: Mapping[str, int]) -> None:
        """Within a transaction: continue the numbers of these tables after these, whatever rows there are."""
        sums = self._changing()
        for table, number in greatest.items():
            sums.greatest[table] = max(number, sums.greatest.get(table, 0))

    def events_from(self, last: int) -> None:
        """Within a transaction: continue the numbers of events after this one, the last of those that are there."""
        self._changing().greatest["events"] = last

    def committed(self, reached: Reached) -> None:
        """What `end` returned is durable."""
        assert self._now is not None
        self.reached, self.sums, self._now = reached, self._now, None

    def rolled_back(self) -> None:
        """Nothing was changed."""
        self._now = None

    def _changing(self) -> Sums:
        if self._now is None:
            self._now = self.sums.copy()
        return self._now

    def _added(self, table: str, value: int, number: int) -> None:
        sums = self._now or self._changing()
        sums.rows[table] = sums.rows.get(table, 0) + 1
        sums.totals[table] = (sums.totals.get(table, 0) + value) & SUM_BITS
        if number > sums.greatest.get(table, 0):
            sums.greatest[table] = number

    def _gone(self, table: str, value: int) -> None:
        sums = self._now or self._changing()
        sums.rows[table] -= 1
        sums.totals[table] = (sums.totals[table] - value) & SUM_BITS


def attach(db: sqlite3.Connection, added: Callable[[str, int, int], None], gone: Callable[[str, int], None]) -> None:
    """Give a connection everything that is needed to write to the file."""
    check_version()
    define(db)
    db.create_function("vouch_added", 3, added)
    db.create_function("vouch_gone", 2, gone)
    db.execute("PRAGMA recursive_triggers = ON")  # or the deletion of replaced rows would not be counted
    db.execute("PRAGMA trusted_schema = ON")
