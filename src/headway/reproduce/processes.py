"""Independent works in as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from signal import SIG_IGN, SIGINT, signal
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


def done(
    function: Callable[[Work], Result], works: Sequence[Work], processes: int | None = None
) -> Iterator[tuple[int, Result]]:
    """The place of each work and what the function gave for it, as they end; they are begun in their order.

    Args:
        function: of a module, for it is named to other processes.
        processes: how many at once; default one a core. With one, nothing but this process works.
    """
    if (processes or os.cpu_count() or 1) == 1:
        yield from enumerate(map(function, works))
        return
    # Ctrl-c is for this process to answer; a worker ends what it is at.
    with ProcessPoolExecutor(processes, initializer=signal, initargs=(SIGINT, SIG_IGN)) as pool:
        places = {pool.submit(function, work): place for place, work in enumerate(works)}
        try:
            for future in as_completed(places):
                yield places[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)
