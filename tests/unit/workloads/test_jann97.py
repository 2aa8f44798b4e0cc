"""Jann et al. 1997: ranges of widths whose gaps and run times have the moments to which they were fitted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.workload import Workload, workload_us
from headway.traces.files import reading
from headway.workloads import jann97
from headway.workloads.distributions import HyperErlang
from headway.workloads.jann97 import CTC, Range, fit

# From the log: low and high width, then mean and coefficient of variation of gaps and of run times.
TABLE = [
    (1, 1, 869.6, 2.788, 13475.1, 1.430),
    (2, 2, 3679.2, 3.155, 14180.9, 1.605),
    (3, 4, 2724.6, 2.845, 7378.6, 2.145),
    (5, 8, 3479.7, 2.437, 5166.7, 2.115),
    (9, 16, 2833.1, 2.305, 8519.6, 1.766),
    (17, 32, 6005.3, 2.324, 9225.7, 1.761),
    (33, 64, 8321.6, 1.773, 12556.3, 1.448),
    (65, 128, 32217.2, 1.270, 13319.8, 1.644),
    (129, 256, 64435.5, 2.514, 1279.1, 1.998),
    (257, 336, 136854.5, 2.225, 8745.5, 2.114),
]

Row = tuple[int, int, float, float, float, float]


@pytest.fixture(scope="module")
def jobs() -> Workload:
    return jann97(200_000, 3, estimates=None)


@pytest.mark.parametrize(("row", "part"), list(zip(TABLE, CTC, strict=True)))
def test_the_constants_have_the_moments_of_the_log(row: Row, part: Range) -> None:
    low, high, *figures = row
    assert low <= min(part.widths) <= max(part.widths) <= high
    found = []
    for one in (part.gap, part.runtime):
        found += [one.moment(1), math.sqrt(one.moment(2) / one.moment(1) ** 2 - 1)]
    assert found == pytest.approx(figures, rel=2e-3)


def near(values: np.ndarray, known: HyperErlang) -> bool:
    """Whether the first two moments of values are within five standard errors of a distribution's."""
    return all(
        abs((values**order).mean() - known.moment(order))
        < 5 * math.sqrt((known.moment(2 * order) - known.moment(order) ** 2) / len(values)) + order * 0.5
        for order in (1, 2)
    )


@pytest.mark.parametrize(("row", "part"), list(zip(TABLE, CTC, strict=True)))
def test_each_range_has_its_gaps_and_run_times(jobs: Workload, row: Row, part: Range) -> None:
    low, high, *_ = row
    these = (jobs.width >= low) & (jobs.width <= high)
    assert near(np.diff(jobs.release[these]) / SECOND, part.gap)
    assert near(jobs.runtime[these] / SECOND, part.runtime)


def test_widths_are_those_of_the_log(jobs: Workload) -> None:
    counts = {width: count for part in CTC for width, count in zip(part.widths, part.jobs, strict=True)}
    assert sum(counts.values()) == 17_826
    assert set(jobs.width.tolist()) <= set(counts)
    for width in (1, 2, 4, 8, 10, 16, 32, 64, 128):
        assert (jobs.width == width).mean() == pytest.approx(counts[width] / 17_826, rel=0.06)


def test_on_fewer_processors_wider_jobs_do_not_come_and_others_come_as_often() -> None:
    whole, narrow = jann97(50_000, 1, estimates=None), jann97(50_000, 1, 12, estimates=None)
    assert narrow.width.max() == 12

    def rate(jobs: Workload, low: int, high: int) -> float:
        """Jobs of these widths per second."""
        return ((jobs.width >= low) & (jobs.width <= high)).sum() / (jobs.release[-1] / SECOND)

    for low, high in ((1, 1), (3, 4), (9, 12)):
        assert rate(narrow, low, high) == pytest.approx(rate(whole, low, high), rel=0.1)


def test_no_range_left_is_refused() -> None:
    with pytest.raises(InvalidInput, match="processors is 1; allowed: as many as the narrowest job"):
        jann97(10, processors=1, ranges=CTC[1:])


def test_a_single_job_and_a_rare_range_come() -> None:
    assert len(jann97(1, estimates=None)) == 1
    assert len(jann97(3000, ranges=CTC[-1:], estimates=None)) == 3000


def test_a_fit_finds_the_model_again(jobs: Workload) -> None:
    found = fit(jobs)
    assert [len(part.widths) for part in found] == [len(part.widths) for part in CTC]
    for one, other in zip(found[:7], CTC, strict=False):
        assert one.gap.moment(1) == pytest.approx(other.gap.moment(1), rel=0.05)
        assert one.runtime.moment(1) == pytest.approx(other.runtime.moment(1), rel=0.05)


def test_a_fit_needs_moments() -> None:
    alike = workload_us(release=range(0, 1000, 10), runtime=[SECOND] * 100, width=4)
    with pytest.raises(InvalidInput, match="moments of the gaps of 100 jobs of 3 to 4 processors"):
        fit(alike)


def test_the_constants_are_the_fit_to_the_first_part_of_the_log(shared_data: Callable[[str], Path]) -> None:
    """The constants follow from the log: allocated sizes, submitted until 12 September 1996."""
    with reading(shared_data("swf/CTC-SP2-1996-3.1-cln.swf.gz"), "latin-1") as text:
        rows = np.loadtxt([line for line in text if not line.startswith(";")], usecols=(1, 3, 4))[:17_826].T
    submit, runtime, size = rows.astype(np.int64)
    found = fit(workload_us(release=submit * SECOND, runtime=runtime * SECOND, width=size))
    for one, other in zip(found, CTC, strict=True):
        assert (one.widths, one.jobs) == (other.widths, other.jobs)
        for which in ("gap", "runtime"):
            assert astuple(getattr(one, which)) == pytest.approx(astuple(getattr(other, which)), rel=1e-3)
