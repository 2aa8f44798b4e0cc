"""Whether the machine of a worker has the server's folders under the same paths: a word written here is read there."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from headway.engines.local.shared.terms import NO_ROOM

WORD_FILE: Final = "word"
"""The file of the engine's folder that has the word."""


class SharedFolders(msgspec.Struct, frozen=True):
    """Folders of the server that a worker is to use in place.

    Attributes:
        engine: of the site's engine.
        uploads: of the files that the server keeps.
        word: what the file `WORD_FILE` of the first one says.
    """

    engine: str
    uploads: str
    word: str


def offer(engine: Path, uploads: Path) -> SharedFolders:
    """Write a new word, so that an old copy of the folder is no proof; on a full disk the last one stays.

    Raises:
        OSError: it cannot be written.
    """
    word, draft = secrets.token_hex(16), engine / f".{WORD_FILE}"
    try:
        draft.write_text(word, "ascii")
        draft.replace(engine / WORD_FILE)
    except OSError as error:
        if error.errno not in NO_ROOM or not (engine / WORD_FILE).exists():
            raise
        word = (engine / WORD_FILE).read_text("ascii")
    return SharedFolders(str(engine.absolute()), str(uploads.absolute()), word)


def trouble(offered: SharedFolders) -> str:
    """Why this machine does not share these folders; empty: it does, and they can be written to.

    A full disk does not count: it is the same one there and here, and passes.
    """
    path = os.path.join(offered.engine, WORD_FILE)
    try:
        with open(path, "rb") as file:
            if file.read(len(offered.word) + 1) != offered.word.encode("ascii"):
                return f"{path} is another file there than here"
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as fences are
            except OSError as error:
                return f"{path} cannot be locked there: {error.strerror or error}"
    except OSError as error:
        return f"{path} cannot be read there: {error.strerror or error}"
    for folder in (offered.engine, offered.uploads):
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            if error.errno not in NO_ROOM:
                return f"{folder} cannot be written to there: {error.strerror or error}"
    return ""


class PatientLooks:
    """Looks at folders of a network, which may not answer at all: then one thread waits for each, and no second one."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[str]] = {}

    async def trouble(self, offered: SharedFolders, seconds: float) -> str | None:
        """See `trouble`; None: there is no answer for so long."""
        try:
            async with asyncio.timeout(seconds):
                while (earlier := self._under_way.get(offered.engine)) is not None:
                    await asyncio.wait((earlier,))
                look = asyncio.ensure_future(asyncio.to_thread(trouble, offered))
                self._under_way[offered.engine] = look
                look.add_done_callback(lambda _: self._under_way.pop(offered.engine))
                return await asyncio.shield(look)
        except TimeoutError:
            return None
