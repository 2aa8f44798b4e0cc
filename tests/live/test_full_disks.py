"""A task that waited in vain for room on a full disk is run again where there may be room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from headway.engines import base
from headway.live.driver import Driver, DriverSettings
from headway.live.outside import Surroundings
from headway.live.sites import ONE_ENGINE
from headway.live.store.journal import Journal
from headway.model.events import Incident, NodeClosed, NodeOpened, Outcome
from headway.model.node import NodeSpec
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node

from .test_driver import Rig

pytestmark = pytest.mark.anyio

FULL = "outputs['o'] is 'headway:o': No space left on device"
HERE, FAR, FARTHER = node("a"), NodeSpec("w1", site="farm"), NodeSpec("w2", site="farm")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class OneFarm(type(ONE_ENGINE)):  # type: ignore[misc]
    """A site of nodes that each have a disk, beside this machine."""

    def disk_of(self, one: NodeSpec) -> str:
        return one.name if one.site == "farm" else ""


@asynccontextmanager
async def rig(folder: Path, *nodes: NodeSpec, policy: str = "fcfs") -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        engine, clock = FakeEngine(), ManualClock()
        surroundings = Surroundings(sites=OneFarm())
        driver = Driver(journal, engine, clock, find, DriverSettings(policy=policy), surroundings=surroundings)
        await driver.start(nodes)
        yield Rig(driver, engine, clock, journal)
        driver.core.check()
        await driver.stop()


async def full(live: Rig, attempt: int, *, gives_up: bool = True) -> str:
    """The attempt waits for room, and is given up; returns the node where it was."""
    where: str = live.engine.running[1, 0, attempt].members[0].node
    live.engine.report(base.Stalled(1, 0, attempt, FULL, where))
    await live.settle()
    if not gives_up:
        live.engine.report(base.Stalled(1, 0, attempt, "", where))
    await live.end(1, 0, attempt, Outcome.REFUSED, outside=True, detail=FULL)
    return where


def open_nodes(live: Rig) -> set[str]:
    return {name for name, view in live.driver.core.state.nodes.items() if view.may_start}


@pytest.mark.parametrize("policy", ["fcfs", "easy", "edf", "tempo:strict=false", "conservative"])
async def test_it_goes_to_another_node_and_later_tasks_are_tried_there_again(tmp_path: Path, policy: str) -> None:
    async with rig(tmp_path, FAR, FARTHER, policy=policy) as live:
        await live.submit(new_job())
        first = await full(live, 1)
        (other,) = {"w1", "w2"} - {first}
        assert live.engine.running[1, 0, 2].members[0].node == other
        assert open_nodes(live) == {other}
        said = f"for a minute, because its disk is full: {FULL}"
        assert ("node_closed", first, said) in [
            (one.kind, one.subject, one.detail) for one in live.events(Incident) if isinstance(one, Incident)
        ]
        await live.advance(59)
        assert open_nodes(live) == {other}
        await live.advance(1)
        assert open_nodes(live) == {"w1", "w2"}
        await live.end(1, 0, 2)


async def test_where_no_other_disk_is_known_it_is_tried_where_it_was(tmp_path: Path) -> None:
    """Nodes of the server's machine have one disk. Tasks that need no disk go on there."""
    async with rig(tmp_path, HERE, node("b")) as live:
        await live.submit(new_job())
        for attempt in range(1, 4):
            await full(live, attempt)
            assert (1, 0, attempt + 1) in live.running
        assert live.events(NodeClosed) == []


async def test_nodes_of_one_disk_are_closed_together(tmp_path: Path) -> None:
    async with rig(tmp_path, HERE, node("b"), FAR) as live:
        await live.submit(new_job())
        assert await full(live, 1) == "a"
        assert live.engine.running[1, 0, 2].members[0].node == "w1"
        assert open_nodes(live) == {"w1"}
        assert await full(live, 2) == "w1"
        assert live.engine.running[1, 0, 3].members[0].node == "w1", "no other is open"


async def test_a_node_that_had_room_in_the_end_stays_open(tmp_path: Path) -> None:
    """What a task wrote itself went with it."""
    async with rig(tmp_path, FAR, FARTHER) as live:
        await live.submit(new_job())
        await full(live, 1, gives_up=False)
        assert live.events(NodeClosed) == []


async def test_a_node_that_its_engine_has_closed_meanwhile_stays_so(tmp_path: Path) -> None:
    async with rig(tmp_path, FAR, FARTHER) as live:
        await live.submit(new_job())
        first = await full(live, 1)
        live.engine.report(base.NodeShut(first, "it is draining"))
        await live.advance(61)
        assert first not in open_nodes(live)
        live.engine.report(base.NodeReady(first))
        await live.settle()
        assert open_nodes(live) == {"w1", "w2"}
        assert len(live.events(NodeOpened)) == 1


async def test_after_a_restart_it_is_open(tmp_path: Path) -> None:
    async with rig(tmp_path, FAR, FARTHER) as live:
        await live.submit(new_job())
        first = await full(live, 1)
        assert first not in open_nodes(live)
    async with rig(tmp_path, FAR, FARTHER) as again:
        assert open_nodes(again) == {"w1", "w2"}
