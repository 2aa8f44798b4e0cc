"""Jobs that come after others in a simulation: the same rule of the core as live."""

from __future__ import annotations

import pytest

from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.schedule import STATUSES
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim import experiment
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation


@pytest.mark.parametrize("policy", ["fcfs", "easy", "deadline", "tempo", "heft"])
def test_a_chain_runs_in_its_order_whatever_the_policy(policy: str) -> None:
    workload = workload_us(release=[0] * 4, runtime=[10 * SECOND] * 4, after={1: (0,), 2: (1,), 3: (0,)})
    schedule = experiment.run(workload, [NodeSpec("a", slots=4)], policy)
    assert (schedule.start / SECOND).tolist() == [0, 10, 20, 10]
    assert (schedule.end / SECOND).tolist() == [10, 20, 30, 20]


def test_what_comes_after_a_job_that_is_lost_is_cancelled_also_if_it_is_released_later() -> None:
    """The only task kills its node each time. It is given up in the end, and nothing runs after it."""
    outages = [Outage("a", at=number * 10, until=number * 10 + 1) for number in range(1, 40)]
    workload = workload_us(
        release=[0, 0, 0, 1000 * SECOND],
        runtime=[20 * SECOND, SECOND, SECOND, SECOND],
        after={1: (0,), 2: (1,), 3: (0,)},
    )
    journal: list[object] = []
    simulation = Simulation(workload, [NodeSpec("a")], registry.find, "fcfs", outages=outages, journal=journal)  # type: ignore[arg-type]
    schedule = simulation.run()
    assert [STATUSES[status] for status in schedule.status] == [JobStatus.FAILED, *[JobStatus.CANCELLED] * 3]
    assert schedule.end[3] == 1000 * SECOND
    assert (schedule.start[1:] < 0).all()
