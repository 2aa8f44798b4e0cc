"""What a process that answers HTTP needs: a port, a token, an end in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from headway.errors import HeadwayError, InvalidInput
from headway.web.line import Line, Room

FILES_KEPT: Final = 128
"""Files that callers leave to the server itself, or a tenth of all where that is more: the journal, nodes, uploads."""


class Server(uvicorn.Server):
    """Ends when told so, instead of looking ten times a second whether it shall; leaves signals to us.

    It has as many files open as the system lets it; callers beyond that are told so.
    """

    def __init__(self, app: ASGIApp, end: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                loop="none",
                http=_lines(),  # type: ignore[arg-type]  # called as a class is
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._end = end

    async def main_loop(self) -> None:
        """Serve until told to end."""
        await self._end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them as they are."""
        yield


def allow_files() -> int:
    """Have as many files open at once as the system lets this process; how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 1 << 20 if most == resource.RLIM_INFINITY else most
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return allowed


def _lines() -> Callable[..., Line]:
    """What makes the end of each connection; as many as this process may have files, but for those of its own."""
    files = allow_files()
    return partial(Line, Room(max(1, files - max(FILES_KEPT, files // 10)), files))


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a port in use is known before anything is started.

    Raises:
        HeadwayError: the port or the host cannot be had.
    """
    if not 0 <= port <= 65535:
        raise InvalidInput("port", port, "0 (any that is free) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise HeadwayError(f"cannot listen on {host}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise HeadwayError(
                f"port {port} of {host} is in use", "Choose another with --port, or --port 0 for any that is free."
            ) from error
        raise HeadwayError(f"cannot listen on port {port} of {host}: {error.strerror or error}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where it listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def signals(end: asyncio.Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask for the end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def token_of(path: Path) -> str:
    """The token in a file that only its owner may read; made the first time.

    Raises:
        HeadwayError: the file is empty, or cannot be read or made.
    """
    try:
        if not path.exists():
            write_private(path, f"{secrets.token_urlsafe(32)}\n")
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise HeadwayError(f"the token in {path} cannot be had: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} holds no token: {error}", "Remove it, and a new token is made.") from error
    if not token:
        raise HeadwayError(f"{path} is empty", "Remove it, and a new token is made.")
    return token


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all.

    Raises:
        HeadwayError: the disk is full, or the folder takes no files.
    """
    draft = path.with_name(f".{path.name}")
    try:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error
