"""Time inside Headway: an integer count of microseconds, so that `==` is exact and every machine computes the same."""

from __future__ import annotations

import math
from typing import Final

Instant = int
"""Microseconds since the zero of the driver's clock: the Unix epoch live, the log's own zero simulated."""

Duration = int
"""Microseconds, >= 0."""

SECOND: Final[Duration] = 1_000_000
HOUR: Final[Duration] = 3600 * SECOND
DAY: Final[Duration] = 24 * HOUR

NEVER: Final[Instant] = 2**62
"""Later than any other instant: the due date of a job without one."""

LONGEST: Final[Duration] = NEVER - 1
"""No run time is expected to be longer, however large the task and slow the node."""


def from_seconds(seconds: float) -> int:
    """The nearest count of microseconds.

    Raises:
        ValueError: not a finite number, or beyond the range of an instant.
    """
    if not math.isfinite(seconds) or abs(seconds) * SECOND >= NEVER:
        raise ValueError(f"{seconds!r} is not a finite number of seconds")
    return round(seconds * SECOND)


def to_seconds(microseconds: int) -> float:
    """Seconds, for people and for arrays that policies compute on."""
    return microseconds / SECOND


def seconds_text(microseconds: int) -> str:
    """Seconds as written in files: exact, and without a decimal point if they are whole.

    >>> seconds_text(90_000_000), seconds_text(-1_500_000), seconds_text(1)
    ('90', '-1.5', '0.000001')
    """
    whole, rest = divmod(abs(microseconds), SECOND)
    sign = "-" if microseconds < 0 else ""
    return f"{sign}{whole}.{rest:06d}".rstrip("0") if rest else f"{sign}{whole}"
