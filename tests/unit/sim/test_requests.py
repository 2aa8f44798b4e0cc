"""The queue of a service against a slow twin that looks at one event at a time, and what it counts."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.sim.requests import EDGES, ArrivalWindow, SimulatedRequests


def take(now: int, units: list[list[int]], waiting: list[int], processing: list[int], ends: list[int | None]) -> None:
    """Let units that are free take requests that wait."""
    while waiting and (free := [unit for unit in units if unit[0] <= now and unit[1] <= now]):
        place = waiting.pop(0)
        ends[place] = free[0][1] = now + processing[place]


def slow_ends(
    arrivals: list[int], processing: list[int], changes: dict[int, int], warm_up: int, room: int
) -> list[int | None]:
    """When each request is answered, microsecond after microsecond; `changes` are instants and numbers of units."""
    ends: list[int | None] = [None] * len(arrivals)
    waiting: list[int] = []
    units: list[list[int]] = []  # of each: serves from, busy until
    for now in range(max(arrivals, default=0) + sum(processing) + warm_up + 200):
        if now in changes:
            wanted = changes[now]
            while len(units) < wanted:
                units.append([now + (warm_up if now else 0), 0])
            while len(units) > wanted:
                cold = [unit for unit in units if unit[0] > now]
                units.remove(max(cold) if cold else min(units, key=lambda unit: unit[1]))

        take(now, units, waiting, processing, ends)
        for place, at in enumerate(arrivals):
            if at == now:
                waiting.append(place)
                take(now, units, waiting, processing, ends)
                if len(waiting) > room:
                    waiting.remove(place)
    return ends


@given(st.randoms(use_true_random=False))
def test_as_the_slow_twin(chance: Random) -> None:
    count = chance.randint(0, 12)
    arrivals = sorted(chance.randint(0, 60) for _ in range(count))
    processing = [chance.randint(0, 15) for _ in range(count)]
    warm_up, room = chance.choice([0, 0, 7]), chance.choice([0, 2, 99])
    edges = sorted({0, *(chance.randint(1, 90) for _ in range(4)), 400})
    changes = {at: chance.randint(0, 4) for at in edges[:-1]}
    changes[edges[-2]] = max(1, changes[edges[-2]])
    queue = SimulatedRequests(
        arrivals, processing, 9, units=changes[0], warm_up=warm_up, room=room if room < 99 else None
    )
    for at, end in itertools.pairwise(edges):
        if at:
            queue.resize(changes[at])
        queue.advance(end)
    wanted = slow_ends(arrivals, processing, changes, warm_up, room)
    for window in queue.windows:
        mine = [place for place, at in enumerate(arrivals) if window.start <= at < window.end]
        ends = [(arrivals[place], wanted[place]) for place in mine]
        assert window.arrivals == len(mine)
        assert window.rejected == sum(end is None for _, end in ends)
        assert window.answered == window.arrivals - window.rejected
        assert window.in_time == sum(end is not None and end - at <= 9 for at, end in ends)
        assert window.share() == (window.in_time / len(mine) if mine else 1)
    assert queue.queued() == 0


@given(st.randoms(use_true_random=False))
def test_no_request_is_lost(chance: Random) -> None:
    count = chance.randint(1, 300)
    arrivals = sorted(chance.randint(0, 10**6) for _ in range(count))
    queue = SimulatedRequests(
        arrivals, [chance.randint(0, 10**5) for _ in range(count)], 20_000, room=chance.choice([None, 5])
    )
    for _ in range(12):
        queue.resize(chance.randint(0, 4))
        window = queue.advance(queue.now + 100_000)
        assert window.waiting == queue.queued()
        assert all(sum(one.responses) == one.answered for one in queue.windows)
        came = sum(one.arrivals for one in queue.windows)
        assert came == sum(one.answered + one.rejected for one in queue.windows) + queue.queued()
    assert came == count


def test_how_often_it_stops_changes_nothing() -> None:
    chance = np.random.default_rng(3)
    arrivals = np.cumsum(chance.integers(0, 2000, 20_000))
    processing = chance.integers(0, 8000, 20_000)
    end = int(arrivals[-1]) + 10**9
    whole = SimulatedRequests(arrivals, processing, 10_000, units=4)
    whole.advance(end)
    parts = SimulatedRequests(arrivals, processing, 10_000, units=4)
    while parts.now < end:
        parts.resize(4)
        parts.advance(min(end, parts.now + 1_000_003))
    assert sum(one.in_time for one in parts.windows) == whole.windows[0].in_time
    assert (sum(one.responses for one in parts.windows) == whole.windows[0].responses).all()
    assert parts.busy_time() == whole.busy_time() == processing.sum()


def test_what_a_window_measures() -> None:
    queue = SimulatedRequests([0, 10, 10, 40, 90], [5, 1, 3, 3, 7], 4, units=1)
    first, second = queue.advance(50), queue.advance(100)
    assert (first.arrivals, first.processing, first.in_time) == (4, 3.0, 3)
    assert first.processing_scv == pytest.approx(8 / 4 / 9)
    assert first.arrival_scv == pytest.approx(np.var([10, 0, 30]) / np.mean([10, 0, 30]) ** 2)
    assert first.rate() == pytest.approx(4 / 50e-6)
    assert (second.arrivals, second.arrival_scv, second.processing_scv, second.share()) == (1, 1.0, 0.0, 0.0)
    third = queue.advance(101)
    assert (third.arrivals, third.processing, third.share()) == (0, 0.0, 1.0)
    assert SimulatedRequests([5, 5, 5], [0] * 3, 1, units=1).advance(9).arrival_scv == 1.0


def test_buckets_of_response_times() -> None:
    queue = SimulatedRequests([0, 0, 0, 0], [50, 100, 101, 2 * 10**9], 10**6, units=4)
    responses = queue.advance(1).responses
    assert responses[0] == 2  # at most 0.1 ms
    assert responses[1] == 1
    assert responses[-1] == 1
    assert len(responses) == len(EDGES) + 1
    assert EDGES[-1] == pytest.approx(1e9)


def test_units_that_go_finish_their_request() -> None:
    queue = SimulatedRequests([0, 0, 30], [100, 20, 5], 100, units=3, warm_up=50)
    queue.advance(10)
    assert queue.resize(4) == []
    assert queue.resize(1) == [10, 10, 20]  # one that warms up, an idle one, and the one that is free soonest
    queue.advance(200)
    assert [window.in_time for window in queue.windows] == [2, 1]
    assert queue.windows[1].responses[0] == 1
    assert sum(queue.windows[1].responses) == 1  # the third one waits until 100


def test_a_request_waits_until_there_is_a_unit() -> None:
    queue = SimulatedRequests([5], [10], 30, warm_up=20)
    assert queue.advance(10).share() == 0
    assert queue.windows[0].answered == 0
    queue.resize(1)
    queue.advance(30)
    assert queue.windows[0].answered == 0  # from 30 on it is warm
    queue.advance(31)
    assert (queue.windows[0].answered, queue.windows[0].in_time) == (1, 0)


@pytest.mark.parametrize(
    ("arrivals", "processing", "named", "message"),
    [
        ([1, 2], [1], {}, r"processing is \(1,\); allowed: a time for each of 2 arrivals"),
        ([2, 1], [1, 1], {}, "arrivals is 2; allowed: rising instants from 0 on"),
        ([2], [1], {"start": 3}, "arrivals is 2; allowed: rising instants from 3 on"),
        ([2], [-1], {}, "processing is -1; allowed: microseconds, 0 or more"),
        ([], [], {"units": -1}, "units is -1; allowed: 0 or more"),
        ([], [], {"room": -1}, "room is -1; allowed: 0 or more"),
    ],
)
def test_arguments(arrivals: list[int], processing: list[int], named: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        SimulatedRequests(arrivals, processing, 1, **named)


def test_time_does_not_go_back() -> None:
    queue = SimulatedRequests([], [], 1)
    assert queue.advance(5) == queue.windows[0]
    assert isinstance(queue.windows[0], ArrivalWindow)
    with pytest.raises(InvalidInput, match="until is 5; allowed: later than 5"):
        queue.advance(5)
    with pytest.raises(InvalidInput, match="units is -2"):
        queue.resize(-2)
