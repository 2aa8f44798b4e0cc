"""Starts programs, and says how processes ended; without `subprocess`, whose import takes longer than a start."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from headway.engines.local.shared.processes import NOT_IGNORED
from headway.engines.local.shared.terms import Terms

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


def start(argv: Sequence[str], streams: Sequence[int], cwd: str, home: int, environment: Mapping[str, str]) -> int:
    """Start a program in a process group of its own; returns its process.

    It is looked for on the PATH of its own environment. It inherits nothing but its streams: each other descriptor of
    this process is closed in it, as Python opens them. (What functions may leave open is not here: no program runs in a
    process that has run a function.)

    Args:
        streams: its stdin, stdout and stderr; none of them is one of this process's own three.
        cwd: the folder to run it in; empty: that of this process.
        home: this process's own folder, where it is again afterwards.

    Raises:
        OSError, ValueError: it cannot be started. The file name is that of the folder, or of the program as given.
    """
    failed: OSError | None = None
    if cwd:
        os.chdir(cwd)
    try:
        for path in _places(argv[0], environment):
            try:
                return os.posix_spawn(
                    path,
                    tuple(argv),
                    environment,
                    file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)],
                    setpgroup=0,
                    setsigdef=NOT_IGNORED,
                )
            except OSError as error:  # then it may be in the next folder
                if failed is None and error.errno not in _ABSENT:
                    failed = OSError(error.errno, error.strerror, argv[0])
    finally:
        if cwd:
            os.fchdir(home)
    raise failed or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])


def _places(program: str, environment: Mapping[str, str]) -> list[str]:
    """Where a program may be."""
    if os.path.dirname(program):
        return [program]
    folders = os.get_exec_path(environment)
    return [path for path in (os.path.join(folder, program) for folder in folders) if os.path.lexists(path)]


def no_folder(folder: str, error: OSError | ValueError, terms: Terms) -> str:
    """Why nothing can run in a folder."""
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return f"cannot run in the folder {folder}: {why} on node {terms.name!r}"


def ended_with(code: int) -> str:
    """How a process ended, for people; `code` as `subprocess` has it."""
    if code >= 0:
        return f"exit status {code}" if code else ""
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def died_of(code: int) -> str:
    """How a process ended that Headway did not end, in words."""
    by = ": sent by another program, by itself, or by the kernel when memory ran out" if code == -signal.SIGKILL else ""
    return ended_with(code) + by
