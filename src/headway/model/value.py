"""Values that are created by the million: frozen for the type checker, plain objects at run time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A data class with slots whose fields cannot be assigned to.

    The type checker refuses assignments, as with `dataclass(frozen=True)`. At run time nothing does: a frozen data
    class sets each of its fields by `object.__setattr__`, so that creating one takes three times as long. Equality,
    hash, `repr`, `replace` and pickling are those of data classes.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def python_class(cls: type[T]) -> type[T]:
    """A class that stays one of Python where its methods are compiled: it inherits from a built-in class."""
    return cls
