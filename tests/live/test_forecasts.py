"""Forecasts beside the event loop: when they are made, what callers get, and the process that makes them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headway import wire
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput, NoForecast, NoSuchJob
from headway.forecaster import REMEMBER_EVERY, Forecaster
from headway.foresight import follower as follower_module
from headway.foresight.follower import Follower
from headway.foresight.pace import LONGEST_WAIT, Pace
from headway.live import advising, forecasts, reports
from headway.live.driver import Driver
from headway.live.forecasts import (
    FORECAST_JOBS_MAX,
    HURRY,
    AdviceQuestion,
    Advise,
    Ask,
    ForecastProcess,
    ForecastQuestion,
    Tell,
    ToldForecast,
    read_frame,
    write_frame,
)
from headway.live.outside import OtherProcesses
from headway.live.settings import DriverSettings
from headway.live.store.decisions import replay
from headway.live.store.journal import FILE, Journal
from headway.model.actions import Action, JobStatus
from headway.model.events import Event
from headway.model.forecast import Advice
from headway.model.instant import SECOND
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

from ..waiting import LIMIT, becomes, until

QUESTION = ForecastQuestion(0, 0)
COMMAND = (sys.executable, "-m", "headway.forecaster")
HANGS = (sys.executable, "-c", "import time; time.sleep(1000)")
HURRIED = """
import msgspec
from headway.live.forecasts import HURRY, ForecastQuestion, message_of, read_frame, write_frame
from headway.model.forecast import Forecast
question = msgspec.msgpack.decode(read_frame(0), type=ForecastQuestion)
assert read_frame(0) == HURRY
for _ in range(2):
    write_frame(1, message_of(Forecast(question.at, question.at, 0, ())))
assert read_frame(0) is None
"""
"""Answers one question, as soon as somebody waits for it."""

IDLES = """
from headway import forecaster
remember = forecaster.Forecaster.remember
forecaster.Forecaster.remember = lambda self, every=0.0: None if every else remember(self)
forecaster.UNASKED_SECONDS = 0.1
forecaster.main()
"""
"""Ends by itself when it has not been asked for a tenth of a second, and writes only then what it has learnt."""

ENDS = (sys.executable, "-c", "raise SystemExit(3)")


def asked_at(question: ForecastQuestion, seconds: int) -> ForecastQuestion:
    """The same at another time."""
    return msgspec.structs.replace(question, at=seconds * SECOND)


def ignored(made: ToldForecast) -> None:
    """What is told early is not looked at."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks waits until the forecast is made, however busy the machine is."""
    for name in ("EXACT_PATIENCE", "PATIENCE_YOUNG", "PATIENCE_NEWS", "PATIENCE_LIST"):
        monkeypatch.setattr(forecasts, name, LIMIT)


class Counted:
    """Makes forecasts from the journal, counts them, and notes whether somebody waited for each. While `gate` is
    closed, none is begun; nor, while `sure` is closed, is it told how sure one is."""

    def __init__(self, folder: Path) -> None:
        self.made = 0
        self.awaited: list[bool] = []
        self.gate, self.sure = threading.Event(), threading.Event()
        self.gate.set()
        self.sure.set()
        self._folder = folder

    def __call__(self, question: ForecastQuestion, told: Tell) -> ToldForecast:
        self.awaited.append(question.awaited)
        self.gate.wait()
        self.made += 1
        with closing(Follower(self._folder, find)) as follower:
            follower.catch_up(question.event)
            state = follower.state(question.at)
            expected = follower.expected(state)
            told(ToldForecast.of(expected))
            self.sure.wait()
            return ToldForecast.of(follower.with_chances(state, expected))


@asynccontextmanager
async def driver(
    folder: Path,
    ask: Ask | None,
    policy: str = "deadline",
    advise: Advise | None = None,
    clock: ManualClock | None = None,
    hurry: Callable[[], None] | None = None,
) -> AsyncIterator[Driver]:
    """A driver with two slots, at second 5, whose engine runs nothing."""
    with closing(Journal(folder)) as journal:
        started = Driver(
            journal,
            FakeEngine(),
            clock or ManualClock(5),
            find,
            DriverSettings(policy=policy),
            processes=OtherProcesses(forecast=ask, advise=advise, hurry_forecast=hurry),
        )
        await started.start((node("a", slots=2),))
        try:
            yield started
        finally:
            await started.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


