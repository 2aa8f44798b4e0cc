"""The public builders, clock and engine for tests behave as documented."""

from __future__ import annotations

import asyncio
import doctest

import pytest

from headway import testing
from headway.engines import base
from headway.engines.trial import FilesInMemory
from headway.errors import EngineError, InvalidInput
from headway.model.events import Outcome
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec, flaw
from headway.model.node import node_flaw
from headway.model.tier import Tier
from headway.testing import FakeEngine, ManualClock, job, new_job, node, submission


def test_examples() -> None:
    assert doctest.testmod(testing).failed == 0


def test_builders_carry_what_is_named() -> None:
    first, second = job(), job(width=3, due=2.5, release=1)
    assert second.id == first.id + 1
    assert (first.kind, first.tasks, second.kind, second.width) == (Kind.BAG, 1, Kind.RIGID, 3)
    assert (second.due, second.release) == (2_500_000, SECOND)
    chain = job(5, graph=(TaskSpec(1), TaskSpec(1, 1, (0,))))
    assert (chain.id, chain.kind, chain.tasks) == (5, Kind.WORKFLOW, 2)
    assert [flaw(each) for each in (first, second, chain)] == [None] * 3
    assert node("a", slots=2, lease=1.5).lease == 1_500_000
    assert node_flaw(node()) is None
    assert submission().jobs == (new_job(),)
    assert submission(new_job(tasks=3, due=2), key="k").jobs[0].due == 2


def test_the_clock_stands_until_it_is_moved() -> None:
    clock, rung = ManualClock(5), list[tuple[str, int]]()
    clock.call_at(8 * SECOND, lambda: rung.append(("late", clock.now())))
    off = clock.call_at(6 * SECOND, lambda: rung.append(("off", clock.now())))
    clock.call_at(7 * SECOND, lambda: rung.append(("early", clock.now())))
    off()
    assert clock.alarms == [7, 8]
    clock.advance(2.5)
    assert rung == [("early", 7 * SECOND)]
    clock.advance(1)
    assert rung[1:] == [("late", 8 * SECOND)]
    assert clock.now() == 8_500_000
    assert clock.alarms == []


def test_the_engine_tells_what_the_test_says() -> None:
    reports: list[base.Report] = []

    async def scenario() -> None:
        found = base.Found(frozenset({(1, 0, 1)}))
        engine = FakeEngine(found)
        with pytest.raises(InvalidInput, match="an engine that was started"):
            engine.lose("n")
        assert await engine.start([node("n")], reports.append, FilesInMemory()) == found
        assert list(engine.running) == [(1, 0, 1)]
        on_n = base.Assignment(2, 0, 1, (base.Member("n", (0,), base.Command(("true",))),))
        engine.launch(on_n)
        engine.end(1, outcome=Outcome.RAISED, detail="why")
        ended = base.Ended(1, 0, 1, base.Ending(Outcome.RAISED, detail="why"))
        assert reports == [ended]
        assert engine.found() == base.Found(frozenset({(2, 0, 1)}), (ended,))
        engine.acknowledge(1, 0, 1)
        engine.lose("n")
        assert reports[1:] == [base.NodeLost("n", "the test took it")]
        assert engine.found() == base.Found()
        assert engine.launched == [on_n]

    asyncio.run(scenario())


def test_nodes_come_and_go_as_the_driver_says() -> None:
    reports: list[base.Report] = []

    async def scenario() -> None:
        engine = FakeEngine()
        await engine.start([node("n", slots=2)], reports.append, FilesInMemory())
        await engine.join(node("m"))
        assert engine.nodes == (node("n", slots=2), node("m"))
        engine.unwilling["x"] = EngineError("it does not start")
        with pytest.raises(EngineError, match="it does not start"):
            await engine.join(node("x"))
        for task, place in enumerate([("n", (0,)), ("n", (1,)), ("m", (0,))]):
            engine.launch(base.Assignment(1, task, 1, (base.Member(*place, base.Command(("true",))),)))
        engine.resize("n", 1)
        assert len(engine.running) == 3
        engine.resize("n", 1, at_once=True)
        await asyncio.sleep(0)
        assert reports == [base.Ended(1, 1, 1, base.Ending(Outcome.KILLED))]
        await engine.leave("m")
        assert (engine.nodes, list(engine.running)) == ((node("n"),), [(1, 0, 1)])
        assert len(reports) == 1

    asyncio.run(scenario())


def test_the_engine_notes_changes_of_tiers_and_what_is_to_save() -> None:
    reports: list[base.Report] = []

    async def scenario() -> None:
        engine = FakeEngine(base.Found(frozenset({(1, 0, 1), (2, 0, 1)}), background=frozenset({(2, 0, 1)})))
        await engine.start([node()], reports.append, FilesInMemory())
        assert [one.tier for one in engine.running.values()] == [Tier.FOREGROUND, Tier.BACKGROUND]
        engine.change(1, 0, 1, Tier.BACKGROUND)
        engine.change(2, 0, 1, Tier.FOREGROUND)
        engine.change(9, 0, 1, Tier.FOREGROUND)
        engine.suspend(1, 0, 1)
        assert engine.changed == [(1, 0, 1, Tier.BACKGROUND), (2, 0, 1, Tier.FOREGROUND), (9, 0, 1, Tier.FOREGROUND)]
        assert engine.suspended == [(1, 0, 1)]
        assert engine.found().background == {(1, 0, 1)}
        assert reports == []

    asyncio.run(scenario())


def test_the_instant_engine_ends_everything_well() -> None:
    reports: list[base.Report] = []

    async def scenario() -> None:
        engine = FakeEngine(instant=True)
        await engine.start([node()], reports.append, FilesInMemory())
        engine.launch(base.Assignment(2, 3, 1, ()))
        assert reports == []
        await asyncio.sleep(0)
        assert reports == [base.Ended(2, 3, 1, base.Ending(Outcome.SUCCEEDED))]

    asyncio.run(scenario())
