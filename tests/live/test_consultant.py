"""The driver and a decider that answers, late, wrongly or not at all; with a fake engine and a clock set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway import wire
from headway.advice.language import read_question, write_question
from headway.core.record import StateRecord
from headway.errors import InvalidInput, NoAdvice
from headway.live import reports
from headway.live.consultant import ANSWER_TIME, PERIOD_LEAST, TRIAL_PAUSE, TRIAL_PAUSE_MAX, WAKE_LEAST
from headway.live.driver import RETRY_AFTER, Driver
from headway.live.outside import OtherProcesses
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import (
    Advised,
    DeciderBack,
    DeciderChosen,
    DeciderFailed,
    Event,
    Incident,
    PeriodChosen,
    PolicyChosen,
)
from headway.model.instant import SECOND, to_seconds
from headway.model.plan import AllocationRecord, PlanRecord, Promise, Reason, Waiting
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.web.decider import decide

HERE, THERE = "http://here", "http://there"


@dataclass
class Decider:
    """Answers when the test says so. `questions` are the open ones, `cancelled` those that were given up."""

    questions: list[tuple[str, StateRecord, asyncio.Future[PlanRecord]]] = field(default_factory=list)
    explained: list[bool] = field(default_factory=list)

    async def __call__(self, url: str, snapshot: StateRecord, *, explain: bool = False) -> PlanRecord:
        answer: asyncio.Future[PlanRecord] = asyncio.get_running_loop().create_future()
        self.questions.append((url, snapshot, answer))
        self.explained.append(explain)
        return await answer

    @property
    def open(self) -> list[tuple[str, StateRecord, asyncio.Future[PlanRecord]]]:
        return [question for question in self.questions if not question[2].done()]

    def say(self, plan: PlanRecord | Exception | None = None) -> None:
        """Answer the one open question: with this, or like the policy that it names."""
        ((_, snapshot, answer),) = self.open
        if isinstance(plan, Exception):
            answer.set_exception(plan)
            return
        if plan is None:
            question = read_question(write_question(snapshot, policy=snapshot.policy, explain=self.explained[-1]))
            plan = PlanRecord.of(decide(question, find, ""))
        answer.set_result(plan)


@dataclass
class Rig:
    """A running driver, with everything around it."""

    driver: Driver
    engine: FakeEngine
    clock: ManualClock
    journal: Journal
    decider: Decider

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    async def submit(self, *jobs: wire.NewJob) -> None:
        await self.driver.submit("me", submission(*jobs))
        await self.settle()

    async def say(self, plan: PlanRecord | Exception | None = None) -> None:
        self.decider.say(plan)
        await self.settle()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()

    async def end(self, job: int, task: int = 0) -> None:
        self.engine.end(job, task)
        await self.settle()

    @property
    def running(self) -> list[tuple[int, int]]:
        return sorted(key[:2] for key in self.engine.running)

    def events(self, *kinds: type[Event]) -> list[Event]:
        return [event for _, event in self.journal.events() if isinstance(event, kinds)]


@asynccontextmanager
async def rig(
    folder: Path,
    *,
    engine: FakeEngine | None = None,
    at: float = 0,
    crash: bool = False,
    **settings: Any,
) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal:
        clock, engine, decider = ManualClock(at), engine or FakeEngine(), Decider()
        driver = Driver(
            journal,
            engine,
            clock,
            find,
            DriverSettings(**{"policy": "fcfs", **settings}),
            processes=OtherProcesses(asking=decider),
        )
        await driver.start((node("a", slots=2),))
        live = Rig(driver, engine, clock, journal, decider)
        await live.settle()
        try:
            yield live
            driver.core.check()
        finally:
            if crash:
                driver._consultant.put_down()
            else:
                await driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def hold(job: int, *slots: int) -> PlanRecord:
    return PlanRecord((AllocationRecord(job, slots),))


async def quiet(live: Rig) -> None:
    """Wait until the decider has answered the question about the empty cluster."""
    await live.say(PlanRecord())
    assert live.decider.open == []


def test_plans_come_from_the_decider(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, policy="fcfs") as live:
            await live.driver.choose(decider=THERE)
            await live.settle()
            await quiet(live)
            await live.submit(new_job(tasks=3))
            ((url, snapshot, _),) = live.decider.open
            assert (url, snapshot.policy, [job.spec.id for job in snapshot.jobs]) == (THERE, "fcfs", [1])
            assert live.running == []
            await live.say(hold(1, 1))
            assert live.running == [(1, 0)]
            await live.end(1)
            assert live.running == [(1, 1)], "what is allocated goes on without a question"
            assert live.decider.open == []
            assert [event.question for event in live.events(Advised)] == [1, 2]  # type: ignore[union-attr]
            assert reports.deciding(live.driver) == wire.PolicyText("fcfs", THERE, False, None)

    run(scenario)


async def chosen(live: Rig, **choice: Any) -> None:
    """Choose a decider that makes empty plans at first."""
    await live.driver.choose(decider=THERE, **choice)
    await live.settle()
    await quiet(live)


def test_while_it_thinks_the_last_plan_holds_and_its_late_answer_is_refused_in_part(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await chosen(live)
            await live.submit(new_job(tasks=4), new_job())
            await live.say(hold(1, 0))
            await live.submit(new_job())
            assert len(live.decider.open) == 1
            await live.end(1, 0)
            await live.driver.cancel([2])
            await live.settle()
            assert live.running == [(1, 1)]
            plan = PlanRecord(
                (AllocationRecord(2, (1,)), AllocationRecord(3, (1,)), AllocationRecord(99, (0,))),
                (Promise(2, 5, 1), Promise(98, 7, 1)),
            )
            await live.say(plan)
            assert live.running == [(1, 1), (3, 0)]
            assert dict(live.driver.core.refusals) == {"job_unknown": 2}
            assert len(live.decider.open) == 1, "what happened meanwhile calls for the next question"
            incident = Incident(0, "advice_refused", THERE, "parts of its plan contradict the state: job_unknown 2")
            assert live.events(Incident) == [incident]
            await live.say(hold(97, 0))
            await live.submit(new_job())
            await live.say(hold(1, 0, 1))
            assert live.driver.core.refusals["slot_allocated"] + live.driver.core.refusals["slot_busy"] == 1
            assert live.events(Incident) == [incident], "said once, until a plan is accepted whole"
            await live.submit(new_job())
            await live.say(PlanRecord())
            await live.submit(new_job())
            await live.say(hold(97, 0))
            assert live.events(Incident) == [
                incident,
                Incident(0, "advice_refused", THERE, "parts of its plan contradict the state: job_unknown 1"),
            ]

    run(scenario)


@pytest.mark.parametrize(
    ("failure", "detail"),
    [
        (None, "no answer within 2 s"),
        (NoAdvice("its answer is no plan: JSON is malformed"), "its answer is no plan: JSON is malformed"),
        (InvalidInput("decider", "x", "a URL"), "decider is 'x'; allowed: a URL"),
        (ZeroDivisionError("a mistake of ours"), "ZeroDivisionError: a mistake of ours"),
    ],
)
def test_when_it_fails_the_policy_decides_until_it_is_back(
    tmp_path: Path, failure: Exception | None, detail: str
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await chosen(live)
            await live.submit(new_job(tasks=3))
            late = live.decider.open[0][2]
            if failure is None:
                await live.advance(to_seconds(ANSWER_TIME) - 0.001)
                assert live.running == []
                await live.advance(0.001)
                assert late.cancelled(), "nobody listens any more"
            else:
                await live.say(failure)
            assert live.running == [(1, 0), (1, 1)]
            now = live.clock.now()
            assert live.events(DeciderFailed, Incident) == [
                DeciderFailed(now, 2, detail),
                Incident(now, "decider_failed", THERE, detail),
            ]
            assert reports.deciding(live.driver).decider_failed
            for pause in (1, 2, 4):  # it is asked on trial, more and more rarely
                await live.advance(pause - 0.001)
                assert live.decider.open == []
                await live.advance(0.001)
                await live.say(NoAdvice("still gone"))
            assert len(live.events(DeciderFailed, Incident)) == 2
            await live.advance(8)
            await live.say(hold(1, 0))
            now = live.clock.now()
            assert live.events(DeciderBack) == [DeciderBack(now)]
            assert live.events(Incident)[1:] == [Incident(now, "decider_back", THERE, "it answers again")]
            assert len(live.decider.open) == 1, "and is asked in earnest"
            await live.say(PlanRecord())
            assert not reports.deciding(live.driver).decider_failed
            assert live.running == [(1, 0), (1, 1)]

    run(scenario)


def test_pauses_between_questions_on_trial_have_a_limit_and_begin_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.driver.choose(decider=THERE)
            await live.settle()
            await live.say(NoAdvice("gone"))
            for _ in range(8):
                await live.advance(to_seconds(TRIAL_PAUSE_MAX))
                await live.say(NoAdvice("gone"))
            await live.advance(to_seconds(TRIAL_PAUSE_MAX) - 1)
            assert live.decider.open == []
            await live.advance(1)
            await live.say(PlanRecord())
            await live.say(NoAdvice("answers on trial alone"))
            await live.advance(to_seconds(TRIAL_PAUSE))
            assert live.decider.open == [], "an answer on trial does not make it trusted"
            await live.advance(to_seconds(TRIAL_PAUSE_MAX))
            await live.say(PlanRecord())
            await live.say(PlanRecord())
            await live.submit(new_job())
            await live.say(NoAdvice("gone again"))
            await live.advance(to_seconds(TRIAL_PAUSE))
            assert len(live.decider.open) == 1

    run(scenario)


def test_policy_decider_and_period_change_while_jobs_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await chosen(live)
            await live.submit(new_job(tasks=4))
            await live.say(hold(1, 0))
            await live.submit(new_job())
            old = live.decider.open[0][2]
            await live.driver.choose("sjf")
            await live.settle()
            assert old.cancelled()
            ((url, snapshot, _),) = live.decider.open
            assert (url, snapshot.policy) == (THERE, "sjf")
            await live.driver.choose(decider=HERE, period=5 * SECOND)
            await live.settle()
            ((url, snapshot, _),) = live.decider.open
            assert (url, snapshot.period) == (HERE, 5 * SECOND)
            assert live.running == [(1, 0)]
            await live.say(hold(1, 0, 1))
            await live.advance(4.9)
            assert live.decider.open == []
            await live.advance(0.1)
            assert len(live.decider.open) == 1, "a round is due after the period"
            await live.driver.choose(decider="", period=0)
            await live.settle()
            assert live.decider.open == []
            assert reports.deciding(live.driver) == wire.PolicyText("sjf")
            assert live.running == [(1, 0), (1, 1)]
            for task in range(4):
                await live.end(1, task)
            await live.end(2)
            assert live.driver.open == {}
            assert live.driver.core.ignored == 0
            kinds = [type(event) for event in live.events(DeciderChosen, PeriodChosen, PolicyChosen)]
            assert kinds == [DeciderChosen, PolicyChosen, DeciderChosen, PeriodChosen, DeciderChosen, PeriodChosen]

    run(scenario)


@pytest.mark.parametrize("wake", [0, 3 * SECOND, 3 * SECOND + 1])
def test_a_decider_that_always_wants_to_be_asked_again_is_asked_no_more_than_so_often(
    tmp_path: Path, wake: int
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, at=3) as live:
            await chosen(live)
            await live.submit(new_job())
            await live.say(PlanRecord(wake=wake))
            await live.advance(to_seconds(WAKE_LEAST) - 0.001)
            assert live.decider.open == []
            await live.advance(0.001)
            assert len(live.decider.open) == 1
            await live.say(hold(1, 0))
            await live.end(1)

    run(scenario)


@pytest.mark.parametrize(
    "choice",
    [
        *({"policy": "esy"}, {"decider": "nowhere"}, {"policy": "sjf", "decider": "x:y"}),
        {"policy": "sjf", "period": PERIOD_LEAST - 1},
    ],
)
def test_a_choice_that_cannot_be_changes_nothing(tmp_path: Path, choice: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            before = live.driver.recorded
            with pytest.raises(InvalidInput):
                await live.driver.choose(**choice)
            assert live.driver.recorded == before

    run(scenario)


def test_an_open_question_is_asked_again_after_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, crash=True) as live:
            await chosen(live)
            await live.submit(new_job(tasks=2))
            assert live.driver.core.question == 2
        async with rig(tmp_path, at=9) as live:
            assert live.driver.core.question == 2
            ((url, snapshot, _),) = live.decider.open
            assert (url, snapshot.now) == (THERE, 9 * SECOND)
            await live.say(hold(1, 0, 1))
            assert live.running == [(1, 0), (1, 1)]

    run(scenario)


def test_a_decider_that_has_failed_is_tried_again_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.driver.choose(decider=THERE)
            await live.settle()
            await live.say(NoAdvice("gone"))
        async with rig(tmp_path, at=9) as live:
            assert reports.deciding(live.driver).decider_failed
            await live.submit(new_job())
            assert live.running == [(1, 0)]
            await live.advance(to_seconds(TRIAL_PAUSE))
            await live.say()
            assert not reports.deciding(live.driver).decider_failed

    run(scenario)


def test_a_decider_named_at_the_start_is_chosen_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        for start in range(3):
            async with rig(tmp_path, at=start, decider=HERE, period=SECOND) as live:
                if start == 0:
                    await quiet(live)
                assert reports.deciding(live.driver) == wire.PolicyText("fcfs", HERE, False, 1.0)
                assert len(live.events(DeciderChosen, PeriodChosen)) == 2
        async with rig(tmp_path, at=9) as live:
            assert reports.deciding(live.driver).decider == HERE
        async with rig(tmp_path, at=9, decider="", period=0) as live:
            assert reports.deciding(live.driver) == wire.PolicyText("fcfs")

    run(scenario)


def test_an_answer_that_comes_while_the_disk_is_full_is_not_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await chosen(live)
            await live.submit(new_job(tasks=2))
            live.journal.limit_pages(1)
            large = tuple(Promise(99, number, 1) for number in range(20_000))
            await live.say(PlanRecord((AllocationRecord(1, (0, 1)),), large))
            for _ in range(3):
                await live.advance(to_seconds(RETRY_AFTER))
            assert live.driver.full is not None
            assert (live.running, live.driver.core.question) == ([], 2)
            live.journal.limit_pages(1 << 20)
            for _ in range(3):
                await live.advance(to_seconds(RETRY_AFTER))
            assert live.driver.full is None
            assert live.running == [(1, 0), (1, 1)]

    run(scenario)


def test_the_decider_says_why_a_job_waits_and_the_policy_where_it_does_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await chosen(live)
            await live.submit(new_job(), new_job(tasks=2))
            await live.say(hold(1, 0))

            async def why(plan: PlanRecord | Exception | None) -> wire.Explanation:
                asking = asyncio.create_task(reports.explanation(live.driver, 2))
                await live.settle()
                assert live.decider.explained[-1]
                await live.say(plan)
                return await asking

            said = await why(PlanRecord(waiting=(Waiting(2, Reason.NO_SHARE, 77),)))
            assert (said.reason, said.start, said.by, said.note) == ("NO_SHARE", 77e-6, THERE, "")
            said = await why(NoAdvice("it is shy"))
            assert (said.reason, said.by) == (live.driver.core.explain(2).reason.name, "fcfs")
            assert said.note == f"the decider at {THERE} does not say: it is shy"
            asking = asyncio.create_task(reports.explanation(live.driver, 2))
            await live.settle()
            await live.driver.cancel([2])
            await live.advance(to_seconds(ANSWER_TIME))
            assert (await asking).reason == "ENDED"
            assert (await reports.explanation(live.driver, 1)).by == "", "no policy is needed to see that it runs"

    run(scenario)


def test_it_can_be_stopped_while_the_decider_thinks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            await live.driver.choose(decider=THERE)
            await live.settle()
            waiting = live.decider.open[0][2]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.cancelled()
        assert live.engine.stopped

    run(scenario)
