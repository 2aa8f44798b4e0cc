"""Simulations with nodes that fail: first safety, then a calm time in which everything ends."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.actions import JobStatus
from headway.model.events import Event
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.plan import Claim, Plan
from headway.model.policy import Policy
from headway.model.schedule import NOT_YET, STATUSES, Schedule
from headway.model.snapshot import Snapshot
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim import experiment
from headway.sim.faults import Outage, drawn_outages
from headway.sim.kernel import Simulation
from headway.sim.world import World

from ..effort import one_in

SUCCEEDED = STATUSES.index(JobStatus.SUCCEEDED)
POLICIES = [
    *("fcfs", "sjf", "easy", "conservative", "edf", "priority", "priority:reserve=0.4,spare=due"),
    *("proportion", "workload", "deadline", "deadline:spare=priority", "heft", "tempo"),
]


def mixed_workload(seed: int, jobs: int = 30) -> Workload:
    """Jobs of all three kinds, ten seconds long or so."""
    chance = Random(seed)
    kinds, tasks, width, workflows = [], [], [], {}
    release = sorted(chance.randint(0, 60) * SECOND for _ in range(jobs))
    for job in range(jobs):
        kind = chance.choice(list(Kind))
        kinds.append(int(kind))
        tasks.append(chance.randint(1, 8) if kind is Kind.BAG else 1)
        width.append(chance.randint(1, 5) if kind is Kind.RIGID else 1)
        if kind is Kind.WORKFLOW:
            tasks[-1] = chance.randint(1, 6)
            workflows[job] = tuple(
                TaskSpec(
                    chance.randint(1, 10) * SECOND,
                    chance.randint(1, 2),
                    tuple({chance.randrange(task) for _ in range(2)}) if task and chance.random() < 0.7 else (),
                )
                for task in range(tasks[-1])
            )
    runtime = [chance.randint(0, 20) * SECOND for _ in range(jobs)]
    return workload_us(
        release=release,
        runtime=runtime,
        estimate=[chance.choice([time, 2 * time, -1]) for time in runtime],
        tasks=tasks,
        width=width,
        kind=kinds,
        due=[at + chance.randint(0, 100) * SECOND for at in release],
        priority=[float(chance.randint(0, 3)) for _ in range(jobs)],
        workflows=workflows,
    )


def nodes_of(*speeds: float, slots: int = 2) -> list[NodeSpec]:
    return [NodeSpec(f"n{number}", slots=slots, speed=speed) for number, speed in enumerate(speeds)]


def books_balance(schedule: Schedule, workload: Workload, *, uniform: bool) -> None:
    """Check that attempts do not overlap on a slot. All runs count as busy, and as work if they were not lost."""
    runs = schedule.attempts
    assert runs is not None
    assert schedule.busy == int(((runs.end - runs.start) * runs.count).sum())
    assert 0 <= schedule.busy <= schedule.offered
    by_slot: dict[int, list[tuple[int, int]]] = {}
    for first, count, start, end in zip(runs.first, runs.count, runs.start, runs.end, strict=True):
        for slot in range(first, first + count):
            by_slot.setdefault(int(slot), []).append((int(start), int(end)))
    for spans in by_slot.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    if uniform:
        useful = np.zeros(len(schedule), dtype=np.int64)
        np.add.at(useful, runs.job, np.where(runs.wasted, 0, (runs.end - runs.start) * runs.count))
        plain = schedule.runtime * schedule.tasks * schedule.width
        for job, workflow in workload.workflows.items():
            plain[job] = sum(task.estimate * task.cores for task in workflow)
        assert (useful == plain).all()


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 40), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("policy", one_in(3, POLICIES))
@pytest.mark.parametrize("speeds", [(1.0, 1.0, 1.0), (1.0, 0.5, 3.0)], ids=["alike", "mixed"])
def test_all_jobs_end_though_nodes_fail(policy: str, speeds: tuple[float, ...], seeds: range) -> None:
    for seed in seeds:
        workload, nodes = mixed_workload(seed), nodes_of(*speeds)
        outages = drawn_outages(nodes, mean_up_seconds=30, mean_down_seconds=10, begin=0, until=200, seed=seed)
        journal: list[Event] = []
        simulation = Simulation(
            workload, nodes, registry.find, policy, outages=outages, record=True, audit=Scheduler.check, journal=journal
        )
        schedule = simulation.run()
        where = f"{policy}, seed {seed}"
        assert (schedule.status == SUCCEEDED).all(), where
        assert (schedule.start >= schedule.release).all(), where
        assert (schedule.end >= schedule.start).all(), where
        assert schedule.attempts is not None
        assert schedule.attempts.wasted.any(), f"{where}: no outage hit anything"
        books_balance(schedule, workload, uniform=speeds == (1.0, 1.0, 1.0))
        assert not simulation.scheduler.refusals, where
        replayed = Scheduler(registry.find, policy)
        for event in journal:
            replayed.handle(event)
        assert replayed.dump() == simulation.scheduler.dump(), where


def test_the_same_seed_gives_the_same_run() -> None:
    workload, nodes = mixed_workload(1), nodes_of(1.0, 2.0, 1.0)
    outages = drawn_outages(nodes, mean_up_seconds=30, mean_down_seconds=5, begin=0, until=100, seed=5)
    again = drawn_outages(nodes, mean_up_seconds=30, mean_down_seconds=5, begin=0, until=100, seed=5)
    assert outages == again
    assert outages != drawn_outages(nodes, mean_up_seconds=30, mean_down_seconds=5, begin=0, until=100, seed=6)
    first, second = (
        experiment.run(workload, nodes, "edf", outages=outages, world=World(noise=0.5, seed=3)) for _ in range(2)
    )
    assert (first.start == second.start).all()
    assert (first.end == second.end).all()
    other = experiment.run(workload, nodes, "edf", outages=outages, world=World(noise=0.5, seed=4))
    assert (first.end != other.end).any()


def test_drawn_outages_of_a_node_do_not_overlap_and_last_as_long_as_asked() -> None:
    nodes = nodes_of(*[1.0] * 20)
    outages = drawn_outages(nodes, mean_up_seconds=50, mean_down_seconds=10, begin=0, until=5000, seed=1)
    assert [(outage.at, outage.node) for outage in outages] == sorted((outage.at, outage.node) for outage in outages)
    lengths = []
    for node in nodes:
        own = [outage for outage in outages if outage.node == node.name]
        assert all(before.until < after.at for before, after in itertools.pairwise(own) if before.until)
        lengths += [outage.until - outage.at for outage in own if outage.until is not None]
    assert all(0 <= outage.at < 5000 for outage in outages)
    assert len(lengths) == pytest.approx(20 * 5000 / 60, rel=0.1)
    assert np.mean(lengths) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("name", ["mean_up_seconds", "mean_down_seconds"])
def test_outages_need_positive_times(name: str) -> None:
    terms = {"mean_up_seconds": 1.0, "mean_down_seconds": 1.0} | {name: 0.0}
    with pytest.raises(InvalidInput, match=f"{name} is 0.0"):
        drawn_outages(nodes_of(1.0), **terms, begin=0, until=1, seed=0)


def test_an_outage_of_no_node_is_refused_before_the_run() -> None:
    workload = workload_us(release=[0], runtime=[SECOND])
    with pytest.raises(InvalidInput, match=r"node of an outage is 'n00'; .*\nDid you mean n0"):
        experiment.run(workload, nodes_of(1.0), "fcfs", outages=[Outage("n00", 0)])


def test_a_seed_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="seed is -1"):
        drawn_outages(nodes_of(1.0), mean_up_seconds=1.0, mean_down_seconds=1.0, begin=0, until=1, seed=-1)


def test_an_outage_costs_the_work_it_hits_and_the_slots_it_takes() -> None:
    """One bag of two tasks of 10 s on two nodes; the second node is down from 4 s to 6 s."""
    workload = workload_us(release=[0], runtime=[10 * SECOND], tasks=2)
    schedule = experiment.run(workload, nodes_of(1.0, 1.0, slots=1), "edf", outages=[Outage("n1", 4, 6)], record=True)
    assert schedule.end.tolist() == [16 * SECOND]
    assert schedule.busy == (10 + 4 + 10) * SECOND
    assert schedule.offered == (16 + 14) * SECOND
    runs = schedule.attempts
    assert runs is not None
    assert sorted(zip(runs.start // SECOND, runs.end // SECOND, runs.wasted, strict=True)) == [
        (0, 4, True),
        (0, 10, False),
        (6, 16, False),
    ]


def test_an_outage_after_the_last_end_costs_nothing_and_gives_nothing() -> None:
    workload = workload_us(release=[0], runtime=[10 * SECOND])
    for until in (None, 60):
        schedule = experiment.run(workload, nodes_of(1.0), "fcfs", outages=[Outage("n0", 40, until)])
        assert schedule.end.tolist() == [10 * SECOND]
        assert (schedule.offered, schedule.busy) == (2 * 10 * SECOND, 10 * SECOND)


def test_a_job_released_in_the_instant_in_which_a_node_fails_does_not_start_there() -> None:
    """Events of nodes come first, whatever the job's place in the workload."""
    workload = workload_us(release=[0, 5 * SECOND], runtime=[SECOND, 2 * SECOND])
    schedule = experiment.run(workload, nodes_of(1.0, slots=1), "fcfs", outages=[Outage("n0", 5, 8)], record=True)
    assert schedule.start.tolist() == [0, 8 * SECOND]
    assert schedule.attempts is not None
    assert not schedule.attempts.wasted.any()
    assert schedule.lost == 0


