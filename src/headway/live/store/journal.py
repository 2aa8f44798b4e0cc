"""Everything that must survive the process, in one SQLite file: events, snapshots, jobs, their work and their results.

The state of the core follows from the events. Everything else is stored in the same transaction as the event it belongs
to, so after a crash all of it is there or none. The tables are described in docs/reference/journal.md.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import Damaged
from headway.errors import JournalBusy as JournalBusy
from headway.errors import JournalFull as JournalFull
from headway.errors import NotNow as NotNow
from headway.live.parts import WorkInParts
from headway.live.store import checks, retained
from headway.live.store.away import Away
from headway.live.store.bodies import encode as encode
from headway.live.store.bodies import state_body as state_body
from headway.live.store.bodies import state_of as state_of
from headway.live.store.bodies import work_body as work_body
from headway.live.store.bodies import work_of as work_of
from headway.live.store.checks import Checks, CostRow, LossRow, MoneyRow, StatisticsRow, WorkRow
from headway.live.store.clients import Clients
from headway.live.store.decisions import EventRow, event_of, replay
from headway.live.store.disk import DataDirectory, Disk
from headway.live.store.expiry import Expiry
from headway.live.store.mark import MARK_FILE
from headway.live.store.messages import MessageRow, NewMessage, Page
from headway.live.store.past import PastTable
from headway.live.store.refusals import RefusalTable
from headway.live.store.retained import Retained
from headway.live.store.rows import Rows, not_whole, refuse
from headway.live.store.schema import ASKED_EVENTS
from headway.live.store.schema import FILE as FILE
from headway.live.store.schema import FORMAT as FORMAT
from headway.live.store.specs import Specs
from headway.model.actions import Action, JobStatus
from headway.model.events import Asked, Event, Incident
from headway.model.instant import Instant
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome
from headway.wire import TaskRange, TaskResult, Work

_STARTED: Final = "UPDATE jobs SET started = ? WHERE id = ? AND started IS NULL"

_result = msgspec.msgpack.Decoder(TaskResult)
log = logging.getLogger(__name__)


class JobRow(NamedTuple):
    """A job as the journal has it; `status`, `ended`, `done` and `failed` are None until it has ended.

    `done` counts the tasks that succeeded or failed, `failed` those that failed. The others were cancelled.
    """

    id: JobId
    client: int
    status: JobStatus | None
    submitted: Instant
    started: Instant | None
    ended: Instant | None
    done: int | None
    failed: int | None
    spec: JobSpec


EndedRow = tuple[str, Instant | None, Instant, int, int, bool, bytes | None, JobId]
"""A job that has ended: status, when it started and ended, how many of its tasks succeeded or failed, and how many
failed; whether its work and its functions are kept because its failed tasks may be run again; what is kept of its work
if they are not; its id."""


class Accepted(NamedTuple):
    """How a submission with this key was answered."""

    digest: bytes
    first: JobId
    jobs: int
    cursor: int


@dataclass(slots=True)
class Batch:
    """What becomes durable together, as rows of the tables."""

    events: list[EventRow] = field(default_factory=list)
    messages: list[NewMessage] = field(default_factory=list)
    jobs: list[tuple[JobId, int, str, str, Instant, bytes, str, bytes]] = field(default_factory=list)
    blobs: list[tuple[str, Instant, bytes]] = field(default_factory=list)
    used: list[tuple[Instant, str]] = field(default_factory=list)
    clients: list[tuple[int, str]] = field(default_factory=list)
    submissions: list[tuple[str, str, bytes, JobId, int, int, Instant]] = field(default_factory=list)
    ended: list[EndedRow] = field(default_factory=list)
    terms: list[tuple[bytes, JobId]] = field(default_factory=list)
    statistics: list[StatisticsRow] = field(default_factory=list)
    losses: list[LossRow] = field(default_factory=list)
    costs: list[CostRow] = field(default_factory=list)
    money: list[MoneyRow] = field(default_factory=list)
    work: list[WorkRow] = field(default_factory=list)
    acknowledged: list[tuple[JobId, int, int, int, Instant]] = field(default_factory=list)
    uploads: list[tuple[str, Instant, int]] = field(default_factory=list)
    outputs: list[tuple[JobId, int, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything: all but acknowledgements comes with an event."""
        return bool(self.events or self.acknowledged)


