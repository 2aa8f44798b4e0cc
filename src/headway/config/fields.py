"""Which values fields of a cluster file may have: what several tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headway.errors import InvalidInput, did_you_mean
from headway.model.node import SPEED_RANGE, WATTS_MAX, can_be_shown
from headway.times import seconds_of, span_of

MOST: Final = 1_000_000
"""Of anything that is counted: more is a slip of the finger."""

A_NAME: Final = "a name, in quotes"
COUNT: Final = f"a whole number from 1 to {MOST}"
WATTS: Final = f"watts, a number from 0 to {WATTS_MAX:g}"
SPEED: Final = "a number from {:g} to {:g}".format(*SPEED_RANGE)
SPAN: Final = 'seconds, 0 to 1e9, or a duration in quotes such as "10m"'
SPAN_ABOVE_0: Final = 'seconds, more than 0, or a duration in quotes such as "10m"'

Fields = Mapping[str, tuple[Callable[[object], bool], str]]
"""For each field of a table whether a value is allowed, and which are."""


def is_name(value: object) -> bool:
    """Whether it is a name that can be shown."""
    return isinstance(value, str) and bool(value.strip(". ")) and can_be_shown(value)


def is_number(value: object, least: float, most: float) -> bool:
    """Whether it is a number within these bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_whole(value: object, least: int, most: int) -> bool:
    """Whether it is a whole number within these bounds."""
    return isinstance(value, int) and is_number(value, least, most)


def is_count(value: object) -> bool:
    """Whether it is a number of things, at least one."""
    return is_whole(value, 1, MOST)


def is_span(value: object) -> bool:
    """Whether it is a time, which may be 0."""
    try:
        return is_number(span_of(value, "time") if isinstance(value, str) else value, 0, 1e9)
    except InvalidInput:
        return False


def is_span_above_0(value: object) -> bool:
    """Whether it is a time, which may not be 0."""
    return is_span(value) and seconds_of(value, "time") > 0  # type: ignore[arg-type]  # it is one


def is_speed(value: object) -> bool:
    """Whether it is a speed relative to a reference node."""
    return is_number(value, *SPEED_RANGE)


def is_watts(value: object) -> bool:
    """Whether it is a power."""
    return is_number(value, 0, WATTS_MAX)


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
