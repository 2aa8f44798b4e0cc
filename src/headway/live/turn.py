"""What callers ask of a turn of the driver, and what one consists of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headway import wire
from headway.engines import base
from headway.live.ledger import Entry
from headway.model.events import Event, NodeResized
from headway.model.instant import Instant
from headway.model.job import JobId


class Request(NamedTuple):
    """What a caller wants: the events it means, tasks (job, first, last) whose results it has, the answer's place."""

    events: Callable[[Instant], Sequence[Event]]
    acknowledged: Sequence[tuple[JobId, int, int]]
    answer: asyncio.Future[int]


@dataclass(slots=True)
class Turn(Entry):
    """One turn of the driver: what becomes durable, and what is done afterwards.

    Attributes:
        acknowledged: attempts whose end the engine may forget.
        spent: files that nobody needs any more.
        resized: nodes whose size has changed.
        gone: attempts that had a member on a node that is gone.
        answers: who asked for events, and how many of them counted.
        submitted: who submitted jobs, and the answer.
    """

    acknowledged: list[base.AttemptKey] = field(default_factory=list)
    spent: list[Path] = field(default_factory=list)
    resized: list[NodeResized] = field(default_factory=list)
    gone: list[base.AttemptKey] = field(default_factory=list)
    answers: list[tuple[asyncio.Future[int], int]] = field(default_factory=list)
    submitted: list[tuple[asyncio.Future[wire.Submitted], wire.Submitted]] = field(default_factory=list)
