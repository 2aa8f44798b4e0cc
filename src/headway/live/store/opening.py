"""Opens a data directory for one process, and its journal: a new journal is made, an existing one is checked."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from headway.errors import Damaged, HeadwayError
from headway.live.store import conversion, mark
from headway.live.store.checks import JOB_MONEY, JOB_WORK, SERVICE_COSTS
from headway.live.store.layout import ENGINE, TOKEN_FILE, UPLOADS_FOLDER, URL
from headway.live.store.mark import MARK_FILE, Mark
from headway.live.store.past import PAST_TABLES
from headway.live.store.refusals import REFUSALS_TABLE
from headway.live.store.rows import refuse
from headway.live.store.salvage import salvage
from headway.live.store.schema import FILE, FORMAT, KEPT_INDEX, connect, connect_to_read, make_tables, new_epoch, remove
from headway.live.store.verification import check_whole, whole_again
from headway.live.store.vouching import UNREADABLE, Vouching, row_sum

LOCK: Final = "lock"

_FLOCK: Final = "hhqqi4x"
"""What the system says of a lock: its kind, the origin of its offset, its start and length, the id of its process."""

_SIGNS: Final = (MARK_FILE, ENGINE, UPLOADS_FOLDER, URL, TOKEN_FILE)
"""What a server leaves in its directory beside the journal."""

OTHER_TABLES: Final = 3
"""The first format with the tables of today; a journal of an older one is written anew."""

_MAKING: Final = "is making the journal"


class OpenJournal(NamedTuple):
    """An open journal.

    Attributes:
        lock: the file that keeps other processes away while it is open.
        epoch: the name of this journal's history, see docs/reference/journal.md.
        given_up: what was lost and is accepted as lost, in sentences.
    """

    lock: int
    db: sqlite3.Connection
    vouching: Vouching
    mark: Mark
    epoch: str
    given_up: tuple[str, ...] = ()


def open_journal(folder: Path, *, accept_loss: bool = False) -> OpenJournal:
    """Lock a data directory for this process and open its journal; both are made if they do not exist.

    A journal of an older format is converted; the old file is kept beside it.

    Args:
        accept_loss: if the journal is damaged, its intact part replaces it; the damaged files are kept.

    Raises:
        Damaged: the journal is not what was written, or not all of it; nothing was changed.
        HeadwayError: the directory cannot be made or written to, another process uses it, or its format is newer.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock, was_making = _lock(folder)
        try:
            given_up: tuple[str, ...] = ()
            try:
                if was_making or _is_new(folder, lock):
                    _make(folder, lock)
                else:
                    found = _format(folder / FILE)
                    if found < OTHER_TABLES:
                        conversion.convert(folder, found)
                    check_whole(folder)
                    if OTHER_TABLES <= found < FORMAT:
                        conversion.keep_copy(folder, found)
            except Damaged:
                if not accept_loss:
                    raise
                given_up = salvage(folder)
            _say(lock, str(os.getpid()))
            return _open(folder, lock)._replace(given_up=given_up)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise HeadwayError(
            f"{folder} cannot be used: {error.strerror or error}", "Choose another data directory (--data)."
        ) from error


