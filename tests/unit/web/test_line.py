"""What one connection may do to others: on both event loops, with and without TLS, with shortened time limits."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvloop
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway import wire
from headway.access.tokens import Known
from headway.certificates import Secure, given, trusting
from headway.errors import HeadwayError
from headway.web import line
from headway.web.bodies import owner_of_token
from headway.web.line import CHUNK_LEAST, CHUNKS_FREE, HEAD_MAX, HEADERS_MAX, PIPELINE_MAX, URL_MAX, HttpConnection
from headway.web.secure import SecureConnection
from headway.web.serving import BoundedServer, listen

from ...certified import pair
from ...waiting import LIMIT, becomes

TOKEN = Known({b"t": "somebody"})
KNOWN = b"Authorization: Bearer t\r\n"


class App:
    """Answers `/` at once, `/body` when the body is complete and the token right, and `/wait` when the test says so."""

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.gone = 0
        self.waiting = 0
        self.reading = 0
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = Response("well")
        try:
            if scope["path"] not in ("/", wire.HEALTH.path):
                owner_of_token(request, TOKEN, "here")
            if scope["path"] == "/body":
                self.reading += 1
                self.bodies.append(len(await request.body()))
            elif scope["path"] == "/wait":
                self.waiting += 1
                await self.go.wait()
            elif scope["path"] == "/refuse":
                answer = Response("too large", 413)
            elif scope["path"] == "/large":
                answer = Response(bytes(64 << 20))
        except HeadwayError:
            answer = Response("no token", 401)
        except ClientDisconnect:
            self.gone += 1
        await answer(scope, receive, send)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, text: bytes) -> None:
        self.writer.write(text)

    async def answer(self) -> tuple[int, str]:
        """Status and body of the next answer."""
        async with asyncio.timeout(LIMIT):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            [size] = [int(row.split(": ")[1]) for row in head.splitlines() if row.startswith("content-length: ")]
            return int(head.split()[1]), (await self.reader.readexactly(size)).decode()

    async def is_over(self) -> bool:
        """Whether the connection ends, without another byte."""
        try:
            async with asyncio.timeout(LIMIT):
                return await self.reader.read() == b""
        except ConnectionError:
            return True


class Rig:
    """A server and its callers."""

    def __init__(self, port: int, app: App, trusting: ssl.SSLContext | None = None) -> None:
        self.app = app
        self.port = port
        self._tls = {} if trusting is None else {"ssl": trusting, "server_hostname": "here"}
        self._callers: list[Caller] = []

    async def caller(self) -> Caller:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port, **self._tls))
        self._callers.append(caller)
        return caller

    async def until(self, holds: Callable[[], bool]) -> None:
        await becomes(holds)

    def hang_up(self) -> None:
        for caller in self._callers:
            caller.writer.transport.abort()


@asynccontextmanager
async def serving(tls: Secure | None = None) -> AsyncIterator[Rig]:
    end, app = asyncio.Event(), App()
    context, trusted = (None, None) if tls is None else (tls.context, trusting(tls.certificate, "test"))
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(BoundedServer(app, end, tls=context).serve([listener]))
        rig = Rig(listener.getsockname()[1], app, trusted)
        try:
            yield rig
        finally:
            rig.hang_up()
            app.go.set()
            end.set()
            await task


async def flood(caller: Caller, text: bytes, times: int) -> None:
    for _ in range(times):
        caller.send(text)
        await caller.writer.drain()
        if caller.writer.is_closing():  # with TLS, asyncio's streams may not say so
            raise ConnectionResetError


Test = Callable[[Rig], Awaitable[None]]


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Secure:
    """A certificate of `here`, with its key."""
    return given(*pair(tmp_path_factory.mktemp("pair"), "here"))


@pytest.fixture(params=[(loop, scheme) for scheme in ("http", "https") for loop in LOOPS], ids="-".join)
def run(request: pytest.FixtureRequest, secure: Secure) -> Callable[[Test], None]:
    loop, scheme = request.param

    async def within(test: Test) -> None:
        async with serving(secure if scheme == "https" else None) as rig:
            await test(rig)

    def run(test: Test) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(within(test))

    return run


Run = Callable[[Test], None]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /" + b"x" * URL_MAX + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /" + b"x" * (1 << 20), 414),
        (b"GET / HTTP/1.1\r\nHost: " + b"x" * HEAD_MAX + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: " + b"x" * (1 << 20), 431),
        (b"GET / HTTP/1.1\r\n" + b"a" * (1 << 20), 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431),
        (b"\r\n" * (1 << 19), 431),
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT x:80 HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        (b"POST /body HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400),
        (b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + KNOWN + b"\r\nffffffffffffffffff\r\n", 400),
        (b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + KNOWN + b"\r\n1;" + b"x" * (1 << 20), 400),
        (b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + KNOWN + b"\r\n0\r\nA: " + b"x" * (1 << 20), 400),
    ],
)
def test_what_is_too_long_or_no_request_is_answered_and_the_connection_ends(run: Run, text: bytes, status: int) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        caller.send(text)
        got, said = await caller.answer()
        assert got == status
        assert json.loads(said)["error"]
        assert await caller.is_over()
        assert rig.app.bodies == []

    run(test)


@pytest.mark.parametrize("text", [b"", b"GET /a", b"GET / HTTP/1.1\r\nHost", b"\r\n"])
def test_a_head_has_a_deadline(run: Run, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        other = await rig.caller()
        other.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await other.answer() == (200, "well")
        monkeypatch.setattr(line, "HEAD_SECONDS", 0.2)
        caller = await rig.caller()

        async def drip() -> None:
            while not caller.writer.is_closing():
                caller.send(text[-1:])  # each byte in time, the whole request never
                await asyncio.sleep(0.02)

        caller.send(text)
        task = asyncio.create_task(drip())
        if text:
            assert (await caller.answer())[0] == 408
        assert await caller.is_over()
        task.cancel()
        other.send(b"GET / HTTP/1.1\r\n\r\n")  # a caller that has sent its head may be idle for longer
        assert await other.answer() == (200, "well")

    run(test)


@pytest.mark.parametrize("is_read_late", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_that_is_here_in_time_is_answered_however_late_the_loop_is(
    loop: str, is_read_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One turn of the loop takes longer than the caller has, and in that turn the connection may not be read yet."""
    made = HttpConnection.connection_made

    def held_up(connection: HttpConnection, transport: asyncio.Transport) -> None:
        made(connection, transport)
        if is_read_late:
            transport.pause_reading()
            connection.loop.call_soon(hold_up)
            connection.loop.call_soon(connection.loop.call_soon, transport.resume_reading)
        else:
            hold_up()

    def hold_up() -> None:
        time.sleep(5 * line.HEAD_SECONDS)

    async def test() -> None:
        async with serving() as rig:
            with socket.create_connection(("127.0.0.1", rig.port)) as here:
                here.sendall(b"GET / HTTP/1.1\r\n\r\n")
                caller = Caller(*await asyncio.open_connection(sock=here))
                assert await caller.answer() == (200, "well")
                caller.writer.transport.abort()

    monkeypatch.setattr(line, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(HttpConnection, "connection_made", held_up)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(test())


@pytest.mark.thorough
@pytest.mark.long
def test_a_body_that_stops_arriving_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "BODY_SECONDS", 2.0)

    async def test(rig: Rig) -> None:
        slow, steady = await rig.caller(), await rig.caller()
        head = b"POST /body HTTP/1.1\r\n" + KNOWN + b"Content-Length: 200000\r\n\r\n"
        slow.send(head + b"x" * 20)
        steady.send(head)
        for _ in range(10):
            steady.send(b"x" * 20_000)
            await asyncio.sleep(0.25)
        assert await steady.answer() == (200, "well")
        assert (await slow.answer())[0] == 408
        assert await slow.is_over()
        await rig.until(lambda: rig.app.gone == 1)
        assert rig.app.bodies == [200_000]

    run(test)


