"""Lin14's bags on heterogeneous nodes: the policies of chapter 5 over whole runs, seeded."""

from __future__ import annotations

from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.metrics.collect import summarise
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation

SPEEDS = (0.5, 1.0, 1.5, 2.0, 4.0)
DEADLINE = ["deadline:spare=priority", "deadline:spare=priority,foresight=false"]
ALL = ["priority", "proportion", "workload", *DEADLINE, "deadline", "edf"]


def bags(seed: int, jobs: int = 40) -> Workload:
    """Bags as in Lin14 6.3: due after twice the run time, or more with many tasks; priorities by user."""
    chance = Random(seed)
    release, runtime, tasks, due, priority = [], [], [], [], []
    at = 0
    for _ in range(jobs):
        at += chance.choice([0, 0, 1, 5]) * SECOND
        size, lasts = chance.choice([1, 2, 4, 8, 16]), chance.randint(1, 20) * SECOND
        release.append(at)
        runtime.append(lasts)
        tasks.append(size)
        due.append(at + 2 * lasts if size < 4 else at + 2 * lasts * size // 4)
        priority.append(float(chance.randint(1, 5)))
    return workload_us(
        release=release, runtime=runtime, estimate=runtime, tasks=tasks, due=due, priority=priority, kind=Kind.BAG
    )


def run(policy: str, workload: Workload, speeds: tuple[float, ...]) -> Schedule:
    nodes = [NodeSpec(f"n{number}", slots=4, speed=speed) for number, speed in enumerate(speeds)]
    simulation = Simulation(workload, nodes, registry.find, policy, audit=Scheduler.check, record=True)
    schedule = simulation.run()
    assert not simulation.scheduler.refusals
    assert (schedule.end >= 0).all()
    return schedule


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("speeds", [(1.0,) * 5, SPEEDS], ids=["homogeneous", "heterogeneous"])
def test_priority_is_never_violated_where_the_thesis_says_so(speeds: tuple[float, ...], seeds: range) -> None:
    """6.3.2: the rate is 0 for `priority` and for `deadline:spare=priority`, but not for EDF."""
    for seed in seeds:
        workload = bags(seed)
        found = {policy: summarise(run(policy, workload, speeds)) for policy in ALL}
        for measure in ("priority_violation_rate", "priority_violation_rate_rounds"):
            rates = {policy: found[policy][measure] for policy in ALL}
            assert rates["priority"] == 0, f"seed {seed}"
            assert [rates[policy] for policy in DEADLINE] == [0, 0], f"seed {seed}"
            assert rates["edf"] > 0, f"seed {seed}"
