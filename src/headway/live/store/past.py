"""What history needs of jobs that have succeeded: their terms, how long their tasks ran, numbers that describe them.

A sweep takes it over from the rows of jobs into a table of its own, where it stays when those are deleted. It is the
table `past_jobs` of docs/reference/journal.md. Nothing that was promised depends on it: it may be emptied, and rows
that were changed on the disk, or that this version cannot read, are left out.
"""

from __future__ import annotations

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
from headway.wire import Commands
from headway.wire.reading import is_packed

PAST_TABLE: Final = (
    "past_jobs (job INTEGER PRIMARY KEY, ended INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,"
    " took INTEGER NOT NULL, terms BLOB NOT NULL, features BLOB NOT NULL, sum INTEGER NOT NULL,"
    " UNIQUE (user, name, job))"
)
"""What is known of past jobs; older journals get this table when they are opened."""

OF_PROGRAM: Final = 200
"""So many jobs of one name and user are kept, the last ones: they tell enough, and leave room for other programs."""

BEHIND_MAX: Final = 20_000
"""A sweep takes over so many jobs at most: of more that have ended since the one before, the last ones."""

LATEST_JOBS: Final = 2_000
"""Of the jobs that no sweep has taken over yet, so many are read: those that ended last."""

_REACHED: Final = "past"
"""Under this name `meta` has the end of the last job that was taken over."""

_SUCCEEDED: Final = JobStatus.SUCCEEDED.value

log = logging.getLogger(__name__)

_features = msgspec.msgpack.Decoder(dict[str, float])


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that has succeeded.

    Attributes:
        job: its terms, as far as they tell how long others like it run, and what they ask for; of a workflow as if it
            were a bag.
        ended: when.
        took: how long its tasks ran in the mean.
        features: numbers that describe it beyond its terms: those in its command, and which share of its tasks ran on
            which class of nodes.
    """

    job: JobSpec
    ended: Instant
    took: Duration
    features: Mapping[str, float]


class PastTable:
    """Writes and reads the table.

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
            most: so many past jobs are kept, those that ended last.
            limit: so many jobs are looked at in one part.

        Raises:
            NotNow: not now; the next time begins where this one ended.
        """
        after = self._begin() if most else None
        while after is not None:
            found = self._db.execute(
                "SELECT ended, id, status FROM jobs WHERE ended IS NOT NULL AND (ended, id) > (?, ?)"
                " ORDER BY ended, id LIMIT ?",
                (*after, limit),
            ).fetchall()
            if found:
                after = found[-1][:2]
                self._write([job for _, job, status in found if status == _SUCCEEDED], after[0])
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
        rows = [_row_of(past) for past in new]
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO past_jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            for user, name in {(past.job.user, past.job.name) for past in new}:
                db.execute(
                    "DELETE FROM past_jobs WHERE user = ?1 AND name = ?2 AND job <="
                    " (SELECT job FROM past_jobs WHERE user = ?1 AND name = ?2 ORDER BY job DESC LIMIT 1 OFFSET ?3)",
                    (user, name, OF_PROGRAM),
                )
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_REACHED, reached))

    def _past_of(self, job: JobId) -> PastJob | None:
        """What history needs of a job; None: it needs nothing of it, or its row was changed on the disk."""
        try:
            row = self._rows.one("jobs", "WHERE id = ?", (job,), body="work")
        except Damaged as error:  # `headway check` tells of it, and so does whoever asks for the job
            log.warning("nothing is learnt from job %d: %s", job, error.args[0])
            return None
        return None if row is None else _past_of(self._db, self._specs, row)

    def _drop(self, most: int) -> bool:
        """Delete some of those that are too many; returns whether there may be more."""
        (count,) = self._db.execute("SELECT count(*) FROM past_jobs").fetchone()
        gone = min(count - most, DROPPED_AT_ONCE)
        if gone <= 0:
            return False
        with self._transaction() as db:
            db.execute("DELETE FROM past_jobs WHERE job IN (SELECT job FROM past_jobs ORDER BY job LIMIT ?)", (gone,))
        return True


def past_jobs(db: sqlite3.Connection, rows: Rows) -> Iterator[PastJob]:
    """The jobs that have succeeded, as far as history has them, in the order of their ends.

    Those that ended last come from the rows of jobs, see `LATEST_JOBS`.

    Raises:
        Damaged: the row of a job was changed on the disk.
        NotNow: another program has locked the file.
    """
    reached, known = _reached(rows), set[JobId]()
    for past in _kept(db):
        if past.ended >= reached:
            known.add(past.job.id)
        yield past
    yield from _ended(db, rows, "ended >= ?", reached, LATEST_JOBS, known)


def last_jobs(db: sqlite3.Connection, rows: Rows, after: Instant, most: int) -> Iterator[PastJob]:
    """So many jobs that have succeeded since an instant: those that ended last, in the order of their ends.

    Raises as `past_jobs`.
    """
    return _ended(db, rows, "ended > ?", after, most, frozenset())


def _ended(
    db: sqlite3.Connection, rows: Rows, which: str, instant: Instant, most: int, known: Collection[JobId]
) -> Iterator[PastJob]:
    """What history needs of so many jobs that ended last, without those that are known."""
    found = rows.of("jobs", f"WHERE {which} ORDER BY ended DESC, id DESC LIMIT ?", (instant, most), body="work")
    latest = [row for row in found if row[0] not in known and row[4] == _SUCCEEDED]
    specs = Specs()
    for row in reversed(latest):
        past = _past_of(db, specs, row)
        if past is not None:
            yield past


def _reached(rows: Rows) -> Instant:
    row = rows.one("meta", "WHERE name = ?", (_REACHED,))
    return 0 if row is None else int(row[1])


def _kept(db: sqlite3.Connection) -> Iterator[PastJob]:
    """The rows of the table, in the order of their ends."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'past_jobs'").fetchone():
        return  # no server of this version has opened the journal yet
    specs, changed, unknown = Specs(), 0, 0
    for *values, its_sum in db.execute(
        "SELECT job, ended, user, name, took, terms, features, sum FROM past_jobs ORDER BY ended, job"
    ):
        if row_sum(*values) != its_sum:
            changed += 1
            continue
        _, ended, _, _, took, terms, features = values
        try:
            past = PastJob(specs.of(terms), ended, took, _features.decode(features))
        except (msgspec.DecodeError, zlib.error):
            unknown += 1  # as another version of Headway wrote it
        else:
            yield past
    if changed:
        log.warning("%d rows of past_jobs are not as they were written, and are left out", changed)
    if unknown:
        log.warning("%d rows of past_jobs are of another version of Headway, and are left out", unknown)


