"""Requests to the server and its answers, typed by the routes of `headway.wire`, over connections kept open."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.client import HTTPException, RemoteDisconnected
from os import SEEK_END
from shutil import copyfileobj
from socket import SHUT_RDWR
from threading import Event
from typing import Any, BinaryIO, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from headway.client.address import Address
from headway.client.exchange import exchange, lines_of
from headway.client.trust import context_of, refusal
from headway.errors import HeadwayError, InvalidInput, OtherEpoch, Refused, TooOften, Unreachable
from headway.wire import MSGPACK, OCTETS, ErrorBody, Route, encode
from headway.wire.epoch import EPOCH, OTHER, START_AGAIN

ANSWER_SECONDS: Final = 30.0
"""A server that is silent for this long counts as gone."""

SLOW_BYTES: Final = 10e6
"""Bytes per second: the time limit of an answer grows with the size of a file at this rate."""

PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between tries to reach a server; the last one repeats."""

Query = Iterable[tuple[str, object]]
FindServer = Callable[[], Address]


@dataclass(slots=True)
class Story:
    """The journal to which a client speaks; empty before the first answer. It never changes: the client's numbers
    belong to it.
    """

    epoch: str = ""


def _unsendable(parts: object, name: str = "request") -> HeadwayError:
    """What to say of a request that cannot be written down: the field and the value that are at fault."""
    for key, value in _parts(parts):
        try:
            encode(value)
        except (UnicodeEncodeError, OverflowError):
            field = f"{name}[{key}]" if isinstance(key, int) else str(key)
            return _unsendable(value, field)
    if isinstance(parts, int):
        return InvalidInput(name, parts, "a number of at most 18 digits")
    return InvalidInput(name, parts, "text that can be written in UTF-8")


def _parts(whole: object) -> Iterable[tuple[object, object]]:
    """The parts of a value, each with its name or number; names that cannot be written down are parts themselves."""
    if isinstance(whole, msgspec.Struct):
        return msgspec.structs.asdict(whole).items()
    if isinstance(whole, dict):
        return [*((number, name) for number, name in enumerate(whole)), *whole.items()]
    return enumerate(whole) if isinstance(whole, list | tuple) else ()


