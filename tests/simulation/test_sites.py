"""Sites: each is scheduled as if it were alone with the jobs that it was dealt."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.lifecycle import RULES
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.actions import JobStatus, Kill, Launch, Suspend, Wake
from headway.model.events import (
    Event,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeResized,
    NodeUp,
    PolicyChosen,
    RulesChosen,
    TaskEnded,
    TaskSaved,
    Woke,
)
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import Capabilities, NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import Claim, Plan, Reason
from headway.model.snapshot import Snapshot
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.tiers import TwoTiers
from headway.sim.world import World
from headway.testing import job, node

Lines = Callable[[Callable[[], object]], int]

NODES = [
    NodeSpec("a", 4, site="east"),
    NodeSpec("b", 5, site="west", speed=2.0),
    NodeSpec("c", 4, site="east"),
    NodeSpec("d", 3, site="west", cores=12),
]
SITES = ("east", "west")
OUTAGES = [Outage("b", 500, 900), Outage("a", 700, 1500), Outage("c", 3000, 3100), Outage("d", 3000, None)]
DIAMOND = tuple(TaskSpec(spent * SECOND, after=after) for spent, after in ((5, ()), (9, (0,)), (4, (0,)), (2, (1, 2))))

# What a job loses on two tiers is drawn by its number, which is another one where it is simulated alone.
WORLD = World(tiers=TwoTiers(loss=(0.02, 0.02), single=(0.9, 0.9), several=(0.43, 0.0, 0.43, 0.43), cpu=(0.7, 0.7)))


def workload(seed: int, jobs: int = 150) -> dict[str, Any]:
    """Columns of bags, rigid jobs and workflows."""
    chance = np.random.default_rng(seed)
    runtime = np.rint(chance.lognormal(4, 1.5, jobs)).astype(np.int64) * SECOND
    kind = chance.choice((Kind.BAG, Kind.RIGID, Kind.WORKFLOW), jobs, p=(0.45, 0.45, 0.1)).astype(np.int8)
    return {
        "release": np.cumsum(np.rint(chance.exponential(30, jobs)).astype(np.int64)) * SECOND,
        "runtime": runtime,
        "estimate": np.rint(runtime * chance.choice((0.5, 1, 2, 7), jobs)).astype(np.int64),
        "width": np.where(kind == Kind.RIGID, chance.integers(1, 6, jobs), 1),
        "tasks": np.select([kind == Kind.BAG, kind == Kind.WORKFLOW], [chance.integers(1, 9, jobs), 4], 1),
        "kind": kind,
        "due": np.cumsum(chance.integers(0, 90, jobs)) * SECOND,
        "priority": chance.integers(1, 5, jobs).astype(np.float64),
    }


def made(columns: dict[str, Any], jobs: list[int] | slice = slice(None)) -> Workload:
    part = {name: column[jobs] for name, column in columns.items()}
    places = {int(place): DIAMOND for place in np.flatnonzero(part["kind"] == Kind.WORKFLOW)}
    return workload_us(**part, workflows=places)


EACH = sorted({"anneal:steps=50,first=200", *registry.BUILT_IN} - {"anneal", "sites", "services", "instances"})
"""Policies for one site; of annealing with few steps, for its order need not be good here."""


@pytest.mark.parametrize("each", EACH)
def test_each_site_is_scheduled_as_if_it_were_alone(each: str) -> None:
    columns, dealt = workload(5), dict[int, str]()

    def look(scheduler: Scheduler) -> None:
        scheduler.check()
        for number, view in scheduler.state.jobs.items():
            if view.pool.name:
                assert dealt.setdefault(number, view.pool.name) == view.pool.name, "it stays where it is"

    whole = Simulation(
        *(made(columns), NODES, registry.find, f"sites:top=rr,each={each.replace(',', ';')}"),
        world=WORLD,
        outages=OUTAGES,
        audit=look,
    ).run()
    assert set(dealt) == set(range(150))
    assert [dealt[number] for number in range(4)] == ["east", "west", "east", "west"]
    for site in SITES:
        jobs = [number for number in dealt if dealt[number] == site]
        jobs.sort()
        nodes = [spec for spec in NODES if spec.site == site]
        names = {spec.name for spec in nodes}
        outages = [outage for outage in OUTAGES if outage.node in names]
        alone = Simulation(made(columns, jobs), nodes, registry.find, each, world=WORLD, outages=outages).run()
        assert alone.start.tolist() == whole.start[jobs].tolist(), site
        assert alone.end.tolist() == whole.end[jobs].tolist(), site


@pytest.mark.parametrize("policy", EACH)
def test_where_an_engine_has_a_site_the_members_of_a_job_are_at_one(policy: str) -> None:
    """The check after each event sees members at two sites. Some work ends later so, but nothing waits for ever."""
    apart = [replace(node, capabilities=Capabilities(spans=False)) for node in NODES]
    done = Simulation(
        made(workload(5, jobs=80)), apart, registry.find, policy, world=WORLD, outages=OUTAGES, audit=Scheduler.check
    ).run()
    assert done.has(JobStatus.SUCCEEDED).all()


class Engines:
    """A core over sites that have an engine each; every event is checked, and a restored core must answer alike."""

    def __init__(self, policy: str, **slots: int) -> None:
        self.core = Scheduler(registry.find, policy)
        self.running: dict[int, tuple[int, int]] = {}
        for name, number in slots.items():
            self.feed(NodeJoined(0, NodeSpec(name, number, site=name, capabilities=Capabilities(spans=False))))

    def feed(self, event: Event) -> None:
        twin = Scheduler.restore(self.core.dump(), registry.find)
        actions = self.core.handle(event)
        assert twin.handle(event) == actions
        self.core.check()
        for action in actions:
            if isinstance(action, Launch):
                self.running[action.job] = action.attempt, action.slots
        if any(isinstance(action, Wake) and action.at <= self.core.state.now for action in actions):
            self.feed(Woke(self.core.state.now))

    def submit(self, number: int, width: int, runs: int = 50) -> None:
        self.feed(JobSubmitted(self.core.state.now, job(number, width=width, estimate=runs, release=0)))

    def end(self, number: int, at: int) -> None:
        attempt, _ = self.running.pop(number)
        self.feed(TaskEnded(at * SECOND, number, 0, attempt, Outcome.SUCCEEDED))

    def where(self) -> dict[int, str]:
        """At which site each running job is."""
        nodes = self.core.state.slot_nodes
        return {number: nodes[slots.bit_length() - 1].spec.site for number, (_, slots) in self.running.items()}


@pytest.mark.parametrize("policy", ["easy", "fcfs", "keasy", "tempo", "edf", "greedy"])
def test_a_job_gets_its_slots_where_it_has_enough_soonest(policy: str) -> None:
    engines = Engines(policy, east=4, west=4)
    engines.submit(0, width=2, runs=90)
    engines.submit(1, width=2, runs=50)  # of two places it takes the narrower, so that wide jobs have room
    assert engines.where() == {0: "east", 1: "east"}
    engines.submit(2, width=1, runs=70)
    engines.submit(3, width=3, runs=80)
    assert engines.where() == {0: "east", 1: "east", 2: "west", 3: "west"}
    engines.end(1, at=50)
    engines.end(2, at=51)
    engines.submit(4, width=3, runs=10)  # three slots are free, but two here and one there
    assert 4 not in engines.where()
    assert engines.core.explain(4).reason in (Reason.SLOTS_BUSY, Reason.NO_ROOM_NOW)
    engines.submit(5, width=1, runs=500)  # it must not take what the other waits for
    engines.end(3, at=80)
    assert engines.where()[4] == "west"
    assert engines.core.refusals == {}


@pytest.mark.parametrize(
    "policy", ["easy", "tempo", "conservative", "edf", "greedy", "lst", "priority", "keasy", "measy", "reasy"]
)
def test_what_is_too_wide_for_the_engines_that_are_left_keeps_no_slot_idle(policy: str) -> None:
    engines = Engines(policy, east=4, west=2, south=2)
    engines.feed(NodeDown(0, "east"))
    engines.submit(0, width=4)
    engines.submit(1, width=2)
    engines.submit(2, width=2)
    assert sorted(engines.where().items()) in ([(1, "south"), (2, "west")], [(1, "west"), (2, "south")])
    assert engines.core.explain(0).reason is Reason.NEVER_FITS
    engines.feed(NodeUp(SECOND, "east"))
    assert engines.where()[0] == "east"


def test_a_job_wider_than_each_engine_is_refused() -> None:
    engines = Engines("tempo", east=4, west=5)
    assert engines.core.flaw_of(job(1, width=6)) == "width is 6; allowed: at most 5, the slots of the largest site"
    assert engines.core.flaw_of(job(2, width=5)) is None
    assert engines.core.state.limits.is_split
    assert not Engines("tempo", east=4).core.state.limits.is_split, "of one engine alone all slots are together"


def test_a_job_goes_only_to_a_site_that_can_hold_it() -> None:
    core = Scheduler(registry.find, "sites:top=rr,each=fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 2, site="small")))
    core.handle(NodeJoined(0, NodeSpec("b", 5, site="large")))
    wide = job(3, width=6)
    assert core.flaw_of(wide) == "width is 6; allowed: at most 5, the slots of the largest site"
    for number, width in enumerate((3, 3, 1, 1, 4)):
        core.handle(JobSubmitted(number, job(number, width=width, estimate=99)))
    assert {number: view.pool.name for number, view in core.state.jobs.items()} == {
        0: "large",
        1: "large",
        2: "small",
        3: "large",
        4: "large",
    }
    core.handle(JobSubmitted(9, job(7, width=6)))  # a journal may have one from another time
    assert core.state.jobs[7].pool is core.state, "it is dealt to no site"
    assert core.explain(7).reason is Reason.NEVER_FITS
    core.check()


def launched(actions: list[Any]) -> list[tuple[int, int]]:
    return [(action.job, action.slots) for action in actions if isinstance(action, Launch)]


def test_what_runs_goes_on_when_sites_are_introduced_and_given_up() -> None:
    core = Scheduler(registry.find, "fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 2, site="east")))
    core.handle(NodeJoined(0, NodeSpec("b", 3, site="west")))
    assert launched(core.handle(JobSubmitted(0, job(0, width=3, estimate=50)))) == [(0, 0b00111)]
    assert launched(core.handle(JobSubmitted(0, job(1, width=1, estimate=50)))) == [(1, 0b01000)]
    core.handle(JobSubmitted(0, job(2, width=2, estimate=50)))
    core.handle(PolicyChosen(1, "sites:each=easy"))
    core.check()
    state = core.state
    assert {number: view.pool.name for number, view in state.jobs.items()} == {0: "", 1: "west", 2: "west"}
    assert (state.slots, state.pools["west"].slots) == (0b00111, 0b11000), "job 0 spans the sites until it has ended"
    core.handle(TaskEnded(2, 0, 0, 1))
    core.check()
    assert (state.slots, state.pools["east"].slots, state.pools["west"].slots) == (0, 0b00011, 0b11100)
    assert state.jobs[2].attempts[0].slots == 0b10100, "it has started beside job 1"
    core.handle(PolicyChosen(3, "fcfs"))
    core.check()
    assert (state.slots, state.pools, {view.pool for view in state.jobs.values()}) == (0b11111, {}, {state})
    assert sorted(state.jobs) == [1, 2]


class Border:
    """One pool with the first slots, one with the others; jobs come to the first."""

    per_instant = False
    task_rounds = False

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def lower(self, pool: str) -> str:
        return "fcfs"

    def __call__(self, view: Snapshot) -> Plan:
        """Each job that comes is for the other side, and so is one more slot."""
        plan = view.plan()
        width = 4 - len([one for one in view.jobs.values() if one.priority])
        plan.lend("first", (1 << width) - 1)
        plan.lend("second", 0b1111 & -(1 << width), self.claim)
        for one in view.waiting:
            plan.deal("second" if one.priority else "first", one.id)
        return plan


@pytest.mark.parametrize("claim", [Claim.FREE, Claim.AFTER, Claim.KILL])
def test_slots_change_their_pool_by_the_claims_of_plans(claim: Claim) -> None:
    core = Scheduler(lambda text: Border(claim) if text == "border" else registry.find(text), "border")
    core.handle(NodeJoined(0, NodeSpec("a", 4)))
    core.handle(JobSubmitted(0, job(0, width=2, estimate=50)))
    core.handle(JobSubmitted(0, job(1, width=2, estimate=50)))
    pools = core.state.pools
    assert {name: pool.slots for name, pool in pools.items()} == {"first": 0b1111, "second": 0}
    actions = core.handle(JobSubmitted(1, job(2, width=1, estimate=50, priority=1)))
    core.check()
    first = core.state.others[0]
    if claim is Claim.FREE:
        assert (core.refusals["slot_busy"], first.up, actions) == (1, 0b1111, [])
        return
    assert (first.up, first.leaving) == (0b0111, {"second": 0b1000}), "nothing new starts there"
    assert [action.job for action in actions if isinstance(action, Kill)] == [1] * (claim is Claim.KILL)
    restored = Scheduler.restore(core.dump(), lambda text: Border(claim) if text == "border" else registry.find(text))
    outcome = Outcome.KILLED if claim is Claim.KILL else Outcome.SUCCEEDED
    for one in (core, restored):
        assert launched(one.handle(TaskEnded(2, 1, 0, 1, outcome))) == [(2, 0b1000)], "it has gone to the other pool"
        one.check()
    assert {name: pool.slots for name, pool in pools.items()} == {"first": 0b0111, "second": 0b1000}
    assert restored.dump() == core.dump()


class Sender:
    """Two pools of two slots each; all jobs are for the one that is named."""

    per_instant = False
    task_rounds = False

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.goal = "first"

    def lower(self, pool: str) -> str:
        return "fcfs"

    def __call__(self, view: Snapshot) -> Plan:
        """Every job goes there."""
        plan = view.plan()
        plan.lend("first", 0b0011)
        plan.lend("second", 0b1100)
        for number in view.jobs:
            plan.deal(self.goal, number, self.claim)
        return plan


@pytest.mark.parametrize("claim", [Claim.AFTER, Claim.KILL, Claim.MIGRATE])
def test_a_job_that_runs_changes_its_pool_by_the_claims_of_plans(claim: Claim) -> None:
    """Two of three tasks run, each 100 s long, when the job is dealt to the other pool after 30 s."""
    sender = Sender(claim)
    core = Scheduler(lambda text: sender if text == "sender" else registry.find(text), "sender")

    def feed(event: Event) -> list[Any]:
        """What follows, without wakes; a restored core must say the same."""
        twin = Scheduler.restore(core.dump(), lambda text: sender if text == "sender" else registry.find(text))
        actions = core.handle(event)
        core.check()
        assert twin.handle(event) == actions
        assert twin.dump() == core.dump()
        return [action for action in actions if isinstance(action, Launch | Kill | Suspend)]

    feed(NodeJoined(0, NodeSpec("a", 4)))
    assert len(feed(JobSubmitted(0, job(0, tasks=3, estimate=100, movable=True)))) == 2
    first, second = core.state.others
    sender.goal = "second"
    core.state.look_at_everything()
    view, ends = core.state.jobs[0], {Claim.KILL: Kill, Claim.MIGRATE: Suspend}
    asked = [ends[claim](0, task, 1) for task in range(2) if claim in ends]
    assert feed(Woke(30 * SECOND)) == asked
    assert (view.pool, first.departing, second.jobs) == (first, {0: view}, {}), "what runs is still there"
    outcome = Outcome.SUCCEEDED if claim is Claim.AFTER else Outcome.KILLED
    if claim is Claim.MIGRATE:
        for task in range(2):
            assert feed(TaskSaved(40 * SECOND, 0, task, 1)) == []
    assert feed(TaskEnded(40 * SECOND, 0, 0, 1, outcome)) == [], "nothing more of it starts in its old pool"
    started = feed(TaskEnded(40 * SECOND, 0, 1, 1, outcome))
    assert (view.pool, first.jobs, first.free, second.jobs) == (second, {}, 0b0011, {0: view})
    expected_ends = {attempt.task: attempt.expected_end for attempt in core.state.attempts()}
    if claim is Claim.AFTER:
        assert started == [Launch(0, 2, 1, 0b0100)], "only the task is left that had not begun"
        assert (view.ended, view.kills, view.moves, view.lost) == (2, 0, 0, 0)
    else:
        assert started == [Launch(0, 0, 2, 0b0100), Launch(0, 1, 2, 0b1000)]
    if claim is Claim.KILL:
        assert expected_ends == dict.fromkeys(range(2), 140 * SECOND), "they start again"
        assert (view.kills, view.moves, view.lost) == (2, 0, 80 * SECOND)
    if claim is Claim.MIGRATE:
        assert expected_ends == dict.fromkeys(range(2), 100 * SECOND), "they go on with what they had done"
        assert (view.kept, view.kills, view.lost) == (dict.fromkeys(range(2), 40 * SECOND), 0, 0)


class Misnamed(Border):
    """The policy of a pool cannot be found."""

    def lower(self, pool: str) -> str:
        return "easi"


def test_a_pool_whose_policy_cannot_be_found_harms_no_other() -> None:
    core = Scheduler(lambda text: Misnamed(Claim.FREE) if text == "wrong" else registry.find(text), "wrong")
    core.handle(NodeJoined(0, NodeSpec("a", 4)))
    assert core.handle(JobSubmitted(0, job(0))) == []
    core.check()
    assert "easi" in str(core.absent)
    assert core.refusals["policy_raised_InvalidInput"] > 0
    assert launched(core.handle(PolicyChosen(1, "fcfs"))) == [(0, 1)], "another policy serves what has waited"
    assert core.absent is None


def test_nodes_without_a_site_are_one() -> None:
    core = Scheduler(registry.find, "sites:each=fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 1, site="")))
    assert launched(core.handle(JobSubmitted(0, job(0)))) == [(0, 1)]
    core.check()


def test_nodes_join_drain_and_resize_in_their_site() -> None:
    core = Scheduler(registry.find, "sites:each=fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 1, site="east")))
    core.handle(NodeJoined(0, NodeSpec("b", 1, site="west")))
    for number in range(4):
        core.handle(JobSubmitted(0, job(number, width=1, estimate=99)))
    assert launched(core.handle(NodeJoined(1, NodeSpec("c", 1, site="west")))) == [(3, 0b100)]
    assert launched(core.handle(NodeResized(2, "a", 2))) == [(2, 0b1000)]
    core.handle(NodeDrained(3, "b"))
    core.check()
    assert core.state.pools["west"].up == 0b100
    assert launched(core.handle(TaskEnded(4, 1, 0, 1))) == []
    core.check()
    assert list(core.state.pools["west"].nodes) == ["c"]


@pytest.mark.parametrize(("rules", "slot"), [(4, 0), (RULES, 5)])
def test_a_node_that_joins_stands_behind_those_of_its_site_as_it_would_alone(rules: int, slot: int) -> None:
    """It has the size of one that has left another site: by older rules it took over the slots of that one."""
    core = Scheduler(registry.find, "sites:each=fcfs")
    core.handle(RulesChosen(0, rules))
    for name, slots, site in (("a", 2, "east"), ("b", 3, "east"), ("c", 2, "west")):
        core.handle(NodeJoined(0, NodeSpec(name, slots, site=site)))
    core.handle(NodeDrained(1, "a"))
    core.handle(NodeJoined(2, NodeSpec("d", 2, site="west")))
    core.handle(JobSubmitted(3, job(0, width=1)))
    assert launched(core.handle(JobSubmitted(3, job(1, width=1)))) == [(1, 1 << slot)]
    core.handle(NodeJoined(4, NodeSpec("e", 2, site="east")))
    core.check()
    assert core.state.nodes["e"].slots == (0b11 if rules == RULES else 0b11 << 7), "it takes over those of its site"


@pytest.mark.parametrize("each", ["easy", "deadline", "measy"])
def test_what_happens_in_a_site_costs_a_round_of_that_site(each: str, lines_run: Lines) -> None:
    """In each of the others, nothing happens but that its clock is set: a loop of two lines."""
    one, hundred = (lines_run(ending(f"sites:each={each}", sites)) for sites in (1, 100))
    assert hundred <= one + 2 * 99


@pytest.mark.parametrize("top", ["rr", "lb"])
def test_a_job_that_comes_is_dealt_without_a_look_at_the_nodes_of_all_sites(top: str, lines_run: Lines) -> None:
    """To count what a hundred sites were dealt takes a dozen lines for each, and nothing of that if they take turns."""
    one, hundred = (lines_run(coming(f"sites:top={top}", sites)) for sites in (1, 100))
    assert hundred <= one + {"rr": 400, "lb": 1800}[top]


def coming(policy: str, sites: int) -> Callable[[], object]:
    """What deals a job to one of so many sites with a few jobs each."""
    core = Scheduler(registry.find, policy)
    for site in range(sites):
        core.handle(NodeJoined(0, node(f"n{site}", slots=64, site=f"s{site}")))
    for number in range(5 * sites + 1):
        core.handle(JobSubmitted(number, job(number, width=2, estimate=90)))
        core.handle(Woke(number))
    last = job(5 * sites + 1, width=2, estimate=90)

    def come() -> None:
        core.handle(JobSubmitted(SECOND, last))
        core.handle(Woke(SECOND))

    return come


def ending(policy: str, sites: int) -> Callable[[], object]:
    """What ends a task on one of so many sites of 64 slots, each full and with jobs that wait."""
    core = Scheduler(registry.find, policy)
    for site in range(sites):
        core.handle(NodeJoined(0, node(f"n{site}", slots=64, site=f"s{site}")))
    for number in range(40 * sites):
        core.handle(JobSubmitted(0, job(number, width=2, estimate=90 + number // sites, due=999)))
    core.handle(Woke(0))
    ends = next(attempt for attempt in core.state.runs() if attempt.job.id == 0)

    def end() -> None:
        core.handle(TaskEnded(SECOND, 0, 0, ends.number))
        core.handle(Woke(SECOND))

    return end


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sites:top=best", "top of policy sites is 'best'; allowed: rr"),
        ("sites:each=sites", "each of policy sites is 'sites'; allowed: a policy for one site"),
        ("sites:each=easi", "each of policy sites is 'easi'; allowed: anneal, atc, conservative"),
        ("sites:each=easy:depht=2", "parameter of policy easy"),
        ("sites:at=east", "at of policy sites is 'east'; allowed: SITE/POLICY[|SITE/POLICY...]"),
        ("sites:at=east/easy|", "at of policy sites is ''; allowed: SITE/POLICY[|SITE/POLICY...]"),
        ("sites:at=/easy", "at of policy sites is '/easy'; allowed: SITE/POLICY[|SITE/POLICY...]"),
        ("sites:at=east/easi", "at of policy sites is 'easi'; allowed: anneal, atc, conservative"),
        ("sites:at=east/easy:ordr=due", "parameter of policy easy of policy sites is 'ordr'; allowed: order"),
        ("sites:at=east/services", "at of policy sites is 'services'; allowed: a policy for one site"),
        ("sites:at=east/easy|east/fcfs", "at of policy sites is 'east/fcfs'; allowed: site east once"),
        ("sites:top=lb,at=east/easy:per_instant=false", "allowed: per_instant once"),
    ],
)
def test_what_is_no_policy_of_sites_is_said(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match="of policy") as raised:
        registry.find(text)
    assert said in str(raised.value.args[0])


@pytest.mark.parametrize("text", ["sites:each=nope", "sites:at=east/nope", "services:batch=nope"])
def test_every_policy_that_is_offered_for_a_pool_is_taken_there(text: str) -> None:
    with pytest.raises(InvalidInput, match="is 'nope'") as raised:
        registry.find(text)
    offered = raised.value.allowed.split(", ")
    assert {"easy", "edf", "instances"} <= set(offered)
    for name in offered:
        registry.find(text.replace("nope", name))
    for top in ("sites", "services"):
        with pytest.raises(InvalidInput, match=f"is '{top}'; allowed: a policy for one"):
            registry.find(text.replace("nope", top))


def test_the_policy_of_each_site_may_have_parameters() -> None:
    assert registry.find("sites:each=easy:order=due;depth=2").lower("x") == "easy:order=due,depth=2"  # type: ignore[attr-defined]
    core = Scheduler(registry.find, "sites:each=easy:order=due;depth=2")
    core.handle(NodeJoined(0, NodeSpec("a", 1, site="east")))
    assert core.state.others[0].text == "easy:order=due,depth=2"


def test_a_site_may_have_a_policy_of_its_own() -> None:
    """Each site is scheduled as if it were alone under its policy; a journal and a restored core keep to that."""
    text = "sites:top=rr,each=easy,at=west/heft:holes=best;order=due|north/fcfs"
    columns, dealt, policies = workload(8), dict[int, str](), dict[str, str]()

    def look(scheduler: Scheduler) -> None:
        dealt.update({number: view.pool.name for number, view in scheduler.state.jobs.items() if view.pool.name})
        policies.update({pool.name: pool.text for pool in scheduler.state.others})

    whole = Simulation(made(columns), NODES, registry.find, text, audit=look).run()
    assert policies == {"east": "easy", "west": "heft:holes=best,order=due"}
    for site in SITES:
        jobs = sorted(number for number in dealt if dealt[number] == site)
        nodes = [spec for spec in NODES if spec.site == site]
        alone = Simulation(made(columns, jobs), nodes, registry.find, policies[site]).run()
        assert alone.start.tolist() == whole.start[jobs].tolist(), site


def test_the_policies_of_single_sites_are_kept_and_chosen_anew() -> None:
    core = Scheduler(registry.find, "sites:each=fcfs,at=east/heft")
    core.handle(NodeJoined(0, NodeSpec("a", 1, site="east")))
    core.handle(NodeJoined(0, NodeSpec("b", 1, site="west")))
    assert {pool.name: pool.text for pool in core.state.others} == {"east": "heft", "west": "fcfs"}
    restored = Scheduler.restore(core.dump(), registry.find)
    for one in (core, restored):
        assert {name: type(pool.policy).__name__ for name, pool in one.state.pools.items()} == {  # type: ignore[attr-defined]
            "east": "Heft",
            "west": "Strict",
        }
        one.handle(PolicyChosen(1, "sites:each=fcfs,at=west/easy:order=due"))
        assert {pool.name: pool.text for pool in one.state.others} == {"east": "fcfs", "west": "easy:order=due"}
        one.check()
    assert core.dump() == restored.dump()


PAGE = Path(__file__).parents[2] / "docs" / "policies" / "sites.md"


def test_the_top_level_of_the_page_deals() -> None:
    """Each half is as a cluster of its own."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    columns = workload(6) | {"kind": np.full(150, Kind.RIGID, np.int8), "tasks": np.ones(150, np.int64)}
    columns["width"] = np.minimum(columns["width"], 2)

    def find(text: str) -> Any:
        return names["Halves"]() if text == "halves" else registry.find(text)

    whole = Simulation(made(columns), [NodeSpec("a", 4)], find, "halves").run()
    for parity in range(2):
        jobs = list(range(parity, 150, 2))
        alone = Simulation(made(columns, jobs), [NodeSpec("a", 2)], registry.find, "easy").run()
        assert alone.start.tolist() == whole.start[jobs].tolist()


