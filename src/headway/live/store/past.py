"""What history needs of ended jobs: their terms, what became of them, how long they ran, numbers that describe them.

A sweep takes it over from the rows of jobs into tables of its own, where it stays when those are deleted. These are
`past_jobs` and `past_unsuccessful` of docs/reference/journal.md. Nothing that was promised depends on them: they may be
emptied, and rows that were changed on the disk, or that this version cannot read, are left out.

Jobs that did not succeed have a table of their own, so that however many they are, those that tell run times stay.
"""

from __future__ import annotations

import heapq
import logging
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headway.errors import Damaged
from headway.history.features import ON_CLASS, numbers_of
from headway.history.tasks import mean_estimate
from headway.live.store.bodies import encode, work_of
from headway.live.store.checks import DROPPED_AT_ONCE
from headway.live.store.rows import Rows
from headway.live.store.specs import Specs
from headway.live.store.vouching import row_sum
from headway.model.actions import JobStatus
from headway.model.instant import Duration, Instant
from headway.model.job import Bag, JobId, JobSpec, Rigid
from headway.model.outcome import Outcome
from headway.wire import Commands
from headway.wire.reading import is_packed

SUCCESSFUL: Final = "past_jobs"

UNSUCCESSFUL: Final = "past_unsuccessful"

_COLUMNS: Final = (
    "job INTEGER PRIMARY KEY, ended INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,"
    " took INTEGER NOT NULL, terms BLOB NOT NULL, features BLOB NOT NULL"
)
_REST: Final = "sum INTEGER NOT NULL, UNIQUE (user, name, job)"

PAST_TABLES: Final = (
    f"{SUCCESSFUL} ({_COLUMNS}, {_REST})",
    f"{UNSUCCESSFUL} ({_COLUMNS}, status TEXT NOT NULL, why TEXT NOT NULL, {_REST})",
)
"""What is known of past jobs; older journals get these tables when they are opened."""

OF_PROGRAM: Final = 200
"""So many jobs of one name and user are kept in each table, the last ones: they tell enough, and leave room for other
programs."""

BEHIND_MAX: Final = 20_000
"""A sweep takes over so many jobs at most: of more that have ended since the one before, the last ones."""

LATEST_JOBS: Final = 2_000
"""Of the jobs that no sweep has taken over yet, so many are read: those that ended last."""

MESSAGES_LOOKED_AT: Final = 1_000
"""Why a job failed is told by the first of its failed tasks, among so many tasks that ended."""

_REACHED: Final = "past"
"""Under this name `meta` has the end of the last job that was taken over."""

_WORK: Final = f"CASE WHEN status = '{JobStatus.SUCCEEDED.value}' THEN work END"
"""The work of a job that did not succeed is not read: of one that failed all of it is kept."""

_NO_FAILURE: Final = (Outcome.SUCCEEDED.value, Outcome.CANCELLED.value)

log = logging.getLogger(__name__)

_features = msgspec.msgpack.Decoder(dict[str, float])


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that has ended.

    Attributes:
        job: its terms, as far as they tell how long others like it run, and what they ask for; of a workflow as if it
            were a bag.
        ended: when.
        took: how long its tasks ran in the mean; if it did not succeed, see `mean_unsuccessful`.
        features: numbers that describe it beyond its terms: those in its command, if it succeeded, and which share of
            the tasks that succeeded ran on which class of nodes.
        status: what became of it.
        why: how one of its tasks failed: the word of an `Outcome`; empty: none did, or it is not known.
    """

    job: JobSpec
    ended: Instant
    took: Duration
    features: Mapping[str, float]
    status: JobStatus = JobStatus.SUCCEEDED
    why: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it tells how long others like it run."""
        return self.status is JobStatus.SUCCEEDED


