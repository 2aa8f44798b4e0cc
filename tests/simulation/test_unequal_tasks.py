"""Bags whose tasks or nodes differ: what really happens, and what the core learns from it."""

from __future__ import annotations

import numpy as np
import pytest

from headway.metrics import summarise
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.workload import BagTimes, workload_us
from headway.policies import registry
from headway.sim import experiment
from headway.sim.kernel import Simulation
from headway.traces.transforms import scale_runtimes, work


def test_each_task_runs_as_long_as_is_said_of_it() -> None:
    times = tuple(second * SECOND for second in (1, 2, 4, 8))
    workload = workload_us(release=[0], runtime=[0], tasks=4, bags={0: BagTimes(times)})
    schedule = experiment.run(workload, [NodeSpec("a", slots=1, speed=2.0)], "edf", record=True)
    assert schedule.attempts is not None
    assert (schedule.attempts.end - schedule.attempts.start).tolist() == [time // 2 for time in times]
    assert work(workload).tolist() == [15]
    assert work(scale_runtimes(workload, 2.0)).tolist() == [30]


def test_a_class_of_nodes_may_suit_one_job_and_not_another() -> None:
    """Unrelated machines: each job gets the class on which it runs fastest, by its profile."""
    nodes = [NodeSpec("cpu", slots=2, kind="cpu"), NodeSpec("gpu", slots=2, kind="gpu")]
    suits = (("cpu", 100 * SECOND), ("gpu", 10 * SECOND)), (("cpu", 10 * SECOND), ("gpu", 100 * SECOND))
    bags = {job: BagTimes(classes=times, profile=times) for job, times in enumerate(suits)}
    workload = workload_us(release=[0, 0], runtime=[50 * SECOND] * 2, tasks=[2, 2], due=[12 * SECOND] * 2, bags=bags)
    schedule = experiment.run(workload, nodes, "deadline")
    assert (schedule.end / SECOND).tolist() == [10, 10]


def test_classes_are_learnt_if_there_is_no_profile() -> None:
    """The first tasks show on which class the job is slow. From then on it gets as many slots as it needs."""
    nodes = [NodeSpec("slow", slots=4, kind="old"), NodeSpec("fast", slots=4, kind="new")]
    times = BagTimes(classes=(("old", 100 * SECOND), ("new", 10 * SECOND)))
    workload = workload_us(release=[0], runtime=[50 * SECOND], tasks=100, due=[2000 * SECOND], bags={0: times})
    seen = {}

    def look(scheduler: object) -> None:
        view = simulation.scheduler.state.jobs.get(0)
        if view is not None:
            seen.update({name: known.mean / SECOND for name, known in view.times.items()})

    simulation = Simulation(workload, nodes, registry.find, "edf", audit=look)
    simulation.run()
    assert seen == {"old": 100, "new": 10}


def test_estimates_follow_noise_free_tasks_at_once_and_a_job_meets_its_due_date() -> None:
    """Lin14 6.2: light tasks, then heavy ones, without notice. Periodic rounds react, and the job is on time."""
    times = (5 * SECOND,) * 40 + (15 * SECOND,) * 60
    workload = workload_us(release=[0], runtime=[0], tasks=100, due=[240 * SECOND], bags={0: BagTimes(times)})
    nodes = [NodeSpec(f"w{number}") for number in range(8)]
    policy = "deadline:spare=none,foresight=false"
    followed = experiment.run(workload, nodes, policy, period=5, estimate_default=9)
    assert followed.end[0] <= 240 * SECOND
    assert followed.holdings is not None
    held = followed.holdings.slots
    assert held[0] == 4  # ceil(100 * 9 / 240)
    assert held.min() < 4 < held.max() == 8  # fewer while tasks are light, more when they are heavy


@pytest.mark.parametrize("emergency", [False, True])
def test_an_emergency_costs_work_and_saves_its_job_time(emergency: bool) -> None:
    workload = workload_us(release=[0, 50 * SECOND], runtime=[100 * SECOND, 10 * SECOND], tasks=[8, 4], priority=[1, 9])
    policy = "priority:emergency=9" if emergency else "priority"
    schedule = experiment.run(workload, [NodeSpec("a", slots=4)], policy)
    measured = summarise(schedule)
    assert (measured["kills"], measured["work_lost"]) == ((4, 200) if emergency else (0, 0))
    assert np.allclose(schedule.end / SECOND, [260, 60] if emergency else [210, 110])
