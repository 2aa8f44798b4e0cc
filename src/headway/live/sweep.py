"""Deletes what was kept long enough, in small parts, each in a separate step of the event loop.

What is due follows from the journal and the clock alone. So a sweep that was interrupted, because the server ended or
the disk was full, simply starts again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from headway.engines.base import Outputs
from headway.errors import InvalidInput
from headway.live.clock import Clock
from headway.live.store.expiry import Walk
from headway.live.store.journal import Journal
from headway.live.uploads import STRAY_SECONDS, Uploads, remove
from headway.model.instant import DAY, SECOND, Duration, Instant, to_seconds
from headway.model.job import JobId

ROWS_AT_ONCE: Final = 250
"""How many rows are deleted, or looked at, in one transaction at most."""

PAST_PART: Final = 50
"""Of how many ended jobs history gets what it needs in one go."""

PAGES: Final = 50
"""How many pages of the journal are given back to the disk at a time."""


KEPT_LEAST: Final[Duration] = 120 * SECOND
"""For at least this long keys and uploads are kept. A client whose submission got no answer repeats it for a minute,
unless told otherwise; and a submission comes after its uploads.
"""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long things are kept that the server itself does not need; None: for ever.

    Attributes:
        acknowledged: results, after their client acknowledged them; 0: they are deleted at once. Those of a workflow
            are kept at least until it has ended.
        unacknowledged: results that are not acknowledged, after their job's end.
        jobs: what is known of an ended job without results, after its end.
        events: what has happened, as a trace that can be replayed; at most `expiry.EVENTS_MAX` of them.
        keys: idempotency keys of submissions, after these; at least `KEPT_LEAST`.
        incidents: those older than the events, at most `expiry.INCIDENTS_MAX` of them; and refused requests, at most
            `refusals.REFUSALS_MAX`.
        uploads: uploads and functions that no open job and no result names, after their last use; at least
            `KEPT_LEAST`.
        upload_max: the most bytes that an uploaded file may have.
        history: of how many jobs at most that succeeded it is kept how long they ran, also after they are deleted,
            and of as many that did not what became of them; 0: of none.
    """

    acknowledged: Duration = DAY
    unacknowledged: Duration | None = 30 * DAY
    jobs: Duration | None = 30 * DAY
    events: Duration | None = DAY
    keys: Duration | None = DAY
    incidents: Duration | None = 90 * DAY
    uploads: Duration | None = 3600 * SECOND
    upload_max: int = 16 << 30
    history: int = 20_000

    def __post_init__(self) -> None:
        for name, span in (("keep_keys", self.keys), ("keep_uploads", self.uploads)):
            if span is not None and span < KEPT_LEAST:
                raise InvalidInput(name, to_seconds(span), f"{to_seconds(KEPT_LEAST):g} seconds or more, or none")

    @property
    def look_every(self) -> Duration:
        """How often to look for what is due, except acknowledged results."""
        spans = (self.unacknowledged, self.jobs, self.events, self.keys, self.incidents, self.uploads)
        return max(SECOND, min(span for span in spans if span is not None) // 4)


class Used(Protocol):
    """What must be kept because it is in use."""

    def needs(self, name: str) -> bool:
        """Whether an open job, or a submission that is being accepted, needs a function or an upload."""
        ...

    def listens(self, client: int) -> bool:
        """Whether a caller waits for messages of a client, or a submission of it is being accepted."""
        ...


class Sweep:
    """Goes through everything that may be due.

    Args:
        journal: the rows.
        uploads: the files that clients uploaded or tasks gave.
        outputs: what attempts wrote.
        clock: the source of time.
        keep: how long things are kept.
        used: what must be kept.
    """

    def __init__(
        self, journal: Journal, uploads: Uploads, outputs: Outputs, clock: Clock, keep: Keep, used: Used
    ) -> None:
        self._journal = journal
        self._uploads = uploads
        self._outputs = outputs
        self._clock = clock
        self._keep = keep
        self._used = used

    def steps(self) -> Iterator[None]:
        """Delete what is due, one part with each `next`.

        Raises:
            NotNow: not now; start again later.
        """
        yield from self._journal.past.take_over(self._keep.history, PAST_PART)
        yield from self._results()
        yield from self._jobs()
        yield from self._clients()
        yield from self._events()
        yield from self._files()
        yield from self._strays()
        while self._journal.expiry.give_back(PAGES):
            yield

    def clear(self, jobs: Sequence[JobId], *, unasked: bool = False) -> Iterator[int]:
        """Delete the results of ended jobs, part by part; yields for each part how many of these jobs had any.

        Args:
            unasked: not on request, but because their time is over.
        """
        left: Sequence[JobId] = jobs
        while left:
            cleared, left, names = self._journal.retained.clear(left, ROWS_AT_ONCE, unasked=unasked)
            self._outputs.discard(names)
            yield cleared

    def _before(self, keep: Duration) -> Instant:
        """What was stored at this instant or earlier has been kept long enough."""
        return self._journal.away.before(self._clock.now(), keep)

    def _results(self) -> Iterator[None]:
        if self._keep.unacknowledged is None:
            return
        retained, until = self._journal.retained, self._before(self._keep.unacknowledged)
        while old := retained.ended_until(until, ROWS_AT_ONCE):
            for _ in self.clear(old, unasked=True):
                yield

    def _jobs(self) -> Iterator[None]:
        keep, expiry = self._keep, self._journal.expiry
        if keep.jobs is not None:
            walk = Walk()
            while expiry.drop_jobs(self._before(keep.jobs), ROWS_AT_ONCE, walk) or not walk.is_over:
                yield
        if keep.keys is not None:
            while expiry.drop_keys(self._before(keep.keys), ROWS_AT_ONCE):
                yield

    def _clients(self) -> Iterator[None]:
        clients, walk = self._journal.clients, Walk()
        while True:
            clients.forget(self._journal.expiry.drop_clients(self._is_used, ROWS_AT_ONCE, walk))
            if walk.is_over:
                break
            yield
        clients.forget_new(self._is_used)
        clients.look_again()
        yield

    def _is_used(self, client: int) -> bool:
        return self._journal.clients.lately(client) or self._used.listens(client)

    def _events(self) -> Iterator[None]:
        keep, expiry = self._keep, self._journal.expiry
        while self._journal.refusals.drop(0 if keep.incidents is None else self._before(keep.incidents), ROWS_AT_ONCE):
            yield
        begin = expiry.drop_snapshots(keep.events, self._clock.now())
        yield
        if keep.events is None:
            return
        while expiry.drop_events(begin, ROWS_AT_ONCE):
            yield
        since = 0 if keep.incidents is None else self._before(keep.incidents)
        while expiry.drop_incidents(begin, since, ROWS_AT_ONCE):
            yield

    def _files(self) -> Iterator[None]:
        if self._keep.uploads is None:
            return
        journal, since = self._journal, self._before(self._keep.uploads)
        walk = Walk()
        while True:
            journal.expiry.drop_blobs(since, self._used.needs, ROWS_AT_ONCE, walk)
            yield
            if walk.is_over:
                break
        while True:
            for name in journal.expiry.unused_uploads(since, self._used.needs, ROWS_AT_ONCE, walk):
                # Others have been served since the last one was deleted: this one may be in use now.
                is_in_use = self._used.needs(name) or name in self._uploads.placing
                if not is_in_use and journal.retained.drop_upload(name, since):
                    remove((self._uploads.path(name),))
                yield
            yield
            if walk.is_over:
                break

    def _strays(self) -> Iterator[None]:
        """Discard outputs that belong to no result: everything died before their end was recorded."""
        for place, (job, names) in enumerate(self._outputs.outputs(STRAY_SECONDS), 1):
            while not self._journal.retained.has_files(job):
                some = list(islice(names, ROWS_AT_ONCE))
                self._outputs.discard(some)
                if len(some) < ROWS_AT_ONCE:
                    break
                yield
            if place % ROWS_AT_ONCE == 0:
                yield
