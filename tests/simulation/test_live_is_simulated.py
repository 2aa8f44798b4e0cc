"""One core: with the same jobs, the live driver and the simulator act alike under every policy.

The live driver runs as in `headway up`, with its journal on disk. Only its clock is set by hand, and its engine ends
each attempt when the workload and the simulator's model of two tiers say so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headway import wire
from headway.advice.language import plan_text, read_plan, read_question, write_question
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.live.driver import Driver
from headway.live.outside import OtherProcesses
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import Advised, Event, JobSubmitted, Outcome
from headway.model.instant import NEVER, SECOND, from_seconds, to_seconds
from headway.model.job import Kind, TaskSpec, Workflow
from headway.model.network import NO_NETWORK, Link, LinkTerms, Network, Routes, place_of
from headway.model.node import NodeSpec, Power
from headway.model.plan import PlanRecord
from headway.model.site import SiteTerms
from headway.model.slots import of_numbers
from headway.model.tier import Tier
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.sim.specs import specs
from headway.sim.tiers import RATE_UNKNOWN, Occupancy, SimulatedAttempt
from headway.sim.world import World
from headway.testing import FakeEngine, ManualClock
from headway.web.decider import decide

from ..effort import one_in

CLUSTER = (NodeSpec("slow", 5), NodeSpec("fast", 3, speed=2.0))
FIRST = {"slow": 0, "fast": 5}
"""The number of each node's first slot."""

IN_SITES = tuple(replace(spec, site=spec.name) for spec in CLUSTER)
"""The same, each node a site of its own."""

MOVING = {"keasy": (True, False), "reasy": (False, False), "measy": (False, True)}
"""Policies of two tiers, and whether they kill jobs to move them, or migrate them."""

OFFERS = [offer for offer in registry.installed() if offer.name != "instances"]
"""The policies that serve batch jobs."""


def quick(text: str, more: str = "") -> str:
    """The policy with these parameters, and with few steps where it searches: its order need not be good here."""
    given = ",".join(filter(None, ("steps=50,first=200" if text == "anneal" else "", more)))
    return f"{text}:{given}" if given else text


EVERY_POLICY = [quick(offer.name) for offer in OFFERS]

ONE_OF_EACH_KIND = ["fcfs", "easy", "conservative", "deadline", "tempo", "heft", "measy", "proportion"]

USUAL_IN_SITES = {"easy", "conservative", "deadline", "workload", "tempo", "heft", "keasy", "measy", "fcfs"}
"""Of their kinds; the others are slow in sites."""


def mixed_workload(seed: int, jobs: int, widest: int = 7) -> Workload:
    """Bags and rigid jobs on a crowded cluster, with many ends and submissions in the same second."""
    chance = np.random.default_rng(seed)
    rigid = chance.random(jobs) < 0.4
    return workload_us(
        release=np.sort(chance.integers(0, 60, jobs)) * SECOND,
        runtime=(run := chance.integers(1, 20, jobs)) * 2 * SECOND,
        estimate=(run + chance.integers(0, 10, jobs)) * 2 * SECOND,
        tasks=np.where(rigid, 1, chance.integers(1, 9, jobs)),
        width=(width := np.where(rigid, chance.integers(1, widest + 1, jobs), 1)),
        kind=np.where(rigid, Kind.RIGID, Kind.BAG),
        due=chance.integers(10, 300, jobs) * SECOND,
        priority=chance.integers(0, 5, jobs).astype(float),
        cpu=np.where(chance.random(jobs) < 0.3, np.nan, chance.uniform(0.2, 1.0, jobs)),
        uses={job: tuple(chance.uniform(0.2, 1.0, width[job]).tolist()) for job in range(0, jobs, 5) if rigid[job]},
    )


