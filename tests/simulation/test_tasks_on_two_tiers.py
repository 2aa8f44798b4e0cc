"""Bags and workflows beside rigid jobs under policies with two tiers: their tasks run behind others too, and move."""

from __future__ import annotations

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.sim.world import World

CLUSTER = [NodeSpec(f"n{number}", 4, cores=4) for number in range(3)]


def mixed(seed: int, jobs: int = 120) -> Workload:
    """More bags, rigid jobs and diamond-shaped workflows than fit, half idle. Tasks need one core or two."""
    chance = np.random.default_rng(seed)
    kind, size = chance.integers(0, 3, jobs), chance.integers(1, 7, jobs)
    runtime = chance.integers(2, 60, jobs) * SECOND
    plans = {}
    for position in np.flatnonzero(kind == Kind.WORKFLOW).tolist():
        work, inner = int(runtime[position]), range(1, int(size[position]) + 1)
        plans[position] = (
            TaskSpec(estimate=work // 2),
            *(TaskSpec(after=(0,), estimate=work, cores=1 + number % 2) for number in inner),
            TaskSpec(after=tuple(inner), estimate=work // 3),
        )
        size[position] += 2
    rigid = kind == Kind.RIGID
    return workload_us(
        release=np.sort(chance.integers(0, 900, jobs)) * SECOND,
        runtime=runtime,
        estimate=runtime * chance.choice([1, 2, 5], jobs),
        tasks=np.where(rigid, 1, size),
        width=np.where(rigid, size, 1),
        kind=kind,
        cpu=chance.uniform(0.2, 0.9, jobs),
        workflows=plans,
    )


@pytest.mark.parametrize("policy", ["keasy", "reasy", "measy", "measy:order=shortest", "measy:per_instant=true"])
def test_tasks_run_in_the_background_and_move_and_nothing_is_refused(policy: str) -> None:
    workload = mixed(seed=7)
    simulation = Simulation(
        workload, CLUSTER, registry.find, policy, world=World(seed=7), record=True, audit=Scheduler.check
    )
    done = simulation.run()
    assert done.has(JobStatus.SUCCEEDED).all()
    assert done.refused == {}
    assert done.attempts is not None
    behind = np.unique(done.attempts.job[done.attempts.behind])
    assert set(workload.kind[behind].tolist()) == {Kind.BAG, Kind.RIGID, Kind.WORKFLOW}
    moves = {"keasy": done.kills, "reasy": 0, "measy": done.migrations}[policy.partition(":")[0]]
    assert done.kills + done.migrations == moves
    assert (moves > 20) is (policy != "reasy")
