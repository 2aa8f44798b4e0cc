"""Calls of a client that is gone are cancelled when its lease is over; other jobs are not. The clock is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

from headway.live.driver import Driver
from headway.live.leases import CANCELLED_AT_ONCE, LOOKS, Leases
from headway.live.listeners import Listener, MessagesWanted
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.live.store.messages import MessageRow
from headway.model.actions import JobStatus
from headway.model.events import Event, Incident, JobCancelled
from headway.model.instant import from_seconds
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

LEASE = 60.0


class Poll:
    """A caller that waits, and hangs up before it is answered."""

    def make(self, messages: list[MessageRow], cursor: int) -> None: ...

    def send(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Rig:
    """A driver with a node of two slots, and everything around it."""

    driver: Driver
    engine: FakeEngine
    clock: ManualClock
    polls: list[Listener] = field(default_factory=list)

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Move the clock on check by check, and wait for what each does."""
        step = LEASE / LOOKS
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            await self.settle()

    async def submit(self, client: str = "c", jobs: int = 1, *, leased: bool = True) -> list[int]:
        answer = await self.driver.submit("me", submission(*[new_job(leased=leased)] * jobs, client=client))
        await self.settle()
        return list(answer.jobs)

    def listen(self, client: str | None = "c", job: int | None = None) -> Listener:
        wanted = MessagesWanted(1 << 40, client=client, jobs=() if job is None else (job,), wait_seconds=3600.0)
        return self.driver.listen(wanted, Poll())

    def open(self) -> list[int]:
        return sorted(self.driver.open)

    def cancelled(self) -> list[tuple[int, str]]:
        events = (event for _, event in self.driver.journal.events())
        return [(event.job, event.reason) for event in events if isinstance(event, JobCancelled)]

    def incidents(self) -> list[tuple[str, str, str]]:
        events = (event for _, event in self.driver.journal.events())
        return [(event.kind, event.subject, event.detail) for event in events if isinstance(event, Incident)]


@asynccontextmanager
async def rig(folder: Path, *, lease: float | None = LEASE, at: float = 0) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        clock, engine = ManualClock(at), FakeEngine()
        driver = Driver(
            journal, engine, clock, find, DriverSettings(call_lease=None if lease is None else from_seconds(lease))
        )
        await driver.start((node("a", slots=2),))
        try:
            yield Rig(driver, engine, clock)
            driver.core.check()
        finally:
            await driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def test_what_a_silent_client_had_called_is_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            first, second, third = await live.submit(jobs=3)
            await live.advance(LEASE)
            assert live.open() == [first, second, third]
            assert live.engine.killed == []
            await live.advance(LEASE / LOOKS)
            assert live.open() == [first, second]  # they ran, and are being killed; the third waited
            assert live.engine.killed == [(first, 0, 1), (second, 0, 1)]
            reason = "its client has not been heard of for 60 s"
            assert live.cancelled() == [(job, reason) for job in (first, second, third)]
            said = f"{reason}: what it had called is cancelled (3 jobs), as no other client can get its results"
            assert live.incidents() == [("client_lost", "client c", said)]
            row = live.driver.journal.job(third)
            assert row is not None
            assert row.status is JobStatus.CANCELLED
            await live.advance(3 * LEASE)  # a kill may take long: it is asked for once
            assert len(live.cancelled()) == 3

    run(scenario)


def test_submitted_jobs_and_other_clients_calls_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            [submitted] = await live.submit(leased=False)
            [gone] = await live.submit("gone")
            [there] = await live.submit("there")
            live.listen("there")
            await live.advance(2 * LEASE)
            assert [job for job, _ in live.cancelled()] == [gone]
            assert {submitted, there} <= set(live.open())
            await live.advance(100 * LEASE)
            assert [job for job, _ in live.cancelled()] == [gone]

    run(scenario)


