"""What is whole of a damaged journal, as a new one: `headway up --accept-loss`.

Rows that are as they were written are copied into a new file, which takes the place of the damaged one; that is kept,
with its log and its mark, in a folder of its own. What cannot go on (a job whose work is gone, or of whose tasks the
journal and the core would say different things) is ended when the core is loaded, see `headway.live.reconciling`.
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

from headway.live import conversion, mark
from headway.live.conversion import FACTS_LEFT, TABLES, commit, new_journal
from headway.live.kept import new_folder
from headway.live.mark import MARK, sync_folder
from headway.live.schema import FILE, FORMAT, connect_to_read, lenient
from headway.live.verification import Flaw, flaws
from headway.live.vouching import BODIES, GUARDED, NUMBERED, UNREADABLE, Damaged, body_sum, last_of, row_sum

log = logging.getLogger(__name__)

RECONCILE: Final = "reconcile"
"""Under this name the new journal notes that the core and the tables have to be brought into agreement."""

SAID: Final = "given-up.txt"

_LAST: Final = 2**63 - 1


def salvage(folder: Path) -> tuple[str, ...]:
    """Put what is whole of a damaged journal in its place, as a journal with a new epoch.

    Returns:
        What was given up, in sentences; they are also in the folder with the damaged files.

    Raises:
        HeadwayError: there is no room for it; nothing was changed.
    """
    found = (
        [_told(flaw) for flaw in flaws(folder, files=False)] if (folder / FILE).exists() else [f"{FILE}: it is missing"]
    )
    kept = _kept_aside(folder)
    try:
        reached = mark.read(folder / MARK)
    except OSError:  # that it is gone is among what was found
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
        # Numbers that were given are not given to something else; events are only counted.
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
        for file in (FILE, f"{FILE}-wal", MARK):
            if (folder / file).exists():
                shutil.copy2(folder / file, kept / file)
                with open(kept / file, "rb") as copy:
                    os.fsync(copy.fileno())
    except OSError:  # a full disk should not be fuller after each try
        shutil.rmtree(kept, ignore_errors=True)
        raise
    sync_folder(kept)
    sync_folder(folder)
    return kept


def _copy(old: sqlite3.Connection, db: sqlite3.Connection) -> tuple[dict[str, int], list[str]]:
    """Copy what is right; the greatest numbers that the old file knows of, and what is not right."""
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
    """Rows of a table that can be read and are right, without those in pages that cannot be read."""
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
                    if table == "messages":  # nor are there files of a result that is not there
                        values = (*values[: names.index("files")], 0, *values[names.index("files") + 1 :])
            yield values


def _is(function: Any, values: tuple[Any, ...], check: Any) -> bool:
    try:
        return bool(function(*values) == check)
    except (TypeError, ValueError, OverflowError):  # what no row ever held
        return False


def _readable(old: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """All rows of a table but those in pages that cannot be read.

    From the beginning up to such a page; then from the first row that can be read behind it, back to it and on.
    """
    try:
        old.execute(f"SELECT rowid FROM {table} LIMIT 0")
    except sqlite3.OperationalError:  # a table without row ids: from both ends
        yield from _until_broken(old.execute(f"SELECT {columns} FROM {table}"))
        key = ", ".join(
            f"{name} DESC" for _, name, _, _, _, place in old.execute(f"PRAGMA table_info({table})") if place
        )
        yield from _until_broken(old.execute(f"SELECT {columns} FROM {table} ORDER BY {key}"))
        return
    select, last = f"SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid", -_LAST
    while True:
        is_whole = True
        try:
            for rowid, *row in old.execute(f"{select} > ? ORDER BY rowid", (last,)):
                last = rowid
                yield tuple(row)
        except UNREADABLE:
            is_whole = False
        if is_whole:
            return
        beyond = _beyond(old, table, last)
        if beyond is None:
            return
        back = old.execute(f"{select} <= ? AND rowid > ? ORDER BY rowid DESC", (beyond, last))
        yield from (tuple(row[1:]) for row in _until_broken(back))
        last = beyond


def _until_broken(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    try:
        yield from rows
    except UNREADABLE as error:
        log.info("a page cannot be read: %s", error)


def _beyond(old: sqlite3.Connection, table: str, last: int) -> int | None:
    """The id of a row behind a page that cannot be read; None if none is found."""
    for step in (1 << power for power in range(62)):
        at = max(last, 0) + step
        if at >= _LAST:
            return None
        try:
            found = old.execute(
                f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT 1", (at,)
            ).fetchone()
        except UNREADABLE:
            continue
        return None if found is None else int(found[0])
    return None


def _let_go_of_gaps(db: sqlite3.Connection, lost: list[str]) -> int:
    """Keep the last snapshot and the events that follow it without a gap; before it all, if that is a whole trace.

    Returns:
        The number of the last event that is kept, or that the snapshot follows; 0 where there is none.
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
