"""Which parameters of a program matter, and the past runs that were like a new one: "profile factoring" of Kim12.

A run is described by numbers: a mesh size, a Mach number, whatever the user names. Their values and the run times are
replaced by their ranks, because a run time need not grow in a straight line. Principal component analysis of all of
them finds the directions in which runs differ. How strongly a parameter and the run time go the same way in the
directions that explain most of it is the parameter's influence. Past runs are similar whose parameters are near,
each weighed by its influence; their run times are the estimate.

Source: Kim12; Kim, Koh, Kim, "Profile analysis of scientific application using PCA for cloud computing", IEEE Seoul
Section, 2011. reading: neither says how influences follow from components, or when runs are similar.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.history.described import RUNS_LEAST
from headway.history.similar import FADES, LAST_RUNS, Sample, sample_of

Floats = NDArray[np.float64]

SAME_IN_ALL: Final = "it is the same in all runs"

NEARLY_ALL: Final = 0.8
"""A parameter counts if so large a share of the runs has it; the others are not compared."""

EXPLAINED: Final = 0.9
"""The first components count, until they explain this share of all variance."""


def has_learner() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def check_learner() -> None:
    """Refuse what needs scikit-learn where it is not installed.

    Raises:
        HeadwayError: it is not.
    """
    if not has_learner():
        raise HeadwayError("scikit-learn is not installed", 'Install it with pip install "headway[predict]".')


@dataclass(frozen=True, slots=True)
class Component:
    """A direction in which runs differ.

    Attributes:
        explained: its share of all variance.
        loadings: how much of it each parameter has, by name.
        run_time: how much the run time has.
    """

    explained: float
    loadings: Mapping[str, float]
    run_time: float


class Factors:
    """What past runs of a program tell.

    Args:
        runs: the parameters of each run, by name; in order of time.
        took: how long each ran, in seconds.

    Attributes:
        compared: the numbers of the runs that are compared: those that have all parameters which nearly all runs have.
        names: the parameters that these have and in which they differ.
        left_out: the others, and why.
        components: all directions, those that explain most first.
        influence: of each parameter, by name, the strongest first; in all they are 1, or 0 if none matters.

    Raises:
        HeadwayError: there are fewer than `RUNS_LEAST` runs, or scikit-learn is not installed.
    """

    def __init__(self, runs: Sequence[Mapping[str, float]], took: Sequence[float]) -> None:
        check_learner()
        if len(runs) < RUNS_LEAST:
            there = "is 1 run" if len(runs) == 1 else f"are {len(runs)} runs"
            raise HeadwayError(f"there {there}; at least {RUNS_LEAST} are needed to tell what matters")
        self.left_out: dict[str, str] = {}
        self.compared = list(range(len(runs)))
        had: list[str] = []
        for name, times in Counter(name for run in runs for name in run).most_common():
            having = [number for number in self.compared if name in runs[number]]
            if len(having) < max(RUNS_LEAST, NEARLY_ALL * len(runs)):
                self.left_out[name] = f"{len(runs) - times} of {len(runs)} runs do not have it"
            else:
                self.compared = having
                had.append(name)
        self._values: dict[str, Floats] = {}
        for name in dict.fromkeys(name for run in runs for name in run if name in had):
            values: Floats = np.array([runs[number][name] for number in self.compared], dtype=np.float64)
            if not np.isfinite(values).all():
                self.left_out[name] = "it is not a number in all runs"
            elif (values == values[0]).all():
                self.left_out[name] = SAME_IN_ALL
            else:
                self._values[name] = values
        self.names = tuple(self._values)
        self._took: Floats = np.array([took[number] for number in self.compared], dtype=np.float64)
        self._places = (
            np.stack([_places(values, values) for values in self._values.values()], axis=1)
            if self._values
            else np.empty((len(self._took), 0))
        )
        self.components = self._components()
        self.influence = self._influence()

    def _components(self) -> tuple[Component, ...]:
        from sklearn.decomposition import PCA

        table = np.column_stack([self._places, _places(self._took, self._took)])
        spread = table.std(axis=0)
        found = PCA().fit((table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
        return tuple(
            Component(
                float(share),
                dict(zip(self.names, direction[:-1].tolist(), strict=True)),
                float(direction[-1]),
            )
            for share, direction in zip(found.explained_variance_ratio_, found.components_, strict=True)
            if share > 0
        )

    def _influence(self) -> dict[str, float]:
        shared, whole = dict.fromkeys(self.names, 0.0), 0.0
        for component in self.components:
            if whole >= EXPLAINED:
                break
            whole += component.explained
            for name, loading in component.loadings.items():
                shared[name] += component.explained * loading * component.run_time
        # What goes together by chance does so like one over the root of the number of runs: that much does not count.
        chance = 1 / math.sqrt(len(self._took))
        scale = len(self.names) + 1
        strength = {name: max(0.0, abs(value) * scale - chance) for name, value in shared.items()}
        total = sum(strength.values())
        ordered = sorted(strength.items(), key=lambda item: (-item[1], item[0]))
        return {name: value / total if total else 0.0 for name, value in ordered}

    def similar(self, run: Mapping[str, float], count: int = LAST_RUNS) -> list[int]:
        """The numbers of the past runs whose parameters are nearest, the nearest first; of equally near ones the last.

        Raises:
            HeadwayError: a parameter is missing, or not a number.
        """
        return [self.compared[place] for place in self._nearest(run, count)]

    def _nearest(self, run: Mapping[str, float], count: int) -> list[int]:
        """The same, as places among the runs that are compared."""
        place = []
        for name, values in self._values.items():
            if name not in run:
                raise HeadwayError(f"feature {name} is missing; the runs that are compared have it")
            if not math.isfinite(run[name]):
                raise HeadwayError(f"feature {name} is {run[name]}; allowed: a number")
            place.append(float(_places(np.array([run[name]]), values)[0]))
        weights = np.array([self.influence[name] for name in self.names])
        apart = (
            ((self._places - np.array(place)) ** 2 * weights).sum(axis=1) if self.names else np.zeros(len(self._took))
        )
        return sorted(range(len(apart)), key=lambda number: (apart[number], -number))[:count]

    def sample(self, run: Mapping[str, float]) -> Sample:
        """The run times of similar runs; the nearer, the more they count. Raises as `similar`."""
        nearest = self._nearest(run, LAST_RUNS)
        return sample_of([(float(self._took[number]), FADES**rank) for rank, number in enumerate(nearest)])


def _places(values: Floats, among: Floats) -> Floats:
    """Where values lie among others, from 0 to 1: the middle of their ranks there."""
    ordered = np.sort(among)
    low, high = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    found: Floats = (low + high) / (2 * len(ordered))
    return found
