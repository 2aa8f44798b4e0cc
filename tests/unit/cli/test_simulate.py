"""The contract of `headway simulate`."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from headway.cli import output
from headway.cli import simulate as module
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.plan import Plan
from headway.model.schedule import NOT_YET, STATUSES, Course, Totals, schedule_of
from headway.model.snapshot import Snapshot
from headway.model.workload import workload_us
from headway.policies import registry

TABLE = """\
job,release,tasks,width,runtime,estimate,due,priority,rate,user
a,0,,2,10,10,,,,u
b,1,,3,5,5,,,,u
c,2,,1,7,7,20,,,v
"""

METRICS = {"wait_mean", "response_mean", "bounded_slowdown_mean", "utilisation", "makespan", "decisions"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TABLE)
    return path


def test_json_is_one_list_with_an_object_a_policy(headway: Any, table: Path) -> None:
    ran = headway("simulate", table, "--slots", 3, "--policy", "fcfs", "--policy", "easy", "--json")
    assert (ran.status, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert [one["policy"] for one in told] == ["fcfs", "easy"]
    for one in told:
        assert list(one) == ["policy", "jobs", "dropped", "metrics", "penalty_by_user", "energy"]
        assert (one["jobs"], one["dropped"]) == (3, 0)
        assert set(one["metrics"]) >= METRICS
    assert told[0]["metrics"]["wait_mean"] == pytest.approx((0 + 9 + 13) / 3)
    assert told[1]["metrics"]["wait_mean"] == pytest.approx((0 + 9 + 0) / 3)


def test_users_may_have_bounds_on_their_slots(headway: Any, table: Path) -> None:
    def waits(*bounds: str) -> Any:
        ran = headway("simulate", table, "--slots", 6, "--policy", "fcfs", "--json", *bounds)
        return json.loads(ran.out)[0]["metrics"]["wait_mean"]

    assert waits() == 0
    assert waits("--slots-of", "u=3") == waits("--slots-of", "*=3") == pytest.approx(9 / 3)
    assert waits("--slots-of", "*=3", "--slots-of", "u=5") == 0
    for bound in ("u", "u=", "=3", "u=0", "u=-1", "u=x"):
        ran = headway("simulate", table, "--slots", 6, "--slots-of", bound)
        assert (ran.status, f"--slots-of is '{bound}'; allowed: USER=N" in ran.err) == (2, True)
    ran = headway("simulate", table, "--slots", 6, "--slots-of", "*=2", "--slots-of", "*=3")
    assert ran.err == "Error: --slots-of is '*=3'; allowed: USER=N, each USER once\n"
    ran = headway("simulate", table, "--slots", 6, "--slots-of", "u=2")
    assert "job b: width is 3; allowed: at most 2, the slots that user 'u' may have at once" in ran.err
    assert "Raise the bound, or make its processors tasks (--as bags)." in ran.err
    ran = headway("simulate", table, "--slots", 6, "--slots-of", "nobody=2")
    assert ran.err.startswith("Error: --slots-of is 'nobody=2'; allowed: a user of the workload, or *")


def test_services_run_beside_the_jobs_and_are_told_with_their_windows(
    headway: Any, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "web.csv").write_text("arrival\n" + "\n".join(f"{number / 10:.1f}" for number in range(300)))
    (tmp_path / "s.csv").write_text("service,requests,processing,rate\nweb,web.csv,50ms,10\n")
    words = ("simulate", table, "--services", tmp_path / "s.csv", "--slots", 4, "--policy", "services:top=sf")
    (told,) = json.loads(headway(*words, "--json").out)
    (service,) = told["services"]
    assert (service["service"], service["arrivals"], service["share_in_time"]) == ("web", 300, 1.0)
    assert [window["arrivals"] for window in service["windows"]] == [200, 100]
    assert told["penalty_by_service"] == {"web": 0.0}
    shown = headway(*words, "--policy", "fcfs", "--out", tmp_path / "out")
    assert "Services" in shown.out
    assert "services serves them" not in shown.err
    assert "fcfs serves only" in shown.err
    assert "services:batch=POLICY serves them" in shown.err
    assert len(schedule(tmp_path / "out" / "services-services-top-sf.csv")) == 2


def schedule(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_schedule_is_on_the_clock_of_the_log(headway: Any, table: Path, tmp_path: Path) -> None:
    words = ("simulate", table, "--slots", 3, "--schedule", tmp_path / "out.csv")
    ran = headway(*words)
    assert (ran.status, ran.out.splitlines()[-1]) == (0, f"Written: {tmp_path / 'out.csv'}.")
    assert "Written" not in headway(*words, "--json").out
    assert schedule(tmp_path / "out.csv") == [
        {"job": "a", "release": "0", "start": "0", "end": "10", "slots": "2"},
        {"job": "b", "release": "1", "start": "10", "end": "15", "slots": "3"},
        {"job": "c", "release": "2", "start": "2", "end": "9", "slots": "1"},
    ]


def test_several_policies_write_a_schedule_each(headway: Any, table: Path, tmp_path: Path) -> None:
    words = ("--policy", "fcfs", "--policy", "easy:order=shortest", "--schedule", tmp_path / "out.csv")
    ran = headway("simulate", table, "--slots", 3, *words)
    assert ran.status == 0
    assert ran.out.endswith(f"Written: {tmp_path}/out-fcfs.csv, {tmp_path}/out-easy-order-shortest.csv.\n")
    assert schedule(tmp_path / "out-fcfs.csv")[2]["start"] == "15"
    assert schedule(tmp_path / "out-easy-order-shortest.csv")[2]["start"] == "2"
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.long
def test_out_gets_metrics_schedules_and_pictures(headway: Any, table: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "out"
    words = ("--policy", "fcfs", "--policy", "easy", "--out", out)
    ran = headway("simulate", table, "--slots", 3, *words)
    assert ran.status == 0
    said = ran.out.splitlines()[-1].removeprefix(f"Written to {out}: ").removesuffix(".")
    assert sorted(said.split(", ")) == sorted(path.name for path in out.iterdir())
    assert sorted(path.name for path in out.iterdir()) == [
        *("allocation-easy.png", "allocation-fcfs.png", "comparison.png", "gantt-easy.png", "gantt-fcfs.png"),
        *("metrics.csv", "metrics.json", "schedule-easy.csv", "schedule-fcfs.csv"),
    ]
    assert set(json.loads((out / "metrics.json").read_text())) == {"fcfs", "easy"}
    assert [line["policy"] for line in schedule(out / "metrics.csv")] == ["fcfs", "easy"]


MANY = "job,release,tasks,width,runtime,estimate,due,priority,rate,user\n" + "".join(
    f"{job},{10 * job},2,,15,15,{10 * job + 25},,,u\n" for job in range(400)
)


@pytest.mark.long
def test_pictures_of_many_jobs_are_over_time_and_it_says_so(headway: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    log, out = tmp_path / "many.csv", tmp_path / "out"
    log.write_text(MANY)
    ran = headway("simulate", log, "--slots", 4, "--policy", "edf", "--out", out)
    assert sorted(path.name for path in out.glob("*.png")) == ["timeline-edf.png"]
    assert (
        "Pictures show queue, use, wait and lateness over time: a Gantt chart of 400 jobs (more than 300) could not be "
        "read. --from and --to draw one of a part."
    ) in ran.out.splitlines()
    words = ("simulate", log, "--slots", 4, "--policy", "edf", "--out", out)
    ran = headway(*words, "--from", "10m", "--to", 700)
    assert ran.status == 0
    assert "could not be read" not in ran.out
    names = ["allocation-edf.png", "gantt-edf.png", "timeline-edf.png"]
    assert sorted(path.name for path in out.glob("*.png")) == names
    assert ran.out.splitlines()[-1].endswith("timeline-edf.png, gantt-edf.png, allocation-edf.png.")


@pytest.mark.long
def test_a_part_is_drawn_on_the_clock_of_the_log(headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = pytest.importorskip("headway.pictures")
    drawn: dict[str, dict[str, Any]] = {}
    for name in ("gantt", "allocation", "timeline"):
        monkeypatch.setattr(pictures, name, lambda *_, name=name, **how: drawn.__setitem__(name, how))
    log = tmp_path / "many.csv"
    log.write_text(MANY)
    words = ("simulate", log, "--slots", 4, "--policy", "edf", "--out", tmp_path / "out", "--json")
    headway(*words, "--from", "1h", "--to", "66m")
    title = "edf, many.csv: 400 jobs on 4 slots, offered load 0.75"
    assert drawn["gantt"] == {"start": 3600, "end": 3960, "slots": 4, "title": title}
    assert drawn["allocation"] == {"start": 3600, "end": 3960, "title": title}
    assert drawn["timeline"] == {"slots": 4, "title": title}
    drawn.clear()
    headway(*words, "--first", 30)
    assert sorted(drawn) == ["allocation", "gantt"]
    drawn.clear()
    ran = headway(*words[:-1], "--from", "2d")
    assert "edf: there is no Gantt chart, for the run had ended by 2 d (--from)." in ran.out.splitlines()
    assert sorted(drawn) == ["timeline"]


@pytest.mark.long
def test_a_run_in_which_no_task_ran_has_no_gantt_chart_and_it_says_so(
    headway: Any, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")

    class Idle:
        per_instant, task_rounds = True, False

        def __call__(self, view: Snapshot) -> Plan:
            return view.plan()

    find = registry.find
    monkeypatch.setattr(registry, "find", lambda text: Idle() if text == "idle" else find(text))
    ran = headway("simulate", table, "--slots", 3, "--policy", "idle", "--out", tmp_path / "out")
    assert "idle: there is no Gantt chart, for no task ran." in ran.out.splitlines()
    assert not list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "5s"), "--from and --to are for pictures, and none is drawn\nSay where to with --out FOLDER."),
        (("--out", "x", "--from", "soon"), "--from is 'soon'; allowed: a time on the log's clock, as 50h or 2d"),
        (("--out", "x", "--from", "9s", "--to", "9s"), "--to is '9s'; allowed: a time after --from, 9s"),
        (("--out", "x", "--to", "0s"), "--to is '0s'; allowed: a time after the first release, 0 s on the log's clock"),
    ],
)
def test_a_part_that_is_none_is_refused_before_anything_runs(
    headway: Any, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headway.sim.experiment.run", None)
    ran = headway("simulate", table, "--slots", 3, *words)
    assert ran.status == 2
    assert said in ran.err
    assert not (tmp_path / "x").exists()


def test_a_log_with_dates_takes_dates() -> None:
    assert output.log_time_in("2030-01-31T18:00+00:00", "--from") == 1_896_112_800.0
    assert output.log_time_in("1.5h", "--from") == 5400.0


def test_without_matplotlib_it_says_how_to_get_pictures(
    headway: Any, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "find_spec", lambda _: None)
    ran = headway("simulate", table, "--slots", 3, "--out", tmp_path / "out")
    assert ran.status == 0
    assert "headway[plot]" in ran.err
    assert ran.out.endswith(f"Written to {tmp_path / 'out'}: metrics.json, metrics.csv, schedule-easy.csv.\n")
    assert (tmp_path / "out" / "metrics.json").exists()


def test_the_table_shows_due_dates_only_where_there_are_any(headway: Any, table: Path) -> None:
    ran = headway("simulate", table, "--slots", 3)
    assert "3 jobs released within 2 s, on 3 slots." in ran.out
    assert "missed" in ran.out
    assert "violation" not in ran.out
    table.write_text(TABLE.replace(",20,", ",,"))
    assert "missed" not in headway("simulate", table, "--slots", 3).out


def test_the_table_leaves_out_what_says_nothing(headway: Any, table: Path) -> None:
    """Jobs that failed or never ended where there are none, and the penalty of late jobs that no priority weighs."""
    late = TABLE.replace(",20,", ",1,")
    table.write_text(late)
    told = headway("simulate", table, "--slots", 3).out
    assert "100.0%" in told
    for heading in ("not ended", "failed", "miss penalty"):
        assert heading not in told
    table.write_text(late.replace(",1,,,v", ",1,2,,v"))
    assert "miss penalty" in headway("simulate", table, "--slots", 3).out


def test_what_lateness_costs_is_shown_where_rates_or_shapes_say_something(headway: Any, table: Path) -> None:
    table.write_text("runtime,due,user\n3,1,ann\n")
    assert "penalty" not in headway("simulate", table, "--slots", 1).out
    table.write_text("runtime,due,user,rate,shape\n3,1,ann,1,square\n2,1,eve,7,sqrt\n")
    assert "penalty" in headway("simulate", table, "--slots", 2).out
    told = json.loads(headway("simulate", table, "--slots", 2, "--json").out)
    assert told[0]["penalty_by_user"] == {"ann": 4, "eve": 7}
    assert told[0]["metrics"]["total_penalty"] == 11


class Narrow:
    """Starts only jobs of one slot, and plans slots that do not exist for all others."""

    per_instant, task_rounds = True, False

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        for job in view.waiting:
            assert job.kind is Kind.RIGID
            plan.hold(job.id, view.free & -view.free if job.width == 1 else 1 << 99)
        return plan


def test_what_the_means_hide_is_said_below_the_table(
    headway: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda text: Narrow() if text == "narrow" else find(text))
    words = ("simulate", table, "--slots", 3, "--policy", "easy", "--policy", "narrow")
    lines = headway(*words).out.splitlines()
    assert "narrow: 2 jobs did not end; their waits are in no mean." in lines
    heading, _, easy, narrow = lines[1:5]
    at = heading.index("not ended") + len("not ended") - 1
    assert (easy[at], narrow[at]) == ("0", "2")
    _, told = json.loads(headway(*words, "--json").out)
    refusals = told["metrics"]["refusals"]
    assert refusals > 1
    (refused,) = (line for line in lines if "refused" in line)
    assert refused.startswith(f"narrow: {refusals} parts of its plans were refused (")
    assert f": {refusals})." in refused
    assert not [line for line in lines if line.startswith("easy:")]


def test_jobs_that_ended_badly_are_said_each_by_what_became_of_them() -> None:
    became = (JobStatus.SUCCEEDED, JobStatus.RUNNING, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.WAITING)
    done = schedule_of(
        workload_us(release=[0] * 5, runtime=[1] * 5),
        Course([0, 0, 0, 0, NOT_YET], [1, NOT_YET, 1, 1, NOT_YET], status=[STATUSES.index(one) for one in became]),
        5,
        Totals(refused={"job_unknown": 1}, kills=1234, lost=90 * SECOND),
    )
    assert list(module._remarks(done)) == [
        "1 job did not end; its wait is in no mean.",
        "1 job started but did not end; its response time is in no mean.",
        "1 job failed; its response time is in no mean.",
        "1 job was cancelled; its response time is in no mean.",
        "1,234 attempts were killed and redone; the utilisation includes 90 s of work that was lost.",
        "1 part of its plans was refused (job_unknown: 1).",
    ]


def test_a_cluster_file_gives_the_nodes(headway: Any, table: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[[node]]\nname = "fast"\nslots = 3\nspeed = 2\n')
    headway("simulate", table, "--cluster", cluster, "--schedule", tmp_path / "out.csv")
    assert [line["end"] for line in schedule(tmp_path / "out.csv")] == ["5", "7.5", "11"]


def test_as_first_and_load(headway: Any, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    headway("simulate", table, "--slots", 2, "--as", "bags", "--policy", "edf", "--schedule", out)
    assert [line["slots"] for line in schedule(out)] == ["2", "2", "1"]
    headway("simulate", table, "--slots", 3, "--first", 2, "--schedule", out)
    assert len(schedule(out)) == 2
    headway("simulate", table, "--slots", 3, "--load", "3.5", "--schedule", out)
    releases = [float(line["release"]) for line in schedule(out)]
    assert releases[0] == 0
    assert releases[2] == pytest.approx(2 * releases[1], abs=1e-5)
    assert releases[2] != 2


# The head (c) waits for all three slots. When b ends at 40, either d or e moves there, whichever comes first.
TIERS = """\
job,release,width,runtime,estimate,cpu
a,0,2,100,100,0.5
b,0,1,40,40,0.5
c,0,3,10,10,0.5
d,0,1,90,90,0.5
e,0,1,90,90,0.5
"""


def ends(headway: Any, table: Path, tmp_path: Path, *words: object) -> dict[str, float]:
    """When each job ends."""
    ran = headway("simulate", table, "--slots", 3, "--schedule", tmp_path / "out.csv", *words)
    assert (ran.status, ran.err) == (0, "")
    return {line["job"]: float(line["end"]) for line in schedule(tmp_path / "out.csv")}


def test_kills_and_migrations_are_columns_where_there_are_any_and_always_in_json(headway: Any, table: Path) -> None:
    table.write_text(TIERS)
    words = ("simulate", table, "--slots", 3, "--policy", "easy")
    plain = headway(*words).out
    assert "kills" not in plain
    assert "migrations" not in plain
    assert "CPU use" not in plain, "nothing ran in the background"
    words = (*words, "--policy", "keasy", "--policy", "measy")
    both = headway(*words).out
    assert both.count("kills  migrations") == 1
    for policy, kills, migrations in (("easy", 0, 0), ("keasy", 1, 0), ("measy", 0, 1)):
        assert re.search(rf"^{policy} .* {kills} +{migrations} +[0-9.]+ ms$", both, re.MULTILINE), policy
    assert "keasy: 1 attempt was killed and redone.\n" in both
    assert both.endswith("All jobs say their CPU use. Policies know all of it (--cpu drawn).\n")
    told = json.loads(headway(*words, "--json").out)
    counted = [(one["metrics"]["kills"], one["metrics"]["migrations"]) for one in told]
    assert counted == [(0, 0), (1, 0), (0, 1)]


@pytest.mark.parametrize(("policy", "option"), [("measy", "--migration-cost"), ("keasy", "--kill-cost")])
def test_a_move_costs_what_is_said(headway: Any, table: Path, tmp_path: Path, policy: str, option: str) -> None:
    table.write_text(TIERS)
    none = ends(headway, table, tmp_path, "--policy", policy, option, "0")
    some = ends(headway, table, tmp_path, "--policy", policy, option, "0.5m")
    assert some.pop("d") - none.pop("d") == pytest.approx(30)
    assert some == none
    moved = ends(headway, table, tmp_path, "--policy", "measy")["d"]
    assert moved - ends(headway, table, tmp_path, "--policy", "measy", "--migration-cost", "0s")["d"] == pytest.approx(
        20
    )


def test_cpu_use_that_nobody_says_is_drawn_by_the_seed_and_told_or_not(
    headway: Any, table: Path, tmp_path: Path
) -> None:
    table.write_text(TIERS.replace("a,0,2,100,100,0.5", "a,0,2,100,100,"))
    words = ("--policy", "reasy", "--cpu")
    told = {
        cpu: headway("simulate", table, "--slots", 3, *words, cpu).out.splitlines()[-1] for cpu in ("given", "unknown")
    }
    drawn = (
        "1 of 5 jobs do not say their CPU use: it is drawn from 40% to 100%, and that of one process is 100% "
        "(--seed 0)."
    )
    assert told == {
        "given": f"{drawn} Policies know what the file says (--cpu given).",
        "unknown": f"{drawn} Policies know nothing of it (--cpu unknown).",
    }
    table.write_text(TIERS.replace("0.5", "1").replace("40,40", "100,100"))
    known = ends(headway, table, tmp_path, "--policy", "reasy:per_instant=true")
    assert known == ends(headway, table, tmp_path, "--policy", "easy"), "behind a busy process nobody is put"
    unknown = ends(headway, table, tmp_path, "--policy", "reasy:per_instant=true", "--cpu", "unknown")
    assert unknown != known
    table.write_text(TIERS.replace(",0.5", ","))
    assert ends(headway, table, tmp_path, *words, "drawn") == ends(
        headway, table, tmp_path, *words, "drawn", "--seed", 0
    )
    assert ends(headway, table, tmp_path, *words, "unknown") != ends(
        headway, table, tmp_path, *words, "unknown", "--seed", 1
    )


def test_noise_is_a_factor_on_run_times_that_the_seed_fixes(headway: Any, table: Path, tmp_path: Path) -> None:
    table.write_text(TIERS)
    plain, noisy = ends(headway, table, tmp_path), ends(headway, table, tmp_path, "--noise", 0.2)
    assert plain != noisy == ends(headway, table, tmp_path, "--noise", 0.2)
    assert noisy != ends(headway, table, tmp_path, "--noise", 0.2, "--seed", 1)


def test_jobs_end_at_their_estimate_or_not(headway: Any, tmp_path: Path) -> None:
    log, table = tmp_path / "log.swf", tmp_path / "jobs.csv"
    log.write_text("1 0 0 90 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
    table.write_text("job,width,runtime,estimate\n1,1,90,60\n2,1,5,0\n")
    assert ends(headway, log, tmp_path) == ends(headway, log, tmp_path, "--cut") == {"1": 60}
    assert ends(headway, log, tmp_path, "--no-cut") == {"1": 90}
    assert ends(headway, table, tmp_path) == ends(headway, table, tmp_path, "--no-cut") == {"1": 90, "2": 5}
    assert ends(headway, table, tmp_path, "--cut") == {"1": 60, "2": 0}
    said = headway("simulate", table, "--slots", 3).out
    assert "\njobs that run longer than their estimate: 2, 1 of them with an estimate of 0; --cut ends" in said
    assert "longer than their estimate, and are cut there: 2" in headway("simulate", table, "--slots", 3, "--cut").out


@pytest.mark.parametrize("policy", ["easy", "conservative", "keasy", "reasy", "measy"])
def test_estimates_of_zero_below_the_run_time_or_absurd_gaps_and_disorder_stop_nothing(
    headway: Any, table: Path, tmp_path: Path, policy: str
) -> None:
    table.write_text(
        "job,release,width,runtime,estimate\n"
        "late,3000000,3,50,50\n"
        "zero,0,2,90,0\nlow,0,1,80,1\nabsurd,1,3,70,1000000000000\nsmall,2,1,60,60\nnone,3,3,5,none\n"
    )
    done = ends(headway, table, tmp_path, "--policy", policy)
    assert done["late"] == 3000050
    assert set(done) == {"late", "zero", "low", "absurd", "small", "none"}
    assert 165 <= max(time for job, time in done.items() if job != "late") <= 350
    said = headway("simulate", table, "--slots", 3).out
    assert "more than a year, kept as it is: 1, first job absurd" in said
    assert "gaps of more than 7 days between releases: 1, the longest of 35 days after job none" in said


def test_a_job_of_a_table_that_is_too_wide_is_named_with_its_line(headway: Any, table: Path) -> None:
    ran = headway("simulate", table, "--slots", 2)
    assert ran.status == 2
    assert f"{table}:3: width of job b is 3; allowed: at most 2, the slots of the cluster" in ran.err
    assert headway("simulate", table, "--slots", 2, "--as", "bags").status == 0


def test_counts_of_a_log_that_is_run_in_part_are_said_to_be_of_the_whole(headway: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    jobs = ((1, 50, 1, 60), (2, 90, 1, 60), (3, 50, 9, 60))  # the second runs past its estimate, the third is too wide
    log.write_text("".join(f"{n} {n} 0 {run} {p} -1 -1 {p} {e} -1 1 1 1 -1 -1 -1 -1 -1\n" for n, run, p, e in jobs))
    words = ("simulate", log, "--slots", 4)
    whole, part = headway(*words).out, headway(*words, "--first", 1).out
    assert "Left out: 1 job wider than the machine.\njobs that ran longer than their estimate" in whole
    assert "Left out of the whole log: 1 job wider than the machine.\n" in part
    assert "\nIn the whole log: jobs that ran longer than their estimate" in part
    (told,) = json.loads(headway(*words, "--first", 1, "--json").out)
    assert (told["jobs"], told["dropped"]) == (1, 1)


def test_the_recipe_is_fixed_by_its_seed(headway: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(
        "".join(f"{n} {n * 60} 0 900 {n % 7 + 1} -1 -1 -1 900 -1 1 {n % 5} 1 -1 -1 -1 -1 -1\n" for n in range(1, 400))
    )
    words = ("simulate", log, "--slots", 4, "--recipe", "lin14", "--policy", "deadline", "--json")

    def told(seed: int) -> Any:
        (one,) = json.loads(headway(*words, "--seed", seed).out)
        return one["jobs"], {name: value for name, value in one["metrics"].items() if "decision" not in name}

    assert told(1) == told(1)
    assert told(1)[0] == 4
    assert told(1)[1]["jobs_due"] == 4
    assert told(1) != told(2)


def test_progress_of_a_long_run_is_one_line_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with module.RunProgress("easy") as say:
        assert say is None
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with module.RunProgress("easy") as say:
        assert say is not None
        now[0] = 0.4
        say(10, 1000)
        assert capsys.readouterr().err == ""
        now[0] = 10.0
        say(100, 1000)
        line = capsys.readouterr().err
        assert line == "\reasy: 100 of 1,000 jobs ended, about 90 s left"
    assert capsys.readouterr().err == f"\r{' ' * (len(line) - 1)}\r"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "does not say how large its machine is"),
        (("--slots", 3, "--cluster", "x.toml"), "not both"),
        (("--slots", 0), "slots is 0"),
        (("--slots", 3, "--policy", "eazy"), "Did you mean easy"),
        (("--slots", 3, "--policy", "easy:ordr=due"), "Did you mean order?"),
        (("--slots", 2), "at most 2"),
        (("--slots", 3, "--recipe", "lin15"), "Did you mean lin14?"),
        (("--slots", 3, "--recipe", "lin14", "--seed", "-1"), "seed is -1"),
        (("--slots", 3, "--first", 0), "first"),
        (("--slots", 3, "--load", "-1"), "load is -1"),
        (("--slots", 3, "--as", "bag"), "bags"),
        (("--slots", 3, "--cpu", "guessed"), "--cpu is 'guessed'; allowed: given, drawn, unknown"),
        (("--slots", 3, "--noise", "-1"), "--noise is -1; allowed: 0 to 10"),
        (("--slots", 3, "--migration-cost", "soon"), "--migration-cost is 'soon'; allowed: a duration such as 90s"),
        (("--slots", 3, "--kill-cost", "1" + "0" * 20 + "d"), "--kill-cost is"),
        (("--slots", 3, "--schedule", "/nowhere/out.csv"), "cannot write"),
    ],
)
def test_bad_input_is_said(headway: Any, table: Path, words: tuple[object, ...], said: str) -> None:
    ran = headway("simulate", table, *words)
    assert ran.status == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "jobs.csv"), (TABLE.replace("a,0,", "a,soon,"), "jobs.csv:2: release is 'soon'"), (TABLE[:20], "jobs.csv")],
)
def test_a_broken_table_is_said_with_its_line(headway: Any, table: Path, text: str, said: str) -> None:
    table.write_text(text)
    ran = headway("simulate", table, "--slots", 3)
    assert ran.status == 2
    assert said in ran.err


@pytest.mark.parametrize(("option", "lines"), [("--schedule", 0), ("--out", 1)])
def test_what_cannot_be_written_is_said_before_the_run(
    headway: Any, table: Path, monkeypatch: pytest.MonkeyPatch, option: str, lines: int
) -> None:
    def run(*_: object, **__: object) -> None:
        raise AssertionError("the simulation was run")

    monkeypatch.setattr("headway.sim.experiment.run", run)
    ran = headway("simulate", table, "--slots", 3, option, f"{table}/below/out.csv")
    assert (ran.status, ran.out.count("\n")) == (2, lines)
    assert "cannot write" in ran.err


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Two hundred jobs in a row, each of which waits for those before it."""
    path = tmp_path / "queue.csv"
    lines = [f"{number},{8 * number},,1,{5 + number % 7},,,,," for number in range(200)]
    path.write_text("\n".join([TABLE.splitlines()[0], *lines]) + "\n")
    return path


