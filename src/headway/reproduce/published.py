"""What Lin14 6.3.2 says of its figures 6.2 to 6.5, statement by statement, and how our numbers compare with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from headway.model.workload import FloatArray
from headway.reproduce.sweep import SPARE_DUE, SPARE_PRIORITY, Row, column

VIOLATION: Final = "priority_violation_rate"
PENALTY: Final = "deadline_miss_penalty"

FIGURES: Final = {
    "fig6.2": (VIOLATION, False),
    "fig6.3": (VIOLATION, True),
    "fig6.4": (PENALTY, False),
    "fig6.5": (PENALTY, True),
}
"""The measure of each figure, and whether the workers differ in speed."""

INTERVAL: Final = (5, 95)
_RESAMPLED: Final = 2000

Verdict = Literal["holds", "holds in part", "does not hold"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that the thesis says of a figure, as a number that can be compared with ours.

    Attributes:
        figure: a key of `FIGURES`.
        policy, against: the number is the mean of the policy, or its ratio to the least mean of the others.
        published: the number of the thesis, as precisely as its words give it.
        within: the factor within which our number counts as the same; 0: ours holds if it is no greater.
        words: what the thesis says.
    """

    figure: str
    policy: str
    against: tuple[str, ...]
    published: float
    within: float
    words: str


@dataclass(frozen=True, slots=True)
class Found:
    """Our number for a statement.

    Attributes:
        value: from the means over all samples; NaN if the divisor is 0.
        low, high: the range of 90 % of the values that follow if our samples are resampled.
    """

    value: float
    low: float
    high: float


def _statements(figure: str, spare: float) -> tuple[Statement, ...]:
    def statement(policy: str, against: tuple[str, ...], published: float, within: float, words: str) -> Statement:
        return Statement(figure, policy, against, published, within, words)

    if FIGURES[figure][0] == VIOLATION:
        return (
            statement("priority", (), 0, 1, "priority never violates priorities"),
            statement(SPARE_PRIORITY, (), 0, 1, "nor does deadline:spare=priority"),
            statement(SPARE_DUE, ("edf",), 0.25, 2, "deadline:spare=due has a quarter of the rate of EDF"),
        )
    magnitude = math.sqrt(10)
    return (
        statement("edf", ("priority", SPARE_PRIORITY, SPARE_DUE), 1, 0, "EDF has the least penalty"),
        statement("priority", ("edf",), 1000, magnitude, "priority is 3 magnitudes above EDF"),
        statement(SPARE_PRIORITY, ("edf",), 1000, magnitude, "deadline:spare=priority is 3 magnitudes above EDF"),
        statement(SPARE_DUE, (SPARE_PRIORITY,), spare, 2, f"deadline:spare=due has {spare:g} of spare=priority"),
        statement(SPARE_DUE, ("edf",), 1, 2, "deadline:spare=due is close to EDF"),
    )


STATEMENTS: Final = (
    *_statements("fig6.2", 0),
    *_statements("fig6.3", 0),
    *_statements("fig6.4", 0.004),
    *_statements("fig6.5", 0.002),
)
"""All statements, in order of the figures. What the thesis only draws, without giving numbers, is left out."""


def found(statement: Statement, rows: Iterable[Row], load: float | None = None) -> Found:
    """Our number for a statement, from runs at a load."""
    measure, heterogeneous = FIGURES[statement.figure]
    rows = list(rows)
    values = column(rows, measure, statement.policy, load, heterogeneous)
    others = np.array([column(rows, measure, policy, load, heterogeneous) for policy in statement.against])
    again = np.random.default_rng(0).integers(0, len(values), (_RESAMPLED, len(values)))
    many = _number(values[again], others[:, again] if len(others) else others)
    many = many[np.isfinite(many)]
    low, high = np.percentile(many, INTERVAL).tolist() if len(many) else (math.nan, math.nan)
    return Found(float(_number(values, others)), low, high)


def _number(values: FloatArray, others: FloatArray) -> FloatArray:
    """Means over the last axis, or their ratios to the least mean of others, shape (policies, ...)."""
    means: FloatArray = values.mean(axis=-1)
    if not len(others):
        return means
    least = others.mean(axis=-1).min(axis=0)
    ratios: FloatArray = np.divide(means, least, out=np.full_like(means, np.nan), where=least > 0)
    return ratios


def verdict(statement: Statement, ours: Found) -> Verdict:
    """Whether our number confirms a statement.

    - Published as 0: it holds if ours is 0, and in part if ours is at most 1 %.
    - Another number: it holds if ours is within the statement's factor. It holds in part if ours and 90 % of the
      resampled values lie on the same side of 1: the thesis is right about which of the two is better.
    - Two policies alike: it holds in part if ours is even better.
    - No greater: it holds in part if some of the resampled values are no greater.

    >>> [verdict(STATEMENTS[2], Found(*numbers)) for numbers in ((0.2, 0.1, 0.3), (0.01, 0, 0.02), (0.9, 0.8, 1.1))]
    ['holds', 'holds in part', 'does not hold']
    """
    if statement.published == 0:
        return "holds" if ours.value == 0 else "holds in part" if ours.value < 0.01 else "does not hold"
    if statement.within == 0:
        is_so, may_be_so = ours.value <= statement.published, ours.low <= statement.published
        return "holds" if is_so else "holds in part" if may_be_so else "does not hold"
    if statement.published / statement.within <= ours.value <= statement.published * statement.within:
        return "holds"
    same_side = max(ours.value, ours.high) < 1 if statement.published <= 1 else min(ours.value, ours.low) > 1
    return "holds in part" if same_side else "does not hold"


def told(figures: Iterable[str]) -> list[Statement]:
    """The statements about these figures."""
    wanted = set(figures)
    return [statement for statement in STATEMENTS if statement.figure in wanted]
