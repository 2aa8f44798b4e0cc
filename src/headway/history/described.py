"""Run times of jobs that are described by features, such as the size of a mesh: by the past runs that were nearest.

Features and run times are replaced by their ranks, as in `history.factors`. How much a feature counts is the square of
how it and the run time rise together (Spearman), less what chance makes of so few runs. This is for predictions of one
job at a time, within a server: it needs no scikit-learn, and a fraction of a millisecond.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

RUNS_KEPT: Final = 60
"""So many last runs of a program are remembered."""

LEAST: Final = 5
"""From fewer runs nothing can be told."""

Features = tuple[tuple[str, float], ...]
"""As in `JobSpec.features`: the same names are in the same order."""


class Described:
    """The last runs of one program whose features have the same names."""

    def __init__(self) -> None:
        self._runs: deque[tuple[tuple[float, ...], float]] = deque(maxlen=RUNS_KEPT)
        self._influence: tuple[float, ...] | None = None

    def learn(self, features: Features, seconds: float) -> None:
        """A job with these features has run so long."""
        self._runs.append((tuple(value for _, value in features), seconds))
        self._influence = None

    def nearest(self, features: Features, count: int) -> list[float]:
        """The run times of the nearest runs, in seconds, the nearest first, of equally near ones the last.

        Nothing, if there are too few runs, or no feature tells anything.
        """
        if len(self._runs) < LEAST:
            return []
        columns = list(zip(*(values for values, _ in self._runs), strict=True))
        if self._influence is None:
            times = places([seconds for _, seconds in self._runs])
            self._influence = tuple(_influence(places(column), times) for column in columns)
        if not any(self._influence):
            return []
        apart = [0.0] * len(self._runs)
        for influence, column, (_, value) in zip(self._influence, columns, features, strict=True):
            if influence:
                ordered = sorted(column)
                here = _place(value, ordered)
                for number, other in enumerate(column):
                    apart[number] += influence * (_place(other, ordered) - here) ** 2
        order = sorted(range(len(apart)), key=lambda number: (apart[number], -number))
        return [self._runs[number][1] for number in order[:count]]


def places(values: Sequence[float]) -> list[float]:
    """Where each value lies among all, from 0 to 1: the middle of its ranks.

    >>> places([5.0, 1.0, 5.0])
    [0.6666666666666666, 0.16666666666666666, 0.6666666666666666]
    """
    ordered = sorted(values)
    return [_place(value, ordered) for value in values]


def _place(value: float, ordered: Sequence[float]) -> float:
    return (bisect_left(ordered, value) + bisect_right(ordered, value)) / (2 * len(ordered))


def _influence(places: Sequence[float], times: Sequence[float]) -> float:
    """The square of the correlation of two rows of places, less that of as many by chance; 0 or more."""
    count = len(places)
    mean, mean_time = sum(places) / count, sum(times) / count
    spread = sum((place - mean) ** 2 for place in places)
    spread_of_times = sum((time - mean_time) ** 2 for time in times)
    if not spread or not spread_of_times:
        return 0.0
    both = sum((place - mean) * (time - mean_time) for place, time in zip(places, times, strict=True))
    return max(0.0, both * both / (spread * spread_of_times) - 1 / count)
