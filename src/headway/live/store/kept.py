"""The files that belong to a journal: uploads, outputs that the server keeps, and the whole output of tasks."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from headway.live.store.layout import UPLOADS_FOLDER, output_file
from headway.live.store.schema import FILE, connect_to_read
from headway.wire import TaskResult

_result = msgspec.msgpack.Decoder(TaskResult)


class KeptFile(NamedTuple):
    """A file that the journal names.

    Attributes:
        path: of the file.
        sha256: of its bytes, in hexadecimal; empty if the journal does not know it.
        whose: whose file it is, for people.
    """

    path: Path
    sha256: str
    whose: str


def files_of(db: sqlite3.Connection, folder: Path) -> Iterator[KeptFile]:
    """All files of a data directory that its journal names; outputs that engines keep elsewhere are not among them."""
    uploads = "SELECT name FROM uploads UNION SELECT upload FROM outputs ORDER BY 1"
    for (name,) in db.execute(uploads):
        yield KeptFile(folder / UPLOADS_FOLDER / name, name, f"the upload {name}")
    for job, task, result in db.execute("SELECT job, task, result FROM messages WHERE files > 0 ORDER BY number"):
        if result is not None:
            for ending in _result.decode(result).endings:
                streams = ((ending.stdout_path, ending.stdout_sha256), (ending.stderr_path, ending.stderr_sha256))
                for output, sha256 in streams:
                    if (place := output_file(folder, output)) is not None:
                        yield KeptFile(place, sha256, f"output of task {task} of job {job}")


def moved(result: bytes, old: str, new: str) -> bytes:
    """An encoded result whose files are now in another data directory."""

    def there(path: str) -> str:
        return f"{new}{path[len(old) :]}" if path.startswith(f"{old}/") else path

    found = _result.decode(result)
    ending, *members = (
        msgspec.structs.replace(one, stdout_path=there(one.stdout_path), stderr_path=there(one.stderr_path))
        for one in found.endings
    )
    return msgspec.msgpack.encode(msgspec.structs.replace(found, ending=ending, members=tuple(members)))


def flaws_of_files(folder: Path, *, hurry: bool = True) -> Iterator[tuple[KeptFile, str]]:
    """Files of a data directory that differ from what was written, and how; a server may use it meanwhile.

    Args:
        hurry: read as fast as the disk can; otherwise leave three quarters of the time to others.

    Raises:
        sqlite3.Error: the journal cannot be read.
    """
    for file in _files(folder):
        began = time.perf_counter()
        what = flaw_of(file)
        if what and file.path in {other.path for other in _files(folder)}:  # not deleted since
            yield file, what
        if not hurry:
            time.sleep(3 * (time.perf_counter() - began))


def _files(folder: Path) -> list[KeptFile]:
    with closing(connect_to_read(folder / FILE)) as db:
        return list(files_of(db, folder))


def flaw_of(file: KeptFile) -> str:
    """What is wrong with a file; empty if nothing is."""
    try:
        with opened(file.path) as content:
            found = hashlib.file_digest(content, "sha256").hexdigest() if file.sha256 else ""
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    if file.sha256 and found != file.sha256:
        return "it was changed: its bytes have another SHA-256"
    return ""


def new_folder(data: Path, why: str) -> Path:
    """A new folder in a data directory for files that are being replaced; its name says when.

    Raises:
        OSError: it cannot be made.
    """
    name = time.strftime(f"{why}-%Y%m%dT%H%M%SZ", time.gmtime())
    folder = next(path for path in (data / f"{name}{number or ''}" for number in count()) if not path.exists())
    folder.mkdir(mode=0o700)
    return folder


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def opened(path: str | Path) -> BufferedReader:
    """A regular file; a link is not followed, a pipe not waited for.

    Raises:
        OSError: it is none, or cannot be read.
    """
    file = open(path, "rb", opener=_plainly)  # noqa: SIM115  # the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no file any more", str(path))
    return file


def _plainly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
