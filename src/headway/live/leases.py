"""The lease of calls: calls end when their client has been silent for long, because only it could fetch their results.

An executor's calls belong to one process. When it has died, they would use slots for results that are lost. So
its jobs are marked (`JobSpec.leased`). A client that has neither waited for messages nor asked for anything in the
meantime loses them. Jobs that were submitted to be fetched later are not affected.

Silence is counted in checks, not in time: so no client is given up because the server itself was stopped for a while,
or its clock was set. After a start each lease begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

from headway.errors import HeadwayError
from headway.live.clock import Alarm, Clock, sleep
from headway.live.store.journal import NotNow
from headway.model.events import Event, JobCancelled
from headway.model.instant import SECOND, Duration, Instant, to_seconds
from headway.model.job import JobId

log = logging.getLogger(__name__)

LEASE: Final[Duration] = 300 * SECOND
"""How long the client of calls may be silent by default."""

LEASE_LEAST: Final[Duration] = SECOND
"""A client that is being started or that looks for the server again asks this often."""

LOOKS: Final = 4
"""Checks per lease: a client is given up between one lease and one and a quarter after its last sign of life."""

CANCELLED_AT_ONCE: Final = 100
"""How many jobs are cancelled in one turn: others wait for it to end."""

_RETRY_AFTER: Final[Duration] = SECOND


class NeededByLeases(Protocol):
    """What is needed of the driver."""

    async def request(self, events: Callable[[Instant], Sequence[Event]]) -> int:
        """Make events durable at the instant at which they are handled; returns how many of them counted."""
        ...

    def incident(self, kind: str, subject: str, detail: str) -> None:
        """Record what an operator should know."""


class Leases:
    """Checks from time to time which clients of leased jobs are still there, in the driver's event loop.

    Args:
        recorder: records what is cancelled.
        leased: leased jobs that are open, by the number of their client; read again at each look.
        waits: whether a caller waits for messages under a key of `Listeners`.
        name: the text of a client's number.
        clock: the source of time.
        lease: how long a client may be silent, >= `LEASE_LEAST`; None: for ever.
    """

    def __init__(
        self,
        recorder: NeededByLeases,
        leased: Callable[[], Mapping[int, Mapping[JobId, None]]],
        waits: Callable[[int], bool],
        name: Callable[[int], str],
        clock: Clock,
        lease: Duration | None,
    ) -> None:
        self._recorder = recorder
        self._leased = leased
        self._waits = waits
        self._name = name
        self._clock = clock
        self._lease = lease
        self._silent: dict[int, int] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._alarm = Alarm(clock, self._look)

    def follow(self) -> None:
        """Check from now on as long as there are leased jobs; called after each turn."""
        if self._lease is not None and self._alarm.at is None and self._leased():
            self._alarm.set(self._clock.now() + self._lease // LOOKS)

    def heard(self, client: int) -> None:
        """A client has asked for something."""
        self._silent.pop(client, None)

    def stop(self) -> None:
        """Give up no client any more."""
        self._alarm.stop()
        for task in self._ending.values():
            task.cancel()
        self._lease = None

    def _look(self) -> None:
        leased = self._leased()
        silent = {client: self._silent.get(client, 0) + 1 for client in leased if not self._waits(-client)}
        # The first check may have come right after a sign of life: with one more, a full lease has passed.
        given_up = [client for client, looks in silent.items() if looks > LOOKS and client not in self._ending]
        self._silent = silent
        for client in given_up:
            self._ending[client] = asyncio.create_task(self._end(client))
        self.follow()

    async def _end(self, client: int) -> None:
        """Cancel what a client has left behind, part by part, until it gives a sign of life or nothing is left."""
        assert self._lease is not None
        reason = f"its client has not been heard of for {to_seconds(self._lease):g} s"
        ended = 0
        try:
            while self._silent.get(client, 0) > LOOKS:  # a sign of life begins a new lease
                left = (job for job in self._leased().get(client, ()) if not self._waits(job))
                jobs = tuple(islice(left, CANCELLED_AT_ONCE))
                if not jobs:
                    break
                try:
                    ended += await self._recorder.request(partial(_cancelled, jobs, reason))
                except NotNow:
                    await sleep(self._clock, _RETRY_AFTER)
            if ended:
                said = (
                    f"{reason}: what it had called is cancelled ({ended} jobs), as no other client can get its results"
                )
                self._recorder.incident("client_lost", f"client {self._name(client)}", said)
        except HeadwayError as ending:
            log.info("calls of client %s are not cancelled now: %s", self._name(client), ending.args[0])
        finally:
            del self._ending[client]


def _cancelled(jobs: Sequence[JobId], reason: str, now: Instant) -> list[Event]:
    return [JobCancelled(now, job, reason) for job in jobs]
