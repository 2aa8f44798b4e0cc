"""Tasks that kill their node's process, or cause it to be killed, on a real server: only these tasks fail."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headway import Client, Job, Task
from headway.model.actions import JobStatus
from headway.model.events import Outcome

from ..waiting import LIMIT, until
from .conftest import Up


def cluster(count: int, slots: int) -> str:
    return f'[[node]]\nname = "n"\nslots = {slots}\ncount = {count}\n'


@pytest.fixture(
    params=[pytest.param((1, 3), id="one node", marks=pytest.mark.slow), pytest.param((2, 2), id="two nodes")]
)
def up(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path, cluster(*request.param))
    up.start("--check-every", "0")
    yield up
    up.stop()


def agent_above() -> int:
    """The agent of this node, found as a task could find it: all between it and the task are forks of the guard."""
    import psutil

    guards = [
        one for one in psutil.Process().parents() if "headway.engines.local.agent.guard" in " ".join(one.cmdline())
    ]
    return guards[-2].pid  # the last one is the guard itself


def poison() -> None:
    import os

    time.sleep(0.2)
    os.kill(agent_above(), 9)
    time.sleep(600)


def innocent(seconds: float) -> str:

    time.sleep(seconds)
    return "done"


def kill_oneself() -> None:
    import os

    os.kill(os.getpid(), 9)


def test_only_the_poison_fails(up: Up) -> None:
    with Client(data=str(up.data)) as client:
        beside = [client.submit(Job(f"beside {number}", [Task(innocent, 0.5)])) for number in range(3)]
        bad = client.submit(Job("poison", [Task(poison)]))
        bag = client.submit(Job("bag", [Task(innocent, 0.3) for _ in range(6)]))
        for waiter in (*beside, bag):
            assert set(waiter.result(LIMIT)) == {"done"}
        until(lambda: client.job(bad.job).job.status.is_final)
        assert client.job(bad.job).job.status is JobStatus.FAILED
        (result,) = client.results(bad.job)
        assert result.ending.outcome is Outcome.LOST
        assert "taken for the cause" in result.ending.detail
        incidents = client.incidents()
        lost = [one for one in incidents if one.kind == "node_lost"]
        assert 2 <= len(lost) <= 12, "as often as it takes, and no more"
        given_up = [one for one in incidents if one.kind == "task_given_up"]
        assert [f"job {bad.job}, task 0 " in one.detail for one in given_up] == [True]
        suspected = [one for one in incidents if one.kind == "tasks_suspected"]
        assert any(f"job {bad.job}, task 0 " in one.detail for one in suspected)
        assert client.submit(Job("after", [Task(innocent, 0.0)])).result(LIMIT) == ["done"]


@pytest.mark.thorough
def test_kills_of_everything_make_no_task_a_suspect(tmp_path: Path) -> None:
    """The server and all its nodes are killed again and again. What ran is redone each time."""
    up = Up(tmp_path, cluster(1, 2))
    up.start("--check-every", "0")
    try:
        with Client(data=str(up.data)) as client:
            job = client.submit(Job("long", [Task.command("sleep", "1000"), Task.command("sleep", "1000")])).job
        for attempt in range(1, 4):
            with Client(data=str(up.data)) as client:
                until(
                    lambda attempt=attempt, client=client: (
                        [  # type: ignore[misc]
                            one.attempt for one in client.job(job).attempts
                        ]
                        == [attempt] * 2
                    )
                )
            everything = psutil.Process(up.pid).children(recursive=True)
            up.kill()
            for process in everything:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(everything, LIMIT)
            up.start("--check-every", "0")
        with Client(data=str(up.data)) as client:
            until(lambda: len(client.job(job).attempts) == 2)
            assert [one for one in client.incidents() if one.kind == "tasks_suspected"] == []
            client.cancel(job)
    finally:
        up.stop()


def test_a_slot_that_is_killed_from_outside_costs_no_retry_and_one_that_kills_itself_ends(tmp_path: Path) -> None:
    up = Up(tmp_path, cluster(1, 1))
    up.start("--check-every", "0")
    try:
        with Client(data=str(up.data)) as client:
            door = tmp_path / "door"
            waiter = client.submit(Job("victim", [Task(_wait, str(door), str(tmp_path / "pid"))]))
            until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            os.kill(int((tmp_path / "pid").read_text()), 9)
            door.touch()
            assert waiter.result(LIMIT) == ["let in"]
            alike = client.submit(Job("kills itself", [Task(kill_oneself)]))
            until(lambda: client.job(alike.job).job.status.is_final)
            (ending,) = [result.ending for result in client.results(alike.job)]
            assert ending.outcome is Outcome.SIGNALLED
            assert "4 times" in ending.detail
    finally:
        up.stop()


def _wait(door: str, pid: str) -> str:
    import os

    with open(pid, "w") as file:
        file.write(str(os.getpid()))
    while not os.path.exists(door):
        time.sleep(0.01)
    return "let in"
