"""A schedule over time: how many slots each job had and used, and how many jobs waited."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import SECOND, Instant, from_seconds, seconds_text
from headway.model.schedule import NOT_YET, Schedule
from headway.model.workload import FloatArray, IntArray

STEPS: Final = 1_500
"""With more changes than this, means over this many equal spans of time are drawn."""


class Excerpt(NamedTuple):
    """The part of a run that is drawn, in microseconds."""

    begin: Instant
    end: Instant


class Changes(NamedTuple):
    """When each job got or lost how many slots, in order of time; columns of shape (changes,)."""

    at: IntArray
    job: IntArray
    by: IntArray


def excerpt_of(schedule: Schedule, start: float | None, end: float | None) -> Excerpt:
    """The part of a run between two instants, in seconds on its clock; None: from its beginning, or to its end.

    Raises:
        InvalidInput: no part of the run is between them.
    """
    whole = Excerpt(schedule.begin, max(schedule.until, schedule.begin))
    begin = whole.begin if start is None else _instant("start", start)
    until = whole.end if end is None else _instant("end", end)
    ran = f"the run is from {seconds_text(whole.begin)} to {seconds_text(whole.end)} s on the log's clock"
    if start is not None and begin >= whole.end:
        raise InvalidInput("start of the picture", f"{start:g} s", "less than the end of the run", hint=f"Note: {ran}.")
    if end is not None and until <= begin:
        allowed = f"more than {seconds_text(begin)} s, where the picture starts"
        raise InvalidInput("end of the picture", f"{end:g} s", allowed, hint=f"Note: {ran}.")
    return Excerpt(max(begin, whole.begin), min(until, whole.end))


def _instant(field: str, seconds: float) -> Instant:
    try:
        return from_seconds(seconds)
    except ValueError:
        raise InvalidInput(f"{field} of the picture", seconds, "a finite number of seconds") from None


def knows_tiers(schedule: Schedule) -> bool:
    """Whether it is known what ran in the foreground. It is not if two tiers were used and no attempts recorded."""
    return schedule.alone is None or schedule.attempts is not None or schedule.holdings is not None


def tier_words(schedule: Schedule) -> str:
    """Which tier `running` counts, as the end of a sentence. Empty if there was only one."""
    if schedule.alone is None:
        return ""
    return ", in the foreground" if knows_tiers(schedule) else ", in the background too"


def running(schedule: Schedule) -> Changes:
    """On how many slots the tasks of each job ran, in the foreground if that is known."""
    attempts = schedule.attempts
    if attempts is not None:
        front = np.flatnonzero(~attempts.behind)
        job, count = attempts.job[front], attempts.count[front]
        return _spans(job, attempts.start[front], attempts.end[front], count)
    if schedule.holdings is not None:
        return _levels(schedule, schedule.holdings.running)
    job = np.flatnonzero(schedule.start != NOT_YET)
    return _spans(job, schedule.start[job], _ended(schedule)[job], schedule.slots[job])


def awaited(schedule: Schedule) -> Changes:
    """How many slots were allocated to each job without a task of its own running there yet."""
    if schedule.holdings is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Changes(nothing, nothing, nothing)
    return _levels(schedule, np.maximum(schedule.holdings.slots - schedule.holdings.running, 0))


def waiting(schedule: Schedule) -> Changes:
    """How many jobs were waiting: released, not started, and not ended without a start."""
    left = np.where(schedule.start == NOT_YET, _ended(schedule), schedule.start)
    job = np.arange(len(schedule))
    return _spans(job, schedule.release, np.maximum(left, schedule.release), np.ones_like(job))


def _ended(schedule: Schedule) -> IntArray:
    return np.where(schedule.end == NOT_YET, schedule.until, schedule.end)


def _spans(job: IntArray, start: IntArray, end: IntArray, count: IntArray) -> Changes:
    at = np.concatenate((start, end))
    order = np.argsort(at, kind="stable")
    return Changes(at[order], np.concatenate((job, job))[order], np.concatenate((count, -count))[order])


def _levels(schedule: Schedule, level: IntArray) -> Changes:
    """The changes of a level that is given for each record of holdings. Each job ends with level 0."""
    assert schedule.holdings is not None
    order = np.argsort(schedule.holdings.job, kind="stable")
    at, job, level = schedule.holdings.at[order], schedule.holdings.job[order], level[order]
    same = np.diff(job, prepend=-1) == 0
    by = level - np.where(same, np.roll(level, 1), 0)
    last = np.flatnonzero(np.diff(job, append=-1) != 0)
    last = last[level[last] > 0]
    at = np.concatenate((at, _ended(schedule)[job[last]]))
    by, job = np.concatenate((by, -level[last])), np.concatenate((job, job[last]))
    kept = np.flatnonzero(by)
    kept = kept[np.argsort(at[kept], kind="stable")]
    return Changes(at[kept], job[kept], by[kept])


def edges_of(changes: Changes, excerpt: Excerpt) -> tuple[IntArray, bool]:
    """Rising instants between which heights are drawn, and whether the heights are constant between them."""
    inside = changes.at[(changes.at > excerpt.begin) & (changes.at < excerpt.end)]
    end = max(excerpt.end, excerpt.begin + SECOND)
    times = np.unique(np.concatenate(([excerpt.begin], inside, [end])))
    if len(times) <= STEPS:
        return times, True
    return np.linspace(excerpt.begin, end, STEPS + 1).astype(np.int64), False


def means(at: IntArray, by: IntArray, edges: IntArray) -> FloatArray:
    """The mean of the summed changes between neighbouring edges, shape (edges - 1,); no two edges are equal."""
    if not len(at):
        return np.zeros(len(edges) - 1)
    # The area under the steps is linear between changes, so interpolation is exact.
    area = np.concatenate(([0.0], np.cumsum(np.cumsum(by)[:-1] * np.diff(at).astype(np.float64))))
    return np.diff(np.interp(edges, at, area)) / np.diff(edges)
