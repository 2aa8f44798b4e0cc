"""How many requests will come in the next window, from the numbers of those before.

`last` is the number of the last window, which the paper takes (Chang16 V.B.1: the rate as measured). `ArrivalForecast`
does better on the logs of the paper; docs/explanation/services-model.md has the comparison.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

SMOOTHING: Final = 0.5
"""What the last window weighs against those before it."""

HABIT: Final = 0.3
"""What the same part of earlier periods weighs in a forecast."""

HABIT_SMOOTHING: Final = 0.1
"""What one window weighs against those before it at the same part of the period."""

ERRORS: Final = 200
"""How many errors the spread is taken from."""


def last(counts: Sequence[int]) -> float:
    """The number of the last window; 0 before there is one."""
    return float(counts[-1]) if counts else 0.0


class ArrivalForecast:
    """Forecasts of how many requests come in the next window, learned window by window.

    A forecast is 0.7 of the smoothed number of the last windows, and 0.3 of what is usual at this part of the period.

    Args:
        period: windows in a period, such as a day; None: nothing repeats.
        parts: of a period, each with a usual number of its own.
    """

    def __init__(self, period: float | None = None, parts: int = 24) -> None:
        self._period, self._parts = period, parts
        self._windows = 0
        self._level: float | None = None
        self._usual: dict[int, float] = {}
        self._errors: deque[float] = deque(maxlen=ERRORS)

    def add(self, count: int) -> None:
        """So many came in the window that is over now."""
        if self._level is None:
            self._level = float(count)
        else:
            mean = self.mean()
            self._errors.append((count - mean) / math.sqrt(max(1.0, mean)))
            self._level += SMOOTHING * (count - self._level)
        if self._period is not None:
            part = self._part()
            usual = self._usual.get(part, float(count))
            self._usual[part] = usual + HABIT_SMOOTHING * (count - usual)
        self._windows += 1

    def mean(self) -> float:
        """How many are expected; 0 before the first window is over."""
        if self._level is None:
            return 0.0
        usual = self._usual.get(self._part()) if self._period is not None else None
        return self._level if usual is None else (1 - HABIT) * self._level + HABIT * usual

    def at_most(self, probability: float) -> float:
        """So many or fewer are expected with this probability, 0 to 1, by the errors of the last forecasts.

        An error grows with the root of the number that is expected. Without errors yet it is the expected number.
        """
        mean = self.mean()
        if not self._errors:
            return mean
        rank = min(len(self._errors) - 1, int(probability * len(self._errors)))
        return max(0.0, mean + sorted(self._errors)[rank] * math.sqrt(max(1.0, mean)))

    def _part(self) -> int:
        assert self._period is not None
        return int(self._windows % self._period * self._parts / self._period)
