"""What callers ask of a turn of the driver, and what a turn consists of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from headway import wire
from headway.engines import base
from headway.live.intake import CheckedSubmission
from headway.live.ledger import Entry
from headway.model.events import Asked, Event, NodeResized
from headway.model.instant import Instant
from headway.model.job import JobId

T = TypeVar("T")


class TurnRequest(NamedTuple):
    """What a caller wants: events, tasks (job, first, last) whose results it has, and where it is answered.

    `by` is the caller's name; empty: the server itself wants it.
    """

    events: Callable[[Instant], Sequence[Event]]
    acknowledged: Sequence[tuple[JobId, int, int]]
    answer: asyncio.Future[int]
    by: str = ""

    def events_of(self, now: Instant) -> Sequence[Event]:
        """The events as of now, each with its caller."""
        events = self.events(now)
        if not self.by:
            return events
        return [replace(event, by=self.by) if isinstance(event, Asked) else event for event in events]


@dataclass(slots=True)
class Turn(Entry):
    """One turn of the driver: what becomes durable, and what is done afterwards.

    Attributes:
        acknowledged: attempts whose end the engine may forget.
        spent: files that are no longer needed.
        resized: nodes whose size has changed.
        gone: attempts that had a member on a node that no longer exists.
        answers: where requests for events are answered, and how many of their events counted.
        submitted: where submissions are answered, and the answer.
    """

    acknowledged: list[base.AttemptKey] = field(default_factory=list)
    spent: list[str] = field(default_factory=list)
    resized: list[NodeResized] = field(default_factory=list)
    gone: list[base.AttemptKey] = field(default_factory=list)
    answers: list[tuple[asyncio.Future[int], int]] = field(default_factory=list)
    submitted: list[tuple[asyncio.Future[wire.Submitted], wire.Submitted]] = field(default_factory=list)


def answer(future: asyncio.Future[T], value: T) -> None:
    """Answer a caller, if it still waits."""
    if not future.done():
        future.set_result(value)


def refuse(wanted: Iterable[TurnRequest | CheckedSubmission], error: Exception) -> None:
    """Tell all callers that wait why nothing was done."""
    for each in wanted:
        if not each.answer.done():
            each.answer.set_exception(error)
