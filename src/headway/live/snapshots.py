"""When the state is stored, and how: beside the event loop, by a process that replays the journal (`headway.restate`).

The fingerprint of its state is compared with that of the state here, and its state is stored if both agree. If they do
not, or if no process can be started, the state here is stored, which takes the event loop a second for 100,000 jobs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from headway.core.scheduler import Scheduler
from headway.live.clock import Clock
from headway.live.ledger import Ledger
from headway.live.store.journal import NotNow
from headway.live.troubles import Troubles
from headway.model.instant import SECOND, Duration, Instant

log = logging.getLogger(__name__)

RESTATE_LIMIT: Final[Duration] = 600 * SECOND
"""A process that has not answered after this time hangs."""

STARTED_AT_ONCE: Final = 100
"""How many jobs' first launches are recorded in one transaction."""

_READ: Final = 1 << 16

Fingerprint = tuple[int, int, int, int, int, int, str, int]


class Restated(msgspec.Struct, frozen=True, array_like=True):
    """What the process found: the state's instant, its fingerprint, and the state as it is stored."""

    at: Instant
    fingerprint: Fingerprint
    body: bytes


pack = msgspec.msgpack.Encoder().encode
_restated = msgspec.msgpack.Decoder(Restated)


def fingerprint(core: Scheduler) -> Fingerprint:
    """Something that different states hardly have in common, and that costs nothing to compute."""
    state = core.state
    totals = state.totals()
    return (
        state.now,
        core.rounds,
        core.ignored,
        len(state.jobs),
        next(reversed(state.jobs), 0),
        sum(len(pool.running) for pool in state.each()),
        f"{totals.busy:x}",
        totals.waiting,
    )


class Snapshots:
    """Stores the state at intervals.

    Args:
        ledger: knows when that is due, and stores it.
        folder: the data directory.
        troubles: receives what fails.
        clock: limits the time.
        command: starts the process; the folder and the number of an event are appended. None: the state here is stored
            instead.
    """

    def __init__(
        self, ledger: Ledger, folder: str, troubles: Troubles, clock: Clock, command: Sequence[str] | None
    ) -> None:
        self._ledger = ledger
        self._folder = folder
        self._troubles = troubles
        self._clock = clock
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._storing: asyncio.Task[None] | None = None
        self._parts: list[bytes] = []
        self._event = 0
        self._known: Fingerprint | None = None
        self._differs = False
        self._call_off: Callable[[], object] = lambda: None

    def follow(self) -> None:
        """After a durable turn: store the state if that is due."""
        ledger = self._ledger
        if self._differs:
            self._differs = False
            ledger.store_snapshot()
            return
        if not ledger.snapshot_is_due or self._process is not None or self._storing is not None:
            return
        if self._command is None:
            ledger.store_snapshot()
            return
        ledger.snapshot_begins()
        self._event, self._known, self._parts = ledger.event, fingerprint(ledger.core), []
        try:
            self._process = subprocess.Popen(
                [*self._command, self._folder, str(self._event)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
        except OSError as error:
            self._troubles.incident("step_failed", "snapshot", error, "the state is stored by the event loop")
            ledger.store_snapshot()
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        asyncio.get_running_loop().add_reader(self._process.stdout.fileno(), self._read)
        self._call_off = self._clock.call_at(self._clock.now() + RESTATE_LIMIT, self._process.kill)

    def stop(self) -> None:
        """Store nothing more beside the loop."""
        if self._process is not None:
            self._end(self._process)
        if self._storing is not None:
            self._storing.cancel()

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """Finish with the process; returns its exit status."""
        self._call_off()
        self._process = None
        assert process.stdout is not None
        asyncio.get_running_loop().remove_reader(process.stdout.fileno())
        process.stdout.close()
        process.kill()
        return process.wait()

    def _read(self) -> None:
        """Read a part of what the process sends; at the end of it the process has ended."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        part = os.read(process.stdout.fileno(), _READ)
        if part:
            self._parts.append(part)
            return
        status = process.wait()  # it frees its memory before it closes its end of the pipe
        self._end(process)
        contain = self._troubles.contain
        contain("snapshot", partial(self._take, status), "the next state is stored after as many events again")

    def _take(self, status: int) -> None:
        parts, self._parts = self._parts, []
        if status:
            raise ChildProcessError(f"{' '.join(self._command or ())} ended with status {status}, see the log")
        found = _restated.decode(b"".join(parts))
        if found.fingerprint == self._known:
            self._storing = asyncio.create_task(self._store(self._event, found))
            self._storing.add_done_callback(self._stored)
            return
        detail = f"the journal replayed to event {self._event} gives another state: {found.fingerprint}, {self._known}"
        self._differs = True  # stored after the turn of this incident: a turn may be under way
        self._troubles.incident(
            "replay_differs", "snapshot", AssertionError(detail), "the state is stored as it is here"
        )

    async def _store(self, event: int, found: Restated) -> None:
        ledger = self._ledger
        try:
            while ledger.note_started(STARTED_AT_ONCE):
                await asyncio.sleep(0)
            ledger.journal.store_state(event, found.at, found.body)
            await asyncio.sleep(0)
            ledger.drop_snapshots()
        except NotNow as reason:
            log.warning("no snapshot was stored: %s", reason)

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._storing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._troubles.incident("step_failed", "snapshot", error, "the next state is stored later")