class PastTable:
    """Writes and reads the tables.

    Args:
        db: the journal's file.
        rows: reads the others of its tables.
        transaction: makes what is written durable; raises `NotNow` if it cannot.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        rows: Rows,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._db = db
        self._rows = rows
        self._transaction = transaction
        self._specs = Specs()
        self._after: tuple[Instant, JobId] | None = None

    def jobs(self) -> Iterator[PastJob]:
        """See `past_jobs`."""
        return past_jobs(self._db, self._rows)

    def take_over(self, most: int, limit: int) -> Iterator[None]:
        """Take over what history needs of the jobs that have ended since the last time, one part with each `next`.

        Args:
            most: so many past jobs are kept in each table, those that came last.
            limit: so many jobs are looked at in one part.

        Raises:
            NotNow: not now; the next time begins where this one ended.
        """
        after = self._begin() if most else None
        while after is not None:
            found = self._db.execute(
                "SELECT ended, id FROM jobs WHERE ended IS NOT NULL AND (ended, id) > (?, ?)"
                " ORDER BY ended, id LIMIT ?",
                (*after, limit),
            ).fetchall()
            if found:
                after = found[-1]
                self._write([job for _, job in found], after[0])
                self._after = after
            if len(found) < limit:
                break
            yield
        while self._drop(most):
            yield

    def _begin(self) -> tuple[Instant, JobId]:
        """Behind which job to begin: the end of an ended job, and its id."""
        after = self._after or (_reached(self._rows), 0)
        last = self._db.execute(
            "SELECT ended, id FROM jobs WHERE ended IS NOT NULL ORDER BY ended DESC, id DESC LIMIT 1 OFFSET ?",
            (BEHIND_MAX,),
        ).fetchone()
        return after if last is None else max(after, last)

    def _write(self, jobs: Sequence[JobId], reached: Instant) -> None:
        """Take over these jobs."""
        new = [past for job in jobs for past in [self._past_of(job)] if past is not None]
        with self._transaction() as db:
            for past in new:
                row = _row_of(past)
                db.execute(f"INSERT OR REPLACE INTO {_table_of(past)} VALUES ({', '.join('?' * len(row))})", row)
            for table, user, name in {(_table_of(past), past.job.user, past.job.name) for past in new}:
                db.execute(
                    f"DELETE FROM {table} WHERE user = ?1 AND name = ?2 AND job <="
                    f" (SELECT job FROM {table} WHERE user = ?1 AND name = ?2 ORDER BY job DESC LIMIT 1 OFFSET ?3)",
                    (user, name, OF_PROGRAM),
                )
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_REACHED, reached))

    def _past_of(self, job: JobId) -> PastJob | None:
        """What history needs of a job; None: it needs nothing of it, or its row was changed on the disk."""
        try:
            row = self._rows.one("jobs", "WHERE id = ?", (job,), body=_WORK)
        except Damaged as error:  # `headway check` tells of it, and so does whoever asks for the job
            log.warning("nothing is learnt from job %d: %s", job, error.args[0])
            return None
        return None if row is None else _past_of(self._db, self._specs, row)

    def _drop(self, most: int) -> bool:
        """Delete some of those that are too many; returns whether there may be more.

        When jobs that succeeded have been deleted, others from before the first that is left go, too: else it would
        seem that programs had failed more often than they did.
        """
        (successful,) = self._db.execute(f"SELECT count(*) FROM {SUCCESSFUL}").fetchone()
        (others,) = self._db.execute(f"SELECT count(*) FROM {UNSUCCESSFUL}").fetchone()
        (before,) = self._db.execute(
            f"SELECT count(*) FROM {UNSUCCESSFUL} WHERE job < (SELECT min(job) FROM {SUCCESSFUL})"
        ).fetchone()
        over = max(others - most, before if successful >= most else 0)
        for table, many in ((SUCCESSFUL, successful - most), (UNSUCCESSFUL, over)):
            if many > 0:
                first = f"SELECT job FROM {table} ORDER BY job LIMIT ?"
                with self._transaction() as db:
                    db.execute(f"DELETE FROM {table} WHERE job IN ({first})", (min(many, DROPPED_AT_ONCE),))
                return True
        return False


def past_jobs(db: sqlite3.Connection, rows: Rows) -> Iterator[PastJob]:
    """The jobs that have ended, as far as history has them, in the order of their ends.

    Those that ended last come from the rows of jobs, see `LATEST_JOBS`.

    Raises:
        Damaged: the row of a job was changed on the disk.
        NotNow: another program has locked the file.
    """
    reached, known = _reached(rows), set[JobId]()
    kept = heapq.merge(_kept(db, SUCCESSFUL), _kept(db, UNSUCCESSFUL), key=lambda past: (past.ended, past.job.id))
    for past in kept:
        if past.ended >= reached:
            known.add(past.job.id)
        yield past
    yield from _ended(db, rows, "ended >= ?", reached, LATEST_JOBS, known)


def last_jobs(db: sqlite3.Connection, rows: Rows, after: Instant, most: int) -> Iterator[PastJob]:
    """So many jobs that have ended since an instant: those that ended last, in the order of their ends.

    Raises as `past_jobs`.
    """
    return _ended(db, rows, "ended > ?", after, most, frozenset())


def _ended(
    db: sqlite3.Connection, rows: Rows, which: str, instant: Instant, most: int, known: Collection[JobId]
) -> Iterator[PastJob]:
    """What history needs of so many jobs that ended last, without those that are known."""
    found = rows.of("jobs", f"WHERE {which} ORDER BY ended DESC, id DESC LIMIT ?", (instant, most), body=_WORK)
    latest = [row for row in found if row[0] not in known]
    specs = Specs()
    for row in reversed(latest):
        past = _past_of(db, specs, row)
        if past is not None:
            yield past


def _reached(rows: Rows) -> Instant:
    row = rows.one("meta", "WHERE name = ?", (_REACHED,))
    return 0 if row is None else int(row[1])


def _kept(db: sqlite3.Connection, table: str) -> Iterator[PastJob]:
    """The rows of a table, in the order of their ends."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
        return  # no server of this version has opened the journal yet
    specs, changed, unknown = Specs(), 0, 0
    for *values, its_sum in db.execute(f"SELECT * FROM {table} ORDER BY ended, job"):
        if row_sum(*values) != its_sum:
            changed += 1
            continue
        _, ended, _, _, took, terms, features, *rest = values
        status, why = rest or (JobStatus.SUCCEEDED, "")
        try:
            past = PastJob(specs.of(terms), ended, took, _features.decode(features), JobStatus(status), why)
        except (msgspec.DecodeError, zlib.error, ValueError):
            unknown += 1  # as another version of Headway wrote it
        else:
            yield past
    if changed:
        log.warning("%d rows of %s are not as they were written, and are left out", changed, table)
    if unknown:
        log.warning("%d rows of %s are of another version of Headway, and are left out", unknown, table)


