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


def past_run_times(db: sqlite3.Connection, rows: Rows) -> Iterator[tuple[JobSpec, Duration]]:
    """The terms of the jobs that succeeded last, and how long their tasks ran in the mean, in the order of their ends.

    Raises:
        Damaged: a row was changed on the disk.
        NotNow: another program has locked the file.
    """
    specs, past = Specs(), []
    for job, _, _, _, status, _, started, ended, _, _, spec, *_ in rows.of(
        "jobs", "WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT ?", (PAST,)
    ):
        if status == JobStatus.SUCCEEDED.value and started is not None:
            past.append((job, specs.of(spec), ended - started))
    for job, terms, took in reversed(past):
        if terms.kind is not Kind.SERVICE:
            yield terms, mean_run_time(db, job) or took
