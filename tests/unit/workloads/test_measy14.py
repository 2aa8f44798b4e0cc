"""FWload and JWload: the aggregates that MEASY14 3.1 prints, in closed form and drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from headway.model.instant import SECOND
from headway.model.workload import Workload
from headway.traces.transforms import offered_load, with_load
from headway.workloads import fwload, jwload, statistics
from headway.workloads.distributions import HyperErlang, gamma_cdf
from headway.workloads.feitelson96 import PUBLISHED_STYLE
from headway.workloads.jann97 import CTC, Range
from headway.workloads.measy14 import JW_RANGES, LARGEST_ESTIMATE, PROCESSORS

pytestmark = pytest.mark.long


def test_the_constants_of_fwload_give_its_aggregates() -> None:
    """Mean width 23.4, fewer than 18 % one-process jobs, mean run time 2606.6 s when cut at 18 h."""
    share = PUBLISHED_STYLE.widths(PROCESSORS)
    assert share @ np.arange(1, PROCESSORS + 1) == pytest.approx(23.4, abs=0.01)
    assert share[0] == pytest.approx(0.175, abs=1e-4)
    short = float(share @ PUBLISHED_STYLE.short_probability(PROCESSORS))

    def cut(mean: float) -> float:
        return mean * (1 - math.exp(-LARGEST_ESTIMATE / mean))

    runtime = short * cut(PUBLISHED_STYLE.short) + (1 - short) * cut(PUBLISHED_STYLE.long)
    assert runtime == pytest.approx(2606.6, abs=0.5)


def test_the_constants_of_jwload_give_its_aggregates() -> None:
    """Mean width 10.5, 40.8 % one-process jobs, mean run time 11267 s when cut at 18 h."""
    rate = np.array([1 / part.gap.moment(1) for part in JW_RANGES])
    share = rate / rate.sum()
    assert share[0] == pytest.approx(0.408, abs=1e-4)
    assert share @ [part.width_mean() for part in JW_RANGES] == pytest.approx(10.5, abs=0.005)

    def cut(runtime: HyperErlang) -> float:
        mean = 0.0
        for part, rate in (
            (runtime.first_share, runtime.first_rate),
            (1 - runtime.first_share, runtime.second_rate),
        ):
            below = runtime.stages / rate * gamma_cdf(runtime.stages + 1, rate * LARGEST_ESTIMATE)
            mean += part * (below + LARGEST_ESTIMATE * (1 - gamma_cdf(runtime.stages, rate * LARGEST_ESTIMATE)))
        return mean

    assert share @ [cut(part.runtime) for part in JW_RANGES] == pytest.approx(11267, abs=1)


def test_jwload_is_hardly_moved_from_the_log() -> None:
    """Run times change by 7 %, and the share of each range by at most a tenth."""

    def shares(ranges: Sequence[Range]) -> np.ndarray:
        rate = np.array([1 / part.gap.moment(1) for part in ranges])
        return rate / rate.sum()

    fitting = [part for one in CTC if (part := one.up_to(PROCESSORS))]
    np.testing.assert_allclose(shares(JW_RANGES), shares(fitting), rtol=0.1)
    for moved, log in zip(JW_RANGES, fitting, strict=True):
        assert moved.runtime.moment(1) / log.runtime.moment(1) == pytest.approx(1.06684)
        assert (moved.widths, moved.jobs) == (log.widths, log.jobs)
        assert moved.widths[-1] <= PROCESSORS


def sample_error(jobs: Workload, values: np.ndarray) -> float:
    """The standard error of a mean over jobs that come in series, from means of batches."""
    batches = [batch.mean() for batch in np.array_split(values, 100)]
    return float(np.std(batches, ddof=1) / 10)


@pytest.mark.parametrize(
    ("load", "jobs", "width", "runtime", "serial"),
    [(fwload, 200_000, 23.4, 2606.6, 0.175), (jwload, 100_000, 10.5, 11267.0, 0.408)],
)
def test_at_full_size_the_aggregates_are_the_papers(
    load: type[Workload], jobs: int, width: float, runtime: float, serial: float
) -> None:
    made = load()
    told = statistics(made, PROCESSORS)
    assert told["jobs"] == jobs
    assert told["width_mean"] == pytest.approx(width, abs=4 * sample_error(made, made.width))
    assert told["width_mean"] == pytest.approx(width, rel=0.03)
    assert told["runtime_mean"] == pytest.approx(runtime, abs=4 * sample_error(made, made.runtime / SECOND))
    assert told["runtime_mean"] == pytest.approx(runtime, rel=0.03)
    assert told["serial_share"] == pytest.approx(serial, abs=4 * sample_error(made, made.width == 1))
    assert told["width_max"] <= PROCESSORS
    assert (made.estimate >= made.runtime).all()
    assert made.estimate.max() == LARGEST_ESTIMATE * SECOND
    assert ((made.cpu >= 0.4) & (made.cpu <= 1)).all()
    for wanted in (0.45, 0.9):
        assert offered_load(with_load(made, wanted, PROCESSORS), PROCESSORS) == pytest.approx(wanted, rel=1e-6)


def test_fwload_has_fewer_than_18_per_cent_one_process_jobs_whatever_the_seed() -> None:
    assert all((fwload(seed, estimates=None).width == 1).mean() < 0.18 for seed in range(5))


def test_what_the_paper_has_can_be_said_otherwise() -> None:
    made = fwload(3, 500, cpu=1.0, estimates="exact")
    assert (made.cpu == 1).all()
    assert made.estimate.tolist() == made.runtime.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("load", [fwload, jwload])
def test_every_seed_can_be_dealt_estimates(load: type[Workload]) -> None:
    for seed in range(40):
        made = load(seed)
        assert (made.estimate >= made.runtime).all(), seed
