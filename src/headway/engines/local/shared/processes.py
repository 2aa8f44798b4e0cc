"""Processes of this machine (Linux): dying with a parent, adopting orphans, ending whole trees, measuring memory.

Imports little, because it is loaded into every process of a node.
"""

from __future__ import annotations

import contextlib
import os
import signal
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, dlopen, dlsym, get_errno  # a third of `ctypes`
from collections.abc import Iterable, Iterator

MARK = "HEADWAY_MARK"
"""Environment variable that every process of a node inherits; its value is the node's own."""

NOT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and a program that it starts must not."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _NativeFunction(CFuncPtr):
    """A function of C that takes and returns integers."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = int


_here = dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type] # None: this program
_c_prctl, _c_fflush = (_NativeFunction(dlsym(_here, name)) for name in ("prctl", "fflush"))


def _prctl(option: int, value: int) -> None:
    if _c_prctl(option, value, 0, 0, 0) != 0:
        raise OSError(get_errno(), f"prctl {option} failed")


def die_with_parent(parent: int, by: int = signal.SIGKILL) -> None:
    """Get the signal `by` when the process `parent`, this one's parent, dies; at once if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent dies, whatever session it started."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def flush_c_streams() -> None:
    """Write out what C code has printed so far."""
    _c_fflush(None)


def close_others(kept: set[int]) -> None:
    """Close every file of this process but these."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)


def processes() -> Iterator[int]:
    """All processes of this machine."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def children(pid: int) -> list[int]:
    """Children of a process, zombies too; none if it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}/task/{pid}/stat"):  # a kernel that does not list children
            return [child for child in processes() if _parent(child) == pid]
    except ProcessLookupError:
        pass
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found, ahead = [], [pid]
    while ahead:
        here = ahead.pop()
        found.append(here)
        ahead += children(here)
    return found


def send(pid: int, number: int) -> None:
    """Send a signal to a process if it still exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill_trees(roots: Iterable[int]) -> None:
    """Kill processes with all below them.

    They are stopped first, until no new ones appear, so that none escapes by forking. They die before their parents,
    whose end might let them continue. Stopped and hung processes die too.
    """
    roots = list(roots)
    stopped: dict[int, None] = {}
    while fresh := [pid for root in roots for pid in tree(root) if pid not in stopped]:
        for pid in fresh:
            stopped[pid] = None
            send(pid, signal.SIGSTOP)
    for pid in reversed(stopped):
        send(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Processes other than this one that were started with this mark in their environment."""
    sign = f"{MARK}={mark}\0".encode()
    found = []
    for pid in processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if sign in file.read() and pid != os.getpid():
                    found.append(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def memory(pid: int, limit: int) -> int:
    """Bytes of memory that a process and those below it use; a number not above `limit` may be too high.

    Pages that several processes share are counted once, but only if it matters, because that takes long.
    """
    pids = tree(pid)
    resident = sum(_resident(pid) for pid in pids)
    if resident <= limit or len(pids) == 1:
        return resident
    return sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
