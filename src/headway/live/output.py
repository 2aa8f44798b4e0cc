"""What tasks wrote, for callers elsewhere: the whole of it, from the file that the engine keeps beside the result."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from headway.errors import HeadwayError, InvalidInput
from headway.live.journal import Journal
from headway.live.layout import OUTPUT
from headway.model.job import JobId
from headway.wire import TaskRange, TaskResult

STREAMS: Final = ("stdout", "stderr")

_result = msgspec.msgpack.Decoder(TaskResult)


class NoSuchOutput(HeadwayError):
    """Output was asked for that is not kept."""


def output_of(journal: Journal, job: JobId, task: int, stream: str, rank: int | None) -> BinaryIO:
    """What a task, or one member of a gang, wrote to a stream; to be closed by whoever asks.

    Only files of the engine are opened, whatever a result says: in the job's own folder, no links, only plain files.

    Args:
        rank: of a member of a rigid job on several slots; None: of the task.

    Raises:
        InvalidInput: there is no such stream, or no such rank.
        NoSuchOutput: the task has no result, or not any more; or its file is gone.
    """
    if stream not in STREAMS:
        raise InvalidInput("stream", stream, " or ".join(STREAMS))
    found, _ = journal.results([TaskRange(job, task, task + 1)], 1)
    if not found:
        raise NoSuchOutput(f"there is no result of task {task} of job {job}", "It has not ended, or was cleared.")
    result = _result.decode(found[0])
    if rank is not None and not 0 <= rank < len(result.members):
        raise InvalidInput("rank", rank, f"0 to {len(result.members) - 1}" if result.members else "none for this job")
    ending = result.ending if rank is None else result.members[rank]
    path, tail = (ending.stdout_path, ending.stdout) if stream == "stdout" else (ending.stderr_path, ending.stderr)
    if not path:
        return io.BytesIO(tail)
    where = f"the {stream} of task {task} of job {job}"
    folder = journal.folder / OUTPUT / str(job)
    try:
        if Path(path).parent.resolve() != folder.resolve():
            raise NoSuchOutput(f"{where} is not among the files that are kept")
        file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    except OSError as error:
        raise NoSuchOutput(f"{where} cannot be read any more: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NoSuchOutput(f"{where} is no file any more")
    return file


def part_of(file: BinaryIO, offset: int, limit: int | None) -> int:
    """Go to an offset; how many bytes come from there on, at most `limit`."""
    size = file.seek(0, io.SEEK_END)
    start = file.seek(min(offset, size))
    return size - start if limit is None else min(size - start, limit)
