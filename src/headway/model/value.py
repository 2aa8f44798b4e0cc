"""Values that are created by the million: frozen for the type checker, plain objects at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A data class with slots whose fields cannot be assigned to.

    The type checker refuses assignments, as with `dataclass(frozen=True)`. At run time nothing does: a frozen data
    class sets each of its fields by `object.__setattr__`, so that creating one takes three times as long. Equality,
    hash, `repr`, `replace` and pickling are those of data classes. But the first three are not written as text and
    compiled for each class, which took a third of the time in which a command starts.
    """
    return with_shared_methods(dataclass(slots=True, eq=False, repr=False)(cls))


def with_shared_methods(made: type[T]) -> type[T]:
    """The data class, which has none of its own, with equality, hash and `repr` as data classes have them.

    A class that writes one of them itself keeps it.
    """
    told = fields(made)  # type: ignore[arg-type]
    key = _key_of([one.name for one in told if one.compare])
    names = [one.name for one in told if one.repr]

    def __eq__(self: T, other: object) -> bool:
        return bool(key(self) == key(other)) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: T) -> int:
        return hash(key(self))

    def __repr__(self: T) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    for method in (__eq__, __hash__, __repr__):
        if method.__name__ not in made.__dict__:
            setattr(made, method.__name__, method)
    return made


def _key_of(names: list[str]) -> Callable[[Any], Any]:
    """What gives the fields of these names as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])


def python_class(cls: type[T]) -> type[T]:
    """A class that stays one of Python where its methods are compiled: it inherits from a built-in class."""
    return cls
