"""Where attempts on this machine save: CHECKPOINTS/JOB/TASK/RANK.ATTEMPT, beside the folder of their output."""

from __future__ import annotations

import _socket  # see `descriptors`
import os
import time
from collections import deque
from contextlib import suppress
from typing import Final

from headway.checkpoints import take_over
from headway.engines.local.shared.frames import Body, Launch, Saved, Unreadable
from headway.engines.local.shared.seal import sealed

CHECKPOINT_LOOK_SECONDS: Final = 1.0
"""How often at most a saved checkpoint is reported, and the folder of a command is looked at."""


def place(root: str, launch: Launch) -> str:
    """The path of the folders of a member's attempts, without the attempt's number."""
    return f"{root}/{launch.job}/{launch.task}/{launch.rank}"


def begin(root: str, launch: Launch) -> str:
    """The folder of a command that is about to start, as the previous attempt left it.

    Raises:
        OSError: it cannot be made.
    """
    folder = take_over(place(root, launch), launch.attempt)
    while not os.path.isdir(folder):
        with suppress(FileNotFoundError):  # another one has just ended, and removed the folder of its task or job
            os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def end(folder: str) -> None:
    """A command has ended: if it has saved nothing, remove its folder, and those of its task and job that are empty."""
    task = os.path.dirname(folder)
    with suppress(OSError):  # there is something in it
        os.rmdir(folder)
        os.rmdir(task)
        os.rmdir(os.path.dirname(task))


def latest(folder: str) -> int:
    """When something in a command's folder was last changed, in nanoseconds; 0 if it is empty."""
    try:
        with os.scandir(folder) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries]
        return max(*times, os.stat(folder).st_mtime_ns) if times else 0
    except FileNotFoundError:  # it is being changed just now, or has ended
        return 0


def jobs(folder: str) -> frozenset[int]:
    """The jobs that have checkpoints."""
    with suppress(FileNotFoundError):
        return frozenset(int(name) for name in os.listdir(folder) if name.isdecimal())
    return frozenset()


def remove(path: str) -> None:
    """Remove the checkpoints of a task or a job; what a superseded attempt may put there later goes with its job."""
    import shutil  # large, and rarely needed

    shutil.rmtree(path, ignore_errors=True)


class Teller:
    """Reports a function's checkpoints to the agent: saved ones at most once in `CHECKPOINT_LOOK_SECONDS`.

    Attributes:
        ahead: unread bytes from the agent. While something runs they can only be the request to end it.
        seal: of the launch that runs.
    """

    def __init__(self, channel: _socket.socket) -> None:
        self.ahead: deque[Body] = deque()
        self.seal = b""
        self._channel = channel
        self.begin()

    def use(self, channel: _socket.socket) -> None:
        """Report over another channel."""
        self._channel = channel

    def begin(self) -> None:
        """Another attempt runs."""
        self._told = float("-inf")

    def asked(self) -> bool:
        """Whether the running attempt shall save and end."""
        if self.ahead:
            return True
        try:
            return bool(self._channel.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    def saved(self) -> bool:
        """Report that everything until now is saved; returns whether the attempt shall end with it."""
        now, asked = time.monotonic(), self.asked()
        if asked or now - self._told >= CHECKPOINT_LOOK_SECONDS:
            self._told = now
            self._channel.sendall(sealed(self.seal, Saved()))
        return asked

    def unreadable(self, detail: str) -> None:
        """Report a checkpoint that cannot be used."""
        self._channel.sendall(sealed(self.seal, Unreadable(detail)))
