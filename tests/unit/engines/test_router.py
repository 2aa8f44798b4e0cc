"""A router of two engines: who gets what, and what becomes of the nodes of an engine that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from headway.engines import base
from headway.engines.router import Router
from headway.engines.trial import FilesInMemory
from headway.errors import EngineError, InvalidInput, NameTaken, NoSuchOutput
from headway.model.node import Capabilities, NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier
from headway.testing import FakeEngine, node

pytestmark = pytest.mark.anyio

NODES = (node("a", slots=2, site="east"), node("b", site="west"), node("c", site="west"))
WORK = base.Command(("true",))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Mortal(FakeEngine):
    """An engine that can be gone: then it cannot start, and can do nothing.

    Attributes:
        gone: whether it is.
        refuses: it refuses to start, because of what it was told.
        starts: the names of the nodes of each start.
    """

    def __init__(self, found: base.Found = base.Found()) -> None:  # noqa: B008  # frozen
        super().__init__(found)
        self.gone = self.refuses = False
        self.starts: list[list[str]] = []

    def see(self) -> None:
        if self.gone:
            raise EngineError("the connection is closed")

    async def start(self, nodes: Iterable[NodeSpec], report: Any, files: base.Files) -> base.Found:
        nodes = tuple(nodes)
        self.see()
        if self.refuses:
            raise InvalidInput("partition", "mian", "main")
        self.starts.append([node.name for node in nodes])
        return await super().start(nodes, report, files)

    def launch(self, assignment: base.Assignment) -> None:
        self.see()
        super().launch(assignment)

    def kill(self, job: int, task: int, attempt: int) -> None:
        self.see()
        super().kill(job, task, attempt)


class Rig:
    """A router of two engines, and what it has reported."""

    def __init__(self, plain: str = "") -> None:
        self.east, self.west = Mortal(), Mortal()
        self.router = Router({"east": self.east, "west": self.west}, plain=plain, pauses=(0.0, 0.0))
        self.told: list[base.Report] = []

    async def start(self, *nodes: NodeSpec) -> base.Found:
        return await self.router.start(nodes or NODES, self.told.append, FilesInMemory())

    def launch(self, number: int, *names: str) -> base.AttemptKey:
        members = tuple(base.Member(name, (0,), WORK) for name in names)
        self.router.launch(base.Assignment(number, 0, 1, members))
        return (number, 0, 1)

    async def reports(self) -> list[base.Report]:
        """What was reported since this was last asked, when nothing more happens by itself."""
        for _ in range(12):
            await asyncio.sleep(0)
        told, self.told[:] = list(self.told), []
        return told


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_each_engine_gets_its_nodes_and_what_is_to_run_there(rig: Rig) -> None:
    await rig.start()
    assert (rig.east.starts, rig.west.starts) == ([["a"]], [["b", "c"]])
    first, second = rig.launch(1, "a"), rig.launch(2, "b", "c")
    assert (list(rig.east.running), list(rig.west.running)) == ([first], [second])
    rig.router.change(*second, Tier.BACKGROUND)
    rig.router.suspend(*first)
    rig.router.kill(*second)
    assert (rig.east.suspended, rig.east.killed, rig.east.changed) == ([first], [], [])
    assert (rig.west.suspended, rig.west.killed, rig.west.changed) == ([], [second], [(*second, Tier.BACKGROUND)])
    rig.west.end(*second)
    assert [type(report) for report in await rig.reports()] == [base.Ended]
    rig.router.acknowledge(*second)
    rig.router.forget(2)
    assert (rig.east.acknowledged, rig.west.acknowledged) == ([], [second])
    assert rig.east.forgotten == rig.west.forgotten == [(2, None)], "it may have run anywhere"
    await rig.router.stop()
    assert (rig.east.stopped, rig.west.stopped) == (True, True)


async def test_a_gang_on_nodes_of_two_engines_is_refused(rig: Rig) -> None:
    await rig.start()
    key = rig.launch(1, "a", "b")
    (ended,) = await rig.reports()
    assert isinstance(ended, base.Ended)
    assert (ended.key, ended.ending.outcome) == (key, Outcome.REFUSED)
    said = "its members are on nodes of several engines: east, west. What starts together runs within one engine."
    assert ended.ending.detail.startswith(said)
    assert rig.east.running == rig.west.running == {}


async def test_nodes_join_leave_and_change_their_size_where_they_belong(rig: Rig) -> None:
    await rig.start()
    await rig.router.join(node("d", site="west"))
    rig.router.resize("d", 3)
    await rig.router.leave("b")
    assert [(one.name, one.slots) for one in rig.west.nodes] == [("c", 1), ("d", 3)]
    assert [one.name for one in rig.east.nodes] == ["a"]
    with pytest.raises(NameTaken, match="'d' is taken by a node of engine 'west'"):
        await rig.router.join(node("d", site="east"))
    with pytest.raises(InvalidInput, match="site of node 'e' is 'north'; allowed: one of east, west"):
        await rig.router.join(node("e", site="north"))
    key = rig.launch(1, "b")
    (lost,) = await rig.reports()
    assert isinstance(lost, base.Ended)
    assert (lost.key, lost.ending.outcome) == (key, Outcome.LOST)


async def test_an_engine_that_is_gone_takes_down_only_its_own_nodes_and_comes_back(rig: Rig) -> None:
    await rig.start()
    kept, lost = rig.launch(1, "a"), rig.launch(2, "b")
    rig.west.gone = True
    rig.launch(3, "c")
    assert await rig.reports() == [
        base.Noticed("engine_gone", "west", "the connection is closed"),
        base.NodeLost("b", "its engine 'west' is gone"),
        base.NodeLost("c", "its engine 'west' is gone"),
    ]
    rig.router.kill(*kept)
    rig.router.kill(*lost)
    assert (rig.east.killed, rig.west.killed) == ([kept], [])
    rig.west.report(base.Ended(*lost, base.Ending(Outcome.SUCCEEDED)))
    assert await rig.reports() == [], "what an engine says that was given up does not count"
    with pytest.raises(EngineError, match="engine 'west', to which node 'd' belongs, is gone"):
        await rig.router.join(node("d", site="west"))

    rig.router.resize("c", 4)
    await rig.router.leave("b")
    rig.west._found = base.Found(frozenset({lost}))
    rig.west.gone = False
    assert await rig.reports() == [base.NodeBack("c")]
    assert [(one.name, one.slots) for one in rig.west.nodes] == [("c", 4)]
    assert rig.west.killed == [lost], "it is redone elsewhere"
    rig.west.end(*lost, Outcome.KILLED)
    assert await rig.reports() == []
    assert rig.west.acknowledged == [lost]
    again = rig.launch(4, "c")
    assert again in rig.west.running
    assert list(rig.east.running) == [kept], "the other engine has noticed nothing"


async def test_an_engine_that_does_not_start_is_absent_until_it_does(rig: Rig) -> None:
    rig.west.gone = True
    rig.east._found = base.Found(frozenset({(1, 0, 1)}))
    assert await rig.start() == base.Found(frozenset({(1, 0, 1)}), absent=frozenset({"b", "c"}))
    assert await rig.reports() == [base.Noticed("engine_gone", "west", "the connection is closed")]
    rig.router.kill(1, 0, 1)
    assert rig.east.killed == [(1, 0, 1)], "what was found is known"
    rig.west.gone = False
    assert sorted(await rig.reports(), key=repr) == [base.NodeBack("b"), base.NodeBack("c")]


async def test_if_no_engine_starts_the_router_does_not(rig: Rig) -> None:
    rig.east.gone = rig.west.gone = True
    with pytest.raises(EngineError, match="the connection is closed"):
        await rig.start()


async def test_a_found_node_belongs_to_the_engine_that_found_it(rig: Rig) -> None:
    await rig.start()
    found = node("w", slots=2, site="anywhere")
    rig.west.report(base.NodeFound(found))
    key = rig.launch(1, "w")
    assert key in rig.west.running
    rig.east.report(base.NodeFound(found))
    rig.west.report(base.NodeGone("w"))
    said = "engine 'east' finds a node with this name: it is not used"
    assert await rig.reports() == [
        base.NodeFound(replace(found, site="west", capabilities=Capabilities(spans=False))),
        base.Noticed("name_taken", "w", said),
        base.NodeGone("w"),
    ]
    rig.launch(2, "w")
    (lost,) = await rig.reports()
    assert isinstance(lost, base.Ended)
    assert lost.ending.outcome is Outcome.LOST


async def test_who_is_gone_is_known_with_the_cause_until_it_is_back(rig: Rig) -> None:
    rig.east.gone = True
    await rig.start()
    assert rig.router.gone == {"east": "the connection is closed"}
    rig.east.gone = False
    await rig.reports()
    assert rig.router.gone == {}
    rig.west.gone = True
    rig.launch(1, "b")
    assert rig.router.gone == {"west": "the connection is closed"}
    with pytest.raises(EngineError, match="output 'west:x' cannot be read now: engine west is gone"):
        await rig.router.read("west:x", 0, 9)


async def test_an_engine_whose_system_does_not_answer_is_said_though_it_goes_on() -> None:
    class Asking(Mortal):
        silence = ""

    west = Asking()
    router = Router({"east": Mortal(), "west": west})
    await router.start(NODES, lambda report: None, FilesInMemory())
    assert router.gone == {}
    west.silence = "the controller is down"
    assert router.gone == {"west": "the controller is down"}
    await router.stop()


async def test_a_patient_one_starts_also_if_no_engine_does(rig: Rig) -> None:
    east = Mortal()
    east.gone = True
    router = Router({"east": east}, patient=True, pauses=(0.0, 0.0))
    told: list[base.Report] = []
    found = await router.start(NODES[:1], told.append, FilesInMemory())
    assert found.absent == {"a"}
    east.gone = False
    for _ in range(12):
        await asyncio.sleep(0)
    assert told == [base.Noticed("engine_gone", "east", "the connection is closed"), base.NodeBack("a")]
    await router.stop()


async def test_what_an_engine_refuses_is_said_with_its_site(rig: Rig) -> None:
    rig.west.refuses = True
    with pytest.raises(InvalidInput, match="partition of site 'west' is 'mian'; allowed: main"):
        await rig.start()


async def test_a_patient_one_starts_without_an_engine_that_refuses_what_it_once_took() -> None:
    east, west = Mortal(), Mortal()
    west.refuses = True
    router = Router({"east": east, "west": west}, patient=True, pauses=(0.0, 0.0))
    told: list[base.Report] = []
    found = await router.start(NODES, told.append, FilesInMemory())
    assert (found.absent, east.starts) == ({"b", "c"}, [["a"]])
    assert router.gone == {"west": "partition of site 'west' is 'mian'; allowed: main"}
    west.refuses = False
    for _ in range(12):
        await asyncio.sleep(0)
    assert router.gone == {}
    assert base.NodeBack("b") in told
    await router.stop()


async def test_an_engine_that_is_gone_is_tried_again_whatever_it_says(rig: Rig) -> None:
    rig.west.gone = True
    await rig.start()
    rig.west.gone, rig.west.refuses = False, True
    await rig.reports()
    assert rig.router.gone == {"west": "partition of site 'west' is 'mian'; allowed: main"}
    rig.west.refuses = False
    assert sorted(await rig.reports(), key=repr) == [base.NodeBack("b"), base.NodeBack("c")]


async def test_a_plain_engine_names_its_outputs_as_without_a_router() -> None:
    rig = Rig(plain="east")
    await rig.start()
    keys = rig.launch(1, "a"), rig.launch(2, "b")
    assert [rig.router.show(*key, None, "stdout") for key in keys] == ["1/0.1.stdout", "west:2/0.1.stdout"]
    rig.east.written["1/0.1.stdout"], rig.west.written["2/0.1.stdout"] = b"from the east", b"from the west"
    assert await rig.router.read("1/0.1.stdout", 0, 99) == b"from the east"
    assert await rig.router.read("west:2/0.1.stdout", 0, 99) == b"from the west"
    with pytest.raises(NoSuchOutput):
        await rig.router.read("2/0.1.stdout", 0, 99)
    kept = base.Output("x", 3, b"abc", sha256="0")
    rig.east.end(*keys[0], stdout=kept)
    rig.west.end(*keys[1], stdout=kept)
    ends = [report.ending.stdout for report in await rig.reports() if isinstance(report, base.Ended)]
    assert [output and output.name for output in ends] == ["x", "west:x"]


async def test_an_output_that_cannot_be_read_now_takes_no_engine_down() -> None:
    class Silent(Mortal):
        async def read(self, name: str, offset: int, size: int) -> bytes:
            raise EngineError("the worker that has it does not answer")

    router = Router({"east": Silent(), "west": Mortal()})
    told: list[base.Report] = []
    await router.start(NODES, told.append, FilesInMemory())
    with pytest.raises(EngineError, match="the worker that has it does not answer"):
        await router.read("east:x", 0, 9)
    assert (router.gone, told) == ({}, [])
    await router.stop()