def test_a_gang_that_loses_a_node_is_redone_whole() -> None:
    workload = workload_us(release=[0], runtime=[10 * SECOND], width=2, kind=Kind.RIGID)
    schedule = experiment.run(workload, nodes_of(1.0, 1.0, slots=1), "fcfs", outages=[Outage("n0", 4, 6)])
    assert schedule.start.tolist() == [0]
    assert schedule.end.tolist() == [16 * SECOND]
    assert schedule.busy == 2 * (4 + 10) * SECOND


def test_an_outage_for_good_leaves_waiting_what_needs_the_node() -> None:
    workload = workload_us(release=[0, 0], runtime=[10 * SECOND] * 2, width=[2, 1], kind=[Kind.RIGID] * 2)
    for period in (None, 1.0):
        schedule = experiment.run(
            workload, nodes_of(1.0, 1.0, slots=1), "easy", outages=[Outage("n0", 4)], period=period
        )
        assert [STATUSES[status] for status in schedule.status] == [JobStatus.WAITING, JobStatus.SUCCEEDED]
        assert schedule.end.tolist() == [NOT_YET, 14 * SECOND]


def test_a_job_that_no_set_of_nodes_can_hold_is_refused_before_the_run() -> None:
    workload = workload_us(release=[0, 0], runtime=[1, 1], width=[1, 3], kind=[Kind.RIGID] * 2, label=["a", "wide"])
    with pytest.raises(InvalidInput, match=r"job wide: width is 3; allowed: at most 2, the slots of the cluster"):
        experiment.run(workload, nodes_of(1.0), "fcfs")
    with pytest.raises(InvalidInput, match="slots is 0"):
        experiment.run(workload, [], "fcfs")
    with pytest.raises(InvalidInput, match="name of a node is 'n0'; allowed: a name that no other node has"):
        experiment.run(workload, nodes_of(1.0) * 2, "fcfs")
    plan = (TaskSpec(1), TaskSpec(1, 3, (0,)))
    workflow = workload_us(release=[0], runtime=[0], tasks=2, kind=Kind.WORKFLOW, workflows={0: plan}, label=["wide"])
    with pytest.raises(
        InvalidInput, match=r"job wide: plan\[1\]\.cores is 3; allowed: at most 2, those of the largest node"
    ):
        experiment.run(workflow, nodes_of(1.0, 1.0), "heft")


