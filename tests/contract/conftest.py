"""The engines that the contract tests run on. A new engine adds its line to `ENGINES`."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headway.engines.base import Engine, Files, Found
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.router import Router
from headway.engines.trial import FilesInFolder, FilesInMemory, Trial
from headway.model.node import NodeSpec

from ..dask_site import Processes
from ..faults.engine import Link, SimEngine, Site, after
from ..faults.virtual import VirtualLoop
from ..waiting import LIMIT, let_the_background_run
from .stand_ins import STOOD_IN, stands_in


@dataclass(frozen=True)
class Case:
    """An engine, how to make it in a folder, and which parts of the contract apply to it.

    Attributes:
        make: what makes one in a folder, where attempts that are to save have so many seconds for it.
        kill_node: make a node die, without telling the engine; None: its nodes cannot be killed by a test.
        limits: it enforces limits of time and memory.
        files: commands see this machine's files.
        runs: it runs what it is given; otherwise something stands in for it (`stand_ins`), in virtual time, and nothing
            it keeps is a file of this machine, nor does it open any.
        usual: the only duties that are asked of it before a change is made; all of them if empty. The others are slow.
    """

    name: str
    make: Callable[[Path, float], Engine]
    kill_node: Callable[[Any, str], None] | None = None
    limits: bool = True
    files: bool = True
    runs: bool = True
    usual: frozenset[str] = frozenset()


def kill_local_node(engine: LocalEngine, node: str) -> None:
    os.kill(engine.pids()[node], signal.SIGKILL)


def make_local(folder: Path, grace: float) -> Engine:
    return LocalEngine(folder / "engine", LocalSettings(grace=grace))


def routed(make: Callable[[Path, float], Engine]) -> Callable[[Path, float], Engine]:
    """A router of two such engines; the nodes that tests use together belong to the same one."""

    def make_router(folder: Path, grace: float) -> Engine:
        engines = {name: make(folder / name, grace) for name in ("one", "two")}
        return Router(engines, lambda node: "two" if node.name in ("a", "b") else "one")

    return make_router


def kill_routed_node(router: Router, node: str) -> None:
    (pid,) = (pids[node] for engine in router.engines.values() if node in (pids := engine.pids()))  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)


def kill_node_routed_to_simulated(router: Router, node: str) -> None:
    kill_simulated_node(router.engines["two" if node in ("a", "b") else "one"], node)  # type: ignore[arg-type]


def kill_simulated_node(engine: SimEngine, node: str) -> None:
    engine.site.die(node)
    after(0.05, engine.site.revive, node)


def make_simulated(folder: Path, grace: float) -> Engine:
    return SimEngine(Site(stands_in, grace=grace), Link(Random(1)))


@cache
def dask_of_all_tests() -> Processes:
    """A cluster with a worker for each node that a test may name; it ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="headway-dask-"))
    site = Processes(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(site.end)
    return site.one(n=4, a=4, b=4, m=4)


def make_dask(folder: Path, grace: float) -> Engine:
    """The nodes are only those workers that the test names."""
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    from headway.engines.dask.engine import DaskEngine
    from headway.engines.dask.settings import DaskSettings

    class Named(DaskEngine):
        async def start(self, nodes: Iterable[NodeSpec], report: Any, files: Files) -> Found:
            named = list(nodes)
            self.named = {node.name for node in named}
            return await super().start(named, report, files)

        def _compare(self, workers: dict[str, tuple[str, int]]) -> None:
            super()._compare({name: worker for name, worker in workers.items() if name in self.named})

    terms = DaskSettings(
        dask_of_all_tests().address, folder=str(folder / "there"), period=0.1, agents=LocalSettings(grace=grace)
    )
    return Named(folder / "engine", terms)


ENGINES = [
    Case("local", make_local, kill_node=kill_local_node),
    Case("simulated", make_simulated, kill_node=kill_simulated_node, limits=False, runs=False),
    Case("router", routed(make_simulated), kill_node=kill_node_routed_to_simulated, limits=False, runs=False),
    Case("dask", make_dask, kill_node=kill_local_node),
    # What a process does is not the router's concern, and what it passes on is seen above.
    Case(
        "routed",
        routed(make_local),
        kill_node=kill_routed_node,
        usual=frozenset(
            {
                "test_a_node_that_dies_is_lost_and_comes_back_empty",
                "test_each_member_of_a_gang_saves_for_itself",
                "test_output_is_read_in_pieces_until_it_is_discarded",
                "test_stopping_ends_what_runs_and_reports_nothing",
                "test_what_a_function_saved_is_there_for_its_next_attempt_on_any_node",
            }
        ),
    ),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine that runs no programs has the duties of which `STOOD_IN` is the list; what is not usual is slow."""
    kept = []
    for item in items:
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        if isinstance(case, Case) and isinstance(item, pytest.Function):
            if not case.runs and item.originalname not in STOOD_IN:
                continue
            if case.usual and item.originalname not in case.usual:
                item.add_marker("slow")
        kept.append(item)
    items[:] = kept


@pytest.fixture
def anyio_backend(case: Case) -> str | tuple[str, dict[str, Any]]:
    return "asyncio" if case.runs else ("asyncio", {"loop_factory": VirtualLoop})


@pytest.fixture(autouse=True)
def _background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_background_run(tmp_path / "site", monkeypatch)


@pytest.fixture(params=ENGINES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def kept(case: Case, tmp_path: Path) -> FilesInFolder | FilesInMemory:
    """The files that the server keeps."""
    return FilesInFolder(tmp_path / "kept") if case.runs else FilesInMemory()


@pytest.fixture
async def trial(case: Case, tmp_path: Path, kept: Files) -> AsyncIterator[Trial]:
    """The engine, not yet started. At the end no report may be unread."""
    async with Trial(case.make(tmp_path, LIMIT), files=kept) as trial:
        yield trial


@pytest.fixture
async def hasty(case: Case, tmp_path: Path) -> AsyncIterator[Trial]:
    """The same, with hardly any time to save."""
    async with Trial(case.make(tmp_path, 0.5)) as trial:
        yield trial
