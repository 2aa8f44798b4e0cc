"""Results of experiments: numbers of a paper beside ours, tables, pictures and every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from headway.model.workload import FloatArray, IntArray
from headway.reproduce.tables import Table

Verdict = Literal["holds", "holds in part", "does not hold"]
Progress = Callable[[int], None]
"""Called with the number of runs that have ended."""

INTERVAL: Final = (5, 95)
_RESAMPLED: Final = 2000


@dataclass(frozen=True, slots=True)
class Statement:
    """A number of the paper beside ours.

    Attributes:
        words: what it is a number of.
        published: the paper's.
        ours: ours.
        low, high: the range of 90 % of what samples give, or means of as many samples drawn again.
        within: how far from the published number ours counts as the same.
        neutral: the number that would tell nothing; None: there is none.
        form: how the numbers are written.
    """

    words: str
    published: float
    ours: float
    low: float
    high: float
    within: float
    neutral: float | None = None
    form: str = "{:.1%}"

    @property
    def verdict(self) -> Verdict:
        """Whether ours confirms the published number; in part, if both are on the same side of the neutral one.

        >>> [Statement("", 0.5, ours, ours, ours, 0.1, 0).verdict for ours in (0.6, 0.2, -0.2)]
        ['holds', 'holds in part', 'does not hold']
        """
        if abs(self.ours - self.published) <= self.within or self.low <= self.published <= self.high:
            return "holds"
        if self.neutral is None or (self.ours - self.neutral) * (self.published - self.neutral) <= 0:
            return "does not hold"
        return "holds in part"

    def cells(self) -> tuple[str, ...]:
        """The row of a table."""
        published, ours, low, high = map(self.form.format, (self.published, self.ours, self.low, self.high))
        return self.words, published, ours, f"{low} to {high}", self.verdict


def table(statements: Sequence[Statement]) -> Table:
    """Published numbers beside ours."""
    columns = ("", "published", "ours", "range of 90 %", "verdict")
    return Table("What the paper prints, and what comes of our runs", columns, [one.cells() for one in statements])


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an experiment.

    Attributes:
        about: what was run, and what its numbers are.
        tables: its numbers.
        statements: those that the paper prints, too.
        columns, rows: every run.
        pictures: what draws each picture to a file, by name.
    """

    about: str
    tables: tuple[Table, ...]
    statements: tuple[Statement, ...]
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    pictures: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)


def draws(samples: int) -> IntArray:
    """Positions of samples, drawn again as often as there are samples, many times; shape (draws, samples)."""
    return np.random.default_rng(0).integers(0, samples, (_RESAMPLED, samples))


def ratio(numbers: FloatArray, others: FloatArray) -> FloatArray:
    """One divided by the other; NaN where that is 0."""
    found: FloatArray = np.divide(numbers, others, out=np.full_like(numbers, np.nan), where=others != 0)
    return found


def mean_of(values: FloatArray) -> float:
    """The mean of those that are numbers; NaN if none is."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan


def range_of(values: FloatArray) -> tuple[float, float]:
    """The range of 90 % of those that are numbers; NaN if none is."""
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, INTERVAL).tolist() if len(finite) else (math.nan, math.nan)
    return low, high
