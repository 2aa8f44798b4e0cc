"""What tasks wrote, for callers elsewhere: all of it, from the file that the engine keeps beside the result."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import BinaryIO, Final

import msgspec

from headway.errors import InvalidInput, NoSuchOutput
from headway.live.driver import Driver
from headway.live.store.journal import Journal
from headway.live.store.kept import opened
from headway.live.store.layout import output_file
from headway.model.job import JobId
from headway.wire import TaskRange, TaskResult

STREAMS: Final = ("stdout", "stderr")

_result = msgspec.msgpack.Decoder(TaskResult)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which output is asked for.

    Attributes:
        stream: `stdout` or `stderr`.
        rank: of a member of a rigid job on several slots; None: of the whole task.
        attempt: only of this attempt; None: of the one that settled the task, or is running.
    """

    job: JobId
    task: int
    stream: str
    rank: int | None = None
    attempt: int | None = None


def output_so_far(driver: Driver, wanted: Wanted) -> BinaryIO:
    """What a task has written until now, also while it runs; the caller closes the file.

    Raises:
        InvalidInput: there is no such stream, or no such rank.
        NoSuchOutput: the attempt has ended or has not begun, or its output is gone.
    """
    job, task, rank = wanted.job, wanted.task, wanted.rank
    if wanted.stream not in STREAMS:
        raise InvalidInput("stream", wanted.stream, " or ".join(STREAMS))
    view = driver.core.state.jobs.get(job)
    attempt = None if view is None else view.attempts.get(task)
    if view is None or attempt is None or wanted.attempt not in (None, attempt.number):
        return output_of(driver.journal, job, task, wanted.stream, rank, wanted.attempt)
    if (rank is None) != (view.width == 1) or not 0 <= (rank or 0) < view.width:
        raise InvalidInput("rank", rank, f"0 to {view.width - 1}" if view.width > 1 else "none for this job")
    path = driver.show(job, task, attempt.number, rank, wanted.stream)
    try:
        return opened(path)
    except FileNotFoundError:  # nothing was written yet, or its end is about to be reported
        return io.BytesIO()
    except OSError as error:
        said = f"the {wanted.stream} of task {task} of job {job} cannot be read: {error.strerror or error}"
        raise NoSuchOutput(said) from error


def output_of(
    journal: Journal, job: JobId, task: int, stream: str, rank: int | None, attempt: int | None = None
) -> BinaryIO:
    """What a task that has ended, or one member of a gang, wrote to a stream; the caller closes the file.

    Only the engine's files are opened, whatever a result says: regular files in the job's own folder, no links.

    Args:
        rank: of a member of a rigid job on several slots; None: of the whole task.
        attempt: the one that must have settled it; None: any.

    Raises:
        InvalidInput: there is no such stream, or no such rank.
        NoSuchOutput: the task has no result, or no longer has one; or its file is gone.
    """
    if stream not in STREAMS:
        raise InvalidInput("stream", stream, " or ".join(STREAMS))
    found, _ = journal.results([TaskRange(job, task, task + 1)], 1)
    if not found:
        raise NoSuchOutput(f"there is no result of task {task} of job {job}", "It has not ended, or was cleared.")
    result = _result.decode(found[0])
    if attempt not in (None, result.attempt):
        raise NoSuchOutput(f"attempt {attempt} at task {task} of job {job} is over", "It was made again.")
    if rank is not None and not 0 <= rank < len(result.members):
        raise InvalidInput("rank", rank, f"0 to {len(result.members) - 1}" if result.members else "none for this job")
    ending = result.ending if rank is None else result.members[rank]
    path, tail = (ending.stdout_path, ending.stdout) if stream == "stdout" else (ending.stderr_path, ending.stderr)
    if not path:
        return io.BytesIO(tail)
    where = f"the {stream} of task {task} of job {job}"
    kept = output_file(journal.folder, path)
    if kept is None or kept.parent.name != str(job):
        raise NoSuchOutput(f"{where} is not among the files that are kept")
    try:
        return opened(kept)
    except OSError as error:
        raise NoSuchOutput(f"{where} cannot be read any more: {error.strerror or error}") from error


def part_of(file: BinaryIO, offset: int, limit: int | None) -> int:
    """Go to an offset; returns how many bytes follow from there, at most `limit`."""
    size = file.seek(0, io.SEEK_END)
    start = file.seek(min(offset, size))
    return size - start if limit is None else min(size - start, limit)
