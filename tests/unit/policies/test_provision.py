"""Splits of units against all splits there are, and the methods of provision against each other."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.instant import SECOND
from headway.policies.listing import Outcomes, penalties
from headway.policies.provision import TRIED, Provision, Splits, Tariff, batch_cost, dp, pp, sf, worth_a_look
from headway.policies.sequence import SEQUENCES, Load

COSTS = st.lists(st.integers(0, 20), min_size=1, max_size=8).map(
    lambda costs: tuple(sorted(map(float, costs), reverse=True))
)
OFFERS = st.builds(
    lambda costs, least, more: Tariff(costs, least, least + more), COSTS, st.integers(0, 3), st.integers(0, 9)
)
INF = math.inf


def cost(one: Tariff, units: int) -> float:
    return one.costs[min(units, len(one.costs) - 1)]


def allowed(tariffs: list[Tariff], units: int) -> list[tuple[int, ...]]:
    """All splits of at most so many units that keep to the bounds."""
    ranges = [range(one.least, min(one.most, units) + 1) for one in tariffs]
    return [split for split in itertools.product(*ranges) if sum(split) <= units]


@given(st.lists(OFFERS, max_size=3), st.integers(0, 14), st.sampled_from(["first", "even"]))
def test_the_best_of_all_splits(tariffs: list[Tariff], units: int, surplus: str) -> None:
    splits = Splits(tariffs, units, surplus)  # type: ignore[arg-type]
    for some in range(units + 1):
        split = splits.split(some)
        assert sum(split) == splits.taken[some] == min(some, sum(one.most for one in tariffs))
        assert splits.costs[some] == sum(map(cost, tariffs, split))
        choices = allowed(tariffs, some)
        if choices:
            assert splits.costs[some] == min(sum(map(cost, tariffs, choice)) for choice in choices)
            assert all(one.least <= own <= one.most for one, own in zip(tariffs, split, strict=True))


def test_too_few_units_for_all_that_services_have_at_least() -> None:
    splits = Splits([Tariff((9.0, 3.0, 0.0), 2), Tariff((7.0, 1.0), 1)], 4)
    assert [splits.split(some) for some in range(5)] == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1)]
    assert splits.costs == [16, 10, 7, 1, 1]


def test_who_gets_units_that_lower_no_penalty() -> None:
    tariffs = [Tariff((5.0, 0.0)), Tariff((5.0, 4.0, 0.0), 0, 3), Tariff((0.0,), 0, 1)]
    assert Splits(tariffs, 10, "first").split(10) == (8, 2, 0)
    assert Splits(tariffs, 10, "even").split(10) == (6, 3, 1)
    assert Splits(tariffs[1:], 10).split(10) == (3, 1)
    assert Splits(tariffs[1:], 10).taken[10] == 4


def test_costs_of_batch_jobs_are_brought_to_the_window() -> None:
    loads, now = [Load(3, 10 * SECOND, 10 * SECOND, 2.0)], 10 * SECOND
    found = Outcomes(loads, SEQUENCES["edf"], now)
    assert [found.of(some)[0] for some in range(4)] == [INF, 60, 40, 20]
    assert [batch_cost(found, 3, 5 * SECOND, now)(some) for some in range(4)] == [INF, 30, 20, 10]
    assert [batch_cost(found, 3, 50 * SECOND, now)(some) for some in range(4)] == [INF, 60, 40, 20]
    assert batch_cost(Outcomes([], SEQUENCES["edf"], 7), 1, 5, 7)(0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_few_numbers_of_units_are_tried(seed: int) -> None:
    """As good a split as with all numbers; list scheduling has anomalies, so one in a thousand worse at most."""
    chance = Random(seed)
    loads = [
        Load(chance.randint(1, 90), chance.randint(1, 40), chance.randint(0, 500), float(chance.randint(0, 9)))
        for _ in range(30)
    ]
    tariffs = [
        Tariff(tuple(sorted((chance.uniform(0, 1e-4) for _ in range(chance.randint(2, 100))), reverse=True)))
        for _ in range(5)
    ]
    units = chance.randint(100, 400)
    splits, found = Splits(tariffs, units), Outcomes(loads, SEQUENCES["greedy"])
    tried = list[int]()

    def cost(some: int) -> float:
        tried.append(some)
        return batch_cost(found, units, 50, 0)(some)

    best = dp(splits, [batch_cost(found, units, 50, 0)(some) for some in range(units + 1)], units)
    assert dp(splits, worth_a_look(splits, cost, units), units).penalty <= best.penalty * 1.001
    assert len(tried) == len(set(tried)) <= TRIED


def test_the_search_finds_the_fewest_units_that_do() -> None:
    splits = Splits([Tariff((5.0, 0.0), 1, 900)], 1_000)
    costs = [INF, *[700.0 - some for some in range(1, 700)], *[0.0] * 301]
    tried = worth_a_look(splits, costs.__getitem__, 1_000)
    assert dp(splits, tried, 1_000) == dp(splits, costs, 1_000) == Provision((300,), 700, 0.0)
    assert sum(one < INF for one in tried) <= 12


def test_the_worked_example_beside_a_service() -> None:
    """Figure 2's jobs cost 20 with three units; a service that needs one of them has to be worth it."""
    second = SECOND
    loads = [
        Load(2, 3 * second, 2 * second, 2),
        Load(2, 2 * second, 3 * second, 2),
        Load(3, 4 * second, 4 * second, 3),
    ]
    found = penalties(loads, 3, SEQUENCES["greedy"])
    assert found[3] == (20, 9 * second)
    batch = [batch_cost(Outcomes(loads, SEQUENCES["greedy"]), 3, 9 * second, 0)(some) for some in range(4)]
    worth = batch[2] - batch[3]
    assert dp(Splits([Tariff((worth - 1, 0.0))], 3), batch, 3) == Provision((0,), 3, 20 + worth - 1)
    assert dp(Splits([Tariff((worth, 0.0))], 3), batch, 3) == Provision((1,), 2, 20 + worth)


