"""Bounds that hold: how far outcomes lay outside earlier bounds widens, or narrows, the next ones.

Futures know how long jobs may run, but not who will submit what, and run times are never quite as learnt. So bounds
from futures are corrected by their own record (conformalised quantiles, Romano, Patterson and Candes, NeurIPS 2019): a
bound is moved, on a logarithmic scale of the time ahead, so that in the past the wanted share would have been within.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

CORRECTED_LEVELS: Final = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Those of the bounds, of which 90 % lie between the first and the last and 50 % between the second and the fourth, and
that of due dates, which are named with 90 % unless somebody wants another one."""

DATED: Final = CORRECTED_LEVELS.index(0.9)
"""The place of the level of due dates. Where times change, what is learnt at this level alone lags behind; where jobs
of two kinds end, what lies between the levels beside it is wrong. So the later date counts."""

MEMORY: Final = 20_000
"""So many outcomes are remembered of each horizon: older ones tell of other times."""

LEAST: Final = 20
"""With outcomes of fewer forecasts a horizon is only widened, by those of all: jobs of one forecast share their fate,
and what is near is better known than what is far. With fewer of all, by so much less: what came of one or two forecasts
may be chance."""

GAIN: Final = 0.02
"""How much of what the last bounds missed is added to the next ones (adaptive conformal inference, Gibbs and Candes,
NeurIPS 2021): so they hold also where times change faster than the memory. It is that much for as many jobs as a
forecast has in the mean: bounds are to hold for a share of all jobs, and when many are open, more goes wrong. It is
added to those of all horizons: for each alone, too few forecasts are told."""

LATE_MARGIN: Final = (-0.01, 0.0, 0.0, 0.0, 0.01, 0.01)
"""So far outside `CORRECTED_LEVELS` bounds are held to what came where that is known late: by then what is new has
surprised more often than it reassures. On logs where jobs wait for weeks, bounds that aim at 90 % hold for 88 or 89."""

LATE_FORECASTS: Final = 10
"""What came is known late if that many forecasts waited for it; where fewer do, less of `LATE_MARGIN` is added."""

CROWDED: Final = 3.0
"""What becomes known at once counts for at most so many forecasts of mean size: jobs share their fate."""

EXTREME: Final = 0.002
"""The lowest level that is asked of the memory, and what the highest is below 1."""

