"""Values that are made by the million: frozen for whoever writes code, plain objects for whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A data class with slots whose fields nobody assigns to.

    The type checker refuses assignments, as with `dataclass(frozen=True)`. At run time nothing does: a frozen data
    class sets each of its own fields by `object.__setattr__`, so that making one takes three times as long. Equality,
    hash, `repr`, `replace` and pickling are those of data classes.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
