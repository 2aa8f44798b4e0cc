"""Copies of this process that share work: with its priority, or only while nothing else wants a processor."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Final, Protocol, TypeVar, cast

from headway.errors import HeadwayError

COPY_NICE: Final = 19

COPY_TRIES: Final = 20

COPY_LOOK_SECONDS: Final = 0.25
"""Every so many seconds a wait is looked at again: it may have become shorter."""

WEIGHT_PAUSE: Final = 0.1
"""So long the system refuses to lower the weight of another session."""

T = TypeVar("T")


class Copies(Protocol):
    """Does all of some works, each in a copy of this process, and returns what they give, in order."""

    def __call__(self, works: Sequence[Callable[[], T]], /) -> list[T]:
        """What the works give.

        Raises:
            HeadwayError: a copy was killed, or its work raised.
        """
        ...


def in_copies(works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all works at once, each in a copy of this process, which must have one thread only; see `Copies`."""
    found = begun_in_copies(works)
    return [found[place] for place in range(len(works))]


def begun_in_copies(
    works: Sequence[Callable[[], T]], *, gives_way: bool = False, left: Callable[[], float] | None = None
) -> dict[int, T]:
    """The same, for a limited time.

    Args:
        gives_way: the copies run only while nothing else wants a processor.
        left: tells how many seconds are left, which may be fewer than it told before; copies that are not ready by then
            are killed. None: it takes as long as it takes.

    Returns:
        What the works gave that were ready in time, by their positions.

    Raises:
        HeadwayError: a copy was killed, or its work raised.
    """
    fork = get_context("fork")
    copies = {}
    found: dict[int, T] = {}
    try:
        for place, work in enumerate(works):
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_copy, args=(work, ours, theirs, gives_way), daemon=True)
            process.start()
            theirs.close()
            copies[ours] = place, process
        missing = set(copies)
        while missing:
            seconds = None if left is None else left()
            ready = wait(missing, None if seconds is None else max(0.0, min(COPY_LOOK_SECONDS, seconds)))
            if not ready and seconds is not None and seconds <= 0:
                break
            for pipe in cast("list[Connection]", ready):
                missing.discard(pipe)
                place, process = copies[pipe]
                try:
                    gave = pipe.recv()
                except EOFError:
                    process.join()
                    raise HeadwayError(f"a process that draws futures ended with status {process.exitcode}") from None
                if isinstance(gave, str):
                    raise HeadwayError(f"a process that draws futures raised {gave}")
                (found[place],) = gave
    finally:
        for pipe, (_, process) in copies.items():
            pipe.close()
            process.kill()
            process.join()
    return found


def _copy(work: Callable[[], object], reading: Connection, writing: Connection, gives_way: bool) -> None:
    reading.close()
    gave: tuple[object] | str
    try:
        if gives_way:
            give_way()
        gave = (work(),)
    except Exception as error:  # noqa: BLE001  # whatever it is, maybe of a third party's policy: who asked tells of it
        place = traceback.extract_tb(error.__traceback__)[-1]
        gave = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
    with contextlib.suppress(BrokenPipeError):  # who wanted it was killed
        writing.send(gave)


def give_way() -> None:
    """Let this process run only while nothing else wants a processor. There is no way back without privileges.

    Where the kernel groups processes by session (`autogroup`), priorities count only within one. So this process gets a
    session of its own, with the lowest weight. A system that has no such policy or groups gets the nearest to it: the
    nicest of the usual priorities.
    """
    with contextlib.suppress(PermissionError, FileNotFoundError):  # it leads a session; there are no such groups
        os.setsid()
        for _ in range(COPY_TRIES):
            with contextlib.suppress(BlockingIOError):  # without privileges, one session in a tenth of a second
                with open("/proc/self/autogroup", "w") as file:
                    file.write(str(COPY_NICE))
                break
            time.sleep(WEIGHT_PAUSE)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # there is no such policy here, or a filter of system calls forbids it
        os.setpriority(os.PRIO_PROCESS, 0, COPY_NICE)
