"""Requests of another epoch are refused: their jobs and numbers are not those of this journal.

A journal that was restored from a backup, or has lost its end, takes another course than older clients remember: the
next job may have the number of one of theirs. So a client says with each request which epoch it knows, see
`headway.wire.epoch`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway import wire
from headway.web.asking import service_of
from headway.web.bodies import NoteUnread, in_form, noted_nowhere, peer_of
from headway.wire.epoch import EPOCH, OTHER, START_AGAIN

_WHY: Final = f"the server's journal {OTHER}"


class Epochs:
    """An ASGI application before another one.

    Args:
        app: answers requests of this epoch, and those that name none.
        epoch: of the journal.
        refused: notes a refusal: its status, why, and the caller's address.
    """

    def __init__(self, app: ASGIApp, epoch: str, refused: NoteUnread = noted_nowhere) -> None:
        self._app = app
        self._refused = refused
        self._epoch = epoch
        self._header = (EPOCH.lower().encode(), epoch.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if service_of(scope["path"]) is not None:  # it names no number of the journal
            await self._app(scope, receive, send)
            return

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), self._header]}
            await send(message)

        headers = Headers(scope=scope)
        if headers.get(EPOCH, self._epoch) != self._epoch:
            self._refused(HTTPStatus.CONFLICT, _WHY, peer_of(scope))
            await self._refusal(packed=wire.MSGPACK in headers.get("accept", ""))(scope, receive, say)
        elif scope["path"] == wire.MESSAGES.path:
            await self._app(scope, receive, send)  # whose answers are written straight to the connection
        else:
            await self._app(scope, receive, say)

    def _refusal(self, *, packed: bool) -> Response:
        body, form = in_form(wire.ErrorBody(_WHY, START_AGAIN), packed=packed)
        return Response(body, HTTPStatus.CONFLICT, media_type=form)
