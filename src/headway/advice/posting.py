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
from urllib.parse import urlsplit

import httptools

from headway.errors import HeadwayError, InvalidInput
from headway.wire import JSON

DECIDER_ANSWER_MAX: Final = 16 << 20
"""The largest answer in bytes."""

_READ: Final = 1 << 16

# Not the event loop's own pool: to end that, asyncio needs a further thread.
_pool = ThreadPoolExecutor(2, thread_name_prefix="headway-asking")


class NoReply(HeadwayError):
    """There is no answer that can be read."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where something is posted: the parts of a URL.

    Attributes:
        secure: whether over TLS.
        path, query: as in the URL; the path may be empty.
    """

    secure: bool
    host: str
    port: int
    path: str
    query: str

    @property
    def target(self) -> str:
        """What is asked for there."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")


def place_in(url: str, field: str, allowed: str) -> Endpoint:
    """The parts of `http://HOST[:PORT][/PATH][?QUERY]`.

    Raises:
        InvalidInput: it is not such a URL.

    >>> place_in("https://there/hook?x=1", "url", "a URL")
    Endpoint(secure=True, host='there', port=443, path='/hook', query='x=1')
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidInput(field, url, allowed) from None
    known = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.fragment
    if not known or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput(field, url, allowed)
    secure = parts.scheme == "https"
    return Endpoint(secure, parts.hostname or "", port or (443 if secure else 80), parts.path, parts.query)


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """An answer."""

    status: int
    content: bytes


async def post(place: Endpoint, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
    """Post JSON, and return the answer. A redirection is an answer like others.

    Args:
        headers: besides those that say what the body is.

    Raises:
        NoReply: the connection cannot be made, or breaks; or the answer is not HTTP, is too large, or breaks off.
    """
    try:
        return await _exchange(place, _head(place, len(body), headers) + body)
    except (OSError, ssl.SSLError, UnicodeError) as error:
        raise NoReply(f"it does not answer: {str(error) or type(error).__name__}") from error


async def _exchange(place: Endpoint, request: bytes) -> PostAnswer:
    address = await _resolved(place.host, place.port)
    server_name = place.host if place.secure else None
    reader, writer = await asyncio.open_connection(
        address, place.port, ssl=place.secure or None, server_hostname=server_name
    )
    try:
        writer.write(request)
        reply = _ParsedAnswer()
        parser = httptools.HttpResponseParser(reply)
        left = DECIDER_ANSWER_MAX
        while not reply.whole and (part := await reader.read(_READ)):
            left -= len(part)
            if left < 0:
                raise NoReply(f"its answer has more than {DECIDER_ANSWER_MAX} bytes")
            parser.feed_data(part)
        if not reply.whole and (reply.sized or not reply.begun):
            raise NoReply("its answer breaks off")
    except httptools.HttpParserError as error:
        raise NoReply(f"its answer is no HTTP: {error}") from error
    finally:
        writer.close()
    return PostAnswer(parser.get_status_code(), bytes(reply.content))


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


def _head(place: Endpoint, length: int, headers: Mapping[str, str]) -> bytes:
    """The head of the request."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    lines = [
        f"POST {place.target} HTTP/1.1",
        f"Host: {host}:{place.port}",
        f"Content-Type: {JSON}",
        f"Accept: {JSON}",
        f"Content-Length: {length}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii")


class _ParsedAnswer:
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
