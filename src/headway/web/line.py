"""One connection of a caller, and the room that all connections share: callers without a token cannot block the others.

uvicorn reads requests without bounds: a head of any length at any pace, a body that nobody wants, a pipeline of any
depth. Here each has a bound. A head that is too long, too slow or no HTTP is answered and its connection ended; so is a
body that stops arriving. Data after an answer that did not need it is read and dropped for a while: a caller that still
sends would not see the answer if the connection broke. When there is no room, connections without a request under way
are closed: first those that never showed a token, and of these the one that has been idle the longest.

Some requests are taken by a desk before the application sees them: those to services (`headway.web.asking`), and what
clients ask with each call (`headway.web.calls`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import httptools
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headway import wire
from headway.web.bodies import NoteUnread, in_form, noted_nowhere, peer_of

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

log = logging.getLogger(__name__)

URL_MAX: Final = 32 << 10
"""Bytes of a request's URL; a question for messages about a thousand jobs has 23,000."""

HEAD_MAX: Final = 64 << 10
"""Bytes of a request's URL and headers together, and of what is neither head nor body in a row."""

HEADERS_MAX: Final = 100
"""Headers of a request."""

FRAME_SHARE: Final = 16
"""Bytes that a chunked body may spend on the sizes and extensions of its chunks, for each byte it brings."""

CHUNKS_FREE: Final = 2_000
"""Chunks that a body may have whatever their sizes; each takes microseconds of the event loop."""

CHUNK_LEAST: Final = 32
"""Beyond these, a chunk for each so many bytes."""

PIPELINE_MAX: Final = 16
"""Requests that a connection may have sent before the first of them is answered."""

HEAD_SECONDS: Final = 10.0
"""From the first byte of a request, or a new connection, to the end of its head."""

BODY_SECONDS: Final = 20.0
"""How long a body is given for each `BODY_LEAST` bytes."""

BODY_LEAST: Final = 20 << 10
"""A body that brings less within `BODY_SECONDS` is too slow: a kilobyte a second."""

READ_ANSWER_SECONDS: Final = 60.0
"""A caller that has read nothing of an answer for this long is gone."""

ONCE_MORE: Final = 0.1
"""After this share of any time it is looked at once more: the event loop may have stood still, and not the caller. If
thousands call at once, a turn of the loop may take longer than that time; what has come is read in the next one."""

LINGER_SECONDS: Final = 5.0
"""How long the rest of an answered request is read and dropped."""

LINGER_MAX: Final = 512 << 20
"""How many bytes of it."""

LINGER_STRANGER_MAX: Final = 16 << 20
"""How many of it from a caller who never showed a token."""

IDLE_SECONDS: Final = 600.0
"""How long a connection is kept without a request."""

STRANGER_SECONDS: Final = 30.0
"""The same for one that never showed a token."""

BEYOND_MAX: Final = 32
"""Callers without room that get an answer saying so; they use files of the server's own meanwhile."""

SLICE: Final = 4 << 10
"""How many bytes of an unknown caller are parsed at once; no body is parsed before the caller is known."""

_SAY_AGAIN_SECONDS: Final = 60.0


class _RequestPart(Enum):
    """The part of a request that is being read."""

    NONE = 0
    HEAD = 1
    BODY = 2


