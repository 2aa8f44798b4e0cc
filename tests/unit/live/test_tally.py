"""Counts of what has happened since the server started."""

from __future__ import annotations

from typing import Any

import pytest

from headway.live.tally import Tally
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Bag, JobSpec, PenaltyShape


def spec(due: float | None, **terms: Any) -> JobSpec:
    return Bag(1, due=None if due is None else int(due * SECOND), **terms)


@pytest.mark.parametrize(
    ("job", "status", "end", "met_and_missed", "tardiness", "penalty", "miss_penalty"),
    [
        (spec(10, priority=3.0), JobStatus.SUCCEEDED, 10, (1, 0), 0, 0, 0),
        (spec(10, priority=3.0, rate=2.0), JobStatus.SUCCEEDED, 14, (0, 1), 4, 8, 12),
        (spec(10, shape=PenaltyShape.SQUARE), JobStatus.SUCCEEDED, 14, (0, 1), 4, 16, 0),
        (spec(10, priority=-3.0), JobStatus.SUCCEEDED, 14, (0, 1), 4, 4, 0),
        (spec(10), JobStatus.FAILED, 4, (0, 1), 0, 0, 0),
        (spec(10), JobStatus.FAILED, 14, (0, 1), 4, 4, 0),
        (spec(10), JobStatus.CANCELLED, 14, (0, 0), 0, 0, 0),
        (spec(None), JobStatus.FAILED, 14, (0, 0), 0, 0, 0),
    ],
)
def test_a_job_is_held_to_its_due_date(
    job: JobSpec,
    status: JobStatus,
    end: float,
    met_and_missed: tuple[int, int],
    tardiness: float,
    penalty: float,
    miss_penalty: float,
) -> None:
    tally = Tally()
    tally.ended(job, status, int(end * SECOND))
    assert (tally.in_time, tally.late) == met_and_missed
    assert (tally.tardiness_seconds, tally.penalty, tally.miss_penalty) == (tardiness, penalty, miss_penalty)


def test_messages_are_counted_by_what_they_tell_of() -> None:
    tally = Tally()
    tally.told([(1, 1, 7, 0, 5, "succeeded", 0, b""), (2, 1, 7, 1, 5, "exited", 0, b"")])
    tally.told([(3, 1, 7, None, 5, "failed", 0, None), (4, 1, 8, 0, 5, "succeeded", 0, b"")])
    assert tally.tasks == {"succeeded": 2, "exited": 1}
    assert tally.jobs == {"failed": 1}
