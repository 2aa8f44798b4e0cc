"""Requests to services over real connections, on both event loops: taken by the desk, or left to the application."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from headway.access.tokens import Tokens
from headway.live.driver import Driver
from headway.services import frames
from headway.services.broker import Broker
from headway.services.terms import ServiceSettings
from headway.web import line
from headway.web.api import Api
from headway.web.asking import ServiceDesk, ServiceRequest
from headway.web.heads import HEADS_MAX
from headway.web.refusals import Refusals
from headway.web.serving import BoundedServer, listen

from ...waiting import LIMIT, becomes
from ..services.acting import KEY, Actor, Noted, settle, virtual

PATH = b"/v1/services/s/requests"
KNOWN = b"Authorization: Bearer t\r\n"


def request(body: bytes = b"1", path: bytes = PATH, extra: bytes = b"Content-Type: text/plain\r\n") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: h\r\n%b%bContent-Length: %d\r\n\r\n%b" % (path, KNOWN, extra, len(body), body)


class Echo(Actor):
    """An instance that answers each request with its media type and body, unless it is busy.

    Attributes:
        busy: requests are kept.
    """

    busy = False

    def receive(self, data: bytes) -> None:
        before = len(self.requests)
        super().receive(data)
        if not self.busy and len(self.requests) > before:
            self.reply()

    def reply(self) -> None:
        last = self.requests[-1]
        self.answer(f"{last.kind}|".encode() + last.body)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        async with asyncio.timeout(LIMIT):
            first, *rows = (await self.reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rows)}
            return int(first.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def asked(self, text: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(text)
        return await self.answer()

    async def is_over(self) -> bool:
        async with asyncio.timeout(LIMIT):
            return await self.reader.read() == b""


class Rig:
    """A server, its broker with the service `s`, and the instance of that.

    Attributes:
        taken_by: how many requests the desk has taken, by the name of its method.
        refused: how many requests were refused, by the status of the answer.
    """

    def __init__(
        self, broker: Broker, instance: Echo, desk: ServiceDesk, address: tuple[str, int], refused: Counter[str]
    ) -> None:
        self.broker, self.instance, self.desk, self.address = broker, instance, desk, address
        self.refused = refused
        self.taken_by: Counter[str] = Counter()
        self.callers: list[Caller] = []

    @property
    def taken(self) -> int:
        return self.taken_by.total()

    async def caller(self) -> Caller:
        self.callers.append(Caller(*await asyncio.open_connection(*self.address)))
        return self.callers[-1]


def api_of(broker: Broker, refusals: Refusals | None = None) -> Api:
    driver, none = cast(Driver, SimpleNamespace(services=broker)), cast(Any, None)
    return Api(driver, Tokens("t", "me"), none, checker=none, delay=none, refusals=refusals)


@asynccontextmanager
async def serving(with_desk: bool = True, **settings: Any) -> AsyncIterator[Rig]:
    broker, end = Broker(Noted()), asyncio.Event()
    broker.serve("s", KEY, "1", ServiceSettings(**settings))
    instance = await Echo.started(broker)
    refused = Counter[str]()
    api = api_of(broker, Refusals(cast(Any, None), refused, lambda: 0))
    with listen("127.0.0.1", 0) as listener:
        server = BoundedServer(api.app, end, api.desk if with_desk else None)
        task = asyncio.create_task(server.serve([listener]))
        rig = Rig(broker, cast(Echo, instance), api.desk, listener.getsockname()[:2], refused)
        for name in ("take", "take_again"):
            setattr(api.desk, name, _counted(rig, name, getattr(api.desk, name)))
        try:
            yield rig
        finally:
            for caller in rig.callers:
                caller.writer.transport.abort()
            broker.abort()
            end.set()
            await task


def _counted(rig: Rig, name: str, take: Callable[..., ServiceRequest | None]) -> Callable[..., ServiceRequest | None]:
    def counted(*arguments: Any) -> ServiceRequest | None:
        taken = take(*arguments)
        rig.taken_by[name] += taken is not None
        return taken

    return counted


Test = Callable[[Rig], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    async def within(test: Test, **settings: Any) -> None:
        async with serving(**settings) as rig:
            await test(rig)

    def run(test: Test, **settings: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(within(test, **settings))

    return run


CHUNKED = b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % (PATH, KNOWN)


@pytest.mark.parametrize(
    ("text", "status", "said", "is_taken"),
    [
        (request(b"12"), 200, "text/plain|12", True),
        (request(b""), 200, "text/plain|", True),
        (request(b"12", extra=b""), 200, "|12", True),
        (request(b"x" * 100_000), 200, "text/plain|xxx", True),
        (request().replace(b"Bearer t", b"bEARER   t "), 200, "text/plain|1", True),
        (request(path=PATH.replace(b"/s/", b"/%73/")), 200, "text/plain|1", True),
        (CHUNKED, 200, "|abc", False),
        (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 200, "text/plain|1", False),
        (request(extra=b"Connection: close\r\n"), 200, "|1", False),
        (request(extra=b"X: 1\r\nX: 2\r\n"), 200, "|1", False),
        (request(extra=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"), 200, "|", False),
        (request(path=PATH.replace(b"/v1", b"http://h/v1")), 200, "text/plain|1", False),
        (request().replace(b"POST", b"GET"), 405, "Method Not Allowed", False),
        (request(path=PATH + b"?a=1"), 400, "parameter", False),
        (request().replace(b"Bearer t", b"Bearer u"), 401, "not the one of this server", False),
        (request().replace(KNOWN, b""), 401, "no token was sent", False),
        (request(path=PATH.replace(b"/s/", b"/other/")), 404, "there is no service 'other'", False),
        (request(b"x" * 200_001), 413, "more than 200000 bytes", False),
    ],
)
def test_what_is_usual_is_taken_and_everything_is_answered_alike(
    run: Run, text: bytes, status: int, said: str, is_taken: bool
) -> None:
    answers, taken = [], []

    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        answers.append(await caller.asked(text))
        taken.append(rig.taken)

    for with_desk in (True, False):
        run(test, with_desk=with_desk, request_max=200_000)
    (got, headers, body), other = answers
    assert taken == [is_taken, 0]
    assert got == status
    assert said in body.decode()
    assert (got, headers, body) == other


def test_a_head_that_was_taken_is_known_again_wherever_it_comes_from(run: Run) -> None:
    async def test(rig: Rig) -> None:
        first, second = await rig.caller(), await rig.caller()
        for caller in (first, second, first):
            for body in (b"abcd", b"\r\n\r\n", b"x\r\n\r"):
                status, _, got = await caller.asked(request(body))
                assert (status, got) == (200, b"text/plain|" + body)
        assert rig.taken_by == {"take": 1, "take_again": 8}
        # The same head, but not the whole request, or more than it: the parser is asked again.
        head, body = request(b"abcd")[:-4], b"abcd"
        first.writer.write(head + body[:1])
        await asyncio.sleep(0.05)
        assert (await first.asked(body[1:]))[2] == b"text/plain|abcd"
        second.writer.write(head + body + head + b"efgh" + head + b"ijkl")
        assert [(await second.answer())[2][-4:] for _ in range(3)] == [b"abcd", b"efgh", b"ijkl"]
        # One letter less of the token is another head.
        assert (await first.asked(request(b"abcd").replace(b"Bearer t", b"Bearer u")))[0] == 401

    run(test)


def test_heads_are_forgotten_when_there_are_many(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        for number in range(HEADS_MAX + 5):
            assert (await caller.asked(request(extra=b"X: %d\r\n" % number)))[0] == 200
        long = request(extra=b"X: " + b"y" * 2000 + b"\r\n")
        assert [(await caller.asked(long))[0] for _ in range(2)] == [200, 200]
        assert rig.taken == HEADS_MAX + 7
        assert len(rig.desk._heads) == HEADS_MAX

    run(test)


def test_a_head_that_is_known_does_not_outlive_its_service(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        assert (await caller.asked(request()))[0] == 200
        rig.broker.end("s")
        status, _, said = await caller.asked(request())
        assert (status, json.loads(said)["code"]) == (404, "no_such_service")
        rig.broker.serve("s", KEY, "2", ServiceSettings())
        await Echo.started(rig.broker, attempt=2, version="2")
        assert (await caller.asked(request()))[0] == 200

    run(test)


def test_requests_that_were_sent_at_once_are_answered_in_order(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        health = b"POST /health HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
        caller.writer.write(request(b"1") + health + request(b"2") + request(b"3"))
        answers = [await caller.answer() for _ in range(4)]
        assert [status for status, _, _ in answers] == [200, 405, 200, 200]
        assert [body for _, _, body in answers if body.startswith(b"text")] == [b"text/plain|%d" % n for n in (1, 2, 3)]

    run(test)


def test_a_body_may_come_byte_by_byte_but_not_too_slowly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        caller, slow = await rig.caller(), await rig.caller()
        text = request(b"0123456789")
        for place in range(len(text)):
            caller.writer.write(text[place : place + 1])
            await asyncio.sleep(0.001)
        assert (await caller.answer())[2] == b"text/plain|0123456789"
        monkeypatch.setattr(line, "BODY_SECONDS", 0.1)
        status, _, _ = await slow.asked(text[:-1])
        assert status == 408
        assert await slow.is_over()
        assert rig.taken == 2

    run(test)


def test_an_error_does_not_end_the_connection(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rig.instance.busy = True
        worked, waits, refused = [await rig.caller() for _ in range(3)]
        worked.writer.write(request())
        await becomes(lambda: rig.instance.requests)
        waits.writer.write(request())
        await becomes(lambda: len(rig.broker.queue("s")) == 1)
        for _ in range(2):
            status, headers, said = await refused.asked(request())
            assert (status, json.loads(said)["code"]) == (503, "service_full")
            assert int(headers["retry-after"]) >= 1
        rig.instance.busy = False
        rig.instance.reply()
        assert [(await each.answer())[0] for each in (worked, waits)] == [200, 200]
        assert (await refused.asked(request()))[0] == 200

    run(test, queue_max=1)


def test_a_request_that_a_handler_finds_malformed_is_refused_and_counted(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rig.instance.busy = True
        caller = await rig.caller()
        caller.writer.write(request())
        await becomes(lambda: rig.instance.requests)
        rig.instance.send(frames.Failed(rig.instance.requests[-1].number, True, "what is wrong", 0.0))
        assert (await caller.answer())[0] == 400
        assert rig.refused == {"400": 1}

    run(test)


def test_a_request_whose_caller_has_gone_is_dropped(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rig.instance.busy = True
        worked, waits, other = [await rig.caller() for _ in range(3)]
        worked.writer.write(request())
        await becomes(lambda: rig.instance.requests)
        waits.writer.write(request(b"2"))
        await becomes(lambda: len(rig.broker.queue("s")) == 1)
        for caller in (worked, waits):
            caller.writer.transport.abort()
        await becomes(lambda: not len(rig.broker.queue("s")))
        other.writer.write(request(b"3"))
        await becomes(lambda: len(rig.broker.queue("s")) == 1)
        rig.instance.busy = False
        rig.instance.reply()
        assert (await other.answer())[2] == b"text/plain|3"
        assert [each.body for each in rig.instance.requests] == [b"1", b"3"]

    run(test)


def test_a_server_that_ends_says_so_and_closes_the_connection(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rig.instance.busy = True
        caller = await rig.caller()
        caller.writer.write(request())
        await becomes(lambda: rig.instance.requests)
        for connection in [each for each in gc.get_objects() if isinstance(each, line.HttpConnection)]:
            connection.shutdown()
        rig.instance.reply()
        status, headers, _ = await caller.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await caller.is_over()

    run(test)


class Clockwork:
    """A loop that only tells the time and keeps timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> Any:
        timer = (self.now + delay, callback, arguments)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self.timers and self.timers.remove(timer))

    def go_on_to(self, now: float) -> None:
        while self.timers and (due := min(each[0] for each in self.timers)) <= now:
            self.now = due
            [timer] = [each for each in self.timers if each[0] == due]
            self.timers.remove(timer)
            timer[1](*timer[2])
        self.now = now


