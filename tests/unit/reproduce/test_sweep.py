"""Samples, clusters and sweeps: the same jobs for all policies, the same rows with any number of processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.job import Kind
from headway.model.workload import Workload
from headway.reproduce.samples import LOG, WORKERS, Log, cluster, draw, open_log
from headway.reproduce.standin import JOBS, standin
from headway.reproduce.sweep import column, spread, sweep
from headway.traces import write_workload
from headway.traces.transforms import first, lin14, offered_load

pytestmark = pytest.mark.long

LOG_ABSENT = Log(standin(), "made up", is_standin=True)


def short(log: Log, seed: int, *, estimates: str = "known") -> Workload:
    """A fifth of a sample: 64 jobs."""
    assert estimates == "known"
    return lin14(log.workload, seed=seed, share=0.002)


@pytest.fixture
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.reproduce.sweep.draw", short)


def test_the_standin_has_the_main_statistics_of_the_log() -> None:
    log = standin(seed=4)
    assert len(log) == JOBS
    assert (log.kind == Kind.RIGID).all()
    seconds = log.runtime / 1e6
    assert np.median(seconds) < 300 < 5_000 < seconds.mean()  # long-tailed: half of the jobs take minutes at most
    assert seconds.max() > 150_000
    assert ((log.width & (log.width - 1)) == 0).mean() > 0.9
    users, jobs = np.unique(log.user, return_counts=True)
    assert len(users) == 60
    assert 0.3 < np.sort(jobs)[-2:].sum() / JOBS < 0.5
    hours = np.bincount((log.release / 3.6e9 % 24).astype(int), minlength=24)
    assert hours.max() > 1.8 * hours.min()
    assert "made up" in log.notes[0].lower()
    again, other = standin(seed=4), standin(seed=5)
    assert (again.runtime == log.runtime).all()
    assert (other.runtime != log.runtime).mean() > 0.9


def test_the_log_is_found_or_its_absence_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    assert open_log().is_standin
    assert "made-up" in open_log().name
    (tmp_path / LOG).parent.mkdir()
    write_workload(first(standin(), 200), tmp_path / LOG)
    found = open_log()
    assert (found.is_standin, found.name, len(found.workload)) == (False, LOG.name, 200)
    monkeypatch.delenv("HEADWAY_DATA")
    assert open_log().is_standin
    with pytest.raises(HeadwayError, match="cannot read"):
        open_log(tmp_path / "nowhere.swf")


def test_a_sample_is_the_recipe_and_run_times_may_be_left_unsaid() -> None:
    known, learnt = draw(LOG_ABSENT, 3), draw(LOG_ABSENT, 3, estimates="learnt")
    assert len(known) == JOBS // 100
    assert (known.estimate == known.runtime).all()
    assert (learnt.estimate == -1).all()
    assert (learnt.runtime == known.runtime).all()


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_clusters_have_twenty_workers_of_mean_speed_one(seed: int | None) -> None:
    nodes = cluster(seed)
    assert sum(node.slots for node in nodes) == WORKERS
    assert sum(node.slots * node.speed for node in nodes) == WORKERS
    assert (len({node.speed for node in nodes}) == 1) == (seed is None)
    assert cluster(seed) == nodes


@pytest.mark.usefixtures("short_samples")
def test_a_sweep_gives_a_row_a_run_on_the_very_same_jobs() -> None:
    told: list[tuple[int, int]] = []
    rows = sweep(
        LOG_ABSENT,
        ["edf", "priority"],
        [None, 0.7],
        [2, 8],
        heterogeneous=[False, True],
        processes=1,
        progress=lambda ended, of: told.append((ended, of)),
    )
    assert [(row.heterogeneous, row.load, row.seed, row.policy) for row in rows] == [
        (differ, load, seed, policy)
        for differ in (False, True)
        for load in (None, 0.7)
        for seed in (2, 8)
        for policy in ("edf", "priority")
    ]
    assert told == [(2 * done, 16) for done in range(1, 9)]
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        assert one.metrics["jobs"] == other.metrics["jobs"] == JOBS // 500
        assert one.metrics["jobs_succeeded"] == one.metrics["jobs"]
    spans = {row.load: row.metrics["makespan"] for row in rows if row.seed == 2 and not row.heterogeneous}
    jobs = short(LOG_ABSENT, 2)
    assert (offered_load(jobs, WORKERS) < 0.7) == (spans[0.7] < spans[None])


def test_processes_change_nothing() -> None:
    terms = ([None], 3)
    alone = sweep(LOG_ABSENT, ["edf"], *terms, heterogeneous=[True], processes=1)
    together = sweep(LOG_ABSENT, ["edf"], *terms, heterogeneous=[True], processes=2)
    for one, other in zip(alone, together, strict=True):
        timeless = {name for name in one.metrics if not name.startswith("decision_")}
        assert {name: one.metrics[name] for name in timeless} == {name: other.metrics[name] for name in timeless}


def test_a_policy_or_load_that_is_none_is_said_before_anything_runs() -> None:
    with pytest.raises(InvalidInput, match="policy is 'eddf'"):
        sweep(LOG_ABSENT, ["eddf"], [None], 1, processes=1)
    with pytest.raises(InvalidInput, match="load is 0"):
        sweep(LOG_ABSENT, ["edf"], [0], 1, processes=1)


@pytest.mark.usefixtures("short_samples")
def test_a_column_is_of_one_policy_load_and_cluster_and_its_spread_is_over_samples() -> None:
    rows = sweep(LOG_ABSENT, ["edf", "priority"], [0.5], [4, 1, 3], heterogeneous=[False], processes=1)
    values = column(rows, "response_mean", "edf", 0.5, False)
    by_seed = {row.seed: row.metrics["response_mean"] for row in rows if row.policy == "edf"}
    assert values.tolist() == [by_seed[1], by_seed[3], by_seed[4]]
    assert len(column(rows, "response_mean", "edf", 0.5, True)) == 0
    found = spread(np.array([1.0, 2.0, 6.0]))
    assert (found.mean, found.samples) == (3.0, 3)
    assert found.deviation == pytest.approx(7**0.5)
    assert found.error == pytest.approx((7 / 3) ** 0.5)
    assert np.isnan(spread(np.array([1.0])).deviation)
