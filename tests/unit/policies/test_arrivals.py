"""Forecasts of arrivals: what they learn, and that they do better than the last number on real logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.model.instant import SECOND
from headway.policies.arrivals import ArrivalForecast, last
from headway.traces.http import read_hourly, read_http_log
from headway.workloads.hours import superposed

WINDOW = 2000 * SECOND  # 20 s after gaps x 0.01
DAY = 43.2


def errors(counts: list[int], skipped: int = 60) -> tuple[float, float, float]:
    """Mean error of the forecast and of the last number, in parts of the mean number; share below the 0.9 quantile."""
    forecast, own, naive, below = ArrivalForecast(DAY), 0.0, 0.0, 0
    for place, count in enumerate(counts):
        if place >= skipped:
            own += abs(forecast.mean() - count)
            naive += abs(last(counts[:place]) - count)
            below += count <= forecast.at_most(0.9)
        forecast.add(count)
    total = sum(counts[skipped:])
    return own / total, naive / total, below / (len(counts) - skipped)


def test_what_never_changes_is_forecast() -> None:
    forecast = ArrivalForecast(3, 3)
    assert (forecast.mean(), forecast.at_most(0.9), last([])) == (0, 0, 0)
    for _ in range(9):
        forecast.add(7)
    assert (forecast.mean(), forecast.at_most(0.9), last([4, 7])) == (7, 7, 7)


def test_a_forecast_by_hand() -> None:
    forecast = ArrivalForecast(2, 2)
    for count in (10, 20, 10):
        forecast.add(count)
    # Smoothed: 10, 15, 12.5; the second part of the period has 20.
    assert forecast.mean() == pytest.approx(0.7 * 12.5 + 0.3 * 20)
    forecast.add(40)
    assert forecast.mean() == pytest.approx(0.7 * 26.25 + 0.3 * 10)
    assert ArrivalForecast().mean() == 0


def test_a_quantile_is_above_so_many() -> None:
    chance = np.random.default_rng(1)
    own, naive, below = errors(chance.poisson(100, 2000).tolist())
    assert below == pytest.approx(0.9, abs=0.02)
    assert own < naive


def test_bounded_memory() -> None:
    forecast = ArrivalForecast(1000, 24)
    for count in range(5000):
        forecast.add(count)
    assert len(forecast._errors) == 200
    assert len(forecast._usual) == 24


@pytest.mark.parametrize(
    ("log", "own", "naive"), [("1994-12", 0.67, 0.73), ("1995-06", 0.57, 0.68), ("1995-07", 0.53, 0.64)]
)
def test_calgary(shared_data: Callable[[str], Path], log: str, own: float, naive: float) -> None:
    """Errors of the forecast and of the last window, relative to the mean, and how often no more came than is said."""
    requests = read_http_log(shared_data(f"http/calgary-{log}.log.gz"), broken_max=1)
    found = errors(np.bincount(requests.instants // WINDOW).tolist())
    assert found == pytest.approx((own, naive, 0.9), abs=0.02)


def test_saskatchewan(shared_data: Callable[[str], Path]) -> None:
    requests = read_http_log(shared_data("http/calgary-1995-01.log.gz"))
    hourly = read_hourly(shared_data("http/hourly-saskatchewan.csv"))[2568:]
    instants, _ = superposed(hourly, requests.instants, requests.sizes, 2)
    assert errors(np.bincount(instants // WINDOW).tolist()) == pytest.approx((0.22, 0.25, 0.9), abs=0.02)
