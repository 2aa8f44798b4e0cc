"""The commands with a real server, as their contract says."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, Task, wire
from headway.cli.demo import DEMO_NODES, SLOTS, SLOTS_SIMULATED, kill_node
from headway.cli.main import INTERRUPTED
from headway.errors import NotTrusted, TaskFailed
from headway.live.driver import FIRST_POLICY
from headway.model.node import NodeSpec
from headway.reproduce.server import own_server
from headway.traces import processors_of

from ..commands import Ran
from ..waiting import LIMIT, until
from .conftest import held, submitted


def test_submit_and_wait_prints_what_the_tasks_wrote_in_order(headway: Any) -> None:
    ran = headway("submit", "--tasks", 5, "--wait", "--", "sh", "-c", "sleep 0.0$((5 - {i})); echo task {i}")
    assert ran.status == 0
    assert ran.out == "".join(f"task {number}\n" for number in range(5))


def test_the_status_is_that_of_the_worst_task(headway: Any) -> None:
    ran = headway("submit", "--tasks", 4, "--wait", "--", "sh", "-c", "echo {i} >&2; exit {i}")
    assert ran.status == 3
    assert "0\n" in ran.err
    assert "failed: exit status 3" in ran.err
    assert headway("submit", "--wait", "--", "sh", "-c", "kill -TERM $$").status == 128 + signal.SIGTERM
    assert headway("submit", "--wait", "--time-limit", "50ms", "sleep", 60).status == 1


def test_submit_says_its_id_at_once_and_result_prints(headway: Any) -> None:
    number = submitted(headway, "--name", "hello", "echo", "{i}", "{x}")
    assert headway("result", number, "--wait") == Ran(0, "0 {x}\n", "")
    assert headway("result", number) == Ran(0, "0 {x}\n", "")
    told = json.loads(headway("result", number, "--json").out)
    assert (told["job"], told["status"]) == (number, "succeeded")
    (one,) = told["results"]
    assert (one["task"], one["outcome"], one["exit_code"], one["stdout"]) == (0, "succeeded", 0, "0 {x}\n")


def test_json_of_submit(headway: Any) -> None:
    assert list(json.loads(headway("submit", "--json", "true").out)) == ["job"]
    told = json.loads(headway("submit", "--json", "--wait", "true").out)
    assert told["status"] == "succeeded"


def test_terms_arrive(headway: Any, up: Any) -> None:
    number = submitted(
        headway, *("--name", "terms", "--due", "90s", "--priority", "2.5", "--tasks", 3, "--estimate", "1m"), "true"
    )
    job = json.loads(headway("job", number, "--json").out)["job"]
    assert (job["name"], job["priority"], job["tasks"], job["estimate"]) == ("terms", 2.5, 3, 60.0)
    assert 90 - LIMIT < job["due"] - job["submitted"] <= 90, "counted from when the command began"
    late = headway("submit", "--due", "2020-01-01T00:00", "true")
    assert late.status == 0
    assert "late from the start" in late.err


def test_together(headway: Any, tmp_path: Path) -> None:
    meet = f"touch {tmp_path}/{{i}}; while ! [ -e {tmp_path}/0 -a -e {tmp_path}/1 ]; do sleep 0.01; done; echo {{i}}"
    ran = headway("submit", "--tasks", 2, "--together", "--wait", "--", "sh", "-c", meet)
    assert (ran.status, ran.out) == (0, "0\n1\n")
    refused = headway("submit", "--tasks", 3, "--together", "true")
    assert refused.status == 2
    assert "--tasks 3 --together needs 3 slots at once; the cluster has 2" in refused.err


def test_a_task_for_each_file(headway: Any, tmp_path: Path) -> None:
    for name, text in (("b.txt", "bb"), ("a.txt", "a")):
        (tmp_path / name).write_text(text)
    ran = headway("submit", "--each", "b.txt", "a.txt", "--wait", "--", "sh", "-c", "cat {file}; echo ' {stem} {i}'")
    assert (ran.status, ran.out) == (0, "bb b 0\na a 1\n")
    ran = headway("submit", "--wait", "--each", "*.txt", "--stdout", "{stem}.out", "--", "cat", "{file}")
    assert ran.status == 0
    assert [(tmp_path / f"{stem}.out").read_text() for stem in "ab"] == ["a", "bb"]
    ran = headway("submit", "--wait", "--together", "--each", "*.txt", "--", "echo", "{stem}", "{i}")
    assert (ran.status, ran.out) == (0, "a 0\nb 1\n")
    ran = headway("submit", "--wait", "--each", "*.txt", "--input", "in={file}", "--", "sh", "-c", "cat in; ls")
    assert (ran.status, ran.out) == (0, "ain\nbbin\n")


def test_where_a_program_runs_and_with_which_variables(
    headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("HEADWAY_TEST_GIVEN", "given here")
    say = "pwd; echo $HEADWAY_TEST_GIVEN $OTHER"
    assert headway("submit", "--wait", "--", "sh", "-c", say).out == f"{tmp_path}\n\n"
    ran = headway(
        *("submit", "--wait", "--cwd", "sub", "--env", "HEADWAY_TEST_GIVEN", "--env", "OTHER=a=b", "--fresh"),
        *("--stdout", "o.txt", "--", "sh", "-c", say),
    )
    assert ran.status == 0
    assert (tmp_path / "sub" / "o.txt").read_text() == f"{tmp_path}/sub\ngiven here a=b\n"
    absent = headway("submit", "--wait", "--cwd", "nowhere", "true")
    assert "Hint: there is no folder nowhere here." in absent.err
    said = f"cannot start 'true': it cannot run in the folder {tmp_path}/nowhere: No such file or directory on node "
    number = absent.err.partition("Job ")[2].partition(" ")[0]
    task = f"Task 0 of job {number} ended as refused: {said}"
    assert said in absent.err
    assert json.loads(headway("job", number, "--json").out)["ended"][0]["detail"].startswith(said)
    assert headway("logs", number).err.startswith(f"There is nothing to print. {task}")
    assert headway("explain", number).out.partition("\n")[2].startswith(task)
    tasks_path = headway("submit", "--wait", "--env", f"PATH={tmp_path}", "nosuch")
    assert f"cannot start 'nosuch': there is no such program on the PATH of tasks, {tmp_path};" in tasks_path.err


def test_width_runs_one_program_on_several_slots_at_once(headway: Any) -> None:
    ran = headway("submit", "--width", 2, "--wait", "--", "sh", "-c", "echo {i} $HEADWAY_RANK $HEADWAY_WIDTH")
    assert (ran.status, ran.out) == (0, "0 0 2\n1 1 2\n")


def test_a_task_that_exceeds_its_memory_is_ended(headway: Any) -> None:
    use = "import time; held = bytearray(200 << 20); time.sleep(60)"
    ran = headway("submit", "--memory-limit", "64M", "--wait", "--", sys.executable, "-c", use)
    assert ran.status == 1
    assert "MiB of memory; allowed: 64 MiB" in ran.err


def test_a_pipe_without_a_shell_is_hinted_at(headway: Any) -> None:
    ran = headway("submit", "--wait", "--", "echo", "a", "|", "wc")
    assert (ran.status, ran.out) == (0, "a | wc\n")
    assert "Hint: '|' goes to echo as an argument" in ran.err
    assert "headway submit -- sh -c 'echo a | wc'" in ran.err


def trap(folder: str) -> object:
    """An object that makes a folder when it is unpickled."""

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (folder,)

    return Trap()


def test_long_output_is_printed_whole(headway: Any) -> None:
    ran = headway("submit", "--wait", "--", "seq", 20_000)
    assert ran.out == "".join(f"{number}\n" for number in range(1, 20_001))


def test_long_output_comes_from_the_server_and_not_from_a_path_here(headway: Any, up: Any, tmp_path: Path) -> None:
    """The path of a file in a result means nothing here, because the server may be on another machine."""
    number = submitted(headway, "sh", "-c", "seq 20000; seq 30000 >&2")
    with Client(data=up.data) as client:
        client.wait(client.attach(number))
        with (tmp_path / "out").open("w+b") as file:
            client.output(number, file, stream="stderr")
            assert file.tell() == 168_894
        url = f"{up.url}{wire.OUTPUT.path.format(job=number)}?offset=2&limit=5"
        known = {"Authorization": f"Bearer {(up.data / 'token').read_text().strip()}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=known)) as answer:
            assert answer.read() == b"2\n3\n4"
        (ending,) = [one.ending for one in client.results(number)]
        Path(ending.stdout_path).unlink()
    ran = headway("result", number)
    assert ran.out.startswith(
        f"[what came before is gone: the stdout of task 0 of job {number} cannot be read any more"
    )
    assert ran.out.endswith("\n20000\n")


def test_what_functions_gave_is_printed(headway: Any, up: Any) -> None:
    with Client(data=up.data) as client:
        number = client.submit(Job("functions", [Task(pow, 2, 5), Task(pickle.loads, b"")]))
        client.wait(number)
    ran = headway("result", number.job, "--unpickle")
    assert (ran.status, ran.out) == (1, "32\n")
    assert "EOFError" in ran.err


def test_nothing_is_unpickled_unasked(headway: Any, up: Any, tmp_path: Path) -> None:
    with Client(data=up.data) as client:
        waiter = client.submit(Job("trap", [Task(trap, str(tmp_path / "sprung")), Task(int, "x")]))
        waiter.outcomes()
        number = waiter.job
    (tmp_path / "sprung").rmdir()  # the person who submitted it trusts it
    ran = headway("result", number)
    assert "--unpickle" in ran.out
    assert "pickled" in json.loads(headway("result", number, "--json").out)["results"][0]["value"]
    with Client(data=up.data) as other:
        value, error = other.attach(number).outcomes()
        assert isinstance(value, NotTrusted)
        assert "trust=True" in value.hint
        assert isinstance(error, TaskFailed)
        assert "invalid literal for int" in str(error)
        assert not (tmp_path / "sprung").exists()
        assert [type(end) for end in other.attach(number, trust=True).outcomes()] == [type(None), ValueError]
    assert (tmp_path / "sprung").exists()


def test_results_that_have_been_cleared(headway: Any, up: Any) -> None:
    number = submitted(headway, "true")
    assert headway("result", number, "--wait").status == 0
    with Client(data=up.data) as client:
        assert client.clear(number) == 1
    said = f"Error: the results of job {number} have been cleared\n"
    assert headway("result", number) == headway("result", number, "--wait") == Ran(2, "", said)


def test_a_job_that_goes_on(headway: Any, tmp_path: Path) -> None:
    number = held(headway, tmp_path, "--name", "goes on", "--tasks", 3, "--due", "1h")
    until(lambda: (tmp_path / "gate.1").exists())
    waiting = submitted(headway, "--name", "waits", "true")

    listed = headway("jobs", "--status", "open")
    assert "goes on" in listed.out
    assert re.search(r"in (1 h 00|59) min", listed.out)
    ids = [job["id"] for job in json.loads(headway("jobs", "--status", "open", "--json").out)]
    assert ids == [number, waiting]

    shown = headway("job", number)
    assert "running" in shown.out
    assert "n-1/0, n-2/0" in shown.out
    runs = json.loads(headway("job", number, "--json").out)["attempts"]
    assert [(run["task"], run["attempt"], run["slots"]) for run in runs] == [(0, 1, ["n-1/0"]), (1, 1, ["n-2/0"])]

    assert f"{number}.0" in headway("nodes").out
    assert [node["slots"] for node in json.loads(headway("nodes", "--json").out)] == [["busy"], ["busy"]]

    assert headway("explain", waiting).out.startswith(f"Job {waiting} is waiting: ")
    assert json.loads(headway("explain", waiting, "--json").out)["reason"]

    early = headway("result", number)
    assert early == Ran(1, "", f"Job {number} is running: 0 of 3 tasks have ended.\n")

    assert headway("cancel", number).out == "Cancelled.\n"
    assert headway("result", waiting, "--wait").status == 0
    ended = headway("result", number, "--wait")
    assert ended.status != 0
    assert "was cancelled" in ended.err
    assert headway("cancel", number, "--task", "0").out == "Cancelled 0 of 1; what had ended stays as it was.\n"
    assert headway("cancel", number, waiting).out == "Cancelled 0 of 2; what had ended stays as it was.\n"
    assert json.loads(headway("cancel", number, "--json").out) == {"cancelled": 0}


def test_the_policy_is_shown_and_changed(headway: Any) -> None:
    assert headway("policy").out == "tempo:strict=false\nThe policy runs at least every 10 s.\n"
    assert headway("policy", "priority:reserve=0.25", "--period", "none").out == "priority:reserve=0.25\n"
    chosen = {"policy": "priority:reserve=0.25", "decider": "", "decider_failed": False, "period": None}
    assert json.loads(headway("policy", "--json").out) == chosen
    wrong = headway("policy", "priorty")
    assert wrong.status == 2
    assert "Did you mean priority" in wrong.err
    headway("policy", "tempo:strict=false", "--period", "10s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("job", 9999), "9999"),
        (("result", 9999), "9999"),
        (("explain", 9999), "9999"),
        (("cancel", 9999), "9999"),
        (("job", "seven"), "'seven'"),
        (("submit", "--due", "soon", "true"), "--due is 'soon'"),
        (("submit", "--retries", "-1", "true"), "-1"),
        (("submit", "--tasks", 10**11, "true"), "--tasks is 100000000000; allowed: a whole number from 1 to 10000000"),
        (("submit", "--time-limit", "0", "true"), "--time-limit is '0'; allowed: more than 0"),
        (("submit", "--memory-limit", "512", "true"), "--memory-limit is '512'; allowed: a number with M or G"),
        (("submit", "--each", "none.txt", "--", "wc", "{file}"), "--each is 'none.txt'; allowed: a file that is here"),
        (("submit", "--env", "HEADWAY_NOWHERE", "true"), "--env is 'HEADWAY_NOWHERE'; allowed: NAME=VALUE"),
        (("submit", "--tasks", 3, "--stdout", "o.txt", "true"), "--stdout is 'o.txt'; allowed: a path with {i} in it"),
        (("submit", "echo", "\udcff"), "allowed: text that can be written in UTF-8"),
        (("submit",), "COMMAND is missing"),
        (("jobs", "--url", "http://127.0.0.1:1"), "no server answers at http://127.0.0.1:1: [Errno 111]"),
        (("metrics", "clustr"), "there is no node 'clustr'"),
        (("policy", "--period", "soon"), "--period is 'soon'; allowed: more than 0, as 30s or 5m, or none"),
        (("replay", "jobs.csv", "--scale", "0"), "--scale is 0.0; allowed: a number above 0"),
        (("jobs", "--status", "done"), "succeeded"),
    ],
)
def test_bad_input_is_said(headway: Any, words: tuple[object, ...], said: str) -> None:
    ran = headway(*words)
    assert ran.status == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_ctrl_c_while_waiting_leaves_the_job_to_go_on(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    command = f"touch {gate}.runs; while [ -e {gate} ]; do sleep 0.01; done; echo done"
    waiting = subprocess.Popen(
        [sys.executable, "-m", "headway", "submit", "--wait", "--data", str(up.data), "--", "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline().endswith("is submitted.\n")
    until(lambda: Path(f"{gate}.runs").exists())
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=LIMIT)
    assert (waiting.returncode, out) == (INTERRUPTED, "")
    assert "goes on" in err
    assert "Traceback" not in err
    number = json.loads(headway("jobs", "--status", "open", "--json").out)[-1]["id"]
    gate.unlink()
    assert headway("result", number, "--wait") == Ran(0, "done\n", "")


def test_a_second_server_on_the_same_data_is_refused(headway: Any, up: Any) -> None:
    ran = headway("up", "--data", up.data)
    assert ran.status == 2
    assert str(up.data) in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--slots", 0), "slots is 0"),
        (("--slots", 2, "--cluster", "c.toml"), "both given"),
        (("--cluster", "missing.toml"), "missing.toml"),
        (("--policy", "eazy"), "Did you mean easy"),
        (("--port", 99999), "port is 99999"),
        (
            ("--no-run-as-owner", "--ground", "elsewhere"),
            "ground is 'elsewhere'; allowed: none where no task runs as another user",
        ),
        (("--grace", "2d"), "--grace is '2d'; allowed: 0 to 86400 seconds"),
    ],
)
def test_a_server_that_cannot_be_started_says_why(
    headway: Any, tmp_path: Path, words: tuple[object, ...], said: str
) -> None:
    ran = headway("up", "--data", tmp_path / "other", *words)
    assert ran.status == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_port_in_use_is_said(headway: Any, up: Any, tmp_path: Path) -> None:
    ran = headway("up", "--data", tmp_path / "other", "--port", up.url.rpartition(":")[2])
    assert ran.status == 2
    assert "is in use" in ran.err


def test_a_server_ends_in_order_on_ctrl_c(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "headway", "up", "--slots", "1", "--data", str(tmp_path / "own")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert "with 1 slot on 1 node." in server.stdout.readline()
    os.kill(server.pid, signal.SIGINT)
    _, err = server.communicate(timeout=LIMIT)
    assert server.returncode == 0
    assert "Headway is down" in err
    assert "Traceback" not in err


def test_the_demo_kills_a_node_and_sees_it_back(tmp_path: Path) -> None:
    said: list[str] = []
    nodes, door = [NodeSpec(name, SLOTS) for name in DEMO_NODES], tmp_path / "door"
    task = Task.command("sh", "-c", f"until [ -e {door} ]; do sleep 0.05; done")
    with own_server(tmp_path, nodes, FIRST_POLICY) as running, Client(data=str(tmp_path)) as client:
        bag = client.submit(Job("bag", [task] * 8))
        kill_node(said.append, client, running["pid"], bag)
        door.touch()
        client.wait(bag, timeout=LIMIT)
        assert {result.attempt for result in client.results(bag.job)} == {1, 2}
    killed, noticed, back = said
    assert "node left dies, and with it tasks" in killed
    assert "It starts task" in noticed
    assert "Node left is back" in back


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headway", "demo", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "All 72 results are here and right" in done.stdout
    assert f"Its policy is {FIRST_POLICY}, as of any new server" in done.stdout
    assert (tmp_path / "out" / "bags" / "metrics.json").exists()
    assert processors_of(tmp_path / "out" / "rigid.swf") == SLOTS_SIMULATED
    assert (tmp_path / "out" / "rigid" / "comparison.png").exists()
