"""Requests about many jobs are handled part by part: the work of one step of the event loop is bounded, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headway.core.scheduler import Scheduler
from headway.live import nodes, reports
from headway.live.leases import PART
from headway.model.events import JobSubmitted, NodeJoined, PolicyChosen, Woke
from headway.model.job import Kind, TaskSpec
from headway.policies.registry import find
from headway.testing import job, new_job, node

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
