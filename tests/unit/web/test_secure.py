"""The TLS of a connection: its handshake is bounded as everything else is, on both event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.certificates import given, trusting
from headway.web import line, secure, serving
from headway.web.secure import HANDSHAKE_MAX
from headway.web.serving import BoundedServer, listen

from ...certified import pair
from ...waiting import LIMIT

ASK = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    await Response(f"{scope['scheme']} {len(body)}")(scope, receive, send)


class Rig:
    """A server that speaks HTTPS."""

    def __init__(self, server: BoundedServer, port: int, certificate: str, end: asyncio.Event) -> None:
        self.server, self.port, self.end = server, port, end
        self.trusting = trusting(certificate, "test")
        self.writers: list[asyncio.StreamWriter] = []

    async def opened(self, *, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        found = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.trusting if tls else None, server_hostname="here" if tls else None
        )
        self.writers.append(found[1])
        return found

    async def answer(self, reader: asyncio.StreamReader) -> tuple[int, str]:
        async with asyncio.timeout(LIMIT):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            [size] = [int(row.split(": ")[1]) for row in head.splitlines() if row.startswith("content-length: ")]
            return int(head.split()[1]), (await reader.readexactly(size)).decode()

    async def is_over(self, reader: asyncio.StreamReader) -> bool:
        """Whether the connection ends; what came before that, such as an alert, does not matter."""
        try:
            async with asyncio.timeout(LIMIT):
                await reader.read()
        except (ConnectionError, ssl.SSLError):
            pass
        return True


Test = Callable[[Rig], Awaitable[None]]
Run = Callable[[Test], None]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Rig]:
    end = asyncio.Event()
    made = given(*pair(folder, "here"))
    with listen("127.0.0.1", 0) as listener:
        server = BoundedServer(app, end, tls=made.context)
        task = asyncio.create_task(server.serve([listener]))
        rig = Rig(server, listener.getsockname()[1], made.certificate, end)
        try:
            yield rig
        finally:
            for writer in rig.writers:
                writer.transport.abort()
            end.set()
            async with asyncio.timeout(LIMIT):
                await task


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    async def within(test: Test) -> None:
        async with served(tmp_path) as rig:
            await test(rig)

    def run(test: Test) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(within(test))

    return run


def test_requests_are_answered_over_tls_on_a_connection_that_stays(run: Run) -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened()
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() in (None, "http/1.1")
        for size in (0, 10, 3 << 20):
            writer.write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
            assert await rig.answer(reader) == (200, f"https {size}")
        writer.write(ASK * 5)
        for _ in range(5):
            assert await rig.answer(reader) == (200, "https 0")

    run(test)


def test_whoever_says_that_it_is_over_is_gone(run: Run) -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened()
        writer.write(ASK)
        assert await rig.answer(reader) == (200, "https 0")
        writer.close()
        async with asyncio.timeout(LIMIT):
            await writer.wait_closed()
            while rig.server.server_state.connections:
                await asyncio.sleep(0.005)

    run(test)


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x40\x00"])
def test_a_handshake_that_does_not_end_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_SECONDS", 0.05)

    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened(tls=False)
        writer.write(first)
        assert await rig.is_over(reader)
        async with asyncio.timeout(LIMIT):
            while rig.server.server_state.connections:
                await asyncio.sleep(0.005)
        monkeypatch.undo()  # on a busy machine one that is meant to end takes longer
        reader, writer = await rig.opened()
        writer.write(ASK)
        assert await rig.answer(reader) == (200, "https 0")

    run(test)


def test_a_slow_handshake_is_ended_though_something_always_comes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_SECONDS", 0.2)

    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened(tls=False)
        writer.write(b"\x16\x03\x01\x40\x00")
        sent = 0
        async with asyncio.timeout(LIMIT):
            while not reader.at_eof() and reader.exception() is None and not writer.is_closing():
                writer.write(b"\0")
                sent += 1
                await asyncio.sleep(0.01)
        assert 2 < sent < 1000

    run(test)


def test_an_endless_handshake_is_ended(run: Run) -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened(tls=False)
        record = b"\x16\x03\x01\x40\x00" + b"\x01\x7f\xff\xff" + bytes((16 << 10) - 4)
        for _ in range(2 + HANDSHAKE_MAX // len(record)):
            writer.write(record)
        assert await rig.is_over(reader)

    run(test)


@pytest.mark.parametrize("text", [ASK, b"\0" * 100, b"\xff" * 70_000])
def test_what_is_no_handshake_ends_the_connection(run: Run, text: bytes) -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened(tls=False)
        writer.write(text)
        assert await rig.is_over(reader)

    run(test)


def test_a_head_that_does_not_end_is_answered_over_tls(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(line, "LINGER_SECONDS", 0.05)

    async def test(rig: Rig) -> None:
        reader, writer = await rig.opened()
        writer.write(ASK[:-2])
        status, _ = await rig.answer(reader)
        assert status == 408
        assert await rig.is_over(reader)
        silent, _ = await rig.opened()
        assert await rig.is_over(silent)

    run(test)


def test_callers_who_only_shake_hands_keep_nobody_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "allow_files", lambda: 2 * serving.FILES_KEPT)
    monkeypatch.setattr(line, "BEYOND_MAX", 2)

    async def test(rig: Rig) -> None:
        idle = [await rig.opened(tls=False) for _ in range(serving.FILES_KEPT + 50)]
        reader, writer = await rig.opened()
        writer.write(ASK)
        assert await rig.answer(reader) == (200, "https 0")
        ended = await asyncio.gather(*(rig.is_over(reader) for reader, _ in idle[:51]))
        assert all(ended)  # the oldest made place
        assert len(rig.server.server_state.connections) <= serving.FILES_KEPT

    run(test)


def test_a_server_that_ends_waits_for_no_handshake(run: Run) -> None:
    async def test(rig: Rig) -> None:
        readers = []
        for first in (b"", b"\x16\x03\x01"):
            reader, writer = await rig.opened(tls=False)
            writer.write(first)
            readers.append(reader)
        async with asyncio.timeout(LIMIT):
            while len(rig.server.server_state.connections) < len(readers):
                await asyncio.sleep(0.005)
        rig.end.set()
        for reader in readers:
            assert await rig.is_over(reader)

    run(test)