def _table_of(past: PastJob) -> str:
    return SUCCESSFUL if past.succeeded else UNSUCCESSFUL


def _row_of(past: PastJob) -> tuple[Any, ...]:
    job = past.job
    rest = () if past.succeeded else (past.status.value, past.why)
    values = (job.id, past.ended, job.user, job.name, past.took, encode(job), encode(dict(past.features)), *rest)
    return (*values, row_sum(*values))


def _past_of(db: sqlite3.Connection, specs: Specs, row: tuple[Any, ...]) -> PastJob | None:
    """What history needs of an ended job, by its row; None: nothing, for example because nothing tells how long it ran.

    A workflow of very many tasks is left out: to read its terms takes too long.
    """
    job, _, _, _, word, _, started, ended, _, _, spec, *_, work = row
    status = JobStatus(word)
    if is_packed(spec) or (started is None and status is JobStatus.SUCCEEDED):
        return None
    terms = specs.of(spec)
    if terms.endless:
        return None
    tasks, spent, shares = _where_it_ran(db, job)
    mean = _work(db, job)
    if mean is not None:
        spent = tasks * mean
    lasted = 0 if started is None else ended - started
    features = {f"{ON_CLASS}{node_class}": share for node_class, share in shares.items()}
    if status is not JobStatus.SUCCEEDED:
        why = _why(db, job) if status is JobStatus.FAILED else ""
        return past_job(terms, ended, mean_unsuccessful(terms, lasted, spent), features, status, why)
    known = None if work is None else work_of(work)
    if isinstance(known, Commands):
        features |= numbers_of(known.commands[0].argv)
    if mean is None:
        mean = round(spent / tasks) if tasks else lasted
    return past_job(terms, ended, mean, features)


def _where_it_ran(db: sqlite3.Connection, job: JobId) -> tuple[int, Duration, dict[str, float]]:
    """How many tasks of a job succeeded, how long they ran together, and the share on each class of nodes."""
    found = db.execute("SELECT node_class, tasks, mean FROM job_statistics WHERE job = ?", (job,)).fetchall()
    tasks = sum(count for _, count, _ in found)
    shares = {node_class: count / tasks for node_class, count, _ in found}
    return tasks, sum(count * its_mean for _, count, its_mean in found), shares


def _work(db: sqlite3.Connection, job: JobId) -> Duration | None:
    """How long a task would have run on a slot of speed factor 1, in the mean; None: its tasks ran on such slots."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'job_work'").fetchone():
        return None  # no server of this version has opened the journal yet
    row = db.execute("SELECT work FROM job_work WHERE job = ?", (job,)).fetchone()
    return None if row is None else int(row[0])


def _why(db: sqlite3.Connection, job: JobId) -> str:
    """How the first task of a job that failed did so, as far as its messages are still there."""
    row = db.execute(
        "SELECT word FROM (SELECT word FROM messages WHERE job = ? AND task IS NOT NULL ORDER BY task LIMIT ?)"
        " WHERE word NOT IN (?, ?) LIMIT 1",
        (job, MESSAGES_LOOKED_AT, *_NO_FAILURE),
    ).fetchone()
    return "" if row is None else str(row[0])


def mean_unsuccessful(spec: JobSpec, lasted: Duration, spent: Duration) -> Duration:
    """How long each task of a job that did not succeed had its slots, in the mean: what it took from others.

    Those that succeeded had them for their run times. Of the others it is not known, but from the first start to the
    end at least one task had its slots.

    Args:
        lasted: from its first start to its end; 0: it never started.
        spent: how long those of its tasks ran that succeeded, together.
    """
    return max(lasted, spent) // spec.tasks


def past_job(
    spec: JobSpec,
    ended: Instant,
    took: Duration,
    features: Mapping[str, float] | None = None,
    status: JobStatus = JobStatus.SUCCEEDED,
    why: str = "",
) -> PastJob:
    """What history keeps of an ended job. Its arguments are as the attributes of `PastJob`."""
    return PastJob(_in_short(spec), ended, took, features or {}, status, why)


def _in_short(spec: JobSpec) -> JobSpec:
    """The terms that tell how long others like it run, and what jobs like it ask for."""
    estimate = mean_estimate(spec)
    terms = spec.id, spec.release, estimate, spec.due, spec.priority, spec.rate, spec.shape, spec.user, spec.name
    if spec.rigid:
        return Rigid(*terms, features=spec.features, width=spec.width)
    return Bag(*terms, features=spec.features, tasks=spec.tasks)
