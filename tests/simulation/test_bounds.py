"""Bounds on the slots of users in simulations: against a smaller cluster, against none, and from what has run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.schedule import STATUSES, Schedule
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.experiment import run
from headway.sim.faults import drawn_outages
from headway.sim.kernel import Simulation

from ..effort import one_in
from .test_faults import POLICIES, mixed_workload, nodes_of

SUCCEEDED = STATUSES.index(JobStatus.SUCCEEDED)


def of_users(workload: Workload, *users: str) -> Workload:
    """The same, with these users in turn."""
    return replace(workload, user=np.array([users[job % len(users)] for job in range(len(workload))], object))


def plain_workload(seed: int, jobs: int = 60) -> Workload:
    """Bags and rigid jobs without priorities and due dates."""
    chance = np.random.default_rng(seed)
    rigid = chance.random(jobs) < 0.5
    return workload_us(
        release=np.sort(chance.integers(0, 200, jobs)) * SECOND,
        runtime=chance.integers(1, 40, jobs) * SECOND,
        tasks=np.where(rigid, 1, chance.integers(1, 12, jobs)),
        width=np.where(rigid, chance.integers(1, 7, jobs), 1),
        kind=np.where(rigid, Kind.RIGID, Kind.BAG),
    )


def most_at_once(schedule: Schedule, workload: Workload) -> dict[str, int]:
    """How many slots each user had at most, from what has run."""
    runs = schedule.attempts
    assert runs is not None
    changes: dict[str, Counter[int]] = {}
    for job, slots, start, end in zip(runs.job, runs.count, runs.start, runs.end, strict=True):
        if end > start:
            changed = changes.setdefault(str(workload.user[job]), Counter())
            changed[int(start)] += int(slots)
            changed[int(end)] -= int(slots)
    found = {}
    for user, changed in changes.items():
        has = most = 0
        for _, change in sorted(changed.items()):
            has += change
            most = max(most, has)
        found[user] = most
    return found


@pytest.mark.parametrize("seed", range(8))
def test_for_one_user_a_bound_is_a_smaller_cluster(seed: int) -> None:
    """First come, first served on as many slots as the bound allows, whatever the cluster has."""
    workload = of_users(plain_workload(seed), "ann")
    small = run(workload, [NodeSpec("n", 6)], "fcfs")
    bounded = run(workload, [NodeSpec("n", 40)], "fcfs", slots_of={"ann": 6})
    assert (bounded.start == small.start).all()
    assert (bounded.end == small.end).all()


@pytest.mark.parametrize("policy", ["easy", "conservative", "tempo", "heft", "measy", "deadline", "sites:each=easy"])
def test_a_bound_that_is_never_reached_changes_nothing(policy: str) -> None:
    workload, nodes = of_users(mixed_workload(5), "ann", "bob", ""), nodes_of(1.0, 0.5, 3.0)
    bound, free = (run(workload, nodes, policy, slots_of=most) for most in ({"ann": 100, "bob": 100}, {}))
    assert (bound.start == free.start).all()
    assert (bound.end == free.end).all()


@pytest.mark.thorough
@pytest.mark.parametrize("policy", one_in(3, [*POLICIES, "measy", "keasy", "sites:each=easy", "sites:each=tempo"]))
def test_nobody_ever_has_more_and_everything_ends_though_nodes_fail(policy: str) -> None:
    for seed in range(3):
        workload, nodes = of_users(mixed_workload(seed), "ann", "ann", "bob"), nodes_of(1.0, 0.5, 3.0, slots=3)
        outages = drawn_outages(nodes, mean_up_seconds=30, mean_down_seconds=10, begin=0, until=200, seed=seed)
        bounds = {"ann": 5, "bob": 6}
        simulation = Simulation(
            workload,
            nodes,
            registry.find,
            policy,
            outages=outages,
            record=True,
            audit=Scheduler.check,
            slots_of=bounds,
        )
        schedule = simulation.run()
        where = f"{policy}, seed {seed}"
        assert (schedule.status == SUCCEEDED).all(), where
        most = most_at_once(schedule, workload)
        assert most["ann"] == 5, where
        assert most["bob"] <= 6, where
        assert not simulation.scheduler.refusals, where


def test_a_user_at_the_bound_does_not_keep_slots_from_others() -> None:
    """Ann's thousand tasks have two slots; Bob's jobs, which come later, start at once."""
    workload = workload_us(
        release=[0, SECOND, 2 * SECOND],
        runtime=[10 * SECOND] * 3,
        tasks=[1000, 1, 1],
        width=[1, 5, 1],
        kind=[Kind.BAG, Kind.RIGID, Kind.BAG],
        user=["ann", "bob", "bob"],
    )
    for policy in ("fcfs", "easy", "conservative", "tempo", "edf", "priority", "measy"):
        schedule = run(workload, [NodeSpec("n", 8)], policy, slots_of={"ann": 2})
        assert list(schedule.start[1:]) == [SECOND, 2 * SECOND], policy
        assert schedule.end[0] == 5000 * SECOND, policy


def test_bounds_that_are_none_are_refused_with_their_place() -> None:
    plan = (TaskSpec(SECOND, 4),)
    workload = workload_us(
        release=[0, 0],
        runtime=[SECOND, 0],
        width=[5, 1],
        kind=[Kind.RIGID, Kind.WORKFLOW],
        user=["ann", "bob"],
        label=["wide", "flow"],
        workflows={1: plan},
    )
    nodes = [NodeSpec("n", 8)]
    with pytest.raises(InvalidInput, match=r"job wide: width is 5; allowed: at most 4, the slots that user 'ann' may"):
        run(workload, nodes, "easy", slots_of={"ann": 4})
    with pytest.raises(InvalidInput, match=r"job flow: cores is 4; allowed: at most 3, the slots that user 'bob' may"):
        run(workload, nodes, "easy", slots_of={"bob": 3})
    with pytest.raises(InvalidInput, match=r"slots_of\['ann'\] is 0; allowed: 1 or more"):
        run(workload, nodes, "easy", slots_of={"ann": 0})
    with pytest.raises(InvalidInput, match="slots_of is 'anne'; allowed: a user of the workload"):
        run(workload, nodes, "easy", slots_of={"anne": 3})
