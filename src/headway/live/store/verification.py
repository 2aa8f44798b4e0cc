"""Whether a journal is as it was written: `headway up` checks this at its start, `headway check` at any time.

Losses are seen in three ways. The mark says how far the journal had come. The chain says which transactions there were.
The sums say how many rows there must be, and which.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headway.errors import Damaged
from headway.live.store import mark
from headway.live.store.kept import KeptFile, flaw_of, flaws_of_files
from headway.live.store.mark import MARK_FILE, Reached
from headway.live.store.schema import FILE, KEPT_INDEX, connect_to_read, lenient, make_tables, new_epoch
from headway.live.store.vouching import (
    BODIES,
    GUARDED,
    NUMBERED,
    SUM_BITS,
    UNREADABLE,
    body_sum,
    digest_of,
    last_of,
    row_sum,
)

NAMED_RANGES: Final = 10
"""How many ranges of rows a sentence names at most."""

BACKUP: Final = "backup.json"
"""The file in a backup that describes it."""


class Manifest(msgspec.Struct, frozen=True):
    """What a backup is a copy of.

    Attributes:
        data: the data directory.
        made: when, in ISO 8601.
        transaction: the last transaction of the journal that it has.
        files: SHA-256 of the other files, by their path in it.
        gone: files that the server deleted while the backup was made.
    """

    data: str
    made: str
    transaction: int
    files: dict[str, str]
    gone: list[str]


def read_manifest(backup: Path) -> Manifest:
    """What a backup says of itself.

    Raises:
        msgspec.MsgspecError: it says nothing that can be used; it may name no file outside its folder.
        OSError: it cannot be read.
    """
    manifest = msgspec.json.decode((backup / BACKUP).read_bytes(), type=Manifest)
    for place in manifest.files:
        if not place or place.startswith("/") or ".." in place.split("/"):
            raise msgspec.ValidationError(f"{place!r} is no path in it")
    return manifest


class Flaw(NamedTuple):
    """Something that is not as it was written: the file, and what is wrong."""

    file: str
    what: str


class TableFound(NamedTuple):
    """What was found in a table: how many rows, the sum of their checksums, the changed ones, and the numbers."""

    rows: int
    total: int
    changed: list[Any]
    numbers: list[tuple[int, int]]


def check_whole(folder: Path) -> None:
    """Check that the journal of a data directory is as it was written, and reaches its mark; nothing is changed.

    Raises:
        Damaged: it is not; the message says what is missing from where.
    """
    found = list(flaws(folder, files=False))
    if found:
        raise damaged(folder, found)


def check_whole_in(db: sqlite3.Connection, reached: Reached | None, folder: Path) -> None:
    """Check an open journal in the same way.

    Args:
        db: with the functions that `vouching.define` adds.
        reached: its mark.
        folder: what it is called in the message.

    Raises:
        Damaged: it is not as it was written, or does not reach its mark.
    """
    found = list(_flaws(db, reached))
    if found:
        raise damaged(folder, found)


def whole_again(folder: Path) -> str:
    """What to do about a damaged journal while no server uses it; `rows.not_whole` is for one in use."""
    return (
        f"`headway restore BACKUP {folder}` puts a backup in its place. `headway up --data {folder} --accept-loss`"
        " starts with what is whole, and keeps the damaged files beside it;"
        f" `headway check {folder}` lists all that is wrong."
    )


def damaged(folder: Path, found: Sequence[Flaw]) -> Damaged:
    """An error that reports flaws."""
    said = "; ".join(f"{flaw.file}: {flaw.what}" for flaw in found[:NAMED_RANGES])
    more = f"; and {len(found) - NAMED_RANGES} more" if len(found) > NAMED_RANGES else ""
    return Damaged(f"the journal in {folder} is damaged: {said}{more}", whole_again(folder))


def flaws(folder: Path, *, files: bool = True) -> Iterator[Flaw]:
    """What is wrong with a data directory or a backup, also while a server uses it; nothing if all is well.

    Args:
        files: also check the files that belong to the journal.
    """
    try:
        reached = mark.read(folder / MARK_FILE)  # before reading the journal, which a server may be extending
    except FileNotFoundError:
        reached = None
        yield Flaw(MARK_FILE, "it is missing, so it is not known whether the end of the journal is missing too")
    except OSError as error:
        reached = None
        yield Flaw(MARK_FILE, f"it cannot be read: {error.strerror or error}")
    else:
        if reached is None:
            yield Flaw(MARK_FILE, "it was changed or cut, so it is not known whether the end of the journal is missing")
    if files:
        yield from _flaws_of_files(folder)
    try:
        db = connect_to_read(folder / FILE)
    except sqlite3.Error as error:
        yield Flaw(FILE, f"it cannot be opened: {error}" if (folder / FILE).exists() else "it is missing")
        return
    try:
        db.execute("BEGIN")
        yield from _flaws(db, reached)
    except (*UNREADABLE, Damaged) as error:
        yield Flaw(FILE, f"it cannot be read to its end: {error}")
    finally:
        db.close()


def _flaws_of_files(folder: Path) -> Iterator[Flaw]:
    is_backup = (folder / BACKUP).exists()
    try:
        for file, what in _of_backup(folder) if is_backup else flaws_of_files(folder):
            place = file.path.relative_to(folder) if file.path.is_relative_to(folder) else file.path
            yield Flaw(str(place), f"{what} ({file.whose})")
    except (msgspec.MsgspecError, OSError, *UNREADABLE) as error:
        if not is_backup and not (folder / FILE).exists():
            return  # it is reported as such
        yield Flaw(BACKUP if is_backup else FILE, f"it does not say which files there are: {error}")


def _of_backup(folder: Path) -> Iterator[tuple[KeptFile, str]]:
    manifest = read_manifest(folder)
    for place, sha256 in manifest.files.items():
        file = KeptFile(folder / place, sha256, "a file of the backup")
        what = flaw_of(file)
        if what:
            yield file, what


def _flaws(db: sqlite3.Connection, reached: Reached | None) -> Iterator[Flaw]:
    yield from _lost_end(db, reached)
    try:
        for (line,) in db.execute(f"PRAGMA integrity_check({NAMED_RANGES})"):
            if line != "ok":
                yield Flaw(FILE, " ".join(str(line).split()))
    except UNREADABLE as error:
        yield Flaw(FILE, f"SQLite cannot check it: {error}")
    yield from _definitions(db)
    sums = last_of(db)[2]
    for table in GUARDED:
        try:
            try:
                found = look_through(db, table)
            except sqlite3.OperationalError:  # for example invalid text: read what can be read
                db.text_factory = lenient
                found = look_through(db, table)
        except UNREADABLE as error:
            yield Flaw(FILE, f"the table {table} cannot be read to its end: {error}")
            continue
        name = GUARDED[table].split(",")[0]
        if found.changed:
            yield Flaw(FILE, f"{_rows(len(found.changed))} of {table} changed: {name} {_some(found.changed)}")
        missing = sums.rows.get(table, 0) - found.rows
        if missing > 0:
            which = _gaps(found.numbers, sums.greatest.get(table, 0), missing) if table in NUMBERED else ""
            yield Flaw(FILE, f"{_rows(missing)} of {table} missing{which}")
        elif missing < 0:
            yield Flaw(FILE, f"{_rows(-missing)} of {table} too many: an older state of some came back")
        elif found.total != sums.totals.get(table, 0) and not found.changed:
            yield Flaw(FILE, f"rows of {table} are not those that were written last: an older state of some came back")


def _definitions(db: sqlite3.Connection) -> Iterator[Flaw]:
    """Triggers and indexes that are not those of a new journal: without them the sums, or results, would be wrong."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        make_tables(new, new_epoch())
        wanted = _defined(new)
    found = _defined(db)
    for (kind, name), said in wanted.items():
        if (kind, name) not in found:
            yield Flaw(FILE, f"the {kind} {name} is missing: another program removed it")
        elif kind == "trigger" and found[kind, name] != said:
            yield Flaw(FILE, f"the trigger {name} was changed by another program")
    for kind, name in found.keys() - wanted.keys():
        if kind == "trigger":
            yield Flaw(FILE, f"the trigger {name} was added by another program")


