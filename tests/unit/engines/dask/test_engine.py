"""Which nodes the engine of Dask has: a scheduler that is played, whose workers do not answer."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")

from headway.engines.base import NodeFound, NodeGone, Noticed
from headway.engines.dask import certified, settings
from headway.engines.dask import engine as module
from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.settings import DaskSettings
from headway.engines.trial import FilesInMemory, Trial
from headway.errors import EngineError, InvalidInput
from headway.model.node import NodeSpec

from ....waiting import becomes

pytestmark = pytest.mark.anyio


async def test_a_known_worker_that_never_answered_has_left_when_the_scheduler_does_not_know_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, looks = {"a": ("tcp://127.0.0.1:9", 1)}, list[bool]()

    async def told(_: DaskEngine) -> dict[str, tuple[str, int]]:
        looks.append("a" in workers)
        return dict(workers)

    async def silent(*_: object, fresh: bool) -> None:
        raise EngineError("the worker of node 'a' does not answer")

    monkeypatch.setattr(settings, "_GONE_RANGE", (0.1, 1.0))
    monkeypatch.setattr(DaskEngine, "_workers", told)
    monkeypatch.setattr(DaskEngine, "_attached", silent)
    engine = DaskEngine(tmp_path / "engine", DaskSettings("tcp://127.0.0.1:8786", period=0.05, gone_after=0.1))
    async with Trial(engine) as trial:
        assert (await trial.start(NodeSpec("a", found=True))).absent == {"a"}
        assert "does not answer" in (await trial.told(Noticed)).detail
        await becomes(lambda: len(looks) >= 5)
        assert trial.unread == [], "it is there, so it has not left"
        workers.clear()
        assert (await trial.told(NodeGone)).node == "a"


@pytest.fixture
async def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trial]:
    """An engine beside a worker `a` of two threads, whose node had five slots in an earlier run."""

    async def no_workers(_: DaskEngine) -> dict[str, tuple[str, int]]:
        return {}

    monkeypatch.setattr(DaskEngine, "_workers", no_workers)
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.1)  # it does not answer when it is ended
    async with Trial(engine := DaskEngine(tmp_path / "engine", DaskSettings("tcp://127.0.0.1:1", period=60))) as trial:
        await engine.start((), trial._take, FilesInMemory())
        node = engine._nodes["a"] = engine._node(NodeSpec("a", 5, found=True), "tcp://127.0.0.1:1", 2)
        node.up = True
        yield trial
        node.up = False


async def test_a_node_gets_no_more_slots_than_its_worker_has_threads(beside: Trial) -> None:
    beside.engine.check_fit(NodeSpec("a", 2, found=True))
    beside.engine.check_fit(NodeSpec("b", 5, found=True))  # it has not come yet, and says then how many it has
    said = r"slots of node 'a' is 3; allowed: 1 to 2: its worker has 2 threads\n.*--nthreads"
    with pytest.raises(InvalidInput, match=said):
        beside.engine.check_fit(NodeSpec("a", 3, found=True))


async def test_a_node_that_had_more_gets_as_many_as_there_are(beside: Trial) -> None:
    """A server did not refuse them at a time."""
    assert isinstance(beside.engine, DaskEngine)
    beside.engine._compare({"a": ("tcp://127.0.0.1:1", 2)})
    assert (await beside.told(NodeFound)).node.slots == 2
    beside.engine.resize("a", 1)
    beside.engine._compare({"a": ("tcp://127.0.0.1:1", 2)})
    assert beside.unread == [], "fewer are what somebody wanted"


async def why(tmp_path: Path, address: str) -> str:
    """What is said when an engine starts and there is no scheduler."""
    engine = DaskEngine(tmp_path / "engine", DaskSettings(address, site="cellar"))
    with pytest.raises(EngineError, match=f"^no Dask scheduler answers at {re.escape(address)}: ") as told:
        await engine.start((), lambda _: None, FilesInMemory())
    assert "correct the address of site 'cellar' (`address` in its table, or --dask)" in told.value.hint
    return str(told.value.args[0]).partition(f"{address}: ")[2]


async def test_a_host_that_nobody_knows_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def connect(*_: object, **__: object) -> Any:
        raise AssertionError("Dask would try again for seconds")

    monkeypatch.setattr(module, "connect", connect)
    assert await why(tmp_path, "tcp://my..host:8786") == "'my..host' is no name of a host"
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = await why(tmp_path, "tcp://cellar.example:8786")
    assert said == "no address of a host 'cellar.example' is known here: Name or service not known"


def silent(line: socket.socket) -> None:
    line.recv(1)


def of_the_web(line: socket.socket) -> None:
    line.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("answers", "said"), [(silent, "it gives no answer in time"), (of_the_web, "what answers there is not Dask; ")]
)
async def test_what_answers_as_no_scheduler_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Callable[[socket.socket], None], said: str
) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(certified, "CERTIFIED_SECONDS", 0.3)
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                held.append(line)
                answers(line)

        thread = threading.Thread(target=serve)
        thread.start()
        assert (await why(tmp_path, f"tcp://127.0.0.1:{server.getsockname()[1]}")).startswith(said)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for line in held:
        line.close()


async def test_where_nothing_listens_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.3)
    assert await why(tmp_path, "tcp://127.0.0.1:1") == "nothing listens there"
