"""The share of requests in time: the fluid model by hand, the other one against formulas of M/M/m and simulations."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.instant import SECOND
from headway.policies.serving import Agreement, Share, Traffic, erlang_c, fluid, queueing, shares, with_late
from headway.sim.requests import SimulatedRequests

from ...effort import one_in

WINDOW = 20 * SECOND
TRAFFIC = st.builds(
    Traffic,
    rate=st.floats(0, 2000),
    processing=st.integers(0, 50_000),
    queued=st.integers(0, 500),
    arrival_scv=st.floats(0, 20),
    processing_scv=st.floats(0, 5),
)


def fluid_by_steps(traffic: Traffic, threshold: int, units: int, steps: int = 20_000) -> float:
    """Inequality 5 tried at many instants of the window."""
    mean, late = traffic.processing / SECOND, 0
    for step in range(steps):
        at = (step + 0.5) / steps * WINDOW / SECOND
        queue = max(0.0, traffic.queued + (traffic.rate - units / mean) * at)
        late += queue * mean / units + mean > threshold / SECOND
    return 1 - late / steps


@pytest.mark.parametrize("seed", range(30))
def test_the_fluid_model_is_inequality_5(seed: int) -> None:
    chance = Random(seed)
    units = chance.randint(1, 20)
    full = units / 0.01
    traffic = Traffic(full * chance.choice([0.2, 0.9, 0.999, 1.001, 1.1, 3]), 10_000, chance.choice([0, 40, 2000]))
    threshold = chance.choice([9_999, 10_000, 20_000, 500_000])
    assert fluid(traffic, threshold, WINDOW, units) == pytest.approx(
        fluid_by_steps(traffic, threshold, units), abs=1e-4
    )


def test_edge_cases_of_the_fluid_model() -> None:
    assert fluid(Traffic(0, 10), 5, WINDOW, 0) == 1
    assert fluid(Traffic(1, 10), 100, WINDOW, 0) == 0
    assert fluid(Traffic(0, 10, queued=1), 100, WINDOW, 0) == 0
    assert fluid(Traffic(1, 10), 9, WINDOW, 5) == 0
    assert fluid(Traffic(1, 0), 0, WINDOW, 1) == 1
    assert fluid(Traffic(100, 10_000), 10_000, WINDOW, 1) == 1  # as fast as they come, and none waits
    assert fluid(Traffic(100, 10_000, queued=2), 20_000, WINDOW, 1) == 0


def test_penalty_of_a_window() -> None:
    agreement = Agreement(20_000, 0.9, 10_000)
    assert agreement.penalty(0.4) == pytest.approx(5000)
    assert agreement.penalty(0.95) == agreement.penalty(0.9) == 0


def erlang_c_by_sums(units: int, load: float) -> float:
    terms = [load**some / math.factorial(some) for some in range(units)]
    last = load**units / math.factorial(units) * units / (units - load)
    return last / (math.fsum(terms) + last)


@pytest.mark.parametrize("units", [1, 2, 5, 40])
@pytest.mark.parametrize("busy", [0.01, 0.5, 0.9, 0.999])
def test_erlangs_formula(units: int, busy: float) -> None:
    assert erlang_c(units, busy * units) == pytest.approx(erlang_c_by_sums(units, busy * units))


def test_erlangs_formula_between_whole_numbers() -> None:
    found = [erlang_c(units / 10, 3.0) for units in range(25, 120)]
    assert found[:6] == [1.0] * 6
    assert all(b < a for a, b in pairwise(found[5:]))
    assert erlang_c(5, 0) == 0
    assert erlang_c(1000, 1.0) == 0


def test_without_variability_nothing_waits_and_with_it_as_in_m_m_m() -> None:
    """The response time of M/M/m: its distribution is known in full (Kleinrock 1975, 3.5)."""
    steady = 10**7 * SECOND
    for units, busy in [(1, 0.5), (2, 0.7), (7, 0.9), (50, 0.97)]:
        traffic = Traffic(busy * units * 100, 10_000)
        left = units * 100 * (1 - busy)  # of the waiting time, its rate of decay
        waits = erlang_c_by_sums(units, busy * units)
        for threshold in (5_000, 10_000, 40_000):
            seconds = threshold / SECOND
            alone = math.exp(-100 * seconds)
            late = alone + waits * 100 / (left - 100) * (alone - math.exp(-left * seconds))
            assert queueing(traffic, threshold, steady, units) == pytest.approx(1 - late, abs=1e-5)
        even = Traffic(busy * units * 100, 10_000, arrival_scv=0, processing_scv=0)
        assert queueing(even, 10_001, steady, units) == pytest.approx(1, abs=1e-3)
        assert queueing(even, 9_999, steady, units) == 0


def test_one_unit_whose_decay_is_that_of_processing() -> None:
    """In M/M/1 the response time is exponential, also where waiting times decay as processing times do."""
    for busy in (1e-9, 1e-5, 0.3):
        found = queueing(Traffic(busy * 100, 10_000), 20_000, 10**6 * SECOND, 1)
        assert found == pytest.approx(1 - math.exp(-2 * (1 - busy)), abs=1e-5)


def drawn(chance: Random, kind: str, mean: float) -> float:
    if kind == "even":
        return mean
    if kind == "exponential":
        return chance.expovariate(1 / mean)
    return chance.expovariate(1 / mean / 5) if chance.random() < 1 / 9 else chance.expovariate(2 / mean)  # scv 5


SCV = {"even": 0.0, "exponential": 1.0, "varied": 5.0}


def simulated(arrivals: str, processing: str, units: int, busy: float, queued: int) -> float:
    """The share in time of what comes in windows of 2 s, of which each begins with so many requests."""
    chance, window, in_time, count = Random(f"{arrivals} {processing} {units}"), 2 * SECOND, 0, 0
    for _ in range(100):
        at, came = 0.0, [0] * queued
        while (at := at + drawn(chance, arrivals, 10_000 / busy / units)) < window:
            came.append(round(at))
        long = [round(drawn(chance, processing, 10_000)) for _ in came]
        queue = SimulatedRequests(came, long, 40_000, units=units)
        found = queue.advance(window)
        queue.advance(1000 * window)
        before = SimulatedRequests(came[:queued], long[:queued], 40_000, units=units).advance(1000 * window)
        in_time += found.in_time - before.in_time
        count += found.arrivals - queued
    return in_time / count


@pytest.mark.thorough
@pytest.mark.parametrize("arrivals", one_in(2, [*SCV]))
@pytest.mark.parametrize("processing", one_in(2, [*SCV]))
def test_shares_as_in_simulations(arrivals: str, processing: str) -> None:
    """Close where nothing varies more than in a Poisson process, else cautious; and closer than the fluid model."""
    error = error_of_fluid = 0.0
    for units, busy, queued in [(1, 0.6, 0), (3, 0.85, 0), (3, 0.98, 50), (3, 1.1, 0), (10, 0.8, 400)]:
        traffic = Traffic(100 * busy * units, 10_000, max(0, queued - units), SCV[arrivals], SCV[processing])
        found = queueing(traffic, 40_000, 2 * SECOND, units)
        wanted = simulated(arrivals, processing, units, busy, queued)
        assert wanted - (0.2 if "varied" in (arrivals, processing) else 0.06) < found < wanted + 0.06
        error += abs(found - wanted)
        error_of_fluid += abs(fluid(traffic, 40_000, 2 * SECOND, units) - wanted)
    assert error < error_of_fluid or arrivals == processing == "even"


@given(TRAFFIC, st.integers(0, 100_000), st.sampled_from([fluid, queueing]))
def test_more_units_do_not_harm(traffic: Traffic, threshold: int, share: Share) -> None:
    found = [share(traffic, threshold, WINDOW, units) for units in range(30)]
    assert all(0 <= one <= 1 for one in found)
    assert all(b >= a - 0.02 for a, b in pairwise(found))  # the approximations meet with little steps
    listed = shares(traffic, Agreement(threshold), WINDOW, 29, share)
    assert all(a <= b for a, b in pairwise(listed))
    assert len(listed) == 30 or listed[-1] >= min(0.9, max(found) - 0.02), "or more units do not help"


def test_shares_end_where_nothing_is_left_to_pay() -> None:
    traffic = Traffic(1000, 10_000)
    found = shares(traffic, Agreement(40_000, 0.9), WINDOW, 1000)
    assert found[-1] >= 0.9 > found[-2]
    assert 10 < len(found) < 20
    assert len(shares(traffic, Agreement(40_000, 0.9), WINDOW, 1000, least=25)) == 26
    slow = shares(traffic, Agreement(20_000, 0.9), WINDOW, 1000)
    assert slow[-1] == pytest.approx(1 - math.exp(-2), abs=1e-5), "so many are processed in time, however many units"
    assert len(slow) < 60


def test_agrees_with_a_simulation_by_others() -> None:
    """Ciw simulates M/M/3; our simulation and the model have the same shares."""
    ciw = pytest.importorskip("ciw", reason="ciw is not installed (pip install headway[peers])")
    ciw.seed(5)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(240.0)],
        service_distributions=[ciw.dists.Exponential(100.0)],
        number_of_servers=[3],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(60.0)
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    came = [round(record.arrival_date * SECOND) for record in records]
    long = [round(record.service_time * SECOND) for record in records]
    theirs = sum(record.exit_date - record.arrival_date <= 0.03 for record in records)
    ours = SimulatedRequests(came, long, 30_000, units=3).advance(1000 * SECOND).in_time
    assert abs(ours - theirs) <= 3  # times are rounded
    assert queueing(Traffic(240, 10_000), 30_000, 60 * SECOND, 3) == pytest.approx(theirs / len(records), abs=0.05)


@pytest.mark.parametrize("share", [fluid, queueing])
def test_units_that_serve_late_are_missing_until_then(share: Share) -> None:
    """For a quarter of the window one unit answers 10 of 20 requests a second; 30 wait then instead of 10."""
    traffic, window = Traffic(20.0, 100_000, 10), 8 * SECOND
    half = partial(with_late, share=share, has=1, late=2 * SECOND)
    before = share(traffic, 300_000, 2 * SECOND, 1)
    after = share(replace(traffic, queued=30), 300_000, 6 * SECOND, 4)
    assert half(traffic, 300_000, window, 4) == pytest.approx(before / 4 + after * 3 / 4)
    assert half(traffic, 300_000, window, 1) == share(traffic, 300_000, window, 1), "those that are there serve"
    none = partial(with_late, share=share, has=1, late=9 * SECOND)
    assert none(traffic, 300_000, window, 4) == share(traffic, 300_000, window, 1), "later than the window"
    calm = partial(with_late, share=share, has=5, late=2 * SECOND)
    emptied = share(replace(traffic, queued=0), 300_000, 6 * SECOND, 6)
    assert calm(traffic, 300_000, window, 6) == pytest.approx(
        share(traffic, 300_000, 2 * SECOND, 5) / 4 + emptied * 3 / 4
    )
