"""Requests of another epoch are refused before anything is done. Others are answered with the epoch."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from headway import wire
from headway.web.epochs import Epochs

OURS, THEIRS = "a" * 32, "b" * 32


def asked(path: str, **headers: str) -> tuple[int, list[Message], dict[str, str], bytes]:
    """How often the application was called, and the answer."""
    seen: list[str] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
        await send({"type": "http.response.body", "body": b"done"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": "POST", "headers": given}
    asyncio.run(Epochs(app, OURS)(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return len(seen), sent, found, sent[1]["body"]


@pytest.mark.parametrize("headers", [{}, {"headway_epoch": OURS}])
def test_a_request_of_this_epoch_or_of_none_is_answered(headers: dict[str, str]) -> None:
    times, sent, found, body = asked("/v1/jobs", **headers)
    assert (times, sent[0]["status"], body) == (1, 200, b"done")
    assert found == {"x": "y", "headway-epoch": OURS}


@pytest.mark.parametrize("path", ["/v1/jobs", wire.MESSAGES.path])
def test_a_request_of_another_epoch_is_refused_and_not_seen(path: str) -> None:
    times, sent, found, body = asked(path, headway_epoch=THEIRS, accept=wire.MSGPACK)
    assert (times, sent[0]["status"], found["headway-epoch"]) == (0, 409, OURS)
    said = msgspec.msgpack.decode(body, type=wire.ErrorBody)
    assert "is not the one that this client knows" in said.error
    assert said.hint
    assert msgspec.json.decode(asked(path, headway_epoch=THEIRS)[3], type=wire.ErrorBody) == said


def test_answers_with_messages_are_left_alone() -> None:
    assert asked(wire.MESSAGES.path, headway_epoch=OURS)[2] == {"x": "y"}
