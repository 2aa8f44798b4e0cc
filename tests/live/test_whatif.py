"""What would be if something were otherwise, asked beside a server: nothing changes, unless it is applied."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.cli.whatif import _arrivals
from headway.client.client import Client
from headway.client.job import Job, Task
from headway.foresight.present import present
from headway.model.instant import SECOND
from headway.model.outcome import Outcome
from headway.policies.registry import find
from headway.testing import new_job
from headway.times import clock_text

from .conftest import ONE_NODE, Up, headway
from .test_decisions import TWO
from .test_driver import ONE, rig, run


def whatif(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return headway("whatif", "--data", folder, *options)


def answer(folder: Path, *options: str) -> Any:
    ran = whatif(folder, *options, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


BEGINNING = 1_790_000_000.0
NOW = BEGINNING + 160
ESTIMATE = 100.0


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server with two slots, on which jobs of 100 s run, at 160 s: 1 and 2 ran until 100, 3 and
    4 run since then, and 5, 6 and 7 wait. 6 is due at 380, 7 at 330.
    """
    folder = tmp_path_factory.mktemp("data")

    async def scenario() -> None:
        async with rig(folder, TWO, at=BEGINNING, policy="fcfs:order=priority") as live:
            job = {"name": "render", "estimate": ESTIMATE}
            await live.submit(new_job(**job), new_job(**job), new_job(**job))
            await live.advance(50)
            await live.submit(new_job(**job), new_job(**job))
            await live.advance(50)
            await live.end(1)
            await live.end(2)
            await live.advance(40)
            await live.submit(new_job(**job, due=BEGINNING + 380))
            await live.advance(10)
            await live.submit(new_job(**job, due=BEGINNING + 330))

    run(scenario)
    return folder


@pytest.fixture
def at_160_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands are given then."""
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: NOW)
        yield


def ends(side: Any) -> dict[int, float]:
    """When each job ends in the median, in seconds after the beginning."""
    return {job["job"]: round(job["end"]["median"] - BEGINNING) for job in side["jobs"]}


AS_IT_IS = {3: 200, 4: 200, 5: 300, 6: 300, 7: 400}


@pytest.mark.parametrize(
    ("options", "words", "then"),
    [
        (("--first", "7"), "with job 7 first", AS_IT_IS | {6: 400, 7: 300}),
        (("--remove-node", "b"), "without node b", AS_IT_IS | {6: 400, 7: 500}),
        (("--add-node", "c"), "with node c more", AS_IT_IS | {5: 260, 7: 300}),
        (
            ("--policy", "edf", "--remove-node", "a"),
            "with policy edf, without node a",
            {3: 200, 4: 200, 7: 300, 6: 400, 5: 500},
        ),
    ],
)
def test_the_jobs_that_a_change_touches_end_at_another_time(
    journal: Path, at_160_s: None, options: tuple[str, ...], words: str, then: dict[int, int]
) -> None:
    found = answer(journal, *options)
    assert ends(found["now"]) == pytest.approx(AS_IT_IS, abs=2)
    assert ends(found["then"]) == pytest.approx(then, abs=2)
    said = whatif(journal, *options, "--futures", "2").stdout.splitlines()
    assert said[0].startswith(f"5 open jobs at {clock_text(NOW)}; 2 futures each, now and {words}. ")
    assert sum("render" in line for line in said) == 5


def test_jobs_of_a_table_come_now_and_end_behind_the_others(journal: Path, at_160_s: None, tmp_path: Path) -> None:
    table = tmp_path / "tonight.csv"
    table.write_text("job,release,runtime,width\n1,0,50,2\n", "utf-8")
    found = answer(journal, "--submit", str(table))
    assert ends(found["then"]) == pytest.approx(AS_IT_IS | {8: 450}, abs=2)
    assert ends(found["now"]).keys() == AS_IT_IS.keys()
    said = whatif(journal, "--submit", str(table), "--futures", "2").stdout
    assert f"now and with the jobs of {table} more." in said


FLOW = """
name: nightly
due: 1h
tasks:
  first: {command: "true", inputs: [seed.txt], estimate: 10s}
  then: {command: "true", after: first, estimate: 20s}
