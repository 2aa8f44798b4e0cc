"""One task through the ten steps of Lin14 4.1, with a real server, real files and a real clock.

The steps are those of docs/explanation/data-flow.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import Client, HeadwayError, Input, Job, Output, Task, TaskFailed, wire
from headway.model.events import Outcome

from ..waiting import LIMIT, until
from .conftest import headway

RETENTION = 5.0


@pytest.fixture
def flow(up: Any) -> Iterator[Any]:
    """The server, with a short retention."""
    up.stop()
    up.start("--retention", f"{RETENTION}s")
    yield up
    up.stop()
    up.start()


def rows(up: Any, query: str) -> list[Any]:
    """Read the journal as another program does."""
    with closing(sqlite3.connect(f"file:{up.data}/journal.sqlite?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


def summed(up_there: Path, slow: Path, gate: str, table: Path, chart: Path) -> int:
    """The task: reads both inputs, waits at a gate, writes both outputs."""
    numbers = [int(word) for path in (up_there, slow) for word in path.read_text().split()]
    Path(gate).read_bytes()
    table.write_text(f"sum,{sum(numbers)}\n")
    chart.write_bytes(b"*" * sum(numbers))
    return sum(numbers)


def test_one_task_through_all_ten_steps(flow: Any, tmp_path: Path) -> None:
    slow, gate, table = tmp_path / "slow.txt", tmp_path / "gate", tmp_path / "out" / "table.csv"
    os.mkfifo(slow)  # an input that comes only when the test writes it
    os.mkfifo(gate)
    (tmp_path / "mine.txt").write_text("1 2 3")
    watching = Client(flow.url, data=flow.data, acknowledge=False)

    def statuses() -> set[str]:
        return {status for node in watching.nodes() for status in node.slots}

    def events(job: int) -> list[str]:
        return [
            kind for (kind,) in rows(flow, "SELECT kind FROM events ORDER BY seq") if kind.startswith(("Job", "Task"))
        ]

    with watching, Client(flow.url, data=flow.data) as client:
        # Before: the client uploads what only it has. The bytes bypass the core and go to a file.
        mine = client.upload(tmp_path / "mine.txt")
        before = len(events(0))

        # 1. The client sends a job request. It names its inputs, but does not contain them.
        task = Task(summed, mine, Input(slow), str(gate), Output(table), Output("headway:chart.txt"))
        waiter = client.submit(Job("flow", [task]))
        job = waiter.job
        ((spec, work),) = rows(flow, f"SELECT spec, work FROM jobs WHERE id = {job}")
        assert b"1 2 3" not in spec + work
        assert events(job)[before:] == ["JobSubmitted"]

        # 2. The decision maker plans, 3. the dispatcher chooses the slot: it is allocated to the job, and occupied.
        until(lambda: "occupied" in statuses())
        assert statuses() == {"occupied", "available"}
        detail = watching.job(job)
        assert [len(detail.slots), len(detail.attempts)] == [1, 1]

        # 4. The data goes to the worker and bypasses the core. One input is there, the other is awaited.
        (folder,) = until(
            lambda: [path.parent.parent for path in flow.data.glob("engine/nodes/*/slot-0.files/*/mine.txt")]
        )
        assert statuses() == {"occupied", "available"}
        slow.write_text("4 5 6")

        # 5. The management learns that the task has what it needs: its slot is busy.
        until(lambda: "busy" in statuses())
        assert (folder / "1" / "slow.txt").read_text() == "4 5 6"
        assert events(job)[before:] == ["JobSubmitted", "TaskStarted"]
        assert not table.exists()
        assert not waiter.done()

        # 6. The worker has finished and reports it; its outputs are where they belong.
        gate.write_bytes(b"")
        # 7. The client gets a message, 8. and collects the result.
        assert waiter.result(LIMIT) == [21]
        assert table.read_text() == "sum,21\n"
        assert not folder.exists()
        assert events(job)[before:] == ["JobSubmitted", "TaskStarted", "TaskEnded"]
        (result,) = watching.results(job)
        assert result.ending.outcome is Outcome.SUCCEEDED
        assert result.ending.outputs[str(table)] == str(table)
        chart = result.ending.outputs["headway:chart.txt"]
        assert client.download(chart, tmp_path / "chart").read_bytes() == b"*" * 21

        # 9. The client acknowledges by itself; nothing is cleared yet.
        ((first, acknowledged),) = until(lambda: rows(flow, f"SELECT first, at FROM acknowledged WHERE job = {job}"))
        assert first == 0
        ((ended,),) = rows(flow, "SELECT at FROM events WHERE kind = 'TaskEnded' ORDER BY seq DESC LIMIT 1")
        assert ended <= acknowledged
        assert rows(flow, f"SELECT upload FROM outputs WHERE job = {job}") != []

        # 10. The result is cleared when the retention is over, and not before.
        until(lambda: not watching.results(job))
        assert time.time() >= acknowledged / 1e6 + RETENTION - 0.1  # the server's clock may differ a little
        assert rows(flow, f"SELECT * FROM messages WHERE job = {job}") == []
        assert rows(flow, f"SELECT * FROM outputs WHERE job = {job}") == []
        assert rows(flow, f"SELECT * FROM acknowledged WHERE job = {job}") == []
        with pytest.raises(HeadwayError, match=f"the results of job {job} have been cleared"):
            watching.attach(job)
        assert watching.job(job).job.done == 1
        assert table.read_text() == "sum,21\n"


@pytest.mark.thorough
def test_retention_goes_on_where_the_server_was_killed(flow: Any) -> None:
    with Client(flow.url, data=flow.data) as client:
        waiter = client.submit(Job("short", [Task.command("true")] * 3))
        waiter.result(LIMIT)
    job = waiter.job
    assert rows(flow, f"SELECT count(*) FROM acknowledged WHERE job = {job}") == [(1,)]
    flow.kill()
    assert len(rows(flow, f"SELECT * FROM messages WHERE job = {job}")) == 4
    flow.start("--retention", f"{RETENTION}s")
    until(lambda: not rows(flow, f"SELECT * FROM messages WHERE job = {job}"))


@pytest.mark.thorough
def test_an_acknowledgement_by_somebody_else_is_refused_and_an_incident(flow: Any) -> None:
    with (
        Client(flow.url, data=flow.data, acknowledge=False) as owner,
        Client(flow.url, data=flow.data) as other,
    ):
        job = owner.submit(Job("mine", [Task.command("echo", "mine")])).job
        assert other.attach(job, trust=True).result(LIMIT) == ["mine\n"]
        with pytest.raises(HeadwayError, match=f"acknowledges results of job {job}, which another client submitted"):
            other.acknowledge(job)
        (incident,) = [one for one in other.incidents() if one.subject == f"job {job}"]
        assert incident.kind == "acknowledge_refused"
        assert len(owner.results(job)) == 1
        owner.acknowledge(job)
        until(lambda: not owner.results(job))


def test_an_input_that_does_not_exist_ends_its_task_alone(up: Any, tmp_path: Path) -> None:
    """It fails by itself, so retries count. Everything else continues."""
    (tmp_path / "there").write_text("there")
    nope = f"file://{tmp_path}/nope"
    with Client(up.url, data=up.data) as client:
        tasks = [
            Task.command("cat", "in", inputs={"in": url}) for url in (tmp_path / "there", nope, tmp_path / "there")
        ]
        first, failure, last = client.submit(Job("three", tasks, retries=2)).outcomes(LIMIT)
        assert (first, last) == ("there", "there")
        assert isinstance(failure, TaskFailed)
        assert failure.ending is not None
        assert failure.ending.outcome is Outcome.REFUSED
        assert failure.ending.detail == f"input URL not found: inputs['in'] is {nope!r}"
        (attempt,) = [one.attempt for one in client.results(failure.job) if one.task == 1]
        assert attempt == 3
        with pytest.raises(TaskFailed, match="input URL not found: Input is"):
            client.submit(Job("call", [Task(len, Input(nope))])).result(LIMIT)


def test_files_from_the_shell(up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(up.data))
    for name in ("HEADWAY_URL", "HEADWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "prog").write_text('#!/bin/sh\ncat "$@" > both.txt\n')
    (tmp_path / "prog").chmod(0o755)
    for name in ("a.txt", "b0.txt", "b1.txt"):
        (tmp_path / name).write_text(f"{name} ")
    uploaded = headway("upload", "a.txt", "--json")
    assert uploaded.returncode == 0, uploaded.stderr
    url = json.loads(uploaded.stdout)["url"]
    assert url.endswith("/a.txt")
    (tmp_path / "a.txt").unlink()

    words = ["submit", "--wait", "--json", "--tasks", "2", "--input", f"a={url}", "--input", "b=b{i}.txt"]
    words += ["--output", "both.txt=out/{i}.txt", "--output", "a=headway:a.txt"]
    ran = headway(*words, "--", "./prog", "a", "b")
    assert ran.returncode == 0, ran.stderr
    assert [(tmp_path / "out" / f"{i}.txt").read_text() for i in range(2)] == ["a.txt b0.txt ", "a.txt b1.txt "]
    outputs = json.loads(ran.stdout)["results"][0]["outputs"]
    assert outputs == {"both.txt": f"{tmp_path}/out/0.txt", "a": url}
    assert headway("download", url, "a.txt").returncode == 0
    assert (tmp_path / "a.txt").read_text() == "a.txt "

    for given, error in (("no-equals", "PATH=URL, each PATH once"), ("../a=/b", "a path within the attempt's folder")):
        wrong = headway("submit", "--input", given, "--", "true")
        assert (wrong.returncode, error in wrong.stderr) == (2, True), wrong.stderr


def test_acknowledging_by_http_alone(up: Any) -> None:
    """As another program would do it, without the types of the library."""
    import urllib.request

    def ask(path: str, body: Any) -> Any:
        token = (up.data / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": wire.JSON}
        asked = urllib.request.Request(up.url + path, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
            return json.load(answer)

    work = {"type": "commands", "commands": [{"argv": ["true"]}]}
    (job,) = ask("/v1/jobs", {"jobs": [{"tasks": 4, "work": work}], "client": "script"})["jobs"]
    with Client(up.url, data=up.data) as client:
        client.attach(job, trust=True).result(LIMIT)
    told = ask("/v1/acknowledge", {"client": "script", "results": [{"job": job, "first": 1, "last": 3}]})
    assert told == {"changed": 1}
    assert rows(up, f"SELECT first, last FROM acknowledged WHERE job = {job}") == [(1, 3)]


@pytest.mark.parametrize("option", ["--retention", "--keep-unacknowledged"])
def test_a_span_that_is_none_is_refused_before_anything_is_started(tmp_path: Path, option: str) -> None:
    told = headway("up", "--data", tmp_path / "data", option, "soon")
    assert told.returncode == 2
    assert f"{option} is 'soon'; allowed: a duration such as 90s" in told.stderr
    assert not (tmp_path / "data").exists()
