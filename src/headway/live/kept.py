"""The files that belong to a journal: uploads, what tasks gave the server to keep, and the whole output of tasks."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headway.wire import TaskResult

UPLOADS: Final = "uploads"

_result = msgspec.msgpack.Decoder(TaskResult)


class KeptFile(NamedTuple):
    """A file that the journal names.

    Attributes:
        path: where it is.
        sha256: of its bytes, in hexadecimal; empty where the journal does not know it.
        whose: for people: whose file it is.
    """

    path: Path
    sha256: str
    whose: str


def files_of(db: sqlite3.Connection, folder: Path) -> Iterator[KeptFile]:
    """All files that the journal in a data directory names."""
    uploads = "SELECT name FROM uploads UNION SELECT upload FROM outputs ORDER BY 1"
    for (name,) in db.execute(uploads):
        yield KeptFile(folder / UPLOADS / name, name, f"the upload {name}")
    for job, task, result in db.execute("SELECT job, task, result FROM messages WHERE files > 0 ORDER BY number"):
        if result is not None:
            for path in paths_of(_result.decode(result)):
                yield KeptFile(Path(path), "", f"output of task {task} of job {job}")


def paths_of(result: TaskResult) -> list[str]:
    """Paths of the files that have the whole output of a result."""
    endings = (result.ending, *result.members)
    return [path for ending in endings for path in (ending.stdout_path, ending.stderr_path) if path]


def moved(result: bytes, old: str, new: str) -> bytes:
    """An encoded result whose files are in another data directory now."""

    def there(path: str) -> str:
        return f"{new}{path[len(old) :]}" if path.startswith(f"{old}/") else path

    found = _result.decode(result)
    ending, *members = (
        msgspec.structs.replace(one, stdout_path=there(one.stdout_path), stderr_path=there(one.stderr_path))
        for one in (found.ending, *found.members)
    )
    return msgspec.msgpack.encode(msgspec.structs.replace(found, ending=ending, members=tuple(members)))


def flaw_of(file: KeptFile) -> str:
    """What is wrong with a file; empty where nothing is."""
    try:
        found = sha256_of(file.path) if file.sha256 else str(file.path.stat().st_size)
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    if file.sha256 and found != file.sha256:
        return "it was changed: its bytes have another SHA-256"
    return ""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
