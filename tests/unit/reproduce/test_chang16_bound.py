"""No schedule costs less than the bound, and in simple cases the bound is near."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from headway import NodeSpec, ServiceLoad, simulate, workload_of
from headway.metrics import summarise
from headway.model.workload import Workload
from headway.reproduce.chang16.bound import Answered, lower_bound


def jobs_of(seed: int, number: int = 12) -> Workload:
    chance = Random(seed)
    runtime = [chance.randint(1, 40) for _ in range(number)]
    return workload_of(
        release=sorted(chance.randint(0, 60) for _ in range(number)),
        tasks=[chance.randint(1, 9) for _ in range(number)],
        runtime=runtime,
        estimate=runtime,
        due=[chance.randint(1, 100) for _ in range(number)],
        rate=[chance.randint(1, 50) for _ in range(number)],
    )


def requests_of(seed: int) -> Answered:
    chance = np.random.default_rng(seed)
    arrivals = np.sort(np.round(chance.uniform(0, 118, 150), 3))
    return Answered(arrivals, np.round(chance.uniform(0.1, 1.5, 150), 3), 2.0, 0.9, 500.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("top", ["dp", "sf", "ahead", "ahead,kill=true", "dp,batch=wspt,model=fluid"])
def test_nobody_is_below_it(seed: int, top: str) -> None:
    jobs, served = jobs_of(seed), [requests_of(seed + 10), requests_of(seed + 20)]
    loads = [
        ServiceLoad(
            f"s{place}", *(one.arrivals, one.processing, one.threshold), fraction=one.fraction, rate=one.rate, least=1
        )
        for place, one in enumerate(served)
    ]
    found = summarise(simulate(jobs, [NodeSpec("n", 6)], f"services:top={top}", services=loads))
    total = float(found["total_penalty"]) + float(found["services_penalty"])
    assert 0 < lower_bound(jobs, served, 6, 6, "any", known=total, trials=60) <= total


def test_one_late_job_costs_nearly_what_the_bound_says() -> None:
    """100 s of work on one unit, due at 0: 100. Work counts from the start of its step on, 2.5 s too early."""
    jobs = workload_of(release=[0], tasks=[1], runtime=[100], estimate=[100], due=[0], rate=[1.0])
    assert lower_bound(jobs, [], 1, 0, "any", known=100.0) == pytest.approx(97.5, abs=0.5)


def test_a_service_alone_costs_exactly_what_it_does_with_units_that_do_not_change() -> None:
    """Five requests at once, each of 1 s, in time within 2 s. One unit is kept anyway: two of five are in time."""
    jobs = workload_of(release=[0], tasks=[1], runtime=[0.001], estimate=[0.001], due=[900], rate=[1.0])
    burst = Answered(np.full(5, 3.0), np.ones(5), 2.0, 0.9, 100.0)
    one, two, three = (
        [lower_bound(jobs, [burst], units, 1, border, known=60.0) for border in ("windows", "any")]
        for units in (1, 2, 3)
    )
    assert one[0] == pytest.approx(50, abs=1)
    assert two[0] == pytest.approx(10, abs=1)
    assert one[1] <= one[0] + 1e-9
    assert three == pytest.approx([0, 0], abs=1e-6)