@pytest.mark.parametrize("top", ["rr", "lb", "fill"])
@pytest.mark.parametrize("smaller", [NodeResized(3, "b", 2), NodeDrained(3, "c")])
def test_what_has_not_started_at_a_site_that_becomes_too_small_is_dealt_anew(top: str, smaller: Event) -> None:
    """To where it fits now; if it fits nowhere, it waits, is told so, and goes where it fits first."""
    core = Scheduler(registry.find, f"sites:top={top},each=fcfs")
    for name, slots, site in (("a", 1, "west"), ("b", 3, "east"), ("c", 2, "east"), ("d", 1, "east")):
        core.handle(NodeJoined(0, NodeSpec(name, slots, site=site)))
    for number, width in ((0, 3), (1, 6), (2, 3), (3, 1)):
        core.handle(JobSubmitted(number, job(number, width=width, estimate=99)))
        core.handle(Woke(number))
    assert [view.pool.name for view in core.state.jobs.values()] == ["east", "east", "east", "west"]
    core.handle(smaller)
    core.handle(Woke(3))
    core.check()
    assert core.state.jobs[1].pool.name == "east"
    told = core.explain(1)
    assert (told.reason, told.text) == (Reason.NEVER_FITS, "it needs more slots than any part of the cluster has now")
    restored = Scheduler.restore(core.dump(), registry.find)
    for one in (core, restored):
        one.handle(NodeJoined(4, NodeSpec("e", 5, site="west")))
        one.handle(Woke(4))
        one.check()
        assert one.state.jobs[1].pool.name == "west"
        assert one.state.jobs[2].pool.name == "east", "it still fits there"
        assert "because site east, where it was before, could not run it any more" in one.why_there(1) or (
            "no other site can hold it" in one.why_there(1)
        )
    assert restored.dump() == core.dump()


