"""The driver when nodes are lost, processes ended from outside, or inputs fetched: what counts and is reported."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headway import wire
from headway.core.lifecycle import RULES, STRIKES_MAX
from headway.core.scheduler import Scheduler
from headway.core.suspects import ALONE_MAX
from headway.engines import base
from headway.live import reports
from headway.live.store.history import history
from headway.live.store.journal import FILE, Journal
from headway.live.tasks import task_list
from headway.model.actions import JobStatus
from headway.model.events import Incident, Outcome, RulesChosen, TaskStruck
from headway.model.instant import SECOND
from headway.policies.registry import find
from headway.testing import FakeEngine, new_job

from .test_driver import ONE, TWO, Rig, rig, run


async def lose(live: Rig, name: str = "a", *, excused: bool = False) -> None:
    """A node is lost, and back."""
    live.engine.report(base.NodeLost(name, "its process died", excused))
    live.engine._drop(name)
    await live.settle()
    live.engine.report(base.NodeBack(name))
    await live.settle()


def incidents(live: Rig, kind: str) -> list[Incident]:
    return [event for event in live.events(Incident) if isinstance(event, Incident) and event.kind == kind]


def test_a_loss_that_no_task_can_have_caused_counts_against_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            await live.submit(new_job(), new_job())
            for _ in range(3):
                await lose(live, excused=True)
            assert incidents(live, "tasks_suspected") == []
            assert len(live.running) == 2, "they still run beside each other"
            assert live.driver.core.state.suspicions == {}

    run(scenario)


def test_incidents_name_the_suspects_and_the_one_that_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            await live.submit(new_job(), new_job())
            await lose(live)
            assert incidents(live, "tasks_suspected") == []
            await live.advance(1)
            live.engine.report(base.NodeLost("a", "its process died"))
            live.engine._drop("a")
            await live.settle()
            (said,) = incidents(live, "tasks_suspected")
            assert said.subject == "a"
            assert "job 1, task 0 (2 times), job 2, task 0 (2 times)" in said.detail
            waiting, _, _ = await live.driver.explain(2)
            assert waiting.text.endswith("because its node was lost 2 times while it ran")
            live.engine.report(base.NodeBack("a"))
            await live.settle()
            assert len(live.running) == 1
            ((job, _, _),) = live.running
            for _ in range(ALONE_MAX):
                assert incidents(live, "task_given_up") == []
                await lose(live)
            (said,) = incidents(live, "task_given_up")
            assert f"job {job}, task 0 " in said.detail
            assert live.status(job) is JobStatus.FAILED
            (result,) = live.results(job)
            assert (result.ending.outcome, "taken for the cause" in result.ending.detail) == (Outcome.LOST, True)
            assert live.running == [(3 - job, 0, 3)], "the other one is cleared"

    run(scenario)


def test_what_a_signal_from_outside_ends_is_redone_and_at_last_its_ending_says_how_often(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            for attempt in range(1, 5):
                assert live.running == [(1, 0, attempt)]
                detail = "signal 9 (SIGKILL)"
                await live.end(1, 0, attempt, Outcome.SIGNALLED, outside=True, exit_code=-9, detail=detail)
            assert len(live.events(TaskStruck)) == 4
            (result,) = live.results(1)
            assert (result.ending.outcome, result.ending.exit_code) == (Outcome.SIGNALLED, -9)
            assert result.ending.detail == "signal 9 (SIGKILL). Its attempts ended so 4 times"
            await live.submit(new_job())
            await live.end(2, 0, 1, Outcome.SIGNALLED, exit_code=-11)
            assert live.status(2) is JobStatus.FAILED

    run(scenario)


def test_a_task_whose_files_meet_a_full_disk_is_redone_and_at_last_fails_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            full = "inputs['x'] is 'file:///x': No space left on device"
            for attempt in range(1, STRIKES_MAX + 2):
                assert live.running == [(1, 0, attempt)]
                live.engine.report(base.Stalled(1, 0, attempt, full, "a"))
                await live.settle()
                struck = f"; a signal from outside or a full disk ended {attempt - 1} of its attempts"
                said = f"it waits for room on the disk of its node: {full}{struck if attempt > 1 else ''}"
                assert [one.hindered for one in reports.job_detail(live.driver, 1).attempts] == [said]
                assert (await reports.explanation(live.driver, 1)).hindered == (f"task 0: {said}",)
                row = reports.row(live.driver, 1)
                assert [one.hindered for one in (await task_list(live.driver, row, 0, 9)).tasks] == [said]
                live.engine.report(base.Stalled(1, 0, attempt))
                await live.settle()
                assert "waits" not in reports.job_detail(live.driver, 1).attempts[0].hindered, "it goes on"
                await live.end(1, 0, attempt, Outcome.REFUSED, outside=True, detail=full)
            assert [event.outcome for event in live.events(TaskStruck)] == [Outcome.REFUSED] * (STRIKES_MAX + 1)
            (result,) = live.results(1)
            assert (result.ending.outcome, live.status(1)) == (Outcome.REFUSED, JobStatus.FAILED)
            assert result.ending.detail == f"{full}. Its attempts ended so {STRIKES_MAX + 1} times"
            told = [(one.subject, one.detail) for one in incidents(live, "disk_full")]
            assert told == [("job 1, task 0", f"on node a: {full}")]

    run(scenario)


def test_the_log_has_of_a_traceback_what_was_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            detail = "Traceback (most recent call last):\n  File ...\nOSError: [Errno 28] No space left on device"
            await live.end(1, 0, 1, Outcome.RAISED, outside=True, detail=detail)

    run(scenario)
    said = "job 1, task 0, attempt 1: OSError: [Errno 28] No space left on device. Its attempts ended so 1 times"
    assert said in caplog.messages
    assert "Traceback" not in caplog.text


def test_a_journal_of_before_goes_on_by_the_rules_of_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path / "new", ONE) as live:
            assert live.events(RulesChosen) == []
        with closing(Journal(tmp_path / "old")) as journal:
            before = replace(Scheduler(find, "deadline").dump(), rules=1)
            journal.store_snapshot(0, before, ())
        for _ in range(2):
            async with rig(tmp_path / "old", ONE) as live:
                assert live.driver.core.state.rules == RULES
                assert [event.rules for event in live.events(RulesChosen)] == [RULES], "once"

    run(scenario)


def test_a_job_that_fetches_has_started_when_its_inputs_are_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            work = wire.Commands((wire.Command(("true",), inputs={"x": "file:///x"}),))
            await live.submit(wire.NewJob(work=work, tasks=2))
            assert reports.job_detail(live.driver, 1).job.started is None
            await live.advance(60)
            live.engine.report(base.Started(1, 0, 1))
            await live.settle()
            assert reports.job_detail(live.driver, 1).job.started == 60
            await live.advance(2)
            live.engine.report(base.Started(1, 1, 1))
            found = live.engine.found()
            await live.settle()
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
        async with rig(tmp_path, TWO, engine=FakeEngine(found), at=63) as live:
            live.engine.report(base.Started(1, 0, 1))  # reported again
            await live.settle()
            assert reports.job_detail(live.driver, 1).job.started == 60
            await live.advance(1)
            await live.end(1, 0, 1)
            await live.end(1, 1, 1)
            assert live.status(1) is JobStatus.SUCCEEDED
            assert reports.job_report(live.driver, reports.row(live.driver, 1)).started == 60
        schedule = history(tmp_path, find)
        assert schedule.start.tolist()[0] == 60 * SECOND
        assert schedule.runtime.tolist()[0] == 3 * SECOND, "4 s and 2 s"
        with closing(sqlite3.connect(tmp_path / FILE)) as db:
            ((mean,),) = db.execute("SELECT mean FROM job_statistics WHERE job = 1")
        assert mean < 5 * SECOND

    run(scenario)