BATCH = st.lists(st.integers(0, 30), min_size=12, max_size=12).map(lambda costs: [INF, *map(float, costs)])


@given(st.lists(OFFERS.filter(lambda one: one.least == 0), max_size=3), BATCH)
def test_equation_13(tariffs: list[Tariff], batch: list[float]) -> None:
    found = dp(Splits(tariffs, 12), batch, 12)
    assert sum(found.services) + found.batch == 12
    choices = [(split, rest) for split in allowed(tariffs, 12) for rest in range(13 - sum(split))]
    assert found.penalty >= min(sum(map(cost, tariffs, split)) + batch[rest] for split, rest in choices)
    assert found.penalty <= min(sum(map(cost, tariffs, split)) + batch[12 - sum(split)] for split, _ in choices)


def test_services_have_what_makes_no_difference() -> None:
    services = Splits([Tariff((4.0, 0.0)), Tariff((4.0, 0.0))], 10)
    assert dp(services, [INF, *[1.0] * 10], 10) == Provision((5, 4), 1, 1)
    assert dp(services, [0.0] * 11, 10) == Provision((5, 5), 0, 0)
    assert sf(services, [0.0] * 11, 10) == pp(services, [0.0] * 11, 10, 0, 9) == Provision((5, 5), 0, 0)


@given(st.integers(2, 200), st.floats(0, 1e9), st.floats(0, 1e9))
def test_by_recent_penalties_either_kind_has_its_reserve(units: int, services: float, batch: float) -> None:
    found = pp(Splits([Tariff((4.0, 0.0))], units), [INF, *[1.0] * units], units, services, batch)
    reserve = max(1, units // 10)
    assert found.batch >= reserve
    assert sum(found.services) >= reserve
    if services + batch > 0 and reserve < found.batch < units - reserve:
        assert found.batch / units == pytest.approx(batch / (services + batch), abs=1 / units)


def test_published_shares_of_64_units() -> None:
    """Figure 9: half at the start, then 6 for batch jobs, later 58 (Chang16 VI.C.3)."""
    services, batch = Splits([Tariff((1.0, 0.0))], 64), [INF, *[1.0] * 64]
    assert [pp(services, batch, 64, *recent).batch for recent in [(0, 0), (5, 0), (0, 5), (3, 1)]] == [32, 6, 58, 16]
    assert sf(services, batch, 64) == Provision((32,), 32, 1)
    assert sf(Splits([Tariff((1.0, 0.0))], 65), [INF, *[1.0] * 65], 65).batch == 32


def test_ten_services_on_a_thousand_units_take_bounded_work() -> None:
    """Each cost is its own: no unit is useless, so nothing is left out."""
    tariffs = [Tariff(tuple(float((1000 - units) * (1 + place)) for units in range(1001))) for place in range(10)]
    splits = Splits(tariffs, 1000)
    assert splits.split(1000) == (0,) * 9 + (1000,)
    assert splits.costs[1000] == sum(1000.0 * (1 + place) for place in range(9))
