"""The TLS of one connection, between the socket and `HttpConnection`, with the bounds of all connections.

An event loop tells nobody of a connection before its handshake is done, and waits a minute for that. Here a connection
counts from the moment it is accepted: it has its place among those of strangers, is closed for others like these, and
its handshake has a time and a size. From then on `HttpConnection` sees what was sent as if there were no TLS, and its
bounds are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from headway.web.line import ONCE_MORE, ConnectionRoom, Desk, HttpConnection

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
"""From a new connection to the end of its handshake."""

HANDSHAKE_MAX: Final = 64 << 10
"""Bytes that a caller may send until then: certificates of its own are not asked for."""

READ_AT_ONCE: Final = 64 << 10
"""How many bytes are decrypted before they are parsed."""


class SecureConnection(asyncio.Protocol):
    """The outer end of one connection.

    Args:
        room: shared with all others.
        desk: of the `HttpConnection` within.
        context: has the certificate and the key.
        config, server_state, app_state, _loop: uvicorn's.

    Attributes:
        trusted: False: nobody who has not shaken hands has shown a token.
    """

    trusted: Final = False

    def __init__(
        self,
        room: ConnectionRoom,
        desk: Desk | None,
        context: ssl.SSLContext,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._make: Callable[[], HttpConnection] = lambda: HttpConnection(
            room, desk, config, server_state, app_state, _loop
        )
        self._room = room
        self._server_state = server_state
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._came = 0
        self._is_inside = False  # whether it has its place in the room
        self._deadline: asyncio.TimerHandle | None = None
        self._line: HttpConnection | None = None
        self._reading: asyncio.Handle | None = None
        self._raw: asyncio.Transport

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has connected."""
        self._raw = cast(asyncio.Transport, transport)  # uvloop's only looks like one
        self._room.enter(self)  # one for whom there is no room is told so after the handshake
        self._is_inside = True
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # what `shutdown` is called of
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._look_once_more)

    def data_received(self, data: bytes) -> None:
        """Bytes of the handshake, or of what is encrypted."""
        self._incoming.write(data)
        if self._line is None:
            self._came += len(data)
            self._shake()
        if self._line is not None:
            self.read()

    def eof_received(self) -> None:
        """The caller sends no more: the connection ends, as without TLS."""
        if self._line is not None:
            self._line.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._leave()
        if self._reading is not None:
            self._reading.cancel()
        line, self._line = self._line, None
        if line is not None:
            line.connection_lost(exc)

    def pause_writing(self) -> None:
        """The caller reads more slowly than is written."""
        if self._line is not None:
            self._line.pause_writing()

    def resume_writing(self) -> None:
        """The caller has read what there was."""
        if self._line is not None:
            self._line.resume_writing()

    # The handshake

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            if self._came > HANDSHAKE_MAX:
                log.debug("a handshake has more than %d bytes", HANDSHAKE_MAX)
                self.abort()
            return
        except ssl.SSLError as error:
            log.debug("a handshake failed: %s", error)
            self.flush()  # the alert that says why
            self._leave()
            self._raw.close()
            return
        self.flush()
        self._leave()
        line = self._make()
        line.connection_made(_Transport(self, self._raw, self._tls))
        self._line = line

    def _look_once_more(self) -> None:
        """The event loop may have stood still, and not the caller."""
        self._deadline = asyncio.get_running_loop().call_later(ONCE_MORE * HANDSHAKE_SECONDS, self._late)

    def _late(self) -> None:
        self._deadline = None
        log.debug("a handshake took more than %g s", HANDSHAKE_SECONDS)
        self.abort()

    def _leave(self) -> None:
        """It has no place of its own any more: it is gone, or its `HttpConnection` takes it."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._is_inside:
            self._is_inside = False
            self._room.leave(self)
            self._server_state.connections.discard(self)

    def make_place(self) -> None:
        """End the connection for another."""
        self.abort()

    def shutdown(self) -> None:
        """The server ends."""
        self.abort()

    def abort(self) -> None:
        """End it at once."""
        self._leave()
        self._raw.abort()

    # For the transport within

    def read(self) -> None:
        """Decrypt what has come, as far as it is wanted now."""
        self._reading = None
        while self._line is not None and self._raw.is_reading() and not self._raw.is_closing():
            try:
                part = self._tls.read(READ_AT_ONCE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            except ssl.SSLError as error:
                log.debug("what came cannot be decrypted: %s", error)
                self._raw.abort()
                return
            if not part:  # the caller has ended it
                self._line.eof_received()
                self._raw.close()
                return
            self._line.data_received(part)
        self.flush()  # what TLS itself has to answer

    def read_soon(self) -> None:
        """Go on with what had come before reading was paused."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().call_soon(self.read)

    def flush(self) -> None:
        """Send what is encrypted."""
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())


class _Transport(asyncio.Transport):
    """What `HttpConnection` writes to.

    Args:
        secure: encrypts it.
        raw: the connection.
        tls: its state.
    """

    __slots__ = ("_raw", "_secure", "_tls")

    def __init__(self, secure: SecureConnection, raw: asyncio.Transport, tls: ssl.SSLObject) -> None:
        super().__init__()
        self._secure = secure
        self._raw = raw
        self._tls = tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection; that there is an `sslcontext` makes its scheme https."""
        return self._tls.context if name == "sslcontext" else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self._raw.is_closing()

    def is_reading(self) -> bool:
        """Whether what comes is read."""
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._raw.resume_reading()
        self._secure.read_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this."""
        if data and not self._raw.is_closing():
            self._tls.write(data)
            self._secure.flush()

    def can_write_eof(self) -> bool:
        """True: TLS says so by an alert."""
        return True

    def write_eof(self) -> None:
        """Send nothing more; what comes is still read."""
        with contextlib.suppress(ssl.SSLError):  # the caller has not said so too yet
            self._tls.unwrap()
        self._secure.flush()

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent yet."""
        return self._raw.get_write_buffer_size()

    def close(self) -> None:
        """End it when all is sent, and say so."""
        if not self._raw.is_closing():
            self.write_eof()
            self._raw.close()

    def abort(self) -> None:
        """End it at once."""
        self._raw.abort()
