"""Nodes that an engine finds and loses by itself: they join, go down, come back and leave, and last over a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from headway.engines import base
from headway.model.events import (
    NodeClosed,
    NodeDown,
    NodeJoined,
    NodeLeft,
    NodeOpened,
    NodeResized,
    NodeUp,
    Outcome,
    TaskEnded,
)
from headway.model.node import Capabilities, NodeSpec
from headway.testing import FakeEngine, new_job, node

from .test_nodes import Rig, rig

pytestmark = pytest.mark.anyio

WORKER = NodeSpec("worker-1", slots=2, speed=2.0, site="dask", capabilities=Capabilities(moves=False, adopts=False))
NODE_EVENTS = (NodeJoined, NodeDown, NodeUp, NodeResized, NodeLeft)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def tell(live: Rig, *reports: base.Report) -> None:
    for report in reports:
        live.engine.report(report)
    await live.settle()


def story(live: Rig) -> list[tuple[str, str]]:
    """What happened to nodes, in order."""
    return [
        (type(event).__name__, event.node.name if isinstance(event, NodeJoined) else event.name)
        for event in live.events(*NODE_EVENTS)
        if isinstance(event, NodeJoined | NodeDown | NodeUp | NodeResized | NodeLeft)
    ]


async def test_a_found_node_is_used_at_once_and_its_loss_sends_its_tasks_elsewhere(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await live.submit(new_job(tasks=4))
        await tell(live, base.NodeFound(WORKER))
        assert live.driver.core.state.nodes["worker-1"].spec == replace(WORKER, found=True)
        assert live.running == [(1, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)]
        live.engine.lose("worker-1")
        await live.settle()
        assert live.running == [(1, 0, 1), (1, 1, 1)]
        await tell(live, base.NodeFound(WORKER))
        assert live.running == [(1, 0, 1), (1, 1, 1), (1, 2, 2), (1, 3, 2)]
        assert story(live) == [
            ("NodeJoined", "a"),
            ("NodeJoined", "worker-1"),
            ("NodeDown", "worker-1"),
            ("NodeUp", "worker-1"),
        ]


@pytest.mark.parametrize("open_again", [False, True])
async def test_on_a_closed_node_what_has_begun_goes_on_and_what_has_not_runs_elsewhere(
    tmp_path: Path, open_again: bool
) -> None:
    async with rig(tmp_path, dies=True) as live:
        await tell(live, base.NodeFound(replace(WORKER, reports_start=True)))
        await live.submit(new_job(tasks=5))
        assert live.running == [(1, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)]
        await tell(live, base.Started(1, 2, 1), base.NodeShut("worker-1", "it is draining in Slurm: new disk"))
        assert live.engine.killed == [(1, 3, 1)]
        assert live.incidents() == [("node_closed", "worker-1")]
        await live.end(1, 3, 1, Outcome.KILLED)
        await live.end(1, 0)
        assert live.running == [(1, 1, 1), (1, 2, 1), (1, 3, 2)]
        found = live.engine.found()
    found = structs.replace(found, closed=frozenset() if open_again else frozenset({"worker-1"}))
    async with rig(tmp_path, None, engine=FakeEngine(found)) as again:
        await again.settle()
        assert {(1, 1, 1), (1, 2, 1), (1, 3, 2)} <= set(again.running), "what runs there is not redone"
        if not open_again:
            await again.end(1, 2)
            assert again.running == [(1, 1, 1), (1, 3, 2)]
            await tell(again, base.NodeReady("worker-1"))
        assert (1, 4, 1) in again.running
        assert [type(event) for event in again.events(NodeClosed, NodeOpened)] == [NodeClosed, NodeOpened]


async def test_a_found_node_of_another_size_is_resized_and_one_of_other_terms_is_another_node(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await tell(live, base.NodeFound(WORKER), base.NodeFound(WORKER))
        before = live.driver.core.state.nodes["worker-1"]
        await tell(live, base.NodeFound(replace(WORKER, slots=3)))
        assert live.driver.core.state.nodes["worker-1"] is before
        await tell(live, base.NodeFound(replace(WORKER, slots=3, speed=1.0)))
        assert live.driver.core.state.nodes["worker-1"].spec.speed == 1.0
        assert [kind for kind, _ in story(live)] == [
            "NodeJoined",
            "NodeJoined",
            "NodeResized",
            "NodeLeft",
            "NodeJoined",
        ]


async def test_a_node_that_has_left_for_good_costs_its_tasks_no_try(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await tell(live, base.NodeFound(WORKER))
        await live.submit(new_job(tasks=3, retries=0))
        await tell(live, base.NodeGone("worker-1", "the pool shrinks"))
        assert list(live.driver.core.state.nodes) == ["a"]
        await live.end(1, 0)
        await live.end(1, 1)
        assert live.running == [(1, 2, 2)]
        await live.end(1, 2, 2)
        assert live.driver.open == {}


async def test_a_name_that_was_added_is_not_taken_over(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await tell(live, base.NodeFound(node("a", slots=7)), base.NodeFound(node("", slots=1)))
        assert live.sizes == {"a": 2}
        assert live.incidents() == [("name_taken", "a"), ("node_refused", "")]


async def test_an_operator_who_removes_a_found_node_ends_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await tell(live, base.NodeFound(WORKER))
        live.engine.nodes += (WORKER,)
        await live.nodes.remove("worker-1")
        assert live.sizes == {"a": 2}
        assert [one.name for one in live.engine.nodes] == ["a"]


@pytest.mark.parametrize("named", [None, (node("a", slots=2),)], ids=["as before", "by a cluster file"])
async def test_after_a_crash_a_found_node_that_is_there_again_is_the_same_node(tmp_path: Path, named: object) -> None:
    async with rig(tmp_path, dies=True) as live:
        await tell(live, base.NodeFound(WORKER))
        await live.submit(new_job(tasks=4))
        places = live.driver.core.state.nodes["worker-1"].places
    async with rig(tmp_path, named, engine=FakeEngine(live.engine.found())) as again:
        assert [one.name for one in again.engine.nodes] == ["a", "worker-1"], "it is named to the engine"
        assert again.driver.core.state.nodes["worker-1"].places == places
        assert again.running == [(1, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)]
        assert story(again) == [("NodeJoined", "a"), ("NodeJoined", "worker-1")]


async def test_after_a_crash_a_found_node_that_is_not_there_is_down_until_it_is_found(tmp_path: Path) -> None:
    async with rig(tmp_path, dies=True) as live:
        await tell(live, base.NodeFound(WORKER))
        await live.submit(new_job(tasks=4, retries=0))
    kept = frozenset({(1, 0, 1), (1, 1, 1)})
    engine = FakeEngine(base.Found(kept, absent=frozenset({"worker-1"})))
    async with rig(tmp_path, None, engine=engine) as again:
        await again.settle()
        assert again.running == [(1, 0, 1), (1, 1, 1)], "what ran there waits, and nothing is sent there"
        ends = [event.outcome for event in again.events(TaskEnded) if isinstance(event, TaskEnded)]
        assert ends == [Outcome.KILLED] * 2, "a node that adopts nothing costs no try"
        await tell(again, base.NodeFound(WORKER))
        assert again.running == [(1, 0, 1), (1, 1, 1), (1, 2, 2), (1, 3, 2)]
        assert [kind for kind, name in story(again) if name == "worker-1"] == ["NodeJoined", "NodeDown", "NodeUp"]


async def test_a_find_that_a_crash_hid_is_made_again(tmp_path: Path) -> None:
    """The report came, and the server died before its turn: the engine finds the node again at the next start."""
    async with rig(tmp_path, dies=True) as live:
        live.engine.report(base.NodeFound(WORKER))
    async with rig(tmp_path, None) as again:
        assert list(again.driver.core.state.nodes) == ["a"]
        await tell(again, base.NodeFound(WORKER))
        await asyncio.sleep(0)
        assert list(again.driver.core.state.nodes) == ["a", "worker-1"]
