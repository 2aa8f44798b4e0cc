"""Services: how well the share of answers in time and the requests of the next window are foreseen (Chang16).

python bench/foresight.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from statistics import fmean

import numpy as np

import measure
from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeJoined, WindowEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import Service
from headway.model.window import Window
from headway.policies import registry
from headway.policies.arrivals import ArrivalForecast, last
from headway.policies.provision import Splits, Tariff, dp
from headway.policies.serving import Agreement, Traffic, fluid, queueing, shares
from headway.reproduce.chang16 import mixed
from headway.sim.requests import SimulatedRequests
from headway.testing import job, node

WINDOW = 20 * SECOND
PROCESSING = 20_000
WINDOWS = 50


def main() -> None:
    """Print the section of the report."""
    logs = mixed.open_logs()
    measure.section(
        "Services: what is foreseen",
        f"""First, the share of requests that are answered within three times the mean processing time in windows of 20
        s: simulated exactly ({WINDOWS} windows), and by both models. Processing takes {PROCESSING // 1000} ms on
        average; requests come at random one by one, or in bursts of five. Then how far forecasts of the next window's
        requests are off, relative to the mean number: that of the last window, and `ArrivalForecast`. Requests:
        {logs.name}, gaps multiplied by {mixed.GAPS}. Last, what a decision on ten services
        and 1,000 units takes (wanted: 50 ms): its parts, and a whole round after a window, with 300 batch jobs.""",
        measure.table(("requests", "units", "load of a unit", "exact", "`queueing`", "`fluid`"), in_time()),
        measure.table(("requests", "last window, error", "`ArrivalForecast`, error"), forecasts(logs)),
        measure.table(("for ten services, 1,000 units", "milliseconds"), costs()),
    )


def in_time() -> list[tuple[str, ...]]:
    """Shares by load."""
    rows = []
    for bursts in (1, 5):
        for units in (2, 10):
            for load in (0.5, 0.8, 0.9, 0.97, 1.05):
                chance = np.random.default_rng(units)
                rate = load * units * SECOND / PROCESSING
                many = int(rate * WINDOWS * WINDOW / SECOND / bursts)
                starts = np.cumsum(chance.exponential(bursts * SECOND / rate, many)).astype(np.int64)
                arrivals = np.repeat(starts, bursts)
                processing = chance.exponential(PROCESSING, len(arrivals)).astype(np.int64)
                queue = SimulatedRequests(arrivals, processing, 3 * PROCESSING, units=units)
                found: dict[str, list[float]] = {"exact": [], "queueing": [], "fluid": []}
                for number in range(1, WINDOWS):
                    queued = queue.queued()
                    window = queue.advance(number * WINDOW)
                    traffic = Traffic(rate, PROCESSING, queued, float(2 * bursts - 1), 1.0)
                    for name, model in (("queueing", queueing), ("fluid", fluid)):
                        found[name].append(model(traffic, 3 * PROCESSING, WINDOW, units))
                    found["exact"].append(window.share())
                words = "one by one" if bursts == 1 else f"in bursts of {bursts}"
                rows.append((words, str(units), f"{load:.2f}", *(f"{fmean(found[name]):.3f}" for name in found)))
    return rows


def forecasts(logs: mixed.Logs) -> list[tuple[str, ...]]:
    """Errors of forecasts."""
    drawn = mixed.services(logs, 0, None)
    rows = []
    for words, some in (("sampled log", drawn[: mixed.OF_EACH]), ("by hours", drawn[mixed.OF_EACH :])):
        errors: list[tuple[float, float]] = []
        for one in some:
            counts = np.bincount((one.arrivals * SECOND).astype(np.int64) // WINDOW).tolist()
            better, off = ArrivalForecast(), [0.0, 0.0]
            for place, count in enumerate(counts[1:], 1):
                better.add(counts[place - 1])
                off[0] += abs(count - last(counts[:place]))
                off[1] += abs(count - better.mean())
            errors.append((off[0] / sum(counts), off[1] / sum(counts)))
        rows.append((words, *(f"{fmean(column):.3f}" for column in zip(*errors, strict=True))))
    return rows


def costs() -> list[tuple[str, ...]]:
    """What a decision takes: its parts, and a whole round in which a window has ended."""
    chance = np.random.default_rng(1)
    traffic = [Traffic(float(rate), 40_000) for rate in chance.uniform(50, 2000, 10)]
    batch = [float("inf"), *(1e6 / units for units in range(1, 1001))]
    rows = []
    for name, model in (("fluid", fluid), ("queueing", queueing)):
        began = time.perf_counter()
        agreement = Agreement(80_000, 0.9, 10_000.0)
        tariffs = [
            Tariff(tuple(map(agreement.penalty, shares(one, agreement, WINDOW, 1000, model)))) for one in traffic
        ]
        rows.append((f"shares by `{name}`", f"{1e3 * (time.perf_counter() - began):.0f}"))
    began = time.perf_counter()
    dp(Splits(tariffs, 1000), batch, 1000)
    rows.append(("the split by `dp`", f"{1e3 * (time.perf_counter() - began):.0f}"))
    for top in ("dp", "ahead"):
        seconds = round_seconds(top, traffic)
        rows.append((f"whole round of `services:top={top}`, 300 batch jobs", f"{1e3 * seconds:.0f}"))
    return rows


def round_seconds(top: str, traffic: Sequence[Traffic]) -> float:
    """The median seconds of a decision after a window, on 1,000 slots."""
    chance, scheduler = Random(1), Scheduler(registry.find, f"services:top={top}")
    scheduler.handle(NodeJoined(0, node("n", slots=1000)))
    for number in range(1, 301):
        terms = {"due": chance.randint(50, 5_000), "rate": float(chance.randint(1, 40))}
        scheduler.handle(JobSubmitted(0, job(number, tasks=chance.randint(1, 90), estimate=60, **terms)))
    services = range(301, 301 + len(traffic))
    for number in services:
        terms = {"threshold": 80_000, "window": WINDOW, "rate": 10_000.0, "most": 1000}
        scheduler.handle(JobSubmitted(0, Service(number, **terms)))
    scheduler.handle(Woke(1))
    times = []
    for ended in range(1, 6):
        at = ended * WINDOW
        for number, one in zip(services, traffic, strict=True):
            requests = round(one.rate * WINDOW / SECOND * chance.uniform(0.8, 1.2))
            window = Window(at - WINDOW, WINDOW, requests, requests, 0, 1.0, 40_000.0, 1.0, 1.0)
            scheduler.handle(WindowEnded(at, number, window))
        began = time.perf_counter()
        scheduler.handle(Woke(at))
        times.append(time.perf_counter() - began)
    return measure.percentile(times, 0.5)


if __name__ == "__main__":
    main()