class _RefusedRequest(Exception):  # it never leaves the parser
    """A request that is not read to its end."""

    def __init__(self, status: HTTPStatus, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.status, self.error, self.hint = status, error, hint


class Guest(Protocol):
    """A connection that has a place among all of them."""

    @property
    def trusted(self) -> bool:
        """Whether its caller has shown a valid token."""
        ...

    def make_place(self) -> None:
        """End for another."""


class ConnectionRoom:
    """How many callers may be connected, and which are disconnected for others.

    Args:
        most: connections at once, > 0.
        files: how many files this process may have open, for the error.
        refused: notes a request that the application never sees: the status, why, and the caller's address.
    """

    def __init__(self, most: int, files: int, refused: NoteUnread = noted_nowhere) -> None:
        self.refused = refused
        self._most = most
        self._files = files
        self._connected = 0
        self._said = -_SAY_AGAIN_SECONDS
        # Those without a request under way, longest first: of callers unknown so far, and of known ones.
        self._strangers: dict[Guest, None] = {}
        self._idle: dict[Guest, None] = {}
        self._beyond: dict[Guest, None] = {}  # callers for which there was no room: they get an error

    def enter(self, line: Guest) -> bool:
        """A caller has connected; returns whether there is room."""
        self._connected += 1
        if self._connected - len(self._beyond) > self._most:
            oldest = next(iter(self._strangers or self._idle), None)
            if oldest is None:
                if len(self._beyond) >= BEYOND_MAX:
                    next(iter(self._beyond)).make_place()
                self._beyond[line] = None
                return False
            oldest.make_place()
        self._strangers[line] = None
        return True

    def idle(self, line: Guest) -> None:
        """From now on a caller has no request under way, or none whose answer it takes."""
        if line not in self._beyond:
            (self._idle if line.trusted else self._strangers)[line] = None

    def busy(self, line: Guest) -> None:
        """A caller has a request under way, or is gone."""
        self._strangers.pop(line, None)
        self._idle.pop(line, None)

    def leave(self, line: Guest) -> None:
        """A caller's connection has ended, or does now."""
        self.busy(line)
        self._beyond.pop(line, None)
        self._connected -= 1

    def refusal(self) -> wire.ErrorBody:
        """The answer to a caller for which there is no room."""
        error = f"{self._most} callers are connected, as many as may be with {self._files} open files"
        if time.monotonic() >= self._said + _SAY_AGAIN_SECONDS:
            self._said = time.monotonic()
            log.warning("%s: more are refused", error)
        return wire.ErrorBody(
            error, "Ask again when there are fewer; or have the server started under a higher `ulimit -Hn`."
        )

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application that always gives this answer."""
        refusal = self.refusal()
        self.refused(HTTPStatus.SERVICE_UNAVAILABLE, refusal.error, peer_of(scope))
        answer = _answer(refusal, HTTPStatus.SERVICE_UNAVAILABLE, Request(scope).headers.get("accept", ""))
        start = {"type": "http.response.start", "status": int(HTTPStatus.SERVICE_UNAVAILABLE), "headers": answer[0]}
        await send(start)
        await send({"type": "http.response.body", "body": answer[1]})


class Taken(Protocol):
    """A request that a desk has taken; it is answered with `HttpConnection.reply`.

    Attributes:
        keep_alive: whether its connection goes on after the answer.
    """

    keep_alive: bool

    @property
    def response_complete(self) -> bool:
        """False, for uvicorn."""
        ...

    def more(self, part: bytes) -> None:
        """A part of its body."""

    def whole(self) -> None:
        """Its body is complete."""

    def gone(self) -> None:
        """Nobody waits for the answer any more."""


class Desk(Protocol):
    """Takes some requests before the application sees them."""

    def take(self, line: HttpConnection, method: str, url: bytes, headers: list[tuple[bytes, bytes]]) -> Taken | None:
        """Take a request whose head is read; None: it is for the application.

        It may only take requests of callers with a valid token, whose body is bounded by its announced length.
        """

    def take_again(self, line: HttpConnection, data: bytes) -> Taken | None:
        """Take a request that is whole, and whose head is byte for byte one that `learn` has seen."""

    def learn(self, taken: Taken, data: bytes) -> None:
        """These bytes, and no others, were the request that was taken just now."""


class _ReadingSwitch(FlowControl):
    """uvicorn's switch for reading, and what to do when it is switched on again."""

    def __init__(self, transport: asyncio.Transport, resumed: Callable[[], None]) -> None:
        super().__init__(transport)
        self._resumed = resumed

    def resume_reading(self) -> None:
        """Read on."""
        super().resume_reading()
        self._resumed()

    def let_go(self) -> None:
        """From now on nothing is done."""
        self._resumed = _nothing


class HttpConnection(HttpToolsProtocol):
    """uvicorn's end of one connection, with bounds.

    Args:
        room: shared with all others.
        desk: takes some requests before the application; None: none.
        config, server_state, app_state, _loop: uvicorn's.

    Attributes:
        trusted: whether its caller has shown a valid token.
        owner: whose token it showed last; None: it has shown none.
    """

    # Thousands of callers may wait: with slots, the dict of uvicorn's attributes stays small.
    __slots__ = (
        *("_body", "_body_before", "_chunks", "_cycles", "_deadline", "_desk", "_ending", "_fed", "_gone", "_head"),
        *("_held", "_part", "_past", "_rested", "_room", "_stalled", "_taken", "owner", "trusted"),
    )

    def __init__(
        self,
        room: ConnectionRoom,
        desk: Desk | None,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.trusted = False
        self.owner: object = None
        self._room = room
        self._part = _RequestPart.NONE
        self._desk = desk
        # Requests whose head is read and whose answer is not sent. A desk takes only one that is alone.
        self._cycles: list[RequestResponseCycle | Taken] = []
        self._taken: Taken | None = None  # whose body is read
        self._fed = self._body = self._head = 0  # bytes of the request that is read
        self._chunks = 0  # of its body
        self._ending = self._gone = False
        self._past = 0  # bytes that were read past
        self._held = b""  # what is not parsed yet
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._body_before = 0  # bytes of the body when its pace was looked at last
        self._rested: float | None = None  # since when nothing is under way

    # What uvicorn and the event loop tell

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller has connected."""
        super().connection_made(transport)
        self.flow = _ReadingSwitch(transport, self._resumed)
        if not self._room.enter(self):
            self.app, self._desk = self._refuse_all_but_health, None
        self._watch(HEAD_SECONDS, self._head_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._unwatch()
        if self._stalled is not None:
            self._stalled.cancel()
        self._unset_keepalive_if_required()
        if not self._gone:
            self._room.leave(self)
        for cycle in self._cycles:  # each that waits for its caller learns of it, not only the last
            _forsake(cycle)
        if self._cycles and not isinstance(self._cycles[0], RequestResponseCycle):
            self._let_go(self._cycles.pop(0))
        super().connection_lost(exc)
        if not self._cycles:  # freed with the last reference: the garbage collector rarely visits old objects
            assert isinstance(self.flow, _ReadingSwitch)
            self.flow.let_go()
            self.scope, self.cycle = {}, None  # type: ignore[typeddict-item, assignment]

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._ending:
            self._read_past(len(data))
            return
        self._rested = None
        if self._desk is not None and not (self._cycles or self._fed or self._held or self.flow.write_paused):
            taken = self._desk.take_again(self, data)
            if taken is None:
                self._read(data)
                self._learn(self._desk, data)
            else:
                self._room.busy(self)
                self._unwatch()
                self._accept(taken)
                taken.whole()
            return
        if self._held:
            data, self._held = self._held + data, b""
        self._read(data)

    def _learn(self, desk: Desk, data: bytes) -> None:
        if self._part is _RequestPart.NONE and len(self._cycles) == 1:
            [only] = self._cycles
            if not isinstance(only, RequestResponseCycle):
                desk.learn(only, data)

    def _read(self, data: bytes) -> None:
        """Parse what was sent, as far as it may be parsed already."""
        if self.trusted:
            self._parse(data)
            return
        for start in range(0, len(data), SLICE):
            if not self._parse(data[start : start + SLICE]):
                self._read_past(len(data) - start)
                return
            # Whose body it is the application has to say first, unless a desk knows.
            if self._part is _RequestPart.BODY and self._cycles and not self.trusted:
                self._held = data[start + SLICE :]
                self.flow.pause_reading()
                return

    def _parse(self, data: bytes) -> bool:
        """Take what was sent; whether what comes after it is looked at."""
        self._fed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # there is no other protocol: the request is answered, and nothing follows
            self._ending = True
            self.pipeline.clear()
        except httptools.HttpParserError as error:
            why = error.__context__
            self._refuse(
                why
                if isinstance(why, _RefusedRequest)
                else _RefusedRequest(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
            )
        else:
            self._follow()
        return not self._ending

    def _resumed(self) -> None:
        if self._held:
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        held, self._held = self._held, b""
        if held and not self.transport.is_closing():
            self.data_received(held)

    def pause_writing(self) -> None:
        """The caller reads more slowly than is written."""
        super().pause_writing()
        if not self.trusted:
            self._room.idle(self)
        self._check_read(-1)

    def resume_writing(self) -> None:
        """The caller has read what there was."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # What the parser finds

    def on_message_begin(self) -> None:
        """A request begins."""
        self._part = _RequestPart.HEAD
        self._head = 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        """A part of its URL."""
        self._head += len(url)
        if self._head > URL_MAX:
            raise _long_url()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one after a chunked body, which is ignored."""
        if self._part is _RequestPart.BODY:
            return
        self._head += len(name) + len(value) + 4
        if self._head > HEAD_MAX or len(self.headers) >= HEADERS_MAX:
            raise _long_head()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is whole: it is answered from here on."""
        if not self.url.startswith(b"/") and not httptools.parse_url(self.url).path:
            raise _RefusedRequest(HTTPStatus.BAD_REQUEST, "the request names no path", "A path begins with a slash.")
        if len(self._cycles) >= PIPELINE_MAX:
            raise _RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {PIPELINE_MAX} requests at once")
        self._part = _RequestPart.BODY
        self._body = self._body_before = self._chunks = 0
        self._room.busy(self)
        self._unwatch()
        taken = None if self._cycles or self._desk is None else self._offered(self._desk)
        if taken is not None:
            self._taken = taken
            self._accept(taken)
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes what the application is told
        self.url, self.scope["headers"], self.expect_100_continue = url, headers, expects
        self.scope["line"] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self._cycles.append(self.cycle)

    def _accept(self, taken: Taken) -> None:
        """A desk has taken the only request of this connection."""
        self.trusted = True
        self.cycle = cast(RequestResponseCycle, taken)
        self._cycles.append(taken)

    def _offered(self, desk: Desk) -> Taken | None:
        """What a desk makes of a request that is alone on its connection and has nothing unusual."""
        parser = self.parser
        if self.expect_100_continue or self.flow.write_paused or parser.should_upgrade():
            return None
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        return desk.take(self, parser.get_method().decode(), self.url, self.headers)

    def on_chunk_header(self) -> None:
        """A chunk of its body begins."""
        self._chunks += 1
        if self._chunks > CHUNKS_FREE + self._body // CHUNK_LEAST:
            raise _RefusedRequest(
                HTTPStatus.BAD_REQUEST,
                f"the body has {self._chunks} chunks for its first {self._body} bytes",
                f"Send chunks of {CHUNK_LEAST} bytes or more, or a body of known length.",
            )

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._body += len(body)
        if self._taken is not None:
            self._taken.more(body)
        elif self._cycles:
            super().on_body(body)
        else:
            self._read_past(len(body))

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._part = _RequestPart.NONE
        self._fed = self._past = 0
        self._unwatch()
        if self._taken is not None:
            taken, self._taken = self._taken, None
            self.url, self.headers = b"", []
            taken.whole()
            return
        super().on_message_complete()
        if not self._cycles and not self.transport.is_closing():  # answered before, and read past
            self._rest()

    def on_response_complete(self) -> None:
        """A request is answered."""
        del self._cycles[0]
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._ending:
            self._part_with()
            return
        if self._cycles:
            return
        self._rest()
        if self._part is not _RequestPart.BODY:
            return
        self._rested = None
        if self.expect_100_continue and not self._body:
            self.transport.close()  # a caller that first asks whether its body is wanted need not send it
        elif self.trusted:
            self._watch(LINGER_SECONDS, self._end)
        else:
            self._ending = True
            self._part_with()

    def reply(self, taken: Taken, whole: bytes) -> None:
        """Send the answer, head and body, to a request that a desk has taken."""
        self.write(whole)
        self.over(taken)

    def write(self, whole: bytes) -> None:
        """Send an answer, head and body; `over` follows."""
        if not self.transport.is_closing():
            self.transport.write(whole)

    def over(self, taken: Taken) -> None:
        """A request that a desk has taken is answered."""
        self._let_go(taken)
        if not taken.keep_alive and not self.transport.is_closing():
            self.transport.close()
        self.on_response_complete()

    def _let_go(self, taken: RequestResponseCycle | Taken) -> None:
        """A request that a desk has taken is over."""
        self._taken = None
        if self.cycle is taken:
            self.cycle = None  # type: ignore[assignment]

    # Bounds

    def make_place(self) -> None:
        """End the connection for another."""
        self._ending = self._gone = True
        self._room.leave(self)
        self.transport.abort()

    async def _refuse_all_but_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.config.loaded_app if scope["path"] == wire.HEALTH.path else self._room.refuse
        await app(scope, receive, send)
        self.transport.close()

    def _rest(self) -> None:
        """Nothing of it is under way."""
        self._rested = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again(self._rest_max)
        self._room.idle(self)

    @property
    def _rest_max(self) -> float:
        return IDLE_SECONDS if self.trusted else STRANGER_SECONDS

    def _look_again(self, seconds: float) -> None:
        """See then whether it has been idle for too long. So a request sets no timer."""
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self.timeout_keep_alive_task = None
        if self._rested is None:  # a request is under way: `_rest` follows
            return
        left = self._rested + self._rest_max - self.loop.time()
        if left > 0.0:
            self._look_again(left)
        else:
            self.timeout_keep_alive_handler()

    def _follow(self) -> None:
        """Check that what is read so far is not too long, and set when the rest must arrive."""
        if self._part is _RequestPart.BODY:
            if self._fed - self._body > 2 * HEAD_MAX + FRAME_SHARE * self._body:
                self._refuse(_RefusedRequest(HTTPStatus.BAD_REQUEST, "the body says more of its chunks than it brings"))
            elif self._deadline is None:
                self._watch(BODY_SECONDS, self._body_late)
        elif self._part is _RequestPart.HEAD or (self._fed and not self._cycles):
            if self._fed > HEAD_MAX + URL_MAX:
                self._refuse(_long_head())
            elif self._deadline is None:
                self._watch(HEAD_SECONDS, self._head_late)

    def _head_late(self) -> None:
        self._deadline = None
        if self._part is _RequestPart.NONE and not self._fed:
            self.transport.close()  # connected, and never asked
        else:
            late = f"the head of the request was not here after {HEAD_SECONDS:g} s"
            self._refuse(_RefusedRequest(HTTPStatus.REQUEST_TIMEOUT, late))

    def _body_late(self) -> None:
        self._deadline = None
        came, self._body_before = self._body - self._body_before, self._body
        if came >= BODY_LEAST or self.flow.read_paused:
            self._watch(BODY_SECONDS, self._body_late)
        else:
            late = f"{came} bytes of the body came within {BODY_SECONDS:g} s"
            self._refuse(_RefusedRequest(HTTPStatus.REQUEST_TIMEOUT, late, f"Send at least {BODY_LEAST} in that time."))

    def _check_read(self, before: int, *, once_more: bool = False) -> None:
        """Give up a caller that has read nothing of an answer since the last check, at the second look."""
        left = self.transport.get_write_buffer_size()
        if left == before and not once_more:
            again = partial(self._check_read, left, once_more=True)
            self._stalled = self.loop.call_later(ONCE_MORE * READ_ANSWER_SECONDS, again)
        elif left == before:
            log.info("a caller has read nothing of an answer for %g s", READ_ANSWER_SECONDS)
            self.transport.abort()
        else:
            self._stalled = self.loop.call_later(READ_ANSWER_SECONDS, self._check_read, left)

    def _refuse(self, refused: _RefusedRequest) -> None:
        """Say why nothing more is read, and end the connection."""
        self._room.refused(refused.status, refused.error, "" if self.client is None else self.client[0])
        self._ending = True
        self._unwatch()
        self._rested = None
        is_its_own = self._part is _RequestPart.BODY  # the request that is refused is the last of those under way
        if self.transport.is_closing():
            return
        if len(self._cycles) > is_its_own:  # the first of them is answered, and that was all
            self.pipeline.clear()
            return
        if is_its_own:
            first = self._cycles[0] if self._cycles else None
            if first is None or (isinstance(first, RequestResponseCycle) and first.response_started):
                self._end()
                return
            _forsake(first)
        headers, body = _answer(wire.ErrorBody(refused.error, refused.hint), refused.status, "")
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        phrase = refused.status.phrase.encode()
        self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (refused.status, phrase, head, body))
        self._part_with()

    def _part_with(self) -> None:
        """Send nothing more; read and drop what the caller still sends until it has seen the answer."""
        self._rested = None
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._room.idle(self)
        self._watch(LINGER_SECONDS, self._end)

    def _read_past(self, size: int) -> None:
        """Accept what a caller still sends, so that it sees its answer; otherwise the connection would break."""
        self._past += size
        if self._past > (LINGER_MAX if self.trusted else LINGER_STRANGER_MAX):
            self._end()

    def _end(self) -> None:
        self._deadline = None
        self.transport.abort()

    def _watch(self, seconds: float, late: Callable[[], None]) -> None:
        """See after this time, and once more (`ONCE_MORE`), whether it is late."""
        self._unwatch()
        self._deadline = self.loop.call_later(seconds, self._watch_once_more, ONCE_MORE * seconds, late)

    def _watch_once_more(self, seconds: float, late: Callable[[], None]) -> None:
        self._deadline = self.loop.call_later(seconds, late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _nothing() -> None:
    pass


def _forsake(cycle: RequestResponseCycle | Taken) -> None:
    """Let a request know that its caller is gone."""
    if isinstance(cycle, RequestResponseCycle):
        cycle.disconnected = True
        cycle.message_event.set()
    else:
        cycle.gone()


def _long_url() -> _RefusedRequest:
    return _RefusedRequest(
        HTTPStatus.REQUEST_URI_TOO_LONG, f"the URL has more than {URL_MAX} bytes", "Ask for less at once."
    )


def _long_head() -> _RefusedRequest:
    return _RefusedRequest(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        f"the head of the request has more than {HEAD_MAX} bytes or {HEADERS_MAX} headers",
    )


def _answer(body: wire.ErrorBody, status: HTTPStatus, accept: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of an answer after which the connection ends."""
    whole, form = in_form(body, packed=wire.MSGPACK in accept)
    headers = [
        (b"content-type", form.encode()),
        (b"content-length", str(len(whole)).encode()),
        (b"connection", b"close"),
    ]
    return headers, whole
