"""Chang16's third experiment: services drawn from logs, and what its runs say."""

from __future__ import annotations

import numpy as np
import pytest

from headway import NodeSpec, ServiceLoad, simulate, workload_of
from headway.reproduce.chang16 import mixed
from headway.reproduce.chang16.mixed import BOUNDS, GAPS, HOURS, KINDS, LOADS, PUBLISHED, ROTATION, TOPS, UNITS

LOGS = mixed.made_up()


def test_services_are_an_hour_of_requests_in_order_the_same_for_the_same_seed() -> None:
    found, again, other = (mixed.services(LOGS, seed, None) for seed in (3, 3, 4))
    assert len(found) == 10
    for one, same in zip(found, again, strict=True):
        assert np.array_equal(one.arrivals, same.arrivals)
        assert np.array_equal(one.processing, same.processing)
        assert one.arrivals[0] >= 0
        assert one.arrivals[-1] < HOURS * 3600 * GAPS
        assert (np.diff(one.arrivals) >= 0).all()
        assert (one.processing >= ROTATION).all(), "a disk turns before it reads"
    assert [len(one.arrivals) for one in found] != [len(one.arrivals) for one in other]


def test_services_can_need_a_share_of_the_units() -> None:
    as_logged, loaded = (mixed.services(LOGS, 1, load) for load in (None, 0.6))
    needed = sum(one.processing.sum() for one in loaded) / (HOURS * 3600 * GAPS)
    assert needed == pytest.approx(0.6 * UNITS)
    factors = {round(float(b.processing[0] / a.processing[0]), 9) for a, b in zip(as_logged, loaded, strict=True)}
    assert len(factors) == 1, "all take longer by the same factor"


def test_every_number_of_the_paper_stands_beside_ours() -> None:
    """dp costs 60 + 40; sf 30 + 80, pp 90 + 60."""
    costs = {"dp": (60.0, 40.0), "dp, with chance": (50.0, 40.0), "sf": (30.0, 80.0), "pp": (90.0, 60.0)}
    costs |= {"dp, atc": (60.0, 20.0), "ahead, greedy": (50.0, 40.0), "ahead": (50.0, 20.0)}
    rows = [(seed, load, top, *costs[top]) for load in LOADS for seed in range(3) for top in TOPS]
    rows += [(seed, load, bound, None, 40.0) for load in LOADS for seed in range(3) for bound in BOUNDS]
    found = mixed.result(mixed.runs_of(rows, {}), rows, "made up")
    ours = dict(zip(PUBLISHED, found.statements, strict=True))
    assert ours["total", "sf"].ours == pytest.approx(1 - 100 / 110)
    assert ours["total", "pp"].ours == pytest.approx(1 - 100 / 150)
    assert ours["batch", "sf"].ours == pytest.approx(0.5)
    assert ours["batch", "pp"].ours == pytest.approx(1 / 3)
    assert ours["services", "sf"].ours == pytest.approx(-1)
    assert ours["services", "pp"].ours == pytest.approx(1 / 3)
    assert ours["batch", "sf"].verdict == "holds"
    assert ours["services", "sf"].verdict == "holds in part"
    first, *others = found.tables[: len(LOADS)]
    assert [row[0] for row in first.rows] == [*TOPS, *BOUNDS, "dp is on average"]
    assert {row[1:] for row in first.rows if row[0] in BOUNDS} == {("0.40 (0.40 to 0.40)", "", "")}
    assert {table.rows[-1][1:] for table in (first, *others)} == {("100", "60", "40")}
    assert len(first.columns) == 1 + len(KINDS)
    compared, *above = found.tables[len(LOADS) :]
    assert [row[:2] for row in compared.rows][2:] == [
        ("dp, atc", "0.80 (0.80 to 0.80)"),
        ("ahead", "0.70 (0.70 to 0.70)"),
        ("ahead, to dp, atc", "0.88 (0.88 to 0.88)"),
    ]
    for table in above:
        assert table.rows[0] == ("dp", *["2.50 (2.50 to 2.50)"] * len(LOADS)), "100 over 40"
    assert len(above) == len(BOUNDS)


def test_services_have_all_units_once_no_batch_job_is_left() -> None:
    """Two units: under sf the job has one of them for 100 s, then the services have both."""
    jobs = workload_of(release=[0], tasks=[5], runtime=[20], estimate=[20], due=[50])
    load = ServiceLoad("s", np.arange(0.0, 200.0, 0.5), 0.1, threshold=0.2, fraction=0.9, rate=10.0, least=1)
    begins, units = mixed.units_of(simulate(jobs, [NodeSpec("n", 2)], TOPS["sf"], services=[load]))
    assert begins.tolist() == [20.0 * window for window in range(10)]
    assert units.tolist() == [1.0] * 5 + [2.0] * 5


def test_what_is_made_up_has_bursts_and_days() -> None:
    """Requests come four at a time, and more of them by day."""
    per_hour = LOGS.log.per_hour()
    by_hour = np.array([per_hour[hour::24].mean() for hour in range(24)])
    assert by_hour.max() > 3 * by_hour.min()
    assert len(LOGS.hourly) > HOURS
