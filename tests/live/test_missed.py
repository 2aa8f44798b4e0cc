"""A client that was away for longer than the server keeps results gets an error, and does not wait for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from headway import Client, HeadwayExecutor, Job, Task
from headway.errors import HeadwayError

from ..waiting import LIMIT, until
from .conftest import ONE_NODE, Up

KEPT = "3s"
"""How long results are kept. A client that waits for them has them by then, even on a busy machine."""

SHORT = [word for option in ("unacknowledged", "jobs") for word in (f"--keep-{option}", KEPT)]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    server = Up(tmp_path, ONE_NODE)
    server.start("--retention", KEPT, *SHORT)
    yield server
    server.stop()


def gone(client: Client, job: int) -> bool:
    try:
        client.job(job)
    except HeadwayError:
        return True
    return False


def until_gone(up: Up, *jobs: int) -> None:
    """Wait until the server has deleted these jobs, as another client sees it."""
    with Client(data=up.data) as other:
        until(lambda: all(gone(other, job) for job in jobs))


def test_who_waits_for_a_job_whose_results_are_gone_is_told(up: Up) -> None:
    resumed = Event()
    with Client(data=up.data) as client:
        long = client.submit(Job("goes on", [Task(time.sleep, 3600)]))
        first = client.submit(Job("first", [Task(abs, -1)]))
        first.add_done_callback(lambda _: resumed.wait(LIMIT))  # the client is busy, or stopped, or away
        first.result(LIMIT)
        missed = [client.submit(Job("missed", [Task(abs, -number)])) for number in range(1, 4)]
        until_gone(up, *(waiter.job for waiter in missed))
        after = client.submit(Job("after", [Task(abs, -5)]))
        resumed.set()
        assert after.result(LIMIT) == [5]
        for waiter in missed:
            with pytest.raises(HeadwayError, match=rf"^job {waiter.job} has ended, but its results were not fetched"):
                waiter.result(LIMIT)
        assert not long.done()
        assert long.cancel()
        assert client.submit(Job("and now", [Task(abs, -6)])).result(LIMIT) == [6]


@pytest.mark.thorough
def test_so_are_the_calls_of_an_executor(up: Up, tmp_path: Path) -> None:
    resumed = Event()
    with Client(data=up.data) as client, HeadwayExecutor(client=client) as executor:
        first = executor.submit(abs, -1)
        first.add_done_callback(lambda _: resumed.wait(LIMIT))
        assert first.result(LIMIT) == 1
        missed = executor.submit(Path.touch, tmp_path / "ran")
        until((tmp_path / "ran").exists)
        until_gone(up, 2)
        resumed.set()
        with pytest.raises(HeadwayError, match="its results were not fetched"):
            missed.result(LIMIT)
        assert executor.submit(abs, -3).result(LIMIT) == 3


def test_a_waiter_of_another_clients_job_is_told_too(up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(data=up.data) as client, Client(data=up.data) as other:
        door = tmp_path / "door"
        script = f"until [ -e {door} ]; do sleep 0.01; done"
        job = client.submit(Job("short", [Task.command("sh", "-c", script)])).job
        take: Any = other._inbox._take
        monkeypatch.setattr(other._inbox, "_take", lambda *words: until_gone(up, job) or take(*words))
        client.close()
        waiter = other.attach(job)
        door.touch()
        with pytest.raises(HeadwayError, match=f"job {job}"):
            waiter.result(LIMIT)