def test_means_have_their_intervals_where_batches_are_asked_for(headway: Any, queue: Path) -> None:
    told = json.loads(headway("simulate", queue, "--slots", 1, "--batches", 10, "--warm-up", 0.1, "--json").out)[0]
    assert set(told["intervals"]) == {"wait_mean", "response_mean", "bounded_slowdown_mean"}
    found = told["intervals"]["response_mean"]
    assert list(found) == ["mean", "low", "high", "batches", "correlation"]
    assert found["batches"] == 10
    assert found["low"] < found["mean"] < found["high"]
    plain = json.loads(headway("simulate", queue, "--slots", 1, "--json").out)[0]
    assert "intervals" not in plain
    assert plain["metrics"]["response_mean"] == told["metrics"]["response_mean"]  # over all jobs, as without the option

    shown = headway("simulate", queue, "--slots", 1, "--batches", 10, "--warm-up", 0.1).out
    assert shown.count(" ± ") == 3
    assert f"{found['mean']:.3g} s ± {(found['high'] - found['low']) / 2:.3g} " in shown
    assert "±" not in headway("simulate", queue, "--slots", 1).out


def test_intervals_that_are_too_narrow_are_said(headway: Any, tmp_path: Path) -> None:
    path = tmp_path / "overload.csv"
    lines = [f"{number},{8 * number},,1,9,,,,," for number in range(200)]  # the queue grows with every job
    path.write_text("\n".join([TABLE.splitlines()[0], *lines]) + "\n")
    said = headway("simulate", path, "--slots", 1, "--warm-up", 0).out
    assert "easy: neighbouring batches are alike (wait, response, slowdown)" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--batches", 1), "batches is 1; allowed: 2 to 190"),
        (("--batches", 191), "batches is 191; allowed: 2 to 190"),
        (("--warm-up", 1), "--warm-up is 1; allowed"),
    ],
)
def test_batches_that_cannot_be_are_said_before_anything_runs(
    headway: Any, queue: Path, words: tuple[object, ...], said: str
) -> None:
    ran = headway("simulate", queue, "--slots", 1, *words)
    assert ran.status == 2
    assert said in ran.err


