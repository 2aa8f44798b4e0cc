"""Steps that would block the event loop run in a thread beside it; or within it, if the system gives no thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Final, TypeVar

from headway.errors import HeadwayError

log = logging.getLogger(__name__)

THREADS: Final = 4
"""How many steps run at the same time."""

T = TypeVar("T")


class NoThread(HeadwayError):
    """The system gives no thread for a step that takes too long for the event loop."""


_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="headway-aside")


async def aside(step: Callable[[], T], *, here: bool = True) -> T:
    """Run a step in a thread, and return what it returns.

    If the system gives no more threads (`ulimit -u`, a limit of the control group), the step runs at once: the server
    is slower then, but it serves.

    Args:
        here: whether it may run at once; a step that takes long may not.

    Raises:
        NoThread: it may not, and there is no thread.
        Whatever the step raises.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    untaken = [step]

    def take() -> None:
        try:
            taken = untaken.pop()
        except IndexError:
            return  # a pool that could start no thread has kept the step for whichever is free next
        try:
            settle = partial(result.set_result, taken())
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is awaited
            settle = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the answer is no longer needed
            loop.call_soon_threadsafe(lambda: None if result.done() else settle())

    try:
        _pool.submit(take)
    except RuntimeError as error:
        if not here and untaken:
            untaken.clear()
            raise NoThread("the system gives no thread for it") from error
        log.warning("%s: the event loop does itself what a thread should do", error)
        take()
    return await result


def gives_threads() -> bool:
    """Whether the system gives another thread now."""
    try:
        Thread(target=int, daemon=True).start()
    except RuntimeError:
        return False
    return True