def _defined(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """What made the triggers and indexes, by kind and name; without the index that any start makes."""
    made = db.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'index') AND sql NOTNULL")
    kept = KEPT_INDEX.split()[0]
    return {(kind, name): " ".join(sql.split()) for kind, name, sql in made if name != kept}


def _lost_end(db: sqlite3.Connection, reached: Reached | None) -> Iterator[Flaw]:
    """Where the chain and the mark disagree."""
    before: tuple[int, bytes] | None = None
    at_mark: bytes | None = None
    for number, digest, sums in db.execute("SELECT number, digest, sums FROM chain ORDER BY number"):
        if before is not None and number != before[0] + 1:
            yield Flaw(FILE, f"the transactions {before[0] + 1} to {number - 1} are missing from the chain")
        elif before is not None and (not isinstance(sums, bytes) or digest != digest_of(before[1], number, sums)):
            yield Flaw(FILE, f"transaction {number} of the chain was changed")
        before = (number, digest)
        if reached is not None and number == reached.number:
            at_mark = digest
    if reached is None:
        return
    number, _, sums = last_of(db)
    epoch = db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    if epoch is not None and epoch[0] != reached.epoch:
        yield Flaw(MARK_FILE, "it belongs to another journal: one of the two files was put here from elsewhere")
    elif number < reached.number:
        lost = [("transactions", number, reached.number)]
        lost += [(table, sums.greatest.get(table, 0), last) for table, last in zip(NUMBERED, reached[3:], strict=True)]
        said = ", ".join(f"{what} {_span(have + 1, had)}" for what, have, had in lost if have < had)
        yield Flaw(f"{FILE}-wal", f"the end of the journal is missing: {said}. This file was lost, cut or changed")
    elif at_mark is not None and at_mark != reached.digest:
        yield Flaw(
            MARK_FILE, f"it belongs to another story: transaction {reached.number} of the journal is a different one"
        )


