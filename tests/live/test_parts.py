"""Requests about many jobs are handled part by part: the work of one step of the event loop is bounded, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headway.core import preparing
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live import intake, nodes, reports
from headway.live.driver import Unavailable
from headway.live.leases import PART
from headway.model.events import JobSubmitted, NodeJoined, PolicyChosen, Woke
from headway.model.job import Kind, TaskSpec
from headway.policies.registry import find
from headway.testing import job, new_job, node, submission

from .test_driver import ONE, rig, run

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
            await live.submit(*[new_job()] * (2 * PART + 50))
            before = live.driver.commits
            assert await live.driver.cancel(range(1, 2 * PART + 51)) == 2 * PART + 50
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
            monkeypatch.setattr(nodes, "LOOKED_AT_ONCE", 2)
            assert (await live.driver.nodes.drain("b")).unfit == (2, 4, 6), "the first one runs"

    run(scenario)


def test_another_policy_is_chosen_without_a_walk_over_all_jobs(lines_run: Lines) -> None:
    def choosing(waiting: int) -> int:
        scheduler = Scheduler(find, "easy")
        scheduler.handle(NodeJoined(0, node(slots=2)))
        for number in range(1, waiting + 1):
            scheduler.handle(JobSubmitted(0, job(number, kind=Kind.RIGID, width=2, estimate=9)))
        scheduler.handle(Woke(0))
        assert scheduler.state.promised
        found = lines_run(lambda: scheduler.handle(PolicyChosen(1, "fcfs")))
        assert not scheduler.state.promised
        scheduler.check()
        return found

    assert choosing(50) == choosing(500)


def test_what_fits_the_cluster_is_found_once_for_tasks_that_are_alike(lines_run: Lines) -> None:
    def looking(count: int) -> int:
        scheduler = Scheduler(find, "heft")
        for number in range(count):
            scheduler.handle(NodeJoined(0, node(f"n{number}", slots=1)))
        scheduler.handle(NodeJoined(0, node("large", slots=8)))
        spec = job(1, plan=(TaskSpec(1, 8),) * 40)
        assert scheduler.misfit(spec) is None
        return lines_run(lambda: scheduler.misfit(spec))

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
            with pytest.raises(intake.Conflict):
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
            monkeypatch.setattr(preparing, "SORTED_AT_ONCE", 10)
            chosen = asyncio.ensure_future(live.driver.choose("tempo"))
            for _ in range(3):
                await pause()
            sorting = next(order for order in live.driver.core.state.orders.values())
            assert isinstance(sorting, preparing.Sorting)
            await live.submit(new_job(due=1.0))
            await chosen
            assert live.driver.core.policy == "tempo"
            assert not any(isinstance(order, preparing.Sorting) for order in live.driver.core.state.orders.values())
            live.driver.core.check()

    run(scenario)
