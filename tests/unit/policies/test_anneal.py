"""The annealed order: against all orders of few jobs, the OR-Library's instances, and its own promises."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest

from headway import InvalidInput, NodeSpec, simulate, workload_of
from headway.metrics.collect import summarise
from headway.model.instant import NEVER, SECOND
from headway.model.job import PenaltyShape
from headway.policies import registry
from headway.policies.anneal import WARM, Annealing, annealed
from headway.policies.chance import RandomNumbers
from headway.policies.listing import SlotTimes, ends, total_penalty
from headway.policies.sequence import Load


def drawn(chance: Random, jobs: int) -> list[Load]:
    return [
        Load(
            chance.randint(1, 5),
            chance.randint(1, 9) * SECOND,
            NEVER if chance.random() < 0.1 else chance.randint(0, 30) * SECOND,
            float(chance.randint(0, 9)),
            chance.choice(list(PenaltyShape)),
            chance.randint(0, 9) * SECOND,
        )
        for _ in range(jobs)
    ]


def cost(loads: list[Load], order: Iterator[int] | list[int] | tuple[int, ...], free: SlotTimes) -> float:
    return total_penalty(loads, ends(loads, order, free.copy()))


@pytest.mark.parametrize("seed", range(12))
def test_of_few_jobs_it_finds_the_best_of_all_orders(seed: int) -> None:
    chance = Random(seed)
    loads, free = drawn(chance, 5), SlotTimes([(chance.randint(0, 9), 1) for _ in range(chance.randint(1, 3))])
    best = min(cost(loads, order, free) for order in permutations(range(5)))
    found = annealed(loads, free, 20_000, seed)
    assert sorted(found) == list(range(5))
    assert cost(loads, found, free) == pytest.approx(best)


@pytest.mark.parametrize("seed", [51, 77, 83, 110, 112])
def test_few_bags_are_not_left_where_one_slot_as_fast_as_all_is_good(seed: int) -> None:
    chance = Random(seed)
    sizes = [(chance.randint(1, 6), chance.randint(1, 100) * SECOND) for _ in range(6)]
    slots = chance.choice((2, 3, 5))
    span = sum(tasks * run_time for tasks, run_time in sizes) / slots
    loads = [
        Load(tasks, run_time, int(chance.random() * span), float(chance.randint(1, 10))) for tasks, run_time in sizes
    ]
    free = SlotTimes([(0, slots)])
    best = min(cost(loads, order, free) for order in permutations(range(6)))
    assert cost(loads, annealed(loads, free, 1_000_000, 0), free) == pytest.approx(best)


@pytest.mark.peers
def test_of_small_instances_it_is_close_to_what_a_solver_proves_to_be_best() -> None:
    """Bags on identical slots. Some optima follow from no order of jobs: another's task goes between two of a job."""
    cp_model = pytest.importorskip(
        "ortools.sat.python.cp_model", reason="ortools is not installed (pip install headway[peers])"
    )
    ratios = []
    for seed in range(20):
        chance = Random(seed)
        slots = chance.randint(2, 3)
        loads = [
            Load(
                chance.randint(1, 4),
                chance.randint(1, 9) * SECOND,
                chance.randint(1, 9) * SECOND,
                float(chance.randint(1, 9)),
            )
            for _ in range(6)
        ]
        best = proved_best(cp_model, loads, slots)
        free = SlotTimes([(0, slots)])
        found = cost(loads, annealed(loads, free, 200_000, seed), free)
        assert found >= best
        ratios.append(found / best)
    assert fmean(ratios) <= 1.02
    assert sum(ratio == 1 for ratio in ratios) >= 15
    assert max(ratios) <= 1.15


