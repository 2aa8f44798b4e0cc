"""An answer that is sent the moment it is known, head and body in one piece.

An ASGI server is given an answer in parts by the task of its request, and writes each part to the socket by itself.
Where thousands wait whose messages come all at once, the last of them waits for all that. So here the bytes go straight
to uvicorn's transport; the task of the request, woken by it, only tidies up. What is unusual goes the usual way: a
caller who does not read, one who wants his connection closed, another server than uvicorn's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"


class Reply:
    """The way back to somebody who asked.

    Args:
        kind: the type of the body, as the head of the answer has it.
        scope, receive, send: those of the request.
    """

    __slots__ = ("_body", "_cycle", "_kind", "_request", "_sending", "_sent")

    def __init__(self, kind: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        self._cycle = cycle if isinstance(cycle, RequestResponseCycle) else None
        self._request = (scope, receive, send)
        self._kind = kind
        self._body = b""
        self._sent = False
        self._sending: asyncio.Task[None] | None = None

    def made(self, body: bytes) -> Callable[[], None]:
        """What sends this answer; to be called once, it does not wait."""
        self._body = body
        return self._send

    def _send(self) -> None:
        cycle = self._cycle
        if cycle is None or not cycle.keep_alive or cycle.flow.write_paused or cycle.transport.is_closing():
            self._sending = asyncio.create_task(self._send_parts())
            return
        cycle.transport.write(_ANSWER % (self._kind, len(self._body), self._body))
        self._sent = True
        cycle.message_event.set()  # what `receive` waits for

    async def _send_parts(self) -> None:
        await Response(self._body, headers={"Content-Type": self._kind.decode()})(*self._request)

    async def over(self) -> None:
        """Wait until the answer is sent, or whoever asked has gone away."""
        _, receive, _ = self._request
        while not self._sent and self._sending is None and (await receive())["type"] != "http.disconnect":
            pass
        if self._sending is not None:
            await self._sending
        elif self._sent and self._cycle is not None:
            self._cycle.response_started = self._cycle.response_complete = True
            if not self._cycle.keep_alive:  # the server has begun to end
                self._cycle.transport.close()
            self._cycle.on_response()
