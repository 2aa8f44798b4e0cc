"""What is measured: each request once, in the window where it belongs."""

from __future__ import annotations

import asyncio
import random
import statistics
from itertools import pairwise

import pytest

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.window import RESPONSE_BOUNDS as BOUNDS
from headway.services.terms import ServiceSettings
from headway.services.windows import Moments

from .acting import Actor, asked, broker_of, virtual


@virtual
async def test_a_request_counts_where_it_arrives_and_where_it_ends() -> None:
    """One that is longer than its window: an arrival of the first, which is late, and an answer of the third."""
    broker, noted = broker_of(window=1.0, threshold=0.5)
    actor = await Actor.started(broker)
    await asyncio.sleep(0.25)
    caller = asked(broker)
    await asyncio.sleep(2.5)
    actor.answer(spent=2.5)
    await caller
    await asyncio.sleep(2)
    first, second, third = noted.windows[:3]
    assert [(each.start, each.length) for each in noted.windows] == [(number * SECOND, SECOND) for number in range(4)]
    assert [(each.arrivals, each.in_time, each.answered) for each in (first, second, third)] == [
        (1, 0, 0),
        (0, 0, 0),
        (0, 0, 1),
    ]
    assert third.processing == pytest.approx(2.5 * SECOND)
    assert third.responses[[bound >= 2.5 for bound in BOUNDS].index(True)] == 1
    assert sum(third.responses) == 1
    assert third.instances == 1.0


@virtual
async def test_a_window_is_told_when_it_is_known_of_all_its_requests_whether_they_are_in_time() -> None:
    broker, noted = broker_of(window=1.0, threshold=2.5)
    actor = await Actor.started(broker)
    await asyncio.sleep(0.9)
    caller = asked(broker)
    await asyncio.sleep(2.4)
    assert noted.windows == []
    actor.answer()
    await caller
    await asyncio.sleep(0.19)
    assert noted.windows == []
    await asyncio.sleep(0.02)
    assert [(each.arrivals, each.in_time) for each in noted.windows] == [(1, 1)]


@virtual
async def test_ends_of_all_kinds_are_counted() -> None:
    broker, noted = broker_of(window=10.0, threshold=1.0, queue_max=2, wait_limit=2.0, time_limit=3.0)
    actor = await Actor.started(broker)
    callers = [asked(broker) for _ in range(4)]  # one is worked on, two wait, one is rejected
    await asyncio.sleep(0.5)
    callers[1].cancel()
    await asyncio.sleep(9.6 + 1)
    (window,) = noted.windows
    assert (window.arrivals, window.rejected, window.gone, window.timed_out) == (4, 1, 1, 2)
    assert (window.answered, window.failed, window.in_time, window.queued) == (0, 0, 0, 0)
    assert window.instances == pytest.approx(0.3)  # until it was stuck
    assert not actor.is_open
    await asyncio.gather(*callers, return_exceptions=True)


@virtual
async def test_what_waits_at_the_end_of_a_window_is_counted() -> None:
    broker, noted = broker_of(window=1.0, threshold=0.1)
    callers = [asked(broker) for _ in range(3)]
    await asyncio.sleep(1.2)
    assert [each.queued for each in noted.windows] == [3]
    for caller in callers:
        caller.cancel()


@virtual
async def test_variations_are_those_of_the_times_themselves() -> None:
    """Against the standard library, over random times of arrival and of processing."""
    generator = random.Random(1)
    broker, noted = broker_of(window=1000.0, threshold=100.0)
    actor = await Actor.started(broker)
    gaps, times = [], []
    for _ in range(50):
        gaps.append(generator.expovariate(1.0))
        times.append(generator.uniform(0.0, 0.5))
    arrivals = []
    for gap, spent in zip(gaps, times, strict=True):
        await asyncio.sleep(gap)
        arrivals.append(asyncio.get_running_loop().time())
        caller = asked(broker)
        await asyncio.sleep(spent)
        actor.answer(spent=spent)
        await caller
    await asyncio.sleep(1100 - asyncio.get_running_loop().time() + 1)
    (window,) = noted.windows
    between = [after - before for before, after in pairwise(arrivals)]
    assert window.processing == pytest.approx(statistics.fmean(times) * SECOND)
    assert window.processing_variation == pytest.approx(statistics.pvariance(times) / statistics.fmean(times) ** 2)
    assert window.arrival_variation == pytest.approx(statistics.pvariance(between) / statistics.fmean(between) ** 2)


@virtual
async def test_an_instance_is_not_believed_what_cannot_be() -> None:
    broker, noted = broker_of(window=10.0, threshold=0.1)
    actor = await Actor.started(broker)
    for said in (float("nan"), -1.0, 5.0, float("inf")):
        caller = asked(broker)
        await asyncio.sleep(1)
        actor.answer(spent=said)
        await caller
    await asyncio.sleep(7)
    assert noted.windows[0].processing == pytest.approx(SECOND)
    assert noted.windows[0].processing_variation == pytest.approx(0.0)


def test_numbers_that_are_all_the_same_do_not_vary() -> None:
    moments = Moments()
    assert moments.variation == 0.0
    for _ in range(1000):
        moments.add(0.1)
    assert moments.variation == pytest.approx(0.0, abs=1e-20)


def test_bounds_are_five_for_each_power_of_ten() -> None:
    assert (BOUNDS[0], BOUNDS[-1], len(BOUNDS)) == (0.0001, 100.0, 31)
    assert all(after / before == pytest.approx(10**0.2, rel=2e-2) for before, after in pairwise(BOUNDS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0.0),
        ("threshold", float("nan")),
        ("window", 0.01),
        ("time_limit", float("inf")),
        ("wait_limit", -1.0),
        ("load_limit", 1e9),
        ("queue_max", 0),
        ("answer_max", 1 << 40),
    ],
)
def test_a_setting_that_is_not_allowed_is_named(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is "):
        ServiceSettings(**{name: value})  # type: ignore[arg-type]