def test_run_times_that_are_known_are_the_estimates(headway: Any, tmp_path: Path) -> None:
    """Job 1 has one of two slots for 10 s; job 2 wants both. Job 3 could go before it, but says it takes longer."""
    log = tmp_path / "log.swf"
    rows = (
        "1 0 -1 10 1 -1 -1 1 10",
        "2 1 -1 5 2 -1 -1 2 5",
        "3 2 -1 4 1 -1 -1 1 100",
    )
    log.write_text("".join(f"{row}{' -1' * 9}\n" for row in rows))
    starts = {}
    for estimates in ("user", "exact"):
        out = tmp_path / f"{estimates}.csv"
        headway("simulate", str(log), "--slots", "2", "--estimates", estimates, "--schedule", str(out))
        starts[estimates] = [float(row["start"]) for row in schedule(out)]
    assert starts == {"user": [0, 10, 15], "exact": [0, 10, 2]}


POWERED = """
[[node]]
name = "a"
site = "east"
idle_watts = 100
peak_watts = 300
[[node]]
name = "b"
site = "west"
"""


def test_energy_is_told_by_node_site_and_job_if_all_nodes_say_what_they_draw(headway: Any, tmp_path: Path) -> None:
    jobs, cluster = tmp_path / "jobs.csv", tmp_path / "c.toml"
    jobs.write_text("release,runtime,job\n0,10,a\n0,30,b\n")
    cluster.write_text(POWERED + "idle_watts = 10\npeak_watts = 20\n")
    run = ("simulate", jobs, "--cluster", cluster, "--policy", "fcfs", "--policy", "edf")
    told = json.loads(headway(*run, "--json").out)[0]
    energy = told["energy"]
    # Job a runs on node a for 10 s, and job b on node b for 30 s; each node is on until its site has done its work.
    assert (energy["nodes"], energy["sites"]) == ({"a": 3000, "b": 600}, {"east": 3000, "west": 600})
    assert energy["jobs"] == {"a": 3000, "b": 600}
    assert energy["idle"] == {"a": 0, "b": 0}
    assert told["metrics"]["energy_joules"] == 3600
    assert "1 Wh" in headway(*run, "--out", tmp_path / "out").out
    assert (tmp_path / "out" / "energy.png").stat().st_size > 1000
    cluster.write_text(POWERED)
    assert json.loads(headway(*run, "--json").out)[0]["energy"] is None
    assert "energy" not in headway(*run).out


