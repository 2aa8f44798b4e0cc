"""JSON that says what the value is, or nothing: NaN and infinity, which JSON does not have, are refused, not `null`."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode


def encode(value: object) -> bytes:
    """A value as JSON.

    Raises:
        ValueError: there is a number in it that is none, or infinite; its place is told.
        Exception: it is not made of what JSON has; as `msgspec.json.encode` does.

    >>> encode({"a": [1, None]})
    b'{"a":[1,null]}'
    >>> encode({"a": [1, float("nan")]})
    Traceback (most recent call last):
    ...
    ValueError: nan at `$['a'][1]`; JSON has only numbers that are finite
    """
    text = _encode(value)
    if b"null" in text:  # what such a number becomes; seldom anything else
        _check(msgspec.to_builtins(value))
    return text


def _check(value: Any) -> None:
    """See that all numbers in plain values are finite. The value has been encoded, so it is not nested too deeply."""
    left: list[tuple[str, Any]] = [("$", value)]
    while left:
        place, one = left.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                raise ValueError(f"{one} at `{place}`; JSON has only numbers that are finite")
        elif isinstance(one, dict):
            left += [(f"{place}[{key!r}]", inner) for key, inner in reversed(one.items())]
        elif isinstance(one, list | tuple | set | frozenset):
            left += [(f"{place}[{number}]", inner) for number, inner in reversed(list(enumerate(one)))]
