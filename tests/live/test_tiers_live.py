"""Two tiers on a real server: jobs run behind others, come to the foreground, move between nodes, outlive crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headway import Client, Job, Task
from headway.errors import HeadwayError

from ..waiting import LIMIT, let_the_background_run, until

if TYPE_CHECKING:
    Up = Any


@pytest.fixture(scope="module", autouse=True)
def _background(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        let_the_background_run(tmp_path_factory.mktemp("site"), patch)
        yield


@pytest.fixture
def client(up: Up) -> Iterator[Client]:
    """A client of an idle server under the policy MEASY."""
    with Client(up.url, data=up.data) as client:
        client.choose_policy("measy")
        yield client
    with Client(data=up.data) as client:  # it may have been started again
        client.cancel(*(job.id for job in client.jobs(status="open")))
        until(lambda: not client.jobs(status="open"))


def wait_for(door: str) -> tuple[int, int]:
    """Wait for the file. Returns this process and its scheduling policy."""
    import os

    open(f"{door}.{os.getpid()}", "w").close()
    while not os.path.exists(door):
        time.sleep(0.005)
    return os.getpid(), os.sched_getscheduler(0)


def count_up(door: str) -> tuple[int, str]:
    """Count and save until the file is there. Returns how far it came, and on which nodes."""
    import os

    import headway

    number, nodes = headway.resumed((0, ""))
    nodes += os.environ["HEADWAY_NODE"]
    while not os.path.exists(door):
        number += 1
        headway.checkpoint((number, nodes))
        time.sleep(0.005)
    return number, nodes


def rigid(door: Path, function: Any = wait_for, *, estimate: float = 100.0, **terms: Any) -> Job:
    return Job(door.name, [Task(function, str(door))], width=terms.pop("width", 1), estimate=estimate, **terms)


def tiers(client: Client, *jobs: int) -> list[list[tuple[str, str]]]:
    """Slots and tier of the running attempts of each job."""
    return [[(slot, one.tier) for one in client.job(job).attempts for slot in one.slots] for job in jobs]


def shown(up: Up, *words: str, status: int = 0) -> str:
    """Run a command. Returns what it prints."""
    command = [sys.executable, "-m", "headway", *words]
    place = {**os.environ, "HEADWAY_URL": up.url, "HEADWAY_DATA_DIR": str(up.data), "COLUMNS": "200"}
    done = subprocess.run(command, env=place, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def place_of(client: Client, job: int) -> str:
    """The only slot on which a job has a place."""
    ((place, _),) = tiers(client, job)[0]
    return place


def test_a_job_runs_behind_others_and_comes_to_the_foreground_without_a_restart(
    client: Client, up: Up, tmp_path: Path
) -> None:
    front = [client.submit(rigid(tmp_path / f"front{n}", cpu=0.5)) for n in range(2)]
    behind = client.submit(rigid(tmp_path / "behind", width=2, cpu=(0.9, 0.2)))
    until(lambda: len(list(tmp_path.glob("behind.*"))) == 2)
    jobs = [waiter.job for waiter in (*front, behind)]
    before = tiers(client, *jobs)
    assert [{tier for _, tier in found} for found in before] == [{"foreground"}, {"foreground"}, {"background"}]
    assert sorted(slot for slot, _ in before[0] + before[1]) == sorted(slot for slot, _ in before[2])
    assert f"{jobs[2]}.0 on 0" in shown(up, "nodes")
    told = shown(up, "job", str(jobs[2]))
    assert "90%, 20%" in told
    assert "background" in told
    for node in json.loads(shown(up, "nodes", "--json")):
        assert [one["tier"] for one in node["attempts"]] == ["foreground", "background"]
    for n in range(2):
        (tmp_path / f"front{n}").touch()
    client.wait(*front)
    until(lambda: {tier for _, tier in tiers(client, jobs[2])[0]} == {"foreground"})
    began = {int(path.suffix[1:]) for path in tmp_path.glob("behind.*")}
    until(lambda: {os.sched_getscheduler(process) for process in began} == {os.SCHED_OTHER})  # the order is on its way
    (tmp_path / "behind").touch()
    first, second = behind.result(LIMIT)
    assert {first[0], second[0]} == began, "it was not started again"
    assert first[1] == second[1] == os.SCHED_OTHER


def test_a_job_moves_to_another_node_with_what_it_has_done(client: Client, up: Up, tmp_path: Path) -> None:
    front = [client.submit(rigid(tmp_path / f"front{n}", cpu=0.2 + 0.2 * n)) for n in range(2)]
    moved = client.submit(rigid(tmp_path / "moved", count_up, movable=True, cpu=0.5))
    places = [place_of(client, waiter.job) for waiter in front]
    assert tiers(client, moved.job) == [[(places[0], "background")]], "behind the one that leaves more"
    until(lambda: (up.data / "engine" / "checkpoints" / str(moved.job)).exists())
    (tmp_path / "front1").touch()
    until(lambda: tiers(client, moved.job) == [[(places[1], "foreground")]])
    assert client.job(moved.job).moves == 1
    (tmp_path / "moved").touch()
    ((number, nodes),) = moved.result(LIMIT)
    assert nodes == "".join(place.partition("/")[0] for place in places), "once on each"
    assert number >= 1, "it went on from what it had saved"
    assert client.job(moved.job).lost == 0
    (tmp_path / "front0").touch()
    client.wait(*front)


def test_a_crash_leaves_each_attempt_in_its_tier(client: Client, up: Up, tmp_path: Path) -> None:
    front = [client.submit(rigid(tmp_path / f"front{n}", cpu=0.5)) for n in range(2)]
    behind = client.submit(rigid(tmp_path / "behind", cpu=0.5))
    jobs = [waiter.job for waiter in (*front, behind)]
    until(lambda: list(tmp_path.glob("behind.*")))
    before = tiers(client, *jobs)
    up.kill()
    up.start()
    with Client(up.url, data=up.data) as again:
        assert tiers(again, *jobs) == before
        (tmp_path / "behind").touch()
        ((_, policy),) = again.attach(jobs[2], trust=True).result(LIMIT)
        assert policy == os.SCHED_BATCH
        for n in range(2):
            (tmp_path / f"front{n}").touch()
        again.wait(*(again.attach(job, trust=True) for job in jobs[:2]))


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"cpu": 1.01}, r"cpu\[0\] is 1.01; allowed: 0 to 1"),
        ({"cpu": (0.5, 0.5)}, r"cpu has 2 values; allowed: none, one for all, or one a process \(1\)"),
    ],
)
def test_a_use_that_cannot_be_is_refused(client: Client, tmp_path: Path, terms: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadwayError, match=said):
        client.submit(rigid(tmp_path / "door", **terms))


def test_what_the_shell_says_of_a_job_reaches_the_scheduler(client: Client, up: Up) -> None:
    number = int(shown(up, "submit", "--cpu", "0.25", "--movable", "--", "sleep", "600"))
    told = client.job(number).job
    assert (told.cpu, told.movable) == ((0.25,), True)
    assert "it saves when it is asked to move" in shown(up, "job", str(number))
    assert "a number from 0 to 1" in shown(up, "submit", "--cpu", "half", "--", "true", status=2)
    client.cancel(number)


def fails_once(log: str) -> str | None:
    """The second process of a job fails in the first attempt. All processes write down that they began."""
    import os

    rank = os.environ["HEADWAY_RANK"]
    with open(log, "a") as file:
        file.write(rank)
    while len(begun := open(log).read()) % 2:  # noqa: SIM115
        pass
    if rank == "1" and len(begun) == 2:
        raise ValueError("no")
    return os.environ.get("HEADWAY_WIDTH")


@pytest.mark.parametrize("retries", [0, 1])
def test_a_process_that_fails_ends_or_retries_the_whole_job(client: Client, tmp_path: Path, retries: int) -> None:
    log = tmp_path / "log"
    log.touch()
    waiter = client.submit(Job("gang", [Task(fails_once, str(log))], width=2, retries=retries, cpu=0.5))
    if retries:
        assert waiter.result(LIMIT) == ["2", "2"]
    else:
        with pytest.raises(ValueError, match="no"):
            waiter.result(LIMIT)
    assert sorted(log.read_text()) == sorted("01" * (retries + 1)), "both began, each time"


# A server like that of an ordinary user, without the capability CAP_SYS_NICE.
UNPRIVILEGED = """
import ctypes, os, resource, sys
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)
resource.setrlimit(resource.RLIMIT_NICE, (0, 0))
os.execv(sys.executable, [sys.executable, "-m", "headway", *sys.argv[1:]])
"""


def test_a_server_that_may_not_change_tiers_says_so_and_finishes_every_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")  # only SCHED_IDLE is not to be left
    words = ("up", "--json", "--slots", "1", "--policy", "measy", "--data", str(tmp_path / "data"))
    server = subprocess.Popen([sys.executable, "-c", UNPRIVILEGED, *words], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        assert server.stdout.readline()
        with Client(data=tmp_path / "data") as client:
            front = client.submit(rigid(tmp_path / "front", cpu=0.5))
            behind = client.submit(rigid(tmp_path / "behind", preemptible=False))
            until(lambda: list(tmp_path.glob("behind.*")), 2 * LIMIT)
            (tmp_path / "front").touch()
            front.result(LIMIT)
            until(lambda: len(client.incidents()) == 2)
            assert [(one.kind, one.subject) for one in client.incidents()] == [
                ("tier_refused", "cluster"),
                ("tier_refused", f"job {behind.job}, task 0"),
            ]
            assert tiers(client, behind.job) == [[("cluster/0", "background")]]
            (tmp_path / "behind").touch()
            ((pid, policy),) = behind.result(2 * LIMIT)
            assert (tmp_path / f"behind.{pid}").exists()
            assert policy == os.SCHED_IDLE
    finally:
        server.terminate()
        server.wait(LIMIT)
        server.stdout.close()
