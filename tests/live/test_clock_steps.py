"""A driver whose clock is set back, set forward, and set while the driver was down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from headway.engines import base
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import ClockStepped, NodeDown
from headway.model.instant import SECOND
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission


class Rig:
    """A running driver, with everything around it."""

    def __init__(self, driver: Driver, engine: FakeEngine, clock: ManualClock, journal: Journal) -> None:
        self.driver, self.engine, self.clock, self.journal = driver, engine, clock, journal

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def submit(self, **terms: Any) -> None:
        await self.driver.submit("me", submission(new_job(**terms)))
        await self.settle()

    async def end(self, task: int = 0) -> None:
        self.engine.end(1, task)
        await self.settle()

    @property
    def steps(self) -> list[str]:
        return [told.detail for _, told in self.journal.incidents(100) if told.kind == "clock_stepped"]


@asynccontextmanager
async def rig(
    folder: Path, at: float, engine: FakeEngine | None = None, lease: float | None = None
) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        engine, clock = engine or FakeEngine(), ManualClock(at)
        driver = Driver(journal, engine, clock, find, DriverSettings(policy="fcfs"))
        await driver.start((node("n", slots=2, lease=lease),))
        yield Rig(driver, engine, clock, journal)
        if not driver.broken.done():
            driver.core.check()
            await driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def test_set_forward_while_tasks_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, 100, lease=10) as live:
            await live.submit(tasks=4, estimate=50.0)
            await live.submit(release=1000.0)
            live.clock.advance(9)
            live.clock.step(3600)
            await live.end()
            assert live.steps == ["the clock was set by 3600 s"]
            assert (1, 0, 1) not in live.engine.running
            assert live.driver.core.state.jobs[1].estimate == 50 * SECOND, "nothing is learnt from it"
            assert live.driver.core.state.jobs[2].ready == 1, "its release has come"
            assert live.clock.alarms[0] == 3710, "the lease has one second left"
            live.engine.report(base.Heard(("n",)))
            await live.settle()
            live.clock.advance(5)
            await live.settle()
            assert live.driver.core.state.nodes["n"].up
            assert not any(isinstance(event, NodeDown) for _, event in live.journal.events())

    run(scenario)


def test_set_back_while_tasks_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, 100, lease=10) as live:
            await live.submit(tasks=4, estimate=50.0)
            live.clock.advance(3)
            live.clock.step(-3600)
            await live.settle()
            assert live.steps == ["the clock was set by -3600 s"]
            live.clock.advance(4)
            await live.end()
            assert live.driver.core.state.now == 107 * SECOND
            assert live.driver.core.state.jobs[1].estimate == 50 * SECOND
            live.clock.advance(4)
            await live.settle()
            assert not live.driver.core.state.nodes["n"].up, "leases run out"

    run(scenario)


def test_nobody_watches_the_clock_of_a_server_that_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, 100) as live:
            await live.submit()
        live.clock.step(3600)
        await live.settle()
        assert not live.clock.watched

    run(scenario)


def test_set_back_while_the_server_was_away_time_goes_on_from_the_journal(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, 10_000) as live:
            await live.submit(tasks=4, estimate=50.0)
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
            found = live.engine.found()
        async with rig(tmp_path, 6400, FakeEngine(found)) as live:
            assert live.steps == ["it is 3600.0 s behind the last instant of the journal: time goes on from there"]
            assert live.clock.now() == 10_000 * SECOND
            live.clock.advance(7)
            await live.end()
            assert live.driver.core.state.now == 10_007 * SECOND
            assert live.driver.core.state.jobs[1].estimate == 50 * SECOND, "nobody knows how long it ran"
            steps = [event for _, event in live.journal.events() if isinstance(event, ClockStepped)]
            assert steps == [ClockStepped(10_000 * SECOND, 0)]
            live.clock.advance(20)
            await live.end(2)
            assert live.driver.core.state.jobs[1].estimate != 50 * SECOND, "what started since is learnt from"

    run(scenario)
