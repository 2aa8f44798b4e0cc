"""After a start the files that belong to the journal are checked, beside the server; damage is an incident.

A start does not wait for that: there may be many gigabytes, and not all jobs depend on them.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

from headway.live.store.kept import flaws_of_files

log = logging.getLogger(__name__)

TOLD_MAX: Final = 100
"""How many files are reported at most; `headway check` lists all."""


def inspect_files(folder: Path, incident: Callable[[str, str, str], object]) -> Callable[[], None]:
    """Check the files of a data directory in a thread; returns a function that stops this.

    Args:
        incident: called for each damaged file, in the running event loop.
    """
    loop, end = asyncio.get_running_loop(), Event()

    def tell(place: str, what: str) -> None:
        if not end.is_set():
            incident("file_damaged", place, what)

    def inspect() -> None:
        try:
            for number, (file, what) in enumerate(flaws_of_files(folder, hurry=False)):
                if end.is_set() or number == TOLD_MAX:
                    return
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(tell, str(file.path), f"{what} ({file.whose})")
        except (OSError, sqlite3.Error) as error:
            log.warning("the files of %s were not all looked at: %s", folder, error)

    try:
        Thread(target=inspect, name="headway-files", daemon=True).start()
    except RuntimeError as error:  # no thread can be had
        log.warning("the files of %s are not looked at: %s", folder, error)
    return end.set
