"""Makes a new journal of the intact part of a damaged one: `headway up --accept-loss`.

Intact rows are copied into a new file, which replaces the damaged one. The damaged file is kept, with its log and its
mark, in a folder of its own. Jobs that cannot continue (their work is gone, or the journal and the core would disagree
about their tasks) are ended when the core is loaded, see `headway.live.reconciling`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from headway.errors import Damaged
from headway.live.store import conversion, mark
from headway.live.store.conversion import FACTS_LEFT, TABLES, commit, new_journal
from headway.live.store.kept import new_folder
from headway.live.store.mark import MARK_FILE, sync_folder
from headway.live.store.schema import FILE, FORMAT, connect_to_read, lenient
from headway.live.store.verification import Flaw, flaws
from headway.live.store.vouching import BODIES, GUARDED, NUMBERED, UNREADABLE, body_sum, last_of, row_sum

log = logging.getLogger(__name__)

RECONCILE: Final = "reconcile"
"""Under this name the new journal records that the core and the tables must be brought into agreement."""

SAID: Final = "given-up.txt"

_LAST: Final = 2**63 - 1


def salvage(folder: Path) -> tuple[str, ...]:
    """Replace a damaged journal by one with its intact rows and a new epoch.

    Returns:
        What was given up, in sentences; they are also in the folder with the damaged files.

    Raises:
        HeadwayError: there is not enough room for it; nothing was changed.
    """
    found = (
        [_told(flaw) for flaw in flaws(folder, files=False)] if (folder / FILE).exists() else [f"{FILE}: it is missing"]
    )
    kept = _kept_aside(folder)
    try:
        reached = mark.read(folder / MARK_FILE)
    except OSError:  # the report of flaws already says that it is gone
        reached = None
    with new_journal(folder) as (db, vouching):
        db.execute("BEGIN IMMEDIATE")
        last, lost = dict[str, int](), list[str]()
        if (folder / FILE).exists():
            try:
                with closing(connect_to_read(folder / FILE)) as old:
                    old.text_factory = lenient
                    last, lost = _copy(old, db)
            except UNREADABLE as error:
                lost.append(f"nothing of {FILE} could be read: {error}")
        vouching.events_from(_let_go_of_gaps(db, lost))
        for table, number in zip(NUMBERED, () if reached is None else reached[3:], strict=False):
            last[table] = max(last.get(table, 0), number)
        # Numbers that were given are never reused; events are only counted.
        vouching.number_from({table: number for table, number in last.items() if table != "events"})
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", (RECONCILE,))
        commit(db, vouching)
    said = (*found, *lost, f"the damaged files are kept in {kept}")
    (kept / SAID).write_text("".join(f"{line}\n" for line in said), "utf-8")
    return said


def _told(flaw: Flaw) -> str:
    return f"{flaw.file}: {flaw.what}"


def _kept_aside(folder: Path) -> Path:
    """A new folder with copies of the files as they are."""
    kept = new_folder(folder, "damaged")
    try:
        for file in (FILE, f"{FILE}-wal", MARK_FILE):
            if (folder / file).exists():
                shutil.copy2(folder / file, kept / file)
                with open(kept / file, "rb") as copy:
                    os.fsync(copy.fileno())
    except OSError:  # a full disk should not get fuller with each try
        shutil.rmtree(kept, ignore_errors=True)
        raise
    sync_folder(kept)
    sync_folder(folder)
    return kept


def _copy(old: sqlite3.Connection, db: sqlite3.Connection) -> tuple[dict[str, int], list[str]]:
    """Copy the intact rows; returns the greatest numbers that the old file has, and what is damaged."""
    there = {name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    vouched, last, lost, formed = "chain" in there, dict[str, int](), list[str](), FORMAT
    sums = None
    if vouched:
        try:
            sums = last_of(old)[2]
            last = dict(sums.greatest)
        except (*UNREADABLE, Damaged) as error:
            lost.append(f"the end of the chain cannot be read: {error}")
    elif "meta" in there:
        found = old.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        formed = found[0] if found else 0
    for table in TABLES:
        if table not in there:
            continue
        names = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        insert = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(names))})"
        kept = 0
        columns = ", ".join(names) if vouched else conversion.values_of(table, names, "main")
        for row in _rows(old, table, names, columns, vouched=vouched and table in GUARDED):
            if table != "meta" or row[0] not in (*FACTS_LEFT, RECONCILE):
                kept += db.execute(insert, row).rowcount
        if sums is not None and table in GUARDED and table != "meta" and kept < sums.rows.get(table, 0):
            lost.append(f"{sums.rows[table] - kept} of {sums.rows[table]} rows of {table} are given up")
    if not vouched and formed == 1:
        conversion.places_of_nodes(db)
    return last, lost


def _rows(
    old: sqlite3.Connection, table: str, names: list[str], columns: str, *, vouched: bool
) -> Iterator[tuple[Any, ...]]:
    """Intact rows of a table, without those in unreadable pages."""
    body, its_sum = BODIES.get(table, ("", ""))
    for row in _readable(old, table, f"{columns}, {GUARDED[table]}, sum" if vouched else columns):
        values, guarded, check = row[: len(names)], row[len(names) : -1], row[-1]
        if not vouched:
            yield row
        elif _is(row_sum, guarded, check):
            if body:
                place = names.index(body)
                at = GUARDED[table].split(", ").index(its_sum)
                if not _is(body_sum, (values[place],), guarded[at]):
                    values = (*values[:place], None, *values[place + 1 :])
                    if table == "messages":  # then there are no files of its result either
                        values = (*values[: names.index("files")], 0, *values[names.index("files") + 1 :])
            yield values


def _is(function: Any, values: tuple[Any, ...], check: Any) -> bool:
    try:
        return bool(function(*values) == check)
    except (TypeError, ValueError, OverflowError):  # values that no row ever had
        return False


def _readable(old: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """All rows of a table, without those in unreadable pages."""
    try:
        old.execute(f"SELECT rowid FROM {table} LIMIT 0")
    except sqlite3.OperationalError:  # a table without row ids is read from both ends
        yield from _until_broken(old, f"SELECT {columns} FROM {table}")
        key = ", ".join(
            f"{name} DESC" for _, name, _, _, _, place in old.execute(f"PRAGMA table_info({table})") if place
        )
        yield from _until_broken(old, f"SELECT {columns} FROM {table} ORDER BY {key}")
        return
    for number in _row_ids(old, table):
        try:
            row = old.execute(f"SELECT {columns} FROM {table} NOT INDEXED WHERE rowid = ?", (number,)).fetchone()
        except UNREADABLE:  # a part of the row is in another page
            continue
        if row is not None:
            yield row


def _row_ids(old: sqlite3.Connection, table: str) -> Iterator[int]:
    """The ids of the rows in readable pages: upwards to an unreadable page, then from behind it back to it, and on.

    A cursor reads one row ahead, and loses the row before such a page; one by one no row is lost.
    """
    above = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
    between = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid > ? AND rowid < ? ORDER BY rowid DESC LIMIT 1"
    last = -_LAST
    while True:
        try:
            for (number,) in old.execute(above, (last,)):
                last = number
                yield number
            return
        except UNREADABLE:
            following = _one(old, f"{above} LIMIT 1", last)
        if following is not None:
            last = following
            yield following
            continue
        beyond = back = _beyond(old, table, last)
        if beyond is None:
            return
        while back is not None:
            yield back
            back = _one(old, between, last, back)
        last = beyond


def _one(old: sqlite3.Connection, statement: str, *values: int) -> int | None:
    """The id that a statement finds; None if it finds none or meets an unreadable page."""
    try:
        found = old.execute(statement, values).fetchone()
    except UNREADABLE:
        return None
    return None if found is None else int(found[0])


def _until_broken(old: sqlite3.Connection, statement: str, *values: int) -> Iterator[tuple[Any, ...]]:
    try:
        yield from old.execute(statement, values)
    except UNREADABLE as error:
        log.info("a page cannot be read: %s", error)


def _beyond(old: sqlite3.Connection, table: str, last: int) -> int | None:
    """The id of a row behind an unreadable page; None if none is found."""
    from_here = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT 1"
    from_the_end = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid DESC LIMIT 1"
    for step in (1 << power for power in range(62)):
        at = max(last, 0) + step
        if at >= _LAST:
            break
        found = _one(old, from_here, at)
        if found is not None:
            return found
    return _one(old, from_the_end, last)


def _let_go_of_gaps(db: sqlite3.Connection, lost: list[str]) -> int:
    """Keep the last snapshot and the events that follow it without a gap; before it all, if that is a complete trace.

    Returns:
        The number of the last event that is kept, or that the snapshot follows; 0 if there is none.
    """
    row = db.execute("SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 1").fetchone()
    if row is None:
        gone = db.execute("DELETE FROM events").rowcount
        if gone:
            lost.append(f"{gone} events are given up, for no state is there that they follow")
        return 0
    (seq,) = row
    end = seq
    for (number,) in db.execute("SELECT seq FROM events WHERE seq > ? ORDER BY seq", (seq,)):
        if number != end + 1:
            break
        end = number
    gone = db.execute("DELETE FROM events WHERE seq > ?", (end,)).rowcount
    if gone:
        lost.append(f"{gone} events are given up, for event {end + 1} before them is missing")
    first = db.execute("SELECT min(seq) FROM snapshots").fetchone()[0]
    there = db.execute("SELECT count(*) FROM events WHERE seq > ? AND seq <= ?", (first, seq)).fetchone()[0]
    if there != seq - first:
        db.execute("DELETE FROM snapshots WHERE seq < ?", (seq,))
        db.execute("DELETE FROM events WHERE seq <= ? AND kind <> 'Incident'", (seq,))
        lost.append(f"the events up to {seq} are no whole trace any more and cannot be replayed")
    return int(end)
