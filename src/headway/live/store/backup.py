"""Backups of a data directory, made while its server runs, and put in place again.

A backup is a folder that looks like a data directory: the journal as of one transaction, with its mark; the files that
it names; the checkpoints of open jobs; the tokens, and the certificate that the server made for itself. `backup.json`
has the SHA-256 of each file, so `headway check` can check a backup like a data directory.

A restored journal takes another course from that transaction on than it did before. It has a new epoch. If the
directory still has the old mark, jobs and messages are numbered on from there.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from headway.errors import HeadwayError
from headway.live.store import mark
from headway.live.store.conversion import commit
from headway.live.store.kept import files_of, moved, new_folder, opened, sha256_of
from headway.live.store.layout import CHECKPOINTS, PAIR, TOKEN_FILE, TOKENS_FILE
from headway.live.store.mark import MARK_FILE, sync_folder
from headway.live.store.opening import take
from headway.live.store.schema import FILE, connect, connect_to_read, new_epoch, remove
from headway.live.store.verification import BACKUP, Manifest, damaged, flaws, read_manifest
from headway.live.store.vouching import UNREADABLE, Vouching, last_of, reached_by

_JOURNAL: Final = (FILE, f"{FILE}-wal", f"{FILE}-shm")

_SECRETS: Final = (TOKEN_FILE, TOKENS_FILE, PAIR)
"""Those that are there stay when a backup is restored: what was revoked since is not valid again."""


def back_up(data: Path, goal: Path) -> Manifest:
    """Copy a data directory as of one transaction, also while a server uses it.

    Args:
        data: the data directory.
        goal: a folder that does not exist, or is empty; it appears only when the backup is complete.

    Raises:
        Damaged: the journal is damaged; no backup was made.
        HeadwayError: there is no journal, or the copy cannot be made.
    """
    if not (data / FILE).is_file():
        raise HeadwayError(f"there is no journal in {data}", "Name the data directory of `headway up`.")
    if goal.exists() and (not goal.is_dir() or any(goal.iterdir())):
        raise HeadwayError(f"{goal} is there already", "Name a folder that is not there, or is empty.")
    if goal.resolve() == Path.cwd():  # a shell that stands in it would not see what takes its place
        raise HeadwayError(f"{goal} is the current folder", "Name a new folder, here or elsewhere.")
    draft = goal.with_name(f".{goal.name}.part")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700, parents=True)
        manifest = _copy(data, draft)
        found = list(flaws(draft))
        if found:
            raise damaged(data, found)
        draft.rename(goal)
        sync_folder(goal.parent)
        return manifest
    except (OSError, *UNREADABLE) as error:
        raise HeadwayError(f"{data} cannot be copied to {goal}: {error}", "Nothing was changed.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy(data: Path, draft: Path) -> Manifest:
    os.close(os.open(draft / FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(connect_to_read(data / FILE)) as source, closing(sqlite3.connect(draft / FILE)) as copy:
        source.backup(copy)  # in one step, while the server keeps writing
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, wherever it is read
    with closing(connect_to_read(draft / FILE)) as db:
        number, digest, sums = last_of(db)
        row = db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        epoch = str(row[0]) if row else ""
        mark.make(draft / MARK_FILE, reached_by(epoch, number, digest, sums))
        files, gone = dict[str, str](), list[str]()
        named = [file.path for file in files_of(db, data)]
        named += [path for job in _open_jobs(db) for path in _below(data / CHECKPOINTS / str(job))]
        secrets = (data / name for name in _SECRETS if name == TOKEN_FILE or (data / name).exists())
        for path in (*named, *secrets):
            try:
                place = path.relative_to(data).as_posix()
            except ValueError:  # outside this directory: not ours to keep
                continue
            try:
                _copy_file(path, draft / place)
            except FileNotFoundError:  # deleted since the journal was copied
                gone.append(place)
            else:
                files[place] = sha256_of(draft / place)
    with open(draft / FILE, "rb") as file:
        os.fsync(file.fileno())
    manifest = Manifest(str(data.resolve()), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), number, files, gone)
    (draft / BACKUP).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    sync_folder(draft)
    return manifest


def restore(backup: Path, data: Path) -> tuple[int, Path | None]:
    """Put a backup in place as a data directory.

    An existing journal is first moved into a folder of its own.

    Returns:
        The transaction from which it continues, and the folder with what was there before; None if there was nothing.

    Raises:
        Damaged: the backup is damaged; nothing was changed.
        HeadwayError: it is no backup, a server uses the directory, or it cannot be written to.
    """
    if not (backup / BACKUP).is_file():
        raise HeadwayError(f"{backup} is no backup: it has no {BACKUP}", "`headway backup` makes one.")
    found = list(flaws(backup))
    if found:
        raise damaged(backup, found)
    manifest = read_manifest(backup)
    with take(data):
        try:
            before = _read_mark(data)
            for place in manifest.files:
                known = (data / place).exists()
                if not (known and (place in _SECRETS or Path(place).is_relative_to(CHECKPOINTS))):
                    _copy_file(backup / place, data / place)
            draft = data / f".{FILE}"
            remove(draft)
            _copy_file(backup / FILE, draft)
            with closing(connect(draft)) as db:
                epoch = new_epoch()
                vouching = Vouching(epoch, db)
                _begin_again(db, vouching, epoch, before, manifest.data, str(data.resolve()))
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            aside = _move_aside(data)
            mark.make(data / MARK_FILE, vouching.reached)
            draft.replace(data / FILE)
            sync_folder(data)
        except (OSError, *UNREADABLE) as error:
            raise HeadwayError(f"{backup} cannot be restored to {data}: {error}", "Try it again.") from error
    return manifest.transaction, aside


def _begin_again(
    db: sqlite3.Connection, vouching: Vouching, epoch: str, before: mark.Reached | None, old: str, new: str
) -> None:
    """The first transaction of a restored journal."""
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
    # What ran when the backup was made is redone, and does not count as lost with its node.
    db.execute("INSERT OR REPLACE INTO meta VALUES ('clean', 1)")
    if before is not None:
        vouching.number_from({"messages": before.message, "jobs": before.job})
    if old != new:
        rows = db.execute("SELECT number, result FROM messages WHERE files > 0 AND result IS NOT NULL").fetchall()
        for number, result in rows:
            db.execute("UPDATE messages SET result = ? WHERE number = ?", (moved(result, old, new), number))
    commit(db, vouching)


def _read_mark(data: Path) -> mark.Reached | None:
    try:
        return mark.read(data / MARK_FILE)
    except OSError:  # there was no journal, or what is here is to be replaced anyway
        return None


def _move_aside(data: Path) -> Path | None:
    """Move an existing journal into a folder of its own.

    The mark is copied, so it is never missing here: if this is interrupted before the restored journal is in place, the
    next restore still knows which numbers were given.
    """
    there = [name for name in _JOURNAL if (data / name).exists()]
    if not there:
        return None
    aside = new_folder(data, "replaced")
    if (data / MARK_FILE).exists():
        _copy_file(data / MARK_FILE, aside / MARK_FILE)
    for name in there:
        (data / name).rename(aside / name)
    sync_folder(aside)
    return aside


def _open_jobs(db: sqlite3.Connection) -> list[int]:
    return [job for (job,) in db.execute("SELECT id FROM jobs WHERE ended IS NULL")]


def _below(folder: Path) -> Iterator[Path]:
    """The files at any depth. The server may remove folders meanwhile, which `rglob` does not expect."""
    files = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    return (path for path in files if path.is_file() and not path.is_symlink())


def _copy_file(source: Path, goal: Path) -> None:
    """Copy a file; when this returns it is on the disk."""
    with opened(source) as old:
        goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = goal.with_name(f".{goal.name}.part")
        draft.unlink(missing_ok=True)
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                shutil.copyfileobj(old, new, 1 << 20)
                new.flush()
                os.fsync(new.fileno())
        except OSError:  # a full disk should not be left fuller
            draft.unlink(missing_ok=True)
            raise
    draft.replace(goal)
