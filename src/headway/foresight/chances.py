"""How sure it is when jobs start and end: bounds and probabilities over futures, corrected by their own record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from headway.foresight.calibration import Calibration, CalibrationRecord, at_levels, packed, unpacked
from headway.foresight.futures import Floats, Futures
from headway.history.bounds import LEVELS
from headway.model.forecast import Bounds, Chance
from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import JobId

HELD_EVERY: Final = 30 * SECOND
"""Bounds that are given sooner after others are not held against what comes: they would tell the same."""

SPREAD: Final = 0.1
"""Nor those that are given within this share of the time in which half of the jobs will be through: or else the same
jobs would count again and again, the more often somebody asks."""

REMEMBERED_FORECASTS: Final = 200
"""So many forecasts wait at most for what comes of them."""

KEPT: Final = 20_000
"""Of the bounds that wait for what comes, those of so many jobs at most are kept in a file, the last ones."""

RESOLVED: Final = 0.95
"""A forecast teaches when this share of its jobs has ended: from then on what came is not the short ones alone."""

LATELY: Final = 0.98
"""How many forecasts waited for what comes is forgotten by this factor with each forecast: a jam counts for some time
after it."""


@dataclass(frozen=True, slots=True)
class ToldRecord:
    """Bounds that wait for what comes, as they are kept in a file; the columns of `_Told`."""

    at: Instant
    jobs: tuple[JobId, ...]
    bounds: bytes
    corrected: bytes
    came: tuple[float, ...]
    is_judged: tuple[bool, ...]
    is_learnt: bool


@dataclass(frozen=True, slots=True)
class KeptTrackRecord:
    """A track record, as it is kept in a file.

    Attributes:
        calibration: what has been learnt.
        told: what waits for what comes.
        next: before this instant no other bounds are held against what comes.
    """

    calibration: CalibrationRecord
    told: tuple[ToldRecord, ...]
    next: Instant | None


@dataclass(slots=True)
class _Told:
    """Bounds that were given: a row for each job, a column for each level; seconds ahead.

    Attributes:
        came: what came of each, in seconds ahead; nan: nothing yet.
        is_judged: of which it was taken in whether its bounds held, or need not be.
        is_learnt: whether it was taken in what came.
    """

    at: Instant
    jobs: tuple[JobId, ...]
    bounds: Floats
    corrected: Floats
    came: Floats
    is_judged: NDArray[np.bool_]
    is_learnt: bool = False

    def take(self, came: Mapping[JobId, Instant], void: Collection[JobId]) -> None:
        """What has come until now; jobs that are void, and to which it has not come, are left out."""
        for row in np.flatnonzero(np.isnan(self.came)).tolist():
            at = came.get(self.jobs[row])
            if at is not None:
                self.came[row] = max(0.0, (at - self.at) / SECOND)
        if void and any(job in void for job in self.jobs):
            has_come = ~np.isnan(self.came)
            rows = [row for row, job in enumerate(self.jobs) if has_come[row] or job not in void]
            self.jobs = tuple(self.jobs[row] for row in rows)
            self.bounds, self.corrected = self.bounds[rows], self.corrected[rows]
            self.came, self.is_judged = self.came[rows], self.is_judged[rows]


class TrackRecord:
    """Bounds of one kind of instants, starts or ends, and what came of them."""

    def __init__(self) -> None:
        self._calibration = Calibration()
        self._told: list[_Told] = []
        self._next: Instant | None = None
        self._waiting = 0.0

    @classmethod
    def restore(cls, kept: KeptTrackRecord) -> Self:
        """The record that was kept.

        Raises:
            ValueError: it was kept with other horizons or levels.
        """
        made = cls()
        made._calibration = Calibration.restore(kept.calibration)
        made._told = [
            _Told(
                told.at,
                told.jobs,
                unpacked(told.bounds),
                unpacked(told.corrected),
                np.array(told.came, dtype=np.float64),
                np.array(told.is_judged, dtype=np.bool_),
                told.is_learnt,
            )
            for told in kept.told
        ]
        made._next = kept.next
        made._waiting = float(made._unresolved)
        return made

    def dump(self) -> KeptTrackRecord:
        """The record as it is to be kept; of many bounds that wait for what comes the last ones, see `KEPT`."""
        told, jobs = list[ToldRecord](), 0
        for one in reversed(self._told):
            jobs += len(one.jobs)
            if jobs > KEPT:
                break
            columns = packed(one.bounds), packed(one.corrected), tuple(one.came.tolist())
            told.append(ToldRecord(one.at, one.jobs, *columns, tuple(one.is_judged.tolist()), one.is_learnt))
        return KeptTrackRecord(self._calibration.dump(), tuple(reversed(told)), self._next)

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
        rows = np.flatnonzero(known)
        told, moved = (at_levels(table[rows]) for table in (ordered, found))
        self._tell(at, tuple(jobs[row] for row in rows.tolist()), told, moved)
        return found

    def moved(self, ordered: Floats) -> Floats:
        """Quantiles at levels that are spread evenly, corrected by the record; rows with an inf stay."""
        known: NDArray[np.bool_] = np.all(np.isfinite(ordered), axis=1)
        levels = (np.arange(ordered.shape[1]) + 0.5) / ordered.shape[1]
        found = ordered.copy()
        found[known] = self._calibration.correct(ordered[known], levels)
        return found

    def told(self, at: Instant, jobs: tuple[JobId, ...], bounds: Floats, *, rehearsed: bool = False) -> Floats:
        """Bounds of jobs at `CORRECTED_LEVELS`, corrected. They will be compared with what comes.

        Args:
            rehearsed: these bounds are told to nobody. What comes of them is learnt, but they are not judged.
        """
        corrected = self._calibration.correct(bounds)
        self._tell(at, jobs, bounds, corrected, rehearsed=rehearsed)
        return corrected

    def _tell(
        self, at: Instant, jobs: tuple[JobId, ...], bounds: Floats, corrected: Floats, *, rehearsed: bool = False
    ) -> None:
        if self._next is not None and at < self._next:
            return
        self._next = at + max(HELD_EVERY, round(SPREAD * float(np.median(bounds[:, 2])) * SECOND))
        self._told.append(_Told(at, jobs, bounds, corrected, np.full(len(jobs), np.nan), np.full(len(jobs), rehearsed)))
        if not rehearsed:
            self._calibration.tell(len(jobs))
        del self._told[:-REMEMBERED_FORECASTS]
        self._waiting = max(float(self._unresolved), LATELY * self._waiting)

    def learn(self, came: Mapping[JobId, Instant], void: Collection[JobId], now: Instant) -> None:
        """What has come until now of earlier bounds.

        Args:
            void: jobs to which it will not come any more.
        """
        judged: list[tuple[Floats, Floats]] = []
        for told in self._told:
            told.take(came, void)
            until = (now - told.at) / SECOND
            has_come = ~np.isnan(told.came)
            passed = (told.corrected[:, -1] < until) & ~told.is_judged
            if passed.any():
                judged.append((told.corrected[passed], np.where(has_come, told.came, np.inf)[passed]))
                told.is_judged |= passed
            if told.jobs and not told.is_learnt and np.mean(has_come) >= RESOLVED:
                self._calibration.learn(told.bounds, np.where(has_come, told.came, max(0.0, until)))
                told.is_learnt = True
        if judged:
            bounds, outcomes = (np.concatenate(parts) for parts in zip(*judged, strict=True))
            self._calibration.judge(bounds, outcomes, self._waiting)
        self._told = [told for told in self._told if told.jobs and not (told.is_learnt and told.is_judged.all())]

    @property
    def _unresolved(self) -> int:
        """How many forecasts have not taught yet."""
        return sum(not told.is_learnt for told in self._told)

    @property
    def open_jobs(self) -> set[JobId]:
        """Of which it must still be told what came."""
        return {told.jobs[row] for told in self._told for row in np.flatnonzero(np.isnan(told.came)).tolist()}


class Chances:
    """Turns futures into chances, and learns from what comes."""

    def __init__(self, starts: TrackRecord | None = None, ends: TrackRecord | None = None) -> None:
        self._starts, self._ends = starts or TrackRecord(), ends or TrackRecord()

    def dump(self) -> tuple[KeptTrackRecord, KeptTrackRecord]:
        """What is to be kept of starts and of ends."""
        return self._starts.dump(), self._ends.dump()

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
            ordered = np.sort(reached(drawn))[None, :]
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
            start[waits] = self._starts.corrected(found.at, jobs, reached(found.start[:, waits]))
        end = self._ends.corrected(found.at, found.jobs, reached(found.end))
        made = {}
        for place, job in enumerate(found.jobs):
            by = due.get(job, NEVER)
            on_time = None if by >= NEVER else float(np.mean(end[place] <= (by - found.at) / SECOND))
            starts = bounds_of(start[place], found.at) if waits[place] else None
            made[job] = Chance(starts, bounds_of(end[place], found.at), on_time, len(found.end))
        return made


def reached(drawn: Floats) -> Floats:
    """What futures gave, where nan is beyond reach: inf."""
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
