"""Independent works in as many processes as there are cores."""

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
    """The place of each work and what the function gave for it, as they end; they are begun in their order.

    Who stops asking, by ctrl-c or because a work failed, has the others ended at once; so has who is killed.

    Args:
        function: of a module, for it is named to other processes.
        processes: how many at once; default one a core. With one, nothing but this process works.
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
    """Have this worker end, whatever it is at, when nobody holds the other end of the pipe any more."""
    signal(SIGINT, SIG_IGN)  # ctrl-c is for the first process to answer
    held.close()
    Thread(target=_end_after, args=(end,), daemon=True).start()


def _end_after(end: Connection) -> None:
    end.poll(None)
    os._exit(0)
