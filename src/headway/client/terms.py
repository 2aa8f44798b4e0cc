"""What users say of jobs and services, in the form in which it is sent: each term as the request says of its type."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final, get_args

import msgspec

from headway.errors import InvalidInput
from headway.model.job import JobId, PenaltyShape
from headway.times import Span, When, seconds_of, when_of
from headway.wire import base
from headway.wire.base import Request

LATER: Final = 2**62
"""An id greater than that of any job: the server gives the real one."""


def sent(kind: type[Request], said: object, now: float, *, but: Collection[str] = ()) -> dict[str, Any]:
    """Those terms of a request that a user said something of, as they are sent.

    Args:
        said: has them as its attributes.
        but: names of attributes that mean something else.
        now: what spans of time to an instant count from.

    Raises:
        InvalidInput: a term is wrong.
    """
    names = [name for name in _converters(kind) if name not in but and hasattr(said, name)]
    return {name: _converters(kind)[name](getattr(said, name), name, now) for name in names}


def instant(when: When | None, field: str, now: float) -> float | None:
    """An instant in any accepted form, in seconds since the epoch.

    Raises:
        InvalidInput: it is not an instant.
    """
    return None if when is None else when_of(when, field, now)


def duration(span: Span | None, field: str) -> float | None:
    """A duration in any accepted form, in seconds.

    Raises:
        InvalidInput: it is not a duration.
    """
    return None if span is None else seconds_of(span, field)


def number(value: Any, field: str) -> float:
    """A number of any type, NumPy's among them, in the form in which it can be sent.

    Raises:
        InvalidInput: it is none.
    """
    _refuse_truth(value, field, "a finite number")
    try:
        return float(value + 0.0)  # float() would accept text, which is not a number
    except (TypeError, OverflowError) as error:
        raise InvalidInput(field, value, "a finite number") from error


def _refuse_truth(value: Any, field: str, allowed: str) -> None:
    """True and False are numbers to Python, but not to servers, and rarely meant as such.

    Raises:
        InvalidInput: it is one of them, or of NumPy's.
    """
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        raise InvalidInput(field, value, allowed, hint="Say 1 for true, and 0 for false.")


def whole(value: Any, field: str) -> int:
    """A whole number of any type, NumPy's among them.

    Raises:
        InvalidInput: it is none.
    """
    _refuse_truth(value, field, "a whole number")
    try:
        return operator.index(value)
    except TypeError as error:
        raise InvalidInput(field, value, "a whole number") from error


def shape_of(shape: Any, field: str = "shape") -> PenaltyShape:
    """How a penalty grows.

    Raises:
        InvalidInput: it is none of the ways.
    """
    try:
        return PenaltyShape(shape)
    except ValueError as error:
        raise InvalidInput(field, shape, "linear, sqrt or square") from error


def job_id(named: Any, field: str = "job") -> JobId:
    """The id of a job that was submitted, given as it is or as a waiter.

    Raises:
        InvalidInput: it is neither, or was not submitted.
    """
    number = getattr(named, "job", named)
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number < LATER:
        raise InvalidInput(field, named, "ids of jobs that were submitted, or their waiters")
    return number


def by_name(features: Any, field: str = "features") -> dict[str, Any]:
    """A copy of features.

    Raises:
        InvalidInput: they are not by name.
    """
    if features is None:
        return {}
    if not isinstance(features, Mapping) or not all(isinstance(name, str) for name in features):
        raise InvalidInput(field, features, "numbers by name, such as {'mesh': 1e6}")
    return dict(features)


def _features(features: Any, field: str) -> dict[str, float]:
    return {name: number(value, f"{field}[{name!r}]") for name, value in by_name(features, field).items()}


def _times(profile: Mapping[str, Span], field: str) -> dict[str, float]:
    return {kind: seconds_of(span, f"{field}[{kind!r}]") for kind, span in profile.items()}


def _numbers(values: Any, field: str) -> tuple[float, ...]:
    """Numbers; None: none, and one stands for all."""
    if values is None:
        return ()
    if isinstance(values, Iterable):
        return tuple(number(value, f"{field}[{place}]") for place, value in enumerate(values))
    return (number(values, field),)


def _ids(jobs: Any, field: str) -> tuple[JobId, ...]:
    """The ids of jobs, given as ids or waiters."""
    one = isinstance(jobs, int) or hasattr(jobs, "job")  # a waiter can be iterated: over its results
    named = (jobs,) if one or isinstance(jobs, str) or not isinstance(jobs, Iterable) else jobs
    return tuple(job_id(job, field) for job in named)


_Convert = Callable[[Any, str, float], Any]


def _at_any_time(convert: Callable[[Any, str], Any]) -> _Convert:
    return lambda value, field, now: convert(value, field)


_HOW: Final[tuple[tuple[Any, _Convert], ...]] = (
    *((kind, when_of) for kind in (base.Date, base.Due)),
    *((kind, _at_any_time(seconds_of)) for kind in (base.Time, base.Span)),
    *((kind, _at_any_time(number)) for kind in (base.Amount, base.Share, float)),
    *((kind, _at_any_time(whole)) for kind in (base.Count, base.Least1, base.Bytes1)),
    *((tuple[kind, ...], _at_any_time(_numbers)) for kind in (base.Share, base.Size)),  # type: ignore[valid-type]
    (tuple[base.Number, ...], _at_any_time(_ids)),
    (dict[str, base.Time], _at_any_time(_times)),
    (base.Features, _at_any_time(_features)),
    (PenaltyShape, _at_any_time(shape_of)),
    *((kind, lambda value, field, now: value) for kind in (base.JobText, bool)),
)
"""How what is said is converted, by the type that the request has for it. Any other type is not said as it is sent."""


@cache
def _converters(kind: type[Request]) -> dict[str, _Convert]:
    found = {}
    for field in msgspec.structs.fields(kind):
        may_lack = type(None) in get_args(field.type)
        types = (field.type, *get_args(field.type)) if may_lack else (field.type,)
        for known, convert in _HOW:
            if known in types:
                found[field.name] = _optional(convert) if may_lack else convert
                break
    return found


def _optional(convert: _Convert) -> _Convert:
    return lambda value, field, now: None if value is None else convert(value, field, now)
