"""What was kept for nobody in particular goes when its time is over, part by part, each by itself in the loop.

What is due follows from the journal and the clock alone, so a sweep that was broken off, by the end of the server or a
full disk, is simply begun anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from headway.live.clock import Clock
from headway.live.expiry import Walk
from headway.live.journal import Journal
from headway.live.layout import OUTPUT
from headway.live.uploads import STRAY_SECONDS, Uploads, remove, remove_outputs
from headway.model.instant import SECOND, Duration
from headway.model.job import JobId

UPLOADS_KEPT: Final[Duration] = 3600 * SECOND
"""How long an upload or a function is kept that no open job and no result names, since it was last used."""

PART: Final = 250
"""Rows that are let go of in one transaction, or looked at, at most."""

PAGES: Final = 50
"""Pages of the journal that are given back to the disk at a time."""

DAY: Final[Duration] = 86_400 * SECOND

KEYS_LEAST: Final[Duration] = 120 * SECOND
"""A client repeats a submission whose answer it did not get for a minute, if it is not told otherwise."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long what is not needed to go on is kept; None: for ever.

    Attributes:
        acknowledged: results, after their client acknowledged them; 0: they go at once.
        unacknowledged: results that nobody acknowledges, after their job's end.
        jobs: what is known of a job that has ended and of which no result is left, after its end.
        events: what has happened, as a trace that can be replayed; at most `expiry.EVENTS_MAX` of them.
        keys: idempotency keys of submissions, after these; at least `KEYS_LEAST`.
        incidents: those older than the events; at most `expiry.INCIDENTS_MAX` of them.
        upload_max: bytes that an uploaded file may have.
    """

    acknowledged: Duration = DAY
    unacknowledged: Duration | None = 30 * DAY
    jobs: Duration | None = 30 * DAY
    events: Duration | None = DAY
    keys: Duration | None = DAY
    incidents: Duration | None = 90 * DAY
    upload_max: int = 16 << 30

    @property
    def look_every(self) -> Duration:
        """How often it is looked what is due, acknowledged results apart."""
        spans = (self.unacknowledged, self.jobs, self.events, self.keys, self.incidents, UPLOADS_KEPT)
        return max(SECOND, min(span for span in spans if span is not None) // 4)


class Used(Protocol):
    """What must stay, for it is used now."""

    def needs(self, name: str) -> bool:
        """Whether an open job, or a submission that is being accepted, needs a function or an upload."""
        ...

    def listens(self, client: int) -> bool:
        """Whether somebody waits for messages of a client."""
        ...


class Sweep:
    """Goes through all that may be due.

    Args:
        journal: where it is.
        outputs: the folder of the output of attempts, with a folder a job; None: there is none.
        uploads: files that were uploaded, or given by tasks.
        clock: the source of time.
        keep: how long.
        used: what must stay.
    """

    def __init__(
        self, journal: Journal, outputs: Path | None, uploads: Uploads, clock: Clock, keep: Keep, used: Used
    ) -> None:
        self._journal = journal
        self._outputs = outputs
        self._uploads = uploads
        self._clock = clock
        self._keep = keep
        self._used = used

    def steps(self) -> Iterator[None]:
        """Let go of what is due, a part between one `next` and the following.

        Raises:
            NotNow: not now; it is begun anew later.
        """
        yield from self._results()
        yield from self._jobs()
        yield from self._clients()
        yield from self._events()
        yield from self._files()
        yield from self._strays()
        while self._journal.expiry.give_back(PAGES):
            yield

    def clear(self, jobs: Sequence[JobId]) -> Iterator[int]:
        """Let go of the results of ended jobs, part by part; how many of these jobs had any in each."""
        left: Sequence[JobId] = jobs
        while left:
            cleared, left, paths = self._journal.retained.clear(left, PART)
            remove_outputs(self._journal.folder / OUTPUT, paths)
            yield cleared

    def _results(self) -> Iterator[None]:
        if self._keep.unacknowledged is None:
            return
        retained, until = self._journal.retained, self._clock.now() - self._keep.unacknowledged
        while old := retained.ended_until(until, PART):
            for _ in self.clear(old):
                yield

    def _jobs(self) -> Iterator[None]:
        keep, expiry = self._keep, self._journal.expiry
        if keep.jobs is not None:
            walk = Walk()
            while expiry.drop_jobs(self._clock.now() - keep.jobs, PART, walk) or not walk.is_over:
                yield
        if keep.keys is not None:
            while expiry.drop_keys(self._clock.now() - max(keep.keys, KEYS_LEAST), PART):
                yield

    def _clients(self) -> Iterator[None]:
        clients, walk = self._journal.clients, Walk()
        while True:
            clients.forget(self._journal.expiry.drop_clients(self._is_used, PART, walk))
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
        begin = expiry.drop_snapshots(keep.events, self._clock.now())
        yield
        if keep.events is None:
            return
        while expiry.drop_events(begin, PART):
            yield
        since = 0 if keep.incidents is None else self._clock.now() - keep.incidents
        while expiry.drop_incidents(begin, since, PART):
            yield

    def _files(self) -> Iterator[None]:
        journal, since = self._journal, self._clock.now() - UPLOADS_KEPT
        walk = Walk()
        while True:
            journal.expiry.drop_blobs(since, self._used.needs, PART, walk)
            yield
            if walk.is_over:
                break
        while True:
            for name in journal.expiry.unused_uploads(since, self._used.needs, PART, walk):
                journal.retained.drop_upload(name)
                remove((self._uploads.path(name),))
                yield
            yield
            if walk.is_over:
                break

    def _strays(self) -> Iterator[None]:
        """Remove output that no result has: everything died before its end was told."""
        if self._outputs is None or not self._outputs.is_dir():
            return
        with os.scandir(self._outputs) as folders:
            for place, folder in enumerate(folders, 1):
                with suppress(FileNotFoundError):  # it has gone with its last file
                    is_old = time.time() - folder.stat(follow_symlinks=False).st_mtime > STRAY_SECONDS
                    if folder.name.isdecimal() and is_old and not self._journal.retained.has_files(int(folder.name)):
                        remove_outputs(self._outputs, (entry.path for entry in os.scandir(folder.path)))
                        with suppress(OSError):  # something in it stays
                            os.rmdir(folder.path)
                if place % PART == 0:
                    yield
