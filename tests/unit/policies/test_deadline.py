"""`deadline` with foresight: whole tasks, each slot from when it is free. `papers` tests the thesis's rule."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import BagTimes, workload_us
from headway.sim.experiment import run
from headway.traces.columns import workload_of

Bag = tuple[int, int, int, int, float]
"""Release, tasks, seconds a task, due date, priority."""


def schedule_of(bags: list[Bag], slots: int, policy: str = "deadline") -> Schedule:
    release, tasks, seconds, due, priority = zip(*bags, strict=True)
    jobs = workload_of(
        release=release, tasks=tasks, runtime=seconds, estimate=seconds, due=due, priority=priority, kind=Kind.BAG
    )
    return run(jobs, [NodeSpec("n", slots=slots)], policy)


def ends(bags: list[Bag], slots: int, policy: str = "deadline") -> list[float]:
    return schedule_of(bags, slots, policy).seconds("end").tolist()


@pytest.mark.parametrize(("due", "end", "as_the_thesis"), [(4, 7, 7), (5, 7, 9), (6, 7, 9), (8, 7, 9), (9, 9, 9)])
def test_a_slot_counts_from_when_it_can_be_had(due: int, end: int, as_the_thesis: int) -> None:
    """Both slots are busy until 5. The job is due at 8, but one slot alone would end its second task at 9."""
    bags = [(0, 4, 5, 20, 1.0), (1, 2, 2, due, 9.0)]
    assert ends(bags, 2)[1] == end
    assert ends(bags, 2, "deadline:foresight=false")[1] == as_the_thesis


def test_slots_do_whole_tasks() -> None:
    """Three tasks of 2 s in 3 s are work for two slots, but one of them would do two whole tasks, until 4."""
    bags = [(0, 3, 2, 3, 1.0)]
    assert schedule_of(bags, 3, "deadline:spare=none").held_at(0) == {0: 3}
    assert schedule_of(bags, 3, "deadline:spare=none,foresight=false").held_at(0) == {0: 2}


def test_the_slots_that_are_free_first_are_waited_for() -> None:
    """Of three busy slots, those that are free at 3 and 4 end the job in time. Slot 0 is busy until 9."""
    bags = [(0, 1, 9, 90, 1.0), (0, 1, 3, 90, 2.0), (0, 1, 4, 90, 3.0), (1, 2, 2, 6, 9.0)]
    assert ends(bags, 3)[3] == 6


def test_what_runs_counts_with_what_is_left_of_it() -> None:
    """Two slots end four tasks of 10 s by 20. When another job comes at 1, that is still so."""
    bags = [(0, 4, 10, 20, 9.0), (1, 1, 5, 99, 1.0)]
    assert schedule_of(bags, 4, "deadline:spare=none").held_at(1) == {0: 2, 1: 1}
    assert schedule_of(bags, 4, "deadline:spare=none,foresight=false").held_at(1) == {0: 3, 1: 1}


def test_tasks_of_unequal_size_count_by_size() -> None:
    """Two tasks of 2 s wait, while the mean is 4 s. One slot ends both in 4 s."""
    times = BagTimes((8 * SECOND, 2 * SECOND, 2 * SECOND), sizes=(8.0, 2.0, 2.0))
    jobs = workload_us(release=[0], runtime=[0], estimate=[4 * SECOND], tasks=3, due=[12 * SECOND], bags={0: times})
    schedule = run(jobs, [NodeSpec("n", slots=3)], "deadline:spare=none")
    assert schedule.end.tolist() == [12 * SECOND]


NUMBERS = {
    "slots": st.integers(1, 4),
    "tasks": st.tuples(st.integers(1, 8), st.integers(1, 6)),
    "seconds": st.tuples(st.integers(1, 9), st.integers(1, 5)),
    "released": st.integers(0, 6),
    "due": st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(1, 10)),
    "priority": st.sampled_from([(1.0, 9.0), (9.0, 1.0), (5.0, 5.0)]),
}


@given(**NUMBERS)
@example(slots=2, tasks=(4, 2), seconds=(5, 2), released=1, due=(20, 3, 1), priority=(1.0, 9.0))
def test_a_later_due_date_makes_no_job_later_than_its_due_date(
    slots: int,
    tasks: tuple[int, int],
    seconds: tuple[int, int],
    released: int,
    due: tuple[int, int, int],
    priority: tuple[float, float],
) -> None:
    """Two jobs with known run times. With a later due date the second may end later, but not miss it by more."""
    other, earlier, more = due
    tardiness = math.inf
    for at in (released + earlier, released + earlier + more):
        bags = [(0, tasks[0], seconds[0], other, priority[0]), (released, tasks[1], seconds[1], at, priority[1])]
        late = max(0.0, ends(bags, slots)[1] - at)
        assert late <= tardiness
        tardiness = late
