"""Requests about many jobs are handled part by part: the work of one step of the event loop is bounded, and counted."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import wire
from headway.core import sorting
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import Conflict, HeadwayError, Unavailable
from headway.live import driver, intake, nodes, reports
from headway.live.driver import BUSY_AGAIN, RETRY_AFTER, Driver
from headway.live.leases import CANCELLED_AT_ONCE
from headway.live.parts import WorkInParts
from headway.live.store.journal import FILE, ROWS_WRITTEN_AT_ONCE, Journal, JournalFull
from headway.live.store.verification import check_whole, flaws
from headway.model.events import JobSubmitted, NodeJoined, PolicyChosen, Woke
from headway.model.instant import to_seconds
from headway.model.job import TaskSpec
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, job, new_job, node, submission
from headway.wire.by_parts import ENCODED_AT_ONCE

from .test_driver import ONE, Rig, crash, rig, run

Lines = Callable[[Callable[[], object]], int]


async def steps(work: Awaitable[object]) -> int:
    """How often the event loop went round until something was done."""
    task, rounds = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        rounds += 1
    task.result()
    return rounds


def test_many_jobs_are_cancelled_a_hundred_in_a_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(*[new_job()] * (2 * CANCELLED_AT_ONCE + 50))
            before = live.driver.commits
            assert await live.driver.cancel(range(1, 2 * CANCELLED_AT_ONCE + 51)) == 2 * CANCELLED_AT_ONCE + 50
            assert live.driver.commits == before + 3
            assert await live.driver.cancel((1, 2)) == 0

    run(scenario)


def test_waiting_tasks_are_counted_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(*[new_job(tasks=3)] * 20)
            assert (await reports.statistics(live.driver)).waiting == 59
            whole = await steps(reports.statistics(live.driver))
            monkeypatch.setattr(reports, "COUNTED_AT_ONCE", 5)
            assert (await reports.statistics(live.driver)).waiting == 59
            assert await steps(reports.statistics(live.driver)) == whole + 3

    run(scenario)


def test_jobs_that_do_not_fit_any_more_are_looked_for_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", slots=2), node("b", slots=2))) as live:
            await live.submit(*[new_job(kind="rigid", width=width, estimate=9) for width in (4, 3, 1, 4, 2, 3)])
            monkeypatch.setattr(nodes, "JOBS_LOOKED_AT_ONCE", 2)
            assert (await live.driver.nodes.drain("b")).unfit == (2, 4, 6), "the first one runs"

    run(scenario)


def test_another_policy_is_chosen_without_a_walk_over_all_jobs(lines_run: Lines) -> None:
    def choosing(waiting: int) -> int:
        scheduler = Scheduler(find, "easy")
        scheduler.handle(NodeJoined(0, node(slots=2)))
        for number in range(1, waiting + 1):
            scheduler.handle(JobSubmitted(0, job(number, width=2, estimate=9)))
        scheduler.handle(Woke(0))
        assert scheduler.state.promised
        found = lines_run(lambda: scheduler.handle(PolicyChosen(1, "fcfs")))
        assert not scheduler.state.promised
        scheduler.check()
        return found

    choosing(2)  # what a policy's first use in a process prepares is not counted
    assert choosing(50) == choosing(500)


def test_what_fits_the_cluster_is_found_once_for_tasks_that_are_alike(lines_run: Lines) -> None:
    def looking(count: int) -> int:
        scheduler = Scheduler(find, "heft")
        for number in range(count):
            scheduler.handle(NodeJoined(0, node(f"n{number}", slots=1)))
        scheduler.handle(NodeJoined(0, node("large", slots=8)))
        spec = job(1, graph=(TaskSpec(1, 8),) * 40)
        assert scheduler.flaw_of_fit(spec) is None
        return lines_run(lambda: scheduler.flaw_of_fit(spec))

    assert looking(200) < 2 * looking(100) + 100
    assert looking(200) < 40 * 200


async def pause() -> None:
    """Let everything else go one step."""
    await asyncio.sleep(0)


def test_a_large_submission_is_checked_part_by_part_and_others_pass_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            count = 3 * intake.CHECKED_AT_ONCE
            large = asyncio.ensure_future(live.driver.submit("me", submission(*[new_job()] * count)))
            await pause()
            small = await live.driver.submit("me", submission(new_job()))
            assert not large.done()
            assert small.jobs == (count + 1,)
            assert (await large).jobs == tuple(range(1, count + 1))
            assert live.driver.open.keys() == set(range(1, count + 2))

    run(scenario)


def workflow(tasks: int, **terms: Any) -> wire.NewJob:
    """A workflow of commands, each after the one before."""
    plan = tuple(wire.PlannedTask(5, after=(task - 1,) if task else ()) for task in range(tasks))
    commands = tuple(wire.Command(("echo", str(task))) for task in range(tasks))
    return wire.NewJob(wire.Commands(commands), kind="workflow", tasks=tasks, plan=plan, **terms)


def test_a_large_workflow_is_stored_small_and_survives_a_crash(tmp_path: Path) -> None:
    tasks = intake.TASKS_ASIDE + 1
    new = workflow(tasks, name="large")

    async def before() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.driver.submit("me", submission(new, key="once"))
            assert (await live.driver.submit("me", submission(new, key="once"))).repeated
            with pytest.raises(Conflict):
                await live.driver.submit("me", submission(workflow(tasks + 1), key="once"))
            whole = wire.encode(live.driver.open[1].spec)
            for query in ("SELECT spec FROM jobs", "SELECT body FROM events WHERE kind = 'JobSubmitted'"):
                ((body,),) = live.journal._db.execute(query).fetchall()
                assert len(body) < len(whole) / 3
            await live.end(1, 0)
            crash(live)

    async def after() -> None:
        async with rig(tmp_path, ONE) as live:
            assert live.driver.open[1].spec == new.spec(1, 0, "me")
            assert live.running == [(1, 1, 2)]
            assert live.engine.launched[-1].members[0].work == base.Command(("echo", "1"))
            assert live.journal.work(1) == new.work

    run(before)
    assert list(flaws(tmp_path)) == []
    run(after)


def test_many_commands_are_looked_at_beside_the_loop_whatever_job_they_are_of(tmp_path: Path) -> None:
    tasks = intake.TASKS_ASIDE + 1
    bag = wire.NewJob(wire.Commands(tuple(wire.Command(("echo", str(task))) for task in range(tasks))), tasks=tasks)
    assert not intake.is_short(submission(bag))
    assert intake.is_short(submission(new_job(tasks=tasks))), "one command is looked at once"

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.driver.submit("me", submission(bag))
            assert live.engine.launched[-1].members[0].work == base.Command(("echo", "0"))
            await live.end(1, 0)
            assert live.running == [(1, 1, 1)]

    run(scenario)


def test_the_digest_of_a_large_job_is_that_of_its_encoded_form_and_is_computed_part_by_part() -> None:
    sent = submission(workflow(intake.TASKS_ASIDE + 1), new_job(), key="once")
    digesting = WorkInParts(intake.digest(sent))
    parts = 0
    while not digesting.step():
        parts += 1
    assert digesting.whole() == hashlib.sha256(wire.encode(sent.jobs)).digest()
    assert parts > 2 * intake.TASKS_ASIDE // ENCODED_AT_ONCE


def test_a_large_submission_is_refused_whole_and_its_numbers_are_given_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            flawed = [*[new_job()] * (2 * intake.CHECKED_AT_ONCE), new_job(tasks=0)]
            asked = [live.driver.submit("me", submission(*flawed, key="one")) for _ in range(2)]
            refused = await asyncio.gather(*asked, return_exceptions=True)
            assert [isinstance(error, HeadwayError) for error in refused] == [True, True]
            assert not live.driver.open
            assert (await live.driver.submit("me", submission(new_job(), key="one"))).jobs == (1,)

    run(scenario)


def test_a_large_submission_that_is_sent_twice_at_once_counts_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            same = submission(*[new_job()] * (2 * intake.CHECKED_AT_ONCE), key="one")
            one, other = await asyncio.gather(live.driver.submit("me", same), live.driver.submit("me", same))
            assert one.jobs == other.jobs == tuple(range(1, len(same.jobs) + 1))
            assert len(live.driver.open) == len(same.jobs)
            with pytest.raises(Conflict):
                await live.driver.submit("me", submission(new_job(), key="one"))

    run(scenario)


def test_of_a_submission_whose_caller_is_gone_before_it_was_checked_nothing_is_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            same = submission(*[new_job()] * (3 * intake.CHECKED_AT_ONCE), key="one")
            one = asyncio.ensure_future(live.driver.submit("me", same))
            await pause()
            other = asyncio.ensure_future(live.driver.submit("me", same))
            await pause()
            one.cancel()
            with pytest.raises(Unavailable, match="has gone"):
                await other
            assert not live.driver.open
            assert len((await live.driver.submit("me", same)).jobs) == len(same.jobs)

    run(scenario)


def test_a_large_submission_is_not_accepted_by_a_server_that_has_begun_to_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            large = submission(*[new_job()] * (3 * intake.CHECKED_AT_ONCE))
            asked = asyncio.ensure_future(live.driver.submit("me", large))
            await pause()
            live.driver.take_no_more()
            with pytest.raises(Unavailable):
                await asked
            assert not live.driver.open

    run(scenario)


def test_a_policy_is_chosen_after_its_orders_were_made_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="fcfs") as live:
            await live.submit(*[new_job(due=9.0 + number) for number in range(60)])
            monkeypatch.setattr(sorting, "SORTED_AT_ONCE", 10)
            chosen = asyncio.ensure_future(live.driver.choose("tempo"))
            for _ in range(3):
                await pause()
            under_way = next(order for order in live.driver.core.state.orders.values())
            assert isinstance(under_way, sorting.Sorting)
            await live.submit(new_job(due=1.0))
            await chosen
            assert live.driver.core.policy == "tempo"
            assert not any(isinstance(order, sorting.Sorting) for order in live.driver.core.state.orders.values())
            live.driver.core.check()

    run(scenario)


LARGE = 5 * intake.TAKEN_AT_ONCE


def durable(folder: Path) -> tuple[int, int]:
    """How many jobs, and events about new jobs, another reader of the journal sees."""
    with closing(sqlite3.connect(folder / FILE)) as db:
        ((jobs,),) = db.execute("SELECT count(*) FROM jobs")
        ((events,),) = db.execute("SELECT count(*) FROM events WHERE kind = 'JobSubmitted'")
        return jobs, events


async def partly_taken(live: Rig, *, written: bool = False, **terms: Any) -> asyncio.Future[wire.Submitted]:
    """A large submission of which the core has taken, or the journal was given, a part."""
    before = len(live.driver.open)
    asked = asyncio.ensure_future(live.driver.submit("me", submission(*[new_job()] * LARGE, **terms)))
    while len(live.driver.open) == before or (written and len(live.journal.jobs()) == before):
        await pause()
    assert not asked.done()
    assert written == (len(live.driver.open) == before + LARGE)
    return asked


def test_a_large_submission_is_accepted_part_by_part_and_durable_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            before = live.driver.commits
            asked = await partly_taken(live, key="k")
            seen = {durable(tmp_path)}
            parts = 1
            while not asked.done():
                await pause()
                seen.add(durable(tmp_path))
                if durable(tmp_path) == (0, 0):
                    assert not live.engine.launched
                    assert live.journal.accepted("me", "k") is None
                    parts += 1
            assert seen == {(0, 0), (LARGE, LARGE)}
            assert parts >= LARGE // intake.TAKEN_AT_ONCE + 2 * LARGE // ROWS_WRITTEN_AT_ONCE - 3
            assert (await asked).jobs == tuple(range(1, LARGE + 1))
            await live.settle()
            assert live.driver.commits == before + 2, "the submission, and the round about its jobs"
            assert [one.key for one in live.engine.launched] == [(1, 0, 1)]
            assert (await live.driver.submit("me", submission(*[new_job()] * LARGE, key="k"))).repeated

    run(scenario)


def test_what_ends_while_a_large_submission_is_taken_is_handled_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit()
            asked = await partly_taken(live)
            live.engine.end(1, 0)
            small = asyncio.ensure_future(live.driver.submit("me", submission(new_job())))
            assert len((await asked).jobs) == LARGE
            assert (await small).jobs == (LARGE + 2,)
            kinds = [type(event).__name__ for _, event in live.journal.events() if not isinstance(event, Woke)]
            assert kinds[-LARGE - 2 :] == [*["JobSubmitted"] * LARGE, "TaskEnded", "JobSubmitted"]

    run(scenario)


def test_many_large_submissions_do_not_keep_others_waiting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit()
            more = submission(*[new_job()] * LARGE)
            asked = [await partly_taken(live)]
            asked += [asyncio.ensure_future(live.driver.submit("me", more)) for _ in range(2)]
            live.engine.end(1, 0)
            for one in asked:
                assert len((await one).jobs) == LARGE
            kinds = [type(event).__name__ for _, event in live.journal.events()]
            assert kinds[: kinds.index("TaskEnded")].count("JobSubmitted") == 1 + LARGE

    run(scenario)


@pytest.mark.parametrize("written", [False, True])
def test_a_server_that_ends_meanwhile_takes_a_large_submission_to_its_end(tmp_path: Path, written: bool) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            asked = await partly_taken(live, written=written)
            live.driver.incident("step_failed", "a step", "it is recorded as well")
        assert len((await asked).jobs) == LARGE
        with closing(Journal(tmp_path)) as journal:
            assert len(journal.incidents(10)) == 1
        async with rig(tmp_path, ONE) as live:
            assert len(live.driver.open) == LARGE

    run(scenario)


def test_whoever_writes_meanwhile_writes_after_all_of_a_large_submission(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            asked = await partly_taken(live, written=True)
            assert durable(tmp_path) == (0, 0)
            live.journal.note("meanwhile", 1)
            assert durable(tmp_path) == (LARGE, LARGE)
            assert not asked.done()
            assert len((await asked).jobs) == LARGE

    run(scenario)


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_large_submission_that_does_not_fit_on_the_disk_is_refused_whole(tmp_path: Path, meanwhile: bool) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit()
            before = live.driver.core.dump()
            asked = await partly_taken(live, written=True)
            live.journal.limit_pages(1)
            if meanwhile:
                live.journal.note("meanwhile", 1)  # it needs no new page
            with pytest.raises(JournalFull):
                await asked
            assert durable(tmp_path) == (1, 1)
            assert live.driver.core.dump() == before
            assert live.driver.open.keys() == {1}
            live.journal.limit_pages(1 << 30)
            await live.advance(to_seconds(RETRY_AFTER))
            assert len((await live.submit(*[new_job()] * LARGE)).jobs) == LARGE

    run(scenario)


def test_a_transaction_that_ends_under_a_large_submission_is_made_again(tmp_path: Path) -> None:
    """SQLite rolls back by itself if a reader's statement finds the disk full."""

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            asked = await partly_taken(live, written=True, key="k")
            live.journal._db.execute("ROLLBACK")
            await live.settle()
            assert durable(tmp_path) == (0, 0)
            assert not asked.done()
            await live.advance(to_seconds(BUSY_AGAIN))
            assert len((await asked).jobs) == LARGE
            assert durable(tmp_path) == (LARGE, LARGE)
        check_whole(tmp_path)

    run(scenario)