"""


def test_a_workflow_of_programs_comes_now_as_it_would_be_submitted(
    journal: Path, at_160_s: None, tmp_path: Path
) -> None:
    """It is due in an hour, and its tasks run as those of jobs do that ran exactly as long as they were to."""
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW, "utf-8")
    (tmp_path / "seed.txt").write_text("1", "utf-8")
    found = answer(journal, "--submit", str(flow))
    came = found["then"]["jobs"][-1]
    assert (came["job"], came["name"], came["due"]) == (8, "nightly", pytest.approx(NOW + 3600, abs=2))
    assert came["end"]["median"] > NOW + 30
    assert found["guessed"] == []
    flow.write_text("tasks:\n  wide: {command: 'true', slots: 2}\n", "utf-8")
    assert (
        "slots of a task is 2; allowed: at most 1, those of the largest node"
        in whatif(journal, "--submit", flow).stderr
    )


@pytest.mark.long
def test_a_workflow_that_was_asked_about_is_submitted(tmp_path: Path) -> None:
    """Not before the answer is asked for with --apply; then with its files, as `headway submit` does it."""
    up = Up(tmp_path, ONE_NODE)
    up.start()
    data, flow = tmp_path / "data", tmp_path / "flow.yaml"
    flow.write_text(FLOW, "utf-8")
    (tmp_path / "seed.txt").write_text("1", "utf-8")
    try:
        with Client(data=data) as client:
            assert whatif(data, "--submit", str(flow), "--futures", "2").returncode == 0
            assert client.jobs() == []
            ran = whatif(data, "--submit", str(flow), "--futures", "2", "--apply")
            assert ran.stdout.endswith("Done: job 1 is submitted.\n"), ran.stderr
            client.wait(client.attach(1), timeout=60)
            (job,) = client.jobs()
            assert (job.name, job.kind, job.status.value) == ("nightly", "workflow", "succeeded")
            ran = whatif(data, "--submit", str(flow), "--futures", "2", "--apply", "--json")
            assert json.loads(ran.stdout)["changes"] == [f"the jobs of {flow} more"]
            assert ran.stderr == "Done: job 2 is submitted.\n"
    finally:
        up.stop()


def test_under_more_load_more_jobs_come_in_the_same_time(journal: Path, at_160_s: None) -> None:
    """Two jobs have come and ended in 160 s; at twice the rate both come again within half of that."""
    found = answer(journal, "--load", "2")
    assert found["within"] == 80
    assert found["now"]["later"]["jobs"] == {"median": 2, "low": 0, "high": 2}
    assert found["then"]["later"]["jobs"] == {"median": 2, "low": 2, "high": 2}
    assert "jobs that come within 80 s" in whatif(journal, "--load", "2", "--futures", "2").stdout


def test_jobs_that_failed_come_again_too(tmp_path: Path) -> None:
    """Of three jobs one succeeded, one failed after 30 s, and one was cancelled before it started."""

    async def scenario() -> None:
        async with rig(tmp_path, ONE, at=BEGINNING, policy="fcfs") as live:
            await live.submit(new_job(estimate=9.0), new_job(estimate=9.0), new_job(estimate=9.0))
            await live.driver.cancel([3])
            await live.advance(10)
            await live.end(1)
            await live.advance(30)
            await live.end(2, 0, 1, Outcome.EXITED)

    run(scenario)
    now = present(tmp_path, find)
    (came, _), _ = _arrivals(1.0, now, tmp_path)
    drawn = came(np.random.default_rng(1))
    assert sorted(drawn.runtime.tolist()) == [10 * SECOND, 30 * SECOND]


@pytest.mark.parametrize("asked", [clock_text(BEGINNING + 120), "40s ago"], ids=["on the clock", "from now"])
def test_an_instant_within_the_journal_has_its_own_jobs(journal: Path, at_160_s: None, asked: str) -> None:
    found = answer(journal, "--add-node", "c", "--at", asked)
    assert found["at"] == BEGINNING + 120
    assert ends(found["now"]) == pytest.approx({3: 200, 4: 200, 5: 300}, abs=2)
    assert ends(found["then"]) == pytest.approx({3: 200, 4: 200, 5: 220}, abs=2)
    said = whatif(journal, "--add-node", "c", "--at", asked, "--futures", "2").stdout
    assert said.startswith(f"3 open jobs at {clock_text(BEGINNING + 120)}; ")


@pytest.mark.long
def test_beside_a_server(tmp_path: Path) -> None:
    up = Up(tmp_path, ONE_NODE.replace("slots = 2", "slots = 1"))
    up.start("--policy", "fcfs")
    data, few = tmp_path / "data", ("--futures", "10")
    try:
        with Client(data=data) as client:
            first, long, short = (
                client.submit(Job("one", [Task.command("sleep", str(seconds))], estimate=seconds, due=due)).job
                for seconds, due in ((600, None), (600, None), (60, "15m"))
            )
            before = client.jobs()
            found = answer(data, *few, "--policy", "edf")
            late = {job["job"]: job["on_time"] for job in found["now"]["jobs"]}
            then = {job["job"]: job for job in found["then"]["jobs"]}
            assert late[short] < 0.5 < then[short]["on_time"]
            assert late[first] is None
            assert then[short]["end"]["median"] < then[long]["end"]["median"]
            assert [job.priority for job in client.jobs()] == [job.priority for job in before]
            assert client.policy() == "fcfs"
            found = answer(data, *few, "--policy", "edf", "--apply")
            assert found["changes"] == ["policy edf"]
            assert client.policy() == "edf"
            ran = whatif(data, *few, "--first", str(short))
            assert "edf does not look at priorities, so --first changes nothing. Ask with --policy tempo" in ran.stderr
            ran = whatif(data, *few, "--first", str(short), "--policy", "fcfs")
            assert "Ask with --policy fcfs:order=priority" in ran.stderr
            ran = whatif(data, *few, "--first", str(short), "--policy", "fcfs:order=priority")
            assert (ran.returncode, ran.stderr) == (0, "")
            picture = tmp_path / "ends.svg"
            ran = whatif(data, *few, "--add-node", "b,slots=2", "--out", str(picture))
            assert ran.returncode == 0, ran.stderr
            assert "all have ended in" in ran.stdout
            assert picture.read_text("utf-8").startswith("<?xml")
            wide = tmp_path / "wide.csv"
            wide.write_text("release,runtime,width\n0,10,3\n", "utf-8")
            ran = whatif(data, *few, "--submit", str(wide), "--add-node", "b,slots=2")
            assert ran.returncode == 0, ran.stderr
            for wrong, said in (
                (("--remove-node", "x"), "a node of the cluster: " + ONE_NODE.split('"')[1]),
                (("--policy", "edf", "--out", "ends.txt"), "--out is 'ends.txt'; allowed: a name that ends in one of"),
                (("--submit", str(wide)), "allowed: at most 1, the slots of the cluster"),
                (("--submit", str(wide)), "wider than the cluster. --add-node adds slots."),
                (("--first", "99"), "the id of an open job"),
                (("--add-node", "b,slots=many"), "slots of --add-node is 'many'"),
                (("--add-node", "b,slots=0"), "slots is 0; allowed: 1 to"),
                (("--add-node", "b,slots=99999999"), "slots is 99999999; allowed: 1 to"),
                (("--add-node", "b,speed=0"), "speed is 0.0; allowed: "),
                (("--add-node", "b,speed=nan"), "speed is nan; allowed: "),
                (("--add-node", ",slots=2"), "name is ''; allowed: "),
                (("--remove-node", ONE_NODE.split('"')[1]), "allowed: a node that is not the last one"),
                (("--at", "2020-01-01 12:00", "--first", str(short)), "where the journal begins"),
                (("--load", "0"), "more than 0"),
                (("--load", "2"), "fewer than two have ended"),
                (("--policy", "edv"), "edf"),
                ((), "--policy"),
                (("--load", "2", "--apply"), "--apply cannot do --load"),
            ):
                ran = whatif(data, *wrong)
                assert ran.returncode in {1, 2}, ran.stdout
                assert said in ran.stderr, wrong
                assert "Traceback" not in ran.stderr
            by_priority = "fcfs:order=priority"
            more = ("--add-node", "b,slots=2", "--first", str(long), "--policy", by_priority)
            ran = whatif(data, *few, *more, "--apply")
            said = f"Done: node b is in service, job {long} has priority 1, the policy is {by_priority}."
            assert ran.stdout.splitlines()[-1] == said, ran.stderr
            assert ([job.priority for job in client.jobs()], client.policy()) == ([0, 1, 0], by_priority)
            assert [(one.name, len(one.slots)) for one in client.nodes()] == [("n", 1), ("b", 2)]
            ran = whatif(data, *few, "--remove-node", "b", "--apply")
            assert ran.stdout.splitlines()[-1] == "Done: node b drains.", ran.stderr
            assert [(one.name, one.draining) for one in client.nodes()] == [("n", False), ("b", True)]
    finally:
        up.stop()
