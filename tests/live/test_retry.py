"""Failed tasks run again as a new job, and what `headway job` shows of ended tasks."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import Client, HeadwayError, Job, Task, wire
from headway.errors import Conflict
from headway.live import ended, reports, retry
from headway.live.store.journal import Journal
from headway.live.store.verification import flaws
from headway.live.sweep import Keep
from headway.model.actions import JobStatus
from headway.model.events import Outcome
from headway.model.instant import SECOND
from headway.testing import new_job

from ..commands import Ran
from .conftest import submitted
from .test_driver import ONE, TWO, rig, run

FLAKY = 'if [ -e broken ]; then case {i} in 1|3) echo "no {i}" >&2; exit 4;; esac; fi; echo "{i} $HEADWAY_TASK" >> ran'


def flaky(headway: Any, *words: object) -> int:
    """A job of five tasks. Tasks 1 and 3 fail while the file `broken` is there. It is removed afterwards."""
    Path("broken").touch()
    number = submitted(headway, "--tasks", 5, *words, "--", "sh", "-c", FLAKY)
    assert headway("wait", number).status == 1
    Path("broken").unlink()
    return number


def test_failed_tasks_run_again_under_their_numbers_and_nothing_else(headway: Any) -> None:
    number = flaky(headway, "--name", "flaky", "--priority", 2)
    assert sorted(Path("ran").read_text().splitlines()) == ["0 0", "2 2", "4 4"]
    ran = headway("retry", number)
    assert ran.status == 0, ran.err
    again = int(ran.out)
    assert headway("wait", again) == Ran(0, f"{again} succeeded 2/2\n", "")
    assert sorted(Path("ran").read_text().splitlines()) == ["0 0", "1 1", "2 2", "3 3", "4 4"]
    told = json.loads(headway("job", again, "--json").out)
    assert (told["retry_of"], told["job"]["name"], told["job"]["priority"]) == (number, "flaky", 2)
    assert [(one["task"], one["number"]) for one in told["ended"]] == [(0, 1), (1, 3)]
    shown = headway("job", again).out
    assert f"failed tasks of job {number}" in shown
    assert "1 (was 3)" in shown
    assert headway("status", number).out == f"{number} failed 3/5, 2 failed\n"  # the old one stays as it was


def test_what_fails_again_is_run_again_under_the_first_numbers(headway: Any) -> None:
    number = flaky(headway)
    Path("broken").touch()
    again = int(headway("retry", number).out)
    assert headway("wait", again).out == f"{again} failed 0/2, 2 failed\n"
    Path("broken").unlink()
    third = json.loads(headway("retry", again, "--priority", 5, "--due", "1h", "--json").out)
    assert third["retry_of"] == again
    assert headway("wait", third["job"]).status == 0
    assert sorted(Path("ran").read_text().splitlines()) == ["0 0", "1 1", "2 2", "3 3", "4 4"]
    job = json.loads(headway("job", third["job"], "--json").out)["job"]
    assert (job["priority"], job["due"] > job["submitted"] + 3000) == (5, True)


def test_what_cannot_be_run_again_is_said(headway: Any, up: Any, tmp_path: Path) -> None:
    well = submitted(headway, "true")
    assert headway("wait", well).status == 0
    none = headway("retry", well)
    assert (none.status, none.err) == (2, f"Error: job {well} has no failed tasks: it has ended, succeeded\n")
    assert "there is no job 9999" in headway("retry", 9999).err
    runs = submitted(headway, "sleep", 60)
    assert f"job {runs} has not ended" in headway("retry", runs).err
    assert headway("cancel", runs).status == 0
    number = flaky(headway)
    with Client(data=up.data) as client:
        assert client.clear(number) == 1
    assert f"job {number} cannot be run again: its results have been cleared" in headway("retry", number).err
    assert "Why tasks failed is not kept any more" in headway("job", number).out


def test_job_shows_what_ran_where_and_why_tasks_failed(headway: Any, tmp_path: Path) -> None:
    number = flaky(headway)
    shown = headway("job", number).out
    assert re.search(r"runs +sh -c 'if \[ -e broken \]", shown)
    assert re.search(rf"in +{re.escape(os.fspath(tmp_path))}", shown)
    assert re.search(r"failed tasks +1, 3 ", shown)
    assert re.search(r"\n1 +1 +n-[12]/0 +.* s +exited +exit status 4", shown)
    assert "stderr of task 1, last lines:\n  no 1\n" in shown
    told = json.loads(headway("job", number, "--json").out)
    assert told["failed"] == [1, 3]
    assert [one["task"] for one in told["ended"]] == [1, 3, 0, 2, 4]
    first, *_, last = told["ended"]
    assert (first["outcome"], first["exit_code"], first["stderr"]) == ("exited", 4, "no 1")
    assert first["slots"][0] in ("n-1/0", "n-2/0")
    assert (last["outcome"], last["detail"], last["stderr"]) == ("succeeded", "", "")
    killed = submitted(headway, "sh", "-c", "kill -SEGV $$")
    assert headway("wait", killed).status == 1
    assert "signal" in headway("job", killed).out


def test_from_python_with_what_a_function_raised(up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def once_more(number: int) -> int:
        if number == 2 and not gate.exists():
            raise ValueError(f"no {number}")
        return number * number

    with Client(data=up.data) as client:
        first = client.submit(Job("squares", [Task(once_more, number) for number in range(4)]))
        assert [type(one) for one in first.outcomes(60)] == [int, int, ValueError, int]
        detail = client.job(first.job)
        assert detail.ran is not None
        assert "once_more" in detail.ran.functions[0]
        assert detail.ended[0].detail.endswith("ValueError: no 2\n")
        gate.touch()
        again = client.retry(first.job, trust=True)
        assert again.result(60) == [4]
        with pytest.raises(HeadwayError, match="has no failed tasks"):
            client.retry(again.job)


def test_over_http_in_json(headway: Any, up: Any) -> None:
    number = flaky(headway)
    known = {"Authorization": f"Bearer {(up.data / 'token').read_text().strip()}", "Content-Type": "application/json"}
    url = f"{up.url}{wire.RETRY.path.format(job=number)}"
    body = json.dumps({"priority": 3, "key": "once"}).encode()
    answers = []
    for _ in range(2):  # with the same key it counts once
        with urllib.request.urlopen(urllib.request.Request(url, body, known)) as answer:
            answers.append(json.load(answer))
    assert answers[0] == answers[1]
    assert answers[0]["tasks"] == [1, 3]
    assert headway("wait", answers[0]["job"]).status == 0


def test_of_a_workflow_what_could_not_run_runs_too() -> None:
    spec = new_job(
        kind="workflow",
        tasks=6,
        plan=tuple(
            wire.PlannedTask(1.0, 1, after, assumed=not after) for after in ((), (), (0,), (1,), (2, 3), (5 - 1,))
        ),
    ).spec(7, 0, "me")
    words = {0: "succeeded", 1: "exited", 2: "succeeded"}
    assert retry._with_followers(spec, words) == [1, 3, 4, 5]
    assert retry._with_followers(spec, {**words, 2: "cancelled"}) == [1, 3]
    job = retry.again(spec, new_job().work, [1, 3, 4, 5], wire.Retry())
    assert [task.after for task in job.plan] == [(), (0,), (1,), (2,)]
    assert [task.assumed for task in job.plan] == [True, False, False, False]
    assert (job.tasks, job.numbers, job.retry_of) == (4, (1, 3, 4, 5), 7)


def test_terms_are_those_of_the_old_job() -> None:
    old = new_job(
        tasks=3,
        estimate=5.5,
        due=90.0,
        priority=2.0,
        rate=3.0,
        workload=9.0,
        retries=1,
        time_limit=7.0,
        memory_limit=1 << 30,
        sizes=(1.0, 2.0, 4.0),
        profile={"fast": 1.5},
        preemptible=False,
        cpu=(0.5,),
        movable=True,
        name="n",
        user="u",
    ).spec(4, SECOND, "me")
    again = retry.again(old, new_job().work, [0, 2], wire.Retry()).spec(9, 5 * SECOND, "other")
    same = ("estimate", "due", "priority", "rate", "retries", "time_limit", "memory_limit", "profile", "preemptible")
    for name in (*same, "cpu", "movable", "name", "user", "kind", "width"):
        assert getattr(again, name) == getattr(old, name), name
    assert (again.tasks, again.sizes, again.workload, again.release) == (2, (1.0, 4.0), 6.0, 5 * SECOND)
    assert (again.retry_of, again.numbers) == (4, (0, 2))
    assert retry.again(old, new_job().work, [1], wire.Retry(priority=8.0, due=2.5)).due == 2.5
    both = wire.Commands((wire.Command(("first",)), wire.Command(("second",))))
    assert retry.again(new_job(tasks=2).spec(5, 0, "me"), both, [1], wire.Retry()).work == wire.Commands(
        (wire.Command(("second",)),)
    )


def test_what_is_needed_is_kept_over_a_restart_until_the_results_go(tmp_path: Path) -> None:
    blob = b"a function"
    name = wire.blob_name(blob)

    async def scenario() -> None:
        async with rig(tmp_path, TWO, keep=Keep(acknowledged=0)) as live:
            work = wire.Calls((name,), (b"0", b"1", b"2"), names=("f",))
            await live.submit(wire.NewJob(work, tasks=3), blobs={name: blob}, client="c")
            await live.submit(wire.NewJob(work, tasks=3), client="c")
            for job in (1, 2):
                for task in range(3):
                    bad = (Outcome.RAISED,) if (job, task) == (1, 1) else ()
                    await live.end(job, task, 1, *bad)
            assert live.journal.kept_work(2) == wire.Calls((), (), names=("f",))  # nothing of it can be run again
        async with rig(tmp_path, TWO, at=10**6, keep=Keep(acknowledged=0)) as live:
            row = reports.row(live.driver, 1)
            assert live.journal.expiry._kept() == {name}
            for _ in live.driver.retention._sweep.steps():
                pass
            assert live.journal.has_blob(name)
            done = await retry.retry(live.driver, "me", row, wire.Retry())
            await live.settle()
            assert (done.job, done.tasks) == (3, (1,))
            (launched,) = live.engine.launched
            assert launched.members[0].work.arguments == b"1"  # type: ignore[union-attr]
            await live.end(3)
            assert live.status(3) is JobStatus.SUCCEEDED
            await live.driver.retention.clear((1,))
            assert live.journal.kept_work(1) is None
            assert live.journal.expiry._kept() == set()
            with pytest.raises(HeadwayError, match="its results have been cleared"):
                await retry.retry(live.driver, "me", row, wire.Retry())

    run(scenario)


def test_results_that_are_acknowledged_go_with_what_was_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, keep=Keep(acknowledged=0)) as live:
            await live.submit(new_job(), client="c")
            await live.end(1, 0, 1, Outcome.EXITED)
            assert live.journal.kept_work(1) is not None
            await live.driver.retention.acknowledge("c", (wire.TaskRange(1),), by="me")
            await live.settle()
            await live.advance(5)
            assert live.results(1) == []
            assert live.journal.kept_work(1) is None

    run(scenario)


@pytest.mark.parametrize("kind", ["bag", "workflow"])
def test_a_job_is_not_run_again_in_part_where_some_results_have_been_cleared(tmp_path: Path, kind: Any) -> None:
    """Or tasks that failed would be left out, and nothing would say so."""
    plan = tuple(wire.PlannedTask(1.0, 1) for _ in range(3)) if kind == "workflow" else ()

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=3, kind=kind, plan=plan), client="c")
            for task in range(3):
                await live.end(1, task, 1, Outcome.EXITED)
            assert await retry.failed_tasks(live.journal, reports.row(live.driver, 1)) == [0, 1, 2]
            await live.driver.retention.acknowledge("c", [wire.TaskRange(1, 0, 1)])
            live.journal.retained.clear_acknowledged(live.driver.now(), 100)
            with pytest.raises(HeadwayError, match="its results have been cleared"):
                await retry.retry(live.driver, "me", reports.row(live.driver, 1), wire.Retry())

    run(scenario)


def test_a_journal_of_before_is_opened_and_says_what_it_lacks(tmp_path: Path) -> None:
    """It has no kept work, and no index of it."""

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            await live.end(1, 0, 1, Outcome.EXITED)
        with closing(Journal(tmp_path)) as journal, journal._transaction() as db:
            db.execute("UPDATE jobs SET functions = NULL, work = NULL")
            db.execute("DROP INDEX jobs_kept")
        async with rig(tmp_path, ONE) as live:
            with pytest.raises(HeadwayError, match="job 1 cannot be run again: it ended before such work was kept"):
                await retry.retry(live.driver, "me", reports.row(live.driver, 1), wire.Retry())
            detail = reports.job_detail(live.driver, 1)
            told = await ended.with_tasks(live.driver, detail, reports.row(live.driver, 1).spec)
            assert (told.ran, told.failed) == (None, (0,))
            await live.submit(new_job())
            await live.end(2, 0, 1, Outcome.EXITED)
            assert (await retry.retry(live.driver, "me", reports.row(live.driver, 2), wire.Retry())).job == 3
        assert list(flaws(tmp_path)) == []
        with closing(Journal(tmp_path)) as journal:
            named = journal._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs_kept'").fetchone()
            assert named is not None

    run(scenario)


def test_variables_are_not_kept_of_what_has_succeeded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            each = tuple(wire.Command(("do", name), "/there", {"SECRET": "x"}, stdout="out") for name in "abc")
            await live.submit(wire.NewJob(wire.Commands(each), tasks=3), wire.NewJob(wire.Commands(each[:1])))
            for task in range(3):
                await live.end(1, task)
            await live.end(2, 0, 1, Outcome.EXITED)
            shown = tuple(wire.Command(("do", name), "/there") for name in "ab")
            assert live.journal.kept_work(1) == wire.Commands(shown)
            assert ended.ran(live.driver, 1) == wire.Ran(("do", "a"), "/there", each=True)
            assert live.journal.kept_work(2) == wire.Commands(
                each[:1]
            )  # needed to run it again, as long as its results are

    run(scenario)


EACH = tuple(wire.Command(("do", name), f"/{name}") for name in "abc")
CALLS = wire.Calls((wire.blob_name(b"f"),), (b"",) * 3, names=("score",), cwd="/there")


@pytest.mark.parametrize(
    ("work", "said", "said_again"),
    [
        (wire.Commands((wire.Command(("do", "{i}"), "/there"),)), *[wire.Ran(("do", "{i}"), "/there")] * 2),
        (wire.Commands(EACH), wire.Ran(("do", "a"), "/a", each=True), wire.Ran(("do", "b"), "/b", each=True)),
        (CALLS, *[wire.Ran(cwd="/there", functions=("score",))] * 2),
    ],
)
@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.EXITED, None])
def test_what_is_run_again_is_shown_with_its_folder(
    tmp_path: Path, work: wire.Work, said: wire.Ran, said_again: wire.Ran, outcome: Outcome | None
) -> None:
    """Whether it succeeds, fails again, or still runs."""

    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            await live.submit(wire.NewJob(work, tasks=3), blobs={wire.blob_name(b"f"): b"f"} if work is CALLS else {})
            for task, end in enumerate((Outcome.SUCCEEDED, Outcome.EXITED, Outcome.EXITED)):
                await live.end(1, task, 1, end)
            assert ended.ran(live.driver, 1) == said
            assert (await retry.retry(live.driver, "me", reports.row(live.driver, 1), wire.Retry())).job == 2
            await live.settle()
            for task in range(2 if outcome else 0):
                await live.end(2, task, 1, outcome)
            assert ended.ran(live.driver, 2) == said_again

    run(scenario)


def test_a_job_that_goes_on_has_nothing_to_be_run_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=2))
            await live.end(1, 0, 1, Outcome.EXITED)
            with pytest.raises(Conflict, match="job 1 has not ended"):
                await retry.retry(live.driver, "me", reports.row(live.driver, 1), wire.Retry())

    run(scenario)


def test_a_workflow_of_which_a_task_was_cancelled_is_run_again_and_tasks_that_could_not_run_are_not_called_cancelled(
    tmp_path: Path,
) -> None:
    """Task 2 comes after task 0, which fails. Task 1 is cancelled. So task 2 never runs."""
    plan = (wire.PlannedTask(1.0), wire.PlannedTask(1.0), wire.PlannedTask(1.0, after=(0,)))

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=3, kind="workflow", plan=plan))
            assert await live.driver.cancel_tasks(1, (1,)) == 1
            await live.end(1, 0, 1, Outcome.EXITED)
            row = reports.row(live.driver, 1)
            report = reports.job_detail(live.driver, 1).job
            assert row.status is JobStatus.FAILED
            assert (report.done, report.failed, report.cancelled) == (0, 1, 0)
            assert await retry.failed_tasks(live.journal, row) == [0, 2]

    run(scenario)