def test_the_same_submission_sent_again_meanwhile_gets_the_same_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            asked = await partly_taken(live, key="k")
            again = asyncio.ensure_future(live.driver.submit("me", submission(*[new_job()] * LARGE, key="k")))
            while durable(tmp_path) == (0, 0):
                assert not again.done()
                await pause()
            assert (await again).jobs == (await asked).jobs
            assert len(live.driver.open) == LARGE

    run(scenario)


def test_others_do_not_see_events_that_are_not_durable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit()
            asked = await partly_taken(live, written=True)
            assert [event.job.id for _, event in live.journal.asked(10) if isinstance(event, JobSubmitted)] == [1]
            await asked
            assert len(live.journal.asked(10)) == 10

    run(scenario)


def test_of_a_large_submission_nothing_is_left_by_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        with closing(Journal(tmp_path)) as journal:
            driver = Driver(journal, FakeEngine(), ManualClock(), find)
            await driver.start(ONE)
            live = Rig(driver, FakeEngine(), ManualClock(), journal)
            asked = await partly_taken(live, written=True)
            crash(live)
            asked.cancel()
        async with rig(tmp_path, ONE) as live:
            assert not live.driver.open
            assert durable(tmp_path) == (0, 0)

    run(scenario)


def test_while_many_slots_are_busy_rounds_have_turns_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", slots=2),)) as live:
            await live.submit(*[new_job()] * 9)

            async def turns(busy: int) -> list[int]:
                """How many tasks run after each transaction that follows the end of two."""
                monkeypatch.setattr(driver, "MANY_BUSY", busy)
                await live.settle()
                for key in tuple(live.engine.running):
                    live.engine.end(*key)
                before, found = live.driver.commits, []
                for _ in range(9):
                    await asyncio.sleep(0)
                    if live.driver.commits > before:
                        before = live.driver.commits
                        found.append(len(live.engine.running))
                return found

            assert await turns(3) == [2]
            assert await turns(2) == [0, 2]
            live.driver.core.check()
            await live.submit(new_job())
            assert await turns(3) == [2]

    run(scenario)
