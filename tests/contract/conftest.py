"""The engines that the contract tests run on. A new engine adds its line to `ENGINES`."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headway.engines.base import Engine, Files
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.router import Router
from headway.engines.trial import FilesInFolder, FilesInMemory, Trial

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
    """

    name: str
    make: Callable[[Path, float], Engine]
    kill_node: Callable[[Any, str], None] | None = None
    limits: bool = True
    files: bool = True
    runs: bool = True


def kill_local_node(engine: LocalEngine, node: str) -> None:
    os.kill(engine.pids()[node], signal.SIGKILL)


def make_local(folder: Path, grace: float) -> Engine:
    return LocalEngine(folder / "engine", LocalSettings(grace=grace))


def make_router(folder: Path, grace: float) -> Engine:
    """Two engines below; the nodes that tests use together belong to the same one."""
    engines = {name: LocalEngine(folder / name, LocalSettings(grace=grace)) for name in ("one", "two")}
    return Router(engines, lambda node: "two" if node.name in ("a", "b") else "one")


def kill_routed_node(router: Router, node: str) -> None:
    (pid,) = (pids[node] for engine in router.engines.values() if node in (pids := engine.pids()))  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)


def kill_simulated_node(engine: SimEngine, node: str) -> None:
    engine.site.die(node)
    after(0.05, engine.site.revive, node)


def make_simulated(folder: Path, grace: float) -> Engine:
    return SimEngine(Site(stands_in, grace=grace), Link(Random(1)))


ENGINES = [
    Case("local", make_local, kill_node=kill_local_node),
    Case("router", make_router, kill_node=kill_routed_node),
    Case("simulated", make_simulated, kill_node=kill_simulated_node, limits=False, runs=False),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine that runs no programs has the duties of which `STOOD_IN` is the list."""
    runs = {case.name: case.runs for case in ENGINES}
    items[:] = [
        item
        for item in items
        if not isinstance(item, pytest.Function)
        or "case" not in getattr(getattr(item, "callspec", None), "params", ())
        or runs[item.callspec.params["case"].name]
        or item.originalname in STOOD_IN
    ]


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
