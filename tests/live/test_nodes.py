"""Nodes are added, drained, removed and resized while jobs run: requests, starts, and calls of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from headway import wire
from headway.engines import base
from headway.errors import Conflict, EngineError, HeadwayError, InvalidInput, NameTaken, NoSuchNode
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal, JournalFull
from headway.model.actions import JobStatus
from headway.model.events import Event, Incident, NodeDrained, NodeJoined, NodeLeft, NodeResized, Outcome
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

pytestmark = pytest.mark.anyio

A2 = (node("a", slots=2),)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Rig:
    """A driver with a fake engine."""

    def __init__(self, driver: Driver, engine: FakeEngine, journal: Journal) -> None:
        self.driver, self.engine, self.journal = driver, engine, journal
        self.nodes = driver.nodes

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        for _ in range(8):
            await asyncio.sleep(0)

    async def submit(self, *jobs: wire.NewJob) -> None:
        await self.driver.submit("me", submission(*jobs))
        await self.settle()

    async def end(self, job: int, task: int = 0, attempt: int = 1, *outcome: Outcome) -> None:
        self.engine.end(job, task, attempt, *outcome)
        await self.settle()

    @property
    def running(self) -> list[base.AttemptKey]:
        return sorted(self.engine.running)

    @property
    def sizes(self) -> dict[str, int]:
        """The slots of each node in service; checks that the engine has the same."""
        known = {name: view.spec.slots for name, view in self.driver.core.state.nodes.items()}
        assert {node.name: node.slots for node in self.engine.nodes} == known
        return known

    def events(self, *kinds: type[Event]) -> list[Event]:
        return [event for _, event in self.journal.events() if isinstance(event, kinds)]

    def incidents(self) -> list[tuple[str, str]]:
        return [(event.kind, event.subject) for event in self.events(Incident) if isinstance(event, Incident)]


@asynccontextmanager
async def rig(
    folder: Path, nodes: Any = A2, *, engine: FakeEngine | None = None, dies: bool = False, **more: Any
) -> AsyncIterator[Rig]:
    """A driver on a folder. Unless it dies, it is stopped in order at the end, and the core's state is checked."""
    with closing(Journal(folder)) as journal:
        engine = engine or FakeEngine()
        driver = Driver(journal, engine, ManualClock(), find, DriverSettings(policy="fcfs", read_ahead=3))
        await driver.start(nodes, **more)
        yield Rig(driver, engine, journal)
        driver.core.check()
        if not dies:
            await driver.stop()


async def test_a_node_that_is_added_is_used_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await live.submit(new_job(tasks=4))
        change = await live.nodes.add(wire.NewNode("b", 1, 2.0, kind="fast"))
        assert change == wire.NodeChange("b", True)
        await live.settle()
        assert live.running == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]
        assert live.engine.running[1, 2, 1].members[0].node == "b"
        assert live.driver.core.state.nodes["b"].spec == node("b", speed=2.0, kind="fast", read_ahead=3)


async def test_the_engine_has_a_node_before_the_core_does_and_until_after_it_has_not(tmp_path: Path) -> None:
    order: list[str] = []

    class Engine(FakeEngine):
        async def join(self, node: Any) -> None:
            await super().join(node)
            order.append(f"joins, known: {node.name in live.driver.core.state.nodes}")

        async def leave(self, name: str) -> None:
            left = len(live.events(NodeLeft))
            order.append(f"leaves, known: {name in live.driver.core.state.nodes}, durable: {left}")
            await super().leave(name)

    async with rig(tmp_path, engine=Engine()) as live:
        await live.nodes.add(wire.NewNode("b"))
        await live.nodes.remove("b")
        assert order == ["joins, known: False", "leaves, known: False, durable: 1"]
        assert live.sizes == {"a": 2}


async def test_the_same_node_again_is_answered_as_done_and_another_of_its_name_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await live.nodes.add(wire.NewNode("b", 2))
        assert await live.nodes.add(wire.NewNode("b", 2)) == wire.NodeChange("b", False)
        with pytest.raises(Conflict, match="the name 'b' is taken by a node of other terms: slots 2, speed 1") as taken:
            await live.nodes.add(wire.NewNode("b", 3))
        assert "`headway node resize` changes its slots" in taken.value.hint
        await live.settle()
        assert live.incidents() == [("name_taken", "b")]
        assert live.sizes == {"a": 2, "b": 2}


async def test_two_that_want_one_name_at_once_do_not_both_get_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        both = (live.nodes.add(wire.NewNode("b", 1)), live.nodes.add(wire.NewNode("b", 2)))
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert (first, type(second)) == (wire.NodeChange("b", True), Conflict)
        assert live.sizes == {"a": 2, "b": 1}


