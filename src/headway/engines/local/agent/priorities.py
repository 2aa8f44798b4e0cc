"""The two tiers of a processor of this machine (Linux): scheduling policies of whole trees of processes.

A process is in the background if it has the policy SCHED_IDLE, or nice 19 if the system has no such policy. It runs
while no other process of its group wants the processor, and gives it back at once. Any process may enter the
background. To leave it takes the capability CAP_SYS_NICE, or a limit RLIMIT_NICE of 20 less the nice value to return
to.

If the kernel groups processes by session (`autogroup`), policies count only within a session. So all processes of a
node are in one session; if one starts a session of its own, that session as a whole is given the lower priority as
well.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
from collections.abc import Iterable
from typing import Final

from headway.engines.local.shared.processes import tree
from headway.model.tier import Tier

NICEST: Final = 19

_POLICY: Final = os.sched_getscheduler(0)
_NICE: Final = os.getpriority(os.PRIO_PROCESS, 0)
_SESSION: Final = os.getsid(0)
"""How this process, from which all others of its node are forked, was started; the foreground is the same."""

_ALL_SEEN: Final = 2
"""How many searches in a row must find everything in its tier: one may miss a process whose parent ends just then."""

ALIKE: Final = (
    "its two tiers get the processor alike, because the server itself was started in the background "
    f"(policy {os.sched_getscheduler(0)}, nice {_NICE}). Start it with normal priority."
)

NICE_HINT: Final = "Give the server the capability CAP_SYS_NICE, or a limit RLIMIT_NICE of 20 (systemd: LimitNICE=+0)"


def threads(pid: int) -> list[int]:
    """The threads of a process; none if it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def in_background(thread: int) -> bool:
    """Whether a thread has the processor only while nothing else wants it."""
    return os.sched_getscheduler(thread) == os.SCHED_IDLE or os.getpriority(os.PRIO_PROCESS, thread) >= NICEST > _NICE


def put(thread: int, tier: Tier) -> bool:
    """Put a thread into a tier; returns whether this has changed anything.

    Where this process itself was started in the background, as with `chrt --idle 0`, there is no other tier to go to.

    Raises:
        ProcessLookupError: it has ended.
        OSError: the system refuses it.
    """
    if in_background(thread) == (tier is Tier.BACKGROUND):
        return False
    if tier is Tier.FOREGROUND:
        if os.sched_getscheduler(thread) == os.SCHED_IDLE:
            os.sched_setscheduler(thread, _POLICY, os.sched_param(0))
        if os.getpriority(os.PRIO_PROCESS, thread) >= NICEST > _NICE:
            os.setpriority(os.PRIO_PROCESS, thread, _NICE)
        return not in_background(thread)
    try:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    except ProcessLookupError:
        raise
    except OSError:  # this system has no such policy, or a filter of system calls forbids it
        os.setpriority(os.PRIO_PROCESS, thread, NICEST)
    return in_background(thread)


def move(roots: Iterable[int], tier: Tier) -> str:
    """Move processes and all below them, every thread, to a tier; returns why the system refused it, else "".

    Processes started meanwhile inherit the tier of their parents, so the search is repeated until all are found there.
    If the system refuses, everything is put back where it was, as far as the system allows.
    """
    roots = tuple(roots)
    moved: dict[int, None] = {}
    seen = 0
    while seen < _ALL_SEEN:
        seen += 1
        for pid in [pid for root in roots for pid in tree(root)]:
            try:
                _regroup(pid, tier)
                for thread in threads(pid):
                    if put(thread, tier):
                        moved[thread] = None
                        seen = 0
            except ProcessLookupError:
                continue
            except OSError as error:
                for thread in moved:
                    _put_back(thread, Tier(1 - tier))
                return f"process {pid}: {error.strerror}"
    return ""


def _put_back(thread: int, tier: Tier) -> None:
    """Undo a change that was in vain; a thread that may not go back is in the wanted tier anyway."""
    try:
        put(thread, tier)
    except OSError:
        return


def _regroup(pid: int, tier: Tier) -> None:
    """Give the session of a process low priority, or normal priority again, if it is not the node's."""
    if os.getsid(pid) == _SESSION:
        return
    wanted = NICEST if tier is Tier.BACKGROUND else 0
    try:
        with open(f"/proc/{pid}/autogroup", "r+") as file:
            if file.read().split()[-1:] != [str(wanted)]:
                file.write(str(wanted))
    except FileNotFoundError:  # a kernel without groups of sessions, or the process has ended
        return
    except BlockingIOError:  # too often within a second: the next search does it
        return


def pin(pid: int, processors: Iterable[int]) -> None:
    """Let a process, with all its threads, use only these processors.

    Raises:
        OSError: these processors no longer exist.
    """
    for thread in threads(pid):
        try:
            os.sched_setaffinity(thread, processors)
        except ProcessLookupError:
            continue


def raise_limit() -> None:
    """Raise RLIMIT_NICE as far as this process may, so that what it starts can leave the background."""
    _, most = resource.getrlimit(resource.RLIMIT_NICE)
    resource.setrlimit(resource.RLIMIT_NICE, (most, most))


@functools.cache
def limits() -> str:
    """What keeps the two tiers of this machine from being what they should be; empty if nothing does.

    Tried with a child made for this, which is killed and not awaited: in the background it may take long to die.
    """
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        put(child, Tier.BACKGROUND)
        apart = in_background(child)
        put(child, Tier.FOREGROUND)
        apart = apart and not in_background(child)
    except OSError as error:
        return f"what starts in the background cannot be moved to the foreground: {error.strerror}. {NICE_HINT}."
    finally:
        os.kill(child, signal.SIGKILL)
    return "" if apart else ALIKE
