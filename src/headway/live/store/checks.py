"""The tables of the status checker (Lin14 3.5.1), in the journal's file, for other programs to read.

They are described in docs/reference/journal.md. Nothing of the server depends on them: they may be emptied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.job import JobId
from headway.model.renting import Money, Rental
from headway.model.seen import JobView

STATUSES_KEPT: Final[Duration] = 7 * 86_400 * SECOND
"""How long metrics and statuses are kept, unless these are more than `ROWS_MAX` rows."""

DROPPED_AT_ONCE: Final = 1000
"""Each write deletes at most this many old rows, or two for each new one if that is more: others wait meanwhile."""

ROWS_MAX: Final = 500_000
"""About how many rows a table of metrics or statuses has; older ones are deleted first."""

SERVICE_COSTS: Final = "service_costs (job INTEGER PRIMARY KEY, at INTEGER NOT NULL, penalty REAL NOT NULL)"
"""What ended services have cost; older journals get this table when they are opened."""

JOB_MONEY: Final = "job_money (job INTEGER PRIMARY KEY, at INTEGER NOT NULL, paid INTEGER NOT NULL)"
"""What rented machines have cost, by job; older journals get this table when they are opened."""

JOB_WORK: Final = "job_work (job INTEGER PRIMARY KEY, at INTEGER NOT NULL, work INTEGER NOT NULL)"
"""How long a task of a job would have run on a slot of speed factor 1, in the mean, if its tasks ran on others; older
journals get this table when they are opened."""

CHECKS_SCHEMA: Final = f"""
CREATE TABLE node_metrics (
    at INTEGER NOT NULL, node TEXT NOT NULL, metric TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (at, node, metric)
) WITHOUT ROWID;
CREATE TABLE slot_statuses (
    at INTEGER NOT NULL, node TEXT NOT NULL, slot INTEGER NOT NULL, status TEXT NOT NULL,
    PRIMARY KEY (at, node, slot)
) WITHOUT ROWID;
CREATE TABLE job_statistics (
    job INTEGER NOT NULL, node_class TEXT NOT NULL, at INTEGER NOT NULL,
    tasks INTEGER NOT NULL, mean INTEGER NOT NULL, spread INTEGER NOT NULL,
    PRIMARY KEY (job, node_class)
) WITHOUT ROWID;
CREATE TABLE job_losses (
    job INTEGER PRIMARY KEY, at INTEGER NOT NULL, lost INTEGER NOT NULL, kills INTEGER NOT NULL
);
CREATE TABLE {SERVICE_COSTS};
CREATE TABLE {JOB_MONEY};
CREATE TABLE {JOB_WORK};
"""
"""Ordered by instant, so that new rows go to the end and old ones from the beginning: a write touches few pages."""

PUT_STATISTICS: Final = "INSERT OR REPLACE INTO job_statistics VALUES (?, ?, ?, ?, ?, ?)"
PUT_LOSSES: Final = "INSERT OR REPLACE INTO job_losses VALUES (?, ?, ?, ?)"
PUT_COSTS: Final = "INSERT OR REPLACE INTO service_costs VALUES (?, ?, ?)"
PUT_WORK: Final = "INSERT OR REPLACE INTO job_work VALUES (?, ?, ?)"
PUT_MONEY: Final = (
    "INSERT INTO job_money SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ?1)"
    " ON CONFLICT (job) DO UPDATE SET at = excluded.at, paid = paid + excluded.paid"
)


class MetricRow(NamedTuple):
    """A measured metric of a node."""

    at: Instant
    node: str
    metric: str
    value: float


class StatusRow(NamedTuple):
    """The status of a slot, counted from 0 on its node, until the next row of the slot."""

    at: Instant
    node: str
    slot: int
    status: str


class StatisticsRow(NamedTuple):
    """Run times of a job's tasks on one class of nodes, in microseconds; see `run_times`."""

    job: JobId
    node_class: str
    at: Instant
    tasks: int
    mean: Duration
    spread: Duration


class LossRow(NamedTuple):
    """The lost work of a job: slot time of attempts that were killed or lost, and how many were killed for others."""

    job: JobId
    at: Instant
    lost: Duration
    kills: int


class CostRow(NamedTuple):
    """What the windows of a service that has ended have cost."""

    job: JobId
    at: Instant
    penalty: float


class WorkRow(NamedTuple):
    """How long a task of a job would have run on a slot of speed factor 1, in the mean."""

    job: JobId
    at: Instant
    work: Duration


class MoneyRow(NamedTuple):
    """What a machine has cost that was rented for a job, and is given back."""

    job: JobId
    at: Instant
    paid: Money