_STATEMENTS: Final = {
    "events": "INSERT INTO events VALUES (?, ?, ?, ?)",
    "jobs": "INSERT INTO jobs VALUES (?, ?, ?, ?, NULL, ?, NULL, NULL, NULL, NULL, ?, ?, ?)",
    "messages": "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "blobs": "INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)",
    "used": "UPDATE blobs SET used = ? WHERE name = ?",
    "clients": "INSERT OR IGNORE INTO clients VALUES (?, ?)",
    "submissions": "INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?, ?)",
    "ended": """UPDATE jobs SET status = ?, started = ?, ended = ?, done = ?, failed = ?,
        functions = CASE WHEN ?6 THEN functions END, work = CASE WHEN ?6 THEN work ELSE ?7 END WHERE id = ?8""",
    "terms": "UPDATE jobs SET spec = ? WHERE id = ?",
    "statistics": checks.PUT_STATISTICS,
    "losses": checks.PUT_LOSSES,
    "costs": checks.PUT_COSTS,
    "money": checks.PUT_MONEY,
    "work": checks.PUT_WORK,
    "acknowledged": retained.PUT_ACKNOWLEDGED,
    "uploads": retained.PUT_UPLOAD,
    "outputs": retained.PUT_OUTPUT,
    "facts": "INSERT OR REPLACE INTO meta VALUES (?, ?)",
}

_IN_PARTS: Final = ("events", "jobs")
"""Tables whose rows `writing` adds part by part, before all others: they tell nobody what was accepted or has ended."""

ROWS_WRITTEN_AT_ONCE: Final = 250
"""Rows that are added in one go, in a few milliseconds."""

HURRY_MILLISECONDS: Final = 5
"""How long the event loop waits for a lock that another program holds on the file."""


