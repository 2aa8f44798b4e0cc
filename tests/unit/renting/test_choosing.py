"""What is rented, when, for whom, and why."""

from __future__ import annotations

import pytest

from headway.errors import InvalidInput
from headway.model.instant import HOUR, NEVER, SECOND
from headway.model.renting import UNIT, Offer
from headway.renting.choosing import OpenTask, cheapest, cheapest_each, left_of
from headway.renting.packing import AtHand

MINUTE = 60 * SECOND
SMALL = Offer("cloud", "small", 1, UNIT, period=HOUR, limit=9)


def task(number: int, minutes: float, due: float, job: int = 1) -> OpenTask:
    """A task of known length; both in minutes."""
    return OpenTask(job, number, int(due * MINUTE), (int(minutes * MINUTE),))


def test_an_hour_is_shared_and_asked_for_as_late_as_it_may_be() -> None:
    choice = cheapest([task(0, 20, 90), task(1, 30, 100, job=2)], [SMALL], now=0)
    (hire,) = choice.hires
    assert (hire.offer, hire.tasks, hire.cost, hire.jobs) == (SMALL, ((1, 0), (2, 0 + 1)), UNIT, [1, 2])
    assert (hire.at, hire.until) == (50 * MINUTE, 50 * MINUTE)
    assert hire.why == "2 tasks of jobs 1, 2: 1 for 50 min"
    assert choice.chance == {1: 1.0, 2: 1.0}


def test_the_rule_of_the_paper_takes_a_machine_for_each() -> None:
    choice = cheapest_each([task(0, 20, 90), task(1, 30, 100, job=2)], [SMALL], now=0)
    assert [(hire.tasks, hire.at, hire.cost) for hire in choice.hires] == [
        (((2, 1),), 0, UNIT),
        (((1, 0),), 0, UNIT),
    ]
    assert choice.hires[0].why == "the cheapest of 1 types on which task 1 of job 2 ends in time"


def test_the_rule_of_the_paper_takes_the_cheapest_that_is_fast_enough() -> None:
    fast = Offer("cloud", "fast", 1, 3 * UNIT, 2.0, period=HOUR, limit=9)
    choice = cheapest_each([task(0, 60, 70), task(1, 60, 40), task(2, 60, 20)], [SMALL, fast], now=0)
    assert [(hire.offer.type, hire.tasks) for hire in choice.hires] == [("small", ((1, 0),)), ("fast", ((1, 1),))]
    assert choice.missed == ((1, 2),)


def test_what_is_paid_is_used_before_anything_is_rented() -> None:
    rented = AtHand(SMALL, since=-10 * MINUTE, paid=50 * MINUTE, free=(10 * MINUTE,), until=NEVER)
    for rule in (cheapest, cheapest_each):
        choice = rule([task(0, 40, 60)], [SMALL], [rented], now=0)
        assert choice.hires == ()
        assert [(use.machine, use.tasks, use.cost) for use in choice.uses] == [(0, ((1, 0),), 0)]
    assert cheapest([task(0, 41, 60)], [SMALL], [rented], now=0).cost == UNIT
    assert cheapest([task(0, 40, 49)], [SMALL], [rented], now=0).hires[0].at == 9 * MINUTE


def test_own_machines_are_waited_for_while_there_is_slack() -> None:
    own = AtHand(Offer("here", "own", 1, 0), 0, 0, (30 * MINUTE,), NEVER)
    choice = cheapest([task(0, 10, 40), task(1, 55, 70, job=2)], [SMALL], [own], now=0)
    assert [use.tasks for use in choice.uses] == [((1, 0),)]
    assert [hire.tasks for hire in choice.hires] == [((2, 1),)]


def test_what_may_be_taken_back_is_used_until_it_is_too_late_to_begin_again() -> None:
    plain = Offer("cloud", "small", 1, UNIT, start_time=5 * MINUTE, limit=9)
    spot = Offer("cloud", "small/spot", 1, UNIT // 3, start_time=5 * MINUTE, limit=9, spot=True)
    chosen = {}
    for due in (49, 50):
        (hire,) = cheapest([task(0, 20, due)], [plain, spot], now=0).hires
        chosen[due] = hire.offer.type, hire.at
    assert chosen == {49: ("small", 24 * MINUTE), 50: ("small/spot", 0)}
    assert cheapest([task(0, 20, 500)], [spot], now=0).missed == ((1, 0),)  # nothing to go to


def test_types_are_mixed() -> None:
    large = Offer("cloud", "large", 4, 3 * UNIT, period=HOUR, limit=9)
    choice = cheapest([task(number, 60, 60) for number in range(5)], [SMALL, large], now=0)
    assert sorted(hire.offer.type for hire in choice.hires) == ["large", "small"]
    assert choice.cost == 4 * UNIT


def test_a_machine_is_asked_for_earlier_with_a_reserve() -> None:
    (hire,) = cheapest([task(0, 20, 90)], [SMALL], now=0, reserve=15 * MINUTE).hires
    assert hire.at == 55 * MINUTE
    (hire,) = cheapest([task(0, 20, 90)], [SMALL], now=0, reserve=80 * MINUTE).hires
    assert hire.at == 0


def test_what_cannot_be_in_time_is_said_and_not_paid_for() -> None:
    choice = cheapest([task(0, 20, 19), task(1, 10, 19, job=2)], [SMALL], now=0)
    assert choice.missed == ((1, 0),)
    assert [hire.tasks for hire in choice.hires] == [((2, 1),)]
    assert choice.chance == {2: 1.0}
    assert cheapest([task(0, 20, 30)], [], now=0).missed == ((1, 0),)
    assert cheapest([], [SMALL], now=0).cost == 0


def test_limits_count_what_is_rented() -> None:
    rented = AtHand(SMALL, 0, HOUR, (0,), NEVER)
    assert left_of([SMALL], [rented, rented]) == [7]
    assert cheapest([task(0, 20, 20)] * 3, [SMALL], now=0, left=[2]).missed == ((1, 0),)


def test_a_chance_is_that_of_all_tasks_of_a_job_together() -> None:
    def both(second: tuple[int, int]) -> list[OpenTask]:
        return [
            OpenTask(1, number, 20 * MINUTE, times) for number, times in enumerate(((10 * MINUTE, 30 * MINUTE), second))
        ]

    # Each is short in half of the futures: here never both, there both in the same ones.
    never = cheapest(both((30 * MINUTE, MINUTE)), [SMALL], now=0, sure=0.5)
    assert (never.chance, len(never.missed)) in [({}, 1), ({}, 2)]
    assert cheapest(both((10 * MINUTE, 30 * MINUTE)), [SMALL], now=0, sure=0.5).chance == {1: 0.5}


@pytest.mark.parametrize("sure", [0.0, 1.1, -1])
def test_a_wrong_probability_is_named(sure: float) -> None:
    with pytest.raises(InvalidInput, match=r"sure is .*; allowed: a probability"):
        cheapest([], [], now=0, sure=sure)


@pytest.mark.parametrize("times", [(), (1, 2), (-1,)])
def test_wrong_run_times_are_named(times: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"times of task 1 of job 1 is "):
        cheapest([task(0, 1, 9), OpenTask(1, 1, 9, times)], [], now=0)
