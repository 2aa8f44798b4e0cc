"""The driver dies at any instant and is started again: every accepted job ends, each result is reported once."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from headway import wire
from headway.client.client import Client
from headway.client.job import Job, Task
from headway.engines import base
from headway.errors import Conflict, NoSuchNode
from headway.live.driver import Driver
from headway.live.nodes import Nodes
from headway.live.settings import DriverSettings
from headway.live.store.journal import FILE, Batch, Journal
from headway.model.events import Outcome
from headway.model.node import NodeSpec
from headway.model.tier import Tier
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, hear, new_job, node, submission

from ..waiting import LIMIT

NODES = (node("a", slots=2, read_ahead=2), node("b", slots=1))


# Every crash point of a run with a fake engine


class QuickJournal(Journal):
    """A journal that does not wait for the disk, because here processes die, not the machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._db.execute("PRAGMA synchronous = OFF")


class CopiedJournal(QuickJournal):
    """A journal that keeps a copy of its folder after every transaction with events or a snapshot."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copies = 0
        self.copy()

    def copy(self) -> None:
        self.copies += 1
        shutil.copytree(self.folder, self.folder.with_name(f"copy-{self.copies}"))

    def write(self, batch: Batch) -> None:
        super().write(batch)
        self.copy()

    def store_snapshot(self, *args: Any, **named: Any) -> None:
        super().store_snapshot(*args, **named)
        self.copy()


@dataclass(frozen=True)
class CrashPoint:
    """The files on the disk, the state of the engine, the position in the client's messages, and the answers so far.

    Attributes:
        answered: keys of the submissions that were answered.
        sizes: the slots of each node after the last answered request about it; 0: it is gone.
    """

    copy: int
    found: base.Found
    heard: tuple[tuple[int, int | None], ...]
    cursor: int
    answered: frozenset[str]
    sizes: tuple[tuple[str, int], ...]


class Run:
    """A random run, and every instant at which the driver could die. All nodes but the first may come and go."""

    def __init__(self, folder: Path, policy: str, seed: int, *, changing: bool) -> None:
        self.policy = policy
        self.tiers = policy == "measy"
        self.changing = changing
        self.sizes: dict[str, int] = {}
        self.ahead = False
        self.random = random.Random(seed)
        self.folder = folder
        self.points: list[CrashPoint] = []
        self.offered: list[wire.Submission] = []
        self.answered: set[str] = set()
        self.heard: list[tuple[int, int | None]] = []
        self.cursor = 0

    def offer(self) -> wire.Submission:
        jobs = [
            new_job(kind="rigid", width=self.random.randint(1, 2 if self.changing else 3), **self.terms())
            if self.random.random() < (0.7 if self.tiers else 0.3)
            else new_job(tasks=self.random.randint(4, 30), retries=self.random.randint(0, 1), **self.terms())
            for _ in range(self.random.randint(1, 2))
        ]
        self.offered.append(submission(*jobs, key=f"key {len(self.offered)}", client="c"))
        return self.offered[-1]

    def terms(self) -> dict[str, Any]:
        if not self.tiers:
            return {}
        return {"cpu": (self.random.choice([0.2, 0.5, 0.9]),), "movable": self.random.random() < 0.7}

    async def go(self) -> None:
        run = self

        class Engine(FakeEngine):
            def launch(self, assignment: base.Assignment) -> None:
                run.crash_point()
                super().launch(assignment)
                run.crash_point()

            async def join(self, node: NodeSpec) -> None:
                await super().join(node)
                run.crash_point()

            async def leave(self, name: str) -> None:
                run.crash_point()
                await super().leave(name)
                run.crash_point()

            def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
                run.crash_point()
                super().resize(name, slots, at_once=at_once)
                run.crash_point()

            def kill(self, *key: int) -> None:
                super().kill(*key)
                run.crash_point()

            def change(self, job: int, task: int, attempt: int, tier: Tier) -> None:
                run.crash_point()
                super().change(job, task, attempt, tier)
                run.crash_point()

            def suspend(self, *key: int) -> None:
                super().suspend(*key)
                run.crash_point()

            def acknowledge(self, *key: int) -> None:
                run.crash_point()
                super().acknowledge(*key)

        class Watched(CopiedJournal):
            def write(self, batch: Batch) -> None:
                run.crash_point()
                super().write(batch)
                run.crash_point()

        self.engine = Engine()
        self.journal = Watched(self.folder / "live")
        with closing(self.journal):
            clock = ManualClock()
            driver = Driver(
                self.journal,
                self.engine,
                clock,
                find,
                DriverSettings(policy=self.policy, snapshot_every=9, read_ahead=2),
            )
            await driver.start(NODES)
            for _ in range(45):
                await self.step(driver, clock)
                for _ in range(6):
                    await asyncio.sleep(0)
                rows, self.cursor = await hear(driver, self.cursor, 3, client="c")
                self.heard += [(row.job, row.task) for row in rows]
            driver.core.check()
            await driver.nodes.settle()
            self.check_same_nodes(driver)

    def check_same_nodes(self, driver: Driver) -> None:
        """Check that the engine has exactly the nodes that the core knows."""
        known = {name: view.spec.slots for name, view in driver.core.state.nodes.items()}
        assert {node.name: node.slots for node in self.engine.nodes} == known

    async def step(self, driver: Driver, clock: ManualClock) -> None:
        clock.advance(self.random.choice([0.0001, 0.001]))
        running = sorted(self.engine.running)
        chance = self.random.random()
        if chance < 0.12 or not running:
            offer = self.offer()
            await driver.submit("me", offer)
            self.answered.add(offer.key)
        elif chance < 0.17:
            await driver.cancel([self.random.choice(running)[0]])
        elif chance < 0.22:
            lost = self.random.choice(self.engine.nodes).name
            self.engine.lose(lost)
            self.engine.report(base.NodeBack(lost))
        elif chance < 0.25:
            self.engine.report(base.Saved(*self.random.choice(running)))
        elif self.tiers and chance < 0.3:
            self.engine.report(base.TierRefused(*self.random.choice(running), self.random.choice(list(Tier))))
        elif self.changing and chance < 0.45:
            await self.change_nodes(driver.nodes)
        else:
            for key in self.random.sample(running, self.random.randint(1, len(running))):
                outcome = self.random.choice([Outcome.SUCCEEDED] * 8 + [Outcome.EXITED, Outcome.KILLED])
                self.engine.end(*key, outcome, result=b"%d.%d" % key[:2])

    async def change_nodes(self, nodes: Nodes) -> None:
        name, slots = self.random.choice("bcd"), self.random.randint(1, 3)
        before = self.sizes.pop(name, None)  # not known until it is answered
        try:
            match self.random.choice(["add", "add", "drain", "remove", "resize"]):
                case "add":
                    await nodes.add(wire.NewNode(name, slots))
                    self.sizes[name] = slots
                case "drain":
                    await nodes.drain(name)
                case "remove":
                    await nodes.remove(name)
                    self.sizes[name] = 0
                case "resize":
                    await nodes.resize(name, wire.NodeSize(slots, self.random.random() < 0.5))
                    self.sizes[name] = slots
        except (Conflict, NoSuchNode):
            if before is not None:
                self.sizes[name] = before

    def crash_point(self) -> None:
        front = [assignment for assignment in self.engine.running.values() if assignment.tier is Tier.FOREGROUND]
        places = Counter(member.node for assignment in front for member in assignment.members)
        self.ahead |= any(places[node.name] > node.slots for node in self.engine.nodes)
        point = CrashPoint(
            *(self.journal.copies, self.engine.found(), tuple(self.heard), self.cursor, frozenset(self.answered)),
            tuple(sorted(self.sizes.items())),
        )
        if not self.points or self.points[-1] != point:
            self.points.append(point)

    async def resume(self, point: CrashPoint) -> None:
        """Start on the state of that instant, let everything end, and check that all is right."""
        folder = self.folder / "again"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / f"copy-{point.copy}", folder)
        with closing(QuickJournal(folder)) as journal:
            before = {row.id for row in journal.jobs()}
            engine = FakeEngine(point.found)
            driver = Driver(journal, engine, ManualClock(1000), find, DriverSettings(snapshot_every=9))
            await driver.start(None if self.changing else NODES, first=NODES)
            driver.core.check()
            await driver.nodes.settle()
            self.engine = engine
            self.check_same_nodes(driver)
            views = driver.core.state.nodes
            for name, slots in point.sizes:
                assert slots == (views[name].spec.slots if name in views else 0), f"node {name} is not as was answered"
            current = {(attempt.job.id, attempt.task, attempt.number) for attempt in driver.core.state.attempts()}
            assert point.found.running <= current | {*engine.killed}
            for attempt in driver.core.state.attempts():
                key = (attempt.job.id, attempt.task, attempt.number)
                assert engine.running[key].tier is attempt.tier or attempt.ending, "the engine and the core disagree"
                assert key in {*engine.suspended} or not attempt.saving
            heard, cursor = list(point.heard), point.cursor
            # The client sends requests without an answer again. Answered requests are known to the server.
            jobs: Counter[int] = Counter()
            for offer in self.offered:
                answer = await driver.submit("me", offer)
                if offer.key in point.answered:
                    assert answer.repeated
                    assert set(answer.jobs) <= before
                jobs.update(answer.jobs)
            for _ in range(200):
                for key in (*engine.killed, *engine.suspended):
                    if key in engine.running:
                        engine.end(*key, Outcome.KILLED)
                for key in list(engine.running):
                    engine.end(*key, result=b"%d.%d" % key[:2])
                for _ in range(3):
                    await asyncio.sleep(0)
                if not driver.open:
                    break
            assert not driver.open
            driver.core.check()
            assert engine.kept == []
            while rows := (await hear(driver, cursor, 100, client="c"))[0]:
                heard += [(row.job, row.task) for row in rows]
                cursor = rows[-1].number
            assert {row.id for row in journal.jobs()} == set(jobs)
            assert max(Counter(heard).values()) == 1
            assert {job for job, task in heard if task is None} == set(jobs)
            for row in journal.jobs():
                results = [
                    msgspec.msgpack.decode(body, type=wire.TaskResult)
                    for body in journal.results([wire.TaskRange(row.id)], 1 << 30)[0]
                ]
                assert {(row.id, result.task) for result in results} == {
                    (job, task) for job, task in heard if job == row.id and task is not None
                }
                cancelled = sum(result.ending.outcome is Outcome.CANCELLED for result in results)
                assert len(results) - cancelled == row.done
                if row.status is not None and row.status.value != "cancelled":
                    assert [result.task for result in results] == list(range(row.spec.tasks))
                for result in results:
                    if result.ending.outcome is Outcome.SUCCEEDED:
                        assert result.ending.value == b"%d.%d" % (row.id, result.task)
            await driver.stop()


@pytest.mark.parametrize("share", [0.15, pytest.param(1.0, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize(
    ("policy", "seed", "changing"),
    [("easy", 1, False), ("priority", 2, False), ("priority", 8, True), ("measy", 4, False)],
)
def test_a_crash_at_any_instant_loses_and_repeats_nothing(
    tmp_path: Path, policy: str, seed: int, changing: bool, share: float
) -> None:
    run = Run(tmp_path, policy, seed, changing=changing)
    asyncio.run(run.go())
    assert len(run.points) > 100
    assert run.ahead == (policy == "priority"), "whether slots got more than one task"
    if changing:
        answered = {size for point in run.points for size in point.sizes}
        assert len({name for name, _ in answered}) == 3
        assert {slots for _, slots in answered} >= {0, 1, 2}
    if run.tiers:
        assert run.engine.changed
        assert run.engine.suspended
    for number in sorted(random.Random(seed).sample(range(len(run.points)), int(share * len(run.points)))):
        try:
            asyncio.run(run.resume(run.points[number]))
        except BaseException as error:
            error.add_note(f"seed {seed}, crash point {number} of {len(run.points)}")
            raise


# A real server, killed


SERVE = """
import sys
from pathlib import Path
from headway.live.settings import DriverSettings
from headway.server import Settings, run
from headway.testing import node
run(Settings(Path(sys.argv[1]), (node("a", slots=2), node("b", slots=1)), DriverSettings("easy", snapshot_every=50)))
"""


def start(data: Path) -> subprocess.Popen[bytes]:
    (data / "url").unlink(missing_ok=True)
    return subprocess.Popen([sys.executable, "-c", SERVE, str(data)])


def wait_for(path: Path, server: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert server.poll() is None, "the server ended by itself"
        time.sleep(0.01)


def squared(number: int, log: str) -> int:
    with open(log, "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.004)
    return number * number


@pytest.mark.slow
def test_a_server_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    server = start(data)
    kills = 0
    try:
        wait_for(data / "url", server)
        with Client(data=data) as client:
            waiters = []
            for number in range(8):
                jobs = []
                for part in range(3):
                    job = Job(f"{number}.{part}")
                    for i in range(60):
                        job.add_task(Task(squared, 1000 * number + 100 * part + i, str(log)))
                    jobs.append(job)
                waiters += [*client.submit(jobs)]
                time.sleep(chance.uniform(0.0, 0.5))
                server.kill()
                server.wait()
                kills += 1
                server = start(data)
                if chance.random() < 0.7:
                    wait_for(data / "url", server)
            wait_for(data / "url", server)
            assert not all(waiter.done() for waiter in waiters), "all was over before the last kill"
            for place, waiter in enumerate(waiters):
                number, part = divmod(place, 3)
                first = 1000 * number + 100 * part
                assert waiter.result(timeout=LIMIT) == [i * i for i in range(first, first + 60)]
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT) == 0
    finally:
        server.kill()
        server.wait()
    with closing(sqlite3.connect(data / FILE)) as db:
        assert db.execute("SELECT count(*), count(DISTINCT job) FROM messages WHERE task IS NOT NULL").fetchone() == (
            24 * 60,
            24,
        )
        assert db.execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall() == [("succeeded", 24)]
    # At most what ran at a kill was done twice. What kept running without a driver is adopted.
    done = Counter(log.read_text().split())
    assert len(done) == 24 * 60
    assert sum(done.values()) <= 24 * 60 + 3 * kills
    left = [process.pid for process in psutil.process_iter() if str(data) in environment(process)]
    assert left == []


def environment(process: psutil.Process) -> str:
    try:
        return " ".join(process.environ().values())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
