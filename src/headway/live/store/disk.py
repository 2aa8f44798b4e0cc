"""What a journal is stored on: a data directory, or anything else that keeps what SQLite has committed.

Everything that the driver and the journal ask of a disk goes through `Disk`, which `DataDirectory` implements. The
tests have a disk in memory, which fails and loses things by a seed (`tests/faults`); the journal and its statements are
the same on both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from headway.live.room import Free, free_on
from headway.live.store.layout import UPLOADS_FOLDER
from headway.live.store.opening import OpenJournal, open_journal
from headway.live.store.schema import FILE
from headway.live.uploads import Uploads


class Disk(Protocol):
    """Keeps a journal. What is committed is there after a crash, and of everything else nothing."""

    def open(self, *, accept_loss: bool) -> OpenJournal:
        """Open the journal for this process alone; a new one is made if there is none.

        Raises:
            Damaged: the journal is not what was written, or not all of it; and no loss is accepted.
            HeadwayError: it cannot be used.
        """
        ...

    def unlock(self, lock: int) -> None:
        """Let other processes open it: the connection is closed."""
        ...

    def size(self) -> int:
        """Bytes of the journal, without its write-ahead log."""
        ...

    def log_size(self) -> int:
        """Bytes of the write-ahead log."""
        ...

    def free_on(self, folder: Path) -> Free:
        """The size of the disk, and how much of it is free.

        Raises:
            OSError: they cannot be found out.
        """
        ...

    def uploads(self, size_max: int, check_room: Callable[[int], None]) -> Uploads:
        """The files that clients uploaded and tasks gave; see `Uploads` for the arguments."""
        ...


class DataDirectory(Disk):
    """A data directory.

    Args:
        folder: made when it is opened, if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = os.fspath(folder / f"{FILE}-wal")  # looked at with each submission

    def open(self, *, accept_loss: bool) -> OpenJournal:
        """Lock the directory and open its journal."""
        return open_journal(self._folder, accept_loss=accept_loss)

    def unlock(self, lock: int) -> None:
        """Unlock the directory."""
        os.close(lock)

    def size(self) -> int:
        """Bytes of the journal's file."""
        return self._folder.joinpath(FILE).stat().st_size

    def log_size(self) -> int:
        """Bytes of the log beside it."""
        try:
            return os.stat(self._log).st_size
        except OSError:  # there is none at the moment
            return 0

    def free_on(self, folder: Path) -> Free:
        """Ask the system."""
        return free_on(folder)

    def uploads(self, size_max: int, check_room: Callable[[int], None]) -> Uploads:
        """The files in a folder of it."""
        return Uploads(self._folder / UPLOADS_FOLDER, size_max, check_room)
