"""Lists of many jobs and nodes equal those made one by one, and other requests are served meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from headway import wire
from headway.live import reports
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.actions import JobStatus
from headway.policies.registry import find
from headway.policies.sites import Sites
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

from ..waiting import becomes

JOBS, NODES = 3000, 300


async def turns(asked: asyncio.Task[object]) -> int:
    """How many turns other tasks of the event loop get until a task has ended."""
    count = 0
    while not asked.done():
        await asyncio.sleep(0)
        count += 1
    return count


def test_lists_of_many_are_whole_and_hold_up_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        with closing(Journal(tmp_path)) as journal:
            driver = Driver(journal, FakeEngine(), ManualClock(5), find, DriverSettings(policy="fcfs"))
            await driver.start(tuple(node(f"n{number}", slots=2) for number in range(NODES)))
            for first in range(0, JOBS, 1000):
                jobs = [
                    new_job(name=str(first + number), release=100.0 if number % 10 == 3 else None)
                    for number in range(1000)
                ]
                await driver.submit("ann" if first else "bob", submission(*jobs))
            await driver.cancel(range(1, JOBS + 1, 7))
            for key in tuple(driver._engine.running)[:100]:  # type: ignore[attr-defined]
                driver._engine.end(*key)  # type: ignore[attr-defined]
            await becomes(lambda: len(driver._engine.acknowledged) == 100)  # type: ignore[attr-defined]
            outlook = await driver.forecasts.outlook()
            every = {row.id: reports.job_report(driver, row, outlook) for row in journal.jobs()}
            statuses: list[str | None] = [None, "open", *(status.value for status in JobStatus)]
            for status in statuses:
                for user in (None, "ann"):
                    wanted = [
                        report
                        for report in every.values()
                        if status in (None, report.status.value) or (status == "open" and not report.status.is_final)
                        if user in (None, report.user)
                    ]
                    found: list[wire.JobReport] = []
                    more = True
                    while more:
                        page = await reports.job_list(driver, status, user, found[-1].id if found else 0, 700)
                        assert len(page.jobs) <= 700
                        found += page.jobs
                        more = page.more
                    assert found == wanted, (status, user)
            listing = asyncio.create_task(reports.job_list(driver, "open", None, 0, 10_000))
            assert await turns(listing) >= JOBS // 2 // 100, "all at once it took seconds of 100,000 jobs"
            listing = asyncio.create_task(reports.node_list(driver))
            assert await turns(listing) >= NODES // 25
            nodes = listing.result().nodes
            assert [each.name for each in nodes] == [f"n{number}" for number in range(NODES)]
            told = sorted((one.job, one.task) for each in nodes for one in each.attempts)
            assert told == sorted((one.job.id, one.task) for one in driver.core.state.attempts())
            assert all(one.slots[0].startswith(f"{each.name}/") for each in nodes for one in each.attempts)
            await driver.stop()

    asyncio.run(main())


def test_a_job_names_the_pool_that_it_was_dealt_to_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with closing(Journal(tmp_path)) as journal:
            driver = Driver(
                journal, FakeEngine(), ManualClock(5), find, DriverSettings(policy="sites:top=rr,each=easy")
            )
            await driver.start((node("a", slots=1, site="east"), node("b", slots=1, site="west")))
            await driver.submit("ann", submission(*(new_job() for _ in range(3))))
            await becomes(lambda: len(driver._engine.running) == 2)  # type: ignore[attr-defined]
            driver._engine.end(*next(iter(driver._engine.running)))  # type: ignore[attr-defined]
            await becomes(lambda: len(driver.open) == 2)
            page = await reports.job_list(driver, None, None, 0, 9)
            assert [job.pool for job in page.jobs] == ["", "west", "east"]
            told = await reports.explanation(driver, 3)
            assert told.pool == "east"
            numbers = "east: was dealt 2; west: was dealt 1"
            assert told.why_pool == f"it is at site east, because jobs go to the sites in turn. Now: {numbers}"
            monkeypatch.setattr(Sites, "why", lambda *_: {}["x"])
            told = await reports.explanation(driver, 3)
            assert told.why_pool == "it is not known why it is there: the policy raised KeyError('x')"
            assert told.text
            await driver.stop()

    asyncio.run(main())
