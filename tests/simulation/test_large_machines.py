"""A machine of many slots is scheduled as a small one with jobs that are narrower by as much."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.snapshot import LARGE
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation

SLOTS = (3, 20, 41)
TIMES = 300
JOBS = 120


def drawn(seed: int, kind: Kind) -> Workload:
    """Jobs that fill 64 slots; their estimates are too high."""
    chance = np.random.default_rng(seed)
    runtime = chance.integers(1, 400, JOBS) * SECOND
    size = np.minimum(chance.geometric(0.12, JOBS), sum(SLOTS))
    return workload_us(
        release=np.sort(chance.integers(0, 4_000, JOBS)) * SECOND,
        runtime=runtime,
        estimate=runtime * chance.integers(1, 4, JOBS),
        width=size if kind is Kind.RIGID else np.ones_like(size),
        tasks=size if kind is Kind.BAG else np.ones_like(size),
        kind=kind,
        due=chance.integers(1_000, 6_000, JOBS) * SECOND,
    )


def ends(workload: Workload, policy: str, times: int, outages: list[Outage], *, checks: bool) -> list[int]:
    """When each job ends on a machine of so many times the slots."""
    nodes = [NodeSpec(f"n{number}", slots * times) for number, slots in enumerate(SLOTS)]
    events = count()

    def check(scheduler: Scheduler) -> None:
        if next(events) % 8 == 0:  # with so many slots each takes long, and what an index has wrong stays wrong
            scheduler.check()

    audit = check if checks else None
    simulation = Simulation(workload, nodes, registry.find, policy, outages=outages, audit=audit)
    found: list[int] = simulation.run().end.tolist()
    return found


@pytest.mark.parametrize("policy", ["easy", "easy:depth=3", "fcfs", "conservative", "priority", "deadline", "tempo"])
@pytest.mark.parametrize("outages", [[], [Outage("n1", 1_500, 1_900), Outage("n2", 2_500, 2_600)]])
def test_rigid_jobs_that_are_wider_by_as_much_as_the_machine(policy: str, outages: list[Outage]) -> None:
    assert sum(SLOTS) * TIMES >= LARGE
    workload = drawn(5, Kind.RIGID)
    wider = replace(workload, width=workload.width * TIMES)
    small = ends(workload, policy, 1, outages, checks=False)
    assert ends(wider, policy, TIMES, outages, checks=policy == "easy") == small


@pytest.mark.parametrize("policy", ["easy", "conservative", "deadline", "tempo"])
def test_bags_that_fill_a_part_of_a_large_machine(policy: str) -> None:
    """The first job has all the slots but those of a small machine, until all others have ended."""
    bags = drawn(6, Kind.BAG)
    rest = sum(SLOTS) * (TIMES - 1)
    workload = workload_us(
        release=np.append(bags.release[0], bags.release),
        runtime=np.append(10**6 * SECOND, bags.runtime),
        estimate=np.append(10**6 * SECOND, bags.estimate),
        width=np.append(rest, bags.width),
        tasks=np.append(1, bags.tasks),
        kind=np.append(Kind.RIGID, bags.kind),
        due=np.append(1, bags.due),
        priority=np.append(9.0, bags.priority),
    )
    small = ends(bags, policy, 1, [], checks=False)
    assert ends(workload, policy, TIMES, [], checks=policy == "easy")[1:] == small


@pytest.mark.parametrize("policy", ["measy", "keasy", "reasy"])
def test_two_tiers_with_jobs_that_are_wider_by_as_much_as_the_machine(policy: str) -> None:
    """None has one process only: these are drawn to use more of an idle processor."""
    drawn_jobs = drawn(7, Kind.RIGID)
    workload = replace(drawn_jobs, width=np.maximum(drawn_jobs.width, 2))
    wider = replace(workload, width=workload.width * TIMES)
    small = ends(workload, policy, 1, [], checks=False)
    assert ends(wider, policy, TIMES, [], checks=True) == small


def test_two_tiers_with_nodes_that_go_down_and_jobs_of_other_forms() -> None:
    """Bags come back to the foreground as well, and what loses its slots is counted again."""
    rigid, bags = drawn(8, Kind.RIGID), drawn(9, Kind.BAG)
    workload = workload_us(
        release=np.append(rigid.release, bags.release),
        runtime=np.append(rigid.runtime, bags.runtime),
        estimate=np.append(rigid.estimate, bags.estimate),
        width=np.append(rigid.width * TIMES, bags.width),
        tasks=np.append(rigid.tasks, bags.tasks),
        kind=np.append(rigid.kind, bags.kind),
    )
    outages = [Outage("n1", 1_500, 1_900), Outage("n2", 2_500, 2_600)]
    assert all(end > 0 for end in ends(workload.take(slice(0, 80)), "measy", TIMES, outages, checks=True))
