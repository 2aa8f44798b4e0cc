"""What all generated workloads have: seeds, loads, estimates, CPU use, files, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.workload import COLUMNS, Workload
from headway.traces import read_swf, read_table, write_swf, write_table
from headway.traces.transforms import offered_load
from headway.workloads import feitelson96, fwload, jann97, jwload, lublin99, statistics

Model = Callable[..., Workload]
models = pytest.mark.parametrize("model", [feitelson96, jann97, lublin99, fwload, jwload])


def same(one: Workload, other: Workload, *columns: str) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name == "cpu") for name in columns or COLUMNS
    )


@models
def test_the_same_seed_gives_the_same_jobs_and_bytes(model: Model, tmp_path: Path) -> None:
    one, again, other = (model(jobs=2000, seed=seed) for seed in (7, 7, 8))
    assert same(one, again)
    assert not same(one, other, "release")
    assert not same(one, other, "width")
    for name, jobs in (("one", one), ("again", again)):
        write_swf(jobs, tmp_path / f"{name}.swf.gz")
    assert (tmp_path / "one.swf.gz").read_bytes() == (tmp_path / "again.swf.gz").read_bytes()


@models
def test_jobs_are_rigid_in_order_and_as_many_as_asked_for(model: Model) -> None:
    jobs = model(jobs=1234)
    assert len(jobs) == 1234
    assert (np.diff(jobs.release) >= 0).all()
    assert (jobs.kind == Kind.RIGID).all()
    assert (jobs.tasks == 1).all()
    assert jobs.label.tolist() == list(range(1, 1235))
    assert (jobs.release % SECOND == 0).all()
    assert (jobs.runtime % SECOND == 0).all()


@models
def test_estimates_and_cpu_use_do_not_change_the_jobs(model: Model) -> None:
    plain = model(jobs=2000, estimates=None, cpu=None)
    exact = model(jobs=2000, estimates="exact", cpu=0.5)
    dealt = model(jobs=2000, largest_estimate=None, cpu="drawn")
    for other in (exact, dealt):
        assert same(plain, other, "release", "width", "runtime")
    assert (plain.estimate == -1).all()
    assert np.isnan(plain.cpu).all()
    assert same(exact, exact, "runtime")
    assert exact.estimate.tolist() == exact.runtime.tolist()
    assert (exact.cpu == 0.5).all()
    assert (dealt.estimate >= dealt.runtime).all()


@models
@pytest.mark.parametrize("load", [0.45, 0.9, 1.3])
def test_gaps_are_scaled_to_a_load(model: Model, load: float) -> None:
    processors = {"jann97": 322, "lublin99": 128}.get(model.__name__, 320)
    raw, scaled = model(jobs=3000), model(jobs=3000, load=load)
    assert offered_load(scaled, processors) == pytest.approx(load, rel=1e-4)
    assert same(raw, scaled, "width", "runtime", "estimate", "cpu")
    assert (np.diff(scaled.release) >= 0).all()
    factor = (scaled.release[-1] - scaled.release[0]) / (raw.release[-1] - raw.release[0])
    between = raw.release[0] + (raw.release - raw.release[0]) * factor
    assert np.abs(scaled.release - between).max() <= SECOND


@models
def test_a_log_and_a_table_keep_the_jobs(model: Model, tmp_path: Path) -> None:
    jobs = model(jobs=3000, cpu="drawn")
    write_swf(jobs, tmp_path / "jobs.swf.gz")
    write_table(jobs, tmp_path / "jobs.csv")
    again, table = read_swf(tmp_path / "jobs.swf.gz", cut_at_estimate=False), read_table(tmp_path / "jobs.csv")
    for found in (again, table):
        assert same(found, jobs, "label", "release", "width", "runtime", "estimate", "kind")
    ran = jobs.runtime > 0
    np.testing.assert_allclose(again.cpu[ran], jobs.cpu[ran], atol=1e-6)
    assert np.isnan(again.cpu[~ran]).all()
    assert table.cpu.tolist() == jobs.cpu.tolist()


def test_drawn_cpu_use_follows_the_rule_of_the_paper() -> None:
    jobs = jann97(20_000, cpu="drawn")
    serial = jobs.width == 1
    assert (jobs.cpu[serial] == 1.0).all()
    others = jobs.cpu[~serial]
    assert others.min() >= 0.4
    assert others.max() <= 1.0
    assert others.mean() == pytest.approx(0.7, abs=0.005)
    assert others.std() == pytest.approx(0.6 / np.sqrt(12), rel=0.02)
    assert not jobs.uses


def test_processes_of_a_job_may_differ() -> None:
    jobs = jann97(2000, cpu="drawn", cpu_spread=0.2)
    even = jann97(2000, cpu="drawn")
    assert set(jobs.uses) == set(np.flatnonzero(jobs.width > 1).tolist())
    for job, uses in jobs.uses.items():
        assert len(uses) == jobs.width[job]
        assert all(0 <= use <= 1 for use in uses)
        assert max(abs(use - even.cpu[job]) for use in uses) <= 0.2
        assert np.mean(uses) == pytest.approx(jobs.cpu[job])
    wide = [uses for uses in jobs.uses.values() if len(uses) > 16]
    assert all(max(uses) - min(uses) > 0 for uses in wide)
    assert (jobs.cpu[jobs.width == 1] == 1).all()
    assert not jann97(300, cpu=1.0, cpu_spread=0.5).uses


def test_run_times_beyond_the_largest_estimate_are_cut() -> None:
    jobs = lublin99(5000, largest_estimate=36_000)
    assert jobs.estimate.max() == jobs.runtime.max() == 36_000 * SECOND
    assert jobs.notes[0].startswith("run times cut to the largest estimate, 36000 s: ")


@models
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs is 0; allowed: a whole number, from 1 to 10000000"),
        ({"jobs": 1.5}, "jobs is 1.5"),
        ({"jobs": 10**12}, "jobs is 1000000000000"),
        ({"jobs": 150}, "jobs is 150; allowed: 200 or more for estimates"),
        ({"seed": -1}, "seed is -1; allowed: a whole number, 0 or more"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"load": 0}, "load is 0; allowed: a number above 0"),
        ({"load": float("nan")}, "load is nan"),
        ({"estimates": "perfect"}, "estimates is 'perfect'; allowed: tsafrir, exact or none"),
        ({"largest_estimate": 100}, "largest_estimate is 100; allowed: whole seconds, 7200 or more"),
        ({"cpu": 1.5}, "cpu is 1.5; allowed: a number from 0 to 1"),
        ({"cpu": "much"}, "cpu is 'much'; allowed: drawn, a number from 0 to 1, or none"),
        ({"cpu": 0.5, "cpu_spread": 2}, "cpu_spread is 2; allowed: a number from 0 to 1"),
        ({"cpu": None, "cpu_spread": 0.1}, "cpu_spread is 0.1; allowed: 0 where no CPU use is given"),
    ],
)
def test_what_cannot_be_is_refused(model: Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        model(**{"jobs": 1000, **options})


@pytest.mark.parametrize("model", [feitelson96, jann97, lublin99])
def test_a_parameter_that_no_model_has_is_refused(model: Model) -> None:
    with pytest.raises(TypeError, match="no parameter 'lod'"):
        model(jobs=10, lod=0.5)


@pytest.mark.parametrize("model", [feitelson96, jann97, lublin99])
@pytest.mark.parametrize("processors", [0, -1, 2.5, 2**31])
def test_a_machine_that_is_none_is_refused(model: Model, processors: Any) -> None:
    with pytest.raises(InvalidInput, match="processors is "):
        model(jobs=1000, processors=processors)


def test_so_many_processes_that_memory_would_not_hold_them_are_refused() -> None:
    with pytest.raises(InvalidInput, match="processors is 2147483647; allowed: a whole number, from 1 to 10000000"):
        feitelson96(10, processors=2**31 - 1)
    with pytest.raises(InvalidInput, match=r"processes of all jobs is .*; allowed: at most 20000000 for `cpu_spread`"):
        lublin99(200, processors=2**31 - 1, estimates=None, cpu=0.5, cpu_spread=0.1)


def test_statistics_are_those_of_the_jobs() -> None:
    jobs = lublin99(1000, 3, cpu=0.5)
    told = statistics(jobs, 128)
    width, runtime = jobs.width, jobs.runtime / SECOND
    assert told["jobs"] == 1000
    assert told["width_mean"] == pytest.approx(width.mean())
    assert told["serial_share"] == (width == 1).mean()
    assert told["power_of_two_share"] == np.isin(width, [2, 4, 8, 16, 32, 64, 128]).mean()
    assert told["runtime_mean"] == pytest.approx(runtime.mean())
    span = (jobs.release[-1] - jobs.release[0]) / SECOND
    assert told["gap_mean"] == pytest.approx(span / 999)
    assert told["load"] == pytest.approx((width * runtime).sum() / (128 * span))
    assert told["estimate_mean"] == pytest.approx(jobs.estimate.mean() / SECOND)
    assert told["cpu_mean"] == 0.5


def test_statistics_of_one_job_have_no_load() -> None:
    told = statistics(lublin99(1, estimates=None), 128)
    assert (told["load"], told["estimate_mean"], told["cpu_mean"]) == (None, None, None)