def look_through(db: sqlite3.Connection, table: str) -> TableFound:
    """Read a whole table and compute the checksum of each row.

    Raises:
        sqlite3.Error: it cannot be read to its end.
    """
    columns = GUARDED[table]
    body = BODIES.get(table)
    at = None if body is None else columns.split(", ").index(body[1])
    is_numbered = table in NUMBERED
    rows = total = 0
    changed: list[Any] = []
    numbers: list[tuple[int, int]] = []
    # In the order of the rows themselves, not of an index; written for speed, because every start waits for this.
    for row in db.execute(f"SELECT sum, {body[0] if body else 'NULL'}, {columns} FROM {table}"):
        rows += 1
        its_sum, content, number = row[:3]
        if isinstance(its_sum, int):
            total += its_sum
        if row_sum(*row[2:]) != its_sum or (at is not None and not is_body(content, row[2 + at])):
            changed.append(number)
        if is_numbered:
            if numbers and numbers[-1][1] + 1 == number:
                numbers[-1] = (numbers[-1][0], number)
            else:
                numbers.append((number, number))
    return TableFound(rows, total & SUM_BITS, changed, numbers)


def is_body(body: object, its_sum: object) -> bool:
    """Whether this body has the checksum."""
    return (body is None or isinstance(body, bytes)) and body_sum(body) == its_sum


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _some(values: Iterable[Any]) -> str:
    named = [str(value) if isinstance(value, int) else repr(value)[:80] for value in values]
    return ", ".join(named[:NAMED_RANGES]) + (
        f" and {len(named) - NAMED_RANGES} more" if len(named) > NAMED_RANGES else ""
    )


def _gaps(numbers: list[tuple[int, int]], last: int, missing: int) -> str:
    """Which numbers are missing, if that is known: others may have been deleted on purpose."""
    ends = [0, *(end for _, end in numbers)]
    starts = [*(start for start, _ in numbers), last + 1]
    gaps = [(end + 1, start - 1) for end, start in zip(ends, starts, strict=True) if end + 1 < start]
    if sum(end - start + 1 for start, end in gaps) != missing:
        return ""
    return (
        ": " + ", ".join(_span(*gap) for gap in gaps[:NAMED_RANGES]) + (" and more" if len(gaps) > NAMED_RANGES else "")
    )
