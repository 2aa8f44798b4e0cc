"""Tasks that kill their nodes, among others that do not: under every policy only they are given up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from heapq import heapify, heappush
from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.core.suspects import ALONE_CAP, ALONE_MAX
from headway.core.suspicion import SUSPECTED_AFTER
from headway.model.actions import JobStatus
from headway.model.events import Event, NodeDown, NodeUp
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.schedule import STATUSES, Schedule
from headway.model.slots import numbers
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import drawn_outages
from headway.sim.kernel import NODE, Due, Simulation

from ..effort import one_in

SUCCEEDED = STATUSES.index(JobStatus.SUCCEEDED)
FAILED = STATUSES.index(JobStatus.FAILED)
POLICIES = [
    *("fcfs", "sjf", "easy", "easy:per_instant=true", "conservative", "edf", "priority"),
    *("priority:reserve=0.4,spare=due", "proportion", "workload", "deadline", "deadline:spare=priority", "heft"),
    *("tempo", "keasy", "reasy", "measy"),
]


def workload_with(poison: Kind, seed: int, innocents: int = 20) -> Workload:
    """Jobs of the kinds that the policy can run, about ten seconds long. The first is the poison."""
    chance = Random(seed)
    kinds = [poison] + [Kind.BAG if poison is Kind.BAG else Kind.RIGID] * innocents
    if poison is Kind.WORKFLOW:
        kinds = [poison] + [Kind.WORKFLOW] * innocents
    jobs = len(kinds)
    runtime = [60 * SECOND] + [chance.randint(1, 20) * SECOND for _ in range(innocents)]
    tasks = [1] + [chance.randint(1, 5) if kind is Kind.BAG else 1 for kind in kinds[1:]]
    width = [1] + [chance.randint(1, 2) if kind is Kind.RIGID else 1 for kind in kinds[1:]]
    plans = {job: (TaskSpec(runtime[job]),) for job in range(jobs)} if poison is Kind.WORKFLOW else {}
    release = [0, *sorted(chance.randint(0, 30) * SECOND for _ in range(innocents))]
    return workload_us(
        release=release,
        runtime=runtime,
        estimate=runtime,
        tasks=tasks,
        width=width,
        kind=[int(kind) for kind in kinds],
        due=[at + chance.randint(10, 100) * SECOND for at in release],
        priority=[float(chance.randint(0, 3)) for _ in range(jobs)],
        workflows=plans,
    )


class Poisoned:
    """A simulation in which attempts at some jobs take their nodes down after a while. The nodes are back soon."""

    def __init__(
        self, workload: Workload, nodes: list[NodeSpec], policy: str, poisons: set[int], seed: int, **terms: object
    ) -> None:
        self.poisons, self.chance, self.journal = poisons, Random(seed), list[Event]()
        self.losses: Counter[int] = Counter()
        self.pending: dict[tuple[int, int, int], tuple[Due, Due]] = {}
        self.count = self.lost = 0
        self.simulation = Simulation(
            workload,
            nodes,
            registry.find,
            policy,
            audit=self.look,
            journal=self.journal,
            record=True,
            **terms,  # type: ignore[arg-type]
        )

    def look(self, core: Scheduler) -> None:
        """Check the state, and let each attempt at a poison take a node down, unless it ends before."""
        core.check()
        state, heap = core.state, self.simulation._heap
        current = {(one.job.id, one.task, one.number): one for one in state.attempts() if one.job.id in self.poisons}
        lost = state.node_losses - self.lost
        self.lost = state.node_losses
        for key in self.pending.keys() - current.keys():
            self.losses[key[0]] += lost > 0
            entries = self.pending.pop(key)
            if entries[0] in heap:  # it ended before, or was lost with another node
                for entry in entries:
                    heap.remove(entry)
                heapify(heap)
        for key in sorted(current.keys() - self.pending.keys()):
            self.count += 1
            node = state.slot_nodes[next(numbers(current[key].slots))].spec.name
            at = state.now + self.chance.randint(1, 5) * SECOND // 2
            back = at + self.chance.randint(0, 4) * SECOND // 4
            down: Due = (at, NODE, self.count, 0, 0, NodeDown(at, node))
            up: Due = (back, NODE, self.count, 1, 0, NodeUp(back, node))
            self.pending[key] = (down, up)
            heappush(heap, down)
            heappush(heap, up)

    def run(self) -> Schedule:
        schedule = self.simulation.run()
        where = self.simulation.scheduler.policy
        replayed = Scheduler(registry.find, where)
        for event in self.journal:
            replayed.handle(event)
        assert replayed.dump() == self.simulation.scheduler.dump()
        return schedule


def kinds_of(policy: str) -> list[Kind]:
    name = policy.partition(":")[0]
    if name in ("keasy", "reasy", "measy"):
        return [Kind.RIGID]
    return list(Kind)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", one_in(3, POLICIES))
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_poison_is_given_up_and_nothing_else(policy: str, count: int) -> None:
    for seed, kind in enumerate(kinds_of(policy)):
        nodes = [NodeSpec(f"n{number}", slots=3) for number in range(count)]
        poisoned = Poisoned(workload_with(kind, seed), nodes, policy, {0}, seed)
        schedule = poisoned.run()
        where = f"{policy}, {count} nodes, {kind.name}"
        assert schedule.status.tolist() == [FAILED] + [SUCCEEDED] * 20, where
        assert poisoned.losses[0] == SUSPECTED_AFTER + ALONE_MAX, where
        assert not poisoned.simulation.scheduler.state.suspicions, where
        assert not poisoned.simulation.scheduler.state.isolations, where


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["fcfs", "easy", "deadline", "heft", "tempo", "conservative"])
def test_several_poisons_and_nodes_that_fail_by_themselves(policy: str) -> None:
    """Losses elsewhere while a task runs alone speak for its innocence. So more losses are needed, up to a bound."""
    for seed in range(3):
        workload = workload_with(Kind.BAG, seed)
        nodes = [NodeSpec(f"n{number}", slots=3) for number in range(3)]
        outages = drawn_outages(nodes, mean_up_seconds=60, mean_down_seconds=3, begin=0, until=200, seed=seed)
        poisons = {0, 4, 9}
        # It may bring down a node that is down already, which loses nothing.
        poisoned = Poisoned(workload, nodes, policy, poisons, seed, outages=outages)
        schedule = poisoned.run()
        given_up = {job for job in range(len(workload)) if schedule.status[job] == FAILED}
        assert given_up <= poisons, f"{policy}, seed {seed}: an innocent job was given up"
        assert 0 in given_up
        tasks = {job: int(workload.tasks[job]) for job in poisons}
        most = SUSPECTED_AFTER + ALONE_CAP
        assert all(poisoned.losses[job] <= most * tasks[job] for job in poisons), poisoned.losses


def test_innocent_tasks_are_not_given_up_however_often_everything_dies() -> None:
    """All nodes die every 3 s, so no task of 5 s survives. When that is over, all succeed."""
    workload = replace_runtime(workload_with(Kind.BAG, 1), 5 * SECOND)
    nodes = [NodeSpec(f"n{number}", slots=3) for number in range(3)]
    poisoned = Poisoned(workload, nodes, "fcfs", set(), 1)
    heap = poisoned.simulation._heap
    for beat in range(1, 12):
        for number, node in enumerate(nodes):
            at = beat * 3 * SECOND
            heappush(heap, (at, NODE, number, 0, 0, NodeDown(at, node.name)))
            heappush(heap, (at + 1, NODE, number, 1, 0, NodeUp(at + 1, node.name)))
    schedule = poisoned.run()
    assert (schedule.status == SUCCEEDED).all()


def replace_runtime(workload: Workload, runtime: int) -> Workload:
    return replace(workload, runtime=workload.runtime * 0 + runtime, estimate=workload.estimate * 0 + runtime)


def test_losses_with_an_outside_cause_do_not_stop_a_cluster() -> None:
    """Two crashes of one of four nodes: the other three continue, and the whole takes at most twice as long."""
    workload = workload_us(release=[0], runtime=[100 * SECOND], estimate=[100 * SECOND], tasks=64)
    nodes = [NodeSpec(f"n{number}", slots=4) for number in range(4)]
    calm = Simulation(workload, nodes, registry.find, "fcfs").run()
    poisoned = Poisoned(workload, nodes, "fcfs", set(), 1)
    for at in (50 * SECOND, 60 * SECOND):
        heappush(poisoned.simulation._heap, (at, NODE, 0, 0, 0, NodeDown(at, "n0")))
        heappush(poisoned.simulation._heap, (at + SECOND, NODE, 0, 1, 0, NodeUp(at + SECOND, "n0")))
    schedule = poisoned.run()
    assert (schedule.status == SUCCEEDED).all()
    assert calm.end[0] == 400 * SECOND
    assert schedule.end[0] <= 800 * SECOND
