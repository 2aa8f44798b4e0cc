"""Large values encoded part by part: the bytes are those of `encode`, and between the parts others are served."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from headway.wire.base import array_head, encode, map_head

ENCODED_AT_ONCE: Final = 500
"""Elements of an array or a map, as a list in an answer, that are encoded in one go; then others have their turn."""


def by_parts(value: Any) -> Generator[None, None, bytes]:
    """Encode a body or a data class; yields between the parts of its long arrays and maps.

    >>> parts = by_parts(("a",) * 1200)
    >>> next(parts), next(parts)
    (None, None)
    """
    if isinstance(value, tuple | dict):
        return (yield from _elements(value))
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__}
        long = yield from _long_of(found)
        return encode(msgspec.structs.replace(value, **long) if long else value)
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    long = yield from _long_of(found)
    return encode({**found, **long} if long else value)


def _long_of(fields: dict[str, Any]) -> Generator[None, None, dict[str, msgspec.Raw]]:
    """The encoded fields that are long, or have long ones themselves."""
    long: dict[str, msgspec.Raw] = {}
    for name, part in fields.items():
        if isinstance(part, msgspec.Struct) or (isinstance(part, tuple | dict) and len(part) > ENCODED_AT_ONCE):
            long[name] = msgspec.Raw((yield from by_parts(part)))
    return long


def _elements(whole: tuple[Any, ...] | dict[Any, Any]) -> Generator[None, None, bytes]:
    head = array_head if isinstance(whole, tuple) else map_head
    bodies = [head(len(whole))]
    for part in _parts(whole) if isinstance(whole, tuple) else map(dict, _parts(tuple(whole.items()))):
        if len(bodies) > 1:
            yield
        bodies.append(encode(part)[len(head(len(part))) :])
    return b"".join(bodies)


def _parts(whole: Sequence[Any]) -> Iterator[Sequence[Any]]:
    each = iter(whole)
    while part := tuple(islice(each, ENCODED_AT_ONCE)):
        yield part
