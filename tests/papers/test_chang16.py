"""Chang16's batch part: its worked example, and its orders against a slow twin that decides anew at each task end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from headway import NodeSpec, simulate, workload_of
from headway.metrics.collect import summarise
from headway.model.instant import NEVER, SECOND, Instant
from headway.policies.listing import SlotTimes, ends, penalties, total_penalty
from headway.policies.sequence import SEQUENCES, Load, greedy

FIGURE_2 = [Load(2, 3 * SECOND, 2 * SECOND, 2), Load(2, 2 * SECOND, 3 * SECOND, 2), Load(3, 4 * SECOND, 4 * SECOND, 3)]
"""Three jobs on three processing units; their rates follow from the printed sums."""

ORDERS = ["greedy", "lst", "lstr", "hprf", "wspt", "atc"]


def jobs_of(loads: Sequence[Load], release: Sequence[float] | None = None) -> Any:
    """The same jobs for a simulation, their run times known."""
    run_times = [load.run_time / SECOND for load in loads]
    return workload_of(
        release=[0.0] * len(loads) if release is None else release,
        tasks=[load.tasks for load in loads],
        runtime=run_times,
        estimate=run_times,
        due=[None if load.due == NEVER else load.due / SECOND for load in loads],
        rate=[load.rate for load in loads],
    )


def added_penalty(loads: Sequence[Load], chosen: int, at: Instant, slots: int) -> float:
    """Equation 12 as it is printed: what the others lose if this job is next."""

    def delay(load: Load, start: Instant) -> int:
        return max(0, start + load.alone(slots) - load.due)

    lasts = loads[chosen].alone(slots)
    others = [load for place, load in enumerate(loads) if place != chosen]
    return sum(load.rate * (delay(load, at + lasts) - delay(load, at)) for load in others) / SECOND


def test_figure_2_equation_12_gives_the_printed_sums() -> None:
    assert [added_penalty(FIGURE_2, place, 0, 3) for place in range(3)] == [13, 10, 14]
    left = [FIGURE_2[0], FIGURE_2[2]]
    assert [added_penalty(left, place, 2 * SECOND, 3) for place in range(2)] == [9, 8]


def test_figure_2_order_and_figure_3_schedule() -> None:
    assert list(greedy(FIGURE_2, 3, 0)) == [1, 2, 0]
    found = ends(FIGURE_2, [1, 2, 0], SlotTimes([(0, 3)]))
    assert [end / SECOND for end in found] == [9, 2, 6]
    assert total_penalty(FIGURE_2, found) == 20


@pytest.mark.parametrize("policy", ["greedy", "greedy:every_task=true"])
def test_figure_3_in_the_simulator(policy: str) -> None:
    schedule = simulate(jobs_of(FIGURE_2), [NodeSpec("n", slots=3)], policy)
    assert list(schedule.end / SECOND) == [9, 2, 6]
    assert summarise(schedule)["total_penalty"] == 20


def test_in_the_middle_of_a_run_units_are_still_held() -> None:
    """Equation 9 takes all units as free. Here job 0 holds two of three until 5, when jobs 1 and 2 of figure 2 come."""
    loads = [Load(2, 5 * SECOND, NEVER), *FIGURE_2[1:]]
    schedule = simulate(jobs_of(loads, release=[0, 1, 1]), [NodeSpec("n", slots=3)], "greedy:every_task=true")
    # Job 1 is next, then job 2: 2 s and 4 s on all units. Slot 3 runs both tasks of job 1, then one of job 2.
    assert list(schedule.end / SECOND) == [5, 5, 9]


def test_batch_cost_for_each_number_of_units() -> None:
    """c_B of equation 13. With 3 units it is figure 3's; with 7 each task has its own, and only job 1 is late."""
    found = penalties(FIGURE_2, 8, greedy)
    assert found[0] == (math.inf, NEVER)
    assert found[3] == (20, 9 * SECOND)
    assert found[7] == found[8] == (2, 4 * SECOND)
    assert [found[slots] for slots in range(1, 9)] == [
        (total_penalty(FIGURE_2, ended), max(ended))
        for slots in range(1, 9)
        for ended in [ends(FIGURE_2, greedy(FIGURE_2, slots, 0), SlotTimes([(0, slots)]))]
    ]


def ends_by_hand(loads: Sequence[Load], slots: int, order: str) -> list[Instant]:
    """Whenever a task ends, the order of what has not started is made anew; free units take the first jobs' tasks."""
    ready, left = [load.tasks for load in loads], [load.tasks for load in loads]
    running, found, now = list[tuple[Instant, int]](), [0] * len(loads), 0
    while any(left):
        for end, place in [one for one in running if one[0] == now]:
            running.remove((end, place))
            left[place] -= 1
            found[place] = now
        waiting = [place for place in range(len(loads)) if ready[place]]
        now_left = [Load(ready[p], loads[p].run_time, loads[p].due, loads[p].rate) for p in waiting]
        for chosen in SEQUENCES[order](now_left, slots, now):
            place = waiting[chosen]
            while ready[place] and len(running) < slots:
                ready[place] -= 1
                running.append((now + loads[place].run_time, place))
        now = min(running, default=(0, 0))[0]
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_a_policy_schedules_as_the_paper_does(order: str) -> None:
    chance = Random(order)
    for _ in range(15):
        slots = chance.randint(1, 6)
        loads = [
            Load(
                chance.randint(1, 7),
                chance.randint(1, 9) * SECOND,
                chance.randint(0, 40) * SECOND,
                chance.randint(1, 9),
            )
            for _ in range(chance.randint(1, 8))
        ]
        schedule = simulate(jobs_of(loads), [NodeSpec("n", slots=slots)], f"{order}:every_task=true")
        assert list(schedule.end) == ends_by_hand(loads, slots, order)
