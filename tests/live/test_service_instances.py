"""Instances of services as real processes, at the broker's real socket: they die, hang, leave and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import uvloop

from headway.errors import (
    HandlerFailed,
    HeadwayError,
    InstanceDied,
    Malformed,
    RequestTimedOut,
    ServiceFull,
)
from headway.services.broker import Broker
from headway.services.terms import ARGV, InstanceId, InstanceTerms, ServiceSettings
from headway.services.windows import Window

from ..waiting import LIMIT, becomes

HANDLERS = """
import asyncio, os, time

def echo(value):
    return value

def who(value):
    time.sleep(0.002)
    return [value, os.getpid()]

def slowly(seconds):
    time.sleep(seconds)
    return os.getpid()

async def later(seconds):
    await asyncio.sleep(seconds)
    return "later"

def do(what):
    if what == "raise":
        raise ValueError("so it is")
    if what == "exit":
        raise SystemExit(3)
    if what == "die":
        os._exit(1)
    if what == "hang":
        time.sleep(1000)
    if what == "object":
        return object()
    if what == "large":
        return bytes(100_000_000)
    return what
"""

KEY = "the key of this service"


class Listener:
    """Kills what is stuck, as whoever starts instances does, and notes the rest."""

    def __init__(self) -> None:
        self.processes: dict[InstanceId, subprocess.Popen[bytes]] = {}
        self.details: list[str] = []
        self.windows: list[Window] = []

    def ready(self, service: str, instance: InstanceId) -> None:
        pass

    def broken(self, service: str, instance: InstanceId, detail: str) -> None:
        self.details.append(detail)

    def stuck(self, service: str, instance: InstanceId, detail: str) -> None:
        self.details.append(detail)
        self.processes[instance].kill()

    def late(self, service: str, instance: InstanceId, detail: str) -> None:
        self.stuck(service, instance, detail)

    def left(self, service: str, instance: InstanceId) -> None:
        pass

    def measured(self, service: str, window: Window) -> None:
        self.windows.append(window)


class Served:
    """A broker with one service, and the processes of its instances."""

    def __init__(self, folder: Path, settings: ServiceSettings, key: str = KEY) -> None:
        self.folder = folder
        self.settings = settings
        self.listener = Listener()
        self.broker = Broker(self.listener)
        self.key = key
        self._tasks = 0
        (folder / "handlers_of_test.py").write_text(HANDLERS)

    async def open(self) -> None:
        self.broker.serve("s", KEY, "1", self.settings)
        await self.broker.open(self.folder / "socket")

    def spawn(self, handler: str = "", version: str = "1", **terms: Any) -> subprocess.Popen[bytes]:
        """Start an instance."""
        self._tasks += 1
        told = InstanceTerms(
            service="s",
            socket=str(self.folder / "socket"),
            key=self.key,
            version=version,
            handler=f"handlers_of_test:{handler}" if handler else "",
            **terms,
        )
        key = {"HEADWAY_JOB": "1", "HEADWAY_TASK": str(self._tasks), "HEADWAY_ATTEMPT": "1"}
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))}
        with (self.folder / "stderr").open("ab") as stderr:
            process = subprocess.Popen(ARGV, env={**os.environ, **paths, **told.environment(), **key}, stderr=stderr)
        self.listener.processes[InstanceId(1, self._tasks, 1)] = process
        return process

    async def instances(self, count: int) -> None:
        """Wait until so many are ready."""
        await becomes(lambda: len(self.broker.queue("s").instances) == count)

    async def ask(self, value: object) -> Any:
        answer = await asyncio.wait_for(self.broker.ask("s", msgspec.json.encode(value), "application/json"), LIMIT)
        return msgspec.json.decode(answer.body)

    async def ends(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the exit status of an instance."""
        await becomes(lambda: process.poll() is not None)
        return process.returncode


@contextlib.asynccontextmanager
async def served(*handlers: str, **settings: Any) -> AsyncIterator[Served]:
    """A service with these instances; in the end none of them is left."""
    folder = Path(tempfile.mkdtemp())  # the path of a socket must be short
    made = Served(folder, ServiceSettings(**settings))
    try:
        await made.open()
        for handler in handlers:
            made.spawn(handler)
        await made.instances(len(handlers))
        yield made
    finally:
        for process in made.listener.processes.values():
            process.kill()
            process.wait()
        await made.broker.close()
        shutil.rmtree(folder)


