"""One HTTP request with a body, and one answer of limited size. The caller limits the time."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import httptools

from headway.errors import HeadwayError
from headway.wire import JSON

ANSWER_MAX: Final = 16 << 20
"""The largest answer in bytes."""

_READ: Final = 1 << 16

# Not the event loop's own pool: to end that, asyncio needs a further thread.
_pool = ThreadPoolExecutor(2, thread_name_prefix="headway-asking")


class NoReply(HeadwayError):
    """There is no answer that can be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer."""

    status: int
    content: bytes


async def post(
    secure: bool, host: str, port: int, target: str, body: bytes, headers: Mapping[str, str] | None = None
) -> Answer:
    """Post JSON, and return the answer. A redirection is an answer like others.

    Args:
        secure: whether over TLS.
        target: the path, with the query.
        headers: more of them.

    Raises:
        NoReply: the connection cannot be made, or breaks; or the answer is not HTTP, is too large, or breaks off.
    """
    try:
        return await _exchange(secure, host, port, _head(host, port, target, len(body), headers or {}) + body)
    except (OSError, ssl.SSLError, UnicodeError) as error:
        raise NoReply(f"it does not answer: {str(error) or type(error).__name__}") from error


async def _exchange(secure: bool, host: str, port: int, request: bytes) -> Answer:
    place = await _resolved(host, port)
    reader, writer = await asyncio.open_connection(
        place, port, ssl=secure or None, server_hostname=host if secure else None
    )
    try:
        writer.write(request)
        reply = _Reply()
        parser = httptools.HttpResponseParser(reply)
        left = ANSWER_MAX
        while not reply.whole and (part := await reader.read(_READ)):
            left -= len(part)
            if left < 0:
                raise NoReply(f"its answer has more than {ANSWER_MAX} bytes")
            parser.feed_data(part)
        if not reply.whole and (reply.sized or not reply.begun):
            raise NoReply("its answer breaks off")
    except httptools.HttpParserError as error:
        raise NoReply(f"its answer is no HTTP: {error}") from error
    finally:
        writer.close()
    return Answer(parser.get_status_code(), bytes(reply.content))


async def _resolved(host: str, port: int) -> str:
    """The numeric address of a host.

    The event loop could look it up too, but uvloop ends the process if it gets no thread for that.

    Raises:
        NoReply: the system gives no thread.
        OSError: there is no such host.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_pool, look_up)
    except RuntimeError as error:
        raise NoReply(f"its host cannot be looked up: {error}") from error
    return str(found[0][4][0])


def _head(host: str, port: int, target: str, length: int, headers: Mapping[str, str]) -> bytes:
    """The head of the request."""
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {f'[{host}]' if ':' in host else host}:{port}",
        f"Content-Type: {JSON}",
        f"Accept: {JSON}",
        f"Content-Length: {length}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii")


class _Reply:
    """What the parser finds."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.begun = self.sized = self.whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record whether the answer says how long it is."""
        self.sized = self.sized or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """The content follows."""
        self.begun = True

    def on_body(self, part: bytes) -> None:
        """A part of the content."""
        self.content += part

    def on_message_complete(self) -> None:
        """The answer has ended."""
        self.whole = True