def workflows(seed: int, jobs: int) -> Workload:
    """Workflows whose tasks send to each other."""
    chance = np.random.default_rng(seed)
    graphs: dict[int, tuple[TaskSpec, ...]] = {}
    for position in range(jobs):
        tasks: list[TaskSpec] = []
        for task in range(int(chance.integers(1, 8))):
            after = tuple(sorted({int(chance.integers(task)) for _ in range(2)})) if task else ()
            sends = tuple(int(chance.integers(4)) * 1000 for _ in after)
            tasks.append(TaskSpec(int(chance.integers(1, 20)) * SECOND, int(chance.integers(1, 4)), after, sends))
        graphs[position] = tuple(tasks)
    return workload_us(
        release=np.sort(chance.integers(0, 60, jobs)) * SECOND,
        runtime=[0] * jobs,
        tasks=[len(graph) for graph in graphs.values()],
        kind=[Kind.WORKFLOW] * jobs,
        workflows=graphs,
        due=chance.integers(20, 300, jobs) * SECOND,
    )


class TimedEngine(FakeEngine):
    """Ends each attempt when the workload says, with its progress on two tiers as in the simulator."""

    def __init__(
        self,
        workload: Workload,
        clock: ManualClock,
        network: Network = NO_NETWORK,
        sites: tuple[SiteTerms, ...] = (),
    ) -> None:
        super().__init__()
        self._startup = {one.name: one.startup for one in sites}
        world, jobs = World(), len(workload)
        cpu, losses = world.tiers.cpu_use(workload, world.seed).tolist(), world.tiers.losses(jobs, world.seed)
        self._places = Occupancy(cpu, losses, world.tiers.gains(workload.width, world.seed))
        self._migration = from_seconds(world.migration_cost)
        self._workload = workload
        self._clock = clock
        self._timed: dict[base.AttemptKey, SimulatedAttempt] = {}
        self._kept: dict[tuple[int, int], tuple[int, int]] = {}
        self._changes: dict[base.AttemptKey, Tier] = {}
        self._routes = Routes(network)
        self._where: dict[tuple[int, int], NodeSpec] = {}
        self._ended: dict[tuple[int, int], int] = {}

    def next_end(self) -> tuple[int, base.AttemptKey]:
        """The next attempt to end, and when."""
        return min(((one.end, key) for key, one in self._timed.items() if one.end >= 0), default=(NEVER, (0, 0, 0)))

    def launch(self, assignment: base.Assignment) -> None:
        """Launch an attempt. Alone on its slots, it takes as long as on the slowest of its nodes."""
        super().launch(assignment)
        self.settle()
        job, task, attempt = assignment.key
        seats = [FIRST[member.node] + slot for member in assignment.members for slot in member.slots]
        speed = min(node.speed for member in assignment.members for node in CLUSTER if node.name == member.node)
        lasts, now = round(int(self._workload.runtime[job - 1]) / speed), self._clock.now()
        graph = self._workload.workflows.get(job - 1)
        if graph is not None:
            lasts = -int(-graph[task].estimate // speed)
            here = self._where[job, task] = next(node for node in CLUSTER if node.name == assignment.members[0].node)
            for before, size in zip(graph[task].after, graph[task].sends, strict=True):
                sent = self._routes.time(size, place_of(self._where[job, before]), place_of(here))
                now = max(now, self._ended[job, before] + sent)
        now += max(self._startup.get(member.node, 0) for member in assignment.members)  # sites are named as nodes
        running = SimulatedAttempt(job - 1, task, attempt, of_numbers(seats), assignment.tier, now, lasts)
        if (job, task) in self._kept:
            left, total = self._kept[job, task]
            running.left = -(-left * running.total // total)
            running.since += self._migration
        if job - 1 in self._workload.uses:
            running.uses = dict(zip(seats, self._workload.uses[job - 1], strict=True))
        running.rate = RATE_UNKNOWN
        self._timed[assignment.key] = running
        self._places.enter(running)
        self.settle()

    def change(self, job: int, task: int, attempt: int, tier: Tier) -> None:
        """Change tiers. All attempts that change at one instant leave their places before any enters another."""
        super().change(job, task, attempt, tier)
        self._changes[job, task, attempt] = tier

    def suspend(self, job: int, task: int, attempt: int) -> None:
        """Let it save and end at once."""
        super().suspend(job, task, attempt)
        running = self._over(job, task, attempt)
        running.go_on(self._clock.now(), running.rate)
        self._kept[job, task] = running.left, running.total
        asyncio.get_running_loop().call_soon(self.report, base.Saved(job, task, attempt))
        asyncio.get_running_loop().call_soon(self.end, job, task, attempt, Outcome.KILLED)

    def kill(self, job: int, task: int, attempt: int) -> None:
        """Let it end at once."""
        super().kill(job, task, attempt)
        self._over(job, task, attempt)
        asyncio.get_running_loop().call_soon(self.end, job, task, attempt, Outcome.KILLED)

    def succeed(self, key: base.AttemptKey) -> None:
        """Report that it has ended by itself."""
        self._over(*key)
        self._ended[key[:2]] = self._clock.now()
        self.end(*key)

    def _over(self, job: int, task: int, attempt: int) -> SimulatedAttempt:
        self.settle()
        running = self._timed.pop((job, task, attempt))
        self._places.leave(running)
        self.settle()
        return running

    def settle(self) -> None:
        """Set how fast everything continues from now on."""
        changes, self._changes = self._changes, {}
        for key in changes:
            self._places.leave(self._timed[key])
        for key, tier in changes.items():
            self._timed[key].tier = tier
            self._places.enter(self._timed[key])
        self._places.changed(self._clock.now())


async def settle(driver: Driver) -> None:
    """Let the driver handle what has arrived, until nothing more follows."""
    commits = -1
    while commits != driver.commits:
        commits = driver.commits
        for _ in range(10):
            await asyncio.sleep(0)


async def asked(url: str, snapshot: StateRecord, *, explain: bool = False) -> PlanRecord:
    """The answer of a decider, without HTTP."""
    question = read_question(write_question(snapshot, policy=snapshot.policy, explain=explain))
    text = msgspec.json.encode(plan_text(decide(question, registry.find, ""), snapshot.now))
    return read_plan(text, snapshot)


async def run_live(
    workload: Workload,
    policy: str,
    folder: Path,
    *,
    decider: str = "",
    nodes: tuple[NodeSpec, ...] = CLUSTER,
    network: Network = NO_NETWORK,
    bounds: Mapping[str, int] | None = None,
    sites: tuple[SiteTerms, ...] = (),
) -> list[Event]:
    clock = ManualClock()
    engine = TimedEngine(workload, clock, network, sites)
    driver = Driver(
        Journal(folder),
        engine,
        clock,
        registry.find,
        DriverSettings(policy=policy, decider=decider),
        processes=OtherProcesses(asking=asked),
    )
    await driver.start(nodes, network=network, bounds=bounds, sites=sites)
    jobs = list(specs(workload, movable=True))
    while jobs or driver.open:
        wakes = (from_seconds(seconds) for seconds in clock.alarms)
        at = min(
            jobs[0].release if jobs else NEVER,
            engine.next_end()[0],
            min((wake for wake in wakes if wake > clock.now()), default=NEVER),
        )
        clock.advance((at - clock.now()) / SECOND)
        submissions = []
        while jobs and jobs[0].release == at:
            spec = jobs.pop(0)
            new = wire.NewJob(
                wire.Commands((wire.Command(("true",)),)),
                kind=spec.kind.name.lower(),  # type: ignore[arg-type]
                tasks=spec.tasks,
                width=spec.width,
                estimate=None if spec.estimate is None else to_seconds(spec.estimate),
                due=None if spec.due is None else to_seconds(spec.due),
                priority=spec.priority,
                cpu=spec.cpu,
                movable=spec.movable,
                plan=tuple(
                    wire.PlannedTask(to_seconds(task.estimate), task.cores, task.after, task.sends)
                    for task in (spec.graph if isinstance(spec, Workflow) else ())
                ),
            )
            submissions.append(asyncio.create_task(driver.submit(spec.user or "me", wire.Submission((new,)))))
        while engine.next_end()[0] == at:
            engine.succeed(engine.next_end()[1])
        await asyncio.sleep(0)  # everything of this instant has arrived when the driver takes its turn
        await settle(driver)
        engine.settle()
        for submission in submissions:
            await submission
        driver.core.check()
    assert not driver.open
    await driver.stop()
    events = [event for _, event in driver.journal.events(after=0)]
    driver.journal.close()
    return events


def told(events: list[Event], first: int) -> list[tuple[object, ...]]:
    """The events of the core, with jobs numbered from 0, and without those of the start of either driver."""
    story: list[tuple[object, ...]] = []
    for event in events:
        name = type(event).__name__
        if isinstance(event, JobSubmitted):
            story.append((name, event.at, event.job.id - first))
        elif name == "TaskEnded":
            story.append((name, event.at, event.job - first, event.task, event.attempt, event.outcome))  # type: ignore[union-attr]
    return story


sizes = pytest.mark.parametrize("jobs", [36, pytest.param(150, marks=pytest.mark.slow)])


@sizes
@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_every_policy_decides_live_as_it_does_in_the_simulator(policy: str, jobs: int, tmp_path: Path) -> None:
    workload = mixed_workload(7, jobs)
    simulated: list[Event] = []
    schedule = Simulation(workload, CLUSTER, registry.find, policy, journal=simulated).run()
    live = asyncio.run(run_live(workload, policy, tmp_path))
    assert told(live, first=1) == told(simulated, first=0)
    assert len(told(live, first=1)) >= 2 * len(workload)
    if policy in MOVING:
        assert MOVING[policy] == (schedule.kills > 0, schedule.migrations > 0)


@sizes
@pytest.mark.parametrize("policy", [*ONE_OF_EACH_KIND, "sites:each=easy"])
def test_bounds_of_users_are_alike_too(policy: str, jobs: int, tmp_path: Path) -> None:
    workload = replace(mixed_workload(8, jobs, widest=4), user=np.array(["ann", "ann", "bob"] * (jobs // 3), object))
    bounds, simulated, most = {"ann": 5, "bob": 4}, list[Event](), Counter[str]()

    def look(scheduler: Scheduler) -> None:
        scheduler.check()
        for user, ration in scheduler.state.rations.items():
            most[user] = max(most[user], ration.used)

    nodes = IN_SITES if policy.startswith("sites") else CLUSTER
    simulation = Simulation(workload, nodes, registry.find, policy, slots_of=bounds, journal=simulated, audit=look)
    simulation.run()
    live = asyncio.run(run_live(workload, policy, tmp_path, nodes=nodes, bounds=bounds))
    assert told(live, first=1) == told(simulated, first=0)
    assert most == bounds
    assert not simulation.scheduler.refusals


@sizes
@pytest.mark.parametrize(
    ("each", "decider"),
    [
        *(
            pytest.param(each, "", marks=() if each in USUAL_IN_SITES else pytest.mark.slow)
            for each in EVERY_POLICY
            if each not in ("sites", "services")
        ),
        *product(("easy", "deadline", "measy"), ("http://there",)),
    ],
)
def test_sites_decide_live_as_they_do_in_the_simulator(each: str, decider: str, jobs: int, tmp_path: Path) -> None:
    lower = each.replace(",", ";")
    policy, workload = f"sites:top=rr,each={lower},per_instant={bool(decider)}", mixed_workload(9, jobs, widest=3)
    simulated: list[Event] = []
    Simulation(workload, IN_SITES, registry.find, policy, journal=simulated).run()
    live = asyncio.run(run_live(workload, policy, tmp_path, decider=decider, nodes=IN_SITES))
    assert told(live, first=1) == told(simulated, first=0)


@sizes
@pytest.mark.parametrize("decider", ["", "http://there"])
@pytest.mark.parametrize("load", ["mixed", "workflows"])
@pytest.mark.parametrize("more", ["", ",adaptive=false,order=fast", ",estimate=0.9,check=7"])
def test_preferred_sites_decide_alike_too(more: str, load: str, decider: str, jobs: int, tmp_path: Path) -> None:
    """The sites and how long tasks take there before they begin reach the live driver, and deciders."""
    workload = mixed_workload(9, jobs, widest=3) if load == "mixed" else workflows(4, jobs // 3)
    sites = (SiteTerms("slow"), SiteTerms("fast", 3 * SECOND))
    policy, simulated = f"sites:top=prefer{more}", list[Event]()
    Simulation(workload, IN_SITES, registry.find, policy, journal=simulated, sites=sites).run()
    live = asyncio.run(run_live(workload, policy, tmp_path, decider=decider, nodes=IN_SITES, sites=sites))
    assert told(live, first=1) == told(simulated, first=0)
    assert len(told(live, first=1)) == int(workload.tasks.sum()) + len(workload)


@pytest.mark.thorough
@sizes
@pytest.mark.parametrize("decider", ["", "http://there"])
@pytest.mark.parametrize("policy", ["heft", "heft:holes=best", "peft", "edf"])
def test_workflows_and_what_they_send_are_alike_too(policy: str, decider: str, jobs: int, tmp_path: Path) -> None:
    """The network reaches the live driver at its start, and deciders with each question."""
    workload, network = (
        workflows(4, jobs // 3),
        Network(LinkTerms(SECOND, 1e3), links=(Link("slow", "fast", LinkTerms(0, 500)),)),
    )
    simulated: list[Event] = []
    Simulation(workload, CLUSTER, registry.find, policy, journal=simulated, network=network).run()
    live = asyncio.run(run_live(workload, policy, tmp_path, decider=decider, network=network))
    assert told(live, first=1) == told(simulated, first=0)
    assert len(told(live, first=1)) == int(workload.tasks.sum()) + len(workload)


@sizes
@pytest.mark.parametrize("decider", ["", "http://there"])
@pytest.mark.parametrize(
    "policy",
    [
        "sites:top=lb,each=heft:order=due",
        "sites:top=fill,each=heft:order=due",
        "sites:top=fill,each=easy,at=fast/heft:holes=best|slow/peft",
    ],
)
def test_workflows_are_dealt_live_as_in_the_simulator(policy: str, decider: str, jobs: int, tmp_path: Path) -> None:
    """Sites by numbers of jobs and by the energy of their nodes; the sites have policies of their own."""
    watts = {"slow": Power(2.0, 9.0), "fast": Power(5.0, 40.0)}
    workload, nodes = workflows(5, jobs // 2), tuple(replace(spec, power=watts[spec.name]) for spec in IN_SITES)
    dealt: set[str] = set()

    def look(scheduler: Scheduler) -> None:
        dealt.update(view.pool.name for view in scheduler.state.jobs.values())

    simulated: list[Event] = []
    Simulation(workload, nodes, registry.find, policy, journal=simulated, audit=look).run()
    live = asyncio.run(run_live(workload, policy, tmp_path, decider=decider, nodes=nodes))
    assert told(live, first=1) == told(simulated, first=0)
    assert len(told(live, first=1)) == int(workload.tasks.sum()) + len(workload)
    assert dealt >= {"slow", "fast"}


@pytest.mark.thorough
@sizes
@pytest.mark.parametrize("offer", one_in(3, OFFERS), ids=lambda offer: offer.name)
def test_a_decider_decides_live_as_the_policy_does_in_the_simulator(
    offer: registry.KnownPolicy, jobs: int, tmp_path: Path
) -> None:
    once = "per_instant" in {parameter.name for parameter in offer.parameters}
    policy = quick(offer.name, "per_instant=true" if once else "")  # a decider is asked once per instant
    workload = mixed_workload(8, jobs)
    simulated: list[Event] = []
    Simulation(workload, CLUSTER, registry.find, policy, journal=simulated).run()
    live = asyncio.run(run_live(workload, policy, tmp_path, decider="http://there"))
    assert sum(isinstance(event, Advised) for event in live) >= len(workload)
    assert told(live, first=1) == told(simulated, first=0)
