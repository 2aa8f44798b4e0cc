"""Where attempts on this machine save: CHECKPOINTS/JOB/TASK/RANK.ATTEMPT, beside the folder of their output."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Final

from headway.checkpoints import take_over
from headway.engines.local_frames import Launch, Saved, Unreadable
from headway.engines.local_seal import sealed

LOOK_SECONDS: Final = 1.0
"""How often it is told at most that an attempt has saved, and looked whether a command has."""


def place(root: str, launch: Launch) -> str:
    """The path of the folders of a member's attempts, without the attempt's number."""
    return f"{root}/{launch.job}/{launch.task}/{launch.rank}"


def begin(root: str, launch: Launch) -> str:
    """The folder of a command that is about to start, as the attempt before left it.

    Raises:
        OSError: it cannot be made.
    """
    folder = take_over(place(root, launch), launch.attempt)
    while not os.path.isdir(folder):
        with suppress(FileNotFoundError):  # another rank has ended just now, and its task's folder with it
            os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def end(folder: str) -> None:
    """A command has ended: where it has saved nothing, nothing is left of its folder."""
    with suppress(OSError):  # there is something in it
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))


def latest(folder: str) -> int:
    """When something in a command's folder was changed last, in nanoseconds; 0 where there is nothing."""
    try:
        with os.scandir(folder) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries]
        return max(*times, os.stat(folder).st_mtime_ns) if times else 0
    except FileNotFoundError:  # it is being changed just now, or has ended
        return 0


def jobs(folder: str) -> frozenset[int]:
    """The jobs of which there are checkpoints."""
    with suppress(FileNotFoundError):
        return frozenset(int(name) for name in os.listdir(folder) if name.isdecimal())
    return frozenset()


def remove(path: str) -> None:
    """Remove the checkpoints of a task or a job; what an overtaken attempt may put there after goes with its job."""
    shutil.rmtree(path, ignore_errors=True)


class Teller:
    """Tells the agent what becomes of a function's checkpoints, of what is saved at most once in `LOOK_SECONDS`.

    Attributes:
        ahead: what the agent has sent and nobody has seen to. While something runs it is the wish that it should end.
        seal: of the launch that runs.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.ahead: deque[bytes] = deque()
        self.seal = b""
        self._channel = channel
        self.begin()

    def begin(self) -> None:
        """Another attempt runs."""
        self._told = float("-inf")

    def asked(self) -> bool:
        """Whether what runs is to save and end."""
        if self.ahead:
            return True
        try:
            return bool(self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    def saved(self) -> bool:
        """What was done until now is kept; whether the attempt is to end with it."""
        now, asked = time.monotonic(), self.asked()
        if asked or now - self._told >= LOOK_SECONDS:
            self._told = now
            self._channel.sendall(sealed(self.seal, Saved()))
        return asked

    def unreadable(self, detail: str) -> None:
        """A checkpoint is not used."""
        self._channel.sendall(sealed(self.seal, Unreadable(detail)))
