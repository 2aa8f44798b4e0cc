"""The commands of the second day with a real server: status, wait, change, stop."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, Task
from headway.cli.main import GOES_ON
from headway.times import instant_of, span_of

from ..commands import Ran
from ..waiting import LIMIT, until
from .conftest import held, submitted

FORESEEN = {
    *("outlook", "expected_start", "expected_end", "expected_at", "behind", "late", "assumes", "chance", "lack"),
    "penalty_expected",
}
"""What a forecast says of a job; it comes when it is ready."""


def succeeded(headway: Any) -> int:
    number = submitted(headway, "true")
    assert headway("wait", number) == Ran(0, f"{number} succeeded 1/1\n", "")
    return number


def failed(headway: Any) -> int:
    number = submitted(headway, "--tasks", 3, "--", "sh", "-c", "exit {i}")
    assert headway("wait", number) == Ran(1, f"{number} failed 1/3, 2 failed\n", "")
    return number


def test_a_table_of_jobs_says_what_it_leaves_out_and_lists_for_programs_are_whole(headway: Any, up: Any) -> None:
    with Client(data=up.data) as client:
        client.wait(*client.submit([Job("many", [Task.command("true")]) for _ in range(60)]))
    numbers = [job["id"] for job in json.loads(headway("jobs", "--json").out)]
    assert len(numbers) >= 60
    assert numbers == [job["id"] for job in json.loads(headway("jobs", "--status", "succeeded", "--json").out)]
    table = headway("jobs").out
    assert f"These are the latest 50 of {len(numbers)} jobs; `headway jobs --last N` lists more." in table
    shown = [int(line.split()[0]) for line in table.splitlines() if line.split()[:1] and line.split()[0].isdecimal()]
    assert shown == numbers[-50:]
    assert "These are the latest" not in headway("jobs", "--status", "succeeded").out
    assert f"These are the latest 3 of {len(numbers)} jobs" in headway("jobs", "--status", "succeeded", "--last", 3).out


def test_status_says_a_line_each_and_its_exit_status_the_worst(headway: Any, tmp_path: Path) -> None:
    well, badly = succeeded(headway), failed(headway)
    runs = held(headway, tmp_path)
    until(lambda: (tmp_path / "gate.0").exists())
    assert headway("status", well) == Ran(0, f"{well} succeeded 1/1\n", "")
    assert headway("status", runs, well) == Ran(GOES_ON, f"{runs} running 0/1\n{well} succeeded 1/1\n", "")
    assert headway("status", runs, badly).status == 1
    told = headway("status", well, runs, "--json")
    assert told.status == GOES_ON
    assert [(job["id"], job["status"]) for job in json.loads(told.out)] == [(well, "succeeded"), (runs, "running")]
    unknown = headway("status", well, 9999)
    assert (unknown.status, unknown.out) == (2, "")
    assert "there is no job 9999" in unknown.err


def test_wait_ends_with_the_jobs_or_its_timeout(headway: Any, tmp_path: Path) -> None:
    well = succeeded(headway)
    runs = held(headway, tmp_path)
    until(lambda: (tmp_path / "gate.0").exists())
    late = headway("wait", well, runs, "--timeout", "50ms")
    assert late.status == GOES_ON
    assert late.out == f"{well} succeeded 1/1\n{runs} running 0/1\n"
    assert late.err == "1 job of 2 did not end within 0.05 s.\n"
    assert headway("wait", runs, "--timeout", "50ms").err == f"Job {runs} did not end within 0.05 s.\n"
    opening = threading.Timer(0.3, (tmp_path / "gate").unlink)
    opening.start()
    assert headway("wait", runs, well, "--timeout", f"{LIMIT}s") == Ran(
        0, f"{runs} succeeded 1/1\n{well} succeeded 1/1\n", ""
    )
    opening.join()


def test_wait_hears_of_a_job_that_is_cancelled_meanwhile(headway: Any, up: Any, tmp_path: Path) -> None:
    runs = held(headway, tmp_path)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "headway", "wait", "--json", "--data", str(up.data), str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with Client(data=up.data) as client:
        until(lambda: client.statistics().listeners >= 1)
    assert headway("cancel", runs).status == 0
    out, err = waiting.communicate(timeout=LIMIT)
    assert (waiting.returncode, err) == (1, "")
    assert [(job["id"], job["status"]) for job in json.loads(out)] == [(runs, "cancelled")]


def test_tasks_that_are_done_failed_and_cancelled_are_said_apart(headway: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    script = f"case {{i}} in 0) exit 0 ;; 1) exit 3 ;; esac; while [ -e {gate} ]; do sleep 0.01; done"
    number = submitted(headway, "--tasks", 6, "--", "sh", "-c", script)
    until(lambda: headway("status", number).out == f"{number} running 1/6, 1 failed\n")
    assert headway("cancel", number, "--task", 5).status == 0
    assert headway("status", number).out == f"{number} running 1/6, 1 failed, 1 cancelled\n"
    assert headway("result", number).err.startswith(f"Job {number} is running: 3 of 6 tasks have ended.\n")
    assert re.search(r"^5 +cancelled *$", headway("job", number).out, re.MULTILINE), "it has not run"
    assert headway("cancel", number).status == 0
    assert headway("wait", number) == Ran(1, f"{number} cancelled 1/6, 1 failed, 4 cancelled\n", "")
    assert re.search(r"tasks done +1/6, 1 failed, 4 cancelled\s", headway("job", number).out)
    assert "1/6, 1 failed, 4 cancelled" in headway("jobs").out
    told = json.loads(headway("status", number, "--json").out)
    assert [(job["done"], job["failed"], job["cancelled"]) for job in told] == [(1, 1, 4)]


def foretold(headway: Any, *words: object) -> Ran:
    """A command that tells whether a job will be on time, given again while a busy machine leaves no time for that."""
    while "is not ready" in (ran := headway(*words)).err:
        pass
    return ran


def test_change_gives_open_jobs_new_terms(headway: Any, tmp_path: Path) -> None:
    well = succeeded(headway)
    runs = held(headway, tmp_path, "--due", "1h", "--name", "of which nothing is known")
    ran = foretold(headway, "change", runs, "--priority", 7, "--due", "2h")
    assert (ran.status, ran.out) == (0, "Changed.\n")
    assert ran.err.startswith(f"Whether job {runs} will be on time is not known: there is no estimate for its tasks.")
    job = json.loads(headway("job", runs, "--json").out)["job"]
    assert job["priority"] == 7
    assert job["due"] - time.time() == pytest.approx(7200, abs=60)
    assert headway("change", runs, "--priority", "-1").status == 0
    job = json.loads(headway("job", runs, "--json").out)["job"]
    assert (job["priority"], job["due"] - time.time()) == (-1, pytest.approx(7200, abs=60))
    partly = headway("change", runs, well, "--priority", 2)
    assert (partly.status, partly.out) == (1, "Changed 1 job.\n")
    assert partly.err.endswith(f"\nJob {well} has ended; it stays as it was.\n")
    assert json.loads(headway("change", well, runs, "--priority", 3, "--json").out) == {
        "changed": [runs],
        "ended": [well],
    }
    assert "has passed" in headway("change", runs, "--due", "2020-01-01T00:00").err
    assert headway("change", runs, "--rate", "2.5", "--shape", "sqrt").status == 0
    job = json.loads(headway("job", runs, "--json").out)["job"]
    assert (job["rate"], job["shape"], job["priority"]) == (2.5, "sqrt", 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "there is nothing to change"),
        (("--rate", "-1"), "--rate is -1; allowed: a finite number, 0 or more"),
        (("--rate", "nan"), "--rate is 'nan'; allowed: a finite number, 0 or more"),
        (("--shape", "cubic"), "--shape is 'cubic'; allowed: linear, sqrt, square"),
        (("--threshold", "1s"), "--threshold is '1s'; allowed: none: job {} is no service"),
        (("--fraction", "0.5"), "--fraction is 0.5; allowed: none: job {} is no service"),
        (("--min", "1"), "--min is 1; allowed: none: job {} is no service"),
    ],
)
def test_a_change_that_is_not_allowed_is_named(
    headway: Any, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    runs = held(headway, tmp_path)

    def terms() -> dict[str, Any]:
        job = json.loads(headway("job", runs, "--json").out)["job"]
        return {name: value for name, value in job.items() if name not in FORESEEN}

    before = terms()
    ran = headway("change", runs, *options)
    assert ran.status == 2
    assert said.format(runs) in ran.err
    assert terms() == before


def test_change_says_whether_jobs_will_be_on_time_now(headway: Any, tmp_path: Path) -> None:
    runs = held(headway, tmp_path, "--estimate", "10m", "--due", "1h")
    assert "before its due date" in foretold(headway, "change", runs, "--due", "2h").err
    late = foretold(headway, "change", runs, "--due", "10s")
    assert re.search(r"about 9 min .* after its due date: it will be late", late.err)
    without = headway("change", runs, "--due", "None")
    assert (without.out, without.err) == ("Changed.\n", "")
    assert json.loads(headway("job", runs, "--json").out)["job"]["due"] is None
    assert "it will be late" in foretold(headway, "change", runs, "--due", "10s").err
    assert "it will be late" in foretold(headway, "change", runs, "--priority", 4).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("change", 1), "Give --due, --priority, --rate or another option"),
        (("change", 9999, "--priority", 1), "there is no job 9999"),
        (("change", 1, "--due", "soon"), "--due is 'soon'"),
        (("change", 1, "--priority", "high"), "'high'"),
        (("change", 1, "--priority", "nan"), "--priority is 'nan'"),
        (("wait", 9999), "there is no job 9999"),
        (("wait", 1, "--timeout", "long"), "--timeout is 'long'"),
        (("wait",), "ID is missing"),
        (("stop", "--timeout", "long"), "--timeout is 'long'"),
        (("stop", "--data", "nothing-here"), "data is 'nothing-here'; allowed: the data directory of a server"),
    ],
)
def test_bad_input_is_said(headway: Any, words: tuple[object, ...], said: str) -> None:
    succeeded(headway)
    ran = headway(*words)
    assert ran.status == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def serving(data: Path) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "headway", "up", "--slots", "1", "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert "with 1 slot on 1 node." in server.stdout.readline()
    return server


def test_stop_waits_until_the_server_of_the_directory_is_gone(headway: Any, up: Any, tmp_path: Path) -> None:
    data = tmp_path / "own"
    server = serving(data)
    assert headway("stop", "--data", data) == Ran(0, f"The server on {data} has ended.\n", "")
    assert server.wait(LIMIT) == 0
    server.communicate()
    assert headway("stop", "--data", data) == Ran(0, f"No server runs on {data}.\n", "")
    assert json.loads(headway("stop", "--data", data, "--json").out) == {"stopped": False, "pid": None}
    assert headway("jobs").status == 0  # the other server is not affected


@pytest.mark.thorough
def test_waiting_and_following_outlive_a_killed_server(headway: Any, tmp_path: Path) -> None:
    data, gate = tmp_path / "own", tmp_path / "gate"
    gate.touch()
    server = serving(data)
    script = f"echo begun; while [ -e {gate} ]; do sleep 0.01; done; echo over"
    number = headway("submit", "--data", data, "--", "sh", "-c", script).out.strip()
    with Client(data=data) as client:
        until(lambda: client.job(int(number)).attempts)
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "headway", *words, number, "--data", str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in (["wait"], ["logs", "-f"])
    ]
    with Client(data=data) as client:
        until(lambda: client.statistics().listeners >= len(commands))
    server.kill()
    server.communicate()
    server = serving(data)
    gate.unlink()
    (waited, waited_err), (logged, logged_err) = (command.communicate(timeout=LIMIT) for command in commands)
    assert (waited, waited_err) == (f"{number} succeeded 1/1\n", "")
    assert logged.endswith("begun\nover\n")
    assert "Error" not in logged_err
    assert [command.returncode for command in commands] == [0, 0]
    assert headway("stop", "--data", data).status == 0
    server.communicate()


def test_stop_says_who_does_not_answer(headway: Any, tmp_path: Path) -> None:
    data = tmp_path / "own"
    server = serving(data)
    (data / "url").rename(data / "elsewhere")
    mute = headway("stop", "--data", data)
    assert mute.status == 2
    assert f"process {server.pid} uses {data} and does not answer" in mute.err
    (data / "elsewhere").rename(data / "url")
    told = json.loads(headway("stop", "--data", data, "--json").out)
    assert told == {"stopped": True, "pid": server.pid}
    server.communicate()


def test_times_that_commands_print_are_times_that_commands_take(headway: Any, tmp_path: Path) -> None:
    """Every time that `headway job` prints is typed back unchanged."""
    runs = held(headway, tmp_path, "--due", "1h30m", "--estimate", "1 h 06 min")
    until(lambda: (tmp_path / "gate.0").exists())
    shown = {
        name.strip(): text.strip()
        for name, text in (
            re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in page(headway, runs) if "  " in line.strip()
        )
    }
    told = json.loads(headway("job", runs, "--json").out)["job"]
    for name, field in (("due", "due"), ("submitted", "submitted"), ("started", "started")):
        assert instant_of(shown[name], name) == pytest.approx(told[field], abs=1), shown[name]
        assert instant_of(json.dumps(told[field]), name) == told[field]
    assert span_of(shown["estimate"], "estimate") == told["estimate"] == 3960
    assert headway("change", runs, "--due", shown["due"]).out == "Changed.\n"
    assert json.loads(headway("job", runs, "--json").out)["job"]["due"] == pytest.approx(told["due"], abs=1)
    assert headway("change", runs, "--due", json.dumps(told["due"])).out == "Changed.\n"
    assert json.loads(headway("job", runs, "--json").out)["job"]["due"] == told["due"]


def page(headway: Any, job: int) -> list[str]:
    """The lines about a job."""
    lines: list[str] = headway("job", job).out.splitlines()
    return lines
