"""How sure it is when jobs start and end: bounds and probabilities over futures, corrected by their own record."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.foresight.calibration import LEVELS, Calibration
from headway.foresight.futures import Floats, Futures
from headway.model.forecast import Bounds, Chance
from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import JobId

EVERY: Final = 30 * SECOND
"""Bounds that are given sooner after others are not held against what comes: they would tell the same."""

REMEMBERED: Final = 200
"""So many forecasts wait at most for what comes of them."""

RESOLVED: Final = 0.95
"""A forecast teaches when this share of its jobs has ended: from then on what came is not the short ones alone."""


@dataclass(slots=True)
class _Told:
    """Bounds that were given: a row for each job, a column for each level; seconds ahead. It may be known already for
    how many jobs they held, and not yet what came."""

    at: Instant
    jobs: tuple[JobId, ...]
    bounds: Floats
    corrected: Floats
    is_judged: bool = False

    def without(self, jobs: Collection[JobId]) -> _Told:
        """The same for all jobs but these."""
        if not jobs:
            return self
        kept = [row for row, job in enumerate(self.jobs) if job not in jobs]
        jobs = tuple(self.jobs[row] for row in kept)
        return _Told(self.at, jobs, self.bounds[kept], self.corrected[kept], self.is_judged)


class Record:
    """Bounds of one kind of instants, starts or ends, and what came of them."""

    def __init__(self) -> None:
        self._calibration = Calibration()
        self._told: deque[_Told] = deque(maxlen=REMEMBERED)

    def corrected(self, at: Instant, jobs: tuple[JobId, ...], drawn: Floats) -> Floats:
        """For each job what futures gave, as quantiles at levels that are spread evenly, corrected and in order.

        Args:
            drawn: a row for each future, a column for each job; seconds from `at` on, inf: not within reach.
        """
        ordered: Floats = np.sort(drawn, axis=0).T
        known: NDArray[np.bool_] = np.all(np.isfinite(ordered), axis=1)
        if not known.any():
            return ordered
        found = self.moved(ordered)
        if not self._told or at >= self._told[-1].at + EVERY:
            rows = np.flatnonzero(known)
            told, moved = (_quantiles(table[rows]) for table in (ordered, found))
            self._told.append(_Told(at, tuple(jobs[row] for row in rows.tolist()), told, moved))
        return found

    def moved(self, ordered: Floats) -> Floats:
        """Quantiles at levels that are spread evenly, corrected by the record; rows with an inf stay."""
        known: NDArray[np.bool_] = np.all(np.isfinite(ordered), axis=1)
        levels = (np.arange(ordered.shape[1]) + 0.5) / ordered.shape[1]
        found = ordered.copy()
        found[known] = self._calibration.correct(ordered[known], levels)
        return found

    def learn(self, came: Mapping[JobId, Instant], void: Collection[JobId], now: Instant) -> None:
        """What has come until now of earlier bounds.

        Args:
            void: jobs to which it will not come any more.
        """
        waiting = list(self._told)
        self._told.clear()
        for told in (one.without({job for job in one.jobs if job in void and job not in came}) for one in waiting):
            if not told.jobs:
                continue
            has_come = np.array([job in came for job in told.jobs])
            ahead = np.maximum([(came.get(job, now) - told.at) / SECOND for job in told.jobs], 0.0)
            settled = has_come | (ahead > told.corrected[:, -1])
            if not told.is_judged and np.mean(settled) >= RESOLVED:
                self._calibration.judge(told.corrected[settled], np.where(has_come, ahead, np.inf)[settled])
                told.is_judged = True
            if np.mean(has_come) < RESOLVED:
                self._told.append(told)
            else:
                self._calibration.learn(told.bounds, ahead)

    @property
    def open_jobs(self) -> set[JobId]:
        """Of which it must still be told what came."""
        return {job for told in self._told for job in told.jobs}


def _quantiles(ordered: Floats) -> Floats:
    """At `LEVELS`, of rows in order."""
    found: Floats = np.quantile(ordered, LEVELS, axis=1).T
    return found


class Chances:
    """Turns futures into chances, and learns from what comes."""

    def __init__(self) -> None:
        self._starts, self._ends = Record(), Record()

    def learn(
        self,
        started: Mapping[JobId, Instant],
        ended: Mapping[JobId, Instant],
        now: Instant,
        void: Collection[JobId] = (),
    ) -> None:
        """What has come until now of jobs.

        Args:
            void: jobs that were cancelled or have failed: when that was says nothing of how long others take.
        """
        self._starts.learn(started, void, now)
        self._ends.learn(ended, void, now)

    @property
    def open_jobs(self) -> set[JobId]:
        """Of which it must still be told when they started and ended."""
        return self._starts.open_jobs | self._ends.open_jobs

    def of_one(self, found: Futures, job: JobId, due: Instant) -> tuple[Floats, Chance]:
        """When one job ends, in order, one value for each future, in seconds from the instant of the state on, and its
        chances. Nothing is learnt from what comes of them: they are of a state that may never be.
        """
        column = found.jobs.index(job)
        rows = []
        for record, drawn in ((self._starts, found.start[:, column]), (self._ends, found.end[:, column])):
            ordered = np.sort(_reached(drawn))[None, :]
            rows.append(record.moved(ordered)[0])
        start, end = rows
        on_time = None if due >= NEVER else float(np.mean(end <= (due - found.at) / SECOND))
        return end, Chance(bounds_of(start, found.at), bounds_of(end, found.at), on_time, len(end))

    def of(self, found: Futures, due: Mapping[JobId, Instant]) -> dict[JobId, Chance]:
        """The chances of each job; those without a due date are left out of `due`, or due never."""
        if not found.jobs:
            return {}
        waits: NDArray[np.bool_] = np.any(~np.isnan(found.start), axis=0)
        start = np.full((len(found.jobs), len(found.start)), np.nan)
        if waits.any():
            jobs = tuple(job for job, is_waiting in zip(found.jobs, waits.tolist(), strict=True) if is_waiting)
            start[waits] = self._starts.corrected(found.at, jobs, _reached(found.start[:, waits]))
        end = self._ends.corrected(found.at, found.jobs, _reached(found.end))
        made = {}
        for place, job in enumerate(found.jobs):
            by = due.get(job, NEVER)
            on_time = None if by >= NEVER else float(np.mean(end[place] <= (by - found.at) / SECOND))
            starts = bounds_of(start[place], found.at) if waits[place] else None
            made[job] = Chance(starts, bounds_of(end[place], found.at), on_time, len(found.end))
        return made


def _reached(drawn: Floats) -> Floats:
    return np.where(np.isnan(drawn), np.inf, drawn)


def bounds_of(ordered: Floats, at: Instant) -> Bounds | None:
    """Bounds of seconds after `at`, in order; inf: not within reach; None: that all are."""
    if np.isinf(ordered).all():
        return None
    last = len(ordered) - 1

    def instant(level: float) -> Instant | None:
        low, high = ordered[int(np.floor(level * last))], ordered[int(np.ceil(level * last))]
        if np.isinf(high):
            return None if np.isinf(low) or level > 0.5 else at + round(float(low) * SECOND)
        return at + round(float(low + (high - low) * (level * last - np.floor(level * last))) * SECOND)

    return Bounds(*map(instant, LEVELS))
