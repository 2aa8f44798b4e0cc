"""Run times of jobs that are described by features, such as the size of a mesh: by the past runs that were nearest.

Features and run times are replaced by their ranks, as in `history.factors`. What a feature tells is the square of how
it and the run time rise together (Spearman), less what chance makes of so few runs; it counts by the square of that, so
that what tells most decides. This is for predictions of one job at a time, within a server: it needs no scikit-learn,
and a fraction of a millisecond.

Nobody says of a feature that was found of a job, such as a number of its command, that it matters: it may be a seed or
a port, and of many such numbers some go along with the run time by chance. So these have to agree more with it. What
all jobs have, their width and estimate, only says which of those runs are nearest that another feature tells of.

Not all runs of a program have the same features. A job is compared over those that enough runs share with it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Final

from headway.history.features import ESTIMATE, WIDTH, is_own

RUNS_KEPT: Final = 60
"""So many last runs of a program are remembered."""

RUNS_LEAST: Final = 5
"""From fewer runs nothing can be told."""

SHARE_LEAST: Final = 0.5
"""A feature that was found counts if at least this share of the runs have it; one that a user named, if `RUNS_LEAST`
have it."""

TELLING: Final = 8
"""So many features count at most, those that tell most."""

WEIGHED: Final = 8
"""How much each feature counts is told again after so many runs, and after each one until there are twice as many."""

FEATURE_SETS: Final = 8
"""For jobs with so many different sets of features it is kept how much each feature counts."""

OF_ALL: Final = (ESTIMATE, WIDTH)
"""Features that say nothing alone: jobs without other features are compared by them in another way."""

Names = tuple[str, ...]
Run = tuple[Names, Sequence[float], float]
"""Names and values of its features, and how long it ran, in seconds."""


class Described:
    """The last runs of one program."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque(maxlen=RUNS_KEPT)
        self._learnt = 0
        self._weighed: list[Run] = []  # as they were when it was last told how much features count
        self._influence: dict[Names, dict[str, float]] = {}
        self._compared: dict[Names, ComparedRuns] = {}

    def learn(self, features: Mapping[str, float], seconds: float) -> None:
        """A job with these features has run so long."""
        names = tuple(features)
        if self._runs and self._runs[-1][0] == names:
            names = self._runs[-1][0]  # kept once
        self._runs.append((names, array("d", features.values()), seconds))
        self._learnt += 1
        self._compared = {}
        if self._learnt < 2 * WEIGHED or self._learnt % WEIGHED == 0:
            self._weighed, self._influence = list(self._runs), {}

    def nearest(self, features: Mapping[str, float], count: int) -> list[float]:
        """The run times of the nearest runs, in seconds, the nearest first, of equally near ones the last.

        Nothing, if there are too few runs, or no feature tells anything.
        """
        asked = tuple(features)
        influence = self._influence.get(asked)
        if influence is None:
            if len(self._influence) == FEATURE_SETS:
                self._influence, self._compared = {}, {}
            influence = self._influence[asked] = influence_of(asked, self._weighed)
        if not influence:
            return []
        compared = self._compared.get(asked)
        if compared is None:
            compared = self._compared[asked] = ComparedRuns(influence, _having(influence, list(self._runs)))
        return compared.nearest(features, count)


class ComparedRuns:
    """Runs that a job is compared with.

    Args:
        influence: of each feature that tells anything, by name.
        runs: all have these features.
    """

    def __init__(self, influence: Mapping[str, float], runs: Sequence[Run]) -> None:
        self._seconds = [seconds for *_, seconds in runs]
        self._columns = []
        if len(runs) >= RUNS_LEAST:
            for (name, its_influence), column in zip(influence.items(), _columns(influence, runs), strict=True):
                ordered = sorted(column)
                self._columns.append((name, its_influence, ordered, doubled_places(column, ordered)))

    def nearest(self, features: Mapping[str, float], count: int) -> list[float]:
        """See `Described.nearest`."""
        if not self._columns:
            return []
        apart = [0.0] * len(self._seconds)
        for name, influence, ordered, places in self._columns:
            value = features[name]
            here = bisect_left(ordered, value) + bisect_right(ordered, value)
            apart = [so_far + influence * (place - here) ** 2 for so_far, place in zip(apart, places, strict=True)]
        order = sorted(range(len(apart) - 1, -1, -1), key=apart.__getitem__)
        return [self._seconds[number] for number in order[:count]]