class Journal:
    """The store of one data directory, for one process at a time.

    Args:
        folder: the data directory; made if it does not exist.
        accept_loss: if the journal is damaged, begin with its intact part; the damaged files are kept beside it.
        disk: where everything is stored; None: in the folder.

    Attributes:
        disk: as given, or the folder.
        checks: the tables of the status checker.
        refusals: the table of refused requests.
        retained: the tables of what is kept for callers, and until when.
        expiry: deletes rows that are not needed.
        past: what history needs of jobs that have ended.
        away: the gaps in which nothing could be fetched.
        clients: the numbers of clients.
        specs: reads the terms of jobs.
        epoch: the name of this journal's history; a journal that was restored, or has lost something, has a new one.
        accept_loss: as given.
        given_up: what was lost and is accepted as lost, in sentences.

    Raises:
        Damaged: the journal is not what was written, or not all of it.
        HeadwayError: the directory cannot be made or written to, another process uses it, or its format is newer.
    """

    def __init__(self, folder: Path, *, accept_loss: bool = False, disk: Disk | None = None) -> None:
        self.folder = folder
        self.accept_loss = accept_loss
        self.disk = DataDirectory(folder) if disk is None else disk
        opened = self.disk.open(accept_loss=accept_loss)
        self._lock, self._db, self._vouching, self._mark, self.epoch, self.given_up = opened
        self._mark_fails = False
        self._writing: WorkInParts[None] | None = None
        self._is_in_parts = False
        self._rows = Rows(self._db, folder / FILE)
        self.checks = Checks(self._db, self._transaction)
        self.refusals = RefusalTable(self._db, self._transaction)
        self.retained = Retained(self._db, self._transaction)
        self.away = Away(self._db, self._rows, self._transaction)
        self.expiry = Expiry(self._db, self._transaction, self.away)
        self.past = PastTable(self._db, self._rows, self._transaction)
        self.clients = Clients(self._db)
        self.specs = Specs()
        if self.noted("format") != FORMAT:
            self.note("format", FORMAT)  # an older Headway could not read what is written from now on

    def close(self) -> None:
        """Close the file and unlock the directory."""
        try:
            if self._writing is not None:
                self._writing.drop()
            self._db.close()
            self._mark.close()
        finally:
            self.disk.unlock(self._lock)

    def mark_clean(self, clean: bool) -> bool:
        """Record whether it counts as a proper end if the process ends from now on; returns what was recorded before.

        Raises:
            NotNow: the disk is full, or another program has locked the file.
        """
        before = self.noted("clean")
        self.note("clean", int(clean))
        return bool(before)

    def note(self, name: str, value: int | str) -> None:
        """Store a number, or a text, under a name.

        Raises:
            NotNow: the disk is full, or another program has locked the file.
        """
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def noted(self, name: str) -> int | None:
        """The number stored under a name; None if there is none."""
        row = self._rows.one("meta", "WHERE name = ?", (name,))
        return None if row is None else int(row[1])

    def fact(self, name: str) -> str | None:
        """The text stored under a name (`Batch.facts`); None if there is none."""
        row = self._rows.one("meta", "WHERE name = ?", (name,))
        return None if row is None else str(row[1])

    def hurry(self) -> None:
        """From now on an event loop waits for the journal: wait only briefly for another program's lock."""
        self._db.execute(f"PRAGMA busy_timeout = {HURRY_MILLISECONDS}")

    def limit_pages(self, pages_max: int) -> None:
        """Limit the size of the file, in pages of 4 KiB."""
        self._db.execute(f"PRAGMA max_page_count = {int(pages_max)}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Rows that are added, changed or deleted together, all of them or none; the chain gets one row for it.

        Whatever the statements are, the triggers of the schema count the rows, see `live.store.vouching`. If a batch
        is being written part by part, the rest of it is written first.
        """
        db = self._db
        if self._is_in_parts and self._writing is not None:
            self._writing.do_rest()
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            reached = self._vouching.end()
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._vouching.rolled_back()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
                refuse(error, self.folder / FILE)
            raise
        if reached is not None:
            self._vouching.committed(reached)
            self._note_reached()

    def _note_reached(self) -> None:
        """Advance the mark. If that fails, the mark stays behind, with a warning and no other harm."""
        try:
            self._mark.write(self._vouching.reached)
        except OSError as error:
            if not self._mark_fails:
                log.warning("%s cannot be written: %s", self.folder / MARK_FILE, error.strerror or error)
            self._mark_fails = True
        else:
            self._mark_fails = False

    # Writing

    def write(self, batch: Batch) -> None:
        """Make a batch durable, all of it or nothing.

        Raises:
            NotNow: the disk is full, or another program has locked the file.
        """
        self.writing(batch).whole()

    def writing(self, batch: Batch) -> WorkInParts[None]:
        """Make a batch durable part by part: after the last part it is, before that nothing of it.

        Until then this connection sees its events and its jobs, but nothing else of it.

        Raises:
            NotNow: by a step: the disk is full, or another program has locked the file.
        """
        if self._is_in_parts and self._writing is not None:
            self._writing.do_rest()
        self._writing = WorkInParts(self._write(batch))
        return self._writing

    def _write(self, batch: Batch) -> Generator[None, None, None]:
        files = [(message[2], message[6]) for message in batch.messages if message[6]]
        stored = sum(size for name, _, size in batch.uploads if size and not self.retained.has_upload(name))
        with self._transaction() as db:
            for name, statement in _STATEMENTS.items():
                rows = getattr(batch, name)
                if name in _IN_PARTS:
                    for first in range(0, len(rows), ROWS_WRITTEN_AT_ONCE):
                        if first:
                            yield from self._pause()
                        db.executemany(statement, rows[first : first + ROWS_WRITTEN_AT_ONCE])
                elif rows:
                    db.executemany(statement, rows)
        self.retained.stored += stored
        self.retained.keep(files)
        self.clients.recorded(batch.clients)

    def _pause(self) -> Generator[None, None, None]:
        """Let others be served within a transaction.

        Raises:
            JournalBusy: SQLite has rolled the transaction back, because a statement of theirs failed.
        """
        self._is_in_parts = True
        try:
            yield
        finally:
            self._is_in_parts = False
        if not self._db.in_transaction:
            raise JournalBusy(
                f"{self.folder / FILE} could not be read or written meanwhile, so nothing of this was stored",
                "It is tried again.",
            )

    def store_snapshot(self, seq: int, record: StateRecord, started: Iterable[tuple[Instant, JobId]]) -> None:
        """Store the state after event `seq`.

        `started` are the first launches of open jobs, which the events after the snapshot do not tell.

        Raises:
            NotNow: the disk is full, or another program has locked the file.
        """
        self.note_started(started)
        self.store_state(seq, record.now, state_body(record))

    def store_state(self, seq: int, at: Instant, body: bytes) -> None:
        """Store the state after event `seq`, which happened at the instant `at`; `state_body` makes its body.

        Raises:
            NotNow: the disk is full, or another program has locked the file.
        """
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (seq, at, body))

    def note_started(self, started: Iterable[tuple[Instant, JobId]]) -> None:
        """Store the first launches of open jobs before a snapshot, because the events after it do not tell them.

        Raises:
            NotNow: the disk is full, or another program has locked the file.
        """
        with self._transaction() as db:
            db.executemany(_STARTED, started)

    # Reading

    @property
    def is_new(self) -> bool:
        """Whether no state has been stored in it yet."""
        return self._db.execute("SELECT 1 FROM snapshots LIMIT 1").fetchone() is None

    def snapshot(self, *, first: bool = False) -> tuple[int, StateRecord] | None:
        """The last stored state, or the first, and the number of the event that it follows; None in a new directory."""
        order = "ASC" if first else "DESC"
        row = self._rows.one("snapshots", f"ORDER BY seq {order} LIMIT 1")
        return None if row is None else (row[0], state_of(row[2]))

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The events with greater numbers, in order."""
        rows = self._rows.of("events", "WHERE seq > ? ORDER BY seq", (after,))
        return ((seq, event_of(kind, body)) for seq, _, kind, body, _ in rows)

    def replay(self, core: Scheduler, after: int) -> Iterator[tuple[Event, list[Action]]]:
        """Let a core handle the events with greater numbers as they were handled; with the actions of each."""
        for _, _, kind, body, _ in self._rows.of("events", "WHERE seq > ? ORDER BY seq", (after,)):
            event = event_of(kind, body)
            yield event, replay(core, event, body)

    def incidents(self, limit: int, after: int = 0, *, before: int | None = None) -> list[tuple[int, Incident]]:
        """The latest incidents with event numbers between these, at most `limit`, in order."""
        values = (after, self._beyond(before), limit)
        rows = self._rows.of(
            "events", "WHERE kind = 'Incident' AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?", values
        )
        told = [(seq, event_of(kind, body)) for seq, _, kind, body, _ in rows]
        return [(seq, event) for seq, event in reversed(told) if isinstance(event, Incident)]

    def asked(self, limit: int, after: int = 0, *, before: int | None = None) -> list[tuple[int, Asked]]:
        """The latest events with numbers between these that a caller may have asked for, at most `limit`, in order.

        Events from before callers were recorded have no `by`.
        """
        values = (after, self._beyond(before), limit)
        rows = self._rows.of(
            "events", f"WHERE {ASKED_EVENTS} AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?", values
        )
        events = ((seq, event_of(kind, body)) for seq, _, kind, body, _ in rows)
        return [(seq, event) for seq, event in events if isinstance(event, Asked)][::-1]

    def _beyond(self, before: int | None) -> int:
        """The number that events must be less than to be durable, and before this one."""
        durable = self._vouching.reached.event + 1
        return durable if before is None else min(before, durable)

    def last(self) -> tuple[int, int, JobId]:
        """The greatest numbers so far: of an event, a message, a job; 0 if there has been none.

        Numbers are never reused, whatever was deleted since.
        """
        reached = self._vouching.reached
        return reached.event, reached.message, reached.job

    def job(self, job: JobId) -> JobRow | None:
        """One job; None if there is none with this id."""
        row = self._rows.one("jobs", "WHERE id = ?", (job,))
        return None if row is None else self._job_row(row)

    def end_of(self, job: JobId) -> tuple[JobStatus | None] | None:
        """How a job has ended, None in it if it has not; None if there is none with this id. Its terms are not read."""
        row = self._rows.one("jobs", "WHERE id = ?", (job,))
        return None if row is None else (None if row[4] is None else JobStatus(row[4]),)

    def when_ended(self, job: JobId) -> Instant | None:
        """When a job has ended; None if it has not, or is not known (any more). Its terms are not read."""
        row = self._rows.one("jobs", "WHERE id = ?", (job,))
        return None if row is None else row[7]

    def jobs(
        self,
        *,
        after: JobId = 0,
        until: JobId | None = None,
        open_only: bool = False,
        status: JobStatus | None = None,
        user: str | None = None,
        limit: int = -1,
    ) -> list[JobRow]:
        """Jobs in order of their ids, after `after` and up to `until`; `status` is a final one."""
        wanted, values = ["id > ?"], list[Any]([after])
        if until is not None:
            wanted.append("id <= ?")
            values.append(until)
        if open_only:
            wanted.append("ended IS NULL")
        if status is not None:
            wanted.append("status = ?")
            values.append(status.value)
        if user is not None:
            wanted.append("user = ?")
            values.append(user)
        rows = self._rows.of("jobs", f"WHERE {' AND '.join(wanted)} ORDER BY id LIMIT ?", (*values, limit))
        return [self._job_row(row) for row in rows]

    def progress(self) -> dict[JobId, tuple[int, int, int]]:
        """How many tasks of each open job succeeded or failed, how many failed, and how many were cancelled, if any."""
        rows = self._db.execute(
            "SELECT job, sum(word != ?2), sum(word NOT IN (?1, ?2)), sum(word = ?2) FROM messages"
            " WHERE task IS NOT NULL AND job IN (SELECT id FROM jobs WHERE ended IS NULL) GROUP BY job",
            (Outcome.SUCCEEDED.value, Outcome.CANCELLED.value),
        )
        return {job: (done, failed, cancelled) for job, done, failed, cancelled in rows}

    def open_jobs(self) -> set[JobId]:
        """Ids of the jobs that have not ended."""
        return {job for (job,) in self._db.execute("SELECT id FROM jobs WHERE ended IS NULL")}

    def lacking(self) -> dict[JobId, str]:
        """Open jobs that cannot run, and why: only if something was lost."""
        found: dict[JobId, str] = {}
        known = {name for table in ("blobs", "uploads") for (name,) in self._db.execute(f"SELECT name FROM {table}")}
        rows = self._db.execute("SELECT id, functions, work IS NULL FROM jobs WHERE ended IS NULL")
        for job, functions, is_lost in rows:
            missing = sorted({*functions.split()} - known)
            if is_lost:
                found[job] = "its work is lost"
            elif missing:
                found[job] = f"what it needs is lost: {', '.join(missing)}"
        return found

    def work(self, job: JobId) -> Work:
        """The work of an open job."""
        return work_of(self._there("jobs", "WHERE id = ?", job, body="work")[-1])

    def kept_work(self, job: JobId) -> Work | None:
        """The work of a job as far as it is kept; of an ended job without failures, only in short."""
        row = self._rows.one("jobs", "WHERE id = ?", (job,), body="work")
        return None if row is None or row[-1] is None else work_of(row[-1])

    def outcomes(self, job: JobId, first: int, last: int, *, unsuccessful: bool = False) -> list[tuple[int, str]]:
        """Tasks from number `first` up to but without `last` that have a final outcome, with the outcome; in order.

        Args:
            unsuccessful: only those that did not succeed.
        """
        but = f"AND word <> '{Outcome.SUCCEEDED.value}'" if unsuccessful else ""
        query = f"SELECT task, word FROM messages WHERE job = ? AND task >= ? AND task < ? {but} ORDER BY task"
        return self._db.execute(query, (job, first, last)).fetchall()

    def needs(self) -> Iterator[tuple[JobId, str]]:
        """The functions and uploads that each open job needs: their names, with spaces between them."""
        return iter(self._db.execute("SELECT id, functions FROM jobs WHERE ended IS NULL"))

    def size(self) -> int:
        """Bytes of the journal's file, without the log."""
        return self.disk.size()

    def log_size(self) -> int:
        """Bytes of the write-ahead log; it cannot be restarted while another program reads an older state."""
        return self.disk.log_size()

    def blob(self, name: str) -> bytes:
        """A blob that an open job needs."""
        body: bytes = self._there("blobs", "WHERE name = ?", name)[2]
        return body

    def client_of(self, job: JobId) -> int | None:
        """The number of the client that submitted a job; None if there is no job with this id."""
        row = self._rows.one("jobs", "WHERE id = ?", (job,))
        return None if row is None else int(row[1])

    def user_of(self, job: JobId) -> str | None:
        """The user of a job; None if there is no job with this id."""
        row = self._rows.one("jobs", "WHERE id = ?", (job,))
        return None if row is None else str(row[3])

    def has_blob(self, name: str) -> bool:
        """Whether a blob is stored."""
        return self._db.execute("SELECT 1 FROM blobs WHERE name = ?", (name,)).fetchone() is not None

    def accepted(self, caller: str, key: str) -> Accepted | None:
        """How a caller's submission with this key was answered; None if there was none."""
        row = self._rows.one("submissions", "WHERE caller = ? AND key = ?", (caller, key))
        return None if row is None else Accepted(*row[2:6])

    def messages(
        self,
        after: int,
        limit: int,
        *,
        client: str | None = None,
        jobs: Sequence[JobId] = (),
        result_max: int = 0,
        size_max: int = 32 << 20,
    ) -> Page:
        """Messages with greater numbers: of a client's jobs, of these jobs, or all.

        Args:
            after: their numbers are greater.
            limit, size_max: see `Page`.
            result_max: results of at most so many bytes are included.
        """
        wanted, values = "", list[Any]()
        if client is not None:
            wanted, values = "client = ? AND", [self.clients.known(client)]
        elif jobs:
            wanted, values = f"job IN ({', '.join('?' * len(jobs))}) AND", list(jobs)
        rows = self._rows.of(
            "messages",
            f"WHERE {wanted} number > ? ORDER BY number LIMIT ?",
            (result_max, *values, after, limit + 1),
            body="CASE WHEN length(result) <= ? THEN result END",
        )
        page = Page(limit, size_max)
        for number, _, job, task, _, word, _, _, result in rows:
            page.add(MessageRow(number, job, task, word, result))
            if page.is_closed:
                break
        return page

    def results(self, wanted: Sequence[TaskRange], size_max: int) -> tuple[list[bytes], bool]:
        """Encoded results of ranges of tasks, in order, and whether the list was cut.

        It is cut before the result that would bring it above `size_max` bytes; the first result is always included.
        """
        found: list[bytes] = []
        size = 0
        for tasks in wanted:
            rows = self._rows.of(
                "messages",
                "WHERE job = ? AND task >= ? AND task < ? AND result IS NOT NULL ORDER BY task",
                (tasks.job, tasks.first, retained.AFTER_ALL_TASKS if tasks.last is None else tasks.last),
                body="result",
            )
            for *_, result in rows:
                size += len(result)
                if found and size > size_max:
                    return found, True
                found.append(result)
        return found, False

    def result(self, job: JobId, task: int) -> TaskResult:
        """The result of a task of an open job.

        Raises:
            Damaged: it is not there.
        """
        found, _ = self.results([TaskRange(job, task, task + 1)], 1)
        if not found:
            raise Damaged(
                f"{self.folder / FILE} is damaged: the result of task {task} of job {job} is missing",
                not_whole(self.folder),
            )
        return _result.decode(found[0])

    def _job_row(self, row: tuple[Any, ...]) -> JobRow:
        job, client, _, _, status, submitted, started, ended, done, failed, spec, *_ = row
        final = None if status is None else JobStatus(status)
        return JobRow(job, client, final, submitted, started, ended, done, failed, self.specs.of(spec))

    def _there(self, table: str, which: str, key: JobId | str, *, body: str = "NULL") -> tuple[Any, ...]:
        """A row that must exist."""
        row = self._rows.one(table, which, (key,), body=body)
        if row is None:
            raise Damaged(
                f"{self.folder / FILE} is damaged: {key!r} is missing from {table}",
                not_whole(self.folder),
            )
        return row