AHEAD: Final = (900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
"""Horizons are bounded by these times, in seconds ahead of the forecast's median."""

SOON: Final = 30.0
"""Seconds that are added to all times, so that the logarithm of what comes at once is bounded."""

SAME: Final = 0.001
"""Times that differ by less, in seconds, are the same: run times are rounded to microseconds on the way."""

Floats = NDArray[np.float64]


def horizon_of(ahead: Floats) -> NDArray[np.intp]:
    """The number of the horizon in which each time lies, 0 to `len(AHEAD)`."""
    return np.searchsorted(np.array(AHEAD), ahead, side="right")


def at_levels(drawn: Floats) -> Floats:
    """A row for each job, of what futures gave: its quantiles at `CORRECTED_LEVELS`; nan if any of them is."""
    found: Floats = np.quantile(drawn, CORRECTED_LEVELS, axis=1).T
    return found


def packed(table: Floats) -> bytes:
    """The numbers of a table, in order of rows."""
    return table.astype("<f8").tobytes()


def unpacked(numbers: bytes) -> Floats:
    """A table with a column for each of `CORRECTED_LEVELS`.

    Raises:
        ValueError: these are the numbers of no such table.
    """
    return np.frombuffer(numbers, "<f8").astype(np.float64).reshape(-1, len(CORRECTED_LEVELS))


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """What a calibration has learnt, as it is kept in a file.

    Attributes:
        seen: by horizon and forecast, how far outcomes lay from bounds: a row for each job, as `packed`.
        learnt, told, jobs: of how many forecasts it was learnt what came, how many were told, and of how many jobs.
        levels: at which the bounds are held to what came now.
    """

    seen: tuple[tuple[bytes, ...], ...]
    learnt: int
    told: int
    jobs: int
    levels: tuple[float, ...]


class Calibration:
    """Corrects bounds by what came of earlier ones."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._seen: list[deque[Floats]] = [deque() for _ in range(len(AHEAD) + 1)]
        self._held = [0] * (len(AHEAD) + 1)
        self._memory = memory
        self._learnt = self._told = self._jobs = 0
        self._levels = np.array(CORRECTED_LEVELS)
        self._moves: Floats | None = None

    @classmethod
    def restore(cls, record: CalibrationRecord) -> Self:
        """One that knows what another has learnt.

        Raises:
            ValueError: that has other horizons or levels.
        """
        made = cls()
        made._seen = [deque(map(unpacked, parts)) for parts in record.seen]
        made._held = [sum(map(len, seen)) for seen in made._seen]
        made._learnt, made._told, made._jobs = record.learnt, record.told, record.jobs
        made._levels = np.array(record.levels)
        if len(made._seen) != len(AHEAD) + 1 or len(made._levels) != len(CORRECTED_LEVELS):
            raise ValueError("it has other horizons or levels")
        return made

    def dump(self) -> CalibrationRecord:
        """What has been learnt."""
        seen = tuple(tuple(map(packed, parts)) for parts in self._seen)
        return CalibrationRecord(seen, self._learnt, self._told, self._jobs, tuple(self._levels.tolist()))

    def learn(self, bounds: Floats, came: Floats) -> None:
        """Remember what came of one forecast.

        Args:
            bounds: as the futures gave them, in seconds ahead: a row for each job, a column for each of
                `CORRECTED_LEVELS`.
            came: what happened, in seconds ahead, for each job.
        """
        errors = np.log(came[:, None] + SOON) - np.log(bounds + SOON)
        where = horizon_of(bounds[:, 2])
        for number in np.unique(where):
            rows, seen = errors[where == number], self._seen[number]
            seen.append(rows)
            self._held[number] += len(rows)
            while self._held[number] - len(seen[0]) >= self._memory:
                self._held[number] -= len(seen.popleft())
        self._learnt += 1
        self._moves = None

    def tell(self, jobs: int) -> None:
        """Bounds of so many jobs are told, and will be judged."""
        self._told += 1
        self._jobs += jobs

    def judge(self, told: Floats, came: Floats, waiting: float) -> None:
        """Take in for which jobs bounds held.

        That is known of a job when the last of its bounds has passed, whether or not it has happened. It must not be
        told sooner: what happens soon is known first, and would count for more than what takes long.

        Args:
            told: the bounds of each job as they were told (`correct`).
            came: what happened, in seconds ahead, for each job; inf: nothing yet.
            waiting: how many forecasts waited lately for what comes of them.
        """
        ahead = came[:, None]
        wanted = np.array(CORRECTED_LEVELS) + np.array(LATE_MARGIN) * min(1.0, waiting / LATE_FORECASTS)
        # What is at a bound is within.
        below = np.where(wanted < 0.5, ahead < told - SAME, ahead <= told + SAME)
        counts = min(CROWDED, len(told) * self._told / self._jobs)
        moved = self._levels + GAIN * counts * (wanted - np.mean(below, axis=0))
        self._levels = np.clip(moved, EXTREME, 1 - EXTREME)
        self._moves = None

    def correct(self, bounds: Floats, levels: Floats | None = None) -> Floats:
        """The bounds, moved; each row in order, and none before now.

        Args:
            bounds: as of `learn`, or a column for each of `levels`.
            levels: others than `CORRECTED_LEVELS`, in order, between 0 and 1.
        """
        if not len(bounds) or not any(self._held):
            return bounds
        if self._moves is None:
            everything = [part for seen in self._seen for part in seen]
            of_all = _outward(self._needed(everything, self._learnt))
            by_horizon = [self._needed(seen, len(seen)) if len(seen) >= LEAST else of_all for seen in self._seen]
            self._moves = np.array(by_horizon) * min(1.0, self._learnt / LEAST)
        moves, median = self._moves, bounds[:, 2]
        if levels is not None:
            moves = np.stack([np.interp(levels, CORRECTED_LEVELS, of_horizon) for of_horizon in moves])
            median = np.array([np.interp(0.5, levels, row) for row in bounds])
        moved = np.exp(np.log(bounds + SOON) + moves[horizon_of(median)]) - SOON
        ordered: Floats = np.maximum.accumulate(np.maximum(moved, 0.0), axis=1)
        return ordered

    def _needed(self, seen: Sequence[Floats], forecasts: int) -> Floats:
        """How far each bound has to be moved, so that as much of what came is below it as should be.

        Args:
            seen: how far outcomes lay from bounds.
            forecasts: how many they are of.
        """
        errors = np.concatenate(seen)
        levels = [
            _of_the_next(bound, aim, forecasts)
            for bound, aim in zip(CORRECTED_LEVELS, self._levels.tolist(), strict=True)
        ]
        moves = np.array([np.quantile(errors[:, place], level) for place, level in enumerate(levels)])
        between = np.interp(
            CORRECTED_LEVELS[DATED],
            (CORRECTED_LEVELS[DATED - 1], CORRECTED_LEVELS[DATED + 1]),
            moves[[DATED - 1, DATED + 1]],
        )
        moves[DATED] = max(moves[DATED], between)
        return moves


def _of_the_next(bound: float, aim: float, forecasts: int) -> float:
    """At which level of the past a bound holds for the next forecast as it should.

    What comes of that one is as likely to lie farthest out as what came of any other. So of *n* forecasts as many have
    to be within as should be of *n* + 1 (conformal prediction; Vovk, Gammerman and Shafer, 2005).

    Args:
        bound: one of `CORRECTED_LEVELS`.
        aim: the level at which this bound is held to what came now.
    """
    if bound < 0.5:
        return max(0.0, aim - (1 - aim) / forecasts)
    return min(1.0, aim + aim / forecasts) if bound > 0.5 else aim


def _outward(moves: Floats) -> Floats:
    """Moves that only widen; the median is moved as it was."""
    levels = np.array(CORRECTED_LEVELS)
    widest = np.where(levels < 0.5, np.minimum(moves, 0.0), np.maximum(moves, 0.0))
    return np.where(levels == 0.5, moves, widest)