def influence_of(asked: Names, runs: list[Run]) -> dict[str, float]:
    """How much each feature of a job tells, by name, as far as past runs have it; empty: nothing is told."""
    names, runs = _shared(asked, runs)
    if len(runs) < RUNS_LEAST:
        return {}
    seconds = [seconds for *_, seconds in runs]
    times = doubled_places(seconds, sorted(seconds))
    found = []
    for name, column in zip(names, _columns(names, runs), strict=True):
        ordered = sorted(column)
        if ordered[0] < ordered[-1]:
            agrees = _agreement(doubled_places(column, ordered), times)
            found.append((_by_chance(len(runs), is_found=is_own(name)) - agrees, name))
    telling = {name: less**2 for less, name in sorted(found)[:TELLING] if less < 0}
    return telling if any(name not in OF_ALL for name in telling) else {}


def _shared(asked: Names, runs: list[Run]) -> tuple[Names, list[Run]]:
    """Features that a job is compared over, and the runs that have all of them.

    Those come first that most runs have; one that too few of the runs have that are left is not compared.
    """
    if _are_alike(runs) and all(run[0] == asked for run in runs[:1]):
        return asked, runs
    having = Counter(name for names, *_ in runs for name in names)
    shared = []
    for name in sorted(asked, key=lambda name: (-having[name], name)):
        least = max(RUNS_LEAST, SHARE_LEAST * len(runs)) if is_own(name) else RUNS_LEAST
        left = [run for run in runs if name in run[0]]
        if len(left) >= least:
            runs = left
            shared.append(name)
    return tuple(shared), runs


def _are_alike(runs: Sequence[Run]) -> bool:
    """Whether all runs have the same features."""
    return not runs or [run[0] for run in runs].count(runs[0][0]) == len(runs)


def _having(names: Iterable[str], runs: list[Run]) -> list[Run]:
    """The runs that have these features."""
    if _are_alike(runs) and all(name in runs[0][0] for name in names):
        return runs
    return [run for run in runs if all(name in run[0] for name in names)]


def _columns(names: Iterable[str], runs: Sequence[Run]) -> list[Sequence[float]]:
    """The values of each feature, in the order of the runs."""
    if _are_alike(runs):
        columns = list(zip(*(run[1] for run in runs), strict=True))
        return [columns[runs[0][0].index(name)] for name in names]
    rows = [dict(zip(run[0], run[1], strict=True)) for run in runs]
    return [[row[name] for row in rows] for name in names]


def doubled_places(values: Sequence[float], ordered: Sequence[float]) -> list[int]:
    """Where each value lies among all of them: twice the middle of its ranks, from 0 on, so that it is a whole number.

    >>> doubled_places([5.0, 1.0, 5.0], [1.0, 5.0, 5.0])
    [4, 1, 4]
    """
    below, both = 0, {}
    for value, behind in dict(zip(ordered, range(1, len(ordered) + 1), strict=True)).items():
        both[value] = below + behind
        below = behind
    return [both[value] for value in values]


def _agreement(places: Sequence[int], times: Sequence[int]) -> float:
    """The square of the correlation of two rows of places; 0 where one of them is the same in all."""
    count = len(places)
    middle = count**3  # the mean of either row is `count`
    spread, spread_of_times = sum(map(mul, places, places)) - middle, sum(map(mul, times, times)) - middle
    if not spread or not spread_of_times:
        return 0.0
    agrees: float = (sum(map(mul, places, times)) - middle) ** 2 / (spread * spread_of_times)
    return agrees


def _by_chance(count: int, *, is_found: bool) -> float:
    """The square of a correlation that tells nothing, of so many runs: as chance has it in the mean, or as one in a
    hundred has it.
    """
    return 12 / (count + 9) if is_found else 1 / count