def on(runner: Callable[[Coroutine[Any, Any, None]], None]) -> Any:
    """Run a test of coroutines by this."""

    def decorate(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def run() -> None:
            runner(test())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_requests_are_answered(runner: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def test() -> None:
        async with served("echo", "echo") as service:
            assert await asyncio.gather(*map(service.ask, range(200))) == list(range(200))
            answer = await service.broker.ask("s", b"\x00" * (1 << 20))
            assert answer == (b"\x00" * (1 << 20), "application/octet-stream")
            with pytest.raises(Malformed, match="not JSON"):
                await service.broker.ask("s", b"{", "application/json")
            processes = list(service.listener.processes.values())
            service.broker.end("s")
            assert [await service.ends(each) for each in processes] == [0, 0]

    runner(test())


@on(uvloop.run)
async def test_a_handler_may_do_anything_and_the_next_request_is_answered() -> None:
    async with served("do", time_limit=1.0) as service:
        for what, said in (
            ("raise", "the handler raised ValueError: so it is"),
            ("exit", "the handler raised SystemExit: 3"),
            ("object", "returned a object, which cannot be sent"),
            ("large", "the answer has 100000000 bytes; allowed: at most 8388608"),
        ):
            with pytest.raises(HandlerFailed, match=said):
                await service.ask(what)
            assert await service.ask("still") == "still"
        assert "ValueError: so it is" in (service.folder / "stderr").read_text()
        (process,) = service.listener.processes.values()
        with pytest.raises(RequestTimedOut, match="worked for 1 s"):
            await service.ask("hang")
        assert await service.ends(process) == -signal.SIGKILL
        service.spawn("do")
        assert await service.ask("again") == "again"


@on(uvloop.run)
async def test_a_request_that_kills_its_instances_fails_after_the_second() -> None:
    async with served("do", "do", "do") as service:
        with pytest.raises(InstanceDied):
            await service.ask("die")
        await service.instances(1)
        assert await service.ask("alive") == "alive"


@on(uvloop.run)
async def test_a_handler_that_cannot_be_loaded_is_reported_and_its_instance_ends() -> None:
    async with served() as service:
        for handler, said in (
            ("nothing", "a function of module handlers_of_test"),
            ("echo.there.is.none", "allowed: a function"),
        ):
            assert await service.ends(service.spawn(handler)) == 1
            assert said in service.listener.details[-1]
        (service.folder / "handlers_of_test.py").write_text("raise RuntimeError('at import')\n")
        assert await service.ends(service.spawn("echo")) == 1
        assert "RuntimeError: at import" in service.listener.details[-1]
        service.key = "another"
        (service.folder / "handlers_of_test.py").write_text(HANDLERS)
        assert await service.ends(service.spawn("echo")) == 1
        assert "its key is another one" in (service.folder / "stderr").read_text()


@on(uvloop.run)
async def test_an_instance_that_is_asked_to_end_finishes_its_request() -> None:
    async with served("slowly", "slowly") as service:
        processes = {each.pid: each for each in service.listener.processes.values()}
        working = asyncio.create_task(service.ask(0.5))
        await asyncio.sleep(0.2)
        for each in processes.values():
            each.send_signal(signal.SIGTERM)
        pid = await working
        assert pid in processes
        assert [await service.ends(each) for each in processes.values()] == [0, 0]


@on(uvloop.run)
async def test_a_program_answers_and_finishes_though_all_its_processes_are_asked_to_end() -> None:
    async with served() as service:
        process = service.spawn(command=("sh", "-c", "sleep 0.5; tr a-z A-Z"))
        await service.instances(1)
        caller = asyncio.create_task(service.broker.ask("s", b"text"))
        await becomes(lambda: psutil.Process(process.pid).children())
        await asyncio.sleep(0.1)
        for each in psutil.Process(process.pid).children(recursive=True):
            each.terminate()
        process.terminate()
        assert (await caller).body == b"TEXT"
        assert await service.ends(process) == 0


@on(uvloop.run)
async def test_a_coroutine_function_is_a_handler() -> None:
    async with served("later") as service:
        assert await asyncio.gather(service.ask(0), service.ask(0.01)) == ["later", "later"]


@on(uvloop.run)
async def test_instances_that_are_killed_under_load_lose_nothing() -> None:
    """Requests are asked while instances die at random. Each ends once: with its own answer, or with an error."""
    generator = random.Random(3)
    async with served("who", "who", "who") as service:
        asked = 1500
        outcome: dict[int, list[object]] = {number: [] for number in range(asked)}

        async def ask(number: int) -> None:
            await asyncio.sleep(generator.uniform(0.0, 2.0))
            try:
                value, _ = await service.ask(number)
                assert value == number
                outcome[number].append("answered")
            except HeadwayError as error:
                outcome[number].append(error)

        async def kill() -> None:
            for _ in range(6):
                await asyncio.sleep(generator.uniform(0.1, 0.4))
                alive = [each for each in service.listener.processes.values() if each.poll() is None]
                generator.choice(alive).kill()
                service.spawn("who")

        await asyncio.gather(kill(), *map(ask, outcome))
        assert all(len(got) == 1 for got in outcome.values())
        assert all(got == ["answered"] or isinstance(got[0], InstanceDied) for got in outcome.values())
        assert sum(got == ["answered"] for got in outcome.values()) >= asked - 6
        assert len(service.broker.queue("s")) == 0


@on(uvloop.run)
async def test_draining_and_replacing_under_load_lose_nothing() -> None:
    async with served("who", "who") as service:
        over = False

        async def ask() -> list[tuple[int, int]]:
            got = []
            while not over:
                got.append(tuple(await service.ask(len(got))))
            return got  # type: ignore[return-value]

        callers = [asyncio.create_task(ask()) for _ in range(8)]
        await asyncio.sleep(0.3)
        first, second = service.listener.processes
        service.broker.drain("s", first)
        assert await service.ends(service.listener.processes[first]) == 0
        service.broker.replace("s", "2", service.settings)
        new = [service.spawn("who", version="2") for _ in range(2)]
        assert await service.ends(service.listener.processes[second]) == 0
        await service.instances(2)
        await asyncio.sleep(0.3)
        over = True
        for answers in await asyncio.gather(*callers):
            assert [number for number, _ in answers] == list(range(len(answers)))
            assert answers[-1][1] in {each.pid for each in new}


@on(uvloop.run)
async def test_instances_come_back_when_the_server_does() -> None:
    async with served("who", "slowly") as service:
        processes = list(service.listener.processes.values())
        working = [asyncio.create_task(service.ask(0.3)) for _ in range(2)]
        await asyncio.sleep(0.1)
        await service.broker.close()
        await asyncio.gather(*working, return_exceptions=True)
        await asyncio.sleep(0.3)
        service.broker = Broker(service.listener)
        await service.open()
        await service.instances(2)
        await asyncio.gather(service.ask(0), service.ask(0))
        assert [each.poll() for each in processes] == [None, None]
        impatient = service.spawn("who", patience=0.5)
        await service.instances(3)
        await service.broker.close()
        assert await service.ends(impatient) == 1
        for each in processes:
            each.terminate()
        assert [await service.ends(each) for each in processes] == [0, 0]


@on(uvloop.run)
async def test_memory_is_bounded_by_the_queue_whoever_comes_and_goes() -> None:
    """10,000 requests of 1 KiB wait, five times as many callers come and go, and nothing remains."""
    async with served("echo", queue_max=10_000) as service:
        (process,) = service.listener.processes.values()
        os.kill(process.pid, signal.SIGSTOP)
        first = asyncio.create_task(service.broker.ask("s", b""))
        await asyncio.sleep(0)
        before = _resident()
        tasks: list[asyncio.Task[Any]] = []
        for _ in range(5):
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks = [asyncio.create_task(service.broker.ask("s", os.urandom(1024))) for _ in range(10_000)]
            await asyncio.sleep(0)
        with pytest.raises(ServiceFull, match="10000 requests with 10240000 bytes wait"):
            await service.broker.ask("s", b"")
        assert _resident() - before < 100 << 20
        os.kill(process.pid, signal.SIGCONT)
        await asyncio.gather(first, *tasks)
        assert len(service.broker.queue("s")) == 0


def _resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()
