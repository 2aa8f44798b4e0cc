"""The program of an instance: `python -m headway.services.instance`. Its environment tells it what to do.

It answers one request after the other until it is let go. SIGTERM asks it to end: it finishes the request that it has,
tells the broker, and exits with 0. If the broker is gone, it looks for the next one for a while: the server may be
starting again. What it was working on is then asked again by somebody else, or given up; its answer is dropped.

Exit status: 0: it was let go. 1: the handler cannot be loaded, it was refused, or no broker came back.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Final

import cloudpickle

from headway.errors import HandlerFailed, HeadwayError, Malformed
from headway.services import frames
from headway.services.handlers import Handler, command_handler, function_handler, loaded
from headway.services.terms import InstanceTerms
from headway.sockets import short

CHUNK: Final = 1 << 16
"""Bytes that are received at once. For more than 128 KiB the system would map memory anew each time."""

REQUEST_MAX: Final = (1 << 30) + frames.AROUND
"""Bytes of a frame of the broker; the broker has the bound that counts."""

PAUSE: Final = 0.05
PAUSE_MAX: Final = 1.0
"""Seconds between two tries to connect: they double up to the second."""

DETAIL_MAX: Final = 3000
"""Characters of what is said about a handler; a frame without a body must hold them."""

SECRET: Final = "HEADWAY_SERVICE_KEY"


class _Gone(Exception):
    """The broker is gone."""


class _LetGo(Exception):
    """The broker has said goodbye, with this reason."""


class Instance:
    """An instance.

    Args:
        terms: what it is told.
        key: job, task and attempt.
    """

    def __init__(self, terms: InstanceTerms, key: tuple[int, int, int]) -> None:
        self._terms = terms
        self._key = key
        self._handler: Handler | None = None
        self._asked = self._said = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._splitter = frames.Splitter(REQUEST_MAX)
        self._arrived: deque[frames.FromBroker] = deque()
        # A signal wakes the poll, whether it comes before or while it waits.
        self._wakened, self._waker = socket.socketpair()
        self._wakened.setblocking(False)
        self._waker.setblocking(False)
        self._poll = select.poll()

    def run(self) -> int:
        """Serve until it is let go; returns the exit status."""
        signal.signal(signal.SIGTERM, self._ask)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        until = time.monotonic() + self._terms.patience
        while True:
            try:
                self._connect(until)
            except OSError as error:
                if self._asked:
                    return 0
                print(f"no server at {self._terms.socket}: {error}", file=sys.stderr)
                return 1
            try:
                self._serve()
            except _LetGo as goodbye:
                if not str(goodbye):
                    return 0
                print(f"the server refused this instance: {goodbye}", file=sys.stderr)
                return 1
            except (_Gone, OSError):
                if self._asked:
                    return 0
                time.sleep(PAUSE)
                if self._handler is not None:
                    until = time.monotonic() + self._terms.patience
            else:
                return 1

    def _ask(self, number: int, stack: object) -> None:
        self._asked = True

    def _connect(self, until: float) -> None:
        """Connect, and say who this is.

        Raises:
            OSError: nobody answered in time.
        """
        pause = PAUSE
        while True:
            self._socket.close()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with short(Path(self._terms.socket)) as address:
                    self._socket.connect(address)
                break
            except OSError:
                if self._asked or time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
        self._splitter = frames.Splitter(REQUEST_MAX)
        self._arrived.clear()
        self._said = False
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wakened, select.POLLIN)
        terms = self._terms
        self._send(frames.Hello(frames.PROTOCOL, terms.service, terms.key, terms.version, *self._key))

    def _serve(self) -> None:
        """Answer requests; returns if the handler cannot be loaded.

        Raises:
            _Gone: the broker is gone.
            _LetGo: it says goodbye.
        """
        welcome = self._next()
        if not isinstance(welcome, frames.Welcome):
            raise _Gone("it says nothing that can be understood")
        if self._handler is None:
            try:
                self._handler = self._load(welcome)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs foreign code
                detail = "".join(traceback.format_exception(error))
                print(detail, file=sys.stderr)
                self._send(frames.Broken(_end_of(detail)))
                return
        handle = self._handler
        self._send(frames.Ready())
        while True:
            request = self._next()
            if not isinstance(request, frames.RequestFrame):
                raise _Gone("it says nothing that can be understood")
            self._send(_reply(handle, request))

    def _load(self, welcome: frames.Welcome) -> Handler:
        if self._terms.command:
            return command_handler(self._terms.command, welcome.answer_max)
        sys.path[:0] = [*self._terms.paths, os.getcwd()]
        function = loaded(self._terms.handler) if self._terms.handler else cloudpickle.loads(welcome.function)
        return function_handler(function, welcome.answer_max)

    def _next(self) -> frames.FromBroker:
        """The next message.

        Raises:
            _Gone: there is none.
            _LetGo: it is a goodbye.
        """
        while not self._arrived:
            if self._asked and not self._said:
                self._said = True
                self._send(frames.Leaving())
            ready = self._poll.poll()
            for descriptor, _ in ready:
                if descriptor == self._wakened.fileno():
                    self._wakened.recv(CHUNK)
                elif chunk := self._socket.recv(CHUNK):
                    for body in self._splitter.feed(chunk):
                        self._arrived.append(frames.decode_from_broker(body))
                else:
                    raise _Gone("it has closed the connection")
        message = self._arrived.popleft()
        if isinstance(message, frames.Goodbye):
            raise _LetGo(message.why)
        return message

    def _send(self, message: frames.FromInstance) -> None:
        self._socket.sendall(frames.frame(message))


def _reply(handle: Handler, request: frames.RequestFrame) -> frames.FromInstance:
    """The answer to a request, or why there is none."""
    began = time.perf_counter()
    try:
        answer = handle(request.kind, request.body)
    except (Malformed, HandlerFailed) as error:
        spent = time.perf_counter() - began
        return frames.Failed(request.number, isinstance(error, Malformed), _end_of(str(error)), spent)
    return frames.AnswerFrame(request.number, answer.kind, answer.body, time.perf_counter() - began)


def _end_of(detail: str) -> str:
    """The end of a text; what cannot be written as UTF-8 is replaced."""
    return detail[-DETAIL_MAX:].encode("utf-8", "replace").decode()


def main() -> int:
    """Run an instance as the environment says; returns the exit status."""
    try:
        terms = InstanceTerms.read(os.environ)
        key = tuple(int(os.environ[f"HEADWAY_{name}"]) for name in ("JOB", "TASK", "ATTEMPT"))
    except (HeadwayError, KeyError, ValueError) as error:
        print(f"this program is started by a Headway server, for a service: {error}", file=sys.stderr)
        return 1
    os.environ.pop(SECRET, None)  # programs that the handler starts need not know it
    job, task, attempt = key
    return Instance(terms, (job, task, attempt)).run()


if __name__ == "__main__":
    sys.exit(main())
