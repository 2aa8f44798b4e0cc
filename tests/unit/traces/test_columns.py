"""Workloads from columns, simulations of them, and the results: all in seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway import InvalidInput, NodeSpec, frame, simulate, workload_of
from headway.model.instant import NEVER, SECOND
from headway.model.job import SHAPES, Kind, PenaltyShape, TaskSpec
from headway.model.workload import COLUMNS, workload_us
from headway.sim.faults import Outage
from headway.sim.world import World


def test_columns_of_seconds_are_those_of_microseconds() -> None:
    made = workload_of(
        release=[60, 0, 0.5],
        runtime=[90, 1.5, 3],
        width=[1, 4, 1],
        estimate=[math.nan, 2, 1e-6],
        due=[120, None, math.inf - math.inf],
        priority=[1, 2, 3],
        user=["eve", "", "bob"],
        label=["a", "b", "c"],
    )
    same = workload_us(
        release=[60 * SECOND, 0, SECOND // 2],
        runtime=[90 * SECOND, 3 * SECOND // 2, 3 * SECOND],
        width=[1, 4, 1],
        estimate=[-1, 2 * SECOND, 1],
        due=[120 * SECOND, NEVER, NEVER],
        priority=[1, 2, 3],
        user=["eve", "", "bob"],
        label=["a", "b", "c"],
    )
    for column in COLUMNS:
        np.testing.assert_equal(getattr(made, column), getattr(same, column), column)
    np.testing.assert_equal(made.seconds("due"), [math.nan, math.nan, 120])
    np.testing.assert_equal(made.seconds("estimate"), [2, 1e-6, math.nan])
    assert made.seconds("release").tolist() == [0, 0.5, 60]


def test_each_job_has_its_shape_or_all_have_one() -> None:
    made = workload_of(release=[1, 0], runtime=[1, 1], shape=["square", PenaltyShape.SQUARE_ROOT])
    assert [SHAPES[place].value for place in made.shape.tolist()] == ["sqrt", "square"]
    assert len(set(workload_of(release=[1, 0], runtime=[1, 1], shape="sqrt").shape.tolist())) == 1
    with pytest.raises(InvalidInput, match=r"shape\[1\] is 'cube'; allowed: linear, sqrt, square"):
        workload_of(release=[1, 0], runtime=[1, 1], shape=["square", "cube"])
    with pytest.raises(InvalidInput, match="length of shape is 1; allowed: 2"):
        workload_of(release=[1, 0], runtime=[1, 1], shape=["square"])


def test_unequal_tasks_and_workflows_are_in_seconds_too() -> None:
    made = workload_of(
        release=0 * np.arange(3),
        runtime=[0, 0, 0],
        tasks=[2, 2, 3],
        kind=[Kind.BAG, Kind.BAG, Kind.WORKFLOW],
        task_runtimes={0: [1, 2.5]},
        class_runtimes={1: {"gpu": 3}},
        profiles={1: {"gpu": 4}},
        workflows={2: [(1, 1, ()), (2, 2, [0]), (0.5, 1, [0, 1], [7, 8])]},
    )
    assert made.bags[0].tasks == (SECOND, 5 * SECOND // 2)
    assert (made.bags[1].classes, made.bags[1].profile) == ((("gpu", 3 * SECOND),), (("gpu", 4 * SECOND),))
    last = TaskSpec(SECOND // 2, 1, (0, 1), (7, 8))
    assert made.workflows[2] == (TaskSpec(SECOND), TaskSpec(2 * SECOND, 2, (0,)), last)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"runtime": [1, -2]}, r"runtime\[1\] is -2\.0; allowed: seconds, 0 to"),
        ({"runtime": [1, math.nan]}, r"runtime\[1\] is nan; allowed: seconds, 0 to \d+$"),
        ({"runtime": [1, "long"]}, r"runtime is \[1, 'long'\]"),
        ({"runtime": [1]}, "length of runtime is 1; allowed: 2, as of release"),
        ({"release": [0, 1e13]}, r"release\[1\] is 10000000000000\.0"),
        ({"due": [1, -1]}, r"due\[1\] is -1\.0; allowed: .*, or none"),
        ({"task_runtimes": {0: [-1]}}, r"task_runtimes\[0\]\[0\] is -1\.0"),
    ],
)
def test_times_that_are_none_are_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        workload_of(**({"release": [0, 0], "runtime": [1, 1]} | columns))


def test_a_simulation_takes_and_gives_seconds() -> None:
    jobs = workload_of(release=[0, 5], runtime=[10, 10], estimate=[10, None], due=[None, 30], width=[1, 1], kind=1)
    world = World(decision_time=2)
    done = simulate(jobs, [NodeSpec("n")], "easy", world=world, outages=[Outage("n", 30.5, 31)], period=4)
    assert done.seconds("start").tolist() == [2, 14]
    assert done.seconds("end").tolist() == [12, 24]
    assert done.held_at(15) == {1: 1}
    assert frame(done)["end"].tolist() == done.seconds("end").tolist()
    never = replace(done, start=np.array([-1, 2 * SECOND]))
    np.testing.assert_equal(never.seconds("start"), [math.nan, 2])
    with pytest.raises(InvalidInput, match="column is 'ends'; allowed: release, start, end"):
        done.seconds("ends")
    with pytest.raises(InvalidInput, match="column is 'width'"):
        jobs.seconds("width")
    late = simulate(jobs, [NodeSpec("n")], "easy", outages=[Outage("n", 4, 50)])
    assert late.seconds("end").tolist() == [60, 70]


def test_a_period_and_a_default_estimate_are_seconds() -> None:
    bag = workload_of(release=[0], runtime=[60], tasks=[24], due=[3600])
    schedule = simulate(bag, [NodeSpec("n", slots=8)], "deadline:spare=none", period=30, estimate_default=150)
    assert schedule.held_at(0) == {0: 1}, "24 tasks of 150 s in an hour are one slot"
    texts = simulate(bag, [NodeSpec("n", slots=8)], "deadline:spare=none", period="30s", estimate_default="2m30s")
    assert texts.end.tolist() == schedule.end.tolist()
    with pytest.raises(InvalidInput, match="period is 'often'"):
        simulate(bag, [NodeSpec("n")], "easy", period="often")
