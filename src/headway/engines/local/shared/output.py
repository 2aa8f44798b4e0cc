"""Where output goes on this machine: files of the engine (`agent.streams`), or a file that the task names."""

from __future__ import annotations

import os
import stat

from headway.engines.base import TAIL_MAX, Output
from headway.engines.local.shared.frames import CommandFrame, Launch
from headway.engines.local.shared.terms import NO_ROOM

SUFFIXES = ("out", "err")

OUTPUT_FOLDER = "output"
"""Of the engine's folder."""


def kept_path(folder: str, launch: Launch, suffix: str) -> str:
    """The file that keeps an attempt's output."""
    rank = launch.rank if launch.width > 1 else None
    return file_of(folder, launch.job, launch.task, launch.attempt, rank, suffix)


def file_of(folder: str, job: int, task: int, attempt: int, rank: int | None, suffix: str) -> str:
    """The file with the output of an attempt, or of a member of a gang: `JOB/TASK.ATTEMPT[.RANK].out` or `.err`."""
    member = "" if rank is None else f".{rank}"
    return os.path.join(folder, str(job), f"{task}.{attempt}{member}.{suffix}")


def why_lost(error: OSError, place: str) -> str:
    """Why an output is not kept, by what happened when it was written there."""
    if error.errno in NO_ROOM:
        return f"the disk of {place} was full"
    return f"{place} could not keep it: {error.strerror or error}"


def named(path: str) -> Output | None:
    """The output in a file that the task itself named, which is not the engine's; None if there is none.

    Also if it is not a regular file.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # do not wait for a pipe
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            size = status.st_size
            file.seek(max(0, size - TAIL_MAX))
            tail = file.read(TAIL_MAX)
    except OSError:  # the task itself removed it, or may write it but not read it
        return None
    return Output("", size, tail) if size else None


def resolved(path: str, cwd: str) -> str:
    """The full path of a file of a command."""
    return os.path.join(os.path.abspath(cwd), path)


def streams(command: CommandFrame, home: str) -> tuple[str, str]:
    """The files for the streams of a command that runs in `home` by default; empty if the engine keeps them."""
    cwd = command.cwd or home
    return (command.stdout and resolved(command.stdout, cwd), command.stderr and resolved(command.stderr, cwd))