async def settled() -> None:
    """Let everything happen that is due now."""
    for _ in range(6):
        await asyncio.sleep(0)


async def listed(live: Driver) -> list[wire.JobReport]:
    return list((await reports.job_list(live, None, None, 0, 1000)).jobs)


def test_a_job_that_cannot_be_on_time_is_said_to_be_late_everywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            await live.submit("me", submission(new_job(tasks=10, estimate=60.0, due=15.0)))
            (report,) = await listed(live)
            assert (report.outlook, report.late, report.expected_end) == ("late", 290, 305)
            detail = reports.job_detail(live, 1, await reports.outlook_of(live, 1))
            assert detail.job == report
            told = await reports.explanation(live, 1)
            assert (told.outlook, told.late, told.due) == ("late", 290, 15)
            assert told.awaits == (wire.AwaitedReport(1, 0, ("a/0",), None, 65),)

    run(scenario)


def test_a_job_that_holds_slots_says_which_tasks_it_waits_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            await live.submit("me", submission(new_job(tasks=9, estimate=30.0)))
            await live.submit("me", submission(new_job(estimate=2.0, due=12.0)))
            await settled()
            assert live.core.state.jobs[2].held
            told = await reports.explanation(live, 2)
            assert told.status is JobStatus.WAITING
            assert told.awaits == (wire.AwaitedReport(1, 1, ("a/1",), None, 35),)
            assert (told.expected_start, told.expected_end) == (35, 37)
            assert "other tasks still run" in told.text

    run(scenario)


def test_a_forecast_of_a_core_that_was_loaded_again_since_does_not_count(tmp_path: Path) -> None:
    """Events whose write failed are taken back: their numbers come again, for other events."""

    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            await reports.explanation(live, 1)
            await reports.explanation(live, 1)
            assert ask.made == 1
            live._arrivals.reload()
            assert (await reports.explanation(live, 1)).outlook == "on time"
            assert ask.made == 2

    run(scenario)


def test_a_forecast_is_made_again_only_when_something_has_happened(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            for _ in range(3):
                assert (await listed(live))[0].outlook == "on time"
                assert (await reports.explanation(live, 1)).outlook == "on time"
            assert ask.made == 1
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0), new_job(estimate=9.0, due=16.0)))
            assert [report.outlook for report in await listed(live)] == ["on time", "on time", "late"]
            assert ask.made == 2

    run(scenario)


def test_those_who_ask_at_once_share_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.gate.clear()
            asked = [asyncio.create_task(reports.explanation(live, 1)) for _ in range(5)]
            await asyncio.sleep(0)
            ask.gate.set()
            assert {(await one).outlook for one in asked} == {"on time"}
            assert ask.made == 1

    run(scenario)


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "EXACT_PATIENCE", 0.05)

    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.gate.clear()
            told = await reports.explanation(live, 1)
            assert (told.outlook, told.expected_end) == ("not computed", None)
            assert "ask again" in told.lack
            ask.gate.set()
            while (await reports.explanation(live, 1)).outlook != "on time":
                await asyncio.sleep(0.01)

    run(scenario)


def test_with_more_open_jobs_than_that_nothing_is_computed_and_the_answer_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(*[new_job(estimate=9.0, due=99.0)] * (FORECAST_JOBS_MAX + 1)))
            assert {report.outlook for report in await listed(live)} == {"not computed"}
            assert f"{FORECAST_JOBS_MAX + 1:,} jobs are open" in (await reports.explanation(live, 1)).lack
            assert {report.lack for report in await listed(live)} == {(await reports.explanation(live, 1)).lack}
            assert ask.made == 0
            await live.cancel([FORECAST_JOBS_MAX])
            assert (await reports.explanation(live, 2)).lack == ""

    run(scenario)


def test_without_forecasts_it_is_told_what_runs_on_held_slots(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, None) as live:
            await live.submit("me", submission(new_job(tasks=9, estimate=30.0)))
            await live.submit("me", submission(new_job(estimate=2.0, due=12.0)))
            await settled()
            told = await reports.explanation(live, 2)
            assert told.awaits == (wire.AwaitedReport(1, 1, ("a/1",), None, 35),)
            assert (told.expected_start, told.outlook) == (None, "not computed")

    run(scenario)


