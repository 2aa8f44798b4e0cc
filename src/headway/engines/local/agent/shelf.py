"""The files of a node that has no disk in common with its driver: what it gets of the server, and what it gives.

Files that the server keeps come over the line when a run first wants them, and stay until others need their room. What
runs wrote, and outputs that the server shall keep, are read by the driver in pieces.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import Counter
from contextlib import suppress
from typing import Final

from headway.engines.local.agent.said import say
from headway.engines.local.shared.archives import pack, unpack
from headway.engines.local.shared.frames import CheckpointTaken, FilePiece, Read, ReadPart
from headway.engines.local.shared.stores import PIECE_MAX, TRIES, Arrived, Store, path_of
from headway.engines.local.shared.terms import NO_ROOM, Terms

SHELF_MAX: Final = 8 << 30
"""Bytes of files of the server that a node keeps; more only if all were used in the last `RECENT_SECONDS`."""

RECENT_SECONDS: Final = 3600.0
"""A file that was used so recently stays: a run may be about to open it, or the driver to fetch it."""


class Coming:
    """A file that comes in pieces: complete under its name, or not there at all."""

    def __init__(self, folder: str, name: str) -> None:
        self._name = name
        self._folder = folder
        self._draft = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
        self._digest = hashlib.sha256()
        self._file = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def add(self, data: bytes) -> None:
        """Write what comes next.

        Raises:
            OSError: there is no room for it.
        """
        view = memoryview(data)
        self._digest.update(view)
        while view:
            view = view[os.write(self._file, view) :]

    def complete(self) -> bool:
        """It is whole; returns whether its bytes are those of its name. If not, nothing of it stays."""
        os.close(self._file)
        self._file = -1
        if self._digest.hexdigest() != self._name:
            os.unlink(self._draft)
            return False
        os.rename(self._draft, os.path.join(self._folder, self._name))
        return True

    def drop(self) -> None:
        """It will not be complete."""
        if self._file >= 0:
            os.close(self._file)
            with suppress(OSError):  # the folder was cleared
                os.unlink(self._draft)


class _Archive:
    """A checkpoint on its way, in pieces: each is hashed by itself, because a whole one would hold up the agent.

    Attributes:
        of: whose it is: when it is read, its name; when it comes, the number of its transfer.
        data: what there is of it.
        digest: SHA-256 of what has gone or come.
    """

    def __init__(self, of: str | int, data: bytes | bytearray) -> None:
        self.of = of
        self.data = data
        self.digest = hashlib.sha256()


class NodeShelf:
    """What an agent does with files, if its driver has another disk.

    Args:
        terms: `uploads` is a folder of this node, and nobody else's.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._coming: dict[str, Coming | OSError] = {}  # why it cannot be taken; the rest of it is yet to come
        self._damaged = Counter[str]()
        self._packed: _Archive | None = None
        self._unpacked: dict[str, _Archive] = {}

    def open(self, name: str) -> int | None:
        """A descriptor of a file of the server; None: it is not here.

        Raises:
            OSError: it cannot be here, or cannot be opened.
        """
        path = path_of(self._terms, Store.UPLOAD, name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with suppress(OSError):  # it may belong to another user
            os.utime(path)
        return file

    def take(self, piece: FilePiece) -> Arrived | None:
        """Take a piece of a file of the server; returns what became of it with the last one, None if more comes."""
        coming = self._coming.get(piece.name)
        if not isinstance(coming, OSError):
            coming = self._coming[piece.name] = self._taken(coming, piece)
        if not (piece.last or piece.detail):
            return None
        del self._coming[piece.name]
        if isinstance(coming, OSError):
            if coming.errno in NO_ROOM:  # the slot that waits for it reports this as `Stalled`
                return Arrived.NO_ROOM
            say(f"file {piece.name} cannot be taken: {coming}")
            return Arrived.NOT
        if piece.detail:
            coming.drop()
            return Arrived.NOT
        if coming.complete():
            del self._damaged[piece.name]
            return Arrived.HERE
        self._damaged[piece.name] += 1
        if self._damaged[piece.name] < TRIES:
            return Arrived.AGAIN
        say(f"file {piece.name} cannot be taken: other bytes have come, {self._damaged.pop(piece.name)} times")
        return Arrived.NOT

    def _taken(self, coming: Coming | None, piece: FilePiece) -> Coming | OSError:
        """What has come of a file with a piece of it; or why it cannot be taken: then nothing of it stays."""
        try:
            if coming is None:
                path_of(self._terms, Store.UPLOAD, piece.name)
                self._make_room()
                coming = Coming(self._terms.uploads, piece.name)
            coming.add(piece.data)
        except OSError as error:
            if coming is not None:
                coming.drop()
            return error
        return coming

    def forget(self) -> None:
        """The driver is gone: what was coming will not come."""
        for coming in self._coming.values():
            if isinstance(coming, Coming):
                coming.drop()
        self._coming.clear()
        self._damaged.clear()
        self._unpacked.clear()
        self._packed = None

    def read(self, read: Read) -> ReadPart:
        """Read a part of a file; an archive is made when its first part is read."""
        try:
            path = path_of(self._terms, read.store, read.name)
            if read.store is Store.CHECKPOINT:
                return self._archived(read, path)
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return ReadPart(read.number, os.pread(file, min(read.size, PIECE_MAX), read.offset))
            finally:
                os.close(file)
        except FileNotFoundError:
            return ReadPart(read.number, b"", f"there is no file {read.name}")
        except OSError as error:
            return ReadPart(read.number, b"", f"{read.name} cannot be read: {error.strerror or error}")

    def _archived(self, read: Read, path: str) -> ReadPart:
        if read.offset == 0:
            self._packed = _Archive(read.name, pack(path))
        packed = self._packed
        if packed is None or packed.of != read.name:
            raise FileNotFoundError(read.name)
        piece = bytes(packed.data[read.offset : read.offset + min(read.size, PIECE_MAX)])
        packed.digest.update(piece)
        if piece:
            return ReadPart(read.number, piece)
        self._packed = None
        return ReadPart(read.number, b"", sha256=packed.digest.hexdigest())

    def take_checkpoint(self, piece: FilePiece) -> CheckpointTaken | None:
        """Take a piece of a checkpoint; returns what became of it with the last one, None if more comes.

        If it cannot be taken, the task begins anew, or from what is here.
        """
        coming = self._unpacked.get(piece.name)
        if coming is None or coming.of != piece.number:  # the attempt that the other one was for was killed
            coming = self._unpacked[piece.name] = _Archive(piece.number, bytearray())
        coming.data += piece.data
        coming.digest.update(piece.data)
        if not piece.last:
            return None
        del self._unpacked[piece.name]
        if coming.digest.hexdigest() != piece.sha256:
            return CheckpointTaken(piece.number, is_damaged=True, detail="other bytes have come than were sent")
        try:
            unpack(bytes(coming.data), path_of(self._terms, Store.CHECKPOINT, piece.name))
        except (OSError, ValueError) as error:
            return CheckpointTaken(piece.number, detail=str(error))
        return CheckpointTaken(piece.number)

    def _make_room(self) -> None:
        """Remove the files that were used longest ago, until the others fit."""
        with os.scandir(self._terms.uploads) as entries:
            found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries)
        whole, now = sum(size for _, size, _ in found), time.time()
        for used, size, path in found:
            if whole <= SHELF_MAX or now - used < RECENT_SECONDS:
                return
            with suppress(OSError):  # it stays, and is tried again
                os.unlink(path)
                whole -= size
