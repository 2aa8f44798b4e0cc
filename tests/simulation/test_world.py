"""The performance model and the measures of a simulation, in cases small enough to compute by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.model.events import JobSubmitted, TaskEnded
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim import experiment
from headway.sim.kernel import Simulation
from headway.sim.world import World


def seconds(values: object) -> list[float]:
    return (np.asarray(values) / SECOND).tolist()


def rigid(**columns: object) -> Workload:
    return workload_us(kind=Kind.RIGID, **columns)  # type: ignore[arg-type]


def test_a_task_runs_at_the_speed_of_its_slot_and_a_gang_at_that_of_its_slowest() -> None:
    workload = workload_us(
        release=[0, 100 * SECOND, 200 * SECOND],
        runtime=[12 * SECOND] * 3,
        width=[1, 1, 3],
        kind=[Kind.BAG, Kind.BAG, Kind.RIGID],
        tasks=[1, 3, 1],
    )
    nodes = [NodeSpec("slow", speed=0.5), NodeSpec("plain"), NodeSpec("fast", speed=3.0)]
    schedule = experiment.run(workload, nodes, "edf", record=True)
    assert seconds(schedule.end - schedule.start) == [4, 24, 24]
    assert schedule.busy == (4 + (24 + 12 + 4) + 3 * 24) * SECOND


def test_a_workflow_runs_its_tasks_in_order_each_at_the_speed_of_its_node() -> None:
    plan = (TaskSpec(10 * SECOND), TaskSpec(6 * SECOND, 2, (0,)), TaskSpec(4 * SECOND, 1, (0,)), TaskSpec(0, 1, (1, 2)))
    workload = workload_us(release=[0], runtime=[0], tasks=4, kind=Kind.WORKFLOW, workflows={0: plan})
    nodes = [NodeSpec("fast", slots=2, speed=2.0), NodeSpec("plain", slots=1)]
    schedule = experiment.run(workload, nodes, "heft", record=True)
    # Task 0 on fast until 5; then 1 on both cores of fast until 8, and 2 on plain until 9; then 3 at once.
    assert seconds(schedule.end) == [9]
    assert schedule.busy == (5 + 2 * 3 + 4) * SECOND


def test_noise_scales_each_attempt_by_itself_and_leaves_the_median() -> None:
    workload = workload_us(release=[0], runtime=[100 * SECOND], tasks=400)
    nodes = [NodeSpec("n", slots=400)]
    world = World(noise=0.3, seed=1)
    schedule = experiment.run(workload, nodes, "edf", world=world, record=True)
    assert schedule.attempts is not None
    ratios = (schedule.attempts.end - schedule.attempts.start) / (100 * SECOND)
    assert len(set(ratios)) > 390
    assert np.median(ratios) == pytest.approx(1, abs=0.06)
    assert np.std(np.log(ratios)) == pytest.approx(0.3, abs=0.04)
    assert world.factor(0, 7, 1) == world.factor(0, 7, 1) != world.factor(0, 7, 2)


def test_without_noise_nothing_is_drawn() -> None:
    assert World(seed=3).factor(1, 2, 3) == 1.0


@pytest.mark.parametrize(
    ("field", "value"), [("noise", -0.1), ("noise", float("nan")), ("decision_time", -1), ("seed", -1)]
)
def test_a_world_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{field} is {value}"):
        World(**{field: value})  # type: ignore[arg-type]


def test_decision_time_comes_before_each_launch() -> None:
    """Each start comes a second after the end or submission that allows it. The slots are idle meanwhile."""
    workload = rigid(release=[0, 0], runtime=[10 * SECOND] * 2, width=[2, 2])
    schedule = experiment.run(workload, [NodeSpec("n", slots=2)], "fcfs", world=World(decision_time=1.0))
    assert seconds(schedule.start) == [1, 12]
    assert seconds(schedule.end) == [11, 22]
    assert schedule.busy == 2 * 20 * SECOND
    assert schedule.offered == 2 * 22 * SECOND


def test_decision_time_may_be_what_the_policy_really_took() -> None:
    workload = rigid(release=[0], runtime=[SECOND])
    schedule = experiment.run(workload, [NodeSpec("n")], "easy", world=World(decision_time=None))
    assert 0 < schedule.decision_seconds < 1
    assert 0 <= schedule.start[0] <= round(schedule.decision_seconds * SECOND)
    assert schedule.end[0] - schedule.start[0] == SECOND


def test_decisions_are_counted() -> None:
    workload = rigid(release=[0, 0, 5 * SECOND], runtime=[10 * SECOND] * 3)
    plain = experiment.run(workload, [NodeSpec("n")], "fcfs")
    once = experiment.run(workload, [NodeSpec("n")], "fcfs:per_instant=true")
    assert plain.decisions == 7  # the node, three submissions, three ends
    assert once.decisions == 4  # the node and two submissions are of one instant; after the last end there is no round
    often = experiment.run(workload, [NodeSpec("n")], "fcfs", period=1.0)
    assert 30 <= often.decisions <= 37
    assert (plain.end == often.end).all()


def test_holdings_tell_who_held_how_many_slots_when() -> None:
    """Two bags on four slots. The second comes at 4 s with higher priority and gets slots when tasks end at 10 s."""
    workload = workload_us(
        release=[0, 4 * SECOND], runtime=[10 * SECOND, 5 * SECOND], tasks=[6, 3], priority=[1.0, 2.0]
    )
    schedule = experiment.run(workload, [NodeSpec("n", slots=4)], "priority")
    holdings = schedule.holdings
    assert holdings is not None
    columns = (holdings.at // SECOND, holdings.job, holdings.slots, holdings.running)
    rows = [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    assert rows == [
        (0, 0, 4, 4),
        (4, 0, 1, 4),
        (4, 1, 3, 0),
        *((10, 0, 1, 3), (10, 1, 3, 1), (10, 0, 1, 2), (10, 1, 3, 2), (10, 0, 1, 1), (10, 1, 3, 3)),
        *((15, 1, 2, 2), (15, 1, 1, 1), (15, 1, 0, 0)),
        (15, 0, 2, 2),
        (20, 0, 1, 1),
        (25, 0, 0, 0),
    ]
    assert schedule.slots.tolist() == [4, 3]


def test_what_is_fed_is_in_order_and_complete() -> None:
    workload = rigid(release=[5, 0, 5, 5], runtime=[3, 5, 0, 1], width=[1, 2, 1, 1], label=["b", "a", "c", "d"])
    journal: list[object] = []
    simulation = Simulation(workload, [NodeSpec("n", slots=2)], registry.find, "fcfs", journal=journal)  # type: ignore[arg-type]
    schedule = simulation.run()
    assert schedule.label.tolist() == ["a", "b", "c", "d"]
    kinds = [(type(event).__name__, event.at) for event in journal if isinstance(event, (JobSubmitted, TaskEnded))]
    assert kinds == [
        ("JobSubmitted", 0),
        ("TaskEnded", 5),  # at one instant the ends come first
        ("JobSubmitted", 5),
        ("JobSubmitted", 5),
        ("TaskEnded", 5),  # the job that takes no time ends before the next comes
        ("JobSubmitted", 5),
        ("TaskEnded", 6),
        ("TaskEnded", 8),
    ]
    assert schedule.start.tolist() == [0, 5, 5, 5]
    assert (schedule.begin, schedule.until) == (0, 8)


def test_an_empty_workload_ends_at_once() -> None:
    schedule = experiment.run(workload_us(release=[], runtime=[]), [NodeSpec("n")], "easy")
    assert len(schedule) == 0
    assert (schedule.begin, schedule.until, schedule.busy) == (0, 0, 0)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    workload = rigid(release=list(range(5000)), runtime=[1] * 5000)
    experiment.run(workload, [NodeSpec("n", slots=2)], "fcfs", progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (5000, 5000)
    assert len(told) >= 2
    assert told == sorted(told)


def test_a_policy_that_raises_stops_the_simulation() -> None:
    class Broken:
        per_instant = task_rounds = False

        def __call__(self, view: object) -> object:
            raise ZeroDivisionError("no")

    simulation = Simulation(rigid(release=[0], runtime=[1]), [NodeSpec("n")], lambda text: Broken(), "broken")  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        simulation.run()


def test_a_third_tier_stops_the_simulation() -> None:
    class Third:
        per_instant = task_rounds = False

        def __call__(self, view: Any) -> Any:
            plan = view.plan()
            for job in view.waiting:
                plan.hold(job.id, 1, tier=2)
            return plan

    simulation = Simulation(rigid(release=[0], runtime=[1]), [NodeSpec("n")], lambda text: Third(), "third")
    with pytest.raises(TypeError, match="tier=2"):
        simulation.run()


def test_the_clock_may_start_late() -> None:
    """On the clock of a log, nothing happens before the first release."""
    workload = rigid(release=[10**9 * SECOND], runtime=[SECOND])
    schedule = experiment.run(workload, [NodeSpec("n")], "fcfs")
    assert schedule.begin == 10**9 * SECOND
    assert schedule.offered == SECOND
    assert schedule.busy == SECOND
