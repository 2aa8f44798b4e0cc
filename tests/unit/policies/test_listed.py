"""The policies that schedule by lists: what is particular to them; the orders are tested in `test_sequence`."""

from __future__ import annotations

from random import Random

import pytest

from headway import InvalidInput, NodeSpec, simulate, summarise, workload_of
from headway.model.instant import SECOND
from headway.policies import registry
from headway.policies.anneal import annealed
from headway.policies.listed import Listed
from headway.policies.listing import SlotTimes, ends, total_penalty
from headway.policies.sequence import Load


def test_jobs_ahead_get_the_slots_that_are_free_first() -> None:
    """Job 0 runs tasks of 5 s, job 1 of 3 s; an urgent job of one task comes at 1 s."""
    jobs = workload_of(release=[0, 0, 1], tasks=[4, 4, 1], runtime=[5, 3, 1], estimate=[5, 3, 1], rate=[2, 1, 9])
    schedule = simulate(jobs, [NodeSpec("n", slots=1), NodeSpec("m", slots=1)], "hprf:every_task=true")
    assert schedule.start[2] / SECOND == 5  # both slots run job 0, which has the higher rate
    jobs = workload_of(release=[0, 0, 1], tasks=[1, 4, 1], runtime=[5, 3, 1], estimate=[5, 3, 1], rate=[2, 1, 9])
    for policy in ("hprf", "hprf:every_task=true"):
        schedule = simulate(jobs, [NodeSpec("n", slots=1), NodeSpec("m", slots=1)], policy)
        assert schedule.start[2] / SECOND == 3


@pytest.mark.parametrize(
    ("policy", "starts"),
    [("hprf:every_task=true", [0, 10, 1]), ("hprf", [0, 10, 15]), ("greedy", [0, 10, 15]), ("anneal", [0, 10, 15])],
)
def test_slots_for_a_wide_job_are_collected_or_left_to_those_behind(policy: str, starts: list[float]) -> None:
    jobs = workload_of(
        release=[0, 1, 1],
        tasks=[1, 1, 1],
        width=[1, 3, 1],
        runtime=[10, 5, 4],
        estimate=[10, 5, 4],
        rate=[1, 9, 1],
        due=[99, 9, 99],
    )
    assert list(simulate(jobs, [NodeSpec("n", slots=3)], policy).start / SECOND) == starts


def test_faster_nodes_count_as_more() -> None:
    """Ten slots of half the speed: in 30 s job 0 is not done, so its slack is below zero, and it comes first."""
    jobs = workload_of(release=[0, 0], tasks=[10, 10], runtime=[20, 1], estimate=[20, 1], due=[30, 5])
    slow = simulate(jobs, [NodeSpec("n", slots=10, speed=0.5)], "lst")
    fast = simulate(jobs, [NodeSpec("n", slots=10, speed=1)], "lst")
    assert slow.start[0] < slow.start[1]
    assert fast.start[0] > fast.start[1]


def test_an_unknown_order() -> None:
    with pytest.raises(InvalidInput, match="order is 'gredy'; allowed: greedy, edf, lst, lstr, hprf, wspt, atc"):
        Listed("gredy")
    with pytest.raises(InvalidInput, match="parameter of policy greedy is 'order'"):
        registry.find("greedy:order=edf")


@pytest.mark.parametrize("seed", range(8))
def test_while_nothing_new_comes_annealed_follows_the_order_that_it_found_first(seed: int) -> None:
    """Bags that are all there at the start end as by list scheduling in that order, also where jobs start at once."""
    chance = Random(seed)
    slots = chance.choice([3, 8])
    tasks = [chance.randint(1, 3 * slots) for _ in range(12)]
    runtime = [chance.randint(1, 30) for _ in tasks]
    span = sum(many * lasts for many, lasts in zip(tasks, runtime, strict=True)) // slots
    due = [chance.randint(1, span) for _ in tasks]
    rate = [float(chance.randint(1, 1000)) for _ in tasks]
    loads = [
        Load(many, lasts * SECOND, at * SECOND, cost)
        for many, lasts, at, cost in zip(tasks, runtime, due, rate, strict=True)
    ]
    order = annealed(loads, SlotTimes([(0, slots)]), 2_000, 0)
    jobs = workload_of(release=[0] * 12, tasks=tasks, runtime=runtime, estimate=runtime, due=due, rate=rate)
    found = simulate(jobs, [NodeSpec("n", slots=slots)], "anneal:first=2000")
    cost = summarise(found)["total_penalty"]
    assert cost == pytest.approx(total_penalty(loads, ends(loads, order, SlotTimes([(0, slots)]))))
