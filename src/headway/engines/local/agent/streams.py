"""What the process of a place writes to stdout or stderr: the agent reads it from a pipe and keeps it up to a limit.

A task that writes little costs no file: what fits into an ending stays in memory, unless its output is followed
(`headway logs`); then it has a file until it ends. Of longer output, the first part goes to a file of the attempt, up
to the limit, and the last part is added when the attempt has ended. What is between is dropped. A stream over its limit
is read only at intervals, so that dropping costs little.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headway.engines.base import TAIL_MAX, Output
from headway.engines.local.shared import output
from headway.engines.local.shared.frames import Launch

if TYPE_CHECKING:
    import hashlib

DROP_SECONDS: Final = 0.01
"""How often a stream over its limit is read."""

_CHUNK: Final = 1 << 16
_PIPE_MAX: Final = 1 << 20
_MARK_MAX: Final = 256
"""Bytes of the line that says what is left out."""

_PLACE: Final = "its node"


class OutputStream:
    """One stream of the process of a place.

    Args:
        fd: the end of the pipe to read from; non-blocking.
        number: 1 for stdout, 2 for stderr.
        folder: of the output of attempts.
        bound: the most bytes that a file may have, at least 64 KiB.

    Attributes:
        closed: no process can write to it any more.
    """

    __slots__ = (
        "_digest",
        "_file",
        "_folder",
        "_head_max",
        "_launch",
        "_lost",
        "_number",
        "_shown",
        "_size",
        "_tail",
        "_written",
        "closed",
        "fd",
    )

    def __init__(self, fd: int, number: int, folder: str, bound: int) -> None:
        self.fd = fd
        self.closed = False
        self._number = number
        self._folder = folder
        self._head_max = bound - TAIL_MAX - _MARK_MAX
        self._launch: Launch | None = None
        self._file = -1
        self._tail = bytearray()
        self._forget()

    def _forget(self) -> None:
        self._launch = None
        self._size = self._written = 0
        self._tail.clear()
        self._lost, self._shown = "", False
        self._digest: hashlib._Hash | None = None

    @property
    def is_over(self) -> bool:
        """Whether something is dropped."""
        return self._size > self._head_max

    def begin(self, launch: Launch) -> None:
        """What comes from now on is the output of this member."""
        self._launch = launch

    def pump(self) -> bool:
        """Read a part of what is there; returns whether there may be more."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.closed = True
            return False
        if self._launch is not None:  # else it belongs to no run: a leftover thread still writes
            self._take(self._launch, chunk)
        return True

    def drop(self) -> None:
        """Read what has come since the last time from a stream over its limit."""
        for _ in range(_PIPE_MAX // _CHUNK):
            if not self.pump():
                return

    def widen(self) -> None:
        """Enlarge the pipe, so that the writer waits less."""
        with suppress(OSError):  # there are too many large pipes
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, _PIPE_MAX)

    def show(self) -> None:
        """Use a file from now on, however little there is, because the output is followed."""
        if self._launch is not None and not self._shown:
            self._shown = True
            if self._size and self._file < 0 and not self._lost:
                self._open()

    def end(self, *, wrote: bool = True) -> Output | None:
        """The output of the member, which has ended; None if there is none. `wrote`: there may be more in the pipe."""
        if wrote:
            self.drop()
        if self._size == 0:
            self._launch, self._shown = None, False
            return None
        cut = self._close() if self._file >= 0 else 0
        if self._lost:
            cut = self._size - len(self._tail)
        path = "" if self._lost or self._size <= TAIL_MAX else self._path
        lost = self._lost if cut else ""
        if self._shown and not path:
            with suppress(OSError):  # there is none, or it has been given up
                os.unlink(self._path)
        found = Output(
            path, self._size, bytes(self._tail), cut, self._digest.hexdigest() if path and self._digest else "", lost
        )
        self._forget()
        return found

    def close(self) -> None:
        """Close it; what has not been read is lost."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self.fd)

    @property
    def _path(self) -> str:
        assert self._launch is not None
        return output.kept_path(self._folder, self._launch, output.SUFFIXES[self._number - 1])

    def _take(self, launch: Launch, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._file < 0 and not self._lost and (self._size > TAIL_MAX or self._shown):
            self._open()
        if self._file >= 0 and self._written < self._head_max:
            self._write(chunk[: self._head_max - self._written])
        self._tail += chunk[-TAIL_MAX:]
        del self._tail[:-TAIL_MAX]

    def _open(self) -> None:
        """Start the file with what was only in memory."""
        path = self._path
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._lost = output.why_lost(error, _PLACE)
            return
        import hashlib  # it loads OpenSSL, and few streams need a file

        self._digest = hashlib.sha256()
        self._write(bytes(self._tail))

    def _write(self, part: bytes) -> None:
        """Write, or give the file up if the disk is full."""
        assert self._digest is not None
        left = memoryview(part)
        try:
            while left:
                done = os.write(self._file, left)
                self._written += done
                self._digest.update(left[:done])
                left = left[done:]
        except OSError as error:
            self._give_up(output.why_lost(error, _PLACE))

    def _give_up(self, why: str) -> None:
        os.close(self._file)
        self._file = -1
        self._lost = why
        with suppress(OSError):  # it stays, and is removed with its job
            os.unlink(self._path)

    def _close(self) -> int:
        """Finish the file with the last part of the output; returns how many bytes before it are left out."""
        behind = self._size - self._written
        last = bytes(self._tail[-behind:]) if behind else b""
        cut = behind - len(last)
        if cut:
            last = f"\n[{cut} of {self._size} bytes are left out here]\n".encode() + last
        self._write(last)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return cut