@contextmanager
def take(folder: Path) -> Iterator[None]:
    """Keep servers away from a data directory, which is made if it does not exist.

    Raises:
        HeadwayError: a server uses it, or it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock, _ = _lock(folder)
    except OSError as error:
        raise HeadwayError(f"{folder} cannot be used: {error.strerror or error}", "Choose another folder.") from error
    try:
        _say(lock, str(os.getpid()))
        yield
    finally:
        os.close(lock)


def _open(folder: Path, lock: int) -> OpenJournal:
    path = folder / FILE
    try:
        db = connect(path)
    except sqlite3.Error as error:
        raise HeadwayError(f"{path} cannot be used: {error}", "Choose another data directory (--data).") from error
    try:
        (epoch,) = db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        db.execute(f"CREATE INDEX IF NOT EXISTS {KEPT_INDEX}")
        for table in (SERVICE_COSTS, JOB_MONEY, JOB_WORK, REFUSALS_TABLE, *PAST_TABLES):
            db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        return OpenJournal(lock, db, Vouching(epoch, db), Mark(folder / MARK_FILE), epoch)
    except sqlite3.Error as error:
        db.close()
        refuse(error, path)
    except BaseException:
        db.close()
        raise


def _is_new(folder: Path, lock: int) -> bool:
    """Whether there has never been a journal here.

    Raises:
        Damaged: there was one, and it is gone.
    """
    path = folder / FILE
    if path.exists() and path.stat().st_size > 0:
        return False
    signs = [name for name in _SIGNS if (folder / name).exists()]
    # A token alone may have been put there for a first start.
    if signs and not (signs == [TOKEN_FILE] and not os.fstat(lock).st_size):
        what = "is empty" if path.exists() else "is missing"
        raise Damaged(
            f"{path} {what}, though a server has used {folder} and left there: {', '.join(signs)}."
            " Everything that was accepted is missing with it",
            whole_again(folder),
        )
    return True


def has_been_used(folder: Path) -> bool:
    """Whether a server has had this folder as its data directory, or it is a backup of one."""
    return any((folder / name).exists() for name in (FILE, MARK_FILE, LOCK))


def _make(folder: Path, lock: int) -> None:
    """Make an empty journal with its mark. Until it is all on the disk the lock says so, and a start begins again."""
    path = folder / FILE
    _say(lock, f"{os.getpid()} {_MAKING}")
    remove(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = connect(path)
        try:
            vouching = make_tables(db, new_epoch())
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
    except sqlite3.Error as error:
        raise HeadwayError(f"{path} cannot be made: {error}", "Choose another data directory (--data).") from error
    mark.make(folder / MARK_FILE, vouching.reached)


def _format(path: Path) -> int:
    """The format of a journal.

    Raises:
        Damaged: it is not a journal, or does not say its format.
        HeadwayError: it is newer than this Headway.
    """
    try:
        db = connect_to_read(path)
        try:
            is_vouched = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chain'").fetchone() is not None
            its_sum = "sum" if is_vouched else "NULL"
            row = db.execute(f"SELECT value, {its_sum} FROM meta WHERE name = 'format'").fetchone()
        finally:
            db.close()
    except UNREADABLE as error:
        raise Damaged(f"{path} cannot be used: {error}", whole_again(path.parent)) from error
    found = row[0] if row else None
    if not isinstance(found, int) or found < 1 or (is_vouched and row_sum("format", found) != row[1]):
        raise Damaged(f"{path} cannot be used: it does not say its format", whole_again(path.parent))
    if found > FORMAT:
        raise HeadwayError(
            f"{path} has format {found}; this Headway reads formats up to {FORMAT}",
            "Use the Headway that wrote it, or a newer one; or another data directory (--data).",
        )
    return found


def _lock(folder: Path) -> tuple[int, bool]:
    """Lock the directory for this process; returns whether the previous process died while it made the journal.

    The lock ends with the process, however it ends. It is a POSIX lock, because child processes do not inherit those: a
    node that outlives its driver does not keep it open.
    """
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    said = os.pread(lock, 64, 0).decode("ascii", "replace").strip()
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise HeadwayError(
            f"{folder} is in use by the process {said.partition(' ')[0] or '(unknown)'}",
            "Only one `headway up` can use a data directory. Use that server, end it with `headway stop`, or choose "
            "another --data.",
        ) from None
    return lock, said.endswith(_MAKING)


def holder(folder: Path) -> int | None:
    """The id of the process that uses a data directory; None if none does."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        said = fcntl.fcntl(lock, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(lock)
    kind, *_, pid = struct.unpack(_FLOCK, said)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _say(lock: int, text: str) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{text}\n".encode(), 0)
