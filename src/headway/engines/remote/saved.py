"""What attempts on other machines have saved, kept on the driver's.

It is fetched as FOLDER/JOB/TASK/RANK.ATTEMPT.tar. A node that shares this folder saves there itself, in RANK.ATTEMPT.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from headway.engines.local.shared.archives import pack, unpack
from headway.engines.local.shared.checkpoints import jobs
from headway.model.job import JobId

_DRAFT: Final = ".draft"


class SavedElsewhere:
    """The checkpoints of each member, the latest as an archive or as the folder of a node that shares it.

    Args:
        folder: made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def jobs(self) -> frozenset[JobId]:
        """The jobs that have some."""
        return jobs(str(self._folder))

    def has(self, job: JobId) -> bool:
        """Whether something of the job may be there."""
        return (self._folder / str(job)).exists()

    def put(self, job: JobId, task: int, rank: int, attempt: int, packed: bytes) -> None:
        """Keep what a member has saved, instead of what its earlier attempts had.

        Raises:
            OSError: it cannot be kept.
        """
        folder = self._folder / str(job) / str(task)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{rank}.{attempt}.tar"
        draft = folder / f"{rank}.{attempt}.tar{_DRAFT}"  # `lay_out` makes a folder with the other name
        with draft.open("wb") as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        for other in folder.glob(f"{rank}.*"):
            if other.suffix not in (".tar", _DRAFT) or _attempt(other) >= attempt:
                continue
            if other.is_dir():  # a draft of a server that was killed
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink(missing_ok=True)

    def before(self, job: JobId, task: int, rank: int, attempt: int) -> tuple[int, Path] | None:
        """The latest attempt before this one that saved something, and its archive or folder; None: there is none.

        Folders with nothing in them are removed: a node that shares this one would continue from the latest.
        """
        folder = self._folder / str(job) / str(task)
        if not folder.is_dir():
            return None
        saved = [path for path in folder.glob(f"{rank}.*") if path.suffix != _DRAFT and _attempt(path) < attempt]
        for path in saved:
            with suppress(OSError):  # there is something in it, or it is an archive
                path.rmdir()
        return max(((_attempt(path), path) for path in saved if path.exists()), default=None)

    def packed(self, path: Path) -> bytes:
        """The archive of what `before` has found.

        Raises:
            OSError: it cannot be read, or is too large.
        """
        return pack(str(path)) if path.is_dir() else path.read_bytes()

    def lay_out(self, path: Path) -> None:
        """Make the folder of an archive, for a node that shares it.

        Raises:
            OSError, ValueError: it cannot be made of that.
        """
        unpack(path.read_bytes(), str(path.with_suffix("")))

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Delete what a task, or a whole job, has saved."""
        folder = self._folder / str(job)
        shutil.rmtree(folder if task is None else folder / str(task), ignore_errors=True)
        with suppress(OSError):  # other tasks have some
            folder.rmdir()


def _attempt(path: Path) -> int:
    return int(path.name.split(".")[1])
