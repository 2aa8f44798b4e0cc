"""Handlers of requests: functions and programs.

A **function** gets one argument and returns the answer. If the media type of a request is JSON (`application/json`, or
one that ends in `+json`), the argument is the decoded value; otherwise it is the body, as bytes. An answer of bytes is
sent as it is (`application/octet-stream`); anything else is sent as JSON, which has neither NaN nor infinity: an answer
with one of them is a failure. A coroutine function is awaited, in an event
loop that stays; it still gets one request at a time.

A **program** is run anew for each request, so that no request sees what another left behind. It gets the body on its
stdin, and the media type in HEADWAY_SERVICE_KIND. Its stdout is the answer (`application/octet-stream`). An exit status
other than 0 is a failure; the end of its stderr says why.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final

import msgspec

from headway import strict_json
from headway.errors import HandlerFailed, InvalidInput, Malformed, cut
from headway.services.terms import ServiceAnswer

BYTES_TYPE: Final = "application/octet-stream"
JSON_TYPE: Final = "application/json"

SAID_MAX: Final = 2000
"""Bytes of a program's stderr that an error shows."""

PROGRAM_CHUNK: Final = 1 << 16
"""Bytes that are read at once from a program."""

Handler = Callable[[str, bytes], ServiceAnswer]
"""Answers a request, given its media type and body.

Raises:
    Malformed: the body is not what its media type says.
    HandlerFailed: there is no answer.
"""

_decode = msgspec.json.Decoder().decode


def is_json(kind: str) -> bool:
    """Whether a body of this media type is JSON.

    >>> is_json("application/json; charset=utf-8"), is_json("text/plain")
    (True, False)
    """
    if kind == JSON_TYPE:
        return True
    name = kind.partition(";")[0].strip().lower()
    return name == JSON_TYPE or name.endswith("+json")


def loaded(name: str) -> Callable[..., Any]:
    """The function of this name, `module:function`.

    Raises:
        InvalidInput: there is none.
        Exception: anything, because importing a module runs it.
    """
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InvalidInput("handler", name, f"a function of module {module}, module:function")
    return found  # type: ignore[no-any-return]


def function_handler(function: Callable[..., Any], answer_max: int) -> Handler:
    """Requests are answered by calling this.

    Args:
        answer_max: bytes that an answer may have.
    """
    call = function
    if inspect.iscoroutinefunction(function):
        loop = asyncio.new_event_loop()

        def call(argument: Any) -> Any:
            return loop.run_until_complete(function(argument))

    def handle(kind: str, body: bytes) -> ServiceAnswer:
        argument: Any = body
        if is_json(kind):
            try:
                argument = _decode(body)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise Malformed(f"the request is not JSON: {error}") from error
        try:
            value = call(argument)
        except (Exception, SystemExit) as error:
            _show(error)
            raise HandlerFailed(f"the handler raised {type(error).__name__}: {cut(str(error))}") from error
        return _sent(value, answer_max)

    return handle


def _sent(value: object, answer_max: int) -> ServiceAnswer:
    """What a function has returned, as it is sent."""
    if isinstance(value, bytes | bytearray | memoryview):
        size = value.nbytes if isinstance(value, memoryview) else len(value)
        _bounded(size, answer_max)
        return ServiceAnswer(bytes(value), BYTES_TYPE)
    try:
        body = strict_json.encode(value)
    except Exception as error:
        what = f"the handler returned a {type(value).__name__}, which cannot be sent as JSON: {cut(str(error))}"
        raise HandlerFailed(
            what, "It returns bytes, or what JSON has: texts, finite numbers, lists, dicts, None."
        ) from error
    _bounded(len(body), answer_max)
    return ServiceAnswer(body, JSON_TYPE)


def _bounded(size: int, answer_max: int) -> None:
    if size > answer_max:
        raise HandlerFailed(f"the answer has {size} bytes; allowed: at most {answer_max}")


def _show(error: BaseException) -> None:
    """Write a traceback to stderr, which is kept as the output of the task."""
    sys.excepthook(type(error), error, error.__traceback__)
    sys.stderr.flush()


def command_handler(argv: tuple[str, ...], answer_max: int) -> Handler:
    """Requests are answered by running this program.

    Args:
        answer_max: bytes that an answer may have.
    """

    def handle(kind: str, body: bytes) -> ServiceAnswer:
        given = os.memfd_create("request")
        try:
            with open(given, "wb", closefd=False) as file:
                file.write(body)
            os.lseek(given, 0, os.SEEK_SET)
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "HEADWAY_SERVICE_KIND": kind},
                    preexec_fn=_undisturbed,
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise HandlerFailed(f"{cut(argv[0])} cannot be run: {error}") from error
        finally:
            os.close(given)
        return _outcome(process, answer_max)

    return handle


def _undisturbed() -> None:
    """When an instance is asked to end, all its processes get SIGTERM. The program finishes its request."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _outcome(process: subprocess.Popen[bytes], answer_max: int) -> ServiceAnswer:
    """What a program answers. One that answers too much is killed."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = bytearray()
    listening = threading.Thread(target=_listen, args=(process.stderr, said), daemon=True)
    listening.start()
    answer = bytearray()
    with process:
        while chunk := process.stdout.read1(PROGRAM_CHUNK):  # type: ignore[attr-defined]
            answer += chunk
            if len(answer) > answer_max:
                process.kill()
                raise HandlerFailed(f"the answer has more than {answer_max} bytes; allowed: at most {answer_max}")
        status = process.wait()
        listening.join(1.0)  # a process that it left behind may hold its stderr
    if status:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        raise HandlerFailed(f"the program {how}: {said.decode('utf-8', 'replace').strip()}")
    return ServiceAnswer(bytes(answer), BYTES_TYPE)


def _listen(stderr: IO[bytes], said: bytearray) -> None:
    """Pass on what a program says, and keep the end of it."""
    while chunk := stderr.read1(PROGRAM_CHUNK):  # type: ignore[attr-defined]
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        said += chunk
        del said[:-SAID_MAX]
