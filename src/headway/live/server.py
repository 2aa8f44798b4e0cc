"""The start-up of `headway up`: journal, engine, driver and HTTP interface joined, served until told to end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import getpass
import logging
import os
import secrets
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
import uvloop
from starlette.types import ASGIApp

from headway.config import uniform_cluster
from headway.engines import base
from headway.engines.local import LocalEngine
from headway.errors import HeadwayError, InvalidInput
from headway.live.clock import SystemClock
from headway.live.driver import Driver
from headway.live.journal import Journal
from headway.model.node import NodeSpec
from headway.policies.registry import find
from headway.web.api import BODY_MAX, Api, Caller

log = logging.getLogger(__name__)

READ_AHEAD = 4
"""Short tasks that a slot of this machine is given ahead of their turn."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `headway up` is told.

    Attributes:
        data: the data directory; made if it is not there.
        nodes: the nodes of this machine.
        policy: as `NAME[:key=value,...]`; None: the one that decided before, at first `deadline`.
        host, port: where to listen; port 0 takes any that is free.
        result_max: bytes that a result may have.
        body_max: bytes that a request may bring.
        snapshot_every: events after which the state is stored again; a start replays about so many.
        keep_events: keep what snapshots have made unnecessary, as a trace that can be replayed.
    """

    data: Path
    nodes: tuple[NodeSpec, ...] = uniform_cluster(2)
    policy: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    result_max: int = base.RESULT_MAX
    body_max: int = BODY_MAX
    snapshot_every: int = 10_000
    keep_events: bool = True


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers: where, and which file has the token it demands."""

    url: str
    token_file: Path
    pid: int


Say = Callable[[Running], None]


def run(settings: Settings, say: Say = lambda running: None) -> None:
    """Serve until SIGINT, SIGTERM or a request to shut down; then end in order.

    Args:
        say: is told once, when the server answers.

    Raises:
        HeadwayError: it cannot be started: the data directory, the port, the policy or a node cannot be used.
    """
    uvloop.run(serve(settings, say))


async def serve(settings: Settings, say: Say = lambda running: None) -> None:
    """The same within a running event loop, of its main thread."""
    if settings.policy is not None:
        find(settings.policy)
    journal = Journal(settings.data, keep_events=settings.keep_events)
    try:
        await _serve(settings, journal, say)
    except sqlite3.DatabaseError as error:
        raise HeadwayError(
            f"the journal in {settings.data} cannot be read: {error}",
            "Put back a copy of the data directory, or start with another one (--data).",
        ) from error
    finally:
        journal.close()


async def _serve(settings: Settings, journal: Journal, say: Say) -> None:
    end = asyncio.Event()
    with _listen(settings.host, settings.port) as listener, _signals(end):
        token_file = settings.data / "token"
        token = token_of(token_file)
        engine = LocalEngine(settings.data / "engine")
        driver = Driver(
            journal,
            engine,
            SystemClock(),
            find,
            policy=settings.policy,
            result_max=settings.result_max,
            snapshot_every=settings.snapshot_every,
        )
        driver.broken.add_done_callback(lambda _: end.set())
        url_file = settings.data / "url"
        try:
            await driver.start([replace(node, read_ahead=READ_AHEAD) for node in settings.nodes])
            api = Api(driver, {token: Caller(getpass.getuser())}, end.set, body_max=settings.body_max)
            server = _Server(api.app, end)
            url = _url(listener)
            _write_private(url_file, f"{url}\n")
            serving = asyncio.create_task(server.serve([listener]))
            say(Running(url, token_file, os.getpid()))
            await asyncio.wait((serving, asyncio.create_task(end.wait())), return_when=asyncio.FIRST_COMPLETED)
            log.info("ending in order")
            end.set()
            driver.take_no_more()
            await serving
        finally:
            url_file.unlink(missing_ok=True)
            await driver.stop()
        if driver.broken.done():
            raise HeadwayError(
                f"the server broke: {driver.broken.exception()}",
                "Nothing that was accepted is lost. Start it again; its log says what happened.",
            )


class _Server(uvicorn.Server):
    """Ends when told so, instead of looking ten times a second whether it shall; leaves signals to us."""

    def __init__(self, app: ASGIApp, end: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                timeout_keep_alive=600,
                timeout_graceful_shutdown=2,
            )
        )
        self._end = end

    async def main_loop(self) -> None:
        await self._end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
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


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _signals(end: asyncio.Event) -> Iterator[None]:
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
            _write_private(path, f"{secrets.token_urlsafe(32)}\n")
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise HeadwayError(f"the token in {path} cannot be had: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} holds no token: {error}", "Remove it, and a new token is made.") from error
    if not token:
        raise HeadwayError(f"{path} is empty", "Remove it, and a new token is made.")
    return token


def _write_private(path: Path, text: str) -> None:
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
