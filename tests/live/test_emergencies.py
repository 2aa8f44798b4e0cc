"""Emergencies with real processes: running tasks are killed, the urgent job runs, the killed ones are redone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headway import Client, Job, Task

from ..waiting import LIMIT, until


@pytest.fixture(scope="module", autouse=True)
def _carried() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def client(up: Any) -> Iterator[Client]:
    with Client(data=up.data) as client:
        client.choose_policy("priority:emergency=100")
        yield client


def until_gone(gate: str, number: int) -> int:
    """Write down that an attempt has begun, and wait until the gate is removed."""
    with Path(f"{gate}.begun").open("a") as file:
        file.write(f"{number}\n")
    while Path(gate).exists():
        time.sleep(0.01)
    return number


def begun(gate: Path) -> list[str]:
    path = Path(f"{gate}.begun")
    return path.read_text().split() if path.exists() else []


def gated(gate: Path, **terms: Any) -> Job:
    """A job of two tasks that fill the two slots until the gate is removed."""
    gate.touch()
    job = Job("long", **terms)
    for number in range(2):
        job.add_task(Task(until_gone, str(gate), number))
    return job


def urgent() -> Job:
    job = Job("urgent", priority=100)
    job.add_task(Task(abs, -7))
    return job


def test_an_emergency_does_not_wait_and_what_it_killed_is_redone(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiter = client.submit(gated(gate))
    until(lambda: len(begun(gate)) == 2)
    assert client.submit(urgent()).result(timeout=LIMIT) == [7]
    until(lambda: len(begun(gate)) == 3)
    [number] = [report.id for report in client.jobs(status="open")]
    detail = client.job(number)
    assert detail.kills == 1
    assert detail.lost > 0
    gate.unlink()
    assert waiter.result(timeout=LIMIT) == [0, 1]
    assert len(begun(gate)) == 3


def test_tasks_that_are_not_to_be_killed_are_waited_for(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiter = client.submit(gated(gate, preemptible=False))
    until(lambda: len(begun(gate)) == 2)
    emergency = client.submit(urgent())
    with pytest.raises(TimeoutError):
        emergency.result(timeout=0.3)
    gate.unlink()
    assert emergency.result(timeout=LIMIT) == [7]
    assert waiter.result(timeout=LIMIT) == [0, 1]
    assert len(begun(gate)) == 2