def test_a_job_whose_site_became_too_small_while_the_others_are_down_is_told_so_and_goes_there_later() -> None:
    core = Scheduler(registry.find, "sites:top=rr,each=easy")
    for name, site in (("a", "east"), ("b", "west")):
        core.handle(NodeJoined(0, NodeSpec(name, 4, site=site)))
    for number in range(3):
        core.handle(JobSubmitted(number, job(number, width=4, estimate=99)))
    core.handle(NodeDown(3, "b"))
    core.handle(NodeResized(4, "a", 2))
    core.handle(TaskEnded(4, 0, 0, 1))
    core.handle(Woke(4))
    assert [view.pool.name for view in core.state.jobs.values()] == ["east", "east"], "job 1 went there from the west"
    assert core.explain(1).text == "it needs more slots than its site east has now"
    core.handle(NodeUp(5, "b"))
    core.handle(Woke(5))
    core.check()
    assert [view.pool.name for view in core.state.jobs.values()] == ["west", "west"]


@pytest.mark.parametrize(("rules", "site"), [(4, "west"), (RULES, "east")])
def test_a_job_is_dealt_anew_when_a_node_that_was_down_does_not_come_back(rules: int, site: str) -> None:
    core = Scheduler(registry.find, "sites:top=rr,each=fcfs")
    core.handle(RulesChosen(0, rules))
    for name, place, slots in (("a", "west", 2), ("b", "west", 2), ("c", "east", 4)):
        core.handle(NodeJoined(0, NodeSpec(name, slots, site=place)))
    for number in range(3):
        core.handle(JobSubmitted(0, job(number, width=4, estimate=99)))
    core.handle(TaskEnded(1, 1, 0, 1))
    core.handle(NodeDown(2, "b", excused=True))
    assert core.state.jobs[2].pool.name == "west", "it may come back"
    core.handle(NodeLeft(3, "b"))
    core.check()
    assert core.state.jobs[2].pool.name == site