class Checks:
    """Writes and reads the tables.

    Args:
        db: the journal's file.
        transaction: makes what is written durable; raises `NotNow` where that cannot be.
    """

    def __init__(
        self, db: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._db = db
        self._transaction = transaction

    def write(
        self,
        metrics: Iterable[MetricRow],
        statuses: Iterable[StatusRow],
        statistics: Iterable[StatisticsRow],
        losses: Iterable[LossRow],
        *,
        metrics_since: Instant,
        statuses_since: Instant,
    ) -> None:
        """Add measurements, and delete those from before the two instants.

        Raises:
            NotNow: nothing was written.
        """
        metrics, statuses = tuple(metrics), tuple(statuses)
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO node_metrics VALUES (?, ?, ?, ?)", metrics)
            db.executemany("INSERT OR REPLACE INTO slot_statuses VALUES (?, ?, ?, ?)", statuses)
            db.executemany(PUT_STATISTICS, statistics)
            db.executemany(PUT_LOSSES, losses)
            for table, key, since, new in (
                ("node_metrics", "at, node, metric", metrics_since, len(metrics)),
                ("slot_statuses", "at, node, slot", statuses_since, len(statuses)),
            ):
                db.execute(
                    f"DELETE FROM {table} WHERE ({key}) IN"
                    f" (SELECT {key} FROM {table} WHERE at < ? ORDER BY {key} LIMIT ?)",
                    (since, max(DROPPED_AT_ONCE, 2 * new)),
                )

    def metrics(
        self, since: Instant, limit: int, *, node: str | None = None, metric: str | None = None
    ) -> tuple[list[MetricRow], bool]:
        """Metrics measured at an instant or later, in order, and whether there are more.

        Only the first ones up to a limit, but always all or none of one instant; of the first instant always all.
        """

        def read(last: Instant, limit: int) -> list[MetricRow]:
            rows = self._db.execute(
                "SELECT at, node, metric, value FROM node_metrics WHERE at BETWEEN ? AND ? AND (? IS NULL OR node = ?)"
                " AND (? IS NULL OR metric = ?) ORDER BY at, node, metric LIMIT ?",
                (since, last, node, node, metric, metric, limit),
            )
            return [MetricRow(*row) for row in rows]

        found = read(NEVER, limit + 1)
        if len(found) <= limit:
            return found, False
        return [row for row in found if row.at < found[-1].at] or read(found[-1].at, -1), True

    def statistics(self, job: JobId) -> list[StatisticsRow]:
        """The row of a job."""
        rows = self._db.execute(
            "SELECT job, node_class, at, tasks, mean, spread FROM job_statistics WHERE job = ? ORDER BY node_class",
            (job,),
        )
        return [StatisticsRow(*row) for row in rows]

    def losses(self, job: JobId) -> LossRow | None:
        """The row of a job's losses; None if it lost nothing."""
        row = self._db.execute("SELECT job, at, lost, kills FROM job_losses WHERE job = ?", (job,)).fetchone()
        return None if row is None else LossRow(*row)

    def penalty(self, job: JobId) -> float:
        """What the windows of a service that has ended have cost."""
        row = self._db.execute("SELECT penalty FROM service_costs WHERE job = ?", (job,)).fetchone()
        return 0.0 if row is None else float(row[0])

    def money(self, job: JobId) -> Money:
        """What the machines have cost that were rented for a job, and are given back."""
        row = self._db.execute("SELECT paid FROM job_money WHERE job = ?", (job,)).fetchone()
        return 0 if row is None else int(row[0])


def run_times(job: JobView, at: Instant) -> list[StatisticsRow]:
    """Observed run times of a job's tasks by class of nodes.

    `tasks` is how many ran there. In `mean` and `spread` the user's own estimate for the class, if any, counts as one
    more.
    """
    said = {node_class for node_class, _ in job.spec.profile}
    found = (
        StatisticsRow(job.id, node_class, at, times.count - (node_class in said), times.mean, times.spread)
        for node_class, times in sorted(job.times.items())
    )
    return [row for row in found if row.tasks]


def losses(job: JobView, at: Instant) -> list[LossRow]:
    """The lost work of a job; nothing if it lost nothing."""
    return [LossRow(job.id, at, job.lost, job.kills)] if job.lost or job.kills else []


def costs(job: JobView, at: Instant) -> list[CostRow]:
    """What the windows of a service have cost; nothing if nothing."""
    return [CostRow(job.id, at, job.cost)] if job.cost else []


def money(rental: Rental, at: Instant) -> list[MoneyRow]:
    """What a machine has cost that is given back; nothing if nothing, or if it was rented for no one job."""
    cost = rental.cost(at)
    return [MoneyRow(rental.job, at, cost)] if cost and rental.job is not None else []