@pytest.mark.parametrize("kind", [NoForecast, ValueError])
def test_a_forecast_that_fails_is_told_of_and_harms_nothing(tmp_path: Path, kind: type[Exception]) -> None:
    tries: list[ForecastQuestion] = []

    def fails(question: ForecastQuestion, told: Tell) -> ToldForecast:
        tries.append(question)
        raise kind("the process is gone")

    async def scenario() -> None:
        async with driver(tmp_path, fails) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            assert "the process is gone" in (await reports.explanation(live, 1)).lack
            assert len(tries) == 1
            assert [report.outlook for report in await listed(live)] == ["not computed"]

    run(scenario)


def test_cancelled_jobs_have_neither_failed_nor_kept_their_due_date(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            await live.submit("me", submission(new_job(tasks=5, estimate=9.0, due=99.0)))
            await live.cancel([1])
            engine = live._engine
            assert isinstance(engine, FakeEngine)
            for key in list(engine.killed):
                engine.end(*key)
            await becomes(lambda: not live.open)
            (report,) = await listed(live)
            assert (report.status, report.failed, report.outlook) == (JobStatus.CANCELLED, 0, None)

    run(scenario)


def test_it_is_told_what_is_expected_before_it_is_known_how_sure_that_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.sure.clear()
            (report,) = await listed(live)
            assert (report.outlook, report.chance) == ("on time", None)
            asked = asyncio.create_task(reports.explanation(live, 1))
            await settled()
            assert not asked.done()
            ask.sure.set()
            told = (await asked).chance
            assert told is not None
            assert told.on_time == 1
            assert (await listed(live))[0].chance == told
            assert ask.made == 1

    run(scenario)


def test_how_sure_it_was_is_told_until_it_is_known_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            before = (await reports.explanation(live, 1)).chance
            assert before is not None
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.sure.clear()
            assert [report.chance for report in await listed(live)] == [before, None]
            ask.sure.set()

    run(scenario)


def test_what_was_told_long_ago_of_how_sure_it_was_is_not_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            assert (await reports.explanation(live, 1)).chance is not None
            monkeypatch.setattr(forecasts, "SURE_FOR", 0.0)
            monkeypatch.setattr(forecasts, "PATIENCE_LIST", 0.01)
            await live.submit("me", submission(new_job(estimate=9.0)))
            ask.sure.clear()
            assert [report.chance for report in await listed(live)] == [None, None]
            ask.sure.set()

    run(scenario)


async def twice_as_long(live: Driver, jobs: int) -> ManualClock:
    """So many jobs run one after the other, for 20 s each, and were said to take 10."""
    engine, clock = live._engine, live._clock
    assert isinstance(engine, FakeEngine)
    assert isinstance(clock, ManualClock)
    for _ in range(jobs):
        await live.submit("me", submission(new_job(estimate=10.0)))
        await becomes(lambda: bool(engine.running))
        clock.advance(20)
        engine.end(*next(iter(engine.running)))
        await becomes(lambda: not live.open)
    return clock


def test_an_estimate_is_missed_by_as_much_as_earlier_ones(tmp_path: Path) -> None:
    """Ten jobs ran twice as long as they were said to: so will the next."""

    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            clock = await twice_as_long(live, jobs=10)
            await live.submit("me", submission(new_job(estimate=30.0, due=clock.now() / 1e6 + 45)))
            told = await reports.explanation(live, 11)
            assert told.outlook == "on time"
            assert told.chance is not None
            assert told.chance.end is not None
            assert told.chance.end.median == pytest.approx(clock.now() / 1e6 + 60)
            assert told.chance.on_time == 0

    run(scenario)


def test_each_job_that_has_ended_is_learnt_once(tmp_path: Path) -> None:
    """It is in the journal, and among the past jobs. Five that were alike are too few to be so sure of the next."""

    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            clock = await twice_as_long(live, jobs=5)
            await live.submit("me", submission(new_job(estimate=30.0)))
            told = await reports.explanation(live, 6)
            assert told.chance is not None
            end = told.chance.end
            assert end is not None
            assert end.low_90 is not None
            assert end.high_90 is not None
            assert end.low_90 < clock.now() / 1e6 + 30 < end.high_90 - 20

    run(scenario)


def test_of_what_nothing_is_known_no_chance_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            await live.submit("me", submission(new_job(due=99.0)))
            told = await reports.explanation(live, 1)
            assert (told.outlook, told.chance) == ("unknown", None)
            with closing(Follower(tmp_path, find)) as follower:
                state = follower.state(live.now())
                follower.with_chances(state, follower.expected(state))
                assert not follower._chances.open_jobs, "nor is anything learnt of a guess"

    run(scenario)


class TestProcess:
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Path:
        """A data directory with a job of three tasks of 2 s, submitted at 0, due at 4."""

        async def scenario() -> None:
            with closing(Journal(tmp_path)) as journal:
                live = Driver(journal, FakeEngine(), ManualClock(0), find, DriverSettings(policy="edf"))
                await live.start((node("a"),))
                await live.submit("me", submission(new_job(tasks=3, estimate=2.0, due=4.0)))
                await settled()
                await live.stop()

        asyncio.run(scenario())
        return tmp_path

    def test_it_follows_the_journal_and_lives_on(self, journal: Path) -> None:
        process = ForecastProcess((*COMMAND, str(journal)))
        early: list[ToldForecast] = []
        try:
            made = process(QUESTION, early.append)
            (job,) = made.jobs.values()
            assert job.end == 6_000_000
            assert job.chance is not None
            assert (made.forecast.is_sure, early[0].forecast.is_sure) == (True, False)
            unsure = ToldForecast(replace(made.forecast, is_sure=False), {1: replace(job, chance=None)})
            assert [unsure] == early
            first = process._process
            assert process(QUESTION, early.append) == made
            assert process._process is first
        finally:
            process.stop()

    def test_one_that_has_ended_is_started_again(self, journal: Path) -> None:
        process = ForecastProcess((*COMMAND, str(journal)))
        try:
            made = process(QUESTION, ignored)
            assert process._process is not None
            os.kill(process._process.pid, signal.SIGKILL)
            process._process.wait()
            assert process(QUESTION, ignored) == made
        finally:
            process.stop()

    def test_it_ends_with_the_server_however_that_ends(self, journal: Path) -> None:
        """Its input ends with the last process that has it open. Ctrl-c at the terminal does not interrupt its work."""
        with subprocess.Popen((*COMMAND, str(journal)), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(2):
                write_frame(process.stdin.fileno(), msgspec.msgpack.encode(QUESTION))
                assert read_frame(process.stdout.fileno())
                assert read_frame(process.stdout.fileno())
                process.send_signal(signal.SIGINT)
            process.stdin.close()
            assert process.wait(LIMIT) == 0

    def test_what_it_has_learnt_of_bounds_survives_an_end_by_idling_and_a_kill(self, journal: Path) -> None:
        def known() -> list[int]:
            """When the bounds were told that wait for what comes, in seconds."""
            with closing(Follower(journal, find, remembers=True)) as follower:
                return [told.at // SECOND for told in follower._chances._ends._told]

        idles = (sys.executable, "-c", IDLES, str(journal))
        with subprocess.Popen(idles, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
            assert idle.stdin is not None
            write_frame(idle.stdin.fileno(), msgspec.msgpack.encode(QUESTION))
            assert idle.wait(LIMIT) == 0, "its input is open still"
        assert known() == [0]
        process = ForecastProcess((*COMMAND, str(journal)))
        try:
            process(asked_at(QUESTION, 60), ignored)
            until(lambda: known() == [0, 60])
            assert process._process is not None
            process._process.kill()
            process._process.wait()
            assert known() == [0, 60]
        finally:
            process.stop()

    def test_what_it_has_learnt_is_written_at_once_then_seldom_and_when_it_ends(
        self, journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        forecaster, written = Forecaster(journal, arrivals=False), list[Follower]()
        monkeypatch.setattr(Follower, "remember", lambda self: written.append(self))
        forecaster.remember()
        assert len(written) == 0, "nothing was asked, so nothing was learnt"
        assert len(list(forecaster.answers_to(msgspec.msgpack.encode(QUESTION)))) == 2
        forecaster.remember(every=REMEMBER_EVERY)
        forecaster.remember(every=REMEMBER_EVERY)
        assert len(written) == 1
        forecaster.remember()
        assert len(written) == 2

        def full(follower: Follower) -> None:
            raise HeadwayError("the disk is full")

        monkeypatch.setattr(Follower, "remember", full)
        forecaster.remember()
        assert caplog.messages == ["what was learnt of bounds is not kept: the disk is full"]

    @pytest.mark.parametrize("by", ["hurry", "advise"])
    def test_it_is_told_once_that_somebody_waits_for_the_answer_in_hand(
        self, by: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(forecasts, "PROCESS_LOOK_SECONDS", 0.02)
        process = ForecastProcess((sys.executable, "-c", HURRIED))
        told: list[ToldForecast] = []
        asking = threading.Thread(target=lambda: told.append(process(QUESTION, ignored)))
        asking.start()
        until(lambda: process._process is not None)
        if by == "hurry":
            process.hurry()
        else:
            with suppress(NoForecast):  # it answers no second question
                process.advise(AdviceQuestion(0, 0, 0.9, number=1))
        asking.join(LIMIT)
        process.stop()
        assert [one.forecast.made for one in told] == [QUESTION.at]

    def test_a_word_that_comes_too_late_is_no_question(self, journal: Path) -> None:
        with subprocess.Popen((*COMMAND, str(journal)), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for body in (HURRY, msgspec.msgpack.encode(QUESTION)):
                write_frame(process.stdin.fileno(), body)
            assert read_frame(process.stdout.fileno())
            assert read_frame(process.stdout.fileno())
            process.stdin.close()
            assert process.wait(LIMIT) == 0

    def test_one_that_hangs_is_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(forecasts, "FORECAST_SECONDS_MAX", 0.1)
        process = ForecastProcess(HANGS)
        with pytest.raises(NoForecast, match="more than"):
            process(QUESTION, ignored)
        assert process._process is None
        with pytest.raises(NoForecast, match="more than"):
            next(process._answers(bytes(1 << 20), 1))  # more than fits into a pipe that nobody reads
        assert process._process is None

    def test_one_that_a_signal_has_stopped_is_told_of_and_started_anew(
        self, journal: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(forecasts, "PROCESS_LOOK_SECONDS", 0.02)
        process = ForecastProcess((*COMMAND, str(journal)))
        try:
            before = process(QUESTION, ignored).forecast
            assert process._process is not None
            process._process.send_signal(signal.SIGSTOP)
            with pytest.raises(NoForecast, match="was stopped by a signal"):
                process(QUESTION, ignored)
            assert process._process is None
            assert process(QUESTION, ignored).forecast == before
        finally:
            process.stop()

    def test_one_that_was_stopped_for_a_moment_answers(self, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(forecasts, "PROCESS_LOOK_SECONDS", 0.02)
        monkeypatch.setattr(forecasts, "STOPPED_LOOKS", 1_000_000)
        process = ForecastProcess((*COMMAND, str(journal)))
        try:
            process(QUESTION, ignored)
            child = process._process
            assert child is not None
            child.send_signal(signal.SIGSTOP)
            threading.Timer(0.3, child.send_signal, (signal.SIGCONT,)).start()
            assert not process(QUESTION, ignored).forecast.failure
            assert process._process is child
        finally:
            process.stop()

    def test_one_that_ends_at_once_is_told_of(self) -> None:
        with pytest.raises(NoForecast, match="status 3"):
            ForecastProcess(ENDS)(QUESTION, ignored)
        with pytest.raises(NoForecast, match="cannot be started"):
            ForecastProcess(("/nowhere/python",))(QUESTION, ignored)

    def test_after_its_end_none_is_started(self) -> None:
        process = ForecastProcess(COMMAND)
        process.stop()
        with pytest.raises(NoForecast, match="about to end"):
            process(QUESTION, ignored)

    def test_a_journal_that_is_gone_or_damaged_is_told_of_and_looked_for_again(self, journal: Path) -> None:
        process, file = ForecastProcess((*COMMAND, str(journal))), journal / FILE
        whole = file.read_bytes()
        try:
            file.write_bytes(b"no journal")
            assert "cannot be" in process(QUESTION, ignored).forecast.failure
            file.write_bytes(whole)
            assert process(QUESTION, ignored).jobs
        finally:
            process.stop()

    def test_a_policy_that_is_not_installed_any_more_is_told_of(self, journal: Path) -> None:
        with closing(Follower(journal, find)) as follower:
            follower.catch_up()
            state = replace(follower.state(0), policy="gone")
            assert "gone" in follower.expected(state).failure


def test_jobs_that_will_come_delay_those_that_wait_if_they_are_counted_on(tmp_path: Path) -> None:
    """Short jobs with an early due date came all the time: one without waits for more of them."""

    async def scenario() -> None:
        engine, clock = FakeEngine(), ManualClock(5)
        with closing(Journal(tmp_path)) as journal:
            live = Driver(journal, engine, clock, find, DriverSettings(policy="easy:order=due"))
            await live.start((node("a", slots=1),))
            for _ in range(20):
                due = clock.now() / SECOND + 20
                (job,) = (await live.submit("me", submission(new_job(name="short", estimate=9.0, due=due)))).jobs
                clock.advance(9)
                engine.end(job)
                await settled()
                clock.advance(1)
            await live.submit("me", submission(new_job(name="short", estimate=9.0, due=1e6)))
            await live.submit("me", submission(new_job(name="patient", estimate=9.0)))
            ends = []
            for arrivals in (False, True):
                with closing(Follower(tmp_path, find, arrivals=arrivals)) as follower:
                    follower.catch_up()
                    state = follower.state(clock.now())
                    ends.append(float(np.median(follower.futures(state).end[:, -1])))
            await live.stop()
        alone, among_others = ends
        assert alone == pytest.approx(18, abs=1)
        assert among_others > 40

    run(scenario)


def test_a_forecast_that_has_not_read_everything_says_how_far_it_is_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        made: list[ToldForecast] = []
        counted, is_free, asked = Counted(tmp_path), False, 0

        def ask(question: ForecastQuestion, told: Tell) -> ToldForecast:
            """The same forecast again until its process can read on."""
            nonlocal asked
            if not made or is_free:
                made.append(counted(question, told))
            told(made[-1])
            asked += 1
            return made[-1]

        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            assert (await live.forecasts.outlook(1, patience=LIMIT)).behind == 0
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            waiting = asyncio.create_task(live.forecasts.outlook(2, patience=LIMIT))
            await becomes(lambda: asked >= 3)
            found = await live.forecasts.outlook(2, patience=0.0)
            assert found.behind >= 1
            assert "does not include what happened last" in found.lack
            assert 1 in found.jobs, "what is known of others is told"
            assert 2 not in found.jobs
            is_free = True
            found = await waiting
            assert (found.behind, found.lack) == (0, "")
            assert 2 in found.jobs

    run(scenario)


def test_of_a_forecast_that_takes_very_long_no_other_one_is_promised(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path)) as live:
            live.forecasts._began = time.monotonic() - 95
            said = "a forecast has been made for 95 s and is not ready; if it hangs, another one is begun"
            assert live.forecasts._still_made() == said

    run(scenario)


def test_somebody_waits_for_a_forecast_only_if_the_last_one_does_not_do(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask, clock = Counted(tmp_path), ManualClock(5)
        async with driver(tmp_path, ask, clock=clock) as live:

            async def happens(seconds: int) -> None:
                clock.advance(seconds)
                await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
                del ask.awaited[:]

            await happens(0)
            await reports.explanation(live, 1)
            assert ask.awaited == [True], "it is the first"
            await happens(14)
            await reports.explanation(live, 1)
            assert ask.awaited == [False]
            await happens(0)
            await reports.explanation(live, 1, 10.0)
            assert ask.awaited == [True], "one that includes everything is wanted"
            await happens(0)
            await reports.explanation(live, 4)
            assert ask.awaited == [True], "the last one does not have this job"
            await happens(16)
            await reports.explanation(live, 1)
            assert ask.awaited == [True], "the last one is too old"

    run(scenario)


def test_who_begins_to_wait_for_a_forecast_in_hand_hurries_it_once_and_gets_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask, clock, hurried = Counted(tmp_path), ManualClock(5), list[int]()
        async with driver(tmp_path, ask, clock=clock, hurry=lambda: hurried.append(ask.made)) as live:

            async def asks(patience: float | None = None) -> asyncio.Task[wire.Explanation]:
                asked = asyncio.create_task(reports.explanation(live, 1, patience))
                await settled()
                return asked

            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            await reports.explanation(live, 1)
            clock.advance(1)
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.gate.clear()
            nobody = [await asks(), await asks()]
            assert hurried == [], "a young one is told to them"
            waits = [await asks(LIMIT), await asks(LIMIT)]
            assert hurried == [1]
            ask.gate.set()
            for one in (*nobody, *waits):
                assert (await one).behind == 0
            assert (ask.made, ask.awaited[-1], hurried) == (2, False, [1])
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.gate.clear()
            waits = [await asks(LIMIT), await asks(LIMIT)]
            ask.gate.set()
            for one in waits:
                await one
            assert (ask.made, ask.awaited[-1], hurried) == (3, True, [1]), "it was asked for by one who waits"

    run(scenario)


def test_a_forecast_that_hangs_delays_only_the_first_caller(tmp_path: Path) -> None:
    async def scenario() -> None:
        ask = Counted(tmp_path)
        async with driver(tmp_path, ask) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            ask.gate.clear()
            assert "ask again" in (await reports.explanation(live, 1, 0.05)).lack
            for patience in (0.05, 0.0):
                asked = asyncio.create_task(reports.explanation(live, 1, patience))
                await asyncio.sleep(0)
                assert asked.done()
                assert "ask again" in asked.result().lack
            ask.gate.set()

    run(scenario)


def test_where_a_forecast_takes_long_a_young_one_is_told_and_how_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        ask, clock = Counted(tmp_path), ManualClock(5)
        async with driver(tmp_path, ask, clock=clock) as live:
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            told = await reports.explanation(live, 1)
            assert (told.outlook, told.expected_at, told.behind) == ("on time", 5, 0)
            ask.gate.clear()
            for name in ("EXACT_PATIENCE", "PATIENCE_YOUNG"):
                monkeypatch.setattr(forecasts, name, 0.05)
            clock.advance(14)
            await live.submit("me", submission(new_job(estimate=9.0, due=99.0)))
            told = await reports.explanation(live, 1)
            assert (told.outlook, told.expected_at) == ("on time", 5)
            assert told.behind >= 1
            assert "ask again" in (await reports.explanation(live, 2)).lack, "of the new job nothing is known"
            clock.advance(2)
            assert "ask again" in (await reports.explanation(live, 1)).lack, "it is too old by now"
            ask.gate.set()
            while (told := await reports.explanation(live, 1)).expected_at != 19:
                await asyncio.sleep(0.01)
            assert told.behind == 0

    run(scenario)


@pytest.mark.parametrize("leap", [1, 10_000])
def test_events_that_a_stored_state_includes_are_leapt_over_and_nothing_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leap: int
) -> None:
    """Ten jobs ran twice as long as they were said to, which is learnt from their rows as from their events."""
    monkeypatch.setattr(follower_module, "LEAP", leap)
    taken: list[str] = []

    def counting(core: Scheduler, event: Event, body: bytes) -> list[Action]:
        taken.append(type(event).__name__)
        return replay(core, event, body)

    monkeypatch.setattr(follower_module, "replay", counting)

    async def scenario() -> None:
        async with driver(tmp_path, None) as live:
            with closing(Follower(tmp_path, find)) as follower:
                follower.catch_up()
                await live.submit("me", submission(new_job(name="long", estimate=30.0)))
                follower.catch_up()
                assert follower.chances(follower.state(live.now())).keys() == {1}
                engine = live._engine
                assert isinstance(engine, FakeEngine)
                engine.end(*next(iter(engine.running)))
                await becomes(lambda: not live.open)
                del taken[:]
                clock = await twice_as_long(live, jobs=10)
                live._ledger.store_snapshot()
                await live.submit("me", submission(new_job(estimate=30.0)))
                follower.catch_up()
                assert ("TaskEnded" in taken) == (leap > 1)
                follower.chances(follower.state(clock.now()))
                assert follower._chances.open_jobs == {12}, "what came of job 1 is known"
                with closing(Follower(tmp_path, find)) as anew:
                    anew.catch_up()
                    state = anew.state(clock.now())
                    assert follower.state(clock.now()) == state
                    job = state.jobs[-1].spec
                    known, same = (one.run_times(job, 0) for one in (follower, anew))
                    assert known.quantile(0.5) == same.quantile(0.5) == pytest.approx(60, rel=0.1)

    run(scenario)


def test_what_came_while_nobody_followed_is_learnt_of_bounds_that_were_told_before(tmp_path: Path) -> None:
    """Of job 1, which succeeds, of 2, which is cancelled, and of 3, which came after the stored state and goes on."""

    async def scenario() -> None:
        async with driver(tmp_path, None) as live:
            engine = live._engine
            assert isinstance(engine, FakeEngine)
            await live.submit("me", submission(new_job(tasks=2, estimate=30.0), new_job(estimate=30.0)))
            await becomes(lambda: len(engine.running) == 2)
            live._ledger.store_snapshot()
            await live.submit("me", submission(new_job(estimate=30.0)))
            with closing(Follower(tmp_path, find, remembers=True)) as follower:
                follower.catch_up(live.recorded)
                assert follower.chances(follower.state(live.now())).keys() == {1, 2, 3}
                assert follower._chances.open_jobs == {1, 2, 3}
                follower.remember()
            await live.cancel([2])
            for task in (0, 1):
                engine.end(1, task)
            await becomes(lambda: set(live.open) == {3})
            for at_once in (False, True):  # the events are read, or a newer stored state has them
                if at_once:
                    live._ledger.store_snapshot()
                with closing(Follower(tmp_path, find, remembers=True)) as follower:
                    assert (1 in follower.core.state.jobs) == (not at_once)
                    follower.catch_up(live.recorded)
                    follower.chances(follower.state(live.now()))
                    assert follower._chances.open_jobs == {3}
                    assert follower._chances._ends._told[0].came[0] == 0, "on a clock that stands still"

    run(scenario)


def test_one_that_has_taken_its_share_reads_on_a_few_events_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "ALWAYS_TAKEN_OVER", 3)
    now = 0.0
    pace = Pace(lambda: now, lambda: now)

    async def scenario() -> None:
        nonlocal now
        async with driver(tmp_path, None) as live:
            with closing(Follower(tmp_path, find, pace=pace)) as follower:
                follower.catch_up()
                before = follower.seq
                await twice_as_long(live, jobs=10)
                with pace.question():
                    now += 1.0  # it took a second of processor
                follower.catch_up(live.recorded)
                assert follower.seq == before + 3
                now += LONGEST_WAIT
                follower.catch_up(live.recorded)
                assert follower.seq == live.recorded

    run(scenario)


def test_advice_is_given_about_what_could_be_submitted_and_about_what_is_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, None) as live:
            wanted = wire.AdviceWanted(new_job(estimate=9.0))
            assert (await advising.on_new(live, wanted, "me")).lack == "this server makes no forecasts"
        process = ForecastProcess((*COMMAND, str(tmp_path)))
        try:
            async with driver(tmp_path, process, advise=process.advise) as live:
                await live.submit("me", submission(new_job(tasks=4, estimate=10.0, due=28.0)))
                told = await advising.on_new(live, wanted, "me")
                assert told.chance is not None
                assert told.due is not None
                assert told.due >= 25, "four tasks of about 10 s on two slots come before it"
                assert len(live.open) == 1
                told = await advising.on_open(live, 1, 0.9)
                assert told.chance is not None
                assert told.chance.on_time is not None
                assert told.chance.on_time < 0.9
                assert told.slots is not None
                await live.cancel([1])
                assert "has ended" in (await advising.on_open(live, 1, 0.9)).lack or live.open
        finally:
            process.stop()

    run(scenario)


@pytest.mark.parametrize("sure", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_no_advice_is_given_for_what_is_no_probability(tmp_path: Path, sure: float) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, None) as live:
            with pytest.raises(InvalidInput, match="above 0 and below 1"):
                await advising.on_new(live, wire.AdviceWanted(new_job(), sure), "me")

    run(scenario)


def test_no_advice_is_given_about_what_would_not_be_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, None) as live:
            for wrong, said in ((new_job(estimate=-1.0), "job.estimate"), (new_job(after=(7,)), "7")):
                with pytest.raises(HeadwayError, match=said):
                    await advising.on_new(live, wire.AdviceWanted(wrong), "me")
            with pytest.raises(NoSuchJob):
                await advising.on_open(live, 3, 0.9)

    run(scenario)


def test_advice_is_given_to_one_after_the_other_and_nobody_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks takes a thread that the server needs for other things: not more than one of them."""
    monkeypatch.setattr(forecasts, "PATIENCE_ADVICE", 0.2)
    gate, inside = threading.Event(), list[int]()

    def advise(question: AdviceQuestion) -> Advice:
        inside.append(1)
        gate.wait()
        return Advice(question.sure, 9)

    async def scenario() -> None:
        async with driver(tmp_path, Counted(tmp_path), advise=advise) as live:
            asked = [asyncio.create_task(live.forecasts.advice(0.9, 1)) for _ in range(6)]
            lacks = [(await one).lack for one in asked]
            assert sorted(map(lacks.count, set(lacks))) == [1, 5]
            assert {forecasts.OTHERS_ASK, forecasts.TOO_LONG} == set(lacks)
            assert len(inside) == 1
            monkeypatch.setattr(forecasts, "PATIENCE_ADVICE", LIMIT)
            gate.set()
            assert (await live.forecasts.advice(0.9, 1)).due == 9

    run(scenario)