def test_a_job_that_no_site_can_hold_is_told_so() -> None:
    core = Scheduler(registry.find, "sites:top=rr,each=fcfs")
    for name, site in (("a", "east"), ("b", "west")):
        core.handle(NodeJoined(0, NodeSpec(name, 4, site=site)))
    core.handle(JobSubmitted(0, job(0, width=6)))
    core.handle(Woke(0))
    assert core.explain(0).text == "it needs more slots than any part of the cluster has now"


def test_what_has_not_started_at_a_site_that_goes_down_is_dealt_anew() -> None:
    core = Scheduler(registry.find, "sites:top=rr,each=fcfs")
    for name, site in (("a", "east"), ("b", "west"), ("c", "west")):
        core.handle(NodeJoined(0, NodeSpec(name, 1, site=site)))
    for number in range(8):  # 0, 2, 4 and 6 go east, of which 0 runs; 1, 3, 5 and 7 go west, of which 1 runs
        core.handle(JobSubmitted(0, job(number, tasks=2, estimate=9)))

    def where() -> list[str]:
        return [core.state.jobs[number].pool.name for number in sorted(core.state.jobs)]

    assert where() == ["east", "west"] * 4
    core.handle(NodeDown(1, "b"))
    assert where() == ["east", "west"] * 4, "a part of a site is down: the rest goes on"
    core.handle(TaskEnded(2, 1, 1, 1))
    core.handle(NodeDown(3, "c"))
    core.check()
    # A task of job 1 has ended in the west; it stays. What was lost with the nodes starts anew elsewhere.
    assert where() == ["east", "west", *["east"] * 6]
    core.handle(NodeDown(4, "a"))
    core.check()
    assert where() == ["east", "west", *["east"] * 6], "nothing is up: all wait"
    core.handle(NodeUp(5, "b"))
    core.check()
    assert where() == ["west"] * 8
    assert core.explain(7).reason is Reason.BEHIND_OTHERS
    again = "site east, where it was before, could not run it any more, so it was dealt again"
    restored = Scheduler.restore(core.dump(), registry.find)
    for one in (core, restored):
        assert again in one.why_there(7)
        assert [view.dealt_from for _, view in sorted(one.state.jobs.items())] == ["east", "", *["east"] * 6]
        one.handle(PolicyChosen(6, "fcfs"))
        assert {view.dealt_from for view in one.state.jobs.values()} == {""}
        assert one.why_there(7) == ""
