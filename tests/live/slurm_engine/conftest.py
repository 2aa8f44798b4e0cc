"""What tests of the engine for Slurm share: a cluster, and an engine in a folder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.engines.base import NodeFound
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.trial import Trial
from headway.model.node import NodeSpec

from ...slurm import CPUS, NODES, Cluster
from ...waiting import LIMIT

LONG = 600.0

SETTINGS = SlurmSettings("main", poll=0.5)

FOUR = tuple(NodeSpec(name, slots=CPUS, found=True) for name in NODES)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The event loop of servers. The contract of engines is tested with the other one."""
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
async def trial(slurm: Cluster, root: Path) -> AsyncIterator[Trial]:
    """An engine of the partition `main`, not yet started."""
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT) as trial:
        yield trial


async def found(trial: Trial) -> list[NodeSpec]:
    """The nodes that the engine finds when it starts and knows none."""
    await trial.engine.start((), trial._take, trial._files)
    return [(await trial.told(NodeFound)).node for _ in NODES]


def add(a: int, b: int) -> int:
    return a + b


def note_and_wait(path: str) -> str:
    """Write down the number of this process, then wait until there is a file `door` beside it."""
    import time

    with open(f"{path}.draft", "w") as file:
        file.write(str(os.getpid()))
    os.replace(f"{path}.draft", path)
    while not os.path.exists(os.path.join(os.path.dirname(path), "door")):
        time.sleep(0.005)
    return "through"
