"""How far each task of a job is, with the driver and a fake engine; what tasks of workflows are given."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from headway import wire
from headway.engines import base
from headway.given import GIVEN_MAX
from headway.live import reports, tasks
from headway.live.intake import TASKS_ASIDE
from headway.live.ledger import OpenJob
from headway.live.store import specs
from headway.live.store.journal import Journal
from headway.live.sweep import Keep
from headway.live.work import gift_of
from headway.model.actions import JobStatus
from headway.model.events import Outcome
from headway.model.instant import SECOND
from headway.model.job import TaskSpec
from headway.testing import FakeEngine, job, new_job

from .test_driver import ONE, TWO, Rig, crash, rig, run

F = wire.blob_name(b"f")


def flow(
    needs: tuple[tuple[int, ...], ...], *, commands: int = 0, retries: tuple[int | None, ...] = ()
) -> tuple[wire.NewJob, dict[str, bytes]]:
    """A workflow of calls, and of commands after them, each after those that it needs something of."""
    count = len(needs)
    calls = wire.Calls((F,), tuple(b"%d" % task for task in range(count - commands)))
    programs = tuple(wire.Command(("do", "{i}")) for _ in range(commands))
    names = tuple("abcdefgh"[:count])
    work = wire.Steps(calls, programs, tuple(range(count - commands, count)), needs, names)
    plan = tuple(
        wire.PlannedTask(1.0, after=some, retries=tries)
        for some, tries in zip(needs, retries or (None,) * count, strict=True)
    )
    return wire.NewJob(work, kind="workflow", tasks=count, plan=plan), {F: b"f"}


async def states(live: Rig, job: int = 1) -> list[tuple[str, str, tuple[int, ...]]]:
    found = await tasks.task_list(live.driver, reports.row(live.driver, job), 0, 100)
    return [(one.name, one.state, one.after) for one in found.tasks]


def given(live: Rig, job: int, task: int) -> base.Call:
    work = launched(live, job, task)
    assert isinstance(work, base.Call)
    return work


def launched(live: Rig, job: int, task: int) -> base.Work:
    (one,) = [one for one in live.engine.launched if one.key == (job, task, 1)]
    return one.members[0].work


def test_states_follow_what_happens(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            job, blobs = flow(((), (), (0,), (2,), (1,)))
            await live.submit(job, blobs=blobs)
            assert await states(live) == [
                ("a", "running", ()),
                ("b", "running", ()),
                ("c", "waits", (0,)),
                ("d", "waits", (2,)),
                ("e", "waits", (1,)),
            ]
            await live.end(1, 0, 1, Outcome.EXITED)
            assert (await states(live))[:4] == [
                ("a", "failed", ()),
                ("b", "running", ()),
                ("c", "never runs", (0,)),
                ("d", "never runs", (2,)),
            ]
            await live.driver.cancel_tasks(1, (4,))
            await live.settle()
            assert (await states(live))[4] == ("e", "cancelled", ())
            await live.end(1, 1)
            assert [state for _, state, _ in await states(live)] == [
                *("failed", "succeeded", "never ran", "never ran", "cancelled")
            ]
            part = await tasks.task_list(live.driver, reports.row(live.driver, 1), 1, 2)
            assert ([one.task for one in part.tasks], part.more) == ([1, 2], True)
            await live.submit(new_job(tasks=3))
            assert [(name, state) for name, state, _ in await states(live, 2)] == [
                *(("", "running"), ("", "running"), ("", "ready"))
            ]

    run(scenario)


async def reasons(live: Rig, job: int = 1) -> dict[str, str]:
    """Why tasks never run, by name."""
    found = await tasks.task_list(live.driver, reports.row(live.driver, job), 0, 100)
    return {one.name: one.why for one in found.tasks if one.why}


def test_a_task_that_never_runs_says_because_of_which_one_at_whatever_distance(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            job, blobs = flow(((), (), (0,), (2,), (1,), (3, 4)))
            await live.submit(job, blobs=blobs)
            await live.end(1, 0, 1, Outcome.EXITED)
            because = dict.fromkeys("cdf", "task 0 (a) failed")
            assert await reasons(live) == because
            await live.driver.cancel_tasks(1, (4,))
            await live.settle()
            assert await reasons(live) == because
            await live.end(1, 1)
            assert live.status(1) is JobStatus.FAILED
            assert await reasons(live) == because, "the same when the job has ended"

    run(scenario)


def test_a_task_after_a_cancelled_one_says_so_and_one_of_a_cancelled_job_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            job, blobs = flow(((), (0,), (1,), ()))
            await live.submit(job, job, blobs=blobs)
            await live.driver.cancel_tasks(1, (1,))
            await live.settle()
            assert await reasons(live) == {"c": "task 1 (b) was cancelled"}
            await live.driver.cancel([1])
            await live.settle()
            assert (await reasons(live))["d" if live.running[0][1] != 3 else "a"] == "its job was cancelled"
            await live.end(*live.running[0], Outcome.KILLED)
            assert live.status(1) is JobStatus.CANCELLED
            told = await reasons(live)
            assert told["c"] == "task 1 (b) was cancelled"
            await live.driver.cancel([2])
            await live.settle()
            for one in list(live.running):
                await live.end(*one, Outcome.KILLED)
            assert set((await reasons(live, 2)).values()) <= {"its job was cancelled", "task 0 (a) was cancelled"}

    run(scenario)


def test_a_task_is_launched_with_what_those_before_it_gave_also_after_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            job, blobs = flow(((), (0,), (0, 1)), commands=1)
            await live.submit(job, blobs=blobs)
            await live.end(1, 0, result=b"first")
            assert given(live, 1, 1).results == {0: b"first"}
            found = crash(live)
        async with rig(tmp_path, ONE, engine=FakeEngine(found)) as live:
            await live.end(1, 1, result=b"second")
            program = launched(live, 1, 2)
            assert isinstance(program, base.Command)
            assert program.argv == ("do", "2")

    run(scenario)


@pytest.mark.parametrize("kept", [0, SECOND])
def test_acknowledged_results_are_kept_while_others_may_get_them(tmp_path: Path, kept: int) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, keep=Keep(acknowledged=kept)) as live:
            job, blobs = flow(((), (), (0,)))
            await live.submit(job, blobs=blobs, client="c")
            await live.end(1, 0, result=b"first")
            await live.driver.retention.acknowledge("c", [wire.TaskRange(1)])
            for _ in range(3):
                await live.advance(2)
            oldest = live.driver.journal.retained.oldest()
            assert oldest is not None  # it is looked at again after a while, not again and again
            assert oldest + kept > live.driver.now()
            await live.end(1, 1)
            assert given(live, 1, 2).results == {0: b"first"}
            await live.end(1, 2)
            for _ in range(3):
                await live.advance(2)
            assert [result.task for result in live.results(1)] == [1, 2]  # those were not acknowledged

    run(scenario)


def test_a_task_that_would_get_too_much_fails_and_is_tried_as_often_as_it_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            job, blobs = flow(((), (0,), ()), retries=(None, 1, None))
            await live.submit(job, blobs=blobs)
            await live.end(1, 0, result=bytes(GIVEN_MAX + 1))
            await live.settle()
            refused = next(result for result in live.results(1) if result.task == 1)
            assert (refused.ending.outcome, refused.attempt) == (Outcome.REFUSED, 2)
            assert refused.ending.detail.startswith(f"the results that it gets are {GIVEN_MAX + 1} bytes; allowed:")

    run(scenario)


def test_what_a_program_gives_is_the_text_that_it_wrote() -> None:
    ending = wire.TaskEnding(Outcome.SUCCEEDED, stdout=b"text", outputs={"out/a": f"headway:{'a' * 64}/a", "b": "/b"})
    gift = gift_of(wire.TaskResult(1, 0, 1, ending))
    assert (pickle.loads(gift.value), gift.outputs) == ("text", {"out/a": f"headway:{'a' * 64}/a"})


@pytest.mark.parametrize(("own", "tries"), [(None, 2), (0, 1), (2, 3)])
def test_a_task_of_a_workflow_is_tried_as_often_as_it_says_or_else_its_job(
    tmp_path: Path, own: int | None, tries: int
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            job, blobs = flow(((), ()), retries=(own, None))
            await live.submit(msgspec.structs.replace(job, retries=1), blobs=blobs)
            for attempt in range(1, tries + 1):
                assert (1, 0, attempt) in live.running
                await live.end(1, 0, attempt, Outcome.EXITED)
            assert (1, 0, tries + 1) not in live.engine.running

    run(scenario)


def test_the_tasks_of_a_large_workflow_are_listed_with_few_looks_at_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = TASKS_ASIDE + 1
    chain = wire.NewJob(
        wire.Commands((wire.Command(("true",)),)),
        kind="workflow",
        tasks=count,
        plan=tuple(wire.PlannedTask(1, after=tuple(range(max(0, task - 3), task))) for task in range(count)),
    )
    read, looked = list[int](), list[int]()
    decode, outcomes = specs._decode, Journal.outcomes
    monkeypatch.setattr(specs, "_decode", lambda body: (read.append(len(body)), decode(body))[1])

    def looking(journal: Journal, job: int, first: int, last: int, **how: bool) -> list[tuple[int, str]]:
        looked.append(last - first)
        return outcomes(journal, job, first, last, **how)

    monkeypatch.setattr(Journal, "outcomes", looking)

    async def pages(live: Rig, page: int = 500) -> list[wire.TaskState]:
        found: list[wire.TaskState] = []
        for first in range(0, count, page):
            found += (await tasks.task_list(live.driver, reports.row(live.driver, 1), first, page)).tasks
        return found

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(chain)
            for task in range(3):
                await live.end(1, task)
            looked.clear()
            found = await pages(live)
            assert [(one.state, one.after) for one in found[2:6]] == [
                ("succeeded", ()),
                ("running", ()),
                ("waits", (3,)),
                ("waits", (3, 4)),
            ]
            assert len(looked) <= count / tasks.TASKS_LOOKED_AT_ONCE + 5
            await live.driver.cancel([1])
            await live.end(1, 3, 1, Outcome.KILLED)
            assert {one.state for one in (await pages(live))[4:]} == {"never ran"}
        assert not read, "its terms are remembered since it was accepted"

    run(scenario)


def test_a_retried_task_gets_what_others_give_by_their_numbers_without_a_search(tmp_path: Path) -> None:
    kept = OpenJob(job(1, graph=(TaskSpec(1),) * 3, numbers=(9, 4, 7)), 1, 0)
    assert [kept.place(number) for number in (4, 7, 9)] == [1, 2, 0]
    assert kept.places == {9: 0, 4: 1, 7: 2}, "one walk for all of them"
    assert OpenJob(job(1, tasks=3), 1, 0).place(2) == 2
