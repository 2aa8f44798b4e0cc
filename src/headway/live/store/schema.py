"""The tables of the journal's file; docs/reference/journal.md says what is in them."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from typing import Final, get_args

from headway.live.store import checks, past, refusals, retained
from headway.live.store.vouching import Vouching, define, sum_of, triggers
from headway.model.events import Asked

FORMAT: Final = 7
"""Version of the data directory. It changes whenever an older Headway could not read what a newer one wrote."""

FILE: Final = "journal.sqlite"

_SIDES: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite appends to the name of a file to name the files that belong to it."""

ASKED_EVENTS: Final = f"kind IN ({', '.join(repr(kind.__name__) for kind in get_args(Asked))})"
"""Events that a caller may have asked for."""

KEPT_INDEX: Final = "jobs_kept ON jobs (functions) WHERE ended IS NOT NULL AND functions IS NOT NULL"
"""Index of ended jobs whose functions and uploads are kept; older journals get it when they are opened."""

SCHEMA: Final = f"""
CREATE TABLE meta (
    name TEXT PRIMARY KEY, value,
    {sum_of("meta")}
) WITHOUT ROWID;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
    {sum_of("events")}
);
CREATE INDEX events_incidents ON events (seq) WHERE kind = 'Incident';
CREATE INDEX events_asked ON events (seq) WHERE {ASKED_EVENTS};
CREATE TABLE snapshots (
    seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL,
    {sum_of("snapshots")}
);
CREATE TABLE clients (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    {sum_of("clients")}
);
CREATE TABLE submissions (
    caller TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL,
    first INTEGER NOT NULL, jobs INTEGER NOT NULL, cursor INTEGER NOT NULL, at INTEGER NOT NULL,
    {sum_of("submissions")},
    PRIMARY KEY (caller, key)
) WITHOUT ROWID;
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, client INTEGER NOT NULL, name TEXT NOT NULL, user TEXT NOT NULL,
    status TEXT, submitted INTEGER NOT NULL, started INTEGER, ended INTEGER, done INTEGER, failed INTEGER,
    spec BLOB NOT NULL, functions TEXT, work BLOB,
    {sum_of("jobs")}
);
CREATE INDEX jobs_open ON jobs (id) WHERE ended IS NULL;
CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;
CREATE INDEX jobs_client ON jobs (client);
CREATE INDEX {KEPT_INDEX};
CREATE INDEX submissions_at ON submissions (at);
CREATE TABLE blobs (
    name TEXT PRIMARY KEY, used INTEGER NOT NULL, body BLOB NOT NULL,
    {sum_of("blobs")}
);
CREATE INDEX blobs_used ON blobs (used);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY, client INTEGER NOT NULL, job INTEGER NOT NULL, task INTEGER,
    at INTEGER NOT NULL, word TEXT NOT NULL, files INTEGER NOT NULL, result BLOB,
    {sum_of("messages")}
);
CREATE UNIQUE INDEX messages_once ON messages (job, task);
CREATE INDEX messages_client ON messages (client, number);
CREATE INDEX messages_files ON messages (job, files) WHERE files > 0;
{checks.CHECKS_SCHEMA}CREATE TABLE {refusals.REFUSALS_TABLE};
CREATE TABLE {past.PAST_TABLES[0]};
CREATE TABLE {past.PAST_TABLES[1]};
{retained.RETAINED_SCHEMA}{triggers()}
"""


_GIVE_BACK: Final = "PRAGMA auto_vacuum = INCREMENTAL"
"""Lets SQLite give the pages of deleted rows back to the disk; it only works in an empty file."""


def new_epoch() -> str:
    """A name for a journal with a history of its own: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing; it is made if it does not exist.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute(_GIVE_BACK)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {64 << 20}")
    except BaseException:
        db.close()
        raise
    return db


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the file for reading, also while a server writes it; neither it nor its log is changed.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    define(db)
    return db


def remove(path: Path) -> None:
    """Remove a file of SQLite with those that belong to it, if it exists."""
    for side in _SIDES:
        path.with_name(f"{path.name}{side}").unlink(missing_ok=True)


def lenient(text: bytes) -> str:
    """A `text_factory` for a connection: invalid text is decoded as far as possible, and its checksum will differ."""
    return text.decode("utf-8", "replace")


def make_tables(db: sqlite3.Connection, epoch: str) -> Vouching:
    """Make all tables in an empty file.

    Raises:
        sqlite3.Error: they cannot be made.
    """
    db.execute(_GIVE_BACK)
    db.execute("BEGIN IMMEDIATE")
    define(db)
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            db.execute(statement)
    vouching = Vouching(epoch, db)
    db.executemany("INSERT INTO meta VALUES (?, ?)", [("epoch", epoch), ("format", FORMAT)])
    reached = vouching.end()
    db.execute("COMMIT")
    assert reached is not None
    vouching.committed(reached)
    return vouching
