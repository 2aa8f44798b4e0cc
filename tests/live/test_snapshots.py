"""A process that replays the journal stores the state: what it stores, and what happens if it fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from headway.core.scheduler import Scheduler
from headway.live import snapshots
from headway.live.driver import Driver
from headway.live.forecasts import ForecastQuestion, write_frame
from headway.live.outside import OtherProcesses
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal, state_body, state_of
from headway.model.events import JobSubmitted
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, job, new_job, node, submission

from ..waiting import becomes

PROCESS = (sys.executable, "-m", "headway.restate")
EVERY = 40


class Rig:
    """A running driver, with everything around it."""

    def __init__(self, driver: Driver, engine: FakeEngine, clock: ManualClock, journal: Journal) -> None:
        self.driver, self.engine, self.clock, self.journal = driver, engine, clock, journal

    async def work(self, jobs: int) -> None:
        """Submit this many jobs, and let half of them end."""
        await self.driver.submit("me", submission(*(new_job(name=str(number)) for number in range(jobs))))
        for _ in range(jobs // 2):
            await self.until(lambda: len(self.engine.running) > 0)
            self.clock.advance(1)
            self.engine.end(*min(self.engine.running))
            await asyncio.sleep(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        await becomes(holds)

    async def stores(self, after: int) -> None:
        making = self.driver._snapshots
        while self.stored <= after:
            if making._process is making._storing is None:
                await self.work(4)  # the more jobs are open, the later the next is due
            await asyncio.sleep(0.005)
        await self.until(lambda: making._storing is None)

    @property
    def stored(self) -> int:
        last = self.journal.snapshot()
        assert last is not None
        return last[0]

    def last_is_right(self) -> None:
        """The last stored state is that of the events up to it."""
        last, first = self.journal.snapshot(), self.journal.snapshot(first=True)
        assert last is not None
        assert first is not None
        core = Scheduler.restore(first[1], find)
        for number, event in self.journal.events():
            if number <= last[0]:
                core.handle(event)
        assert last[1] == core.dump()

    def incidents(self) -> list[tuple[str, str]]:
        return [(told.kind, told.subject) for _, told in self.journal.incidents(100)]


@asynccontextmanager
async def rig(folder: Path, command: Sequence[str] | None = PROCESS, policy: str = "deadline") -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        engine, clock = FakeEngine(), ManualClock(5)
        driver = Driver(
            journal,
            engine,
            clock,
            find,
            DriverSettings(policy=policy, snapshot_every=EVERY),
            processes=OtherProcesses(restate=command),
        )
        await driver.start((node("n", slots=3),))
        yield Rig(driver, engine, clock, journal)
        if not driver.broken.done():
            await driver.stop()
        assert driver._snapshots._process is None


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


@pytest.mark.parametrize("policy", ["deadline", "easy", "fcfs"])
def test_what_the_process_stores_is_the_state(tmp_path: Path, policy: str) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, policy=policy) as live:
            for _ in range(3):
                before = live.stored
                await live.work(EVERY)
                await live.stores(before)
                live.last_is_right()
            assert live.incidents() == []
            started = {job: kept.started for job, kept in live.driver.open.items()}
            assert len({instant for instant in started.values() if instant}) > 1
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
            live.driver._snapshots.stop()
        async with rig(tmp_path, policy=policy) as live:
            found = {job: kept.started for job, kept in live.driver.open.items()}
            assert found == started, "first launches are known, though the snapshot has passed them"

    run(scenario)


def test_the_loop_goes_on_meanwhile_and_one_is_made_at_a_time(tmp_path: Path) -> None:
    door = tmp_path / "door"
    slow = ("sh", "-c", f'until [ -e "{door}" ]; do sleep 0.01; done; exec "$@"', "sh", *PROCESS)

    async def scenario() -> None:
        async with rig(tmp_path / "data", slow) as live:
            await live.work(EVERY)
            process = live.driver._snapshots._process
            assert process is not None
            await live.work(EVERY)
            assert live.driver._snapshots._process is process
            door.touch()
            await live.stores(1)
            assert process.returncode == 0

    run(scenario)


def test_where_the_replay_differs_the_state_here_is_stored_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = snapshots.fingerprint

    def differs(core: Scheduler) -> snapshots.Fingerprint:
        return (-1, *fingerprint(core)[1:])

    monkeypatch.setattr(snapshots, "fingerprint", differs)

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.work(EVERY)
            await live.until(lambda: ("replay_differs", "snapshot") in live.incidents())
            assert live.stored > 1

    run(scenario)


def test_a_replay_that_differs_while_a_large_submission_is_taken_is_stored_after_it(tmp_path: Path) -> None:
    """Within a turn the state is ahead of the events that are durable."""

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            driver, storing, before = live.driver, live.driver._snapshots, live.stored
            many = submission(*(new_job(name=str(number)) for number in range(300)))
            asked = asyncio.create_task(driver.submit("me", many))
            while len(driver.core.state.jobs) < 100:
                await asyncio.sleep(0)
            assert driver._under_way is not None
            other = (-1, *snapshots.fingerprint(driver.core)[1:])
            storing._parts = [snapshots.pack(snapshots.Restated(0, other, b""))]
            storing._take(0)
            assert live.stored == before
            await asked
            await live.until(lambda: live.stored > before)
            live.last_is_right()
            assert ("replay_differs", "snapshot") in live.incidents()

    run(scenario)


@pytest.mark.parametrize("command", [("/nowhere/at/all",), ("false",), ("echo", "rubbish")])
def test_a_process_that_fails_is_said_and_ends_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, command) as live:
            await live.work(EVERY)
            await live.until(lambda: ("step_failed", "snapshot") in live.incidents())
            assert (live.stored > 1) is (command[0] == "/nowhere/at/all"), "or it is tried after as many events again"
            await live.work(2)

    run(scenario)


def test_a_server_that_ends_leaves_no_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (sys.executable, "-c", "import time; time.sleep(60)")) as live:
            await live.work(EVERY)
            process = live.driver._snapshots._process
            assert process is not None
        assert process.returncode is not None
        async with rig(tmp_path) as live:
            assert len(live.driver.open) == EVERY // 2

    run(scenario)


@pytest.mark.parametrize("module", ["restate", "forecaster"])
def test_a_process_whose_server_was_killed_ends_without_a_word(tmp_path: Path, module: str) -> None:
    with closing(Journal(tmp_path)) as journal:
        core = Scheduler(find, "fcfs")
        journal.store_snapshot(0, core.dump(), ())
    state = state_body(core.dump())
    words = [str(tmp_path), "0"] if module == "restate" else [str(tmp_path)]
    said = state if module == "restate" else msgspec.msgpack.encode(ForecastQuestion(0, 0))
    given, asked = os.pipe()
    unread, answers = os.pipe()
    os.close(unread)
    with os.fdopen(given, "rb") as stdin, os.fdopen(answers, "wb") as stdout:
        write_frame(asked, said)
        os.close(asked)
        command = [sys.executable, "-m", f"headway.{module}", *words]
        done = subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_long_state_is_deflated_and_a_short_one_can_be_read() -> None:
    core = Scheduler(find, "fcfs")
    assert state_body(core.dump())[:1] == b"{"

    for number in range(1, 500):
        core.handle(JobSubmitted(number, job(number)))
    body = state_body(core.dump())
    assert len(body) < 50_000
    assert body[:1] != b"{"
    assert state_of(body) == core.dump()
