"""A server of several sites: this machine, and fields whose engines find their nodes by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headway import wire
from headway.engines import base, registry
from headway.engines.registry import EngineKind, EnginePlace, SiteSpec
from headway.engines.sites import SiteEngines
from headway.errors import Conflict, EngineError, InvalidInput, Unavailable
from headway.live import reports
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.outside import Surroundings
from headway.live.rented import site_list
from headway.live.services import BrokerDoor
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import Incident, NodeDown, NodeJoined, NodeLeft, NodeUp, Outcome
from headway.model.node import Capabilities, NodeSpec
from headway.policies.registry import find
from headway.server import NO_SERVICES
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.web.exposition import exposition

pytestmark = pytest.mark.anyio

AFAR = Capabilities(tiers=False, moves=False, adopts=False, shares_files=False)
FIELD, MEADOW, HERE = SiteSpec("field", "farm"), SiteSpec("meadow", "farm"), SiteSpec("local")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Farm(FakeEngine):
    """An engine that finds its nodes.

    Attributes:
        around: the nodes that are there, by name; the engine does not know the name of its site.
        gone: whether it can do nothing.
    """

    def __init__(self, *around: NodeSpec, found: base.Found = base.Found()) -> None:  # noqa: B008  # frozen
        super().__init__(found)
        self.around = {one.name: one for one in around}
        self.gone = False
        self.out: set[str] = set()

    def see(self) -> None:
        if self.gone:
            raise EngineError("the farm does not answer")

    async def start(self, nodes: Iterable[NodeSpec], report: Any, files: base.Files) -> base.Found:
        self.see()
        named = {one.name for one in nodes}
        self.running.clear()
        found = await super().start(nodes, report, files)
        for name, spec in self.around.items():
            if name not in named:
                asyncio.get_running_loop().call_soon(report, base.NodeFound(spec))
        return structs.replace(found, absent=frozenset(named - self.around.keys()))

    async def leave(self, name: str) -> None:
        await super().leave(name)
        self.out.add(name)

    @property
    def kept_out(self) -> frozenset[str]:
        return frozenset(self.out)

    async def let_in(self, name: str, slots: int | None = None) -> bool:
        self.out.discard(name)
        self.report(base.NodeFound(self.around[name]))
        return True

    def launch(self, assignment: base.Assignment) -> None:
        self.see()
        super().launch(assignment)


class Rig:
    """A driver, and the engines of its sites."""

    def __init__(self, driver: Driver, here: FakeEngine, journal: Journal, farms: Mapping[str, Farm]) -> None:
        self.driver, self.here, self.journal, self.farms = driver, here, journal, farms

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def submit(self, *jobs: wire.NewJob) -> None:
        await self.driver.submit("me", submission(*jobs))
        await self.settle()

    @property
    def up(self) -> dict[str, bool]:
        """Each node that is known, and whether it is up."""
        return {name: view.up for name, view in self.driver.core.state.nodes.items()}

    @property
    def where(self) -> dict[base.AttemptKey, str]:
        """The node of everything that runs."""
        engines = (self.here, *self.farms.values())
        return {key: one.members[0].node for engine in engines for key, one in sorted(engine.running.items())}

    def story(self, *kinds: Any) -> list[Any]:
        return [event for _, event in self.journal.events() if isinstance(event, kinds)]


@asynccontextmanager
async def rig(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    specs: tuple[SiteSpec, ...],
    nodes: Any,
    *,
    dies: bool = False,
    policy: str = "fcfs",
    **farms: Farm,
) -> AsyncIterator[Rig]:
    """A driver of these sites. Unless it dies, it is stopped in order at the end; the core's state is checked."""

    def build(place: EnginePlace, options: Mapping[str, Any]) -> Farm:
        return farms[place.site]

    monkeypatch.setattr(
        registry,
        "BUILT_IN_ENGINES",
        {
            **registry.BUILT_IN_ENGINES,
            "farm": EngineKind("farm", "", build),
            "yard": EngineKind("yard", "", build, finds=False),
        },
    )
    here = FakeEngine()
    with closing(Journal(folder)) as journal:
        sites = SiteEngines(specs, lambda: here, folder / "sites", pauses=(0.0, 0.0))  # type: ignore[arg-type,return-value]
        driver = Driver(
            journal,
            sites.engine,
            ManualClock(),
            find,
            DriverSettings(policy=policy),
            surroundings=Surroundings(
                sites=sites, door=NO_SERVICES if sites.own is None else BrokerDoor(folder / "door", b"secret")
            ),
        )
        await driver.start(nodes, facts={"sites": ",".join(spec.name for spec in specs)})
        live = Rig(driver, here, journal, farms)
        await live.settle()
        yield live
        driver.core.check()
        if not dies:
            await driver.stop()


