"""How many seeds, and which of many values, a test is asked with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def seeds(few: Iterable[int], more: Iterable[int]) -> list[Any]:
    """The seeds of `make test`, and for `make slow` more, which are slow.

    There are many more of them, and every process of `make test` would collect them all only to leave them out.
    """
    if os.environ.get("HEADWAY_EFFORT") != "slow":
        more = ()
    return [*few, *(pytest.param(seed, marks=pytest.mark.slow) for seed in more)]


def one_in(every: int, values: Sequence[Any]) -> list[Any]:
    """All these values; slow are those between the first, the one `every` places after it, and so on."""
    return [
        value if place % every == 0 else pytest.param(value, marks=pytest.mark.slow)
        for place, value in enumerate(values)
    ]
