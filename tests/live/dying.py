"""A server whose parts die or stop while bags of tasks run: each result comes once, whatever ran twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from headway import Client, Job, Task
from headway.client.waiters import Waiter
from headway.live.store.journal import FILE

from ..waiting import LIMIT, gone, until
from .conftest import Up
from .noting import noted

TASKS = 200
"""Of the bag of each fault."""

SHORT = 0.06
"""Seconds. Tasks that take so long are launched ahead of their turn on workers of Dask."""

AHEAD = 4
"""At most so many of them for each slot."""

END = 5 * LIMIT
"""Seconds in which a bag must have come so far. Jobs of Slurm end by the dozen a second, on a busy machine by twos."""


@dataclass(frozen=True)
class Survived:
    """What became of the bags.

    Attributes:
        tasks: whose results were told, each of them once.
        again: how many attempts ran again, by the fault in whose bag.
    """

    tasks: int
    again: dict[str, int]

    def __str__(self) -> str:
        some = ", ".join(f"{name} {count}" for name, count in self.again.items() if count)
        return f"of {self.tasks} tasks {sum(self.again.values())} attempts ran again ({some})"


def survived(
    data: Path,
    faults: Sequence[Callable[[], None]],
    folder: Path,
    seconds: float,
    stop: Callable[[], None],
    tasks: int = TASKS,
) -> Survived:
    """Let each fault happen while a bag of its own is under way: a fifth of it has ended, half of it waits for that.

    Args:
        data: of a server that runs.
        folder: an empty one, for what tasks note.
        seconds: that a task takes.
        stop: ends the server in order.
        tasks: of each bag.
    """
    folder.mkdir()
    waiters: list[tuple[Waiter, list[int]]] = []
    with Client(data=data) as client:
        for place, fault in enumerate(faults):
            numbers = list(range(place * tasks, (place + 1) * tasks))
            log, gate = folder / f"{place}.log", folder / f"{place}.gate"
            gates = {number: str(gate) for number in numbers[tasks // 2 :]}
            bag = [Task(noted, one, str(log), seconds, gates.get(one, "")) for one in numbers]
            waiter = client.submit(Job(fault.__name__, bag, retries=0))
            waiters.append((waiter, numbers))
            until(lambda bag=waiter: bag.progress[0] >= tasks // 5, END)  # type: ignore[misc]
            gate.touch()
            fault()
        for waiter, numbers in waiters:
            assert waiter.result(END) == numbers
    stop()
    told = tasks * len(faults)
    with closing(sqlite3.connect(data / FILE)) as db:
        found = db.execute("SELECT count(*), count(DISTINCT job || '.' || task) FROM messages WHERE task IS NOT NULL")
        assert found.fetchone() == (told, told), "each result is told once"
    again = Counter[str]()
    for place, fault in enumerate(faults):
        ran = Counter((folder / f"{place}.log").read_text().split())
        assert len(ran) == tasks
        again[fault.__name__] += ran.total() - tasks
    return Survived(told, dict(again))


def drawn(chance: Random, kinds: Sequence[Sequence[Callable[[], None]]], *, whole: bool) -> list[Callable[[], None]]:
    """Faults in an order by chance: all of them, or one of each kind."""
    faults = [fault for kind in kinds for fault in (kind if whole else [chance.choice(kind)])]
    chance.shuffle(faults)
    return faults


def agent_of(node: str, folder: Path) -> list[psutil.Process]:
    """The agent of a worker's node, by the folder in which it keeps its files; empty: it has none now."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            ours = "headway.engines.local.agent.guard" in words and f'"name":"{node}"' in words[4]
            if ours and str(folder) in words[4] and (children := process.children()):
                return children[:1]
    return []


def is_up(data: Path, node: str) -> bool:
    """Whether the server of a data directory uses a node."""
    with Client(data=data) as client:
        return any(one.name == node and one.up for one in client.nodes())


class Faults:
    """What can befall a server and the agents of its nodes.

    Args:
        chance: draws the nodes and the pauses.
        words: with which a server is started that takes over.
        nodes: that may have agents.
        folder: where agents keep their files.
    """

    def __init__(
        self,
        chance: Random,
        up: Up,
        words: Sequence[str] = (),
        nodes: Sequence[str] = (),
        folder: Path = Path("/"),
    ) -> None:
        self._chance = chance
        self._up = up
        self._words = words
        self._nodes = nodes
        self._folder = folder
        self.server = (self.kill_server, self.stop_server)
        self.agents = (self.kill_agent, self.stop_agent)

    def kill_server(self) -> None:
        """The next one comes within a second."""
        self._up.kill()
        time.sleep(self._chance.random())
        self._up.start(*self._words, cluster=False)

    def stop_server(self) -> None:
        """For longer than a lease."""
        os.kill(self._up.pid, signal.SIGSTOP)
        time.sleep(3 + 2 * self._chance.random())
        os.kill(self._up.pid, signal.SIGCONT)

    def kill_agent(self) -> None:
        """What runs there ends with it."""
        _, agent = self._agent()
        agent.kill()

    def stop_agent(self) -> None:
        """Until its node is given up, or until another agent has taken its place."""
        node, agent = self._agent()
        agent.suspend()
        until(lambda: gone(agent.pid) or not is_up(self._up.data, node))
        time.sleep(self._chance.random())
        with suppress(psutil.NoSuchProcess):
            agent.resume()

    def node(self) -> str:
        """One of the nodes that are up."""
        return self._chance.choice(until(lambda: [node for node in self._nodes if is_up(self._up.data, node)]))

    def _agent(self) -> tuple[str, psutil.Process]:
        """Such a node, and its agent."""
        node = self.node()
        (agent,) = until(lambda: agent_of(node, self._folder))
        return node, agent
