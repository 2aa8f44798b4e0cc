"""Idle nodes of a real server go off and come on: with commands that work, fail or hang, and with kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import Client, Job, Task
from headway.errors import HeadwayError
from headway.model.power import PowerWord

from ..waiting import until
from .test_nodes_live import Up

NODES = """
[[node]]
name = "a"
idle_watts = 10
peak_watts = 20

[[node]]
name = "b"
idle_watts = 10
peak_watts = 20

[power]
off_after = 0.3
on_seconds = 1
min_on = 1
limit = LIMIT
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    server = Up(tmp_path / "data")
    yield server
    if server.process is not None and server.process.poll() is None:
        server.end(signal.SIGTERM)


def begin(up: Up, commands: str = "", *, limit: int = 2) -> Client:
    """Start a server with these nodes, one of which goes off."""
    file = up.data.parent / "cluster.toml"
    file.write_text(NODES.replace("LIMIT", str(limit)) + commands)
    up.start("--cluster", str(file))
    return Client(data=up.data)


def power(client: Client) -> dict[str, str]:
    return {node.name: node.power for node in client.nodes()}


def becomes(client: Client, word: PowerWord) -> None:
    until(lambda: power(client)["b"] == word)


def kinds(client: Client) -> list[str]:
    return [incident.kind for incident in client.incidents()]


def wide() -> Job:
    """A job that needs both nodes at once."""
    return Job("wide", [Task.command("true")], width=2, estimate=1.0)


def test_an_idle_node_goes_off_and_comes_on_for_a_job(up: Up) -> None:
    log = up.data.parent / "log"
    note = f"echo $0 $1 >> {log}"
    with begin(
        up, f'off_command = ["sh", "-c", "{note}", "off"]\non_command = ["sh", "-c", "{note}", "on"]\n'
    ) as client:
        becomes(client, "off")
        assert power(client)["a"] == "on"
        assert not up.agents("b")
        client.wait(client.submit(wide()), timeout=20)
        assert log.read_text().splitlines() == ["off b", "on b"]
        becomes(client, "off")
        assert not kinds(client)
        # By hand: it stays off, though a job waits, until it is wanted on.
        assert "goes off" in up.headway("node", "off", "b")
        waiting = client.submit(wide())
        with pytest.raises(TimeoutError):
            client.wait(waiting, timeout=1.5)
        assert "comes on" in up.headway("node", "on", "b")
        client.wait(waiting, timeout=20)


@pytest.mark.thorough
def test_what_the_nodes_took_is_shown_by_node_user_and_job(up: Up) -> None:
    with begin(up) as client:
        becomes(client, "off")
        job = client.submit(Job("sleeps", [Task.command("sleep", "0.5")], estimate=1.0))
        client.wait(job, timeout=20)
        shown = up.headway("energy")
        found = client.energy()
        model = found.model
        lasted = model.until - model.since
        assert 0.5 < lasted < 60
        assert model.joules == pytest.approx(sum(model.nodes.values()))
        # a draws 10 W, and 10 more while the job runs; b draws nothing while it is off.
        assert model.nodes["a"] == pytest.approx(10 * lasted + 10 * 0.5, rel=0.3)
        assert model.nodes["b"] < model.nodes["a"] - 5
        ((number, joules),) = [(one.job, one.joules) for one in model.jobs]
        assert (number, joules) == (job.job, pytest.approx(20 * 0.5, rel=0.5))
        assert sum(model.users.values()) == pytest.approx(joules)
        assert sum(model.idle.values()) + joules == pytest.approx(model.joules)
        assert model.idle_joules == pytest.approx(sum(model.idle.values()))
        assert [one.joules for one in client.energy().model.jobs] == [joules]  # it has ended
        assert (found.counted is None) == bool(found.why_not)
        assert "nodes took" in shown
        assert "(no job)" in shown
        past = client.energy(until=model.since - 100).model
        assert (past.joules, past.since) == (0, past.until)
        with pytest.raises(HeadwayError, match="not before since"):
            client.energy(since=model.since, until=model.since - 1)


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["off", "on"])
def test_a_server_that_is_killed_meanwhile_goes_on(up: Up, when: str) -> None:
    marker = up.data.parent / "slow"
    slow = f'["sh", "-c", "test -e {marker} && exit; touch {marker}; sleep 20"]'
    with begin(up, f"{when}_command = {slow}\n", limit=60) as client:
        if when == "on":
            becomes(client, "off")
            waiting = client.submit(wide())
        until(marker.exists)
        assert power(client)["b"] == ("going off" if when == "off" else "coming on")
        up.end(signal.SIGKILL)
    up.start()
    with Client(data=up.data) as client:
        if when == "off":
            becomes(client, "off")
            assert not up.agents("b")
        else:
            until(lambda: client.job(waiting.job).job.status.value == "succeeded")
            assert not kinds(client)


def test_a_node_whose_command_fails_stays_on(up: Up) -> None:
    with begin(up, 'off_command = ["sh", "-c", "echo no such plug; exit 3"]\n') as client:
        until(lambda: "node_not_off" in kinds(client))
        assert "exit code 3: no such plug" in client.incidents()[-1].detail
        client.wait(client.submit(wide()), timeout=20)


@pytest.mark.thorough
def test_a_node_that_hangs_is_down_until_it_comes(up: Up) -> None:
    fixed = up.data.parent / "fixed"
    with begin(up, f'on_command = ["sh", "-c", "test -e {fixed} || sleep 20"]\n') as client:
        becomes(client, "off")
        waiting = client.submit(wide())
        until(lambda: "node_not_on" in kinds(client))
        assert "has not ended within 2 s" in client.incidents()[-1].detail
        assert not {node.name: node.up for node in client.nodes()}["b"]
        fixed.touch()
        client.wait(waiting, timeout=20)
