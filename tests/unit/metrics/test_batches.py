"""Batch means, compared with tables of Student's t, and with series and queues whose mean has a closed form."""

from __future__ import annotations

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.metrics.batches import BATCHES, Interval, batch_means, interval, means_of_batches, student
from headway.metrics.measures import wait
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.workload import FloatArray, workload_us
from headway.sim.experiment import run


@pytest.mark.parametrize(
    ("confidence", "freedom", "printed"),
    [
        *((0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 9, 2.262), (0.95, 19, 2.093), (0.95, 120, 1.980)),
        *((0.90, 4, 2.132), (0.90, 30, 1.697), (0.99, 3, 5.841), (0.99, 10, 3.169), (0.998, 5, 5.893)),
    ],
)
def test_quantiles_are_those_of_printed_tables(confidence: float, freedom: int, printed: float) -> None:
    assert student(confidence, freedom) == pytest.approx(printed, abs=0.0005)


def test_quantiles_come_near_the_normal_distribution() -> None:
    assert student(0.95, 100_000) == pytest.approx(1.95996, abs=0.0001)


def test_the_warm_up_and_what_makes_batches_unequal_are_left_out_at_the_start() -> None:
    values = [100, 100, 100, 1, 3, 2, 4, 3, 5]  # two jobs of warm-up, then one that is over
    assert means_of_batches(values, 3, 0.2).tolist() == [2, 3, 4]
    found = batch_means(values, 3, warm_up=0.2)
    assert (found.mean, found.batches) == (3, 3)
    assert found.half_width == pytest.approx(4.303 * (1 / 3) ** 0.5, abs=0.001)
    assert found.low + found.high == pytest.approx(2 * found.mean)
    assert found.times(2).low == 2 * found.low


def test_a_constant_has_no_interval() -> None:
    found = batch_means([7.0] * 100)
    assert (found.mean, found.low, found.high, found.correlation, found.is_correlated) == (7, 7, 7, 0, False)


def test_more_confidence_is_a_wider_interval() -> None:
    means = np.array([1.0, 4.0, 2.0, 5.0])
    widths = [interval(means, confidence).half_width for confidence in (0.5, 0.9, 0.95, 0.99)]
    assert widths == sorted(widths)
    assert widths[0] > 0


def autoregressive(series: int, length: int, memory: float) -> FloatArray:
    """Rows x[t] = memory x[t-1] + noise with true mean 0, started in equilibrium; shape (series, length)."""
    noise = np.random.default_rng(7).standard_normal((length, series))
    rows = np.empty_like(noise)
    rows[0] = noise[0] / (1 - memory**2) ** 0.5
    for instant in range(1, length):
        rows[instant] = memory * rows[instant - 1] + noise[instant]
    return rows.T


def covered(series: FloatArray, mean: float, warm_up: float) -> float:
    """The share of the rows whose interval contains the true mean."""
    found = [batch_means(row, warm_up=warm_up) for row in series]
    return sum(one.low <= mean <= one.high for one in found) / len(found)


SERIES = 1000
ERROR = 3 * (0.95 * 0.05 / SERIES) ** 0.5
"""Three standard errors of a share of 95 % counted over so many series."""


def test_the_interval_of_a_correlated_series_holds_its_mean_as_often_as_it_says() -> None:
    series = autoregressive(SERIES, 4000, 0.8)
    assert covered(series, 0.0, 0.0) == pytest.approx(0.95, abs=ERROR)
    # If the same values counted as independent, the interval would be much too narrow.
    alone = [interval(row) for row in series]
    assert sum(one.low <= 0 <= one.high for one in alone) / SERIES < 0.6


def test_batches_too_short_for_their_series_are_seen_and_others_are_not() -> None:
    long, short = autoregressive(200, 20_000, 0.5), autoregressive(200, 1_000, 0.98)
    assert sum(batch_means(row, warm_up=0).is_correlated for row in long) / 200 < 0.1
    assert sum(batch_means(row, warm_up=0).is_correlated for row in short) / 200 > 0.4
    assert batch_means(short[0], 2).is_correlated is False  # two means say nothing about it


def test_of_independent_series_one_in_forty_is_said_to_be_correlated() -> None:
    rows = np.random.default_rng(3).standard_normal((8000, BATCHES))
    assert sum(interval(row).is_correlated for row in rows) / 8000 == pytest.approx(0.025, abs=0.005)
    spread = (18 / 399) ** 0.5  # of the correlation of 20 independent values, by von Neumann
    assert [Interval(0, 0, 0, 20, times * spread).is_correlated for times in (1.64, 1.65)] == [False, True]


@pytest.mark.long
def test_the_wait_in_a_queue_with_one_server_is_the_closed_form() -> None:
    """M/M/1, load 1/2, service 1 s on average: 1 s of waiting (Kleinrock, Queueing Systems I); it starts empty."""
    draw = np.random.default_rng(11)
    gaps, services = draw.exponential(2, (10_000, SERIES)), draw.exponential(1, (10_000, SERIES))
    waits = np.zeros_like(gaps)
    for job in range(1, len(waits)):  # Lindley
        waits[job] = np.maximum(waits[job - 1] + services[job - 1] - gaps[job], 0)
    assert covered(waits.T, 1.0, 0.05) == pytest.approx(0.95, abs=0.03)


@pytest.mark.long
def test_a_simulated_queue_is_within_its_interval() -> None:
    draw = np.random.default_rng(5)
    workload = workload_us(
        release=np.cumsum(draw.exponential(2 * SECOND, 20_000)).astype(np.int64),
        runtime=draw.exponential(SECOND, 20_000).astype(np.int64),
    )
    schedule = run(workload, [NodeSpec("n", slots=1)], "fcfs")
    found = batch_means(wait(schedule.release, schedule.start)).times(1 / SECOND)
    assert found.low < 1 < found.high
    assert found.half_width < 0.15


@pytest.mark.parametrize(
    ("values", "terms", "said"),
    [
        ([1.0] * 10, {"batches": 1}, "batches is 1; allowed: 2 to 9"),
        ([1.0] * 10, {}, f"batches is {BATCHES}; allowed: 2 to 9, .*\nGive fewer batches"),
        ([1.0] * 10, {"batches": 2, "warm_up": 1.0}, "warm_up is 1.0"),
        ([1.0] * 10, {"batches": 2, "warm_up": -0.1}, "warm_up is -0.1"),
        ([1.0] * 10, {"batches": 2, "warm_up": float("nan")}, "warm_up is nan"),
        ([1.0] * 10, {"batches": 2, "confidence": 1.0}, "confidence is 1.0"),
        ([1.0, float("nan"), 3.0], {"batches": 2}, "value of job 1 is nan"),
        ([[1.0, 2.0], [3.0, 4.0]], {"batches": 2}, r"of shape \(2, 2\)"),
        ([], {"batches": 2}, "jobs after the warm-up is 0; allowed: 2 or more"),
    ],
)
def test_bad_input_is_named(values: list[float], terms: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        batch_means(values, **terms)  # type: ignore[arg-type]
