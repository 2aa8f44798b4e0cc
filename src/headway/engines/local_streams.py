"""What the process of a place writes to stdout or stderr: the agent reads it from a pipe and keeps it up to a bound.

A task that writes little costs no file: what fits into an ending stays in memory. Of more, the first part goes to a
file of the attempt, as far as the bound lets it, and the last part is put behind that when the attempt has ended. What
is between is dropped. Once a stream is over its bound it is read now and then only, so that dropping costs little.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from typing import Final

from headway.engines import local_output as output
from headway.engines.base import TAIL_MAX, Output
from headway.engines.local_frames import Launch

DROP_SECONDS: Final = 0.01
"""How often a stream is read that is over its bound."""

_CHUNK: Final = 1 << 16
_PIPE_MAX: Final = 1 << 20
_MARK_MAX: Final = 256
"""Bytes of the line that says what is left out."""


class Stream:
    """One stream of the process of a place.

    Args:
        fd: the end of the pipe to read from; not blocking.
        number: 1 for stdout, 2 for stderr.
        kept: folder of the output of attempts.
        bound: bytes that a file may have, at least 64 KiB.

    Attributes:
        closed: nobody can write to it any more.
    """

    __slots__ = (
        "_digest",
        "_file",
        "_head_max",
        "_kept",
        "_launch",
        "_lost",
        "_number",
        "_size",
        "_tail",
        "_written",
        "closed",
        "fd",
    )

    def __init__(self, fd: int, number: int, kept: str, bound: int) -> None:
        self.fd = fd
        self.closed = False
        self._number = number
        self._kept = kept
        self._head_max = bound - TAIL_MAX - _MARK_MAX
        self._launch: Launch | None = None
        self._file = -1
        self._tail = bytearray()
        self._forget()

    def _forget(self) -> None:
        self._launch = None
        self._size = self._written = 0
        self._tail.clear()
        self._lost = False
        self._digest = hashlib.sha256()

    @property
    def is_over(self) -> bool:
        """Whether something is dropped."""
        return self._size > self._head_max

    def begin(self, launch: Launch) -> None:
        """What comes from now on is the output of this member."""
        self._launch = launch

    def pump(self) -> bool:
        """Read a part of what is there; whether there may be more."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.closed = True
            return False
        if self._launch is not None:  # else it is of nobody: a thread that was left runs on
            self._take(self._launch, chunk)
        return True

    def drop(self) -> None:
        """Read what has come since the last time, of a stream that is over its bound."""
        for _ in range(_PIPE_MAX // _CHUNK):
            if not self.pump():
                return

    def widen(self) -> None:
        """Have more room in the pipe, so that who writes waits less."""
        with suppress(OSError):  # there are too many such pipes
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, _PIPE_MAX)

    def end(self, *, wrote: bool = True) -> Output | None:
        """The output of the member, which has ended; None if there is none. `wrote`: there may be more in the pipe."""
        if wrote:
            self.drop()
        if self._size == 0:
            self._launch = None
            return None
        cut = self._close() if self._file >= 0 else 0
        if self._lost:
            cut = self._size - len(self._tail)
        path = "" if self._lost or self._size <= TAIL_MAX else self._path
        found = Output(path, self._size, bytes(self._tail), cut, self._digest.hexdigest() if path else "")
        self._forget()
        return found

    def close(self) -> None:
        """Be done with it; what has not been asked for is lost."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self.fd)

    @property
    def _path(self) -> str:
        assert self._launch is not None
        return output.kept_path(self._kept, self._launch, output.SUFFIXES[self._number - 1])

    def _take(self, launch: Launch, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._file < 0 and not self._lost and self._size > TAIL_MAX:
            self._open()
        if self._file >= 0 and self._written < self._head_max:
            self._write(chunk[: self._head_max - self._written])
        self._tail += chunk[-TAIL_MAX:]
        del self._tail[:-TAIL_MAX]

    def _open(self) -> None:
        """Begin the file with what was in memory only."""
        path = self._path
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            self._lost = True
            return
        self._write(bytes(self._tail))

    def _write(self, part: bytes) -> None:
        """Write, or give the file up where the disk takes no more."""
        left = memoryview(part)
        try:
            while left:
                done = os.write(self._file, left)
                self._written += done
                self._digest.update(left[:done])
                left = left[done:]
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        os.close(self._file)
        self._file = -1
        self._lost = True
        with suppress(OSError):  # it stays, and goes with its job
            os.unlink(self._path)

    def _close(self) -> int:
        """End the file with the last part of what was written; the bytes that are left out before it."""
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
