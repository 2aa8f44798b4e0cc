"""How long the tasks of jobs ran that have ended, as the journal still has it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from headway.live.store.checks import mean_run_time
from headway.live.store.rows import Rows
from headway.live.store.specs import Specs
from headway.model.actions import JobStatus
from headway.model.instant import Duration
from headway.model.job import JobSpec, Kind

PAST: Final = 2000
"""So many jobs that ended last are asked."""


def past_jobs(
    db: sqlite3.Connection, rows: Rows, *, with_work: bool = False
) -> Iterator[tuple[JobSpec, Duration, bytes | None]]:
    """The jobs that succeeded last, in the order of their ends: their terms, how long their tasks ran in the mean, and,
    if it is wanted, what is kept of their work.

    Raises:
        Damaged: a row was changed on the disk.
        NotNow: another program has locked the file.
    """
    specs, past = Specs(), []
    for job, _, _, _, status, _, started, ended, _, _, spec, *_, work in rows.of(
        "jobs", "WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT ?", (PAST,), body="work" if with_work else "NULL"
    ):
        if status == JobStatus.SUCCEEDED.value and started is not None:
            past.append((job, specs.of(spec), ended - started, work))
    for job, terms, took, work in reversed(past):
        if terms.kind is not Kind.SERVICE:
            yield terms, mean_run_time(db, job) or took, work


def past_run_times(db: sqlite3.Connection, rows: Rows) -> Iterator[tuple[JobSpec, Duration]]:
    """The same without their work. Raises as `past_jobs`."""
    return ((terms, took) for terms, took, _ in past_jobs(db, rows))
