"""A faulty request, report or part ends only itself. What would break a promise stops the driver."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import wire
from headway.engines import base
from headway.errors import CannotGoOn, Unavailable
from headway.live import intake
from headway.live.driver import BUSY_MAX, Driver
from headway.live.ledger import Ledger
from headway.live.listeners import Listeners
from headway.live.performing import ACTION_RETRY_AFTER, ACTION_TRIES
from headway.live.room import DiskBounds
from headway.live.settings import DriverSettings
from headway.live.store.journal import FILE, Batch, Journal, JournalBusy
from headway.model.actions import JobStatus
from headway.model.events import (
    Event,
    Incident,
    JobCancelled,
    JobSubmitted,
    NodeDown,
    NodeMeasured,
    Outcome,
    TaskEnded,
    TaskStarted,
    Woke,
)
from headway.model.instant import SECOND, to_seconds
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, hear, new_job, node, submission

from ..effort import seeds


class Rig:
    """A running driver, with everything around it."""

    def __init__(self, driver: Driver, engine: FakeEngine, clock: ManualClock, journal: Journal) -> None:
        self.driver, self.engine, self.clock, self.journal = driver, engine, clock, journal

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def submit(self, *jobs: wire.NewJob, **terms: Any) -> wire.Submitted:
        answer = await self.driver.submit("me", submission(*jobs, **terms))
        await self.settle()
        return answer

    async def end(self, job: int, task: int = 0, attempt: int = 1, *outcome: Outcome, **ending: Any) -> None:
        self.engine.end(job, task, attempt, *outcome, **ending)
        await self.settle()

    async def advance(self, microseconds: int) -> None:
        self.clock.advance(to_seconds(microseconds))
        await self.settle()

    @property
    def running(self) -> list[base.AttemptKey]:
        return sorted(self.engine.running)

    def incidents(self, kind: str) -> list[str]:
        return [f"{told.subject}: {told.detail}" for _, told in self.journal.incidents(1000) if told.kind == kind]

    def status(self, job: int) -> JobStatus | None:
        row = self.journal.job(job)
        return row and row.status

    def results(self, job: int) -> list[wire.TaskResult]:
        found, _ = self.journal.results([wire.TaskRange(job)], 1 << 30)
        return [msgspec.msgpack.decode(body, type=wire.TaskResult) for body in found]


@asynccontextmanager
async def rig(folder: Path, slots: int = 2, engine: FakeEngine | None = None, **settings: Any) -> AsyncIterator[Rig]:
    """A driver on a folder. At the end it must not be broken, and the core and the journal must agree."""
    with closing(Journal(folder)) as journal:
        engine, clock = engine or FakeEngine(), ManualClock(5)
        driver = Driver(journal, engine, clock, find, DriverSettings(**settings))
        await driver.start((node("a", slots=slots),))
        yield Rig(driver, engine, clock, journal)
        if not driver.broken.done():
            driver.core.check()
            state = driver.core.dump()
            driver._ledger.load()
            assert driver.core.dump() == state
            await driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def choke(monkeypatch: pytest.MonkeyPatch, on: Callable[[Event], bool]) -> list[Event]:
    """Let the core raise on some events after it has changed its state. Returns these events."""
    handle, choked = Ledger._handle, list[Event]()

    def raising(ledger: Ledger, event: Event) -> Any:
        actions = handle(ledger, event)
        if on(event):
            choked.append(event)
            raise ArithmeticError("a bug of the core")
        return actions

    monkeypatch.setattr(Ledger, "_handle", raising)
    return choked


# Requests


def test_a_request_whose_events_raise_is_refused_alone(tmp_path: Path) -> None:
    def raising(now: int) -> list[Event]:
        raise LookupError("which job?")

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=3))
            live.engine.end(1, 0)
            asked = [live.driver.request(raising), live.driver.cancel([1]), live.driver.submit("me", submission())]
            refused, cancelled, submitted = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(refused, LookupError)
            assert (cancelled, submitted.jobs) == (1, (2,))
            assert live.engine.acknowledged == [(1, 0, 1)]
            await live.settle()
            assert len(live.incidents("not_taken_in")) == 1

    run(scenario)


@pytest.mark.parametrize("kind", [JobCancelled, JobSubmitted])
def test_what_the_core_chokes_on_is_refused_and_the_rest_is_taken(
    tmp_path: Path, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    choked = choke(
        monkeypatch,
        lambda event: (
            isinstance(event, kind) and (getattr(event, "job", 0) == 2 or getattr(event, "at", 0) == 7 * SECOND)
        ),
    )

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            if kind is JobCancelled:
                await live.submit(new_job(tasks=3), new_job(), new_job())
                live.engine.end(1, 0, result=b"kept")
                bad, good = live.driver.cancel([2]), live.driver.cancel([3])
                refused, taken = await asyncio.gather(bad, good, return_exceptions=True)
                assert taken == 1
                assert set(live.driver.open) == {1, 2}
            else:
                await live.submit(new_job(tasks=3))
                await live.advance(2 * SECOND)
                live.engine.end(1, 0, result=b"kept")
                bad, good = live.driver.submit("me", submission()), live.driver.cancel([1])
                refused, taken = await asyncio.gather(bad, good, return_exceptions=True)
                assert taken == 1
                assert set(live.driver.open) == {1}
            assert isinstance(refused, ArithmeticError)
            assert len(choked) == 1
            assert [result.ending.value for result in live.results(1)] == [b"kept"]
            await live.settle()
            [said] = live.incidents("not_taken_in")
            assert "a bug of the core" in said

    run(scenario)


def test_no_two_jobs_get_one_number_where_the_core_was_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choke(monkeypatch, lambda event: isinstance(event, JobCancelled))

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=3))
            asked = [
                live.driver.cancel([1]),
                live.driver.submit("me", submission()),
                live.driver.submit("me", submission()),
            ]
            refused, *taken = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(refused, ArithmeticError)
            assert [submitted.jobs for submitted in taken] == [(2,), (3,)]
            assert (await live.submit()).jobs == (4,)
            assert set(live.driver.open) == {1, 2, 3, 4}

    run(scenario)


def test_a_submission_sent_again_is_answered_although_the_first_sender_has_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            first, second = (asyncio.create_task(live.driver.submit("me", submission(key="k"))) for _ in range(2))
            await asyncio.sleep(0)  # both are waiting now; the turn comes next
            first.cancel()
            await asyncio.wait((first, second))
            assert first.cancelled()
            assert second.result().jobs == (1,)
            assert set(live.driver.open) == {1}
            assert live.incidents("not_taken_in") == []

    run(scenario)


# Reports


def test_ends_of_one_turn_keep_no_more_output_together_than_the_bound_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, bounds=DiskBounds(reserve=0, outputs=1000)) as live:
            await live.submit(new_job(tasks=2))
            for task in range(2):
                live.engine.end(1, task, stdout=base.Output(f"/out/1/{task}.1.out", 700, b"last"))
            await live.settle()
            assert [bool(one.ending.stdout_path) for one in live.results(1)] == [True, False]
            assert live.journal.retained.stored == 700

    run(scenario)


def test_an_end_that_the_core_cannot_take_counts_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choke(monkeypatch, lambda e: isinstance(e, TaskEnded) and (e.attempt, e.outcome) == (1, Outcome.SUCCEEDED))

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=2))
            await live.end(1, 0)
            assert live.running == [(1, 0, 2), (1, 1, 1)]
            await live.end(1, 0, 2, result=b"again")
            await live.end(1, 1)
            await live.end(1, 1, 2)
            assert live.status(1) is JobStatus.SUCCEEDED
            assert [result.attempt for result in live.results(1)] == [2, 2]
            assert "counts as lost" in live.incidents("not_taken_in")[0]
            assert sorted(live.engine.acknowledged) == [(1, 0, 1), (1, 0, 2), (1, 1, 1), (1, 1, 2)]

    run(scenario)


def test_a_task_whose_ends_can_never_be_taken_in_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choke(monkeypatch, lambda e: isinstance(e, TaskEnded) and e.outcome is Outcome.SUCCEEDED)

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit()
            for attempt in range(1, 4):
                await live.end(1, 0, attempt)
            assert live.status(1) is JobStatus.FAILED
            [result] = live.results(1)
            assert (result.ending.outcome, result.attempt) == (Outcome.REFUSED, 3)
            assert "a bug of the core" in result.ending.detail

    run(scenario)


def test_an_end_found_at_the_start_that_the_core_cannot_take_does_not_prevent_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=1))
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
        choke(monkeypatch, lambda e: isinstance(e, TaskEnded) and e.outcome is Outcome.SUCCEEDED and e.attempt == 1)
        found = base.Found(ended=(base.Ended(1, 0, 1, base.Ending(Outcome.SUCCEEDED)),))
        async with rig(tmp_path, engine=FakeEngine(found)) as live:
            await live.settle()
            assert live.running == [(1, 0, 2)]

    run(scenario)


@pytest.mark.parametrize(
    ("on", "promise", "runs"),
    [
        (lambda event: isinstance(event, TaskEnded), "every accepted task ends", [(1, 0, 2)]),
        (lambda event: isinstance(event, NodeDown), "what runs on a lost node is done again", [(1, 0, 2)]),
        (lambda event: isinstance(event, Woke), "what is due happens", []),
    ],
)
def test_where_a_promise_would_be_broken_the_driver_stops_and_says_which(
    tmp_path: Path,
    on: Callable[[Event], bool],
    promise: str,
    runs: list[base.AttemptKey],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(), new_job(release=6.0))
            choke(monkeypatch, on)
            live.clock.advance(2)
            live.engine.end(1)
            live.engine.report(base.NodeLost("a", "gone"))
            for _ in range(5):
                await live.advance(SECOND)
            error = live.driver.broken.exception()
            assert isinstance(error, CannotGoOn)
            assert f"going on would break the promise that {promise}" in str(error)
            with pytest.raises(Unavailable):
                await live.driver.cancel([1])
        monkeypatch.undo()
        async with rig(tmp_path) as live:
            await live.advance(2 * SECOND)
            assert live.running == [*runs, (2, 0, 1)], "the journal was right"

    run(scenario)


def test_what_else_the_core_cannot_take_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choked = choke(
        monkeypatch,
        lambda e: isinstance(e, TaskStarted | NodeMeasured) or (isinstance(e, Incident) and e.kind == "odd"),
    )

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=2))
            live.driver.measure("a", {"load": 1.0})
            live.driver.incident("odd", "x", "y")
            live.engine.report(base.Started(1, 0, 1))
            await live.end(1, 0)
            await live.end(1, 1)
            assert live.status(1) is JobStatus.SUCCEEDED
            assert {type(event) for event in choked} == {TaskStarted, NodeMeasured, Incident}
            assert live.incidents("odd") == []
            assert len(live.incidents("not_taken_in")) == 1, "all from one place: told once"

    run(scenario)


# The engine


class Failing(FakeEngine):
    """Raises on the calls that a test names, this many times each."""

    def __init__(self, **times: int) -> None:
        super().__init__()
        self.times = times
        self.raised = 0

    def _may(self, name: str) -> None:
        if self.times.get(name, 0) > 0:
            self.times[name] -= 1
            self.raised += 1
            raise RuntimeError(f"{name} on fire")

    def launch(self, assignment: base.Assignment) -> None:
        self._may("launch")
        super().launch(assignment)

    def kill(self, *key: int) -> None:
        self._may("kill")
        super().kill(*key)

    def suspend(self, *key: int) -> None:
        self._may("suspend")
        super().suspend(*key)

    def change(self, *words: Any) -> None:
        self._may("change")
        super().change(*words)

    def acknowledge(self, *key: int) -> None:
        self._may("acknowledge")
        super().acknowledge(*key)

    def forget(self, *words: Any) -> None:
        self._may("forget")
        super().forget(*words)

    def resize(self, *words: Any, **more: Any) -> None:
        self._may("resize")
        super().resize(*words, **more)


def test_a_launch_that_fails_is_tried_again_and_then_as_the_next_attempt(tmp_path: Path) -> None:
    engine = Failing(launch=ACTION_TRIES + 1)

    async def scenario() -> None:
        async with rig(tmp_path, engine=engine) as live:
            await live.submit(new_job(retries=1))
            assert live.running == []
            for _ in range(ACTION_TRIES - 1):
                await live.advance(ACTION_RETRY_AFTER)
            assert live.running == [], "the first try of the next attempt failed too"
            await live.advance(ACTION_RETRY_AFTER)
            assert live.running == [(1, 0, 2)]
            assert engine.acknowledged == [(1, 0, 1)]
            assert "engine" not in live.incidents("not_performed")[0]
            assert "launch on fire" in live.incidents("not_performed")[0]

    run(scenario)


def test_what_can_never_be_launched_is_given_up_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(launch=1 << 30)) as live:
            await live.submit()
            for _ in range(ACTION_TRIES):
                await live.advance(ACTION_RETRY_AFTER)
            assert live.status(1) is JobStatus.FAILED
            [result] = live.results(1)
            assert (result.ending.outcome, result.attempt) == (Outcome.REFUSED, 1)
            assert "it could not be launched: RuntimeError: launch on fire" in result.ending.detail

    run(scenario)


@pytest.mark.parametrize(("times", "status"), [(ACTION_TRIES - 1, JobStatus.RUNNING), (ACTION_TRIES, JobStatus.FAILED)])
def test_a_launch_is_tried_so_many_times(tmp_path: Path, times: int, status: JobStatus) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(launch=times)) as live:
            await live.submit()
            await live.advance((ACTION_TRIES + 2) * ACTION_RETRY_AFTER)
            for _ in range(ACTION_TRIES):
                await live.advance(ACTION_RETRY_AFTER)
            assert live.engine.raised == times
            assert (live.status(1) or JobStatus.RUNNING) is status
            assert len(live.engine.launched) == (times < ACTION_TRIES)

    run(scenario)


def test_a_node_that_is_gone_is_given_no_size_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(resize=1)) as live:
            await live.driver.nodes.add(wire.NewNode("b"))
            await live.driver.nodes.resize("b", wire.NodeSize(5))
            await live.driver.nodes.remove("b")
            await live.advance(5 * ACTION_RETRY_AFTER)
            assert live.engine.raised == 1
            assert [one.name for one in live.engine.nodes] == ["a"]

    run(scenario)


def test_what_is_cancelled_before_it_could_be_launched_never_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(launch=1)) as live:
            await live.submit()
            assert await live.driver.cancel([1]) == 1
            await live.settle()
            assert live.status(1) is JobStatus.CANCELLED
            await live.advance(5 * ACTION_RETRY_AFTER)
            assert live.engine.launched == []

    run(scenario)


def test_a_kill_is_tried_until_it_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(kill=ACTION_TRIES + 2, forget=1, acknowledge=1)) as live:
            await live.submit(new_job(), new_job())
            assert await live.driver.cancel([1]) == 1
            for _ in range(ACTION_TRIES + 2):
                assert live.engine.killed == []
                await live.advance(ACTION_RETRY_AFTER)
            assert live.engine.killed == [(1, 0, 1)]
            await live.end(1, 0, 1, Outcome.KILLED)
            await live.end(2)
            assert (live.status(1), live.status(2)) == (JobStatus.CANCELLED, JobStatus.SUCCEEDED)
            assert live.engine.acknowledged == [(2, 0, 1)]

    run(scenario)


def test_slots_that_the_engine_did_not_give_at_once_come_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(resize=2)) as live:
            await live.driver.nodes.resize("a", wire.NodeSize(5))
            assert live.engine.nodes[0].slots == 2
            await live.advance(2 * ACTION_RETRY_AFTER)
            assert live.engine.nodes[0].slots == 5

    run(scenario)


def test_a_server_that_has_ended_tries_nothing_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, engine=Failing(resize=1)) as live:
            await live.driver.nodes.resize("a", wire.NodeSize(5))
        live.engine.nodes = (node("a", slots=2),)
        await live.advance(10 * ACTION_RETRY_AFTER)
        assert live.engine.nodes[0].slots == 2

    run(scenario)


# The journal


def test_what_cannot_be_written_is_found_and_set_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Journal.write

    def writing(journal: Journal, batch: Batch) -> None:
        if any(row[2] == "poison" for row in batch.jobs) or any(b"poison" in (row[7] or b"") for row in batch.messages):
            raise sqlite3.DataError("string or blob too big")
        write(journal, batch)

    monkeypatch.setattr(Journal, "write", writing)

    async def scenario() -> None:
        async with rig(tmp_path, slots=4) as live:
            await live.submit(new_job(tasks=3))
            live.engine.end(1, 0, result=b"one")
            live.engine.end(1, 1, result=b"poison")
            asked = [
                live.driver.submit("me", submission(new_job(name=name), client=name)) for name in ("b", "poison", "c")
            ]
            told = await asyncio.gather(live.driver.cancel([99]), *asked, return_exceptions=True)
            assert told[0] == 0
            assert isinstance(told[2], sqlite3.DataError)
            assert [each.jobs for each in (told[1], told[3]) if isinstance(each, wire.Submitted)] == [(2,), (4,)]
            await live.settle()
            assert live.running == [(1, 1, 2), (1, 2, 1), (2, 0, 1), (4, 0, 1)]
            assert [result.ending.value for result in live.results(1)] == [b"one"]
            assert (await live.submit()).jobs == (5,)

    run(scenario)


def test_a_journal_that_cannot_be_written_at_all_stops_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=3))
            live.journal._db.execute("PRAGMA query_only = 1")
            live.engine.end(1, 0)
            with pytest.raises(Unavailable, match="broke"):
                await live.driver.cancel([1])
            assert "the promise that what happens is recorded" in str(live.driver.broken.exception())
            assert live.engine.acknowledged == live.engine.killed == []

    run(scenario)


def test_a_lock_of_another_program_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=3))
            with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                live.engine.end(1, 0)
                asked = asyncio.create_task(live.driver.cancel([99]))
                await live.settle()
                await live.advance(BUSY_MAX // 2)
                later = asyncio.create_task(live.driver.submit("me", submission()))
                await live.settle()
                assert live.driver.full is None
                assert not asked.done()
                other.execute("ROLLBACK")
                await live.advance(BUSY_MAX // 4)
                assert await asked == 0
                assert (await later).jobs == (2,)
                assert live.engine.acknowledged == [(1, 0, 1)]

    run(scenario)


def test_a_lock_that_lasts_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=3), client="c")
            with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                live.engine.end(1, 0)
                asked = [
                    asyncio.create_task(live.driver.cancel([1])),
                    asyncio.create_task(live.driver.submit("me", submission(client="c"))),
                ]
                await live.settle()
                await live.advance(BUSY_MAX + SECOND)
                for one in asked:
                    with pytest.raises(JournalBusy, match="locked by another program"):
                        await one
                with pytest.raises(JournalBusy):
                    await live.driver.submit("me", submission(client="c"))
                live.engine.end(1, 1)
                await live.advance(SECOND)
                assert live.engine.acknowledged == live.engine.killed == []
                other.execute("ROLLBACK")
                await live.advance(SECOND)
            assert live.driver.full is None
            assert sorted(live.engine.acknowledged) == [(1, 0, 1), (1, 1, 1)]
            [job] = (await live.submit(client="c")).jobs
            assert [row.id for row in live.journal.jobs()] == [1, job]

    run(scenario)


# Parts on which others do not depend


def test_callers_are_answered_though_telling_them_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=2), client="c")
            waiting = asyncio.create_task(hear(live.driver, 0, 10, client="c", wait_seconds=60))
            await live.settle()
            with monkeypatch.context() as failing:
                failing.setattr(Listeners, "_is_due", lambda self, listener, now: 1 // 0)
                await live.end(1, 0)
                assert await waiting == ([], 0), "from there it asks again"
            rows, _ = await hear(live.driver, 0, 10, client="c")
            assert [row.task for row in rows] == [0]

    run(scenario)


@pytest.mark.parametrize("part", ["retention.acknowledged", "nodes.follow", "_leases.follow", "_consultant.follow"])
def test_a_part_that_raises_ends_nothing(tmp_path: Path, part: str) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            owner, _, name = part.rpartition(".")
            setattr(getattr(live.driver, owner), name, lambda: 1 // 0)
            await live.submit(new_job(tasks=2), client="c")
            for task in range(2):
                await live.end(1, task)
            await live.driver.retention.acknowledge("c", [wire.TaskRange(1)])
            await live.settle()
            assert live.status(1) is JobStatus.SUCCEEDED
            [said] = live.incidents("step_failed")
            assert "ZeroDivisionError" in said

    run(scenario)


def test_a_decider_that_cannot_be_asked_is_stood_in_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            live.driver._consultant.follow = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
            await live.driver.choose(decider="http://127.0.0.1:1/")
            await live.submit()
            assert live.running == [(1, 0, 1)]
            assert live.driver.core.decider_failed

    run(scenario)


# Everything at once


@pytest.mark.thorough
@pytest.mark.parametrize("seed", seeds(range(5), range(5, 40)))
def test_whatever_raises_each_task_ends_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the engine, every write, every part and many events raise now and then."""
    chance = random.Random(seed)

    def sometimes(often: float) -> None:
        if chance.random() < often:
            raise chance.choice([RuntimeError, OSError, MemoryError, KeyError, sqlite3.DataError])("by chance")

    class Unreliable(FakeEngine):
        pass

    for name in ("launch", "kill", "acknowledge", "forget"):

        def method(self: FakeEngine, *words: Any, name: str = name) -> None:
            sometimes(0.2)
            getattr(FakeEngine, name)(self, *words)

        setattr(Unreliable, name, method)
    write, handle = Journal.write, Ledger._handle

    def writing(journal: Journal, batch: Batch) -> None:
        if any(b"r" * 99 in (row[7] or b"") for row in batch.messages):
            raise sqlite3.DataError("too big")
        write(journal, batch)

    def handling(ledger: Ledger, event: Event) -> Any:
        actions = handle(ledger, event)
        # Another test checks what would break a promise. Requests and ends may raise at any time.
        is_end = isinstance(event, TaskEnded) and event.outcome is Outcome.SUCCEEDED
        if is_end or isinstance(event, JobSubmitted | JobCancelled | TaskStarted):
            sometimes(0.1)
        return actions

    async def scenario() -> None:
        async with rig(tmp_path, slots=3, engine=Unreliable(), snapshot_every=10) as live:
            monkeypatch.setattr(Journal, "write", writing)
            monkeypatch.setattr(Ledger, "_handle", handling)
            for owner, name in (("retention", "acknowledged"), ("nodes", "follow"), ("_listeners", "tell")):
                part = getattr(live.driver, owner)
                step = getattr(part, name)

                def fails(*words: Any, step: Callable[..., Any] = step) -> Any:
                    sometimes(0.1)
                    return step(*words)

                setattr(part, name, fails)
            accepted: dict[int, int] = {}
            for _ in range(300):
                tasks = chance.randint(1, 4)
                asked: list[Awaitable[Any]] = []
                if chance.random() < 0.3:
                    asked.append(live.driver.submit("me", submission(new_job(tasks=tasks), client="c")))
                if accepted and chance.random() < 0.1:
                    asked.append(live.driver.cancel([chance.choice(list(accepted))]))
                for key in list(live.engine.running):
                    if key in live.engine.killed:
                        live.engine.end(*key, Outcome.KILLED)
                    elif chance.random() < 0.5:
                        live.engine.report(base.Started(*key))
                        live.engine.end(*key, result=b"r" * chance.choice([1, 1, 1, 1, 99]))
                for told in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(told, wire.Submitted):
                        accepted[told.jobs[0]] = tasks
                await live.advance(ACTION_RETRY_AFTER)
            monkeypatch.setattr(Ledger, "_handle", handle)
            for _ in range(200):
                for key in list(live.engine.running):
                    live.engine.end(*key, Outcome.KILLED if key in live.engine.killed else Outcome.SUCCEEDED)
                await live.advance(ACTION_RETRY_AFTER)
                if not live.driver.open and not live.engine.running:
                    break
            assert not live.driver.broken.done(), live.driver.broken.exception()
            assert live.driver.open == {}
            assert {row.id for row in live.journal.jobs()} == set(accepted), "accepted, and no other"
            for job, count in accepted.items():
                row = live.journal.job(job)
                assert row is not None
                tasks_told = [result.task for result in live.results(job)]
                assert tasks_told == sorted(set(tasks_told))
                if row.status is not JobStatus.CANCELLED:
                    assert tasks_told == list(range(count))

    run(scenario)