async def test_a_node_whose_name_another_process_has_is_not_added(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        live.engine.unwilling["b"] = NameTaken("b", "a process that has another driver")
        with pytest.raises(Conflict, match="the name 'b' is taken by a process that has another driver"):
            await live.nodes.add(wire.NewNode("b"))
        await live.settle()
        assert live.incidents() == [("name_taken", "b")]
        live.engine.unwilling["c"] = EngineError("node 'c' does not start")
        with pytest.raises(HeadwayError, match="node 'c' does not start"):
            await live.nodes.add(wire.NewNode("c"))
        assert live.sizes == {"a": 2}
        assert live.events(NodeJoined) == [NodeJoined(0, A2[0])]


async def test_a_start_that_finds_a_name_taken_says_so_in_the_journal(tmp_path: Path) -> None:
    class Engine(FakeEngine):
        async def start(self, nodes: Any, report: Any, files: Any) -> base.Found:
            raise NameTaken("a", "a process that has another driver")

    with closing(Journal(tmp_path)) as journal:
        driver = Driver(journal, Engine(), ManualClock(), find)
        with pytest.raises(NameTaken):
            await driver.start(A2)
        (event,) = [event for _, event in journal.events()]
    assert event == Incident(0, "name_taken", "a", "the name 'a' is taken by a process that has another driver")


@pytest.mark.parametrize("terms", [{"name": ""}, {"slots": 0}, {"speed": -1.0}, {"cores": 0}, {"lease": 0}])
async def test_a_node_with_a_wrong_term_is_refused(tmp_path: Path, terms: dict[str, Any]) -> None:
    async with rig(tmp_path) as live:
        with pytest.raises(HeadwayError, match=f"{next(iter(terms))} is .*; allowed: "):
            await live.nodes.add(wire.NewNode(**{"name": "b", **terms}))
        assert live.sizes == {"a": 2}


async def test_a_node_that_drains_leaves_with_its_last_task(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b"))) as live:
        await live.submit(new_job(tasks=5))
        assert await live.nodes.drain("a") == wire.NodeChange("a", True)
        assert await live.nodes.drain("a") == wire.NodeChange("a", False)
        with pytest.raises(Conflict, match="the name 'a' is taken by a node that drains"):
            await live.nodes.add(wire.NewNode("a", 2))
        with pytest.raises(Conflict, match="node 'a' drains"):
            await live.nodes.resize("a", wire.NodeSize(5))
        await live.end(1, 0)
        assert live.running == [(1, 1, 1), (1, 2, 1)]
        assert live.sizes == {"a": 2, "b": 1}
        await live.end(1, 1)
        assert live.sizes == {"b": 1}
        await live.nodes.add(wire.NewNode("a", 2))
        await live.settle()
        assert live.running == [(1, 2, 1), (1, 3, 1), (1, 4, 1)]
        assert live.events(NodeLeft) == []


async def test_a_node_that_is_removed_takes_nothing_with_it_for_good(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b"))) as live:
        await live.submit(new_job(tasks=3))
        assert await live.nodes.remove("a") == wire.NodeChange("a", True, redone=2)
        assert live.sizes == {"b": 1}
        for key in ((1, 2, 1), (1, 0, 2), (1, 1, 2)):
            assert live.running == [key]
            await live.end(*key)
        assert live.driver.journal.job(1).status is JobStatus.SUCCEEDED  # type: ignore[union-attr]


async def test_a_gang_of_which_one_node_is_removed_is_redone(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b"), node("c"))) as live:
        await live.submit(new_job(kind="rigid", width=3))
        left = asyncio.Event()
        leave = live.engine.leave

        async def slowly(name: str) -> None:
            await left.wait()
            await leave(name)

        live.engine.leave = slowly  # type: ignore[method-assign]
        removed = asyncio.ensure_future(live.nodes.remove("b"))
        await live.settle()
        assert not removed.done(), "something of it is left"
        left.set()
        assert await removed == wire.NodeChange("b", True, redone=1)
        await live.settle()
        assert {member.node for member in live.engine.running[1, 0, 2].members} == {"a", "c"}


async def test_the_last_node_stays(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b"))) as live:
        await live.submit(new_job(tasks=3))
        await live.nodes.drain("a")
        for wanted in (live.nodes.drain("b"), live.nodes.remove("b")):
            with pytest.raises(Conflict, match="node 'b' is the last one, for all others drain") as refused:
                await wanted
            assert refused.value.hint == "Add another first: `headway node add NAME --slots N`."
        await live.nodes.remove("a")
        with pytest.raises(Conflict, match="node 'b' is the last one\nAdd"):
            await live.nodes.remove("b")
        await live.settle()
        assert live.incidents() == [("last_node", "b")] * 3
        assert live.sizes == {"b": 1}
        await live.nodes.add(wire.NewNode("c"))
        await live.nodes.remove("b")
        assert live.sizes == {"c": 1}


async def test_two_last_nodes_cannot_both_be_drained_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b"))) as live:
        both = (live.nodes.drain("a"), live.nodes.drain("b"))
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert (first, type(second)) == (wire.NodeChange("a", True), Conflict)
        await live.settle()
        assert live.sizes == {"b": 1}


async def test_a_node_that_nobody_knows(tmp_path: Path) -> None:
    async with rig(tmp_path, (node("alpha"), node("beta"))) as live:
        for wanted in (
            live.nodes.drain("alpa"),
            live.nodes.remove("alpa"),
            live.nodes.resize("alpa", wire.NodeSize(2)),
        ):
            with pytest.raises(NoSuchNode, match="there is no node 'alpa'") as unknown:
                await wanted
            assert unknown.value.hint == "Did you mean alpha?"


async def test_a_node_gets_more_slots_and_fewer(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await live.submit(new_job(tasks=9))
        assert await live.nodes.resize("a", wire.NodeSize(3)) == wire.NodeChange("a", True)
        await live.settle()
        assert live.engine.running[1, 2, 1].members[0].slots == (2,)
        assert await live.nodes.resize("a", wire.NodeSize(3)) == wire.NodeChange("a", False)
        assert await live.nodes.resize("a", wire.NodeSize(2)) == wire.NodeChange("a", True)
        await live.end(1, 2)
        assert live.running == [(1, 0, 1), (1, 1, 1)]
        assert await live.nodes.resize("a", wire.NodeSize(1, at_once=True)) == wire.NodeChange("a", True, redone=1)
        await live.settle()
        assert live.running == [(1, 0, 1)]
        await live.end(1, 0)
        assert live.running == [(1, 1, 2)]
        with pytest.raises(InvalidInput, match="slots is 0; allowed: 1 or more") as none:
            await live.nodes.resize("a", wire.NodeSize(0))
        assert "headway node drain a" in none.value.hint
        recorded = live.driver.recorded
        with pytest.raises(InvalidInput, match="slots is 1000000000; allowed: 1 to 1000000"):
            await live.nodes.resize("a", wire.NodeSize(10**9))
        assert live.sizes == {"a": 1}
        assert live.driver.recorded == recorded


async def test_slots_are_there_before_anything_is_launched_on_them(tmp_path: Path) -> None:
    order: list[str] = []

    class Engine(FakeEngine):
        def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
            order.append(f"{name} has {slots}, durable: {len(live.events(NodeResized))}")
            super().resize(name, slots, at_once=at_once)

        def launch(self, assignment: base.Assignment) -> None:
            order.append(f"slot {assignment.members[0].slots[0]}")
            super().launch(assignment)

    async with rig(tmp_path, (node("a"),), engine=Engine()) as live:
        await live.submit(new_job(tasks=2))
        await live.nodes.resize("a", wire.NodeSize(2))
        assert order == ["slot 0", "a has 2, durable: 1", "slot 1"]


async def test_jobs_that_fit_no_more_are_named_and_wait(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b", slots=2))) as live:
        plan = (wire.PlannedTask(1, cores=2),)
        await live.submit(
            new_job(kind="rigid", width=4),
            new_job(kind="rigid", width=3),
            new_job(kind="workflow", tasks=1, plan=plan),
            new_job(tasks=9),
        )
        change = await live.nodes.resize("b", wire.NodeSize(1))
        assert change.unfit == (), "job 1 runs, and there is room for the others"
        change = await live.nodes.drain("a")
        assert change.unfit == (2, 3)
        await live.end(1)
        await live.settle()
        assert live.sizes == {"b": 1}
        assert (await live.nodes.add(wire.NewNode("c", 3))).changed
        await live.settle()
        assert (2, 0, 1) in live.running


async def test_a_gang_that_is_cut_and_can_never_run_again_is_named(tmp_path: Path) -> None:
    """It runs until the engine has ended it, but it is already known that it will wait for ever."""
    async with rig(tmp_path, (*A2, node("b", slots=2))) as live:
        await live.submit(new_job(kind="rigid", width=4))
        change = await live.nodes.resize("b", wire.NodeSize(1, at_once=True))
        assert live.driver.core.state.jobs[1].attempts[0].ending
        assert change == wire.NodeChange("b", True, redone=1, unfit=(1,))
        await live.settle()
        assert live.running == []
        assert await live.nodes.resize("b", wire.NodeSize(2)) == wire.NodeChange("b", True)
        await live.settle()
        assert live.running == [(1, 0, 2)]
        assert await live.nodes.remove("b") == wire.NodeChange("b", True, redone=1, unfit=(1,))


class Full(Journal):
    """A journal that is full while the test says so."""

    full = False

    def write(self, batch: Any) -> None:
        if self.full:
            raise JournalFull("the disk is full")
        super().write(batch)


async def test_on_a_full_disk_nothing_changes(tmp_path: Path) -> None:
    with closing(Full(tmp_path)) as journal:
        engine = FakeEngine()
        driver = Driver(journal, engine, ManualClock(), find)
        await driver.start((*A2, node("b")))
        live = Rig(driver, engine, journal)
        journal.full = True
        with pytest.raises(JournalFull):
            await live.nodes.add(wire.NewNode("c"))
        journal.full = False
        await live.driver.stop()
        assert {node.name for node in live.engine.nodes} == {"a", "b"}


async def test_a_gang_that_loses_a_node_while_the_disk_is_full_is_redone_when_it_is_not(tmp_path: Path) -> None:
    with closing(Full(tmp_path)) as journal:
        engine, clock = FakeEngine(), ManualClock()
        driver = Driver(journal, engine, clock, find)
        await driver.start((node("a"), node("b"), node("c")))
        live = Rig(driver, engine, journal)
        await live.submit(new_job(kind="rigid", width=2))
        journal.full = True
        removal = asyncio.ensure_future(live.nodes.remove("b"))
        engine.lose("a")
        await live.settle()
        with pytest.raises(JournalFull):
            await removal
        journal.full = False
        clock.advance(2)
        await live.settle()
        assert {member.node for member in live.engine.running[1, 0, 2].members} == {"b", "c"}
        await driver.stop()


# Starts


async def test_a_start_without_names_takes_the_nodes_there_were(tmp_path: Path) -> None:
    async with rig(tmp_path, None, first=A2) as live:
        assert live.sizes == {"a": 2}
        await live.nodes.add(wire.NewNode("b", 1))
        await live.nodes.resize("a", wire.NodeSize(3))
    async with rig(tmp_path, None, first=A2) as live:
        assert live.sizes == {"a": 3, "b": 1}
        await live.nodes.remove("a")
    async with rig(tmp_path, None, first=A2) as live:
        assert live.sizes == {"b": 1}


async def test_a_start_with_names_takes_exactly_those(tmp_path: Path) -> None:
    async with rig(tmp_path) as live:
        await live.nodes.add(wire.NewNode("b", 1))
    async with rig(tmp_path, (node("b", speed=2.0), node("c"))) as live:
        assert live.sizes == {"b": 1, "c": 1}
        assert live.driver.core.state.nodes["b"].spec.speed == 2.0


async def test_a_node_named_with_other_slots_keeps_what_runs_there(tmp_path: Path) -> None:
    async with rig(tmp_path, (node("a", slots=3),), dies=True) as live:
        await live.submit(new_job(tasks=4))
        found = live.engine.found()
    async with rig(tmp_path, (node("a", slots=1),), engine=FakeEngine(found)) as live:
        assert live.sizes == {"a": 1}
        assert live.running == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]
        assert live.events(NodeLeft) == []
        for task in (1, 2):
            await live.end(1, task)
            assert (1, 3, 1) not in live.running
        await live.end(1, 0)
        assert live.running == [(1, 3, 1)]


@pytest.mark.parametrize("named", [False, True])
async def test_a_drain_goes_on_after_a_crash(tmp_path: Path, named: bool) -> None:
    nodes = (*A2, node("b"))
    async with rig(tmp_path, nodes, dies=True) as live:
        await live.submit(new_job(tasks=9))
        await live.nodes.drain("a")
        found = live.engine.found()
    async with rig(tmp_path, nodes if named else None, engine=FakeEngine(found)) as live:
        assert live.sizes == {"a": 2, "b": 1}
        await live.end(1, 0)
        assert (1, 3, 1) not in live.running
        await live.end(1, 1)
        assert live.sizes == {"b": 1}
        assert live.events(NodeDrained) == [NodeDrained(0, "a")]


async def test_a_drain_ends_with_an_orderly_stop(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b"))) as live:
        await live.submit(new_job(tasks=9))
        await live.nodes.drain("a")
    async with rig(tmp_path, None) as live:
        await live.settle()
        assert live.sizes == {"b": 1}
        assert [(job, attempt) for job, _, attempt in live.running] == [(1, 2)]


async def test_a_node_that_drained_is_back_if_it_is_the_only_one_named(tmp_path: Path) -> None:
    async with rig(tmp_path, (*A2, node("b")), dies=True) as live:
        await live.submit(new_job(tasks=3))
        await live.nodes.drain("a")
        found = live.engine.found()
    async with rig(tmp_path, A2, engine=FakeEngine(found)) as live:
        assert not live.driver.core.state.nodes["a"].draining
        assert live.sizes == {"a": 2}
        assert sorted(live.engine.killed) == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]
