"""A real `headway decider` process gives the plans of the policy in process, simulated and live, and may be lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway import Client, Job, Task
from headway.advice.asking import DECIDER_TOKEN
from headway.advice.language import AllocationText, PlanText, PromiseText, Question, WaitingText
from headway.cli.main import main
from headway.core.record import AttemptRecord, JobRecord
from headway.errors import NoAdvice
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.plan import Reason
from headway.model.workload import Workload, workload_us
from headway.sim.experiment import run
from headway.sim.faults import Outage

from ..waiting import LIMIT, free_port, until
from .conftest import ONE_NODE, Up

ROOT = Path(__file__).resolve().parents[2]

CLUSTER = (NodeSpec("slow", 5), NodeSpec("fast", 3, speed=2.0))


class Process:
    """`headway decider`, until it is ended."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", "headway", "decider", "--json", *map(str, words)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self.url: str = json.loads(said.readline())["url"]

    def end(self, number: int = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
        return self._process.wait(LIMIT)


@pytest.fixture(scope="module")
def decider() -> Iterator[str]:
    """The URL of a running decider."""
    process = Process()
    yield process.url
    assert process.end() == 0


def workload(seed: int, jobs: int = 40) -> Workload:
    """Jobs of all three kinds on a crowded cluster, with many ends and submissions in the same second."""
    chance = np.random.default_rng(seed)
    kind = chance.choice([Kind.BAG, Kind.RIGID, Kind.WORKFLOW], jobs, p=[0.5, 0.3, 0.2])
    runtime = chance.integers(1, 20, jobs) * 2 * SECOND
    plan = (TaskSpec(4 * SECOND), TaskSpec(6 * SECOND, 2, (0,)), TaskSpec(2 * SECOND, 1, (0,)))
    return workload_us(
        release=np.sort(chance.integers(0, jobs * 3 // 4, jobs)) * SECOND,
        runtime=runtime,
        estimate=runtime + chance.integers(0, 10, jobs) * SECOND,
        tasks=np.where(kind == Kind.BAG, chance.integers(1, 9, jobs), np.where(kind == Kind.WORKFLOW, 3, 1)),
        width=np.where(kind == Kind.RIGID, chance.integers(1, 8, jobs), 1),
        kind=kind,
        due=chance.integers(10, 300, jobs) * SECOND,
        priority=chance.integers(0, 5, jobs).astype(float),
        cpu=chance.choice([np.nan, 0.4, 0.9], jobs),
        workflows={int(job): plan for job in np.flatnonzero(kind == Kind.WORKFLOW)},
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "policy",
    [
        "easy:per_instant=true",
        "easy:order=shortest,per_instant=true",
        "conservative:per_instant=true",
        "deadline",
        "proportion",
        "workload:period=5",
        "heft",
        "tempo",
        "keasy:per_instant=true",
        "measy:per_instant=true,threshold=1",
    ],
)
def test_a_decider_gives_the_schedule_of_the_policy_in_process(policy: str, decider: str) -> None:
    jobs, outages = workload(3), [Outage("fast", 20, 35)]
    here = run(jobs, CLUSTER, policy, outages=outages, record=True)
    there = run(jobs, CLUSTER, policy, outages=outages, record=True, decider=decider)
    assert there.decisions > 40
    assert here.attempts is not None
    assert there.attempts is not None
    for column in ("job", "first", "count", "start", "end", "wasted", "behind"):
        assert (getattr(here.attempts, column) == getattr(there.attempts, column)).all(), column
    assert (here.end == there.end).all()
    assert here.refused == there.refused
    assert here.decisions == there.decisions


def value(client: Client, number: int) -> int:
    """The task: returns the absolute value."""
    (found,) = client.submit(Job("one", [Task(abs, number)])).result(LIMIT)
    return int(found)


def incidents(client: Client) -> list[str]:
    return [incident.kind for incident in client.incidents()]


@pytest.mark.thorough
def test_a_server_whose_decider_is_killed_goes_on_and_takes_it_back(tmp_path: Path) -> None:
    port = free_port()
    up, decider = Up(tmp_path, ONE_NODE), Process("--port", port)
    up.start("--policy", "fcfs", "--decider", decider.url, "--answer-time", "30s")
    try:
        with Client(data=up.data) as client:
            assert value(client, -1) == 1
            assert client.deciding().decider == decider.url
            assert not client.deciding().decider_failed
            assert decider.end(signal.SIGKILL) == -signal.SIGKILL
            assert value(client, -2) == 2, "the policy stands in for it"
            until(lambda: client.deciding().decider_failed)
            assert incidents(client) == ["decider_failed"]
            decider = Process("--port", port)
            until(lambda: not client.deciding().decider_failed)
            assert sorted(incidents(client)) == ["decider_back", "decider_failed"]
            assert value(client, -3) == 3
            up.kill()
            up.start()
            assert value(client, -4) == 4
            assert client.deciding().decider == decider.url, "it is still chosen after a crash"
    finally:
        up.stop()
        assert decider.end() == 0


def test_choosing_by_command_while_jobs_run(
    tmp_path: Path, decider: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    up = Up(tmp_path, ONE_NODE)
    up.start("--policy", "fcfs")
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(up.data))
    monkeypatch.delenv("HEADWAY_URL", raising=False)

    def headway(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capfd.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    try:
        with Client(data=up.data) as client:
            gate = tmp_path / "gate"
            gate.touch()
            loop = Task.command("sh", "-c", f"while [ -e {gate} ]; do sleep 0.01; done")
            running = client.submit(Job("runs", [loop, loop]))
            until(lambda: client.statistics().running == 2)
            waiting = client.submit(Job("waits", [Task(abs, -5)]))
            assert headway("policy", "sjf", "--decider", decider, "--period", "5m")[1] == (
                f"sjf\nThe decider at {decider} makes the plans.\nThe policy runs at least every 5 min.\n"
            )
            said = headway("explain", str(waiting.job))[1]
            assert said.startswith(f"Job {waiting.job} is waiting: not enough slots are free now.\nIt waits for job ")
            told = json.loads(headway("explain", str(waiting.job), "--json")[1])
            assert (told["reason"], told["by"], told["note"]) == ("NO_ROOM_NOW", decider, "")
            assert json.loads(headway("policy", "--json")[1]) == {
                "policy": "sjf",
                "decider": decider,
                "decider_failed": False,
                "period": 300.0,
            }
            status, _, error = headway("policy", "--decider", "nowhere")
            assert (status, error.partition(";")[0]) == (2, "Error: --decider is 'nowhere'")
            assert headway("policy", "--period", "0s")[0] == 2
            assert headway("policy", "--decider", "none", "--period", "none")[1] == "sjf\n"
            gate.unlink()
            assert waiting.result(LIMIT) == [5]
            assert running.result(LIMIT) == ["", ""]
            assert client.statistics().ignored == 0
    finally:
        up.stop()


def test_a_simulation_by_command_asks_the_decider(
    decider: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text(
        "release,tasks,runtime\n" + "".join(f"{job // 2},{1 + job % 5},{3 + job % 4}\n" for job in range(20))
    )

    def simulated(*words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main(["simulate", str(table), "--slots", "4", "--policy", "heft", "--json", *words])
        said = capfd.readouterr()
        assert not ended.value.code, said.err
        (found,) = json.loads(said.out)
        return {name: value for name, value in found["metrics"].items() if not name.startswith("decision")}

    assert simulated("--decider", decider) == simulated()
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(table), "--slots", "4", "--decider", "http://127.0.0.1:1"])
    assert ended.value.code == 2
    error = capfd.readouterr().err
    assert "the decider at http://127.0.0.1:1 gave no plan: it does not answer" in error


def test_a_token_is_demanded_and_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process("--token-file", tmp_path / "token")
    jobs = workload(1, jobs=5)
    try:
        with pytest.raises(NoAdvice, match="status 401: no token was sent"):
            run(jobs, CLUSTER, "edf", decider=process.url)
        monkeypatch.setenv(DECIDER_TOKEN, (tmp_path / "token").read_text().strip())
        assert (run(jobs, CLUSTER, "edf", decider=process.url).end > 0).all()
    finally:
        assert process.end() == 0


def test_another_policy_than_the_one_that_stands_in_for_it(decider: str) -> None:
    jobs = workload(2)
    there = run(jobs, CLUSTER, "fcfs", decider=f"{decider}?policy=deadline:spare=priority")
    assert (there.end == run(jobs, CLUSTER, "deadline:spare=priority").end).all()


def test_a_policy_that_it_does_not_have_is_said(decider: str) -> None:
    with pytest.raises(NoAdvice, match=r"status 422: policy is 'esy'; allowed: .* Did you mean easy?"):
        run(workload(2), CLUSTER, "fcfs", decider=f"{decider}?policy=esy")


def test_the_port_and_the_policy_are_looked_at_first(capfd: pytest.CaptureFixture[str]) -> None:
    for words, said in ((["--policy", "esy"], "policy is 'esy'"), (["--port", "99999"], "port is 99999")):
        with pytest.raises(SystemExit) as ended:
            main(["decider", *words])
        assert ended.value.code == 2
        assert said in capfd.readouterr().err


def test_the_example_of_the_how_to_needs_nothing_of_headway(decider: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "use-the-decider.md").read_text("utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"\$ python ask.py [^\n]*\n(.*?)```", page, re.DOTALL)
    (tmp_path / "ask.py").write_text(source, "utf-8")
    command = [sys.executable, "-I", "-S", str(tmp_path / "ask.py"), decider]  # no installed package can be imported
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")
    assert len(source.splitlines()) < 30


def test_the_reference_names_every_field_and_reason() -> None:
    page = (ROOT / "docs" / "reference" / "decider.md").read_text("utf-8")
    kinds = (AllocationText, PromiseText, WaitingText, PlanText, Question)
    names = [name for kind in kinds for name in kind.__struct_fields__] + [reason.name for reason in Reason]
    inner = {"number", "ending", "running", "queued", "saved", "unfinished"}  # variables that Headway adds
    inner |= {
        "tries",
        "failures",
        "losses",
        "failed",
        "cancelled",
        "kept",
        "stepped",
        "lost",
        "kills",
        "size_left",
        "strikes",
        "struck",
    }
    names += {known.name for kind in (AttemptRecord, JobRecord) for known in fields(kind)} - inner
    assert [name for name in names if f"`{name}`" not in page and f'"{name}"' not in page and name != "spec"] == []


class Hostile(BaseHTTPRequestHandler):
    """Answers in the way that the path of the question says."""

    def do_POST(self) -> None:
        """Answer in one of the ways in which a decider can be wrong."""
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = b"{}"
        match self.path.split("/")[1]:
            case "nonsense":
                body = b"start them all"
            case "nowhere":
                body = b'{"allocations": [{"job": 1, "slots": [999999999]}]}'
            case "old":
                body = json.dumps({"now": question["snapshot"]["now"] - 1}).encode()
            case "redirect":
                self.send_response(302)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()
                return
            case "hang":
                self.server.ended.wait(LIMIT)  # type: ignore[attr-defined]
        self.send_response(500 if self.path.startswith("/broken") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def hostile() -> Iterator[str]:
    """The URL of a server that gives wrong answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.ended = threading.Event()  # type: ignore[attr-defined]
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.ended.set()  # type: ignore[attr-defined]
        server.shutdown()
        serving.join()


@pytest.mark.thorough
def test_whatever_a_decider_answers_jobs_go_on_and_the_journal_says_why(tmp_path: Path, hostile: str) -> None:
    up = Up(tmp_path, ONE_NODE)
    up.start("--policy", "fcfs", "--answer-time", "5s")
    expected = {
        "nonsense": "its answer is no plan: JSON is malformed",
        "nowhere": "its answer is no plan: allocations[0].slots holds 999999999; allowed: 0 to 1",
        "old": "its answer is about the instant",
        "redirect": "it answers with status 302",
        "broken": "it answers with status 500: '{}'",
        "hang": "no answer within 5 s",
    }
    try:
        with Client(data=up.data) as client:
            for number, (way, detail) in enumerate(expected.items(), 1):
                client.choose_policy(decider=f"{hostile}/{way}")
                assert value(client, -number) == number
                until(lambda: client.deciding().decider_failed)
                (last,) = client.incidents(last=1)
                assert (last.kind, last.subject) == ("decider_failed", f"{hostile}/{way}")
                assert last.detail.startswith(detail), last.detail
            assert client.statistics().jobs == 0
    finally:
        up.stop()
