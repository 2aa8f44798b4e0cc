"""Where the output of attempts goes on this machine: files of the engine (`local_streams`), or what the task names."""

from __future__ import annotations

import os
import stat

import msgspec

from headway.engines.base import TAIL_MAX, Output
from headway.engines.local_frames import CommandFrame, Launch

SUFFIXES = ("out", "err")


def kept_path(folder: str, launch: Launch, suffix: str) -> str:
    """The file that keeps an attempt's output: `JOB/TASK.ATTEMPT[.RANK].out` or `.err` in `folder`."""
    member = f".{launch.rank}" if launch.width > 1 else ""
    return os.path.join(folder, str(launch.job), f"{launch.task}.{launch.attempt}{member}.{suffix}")


def read(path: str) -> Output | None:
    """The output in a file; None if there is none, or if it is no ordinary file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe is not waited for
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            size = status.st_size
            file.seek(max(0, size - TAIL_MAX))
            tail = file.read(TAIL_MAX)
    except OSError:  # the task itself removed it, or may write but not read it
        return None
    return Output(path, size, tail) if size else None


def named(path: str) -> Output | None:
    """The output in a file that the task itself named; without its path, for it is not Headway's to delete."""
    output = read(path)
    return output and msgspec.structs.replace(output, path="")


def resolved(path: str, cwd: str) -> str:
    """The path of a file of a command."""
    return os.path.join(os.path.abspath(cwd), path)


def streams(command: CommandFrame, home: str) -> tuple[str, str]:
    """The files a command, run in `home` by default, writes its streams to; empty where the engine keeps them."""
    cwd = command.cwd or home
    return (command.stdout and resolved(command.stdout, cwd), command.stderr and resolved(command.stderr, cwd))
