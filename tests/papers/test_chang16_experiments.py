"""Chang16 VI.B: what its first two experiments say, on its log, with fewer samples and looks than the command has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.metrics import summarise
from headway.reproduce.chang16 import mixed
from headway.reproduce.chang16.bound import Answered, lower_bound
from headway.reproduce.chang16.estimates import course
from headway.reproduce.chang16.samples import JOBS, Log, Rates, cluster, draw, open_log
from headway.reproduce.samples import LOG
from headway.sim.experiment import ServiceLoad, run

pytestmark = pytest.mark.slow

BUSY = 1
"""The seed of a sample in which most jobs are late under every order; in a quiet one orders differ little."""


@pytest.fixture(scope="module")
def log(shared_data: Callable[[str], Path]) -> Log:
    return open_log(shared_data(str(LOG)).parents[1])


@pytest.mark.parametrize(
    ("rates", "other", "published"),
    [("equal", "edf", 0.6667), ("random", "hprf", 0.5)],
)
def test_greedy_is_better_by_about_what_is_published(log: Log, rates: Rates, other: str, published: float) -> None:
    """2), figures 6 and 7."""
    jobs = draw(log, BUSY, rates, "start")
    ours, others = (summarise(run(jobs, cluster(), policy))["total_penalty"] for policy in ("greedy", other))
    assert 1 - ours / others == pytest.approx(published, abs=0.12)


def test_with_a_start_that_takes_longer_than_told_estimates_are_as_published(log: Log) -> None:
    """1), figure 5: 0.73 at the start, 0.95 at 20 % of a run of about 1,500 s."""
    ran = course(draw(log, 0, "random", "start"), 1.7, (0.0, 0.2))
    begin, later = ran.looks
    assert len(begin.penalties) == JOBS > 2 * len(later.penalties)
    assert ran.ratio(begin) == pytest.approx(0.73, abs=0.05)
    assert ran.ratio(later) == pytest.approx(0.95, abs=0.05)
    assert ran.lasts == pytest.approx(1500, rel=0.3)


def test_with_coming_windows_in_view_less_is_paid_where_services_need_much(
    log: Log, shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """3), with services that need 60 % of the units: `ahead` pays less than `dp` in the same order of batch jobs, and
    nobody less than the bound.
    """
    monkeypatch.setenv("HEADWAY_DATA", str(shared_data(f"http/{mixed.SASKATCHEWAN}").parents[1]))
    jobs, services = draw(log, 0, "random", "logged"), mixed.services(mixed.open_logs(), 0, 0.6)
    thresholds = [2 * float(one.processing.mean()) for one in services]
    loads = [
        ServiceLoad(f"service {place}", *one, threshold, fraction=0.9, rate=10_000.0, least=1)
        for place, (one, threshold) in enumerate(zip(services, thresholds, strict=True))
    ]
    paid = []
    for policy in ("services:top=dp,model=fluid,batch=atc", "services:top=ahead"):
        found = summarise(run(jobs, cluster(), policy, services=loads))
        paid.append(float(found["services_penalty"]) + float(found["total_penalty"]))
    assert 0.85 < paid[1] / paid[0] < 0.95
    answered = [Answered(*one, threshold, 0.9, 10_000.0) for one, threshold in zip(services, thresholds, strict=True)]
    bound = lower_bound(jobs, answered, mixed.UNITS, 180, "any", known=paid[1], trials=100)
    assert 0.3 < bound / paid[1] < 1
