"""Data directories of older formats are converted when they are opened; the old journal stays beside the new one.

The new file is completely written under another name and then replaces the old one. So whatever happens, there is one
or the other.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.errors import Damaged, HeadwayError
from headway.live.store import mark
from headway.live.store.mark import MARK_FILE, sync_folder
from headway.live.store.schema import FILE, FORMAT, connect, connect_to_read, make_tables, new_epoch, remove
from headway.live.store.verification import whole_again
from headway.live.store.vouching import GUARDED, UNREADABLE, Vouching

log = logging.getLogger(__name__)

TABLES: Final = (
    *GUARDED,
    *("node_metrics", "slot_statuses", "job_statistics", "job_losses", "service_costs", "job_money", "job_work"),
    "refusals",
    *("past_jobs", "past_unsuccessful"),
)
"""All that hold something of their own."""

FACTS_LEFT: Final = ("format", "epoch", "message")
"""Facts of the old file that are not those of the new one."""

_ADDED: Final = {
    ("submissions", "at"): "coalesce((SELECT submitted FROM {old}.jobs WHERE id = first), 0)",
    ("uploads", "size"): "0",
}
"""Columns that formats 1 and 2 do not have, and what is in them."""


def values_of(table: str, names: Iterable[str], old: str) -> str:
    """The columns of a table as a journal of format 1 or 2 has them, which is attached under the name `old`."""
    return ", ".join(_ADDED.get((table, name), name).format(old=old) for name in names)


def convert(folder: Path, found: int) -> None:
    """Convert a journal of an older format, `found`, to ours; the old one is kept as `journal.format-N.sqlite`.

    Raises:
        Damaged: the old file is damaged; nothing was changed.
        HeadwayError: there is no room for the new file; nothing was changed.
    """
    path = folder / FILE
    kept = _free(path.with_suffix(f".format-{found}.sqlite"))
    log.info("converting %s from format %d to %d; the old file stays as %s", path, found, FORMAT, kept.name)
    _close(path)
    with new_journal(folder) as (db, vouching):
        db.execute("ATTACH ? AS old", (f"{path.resolve().as_uri()}?mode=ro",))
        db.execute("BEGIN IMMEDIATE")
        there = {name for (name,) in db.execute("SELECT name FROM old.sqlite_master WHERE type = 'table'")}
        for table in TABLES:
            if table in there:
                names = [name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})")]
                left = f"WHERE name NOT IN {FACTS_LEFT}" if table == "meta" else ""
                values = values_of(table, names, "old")
                db.execute(f"INSERT INTO main.{table} ({', '.join(names)}) SELECT {values} FROM old.{table} {left}")
        if found == 1:
            places_of_nodes(db)
        last = db.execute("SELECT max(seq) FROM snapshots").fetchone()[0] or 0
        cleared = db.execute("SELECT value FROM old.meta WHERE name = 'message'").fetchone()
        vouching.number_from({"events": last, "messages": cleared[0] if cleared else 0})
        commit(db, vouching)
        db.execute("DETACH old")
        _keep(path, kept)


def keep_copy(folder: Path, found: int) -> None:
    """Keep a copy of a journal of format 3 to 5, `found`, as `journal.format-3.sqlite`, before ours is written into it.

    Its tables are as ours, and its rows stay as they are. Only what older versions of Headway could not read is new:
    decisions in the bodies of events (format 4), jobs that have but the terms of their form (format 5), and work of
    workflows whose tasks get what others gave (format 6).

    Raises:
        HeadwayError: there is no room for the copy; nothing was changed.
    """
    path = folder / FILE
    kept = _free(path.with_suffix(f".format-{found}.sqlite"))
    log.info("%s has format %d and becomes one of format %d; it is kept as %s", path, found, FORMAT, kept.name)
    _close(path)
    try:
        _copy(path, kept)
    except OSError as error:
        kept.unlink(missing_ok=True)
        raise _no_room(path, error) from error


def commit(db: sqlite3.Connection, vouching: Vouching) -> None:
    """End a transaction with its row of the chain."""
    reached = vouching.end()
    db.execute("COMMIT")
    if reached is not None:
        vouching.committed(reached)


@contextmanager
def new_journal(folder: Path) -> Iterator[tuple[sqlite3.Connection, Vouching]]:
    """A new journal to be filled; when the block ends it replaces the existing one, with a mark of its own.

    Raises:
        HeadwayError: there is no room for it, or the block raised; nothing was changed.
    """
    path, draft = folder / FILE, folder / f".{FILE}"
    remove(draft)
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(draft.resolve().as_uri(), uri=True, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = OFF")  # made durable as a whole below
            vouching = make_tables(db, new_epoch())
            yield db, vouching
            db.execute("PRAGMA journal_mode = WAL")
        finally:
            db.close()
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        mark.make(folder / MARK_FILE, vouching.reached)
        for side in ("-wal", "-shm"):
            path.with_name(f"{FILE}{side}").unlink(missing_ok=True)
        draft.replace(path)
        sync_folder(folder)
    except (sqlite3.OperationalError, OSError) as error:
        raise _no_room(path, error) from error
    finally:
        remove(draft)


def _no_room(path: Path, error: Exception) -> HeadwayError:
    return HeadwayError(
        f"{path} cannot be converted: {error}", "Nothing was changed. Make room on its disk, and start again."
    )


def _close(path: Path) -> None:
    """Check that the old file is undamaged, and bring the content of its log into it.

    Raises:
        Damaged: it is damaged.
    """
    hint = whole_again(path.parent)
    try:
        db = connect_to_read(path)
        try:
            said = [line for (line,) in db.execute("PRAGMA integrity_check(3)") if line != "ok"]
        finally:
            db.close()
        if said:
            raise Damaged(f"{path} is damaged: {'; '.join(said)}", hint)
        db = connect(path)
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
    except UNREADABLE as error:
        raise Damaged(f"{path} is damaged: {error}", hint) from error


def _keep(path: Path, kept: Path) -> None:
    """Give the file a second name."""
    try:
        os.link(path, kept)
    except OSError:  # a file system without links
        _copy(path, kept)
    sync_folder(path.parent)


def _copy(path: Path, kept: Path) -> None:
    shutil.copy2(path, kept)
    with open(kept, "rb") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _free(path: Path) -> Path:
    """This name, or one like it that is not taken."""
    taken, number = path, 1
    while taken.exists():
        number += 1
        taken = path.with_stem(f"{path.stem}-{number}")
    return taken


def places_of_nodes(db: sqlite3.Connection) -> None:
    """Format 1 had of a node the number of its first slot; since then each slot has its number."""

    def placed(node: dict[str, Any]) -> None:
        first = node.pop("first", None)
        if first is not None:
            node["places"] = list(range(first, first + node["spec"]["slots"]))

    for seq, body in db.execute("SELECT seq, body FROM snapshots").fetchall():
        record = msgspec.json.decode(body)
        for node in (*record["nodes"], *record["departed"]):
            placed(node)
        db.execute("UPDATE snapshots SET body = ? WHERE seq = ?", (msgspec.json.encode(record), seq))
