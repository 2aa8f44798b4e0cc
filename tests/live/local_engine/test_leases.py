"""The local engine when nodes or their driver are silent for long."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from headway.engines.base import NodeBack, NodeLost
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import FilesInMemory, Trial
from headway.model.instant import from_seconds
from headway.model.node import NodeSpec

from ...waiting import LIMIT, becomes, gone
from .conftest import LEASE, LONG, add, agent_of, wait_for

pytestmark = pytest.mark.anyio


async def test_a_node_that_hangs_is_lost_killed_and_started_again(root: Path, tmp_path: Path) -> None:
    async with Trial(LocalEngine(root, LocalSettings(lease=LEASE)), LIMIT) as trial:
        await trial.start(NodeSpec("hangs", slots=2), NodeSpec("lives", lease=3600_000_000))
        agent = agent_of(trial, "hangs")
        spared = agent_of(trial, "lives").pid
        trial.call(wait_for, str(tmp_path / "door"), node="hangs")
        await becomes((tmp_path / "door.waits").exists)
        slots = [child.pid for child in agent.children()]
        agent.suspend()
        lost = await trial.told(NodeLost)
        assert (lost.node, lost.detail) == ("hangs", f"silent for {LEASE:g} s")
        await trial.told(NodeBack)
        assert all(gone(pid) for pid in [agent.pid, *slots])
        assert await trial.value(trial.call(add, 1, 1, node="hangs")) == 2
        assert agent_of(trial, "lives").pid == spared


async def test_nodes_with_a_lease_are_heard(root: Path) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    engine = LocalEngine(root)
    await engine.start([NodeSpec("a", lease=from_seconds(LEASE)), NodeSpec("b")], heard.put_nowait, FilesInMemory())
    try:
        async with asyncio.timeout(LIMIT):
            assert [str(await heard.get()) for _ in range(2)] == ["Heard(nodes=('a',))"] * 2
    finally:
        await engine.stop()


@pytest.mark.thorough
async def test_a_driver_that_was_busy_does_not_take_its_nodes_for_dead(root: Path) -> None:
    async with Trial(LocalEngine(root, LocalSettings(lease=LEASE)), LIMIT) as trial:
        await trial.start()
        before = agent_of(trial).pid
        subprocess.run(["sleep", str(LEASE + 1)], check=True)  # the loop is blocked for longer than the lease
        assert await trial.value(trial.call(add, 1, 1)) == 2
        await asyncio.sleep(1.5 * LEASE)  # and continues for as long as it takes to miss pings
        assert agent_of(trial).pid == before


@pytest.mark.thorough
async def test_a_node_with_a_long_lease_hears_of_its_driver_before_it_takes_it_for_dead(root: Path) -> None:
    trial = Trial(LocalEngine(root, LocalSettings(lease=3600.0, orphaned_after=2 * LEASE)), LIMIT)
    async with trial:
        await trial.start()
        before = agent_of(trial).pid
        await asyncio.sleep(3 * LEASE)
        assert agent_of(trial).pid == before
        assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_a_node_that_joins_with_a_shorter_lease_is_heard_in_time(root: Path) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    engine = LocalEngine(root, LocalSettings(lease=3600.0, orphaned_after=LONG))
    await engine.start([NodeSpec("a")], heard.put_nowait, FilesInMemory())
    try:
        await engine.join(NodeSpec("b", lease=from_seconds(LEASE)))
        async with asyncio.timeout(LIMIT):  # by the lease of the other node it would be minutes
            assert [str(await heard.get()) for _ in range(2)] == ["Heard(nodes=('b',))"] * 2
    finally:
        await engine.stop()
