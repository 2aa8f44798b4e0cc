"""The two tiers of a processor of this machine (Linux): scheduling policies of whole trees of processes.

In the background is who has the policy SCHED_IDLE, or nice 19 where the system has no such policy to give: it runs
while no other process of its group wants the processor, and gives it back at once. Entering is open to everybody.
Leaving is not: it takes the capability CAP_SYS_NICE, or a limit RLIMIT_NICE of 20 less the nice value one goes back to.

Where the kernel groups processes by session (`autogroup`), policies count within a session alone. All processes of a
node are therefore of one session; one that makes itself a session of its own has that one put behind as well.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
from collections.abc import Iterable
from typing import Final

from headway.engines.local_processes import tree
from headway.model.tier import Tier

NICEST: Final = 19

_POLICY: Final = os.sched_getscheduler(0)
_NICE: Final = os.getpriority(os.PRIO_PROCESS, 0)
_SESSION: Final = os.getsid(0)
"""How this process, from which all others of its node are forked, was started: so is what is in the foreground."""

_ALL_SEEN: Final = 2
"""Rounds in which everything was found in its tier: a process may be passed over whose parent ends just then."""

HINT: Final = "Give the server the capability CAP_SYS_NICE, or a limit RLIMIT_NICE of 20 (systemd: LimitNICE=+0)"


def threads(pid: int) -> list[int]:
    """The threads of a process; none if it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def in_background(thread: int) -> bool:
    """Whether a thread has the processor only while nobody else wants it."""
    return os.sched_getscheduler(thread) == os.SCHED_IDLE or os.getpriority(os.PRIO_PROCESS, thread) >= NICEST > _NICE


def put(thread: int, tier: Tier) -> bool:
    """Put a thread into a tier; whether it was not there.

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
        return True
    try:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    except ProcessLookupError:
        raise
    except OSError:  # this system has none, or a filter of system calls keeps it
        os.setpriority(os.PRIO_PROCESS, thread, NICEST)
    return True


def move(roots: Iterable[int], tier: Tier) -> str:
    """Put processes with all that is below them, every thread, into a tier; why the system refused it, else nothing.

    What is started meanwhile inherits the tier of who starts it, so it is looked again until all were found there. What
    was refused leaves all of it where it was, as far as the system lets it.
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
    """Undo what was done for nothing; a thread that may not go back is where it was to be."""
    try:
        put(thread, tier)
    except OSError:
        return


def _regroup(pid: int, tier: Tier) -> None:
    """Put the session of a process behind all others, or back, if it is not the node's."""
    if os.getsid(pid) == _SESSION:
        return
    wanted = NICEST if tier is Tier.BACKGROUND else 0
    try:
        with open(f"/proc/{pid}/autogroup", "r+") as file:
            if file.read().split()[-1:] != [str(wanted)]:
                file.write(str(wanted))
    except FileNotFoundError:  # a kernel without groups of sessions, or the process has ended
        return
    except BlockingIOError:  # too often within a second: the next look does it
        return


def pin(pid: int, processors: Iterable[int]) -> None:
    """Have a process, every thread of it, use these processors only.

    Raises:
        OSError: there are no such processors any more.
    """
    for thread in threads(pid):
        try:
            os.sched_setaffinity(thread, processors)
        except ProcessLookupError:
            continue


def raise_limit() -> None:
    """Take what this process may have of RLIMIT_NICE, so that what it starts may leave the background."""
    _, most = resource.getrlimit(resource.RLIMIT_NICE)
    resource.setrlimit(resource.RLIMIT_NICE, (most, most))


@functools.cache
def one_way() -> str:
    """Why nothing that is in the background here can leave it; nothing where it can.

    Tried with a child made for it, which is killed and not waited for: in the background it may take long to die.
    """
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        put(child, Tier.BACKGROUND)
        put(child, Tier.FOREGROUND)
    except OSError as error:
        return f"{error.strerror}. {HINT}."
    finally:
        os.kill(child, signal.SIGKILL)
    return ""
