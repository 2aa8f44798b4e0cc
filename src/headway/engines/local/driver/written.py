"""The output files of this machine's engine, for its driver: to be read, found and deleted.

An output is named by the full path that its file had when it was written, so that people find it. The engine's folder
may have been moved, copied or reached by another name since, so only the folder of the job and the name of the file
count.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from headway.engines.base import AttemptKey
from headway.errors import NoSuchOutput
from headway.model.job import JobId

log = logging.getLogger(__name__)


class Written:
    """The folder with the output of attempts.

    Args:
        folder: it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locate(self, name: str) -> Path | None:
        """Where an output is in this folder; None if this cannot be the name of one."""
        *_, job, file = ("", "", *name.split("/"))
        return self._folder / job / file if job.isdecimal() and file not in ("", ".", "..") else None

    def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of an output: of a regular file; a link is not followed, a pipe not waited for.

        Raises:
            FileNotFoundError: there is no such file.
            NoSuchOutput: it is no file, or cannot be read.
        """
        path = self.locate(name)
        if path is None:
            raise NoSuchOutput(f"no output has the name {name!r}")
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise NoSuchOutput(f"{path} is no file any more")
                return os.pread(file, size, offset)
            finally:
                os.close(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NoSuchOutput(f"{path} cannot be read: {error.strerror or error}") from error

    def discard(self, names: Iterable[str]) -> None:
        """Delete files, and the folder of their job if they were the last ones there; one that stays is logged."""
        paths = [path for name in names if (path := self.locate(name)) is not None]
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s stays: %s", path, error.strerror or error)
        for folder in {path.parent for path in paths}:
            with suppress(OSError):  # other files are there
                folder.rmdir()

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """The names of all files by job, as they are found, see `Outputs.outputs`."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as folders:
            for folder in folders:
                with suppress(FileNotFoundError):  # removed with its last file
                    is_idle = time.time() - folder.stat(follow_symlinks=False).st_mtime > idle
                    if folder.name.isdecimal() and is_idle:
                        yield int(folder.name), _names(folder.path)


class OutputsInFiles:
    """The part of an engine whose outputs are files of one folder on the driver's machine.

    Args:
        written: the folder.
    """

    def __init__(self, written: Written) -> None:
        self._written = written

    def locate(self, name: str) -> Path | None:
        """Every output is in a file."""
        return self._written.locate(name)

    def discard(self, names: Iterable[str]) -> None:
        """Delete files."""
        self._written.discard(names)

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """Look through the folders of the jobs."""
        return self._written.outputs(idle)


def _names(folder: str) -> Iterator[str]:
    """Paths of the files of a folder, which is removed at the end if none is left."""
    with suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            yield file.path
    with suppress(OSError):  # some are still needed
        os.rmdir(folder)


def attempt_of(name: str) -> AttemptKey | None:
    """The attempt that an output is of, by its name (`shared.output.file_of`); None if this is no name of one."""
    *_, job, file = ("", "", *name.split("/"))
    task, attempt, *_ = (*file.split("."), "", "")
    return (int(job), int(task), int(attempt)) if job.isdecimal() and task.isdecimal() and attempt.isdecimal() else None
