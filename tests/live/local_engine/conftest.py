"""What tests of the local engine share: an engine in a folder, of which nothing is left at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import mark_of, put_down
from headway.engines.local.shared.processes import marked
from headway.engines.trial import Trial
from headway.model.node import NodeSpec

from ...waiting import LIMIT

LONG = 600.0

LEASE = 3.0
"""Seconds. No process waits that long for a processor, even on a busy machine."""

ONE = NodeSpec("n", slots=2)


@pytest.fixture(params=["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The event loop of servers. The contract of engines is tested with the other one."""
    return ("asyncio", {"use_uvloop": request.param == "uvloop"})


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """An engine's folder. When the test is over, no process that belongs to it is left."""
    root = tmp_path / "engine"
    yield root
    left = [pid for folder in (root / "nodes").glob("*") for pid in processes_of(folder)]
    for folder in (root / "nodes").glob("*"):
        put_down(folder)
    assert left == []


@pytest.fixture
async def trial(root: Path) -> AsyncIterator[Trial]:
    async with Trial(LocalEngine(root), LIMIT) as trial:
        yield trial


def engine(trial: Trial) -> LocalEngine:
    assert isinstance(trial.engine, LocalEngine)
    return trial.engine


def processes_of(folder: Path) -> list[int]:
    return marked(mark_of(folder))


def agent_of(trial: Trial, node: str = "n") -> psutil.Process:
    return psutil.Process(engine(trial).pids()[node])


def add(a: int, b: int) -> int:
    return a + b


def wait_for(path: str) -> str:
    import os
    import time

    open(path + ".waits", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    return "found"
