"""Acknowledged results are deleted when their time is over, by a clock set by hand; uploads when no job needs them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from headway import HeadwayError, InvalidInput, wire
from headway.engines import base
from headway.errors import NoSuchJob, NoSuchUpload, NotTheirs, TooLarge
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.expiry import Walk
from headway.live.store.journal import Journal, JournalFull
from headway.live.sweep import ROWS_AT_ONCE, Keep
from headway.live.uploads import STRAY_SECONDS, NoRoom
from headway.model.events import Incident
from headway.model.instant import from_seconds
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

HOUR = 3600
MINUTE = Keep(from_seconds(60))


@dataclass
class Rig:
    """A running driver, with everything around it."""

    driver: Driver
    engine: FakeEngine
    clock: ManualClock

    async def settle(self) -> None:
        for _ in range(40):  # a sweep has many steps
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()

    async def job(self, tasks: int = 1, *, client: str = "c", **output: base.Output) -> int:
        """A job of a client that has ended."""
        answer = await self.driver.submit("me", submission(new_job(tasks=tasks), client=client))
        (job,) = answer.jobs
        for task in range(tasks):
            await self.settle()
            self.engine.end(job, task, **output)
        await self.settle()
        return job

    async def acknowledge(self, *jobs: int, client: str = "c") -> None:
        await self.driver.retention.acknowledge(client, [wire.TaskRange(job) for job in jobs])

    def kept(self, job: int) -> int:
        """How many results of a job are kept."""
        return len(self.driver.journal.results([wire.TaskRange(job)], 1 << 20)[0])

    async def upload(self, content: bytes, *, announced: int = 0, name: str = "") -> str:
        async def parts() -> AsyncIterator[bytes]:
            yield content[:2]
            yield content[2:]

        name = name or sha256(content).hexdigest()
        assert await self.driver.retention.upload(name, announced, parts()) == len(content)
        return name


@asynccontextmanager
async def rig(folder: Path, keep: Keep = MINUTE, at: float = 0) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        clock, engine = ManualClock(at), FakeEngine()
        driver = Driver(journal, engine, clock, find, DriverSettings(keep=keep))
        await driver.start((node("a", slots=2),))
        try:
            yield Rig(driver, engine, clock)
            driver.core.check()
        finally:
            await driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def test_results_go_when_they_have_been_acknowledged_for_so_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            first, second, third = [await live.job(2) for _ in range(3)]
            await live.acknowledge(first)
            await live.advance(59)
            await live.acknowledge(second)
            assert [live.kept(job) for job in (first, second, third)] == [2, 2, 2]
            await live.advance(1)
            assert [live.kept(job) for job in (first, second, third)] == [0, 2, 2]
            await live.advance(59)
            assert [live.kept(job) for job in (first, second, third)] == [0, 0, 2]
            await live.advance(100 * 86_400)
            assert live.kept(third) == 2

    run(scenario)


def test_with_no_retention_they_go_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, Keep(0)) as live:
            job = await live.job()
            assert live.kept(job) == 1
            await live.acknowledge(job)
            await live.settle()
            assert live.kept(job) == 0

    run(scenario)


def test_it_is_kept_in_mind_over_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            first, second = await live.job(), await live.job()
            await live.acknowledge(first)
            await live.advance(30)
            await live.acknowledge(second)
        async with rig(tmp_path, at=70) as live:
            await live.settle()
            assert [live.kept(first), live.kept(second)] == [0, 1]
            await live.advance(20)
            assert live.kept(second) == 0

    run(scenario)


def test_output_goes_with_its_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path / "data", Keep(0)) as live:
            live.engine.written |= {"1/out": b"long", "1/other": b"long"}
            job = await live.job(stdout=base.Output("1/out", 9000, b"g"), stderr=base.Output("1/other", 9000, b"g"))
            assert len(live.engine.written) == 2
            await live.acknowledge(job)
            await live.settle()
            assert live.engine.written == {}

    run(scenario)


def test_somebody_elses_results_are_not_theirs_to_acknowledge(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, Keep(0)) as live:
            mine, other = await live.job(client="me"), await live.job(client="other")
            for client in ("me", "nobody", ""):
                with pytest.raises(NotTheirs, match=f"client '{client}' acknowledges results of job {other}, which an"):
                    await live.acknowledge(*([mine] if client == "me" else []), other, client=client)
            with pytest.raises(NoSuchJob, match="there is no job 99"):
                await live.acknowledge(mine, 99, client="me")
            await live.advance(1)
            assert [live.kept(mine), live.kept(other)] == [1, 1]
            assert live.driver.journal.expiry.drop_jobs(10**15, 10, Walk()) == [], "there are results"
            assert await live.driver.retention.clear([other]) == 1
            assert live.driver.journal.expiry.drop_jobs(10**15, 10, Walk()) == [other]
            await live.acknowledge(mine, other, client="me")  # what is gone need not be reported
            await live.advance(1)
            assert live.kept(mine) == 0
            incidents = [event for _, event in live.driver.journal.events() if isinstance(event, Incident)]
            assert [(event.kind, event.subject) for event in incidents] == [("acknowledge_refused", f"job {other}")] * 3
            assert "client 'me'" in incidents[0].detail

    run(scenario)


def test_what_nobody_acknowledges_goes_if_that_is_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, Keep(0, from_seconds(10 * HOUR))) as live:
            old = [await live.job() for _ in range(2 * ROWS_AT_ONCE + 1)]
            await live.advance(9 * HOUR)
            fresh = await live.job()
            assert all(live.kept(job) for job in old)
            for _ in range(6):
                await live.advance(HOUR / 4)
            assert [live.kept(job) for job in old] == [0] * len(old)
            assert live.kept(fresh) == 1

    run(scenario)


def test_a_full_disk_delays_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            job = await live.job()
            await live.acknowledge(job)
            retained, real = live.driver.journal.retained, live.driver.journal.retained.clear_acknowledged

            def full(*_: object) -> list[str]:
                raise JournalFull("the disk is full")

            retained.clear_acknowledged = full  # type: ignore[method-assign]
            await live.advance(60)
            assert live.kept(job) == 1
            retained.clear_acknowledged = real  # type: ignore[method-assign]
            await live.advance(0.9)
            assert live.kept(job) == 1
            await live.advance(0.1)
            assert live.kept(job) == 0

    run(scenario)


def with_input(name: str) -> wire.NewJob:
    command = wire.Command(("cat", "in"), inputs={"in": f"headway:{name}/a.csv"}, outputs={"out": "headway:out"})
    return wire.NewJob(wire.Commands((command,)))


def test_an_upload_is_kept_for_open_jobs_and_an_hour(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            used, unused = await live.upload(b"used"), await live.upload(b"unused")
            folder = live.driver.retention.uploads.folder
            assert (folder / used).read_bytes() == b"used"
            await live.driver.submit("me", submission(with_input(used)))
            await live.settle()
            (launched,) = live.engine.launched
            assert (launched.files, launched.fetches) == (True, True)
            work = launched.members[0].work
            assert isinstance(work, base.Command)
            assert work.inputs == {"in": f"headway:{used}/a.csv"}
            await live.advance(2 * HOUR)
            assert (folder / used).exists()
            assert not (folder / unused).exists()
            with pytest.raises(NoSuchUpload):
                live.driver.retention.uploaded(unused)
            with pytest.raises(InvalidInput, match=r"jobs\[0\]\.work\.inputs is .*; allowed: an upload that the serv"):
                await live.driver.submit("me", submission(with_input(unused)))
            live.engine.end(1)
            await live.settle()
            await live.advance(2 * HOUR)
            assert not (folder / used).exists()

    run(scenario)


@pytest.mark.parametrize(("keep", "kept"), [(120.0, False), (None, True)], ids=["two minutes", "for ever"])
def test_how_long_an_upload_is_kept_is_a_setting(tmp_path: Path, keep: float | None, kept: bool) -> None:
    async def scenario() -> None:
        settings = Keep(uploads=None if keep is None else from_seconds(keep))
        async with rig(tmp_path, settings) as live:
            name = await live.upload(b"unused")
            folder = live.driver.retention.uploads.folder
            await live.advance(110)
            assert (folder / name).exists()
            await live.advance(100)
            assert (folder / name).exists() == kept

    run(scenario)


def test_an_upload_is_kept_for_two_minutes_at_least() -> None:
    with pytest.raises(InvalidInput, match=r"keep_uploads is 119\.0; allowed: 120 seconds or more, or none"):
        Keep(uploads=from_seconds(119))


def test_what_a_task_gave_the_server_is_kept_with_its_result(tmp_path: Path) -> None:
    name = sha256(b"given").hexdigest()

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            given = live.driver.retention.uploads.folder / name
            await live.driver.submit("me", submission(with_input(await live.upload(b"in")), client="c"))
            await live.settle()
            given.write_bytes(b"given")
            live.engine.end(1, outputs={"out": f"headway:{name}/out"})
            await live.advance(100 * HOUR)
            assert given.exists()
            assert live.driver.retention.uploaded(name) == 5
            await live.acknowledge(1)
            await live.advance(60)
            assert live.kept(1) == 0
            await live.advance(1.5 * HOUR)
            assert not given.exists()

    run(scenario)


def test_strays_go_when_they_are_old(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            known = await live.upload(b"known")
        for name in ("a" * 64, f".{'b' * 64}.part", "c" * 64, known):
            (uploads / name).write_text("known" if name == known else "")
            age = 0 if name.startswith("c") else STRAY_SECONDS + 60
            os.utime(uploads / name, (1e9, os.stat(uploads).st_mtime - age))
        async with rig(tmp_path):
            assert sorted(path.name for path in uploads.iterdir()) == sorted([known, "c" * 64])

    run(scenario)


def test_an_upload_that_is_not_as_it_should_be_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, Keep(upload_max=4)) as live:
            with pytest.raises(TooLarge, match="the upload has 5 bytes or more; allowed: 4"):
                await live.upload(b"12345")
            with pytest.raises(TooLarge, match="the upload has 9 bytes"):
                await live.upload(b"1", announced=9)
            with pytest.raises(
                InvalidInput, match=r"upload is '0.*; allowed: the SHA-256 of the bytes that were sent, 03ac"
            ):
                await live.upload(b"1234", name="0" * 64)
            for name in ("short", "../up", "G" * 64, "0" * 65):
                with pytest.raises(InvalidInput, match="64 digits in hexadecimal"):
                    await live.upload(b"1234", name=name)

            async def full() -> AsyncIterator[bytes]:
                yield b"1"
                raise OSError(28, "No space left on device")

            with pytest.raises(NoRoom, match=r"does not fit on the disk of .*: No space left on device"):
                await live.driver.retention.upload("0" * 64, 0, full())
            assert list(live.driver.retention.uploads.folder.iterdir()) == []
            assert len(await live.upload(b"1234")) == 64

    run(scenario)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path):
            pass
        shutil.rmtree(tmp_path / "uploads", ignore_errors=True)
        (tmp_path / "uploads").write_text("in the way")
        with pytest.raises(HeadwayError, match="uploads cannot be used"):
            async with rig(tmp_path):
                pass

    run(scenario)


@pytest.mark.parametrize(
    ("files", "error"),
    [
        (
            {"inputs": {"a": "nowhere://a"}},
            r"^jobs\[0\]\.work\.inputs is 'nowhere://a'; allowed: a path, or a URL of .*",
        ),
        ({"outputs": {"a": "nowhere://a"}}, r"^jobs\[0\]\.work\.outputs is 'nowhere://a'; allowed: "),
        ({"inputs": {"a": "relative"}}, r"^jobs\[0\]\.work\.inputs is 'relative'; allowed: an absolute path, or a URL"),
        ({"outputs": {"../a": "/a"}}, r"^jobs\[0\]\.work\.commands\[0\]\.outputs is '\.\./a'; allowed: a path within"),
    ],
)
def test_a_url_that_no_task_could_open_is_refused_at_submission(
    tmp_path: Path, files: dict[str, dict[str, str]], error: str
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            new = wire.NewJob(wire.Commands((wire.Command(("true",), **files),)))
            with pytest.raises(InvalidInput, match=error):
                await live.driver.submit("me", submission(new))
            assert live.driver.journal.jobs() == []

    run(scenario)


def test_numbers_are_put_into_paths_and_urls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            command = wire.Command(("cat",), inputs={"in{i}": "/data/{i}"}, outputs={"out": "/out/{i}.csv"})
            await live.driver.submit("me", submission(wire.NewJob(wire.Commands((command,)), tasks=2)))
            await live.settle()
            works = [assignment.members[0].work for assignment in live.engine.launched]
            assert [(work.inputs, work.outputs) for work in works if isinstance(work, base.Command)] == [
                ({f"in{number}": f"/data/{number}"}, {"out": f"/out/{number}.csv"}) for number in range(2)
            ]

    run(scenario)
