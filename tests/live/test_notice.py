"""How a dead node and a hung one are noticed, with real processes: kill -9 and kill -STOP."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headway import Client, Job, Task
from headway.engines.local.driver.host import agent_of
from headway.times import SPANS
from headway.wire import IncidentReport

from ..waiting import LIMIT, until
from .conftest import Up, headway

LEASE = 3.0
"""Seconds. No process waits that long for a processor, even on a busy machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, Client]]:
    up = Up(tmp_path_factory.mktemp("notice"))
    up.start("--lease", str(LEASE), "--check-every", "0")
    with Client(data=str(up.data)) as client:
        yield up, client
    up.stop()


def agent(up: Up, node: str) -> int:
    return agent_of(up.pid, node)


def lost(client: Client, after: float) -> list[IncidentReport]:
    return [one for one in client.incidents() if one.kind == "node_lost" and one.at >= after]


@pytest.mark.parametrize(
    ("number", "least", "detail"),
    [
        (signal.SIGKILL, 0.0, "its process died"),
        # It is asked for a heartbeat three times per lease, and lost after three without an answer. On a busy machine
        # the first of them may have been asked before it hung.
        (signal.SIGSTOP, LEASE / 2, f"silent for {LEASE:g} s"),
    ],
)
def test_a_dead_node_is_noticed_by_its_death_and_a_hung_one_by_its_lease(
    number: signal.Signals, least: float, detail: str, server: tuple[Up, Client]
) -> None:
    up, client = server
    job = client.submit(Job("long", [Task.command("sleep", "600"), Task.command("sleep", "600")]))
    until(lambda: len(client.job(job.job).attempts) == 2)
    on = {attempt.slots[0].partition("/")[0]: attempt for attempt in client.job(job.job).attempts}
    before, began = agent(up, "n-1"), time.time()
    os.kill(before, number)
    until(lambda: lost(client, began))
    (found,) = lost(client, began)
    took = found.at - began
    assert (found.subject, found.detail) == ("n-1", detail)
    assert least <= took < LIMIT
    # What ran there is redone as soon as there is a slot, on the restarted node. The other one kept running.
    until(lambda: len(client.job(job.job).attempts) == 2)
    again = {attempt.task: attempt.attempt for attempt in client.job(job.job).attempts}
    assert again == {on["n-1"].task: 2, on["n-2"].task: 1}
    assert agent(up, "n-1") != before
    assert not psutil.pid_exists(before)
    assert 0 < client.job(job.job).lost < took + LIMIT
    client.cancel(job.job)
    until(lambda: client.job(job.job).job.status.is_final)


def test_a_node_that_is_only_slow_to_answer_is_kept(server: tuple[Up, Client]) -> None:
    up, client = server
    until(lambda: all(node.up for node in client.nodes()))
    before, began = agent(up, "n-2"), time.time()
    os.kill(before, signal.SIGSTOP)
    time.sleep(LEASE / 3)
    os.kill(before, signal.SIGCONT)
    time.sleep(LEASE)
    assert lost(client, began) == []
    assert agent(up, "n-2") == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lease", "0.1"), "--lease is 0.1; allowed: 0.5 to 3600 seconds"),
        (
            ("--lease", "soon"),
            f"--lease is 'soon'; allowed: {SPANS}",
        ),
        (("--check-every", "2d"), "--check-every is '2d'; allowed: 0.1 to 86400 seconds"),
        (
            ("--check-every", "-1"),
            f"--check-every is '-1'; allowed: {SPANS}",
        ),
    ],
)
def test_settings_out_of_range_are_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    refused = headway("up", "--data", tmp_path / "data", *words)
    assert (refused.returncode, refused.stderr) == (2, f"Error: {said}\n")
    assert not (tmp_path / "data").exists()
