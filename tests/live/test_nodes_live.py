"""Nodes join and leave a real server, with real processes that are killed: each result arrives exactly once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from headway import Client, HeadwayError, Job, Task
from headway.live.store.journal import FILE, Journal
from headway.model.events import Incident

from ..waiting import LIMIT, until
from .conftest import headway

TASKS = 200

HELD = 20
"""How many of them wait until the last change was made."""


class Up:
    """A server whose nodes are named only at the first start."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process: subprocess.Popen[str] | None = None

    def start(self, *words: str) -> None:
        command = [sys.executable, "-m", "headway", "up", "--json", "--data", str(self.data), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        with self.process.stdout as said:
            line = said.readline()
        assert json.loads(line)["pid"] == self.process.pid

    def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(LIMIT)

    def headway(self, *words: str) -> str:
        """Run a command. Returns what it prints. It must succeed."""
        done = headway(*words, "--data", self.data)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def agents(self, node: str) -> list[psutil.Process]:
        """The agents of a node: forked by a guard, so they have the command line of their parent."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if (
                    "headway.engines.local.agent.guard" in words
                    and f'"name":"{node}"' in words[4]
                    and str(self.data) in words[4]
                ):
                    parent = process.parent()
                    found += [(process, parent.pid)] if parent is not None and parent.cmdline() == words else []
            except psutil.NoSuchProcess:
                continue
        # The processes of slots are forked by the agent in turn.
        pids = {process.pid for process, _ in found}
        return [process for process, parent in found if parent not in pids]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    server = Up(tmp_path / "data")
    yield server
    assert server.process is not None
    if server.process.poll() is not None:
        server.start()  # it ends the nodes that a killed one has left
    server.end(signal.SIGTERM)


def noted(number: int, log: str, door: str = "") -> int:
    """Write down that it runs, take a moment or wait for a file, and return its number."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.05)
    if door:
        wait_for(door)
    return number


def wait_for(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return "found"


def names(client: Client) -> dict[str, int]:
    return {node.name: len(node.slots) for node in client.nodes()}


@pytest.mark.thorough
def test_every_result_arrives_once_whatever_becomes_of_the_nodes(up: Up, tmp_path: Path) -> None:
    log, door = tmp_path / "log", tmp_path / "door"
    up.start("--slots", "1")
    with Client(data=up.data) as client:
        tasks = [Task(noted, number, str(log), str(door) if number >= TASKS - HELD else "") for number in range(TASKS)]
        waiter = client.submit(Job("bag", tasks))

        def kill_agent(node: str) -> None:
            (agent,) = up.agents(node)
            agent.kill()

        changes: list[Callable[[], object]] = [
            lambda: client.add_node("b", 2),
            lambda: client.resize_node("cluster", 3),
            lambda: kill_agent("b"),
            lambda: client.add_node("c", 1, speed=2.0, kind="fast"),
            lambda: client.drain_node("b"),
            lambda: client.resize_node("cluster", 1, at_once=True),
            lambda: kill_agent("cluster"),
            lambda: client.remove_node("c"),
            lambda: client.add_node("d", 2),
            lambda: client.resize_node("d", 4),
            lambda: client.drain_node("cluster"),
            lambda: client.resize_node("d", 2),
        ]
        for place, change in enumerate(changes):
            until(lambda place=place: waiter.progress[0] >= TASKS * place // (len(changes) + 3))  # type: ignore[misc]
            change()
        assert not waiter.done()
        door.touch()
        assert waiter.result(LIMIT) == list(range(TASKS))
        until(lambda: names(client) == {"d": 2})
    with closing(sqlite3.connect(up.data / FILE)) as db:
        told = db.execute("SELECT count(*), count(DISTINCT task) FROM messages WHERE task IS NOT NULL").fetchone()
    assert told == (TASKS, TASKS)
    done = Counter(log.read_text().split())
    assert len(done) == TASKS
    # Lost: what ran, or was queued for short tasks, on slots that were killed or cut at once.
    assert sum(done.values()) - TASKS <= 12
    until(lambda: [up.agents(node) for node in ("b", "c", "cluster")] == [[], [], []])


@pytest.mark.thorough
def test_a_server_killed_while_a_node_drains_goes_on_draining_it(up: Up, tmp_path: Path) -> None:
    door = tmp_path / "door"
    up.start("--slots", "1")
    with Client(data=up.data) as client:
        waiter = client.submit(Job("waits", [Task(wait_for, str(door))]))
        until(lambda: client.statistics().busy == 1)
        terms = ("--slots", "2", "--kind", "new", "--site", "hall")
        assert up.headway("node", "add", "b", *terms) == "Node b is in service.\n"
        assert up.headway("node", "drain", "cluster") == "Node cluster drains.\n"
        (agent,) = up.agents("cluster")
        up.end(signal.SIGKILL)
        up.start()
        assert names(client) == {"cluster": 1, "b": 2}
        assert up.agents("cluster") == [agent]
        listed = json.loads(up.headway("nodes", "--json"))
        assert [(node["name"], node["draining"], node["kind"], node["site"]) for node in listed] == [
            ("cluster", True, "", "local"),
            ("b", False, "new", "hall"),
        ]
        door.touch()
        assert waiter.result(LIMIT) == ["found"]
        until(lambda: names(client) == {"b": 2})
        until(lambda: not up.agents("cluster"))
        up.end(signal.SIGTERM)
        up.start("--slots", "1")
        assert names(client) == {"cluster": 1}


@pytest.mark.thorough
def test_nodes_from_the_shell(up: Up, tmp_path: Path) -> None:
    door = tmp_path / "door"
    up.start("--slots", "2")
    with Client(data=up.data) as client:
        with pytest.raises(HeadwayError, match="node 'cluster' is the last one"):
            client.remove_node("cluster")
        assert up.headway("node", "add", "big/1", "--slots", "3") == "Node big/1 is in service.\n"
        assert up.headway("node", "add", "big/1", "--slots", "3").startswith("Node big/1 was in service with these")
        with pytest.raises(HeadwayError, match="the name 'big/1' is taken"):
            client.add_node("big/1", 2)
        wide = Job("wide", [Task(wait_for, str(door))] * 4, together=True)
        wider = Job("wider", [Task(noted, 0, str(tmp_path / "log"))] * 4, together=True)
        first, second = client.submit([wide, wider])
        until(lambda: client.statistics().busy == 4)
        assert up.headway("node", "resize", "big/1", "--slots", "1") == "Node big/1 has 1 slot.\n"
        assert client.explain(second.job or 0).reason == "NEVER_FITS"
        said = json.loads(up.headway("node", "remove", "big/1", "--at-once", "--json"))
        found = {
            "changed": True,
            "redone": 1,
            "unfit": [first.job, second.job],
            "power": "",
            "trouble": "",
            "awaited": False,
        }
        assert said == {"node": "big/1", **found}
        assert names(client) == {"cluster": 2}
        door.touch()
        assert up.headway("node", "resize", "cluster", "--slots", "4", "--at-once") == "Node cluster has 4 slots.\n"
        assert first.result(LIMIT) == ["found"] * 4
        assert second.result(LIMIT) == [0] * 4
        up.headway("node", "add", "c")
        assert up.headway("node", "remove", "c") == "Node c has left.\n"
        assert names(client) == {"cluster": 4}
    up.end(signal.SIGTERM)
    with closing(Journal(up.data)) as journal:
        incidents = [(event.kind, event.subject) for _, event in journal.events() if isinstance(event, Incident)]
    assert incidents == [("last_node", "cluster"), ("name_taken", "big/1")]
