"""MEASY14 section 3: what its figures say of the policies, on few jobs of its models, and of a log if present."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.reproduce.measy14.figures import Runs, per_job
from headway.reproduce.measy14.runs import JOBS, LOGS, POLICIES, Measure, Run, Setting, Use, perform
from headway.workloads.measy14 import fwload, jwload

pytestmark = pytest.mark.slow

SHARE, MORE = 0.03, 0.1
"""Of the paper's jobs: 6,000 and 3,000, enough to see directions, too few for the sizes of effects."""

BUSY, QUIET = 0.9, 0.5

one_model = pytest.mark.parametrize("model", ["JWload", "FWload"])
"""The other model needs more time, and says the same; what is said of both has it too."""


class Asked(dict[Setting, Run]):
    """Runs that are performed when a test asks for them."""

    def __init__(self, share: float) -> None:
        self.share = share

    def __missing__(self, setting: Setting) -> Run:
        self.update(perform([setting], share=self.share, processes=1))
        return self[setting]


@pytest.fixture(scope="module", params=[SHARE, MORE])
def share(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture(scope="module")
def found(share: float) -> Runs:
    return Asked(share)


def gain(found: Runs, better: Setting, worse: Setting, measure: Measure) -> float:
    return found[better].gain(found[worse], measure).mean


@one_model
def test_measy_is_better_than_easy_and_keasy_when_load_is_high(found: Runs, model: str) -> None:
    """3.4 (2), figures 6 and 7: up to 41.1 % less response time and 82.9 % less slowdown than EASY."""
    easy, keasy, _, measy = (Setting(model, BUSY, policy) for policy in POLICIES)
    for measure, least in (("response", 0.25), ("slowdown", 0.3)):
        assert gain(found, measy, easy, measure) > least
        assert gain(found, measy, keasy, measure) > 0.05
        assert gain(found, keasy, easy, measure) > 0.15


@one_model
def test_the_background_tier_helps_at_low_load_as_well(found: Runs, model: str) -> None:
    """Figures 6 and 7: less at low load than at high."""
    for policy in ("keasy", "measy"):
        quiet, busy = (
            gain(found, Setting(model, load, policy), Setting(model, load, "easy"), "response")
            for load in (QUIET, BUSY)
        )
        assert 0 < quiet < busy


@one_model
def test_each_policy_moves_jobs_its_own_way(found: Runs, model: str) -> None:
    """2.2 and 2.3: KEASY kills, MEASY migrates, REASY does neither, EASY has no background."""
    for load in (BUSY, QUIET):
        easy, keasy, reasy, measy = (found[Setting(model, load, policy)] for policy in POLICIES)
        assert [(run.kills, run.migrations) for run in (easy, reasy)] == [(0, 0)] * 2
        assert (keasy.migrations, measy.kills) == (0, 0)
        assert keasy.kills > 0 < measy.migrations


def test_jwload_migrates_less_at_low_load_and_more_at_high(found: Runs) -> None:
    """3.4 (3), figure 8."""
    quiet, busy = (
        [per_job(found[Setting(model, load, "measy")]) for model in ("FWload", "JWload")] for load in (QUIET, BUSY)
    )
    assert quiet[0] > quiet[1]
    assert busy[0] < busy[1]
    assert max(quiet) < min(busy)


@one_model
@pytest.mark.parametrize("use", ["untold", "full"])
def test_gains_stay_without_knowledge_of_cpu_use_and_without_idle_cycles(found: Runs, model: str, use: Use) -> None:
    """3.5.1 and 3.5.2, figures 9 to 12: smaller gains, but gains."""
    easy = Setting(model, BUSY, "easy")
    keasy, measy = (Setting(model, BUSY, policy, use) for policy in ("keasy", "measy"))
    assert 0 < gain(found, keasy, easy, "response") < gain(found, measy, easy, "response")
    assert gain(found, measy, Setting(model, BUSY, "measy"), "response") < 0


@one_model
def test_a_dear_migration_is_worse_than_a_cheap_one(found: Runs, model: str) -> None:
    """3.5.3, figures 13 and 14."""
    assert gain(found, Setting(model, BUSY, "measy", cost=1500.0), Setting(model, BUSY, "measy"), "response") < 0


@one_model
def test_every_policy_sees_the_same_jobs_at_the_load_that_is_asked_for(found: Runs, model: str, share: float) -> None:
    jobs = round(share * JOBS[model])
    assert {found[Setting(model, load, policy)].jobs for load in (BUSY, QUIET) for policy in POLICIES} == {jobs}
    assert found[Setting(model, QUIET, "easy")].utilisation == pytest.approx(QUIET, abs=0.03)


def test_runs_are_the_same_again(found: Runs, share: float) -> None:
    def timeless(run: Run) -> tuple[object, ...]:
        return run.response, run.slowdown, run.migrations, run.kills, run.utilisation, run.lost

    setting = Setting("JWload", BUSY, "measy")
    assert timeless(perform([setting], share=share, processes=1)[setting]) == timeless(found[setting])
    other = perform([setting], share=share, processes=1, seed=1)[setting]
    assert timeless(other) != timeless(found[setting])


def test_the_models_have_what_the_paper_prints() -> None:
    """3.1: mean width, mean run time and share of one-process jobs, at a tenth of the size."""
    for jobs, width, seconds, serial in (
        (fwload(0, 20_000), 23.4, 2606.6, None),
        (jwload(0, 10_000), 10.5, 11267.0, 0.408),
    ):
        assert jobs.width.mean() == pytest.approx(width, rel=0.1)
        assert jobs.runtime.mean() / 1e6 == pytest.approx(seconds, rel=0.1)
        assert ((jobs.width == 1).mean() < 0.18) if serial is None else (abs((jobs.width == 1).mean() - serial) < 0.02)
        assert (jobs.cpu[jobs.width == 1] == 1).all()
        assert jobs.cpu[jobs.width > 1].min() >= 0.4
        assert np.isfinite(jobs.cpu).all()
        assert (jobs.estimate >= jobs.runtime).all()


def test_on_a_log(shared_data: Callable[[str], Path]) -> None:
    """Not in the paper: the first jobs of SDSC-SP2, with its users' estimates and the logged CPU use."""
    folder = shared_data(f"swf/{LOGS['SDSC-SP2'][0]}").parent.parent
    asked = [Setting("SDSC-SP2", None, policy) for policy in POLICIES]
    ran = perform(asked, share=0.05, folder=folder, processes=1)
    easy, _, _, measy = asked
    assert ran[easy].jobs > 2500
    assert gain(ran, measy, easy, "response") > 0.05
    assert gain(ran, measy, easy, "slowdown") > 0.4
