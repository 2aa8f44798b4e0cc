"""Functions, arguments and results as bytes; errors name what cannot be pickled."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any

import cloudpickle

from headway.errors import HeadwayError, NotPicklable, NotTrusted, TaskFailed
from headway.files import naming
from headway.model.outcome import Outcome
from headway.wire import TaskEnding, TaskResult

End = tuple[Any, BaseException | None]
"""A task's result, or the exception for its end."""

TRAVEL_HINT = (
    "Open what cannot travel (connections, files, locks) inside the function, or give its name or path instead."
)


class RemoteTraceback(Exception):
    """The traceback of an exception where the task ran; the cause of the exception raised here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


def pickled_function(function: Callable[..., Any], whose: str) -> bytes:
    """A function by cloudpickle.

    Raises:
        NotPicklable: names the part that cannot be pickled.
    """
    try:
        with naming() as files:
            blob: bytes = cloudpickle.dumps(function)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any class of object may raise anything, SystemExit too
        name = getattr(function, "__qualname__", repr(function))
        blame = next(_culprits(_used_by(function)), "")
        raise NotPicklable(
            f"{whose}: the function {name} cannot be pickled{f': it uses {blame}' if blame else ''} ({error})",
            TRAVEL_HINT,
        ) from error
    if files:
        name = getattr(function, "__qualname__", repr(function))
        raise HeadwayError(
            f"{whose}: the function {name} uses {files[0]!r}, which is no argument",
            "Inputs and outputs are known by a task's arguments: Task(function, Input(URL)).",
        )
    return blob


def pickled_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any], whose: str) -> bytes:
    """`(args, kwargs)` in cloudpickle's format.

    Plain pickle writes the same, many times faster, unless something belongs to the script itself.

    Raises:
        NotPicklable: names the argument that cannot be pickled.
    """
    blob = _plainly((args, kwargs))
    if b"__main__" not in blob and not cloudpickle.list_registry_pickle_by_value():
        return blob
    try:
        carried: bytes = cloudpickle.dumps((args, kwargs), pickle.DEFAULT_PROTOCOL)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any class of object may raise anything, SystemExit too
        named = {f"argument {place}": value for place, value in enumerate(args)}
        named |= {f"argument {name!r}": value for name, value in kwargs.items()}
        blame = next(_culprits(named), "an argument")
        raise NotPicklable(f"{whose}: {blame} cannot be pickled ({error})", TRAVEL_HINT) from error
    return carried


def _plainly(value: object) -> bytes:
    """Pickle with the standard library; if it cannot, return `__main__`, so that cloudpickle is used."""
    try:
        return pickle.dumps(value, pickle.DEFAULT_PROTOCOL)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # any class of object may raise anything; cloudpickle can do more
        return b"__main__"


def _used_by(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function refers to beyond its arguments, by name."""
    plain = inspect.unwrap(getattr(function, "func", function))
    bound = getattr(plain, "__self__", None)
    found = {} if bound is None else {"its object": bound}
    try:
        names = inspect.getclosurevars(getattr(plain, "__func__", plain))
    except (TypeError, ValueError):
        return found
    return {**found, **{f"{name!r}": value for name, value in {**names.nonlocals, **names.globals}.items()}}


def _culprits(named: Mapping[str, Any]) -> Iterator[str]:
    for name, value in named.items():
        try:
            cloudpickle.dumps(value)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  # that is what is looked for
            yield f"{name}, of type {type(value).__module__}.{type(value).__qualname__},"


def ends(result: TaskResult, *, trusted: bool = True) -> list[End]:
    """A task's result, or the exception for its end: the one that it raised itself, or a `TaskFailed`.

    The result of a function is what it returned; that of a program is the last part of what it wrote to stdout. A rigid
    job on several slots has an end for each, by rank. If one failed, the others that ended with it have the same
    exception.

    Args:
        trusted: whether to unpickle what was returned or raised; this runs code of the person who made it. If not, a
            value becomes a `NotTrusted`, an exception a `TaskFailed` with its traceback.
    """
    own = _given(result.ending, result, trusted)
    if not result.members:
        return [own]
    return [
        _given(member, result, trusted) if member.outcome is Outcome.SUCCEEDED or own[1] is None else own
        for member in result.members
    ]


def _given(ending: TaskEnding, result: TaskResult, trusted: bool) -> End:
    job, task = result.job, result.task
    where = f"task {task} of job {job}"
    if ending.outcome is Outcome.SUCCEEDED and ending.value is None:
        return ending.stdout.decode("utf-8", "replace"), None
    if ending.outcome is Outcome.SUCCEEDED and not trusted:
        return None, NotTrusted(
            f"what {where} gave is pickled, and unpickling it runs code of the person who submitted it",
            f"If you trust that person: Client.attach({job}, trust=True).",
        )
    if ending.value is not None and trusted:
        try:
            value = pickle.loads(ending.value)
        except BaseException as error:  # noqa: BLE001  # unpickling runs code of any class, SystemExit too
            last = f"; there it was: {ending.detail.strip().splitlines()[-1]}" if ending.detail else ""
            failure = TaskFailed(
                f"what {where} gave back cannot be read here: {error!r}{last}",
                "Every module it comes from must be importable here as well.",
                job=job,
                task=task,
                ending=ending,
            )
            failure.__cause__ = error
            return None, failure
        if ending.outcome is Outcome.SUCCEEDED:
            return value, None
        if isinstance(value, BaseException):
            value.__cause__ = RemoteTraceback(ending.detail)
            return None, value
    if ending.outcome is Outcome.CANCELLED:
        return None, CancelledError()
    wrote = (ending.stderr or ending.stdout).decode("utf-8", "replace").rstrip()
    return None, TaskFailed(
        f"{where} failed: {ending.detail or ending.outcome.value}",
        f"It wrote last:\n{wrote[-2000:]}" if wrote else "",
        job=job,
        task=task,
        ending=ending,
    )
