"""Terms of jobs on their way between a request and the core.

A request names each term as its form does (`headway.model.job`), but for the graph of a workflow, which is its `plan`.
What the request says of its type decides how it is told: times in seconds, values by name as a map. So a term that a
form gets needs no more here than a field in the request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, get_args, get_origin

import msgspec

from headway.model.instant import to_seconds
from headway.wire.base import Date, Due, Features, Request, Span, Time, microseconds

SENT_AS: Final[Mapping[str, str]] = {"graph": "plan"}
"""What the terms are called in requests that have another name there."""


class Part(Request, frozen=True):
    """One of many alike within a request.

    Attributes:
        form: the class of the value that it becomes.
    """

    form: ClassVar[type]


class _Conversion(NamedTuple):
    """How a term is converted that came over HTTP, named by a field, and how one that is to be sent."""

    inward: Callable[[Any, str], Any]
    outward: Callable[[Any], Any]


def _times_by_name(times: Mapping[str, float], field: str) -> tuple[tuple[str, int], ...]:
    return tuple([(name, microseconds(time, f"{field}[{name}]")) for name, time in sorted(times.items())])


_TIME: Final = _Conversion(microseconds, to_seconds)
_CONVERSIONS: Final = (
    *((time, _TIME) for time in (Time, Date, Due, Span)),
    (dict[str, Time], _Conversion(_times_by_name, lambda times: {name: to_seconds(time) for name, time in times})),
    (Features, _Conversion(lambda numbers, _: tuple(sorted(numbers.items())), dict)),
)


class _TermsInBoth(NamedTuple):
    """The terms that a form and a request both have.

    Attributes:
        held, sent: what gives all of them, of a value of the form and of a request.
        names, sent_as: what they are called there.
        converted: their places, of those that are not the same in both.
    """

    held: Callable[[Any], tuple[Any, ...]]
    sent: Callable[[Any], tuple[Any, ...]]
    names: tuple[str, ...]
    sent_as: tuple[str, ...]
    converted: tuple[tuple[int, _Conversion], ...]


def inward(sent: Request, form: type, prefix: str = "") -> dict[str, Any]:
    """The terms of a form that a request has, as the form has them.

    Args:
        prefix: what stands before the names of fields in errors.

    Raises:
        InvalidInput: a time is none that the core can count.
    """
    terms = _terms(type(sent), form)
    return dict(zip(terms.names, _values(terms, sent, prefix), strict=True))


def _values(terms: _TermsInBoth, sent: Request, prefix: str) -> list[Any]:
    values = list(terms.sent(sent))
    for place, way in terms.converted:
        if values[place] is not None:
            values[place] = way.inward(values[place], prefix + terms.sent_as[place])
    return values


def outward(value: Any, kind: type[Request]) -> dict[str, Any]:
    """The terms of a value, such as a job, as a request of this kind has them."""
    terms = _terms(kind, value.__class__)
    values = list(terms.held(value))
    for place, way in terms.converted:
        if values[place] is not None:
            values[place] = way.outward(values[place])
    return dict(zip(terms.sent_as, values, strict=True))


@cache
def _terms(kind: type[Request], form: type) -> _TermsInBoth:
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    known = [field.name for field in dataclasses.fields(form) if field.init]
    names = tuple([name for name in known if SENT_AS.get(name, name) in types])
    sent_as = tuple([SENT_AS.get(name, name) for name in names])
    ways = [(place, _conversion_of(types[name])) for place, name in enumerate(sent_as)]
    converted = tuple([(place, way) for place, way in ways if way is not None])
    return _TermsInBoth(attrgetter(*names), attrgetter(*sent_as), names, sent_as, converted)


def _conversion_of(type_sent: Any) -> _Conversion | None:
    of = get_args(type_sent)
    if get_origin(type_sent) is tuple and isinstance(of[0], type) and issubclass(of[0], Part):
        return _Conversion(partial(_whole, of[0]), partial(_parts, of[0]))
    types = (type_sent, *(of if type(None) in of else ()))
    return next((way for kind, way in _CONVERSIONS if kind in types), None)


def _whole(kind: type[Part], parts: Iterable[Part], field: str) -> tuple[Any, ...]:
    form, terms = kind.form, _terms(kind, kind.form)  # a part has all terms of its form, so they are told by place
    return tuple([form(*_values(terms, part, f"{field}[{place}].")) for place, part in enumerate(parts)])


def _parts(kind: type[Part], values: Iterable[object]) -> tuple[Part, ...]:
    return tuple([kind(**outward(value, kind)) for value in values])
