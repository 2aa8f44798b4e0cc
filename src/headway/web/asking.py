"""Requests to services: from the caller to the queue, and the answer back, with nothing else on the way.

They come by thousands a second, so they take a shorter way than other requests. As long as one waits for its answer,
its task waits for one thing only: what comes next from the caller, which is nothing, or that the caller has gone. The
answer wakes it, and is written to the connection in one piece (see `headway.web.reply`).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headway import wire
from headway.live.services import Services
from headway.services.queue import Request as Waiting
from headway.services.terms import Answer
from headway.web.bodies import read_body

_BEFORE: Final = f"{wire.SERVICES.path}/"
_AFTER: Final = wire.REQUEST.path.rpartition("}")[2]

_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"

_LARGE: Final = "The service may take larger ones: `headway serve --request-max`."


def service_of(path: str) -> str | None:
    """The service that is asked at this path; None: none is."""
    if path.startswith(_BEFORE) and path.endswith(_AFTER) and len(path) > len(_BEFORE) + len(_AFTER):
        return unquote(path[len(_BEFORE) : -len(_AFTER)])
    return None


def is_known(scope: Scope, tokens: Iterable[bytes]) -> bool:
    """Whether a request carries one of these tokens, written as nearly everybody writes it."""
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    found = [token for token in tokens if hmac.compare_digest(b"Bearer " + token, given)]
    if found and (line := scope.get("line")) is not None:
        line.trusted = True
    return bool(found)


async def answered(services: Services, name: str, scope: Scope, receive: Receive, send: Send) -> Response | None:
    """Have a request answered; None: the answer has been written.

    Raises:
        ClientDisconnect: the caller has gone.
        HeadwayError: see `Broker.ask`.
    """
    queue = services.queue(name)
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    body = await _body(headers, queue.settings.request_max, scope, receive)
    waiting = queue.put(body, headers.get(b"content-type", b"").decode("latin-1"))
    cycle = getattr(send, "__self__", None)
    try:
        if isinstance(cycle, RequestResponseCycle):
            await _watched(waiting, cycle)
        else:
            await _wait(waiting, receive)
    finally:
        if not waiting.answer.done():
            queue.abandon(waiting)
    answer = waiting.answer.result()
    if isinstance(cycle, RequestResponseCycle) and _written(answer, cycle):
        return None
    return Response(answer.body, headers={"content-type": answer.kind})


async def _body(headers: Mapping[bytes, bytes], most: int, scope: Scope, receive: Receive) -> bytes:
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) <= most:
        first = await receive()
        if first["type"] == "http.disconnect":
            raise ClientDisconnect
        if not first.get("more_body"):
            return bytes(first["body"])

        async def again() -> Any:
            nonlocal first
            message, first = first, None  # type: ignore[assignment]
            return message or await receive()

        return await read_body(Request(scope, again), most, _LARGE)
    return await read_body(Request(scope, receive), most, _LARGE)


async def _watched(waiting: Waiting, cycle: RequestResponseCycle) -> None:
    """Wait for the answer, unless the caller goes away."""
    waiting.answer.add_done_callback(lambda _: cycle.message_event.set())  # what its `receive` waits for
    while not waiting.answer.done():
        if (await cycle.receive())["type"] == "http.disconnect":
            raise ClientDisconnect


async def _wait(waiting: Waiting, receive: Receive) -> None:
    """The same under another server than uvicorn's."""
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((waiting.answer, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    if not waiting.answer.done():
        raise ClientDisconnect


def _written(answer: Answer, cycle: RequestResponseCycle) -> bool:
    """Write an answer straight to the connection; returns False where the usual way must be gone."""
    if not cycle.keep_alive or cycle.flow.write_paused or cycle.transport.is_closing():
        return False
    if b"\r" in (kind := answer.kind.encode("latin-1", "replace")) or b"\n" in kind:
        return False
    cycle.transport.write(_HEAD % (kind, len(answer.body), answer.body))
    cycle.response_started = cycle.response_complete = True
    cycle.on_response()
    return True
