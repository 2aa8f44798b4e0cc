"""Keeps an attempt from putting outputs once a later one of the same task has begun, though it may still run."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from headway.engines.local.shared.frames import Launch
from headway.errors import FileTrouble


class Fence:
    """The latest attempt of a task that puts outputs, in a file that is locked during each access.

    An attempt puts up the fence when it begins and passes it when it puts. It cannot pass once a later one has put up
    the fence, nor when that one has passed and taken it away.

    Args:
        folder: of all fences.
        launch: the attempt, as a member of it.
    """

    def __init__(self, folder: str, launch: Launch) -> None:
        self._path = os.path.join(folder, f"{launch.job}.{launch.task}.{launch.rank}")
        self._attempt = launch.attempt

    def put_up(self) -> None:
        """This attempt has begun; earlier ones can put nothing more. Waits for one that is just putting."""
        with self._locked(os.O_CREAT) as fence:
            if self._latest(fence) < self._attempt:
                os.pwrite(fence, f"{self._attempt:<20}".encode(), 0)

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """While the body runs, no later attempt begins; afterwards, no attempt that began earlier passes.

        Raises:
            FileTrouble: a later attempt has begun.
        """
        with contextlib.ExitStack() as stack:
            try:
                latest = self._latest(stack.enter_context(self._locked()))
            except FileNotFoundError:
                latest = 0
            if latest != self._attempt:
                raise FileTrouble("a later attempt of this task has begun: its outputs count")
            yield
            os.unlink(self._path)

    def take_down(self) -> None:
        """This attempt puts nothing more. If a later one just has the fence, it is that one's."""
        with contextlib.suppress(FileNotFoundError, BlockingIOError), self._locked(wait=False) as fence:
            if self._latest(fence) == self._attempt:
                os.unlink(self._path)

    @contextlib.contextmanager
    def _locked(self, flags: int = 0, *, wait: bool = True) -> Iterator[int]:
        while True:
            fence = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
            try:
                fcntl.flock(fence, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fence).st_nlink:  # else it was taken down while this process waited
                    yield fence
                    return
            finally:
                os.close(fence)

    @staticmethod
    def _latest(fence: int) -> int:
        return int(os.pread(fence, 20, 0) or 0)
