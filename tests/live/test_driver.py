"""The driver with a fake engine and a clock set by hand: what is durable when, what is done, what is reported."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import files, wire
from headway.core.lifecycle import STRIKES_MAX
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import Conflict, HeadwayError, InvalidInput, MissingBlobs, NoRoom, NoSuchService, Unavailable
from headway.live import listeners, reports, requests, served
from headway.live.collecting import EVENTS_AT_ONCE
from headway.live.driver import RETRY_AFTER, Driver
from headway.live.ledger import WAKE_IDLE
from headway.live.listeners import GATHER_SECONDS
from headway.live.outside import Surroundings
from headway.live.room import DiskBounds
from headway.live.services import BrokerDoor
from headway.live.settings import DriverSettings
from headway.live.store.journal import FILE, Journal, JournalFull
from headway.live.sweep import Keep
from headway.model.actions import JobStatus
from headway.model.events import (
    Event,
    Incident,
    JobSubmitted,
    NodeDown,
    NodeMeasured,
    NodesHeard,
    NodeUp,
    Outcome,
    PolicyChosen,
    TaskEnded,
    TaskSaved,
    TierRefused,
    Woke,
)
from headway.model.instant import NEVER, SECOND, to_seconds
from headway.model.job import PenaltyShape
from headway.model.node import Capabilities
from headway.model.policy import Policy
from headway.model.snapshot import Plan, Snapshot
from headway.model.tier import Tier
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, hear, new_job, node, submission

from ..waiting import LIMIT

ONE = (node("a", slots=1),)
TWO = (node("a", slots=2),)


@dataclass
class Rig:
    """A running driver, with everything around it."""

    driver: Driver
    engine: FakeEngine
    clock: ManualClock
    journal: Journal

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        for _ in range(6):
            await asyncio.sleep(0)

    async def submit(self, *jobs: wire.NewJob, **terms: Any) -> wire.Submitted:
        answer = await self.driver.submit("me", submission(*jobs, **terms))
        await self.settle()
        return answer

    async def end(self, job: int, task: int = 0, attempt: int = 1, *outcome: Outcome, **ending: Any) -> None:
        self.engine.end(job, task, attempt, *outcome, **ending)
        await self.settle()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()

    @property
    def running(self) -> list[base.AttemptKey]:
        return sorted(self.engine.running)

    def events(self, *kinds: type[Event]) -> list[Event]:
        return [event for _, event in self.journal.events() if not kinds or isinstance(event, kinds)]

    def results(self, job: int) -> list[wire.TaskResult]:
        found, _ = self.journal.results([wire.TaskRange(job)], 1 << 30)
        return [msgspec.msgpack.decode(body, type=wire.TaskResult) for body in found]

    def status(self, job: int) -> JobStatus:
        return reports.job_report(self.driver, reports.row(self.driver, job)).status


@asynccontextmanager
async def rig(
    folder: Path, nodes: tuple[Any, ...] = TWO, *, engine: FakeEngine | None = None, at: float = 0, **settings: Any
) -> Any:
    """A driver on a folder. At the end it is stopped in order, and the whole state of the core is checked."""
    policies, door = settings.pop("policies", find), settings.pop("door", None)
    with closing(Journal(folder)) as journal:
        clock = ManualClock(at)
        engine = engine or FakeEngine()
        driver = Driver(
            journal, engine, clock, policies, DriverSettings(**settings), surroundings=Surroundings(door=door)
        )
        await driver.start(nodes)
        try:
            yield Rig(driver, engine, clock, journal)
            driver.core.check()
        finally:
            if not driver.broken.done():
                await driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def test_a_job_from_submission_to_its_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, at=10) as live:
            answer = await live.submit(new_job(tasks=3, name="bills", argv=("bill", "{i}")), client="c")
            assert answer == wire.Submitted((1,), 0)
            assert live.running == [(1, 0, 1), (1, 1, 1)]
            assert live.status(1) is JobStatus.RUNNING
            await live.end(1, 0, stdout=base.Output("", 3, b"one"))
            assert live.running == [(1, 1, 1), (1, 2, 1)]
            assert live.engine.running[1, 2, 1].members[0].work == base.Command(("bill", "2"))
            await live.end(1, 2, 1, Outcome.EXITED, exit_code=3)
            await live.advance(5)
            await live.end(1, 1, result=b"value")
            assert live.running == []
            assert [(r.task, r.ending.outcome) for r in live.results(1)] == [
                (0, Outcome.SUCCEEDED),
                (1, Outcome.SUCCEEDED),
                (2, Outcome.EXITED),
            ]
            first, second, third = live.results(1)
            assert (first.ending.stdout, second.ending.value, third.ending.exit_code) == (b"one", b"value", 3)
            report = reports.job_detail(live.driver, 1).job
            assert (report.status, report.done, report.failed, report.running) == (JobStatus.FAILED, 2, 1, 0)
            assert (report.submitted, report.started, report.ended) == (10, 10, 15)
            assert sorted(live.engine.acknowledged) == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]
            assert live.engine.killed == []

    run(scenario)


def test_nothing_is_done_before_it_is_durable(tmp_path: Path) -> None:
    """A second connection to the file finds the event of every launch and the result of every acknowledged end."""

    class Watching(FakeEngine):
        def seen(self, query: str) -> int:
            with closing(sqlite3.connect(tmp_path / FILE)) as other:
                return int(other.execute(query).fetchone()[0])

        def launch(self, assignment: base.Assignment) -> None:
            assert self.seen("SELECT count(*) FROM events WHERE kind = 'JobSubmitted'") == 1
            ended = self.seen("SELECT count(*) FROM events WHERE kind = 'TaskEnded'")
            assert len(self.launched) - len(self.running) == ended
            super().launch(assignment)

        def acknowledge(self, *key: int) -> None:
            assert self.seen(f"SELECT count(*) FROM messages WHERE task = {key[1]}") == 1
            super().acknowledge(*key)

    async def scenario() -> None:
        async with rig(tmp_path, engine=Watching()) as live:
            await live.submit(new_job(tasks=4))
            for task in range(4):
                await live.end(1, task)
            assert live.status(1) is JobStatus.SUCCEEDED

    run(scenario)


def test_what_comes_together_is_durable_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node(slots=100),)) as live:
            await live.submit(new_job(tasks=100))
            before = live.driver.commits
            for task in range(100):
                live.engine.end(1, task)
            await live.settle()
            assert live.driver.commits == before + 1
            assert len(live.results(1)) == 100
            two = asyncio.gather(*(live.driver.submit("me", submission()) for _ in range(2)))
            await live.settle()
            assert [answer.jobs for answer in await two] == [(2,), (3,)]
            assert live.driver.commits == before + 2

    run(scenario)


def test_jobs_that_follow_each_other_have_a_round_each_and_the_last_one_is_followed_by_one(tmp_path: Path) -> None:
    """Without jobs a round can decide nothing: it is held with the next submission, or soon."""

    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="easy:per_instant=true") as live:
            for number in (1, 2, 3):
                await live.submit()
                await live.end(number)
            kinds = [type(event) for event in live.events()]
            assert kinds[-9:] == [JobSubmitted, Woke, TaskEnded] * 3
            await live.advance(to_seconds(WAKE_IDLE))
            assert [type(event) for event in live.events()] == [*kinds, Woke]
            await live.advance(10)
            assert len(live.events()) == len(kinds) + 1

    run(scenario)


def test_a_round_is_not_late_while_there_is_a_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="easy:per_instant=true") as live:
            await live.submit(new_job(), new_job())
            await live.end(1)
            assert [type(event) for event in live.events()][-2:] == [TaskEnded, Woke]
            assert live.running == [(2, 0, 1)]

    run(scenario)


def test_launches_and_answers_come_before_what_nobody_waits_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            order: list[str] = []

            class Listening:
                def make(self, messages: list[Any], cursor: int) -> None:
                    order.append("answer")

                def send(self) -> None:
                    pass

                def close(self) -> None:
                    pass

            follow = live.driver.room.follow
            live.driver.room.follow = lambda: (order.append("rest"), follow())[1]  # type: ignore[method-assign]
            await live.submit(client="c")
            live.driver.listen(listeners.MessagesWanted(client="c", wait_seconds=60), Listening())
            order.clear()
            await live.end(1)
            assert order == ["answer", "rest"]

    run(scenario)


def test_ends_come_before_submissions_and_waking_last(tmp_path: Path) -> None:
    """A policy with one round per instant makes the core ask to be woken at once."""

    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="easy:per_instant=true") as live:
            await live.submit()
            offered = asyncio.create_task(live.driver.submit("me", submission()))
            await asyncio.sleep(0)
            live.engine.end(1)
            await offered
            assert [type(event) for event in live.events()][-3:] == [TaskEnded, JobSubmitted, Woke]
            assert live.running == [(2, 0, 1)]

    run(scenario)


def test_late_and_double_answers_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(retries=1))
            await live.end(1, 0, 1, Outcome.EXITED, exit_code=1)
            assert live.running == [(1, 0, 2)]
            await live.end(1, 0, 1, result=b"late")
            assert live.running == [(1, 0, 2)]
            assert live.results(1) == []
            await live.end(1, 0, 2, result=b"right")
            await live.end(1, 0, 2, result=b"twice")
            assert [result.ending.value for result in live.results(1)] == [b"right"]
            assert live.driver.core.ignored == 2
            assert live.engine.acknowledged == [(1, 0, 1), (1, 0, 1), (1, 0, 2), (1, 0, 2)]

    run(scenario)


def test_a_result_keeps_the_output_and_the_rest_is_deleted(tmp_path: Path) -> None:
    short, long, failed = names = ("1/short", "1/long", "1/failed")

    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            live.engine.written |= dict.fromkeys(names, b"output")
            await live.submit(new_job(retries=1))
            await live.end(1, 0, 1, Outcome.EXITED, stdout=base.Output(failed, 9000, b"f"))
            await live.end(1, 0, 2, stdout=base.Output(short, 1, b"s"), stderr=base.Output(long, 9000, b"l"))
            (result,) = live.results(1)
            assert (result.ending.stdout, result.ending.stdout_path) == (b"s", "")
            assert (result.ending.stderr, result.ending.stderr_path) == (b"l", long)
            assert list(live.engine.written) == [long]
            assert await live.driver.retention.clear([1]) == 1
            assert live.engine.written == {}
            assert live.results(1) == []
            assert await live.driver.retention.clear([1]) == 0

    run(scenario)


def test_results_of_open_jobs_are_not_cleared(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=2))
            await live.end(1, 0)
            assert await live.driver.retention.clear([1]) == 0
            assert len(live.results(1)) == 1

    run(scenario)


def test_a_gang_gets_every_slot_and_gives_every_ending(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", slots=2), node("b", slots=2))) as live:
            await live.submit(new_job(kind="rigid", width=3, argv=("mpi", "{i}")))
            (gang,) = live.engine.launched
            assert [(m.node, m.slots, m.work.argv) for m in gang.members] == [
                ("a", (0,), ("mpi", "0")),
                ("a", (1,), ("mpi", "1")),
                ("b", (0,), ("mpi", "2")),
            ]
            live.engine.report(
                base.Ended(1, 0, 1, base.Ending(Outcome.SUCCEEDED), (base.Ending(Outcome.SUCCEEDED, b"0"),) * 3)
            )
            await live.settle()
            assert [ending.value for ending in live.results(1)[0].members] == [b"0"] * 3

    run(scenario)


def test_cancelled_jobs_end_and_say_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=2), new_job())
            assert await live.driver.cancel([1, 2]) == 2
            assert live.engine.killed == [(1, 0, 1)]
            assert (live.status(1), live.status(2)) == (JobStatus.RUNNING, JobStatus.CANCELLED)
            await live.end(1, 0, 1, Outcome.KILLED)
            assert live.status(1) is JobStatus.CANCELLED
            assert await live.driver.cancel([1, 2]) == 0
            rows, _ = await hear(live.driver, 0, 100)
            assert [(row.job, row.task, row.word) for row in rows] == [
                (2, None, "cancelled"),
                (1, 0, "cancelled"),
                (1, None, "cancelled"),
            ]

    run(scenario)


def test_nobody_is_kept_waiting_for_more_while_a_slot_stands_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "GATHER_SECONDS", 3600.0)

    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            await live.submit(new_job(tasks=3), client="c")
            hearing = asyncio.create_task(hear(live.driver, 0, 100, client="c", wait_seconds=3600.0))
            await live.end(1, 0)
            await live.settle()
            assert not hearing.done()  # its next task took the slot
            await live.end(1, 1)
            rows, _ = await asyncio.wait_for(hearing, LIMIT)
            assert [row.task for row in rows] == [0, 1]
            assert live.driver.core.state.jobs

    run(scenario)


def test_a_task_that_signals_from_outside_have_ended_says_how_often(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job())
            for attempt in range(1, STRIKES_MAX + 2):
                await live.end(1, 0, attempt, Outcome.SIGNALLED, outside=True, detail="killed by signal 9")
            said = f"killed by signal 9. Its attempts ended so {STRIKES_MAX + 1} times"
            assert [result.ending.detail for result in live.results(1)] == [said]
            live.engine.end(1, 0, 9, Outcome.SIGNALLED, outside=True)  # of a job that is no longer in the system
            await live.settle()
            assert len(live.results(1)) == 1

    run(scenario)


def counts(live: Rig) -> tuple[int, int, int]:
    """How many tasks of job 1 are done, have failed, and were cancelled."""
    report = reports.job_detail(live.driver, 1).job
    assert report.settled == report.done + report.failed + report.cancelled
    return report.done, report.failed, report.cancelled


def test_tasks_that_are_done_failed_and_cancelled_are_counted_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=6))
            await live.end(1, 0)
            await live.end(1, 1, 1, Outcome.EXITED, exit_code=3)
            assert await live.driver.cancel_tasks(1, (4,)) == 1
            assert counts(live) == (1, 1, 1)
        async with rig(tmp_path, ONE) as live:
            assert counts(live) == (1, 1, 1), "they are counted from the journal"
            assert await live.driver.cancel([1]) == 1
            await live.end(1, 2, live.engine.launched[-1].attempt, Outcome.KILLED)
            assert live.status(1) is JobStatus.CANCELLED
            assert counts(live) == (1, 1, 4)
        async with rig(tmp_path, ONE) as live:
            assert counts(live) == (1, 1, 4)

    run(scenario)


def test_cancelled_tasks_are_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(tasks=4))
            assert await live.driver.cancel_tasks(1, (0, 2, 2, 9)) == 2
            assert await live.driver.cancel_tasks(1, (0, 2)) == 0
            assert live.engine.killed == [(1, 0, 1)]
            await live.end(1, 0, 1, Outcome.KILLED)
            assert counts(live) == (0, 0, 2)
        async with rig(tmp_path, ONE) as live:  # cancelled tasks stay so
            assert counts(live) == (0, 0, 2)
            await live.end(1, 1, live.engine.launched[-1].attempt)
            assert counts(live) == (1, 0, 2)
            await live.end(1, 3, 1)
            assert live.status(1) is JobStatus.CANCELLED
            assert counts(live) == (2, 0, 2)
            assert await live.driver.cancel_tasks(1, (1,)) == 0
            rows, _ = await hear(live.driver, 0, 100)
            assert [(row.task, row.word) for row in rows] == [
                (2, "cancelled"),
                (0, "cancelled"),
                (1, "succeeded"),
                (3, "succeeded"),
                (None, "cancelled"),
            ]
            bodies, _ = live.driver.journal.results([wire.TaskRange(1)], 1 << 20)
            results = [msgspec.msgpack.decode(body, type=wire.TaskResult) for body in bodies]
            assert [(one.task, one.attempt, one.ending.outcome, one.ending.detail) for one in results] == [
                (0, 1, Outcome.CANCELLED, "it was cancelled"),
                (1, 2, Outcome.SUCCEEDED, ""),
                (2, 0, Outcome.CANCELLED, "it was cancelled"),
                (3, 1, Outcome.SUCCEEDED, ""),
            ]

    run(scenario)


def test_changed_terms_are_kept_over_a_restart_and_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(priority=1.0))
            assert await live.driver.change(1, wire.JobChange(priority=7.0)) == 1
        async with rig(tmp_path, ONE) as live:
            assert reports.job_detail(live.driver, 1).job.priority == 7
            assert await live.driver.change(1, wire.JobChange(due=9)) == 1
            await live.end(1, 0, live.running[0][2])
            report = reports.job_detail(live.driver, 1).job
            assert (report.priority, report.due) == (7, 9)
            assert await live.driver.change(1, wire.JobChange(priority=0.0)) == 0

    run(scenario)


def test_what_lateness_costs_from_now_on_is_kept_over_a_restart_and_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(due=-100.0))
            change = wire.JobChange(rate=3.0, shape=PenaltyShape.SQUARE_ROOT)
            assert await live.driver.change(1, change) == 1
        async with rig(tmp_path, ONE) as live:
            late = to_seconds(live.driver.now()) + 100.0
            report = reports.job_detail(live.driver, 1).job
            assert (report.rate, report.shape) == (3.0, PenaltyShape.SQUARE_ROOT)
            assert report.penalty == pytest.approx(3.0 * late**0.5, rel=1e-3)
            await live.end(1, 0, live.running[0][2])
            report = reports.job_detail(live.driver, 1).job
            assert (report.rate, report.shape, report.due) == (3.0, PenaltyShape.SQUARE_ROOT, -100.0)
            assert report.penalty == pytest.approx(3.0 * late**0.5, rel=1e-3)
            assert live.driver.tally.penalty == pytest.approx(report.penalty)

    run(scenario)


def test_a_due_date_can_be_taken_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(due=9))
            with pytest.raises(InvalidInput, match="without_due is True"):
                await live.driver.change(1, wire.JobChange(due=5, without_due=True))
            assert reports.job_detail(live.driver, 1).job.due == 9
            assert await live.driver.change(1, wire.JobChange(without_due=True), by="me") == 1
            assert live.driver.core.state.jobs[1].due == NEVER
        async with rig(tmp_path, ONE) as live:
            assert reports.job_detail(live.driver, 1).job.due is None
            await live.end(1, 0, live.running[0][2])
            assert reports.job_detail(live.driver, 1).job.due is None

    run(scenario)


def test_submissions_are_all_or_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO) as live:
            with pytest.raises(HeadwayError, match=r"jobs\[1\]\.width is 3; allowed: at most 2"):
                await live.submit(new_job(), new_job(kind="rigid", width=3))
            with pytest.raises(InvalidInput, match=r"jobs\[0\]\.work.commands is 2"):
                await live.submit(wire.NewJob(wire.Commands((wire.Command(("a",)),) * 2), tasks=3))
            with pytest.raises(HeadwayError, match=r"jobs\[0\]\.priority is nan"):
                await live.submit(new_job(priority=float("nan")))
            with pytest.raises(InvalidInput, match="jobs is"):
                await live.driver.submit("me", wire.Submission(()))
            assert live.journal.jobs() == []
            assert live.events(JobSubmitted) == []
            assert live.driver.commits == 1  # the node that joined

    run(scenario)


def test_functions_are_sent_once(tmp_path: Path) -> None:
    blob = b"a function"
    name = wire.blob_name(blob)
    call = wire.NewJob(wire.Calls((name,), (b"args",)))

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            with pytest.raises(MissingBlobs) as missing:
                await live.submit(call)
            assert missing.value.names == (name,)
            with pytest.raises(InvalidInput, match="blobs"):
                await live.submit(call, blobs={name: b"another"})
            await live.submit(call, blobs={name: blob})
            await live.submit(call)
            assert [a.members[0].work for a in live.engine.launched] == [
                base.Call(base.Function(name, blob), b"args", f"job {number}", alone=True) for number in (1, 2)
            ]

    run(scenario)


def test_a_submission_with_a_key_counts_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            once = submission(new_job(name="x"), key="k")
            answers = asyncio.gather(*(live.driver.submit("me", once) for _ in range(3)))
            await live.settle()
            assert [answer.jobs for answer in await answers] == [(1,)] * 3
            assert await live.driver.submit("me", once) == wire.Submitted((1,), 0, repeated=True)
            with pytest.raises(Conflict, match="'k'"):
                await live.driver.submit("me", submission(new_job(name="y"), key="k"))
            assert (await live.driver.submit("you", once)).jobs == (2,)
        async with rig(tmp_path) as live:
            assert (await live.driver.submit("me", once)).jobs == (1,)
            assert len(live.journal.jobs()) == 2

    run(scenario)


def test_two_submissions_alike_under_two_keys_are_two(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            both = asyncio.gather(*(live.driver.submit("me", submission(key=key)) for key in "kl"))
            assert [answer.jobs for answer in await both] == [(1,), (2,)]

    run(scenario)


# Messages


def test_a_cursor_misses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=5), client="mine")
            await live.submit(new_job(), client="other")
            told: list[tuple[int, int | None]] = []
            cursor = 0
            for job, task in [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0)]:
                await live.end(job, task)
                if task % 2:
                    rows, cursor = await hear(live.driver, cursor, 2, client="mine")
                    told += [(row.job, row.task) for row in rows]
            while len(told) < 6:
                rows, cursor = await hear(live.driver, cursor, 2, client="mine", wait_seconds=1)
                told += [(row.job, row.task) for row in rows]
            assert told == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, None)]
            assert await hear(live.driver, cursor, 2, client="mine") == ([], 8)
            rows, _ = await hear(live.driver, 0, 10, jobs=[2], result_max=1000)
            assert [(row.task, row.word, row.result is not None) for row in rows] == [
                (0, "succeeded", True),
                (None, "succeeded", False),
            ]
            rows, _ = await hear(live.driver, 0, 10, jobs=[2], result_max=3)
            assert [row.result for row in rows] == [None, None]

    run(scenario)


def test_a_listener_is_told_at_once_when_nothing_more_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "GATHER_SECONDS", 3600.0)

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(), client="c")
            heard = asyncio.create_task(hear(live.driver, 0, 10, client="c", wait_seconds=3600.0))
            await live.settle()
            await live.end(1)
            rows, cursor = await asyncio.wait_for(heard, LIMIT)
            assert [row.task for row in rows] == [0, None]
            assert cursor == 2

    run(scenario)


def test_a_listener_gathers_while_more_is_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            loop = asyncio.get_running_loop()
            now = [loop.time()]
            monkeypatch.setattr(loop, "time", lambda: now[0])
            await live.submit(new_job(tasks=4))
            heard = asyncio.create_task(hear(live.driver, 0, 10, jobs=[1], wait_seconds=30))
            await live.settle()
            await live.end(1, 0)
            await live.end(1, 1)
            assert not heard.done()
            now[0] += 0.9 * GATHER_SECONDS
            await live.settle()
            assert not heard.done()
            now[0] += 0.2 * GATHER_SECONDS
            rows, _ = await heard
            assert [row.task for row in rows] == [0, 1]

    run(scenario)


def test_listeners_are_released_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit()
            heard = asyncio.create_task(hear(live.driver, 0, 10, wait_seconds=60))
            await live.settle()
            live.driver.take_no_more()
            assert await heard == ([], 0)
            with pytest.raises(Unavailable):
                await live.driver.submit("me", submission())

    run(scenario)


# A full disk


def fill(journal: Journal) -> None:
    """From now on the file cannot grow."""
    journal.limit_pages(1)


def make_room(journal: Journal) -> None:
    journal.limit_pages(1 << 30)


def test_more_is_to_come_for_a_client_as_long_as_a_job_of_its_own_is_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(), client="busy")
            busy, idle = (-live.journal.clients.number(name) for name in ("busy", "idle"))
            has_work = live.driver._ledger.has_work
            assert [has_work(key) for key in (busy, idle, 0, 1, 2)] == [True, False, True, True, False]
            await live.end(1, 0)
            assert [has_work(key) for key in (busy, idle, 0, 1, 2)] == [False] * 5

    run(scenario)


def test_a_full_disk_refuses_submissions_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    big = b"r" * 100_000

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=3), client="c")
            fill(live.journal)
            large = new_job(argv=("x" * 100_000,))
            live.engine.end(1, 0, result=big)
            with pytest.raises(JournalFull, match="cannot grow"):
                await live.driver.submit("me", submission(large, client="c"))
            assert live.driver.full is not None
            with pytest.raises(JournalFull):
                await live.driver.submit("me", submission())
            assert (await reports.statistics(live.driver)).full
            assert len([record for record in caplog.records if "cannot grow" in record.message]) == 1, "said once"
            # Nothing was acknowledged and nothing launched. What ends meanwhile is kept.
            assert live.engine.acknowledged == []
            assert len(live.engine.launched) == 2
            await live.end(1, 1, result=big)
            await live.advance(to_seconds(RETRY_AFTER))
            assert live.engine.acknowledged == []
            make_room(live.journal)
            await live.advance(to_seconds(RETRY_AFTER))
            assert live.driver.full is None
            assert live.engine.acknowledged == [(1, 0, 1), (1, 1, 1)]
            await live.end(1, 2, result=big)
            assert [result.ending.value for result in live.results(1)] == [big] * 3
            assert live.status(1) is JobStatus.SUCCEEDED
            assert len(live.journal.jobs()) == 1
            assert (await live.submit(large)).jobs == (3,), (
                "a number that was meant for a refused job is not given again"
            )
            assert live.running == [(3, 0, 1)]
        async with rig(tmp_path) as live:
            assert [row.id for row in live.journal.jobs(open_only=True)] == [3]

    run(scenario)


def test_a_function_counts_as_used_only_by_submissions_that_were_accepted(tmp_path: Path) -> None:
    """Else it could be deleted before clients expect that, though one of them has just used it."""
    blob = b"a function"
    name = wire.blob_name(blob)
    call = wire.NewJob(wire.Calls((name,), (b"args",)))

    async def scenario() -> None:
        async with rig(tmp_path, at=1000) as live:
            await live.submit(call, blobs={name: blob})
            await live.advance(1000)
            fill(live.journal)
            with pytest.raises(JournalFull):
                await live.driver.submit("me", submission(call, new_job(argv=("x" * 100_000,))))
            make_room(live.journal)
            await live.advance(to_seconds(RETRY_AFTER))
            await live.submit(call)
        with closing(sqlite3.connect(tmp_path / FILE)) as db:
            assert db.execute("SELECT used FROM blobs").fetchall() == [(2000 * SECOND + RETRY_AFTER,)]

    run(scenario)


def test_statistics_say_that_there_is_no_room_for_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, bounds=DiskBounds(0, 40)) as live:
            assert (await reports.statistics(live.driver)).short == ""
            live.journal.retained.stored = 40
            live.driver.room.look()
            assert (await reports.statistics(live.driver)).short.startswith("output and uploads take")

    run(scenario)


def test_where_files_have_no_room_one_job_that_gives_some_is_enough_to_refuse_all(tmp_path: Path) -> None:
    gives = wire.Command(("true",), outputs={"out": f"{files.KEPT_SCHEME}out"})

    async def scenario() -> None:
        async with rig(tmp_path, bounds=DiskBounds(0, 40)) as live:
            live.journal.retained.stored = 40
            with pytest.raises(NoRoom, match="whose tasks give files to be kept"):
                await live.submit(new_job(), wire.NewJob(work=wire.Commands((gives,))))
            await live.submit(new_job(), new_job())

    run(scenario)


def test_what_is_measured_while_nothing_is_to_be_done_is_not_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            live.driver.measure("a", {"load": 0.5})
            live.driver.incident("odd", "x", "y")
            await live.settle()
            assert live.events(NodeMeasured) == []
            await live.submit(new_job())
            live.driver.measure("a", {"load": 0.7})
            await live.end(1)
            assert [event.values for event in live.events(NodeMeasured)] == [(("load", 0.7),)]

    run(scenario)


def test_requests_on_a_full_disk_are_as_if_never_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(*[new_job(name=str(number)) for number in range(200)])
            before = live.driver.core.dump()
            fill(live.journal)
            with pytest.raises(JournalFull):
                await live.driver.cancel(range(2, 201))
            assert live.driver.core.dump() == before
            assert live.engine.killed == []
            make_room(live.journal)
            await live.advance(to_seconds(RETRY_AFTER))
            assert await live.driver.cancel(range(2, 201)) == 199

    run(scenario)


# Nodes and leases


def test_what_a_node_cannot_do_is_reported(tmp_path: Path) -> None:
    limited = node("b", slots=1, capabilities=Capabilities(tiers=False, shares_files=False))

    async def scenario() -> None:
        async with rig(tmp_path, (*ONE, limited)) as live:
            told = (await reports.node_list(live.driver)).nodes
            assert [(one.name, one.cannot) for one in told] == [("a", ()), ("b", ("tiers", "shares_files"))]

    run(scenario)


def test_a_lost_node_is_redone_elsewhere_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a"), node("b"))) as live:
            await live.submit(new_job(tasks=3))
            live.engine.lose("a")
            await live.settle()
            assert live.running == [(1, 1, 1)]
            await live.end(1, 1)
            assert live.running == [(1, 0, 2)]
            live.engine.report(base.NodeBack("a"))
            await live.settle()
            assert live.running == [(1, 0, 2), (1, 2, 1)]

    run(scenario)


def test_a_gang_that_loses_one_of_its_nodes_is_redone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a"), node("b"), node("c"))) as live:
            await live.submit(new_job(kind="rigid", width=2), new_job(kind="rigid", width=2))
            live.engine.lose("a")  # it reports nothing about the member on b
            await live.settle()
            assert live.running == [(1, 0, 2)]
            assert {member.node for member in live.engine.running[1, 0, 2].members} == {"b", "c"}
            await live.end(1, 0, 2)
            assert live.running == [(2, 0, 1)]

    run(scenario)


def test_silence_longer_than_the_lease_means_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", lease=9), node("b"))) as live:
            await live.submit(new_job(tasks=2))
            for _ in range(8):
                await live.advance(1)
                live.engine.report(base.Heard(("a",)))
                await live.settle()
            # Not every heartbeat is an event.
            assert len(live.events(NodesHeard)) == 1 + 2
            await live.advance(9.5)
            assert not live.driver.core.state.nodes["a"].up
            await live.end(1, 1)
            assert (1, 0, 2) in live.running
            assert live.engine.killed == []
            # It lived all the time. What it runs is no longer wanted, and it can be used again.
            live.engine.report(base.Heard(("a",)))
            await live.settle()
            assert live.engine.killed == [(1, 0, 1)]
            assert live.driver.core.state.nodes["a"].up
            assert len(live.events(NodeUp)) == 1
            told = "it was silent for longer than its lease of 9 s, and lived on"
            assert [(one.kind, one.subject, one.detail) for one in live.events(Incident)] == [
                ("node_silent", "a", told)
            ]
            await live.end(1, 0, 1)
            assert [result.attempt for result in live.results(1)] == [1]
            await live.end(1, 0, 2)
            assert [result.attempt for result in live.results(1)] == [2, 1]

    run(scenario)


def test_a_node_the_engine_has_lost_is_back_when_the_engine_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", lease=9),)) as live:
            await live.submit()
            live.engine.lose("a")
            live.engine.report(base.Heard(("a",)))
            await live.settle()
            assert not live.driver.core.state.nodes["a"].up
            live.engine.report(base.NodeBack("a"))
            await live.settle()
            assert live.running == [(1, 0, 2)]
            assert live.engine.killed == []

    run(scenario)


def test_reported_starts_make_slots_busy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", reports_start=True),)) as live:
            await live.submit()
            assert (await reports.node_list(live.driver)).nodes[0].slots == ("occupied",)
            live.engine.report(base.Started(1, 0, 1))
            await live.settle()
            assert (await reports.node_list(live.driver)).nodes[0].slots == ("busy",)

    run(scenario)


def test_what_has_slots_and_has_not_begun_is_told_apart_from_what_runs(tmp_path: Path) -> None:
    """As in the queue of a site: after two seconds it is said what it waits for."""

    async def scenario() -> None:
        async with rig(tmp_path, (node("a", reports_start=True),)) as live:
            await live.submit()

            async def seen() -> tuple[int, int, int, bool, str]:
                detail = reports.job_detail(live.driver, 1)
                told, (attempt,) = await reports.explanation(live.driver, 1), detail.attempts
                all_of_them = (await reports.statistics(live.driver)).starting
                return detail.job.running, detail.job.starting, all_of_them, told.starting, attempt.hindered

            assert await seen() == (1, 1, 1, True, "")
            await live.advance(2)
            begins = "it has its slots and has not begun: it waits in the queue of its site"
            assert (await seen())[-1] == f"{begins}, or fetches its inputs"
            live.engine.report(base.Pending(1, 0, 1, "Slurm says Resources"))
            live.engine.report(base.Pending(9, 0, 1, "nobody knows this job"))
            await live.settle()
            assert (await seen())[-1] == f"{begins} (Slurm says Resources)"
            live.engine.report(base.Pending(1, 0, 1, "Slurm says Priority"))
            await live.settle()
            assert (await seen())[-1] == f"{begins} (Slurm says Priority)"
            live.engine.report(base.Started(1, 0, 1))
            await live.settle()
            assert await seen() == (1, 0, 0, False, "")
            assert live.driver.pending(next(live.driver.core.state.attempts())) == ""

    run(scenario)


# Policies


def test_what_a_task_saved_counts_and_is_forgotten_when_it_is_settled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=2))
            await live.advance(3)
            live.engine.report(base.Saved(1, 0, 1))
            await live.settle()
            assert live.events(TaskSaved) == [TaskSaved(3 * SECOND, 1, 0, 1)]
            await live.advance(2)
            await live.end(1, 0, 1, Outcome.KILLED)
            assert live.engine.forgotten == []
            assert to_seconds(live.driver.core.state.jobs[1].lost) == 2
            await live.end(1, 0, 2)
            assert live.engine.forgotten == [(1, 0)]
            await live.end(1, 1)
            assert live.engine.forgotten == [(1, 0), (1, 1), (1, None)]
            await live.submit(new_job())
        async with rig(tmp_path, engine=FakeEngine(base.Found(saved=frozenset({1, 2})))) as live:
            assert live.engine.forgotten == [(1, None)]

    run(scenario)


def test_what_keeps_the_disk_from_taking_anything_new_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            assert live.driver.accepts
            for reason in ("short", "held"):
                setattr(live.driver.room, reason, "no room")
                assert not live.driver.accepts
                setattr(live.driver.room, reason, "")
            assert live.driver.accepts

    run(scenario)


def test_no_work_is_lost_while_an_orderly_stopped_server_is_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, at=100) as live:
            await live.submit(new_job())
            live.clock.advance(2)
        async with rig(tmp_path, ONE, at=500) as live:
            assert live.running == [(1, 0, 2)]
            job = live.driver.core.state.jobs[1]
            assert job.lost == 2 * SECOND
            assert job.attempts[0].start == 500 * SECOND
            assert [event.at for event in live.events(NodeDown)] == [102 * SECOND]
            assert [event.at for event in live.events(NodeUp)] == [500 * SECOND]
            found = live.engine.found()
            live.clock.advance(3)
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
        async with rig(tmp_path, ONE, at=600) as live:
            assert found.running == {(1, 0, 2)}
            assert live.driver.core.state.jobs[1].lost == 102 * SECOND, "after a crash nobody knows how long it ran on"

    run(scenario)


def test_another_policy_decides_from_now_on_and_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(), new_job(estimate=50), new_job(estimate=5))
            with pytest.raises(InvalidInput, match="sjff"):
                await live.driver.choose("sjff")
            await live.driver.choose("sjf")
            await live.end(1)
            assert live.running == [(3, 0, 1)]
        async with rig(tmp_path, ONE) as live:
            assert live.driver.core.policy == "sjf"
        async with rig(tmp_path, ONE, policy="edf") as live:
            assert live.driver.core.policy == "edf"
            assert live.events(PolicyChosen)[-1] == PolicyChosen(0, "edf")

    run(scenario)


class Raising:
    """A policy that fails."""

    per_instant = False
    task_rounds = False

    def __call__(self, view: Snapshot) -> Plan:
        raise ZeroDivisionError("no plan today")


def test_a_policy_that_raises_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def policies(text: str) -> Policy:
        return Raising() if text == "raising" else find(text)

    async def scenario() -> None:
        async with rig(tmp_path, ONE, policies=policies) as live:
            await live.submit(new_job(tasks=2))
            await live.driver.choose("raising")
            await live.submit()
            await live.end(1, 0)
            assert live.running == []
            assert live.driver.core.refusals["policy_raised_ZeroDivisionError"] == 3
            assert caplog.text.count("policy raising raised") == 1
            assert "no plan today" in caplog.text
            told = await reports.explanation(live.driver, 2)
            assert (told.status, told.reason, told.by) == (JobStatus.WAITING, "NOT_CONSIDERED", "raising")
            assert told.note == (
                "the policy raised ZeroDivisionError('no plan today'), and starts nothing until it gives a plan"
            )
            await live.driver.choose("fcfs")
            assert live.running == [(1, 1, 1)]
            await live.end(1, 1)
            assert live.running == [(2, 0, 1)]

    run(scenario)


# Tiers and moves


def crash(live: Rig) -> base.Found:
    """The driver dies here. Returns the engine as the next driver finds it."""
    live.driver.broken.set_exception(RuntimeError("crash"))
    live.driver.broken.exception()
    return live.engine.found()


def test_what_is_asked_of_a_job_that_has_ended_is_listed_as_having_come_to_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit(new_job(), new_job(tasks=3))
            await live.driver.change(1, wire.JobChange(priority=3), by="ann")
            await live.end(1)
            await live.advance(1)
            await live.driver.change(1, wire.JobChange(priority=4), by="ann")
            await live.driver.cancel([1, 2], by="ann")
            told = [
                ("job 1", "priority 3.0"),
                ("job 1", f"priority 4.0; {ended}"),
                ("job 1", ended),
                ("job 2", ""),
            ]
            listed = (await requests.audit(live.journal, "ann", None, 10)).entries
            assert [(one.subject, one.detail) for one in listed] == told
            asked = (await requests.report(live.journal, 0, 10)).requests
            assert [(one.subject, one.detail) for one in asked if one.by == "ann"] == told

    ended = "nothing came of it: the job had ended"
    run(scenario)


def rigid(**terms: Any) -> wire.NewJob:
    return new_job(kind="rigid", estimate=terms.pop("estimate", 100), **terms)


def test_what_waits_runs_behind_and_comes_to_the_foreground_when_it_is_free(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="measy") as live:
            await live.submit(rigid(cpu=(0.5,)), rigid())
            assert [(one.key, one.tier) for one in live.engine.launched] == [
                ((1, 0, 1), Tier.FOREGROUND),
                ((2, 0, 1), Tier.BACKGROUND),
            ]
            (told,) = (await reports.node_list(live.driver)).nodes
            assert [(one.job, one.tier) for one in told.attempts] == [(1, "foreground"), (2, "background")]
            assert (await reports.statistics(live.driver)).background == 1
            await live.end(1)
            assert live.engine.changed == [(2, 0, 1, Tier.FOREGROUND)]
            assert [one.tier for one in reports.job_detail(live.driver, 2).attempts] == ["foreground"]

    run(scenario)


def test_a_tier_that_the_system_refuses_is_an_incident_and_the_core_puts_it_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="measy") as live:
            await live.submit(rigid(cpu=(0.5,)), rigid())
            await live.end(1)
            live.engine.report(
                base.TierRefused(2, 0, 1, Tier.FOREGROUND, "node 'a': process 7: Operation not permitted")
            )
            await live.settle()
            refused, incident = live.events(TierRefused, Incident)
            assert refused == TierRefused(0, 2, 0, 1, Tier.FOREGROUND)
            assert isinstance(incident, Incident)
            assert (incident.kind, incident.subject) == ("tier_refused", "job 2, task 0")
            assert "not let into the foreground: node 'a': process 7" in incident.detail
            assert live.engine.changed == [(2, 0, 1, Tier.FOREGROUND), (2, 0, 1, Tier.BACKGROUND)]
            assert [one.tier for one in reports.job_detail(live.driver, 2).attempts] == ["background"]
            assert live.running == [(2, 0, 1)], "it is not restarted"

    run(scenario)


def test_a_refusal_is_for_nothing_when_the_place_is_taken_then_it_is_redone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, policy="keasy") as live:
            await live.submit(rigid(cpu=(0.5,)), rigid(cpu=(0.5,)), rigid())
            await live.end(1)
            assert [(one.key, one.tier) for one in live.engine.launched][2:] == [((3, 0, 1), Tier.BACKGROUND)]
            live.engine.report(base.TierRefused(2, 0, 1, Tier.FOREGROUND))
            await live.settle()
            assert live.engine.killed == [(2, 0, 1)]
            await live.end(2, 0, 1, Outcome.KILLED)
            assert (2, 0, 2) in live.running

    run(scenario)


async def moving(live: Rig) -> None:
    """Job 3 runs behind job 1 on slot 0 and is to continue on slot 1, which job 2 has left."""
    await live.submit(rigid(cpu=(0.3,)), rigid(cpu=(0.5,), estimate=10), rigid(movable=True, estimate=20))
    assert (live.engine.launched[2].members[0].slots, live.engine.launched[2].tier) == ((0,), Tier.BACKGROUND)
    await live.end(2)
    assert live.engine.suspended == [(3, 0, 1)]
    (told,) = reports.job_detail(live.driver, 3).attempts
    assert (told.slots, told.goal) == (("a/0",), ("a/1",))
    assert live.engine.killed == []


def test_what_moves_saves_ends_and_is_launched_where_it_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, policy="measy") as live:
            await moving(live)
            await live.advance(2)
            live.engine.report(base.Saved(3, 0, 1))
            await live.end(3, 0, 1, Outcome.KILLED)
            again = live.engine.launched[-1]
            assert (again.key, again.members[0].slots, again.tier) == ((3, 0, 2), (1,), Tier.FOREGROUND)
            detail = reports.job_detail(live.driver, 3)
            assert (detail.moves, detail.lost, detail.kills) == (1, 0, 0)
            await live.end(3, 0, 2, result=b"done")
            assert live.status(3) is JobStatus.SUCCEEDED

    run(scenario)


def test_what_ends_by_itself_while_it_is_to_move_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, policy="measy") as live:
            await moving(live)
            await live.end(3, result=b"done")
            assert live.status(3) is JobStatus.SUCCEEDED
            assert live.running == [(1, 0, 1)]

    run(scenario)


def test_after_a_crash_the_engine_is_told_again_what_it_may_not_have_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, policy="measy") as live:
            await moving(live)
            await live.submit(rigid())
            found = crash(live)
        assert found.background == {(3, 0, 1), (4, 0, 1)}
        found = msgspec.structs.replace(found, background=frozenset({(1, 0, 1)}))
        async with rig(tmp_path, engine=FakeEngine(found)) as live:
            assert live.engine.suspended == [(3, 0, 1)]
            assert live.engine.changed == [(1, 0, 1, Tier.FOREGROUND), (4, 0, 1, Tier.BACKGROUND)]
            assert live.engine.killed == []
            tiers = {view.job.id: view.tier for view in live.driver.core.state.attempts()}
            assert tiers == {1: Tier.FOREGROUND, 3: Tier.BACKGROUND, 4: Tier.BACKGROUND}
            await live.end(3, 0, 1, Outcome.KILLED)
            assert (3, 0, 2) in live.running

    run(scenario)


def test_the_processes_of_a_gang_sit_where_the_plan_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = (node("a", slots=2), node("b", slots=1))
        async with rig(tmp_path, cluster, policy="measy") as live:
            await live.submit(*(rigid(cpu=(use,)) for use in (0.1, 0.9, 0.5)), rigid(width=3, cpu=(0.2, 0.9, 0.5)))
            (gang,) = (one for one in live.engine.launched if one.job == 4)
            assert [(m.node, *m.slots) for m in gang.members] == [("a", 1), ("a", 0), ("b", 0)]
            assert gang.tier is Tier.BACKGROUND
            (told,) = reports.job_detail(live.driver, 4).attempts
            assert told.slots == ("a/1", "a/0", "b/0")

    run(scenario)


# Start and end


def test_a_start_goes_on_where_the_journal_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(tasks=4, name="x"), client="c")
            await live.end(1, 0, result=b"0")
            before = live.driver.core.dump()
        assert live.engine.stopped
        async with rig(tmp_path, at=100) as live:
            # What ran was killed by the orderly stop and is redone. It does not count as lost.
            assert live.running == [(1, 1, 2), (1, 2, 2)]
            assert live.driver.core.state.jobs[1].losses == {}
            assert {job.spec for job in before.jobs} == {job.spec for job in live.driver.core.dump().jobs}
            for task, attempt in ((1, 2), (2, 2), (3, 1)):
                await live.end(1, task, attempt)
            assert live.status(1) is JobStatus.SUCCEEDED
            assert len(live.results(1)) == 4
            rows, _ = await hear(live.driver, 0, 10, client="c")
            assert [row.number for row in rows] == [1, 2, 3, 4, 5]
            assert (await live.submit()).jobs == (2,)

    run(scenario)


def test_what_came_before_the_end_is_still_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE) as live:
            await live.submit()
            live.engine.end(1, result=b"just in time")
            offered = asyncio.create_task(live.driver.submit("me", submission()))
            await asyncio.sleep(0)
            await live.driver.stop()
            assert (await offered).jobs == (2,)
            assert [result.ending.value for result in live.results(1)] == [b"just in time"]
            live.engine.report(base.Heard(("a",)))
            await live.settle()
            assert live.journal.mark_clean(True)
            live.driver.broken.set_exception(RuntimeError("over"))
            live.driver.broken.exception()

    run(scenario)


def test_what_went_on_meanwhile_is_adopted(tmp_path: Path) -> None:
    """After a crash: one attempt runs, one has ended, one is gone, and one was never wanted."""

    async def scenario() -> None:
        async with rig(tmp_path, (node("a", slots=3),)) as live:
            await live.submit(new_job(tasks=3))
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
        found = base.Found(
            frozenset({(1, 0, 1), (1, 9, 1)}), (base.Ended(1, 1, 1, base.Ending(Outcome.SUCCEEDED, b"one")),)
        )
        async with rig(tmp_path, (node("a", slots=3),), engine=FakeEngine(found)) as live:
            assert live.engine.killed == [(1, 9, 1)]
            assert live.engine.acknowledged == [(1, 1, 1)]
            assert [assignment.key for assignment in live.engine.launched] == [(1, 2, 2)]
            assert live.driver.core.state.jobs[1].losses == {}, "no node was lost: nothing is held against it"
            await live.end(1, 0, 1)
            await live.end(1, 2, 2)
            assert [(r.task, r.attempt, r.ending.value) for r in live.results(1)] == [
                (0, 1, None),
                (1, 1, b"one"),
                (2, 2, None),
            ]

    run(scenario)


def test_a_cluster_may_change_between_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a"), node("b"), node("c"))) as live:
            await live.submit(new_job(tasks=9))
        async with rig(tmp_path, (node("a"), node("b", slots=2), node("d"))) as live:
            assert list(live.driver.core.state.nodes) == ["a", "b", "d"]
            assert len(live.running) == 4

    run(scenario)


def test_a_node_that_was_down_is_up_after_a_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", lease=5),)) as live:
            live.engine.lose("a")
            await live.settle()
            await live.submit()
            assert live.running == []
        async with rig(tmp_path, (node("a", lease=5),), at=1000) as live:
            assert live.running == [(1, 0, 1)]
            assert 1005 in live.clock.alarms

    run(scenario)


@pytest.mark.parametrize("keep_events", [None, 0])
def test_snapshots_shorten_the_start(tmp_path: Path, keep_events: int | None) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"snapshot_every": 20, "keep": Keep(events=keep_events), "policy": "easy"}
        async with rig(tmp_path, **settings) as live:
            await live.submit(new_job(tasks=60))
            for task in range(50):
                await live.end(1, task)
            last = live.journal.snapshot()
            assert last is not None
            assert last[0] > 30
            await live.advance(2)
            state = live.driver.core.dump()
            live.driver.broken.set_exception(RuntimeError("crash"))
            live.driver.broken.exception()
        with closing(Journal(tmp_path)) as journal:
            seqs = [seq for seq, _ in journal.events()]
            if keep_events == 0:
                assert seqs[0] > 1
                return
            # Replaying the whole journal from its first snapshot gives the same state.
            assert seqs == list(range(1, len(seqs) + 1))
            first = journal.snapshot(first=True)
            assert first is not None
            assert first[0] == 0
            core = Scheduler.restore(first[1], find)
            for _, event in journal.events():
                core.handle(event)
            assert core.dump() == state

    run(scenario)


def test_a_journal_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit()
        with closing(Journal(tmp_path)) as journal, journal._transaction() as db:
            db.execute("DELETE FROM jobs")
        with pytest.raises(HeadwayError, match=r"contradicts itself.*\[1\]"):
            async with rig(tmp_path):
                pass

    run(scenario)


def test_held_jobs_start_when_their_release_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(release=50.0))
            assert live.status(1) is JobStatus.HELD
            assert (await reports.explanation(live.driver, 1)).reason == "NOT_RELEASED"
            await live.advance(49)
            assert live.running == []
            await live.advance(1)
            assert live.running == [(1, 0, 1)]

    run(scenario)


def test_however_often_a_server_crashes_first_a_job_is_released(tmp_path: Path) -> None:
    """Each start wakes the core before the instant it asked for. That instant still counts at the next start."""

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(release=50.0))
            found = crash(live)
        for at in (10, 20, 30):
            async with rig(tmp_path, at=at, engine=FakeEngine(found)) as live:
                assert 50 in live.clock.alarms
                found = crash(live)
        async with rig(tmp_path, at=40, engine=FakeEngine(found)) as live:
            await live.advance(10)
            assert live.running == [(1, 0, 1)]

    run(scenario)


def test_after_a_crash_a_job_is_released_though_another_was_before_it(tmp_path: Path) -> None:
    """The wake before the crash is over. The replay says when the core wants to be woken next."""

    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.submit(new_job(release=50.0), new_job(release=90.0))
            await live.advance(50)
            assert live.running == [(1, 0, 1)]
            found = crash(live)
        async with rig(tmp_path, at=60, engine=FakeEngine(found)) as live:
            assert 90 in live.clock.alarms
            await live.advance(30)
            assert live.running == [(1, 0, 1), (2, 0, 1)]

    run(scenario)


def test_when_a_job_started_is_known_after_a_crash_though_no_event_says_so_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, ONE, at=7, snapshot_every=3, keep=Keep(events=0)) as live:
            await live.submit(new_job(tasks=9))
            for task in range(6):
                await live.advance(1)
                await live.end(1, task)
            assert not live.events(JobSubmitted), "the snapshot stands for it"
            found = crash(live)
        async with rig(tmp_path, ONE, at=20, engine=FakeEngine(found)) as live:
            assert reports.job_detail(live.driver, 1).job.started == 7
            for task in range(6, 9):
                await live.end(1, task)
            assert reports.job_detail(live.driver, 1).job.started == 7

    run(scenario)


def test_an_incident_is_recorded_once_also_when_the_disk_is_full(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, at=10) as live:
            live.driver.incident("collector_failed", "disk", "it raised OSError")
            await live.settle()
            assert live.events(Incident) == [Incident(10 * SECOND, "collector_failed", "disk", "it raised OSError")]
            fill(live.journal)
            for _ in range(100):
                live.driver.incident("decider_failed", "http://there", "no answer\n" * 10_000)
            await live.settle()
            assert live.driver.full is not None
            make_room(live.journal)
            await live.advance(to_seconds(RETRY_AFTER))
            incidents = live.events(Incident)
            assert [event.subject for event in incidents] == ["disk", *["http://there"] * 100]
            assert incidents[-1].detail.startswith("no answer\\nno answer")
            assert len(incidents[-1].detail) == 500

    run(scenario)


def test_the_objects_of_a_few_events_are_looked_at_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            gc.disable()
            try:
                gc.collect(1)
                before = gc.get_stats()[1]["collections"]
                for _ in range(EVENTS_AT_ONCE):
                    await live.submit(new_job())
                assert gc.get_stats()[1]["collections"] > before
            finally:
                gc.enable()

    run(scenario)


def test_a_service_is_reported_at_any_moment_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = BrokerDoor(tmp_path / "door", b"secret")
    reported: list[int] = []

    async def scenario() -> None:
        async with rig(tmp_path, ONE, door=door, policy="services:top=dp,batch=fcfs") as live:
            follow = live.driver.services.follow

            def report_and_follow() -> None:
                reported.append(len(served.report(live.driver).services))
                follow()

            monkeypatch.setattr(live.driver.services, "follow", report_and_follow)
            terms = wire.ServiceTerms(least=1, most=1)
            await live.submit(wire.NewJob(work=wire.Handling("a:b"), kind="service", name="s", service=terms))
            assert served.service_report(live.driver, "s").job == 1
            await live.end(1, 0, 1, Outcome.EXITED, exit_code=1)
            assert live.status(1) is JobStatus.FAILED
            with pytest.raises(NoSuchService):
                served.service_report(live.driver, "s")

    run(scenario)
    assert len(reported) >= 2
    assert not any(reported), "what the broker does not know yet, or the core no more, is left out"
