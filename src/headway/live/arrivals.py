"""What has arrived, as events for the core. What the core cannot handle is set apart, so that the rest continues.

An error in the core may have left it half changed. So the core is loaded again from the journal, as it was before this
turn, and the rest is handled without the cause: a request or a submission is refused, a report is replaced by one that
the core can handle. Each time something is removed or replaced once, so this comes to an end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from headway.engines import base
from headway.errors import CannotGoOn, HeadwayError
from headway.live.clock import Step
from headway.live.from_engine import FromEngine
from headway.live.intake import CheckedSubmission
from headway.live.ledger import Ledger
from headway.live.troubles import Troubles, said
from headway.live.turn import Turn, TurnRequest, refuse
from headway.model.events import ClockStepped, Event, Incident, NodeJoined, NodeLeft, NodeMeasured, NodeResized
from headway.model.instant import Instant
from headway.model.job import JobId
from headway.model.outcome import Outcome

log = logging.getLogger(__name__)

CHOKES_MAX = 3
"""A task whose ends could not be handled this often is not tried again: it has failed."""

_STANDS_IN = "how it ended could not be taken in "

WAKES_MAX = 3
"""Turns in a row in which the core may fail to be woken."""

Thing = base.Report | TurnRequest | CheckedSubmission | Step
Measured = Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class Came:
    """What has come since the last turn.

    Attributes:
        steps: of the clock; they come before everything reported since.
        measured: what was measured on nodes, by their names.
        wakes: whether the core is woken if it wants to be.
    """

    reports: list[base.Report] = field(default_factory=list)
    requests: list[TurnRequest] = field(default_factory=list)
    submissions: list[CheckedSubmission] = field(default_factory=list)
    measured: Measured = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    wakes: bool = True

    def __bool__(self) -> bool:
        """Whether there is anything besides measurements."""
        return bool(self.steps or self.reports or self.requests or self.submissions)

    @property
    def asked(self) -> list[TurnRequest | CheckedSubmission]:
        """All requests that wait for an answer."""
        return [*self.requests, *self.submissions]

    def things(self) -> list[Thing]:
        """Everything but measurements, in the order in which it is handled."""
        return [*self.steps, *self.reports, *self.requests, *self.submissions]

    @classmethod
    def of(cls, thing: Thing) -> Came:
        """Only this one thing."""
        if isinstance(thing, CheckedSubmission):
            return cls(submissions=[thing])
        if isinstance(thing, Step):
            return cls(steps=[thing])
        return cls(requests=[thing]) if isinstance(thing, TurnRequest) else cls(reports=[thing])


class _Choked(Exception):
    """The core raised an error while handling this."""

    def __init__(self, thing: Thing | Measured | None, error: Exception) -> None:
        super().__init__()
        self.thing = thing
        self.error = error


class TurnMaker:
    """Makes turns: lets the core handle what came.

    Args:
        ledger: feeds the core.
        from_engine: turns reports into events.
        troubles: receives what is set apart.
        told: the number of the last message that is durable.
    """

    def __init__(self, ledger: Ledger, from_engine: FromEngine, troubles: Troubles, told: Callable[[], int]) -> None:
        self._ledger = ledger
        self._from_engine = from_engine
        self._troubles = troubles
        self._told = told
        self._not_woken = 0
        self._choked = Counter[tuple[JobId, int]]()

    def take(self, came: Came, now: Callable[[], Instant]) -> Generator[None, None, Turn]:
        """Let the core handle everything that came, as of now; in parts, if a large submission is in it.

        What the core cannot handle is removed from `came`. Returns the turn.

        Raises:
            CannotGoOn: a promise would be broken without what it cannot handle; or the journal cannot be read.
        """
        while True:
            turn = Turn(now())
            try:
                yield from self._take_all(turn, came)
            except _Choked as choked:
                self.reload()
                self.set_apart(came, choked.thing, choked.error)
            else:
                return turn

    def durable(self, came: Came) -> None:
        """What came is durable."""
        if came.wakes:
            self._not_woken = 0

    def reload(self) -> None:
        """Load the core again, as the journal has it.

        Raises:
            CannotGoOn: the journal cannot be read.
        """
        try:
            self._ledger.load()
        except Exception as error:
            raise CannotGoOn("what was accepted is kept", f"the state cannot be loaded: {said(error)}") from error

    def _take_all(self, turn: Turn, came: Came) -> Generator[None, None, None]:
        ledger = self._ledger
        for step in came.steps:
            try:
                ledger.feed(turn, ClockStepped(turn.now, step.by))
                ledger.feed(turn, Incident(turn.now, "clock_stepped", "clock", step.detail))
            except Exception as error:
                raise _Choked(step, error) from error
        if came.measured and (ledger.core.state.jobs or came.submissions):
            try:
                for node in sorted(came.measured.keys() & ledger.core.state.nodes.keys()):
                    ledger.feed(turn, NodeMeasured(turn.now, node, tuple(sorted(came.measured[node].items()))))
            except Exception as error:
                raise _Choked(came.measured, error) from error
        for report in came.reports:
            try:
                self._from_engine.take(turn, report)
            except Exception as error:
                raise _Choked(report, error) from error
        for request in tuple(came.requests):
            try:
                events = request.events_of(turn.now)
            except Exception as error:  # noqa: BLE001  # it is the caller's, and nothing was done yet
                self.set_apart(came, request, error)
                continue
            try:
                self._take_request(turn, request, events)
            except Exception as error:
                raise _Choked(request, error) from error
        for checked in tuple(came.submissions):
            try:
                ledger.check(turn, checked)
            except HeadwayError as error:  # what was looked at has changed since
                came.submissions.remove(checked)
                refuse((checked,), error)
                continue
            try:
                turn.submitted.append((checked.answer, (yield from ledger.accept(turn, checked))))
            except Exception as error:
                raise _Choked(checked, error) from error
        if came.wakes:
            try:
                ledger.wake(turn)
            except Exception as error:
                raise _Choked(None, error) from error

    def _take_request(self, turn: Turn, request: TurnRequest, events: Sequence[Event]) -> None:
        ledger = self._ledger
        ignored = ledger.core.ignored
        for event in events:
            ledger.feed(turn, event)
            if isinstance(event, NodeResized):
                turn.resized.append(event)
            elif isinstance(event, NodeJoined):
                self._from_engine.joined(event.node.name)
            elif isinstance(event, NodeLeft):
                self._from_engine.end_gangs(turn, event.name, Outcome.KILLED)
        turn.answers.append((request.answer, len(events) - (ledger.core.ignored - ignored)))
        turn.batch.acknowledged += [(*tasks, self._told(), turn.now) for tasks in request.acknowledged]

    def set_apart(self, came: Came, thing: Thing | Measured | None, error: Exception) -> None:
        """Remove from what came what the core cannot handle, or what cannot be made durable; None: the time.

        Raises:
            CannotGoOn: a promise would be broken without it.
        """
        incident = self._troubles.incident
        if thing is None:
            self._not_woken += 1
            came.wakes = False
            if self._not_woken >= WAKES_MAX:
                raise CannotGoOn("what is due happens: releases, leases, rounds", said(error)) from error
            incident("not_taken_in", "the time", error, "the core is woken again")
        elif isinstance(thing, Mapping):
            came.measured = {}
            incident("not_taken_in", "what was measured", error, "it is forgotten")
        elif isinstance(thing, Step):
            came.steps.remove(thing)
            incident("not_taken_in", "a step of the clock", error, "it is forgotten")
        elif isinstance(thing, TurnRequest):
            came.requests.remove(thing)
            refuse((thing,), error)
            incident("not_taken_in", "a request", error, "it is refused, nothing of it was done")
        elif isinstance(thing, CheckedSubmission):
            came.submissions.remove(thing)
            refuse((thing,), error)
            incident(
                "not_taken_in", f"a submission of {thing.key[0]}", error, "it is refused, nothing of it was accepted"
            )
        else:
            self._replace(came, thing, error)

    def _replace(self, came: Came, report: base.Report, error: Exception) -> None:
        """What replaces a report that the core cannot handle."""
        place = next(place for place, other in enumerate(came.reports) if other is report)
        subject, then = type(report).__name__, "it is forgotten"
        match report:
            case base.Ended():
                subject = f"the end of job {report.job}, task {report.task}, attempt {report.attempt}"
                is_stand_in = report.ending.detail.startswith(_STANDS_IN)
                if report.ending.outcome is Outcome.LOST or is_stand_in:
                    why = f"{subject} cannot be taken in: {said(error)}"
                    raise CannotGoOn("every accepted task ends", why) from error
                self._choked[report.job, report.task] += 1
                is_redone = self._choked[report.job, report.task] < CHOKES_MAX
                detail = f"{_STANDS_IN}({report.ending.outcome.value}): {said(error)}"
                ending = base.Ending(Outcome.LOST if is_redone else Outcome.REFUSED, detail=detail)
                came.reports[place] = base.Ended(report.job, report.task, report.attempt, ending)
                then = "the attempt counts as lost and is tried again" if is_redone else "it counts as refused"
                self._troubles.incident("not_taken_in", subject, error, then)
                return
            case base.NodeLost() | base.NodeGone():
                why = f"that node {report.node!r} is lost cannot be taken in: {said(error)}"
                raise CannotGoOn("what runs on a lost node is done again", why) from error
            case base.Noticed():  # one incident less; reporting it would be another one
                del came.reports[place]
                log.error("an incident cannot be recorded: %r", report, exc_info=error)
                return
            case base.NodeBack():
                subject, then = f"node {report.node} is back", "nothing starts there until it is lost and back again"
            case base.NodeFound():
                subject, then = f"node {report.node.name} is found", "it is not used until it is found again"
            case base.Started() | base.Saved() | base.Stalled() | base.Pending() | base.TierRefused():
                subject = f"{type(report).__name__} of job {report.job}, task {report.task}, attempt {report.attempt}"
            case base.Heard():
                subject = "signs of life"
        del came.reports[place]
        self._troubles.incident("not_taken_in", subject, error, then)
