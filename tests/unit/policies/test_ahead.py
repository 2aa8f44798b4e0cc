"""What the next window costs with those behind it in view, against plain loops, and what follows from it."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from headway.model.instant import SECOND
from headway.policies.ahead import HORIZON, TO_COME, TRIED, TariffAhead, delays, prices, with_lost
from headway.policies.listing import SlotTimes, ends, total_penalty
from headway.policies.provision import Tariff
from headway.policies.sequence import Load, by_due_date, by_weight

W = 20 * SECOND


def loads(seed: int, number: int = 8) -> list[Load]:
    chance = Random(seed)
    return [
        Load(chance.randint(1, 30), chance.randint(1, 30) * SECOND, chance.randint(0, 90) * SECOND, chance.random())
        for _ in range(number)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_what_few_units_for_a_window_cost(seed: int) -> None:
    """So many units now, the usual ones when the window has ended; the order is that for the usual number."""
    there, usual = loads(seed), 10
    found = delays(there, 12, usual, by_due_date, W, 5)
    order = list(by_due_date(there, usual, 5))
    lowest = math.inf
    for units in range(usual + 1):
        cost = total_penalty(there, ends(there, order, SlotTimes([(5, units), (5 + W, usual - units)])))
        lowest = min(lowest, TO_COME * cost)
        assert found[units] == pytest.approx(lowest)
    assert found[10] == found[11] == found[12]
    assert delays([], 3, 2, by_due_date, W, 5) == [0.0] * 4


def test_of_many_units_a_bounded_number_is_tried() -> None:
    calls = []

    def order(*what: object) -> object:
        calls.append(what)
        return iter(range(8))

    there = loads(1)
    many = delays(there, 6400, 6400, order, W, 0)  # type: ignore[arg-type]
    assert len(calls) == 1
    assert len(many) == 6401
    exact = TO_COME * total_penalty(there, ends(there, range(8), SlotTimes([(0, 100), (W, 6300)])))
    assert many[6400 // TRIED] == pytest.approx(exact)
    assert many == sorted(many, reverse=True)


def test_a_price_is_the_rate_of_all_that_will_be_late() -> None:
    """Two units. The jobs end at 30, 50 and 90 s; the second one is in time."""
    there = [
        Load(2, 30 * SECOND, 0, 4.0),
        Load(2, 20 * SECOND, 60 * SECOND, 100.0),
        Load(2, 40 * SECOND, 70 * SECOND, 6.0),
    ]
    assert prices(there, 2, by_due_date, W, 0).tolist() == [5, 3, 3, 3, 0]  # from 20, 40, 60, 80 and 100 s on
    assert prices([], 2, by_due_date, W, 0).tolist() == [0]
    endless = prices([Load(2, 10**6 * SECOND, 0, 4.0)], 2, by_weight, W, 0)
    assert endless.tolist() == [2] * HORIZON


@pytest.mark.parametrize("seed", range(20))
def test_work_that_is_left_waits_until_the_best_instant(seed: int) -> None:
    chance = Random(seed)
    costs = tuple(sorted((chance.uniform(0, 90) for _ in range(5)), reverse=True))
    least, load, waiting = chance.randint(0, 2), chance.uniform(0, 4), chance.choice([0.0, chance.uniform(0, 300)])
    has, late = chance.randint(0, 6), chance.choice([0.0, 5.0, 30.0])
    one = TariffAhead(Tariff(costs, least, 12), tuple(cost / 2 for cost in costs), 90.0, load, waiting, has, late)
    price = np.array(sorted((chance.uniform(0, 0.5) for _ in range(chance.randint(1, 9))), reverse=True))
    found = one.ahead(price, W)

    def good(place: int) -> tuple[float, int]:
        """What a good window costs, and with how many units."""
        return min((cost / 2 + 20 * price[place] * max(n, least), max(n, least)) for n, cost in enumerate(costs))

    def later(units: int, left: float) -> float:
        """The least that work costs that is left, over all windows in which it may be done.

        What is wanted then and is not there yet warms up: these units are paid for.
        """
        choices, lost = [], 0.0
        for place in range(len(price)):
            best, wanted = good(place)
            missing = max(0, wanted - (least if place else units))
            choices.append(lost + price[place] * (left + place * 20 * max(0.0, load - least) + late * missing))
            lost += 90 + 20 * price[place] * least - best
        return min(*choices, lost)

    wanted = math.inf
    for units, cost in enumerate(found.costs):
        answered = 20 * units - max(0, units - has) * min(late, 20)
        wanted = min(wanted, costs[min(units, 4)] + later(units, max(0.0, waiting + 20 * load - answered)))
        assert cost == pytest.approx(wanted)
    assert (found.least, found.most) == (least, 12)
    assert len(found.costs) <= 13


def test_a_backlog_is_a_job_and_the_last_unit_of_it_is_worth_all_windows_behind() -> None:
    """400 s of work wait, and 20 units answer them in a window. By itself that window is lost whatever it has."""
    one = TariffAhead(Tariff((90.0,), 0, 99), (90.0, 0.0), 90.0, 1.0, 400.0)
    assert one.backlog(8, W, 7) == Load(8, 50 * SECOND, 7, 4.5)
    costs = one.ahead(np.array([0.1, 0.0]), W).costs
    assert costs[21] == 90
    assert costs[20] - costs[21] == pytest.approx(0.1 * 20)  # a second of each unit is worth 0.1 in the window behind
    assert costs[:2] == pytest.approx((90 + 0.1 * 420, 90 + 0.1 * 400))


def test_units_that_are_taken_at_once_cost_the_work_that_is_lost_there() -> None:
    """The batch jobs have three of four units: an idle one, and two with tasks that have run for 5 and 30 s."""
    costs = with_lost([90.0, 50.0, 20.0, 10.0, 5.0], [0.0, 5.0, 35.0], 0.5)
    assert costs == [90 + TO_COME * 0.5 * 35, 50 + TO_COME * 0.5 * 5, 20.0, 10.0, 5.0]


def test_what_was_answered_well_so_far_keeps_its_units_if_new_ones_would_warm_up() -> None:
    """A unit is worth 1 for a second, and two are wanted behind the next window; with one 15 is lost in the next."""
    calm = TariffAhead(Tariff((90.0, 15.0, 0.0), 0, 9), (90.0, 60.0, 0.0), 90.0, 0.5, 0.0, has=2, late=6.0)
    assert np.diff(calm.ahead(np.array([1.0, 0.0]), W).costs).tolist() == pytest.approx([-75.0 - 10 - 6, -15.0 - 6])
