"""The contract of `headway reproduce`."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import reproduce_dn13, reproduce_kim12
from headway.metrics import summarise
from headway.model.workload import Workload
from headway.reproduce import live
from headway.reproduce.failure import simulated
from headway.reproduce.kim12 import ec2 as kim12_ec2
from headway.reproduce.kim12 import live as kim12_live
from headway.reproduce.kim12 import sites as kim12_sites
from headway.reproduce.live import REPLAYED, machines, sample
from headway.reproduce.samples import Log
from headway.reproduce.standin import standin
from headway.sim.experiment import run
from headway.traces import transforms
from headway.workloads import dn13

pytestmark = pytest.mark.long

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def small_samples_of_the_standin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_DATA", raising=False)
    small = lambda log, seed, estimates: transforms.lin14(log.workload, seed=seed, share=0.002)  # noqa: E731
    monkeypatch.setattr("headway.reproduce.sweep.draw", small)


QUICK = ("--samples", 5, "--processes", 1)


def test_figures_are_tables_with_what_was_published_beside_ours(headway: Any, tmp_path: Path) -> None:
    ran = headway("reproduce", "lin14", "fig6.2", "fig6.4", *QUICK, "--out", tmp_path / "out")
    assert (ran.status, ran.err) == (0, "")
    first, *lines = ran.out.splitlines()
    assert "made-up stand-in for SDSC-Par96" in first
    assert "HEADWAY_DATA" in first
    assert max(map(len, lines[:-1])) <= 100
    assert "Figure 6.2" in ran.out
    assert "Figure 6.4" in ran.out
    assert "Figure 6.3" not in ran.out
    assert "holds: priority never violates priorities" in ran.out
    assert "published 1,000; ours " in ran.out
    tables = [line.split()[0] for line in lines if "±" in line and "standard error" not in line]
    assert tables == 2 * [
        *("priority", "proportion", "workload", "deadline:spare=priority,foresight=false"),
        *("deadline:spare=due,foresight=false", "edf"),
    ]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"fig6.2.png", "fig6.4.png", "figures.csv"}
    for name in names:
        assert name in lines[-1]
    with (tmp_path / "out" / "figures.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 6
    assert {row["heterogeneous"] for row in rows} == {"False"}
    assert {row["jobs"] for row in rows} == {"64"}


def test_as_json_it_is_one_object_and_policies_can_be_added(headway: Any) -> None:
    ran = headway("reproduce", "lin14", "fig6.3", *QUICK, "--json", "--policy", "fcfs", "--policy", "edf")
    told = json.loads(ran.out)
    assert ran.status == 0
    assert told["log"] == {"name": "made-up stand-in for SDSC-Par96", "made_up": True}
    assert list(told) == ["paper", "log", "fig6.3"]
    figure = told["fig6.3"]
    assert [one["policy"] for one in figure["means"]][-2:] == ["edf", "fcfs"]
    assert figure["means"][0]["priority_violation_rate"]["samples"] == 5
    assert [statement["verdict"] for statement in figure["statements"]] == ["holds", "holds", "holds in part"]
    assert figure["statements"][2]["published"] == 0.25


def test_figure_6_1_is_simulated_where_all_is_run_and_live_where_it_is_named(
    headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_simulated(tell: Any) -> Any:
        tell("3 machines are down.")
        return simulated()

    monkeypatch.setattr(live, "failure_live", as_simulated)
    ran = headway("reproduce", "lin14", "fig6.1", "--out", tmp_path)
    assert ran.status == 0
    assert ran.err == "3 machines are down.\n"
    assert ran.out.count("  holds: ") == 12
    assert "Live and simulated are 0.00 slots apart on average, failure." in ran.out
    assert (tmp_path / "fig6.1.png").stat().st_size > 10_000
    told = json.loads(headway("reproduce", "lin14", "fig6.1", "--json").out)["fig6.1"]
    assert told["slots_apart"] == {"normal": 0, "failure": 0}
    assert told["runs"]["live"]["failure"]["slots"][0] == 4


@pytest.mark.thorough
def test_a_sweep_is_tables_over_load(headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = lambda log, seed, estimates: transforms.lin14(log.workload, seed=seed, share=0.0005)  # noqa: E731
    monkeypatch.setattr("headway.reproduce.sweep.draw", fewer)
    monkeypatch.setattr("headway.reproduce.sweep.LOADS", (0.3, 1.2))
    monkeypatch.setattr("headway.reproduce.sweep.POLICIES", ("priority", "edf"))
    ran = headway("reproduce", "lin14", "sweep", *QUICK, "--out", tmp_path)
    assert (ran.status, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines() if line.startswith("policy")] == 4 * [
        ["policy", "0.3", "1.2"]
    ]
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {
        *("sweep-priority-violation-rate.png", "sweep-deadline-miss-penalty.png"),
        *("sweep-plane-homogeneous.png", "sweep-plane-heterogeneous.png"),
    }
    with (tmp_path / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["load"] for row in rows} == {"0.3", "1.2"}
    assert {row["policy"] for row in rows} == {"priority", "edf", "tempo"}


def test_live_beside_simulated(headway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def simulated_instead(workload: Workload, policy: str, cluster: None) -> Any:
        rows = zip(workload.label.tolist(), workload.tasks.tolist(), workload.runtime.tolist(), strict=True)
        times = {(job, task): runtime for job, count, runtime in rows for task in range(count)}
        return run(workload, machines(), policy), times, machines()

    monkeypatch.setattr(live, "_replayed", simulated_instead)
    ran = headway("reproduce", "lin14", "live")
    assert ran.status == 0
    assert ran.out.count("response_mean") == 3
    for policy in REPLAYED:
        assert f"{policy}: mean response +0.0% live, within the 3 % aimed at; +0.0% to the simulation\n" in ran.out
    assert ran.out.count("with launches 0.0 ms late") == 3
    assert ran.out.count("+0.0% to the simulation in which each task has its slot as long as live.") == 3


def test_the_replayed_sample_takes_about_a_minute_and_no_milliseconds() -> None:
    log = Log(standin(), "made up", is_standin=True)
    seed, workload = sample(log)
    assert sample(log)[0] == seed
    assert len(workload) == 60
    simulations = [summarise(run(workload, machines(), policy)) for policy in REPLAYED]
    assert all(45 < metrics["makespan"] < 90 for metrics in simulations)
    assert len({metrics["response_mean"] for metrics in simulations}) == 3  # policies differ on it


@pytest.mark.slow
def test_measy14_is_tables_pictures_statements_and_every_run(headway: Any, tmp_path: Path) -> None:
    words = ("--scale", 0.004, "--processes", 1)
    ran = headway("reproduce", "measy14", "fig7", "fig8", *words, "--out", tmp_path / "out")
    assert (ran.status, ran.err) == (0, "")
    assert "Figure 7: mean response time (s), JWload, against load" in ran.out
    assert "Figure 7: mean bounded slowdown, JWload, against load" in ran.out
    assert "Figure 8: migrations a job under MEASY" in ran.out
    assert "Figure 6" not in ran.out
    assert "on JWload REASY is even worse than EASY\n    ours: at " in ran.out
    assert "up to 41.1%" not in ran.out  # it needs figure 6 too
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"fig7.png", "fig8.png", "tables.md", "runs.csv"}
    for name in names:
        assert name in ran.out.splitlines()[-1]
    with (tmp_path / "out" / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10 * 4 + 10  # also FWload under MEASY, for figure 8
    assert {row["policy"] for row in rows if row["source"] == "JWload"} == {"easy", "keasy", "reasy", "measy"}
    assert {row["jobs"] for row in rows} == {"400", "800"}
    tables = (tmp_path / "out" / "tables.md").read_text("utf-8")
    assert tables.count("\n| load | ") == 3
    assert "| statement | published | ours |  |" in tables

    told = json.loads(headway("reproduce", "measy14", "fig8", *words, "--json").out)
    assert list(told) == ["paper", "scale", "seed", "statements", "runs"]
    (statement,) = told["statements"]
    assert statement["verdict"] in ("holds", "holds in part", "does not hold")
    assert len(told["runs"]) == 20
    again = {(run["source"], run["load"]): run["response_mean"] for run in told["runs"]}
    before = {
        (row["source"], float(row["load"])): float(row["response_mean"]) for row in rows if row["policy"] == "measy"
    }
    assert again == before


def test_measy14_without_logs_says_so(headway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.cli.reproduce_measy14.FIGURES", ("logs",))
    ran = headway("reproduce", "measy14")
    assert ran.status == 0
    assert "The logs are left out: set HEADWAY_DATA" in ran.err


@pytest.fixture
def small_samples_of_chang16(monkeypatch: pytest.MonkeyPatch) -> None:
    small = transforms.first(standin(), 60)
    monkeypatch.setattr("headway.reproduce.chang16.samples.standin", lambda: small)
    monkeypatch.setattr("headway.reproduce.chang16.samples.JOBS", 10)
    monkeypatch.setattr("headway.reproduce.chang16.mixed.HOURS", 1)
    monkeypatch.setattr("headway.reproduce.chang16.mixed.OF_EACH", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("small_samples_of_chang16")
def test_chang16_is_tables_pictures_statements_and_every_run(headway: Any, tmp_path: Path) -> None:
    words = ("--samples", 2, "--processes", 1)
    ran = headway("reproduce", "chang16", *words, "--out", tmp_path / "out")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Log: made-up stand-in for SDSC-Par96, 60 jobs. Set HEADWAY_DATA, or give --data,")
    assert "How well the penalty is foreseen in the middle of a run (figures 4 and 5)" in ran.out
    assert "Total penalty relative to hprf" in ran.out
    assert ran.out.count("What the paper prints, and what comes of our runs") == 3
    names = {
        "fig4.png",
        "fig5.png",
        "fig6.png",
        "fig7.png",
        "bound.png",
        *(f"fig{number}{load}.png" for number in (8, 9) for load in ("", "-30", "-60", "-90")),
    }
    names |= {"estimates.csv", "orders.csv", "mixed.csv", "tables.md"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    for name in names:
        assert name in ran.out.splitlines()[-1]
    with (tmp_path / "out" / "orders.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 4 * 8
    tables = (tmp_path / "out" / "tables.md").read_text("utf-8")
    assert tables.count("| published | ours | range of 90 % | verdict |") == 3
    with (tmp_path / "out" / "mixed.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * 4 * (7 + 2)

    told = json.loads(headway("reproduce", "chang16", "orders", *words, "--policy", "fcfs", "--json").out)
    assert list(told) == ["paper", "log", "samples", "seed", "orders"]
    assert told["log"] == {"name": "made-up stand-in for SDSC-Par96", "made_up": True}
    assert [one["published"] for one in told["orders"]["statements"]] == [0.6667, 0.6667, 0.5, 0.5]
    again = [run for run in told["orders"]["runs"] if run["policy"] != "fcfs"]
    assert len(told["orders"]["runs"]) - len(again) == 2 * 4
    assert [str(run["total_penalty"]) for run in again] == [row["total_penalty"] for row in rows]


@pytest.mark.usefixtures("small_samples_of_chang16")
def test_chang16_is_the_same_again_and_other_with_another_seed(headway: Any) -> None:
    def told(*words: object) -> str:
        return str(headway("reproduce", "chang16", "estimates", "--samples", 2, "--json", *words).out)

    first = told("--processes", 1)
    assert told("--processes", 2) == first
    runs, others = (json.loads(text)["estimates"]["runs"] for text in (first, told("--seed", 1, "--processes", 1)))
    second = [run["final"] for run in runs if run["seed"] == 1 and run["share"] == 0]
    assert [run["final"] for run in others if run["seed"] == 1 and run["share"] == 0] == second
    assert {run["seed"] for run in others} == {1, 2}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chang16", "fig5"), "WHAT is 'fig5'; allowed: estimates, orders, mixed"),
        (("chang16", "--samples", 1), "--samples is 1; allowed: a whole number, 2 or more"),
        (("chang16", "--policy", "gredy"), "policy is 'gredy'"),
        (("chang16", "--data", "/no/such"), "there is no /no/such/swf/SDSC-Par"),
        (("measy14", "fig5"), "WHAT is 'fig5'; allowed: fig6, "),
        (("measy14", "fig6", "--scale", 2), "--scale is 2; allowed: a share of the jobs from 0.004 to 1"),
        (("measy14", "fig6", "--seed", -1), "--seed is -1; allowed: a whole number, 0 or more"),
        (("measy14", "logs"), "give --data, to the folder that holds swf/"),
        (("measy14", "--data", "/no/such"), "there is no /no/such/swf/CTC"),
        (("lin41",), "there is no command 'lin41'"),
        (("lin14", "fig6.6"), "WHAT is 'fig6.6'; allowed: fig6.1, "),
        (("lin14", "--samples", 4), "--samples is 4; allowed: a whole number, 5 or more"),
        (("lin14", "--policy", "eddf"), "policy is 'eddf'"),
        (("lin14", "fig6.2", "--log", "/no/such.swf"), "cannot read /no/such.swf"),
    ],
)
def test_bad_input_is_said_before_anything_runs(headway: Any, words: tuple[object, ...], said: str) -> None:
    ran = headway("reproduce", *words)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


def test_an_out_that_is_a_file_is_said_before_anything_runs(headway: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = headway("reproduce", "lin14", "--out", tmp_path / "file" / "out")
    assert (ran.status, ran.out) == (2, "")
    assert "cannot write to" in ran.err


def test_the_command_offers_what_there_is_of_dn13() -> None:
    assert (*dn13.NAMES, dn13.REAL) == reproduce_dn13.KINDS
    assert tuple(dn13.SIZES) == reproduce_dn13.SIZES


@pytest.mark.thorough
def test_dn13_is_tables_pictures_statements_and_every_run(headway: Any, tmp_path: Path) -> None:
    words = ("--kind", "mix", "--kind", "single-task", "--jobs", 6, "--samples", 2, "--processes", 1)
    ran = headway("reproduce", "dn13", *words, "--out", tmp_path / "out")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("4 instances of 6 workflows at five sites, all of as many processors.")
    assert "Table 1: mean difference to the best of both, published / ours" in ran.out
    names = {"fig1.png", "front.png", "instances.csv", "tables.md"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    with (tmp_path / "out" / "instances.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 6
    assert all(float(row["makespan"]) >= float(row["makespan_bound"]) - 1e-5 for row in rows)
    assert all(float(row["energy_joules"]) > 0 for row in rows)

    told = json.loads(
        headway("reproduce", "dn13", *words[2:], "--sites", "equal", "--policy", "sites:each=peft", "--json").out
    )
    assert list(told) == ["paper", "sites", "jobs", "samples", "seed", "instances"]
    assert len(told["instances"]["runs"]) == 2 * 7
    assert [one["published"] for one in told["instances"]["statements"][:3]] == [0.8, 0.8, 0.2]
    assert {one["verdict"] for one in told["instances"]["statements"]} <= {"holds", "holds in part", "does not hold"}


def test_kim12_prints_tables_and_writes_files(headway: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    ran = headway("reproduce", "kim12", "estimates", "--samples", 1, "--out", tmp_path)
    assert ran.status == 0
    assert "How much each parameter is found to matter" in ran.out
    assert {path.name for path in tmp_path.iterdir()} == {"influence.png", "estimates.csv", "tables.md"}
    told = json.loads(headway("reproduce", "kim12", "estimates", "--samples", 1, "--seed", 3, "--json").out)
    (run,) = told["estimates"]["runs"]
    assert (told["paper"], told["samples"], run["seed"]) == ("kim12", {"estimates": 1}, 3)


@pytest.mark.slow
def test_kim12_holds_what_the_paper_expects_against_what_comes(
    headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first setting only, and in this process."""
    monkeypatch.setattr(kim12_sites, "SETTINGS", (kim12_sites.BASE,))
    words = ("reproduce", "kim12", "sites", "--samples", 1, "--processes", 1)
    ran = headway(*words, "--out", tmp_path)
    assert "What the paper expects, and our aim" in ran.out
    assert {path.name for path in tmp_path.iterdir()} == {"sites.png", "sites.csv", "tables.md"}
    runs = json.loads(headway(*words, "--json").out)["sites"]["runs"]
    assert len(runs) == 2 * len(kim12_sites.METHODS)
    by_method = {run["method"]: run for run in runs if run["source"] == "e-AIRS"}
    assert {name for name, run in by_method.items() if run["money"]} <= {
        name for name, (_, _, rents) in kim12_sites.METHODS.items() if rents
    }
    assert by_method["ours"]["missed"] <= by_method["grid"]["missed"]


def test_kim12_live_says_what_it_needs_that_is_not_installed(headway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(kim12_ec2, "find_spec", lambda name: None if name in ("boto3", "moto") else there(name))
    ran = headway("reproduce", "kim12", "live")
    assert ran.status == 2
    assert "boto3, moto" in ran.err
    assert "pip install 'headway[dask,aws]' 'moto[ec2,server]'" in ran.err


def test_the_methods_of_kim12_live_are_those_of_the_experiment() -> None:
    assert tuple(kim12_live.METHODS_OF) == reproduce_kim12.METHODS
