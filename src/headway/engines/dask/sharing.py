"""Whether the machine of a worker has the server's folders under the same paths: a word written here is read there."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

import msgspec

WORD: Final = "word"
"""The file of the engine's folder that has the word."""


class SharedFolders(msgspec.Struct, frozen=True):
    """Folders of the server that a worker is to use in place.

    Attributes:
        engine: of the site's engine.
        uploads: of the files that the server keeps.
        word: what the file `WORD` of the first one says.
    """

    engine: str
    uploads: str
    word: str


def offer(engine: Path, uploads: Path) -> SharedFolders:
    """Write a new word, so that an old copy of the folder is no proof.

    Raises:
        OSError: it cannot be written.
    """
    offered = SharedFolders(str(engine.absolute()), str(uploads.absolute()), secrets.token_hex(16))
    draft = engine / f".{WORD}"
    draft.write_text(offered.word, "ascii")
    draft.replace(engine / WORD)
    return offered


def trouble(offered: SharedFolders) -> str:
    """Why this machine does not share these folders; empty: it does, and they can be written to."""
    path = os.path.join(offered.engine, WORD)
    try:
        with open(path, "rb") as file:
            if file.read(len(offered.word) + 1) != offered.word.encode("ascii"):
                return f"{path} is another file there than here"
    except OSError as error:
        return f"{path} cannot be read there: {error.strerror or error}"
    for folder in (offered.engine, offered.uploads):
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            return f"{folder} cannot be written to there: {error.strerror or error}"
    return ""
