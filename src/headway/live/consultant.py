"""Asks the decider for the core, and tells the driver the outcome.

It does what the core's state requires, and checks that again after every turn of the driver. While a question is open,
it asks that question. While the decider has failed, it asks trial questions, less and less often, until there is a
usable answer. Otherwise it does nothing. So a start after a crash, another policy and another decider need no rules of
their own. Late answers are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from headway import wire
from headway.advice.asking import address_of, ask
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput, NoAdvice, in_short
from headway.live.clock import Clock, sleep
from headway.live.store.journal import NotNow
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
from headway.model.instant import SECOND, Duration, Instant, to_seconds
from headway.model.job import JobId
from headway.model.plan import PlanRecord, Reason, Waiting
from headway.model.policy import PolicySource

log = logging.getLogger(__name__)

ANSWER_TIME: Final[Duration] = 2 * SECOND
"""A decider that has not answered after this time has failed."""

TRIAL_PAUSE: Final[Duration] = SECOND
"""Time between its failure and the first trial question."""

TRIAL_PAUSE_MAX: Final[Duration] = 60 * SECOND
"""Pauses double from one trial question to the next, up to this."""


WAKE_LEAST: Final[Duration] = SECOND // 20
"""A decider that asks to be asked again, `wake`, is asked no sooner than this after its question."""

PERIOD_LEAST: Final[Duration] = SECOND // 10
"""The least time between rounds that have no other reason."""


class Asking(Protocol):
    """Asks the decider at a URL, see `headway.advice.asking.ask`."""

    def __call__(self, url: str, snapshot: StateRecord, *, explain: bool = False) -> Awaitable[PlanRecord]: ...


Tell = Callable[[Callable[[Instant], Sequence[Event]]], Awaitable[int]]
"""Makes events durable at the instant at which they are handled, see `Driver.request`."""


def check_choice(choice: wire.PolicyChoice, policies: PolicySource) -> None:
    """Check that the chosen policy and decider can be used.

    Raises:
        InvalidInput: they cannot.
    """
    if choice.policy:
        policies(choice.policy)
    if choice.decider:
        address_of(choice.decider)
    check_period(wire.optional_microseconds(choice.period, "period"))


def check_period(period: Duration | None) -> None:
    """Check that rounds are not requested too often.

    Raises:
        InvalidInput: they are.
    """
    if period and period < PERIOD_LEAST:
        raise InvalidInput("period", to_seconds(period), f"{to_seconds(PERIOD_LEAST):g} seconds or more, or none")


def chosen(choice: wire.PolicyChoice, now: Instant) -> list[Event]:
    """The events for a choice of policy, decider or period."""
    events: list[Event] = []
    if choice.decider is not None:
        events.append(DeciderChosen(now, choice.decider))
    if choice.period is not None:
        events.append(PeriodChosen(now, wire.microseconds(choice.period, "period") or None))
    if choice.policy:
        events.append(PolicyChosen(now, choice.policy))
    return events


def failed(url: str, question: int, detail: str, now: Instant) -> list[Event]:
    """The events for a question without an answer."""
    return [DeciderFailed(now, question, detail), Incident(now, "decider_failed", url, detail)]


def is_new(choice: Event, core: Scheduler) -> bool:
    """Whether the choice changes anything."""
    match choice:
        case PolicyChosen(policy=policy):
            return policy != core.policy
        case DeciderChosen(url=url):
            return url != core.decider
        case PeriodChosen(period=period):
            return period != core.period
    return True


class Consultant:
    """Asks the decider, and tries again after it has failed.

    Args:
        core: the current scheduler.
        clock: the driver's; it limits the time, and times the pauses.
        tell: handles events.
        incident: records what an operator should know, see `Driver.incident`.
        answer_time: how long an answer may take, > 0.
        asking: how a decider is asked.
    """

    def __init__(
        self,
        core: Callable[[], Scheduler],
        clock: Clock,
        tell: Tell,
        incident: Callable[[str, str, str], None],
        *,
        answer_time: Duration = ANSWER_TIME,
        asking: Asking = ask,
    ) -> None:
        self._core = core
        self._clock = clock
        self._tell = tell
        self._incident = incident
        self._answer_time = answer_time
        self._asking = asking
        self._url = ""
        self._pause = TRIAL_PAUSE
        self._matter: tuple[str, int | None] | None = None
        self._refused = Counter[str]()
        self._is_known = False
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Do from now on what the state requires; the snapshot of a question is taken now."""
        core = self._core()
        if core.decider != self._url:
            self._url, self._pause = core.decider, TRIAL_PAUSE
        called = bool(core.decider) and (core.question is not None or core.decider_failed)
        matter = (core.decider, core.question) if called else None
        if matter == self._matter:
            return
        self._look_at_refusals(core)
        self.put_down()
        self._matter = matter
        if matter is not None and core.question is not None:
            self._task = asyncio.create_task(self._consult(core.decider, core.question, core.dump()))
        elif matter is not None:
            self._task = asyncio.create_task(self._try_again(core.decider))

    def _look_at_refusals(self, core: Scheduler) -> None:
        """Report that parts of the plan that ended the last question were refused; once, until a whole plan is
        accepted.
        """
        if self._matter is not None and self._matter[1] is not None and not core.decider_failed:
            refused = core.refusals - self._refused
            if refused and not self._is_known:
                parts = ", ".join(f"{rule} {count}" for rule, count in sorted(refused.items()))
                self._incident("advice_refused", self._matter[0], f"parts of its plan contradict the state: {parts}")
            self._is_known = bool(refused)
        self._refused = core.refusals.copy()

    def put_down(self) -> None:
        """Wait for no answer any more; `follow` resumes."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._matter = None

    async def explain(self, job: JobId) -> tuple[Waiting, str, str]:
        """Why a job of the core waits; who says so; and why that is not the decider, or not known.

        Raises:
            KeyError: it is not in the core, or no longer.
        """
        core, note = self._core(), ""
        known = core.known_reason(job)
        if known is not None:
            return known, "", ""
        if core.decider and core.decider_failed:
            note = f"the decider at {core.decider} has failed"
        elif core.decider:
            try:
                plan = await self._answer(core.decider, core.dump(), explain=True)
                return self._core().reason_in(plan.plan(), job), core.decider, ""
            except NoAdvice as silent:
                note = f"the decider at {core.decider} does not say: {silent}"
        core = self._core()
        if job not in core.state.jobs:
            raise KeyError(job)
        try:
            return core.explain(job), core.policy, note
        except Exception as raised:  # noqa: BLE001  # of whatever policy: then it starts nothing either
            note = f"the policy raised {in_short(repr(raised))}, and starts nothing until it gives a plan"
            return Waiting(job, Reason.NOT_CONSIDERED), core.policy, note

    async def _consult(self, url: str, question: int, snapshot: StateRecord) -> None:
        """Ask an open question, and report the answer, or that there is none."""
        try:
            plan = await self._answer(url, snapshot)
        except NoAdvice as failure:
            detail = in_short(str(failure))
            log.warning("the decider at %s failed, the policy decides: %s", url, detail)
            await self._told(partial(failed, url, question, detail))
        else:
            self._pause = TRIAL_PAUSE
            if plan.wake is not None:
                plan = replace(plan, wake=max(plan.wake, snapshot.now + WAKE_LEAST))
            refused = await self._told(lambda now: [Advised(now, question, plan)])
            if refused is not None:
                await self._told(partial(failed, url, question, in_short(f"its plan cannot be taken in: {refused!r}")))

    async def _try_again(self, url: str) -> None:
        """Ask trial questions until there is a usable answer; then the decider is back."""
        while True:
            await sleep(self._clock, self._pause)
            self._pause = min(2 * self._pause, TRIAL_PAUSE_MAX)
            try:
                await self._answer(url, self._core().dump())
            except NoAdvice as failure:
                log.info("the decider at %s has not come back: %s", url, in_short(str(failure)))
            else:
                break
        log.info("the decider at %s is back", url)
        await self._told(lambda now: [DeciderBack(now), Incident(now, "decider_back", url, "it answers again")])

    async def _answer(self, url: str, snapshot: StateRecord, *, explain: bool = False) -> PlanRecord:
        """The decider's plan, within the time that it may take.

        Raises:
            NoAdvice: there is none.
        """

        async def asked() -> PlanRecord:
            return await self._asking(url, snapshot, explain=explain)

        def give_up() -> None:
            asking.cancel()

        asking = asyncio.create_task(asked())
        call_off = self._clock.call_at(self._clock.now() + self._answer_time, give_up)
        try:
            await asyncio.wait((asking,))
        finally:
            call_off()
            asking.cancel()
        if asking.cancelled():
            raise NoAdvice(f"no answer within {to_seconds(self._answer_time):g} s")
        error = asking.exception()
        if error is None:
            return asking.result()
        if not isinstance(error, HeadwayError):  # whatever it is, the policy must make the plan
            log.error("asking the decider at %s failed", url, exc_info=error)
            raise NoAdvice(f"{type(error).__name__}: {error}") from error
        raise NoAdvice(str(error.args[0]), error.hint) from error

    async def _told(self, events: Callable[[Instant], Sequence[Event]]) -> Exception | None:
        """Have events handled, waiting for room on the disk if necessary; not if the server is about to stop.

        Returns:
            What was wrong with them, if the core could not handle them.
        """
        while True:
            try:
                await self._tell(events)
                return None
            except NotNow:
                await sleep(self._clock, SECOND)
            except HeadwayError as ending:
                log.info("what came of asking the decider is not taken in: %s", ending.args[0])
                return None
            except Exception as error:  # noqa: BLE001  # the core choked on them: nothing of it was done
                return error
