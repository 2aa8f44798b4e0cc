"""A driver that runs for days by a clock set by hand: what is over is deleted, what is needed stays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway import wire
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.engines.local.driver.engine import LocalEngine
from headway.errors import NoSuchJob
from headway.live.driver import Driver
from headway.live.reports import row
from headway.live.settings import DriverSettings
from headway.live.store.history import history, known_since
from headway.live.store.journal import Journal, NotNow, encode
from headway.live.store.layout import ENGINE, OUTPUTS_FOLDER, UPLOADS_FOLDER
from headway.live.store.verification import check_whole
from headway.live.sweep import KEPT_LEAST, ROWS_AT_ONCE, Keep, Sweep
from headway.live.uploads import Uploads
from headway.model.events import Outcome
from headway.model.instant import DAY, SECOND, from_seconds, to_seconds
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, hear, new_job, node, submission

HOUR = 3600.0
SHORT = Keep(from_seconds(60), from_seconds(600), from_seconds(1200), from_seconds(1200), from_seconds(1200))
FUNCTION = b"what a function is pickled as"
NAME = wire.blob_name(FUNCTION)


@dataclass
class Rig:
    driver: Driver
    engine: FakeEngine
    clock: ManualClock
    journal: Journal

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    async def advance(self, seconds: float, step: float = 60) -> None:
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            await self.settle()

    async def submit(self, jobs: int = 1, **terms: Any) -> list[int]:
        answer = await self.driver.submit("me", submission(*[new_job()] * jobs, **terms))
        await self.settle()
        return list(answer.jobs)

    async def run(self, jobs: int = 1, *, acknowledged: bool = True, client: str = "c", **terms: Any) -> list[int]:
        """Run jobs to their end."""
        numbers = await self.submit(jobs, client=client, **terms)
        while keys := [key for key in self.engine.running if key[0] in numbers]:
            for key in keys:
                self.engine.end(*key)
            await self.settle()
        if acknowledged:
            await self.driver.retention.acknowledge(client, [wire.TaskRange(job) for job in numbers])
        return numbers

    def count(self, table: str) -> int:
        (count,) = self.journal._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)


@asynccontextmanager
async def rig(folder: Path, keep: Keep = SHORT, at: float = 0, **settings: Any) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        clock, engine = ManualClock(at), FakeEngine()
        driver = Driver(journal, engine, clock, find, DriverSettings(keep=keep, policy="easy", **settings))
        await driver.start((node("a", slots=4),))
        try:
            yield Rig(driver, engine, clock, journal)
            driver.core.check()
        finally:
            await driver.stop()
    check_whole(folder)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


class InUse(set[str]):
    """What open jobs and submissions need; no caller waits."""

    def needs(self, name: str) -> bool:
        return name in self

    def listens(self, client: int) -> bool:
        return False


def test_what_is_used_again_while_others_are_deleted_stays(tmp_path: Path) -> None:
    async def content(body: bytes) -> AsyncIterator[bytes]:
        yield body

    with closing(Journal(tmp_path)) as journal:
        clock, retained, in_use = ManualClock(0), journal.retained, InUse()
        uploads = Uploads(tmp_path / UPLOADS_FOLDER, 100)
        bodies = {wire.blob_name(body): body for body in (b"a", b"b", b"c", b"d", b"e")}
        first, asked, needed, coming, last = sorted(bodies)
        for name in (first, asked, needed, coming, last):
            asyncio.run(uploads.take(name, 1, content(bodies[name]), partial(retained.keep_upload, name, 0)))
        clock.advance(HOUR + 1)
        for _ in Sweep(journal, uploads, FakeEngine(), clock, Keep(), in_use).steps():
            if retained.uploads() == {asked, needed, coming, last} and not in_use:  # others are served now
                retained.keep_upload(asked, clock.now(), 1)
                in_use.add(needed)
                uploads.placing[coming] += 1
        assert retained.uploads() == {asked, needed, coming} == {path.name for path in uploads.folder.iterdir()}
        assert retained.stored == 3


def test_output_that_belongs_to_no_result_goes_part_by_part(tmp_path: Path) -> None:
    old, new = tmp_path / OUTPUTS_FOLDER / "1", tmp_path / OUTPUTS_FOLDER / "2"
    with closing(Journal(tmp_path)) as journal:
        for folder in (old, new):
            folder.mkdir(parents=True)
            for task in range(2 * ROWS_AT_ONCE + 20):
                (folder / f"{task}.1.stdout").write_text("said")
        os.utime(old, (0, 0))
        left = set[int]()
        uploads, engine = Uploads(tmp_path / UPLOADS_FOLDER, 100), LocalEngine(tmp_path / ENGINE)
        for _ in Sweep(journal, uploads, engine, ManualClock(0), Keep(), InUse()).steps():
            left.add(len(os.listdir(old)) if old.exists() else 0)
    assert left - {0} == {2 * ROWS_AT_ONCE + 20, ROWS_AT_ONCE + 20, 20}
    assert not old.exists()
    assert len(os.listdir(new)) == 2 * ROWS_AT_ONCE + 20


def test_an_upload_counts_as_coming_until_it_is_recorded(tmp_path: Path) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield FUNCTION

    uploads, seen = Uploads(tmp_path, 100), list[tuple[int, bool]]()

    def record(size: int) -> None:
        seen.append((size, NAME in uploads.placing))
        raise NotNow("the disk is full")

    with pytest.raises(NotNow):
        asyncio.run(uploads.take(NAME, 0, content(), record))
    assert seen == [(len(FUNCTION), True)]
    assert NAME not in uploads.placing


TABLES = ("events", "jobs", "submissions", "clients", "messages", "acknowledged", "job_statistics")


def test_days_of_jobs_leave_no_more_behind_than_an_hour_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, snapshot_every=50) as live:
            counts = []
            for number in range(40):
                await live.run(10, key=f"k{number}", client=f"client-{number}", acknowledged=number % 3 > 0)
                await live.advance(300)
                counts.append([live.count(table) for table in TABLES])
            steady = counts[15:]
            for place, table in enumerate(TABLES):
                early, late = [max(column[place] for column in part) for part in (steady[:10], steady[-10:])]
                assert late <= early, table
                assert late < (500 if table == "events" else 100), table
            assert live.count("snapshots") <= 10
            assert len(live.journal.clients._numbers) <= 10
            assert live.driver.recorded > 700
            # No number is used twice, although the rows are gone.
            assert await live.submit() == [401]
        async with rig(tmp_path, at=1e6) as live:
            assert await live.submit() == [402]

    run(scenario)


def test_what_has_not_been_fetched_is_known_as_long_as_its_results(tmp_path: Path) -> None:
    async def scenario() -> None:
        keep = Keep(0, None, from_seconds(60), from_seconds(60), KEPT_LEAST)
        async with rig(tmp_path, keep) as live:
            [fetched], [left] = await live.run(), await live.run(acknowledged=False)
            await live.advance(HOUR)
            with pytest.raises(NoSuchJob):
                row(live.driver, fetched)
            assert row(live.driver, left).ended is not None
            found, _ = await hear(live.driver, 0, 10, client="c")
            assert [(message.job, message.task) for message in found] == [(left, 0), (left, None)]
            await live.driver.retention.acknowledge("c", [wire.TaskRange(left)])
            await live.advance(300)
            with pytest.raises(NoSuchJob, match="--keep-jobs"):
                row(live.driver, left)

    run(scenario)


@pytest.mark.parametrize("how", ["down", "stepped", "both"])
def test_time_in_which_nobody_could_fetch_a_result_does_not_count(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        away = 70 * 86_400.0
        async with rig(tmp_path) as live:
            (job,) = await live.run(acknowledged=False, key="k")
            await live.advance(300)
            if how != "down":
                live.clock.step(away)
                await live.advance(200)
                assert live.count("messages") == 2
            at = live.clock.now() / SECOND
        async with rig(tmp_path, at=at + (away if how != "stepped" else 0)) as live:
            await live.advance(100 if how != "down" else 200)
            assert live.count("messages") == 2
            assert await live.submit(client="c", key="k") == [job], "the same submission, sent again"
            at = live.clock.now() / SECOND
        async with rig(tmp_path, at=at) as live:  # the journal says what it was
            await live.advance(5)
            assert live.count("messages") == 2
            await live.advance(700)
            assert live.count("messages") == 0
            await live.advance(1500)
            assert live.count("jobs") == 0

    run(scenario)


def test_no_more_gaps_are_remembered_than_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.live.store.away.GAPS_MAX", 3)
    with closing(Journal(tmp_path)) as journal:
        for day in range(1, 6):
            journal.away.note(day * DAY, day * DAY + DAY // 2)
            journal.away.keep()
        journal.away.note(7 * DAY, 7 * DAY + SECOND)  # a restart
        journal.away.keep()
    with closing(Journal(tmp_path)) as journal:
        assert journal.away.before(6 * DAY, DAY // 4) == 6 * DAY - DAY // 4
        assert journal.away.before(6 * DAY, DAY) == 5 * DAY - DAY // 2
        assert journal.away.before(6 * DAY, 5 * DAY) == DAY - 3 * DAY // 2
        assert journal._db.execute("SELECT count(*) FROM meta WHERE name GLOB 'away *'").fetchone() == (3,)


def test_more_than_a_part_goes_in_one_sweep(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.run(2 * ROWS_AT_ONCE + 20, acknowledged=False)
            await live.advance(600 + 300)
            assert live.count("messages") == 0
            await live.advance(1200)
            assert live.count("jobs") == 0

    run(scenario)


def test_a_key_is_known_for_as_long_as_its_client_may_repeat_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        keep = Keep(0, 0, 0, 0, KEPT_LEAST)
        async with rig(tmp_path, keep) as live:
            first = await live.run(key="once")
            await live.advance(to_seconds(KEPT_LEAST) - 10, step=1)
            answer = await live.driver.submit("me", submission(new_job(), key="once", client="c"))
            assert (list(answer.jobs), answer.repeated) == (first, True)
            await live.advance(20, step=1)
            assert live.journal.accepted("me", "once") is None

    run(scenario)


def calls() -> wire.NewJob:
    return wire.NewJob(wire.Calls((NAME,), (encode(((), {})),)))


def test_a_function_stays_for_open_jobs_whatever_snapshots_are_stored(tmp_path: Path) -> None:
    hour = 3600

    async def scenario() -> None:
        async with rig(tmp_path, snapshot_every=1) as live:
            await live.driver.submit("me", submission(calls(), blobs={NAME: FUNCTION}))
            await live.settle()
            [key] = live.engine.running
            for _ in range(5):
                await live.run()  # snapshots are stored
                await live.advance(hour)
                assert live.journal.has_blob(NAME)
            live.engine.end(*key, Outcome.LOST)
            await live.settle()
            [again] = live.engine.running  # it is launched again, with its function
            assert live.driver.needs(NAME)
            live.engine.end(*again)
            await live.settle()
            assert not live.driver.needs(NAME)
            await live.advance(hour)
            assert not live.journal.has_blob(NAME)
        async with rig(tmp_path, at=1e6) as live:
            with pytest.raises(Exception, match="functions that the server does not have"):
                await live.driver.submit("me", submission(calls()))

    run(scenario)


def test_what_is_being_submitted_is_needed_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.driver.submit("me", submission(calls(), blobs={NAME: FUNCTION}))
            await live.settle()
            [key] = live.engine.running
            live.engine.end(*key)
            await live.settle()
            assert not live.driver.needs(NAME)
            again = asyncio.ensure_future(live.driver.submit("me", submission(calls())))
            await asyncio.sleep(0)
            assert live.driver.core.state.jobs == {}, "it is not accepted yet"
            assert live.driver.needs(NAME)
            assert not live.driver.needs("another")
            assert list((await again).jobs) == [2]

    run(scenario)


def test_what_open_jobs_need_is_known_after_a_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.driver.submit("me", submission(calls(), calls(), blobs={NAME: FUNCTION}))
        async with rig(tmp_path, at=10) as live:
            assert live.driver.needs(NAME)
            await live.advance(5 * HOUR, step=600)
            assert live.journal.has_blob(NAME)
            assert len(live.engine.running) == 2

    run(scenario)


def test_a_trace_begins_later_and_says_when(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, snapshot_every=20) as live:
            assert known_since(tmp_path) is None
            for _ in range(20):
                await live.run(2)
                await live.advance(300)
            [open_job] = await live.submit()
            await live.advance(1)
            since = known_since(tmp_path)
            assert since is not None
            assert live.clock.now() - 2500 * SECOND < since <= live.clock.now() - 1200 * SECOND
            told = history(tmp_path, find)
            assert int(told.label[-1]) == open_job
            assert min(map(int, told.label)) > 20
            # Replaying what is left gives the current state.
            first = live.journal.snapshot(first=True)
            assert first is not None
            core = Scheduler.restore(first[1], find)
            for _, event in live.journal.events(after=first[0]):
                core.handle(event)
            assert core.dump() == live.driver.core.dump()

    run(scenario)


def test_who_polls_under_many_names_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            before = live.driver.commits, live.journal._vouching.reached.number
            for number in range(100):
                await hear(live.driver, 0, 1, client=f"poller-{number}")
            assert (live.driver.commits, live.journal._vouching.reached.number) == before
            await live.advance(HOUR)
            assert len(live.journal.clients._numbers) == 0
            assert live.count("clients") == 0

    run(scenario)


def test_output_that_no_result_has_is_discarded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path / "data") as live:
            [kept, open_job] = await live.submit(2)
            written, named = live.engine.written, f"{kept}/0.1.out"
            for name in (named, f"{open_job}/0.1.out", "77/0.1.out", "78/0.2.err", "78/0.3.err"):
                written[name] = b"x" * 9000
            live.engine.end(kept, stdout=base.Output(named, 9000, b"x"))
            await live.settle()
            await live.advance(600)
            assert set(written) == {named, f"{open_job}/0.1.out"}
            assert await live.driver.retention.clear([kept]) == 1
            assert set(written) == {f"{open_job}/0.1.out"}

    run(scenario)