def test_bodies_of_callers_without_a_token_are_not_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes before the body. What still comes is discarded, up to a bound and for a limited time."""
    monkeypatch.setattr(line, "LINGER_STRANGER_MAX", 1 << 20)
    monkeypatch.setattr(line, "LINGER_SECONDS", 0.5)

    async def test(rig: Rig) -> None:
        short, endless, silent = [await rig.caller() for _ in range(3)]
        short.send(b"POST /body HTTP/1.1\r\nContent-Length: 600000\r\n\r\n" + b"x" * 600_000)
        assert (await short.answer())[0] == 401
        assert await short.is_over()
        endless.send(b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await endless.answer())[0] == 401
        with pytest.raises(ConnectionError):
            await flood(endless, b"10000\r\n" + b"x" * 65_536 + b"\r\n", 10_000)
        silent.send(b"POST /body HTTP/1.1\r\nContent-Length: 600000\r\n\r\n")
        assert (await silent.answer())[0] == 401
        assert await silent.is_over()
        assert rig.app.bodies == []

    run(test)


def test_the_rest_of_a_body_that_is_too_large_is_read_past_for_a_known_caller(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        caller.send(b"POST /refuse HTTP/1.1\r\n" + KNOWN + b"Content-Length: 600000\r\n\r\n")
        assert (await caller.answer())[0] == 413
        caller.send(b"x" * 600_000 + b"GET / HTTP/1.1\r\n\r\n")
        assert (await caller.answer())[0] == 200

    run(test)


def test_who_asks_whether_a_body_is_wanted_is_told_no_and_the_connection_ends(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        caller.send(b"POST /body HTTP/1.1\r\nContent-Length: 600000\r\nExpect: 100-continue\r\n\r\n")
        assert (await caller.answer())[0] == 401
        assert await caller.is_over()

    run(test)


def test_trailers_and_extensions_change_nothing(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        head = b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + KNOWN + b"\r\n"
        caller.send(head + b"3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nAuthorization: Bearer wrong\r\n\r\n")
        assert await caller.answer() == (200, "well")
        caller.send(head + b"1\r\nx\r\n" * CHUNKS_FREE + b"0\r\n\r\n")
        assert await caller.answer() == (200, "well")
        assert rig.app.bodies == [4, CHUNKS_FREE]

    run(test)


def test_a_body_of_many_tiny_chunks_is_refused_however_it_begins(run: Run) -> None:
    async def test(rig: Rig) -> None:
        head = b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + KNOWN + b"\r\n"
        large = b"%x\r\n" % CHUNK_LEAST + b"x" * CHUNK_LEAST + b"\r\n"
        caller = await rig.caller()
        caller.send(head + large * 10_000 + b"0\r\n\r\n")
        assert await caller.answer() == (200, "well")
        caller.send(head + large * 10_000 + b"1\r\nx\r\n" * 100_000)
        status, said = await caller.answer()
        assert status == 400
        assert "chunks" in json.loads(said)["error"]
        assert rig.app.bodies == [10_000 * CHUNK_LEAST]

    run(test)


def test_a_pipeline_has_a_bound(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller, other = await rig.caller(), await rig.caller()
        ask = b"GET /wait HTTP/1.1\r\n" + KNOWN + b"\r\n"
        caller.send(ask * PIPELINE_MAX)
        await rig.until(lambda: rig.app.waiting == 1)
        other.send(ask * 10_000)
        await rig.until(lambda: rig.app.waiting == 2)
        rig.app.go.set()
        assert [await caller.answer() for _ in range(PIPELINE_MAX)] == [(200, "well")] * PIPELINE_MAX
        assert await other.answer() == (200, "well")
        assert await other.is_over()
        assert rig.app.waiting == PIPELINE_MAX + 1

    run(test)


def test_all_requests_of_a_pipeline_learn_that_the_caller_is_gone(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        caller.send(b"POST /body HTTP/1.1\r\n" + KNOWN + b"Content-Length: 9\r\n\r\n123")
        await rig.until(lambda: rig.app.reading == 1)
        caller.writer.transport.abort()
        await rig.until(lambda: rig.app.gone == 1)

    run(test)


def test_an_upgrade_is_passed_over(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        caller.send(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nwhatever")
        assert await caller.answer() == (200, "well")
        assert await caller.is_over()

    run(test)


@pytest.mark.thorough
@pytest.mark.long
def test_one_who_reads_nothing_of_an_answer_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "READ_ANSWER_SECONDS", 2.0)

    async def test(rig: Rig) -> None:
        deaf, slow = await rig.caller(), await rig.caller()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for caller in (deaf, slow):
            caller.send(b"GET /large HTTP/1.1\r\n" + KNOWN + b"\r\n")
        size = 0
        await slow.reader.readuntil(b"\r\n\r\n")
        while size < 64 << 20:
            size += (read := len(await slow.reader.read(1 << 20)))
            assert read, "it was given up, although it reads"
            await asyncio.sleep(3.0 * read / (64 << 20))  # longer in all than an answer may stand still
        await asyncio.sleep(2.5)
        deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(LIMIT):
                await deaf.reader.readexactly(64 << 20)

    run(test)


@pytest.mark.thorough
@pytest.mark.long
def test_one_who_reads_is_not_given_up_because_the_server_stood_still(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "READ_ANSWER_SECONDS", 3.0)

    async def test(rig: Rig) -> None:
        caller, size = await rig.caller(), 0
        caller.send(b"GET /large HTTP/1.1\r\n" + KNOWN + b"\r\n")
        await caller.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.2)  # all that there is room for on the way is on the way, also if this takes 3 s
        time.sleep(3.2)  # and nothing more can be sent before the next look
        while size < 64 << 20:
            size += (read := len(await caller.reader.read(1 << 20)))
            assert read, "it was given up, although it reads"

    run(test)


def test_idle_callers_make_place_unknown_ones_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(desk: object, refused: object, tls: ssl.SSLContext | None) -> Any:
        room = line.ConnectionRoom(4, 9)
        return partial(HttpConnection, room, None) if tls is None else partial(SecureConnection, room, None, tls)

    monkeypatch.setattr("headway.web.serving._lines", lines)

    async def test(rig: Rig) -> None:
        ask, known = b"GET / HTTP/1.1\r\n\r\n", b"GET /known HTTP/1.1\r\n" + KNOWN + b"\r\n"
        wait = b"GET /wait HTTP/1.1\r\n" + KNOWN + b"\r\n"

        async def asked(caller: Caller, text: bytes) -> Caller:
            caller.send(text)
            assert (await caller.answer())[0] == 200
            return caller

        busy = await rig.caller()
        busy.send(wait)
        await rig.until(lambda: rig.app.waiting == 1)
        older = await asked(await rig.caller(), known)
        newer = await asked(await rig.caller(), known)
        stranger = await asked(await rig.caller(), ask)
        # The server is full: unknown callers are closed first, then those idle for longest, but never those that wait.
        fifth = await asked(await rig.caller(), known)
        assert await stranger.is_over()
        await asked(older, known)
        sixth = await asked(await rig.caller(), known)
        assert await newer.is_over()
        for number, caller in enumerate((older, fifth, sixth), 2):
            caller.send(wait)
            await rig.until(lambda number=number: rig.app.waiting == number)
        # No caller is idle: a new caller gets an error, but the answer of /health is still true.
        for _ in range(line.BEYOND_MAX + 5):
            last = await rig.caller()
        last.send(b"GET / HTTP/1.1\r\n\r\n")
        status, said = await last.answer()
        assert (status, json.loads(said)["error"]) == (
            503,
            "4 callers are connected, as many as may be with 9 open files",
        )
        assert await last.is_over()
        health = await rig.caller()
        health.send(b"GET /health HTTP/1.1\r\n\r\n")
        assert await health.answer() == (200, "well")
        assert await health.is_over()
        rig.app.go.set()
        for caller in (busy, older, fifth, sixth):
            assert (await caller.answer())[0] == 200

    run(test)


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
            for _ in range(5):
                caller = await rig.caller()
                for _ in range(3):
                    caller.send(b"GET /body HTTP/1.1\r\nHost: h\r\n" + KNOWN + b"\r\n")
                    assert (await caller.answer())[0] == 200
            assert len(lines) == 5
            rig.hang_up()
            await rig.until(lambda: not len(lines))
        finally:
            gc.enable()

    run(test)
