"""A request with a short body and its answer, over a connection that stays open.

The libraries for HTTP spend more on a request than the server does: the pieces of a head are checked and joined one by
one, and that of the answer is read as that of a letter. Here the lines that are the same in each request are made once,
the whole request is one piece, so that the server is woken once, and an answer of known length is taken as it is.
Anything else that HTTP allows an answer to be is left to the standard library (`_in_full`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPResponse, InvalidURL, RemoteDisconnected
from socket import socket
from typing import Final, NamedTuple, cast

JOINED_MAX: Final = 64 << 10
"""A body of so many bytes is sent with its head, which copies it."""

_CHUNK: Final = 64 << 10
_HEAD_MAX: Final = 64 << 10

_TARGET: Final = re.compile(r"[!-~]+")
_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")
_FIRST: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: [^\r\n]*)?")
_BODILESS: Final = (204, 304)


class HTTPAnswer(NamedTuple):
    """What came back.

    Attributes:
        headers: their values, by names in small letters.
        stays: whether the connection can be used again.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray
    stays: bool


def lines_of(headers: Mapping[str, str]) -> bytes:
    """Headers as they are written.

    Raises:
        ValueError: a value has characters that no header may have.
    """
    for name, value in headers.items():
        if not _VALUE.fullmatch(value.encode("latin-1")):
            raise ValueError(f"invalid value of the header {name}")
    return b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items())


def exchange(sock: socket, method: str, target: str, lines: bytes, body: bytes | None) -> HTTPAnswer:
    """Send a request and receive the whole answer.

    Args:
        target: path and query.
        lines: the headers, `Host` among them, without that of the length.
        body: None: none is announced.

    Raises:
        OSError: the connection is broken, or nothing came for as long as `sock` waits.
        http.client.HTTPException: this is no answer, or the target is none.
    """
    if not _TARGET.fullmatch(target):
        raise InvalidURL(f"the URL has characters that it may not have: {target!r}")
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    head = b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method.encode(), target.encode(), lines, length)
    if not body:
        sock.sendall(head)
    elif len(body) <= JOINED_MAX:
        sock.sendall(head + body)
    else:
        sock.sendall(head)
        sock.sendall(body)
    return _answer(sock, method)


def _answer(sock: socket, method: str) -> HTTPAnswer:
    came = sock.recv(_CHUNK)
    if not came:
        raise RemoteDisconnected("the connection was closed without an answer")
    while (end := came.find(b"\r\n\r\n")) < 0 and len(came) <= _HEAD_MAX:
        more = sock.recv(_CHUNK)
        if not more:
            raise RemoteDisconnected("the connection was closed within the head of an answer")
        came += more
    first, *fields = came[: max(end, 0)].split(b"\r\n")
    status = _FIRST.fullmatch(first)
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.decode("latin-1").partition(":")
        if not colon or (name := name.lower()) in headers:
            return _in_full(sock, came, method)
        headers[name] = value.strip(" \t")
    length = headers.get("content-length", "")
    is_plain = "transfer-encoding" not in headers and "connection" not in headers and length.isdecimal()
    if status is None or int(status[1]) in _BODILESS or not (is_plain and length.isascii()):
        return _in_full(sock, came, method)
    size, begun = int(length), came[end + 4 :]
    if len(begun) > size:
        raise BadStatusLine("more came than the answer was to have")
    return HTTPAnswer(int(status[1]), headers, begun if len(begun) == size else _rest(sock, begun, size), True)


def _rest(sock: socket, begun: bytes, size: int) -> bytearray:
    """A body of which the first bytes have come."""
    whole = bytearray(size)
    whole[: len(begun)] = begun
    left = memoryview(whole)[len(begun) :]
    while left:
        count = sock.recv_into(left)
        if not count:
            raise RemoteDisconnected("the connection was closed within an answer")
        left = left[count:]
    return whole


class _BegunConnection(io.RawIOBase):
    """A connection of which some bytes have been read; for `HTTPResponse`, which asks a socket for a file."""

    def __init__(self, sock: socket, came: bytes) -> None:
        self._sock = sock
        self._came = came

    def makefile(self, mode: str) -> io.BufferedReader:
        """What is read from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview[int], /) -> int:  # type: ignore[override]
        """Read what came before, and then what comes."""
        if not self._came:
            return self._sock.recv_into(buffer)
        some, self._came = self._came[: len(buffer)], self._came[len(buffer) :]
        buffer[: len(some)] = some
        return len(some)


def _in_full(sock: socket, came: bytes, method: str) -> HTTPAnswer:
    """Read an answer by all the rules of HTTP, of which some bytes have come."""
    response = HTTPResponse(cast(socket, _BegunConnection(sock, came)), method=method)
    try:
        response.begin()
        body = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return HTTPAnswer(response.status, headers, body, not response.will_close)
    finally:
        response.close()
