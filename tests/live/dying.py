"""A server whose parts die while bags of tasks run: each result comes once, whatever ran twice."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from headway import Client, Job, Task
from headway.client.waiters import Waiter
from headway.live.store.journal import FILE

from ..waiting import LIMIT

TASKS = 200
"""In all bags together."""

END = 5 * LIMIT
"""Seconds in which all must have ended. Slurm ends two of these tasks a second, on a busy machine one."""


def noted(number: int, log: str, seconds: float) -> int:
    """Notes in one write that it runs, and takes a while."""
    import os
    import time

    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{number}\n".encode())
    os.close(file)
    time.sleep(seconds)
    return number


def survived(
    data: Path, faults: Sequence[Callable[[], None]], log: Path, seconds: float, stop: Callable[[], None]
) -> int:
    """Let each fault happen while a bag of its own is under way; returns how many attempts ran again.

    Args:
        data: of a server that runs.
        log: where tasks note that they run.
        seconds: that a task takes.
        stop: ends the server in order.
    """
    share = TASKS // len(faults)
    waiters: list[tuple[Waiter, list[int]]] = []
    with Client(data=data) as client:
        for place, fault in enumerate(faults):
            numbers = list(range(place * share, (place + 1) * share))
            waiter = client.submit(
                Job(fault.__name__, [Task(noted, one, str(log), seconds) for one in numbers], retries=0)
            )
            waiters.append((waiter, numbers))
            until = time.monotonic() + LIMIT
            while waiter.progress[0] < share // 5:
                assert time.monotonic() < until, f"nothing goes on before {fault.__name__}"
                time.sleep(0.02)
            assert not waiter.done(), f"all had ended before {fault.__name__}"
            fault()
        for waiter, numbers in waiters:
            assert waiter.result(END) == numbers
    stop()
    tasks = share * len(faults)
    with closing(sqlite3.connect(data / FILE)) as db:
        found = db.execute("SELECT count(*), count(DISTINCT job || '.' || task) FROM messages WHERE task IS NOT NULL")
        assert found.fetchone() == (tasks, tasks), "each result is told once"
    ran = Counter(log.read_text().split())
    assert len(ran) == tasks
    return sum(ran.values()) - tasks
