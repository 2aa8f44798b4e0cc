"""The style of Feitelson 1996: widths, run times and repeated runs have the probabilities of the parameters."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.workload import Workload
from headway.workloads import feitelson96, statistics
from headway.workloads.feitelson96 import PUBLISHED_STYLE, Feitelson96

JOBS = 200_000
ONCE = Feitelson96(repeat_most=1)


@pytest.fixture(scope="module")
def jobs() -> Workload:
    """Jobs without repeated runs, so that all are independent."""
    return feitelson96(JOBS, 2, 128, model=ONCE, estimates=None)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 9, 10, 16, 64, 100, 128])
def test_widths_are_as_probable_as_their_weights(jobs: Workload, width: int) -> None:
    def weight(n: int) -> float:
        power = n > 1 and n & (n - 1) == 0
        return (ONCE.powers if power else n**-1.5) * (ONCE.small if n < 10 else 1)

    share = weight(width) / sum(map(weight, range(1, 129)))
    error = np.sqrt(share * (1 - share) / JOBS)
    assert (jobs.width == width).mean() == pytest.approx(share, abs=4 * error)


def test_without_tailoring_widths_are_harmonic() -> None:
    """With order 1.5 on 128 processors: 41.1 % serial, 22.4 % other powers of two."""
    order = {n: n**-1.5 for n in range(1, 129)}
    plain = Feitelson96(small=1.0, powers=0.0).widths(128)
    powers = [2**bits for bits in range(1, 8)]
    assert plain[[power - 1 for power in powers]].sum() == 0
    kept = 1 - sum(order[power] for power in powers) / sum(order.values())
    assert plain[0] * kept == pytest.approx(0.411, abs=5e-4)
    assert 1 - kept == pytest.approx(0.224, abs=5e-4)


def test_wide_jobs_tend_to_run_longer_and_run_times_vary_much(jobs: Workload) -> None:
    runtime = jobs.runtime / SECOND
    for low, high in ((1, 1), (2, 8), (64, 128)):
        these = (jobs.width >= low) & (jobs.width <= high)
        short = 0.95 - 0.20 * jobs.width[these].mean() / 128
        mean = short * ONCE.short + (1 - short) * ONCE.long
        assert runtime[these].mean() == pytest.approx(mean, rel=0.05)
    assert 0 < np.corrcoef(jobs.width, jobs.runtime)[0, 1] < 0.3
    assert statistics(jobs, 128)["runtime_cv"] > 1.5


def test_new_jobs_arrive_at_random_for_the_load(jobs: Workload) -> None:
    gaps = np.diff(jobs.release / SECOND)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.02)
    assert statistics(jobs, 128)["load"] == pytest.approx(ONCE.arrival_load, rel=0.02)
    model = Feitelson96(arrival_load=0.9)
    assert statistics(feitelson96(JOBS, 5, model=model, estimates=None), 320)["load"] == pytest.approx(0.9, rel=0.06)


def series(jobs: Workload) -> dict[tuple[int, int], list[int]]:
    """Submissions by width and run time. On many processors two jobs hardly ever share both."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for release, width, runtime in zip(
        (jobs.release // SECOND).tolist(), jobs.width.tolist(), (jobs.runtime // SECOND).tolist(), strict=True
    ):
        found[width, runtime].append(release)
    return found


ANY_WIDTH = {"powers": 1.0, "small": 1.0, "order": 0.0}
LONG_ONLY = Feitelson96(short=1e6, long=1e6, **ANY_WIDTH)


def test_a_run_is_submitted_when_the_one_before_would_have_ended() -> None:
    runs = series(feitelson96(4000, 1, 1000, model=LONG_ONLY, estimates=None))
    several = {job: releases for job, releases in runs.items() if len(releases) > 1}
    assert len(several) > 300
    for (_, runtime), releases in several.items():
        assert np.abs(np.diff(releases) - runtime).max() <= 2  # each of the times is rounded


def test_users_may_think_between_runs() -> None:
    often = Feitelson96(short=1.0, long=1.0, think=5000.0, arrival_load=1e-7, **ANY_WIDTH)
    model = replace(often, repeat_most=2, repeat_order=0.0)
    jobs = feitelson96(4000, 1, 1000, model=model, estimates=None)
    # New jobs come so rarely that a gap is either between two jobs, or between two runs of one.
    pauses = np.diff(jobs.release / SECOND)[jobs.width[1:] == jobs.width[:-1]]
    pauses = pauses[pauses < 1e5]
    assert pauses.mean() == pytest.approx(5000, rel=0.1)


@pytest.mark.long
def test_how_often_a_job_is_run_falls_with_a_power() -> None:
    model = Feitelson96(**ANY_WIDTH)
    runs = [len(releases) for releases in series(feitelson96(JOBS, 3, 5000, model=model, estimates=None)).values()]
    counts = np.bincount(runs)
    # Single runs may share width and run time with another job by chance, so counts of several are compared.
    share = model.repeats()
    assert counts[3] / counts[2] == pytest.approx(share[2] / share[1], rel=0.05)
    assert max(runs) <= 70
    assert share.sum() == pytest.approx(1)
    assert share[1] / share[0] == pytest.approx(2**-2.5)


def test_widths_never_exceed_the_machine() -> None:
    for processors in (1, 2, 3, 10, 320):
        jobs = feitelson96(20_000, 1, processors, estimates=None)
        assert jobs.width.max() == processors or processors > 10
        assert jobs.width.max() <= processors
        assert jobs.width.min() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"short": 0.0}, "short is 0.0; allowed: a number above 0 to 1e\\+09"),
        ({"long": 10.0}, "long is 10.0; allowed: a number from 1642.4"),
        ({"short_share": 1.5}, "short_share is 1.5; allowed: a number from 0 to 1"),
        ({"short_fall": 0.99}, "short_fall is 0.99"),
        ({"repeat_most": 0}, "repeat_most is 0; allowed: a whole number, from 1 to 10000"),
        ({"powers": -1.0}, "powers is -1.0"),
        ({"think": float("nan")}, "think is nan"),
        ({"arrival_load": 0.0}, "arrival_load is 0.0; allowed: a number above 0"),
        ({"small_below": 2.5}, "small_below is 2.5"),
    ],
)
def test_parameters_out_of_range_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Feitelson96(**change)  # type: ignore[arg-type]


def test_widths_without_weight_and_gaps_without_end_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"small is 0.0; allowed: above 0 where widths up to 8 are all narrow"):
        feitelson96(10, processors=8, model=Feitelson96(small=0.0))
    with pytest.raises(InvalidInput, match=r"last release is .*; allowed: at most"):
        feitelson96(1000, model=Feitelson96(arrival_load=1e-200))


def test_the_defaults_are_probabilities() -> None:
    for processors in (1, 128, 320):
        short = PUBLISHED_STYLE.short_probability(processors)
        assert PUBLISHED_STYLE.widths(processors).sum() == pytest.approx(1)
        assert ((short >= 0) & (short <= 1)).all()
