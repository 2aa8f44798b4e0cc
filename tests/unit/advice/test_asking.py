"""Questions over HTTP to servers that give wrong answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.advice.asking import DECIDER_TOKEN, Asking, address_of, ask
from headway.advice.posting import DECIDER_ANSWER_MAX, Endpoint
from headway.core.record import JobRecord, NodeRecord, StateRecord
from headway.errors import InvalidInput, NoAdvice
from headway.model.plan import AllocationRecord, PlanRecord, Promise, Reason, Waiting
from headway.testing import job, node

from ...waiting import LIMIT

SNAPSHOT = StateRecord(5, (NodeRecord(node("a", slots=2)),), (JobRecord(job(1)),), policy="easy")

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def with_server(talk: Talk, *, query: str = "", own: bool = False) -> PlanRecord:
    """Ask a server that does this with each connection, the operator's `own` or another. It must end within a limit."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
            await writer.drain()
        except ConnectionError:
            pass  # it may hang up first
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(LIMIT):
            operators = f"http://127.0.0.1:{port if own else 1}/deep"
            return await Asking(operators)(f"http://127.0.0.1:{port}/deep/{query}", SNAPSHOT)


def saying(*parts: bytes) -> Talk:
    """A server that reads the question, sends this, and hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        for part in parts:
            writer.write(part)
            await writer.drain()

    return talk


def whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


PLAN = json.dumps(
    {
        "allocations": [{"job": 1, "slots": [1, 0]}, {"job": 1, "task": 2, "slots": [0], "claim": "kill"}],
        "promises": [{"job": 2, "start": 9, "slots": 1}],
        "waiting": [{"job": 2, "reason": "NO_SHARE"}],
        "wake": 77,
        "now": 5,
        "more": {"than": "we know"},
    }
).encode()


@pytest.mark.parametrize(
    "parts",
    [
        [whole(PLAN)],
        [bytes([byte]) for byte in whole(PLAN)],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PLAN), PLAN, b"\r\n0\r\n\r\n"],
        [b"HTTP/1.0 200 OK\r\n\r\n", PLAN],
    ],
    ids=["at once", "in bytes", "in chunks", "until it hangs up"],
)
def test_a_plan_comes_however_it_is_sent(parts: list[bytes]) -> None:
    assert asyncio.run(with_server(saying(*parts))) == PlanRecord(
        (AllocationRecord(1, (1, 0)), AllocationRecord(1, (0,), 2, "kill")),
        (Promise(2, 9, 1),),
        (Waiting(2, Reason.NO_SHARE),),
        77,
    )


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([b""], "breaks off"),
        ([whole(PLAN)[:-5]], "breaks off"),
        ([b"HTTP/1.1 200 OK\r\nContent-Le"], "breaks off"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"], "breaks off"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "no HTTP"),
        ([whole(b"all of them", b"500 Oh")], "status 500: 'all of them'"),
        ([whole(b'{"error": "no such policy", "hint": "easy?"}', b"400 Bad")], "status 400: no such policy easy?"),
        ([b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"], "status 302"),
        ([b"HTTP/1.1 204 No\r\n\r\n"], "status 204"),
        ([whole(b"start them all")], "is no plan: JSON is malformed"),
        ([whole(b"")], "is no plan: Input data was truncated"),
        ([whole(b"[]")], "is no plan: Expected `object`"),
        ([whole(b"{" * 100_000)], "is no plan"),
        ([whole(b'{"allocations": [{"job": 1}]}')], "missing required field `slots` - at `$.allocations[0]`"),
        ([whole(b'{"allocations": [{"job": "1", "slots": []}]}')], "Expected `int`, got `str`"),
        ([whole(b'{"allocations": [{"job": 1, "slots": [0.5]}]}')], "Expected `int`, got `float`"),
        ([whole(b'{"allocations": [{"job": 1, "slots": [-1]}]}')], ">= 0"),
        ([whole(b'{"allocations": [{"job": 1, "slots": [2]}]}')], "allocations[0].slots holds 2; allowed: 0 to 1"),
        ([whole(b'{"allocations": [{"job": 1, "slots": [999999999999]}]}')], "holds 999999999999; allowed: 0 to 1"),
        ([whole(b'{"allocations": [{"job": 1, "slots": [1e99]}]}')], "is no plan"),
        ([whole(b'{"allocations": [{"job": 1, "slots": [], "claim": "please"}]}')], "Invalid enum value 'please'"),
        (
            [whole(b'{"allocations": [{"job": 1, "slots": [0], "tier": "middle"}]}')],
            "Invalid enum value 'middle' - at `$.allocations[0].tier`; allowed: foreground, background",
        ),
        ([whole(b'{"allocations": [{"job": 1, "slots": [0], "tier": 2}]}')], "at `$.allocations[0].tier`"),
        ([whole(b'{"allocations": [{"job": 99999999999999999999999, "slots": []}]}')], "is no plan"),
        ([whole(b'{"promises": [{"job": 1, "slots": 1, "start": NaN}]}')], "JSON is malformed"),
        ([whole(b'{"promises": [{"job": 1, "slots": 1, "start": 1e30}]}')], "is no plan"),
        ([whole(b'{"wake": 9223372036854775807}')], "is no plan"),
        ([whole(b'{"wake": -99999999999999999999999999999999999}')], "is no plan"),
        ([whole(b'{"now": 4}')], "its answer is about the instant 4, the question was about 5"),
        ([whole(b'{"waiting": [{"job": 1, "reason": "lazy"}]}')], "Invalid enum value 'lazy'"),
    ],
)
def test_anything_else_is_no_advice(parts: list[bytes], said: str) -> None:
    with pytest.raises(NoAdvice) as refused:
        asyncio.run(with_server(saying(*parts)))
    assert said in str(refused.value)


@pytest.mark.parametrize("head", [b"Content-Length: 99999999999\r\n\r\n", b"\r\n", b"X: "])
def test_an_answer_without_end_is_not_waited_for(head: bytes) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head)
        for _ in range(2 * DECIDER_ANSWER_MAX >> 20):
            writer.write(b"x" * (1 << 20))
            await writer.drain()

    with pytest.raises(NoAdvice, match=f"more than {DECIDER_ANSWER_MAX} bytes|no HTTP"):
        asyncio.run(with_server(flood))


def test_a_connection_that_hangs_can_be_given_up() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung.set()
        await reader.read(-1)  # returns when the other side hangs up

    hung = asyncio.Event()

    async def scenario() -> None:
        asking = asyncio.create_task(with_server(hang))
        await hung.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(scenario())


def test_nobody_there() -> None:
    with pytest.raises(NoAdvice, match="it does not answer"):
        asyncio.run(ask("http://127.0.0.1:1", SNAPSHOT))
    with pytest.raises(NoAdvice, match="it does not answer"):
        asyncio.run(ask("http://no-such-host.invalid", SNAPSHOT))


def test_the_question_as_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []
    bodies: list[Any] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        length = int(heads[-1].lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(whole(b"{}"))

    asyncio.run(with_server(listen))
    assert heads[0].startswith(b"POST /deep/v1/plan HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Authorization" not in heads[0]
    assert bodies[0]["policy"] == "easy"
    assert bodies[0]["snapshot"]["nodes"] == [{"spec": {"name": "a", "slots": 2}}]
    monkeypatch.setenv(DECIDER_TOKEN, "s3cret")
    asyncio.run(with_server(listen, own=True, query="?policy=priority:reserve=0.5,spare=due"))
    assert b"Authorization: Bearer s3cret\r\n" in heads[1]
    assert bodies[1]["policy"] == "priority:reserve=0.5,spare=due"


def test_the_token_goes_to_the_operators_decider_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to one that was chosen over HTTP, nor to the target of a redirection."""
    heads: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(whole(b"{}", b"302 Found\r\nLocation: http://127.0.0.1:1/v1/plan"))

    monkeypatch.setenv(DECIDER_TOKEN, "s3cret")
    for own in (True, False):
        with pytest.raises(NoAdvice, match="status 302"):
            asyncio.run(with_server(listen, own=own))
    assert [b"s3cret" in head for head in heads] == [True, False]
    for other in ("http://there:1", "https://here:1", "http://here:2", "http://here:1/x"):
        asked: list[str] = []

        async def note(*_: object, token: str, asked: list[str] = asked, **__: object) -> None:
            asked.append(token)

        monkeypatch.setattr("headway.advice.asking.ask", note)
        for url in (other, "http://here:1/?policy=easy"):
            asyncio.run(Asking("http://here:1")(url, SNAPSHOT))
        assert asked == ["", "s3cret"]


@pytest.mark.parametrize(
    "url",
    [
        *("", "here", "here:80", "ftp://here", "http://", "http://:80", "http://here:port", "http://here:99999"),
        *("http://user:word@here", "http://here?policy", "http://here?x=1", "http://here#x", "http://h ere"),
        *("http://here/\r\nX-Y: z", "http://[::1", "http://hére"),
    ],
)
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(InvalidInput, match="decider is"):
        address_of(url)


def test_urls_taken_apart() -> None:
    plain = address_of("https://there/")
    assert (plain.place, plain.policy) == (Endpoint(True, "there", 443, "/v1/plan", ""), "")
    six = address_of("http://[::1]:81/x?policy=easy")
    assert (six.place, six.policy) == (Endpoint(False, "::1", 81, "/x/v1/plan", ""), "easy")