A1 = (node("a"),)


async def test_found_nodes_are_of_their_engines_site_and_jobs_run_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = Farm(node("f", slots=2, capabilities=AFAR, site="whatever"))
    async with rig(tmp_path, monkeypatch, (HERE, FIELD), A1, field=farm) as live:
        await live.submit(new_job(tasks=3))
        assert live.where == {(1, 0, 1): "a", (1, 1, 1): "f", (1, 2, 1): "f"}
        told = {one.name: (one.site, one.engine, one.found) for one in (await reports.node_list(live.driver)).nodes}
        assert told == {"a": ("local", "local", False), "f": ("field", "farm", True)}
        with pytest.raises(InvalidInput, match=r"site of node 'g' is 'field'; .*\nEngine farm finds the nodes"):
            await live.driver.nodes.add(wire.NewNode("g", site="field"))
        assert live.up == {"a": True, "f": True}


async def test_a_found_node_that_was_drained_is_taken_back_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, meadow = Farm(node("f", slots=2), node("g")), Farm(node("m"))
    async with rig(tmp_path, monkeypatch, (FIELD, MEADOW), (), field=field, meadow=meadow) as live:
        nodes = live.driver.nodes
        await nodes.drain("f")
        await live.settle()
        assert live.up == {"g": True, "m": True}
        assert field.kept_out == {"f"}
        assert {site.name: site.finds for site in site_list(live.driver).sites} == {"field": True, "meadow": True}
        for wrong in (wire.NewNode("f", speed=2.0), wire.NewNode("f", lease=9.0)):
            with pytest.raises(InvalidInput, match=r"of node 'f' is .*; allowed: none: the engine of site 'field'"):
                await nodes.add(wrong)
        with pytest.raises(InvalidInput, match=r"site of node 'f' is 'meadow'; .*\nEngine farm finds .* was not"):
            await nodes.add(wire.NewNode("f", site="meadow"))
        assert await nodes.add(wire.NewNode("f")) == wire.NodeChange("f", True, awaited=True)
        await live.settle()
        assert live.up == {"f": True, "g": True, "m": True}
        for same in (wire.NewNode("f"), wire.NewNode("f", 2, site="field")):
            assert await nodes.add(same) == wire.NodeChange("f", False)
        with pytest.raises(Conflict, match="the name 'f' is taken by a node of other terms"):
            await nodes.add(wire.NewNode("f", 3))


async def test_the_site_of_a_drained_node_is_asked_for_only_if_there_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, meadow = Farm(node("f")), Farm(node("m"))
    async with rig(tmp_path, monkeypatch, (HERE, FIELD, MEADOW), A1, field=field, meadow=meadow) as live:
        nodes = live.driver.nodes
        await nodes.remove("f")
        meadow.around["f"] = node("f")
        meadow.out.add("f")
        with pytest.raises(Conflict, match="nodes named 'f' were drained or removed at sites field, meadow"):
            await nodes.add(wire.NewNode("f"))
        await nodes.add(wire.NewNode("f", site="meadow"))
        await live.settle()
        assert live.driver.core.state.nodes["f"].spec.site == "meadow"
        await nodes.remove("f")
        await nodes.add(wire.NewNode("f", site="local"))
        assert live.driver.core.state.nodes["f"].spec == node("f"), "what is named is added"


async def test_an_engine_that_is_gone_takes_only_its_own_nodes_down_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, meadow = Farm(node("f", capabilities=AFAR)), Farm(node("m", capabilities=AFAR))
    async with rig(tmp_path, monkeypatch, (FIELD, MEADOW), (), field=field, meadow=meadow) as live:
        await live.submit(new_job(tasks=2), new_job())
        assert live.where == {(1, 0, 1): "f", (1, 1, 1): "m"}
        field.gone = True
        field.end(1, 0, 1)
        await live.settle()
        assert (live.up, live.where) == ({"f": False, "m": True}, {(1, 1, 1): "m"})
        sites = (await reports.statistics(live.driver)).sites
        assert sites == (
            wire.SiteReport("field", "farm", "the farm does not answer"),
            wire.SiteReport("meadow", "farm"),
        )
        assert [one.kind for one in live.story(Incident)] == ["engine_gone", "node_lost"]
        assert b'headway_site_up{site="field"} 0.0' in await exposition(live.driver, LoopDelay())
        field.gone = False
        await live.settle()
        assert live.up == {"f": True, "m": True}
        assert live.where == {(2, 0, 1): "f", (1, 1, 1): "m"} or live.where == {(2, 0, 2): "f", (1, 1, 1): "m"}
        assert (await reports.statistics(live.driver)).sites[0].gone == ""


