"""The files that the server keeps: uploads of clients and outputs of tasks, each under the SHA-256 of its bytes.

They are in a folder beside the journal and pass neither through it nor through the core. Tasks on this machine read and
write the folder themselves; engines of other machines have the bytes sent (`headway.engines.base.Files`).
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final

from headway.errors import HeadwayError, InvalidInput, NoRoom, NoSuchUpload, TooLarge
from headway.live.aside import aside
from headway.live.store.mark import sync_folder

log = logging.getLogger(__name__)

STRAY_SECONDS: Final = 3600.0
"""An older file that no table names is removed. A younger one may be the output of a task whose end comes yet."""

WRITTEN_AT_ONCE: Final = 4 << 20
"""Bytes of an upload that are collected before they are hashed and written, beside the event loop."""

_NAME = re.compile(r"[0-9a-f]{64}")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Uploads:
    """The folder.

    Args:
        folder: made if it does not exist.
        size_max: the most bytes that an uploaded file may have.
        check_room: raises `NoRoom` if there is no room for a file of this many bytes, 0 if the size is not known.

    Attributes:
        placing: files that are in their place and not recorded yet, and how many callers are about to record each.

    Raises:
        HeadwayError: the folder cannot be made.
    """

    def __init__(self, folder: Path, size_max: int, check_room: Callable[[int], None] = lambda size: None) -> None:
        self.folder = folder.absolute()
        self.placing: Counter[str] = Counter()
        self._size_max = size_max
        self._check_room = check_room
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise HeadwayError(f"{folder} cannot be used: {error.strerror or error}") from error

    def path(self, name: str) -> Path:
        """The path of the file with this name, if it is kept.

        Raises:
            InvalidInput: it is not a name of a file.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput("upload", name, "the SHA-256 of a file's bytes, 64 digits in hexadecimal")
        return self.folder / name

    def size(self, name: str) -> int:
        """Bytes of a file.

        Raises:
            NoSuchUpload: it is not kept.
        """
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            raise NoSuchUpload(name) from None

    def size_of(self, name: str) -> int:
        """Bytes of a file; 0 if there is none."""
        try:
            return self.path(name).stat().st_size
        except (OSError, InvalidInput):  # it is gone, or was never here: it takes no room
            return 0

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of a file: at most this many bytes, none only at its end.

        Raises:
            NoSuchUpload: it is not kept.
            HeadwayError: it cannot be read.
        """
        path = self.path(name)
        try:
            return await aside(partial(_piece, path, offset, size))
        except FileNotFoundError:
            raise NoSuchUpload(name) from None
        except OSError as error:
            raise HeadwayError(f"{path} cannot be read: {error.strerror or error}") from error

    async def put(self, name: str, parts: AsyncIterator[bytes]) -> None:
        """Write the output of an attempt, as `take`; it is recorded with the attempt's end."""
        await self.take(name, 0, parts)

    async def take(
        self,
        name: str,
        announced: int,
        parts: AsyncIterator[bytes],
        record: Callable[[int], object] = lambda size: None,
    ) -> int:
        """Write a file as it arrives; when this returns it is on the disk and recorded. Returns its size in bytes.

        Args:
            name: the SHA-256 of its bytes.
            announced: its size if known, else 0.
            record: called with its size when it is on the disk.

        Raises:
            Whatever `record` raises.
            TooLarge: it is larger than files may be.
            InvalidInput: its bytes have another SHA-256.
            NoRoom: the disk is full, or only its reserve is left.
        """
        goal = self.path(name)
        draft = self.folder / f".{name}.{secrets.token_hex(8)}"
        digest, size = hashlib.sha256(), 0
        parts_held, held = list[bytes](), 0
        try:
            self._check_size(announced)
            self._check_room(announced)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                async for part in parts:
                    size += len(part)
                    self._check_size(size)
                    parts_held.append(part)
                    held += len(part)
                    if held >= WRITTEN_AT_ONCE:
                        await aside(partial(_write, file, digest, parts_held))
                        parts_held, held = [], 0
                        self._check_room(max(0, announced - size))
                await aside(partial(_write, file, digest, parts_held, last=True))
            if digest.hexdigest() != name:
                raise InvalidInput("upload", name, f"the SHA-256 of the bytes that were sent, {digest.hexdigest()}")
            self.placing[name] += 1
            try:
                draft.replace(goal)
                await aside(partial(sync_folder, self.folder))  # before it is recorded: the power may fail
                record(size)
            finally:
                self.placing -= Counter((name,))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise NoRoom(
                f"the upload does not fit on the disk of {self.folder}: {error.strerror}", "Make room."
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return size

    def _check_size(self, size: int) -> None:
        if size > self._size_max:
            raise TooLarge(
                f"the upload has {size} bytes or more; allowed: {self._size_max}",
                "Put it where tasks can open it by a URL, or start the server with a larger --upload-max.",
            )

    def remove_strays(self, known: Container[str]) -> None:
        """Remove old files that no table names: interrupted uploads, and outputs of tasks with no recorded end."""
        strays = (entry for entry in self.folder.iterdir() if entry.name not in known)
        remove(stray for stray in strays if time.time() - stray.stat().st_mtime > STRAY_SECONDS)


def _piece(path: Path, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _write(file: IO[bytes], digest: hashlib._Hash, parts: Sequence[bytes], *, last: bool = False) -> None:
    """Write a part of a file; the last part also brings it to the disk."""
    for part in parts:
        digest.update(part)
        file.write(part)
    if last:
        file.flush()
        os.fsync(file.fileno())


def remove(paths: Iterable[Path]) -> None:
    """Remove files that are no longer needed; one that cannot be removed stays, and is logged."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s stays: %s", path, error.strerror or error)