def _row_of(past: PastJob) -> tuple[Any, ...]:
    job = past.job
    values = (job.id, past.ended, job.user, job.name, past.took, encode(job), encode(dict(past.features)))
    return (*values, row_sum(*values))


def _past_of(db: sqlite3.Connection, specs: Specs, row: tuple[Any, ...]) -> PastJob | None:
    """What history needs of a job that has succeeded, by its row; None: nothing, because nothing tells how long it ran.

    A workflow of very many tasks is left out: to read its terms takes too long.
    """
    job, _, _, _, _, _, started, ended, _, _, spec, *_, work = row
    if started is None or is_packed(spec):
        return None
    terms = specs.of(spec)
    if terms.endless:
        return None
    took, shares = _where_it_ran(db, job)
    features = {f"{ON_CLASS}{node_class}": share for node_class, share in shares.items()}
    known = None if work is None else work_of(work)
    if isinstance(known, Commands):
        features |= numbers_of(known.commands[0].argv)
    return past_job(terms, ended, ended - started if took is None else took, features)


def _where_it_ran(db: sqlite3.Connection, job: JobId) -> tuple[Duration | None, dict[str, float]]:
    """How long the tasks of a job ran in the mean, None if that is not known; and the share on each class of nodes."""
    found = db.execute("SELECT node_class, tasks, mean FROM job_statistics WHERE job = ?", (job,)).fetchall()
    tasks = sum(count for _, count, _ in found)
    if not tasks:
        return None, {}
    mean = sum(count * its_mean for _, count, its_mean in found) / tasks
    return round(mean), {node_class: count / tasks for node_class, count, _ in found}


def past_job(spec: JobSpec, ended: Instant, took: Duration, features: Mapping[str, float] | None = None) -> PastJob:
    """What history keeps of a job that has succeeded. Its arguments are as the attributes of `PastJob`."""
    return PastJob(_in_short(spec), ended, took, features or {})


def _in_short(spec: JobSpec) -> JobSpec:
    """The terms that tell how long others like it run, and what jobs like it ask for."""
    estimate = mean_estimate(spec)
    terms = spec.id, spec.release, estimate, spec.due, spec.priority, spec.rate, spec.shape, spec.user, spec.name
    if spec.rigid:
        return Rigid(*terms, features=spec.features, width=spec.width)
    return Bag(*terms, features=spec.features, tasks=spec.tasks)
