"""The experiments of Chang16: samples of a small log, forecasts of small runs, results from artificial runs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway import workload_of
from headway.cli.reproduce_chang16 import NAMES
from headway.errors import HeadwayError
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.reproduce.chang16 import estimates, experiment, orders, samples
from headway.reproduce.chang16.estimates import OVERHEADS, PUBLISHED, SHARES, Course, Look, course
from headway.reproduce.chang16.experiments import EXPERIMENTS
from headway.reproduce.chang16.orders import POLICIES, RATES, Runs
from headway.reproduce.chang16.samples import ARRIVALS, cluster, draw, open_log
from headway.reproduce.samples import LOG

JOBS = 6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of 20 jobs: job n comes at 100 n s, waits n s (every fifth: unknown), runs 500 s."""
    monkeypatch.setattr(samples, "JOBS", JOBS)
    lines = [
        f"{n} {100 * n} {-1 if n % 5 == 0 else n} {0 if n == 7 else 500} {40 + n} -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1"
        for n in range(1, 21)
    ]
    path = tmp_path / LOG.with_suffix("")
    path.parent.mkdir()
    path.write_text("; MaxProcs: 400\n" + "\n".join(lines) + "\n")
    path.rename(tmp_path / LOG)
    return tmp_path


# Samples


def test_jobs_are_due_when_they_ended_in_the_log(folder: Path) -> None:
    log = open_log(folder)
    assert (log.name, log.is_standin) == (LOG.name, False)
    jobs = log.workload
    assert 7 not in jobs.label, "it has no work"
    assert len(jobs) == 19
    assert (jobs.kind == Kind.BAG).all()
    assert (jobs.tasks == 40 + jobs.label).all(), "a task for each processor"
    waited = {label: (due - release) / SECOND - 500 for label, due, release in zip(*columns(jobs), strict=True)}
    assert waited == {n: 0 if n % 5 == 0 else n for n in range(1, 21) if n != 7}


def columns(jobs: Any) -> tuple[Any, ...]:
    return jobs.label.tolist(), jobs.due, jobs.release


