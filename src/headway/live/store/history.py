"""What a server recorded, as a schedule, for the same measures and pictures as a simulation.

The journal keeps events for a while (`headway up --keep-events`). Fed with them again, the core makes the same plans.
So it need not be recorded which job had which slots when.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.record import StateRecord
from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live.store.decisions import event_of, replay
from headway.live.store.journal import FILE, state_of
from headway.live.store.past import PastJob, past_jobs
from headway.live.store.rows import Rows
from headway.live.store.schema import connect_to_read
from headway.live.store.vouching import GUARDED
from headway.model.actions import Launch
from headway.model.events import Event, JobChanged, JobSubmitted, TaskEnded
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome
from headway.model.policy import PolicySource
from headway.model.schedule import Schedule
from headway.model.slots import numbers


def history(folder: Path, policies: PolicySource, *, record: bool = False, until: Instant | None = None) -> Schedule:
    """What became of every job that a server was given, in order of release; microseconds since the Unix epoch.

    If the first events have been deleted, the schedule has the jobs submitted since then (`known_since`). Slots that
    others had then count as busy.

    The server may run meanwhile: then it is what became of them until now. A job's label is its id, its `runtime` the
    mean run time of the last attempts at its tasks that succeeded. For a job that ran in the background, it is not
    known how long its work takes with its slots to itself (`Schedule.alone`): its slowdown is against the time it took.

    Args:
        folder: the data directory.
        policies: finds a policy by its text.
        record: whether to keep which attempt ran on which slots, as a simulation does for a Gantt chart.
        until: an instant, now or later: then what still runs is among the attempts, as if it ended then; the schedule
            has the jobs that came before the first event, too, and there need be no jobs.

    Raises:
        HeadwayError: there is no journal, or it has no jobs.
    """
    with reading(folder) as beginning:
        told = ReplayRecorder(Scheduler.restore(beginning.state, policies), record=record)
        if until is not None:
            told.take_over()
        for kind, body in beginning.rows:
            told.take(event_of(kind, body), body)
    if not told.specs and until is None:
        seq = beginning.seq
        said = f"{folder / FILE} has no jobs" + (
            f" that were submitted after event {seq}, with which it begins" if seq else ""
        )
        raise HeadwayError(said, "`headway up --keep-events none` keeps all events from now on." if seq else "")
    return told.schedule(until=until)


def held(folder: Path, policies: PolicySource) -> dict[tuple[JobId, int], Duration]:
    """How long each task that succeeded had its slots: from its launch, or from when the last of them was free.

    An attempt has its slots while it is brought to its node and its end is brought back. The schedule (`history`) has
    the time that it ran, where its engine reports when it started.

    Args:
        folder: the data directory.
        policies: finds a policy by its text.

    Raises:
        HeadwayError: there is no journal.
    """
    given: dict[tuple[JobId, int], tuple[Instant, list[int]]] = {}
    free_since: dict[int, Instant] = {}
    found = {}
    with reading(folder) as beginning:
        core = Scheduler.restore(beginning.state, policies)
        for kind, body in beginning.rows:
            event = event_of(kind, body)
            if isinstance(event, TaskEnded) and (event.job, event.task) in given:
                since, slots = given.pop((event.job, event.task))
                if event.outcome is Outcome.SUCCEEDED:
                    found[event.job, event.task] = event.at - max(
                        since, *(free_since.get(slot, since) for slot in slots)
                    )
                free_since.update(dict.fromkeys(slots, event.at))
            for action in replay(core, event, body):
                if isinstance(action, Launch):
                    given[action.job, action.task] = core.state.now, list(numbers(action.slots))
    return found


def known_since(folder: Path) -> Instant | None:
    """From when on a journal knows what happened; None: from its beginning.

    Raises:
        HeadwayError: there is no journal.
    """
    with reading(folder) as beginning:
        return beginning.state.now if beginning.seq else None


class Beginning(NamedTuple):
    """What a journal has: its first state, the number of the event after which that was, and all events since.

    Attributes:
        rows: the kinds and bodies of the events.
    """

    seq: int
    state: StateRecord
    rows: Iterator[tuple[str, bytes]]


@contextmanager
def opened(folder: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """The journal of a data directory, and its path.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    path = folder / FILE
    try:
        with closing(connect_to_read(path)) as db:
            yield db, path
    except sqlite3.Error as error:
        raise HeadwayError(f"{path} cannot be read: {error}", "Name a data directory of `headway up`.") from error


@contextmanager
def reading(folder: Path) -> Iterator[Beginning]:
    """The journal of a data directory, as it is at this moment.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    with opened(folder) as (db, path):
        db.execute("BEGIN")
        seq, body = _first(db, path)
        rows = _rows(db, path, "events", "WHERE seq > ? ORDER BY seq", (seq,))
        yield Beginning(seq, state_of(body), ((kind, body) for _, _, kind, body, *_ in rows))


def _first(db: sqlite3.Connection, path: Path) -> tuple[int, bytes]:
    """The first stored state, and the number of the event after which it was stored."""
    row = next(_rows(db, path, "snapshots", "ORDER BY seq LIMIT 1"), None)
    if row is None:
        raise HeadwayError(f"{path} has no state", "No server has been started on it yet.")
    seq, _, body, *_ = row
    return int(seq), bytes(body)


def _rows(
    db: sqlite3.Connection, path: Path, table: str, which: str, values: tuple[int, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Rows of a table; compared with their checksums, which formats before 3 do not have."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chain'").fetchone():
        return Rows(db, path).of(table, which, values)
    return iter(db.execute(f"SELECT {GUARDED[table]} FROM {table} {which}", values))


class ReplayRecorder:
    """Feeds events to a core, whose recorder records what follows, and keeps the terms of the jobs."""

    def __init__(self, core: Scheduler, *, record: bool) -> None:
        self.core = core
        self.recorder = Recorder(core, run_times=True, attempts=record)
        self.specs: dict[JobId, JobSpec] = {}
        self.due: dict[JobId, Instant] = {}
        self.priority: dict[JobId, float] = {}

    def take_over(self) -> None:
        """Tell of the jobs that are in the system, too."""
        for job in self.core.state.jobs.values():
            self.specs[job.id], self.due[job.id], self.priority[job.id] = job.spec, job.due, job.priority
        self.recorder.take_over()

    def take(self, event: Event, body: bytes) -> None:
        """Take an event in, with its body in the table."""
        core, state = self.core, self.core.state
        if isinstance(event, JobSubmitted):
            spec = event.job
            self.specs[spec.id] = spec
            self.due[spec.id] = NEVER if spec.due is None else spec.due
            self.priority[spec.id] = spec.priority
        actions = replay(core, event, body)
        self.recorder.note(event, actions, state.now)
        if isinstance(event, JobChanged) and event.job in state.jobs and event.job in self.specs:
            view = state.jobs[event.job]
            self.due[event.job], self.priority[event.job] = view.due, view.priority
            self.specs[event.job] = view.spec

    def schedule(self, *, until: Instant | None = None) -> Schedule:
        """All of it as columns."""
        return self.recorder.schedule_by_release(self.specs, self.due, self.priority, until=until)


def read_past(folder: Path) -> list[PastJob]:
    """The jobs that have ended, see `past_jobs`, of a data directory; its server may run.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    with opened(folder) as (db, path):
        return list(past_jobs(db, Rows(db, path)))
