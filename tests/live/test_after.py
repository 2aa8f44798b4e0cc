"""Jobs that come after others: with the driver and a clock set by hand, and with a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, Task, wire
from headway.errors import HeadwayError, NoSuchJob
from headway.live import reports
from headway.model.actions import JobStatus
from headway.model.events import JobSubmitted, Outcome
from headway.testing import FakeEngine, new_job, submission

from ..commands import Ran
from ..waiting import LIMIT, until
from .conftest import held, submitted
from .test_driver import ONE, TWO, crash, rig, run


def test_it_starts_when_the_last_of_them_has_succeeded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            await live.submit(new_job(), new_job())
            await live.submit(new_job(after=(1, 2)))
            assert live.status(3) is JobStatus.HELD
            told = await reports.explanation(live.driver, 3)
            assert (told.reason, told.text) == ("AFTER_JOBS", "it starts when jobs 1 and 2 have succeeded")
            await live.end(1)
            assert live.status(3) is JobStatus.HELD
            await live.end(2)
            assert live.running == [(3, 0, 1)]
            after = reports.job_detail(live.driver, 3).after
            assert after == tuple(wire.Predecessor(job, JobStatus.SUCCEEDED) for job in (1, 2))

    run(scenario)


@pytest.mark.parametrize("snapshot_every", [1, 1000])
def test_it_is_held_over_a_crash_too(tmp_path: Path, snapshot_every: int) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, snapshot_every=snapshot_every) as live:
            await live.submit(new_job())
            await live.submit(new_job(after=(1,)))
            await live.submit(new_job(after=(2,)))
            found = crash(live)
        async with rig(tmp_path, ONE, engine=FakeEngine(found), snapshot_every=snapshot_every) as live:
            assert [live.status(job) for job in (1, 2, 3)] == [JobStatus.RUNNING, JobStatus.HELD, JobStatus.HELD]
            await live.end(1)
            assert live.running == [(2, 0, 1)]
            found = crash(live)  # now it has been released, later than it was submitted
        async with rig(tmp_path, ONE, engine=FakeEngine(found), snapshot_every=snapshot_every) as live:
            await live.end(2)
            assert live.running == [(3, 0, 1)]

    run(scenario)


def test_a_failure_cancels_what_comes_after_it_and_so_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            await live.submit(new_job(after=(1,)))
            await live.submit(new_job(after=(2,)))
            await live.end(1, 0, 1, Outcome.EXITED)
            assert [live.status(job) for job in (1, 2, 3)] == [
                JobStatus.FAILED,
                JobStatus.CANCELLED,
                JobStatus.CANCELLED,
            ]
            why = [(await reports.explanation(live.driver, job)).text for job in (2, 3)]
            assert why == [
                "it has ended: cancelled, because job 1, which it comes after, has ended: failed",
                "it has ended: cancelled, because job 2, which it comes after, has ended: cancelled",
            ]
            ends = [(row.job, row.word) for row in live.journal.messages(0, 10).rows if row.task is None]
            assert ends == [(1, "failed"), (2, "cancelled"), (3, "cancelled")]
            await live.submit(new_job())
            await live.submit(new_job(after=(4,)))
            await live.driver.cancel((5,))  # by itself: no other job is named
            assert (await reports.explanation(live.driver, 5)).text == "it has ended: cancelled"

    run(scenario)


def test_what_has_ended_well_counts_and_nothing_can_come_after_what_has_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(), new_job())
            await live.end(1)
            await live.end(2, 0, 1, Outcome.RAISED)
            await live.submit(new_job(after=(1,)))
            assert live.running == [(3, 0, 1)]
            with pytest.raises(HeadwayError, match=r"after is 2; allowed: .* has ended: failed") as refused:
                await live.submit(new_job(after=(1, 2)))
            assert "headway retry 2" in refused.value.hint
            with pytest.raises(NoSuchJob, match="there is no job 99"):
                await live.submit(new_job(after=(99,)))
            with pytest.raises(NoSuchJob, match="there is no job 4"):  # nor of one of the same submission
                await live.submit(new_job(), new_job(after=(4,)))
            assert len(live.events(JobSubmitted)) == 3

    run(scenario)


def test_a_failure_in_the_very_turn_of_the_submission_counts(tmp_path: Path) -> None:
    """When it is checked, the job before it runs. When it is accepted, that job has failed, not yet durably."""

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            live.engine.end(1, 0, 1, Outcome.EXITED)
            with pytest.raises(HeadwayError, match=r"after is 1; allowed: .* has ended: failed"):
                await live.driver.submit("me", submission(new_job(after=(1,))))
            await live.settle()
            assert live.running == []
            await live.submit(new_job())
            assert live.running != []

    run(scenario)


def test_from_the_shell(headway: Any, tmp_path: Path) -> None:
    first = held(headway, tmp_path)
    until(lambda: (tmp_path / "gate.0").exists())
    second = submitted(headway, "--after", first, "echo", "second")
    third = submitted(headway, "--after", first, "--after", second, "echo", "third")
    assert headway("status", second, third).out == f"{second} held 0/1\n{third} held 0/1\n"
    explained = headway("explain", third).out
    assert explained.startswith(f"Job {third} is held: it starts when jobs {first} and {second} have succeeded.\n")
    shown = headway("job", third).out
    assert f"job {first} (running), job {second} (held)" in shown
    assert json.loads(headway("job", third, "--json").out)["after"] == [
        {"job": first, "status": "running"},
        {"job": second, "status": "held"},
    ]
    (tmp_path / "gate").unlink()
    assert headway("result", third, "--wait") == Ran(0, "third\n", "")
    assert headway("status", first, second, third).status == 0
    wrong = headway("submit", "--after", 9999, "true")
    assert wrong.status == 2
    assert "there is no job 9999" in wrong.err


def test_from_python_by_ids_and_waiters(up: Any, tmp_path: Path) -> None:
    with Client(data=up.data) as client:
        first = client.submit(Job("first", [Task(pow, 2, 3)]))
        second = client.submit(Job("second", [Task(pow, 2, 4)], after=first))
        third = client.submit(Job("third", [Task(pow, 2, 5)], after=[first.job, second]))
        assert third.result(LIMIT) == [32]
        ended = {number: client.job(number).job for number in (first.job, second.job, third.job)}
        assert ended[third.job].started >= ended[second.job].ended >= ended[first.job].ended
        gate = tmp_path / "gate"
        gate.touch()
        fails = client.submit(
            [Job("fails", [Task.command("sh", "-c", f"while [ -e {gate} ]; do sleep 0.01; done; no")])]
        )
        never = client.submit(Job("never", [Task(pow, 2, 6)], after=fails))
        gate.unlink()
        client.wait(fails, never, timeout=LIMIT)
        assert never.cancelled()