class KillAtFive:
    """The first job gets every slot; at 5 s the second takes them all by killing."""

    per_instant = False
    task_rounds = True

    def __call__(self, view: Snapshot) -> Plan:
        plan, jobs = view.plan(), list(view.jobs.values())
        if view.now == 5 * SECOND and jobs[-1].id == 1 and jobs[-1].ready:
            plan.hold(0, 0)
            plan.hold(1, view.up, Claim.KILL)
        elif jobs and jobs[0].ready:
            plan.hold(jobs[0].id, jobs[0].held | view.free)
        return plan


def killing(text: str) -> Policy:
    assert text == "kill"
    return KillAtFive()


def test_what_is_killed_at_the_instant_of_its_end_is_redone() -> None:
    """Both tasks would end at 5 s. The first end causes a round that kills the second before its end is fed."""
    workload = workload_us(release=[0, 3 * SECOND], runtime=[5 * SECOND, SECOND], tasks=[2, 2])
    simulation = Simulation(workload, nodes_of(1.0), killing, "kill", record=True, audit=Scheduler.check)
    schedule = simulation.run()
    assert (schedule.status == SUCCEEDED).all()
    assert schedule.end.tolist() == [11 * SECOND, 6 * SECOND]
    assert schedule.attempts is not None
    assert schedule.attempts.wasted.sum() == 1
    books_balance(schedule, workload, uniform=True)