def test_a_sample_is_of_consecutive_jobs_on_a_clock_of_its_own(folder: Path) -> None:
    log = open_log(folder)
    begins = set()
    for seed in range(100):
        jobs = draw(log, seed, "random", "logged")
        place = log.workload.label.tolist().index(jobs.label[0])
        begins.add(place)
        mine = slice(place, place + JOBS)
        assert jobs.label.tolist() == log.workload.label[mine].tolist()
        begin = log.workload.release[place]
        assert (jobs.release == (log.workload.release[mine] - begin) // 1000).all()
        assert (jobs.due == (log.workload.due[mine] - begin) // 1000).all()
        assert (jobs.runtime == 500_000).all()
        assert (jobs.estimate == jobs.runtime).all()
        assert ((jobs.rate >= 1) & (jobs.rate <= 1000) & (jobs.rate % 1 == 0)).all()
        at_once, equal = draw(log, seed, "random", "start"), draw(log, seed, "equal", "logged")
        assert not at_once.release.any()
        assert (at_once.due == jobs.due).all()
        assert (at_once.rate == jobs.rate).all()
        assert (equal.rate == 1).all()
        assert (equal.label == jobs.label).all()
    assert begins == set(range(14)), "it may start with the first job, and end with the last"


def test_a_missing_log_is_replaced_unless_its_folder_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = samples.transforms.first(samples.standin(), 60)
    monkeypatch.setattr(samples, "standin", lambda: small)
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    log = open_log()
    assert log.is_standin
    assert "made-up" in log.name
    assert (log.workload.due >= log.workload.release + log.workload.runtime).all()
    assert (log.workload.tasks == small.width).all()
    with pytest.raises(HeadwayError, match=f"there is no {tmp_path / LOG}"):
        open_log(tmp_path)


def test_the_cluster_has_64_units_on_four_machines() -> None:
    assert [node.slots for node in cluster()] == [16] * 4


# Orders


def made(**penalties: tuple[float, float]) -> Runs:
    """Two samples with these penalties under each policy, 5 and 10 under others, whatever the setting."""
    return Runs(
        {
            (rates, arrival, policy): np.array(penalties.get(policy, (5.0, 10.0)))
            for rates, arrival, policy in product(RATES, ARRIVALS, POLICIES)
        }
    )


def test_an_order_is_compared_by_mean_penalties() -> None:
    found = orders.result(made(edf=(10.0, 30.0), greedy=(2.0, 8.0), hprf=(5.0, 15.0)))
    to_edf, to_hprf = found.tables
    assert to_edf.columns == (
        *("policy", "equal, as logged", "equal, all at the start"),
        *("random, as logged", "random, all at the start"),
    )
    assert {row[0]: row[1] for row in to_edf.rows}["greedy"] == "0.250 (0.20 to 0.27)"
    assert {row[0]: row[1] for row in to_hprf.rows}["greedy"] == "0.500 (0.40 to 0.53)"
    assert [(one.published, one.ours, one.verdict) for one in found.statements] == [
        *[(0.6667, 0.75, "holds")] * 2,
        *[(0.5, 0.5, "holds")] * 2,
    ]
    worse = orders.result(made(edf=(10.0, 30.0), greedy=(20.0, 60.0)))
    assert {one.verdict for one in worse.statements} == {"does not hold"}
    little = orders.result(made(edf=(10.0, 30.0), greedy=(9.0, 27.0)))
    assert little.statements[0].verdict == "holds in part"


def test_every_order_runs_the_same_samples_and_policies_can_be_added(folder: Path) -> None:
    asked = experiment.Asked(open_log(folder), range(3, 5), ("fcfs", "edf"), 1)
    heard: list[int] = []
    found = orders.perform(asked, heard.append)
    assert heard[-1] == orders.runs(asked) == len(found.rows) == 2 * 4 * 9
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert {row["seed"] for row in rows} == {3, 4}
    assert {row["policy"] for row in rows} == {*POLICIES, "fcfs"}
    alike = {(row["seed"], row["arrival"], row["policy"]): row["makespan"] for row in rows if row["rates"] == "equal"}
    for row in rows:
        if row["policy"] in ("fcfs", "edf"):  # blind to rates
            assert row["makespan"] == alike[row["seed"], row["arrival"], row["policy"]]


# Estimates


FIGURE_2 = workload_of(
    release=[0, 0, 0], tasks=[2, 2, 3], runtime=[3, 2, 4], estimate=[3, 2, 4], due=[2, 3, 4], rate=[2, 2, 3]
)


@pytest.fixture
def three_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "cluster", lambda: [samples.NodeSpec("n", 3)])


@pytest.mark.usefixtures("three_units")
def test_figure_2_is_foreseen_exactly() -> None:
    """The paper's completions are 9, 2 and 6, and its penalties 14, 0 and 6. At 5 s of 9 only jobs 0 and 2 are open."""
    found = course(FIGURE_2, 0.0, (0.0, 5 / 9, 1.0))
    assert found.ends.tolist() == [9, 2, 6]
    assert found.penalties.tolist() == [14, 0, 6]
    begin, middle, end = found.looks
    assert begin == Look(0.0, 0.0, {0: 9, 1: 2, 2: 6}, {0: 14, 1: 0, 2: 6})
    assert middle == Look(5 / 9, 5.0, {0: 9, 2: 6}, {0: 14, 2: 6})
    assert [found.ratio(look) for look in (begin, middle)] == [1, 1]
    assert end.penalties == {}
    assert np.isnan(found.ratio(end))


@pytest.mark.usefixtures("three_units")
def test_a_start_takes_longer_than_is_told_and_what_has_passed_is_known() -> None:
    found = course(FIGURE_2, 0.5, (0.0, 0.5, 0.9))
    ratios = [found.ratio(look) for look in found.looks]
    assert found.looks[0].penalties == {0: 14, 1: 0, 2: 6}, "as told"
    # Starts 0, 0 (job 1), 0 (job 2); two of job 2 at 2.5; job 0 at 4.5 and at 7, ends at 10.5.
    assert found.ends.tolist() == [10.5, 2.5, 7]
    assert found.penalties.tolist() == [17, 0, 9]
    assert ratios[0] == pytest.approx(20 / 26)
    assert ratios == sorted(ratios)
    assert all(ratio <= 1 for ratio in ratios)


def artificial(factor: float, open_late: int) -> Course:
    """Four jobs of penalty 10 each; estimates are `factor` of that. From 3 % of the run on some are open."""
    looks = []
    for share in sorted(SHARES):
        left = range(4 if not share else open_late)
        ends, penalties = dict.fromkeys(left, 90.0), dict.fromkeys(left, 10 * factor)
        looks.append(Look(share, 100 * share, ends, penalties))
    return Course(np.array([25.0, 50.0, 75.0, 100.0]), np.full(4, 10.0), tuple(looks))


def test_estimates_are_told_beside_the_published_ones() -> None:
    found = estimates.result({0.0: [artificial(1.0, 3)] * 2, 1.7: [artificial(0.7, 3), artificial(0.8, 1)]}, [4, 5])
    ratios, jobs = found.tables
    assert ratios.rows[0] == ("published", "0.73", "0.80", "0.90", "", "0.95", "")
    assert ratios.rows[1][1:] == ("1.000 ± 0.000",) * 6
    assert ratios.rows[2][1:] == ("0.750 ± 0.050",) * 6
    assert [row[-1] for row in jobs.rows] == ["25 s, 10", "50 s, 10", "75 s, 10", "100 s, 10"]
    assert jobs.rows[0][1] == "90 s, 7"
    said = {one.words: one for one in found.statements}
    assert len(said) == 2 * (4 + 3 + 1)
    begin = said["tasks take 1.7 s longer than told, at 0% of the run: estimated to final penalty"]
    assert (begin.published, begin.ours, begin.verdict) == (0.73, pytest.approx(0.75), "holds")
    last = said["tasks take 1.7 s longer than told, at 20% of the run: estimated to final penalty"]
    assert (last.published, last.verdict) == (0.95, "holds in part")
    assert said["run times known, at 0% of the run: estimated to final penalty"].verdict == "does not hold"
    still = said["tasks take 1.7 s longer than told, at 6% of the run: open jobs"]
    assert (still.published, still.ours, still.verdict) == (100, 2, "does not hold")
    first = dict(zip(found.columns, found.rows[-1], strict=True))
    assert first == {
        "seed": 5,
        "overhead": 1.7,
        "share": 0.4,
        "seconds": 40,
        "open": 1,
        "estimated": 8,
        "final": 10,
    }


def test_every_sample_is_forecast_with_every_overhead(folder: Path) -> None:
    asked = experiment.Asked(open_log(folder), range(2), processes=1)
    heard: list[int] = []
    found = estimates.perform(asked, heard.append)
    assert heard == [1, 2, 3, 4]
    assert estimates.runs(asked) == 4
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    for seed, overhead in product(range(2), OVERHEADS):
        shares = {row["share"] for row in rows if (row["seed"], row["overhead"]) == (seed, overhead)}
        assert shares >= set(PUBLISHED)
    assert all(row["estimated"] == pytest.approx(row["final"]) for row in rows if not row["overhead"])


# The command


def test_the_command_names_every_experiment() -> None:
    assert tuple(EXPERIMENTS) == NAMES