class Wire(asyncio.Transport):
    """A transport that notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected(desk: ServiceDesk, clockwork: Clockwork) -> tuple[line.HttpConnection, Wire]:
    """A new connection of a caller."""
    config = Config(cast(Any, print), interface="asgi3", loop="none", log_config=None, ws="none", lifespan="off")
    transport, loop = Wire(), cast(asyncio.AbstractEventLoop, clockwork)
    connection = line.HttpConnection(line.ConnectionRoom(1, 1), desk, config, ServerState(), {}, loop)
    connection.connection_made(transport)
    return connection, transport


@virtual
async def test_a_connection_whose_request_was_refused_at_once_may_be_idle_for_as_long_as_others() -> None:
    broker = Broker(Noted())
    broker.serve("s", KEY, "1", ServiceSettings(queue_max=1))
    desk = api_of(broker).desk
    connected(desk, Clockwork())[0].data_received(request(b"1"))
    for body in (b"2", b"of another length, so that the head is parsed"):
        clockwork = Clockwork()
        connection, transport = connected(desk, clockwork)
        connection.data_received(request(body))
        assert [said.split()[1] for said in transport.sent] == [b"503"]
        clockwork.go_on_to(line.IDLE_SECONDS - 1)
        assert not transport.is_closed
        clockwork.go_on_to(line.IDLE_SECONDS)
        assert transport.is_closed


@virtual
async def test_a_connection_is_closed_when_it_was_idle_for_long_and_requests_set_no_timers() -> None:
    broker, clockwork = Broker(Noted()), Clockwork()
    broker.serve("s", KEY, "1", ServiceSettings())
    instance = cast(Echo, await Echo.started(broker))
    connection, transport = connected(api_of(broker).desk, clockwork)
    rest = line.IDLE_SECONDS
    for number in range(5):
        clockwork.go_on_to(0.9 * number * rest)
        for _ in range(10):
            connection.data_received(request())
            await settle()
        assert len(transport.sent) == 10 * number + 10
        assert len(clockwork.timers) == 1
    clockwork.go_on_to(4.59 * rest)
    assert not transport.is_closed
    instance.busy = True
    connection.data_received(request())
    await settle()
    clockwork.go_on_to(9 * rest)  # a request is under way
    assert not transport.is_closed
    assert clockwork.timers == []
    instance.reply()
    await settle()
    clockwork.go_on_to(10 * rest - 1)
    assert not transport.is_closed
    clockwork.go_on_to(10 * rest)
    assert transport.is_closed
    assert clockwork.timers == []


def test_a_connection_that_has_ended_goes_without_the_collector(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = weakref.WeakSet[line.HttpConnection]()
    made = line.HttpConnection.connection_made

    def noted(self: line.HttpConnection, transport: asyncio.Transport) -> None:
        lines.add(self)
        made(self, transport)

    monkeypatch.setattr(line.HttpConnection, "connection_made", noted)

    async def test(rig: Rig) -> None:
        gc.disable()
        try:
            idle, waits, halfway = [await rig.caller() for _ in range(3)]
            assert [(await idle.asked(request()))[0] for _ in range(3)] == [200] * 3
            halfway.writer.write(request(b"1234")[:-2])
            rig.instance.busy = True
            waits.writer.write(request())
            await becomes(lambda: rig.taken == 5)
            assert len(lines) == 3
            for caller in rig.callers:
                caller.writer.transport.abort()
            rig.instance.busy = False
            await becomes(lambda: len(rig.instance.requests) == 4)
            rig.instance.reply()
            await becomes(lambda: not len(lines))
        finally:
            gc.enable()

    run(test)
