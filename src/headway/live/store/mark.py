"""How far the journal has come, written outside its file: `DATA/accepted`.

After each transaction of the journal its number and digest are written here, without waiting for the disk. The journal
is durable before, so the mark never says too much. After `kill -9` it is at most one transaction behind, after a loss
of power some seconds. A journal that does not reach its mark has lost its end.

Two slots, in separate blocks of the disk, are written in turn, each with a checksum. So an interrupted write leaves the
other one.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

MARK_FILE: Final = "accepted"

_SLOT: Final = 4096
_FORM: Final = struct.Struct("<8s16sQ16sQQQ")
_MAGIC: Final = b"headway1"
_SUM: Final = 16


class Reached(NamedTuple):
    """A transaction: its number, its digest, and the greatest numbers so far of an event, a message and a job.

    `epoch` is that of the journal, 32 digits in hexadecimal.
    """

    epoch: str
    number: int
    digest: bytes
    event: int = 0
    message: int = 0
    job: int = 0


class Mark:
    """The file, open for writing.

    Args:
        path: of the file, which exists.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, reached: Reached) -> None:
        """Record how far the journal has come.

        Raises:
            OSError: the disk does not accept it; the last mark stays.
        """
        os.pwrite(self._file, _packed(reached), _SLOT * (reached.number % 2))

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


def make(path: Path, reached: Reached) -> None:
    """Make a new file with one mark in it; when this returns it is on the disk.

    Raises:
        OSError: the disk is full.
    """
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for place in range(2):
            file.write((_packed(reached) if place == reached.number % 2 else b"").ljust(_SLOT, b"\0"))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def read(path: Path) -> Reached | None:
    """The last undamaged mark; None if there is none, although there is a file.

    Raises:
        FileNotFoundError: there is no file.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    marks = (_unpacked(content[place * _SLOT :][: _FORM.size + _SUM]) for place in range(2))
    return max((mark for mark in marks if mark is not None), key=lambda mark: mark.number, default=None)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk.

    Raises:
        OSError: they cannot be written.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _packed(reached: Reached) -> bytes:
    epoch, number, digest, *greatest = reached
    body = _FORM.pack(_MAGIC, bytes.fromhex(epoch), number, digest, *greatest)
    return body + blake2b(body, digest_size=_SUM).digest()


def _unpacked(slot: bytes) -> Reached | None:
    body, its_sum = slot[: _FORM.size], slot[_FORM.size :]
    if len(slot) < _FORM.size + _SUM or blake2b(body, digest_size=_SUM).digest() != its_sum:
        return None
    magic, epoch, number, digest, *greatest = _FORM.unpack(body)
    return None if magic != _MAGIC else Reached(epoch.hex(), number, digest, *greatest)