def test_whatever_it_asks_for_renews_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            [first] = await live.submit()
            await live.advance(LEASE)
            await live.submit()  # another submission
            await live.advance(LEASE)
            listener = live.listen()  # a long poll, for as long as it waits ...
            await live.advance(3 * LEASE)
            live.driver.leave(listener)  # ... and from its end on
            await live.advance(LEASE)
            assert live.cancelled() == []
            await live.advance(LEASE / LOOKS)
            assert len(live.cancelled()) == 2
            assert first in [job for job, _ in live.cancelled()]

    run(scenario)


def test_a_job_that_somebody_waits_for_by_its_number_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            first, second = await live.submit(jobs=2)
            live.listen(None, second)
            await live.advance(2 * LEASE)
            assert [job for job, _ in live.cancelled()] == [first]

    run(scenario)


def test_after_a_start_it_begins_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            [job] = await live.submit()
            await live.advance(0.9 * LEASE)
        async with rig(tmp_path, at=1e6) as live:
            await live.advance(LEASE)
            assert live.cancelled() == []
            await live.advance(LEASE / LOOKS)
            assert [gone for gone, _ in live.cancelled()] == [job]
        async with rig(tmp_path, at=2e6) as live:
            await live.advance(2 * LEASE)
            assert len(live.cancelled()) == 1

    run(scenario)


def test_a_server_that_slept_gives_nobody_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit()
            live.clock.advance(0.2 * LEASE)
            live.clock._now += from_seconds(50 * LEASE)  # as after the machine has slept: the next check is late
            live.clock.advance(0)
            await live.settle()
            assert live.cancelled() == []

    run(scenario)


def test_without_a_lease_they_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, lease=None) as live:
            await live.submit()
            await live.advance(1000 * LEASE)
            assert live.cancelled() == []
            assert live.driver.journal.incidents(10) == []

    run(scenario)


def test_many_jobs_go_in_parts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(jobs=2 * CANCELLED_AT_ONCE + 1)
            parts: list[int] = []
            write = live.driver.journal.write

            def noted(batch: object) -> None:
                kinds = [kind for _, _, kind, _ in batch.events]  # type: ignore[attr-defined]
                parts.append(kinds.count("JobCancelled"))
                write(batch)  # type: ignore[arg-type]

            live.driver.journal.write = noted  # type: ignore[method-assign, assignment]
            await live.advance(2 * LEASE)
            assert [part for part in parts if part] == [CANCELLED_AT_ONCE, CANCELLED_AT_ONCE, 1]
            assert len(live.open()) == 2

    run(scenario)


def test_a_sign_of_life_while_calls_are_cancelled_keeps_the_rest() -> None:
    clock, jobs, parts = ManualClock(0), dict.fromkeys(range(1, 2 * CANCELLED_AT_ONCE + 1)), list[int]()

    class Recorder:
        async def request(self, events: Callable[[int], Sequence[Event]]) -> int:
            gone = [event.job for event in events(0) if isinstance(event, JobCancelled)]
            for job in gone:
                del jobs[job]
            parts.append(len(gone))
            leases.heard(7)
            clock.advance(LEASE / LOOKS)  # it is silent again at the next check, which comes before the answer
            return len(gone)

        def incident(self, kind: str, subject: str, detail: str) -> None: ...

    leases = Leases(Recorder(), lambda: {7: jobs}, lambda key: False, str, clock, from_seconds(LEASE))

    async def scenario() -> None:
        leases.follow()
        for _ in range(LOOKS + 1):
            clock.advance(LEASE / LOOKS)
        await asyncio.wait(list(leases._ending.values()))
        leases.stop()

    run(scenario)
    assert parts == [CANCELLED_AT_ONCE]


def test_nobody_is_looked_for_while_there_are_no_calls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            [job] = await live.submit()
            live.engine.end(job)
            await live.settle()
            await live.advance(2 * LEASE)
            before = live.clock.alarms
            await live.submit(leased=False)
            soon = live.clock.now() / 1e6 + LEASE / LOOKS
            assert [alarm for alarm in live.clock.alarms if alarm not in before and alarm == soon] == []

    run(scenario)
