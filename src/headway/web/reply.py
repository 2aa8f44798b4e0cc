"""An answer that is sent the moment it is known, head and body in one piece.

An ASGI server is given an answer in parts by the task of its request, and writes each part to the socket by itself.
When the messages of thousands of callers come at once, the last of them waits for all that. So here the bytes go
straight to uvicorn's transport; the task of the request, woken by it, only tidies up. Unusual cases go the usual way: a
caller that does not read, one that wants its connection closed, another server than uvicorn's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headway.live.store.messages import MessageRow

Encode = Callable[[list[MessageRow], int], bytes]

_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"


class Reply:
    """The way back to a caller that waits for messages; the `Caller` of a listener.

    Args:
        kind: the type of the body.
        encode: makes the body.
        scope, receive, send: those of the request.
    """

    __slots__ = ("_body", "_closed", "_cycle", "_encode", "_kind", "_request", "_sending", "_whole")

    def __init__(self, kind: str, encode: Encode, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        self._cycle = cycle if isinstance(cycle, RequestResponseCycle) else None
        self._request = (scope, receive, send)
        self._kind = kind
        self._encode = encode
        self._body: bytes | None = None
        self._whole: bytes | None = None
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    def make(self, messages: list[MessageRow], cursor: int) -> None:
        """Make the answer: head and body."""
        self._body, cycle = self._encode(messages, cursor), self._cycle
        if cycle is not None and cycle.keep_alive and not cycle.flow.write_paused and not cycle.transport.is_closing():
            self._whole = _ANSWER % (self._kind.encode(), len(self._body), self._body)

    def send(self) -> None:
        """Send it, or let the task of the request send it."""
        if self._whole is not None and self._cycle is not None:
            self._cycle.transport.write(self._whole)
        elif self._body is not None:
            self._sending = asyncio.create_task(self._send_parts(self._body))

    def close(self) -> None:
        """Let the task of the request continue."""
        self._closed = True
        if self._cycle is not None:
            self._cycle.message_event.set()  # what its `receive` waits for

    async def _send_parts(self, body: bytes) -> None:
        await Response(body, media_type=self._kind)(*self._request)

    async def over(self) -> None:
        """Wait until the answer is sent, or the caller has gone away."""
        _, receive, _ = self._request
        while not self._closed and (await receive())["type"] != "http.disconnect":
            pass
        if self._sending is not None:
            await self._sending
        elif self._whole is not None and self._cycle is not None:
            self._cycle.response_started = self._cycle.response_complete = True
            if not self._cycle.keep_alive:  # the server has begun to end
                self._cycle.transport.close()
            self._cycle.on_response()
