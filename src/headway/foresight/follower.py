"""A core that follows a journal while its server writes it: questions about the state cost the server nothing."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from headway.core.record import StateRecord
from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.foresight.chances import Chances
from headway.foresight.coming import coming, workload_of_past
from headway.foresight.futures import Floats, Futures, draw_futures, futures_for
from headway.foresight.learning import RunTimesKnown
from headway.foresight.pace import Pace
from headway.foresight.remembered import TrackRecordFile
from headway.live.store.decisions import event_of, replay
from headway.live.store.journal import state_of
from headway.live.store.past import PastJob, last_jobs, mean_unsuccessful, past_job, past_jobs
from headway.live.store.rows import Rows
from headway.live.store.schema import FILE, connect_to_read
from headway.model.actions import JobStatus
from headway.model.events import JobSubmitted
from headway.model.forecast import CANNOT, Chance, Forecast, without_basis
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId
from headway.model.policy import PolicySource
from headway.sim.forecast import forecast
from headway.sim.states import Origin

PATIENCE: Final = 2.0
"""For so many seconds at most it waits for an event that is not on the disk yet."""

POLL: Final = 0.002

CAME_MAX: Final = 2_000
"""Of so many jobs that have ended it is remembered when they came: others come like them."""

WORK_MAX: Final = 40_000
"""Each future ends after so many events."""

SEED: Final = 0

LEAP: Final = 2_000
"""To take over so many events takes longer than to load a stored state."""

ALWAYS_TAKEN_OVER: Final = 200
"""So many events are always taken over: that takes a few milliseconds."""

LEARNT_MAX: Final = 200
"""From so many of the jobs whose ends were leapt over it learns."""


class Follower:
    """Keeps a core at the end of a journal, and what its past tells of run times.

    Args:
        folder: the data directory; its server may run.
        policies: finds a policy by its text. It is not asked for what was decided: that is recorded.
        arrivals: whether jobs come in the futures as they did in the past; otherwise nobody submits anything.
        pace: lets copies of this process draw futures.
        remembers: whether it goes on with what an earlier one has learnt of its bounds, and may `remember`. One at a
            time may: the one that makes forecasts for the server.

    Attributes:
        core: the scheduler as it was after event `seq`.
        seq: the number of the last event read.
        run_times: of the jobs that have ended.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """

    core: Scheduler
    seq: int

    def __init__(
        self,
        folder: Path,
        policies: PolicySource,
        *,
        arrivals: bool = False,
        pace: Pace | None = None,
        remembers: bool = False,
    ) -> None:
        self._path = folder / FILE
        self._policies = policies
        self._arrivals = arrivals
        self._pace = pace or Pace()
        self._came: deque[PastJob] = deque(maxlen=CAME_MAX)
        self._chances = Chances()
        self._file: TrackRecordFile | None = None
        self._started: dict[JobId, Instant] = {}
        self._ended: dict[JobId, Instant] = {}
        self._void: set[JobId] = set()
        self._met: set[JobId] = set()  # learnt already, and its end is still to be read
        try:
            self._db = connect_to_read(self._path)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        try:
            self._rows = Rows(self._db, self._path)
            self._load()
            if remembers:
                self._recall(folder)
            self.run_times = RunTimesKnown(self.core.state.estimate_default)
            for past in past_jobs(self._db, self._rows):
                self._take_in(past)
        except BaseException:
            self._db.close()
            raise

    def _load(self) -> None:
        """Begin with the last stored state.

        Raises:
            HeadwayError: there is none, or it cannot be read.
        """
        try:
            row = self._rows.one("snapshots", "ORDER BY seq DESC LIMIT 1")
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        if row is None:
            raise HeadwayError(f"{self._path} has no state", "No server has been started on it yet.")
        self.seq, self.core = int(row[0]), Scheduler.restore(state_of(row[2]), self._policies)
        self._specs = {job.id: job.spec for job in self.core.state.jobs.values()}
        self._recorder = Recorder(self.core, holdings=False, run_times=True)
        self._recorder.take_over()

    def _recall(self, folder: Path) -> None:
        """Go on with what was learnt of earlier bounds."""
        row = self._rows.one("meta", "WHERE name = 'epoch'")
        assert row is not None
        self._file = TrackRecordFile(folder, row[1])
        self._chances = self._file.read()
        self._look_up()

    def catch_up(self, event: int = 0) -> None:
        """Read what was written since. If that is much, it begins anew with a state that the server has stored since.

        If the pace does not allow more now, it reads a few events only, so that it may stay behind.

        Args:
            event: the number of an event that must be among it, unless it takes too long to come.

        Raises:
            HeadwayError: the journal cannot be read.
        """
        until = time.monotonic() + PATIENCE
        most = None if self._pace.is_paid else ALWAYS_TAKEN_OVER
        while True:
            try:
                self._leap(LEAP)
                is_all = self._read(most)
            except sqlite3.Error as error:
                raise self._unreadable(error) from error
            if self.seq >= event or not is_all or time.monotonic() > until:
                return
            time.sleep(POLL)

    def _read(self, most: int | None) -> bool:
        """Take over so many events; returns whether there are no more."""
        limit = -1 if most is None else most
        count = 0
        for seq, _, kind, body, *_ in self._rows.of("events", "WHERE seq > ? ORDER BY seq LIMIT ?", (self.seq, limit)):
            if seq != self.seq + 1:  # what lies between was deleted as too old: a stored state has it
                if not self._leap(1):
                    raise HeadwayError(f"{self._path} lacks the events {self.seq + 1:,} to {seq - 1:,}")
                return self._read(most)
            event = event_of(kind, body)
            if isinstance(event, JobSubmitted):
                self._specs[event.job.id] = event.job
            actions = replay(self.core, event, body)
            self._recorder.note(event, actions, self.core.state.now)
            self.seq = int(seq)
            count += 1
            if self._recorder.end:
                self._learn()
        return count != limit

    def _leap(self, events: int) -> bool:
        """Begin anew with the last stored state, if it is so many events ahead; returns whether it is.

        What ended in between is read from the rows of jobs: what it tells of run times, and of earlier bounds.
        """
        if not self._rows.one("snapshots", "WHERE seq >= ? ORDER BY seq DESC LIMIT 1", (self.seq + events,)):
            return False
        since, started = self.core.state.now, self._recorder.start
        self._load()
        for past in last_jobs(self._db, self._rows, since, LEARNT_MAX):
            if past.job.id not in self._met:
                self._take_in(past)
        self._started |= started
        self._look_up()
        return True

    def _look_up(self) -> None:
        """Read from the rows of jobs what came of bounds of jobs that the core has not, because they have ended."""
        for job in self._chances.open_jobs - self._ended.keys() - self.core.state.jobs.keys():
            row = self._rows.one("jobs", "WHERE id = ?", (job,))
            if row is None:
                self._void.add(job)
                continue
            status, started, ended = row[4], row[6], row[7]
            if status == JobStatus.SUCCEEDED.value:
                self._started.setdefault(job, started)
                self._ended[job] = ended
            elif status is not None:  # else it is open, and came after the stored state
                self._void.add(job)

    def _take_in(self, past: PastJob) -> None:
        """Learn from a job of which the core may still have to be told that it has ended."""
        self._learn_of(past)
        if past.ended >= self.core.state.now:
            self._met.add(past.job.id)

    def _learn_of(self, past: PastJob) -> None:
        """Learn from an ended job: run times if it succeeded, and that jobs like it come if it ever had slots."""
        if past.succeeded:
            self.run_times.learn(past.job, past.took)
        if past.took:
            self._came.append(past)

    def _learn(self) -> None:
        """Take over from the recorder what has ended."""
        recorder = self._recorder
        assert recorder.run_times is not None
        for job in list(recorder.end):
            ended = recorder.end.pop(job)
            started = recorder.start.pop(job, None)
            if started is not None:
                self._started[job] = started
            tasks, took = recorder.run_times.pop(job, (0, 0))
            spec = self._specs.pop(job, None)
            status = recorder.failed.pop(job, JobStatus.SUCCEEDED)
            if status is JobStatus.SUCCEEDED:
                self._ended[job] = ended
            else:
                self._void.add(job)
            if job in self._met:  # it was among the past jobs, too
                self._met.discard(job)
            elif spec is None or spec.endless:
                continue
            elif status is not JobStatus.SUCCEEDED:
                lasted = 0 if started is None else ended - started
                self._learn_of(past_job(spec, ended, mean_unsuccessful(spec, lasted, took), status=status))
            elif tasks:
                self._learn_of(past_job(spec, ended, took // tasks))

    def state(self, now: Instant) -> StateRecord:
        """The state as a record, at an instant; not before its last event."""
        record = self.core.dump()
        return replace(record, now=max(record.now, now))

    def origin(self, now: Instant) -> Origin:
        """The same, for all that is asked about one state."""
        return Origin(self.state(now))

    def expected(self, state: StateRecord | Origin) -> Forecast:
        """What is expected of the open jobs by their estimates; where that cannot be said, why."""
        origin = Origin.of(state)
        state = origin.state
        try:
            made = partial(forecast, origin, self._policies, unknown=self.run_times.unknown(state))
            return replace(self._pace.one(made), event=self.seq)
        except HeadwayError as error:  # its policy is not installed any more
            why = f"{CANNOT}: {error.args[0]}"
            return Forecast(state.now, state.now, state.estimate_default, (), why, event=self.seq)

    def with_chances(self, state: StateRecord | Origin, expected: Forecast) -> Forecast:
        """The same forecast, and how sure it is."""
        if expected.failure:
            return expected
        unknown = self.run_times.unknown(Origin.of(state).state)
        chances = self.chances(state, without_basis(expected.jobs, unknown))
        jobs = tuple(replace(one, chance=chances.get(one.job)) for one in expected.jobs)
        return replace(expected, jobs=jobs, is_sure=True)

    def chances(self, state: StateRecord | Origin, without: Collection[JobId] = ()) -> dict[JobId, Chance]:
        """When each open job starts and ends, and how sure that is.

        Args:
            without: jobs that get no chances, and from which nothing is learnt: they end at a mere guess.
        """
        origin = Origin.of(state)
        state = origin.state
        self._chances.learn({**self._started, **self._recorder.start}, self._ended, state.now, self._void)
        self._void.clear()
        still = self._chances.open_jobs
        for known in (self._started, self._ended):
            for job in [job for job in known if job not in still]:
                del known[job]
        found = self.futures(origin).without(without)
        due = {job.spec.id: job.due if job.due is not None else job.spec.due for job in state.jobs}
        return self._chances.of(found, {job: NEVER if by is None else by for job, by in due.items()})

    def unknown(self, state: StateRecord) -> set[JobId]:
        """The open jobs of which nothing tells how long they run."""
        return self.run_times.unknown(state)

    def outlook_on(self, state: StateRecord, job: JobId, due: Instant) -> tuple[Floats, Chance]:
        """When a job of a state that may never be ends, see `Chances.of_one`."""
        return self._chances.of_one(self.futures(state), job, due)

    def futures(self, state: StateRecord | Origin) -> Futures:
        """Futures of a state, with run times as they have been learnt."""
        origin = Origin.of(state)
        state = origin.state
        return draw_futures(
            origin,
            self._policies,
            self.run_times.at(state),
            count=futures_for(state),
            arrivals=coming(state.now, workload_of_past(self._came)) if self._arrivals else None,
            seed=SEED,
            work_max=WORK_MAX,
            processes=len(os.sched_getaffinity(0)),
            copies=self._pace.all,
        )

    def remember(self) -> None:
        """Keep what has been learnt of bounds for the next one.

        Raises:
            HeadwayError: it cannot be written.
        """
        assert self._file is not None
        self._file.write(self._chances)

    def _unreadable(self, error: Exception) -> HeadwayError:
        return HeadwayError(f"{self._path} cannot be read: {error}", "Name a data directory of `headway up`.")

    def close(self) -> None:
        """Read no more."""
        self._db.close()
