"""Files between a client and its server, which keeps them for tasks and with results."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headway.client.connection import Server
from headway.errors import HeadwayError, InvalidInput, Refused
from headway.files import KEPT_SCHEME, Input, upload_of
from headway.wire import DOWNLOAD, UPLOAD, UPLOADED

NOT_FOUND = 404


def upload(server: Server, source: str | os.PathLike[str] | bytes, name: str | None) -> Input:
    """Send a file to the server, unless the server already has it.

    Raises:
        HeadwayError: the file cannot be read, or the server refuses it.
    """
    name = name if name is not None else "" if isinstance(source, bytes) else Path(source).name
    if "/" in name or "\0" in name:
        raise InvalidInput("name", name, "the name of a file, without its folder")
    with _opened(source) as file:
        digested = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digested.update(chunk)
        digest = digested.hexdigest()
        try:
            server.ask(UPLOADED, upload=digest)
        except Refused as refusal:
            if refusal.status != NOT_FOUND:
                raise
            server.ask(UPLOAD, upload=digest, body=file)
    return Input(f"{KEPT_SCHEME}{digest}/{name}" if name else f"{KEPT_SCHEME}{digest}")


def download(server: Server, url: str, path: str | os.PathLike[str]) -> Path:
    """Write a file that the server keeps to a path, completely or not at all.

    Raises:
        HeadwayError: the server does not keep it, something else came, or it cannot be written.
    """
    kept = upload_of(url)
    if kept is None:
        raise InvalidInput("url", url, f"{KEPT_SCHEME}SHA256, as in the `outputs` of a result or of `Client.upload`")
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(draft, "w+b") as file:
            server.ask(DOWNLOAD, upload=kept[0], into=file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != kept[0]:
            raise HeadwayError(
                f"what came of {url} is not what was kept: its SHA-256 is {digest}",
                "Ask again. If it stays so, the file is damaged where the server keeps it: `headway check` says.",
            )
        draft.replace(target)
    except OSError as error:
        raise HeadwayError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return target


@contextmanager
def _opened(source: str | os.PathLike[str] | bytes) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    try:
        file = open(source, "rb")  # noqa: SIM115  # what is read of it is not this function's to answer for
    except OSError as error:
        raise HeadwayError(f"cannot read {os.fspath(source)}: {error.strerror or error}") from error
    with file:
        yield file
