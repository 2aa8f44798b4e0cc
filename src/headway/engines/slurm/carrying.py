"""Files that the server keeps, on their way to runners and from them: through the folder that they share.

A runner asks for a file by its name, in its file `told`. The server puts the file into a folder of the part that only
the server writes to, and says so there (`answers`), because a network file system may believe for a while that what was
looked up and missing is still missing. What a task gives is in the folder `kept` of its part, and is brought in before
its end is reported.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from headway.engines.base import AttemptKey, Files
from headway.engines.local.shared.terms import NO_ROOM
from headway.engines.slurm.folder import KEPT_FOLDER, SlurmFolder
from headway.engines.slurm.written import ANSWERS, FileAnswer, append_to
from headway.errors import HeadwayError, NoSuchUpload

T = TypeVar("T")

CARRIED_AT_ONCE: Final = 4 << 20

_NAME: Final = re.compile("[0-9a-f]{64}")
_AT_ONCE: Final = 2
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FAR: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES)
"""Why a file cannot be linked or moved to another place, and is copied."""


class Aside(Protocol):
    """Does steps in a thread."""

    async def __call__(self, step: Callable[..., T], *arguments: Any) -> T:
        """What it returns."""
        ...


class Carrier:
    """Carries files.

    Args:
        folder: of the engine.
        files: those that the server keeps.
        aside: does in a thread what may wait for a network file system.
    """

    def __init__(self, folder: SlurmFolder, files: Files, aside: Aside) -> None:
        self._folder = folder
        self._files = files
        self._aside = aside
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def give(self, key: AttemptKey, number: int, name: str) -> None:
        """Put a file where the runner of a part finds it, and answer that, or why not.

        The name comes from a file that the task's account can write to. If it is not a SHA-256, it is not answered.

        Raises:
            OSError: the answer cannot be written.
        """
        if not _NAME.fullmatch(name):
            return
        place = self._folder.files_of(key, number)
        async with self._free:
            no_room = here = False
            try:
                if not await self._aside(self._link, place, name):
                    await self._copy(place, name)
                here = True
            except NoSuchUpload:
                pass
            except OSError as error:
                no_room = error.errno in NO_ROOM
                if not no_room:
                    raise
            await self._aside(append_to, place / ANSWERS, FileAnswer(name, here, no_room))

    def _link(self, place: Path, name: str) -> bool:
        """Give a file another name in its place; False: it has to be copied."""
        if (place / name).exists():
            return True
        if self._folder.accounts or self._files.folder is None:
            return False
        try:
            os.link(self._files.folder / name, place / name)
        except FileNotFoundError:
            raise NoSuchUpload(name) from None
        except OSError as error:
            if error.errno not in _FAR:
                raise
            return False
        return True

    async def _copy(self, place: Path, name: str) -> None:
        """Copy a file to its place, where it appears as a whole, for the account of its runner alone."""
        draft, digest, offset = place / f".{name}.{secrets.token_hex(4)}", hashlib.sha256(), 0
        whose = await self._aside(os.stat, self._folder.attempts / place.name)
        out = await self._aside(os.open, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            while data := await self._files.read(name, offset, CARRIED_AT_ONCE):
                await self._aside(_write, out, data, digest)
                offset += len(data)
            if digest.hexdigest() != name:
                raise NoSuchUpload(name)
            if whose.st_uid != os.geteuid():
                await self._aside(os.fchown, out, whose.st_uid, whose.st_gid)
            await self._aside(draft.rename, place / name)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
        finally:
            os.close(out)

    async def collect(self, key: AttemptKey, number: int, names: Iterable[str]) -> None:
        """Keep what a member has given.

        Raises:
            HeadwayError: the server cannot keep it.
            OSError: it is not there.
        """
        place = self._folder.of(key, number)
        for name in names:
            if not _NAME.fullmatch(name):
                raise HeadwayError(f"{name!r} is not the name of a file that the server could keep")
            async with self._free:
                try:
                    fd = await self._aside(_given, place, name)
                except FileNotFoundError:
                    try:
                        await self._files.read(name, 0, 1)  # another member gave the same, or an earlier server kept it
                    except NoSuchUpload:
                        raise FileNotFoundError(errno.ENOENT, "it is not there any more", name) from None
                    continue
                try:
                    if not await self._aside(self._move, place, name):
                        await self._files.put(name, self._parts(fd))
                finally:
                    os.close(fd)

    def _move(self, place: Path, name: str) -> bool:
        """Put an output into its place by another name; False: it has to be copied."""
        if self._folder.accounts or self._files.folder is None:
            return False
        try:
            (place / KEPT_FOLDER / name).replace(self._files.folder / name)
        except OSError as error:
            if error.errno not in _FAR:
                raise
            return False
        return True

    async def _parts(self, fd: int) -> AsyncIterator[bytes]:
        while data := await self._aside(os.read, fd, CARRIED_AT_ONCE):
            yield data


def _write(fd: int, data: bytes, digest: hashlib._Hash) -> None:
    digest.update(data)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _given(place: Path, name: str) -> int:
    """Open what a task has given. Its account may have put anything in its place: a link, or a pipe.

    Raises:
        FileNotFoundError: it is not there.
        HeadwayError: it is no plain file.
    """
    outer = os.open(place, _FOLDER)
    try:
        inner = os.open(KEPT_FOLDER, _FOLDER, dir_fd=outer)
    finally:
        os.close(outer)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inner)
    finally:
        os.close(inner)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise HeadwayError(f"{name} is not a plain file")
    return fd
