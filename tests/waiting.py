"""Wait for what a test expects. The limit is reached only if something is wrong, even on a busy machine."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

LIMIT = 60.0
"""Seconds."""

T = TypeVar("T")


def until(true: Callable[[], T], seconds: float = LIMIT) -> T:
    """Wait until this gives something, and return it.

    The longer it has taken, the seldomer it is asked: to ask a server takes it and its client some milliseconds.
    """
    begin = time.monotonic()
    while not (found := true()):
        waited = time.monotonic() - begin
        assert waited < seconds, "waited in vain"
        time.sleep(min(max(0.01, waited / 10), 0.1))
    return found


async def becomes(true: Callable[[], T]) -> T:
    """The same within an event loop, which continues meanwhile."""
    async with asyncio.timeout(LIMIT):
        while not (found := true()):
            await asyncio.sleep(0.005)
    return found


def paths_below(folder: Path, pattern: str = "*") -> list[Path]:
    """What is at any depth and matches, as `rglob` finds it; that fails if a folder is removed meanwhile."""
    paths = (Path(at, name) for at, folders, names in os.walk(folder) for name in folders + names)
    return [path for path in paths if path.match(pattern)]


def gone(pid: int) -> bool:
    """Whether there is no such process, or only a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def let_the_background_run(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let nodes that are started from now on use SCHED_BATCH for their background.

    With SCHED_IDLE it gets the processor only while nothing else wants it: on a busy machine hardly ever.
    """
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("import os\nos.SCHED_IDLE = os.SCHED_BATCH\n")
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))


def free_port() -> int:
    """A free port below those that the system gives to whoever asks for any port.

    Each process of the tests begins to search at another one.
    """
    for number in count(10_000 + os.getpid() * 7 % 10_000):
        try:
            with socket.create_server(("127.0.0.1", number)):
                return number
        except OSError:
            continue
    raise AssertionError("the range has no end")
