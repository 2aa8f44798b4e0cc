"""`headway simulate` without a cluster, and what it says of comparisons that show no difference."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.traces import read_swf, write_swf
from headway.traces.transforms import missing_due_dates

LINE = "{job} {submit} -1 {run} {width} -1 -1 {width} {run} -1 1 1 1 -1 -1 -1 -1 -1\n"


def log(path: Path, header: str, *jobs: tuple[int, int, int]) -> Path:
    """A log of jobs, each with submission, run time and processors."""
    lines = (LINE.format(job=job, submit=at, run=run, width=width) for job, (at, run, width) in enumerate(jobs, 1))
    text = header + "".join(lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    return path


BUSY = ((0, 100, 3), (1, 100, 4), (2, 10, 1), (3, 100, 2))


@pytest.mark.parametrize(
    ("header", "slots"),
    [("; MaxProcs: 4\n", 4), ("; MaxNodes: 5\n", 5), ("; MaxNodes: 2\n; MaxProcs: 8\n", 8)],
)
@pytest.mark.parametrize("name", ["log.swf", "log.swf.gz"])
def test_the_header_says_how_large_the_machine_is(
    headway: Any, tmp_path: Path, header: str, slots: int, name: str
) -> None:
    path = log(tmp_path / name, header, *BUSY)
    ran = headway("simulate", path)
    assert ran.status == 0
    assert ran.out.startswith(f"4 jobs released within 3 s, on {slots} slots, as its header says.\n")
    same = headway("simulate", path, "--slots", slots)
    assert same.out.startswith(f"4 jobs released within 3 s, on {slots} slots.\n")

    def metrics(ran: Any) -> dict[str, Any]:
        return {name: value for name, value in json.loads(ran.out)[0]["metrics"].items() if "decision" not in name}

    assert metrics(headway("simulate", path, "--json")) == metrics(
        headway("simulate", path, "--slots", slots, "--json")
    )


@pytest.mark.parametrize("command", ["simulate", "forecast", "predict"])
def test_an_unknown_policy_is_said_before_the_size_of_the_machine_is_asked_for(
    command: str, headway: Any, tmp_path: Path
) -> None:
    ran = headway(command, log(tmp_path / "log.swf", "", *BUSY), "--policy", "eazy")
    assert ran.err.startswith("Error: --policy is 'eazy'; allowed: ")
    assert ran.err.endswith("\nDid you mean easy or reasy or measy?\n")


def test_where_nobody_says_it_the_widest_job_is_told(headway: Any, tmp_path: Path) -> None:
    ran = headway("simulate", log(tmp_path / "log.swf", "; Computer: one\n; MaxProcs: -1\n", *BUSY))
    assert (ran.status, ran.out) == (2, "")
    assert "log.swf does not say how large its machine is" in ran.err
    assert "--slots N, at least 4 for its widest job, or with --cluster FILE.toml" in ran.err
    ran = headway("simulate", log(tmp_path / "log.swf", "", *BUSY), "--slots", 4, "--cluster", "c.toml")
    assert (ran.status, "not both" in ran.err) == (2, True)


def test_policies_by_due_date_want_due_dates(headway: Any, tmp_path: Path) -> None:
    path = log(tmp_path / "log.swf", "; MaxProcs: 4\n", *BUSY)
    ran = headway("simulate", path, "--policy", "easy", "--policy", "edf", "--policy", "easy:order=due", "--json")
    assert "No job has a due date, and edf and easy:order=due decide by due dates." in ran.err
    assert "--due-factor 2" in ran.err
    json.loads(ran.out)
    assert headway("simulate", path, "--policy", "easy", "--policy", "fcfs").err == ""
    given = headway("simulate", path, "--policy", "edf", "--due-factor", 1.5)
    assert given.err == ""
    assert "missed" in given.out
    refused = headway("simulate", path, "--due-factor", -1).err
    assert refused == "Error: --due-factor is -1; allowed: a number above 0\n"
    refused = headway("simulate", path, "--due-factor", 1e30).err
    assert "--due-factor is 1e+30; allowed: at most about 4.6e+10" in refused
    table = tmp_path / "jobs.csv"
    table.write_text("release,runtime,due\n0,5,9\n0,5,\n")
    assert headway("simulate", table, "--slots", 1, "--policy", "edf").err == ""


def test_kinds_of_jobs_that_a_policy_does_not_serve_are_named_before_the_run(headway: Any, tmp_path: Path) -> None:
    path, mine = log(tmp_path / "log.swf", "; MaxProcs: 4\n", *BUSY), tmp_path / "mine.py"
    mine.write_text(
        "from headway.model.job import Kind\n"
        "from headway.policies.backfill import Easy\n"
        "class Rigid:\n"
        "    per_instant = task_rounds = False\n"
        "    serves = (Kind.RIGID,)\n"
        "    def __call__(self, view):\n"
        "        return Easy()(view)\n"
    )
    ran = headway("simulate", path, "--as", "bags", "--policy", f"{mine}:Rigid", "--policy", "easy", "--json")
    assert f"{mine}:Rigid serves only rigid jobs." in ran.err
    assert "The workload has 4 of the kind bag, which will never start." in ran.err
    assert "--as rigid" in ran.err
    (told, easy) = json.loads(ran.out)
    assert (told["metrics"]["jobs_unfinished"], easy["metrics"]["jobs_unfinished"]) == (4, 0)


def test_only_missing_due_dates_are_made(tmp_path: Path) -> None:
    jobs = read_swf(log(tmp_path / "log.swf", "", *BUSY))
    made = missing_due_dates(jobs, 2)
    assert made.seconds("due").tolist() == [200, 201, 22, 203]
    assert missing_due_dates(made, 9).seconds("due").tolist() == [200, 201, 22, 203]
    write_swf(made, tmp_path / "again.swf")


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (((0, 10, 1), (100, 10, 1)), "No job waits under any policy"),
        (((0, 1000, 4), (998, 1000, 4)), "Jobs spend only 0.1% of their time waiting under any policy"),
        (((0, 100_000, 4), (99_999, 100_000, 4)), "Hardly a job waits under any policy"),
        (
            ((0, 100, 4), (1, 100, 4)),
            "Both policies start and end every job at the same times: they decide alike here.",
        ),
        (
            ((0, 100, 4), (20, 500, 2), (5000, 50, 4)),
            "The load is 0.08. At such a load they can hardly be told apart: raise it to --load 0.9 or give fewer",
        ),
    ],
)
def test_a_comparison_that_tells_nothing_says_so(
    headway: Any, tmp_path: Path, jobs: tuple[tuple[int, int, int], ...], said: str
) -> None:
    path = log(tmp_path / "log.swf", "; MaxProcs: 4\n", *jobs)
    ran = headway("simulate", path, "--policy", "easy", "--policy", "fcfs")
    assert said in ran.err
    assert "The load is " in ran.err
    assert ("give fewer --slots" in ran.err) == ("alike" not in said)
    assert ("--load 0.9" in ran.err) == said.startswith(("No job", "The load"))
    assert headway("simulate", path, "--policy", "easy").err == "", "one policy is no comparison"


def test_one_that_tells_something_does_not(headway: Any, tmp_path: Path) -> None:
    path = log(tmp_path / "log.swf", "; MaxProcs: 4\n", *BUSY)
    assert headway("simulate", path, "--policy", "easy", "--policy", "fcfs").err == ""


@pytest.mark.long
def test_a_policy_in_a_file_is_compared(headway: Any, tmp_path: Path) -> None:
    path = log(tmp_path / "log.swf", "; MaxProcs: 4\n", *BUSY)
    (tmp_path / "my.py").write_text("from headway.policies.backfill import Easy\n\nclass Mine(Easy):\n    pass\n")
    policy = f"{tmp_path}/my.py:Mine,order=shortest"
    ran = headway("simulate", path, "--policy", policy, "--policy", "easy:order=shortest", "--out", tmp_path / "out")
    assert ran.status == 0, ran.err
    assert "Both policies start and end every job at the same times" in ran.err
    told = json.loads(headway("simulate", path, "--policy", policy, "--json").out)
    assert told[0]["policy"] == policy
