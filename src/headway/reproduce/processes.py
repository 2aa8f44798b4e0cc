"""Independent pieces of work in as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from signal import SIG_IGN, SIGINT, signal
from threading import Thread
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


def done(
    function: Callable[[Work], Result], works: Sequence[Work], processes: int | None = None
) -> Iterator[tuple[int, Result]]:
    """The position of each piece of work and the function's result for it, as they end. They begin in order.

    If the caller stops early, by ctrl-c or because one piece failed, the others are ended at once. They also end if the
    caller is killed.

    Args:
        function: of a module, because other processes find it by name.
        processes: how many at once; default one for each core. With one, only this process works.
    """
    if (processes or os.cpu_count() or 1) == 1:
        yield from enumerate(map(function, works))
        return
    end, held = Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, initializer=_work_until, initargs=(end, held))
    try:
        places = {pool.submit(function, work): place for place, work in enumerate(works)}
        for future in as_completed(places):
            yield places[future], future.result()
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)
        end.close()


def _work_until(end: Connection, held: Connection) -> None:
    """End this worker, whatever it is doing, when no process has the other end of the pipe open any more."""
    signal(SIGINT, SIG_IGN)  # ctrl-c is handled by the first process
    held.close()
    Thread(target=_end_after, args=(end,), daemon=True).start()


def _end_after(end: Connection) -> None:
    end.poll(None)
    os._exit(0)
