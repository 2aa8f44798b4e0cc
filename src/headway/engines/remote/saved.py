"""What attempts on other machines have saved, kept on the driver's.

It is fetched as FOLDER/JOB/TASK/RANK.ATTEMPT.tar. A node that shares this folder saves there itself, in RANK.ATTEMPT.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from headway.engines.local.shared.archives import pack, unpack
from headway.engines.local.shared.checkpoints import jobs
from headway.model.job import JobId


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

    def put(self, job: JobId, task: int, rank: int, attempt: int, packed: bytes) -> None:
        """Keep what a member has saved, instead of what its earlier attempts had.

        Raises:
            OSError: it cannot be kept.
        """
        folder = self._folder / str(job) / str(task)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{rank}.{attempt}.tar"
        draft = folder / f"{rank}.{attempt}.draft"
        with draft.open("wb") as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        for other in folder.glob(f"{rank}.*.tar"):
            if _attempt(other) < attempt:
                other.unlink(missing_ok=True)

    def before(self, job: JobId, task: int, rank: int, attempt: int) -> tuple[int, Path] | None:
        """The latest attempt before this one that saved something, and its archive or folder; None: there is none."""
        folder = self._folder / str(job) / str(task)
        if not folder.is_dir():
            return None
        saved = (path for path in folder.glob(f"{rank}.*") if not path.name.endswith(".draft"))
        found = [(number, path) for path in saved if (number := _attempt(path)) < attempt]
        return max(found, default=None)

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