@pytest.mark.parametrize(
    ("each", "taken"),
    [("easy", ["a", "f", "f"]), ("deadline", ["a", "f", "f"]), ("measy", ["a", "a", "f", "f"])],
)
async def test_jobs_are_dealt_to_the_sites_of_two_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each: str, taken: list[str]
) -> None:
    """There is one slot at one site and two at the other; only under `measy` two jobs share a slot."""
    farm = Farm(node("f", slots=2, capabilities=AFAR))
    sites = f"sites:top=rr,each={each}"
    async with rig(tmp_path, monkeypatch, (HERE, FIELD), A1, policy=sites, field=farm) as live:
        await live.submit(*(new_job() for _ in range(4)))
        dealt = {job.id: job.pool.name for job in live.driver.core.state.jobs.values()}
        assert sorted(dealt.values()) == ["field", "field", "local", "local"]
        assert sorted(live.where.values()) == taken
        assert {live.where[key] for key in live.where if dealt[key[0]] == "field"} == {"f"}


@pytest.mark.parametrize("policy", ["fcfs", "easy", "tempo"])
async def test_a_rigid_job_runs_within_one_engine_also_where_all_sites_are_one_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    farms = {"field": Farm(node("f", slots=2)), "meadow": Farm(node("m", slots=2), node("n"))}
    async with rig(tmp_path, monkeypatch, (FIELD, MEADOW), (), policy=policy, **farms) as live:
        assert [view.spec.capabilities.lacking for view in live.driver.core.state.nodes.values()] == [("spans",)] * 3
        for width in (2, 2, 3):
            await live.submit(new_job(kind="rigid", width=width))
        assert live.where == {(1, 0, 1): "f", (2, 0, 1): "m"}
        farms["field"].end(1)
        await live.settle()
        assert live.where == {(2, 0, 1): "m"}, "three slots are free, but of two engines"
        farms["meadow"].end(2)
        await live.settle()
        (runs,) = farms["meadow"].running.values()
        assert [member.node for member in runs.members] == ["m", "m", "n"]
        with pytest.raises(InvalidInput, match=r"width is 4; allowed: at most 3, the slots of the largest site"):
            await live.submit(new_job(kind="rigid", width=4))


