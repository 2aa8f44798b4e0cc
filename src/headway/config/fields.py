"""Which values fields of a cluster file may have: what several tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headway.errors import InvalidInput, did_you_mean
from headway.model.node import SPEED_RANGE, WATTS_MAX, can_be_shown
from headway.times import span_of

MOST: Final = 1_000_000
"""Of anything that is counted: more is a slip of the finger."""

NAME: Final = "a name, in quotes"
COUNT: Final = f"a whole number from 1 to {MOST}"
WATTS: Final = f"watts, a number from 0 to {WATTS_MAX:g}"
SPEED: Final = "a number from {:g} to {:g}".format(*SPEED_RANGE)
SPAN: Final = 'seconds, 0 to 1e9, or a duration in quotes such as "10m"'

Fields = Mapping[str, tuple[Callable[[object], bool], str]]
"""For each field of a table whether a value is allowed, and which are."""


def is_name(value: object) -> bool:
    """Whether it is a name that can be shown."""
    return isinstance(value, str) and bool(value.strip(". ")) and can_be_shown(value)


def is_count(value: object) -> bool:
    """Whether it is a number of things, at least one."""
    return type(value) is int and 1 <= value <= MOST


def is_amount(value: object) -> bool:
    """Whether it is a number above 0."""
    return type(value) in (int, float) and 0 < value <= 1e9  # type: ignore[operator]  # of a type that has an order


def is_lease(value: object) -> bool:
    """Whether it is a time above 0."""
    try:
        return is_amount(span_of(value, "lease") if isinstance(value, str) else value)
    except InvalidInput:
        return False


def is_span(value: object) -> bool:
    """Whether it is a time."""
    try:
        seconds = span_of(value, "latency") if isinstance(value, str) else value
    except InvalidInput:
        return False
    return type(seconds) in (int, float) and 0 <= seconds <= 1e9  # type: ignore[operator]  # as above


def is_speed(value: object) -> bool:
    """Whether it is a speed relative to a reference node."""
    return type(value) in (int, float) and SPEED_RANGE[0] <= value <= SPEED_RANGE[1]  # type: ignore[operator]  # as above


def is_watts(value: object) -> bool:
    """Whether it is a power."""
    return type(value) in (int, float) and 0 <= value <= WATTS_MAX  # type: ignore[operator]  # as above


def check_fields(table: Mapping[str, Any], fields: Fields) -> None:
    """Refuse a table that has another field, or one of a value that is not allowed.

    Raises:
        InvalidInput: it does.
    """
    for field, value in table.items():
        if field not in fields:
            raise InvalidInput(field, value, f"only {', '.join(fields)}", hint=did_you_mean(field, fields))
        is_allowed, allowed = fields[field]
        if not is_allowed(value):
            raise InvalidInput(field, value, allowed)
