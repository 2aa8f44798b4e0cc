"""A trace on a real server: submitted at its times, with its terms, and compared with its simulation."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import Client
from headway.cli.main import INTERRUPTED, main
from headway.client.replay import Replay, job_of
from headway.engines.local.driver.host import node_folder, put_down
from headway.errors import HeadwayError
from headway.live.store.history import history
from headway.metrics import summarise
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import BagTimes, Workload, workload_us
from headway.policies import registry
from headway.reproduce import failure, live
from headway.reproduce.live import switched_off
from headway.reproduce.server import own_server

from ..waiting import LIMIT, until

pytestmark = pytest.mark.thorough

TABLE = """\
job,release,tasks,width,runtime,estimate,due,priority,user
a,100,2,,3,3,110,5,ann
b,100,1,,1,none,,0,bob
c,102,,2,2,2,107,1,ann
"""


@pytest.fixture(scope="module")
def client(up: Any) -> Iterator[Client]:
    with Client(data=up.data) as connected:
        yield connected


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TABLE)
    return path


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capfd.readouterr()


def replayed(client: Client, workload: Workload) -> Replay:
    replay = Replay(client, workload)
    replay.submit()
    client.wait(*replay.waiters, timeout=LIMIT)
    return replay


def test_jobs_come_at_their_times_with_their_terms_and_sleep_as_long_as_they_ran(client: Client) -> None:
    workload = workload_us(
        release=[0, 0, 2 * SECOND],
        runtime=[SECOND // 5, SECOND // 10, SECOND // 10],
        estimate=[SECOND // 5, -1, SECOND // 10],
        tasks=[3, 1, 1],
        width=[1, 1, 2],
        kind=[Kind.BAG, Kind.BAG, Kind.RIGID],
        due=[300 * SECOND, 2**62, 3 * SECOND],
        priority=[3.0, 0.0, 1.0],
        rate=[2.0, 1.0, 1.0],
        user=["ann", "bob", "ann"],
        label=["x", "y", "z"],
    )
    replay = replayed(client, workload)
    assert replay.ended == 3
    first, second, third = (client.job(waiter.job).job for waiter in replay.waiters)
    assert [first.name, second.name, third.name] == ["job x", "job y", "job z"]
    assert (first.user, first.priority, first.rate, first.tasks, first.kind) == ("ann", 3, 2, 3, "bag")
    assert (first.estimate, second.estimate) == (0.2, None)
    assert first.due is not None
    assert 300 - LIMIT < first.due - first.release <= 300  # the client counts from before it sends
    assert second.due is None
    assert (third.kind, third.width) == ("rigid", 2)
    assert first.release == second.release  # released together, accepted together
    assert 0.5 < third.release - first.release < LIMIT  # two seconds, less what sending the first took
    for report, lasts in ((first, 0.4), (second, 0.1), (third, 0.1)):
        assert report.ended is not None
        assert report.ended - report.submitted >= lasts
    schedule = replay.schedule(slots=2)
    assert schedule.release[:2].tolist() == [0, 0]
    assert schedule.has(JobStatus.SUCCEEDED).all()
    assert (schedule.end - schedule.start >= workload.runtime).all()


def test_workflows_and_uneven_bags_are_replayed_as_they_are(client: Client) -> None:
    plan = (TaskSpec(SECOND // 10), TaskSpec(SECOND // 5, after=(0,)), TaskSpec(SECOND // 10, after=(1,)))
    workload = workload_us(
        release=[0, 0],
        runtime=[SECOND // 10] * 2,
        tasks=[3, 2],
        kind=[Kind.WORKFLOW, Kind.BAG],
        workflows={0: plan},
        bags={1: BagTimes(tasks=(SECOND // 2, SECOND // 100), sizes=(50.0, 1.0))},
    )
    replay = replayed(client, workload)
    lasted = [[result.ending.seconds for result in client.results(waiter.job)] for waiter in replay.waiters]
    for found, wanted in zip(lasted, ([0.1, 0.2, 0.1], [0.5, 0.01]), strict=True):
        assert all(one >= least for one, least in zip(found, wanted, strict=True))
    chain, bag = (client.job(waiter.job).job for waiter in replay.waiters)
    assert chain.ended is not None
    assert chain.ended - chain.submitted >= 0.4
    assert bag.kind == "bag"
    uneven = job_of(workload, 1)
    assert uneven.sizes == (50.0, 1.0)
    assert [task.args for task in uneven.tasks] == [(0.5,), (0.01,)]


def test_the_command_compares_with_the_simulator(up: Any, table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capfd, "replay", table, "--scale", 0.2, "--data", up.data)
    assert (status, err) == (0, "")
    first, *_ = out.splitlines()
    assert first == "3 jobs released within 0.4 s, on 2 slots."
    assert "3 jobs ended under tempo:strict=false. Times are in seconds" in out
    rows = {words[0]: words[1:] for words in map(str.split, out.splitlines()) if words and words[0].endswith("mean")}
    assert list(rows) == ["wait_mean", "response_mean", "bounded_slowdown_mean", "tardiness_mean"]
    assert "violation" not in out  # reports of jobs do not say that


def test_as_json_it_is_one_object(up: Any, table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "replay", table, "--scale", 0.1, "--first", 2, "--json", "--data", up.data)
    told = json.loads(out)
    assert (status, told["policy"], told["jobs"], told["scale"]) == (0, "tempo:strict=false", 2, 0.1)
    # Two slots: job a with two tasks of 0.3 s, then job b.
    assert told["simulated"]["makespan"] == pytest.approx(0.4)
    assert 0.4 <= told["live"]["makespan"] < LIMIT
    assert told["live"].keys() == told["simulated"].keys()


def test_a_job_wider_than_the_cluster_is_refused_with_its_line(
    up: Any, client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = len(client.jobs())
    wide = tmp_path / "wide.csv"
    wide.write_text("job,width,runtime\na,2,1\nb,3,1\nc,9,1\n")
    status, out, err = run(capfd, "replay", wide, "--data", up.data)
    assert (status, out) == (2, "")
    assert f"{wide}:3: width of job b is 3; allowed: at most 2, the slots of the cluster" in err
    assert "So is 1 other." in err
    log = tmp_path / "wide.swf"
    rest = " -1" * 13
    log.write_text(f"; a comment\n7 0 -1 1 1{rest}\n8 0 -1 1 4{rest}\n")
    status, _, err = run(capfd, "replay", log, "--data", up.data)
    assert status == 2
    assert f"{log}:3: width of job 8 is 4" in err
    assert len(client.jobs()) == before


def test_ctrl_c_leaves_the_jobs_to_go_on(up: Any, client: Client, tmp_path: Path) -> None:
    slow = tmp_path / "slow.csv"
    slow.write_text("job,release,runtime\nlong,0,30\nnever,500,1\n")
    last = max((job.id for job in client.jobs()), default=0)
    replaying = subprocess.Popen(
        [sys.executable, "-m", "headway", "replay", str(slow), "--data", str(up.data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(job.id > last and job.running for job in client.jobs(status="open")))
    replaying.send_signal(signal.SIGINT)
    _, err = replaying.communicate(timeout=LIMIT)
    assert replaying.returncode == INTERRUPTED, err
    assert re.search("At least [01] of 2 jobs were submitted; those that have not ended go on", err)
    assert "Traceback" not in err
    (left,) = client.jobs(status="open")
    assert left.name == "job long"
    client.cancel(left.id)


def test_the_journal_of_a_server_has_the_same_times_and_more(tmp_path: Path) -> None:
    """Only the journal says who had how many slots when. A machine that is switched off stays down for that time."""
    # So many tasks that some are left when the machine is back.
    workload = workload_us(release=[0], runtime=[SECOND // 5], tasks=[90], kind=Kind.BAG, estimate=[SECOND // 5])
    nodes = [NodeSpec("left", 1), NodeSpec("right", 2)]
    with own_server(tmp_path, nodes, "priority") as server, Client(data=tmp_path) as client:
        replay = Replay(client, workload)
        replay.submit()
        until(lambda: replay.waiters[0].progress[0] >= 3)
        with switched_off(tmp_path, server["pid"], ["right"]):
            until(lambda: [node.up for node in client.nodes()] == [True, False])
            before = replay.waiters[0].progress[0]
            until(lambda: replay.waiters[0].progress[0] >= before + 4)  # it continues with what is left
            assert [node.up for node in client.nodes()] == [True, False]
        until(lambda: all(node.up for node in client.nodes()))
        client.wait(*replay.waiters, timeout=LIMIT)
        told = replay.schedule(slots=3)
    whole = history(tmp_path, registry.find)
    assert (whole.end - whole.start).tolist() == (told.end - told.start).tolist()
    assert whole.holdings is not None
    held = whole.holdings.slots.tolist()
    assert held[0] == 3
    assert 1 in held
    assert held[held.index(1) :].count(3) >= 1  # all three, once the machine is back
    assert whole.busy <= whole.offered < 3 * (whole.until - whole.begin)  # on a slow machine no slot is seen idle
    assert whole.lost > 0
    assert summarise(whole)["jobs_succeeded"] == 1


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(HeadwayError, match="the server did not start") as failed,
        own_server(tmp_path, [NodeSpec("n", 1)], "no-such-policy"),
    ):
        pytest.fail("it has started")
    assert "no-such-policy" in failed.value.hint


def test_a_server_that_ends_by_itself_is_said_to_have(tmp_path: Path) -> None:
    def desert() -> None:
        nodes = [NodeSpec("n", 1)]
        with own_server(tmp_path, nodes, "edf") as server, Client(data=tmp_path, patience=0.1) as client:
            killed = psutil.Process(server["pid"])
            killed.kill()
            until(lambda: killed.status() == psutil.STATUS_ZOMBIE)
            client.jobs()

    with pytest.raises(HeadwayError, match="the server ended by itself, with status -9") as failed:
        desert()
    assert isinstance(failed.value.__cause__, HeadwayError)
    put_down(node_folder(tmp_path / "engine", "n"))  # a node outlives its server for a while
    left = [process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]
    assert not [process for process in left if str(tmp_path) in " ".join(process.cmdline())]


def test_figure_6_1_with_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lin14 6.2, twenty-five times faster: six of eight workers are killed, kept down, and come back."""
    monkeypatch.setattr(live, "SCALE", 0.04)
    told: list[str] = []
    curves = live.failure_live(told.append)
    assert told == ["3 nodes are down, with six of the eight slots.", "The nodes can come back."]
    normal, failed = curves["normal"], curves["failure"]
    for curve in curves.values():
        assert curve.sampled(1.0, failure.DUE)[:5].max() == 4  # until the first round with statistics
    # How soon each step follows depends on the machine. The job has at most two slots for half of the failure at least,
    # in however many steps, and then there are more again.
    down, back = failure.DOWN
    assert normal.slots[normal.at >= down].max() > 2
    every = 0.1
    slots = failed.sampled(every, failed.ended)[round(down / every) :]
    few = slots <= 2
    assert few.sum() * every > (back - down) / 2
    assert slots[few.argmax() :].max() > 2
