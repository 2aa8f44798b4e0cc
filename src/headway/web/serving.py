"""What a process that answers HTTP needs: a port, a token, an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from ipaddress import ip_address
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from headway.errors import HeadwayError, InvalidInput, PortTaken
from headway.web.bodies import NoteUnread, noted_nowhere
from headway.web.line import ConnectionRoom, Desk, HttpConnection
from headway.web.secure import SecureConnection

log = logging.getLogger(__name__)

OF_HOSTS: Final = (
    "Name an address of this machine with --host: 127.0.0.1 for this machine alone, 0.0.0.0 for others too."
)

FILES_KEPT: Final = 128
"""Files that callers leave for the server itself, or a tenth of all if that is more: journal, nodes, uploads."""


class BoundedServer(uvicorn.Server):
    """Stops on request, instead of checking ten times a second, and leaves signals to Headway.

    It opens as many files as the system allows; callers beyond that get an error.

    Args:
        app: answers requests.
        end: ends it.
        desk: takes some requests before; None: none.
        refused: notes a request that the application never sees: the status, why, and the caller's address.
        tls: with a certificate, for HTTPS; None: HTTP.
    """

    def __init__(
        self,
        app: ASGIApp,
        end: asyncio.Event,
        desk: Desk | None = None,
        *,
        refused: NoteUnread = noted_nowhere,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                loop="none",
                http=_lines(desk, refused, tls),  # type: ignore[arg-type]  # called as a class is
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

    def drop(self, owners: Iterable[object]) -> None:
        """End the connections that have shown a token of one of these owners last, whatever is under way there."""
        gone = {id(owner) for owner in owners}
        for line in list(self.server_state.connections):
            if isinstance(line, HttpConnection) and id(line.owner) in gone:
                line.transport.abort()

    async def main_loop(self) -> None:
        """Serve until stopped."""
        await self._end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them as they are."""
        yield


def allow_files() -> int:
    """Open as many files at once as the system allows this process; returns how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 1 << 20 if most == resource.RLIM_INFINITY else most
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return allowed


def _lines(
    desk: Desk | None, refused: NoteUnread, tls: ssl.SSLContext | None
) -> Callable[..., HttpConnection | SecureConnection]:
    """What makes the end of each connection; as many as this process may have files, but for those of its own."""
    files = allow_files()
    room = ConnectionRoom(max(1, files - max(FILES_KEPT, files // 10)), files, refused)
    return partial(HttpConnection, room, desk) if tls is None else partial(SecureConnection, room, desk, tls)


def listen(host: str, port: int, *, secure: bool = False) -> socket.socket:
    """A socket that is bound, so that a port in use is known before anything is started.

    Args:
        secure: whether HTTPS is spoken there.

    Raises:
        PortTaken: another program has the port.
        HeadwayError: the port or the host cannot be used.
    """
    if not 0 <= port <= 65535:
        raise InvalidInput("port", port, "0 (any that is free) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise HeadwayError(f"cannot listen on {host}: {error.strerror or error}", OF_HOSTS) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
        _say_who_may_come(listener, secure=secure)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} of {host} is in use", "Choose another with --port, or --port 0 for any that is free."
            ) from error
        hint = OF_HOSTS if error.errno == errno.EADDRNOTAVAIL else ""
        raise HeadwayError(f"cannot listen on port {port} of {host}: {error.strerror or error}", hint) from error
    return listener


def _say_who_may_come(listener: socket.socket, *, secure: bool) -> None:
    host = listener.getsockname()[0]
    if ip_address(host.partition("%")[0]).is_loopback:
        return
    if secure:
        log.warning("listening on %s: anyone who can reach this machine can try tokens", host)
    else:
        log.warning(
            "listening on %s: anyone who can reach this machine can try tokens, and can read the traffic, because it "
            "is not encrypted. --tls-self-signed encrypts it. With --host 127.0.0.1 only this machine is served",
            host,
        )


def url_of(listener: socket.socket, *, secure: bool = False) -> str:
    """Where it listens."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


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
