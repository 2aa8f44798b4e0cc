"""Nodes that are switched off while nothing needs them: what that may cost in time, and what it saves."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from headway.advice.language import read_question, write_question
from headway.advice.snapshots import check_snapshot
from headway.core import switching
from headway.core.record import NodeRecord, StateRecord
from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.errors import Contradiction
from headway.live.store.decisions import decided_row, decision_of
from headway.metrics.energy import energy_of
from headway.model.actions import SwitchOff, SwitchOn
from headway.model.events import Event, JobSubmitted, NodeJoined, NodeOff, NodeOn, SwitchingChosen, TaskEnded, Woke
from headway.model.instant import NEVER, SECOND
from headway.model.job import Bag, JobSpec, Kind, Rigid, Service, TaskSpec, Workflow
from headway.model.node import Capabilities, NodeSpec, Power
from headway.model.outcome import Outcome
from headway.model.power import PowerState, Switching
from headway.model.schedule import Schedule
from headway.model.seen import JobView
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.specs import specs

OFF_TIME, ON_TIME, OFF_AFTER = 3 * SECOND, 20 * SECOND, 30 * SECOND
RULE = (Switching("", OFF_AFTER, OFF_TIME, ON_TIME, off_watts=2.0, min_on=0),)
NODES = tuple(NodeSpec(f"n{number}", 2, power=Power(50.0, 90.0)) for number in range(6))
SEEDS = range(4)


def sparse_jobs(chance: Random, kind: Kind, *, count: int = 25) -> Workload:
    """Jobs of known run times that come in bursts, with hours of quiet between them."""
    now, releases = 0, []
    for _ in range(count):
        now += chance.choice([0, 0, 1, 15, 40, 200]) * SECOND
        releases.append(now)
    graphs = {}
    if kind is Kind.WORKFLOW:
        graphs = {number: a_graph(chance) for number in range(count)}
    rigid = kind is Kind.RIGID
    return workload_us(
        release=releases,
        runtime=[chance.choice([1, 5, 30, 90]) * SECOND for _ in range(count)],
        tasks=[len(graphs.get(number, ())) or (1 if rigid else chance.randint(1, 6)) for number in range(count)],
        width=[chance.choice([1, 1, 2, 5, 12]) if rigid else 1 for _ in range(count)],
        kind=int(kind),
        workflows=graphs,
    )


def a_graph(chance: Random) -> tuple[TaskSpec, ...]:
    tasks: list[TaskSpec] = []
    for task in range(chance.randint(1, 6)):
        after = tuple(sorted({chance.randrange(task) for _ in range(chance.randint(0, 2))})) if task else ()
        tasks.append(TaskSpec(chance.choice([1, 9, 60, 150]) * SECOND, chance.randint(1, 2), after))
    return tuple(tasks)


def simulate(
    workload: Workload,
    policy: str,
    rule: tuple[Switching, ...] = RULE,
    nodes: tuple[NodeSpec, ...] = NODES,
    outages: tuple[Outage, ...] = (),
) -> Schedule:
    """Run it, with the whole state checked after every event."""

    def audit(core: Scheduler) -> None:
        core.check()

    simulation = Simulation(
        workload, nodes, registry.find, policy, switching=rule, record=True, audit=audit, outages=outages
    )
    return simulation.run()


def joules(schedule: Schedule) -> float:
    energy = energy_of(schedule)
    assert energy is not None
    return energy.joules


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [Kind.RIGID, Kind.BAG])
def test_first_come_first_served_ends_each_job_later_by_one_switch_at_most(kind: Kind, seed: int) -> None:
    """Delays do not add up: by the time a job would start, all that it needs was asked for when it came."""
    workload = sparse_jobs(Random(seed), kind)
    policy = "fcfs"
    on, off = simulate(workload, policy, ()), simulate(workload, policy)
    assert (off.end - on.end).max() <= OFF_TIME + ON_TIME
    assert any(state is PowerState.OFF for _, _, state in off.power)
    assert joules(off) < joules(on)


def known_ahead(workload: Workload, policy: str, rule: tuple[Switching, ...]) -> Schedule:
    """The same, but that all jobs are submitted at the beginning."""
    core = Scheduler(registry.find, policy)
    for node in NODES:
        core.handle(NodeJoined(0, node))
    core.handle(SwitchingChosen(0, rule))
    for job in specs(workload, movable=False):
        core.handle(JobSubmitted(0, job))

    def audit(core: Scheduler) -> None:
        core.check()

    return Simulation.from_state(core.dump(), registry.find, record=True, audit=audit).run()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "edf", "priority"])
def test_jobs_that_are_known_ahead_end_when_they_would(policy: str, seed: int) -> None:
    """What is known to come is never waited for: the nodes that it needs are on by then."""
    chance = Random(seed)
    workload = sparse_jobs(chance, chance.choice([Kind.RIGID, Kind.BAG]))
    on, off = known_ahead(workload, policy, ()), known_ahead(workload, policy, RULE)
    assert off.end.tolist() == on.end.tolist()
    assert joules(off) <= joules(on)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["heft", "heft:holes=best"])
def test_planned_workflows_end_when_they_would(policy: str, seed: int) -> None:
    """A node is on by the start of the first task that is planned there."""
    workload = sparse_jobs(Random(seed), Kind.WORKFLOW, count=8)
    workload = replace(workload, release=np.zeros_like(workload.release))
    on, off = simulate(workload, policy, ()), simulate(workload, policy)
    assert off.end.tolist() == on.end.tolist()
    assert joules(off) <= joules(on)


@pytest.mark.parametrize("policy", ["heft", "heft:improve=5", "peft"])
def test_a_workflow_is_planned_on_nodes_that_are_off(policy: str) -> None:
    """All nodes are off when it comes: its tasks are promised starts for when they can be on."""
    core = Scheduler(registry.find, policy)
    for node in NODES[:2]:
        core.handle(NodeJoined(0, node))
    core.handle(SwitchingChosen(0, RULE))
    core.handle(Woke(0))
    core.handle(Woke(OFF_AFTER))
    now = OFF_AFTER + OFF_TIME
    for node in NODES[:2]:
        core.handle(NodeOff(now, node.name))
    graph = tuple(TaskSpec(9 * SECOND, 1 + task % 2, (task - 1,) if task else ()) for task in range(4))
    core.handle(JobSubmitted(now, Workflow(1, release=now, graph=graph)))
    core.handle(Woke(now))
    core.check()
    assert core.failure is None
    starts = sorted(start for start, _ in core.state.jobs[1].planned.values())
    assert starts == [now + ON_TIME + task * 9 * SECOND for task in range(4)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "policy", ["easy", "easy:depth=3", "conservative", "tempo", "heft", "sites:top=fill,each=heft"]
)
def test_where_a_job_waits_no_node_that_it_needs_stays_off(policy: str, seed: int) -> None:
    """Whatever the policy, the speeds, and the outages: then what waits for an hour waits for nodes that are on."""
    chance = Random(seed)
    kind = Kind.WORKFLOW if "heft" in policy else chance.choice([Kind.RIGID, Kind.BAG])
    workload = sparse_jobs(chance, kind, count=15)
    nodes = tuple(
        replace(node, speed=chance.choice([1.0, 0.5, 3.0]), site=chance.choice(["east", "west"])) for node in NODES
    )
    nodes = (replace(nodes[0], slots=12, site="east"), replace(nodes[1], slots=12, site="west"), *nodes[2:])
    outages = (Outage("n3", 20.0, 300.0), Outage("n4", 250.0, 400.0))
    events: list[Event] = []

    def audit(core: Scheduler) -> None:
        core.check()
        state = core.state
        waits = sum(job.ready * job.width for job in state.jobs.values() if job.release <= state.now)
        if core.decided is not None and waits > sum(node.slots.bit_count() for node in state.nodes.values()):
            assert not [node for node in state.dark.values() if node.power is PowerState.OFF and node.up]

    rule = (Switching("", OFF_AFTER, OFF_TIME, ON_TIME, min_on=1), Switching("west", 0, 0, ON_TIME))
    simulation = Simulation(
        workload, nodes, registry.find, policy, switching=rule, audit=audit, outages=outages, journal=events
    )
    schedule = simulation.run()
    assert not schedule.refused
    assert (schedule.end >= 0).all()


@pytest.mark.parametrize("policy", ["easy", "fcfs", "tempo", "edf", "greedy"])
def test_a_node_comes_on_for_a_job_that_finds_enough_free_slots_but_at_two_engines(policy: str) -> None:
    apart = Capabilities(spans=False)
    nodes = tuple(NodeSpec(site, 4, site=site, capabilities=apart) for site in ("east", "west", "south"))
    workload = workload_us(
        release=[0, 0, 100 * SECOND], runtime=[1000 * SECOND, 1000 * SECOND, SECOND], width=[3, 2, 3], tasks=1,
        kind=int(Kind.RIGID),
    )  # fmt: skip
    ends = simulate(workload, policy, nodes=nodes).end
    assert ends[2] <= 101 * SECOND + ON_TIME + 1


@pytest.mark.parametrize("policy", ["easy", "conservative:per_instant=true", "sites:top=rr,each=heft"])
def test_a_replay_switches_the_same_nodes(policy: str) -> None:
    """What the rule decided is recorded, so that a replay does not ask it; and a restored state goes on alike."""
    chance = Random(5)
    workload = sparse_jobs(chance, Kind.WORKFLOW if "heft" in policy else Kind.RIGID)
    core, twin = Scheduler(registry.find, policy), Scheduler(registry.find, policy)
    journal: list[Event] = []
    Simulation(workload, NODES, registry.find, policy, switching=RULE, journal=journal).run()
    switched = 0
    for number, event in enumerate(journal):
        actions = core.handle(event)
        switched += sum(isinstance(action, SwitchOff | SwitchOn) for action in actions)
        body = decided_row(number, event.at, event, core.decided)[3]
        assert twin.replay(event, decision_of(body)) == actions
        assert twin.dump() == core.dump()
        if number % 7 == 0:
            told = read_question(write_question(core.dump())).snapshot
            check_snapshot(told)
            assert told == core.dump()
            core = Scheduler.restore(core.dump(), registry.find)
            core.check()
    assert switched > 4


def test_a_restored_state_goes_on_alike_when_nothing_is_switched_any_more() -> None:
    core = Scheduler(registry.find, "fcfs")
    for event in (NodeJoined(0, NODES[0]), SwitchingChosen(0, RULE), SwitchingChosen(1, ())):
        core.handle(event)
    twin = Scheduler.restore(core.dump(), registry.find)
    for event in (JobSubmitted(2, Bag(1, release=50)), Woke(50)):
        assert core.handle(event) == twin.handle(event)
        assert (core.decided, core.dump()) == (twin.decided, twin.dump())


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"was_taken": (10**9,)}, "was_taken"),
        ({"switching": (Switching(on_time=-1),)}, r"switching\[0\].on_time"),
        ({"nodes": (NodeRecord(NODES[0], power="off", up=False),)}, r"nodes\[0\].power"),
        ({"nodes": (NodeRecord(NODES[0], idle_since=2 * NEVER),)}, r"nodes\[0\].idle_since"),
    ],
)
def test_a_question_with_impossible_power_is_refused(changes: dict[str, object], wrong: str) -> None:
    snapshot = StateRecord(0, (NodeRecord(NODES[0]),), ())
    check_snapshot(snapshot)
    with pytest.raises(Contradiction, match=wrong):
        check_snapshot(replace(snapshot, **changes))  # type: ignore[arg-type]  # fields by name


def test_a_node_that_joins_again_while_it_is_off_is_on_in_the_record() -> None:
    core = Scheduler(registry.find, "fcfs")
    recorder = Recorder(core, attempts=True)

    def happens(event: Event) -> None:
        recorder.note(event, list(core.handle(event)), event.at)

    for event in (NodeJoined(0, NODES[0]), SwitchingChosen(0, RULE), Woke(0), Woke(OFF_AFTER)):
        happens(event)
    off = OFF_AFTER + OFF_TIME
    for event in (NodeOff(off, NODES[0].name), NodeJoined(off + 5, NODES[0])):
        happens(event)
    schedule = recorder.schedule(workload_us(release=[], runtime=[]), [], begin=0, until=off + 5)
    assert schedule.power == (
        (OFF_AFTER, 0, PowerState.GOING_OFF),
        (off, 0, PowerState.OFF),
        (off + 5, 0, PowerState.ON),
    )


def test_while_another_node_only_comes_on_the_last_one_stays_on() -> None:
    """It may fail to come. So of `min_on=1` only a node that is on counts."""
    core, actions = Scheduler(registry.find, "fcfs"), list[object]()
    one, other = (replace(node, slots=1) for node in NODES[:2])

    def happens(*events: Event) -> None:
        for event in events:
            actions.extend(core.handle(event))

    rule = replace(RULE[0], on_time=10 * OFF_AFTER, min_on=1)
    happens(NodeJoined(0, one), NodeJoined(0, other), SwitchingChosen(0, (rule,)), Woke(0), Woke(OFF_AFTER))
    now = OFF_AFTER + OFF_TIME
    happens(NodeOff(now, other.name), JobSubmitted(now, Bag(1, tasks=2, estimate=5)))
    happens(TaskEnded(now + 5, 1, 0, 1, Outcome.SUCCEEDED), TaskEnded(now + 10, 1, 1, 1, Outcome.SUCCEEDED))
    happens(Woke(now + 11), Woke(now + 10 + OFF_AFTER), Woke(now + 20 + OFF_AFTER))
    assert [one for one in actions if isinstance(one, SwitchOff | SwitchOn)] == [
        SwitchOff(other.name, 1),
        SwitchOn(other.name, 2),
    ]
    now += 10 * OFF_AFTER
    happens(NodeOn(now, other.name), Woke(now + 1))
    assert SwitchOff(one.name, 3) in actions


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
def test_jobs_that_come_after_others_end_when_they_would(policy: str, seed: int) -> None:
    """By estimates the earliest instant at which a chain of jobs comes to one of them is known ahead."""
    chance = Random(seed)
    jobs, now = list[JobSpec](), 0
    for number in range(1, 30):
        now += chance.choice([0, 40, 200]) * SECOND
        after = tuple({chance.randint(max(1, number - 5), number) for _ in range(2)} - {number}) if number % 4 else ()
        length = chance.choice([30, 90, 200]) * SECOND
        jobs.append(Rigid(number, width=chance.choice([1, 2, 5, 12]), estimate=length, after=after, release=now))

    def ends(rule: tuple[Switching, ...]) -> list[int]:
        core = Scheduler(registry.find, policy)
        for event in (*(NodeJoined(0, node) for node in NODES), SwitchingChosen(0, rule)):
            core.handle(event)
        for job in jobs:
            core.handle(JobSubmitted(0, job))
        simulation = Simulation.from_state(core.dump(), registry.find, record=True, audit=Scheduler.check)
        schedule = simulation.run()
        assert not rule or any(state is PowerState.OFF for _, _, state in schedule.power)
        return sorted(zip(schedule.label.tolist(), schedule.end.tolist(), strict=True))

    assert ends(RULE) == ends(())


@pytest.mark.parametrize("how", ["after one that runs", "in a chain", "after one that is released later", "a service"])
def test_how_many_jobs_the_rule_looks_at_does_not_grow_with_those_that_come(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = [0]
    need = switching._need

    def counted(state: State, job: JobView) -> int:
        looked[0] += 1
        return need(state, job)

    monkeypatch.setattr(switching, "_need", counted)

    def effort(jobs: int) -> int:
        core = Scheduler(registry.find, "services" if how == "a service" else "fcfs")
        for event in (*(NodeJoined(0, node) for node in NODES), SwitchingChosen(0, RULE)):
            core.handle(event)
        first = Bag(1, estimate=1000 * SECOND, release=10**9 if "released" in how else 0)
        core.handle(JobSubmitted(0, Service(1) if how == "a service" else first))
        for number in range(2, jobs + 2):
            before = {"in a chain": (number - 1,), "a service": ()}.get(how, (1,))
            later = 0 if before else 10**9 + number
            core.handle(JobSubmitted(0, Bag(number, estimate=SECOND, after=before, release=later)))
        core.handle(Woke(0))
        looked[0] = 0
        core.handle(Woke(OFF_AFTER))
        core.check()
        return looked[0]

    assert 0 < effort(30) == effort(300)
