"""Callers that wait for messages on real connections: many, impatient, slow, gone, more than there are files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import psutil
import pytest
import uvloop

from headway import wire
from headway.access.tokens import Tokens
from headway.client.client import Client
from headway.client.job import Job, Task
from headway.live.checker import Checker
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.leases import CANCELLED_AT_ONCE
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, hear, new_job, node, submission
from headway.web.api import Api
from headway.web.serving import FILES_KEPT, BoundedServer, listen

from ..waiting import LIMIT, becomes

TOKEN = "t0ken"
SLOTS = 400


class Line:
    """One connection; it asks for messages in MessagePack."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, target: str, *headers: str, version: str = "1.1") -> None:
        lines = [f"GET {target} HTTP/{version}", "Host: x", f"Authorization: Bearer {TOKEN}", f"Accept: {wire.MSGPACK}"]
        self._writer.write("\r\n".join((*lines, *headers, "", "")).encode())

    def wait(self, client: str, after: int = 0, **terms: object) -> None:
        terms = {"wait": 60} | terms
        query = "&".join(f"{name}={value}" for name, value in terms.items())
        self.send(f"{wire.MESSAGES.path}?client={client}&after={after}&{query}")

    async def answer(self) -> tuple[str, bytes]:
        """Head and body."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        [size] = [int(line.split(": ")[1]) for line in head.splitlines() if line.startswith("content-length: ")]
        return head, await self._reader.readexactly(size)

    async def messages(self) -> wire.Messages:
        head, body = await self.answer()
        assert head.startswith("http/1.1 200 ok\r\n"), body
        assert f"content-type: {wire.MSGPACK}" in head
        return msgspec.msgpack.decode(body, type=wire.Messages)

    async def is_over(self) -> bool:
        return await self._reader.read() == b""

    def hang_up(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Rig:
    """A server on a driver with a fake engine."""

    def __init__(self, driver: Driver, engine: FakeEngine, server: BoundedServer, address: tuple[str, int]) -> None:
        self.driver, self.engine, self.server, self.address = driver, engine, server, address
        self.end = server._end
        self.opened: list[Line] = []

    async def line(self) -> Line:
        self.opened.append(Line(*await asyncio.open_connection(*self.address)))
        return self.opened[-1]

    async def lines(self, count: int) -> list[Line]:
        return [await self.line() for _ in range(count)]

    async def submit(self, client: str, **terms: object) -> int:
        answer = await self.driver.submit("me", submission(new_job(**terms), client=client))
        return answer.jobs[0]

    async def until(self, holds: Callable[[], bool]) -> None:
        await becomes(holds)


@asynccontextmanager
async def serving(folder: Path, *, desk: bool = True) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal, listen("127.0.0.1", 0) as listener:
        engine, clock, end = FakeEngine(), ManualClock(5), asyncio.Event()
        driver = Driver(journal, engine, clock, find, DriverSettings(policy="fcfs"))
        await driver.start((node("n", slots=SLOTS),))
        api = Api(driver, Tokens(TOKEN, "me"), end.set, checker=Checker(driver, clock, {}, dict), delay=LoopDelay())
        server = BoundedServer(api.app, end, api.front(journal.epoch) if desk else None)
        address = listener.getsockname()[:2]
        task = asyncio.create_task(server.serve([listener]))
        rig = Rig(driver, engine, server, address)
        try:
            yield rig
        finally:
            end.set()
            driver.take_no_more()
            await task
            for line in rig.opened:
                await line.close()
            await driver.stop()
        assert (driver.listeners, server.server_state.connections, server.server_state.tasks) == (0, set(), set())


def run(folder: Path, scenario: Callable[[Rig], Awaitable[None]], *, desk: bool = True) -> None:
    async def main() -> None:
        async with serving(folder, desk=desk) as rig:
            await scenario(rig)

    uvloop.run(main())


@pytest.mark.parametrize("desk", [True, False])
def test_three_hundred_wait_and_a_turn_for_each_part_tells_each_its_own(tmp_path: Path, desk: bool) -> None:
    async def scenario(rig: Rig) -> None:
        lines = await rig.lines(300)
        jobs = [await rig.submit(f"c{number}", release=100.0) for number in range(300)]
        for number, line in enumerate(lines):
            line.wait(f"c{number}")
        await rig.until(lambda: rig.driver.listeners == 300)
        commits = rig.driver.commits
        await rig.driver.cancel(jobs)
        told = [await line.messages() for line in lines]
        assert [[message.job for message in each.messages] for each in told] == [[job] for job in jobs]
        assert [each.cursor for each in told] == [each.messages[0].number for each in told] == list(range(1, 301))
        assert rig.driver.commits == commits + 300 // CANCELLED_AT_ONCE
        for number, line in enumerate(lines):
            line.wait(f"c{number}", told[number].cursor, wait=0)
        assert {(await line.messages()).messages for line in lines} == {()}

    run(tmp_path, scenario, desk=desk)


@pytest.mark.parametrize("seed", range(3))
def test_cursors_over_broken_connections_and_restarts(tmp_path: Path, seed: int) -> None:
    """Clients ask for a few at a time, and hang up before and after they are answered. The server is started again."""
    chance, clients, tasks = random.Random(seed), 40, 4
    told: list[list[wire.Message]] = [[] for _ in range(clients)]
    jobs: list[int] = []

    async def listen_on(rig: Rig, number: int) -> None:
        """One client: it listens until it knows the end of its job, or the server ends."""
        known = told[number]
        while not known or known[-1].status is None:
            try:
                line = await rig.line()
                line.wait(f"c{number}", known[-1].number if known else 0, limit=chance.randint(1, 3))
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.random() * 0.01)
                else:
                    known += (await line.messages()).messages
            except (OSError, asyncio.IncompleteReadError):
                return
            line.hang_up()

    async def work(rig: Rig, count: int) -> None:
        """Let this many tasks end, in any order."""
        for key in chance.sample(sorted(rig.engine.running), count):
            rig.engine.end(*key)
            if chance.random() < 0.5:
                await asyncio.sleep(0.001)

    async def main() -> None:
        async with serving(tmp_path) as rig:
            jobs.extend([await rig.submit(f"c{number}", tasks=tasks) for number in range(clients)])
            listening = [asyncio.create_task(listen_on(rig, number)) for number in range(clients)]
            await work(rig, clients * tasks // 2)
        await asyncio.gather(*listening)
        async with serving(tmp_path) as rig, asyncio.timeout(LIMIT):
            listening = [asyncio.create_task(listen_on(rig, number)) for number in range(clients)]
            await work(rig, len(rig.engine.running))
            await asyncio.gather(*listening)
            rows, _ = await hear(rig.driver, 0, 10_000)
        for job, known in zip(jobs, told, strict=True):
            assert [message.number for message in known] == [row.number for row in rows if row.job == job]
            assert [message.task for message in known[-1:]] == [None]
            assert sorted(message.task for message in known[:-1] if message.task is not None) == list(range(tasks))

    uvloop.run(main())


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_eight_callers_with_very_short_waits_do_not_end_the_driver(tmp_path: Path, loop: Callable[..., None]) -> None:
    """uvloop rounds short delays to 0 ms, and the handle then has no time. Once, this broke the driver within 0.2 s."""
    tasks = 200

    async def poll(rig: Rig, heard: list[int]) -> None:
        line, cursor = await rig.line(), 0
        while len(heard) <= tasks:
            line.wait("c", cursor, wait=0.0004)
            told = await line.messages()
            heard += [message.number for message in told.messages]
            cursor = told.cursor

    async def main() -> None:
        async with serving(tmp_path) as rig, asyncio.timeout(3 * LIMIT):
            job = await rig.submit("c", tasks=tasks)
            heard: list[list[int]] = [[] for _ in range(8)]
            polling = [asyncio.create_task(poll(rig, each)) for each in heard]
            for task in range(tasks):
                rig.engine.end(job, task)
                await asyncio.sleep(0)
                await asyncio.sleep(0.001 * (task % 2))
            await asyncio.gather(*polling)
            assert heard == [list(range(1, tasks + 2))] * 8
            assert not rig.driver.broken.done()

    loop(main())


def test_who_goes_away_while_he_waits_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit("c", release=100.0)
        lines = await rig.lines(50)
        for line in lines:
            line.wait("c")
        await rig.until(lambda: rig.driver.listeners == 50)
        state = rig.server.server_state
        assert (len(state.connections), len(state.tasks)) == (50, 0)  # nobody who waits has a task
        for line in lines[::2]:
            line.hang_up()
        await rig.until(lambda: (rig.driver.listeners, len(state.connections)) == (25, 25))
        await rig.driver.cancel([job])
        assert {(await line.messages()).cursor for line in lines[1::2]} == {1}
        await rig.until(lambda: rig.driver.listeners == 0)
        assert rig.driver._listeners._waiting == {}

    run(tmp_path, scenario)


def test_a_connection_serves_waits_and_other_questions_in_turn(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        line = await rig.line()
        for number in range(1, 4):
            job = await rig.submit("c", release=100.0)
            line.wait("c", number - 1)
            await rig.until(lambda: rig.driver.listeners == 1)
            await rig.driver.cancel([job])
            assert [message.number for message in (await line.messages()).messages] == [number]
            line.send(wire.STATISTICS.path)
            statistics = msgspec.msgpack.decode((await line.answer())[1], type=wire.Statistics)
            assert (statistics.jobs, statistics.listeners) == (0, 0)

    run(tmp_path, scenario)


def test_questions_sent_ahead_are_answered_in_order(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit("c", release=100.0)
        line = await rig.line()
        line.wait("c")
        line.send(wire.POLICY.path)
        line.wait("c", 0, wait=0)
        await rig.until(lambda: rig.driver.listeners == 1)
        await rig.driver.cancel([job])
        assert (await line.messages()).cursor == 1
        assert b"fcfs" in (await line.answer())[1]
        assert (await line.messages()).cursor == 1

    run(tmp_path, scenario)


@pytest.mark.parametrize(("version", "headers"), [("1.1", ["Connection: close"]), ("1.0", [])])
def test_who_wants_his_connection_closed_has_it_closed(tmp_path: Path, version: str, headers: list[str]) -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit("c", release=100.0)
        line = await rig.line()
        line.send(f"{wire.MESSAGES.path}?client=c&wait=60", *headers, version=version)
        await rig.until(lambda: rig.driver.listeners == 1)
        await rig.driver.cancel([job])
        head, body = await line.answer()
        assert "connection: close" in head
        assert msgspec.msgpack.decode(body, type=wire.Messages).cursor == 1
        assert await line.is_over()

    run(tmp_path, scenario)


def test_a_caller_who_does_not_read_is_not_buffered_for_without_end(tmp_path: Path) -> None:
    """Ten large answers are requested and not read. Some fill the connection; the others wait until it is read."""
    size = 3 << 20

    async def scenario(rig: Rig) -> None:
        await rig.submit("c")
        rig.engine.end(1, result=b"r" * size)
        line = await rig.line()
        for _ in range(10):
            line.wait("c", results=2 * size)
        [connection] = await _connections(rig, 1)
        await rig.until(lambda: connection.flow.write_paused)
        await asyncio.sleep(0.05)
        assert connection.transport.get_write_buffer_size() < 2 * size
        for _ in range(10):
            told = await line.messages()
            assert told.cursor == 2
            assert told.messages[0].result is not None
            assert len(told.messages[0].result.ending.value or b"") == size

    run(tmp_path, scenario)


async def _connections(rig: Rig, count: int) -> list[object]:
    await rig.until(lambda: len(rig.server.server_state.connections) == count)
    return list(rig.server.server_state.connections)


def test_the_end_of_the_server_is_an_answer(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.submit("c", release=100.0)
        lines = await rig.lines(20)
        for line in lines:
            line.wait("c")
        await rig.until(lambda: rig.driver.listeners == 20)
        rig.end.set()
        rig.driver.take_no_more()
        async with asyncio.timeout(LIMIT / 2):  # by themselves they wait for a minute
            for line in lines:
                assert await line.messages() == wire.Messages((), 0)
                assert await line.is_over()

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("method", "query", "token", "status", "error"),
    [
        ("GET", "?wait=61", TOKEN, 400, "wait is 61.0; allowed: 0.0 to 60.0"),
        ("GET", "?limit=0", TOKEN, 400, "limit is 0"),
        ("GET", "?since=4", TOKEN, 400, "parameter is 'since'"),
        ("GET", "?job=77", TOKEN, 404, "77"),
        ("GET", "?wait=60", "", 401, "no token was sent"),
        ("POST", "", TOKEN, 405, "POST /v1/messages: Method Not Allowed"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(
    tmp_path: Path, method: str, query: str, token: str, status: int, error: str
) -> None:
    def ask(url: str) -> tuple[int, str]:
        request = urllib.request.Request(url, None, {"Authorization": f"Bearer {token}"}, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=LIMIT):
            pass
        with refused.value as answer:
            return answer.code, json.load(answer)["error"]

    async def scenario(rig: Rig) -> None:
        url = f"http://{rig.address[0]}:{rig.address[1]}{wire.MESSAGES.path}{query}"
        found, said = await asyncio.to_thread(ask, url)
        assert (found, error in said) == (status, True), said
        assert rig.driver.listeners == 0

    run(tmp_path, scenario)


def test_more_callers_than_files_are_told_so_and_tasks_keep_their_limit(tmp_path: Path) -> None:
    most = 20
    soft, hard = FILES_KEPT + 10, FILES_KEPT + most
    command = [sys.executable, "-m", "headway", "up", "--slots", "1", "--json", "--data", str(tmp_path / "data")]
    limits = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*limits, *command], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        with server.stdout as output:
            place = json.loads(output.readline())
        assert psutil.Process(server.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
        address = place["url"].removeprefix("http://")
        token = Path(place["token_file"]).read_text().strip()
        with ExitStack() as stack:
            lines = [stack.enter_context(closing(HTTPConnection(address, timeout=LIMIT))) for _ in range(most + 5)]
            known = {"Authorization": f"Bearer {token}"}
            for line in lines[: most - 1]:
                line.request("GET", f"{wire.MESSAGES.path}?wait=60", headers=known)
            last = lines[most - 1]
            while True:
                last.request("GET", wire.STATISTICS.path, headers=known)
                if json.load(last.getresponse())["listeners"] == most - 1:
                    break
            last.request("GET", f"{wire.MESSAGES.path}?wait=60", headers=known)
            answers = [_status(line) for line in lines[most:]]
            assert [status for status, _ in answers] == [503] * 5
            said = json.loads(answers[-1][1])["error"]
            assert said == f"{most} callers are connected, as many as may be with {hard} open files"
            with closing(HTTPConnection(address, timeout=LIMIT)) as line:
                assert _status(line, wire.HEALTH)[0] == 200
        while True:  # until the server has noticed that they are gone
            with closing(HTTPConnection(address, timeout=LIMIT)) as line:
                if _status(line)[0] == 401:
                    break
        with Client(place["url"], token=token) as client:
            job = client.submit(Job("limit", [Task(resource.getrlimit, resource.RLIMIT_NOFILE)]))
            assert job.result(timeout=LIMIT) == [(soft, hard)]
    finally:
        server.terminate()
        server.wait(LIMIT)
    assert (tmp_path / "log").read_text().count("more are refused") == 1


def _status(line: HTTPConnection, route: wire.Route = wire.JOBS) -> tuple[int, bytes]:
    line.request("GET", route.path)
    answer = line.getresponse()
    return answer.status, answer.read()
