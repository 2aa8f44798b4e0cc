"""The contract of `headway workload`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import demo
from headway.traces import read_swf, read_workload, write_workload
from headway.traces.swf import processors_of
from headway.workloads import feitelson96, jwload, lublin99
from headway.workloads.feitelson96 import Feitelson96
from headway.workloads.lublin99 import BATCH_STREAM, INTERACTIVE_STREAM

MODELS = ("feitelson96", "jann97", "lublin99")


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_written_as_a_log_that_says_how_it_was_made(headway: Any, model: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.swf.gz"
    words = ("workload", model, "--jobs", 500, "--seed", 4, "--processors", 64, "--load", 0.7, "-o", path)
    ran = headway(*words)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == f"Written: {path}."
    for row in ("mean width", "one-process jobs", "powers of two above 1", "mean run time", "mean gap"):
        assert row in ran.out
    assert "0.700" in next(line for line in ran.out.splitlines() if line.startswith("load "))
    assert (len(read_swf(path)), processors_of(path)) == (500, 64)
    first = path.read_bytes()
    headway(*words)
    assert path.read_bytes() == first


def header(path: Path) -> list[str]:
    return [line[2:] for line in path.read_text().splitlines() if line.startswith("; ")]


def test_the_header_names_model_seed_and_parameters(headway: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.swf"
    headway("workload", "feitelson96", "--jobs", 300, "--seed", 4, "--think", 60, "--cpu", "drawn", "-o", path)
    said = header(path)
    for line in ("Computer: model feitelson96", "MaxProcs: 320", "MaxJobs: 300", "MaxRecords: 300"):
        assert line in said
    for note in ("model feitelson96", "seed 4", "think 60.0", "order 1.5", "estimates tsafrir", "cpu drawn"):
        assert f"Note: {note}" in said


def test_the_log_of_the_demo_names_its_machine(tmp_path: Path) -> None:
    path = tmp_path / "rigid.swf"
    write_workload(demo.synthetic_log(1), path, demo.header(1))
    said = header(path)
    assert said[:3] == ["Version: 2.2", f"MaxJobs: {demo.JOBS_SIMULATED}", f"MaxRecords: {demo.JOBS_SIMULATED}"]
    assert {"MaxNodes: 64", "MaxProcs: 64", "UnixStartTime: 0", "Note: seed 1"} < set(said)
    assert processors_of(path) == demo.SLOTS_SIMULATED


def test_options_are_the_models_parameters(headway: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.swf"
    options = ("--short", 100, "--long", 200, "--small-below", 3, "--estimates", "exact", "--cpu", 0.5)
    headway("workload", "feitelson96", "--jobs", 300, "--seed", 2, *options, "-o", path)
    model = Feitelson96(short=100, long=200, small_below=3)
    wanted = feitelson96(300, 2, model=model, estimates="exact", cpu=0.5)
    found = read_swf(path)
    for column in ("release", "width", "runtime", "estimate"):
        assert getattr(found, column).tolist() == getattr(wanted, column).tolist()
    assert found.cpu.tolist() == pytest.approx(wanted.cpu.tolist())


def test_types_of_jobs(headway: Any, tmp_path: Path) -> None:
    headway("workload", "lublin99", "--types", "--jobs", 300, "-o", tmp_path / "jobs.csv", "--cpu", "none")
    wanted = lublin99(300, streams=(INTERACTIVE_STREAM, BATCH_STREAM))
    assert read_workload(tmp_path / "jobs.csv").runtime.tolist() == wanted.runtime.tolist()


def test_json_is_one_object(headway: Any) -> None:
    ran = headway("workload", "jann97", "--preset", "measy14", "--jobs", 400, "--seed", 3, "--json")
    told = json.loads(ran.out)
    wanted = jwload(3, 400)
    assert (told["model"], told["preset"], told["seed"], told["jobs"], told["processors"]) == (
        *("jann97", "measy14", 3, 400, 320),
    )
    assert (told["largest_estimate"], told["cpu"], told["written"]) == (64_800, "drawn", None)
    assert told["width_mean"] == pytest.approx(wanted.width.mean())
    assert told["cpu_mean"] == pytest.approx(wanted.cpu.mean())
    assert told["notes"] == list(wanted.notes)
    assert told["range 1-1"].split()[0] == "1"


def test_a_preset_is_of_full_size(headway: Any) -> None:
    told = json.loads(headway("workload", "feitelson96", "--preset", "measy14", "--estimates", "none", "--json").out)
    assert (told["jobs"], told["estimate_mean"], told["cpu"]) == (200_000, None, "drawn")
    assert told["width_mean"] == pytest.approx(23.4, rel=0.03)


def test_a_log_is_given_estimates(headway: Any, tmp_path: Path) -> None:
    log, out = tmp_path / "log.swf", tmp_path / "out.swf"
    headway("workload", "lublin99", "--jobs", 400, "--estimates", "none", "--cpu", 0.25, "-o", log)
    ran = headway("workload", "tsafrir", log, "-o", out, "--seed", 1, "--hint", "2h30m=40", "--json")
    told = json.loads(ran.out)
    before, after = read_swf(log), read_swf(out)
    assert (told["model"], told["processors"], told["hints"]) == ("tsafrir", 128, {"9000": 40})
    assert after.label.tolist() == before.label.tolist()
    assert after.runtime.tolist() == before.runtime.tolist()
    assert after.cpu.tolist() == pytest.approx(before.cpu.tolist(), nan_ok=True)
    assert (after.estimate >= after.runtime).all()
    assert (after.estimate == 9000 * 10**6).sum() == 40
    assert processors_of(out) == 128


def test_a_table_is_given_estimates_on_as_many_processors_as_it_needs(headway: Any, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text("release,width,runtime\n" + "".join(f"{at},{1 + at % 7},{at}\n" for at in range(300)))
    told = json.loads(headway("workload", "tsafrir", table, "--json", "--largest-estimate", "2h").out)
    assert (told["processors"], told["jobs"]) == (7, 300)


def test_ranges_are_fitted_to_a_log(headway: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    headway("workload", "lublin99", "--jobs", 20_000, "--processors", 8, "-o", log)
    told = json.loads(headway("workload", "jann97", "--fit", log, "--jobs", 20_000, "--json").out)
    assert [name for name in told if name.startswith("range")] == ["range 1-1", "range 2-2", "range 3-4", "range 5-8"]
    runtime = read_swf(log).runtime
    assert told["runtime_mean"] == pytest.approx(runtime[runtime > 0].mean() / 10**6, rel=0.05)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("feitelson96", "--jobs", 0), "jobs is 0; allowed: a whole number, from 1"),
        (("feitelson96", "--short-share", 2), "--short-share is 2; allowed: a number from 0 to 1"),
        (("feitelson96", "--preset", "measy14", "--think", 3), "--think is 3.0; allowed: nothing beside --preset"),
        (("jann97", "--preset", "measy14", "--processors", 9), "--processors is 9; allowed: nothing beside --preset"),
        (("jann97", "--fit", "absent.swf"), "cannot read absent.swf"),
        (("lublin99", "--types", "--serial", 0.5), "--serial is 0.5; allowed: nothing beside --types"),
        (("lublin99", "--cpu", "lots"), "--cpu is 'lots'; allowed: drawn, none or a number from 0 to 1"),
        (("lublin99", "--cpu", 1.5), "cpu is 1.5; allowed: a number from 0 to 1"),
        (("lublin99", "--load", -1), "--load is -1; allowed: a number above 0"),
        (("lublin99", "--jobs", 100), "jobs is 100; allowed: 200 or more"),
        (("lublin99", "-o", "jobs.txt"), "--out is 'jobs.txt'; allowed: a name that ends in one of .swf"),
        (("tsafrir", "absent.swf"), "cannot read absent.swf"),
        (("tsafrir", "absent.swf", "--processors", 0), "--processors is 0; allowed: a whole number, 1 or more"),
        (("tsafrir", "x", "--hint", "1h=3", "--hint", "60m=4"), "--hint is '60m=4'; allowed: ESTIMATE=JOBS, each "),
        (("tsafrir", "absent.swf", "--hint", "300"), "--hint is '300'; allowed: ESTIMATE=JOBS"),
    ],
)
def test_what_cannot_be_is_refused(
    headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[Any, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = headway("workload", *words)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


def test_an_instance_of_dn13_is_workflows_and_the_sites_that_they_are_for(headway: Any, tmp_path: Path) -> None:
    flows, sites = tmp_path / "flows.json", tmp_path / "sites.toml"
    words = ("--jobs", 9, "--processors", 3, "--seed", 4)
    ran = headway("workload", "dn13", *words, "--out", flows, "--cluster", sites)
    assert (ran.status, ran.err) == (0, "")
    assert f"Written: {flows}." in ran.out
    told = json.loads(headway("workload", "dn13", *words, "--json").out)
    assert (told["kind"], told["jobs"], told["seed"]) == ("mix", 9, 4)
    ran = headway("simulate", flows, "--cluster", sites, "--policy", "sites:top=fill,each=heft:order=due", "--json")
    (one,) = json.loads(ran.out)
    assert one["metrics"]["jobs_succeeded"] == 9
    assert one["metrics"]["energy_joules"] > 0
    assert one["metrics"]["makespan"] >= told["makespan_bound"]
    assert headway("workload", "dn13", "--out", tmp_path / "a.swf").status == 2
