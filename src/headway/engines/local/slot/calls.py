"""What a slot's process does with a function: reads it and its arguments, calls it, and pickles what came of it."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw

from headway.engines.local.shared.frames import Body, CallFrame, Launch, encode, together
from headway.engines.local.shared.terms import NO_ROOM, NoRoomForFiles, Terms
from headway.engines.local.slot.programs import ended_with, no_folder
from headway.errors import FileTrouble
from headway.files import answering
from headway.given import results
from headway.model.outcome import Outcome

if TYPE_CHECKING:
    from headway.engines.local.slot.files import AttemptFiles

TRACEBACK_MAX: Final = 1 << 16
"""Characters of a traceback that are sent; a longer one is cut in the middle."""

_NOTHING_GIVEN: Final = contextlib.nullcontext()
_NONE: Final = pickle.dumps(None, pickle.HIGHEST_PROTOCOL)


class ReceivedFunction:
    """A function as it came, and as it is once it was unpickled."""

    __slots__ = ("call", "pickled")

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self.call: Callable[..., Any] | None = None

    def read(self) -> Callable[..., Any]:
        """It, unpickled once."""
        if self.call is None:
            self.call = pickle.loads(self.pickled)
            self.pickled = b""
        return self.call


def closed(terms: Terms) -> str:
    """Why an account can call no function here; empty if it can."""
    if terms.account is not None:
        for file in (os.__file__, __file__):
            if not os.access(file, os.R_OK):
                said = f"account {terms.account.name!r} cannot read {file}, which functions need on node {terms.name!r}"
                return f"{said}: install Python and Headway where it can (programs need neither)"
    return ""


def placed(call: CallFrame, terms: Terms) -> str:
    """Go to the folder of a call; returns why it cannot run there, empty if it can."""
    if unreadable := closed(terms):
        return unreadable
    if call.cwd:
        try:
            os.chdir(call.cwd)
        except (OSError, ValueError) as error:
            if not call.anywhere:
                return no_folder(call.cwd, error, terms)
    return ""


def reset(variables: dict[str, str | None]) -> None:
    """Give variables their earlier values; those that did not exist are removed."""
    for name, text in variables.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text


def loaded(
    function: ReceivedFunction, arguments: memoryview, call: CallFrame, files: AttemptFiles | None
) -> tuple[Any, Any, Any] | str | NoRoomForFiles:
    """Function, arguments and keyword arguments of a call, its inputs fetched; or why they are not available."""
    try:
        callee = function.read()
        if files:
            files.elsewhere = call.files
        with (
            answering(files.answer) if files else _NOTHING_GIVEN,
            results(call.results) if call.results else _NOTHING_GIVEN,
        ):
            args, kwargs = pickle.loads(arguments)
    except NoRoomForFiles as full:
        return full
    except FileTrouble as trouble:
        return str(trouble)
    except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code
        return f"the task cannot be read here:\n{_told(error)}"
    return callee, args, kwargs


def called(callee: Any, args: Any, kwargs: Any, result_max: int) -> tuple[Outcome, Body | None, str, int | None, bool]:
    """Outcome, result, detail and exit code of a call; and whether that was because a disk was full."""
    try:
        value = callee(*args, **kwargs)
    except SystemExit as error:
        code = _exit_code(error)
        said = f"{ended_with(code) or 'exit status 0, before it returned'}\n{_told(error)}"
        return Outcome.EXITED, None, said, code, False
    except OSError as error:
        return *_failed(error, result_max), error.errno in NO_ROOM
    except BaseException as error:  # noqa: BLE001 - a task may raise anything
        return *_failed(error, result_max), False
    if value is None:
        return Outcome.SUCCEEDED, _NONE, "", None, False
    try:
        result = _pickled(value)
    except BaseException as error:  # noqa: BLE001 - pickling runs foreign code
        name, kind = getattr(callee, "__qualname__", None) or repr(callee), type(value)
        where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        said = f"the result of {name}, of type {where}{kind.__qualname__}, cannot be pickled: {error}"
        return *_failed(_caused(pickle.PicklingError(said), error), result_max), False
    if len(result) > result_max:
        said = f"the result is {len(result)} bytes; allowed: {result_max}. Write it to a file: take a headway.Output."
        return Outcome.TOO_LARGE, None, said, None, False
    return Outcome.SUCCEEDED, result, "", None, False


def _caused(error: Exception, cause: BaseException) -> Exception:
    """An exception with its cause."""
    error.__cause__ = cause
    return error


class _Parts(list[Body]):
    """What a pickler writes. Something large in it is a part of its own, which was not copied."""

    write = list.append


def _pickled(value: object) -> Body:
    """Pickled by reference if possible, because that is ten times faster; else by value, as cloudpickle does."""
    with contextlib.suppress(Exception):  # the second try reports what is wrong
        parts = _Parts()
        pickle.Pickler(parts, pickle.HIGHEST_PROTOCOL).dump(value)
        return together(parts)
    import cloudpickle  # large, and only values that cannot be pickled by reference need it

    return cast(bytes, cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _failed(error: BaseException, size_max: int) -> tuple[Outcome, Body | None, str, None]:
    """An exception, with its traceback, and pickled if it can be read again."""
    outcome = Outcome.OUT_OF_MEMORY if isinstance(error, MemoryError) else Outcome.RAISED
    detail = _told(error)
    try:
        result = _pickled(error)
        pickle.loads(result)
    except BaseException:  # noqa: BLE001 - the traceback says what it was
        return outcome, None, detail, None
    return outcome, result if len(result) <= size_max else None, detail, None


@functools.cache
def rehearsal() -> Launch:
    """The launch of a function that does nothing."""
    import cloudpickle

    function, nothing = cloudpickle.dumps(lambda: None), Raw(encode(CallFrame(0)))
    arguments = memoryview(pickle.dumps(((), {})))
    slots = (0,)
    return Launch(0, 0, 0, 0, 1, slots, None, None, "rehearsal", function, nothing, alone=True, arguments=arguments)


def _told(error: BaseException) -> str:
    """The traceback without the first frames, which are ours."""
    import traceback  # only errors need it

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:  # noqa: BLE001 - the exception's own text may raise
        text = f"{type(error).__qualname__}, whose text cannot be read"
    if len(text) > TRACEBACK_MAX:
        half = TRACEBACK_MAX // 2
        text = f"{text[:half]}\n[{len(text) - TRACEBACK_MAX} characters left out]\n{text[-half:]}"
    return text


def _exit_code(error: SystemExit) -> int:
    """The exit status that Python would end with."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
