"""When kept things are deleted: acknowledged results after a while, and all that is no longer needed at intervals.

These are the steps 9 and 10 of docs/explanation/data-flow.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, Protocol

from headway.engines.base import Outputs
from headway.errors import NoSuchJob, NoSuchUpload, NotTheirs
from headway.live.clock import Alarm, Clock
from headway.live.room import Room
from headway.live.store.journal import Journal, NotNow
from headway.live.store.retained import AFTER_ALL_TASKS
from headway.live.sweep import ROWS_AT_ONCE, Keep, Sweep
from headway.live.troubles import Troubles
from headway.model.events import Event
from headway.model.instant import SECOND, Duration, Instant
from headway.model.job import JobId
from headway.wire import TaskRange

log = logging.getLogger(__name__)

_RETRY_AFTER: Final[Duration] = SECOND
_LATER: Final[Duration] = 60 * SECOND
_IN_USE: Final[Duration] = 10 * SECOND
"""How long acknowledged results of an open workflow are left alone at least, before they are looked at again."""


class NeededByRetention(Protocol):
    """What is needed of the driver."""

    @property
    def troubles(self) -> Troubles:
        """Receives failures."""

    async def request(
        self, events: Callable[[Instant], Sequence[Event]], acknowledged: Sequence[tuple[JobId, int, int]] = ()
    ) -> int:
        """Record which results their clients have: per range the job, and its tasks from one number up to another."""

    def incident(self, kind: str, subject: str, detail: str, by: str = "") -> None:
        """Record something that an operator should know."""
        ...

    def needs(self, name: str) -> bool:
        """Whether an open job, or a submission that is being accepted, needs a function or an upload."""
        ...

    def is_workflow(self, job: JobId) -> bool:
        """Whether a job is an open workflow: its tasks may still get the results of others."""
        ...

    def listens(self, client: int) -> bool:
        """Whether a caller waits for messages of a client."""
        ...


class Retention:
    """Deletes expired things, in the driver's event loop. What is due follows from the journal and the clock alone.

    Args:
        recorder: records acknowledgements, and knows what is used.
        outputs: what attempts wrote.
        keep: how long things are kept.
        room: says whether an upload is accepted.

    Attributes:
        uploads: the files that are kept for tasks and for callers.
    """

    def __init__(
        self,
        recorder: NeededByRetention,
        journal: Journal,
        outputs: Outputs,
        clock: Clock,
        keep: Keep,
        room: Room,
    ) -> None:
        self._recorder = recorder
        self._journal = journal
        self._outputs = outputs
        self.uploads = journal.disk.uploads(keep.upload_max, room.check_file)
        self._clock = clock
        self._keep = keep
        self._sweep = Sweep(journal, self.uploads, outputs, clock, keep, recorder)
        self._steps: Iterator[None] | None = None
        self._look_at: Instant = 0
        self._alarm = Alarm(clock, self._ring)

    def start(self) -> None:
        """Delete what is due, now and from now on."""
        self.uploads.remove_strays(self._journal.retained.uploads())
        self._ring()

    def stop(self) -> None:
        """Delete nothing more."""
        self._alarm.stop()

    def acknowledged(self) -> None:
        """Acknowledgements were made durable."""
        self._ring_at(self._clock.now() + self._keep.acknowledged)

    async def acknowledge(self, client: str, results: Sequence[TaskRange], *, by: str = "") -> None:
        """Record that a client has results; they are deleted when they have been kept long enough.

        Raises:
            NoSuchJob: a job was never accepted.
            NotTheirs: a job was submitted by another client; nothing is recorded, and an incident is recorded.
            NotNow, Unavailable: not now.
        """
        for job in {tasks.job for tasks in results}:
            owner = self._journal.client_of(job)
            if owner is None and job <= self._journal.last()[2]:
                continue  # already deleted, with everything that it had
            if owner is None:
                raise NoSuchJob(job)
            if owner != self._journal.clients.known(client):
                refusal = NotTheirs(client, job)
                self._recorder.incident("acknowledge_refused", f"job {job}", str(refusal.args[0]), by)
                raise refusal
        ranges = [(tasks.job, tasks.first, AFTER_ALL_TASKS if tasks.last is None else tasks.last) for tasks in results]
        await self._recorder.request(lambda now: [], ranges)

    async def upload(self, name: str, announced: int, parts: AsyncIterator[bytes]) -> int:
        """Store a file as it arrives; when this returns it is durable. Returns its size in bytes.

        Args:
            name: the SHA-256 of its bytes.
            announced: its size if known, else 0.

        Raises:
            TooLarge, InvalidInput, NoRoom: as `Uploads.take`.
            NotNow: not now.
        """

        def record(size: int) -> None:
            self._journal.retained.keep_upload(name, self._clock.now(), size)

        return await self.uploads.take(name, announced, parts, record)

    def uploaded(self, name: str) -> int:
        """The size of a stored file in bytes; asking counts as a use.

        Raises:
            NoSuchUpload: it is not kept.
            NotNow: not now.
        """
        size = self.uploads.size(name)
        if not self._journal.retained.has_upload(name):
            raise NoSuchUpload(name)
        self._journal.retained.keep_upload(name, self._clock.now(), size)
        return size

    async def clear(self, jobs: Sequence[JobId]) -> int:
        """Delete the results of ended jobs now; returns how many of these jobs had any.

        Raises:
            NotNow: not now; some may have been cleared.
        """
        cleared = 0
        for some in self._sweep.clear(jobs):
            cleared += some
            await asyncio.sleep(0)  # let others run
        return cleared

    def _ring_at(self, at: Instant) -> None:
        """Ring at this instant, or earlier."""
        if self._alarm.at is not None and self._alarm.at <= at:
            return
        if at <= self._clock.now():
            self._alarm.soon()
        else:
            self._alarm.set(at)

    def _ring(self) -> None:
        """Delete a part of what is due; ring again when the next part is due, or later if this fails."""
        if self._recorder.troubles.contain("retention", self._let_go, "it is tried again later") is not None:
            self._ring_at(self._clock.now() + _LATER)

    def _clear_acknowledged(self, now: Instant) -> list[str]:
        keep = self._keep.acknowledged
        again = now + max(0, _IN_USE - keep)
        return self._journal.retained.clear_acknowledged(now - keep, ROWS_AT_ONCE, again, self._recorder.is_workflow)

    def _let_go(self) -> None:
        now, keep, retained = self._clock.now(), self._keep, self._journal.retained
        try:
            oldest = retained.oldest()
            if oldest is not None and oldest + keep.acknowledged <= now:
                self._outputs.discard(self._clear_acknowledged(now))
                oldest = retained.oldest()
            if self._look_at <= now:
                self._journal.away.keep()
                self._steps = self._steps or self._sweep.steps()
                if next(self._steps, self) is self:
                    self._steps = None
                    self._look_at = now + keep.look_every
        except NotNow as reason:
            log.warning("nothing could be let go of: %s", reason)
            self._steps = None
            self._ring_at(now + _RETRY_AFTER)
            return
        due = self._look_at if oldest is None else min(self._look_at, oldest + keep.acknowledged)
        self._ring_at(due)
