"""Requests to services: from the caller to the queue, and the answer back, with nothing else on the way.

They come by thousands a second. So a desk takes them from their connection before the application sees them: there is
no task for a request, nothing that waits, and the answer is written in one piece as soon as it comes. What is unusual
about a request leaves it to the application: another method, a parameter, a body in chunks or of unknown length, a
caller that wants to be asked for the body or its connection closed, one that has sent several requests at once, and
whatever is wrong. There every error is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from headway import wire
from headway.access.tokens import TokenOwner
from headway.errors import HeadwayError
from headway.services.queue import OpenRequest, RequestQueue
from headway.services.terms import ServiceAnswer
from headway.web.bodies import ArrivingBody, Owners, owner_of, read_body
from headway.web.heads import Heads
from headway.web.line import HttpConnection, Taken

_BEFORE: Final = f"{wire.SERVICES.path}/"
_AFTER: Final = wire.REQUEST.path.rpartition("}")[2]

_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
_END: Final = b"\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"

_LARGE: Final = "The service may take larger ones: `headway serve --request-max`."


def service_of(path: str) -> str | None:
    """The service that is asked at this path; None: none is."""
    if path.startswith(_BEFORE) and path.endswith(_AFTER) and len(path) > len(_BEFORE) + len(_AFTER):
        return unquote(path[len(_BEFORE) : -len(_AFTER)])
    return None


class Queues(Protocol):
    """The queues of all services."""

    def queue(self, name: str) -> RequestQueue:
        """The requests of a service."""
        ...

    async def ask(self, name: str, body: bytes, kind: str = "") -> ServiceAnswer:
        """Have a request answered, see `Broker.ask`."""
        ...


class _Head(NamedTuple):
    """What is to be known of the head of a request.

    Attributes:
        owner: of the token in it.
        queue: of the service.
        kind: media type of the body.
        size: bytes of the body.
        packed: whether errors are told in MessagePack.
    """

    owner: TokenOwner
    queue: RequestQueue
    kind: str
    size: int
    packed: bool


class ServiceDesk:
    """Takes requests to services from their connections.

    A caller sends nearly the same head with each request. So heads that were parsed and taken are remembered, as they
    are, with the token in them: the same bytes mean the same. Only the service may have ended since, and the token may
    not be valid any more.

    Args:
        services: answer them.
        owners: of the tokens.
        refused: notes an error, of whose request and on which connection, and answers it, in MessagePack or JSON.
        may: whether the owner of a token may ask a service now; a request that is taken counts.
    """

    def __init__(
        self,
        services: Queues,
        owners: Owners[TokenOwner],
        refused: Callable[[Exception, TokenOwner, HttpConnection, bool], Response],
        may: Callable[[wire.Route, TokenOwner], bool],
    ) -> None:
        self._services = services
        self._owners = owners
        self._may = may
        self._heads = Heads[_Head]()
        self.refused = refused

    def take(
        self, line: HttpConnection, method: str, url: bytes, headers: list[tuple[bytes, bytes]]
    ) -> ServiceRequest | None:
        """Take a request whose head is read; None: it is for the application."""
        if method != wire.REQUEST.method or b"?" in url or (name := service_of(url.decode("latin-1"))) is None:
            return None
        given = dict(headers)
        size = given.get(b"content-length", b"")
        owner = owner_of(given.get(b"authorization", b""), self._owners)
        if len(given) < len(headers) or not size.isdigit() or owner is None:
            return None
        try:
            queue = self._services.queue(name)
        except HeadwayError:
            return None
        if int(size) > queue.settings.request_max or not self._may(wire.REQUEST, owner):
            return None
        line.owner = owner
        packed = wire.MSGPACK.encode() in given.get(b"accept", b"")
        kind = given.get(b"content-type", b"").decode("latin-1")
        return ServiceRequest(self, line, _Head(owner, queue, kind, int(size), packed))

    def take_again(self, line: HttpConnection, data: bytes) -> ServiceRequest | None:
        """Take a request that is whole, and whose head is one that was taken before."""
        found = self._heads.find(data)
        if found is None or found[0].queue.ended:
            return None
        owner = found[0].owner
        if not (owner.is_valid and self._may(wire.REQUEST, owner)):
            return None
        line.owner = owner
        return ServiceRequest(self, line, *found)

    def learn(self, taken: Taken, data: bytes) -> None:
        """Remember the head of a request."""
        assert isinstance(taken, ServiceRequest)
        self._heads.learn(taken.head, data)


class ServiceRequest:
    """A request that the desk has taken, from its head to its answer: the `Requester` of its queue.

    Attributes:
        head: of it.
        keep_alive: whether its connection goes on after the answer.
        response_complete: False, for uvicorn.
    """

    __slots__ = ("_body", "_desk", "_line", "_waiting", "head", "keep_alive")

    response_complete: Final = False

    def __init__(self, desk: ServiceDesk, line: HttpConnection, head: _Head, body: bytes = b"") -> None:
        self._desk = desk
        self._line = line
        self.head = head
        self._body = ArrivingBody(body)
        self._waiting: OpenRequest | None = None
        self.keep_alive = True

    # For the connection

    def more(self, part: bytes) -> None:
        """A part of its body."""
        self._body.more(part)

    def whole(self) -> None:
        """Its body is complete."""
        body = self._body.take()
        try:
            self._waiting = self.head.queue.put(body, self.head.kind, self)
        except Exception as error:  # noqa: BLE001 - the caller is told of it, and the log
            self.failed(error)

    def gone(self) -> None:
        """Nobody waits for the answer any more."""
        if self._waiting is not None:
            self.head.queue.abandon(self._waiting)
            self._waiting = None

    # For the queue

    def answered(self, answer: ServiceAnswer) -> None:
        """Write the answer."""
        self._waiting = None
        close = b"" if self.keep_alive else _CLOSE
        self._line.reply(self, _ANSWER % (answer.kind.encode(), len(answer.body), close, answer.body))

    def failed(self, error: Exception) -> None:
        """Write an error."""
        self._waiting = None
        response = self._desk.refused(error, self.head.owner, self._line, self.head.packed)
        head = b"".join([b"%b: %b\r\n" % header for header in response.raw_headers])
        close = b"" if self.keep_alive else _CLOSE
        self._line.reply(self, b"%b%b%b\r\n%b" % (STATUS_LINE[response.status_code], head, close, bytes(response.body)))


async def answered(services: Queues, name: str, request: Request, receive: Receive) -> ServiceAnswer:
    """Have a request answered that the application has got.

    Raises:
        ClientDisconnect: the caller has gone.
        HeadwayError: see `Broker.ask`.
    """
    body = await read_body(request, services.queue(name).settings.request_max, _LARGE)
    answer = asyncio.ensure_future(services.ask(name, body, request.headers.get("content-type", "")))
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        gone.cancel()
        answer.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
