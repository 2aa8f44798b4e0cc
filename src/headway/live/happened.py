"""Records what has happened outside, such as that a node is off: it has happened, so this is tried until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headway.errors import Unavailable
from headway.live.store.journal import NotNow
from headway.model.events import Event
from headway.model.instant import Instant

RETRY_SECONDS: Final = 1.0
"""Seconds after which it is tried again, while the journal takes nothing."""


class NeededToRecord(Protocol):
    """What is needed of the driver."""

    async def request(self, events: Callable[[Instant], Sequence[Event]], *, by: str = "") -> int:
        """Record events."""


async def record(driver: NeededToRecord, events: Callable[[Instant], Sequence[Event]]) -> None:
    """Record events, unless the server ends: at its next start it looks again."""
    while True:
        try:
            await driver.request(events)
        except Unavailable:
            return
        except NotNow:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return