async def test_nodes_from_an_earlier_version_keep_gangs_together_from_the_next_start_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran there is redone, which counts against no task, and a node that drains does so still."""
    async with rig(tmp_path, monkeypatch, (), (), dies=True) as earlier:
        for one in (node("f", site="field"), node("g", site="field"), node("m", site="meadow")):
            earlier.here.report(base.NodeFound(one))
        await earlier.submit(new_job(tasks=3, retries=0))
        assert earlier.where == {(1, 0, 1): "f", (1, 1, 1): "g", (1, 2, 1): "m"}
        await earlier.driver.nodes.drain("g")
        places = {name: view.places for name, view in earlier.driver.core.state.nodes.items()}
    field = Farm(node("f"), node("g"), found=base.Found(frozenset({(1, 0, 1), (1, 1, 1)})))
    meadow = Farm(node("m"), found=base.Found(frozenset({(1, 2, 1)})))
    async with rig(tmp_path, monkeypatch, (FIELD, MEADOW), None, field=field, meadow=meadow) as live:
        nodes = live.driver.core.state.nodes
        lacking = {name: view.spec.capabilities.lacking for name, view in nodes.items()}
        assert lacking == {"g": (), "f": ("spans",), "m": ("spans",)}
        assert {name: view.places for name, view in nodes.items()} == places
        assert nodes["g"].draining
        assert (field.killed, meadow.killed) == ([(1, 0, 1)], [(1, 2, 1)])
        assert [one.name for one in live.story(NodeLeft)] == ["f", "m"]
        assert [one.node.name for one in live.story(NodeJoined)] == ["f", "g", "m", "f", "m"]
        for farm in (field, meadow):
            farm.end(*farm.killed[0], Outcome.KILLED)
        await live.settle()
        assert (field.running.keys(), meadow.running.keys()) == ({(1, 0, 2), (1, 1, 1)}, {(1, 2, 2)})
        with pytest.raises(InvalidInput, match=r"width is 2; allowed: at most 1, the slots of the largest site"):
            await live.submit(new_job(kind="rigid", width=2))


async def test_a_node_that_is_added_to_another_engine_keeps_gangs_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, monkeypatch, (HERE, SiteSpec("field", "yard")), A1, field=Farm()) as live:
        for site in ("field", "local"):
            new = wire.NewNode(f"of-{site}", 2, site=site)
            assert await live.driver.nodes.add(new) == wire.NodeChange(new.name, True)
            assert await live.driver.nodes.add(new) == wire.NodeChange(new.name, False)
        await live.submit(new_job(kind="rigid", width=2), new_job(kind="rigid", width=3))
        assert live.where.keys() == {(1, 0, 1), (2, 0, 1)}
        assert [len(farm.running) for farm in (live.here, live.farms["field"])] == [1, 1]


async def test_after_a_crash_the_same_sites_have_the_same_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, monkeypatch, (FIELD,), (), dies=True, field=Farm(node("f"), node("g"))) as live:
        assert live.journal.fact("sites") == "field"
        places = live.driver.core.state.nodes["f"].places
    async with rig(tmp_path, monkeypatch, (FIELD,), None, field=Farm(node("f"))) as again:
        assert again.up == {"f": True, "g": False}
        assert again.driver.core.state.nodes["f"].places == places
        assert [one.node.name for one in again.story(NodeJoined)] == ["f", "g"]
        assert [one.name for one in again.story(NodeDown)] == ["g"]
        again.farms["field"].report(base.NodeFound(node("g")))
        await again.settle()
        assert (again.up, [one.name for one in again.story(NodeUp)]) == ({"f": True, "g": True}, ["g"])


async def test_nodes_leave_with_a_site_that_is_not_named_again_and_what_ran_there_is_redone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(
        tmp_path, monkeypatch, (HERE, FIELD), A1, dies=True, field=Farm(node("f", capabilities=AFAR))
    ) as live:
        await live.submit(new_job(tasks=2, retries=0))
        assert live.where == {(1, 0, 1): "a", (1, 1, 1): "f"}
    async with rig(tmp_path, monkeypatch, (MEADOW,), (), meadow=Farm(node("m", slots=2))) as again:
        assert [one.name for one in again.story(NodeLeft)] == ["a", "f"]
        assert (again.up, set(again.where.values())) == ({"m": True}, {"m"})
        assert {key[:2] for key in again.where} == {(1, 0), (1, 1)}


async def test_a_server_without_an_engine_of_its_machine_has_no_services_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = wire.NewJob(
        work=wire.Handling("a:b"), kind="service", name="s", service=wire.ServiceTerms(least=1, most=1)
    )
    async with rig(tmp_path, monkeypatch, (FIELD,), (), field=Farm(node("f"))) as live:
        with pytest.raises(Unavailable, match="this server has no services: their instances run on its own machine"):
            await live.submit(service)
        with pytest.raises(InvalidInput, match="This server has no engine of its own machine"):
            await live.driver.nodes.add(wire.NewNode("a"))


async def test_an_instance_of_a_service_is_refused_where_it_cannot_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = wire.NewJob(
        work=wire.Handling("a:b"), kind="service", name="s", service=wire.ServiceTerms(least=1, most=1)
    )
    farm = Farm(node("f", capabilities=AFAR))
    async with rig(tmp_path, monkeypatch, (HERE, FIELD), (), policy="services:top=dp,batch=fcfs", field=farm) as live:
        await live.submit(service)
        await live.settle()
        ending = live.journal.result(1, 0).ending
        assert ending.outcome is Outcome.REFUSED
        assert "node 'f' is at site 'field', of engine farm: no instance of a service runs there" in ending.detail
        assert farm.launched == []


async def test_a_top_level_keeps_services_on_this_machine_and_jobs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = wire.NewJob(
        work=wire.Handling("a:b"), kind="service", name="s", service=wire.ServiceTerms(least=1, most=1)
    )
    farm, policy = Farm(node("f", slots=3, capabilities=AFAR)), "sites:top=lb,each=fcfs,at=local/instances"
    async with rig(tmp_path, monkeypatch, (HERE, FIELD), A1, policy=policy, field=farm) as live:
        await live.submit(new_job(), service, new_job())
        assert live.where == {(2, 0, 1): "a", (1, 0, 1): "f", (3, 0, 1): "f"}
