"""Dask on this machine: the commands that start a scheduler and workers, each a process of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headway.errors import HeadwayError
from headway.reproduce.children import Children

QUIET: Final = {
    "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s",
    "PYTHONWARNINGS": "ignore",
}
"""What they have in their environment on a busy machine. Each would wake a hundred times a second to look at itself."""

START_SECONDS: Final = 60.0


def scheduler_words(told: Path, host: str = "127.0.0.1", port: int = 0) -> list[str]:
    """What Python is to run as a scheduler, which writes its address to a file."""
    where = ["--host", host, "--port", str(port), "--scheduler-file", str(told)]
    return ["-m", "dask", "scheduler", "--no-dashboard", *where]


def worker_words(
    address: str, name: str, threads: int | str, folder: Path | str, host: str = "127.0.0.1", *, nanny: bool = False
) -> list[str]:
    """What Python is to run as a worker of a scheduler.

    Args:
        folder: for its files.
        nanny: whether a process of its own watches over it.
    """
    words = [address, "--name", name, "--nthreads", str(threads), "--host", host]
    words += ["--no-dashboard", "--memory-limit", "0", "--local-directory", str(folder)]
    return ["-m", "dask", "worker", *words, "--nanny" if nanny else "--no-nanny"]


def started(children: Children, name: str, workers: Sequence[str] = ()) -> str:
    """Start a scheduler and workers of one thread each; returns the scheduler's address when it is known.

    Raises:
        HeadwayError: it does not start.
    """
    told = children.folder / f"{name}.json"
    children.start(name, [sys.executable, *scheduler_words(told)], QUIET)
    until = time.monotonic() + START_SECONDS
    while not (told.exists() and (text := told.read_text("utf-8"))):
        if children.has_ended(name) or time.monotonic() > until:
            raise HeadwayError("the scheduler of Dask does not start", children.said(name))
        time.sleep(0.02)
    address = str(json.loads(text)["address"])
    for worker in workers:
        words = worker_words(address, worker, 1, children.place(worker))
        children.start(worker, [sys.executable, *words], QUIET)
    return address