def proved_best(cp_model: Any, loads: list[Load], slots: int) -> int:
    """The least total weighted tardiness of bags on identical slots."""
    model = cp_model.CpModel()
    horizon = sum(load.tasks * load.run_time for load in loads) // SECOND
    tasks, costs = [], []
    for load in loads:
        seconds = load.run_time // SECOND
        starts = [model.new_int_var(0, horizon, "") for _ in range(load.tasks)]
        tasks += [model.new_fixed_size_interval_var(start, seconds, "") for start in starts]
        for first, second in pairwise(starts):
            model.add(first <= second)
        late = model.new_int_var(0, horizon, "")
        model.add(late >= starts[-1] + seconds - load.due // SECOND)
        costs.append(int(load.rate) * late)
    model.add_cumulative(tasks, [1] * len(tasks), slots)
    model.minimize(sum(costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = 60
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


@pytest.mark.parametrize("slots", [1, 4])
def test_what_it_costs_is_counted_from_the_first_job_that_changed(slots: int) -> None:
    chance = Random(slots)
    loads, free = drawn(chance, 30), SlotTimes([(at, 1) for at in range(slots)])
    search = Annealing(loads, free, range(30))
    for effort in range(1, 40):
        search.improve(effort * 10, effort, WARM)
        assert search.cost == pytest.approx(cost(loads, search.order, free))
        assert search.least == pytest.approx(cost(loads, search.best, free))
    assert search.steps <= sum(effort * 10 + 30 for effort in range(1, 40))
    assert free.equals(SlotTimes([(at, 1) for at in range(slots)]))


def test_the_seed_and_the_steps_fix_the_order() -> None:
    loads, free = drawn(Random(1), 40), SlotTimes([(0, 3)])
    assert annealed(loads, free, 5000, 7) == annealed(loads, free, 5000, 7)
    assert annealed(loads, free, 5000, 7) != annealed(loads, free, 5000, 8)


def test_with_an_order_from_before_it_gets_no_worse_and_new_jobs_find_a_place() -> None:
    loads, free = drawn(Random(2), 40), SlotTimes([(0, 3)])
    before = annealed(loads, free, 20_000, 0)
    assert cost(loads, annealed(loads, free, 500, 1, before), free) <= cost(loads, before, free)
    urgent = Load(1, SECOND, SECOND, 1000.0)
    found = annealed([*loads, urgent, Load(0, SECOND)], free, 0, 0, before)
    assert sorted(found) == list(range(41))  # the job without tasks has no place
    assert found[0] == 40


def test_what_is_drawn_is_spread_evenly() -> None:
    chance = RandomNumbers(3)
    drawn = [chance.draw() for _ in range(10_000)]
    tenths = [sum(tenth <= 10 * number < tenth + 1 for number in drawn) for tenth in range(10)]
    assert sum(tenths) == 10_000
    assert max(abs(count - 1000) for count in tenths) < 120
    assert RandomNumbers(4).draw() != RandomNumbers(3).draw()


def test_no_jobs_and_one_job() -> None:
    free = SlotTimes([(0, 2)])
    assert annealed([], free, 100, 0) == []
    assert annealed([Load(3, SECOND, 0)], free, 100, 0) == [0]
    assert annealed([Load(0, SECOND, 0)], free, 100, 0) == []


def instances(jobs: int, best: str) -> Iterator[tuple[int, list[Load], int]]:
    """Single-machine total weighted tardiness (OR-Library): number, jobs, the best total known."""
    folder = os.environ.get("HEADWAY_DATA")
    if not folder or not (Path(folder) / "wt").is_dir():
        pytest.skip("HEADWAY_DATA names no folder with wt/ (OR-Library)")
    numbers = [int(word) for word in (Path(folder) / "wt" / f"wt{jobs}.txt").read_text().split()]
    known = [int(word) for word in (Path(folder) / "wt" / best).read_text().split()]
    for instance, least in enumerate(known):
        times, weights, due = (numbers[(3 * instance + row) * jobs :][:jobs] for row in range(3))
        yield (
            instance,
            [Load(1, t * SECOND, d * SECOND, float(w)) for t, w, d in zip(times, weights, due, strict=True)],
            least,
        )


@pytest.mark.parametrize(
    ("jobs", "best"), [(40, "wtopt40.txt"), pytest.param(100, "wtbest100b.txt", marks=pytest.mark.slow)]
)
def test_single_machine_close_to_the_best_known(jobs: int, best: str) -> None:
    """On average over every twelfth instance, with a fifth of the policy's steps; the benchmarks have all of it."""
    gaps = []
    for instance, loads, least in instances(jobs, best):
        if instance % 12 == 0:
            free = SlotTimes([(0, 1)])
            found = round(cost(loads, annealed(loads, free, 200_000, 0), free))
            assert found >= least
            gaps.append(found / least - 1 if least else float(found))
    assert sum(gaps) / len(gaps) <= 0.02


def test_the_policy_promises_what_follows_from_its_order_and_keeps_to_it() -> None:
    """On one slot, 3 jobs of 10 s: the order of least penalty is 2, 0, 1."""
    jobs = workload_of(release=[0] * 3, tasks=1, runtime=10, estimate=10, due=[20, 50, 10], rate=[5, 1, 9])
    schedule = simulate(jobs, [NodeSpec("n")], "anneal")
    assert list(schedule.end / SECOND) == [20, 30, 10]
    assert summarise(schedule)["total_penalty"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_policy_costs_no_more_than_the_rules(seed: int) -> None:
    chance = Random(seed)
    run_times = [chance.randint(1, 60) for _ in range(30)]
    jobs = workload_of(
        release=[0] * 30,
        tasks=[chance.randint(1, 9) for _ in range(30)],
        runtime=run_times,
        estimate=run_times,
        due=[chance.randint(0, 1500) for _ in range(30)],
        rate=[chance.randint(1, 9) for _ in range(30)],
    )
    found = {
        policy: summarise(simulate(jobs, [NodeSpec("n", slots=3)], policy))["total_penalty"]
        for policy in ("anneal:steps=2000,first=50000", "greedy", "atc", "wspt", "edf")
    }
    assert found["anneal:steps=2000,first=50000"] == min(found.values())


@pytest.mark.parametrize("wrong", ["anneal:steps=-1", "anneal:first=-5", "anneal:steps=x"])
def test_wrong_numbers_of_steps(wrong: str) -> None:
    with pytest.raises(InvalidInput, match=r"of policy anneal is .*; allowed: a whole number"):
        registry.find(wrong)


@pytest.mark.parametrize("shape", PenaltyShape)
def test_whatever_the_rates_are_costs_stay_numbers(shape: PenaltyShape) -> None:
    """Rates as large and as small as there are: nothing is infinite, and an order is found."""
    rates = [1e308, 1e300, 5e-324, 0.0, 1.0] * 3
    loads = [Load(2, (number + 1) * 10**12, 0, rate, shape) for number, rate in enumerate(rates)]
    order = annealed(loads, SlotTimes([(0, 2)]), 3_000, 0)
    assert sorted(order) == list(range(len(loads)))
    cost = total_penalty(loads, ends(loads, order, SlotTimes([(0, 2)])))
    assert 0 < cost < math.inf
    assert cost <= total_penalty(loads, ends(loads, list(range(len(loads))), SlotTimes([(0, 2)])))