def test_where_tasks_ran_is_told_if_there_are_several_sites(headway: Any, tmp_path: Path) -> None:
    """Two tasks end in time at the first site, which takes a second to begin, and one is left for the second."""
    jobs, cluster = tmp_path / "jobs.csv", tmp_path / "c.toml"
    jobs.write_text("job,release,runtime,tasks,estimate,due\n1,0,10,3,10,25\n")
    nodes = "".join(f'[[node]]\nname = "{name}"\nsite = "{name}"\n' for name in ("attic", "cellar"))
    cluster.write_text(f'[[site]]\nname = "cellar"\nstartup = 1\n[[site]]\nname = "attic"\n{nodes}')
    run = ("simulate", jobs, "--cluster", cluster, "--policy")
    told = json.loads(headway(*run, "sites:top=prefer", "--json").out)
    assert told[0]["sites"] == {
        "attic": {"tasks": 1, "jobs": 1, "slot_seconds": 10.0},
        "cellar": {"tasks": 2, "jobs": 1, "slot_seconds": 22.0},
    }
    shown = headway(*run, "sites:top=prefer", "--policy", "edf").out
    assert "of all slot time" in shown
    assert "68.8%" in shown
    wrong = headway(*run, "sites:top=prefer,order=celar")
    assert wrong.status == 2
    assert "'celar'; allowed: a site of this cluster: attic, cellar" in wrong.err
    assert "sites" not in json.loads(headway("simulate", jobs, "--slots", 2, "--policy", "edf", "--json").out)[0]