@cache
def _decoder(answer: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(answer)


class Connection:
    """One connection, for one thread at a time; opened when first used and again after it broke."""

    def __init__(self, find: FindServer, story: Story | None = None) -> None:
        self._find = find
        self._story = story or Story()
        self._connection: HTTPConnection | None = None
        self._headers: dict[str, str] = {}
        self._lines = b""  # the headers as they are sent, with the epoch that was known when they were written
        self._lines_of = ""
        self._url = ""
        self._address: Address | None = None
        self._interrupted = False

    def ask(
        self,
        route: Route,
        *,
        body: msgspec.Struct | BinaryIO | None = None,
        job: int | None = None,
        node: str | None = None,
        upload: str = "",
        service: str = "",
        token: str = "",
        query: Query = (),
        wait: float = 0.0,
        into: BinaryIO | None = None,
    ) -> Any:
        """The server's answer. Every request may be repeated, so one that fails on a kept connection is sent again.

        Args:
            body: a file is sent as it is.
            wait: seconds that the server may take in addition to the usual time, >= 0.
            into: where to write an answer that is a file.

        Raises:
            InvalidInput: a value cannot be sent.
            Unreachable: there is no answer.
            CertificateRefused: the server is not the one that is trusted.
            OtherEpoch: its journal is not the one from before.
            Refused: the server refuses.
            HeadwayError: its answer cannot be read.
        """
        named = [(name, value) for name, value in query if value is not None]
        try:
            target = route.path
            if "{" in target:
                target = target.format(
                    job=job,
                    node=quote(node or "", safe=""),
                    upload=upload,
                    service=quote(service, safe=""),
                    token=quote(token, safe=""),
                )
            if named:
                target = f"{target}?{urlencode(named)}"
            sent = encode(body) if isinstance(body, msgspec.Struct) else body
        except (UnicodeEncodeError, OverflowError) as error:
            of_body = msgspec.structs.asdict(body) if isinstance(body, msgspec.Struct) else {}
            raise _unsendable({"node": node, "service": service, "token": token, **dict(named), **of_body}) from error
        kept = self._connection is not None
        try:
            status, content, after = self._exchange(route.method, target, sent, wait, into)
        except (OSError, HTTPException, HTTPError) as error:
            self.hang_up()
            if not kept or self._interrupted or isinstance(error, TimeoutError):
                raise self._silence(error) from error
            try:
                status, content, after = self._exchange(route.method, target, sent, wait, into)
            except (OSError, HTTPException, HTTPError) as again:
                self.hang_up()
                raise self._silence(again) from again
        if status >= 400:
            raise self._refusal(status, content, after)
        if into is not None:
            return None
        try:
            return _decoder(route.answer).decode(content)
        except msgspec.MsgspecError as error:
            raise HeadwayError(
                f"the answer of {self._url} to {route.name!r} cannot be read: {error}",
                "Client and server must be of versions that go together.",
            ) from error

    def _exchange(
        self, method: str, target: str, body: bytes | BinaryIO | None, wait: float, into: BinaryIO | None
    ) -> tuple[int, bytes | bytearray, str | None]:
        connection = self._connection or self._open()
        timeout = ANSWER_SECONDS + wait
        if connection.sock is None:
            connection.timeout = timeout
            connection.connect()
        if self._interrupted:  # looked at when there is something that `interrupt` can shut down
            raise ConnectionAbortedError("interrupted")
        if into is not None or not (body is None or isinstance(body, bytes)):
            return self._exchange_files(connection, method, target, body, timeout, into)
        if connection.sock.gettimeout() != timeout:
            connection.sock.settimeout(timeout)
        if self._lines_of != self._story.epoch:
            self._lines_of = self._story.epoch
            self._lines = lines_of({**self._headers, EPOCH: self._lines_of})
        try:
            answer = exchange(connection.sock, method, target, self._lines, body)
        except BaseException:  # Ctrl-c too: the next request must not get this one's answer
            self.hang_up()
            raise
        if not answer.stays:
            self.hang_up()
        self._check_story(answer.headers.get(EPOCH.lower()))
        return answer.status, answer.body, answer.headers.get("retry-after")

    def _exchange_files(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | BinaryIO | None,
        timeout: float,
        into: BinaryIO | None,
    ) -> tuple[int, bytes, str | None]:
        """The same where the body, or the answer, is a file."""
        headers, size = dict(self._headers), 0
        del headers["Host"]  # added by the library
        if self._story.epoch:
            headers[EPOCH] = self._story.epoch
        if body is not None and not isinstance(body, bytes):
            size = body.seek(0, SEEK_END)
            body.seek(0)
            headers |= {"Content-Type": OCTETS, "Content-Length": str(size)}
        connection.timeout = timeout + size / SLOW_BYTES
        try:
            connection.request(method, target, body, headers, preload_content=into is None)
        except (BrokenPipeError, ConnectionResetError):
            if not size:  # a server that refuses a file closes the connection instead of reading all of it
                raise
        response = connection.getresponse()
        self._check_story(response.headers.get(EPOCH))
        if into is None or response.status >= 400:
            return response.status, response.data, response.headers.get("retry-after")
        into.seek(0)
        into.truncate()
        copyfileobj(response, into, 1 << 20)
        return response.status, b"", None

    def _check_story(self, said: str | None) -> None:
        story = self._story
        if said is None or said == story.epoch:
            return
        if not story.epoch:
            story.epoch = said
            return
        self.hang_up()
        raise OtherEpoch(f"the journal of {self._url} {OTHER}", START_AGAIN, status=HTTPStatus.CONFLICT)

    def _open(self) -> HTTPConnection:
        address = self._find()
        parts = urlsplit(address.url)
        context = context_of(address)
        self._address = address
        self._url = address.url
        self._headers = {
            "Host": parts.netloc.rpartition("@")[2],
            "Authorization": f"Bearer {address.token}",
            "Accept": MSGPACK,
            "Accept-Encoding": "identity",
            "Content-Type": MSGPACK,
        }
        self._lines_of, self._lines = "", lines_of(self._headers)
        if parts.scheme == "https":
            by_name: Literal[False] | None = False if address.pinned else None
            self._connection = HTTPSConnection(
                parts.hostname or "", parts.port, ssl_context=context, assert_hostname=by_name
            )
        else:
            self._connection = HTTPConnection(parts.hostname or "", parts.port)
        return self._connection

    def _silence(self, error: Exception) -> HeadwayError:
        if self._address is not None and (refused := refusal(error, self._address)) is not None:
            return refused
        cause = error.__cause__ or error
        hint = "Start it with `headway up`, or check that --url, --data or HEADWAY_URL name the one you mean."
        if isinstance(cause, RemoteDisconnected) and self._url.startswith("http:"):
            hint = f"If it speaks HTTPS, its URL begins with https://. {hint}"
        return Unreachable(f"no server answers at {self._url}: {cause}", hint)

    def _refusal(self, status: int, content: bytes | bytearray, after: str | None) -> HeadwayError:
        try:
            said = _decoder(ErrorBody).decode(content)
        except msgspec.MsgspecError:
            words = content[:200].decode("utf-8", "replace")
            return Unreachable(f"{self._url} does not answer as Headway does: status {status}, {words!r}")
        if status == 503 or said.code == TooOften.code:  # the same may be sent again after a while
            return Unreachable(f"{self._url}: {said.error}", said.hint)
        again = float(after) if after is not None and after.isdigit() else None
        return Refused(said.error, said.hint, status=status, missing=said.missing, code=said.code, retry_after=again)

    def hang_up(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """From another thread: end the exchange under way, which raises `Unreachable` there, and any later one."""
        self._interrupted = True
        connection = self._connection
        if connection is not None and (sock := connection.sock) is not None:
            with contextlib.suppress(OSError):  # it is closed already
                sock.shutdown(SHUT_RDWR)


class Server:
    """A server that many threads may ask, with patience while it starts again.

    Args:
        find: finds its address; called for every new connection, because the server may come back elsewhere.
        patience: seconds to keep trying while there is no answer, >= 0.
    """

    def __init__(self, find: FindServer, patience: float = 0.0) -> None:
        self._find = find
        self._patience = patience
        self._story = Story()
        self._idle: list[Connection] = []
        self._closed = Event()

    def ask(
        self,
        route: Route,
        *,
        body: msgspec.Struct | BinaryIO | None = None,
        job: int | None = None,
        node: str | None = None,
        upload: str = "",
        service: str = "",
        token: str = "",
        query: Query = (),
        wait: float = 0.0,
        into: BinaryIO | None = None,
    ) -> Any:
        """The server's answer, see `Connection.ask`."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.connection()
        until = time.monotonic() + self._patience
        try:
            for pause in pauses():
                try:
                    return connection.ask(
                        route,
                        body=body,
                        job=job,
                        node=node,
                        upload=upload,
                        service=service,
                        token=token,
                        query=query,
                        wait=wait,
                        into=into,
                    )
                except Unreachable:
                    if time.monotonic() + pause > until or self._closed.wait(pause):
                        raise
            raise AssertionError("pauses never end")
        finally:
            self._idle.append(connection)
            if self._closed.is_set():  # asked only now: whoever closes closes what is idle by then
                self._hang_up_idle()

    def connection(self) -> Connection:
        """A connection for the caller alone."""
        return Connection(self._find, self._story)

    def renew(self) -> None:
        """In a child process: drop the connections, which are the parent's, without closing them."""
        is_closed = self._closed.is_set()
        self._idle = []
        self._closed = Event()  # the old one may be locked by a thread that does not exist here
        if is_closed:
            self._closed.set()

    def close(self) -> None:
        """Close what is open; requests under way end as they can."""
        self._closed.set()
        self._hang_up_idle()

    def _hang_up_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread does the same
            while True:
                self._idle.pop().hang_up()


def pauses() -> Iterator[float]:
    """Seconds to wait between one try and the next, without end."""
    yield from PAUSES
    while True:
        yield PAUSES[-1]