def test_an_error_after_a_turn_that_is_not_foreseen_stops_the_driver_and_everyone_gets_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            monkeypatch.setattr(Driver, "_set_alarm", raising)
            await live.submit(new_job(), new_job(release=6.0))
            error = live.driver.broken.exception()
            assert isinstance(error, CannotGoOn)
            with pytest.raises(Unavailable):
                await live.driver.submit("me", submission(new_job()))
        monkeypatch.undo()
        async with rig(tmp_path) as live:
            await live.advance(2 * SECOND)
            assert live.running == [(1, 0, 2), (2, 0, 1)], "what was accepted is there"

    run(scenario)


def raising(driver: Driver) -> None:
    raise RuntimeError("no alarm")


def test_an_error_in_a_step_of_a_short_submission_is_raised_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> object:
        raise OSError("no such step")

    def digest(sent: wire.Submission) -> intake.Pausing[bytes]:
        try:
            yield failing
        except OSError:
            return b"without the step"
        raise AssertionError

    def look_at(*args: Any, **terms: Any) -> intake.Pausing[intake.CheckedSubmission]:
        yield failing
        raise AssertionError

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            monkeypatch.setattr(intake, "digest", digest)
            monkeypatch.setattr(intake, "look_at", look_at)
            with pytest.raises(OSError, match="no such step"):
                live.driver.hand_in("me", submission(new_job(), key="once"))
            monkeypatch.undo()
            answer = await live.driver.hand_in("me", submission(new_job(), key="once"))
            assert answer == wire.Submitted((1,), 0), "neither the key nor the number is taken"

    run(scenario)
