"""What tasks wrote, for callers elsewhere: all of it, from what the engine keeps beside the result."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

import msgspec

from headway.engines.base import Outputs
from headway.errors import InvalidInput, NoSuchOutput
from headway.live.driver import Driver
from headway.live.store.journal import Journal
from headway.live.store.kept import opened
from headway.model.job import JobId
from headway.wire import TaskRange, TaskResult

STREAMS: Final = ("stdout", "stderr")

PIECE: Final = 1 << 16
"""Bytes that are read from a file, and sent, at once."""

ASKED_BYTES: Final = 1 << 20
"""Bytes that an engine on another machine is asked for at once."""

_result = msgspec.msgpack.Decoder(TaskResult)


@dataclass(frozen=True, slots=True)
class OutputWanted:
    """Which output is asked for, or which part of it.

    Attributes:
        stream: `stdout` or `stderr`.
        rank: of a member of a rigid job on several slots; None: of the whole task.
        attempt: only of this attempt; None: of the one that settled the task, or is running.
        offset: from this byte on.
        limit: at most this many bytes; None: to the end.
    """

    job: JobId
    task: int
    stream: str
    rank: int | None = None
    attempt: int | None = None
    offset: int = 0
    limit: int | None = None


class OutputPart(NamedTuple):
    """A part of an output.

    Attributes:
        size: in bytes; None: not known before its end, because the engine sends it from another machine.
        pieces: its bytes.
    """

    size: int | None
    pieces: AsyncIterator[bytes]


async def output_so_far(driver: Driver, wanted: OutputWanted) -> OutputPart:
    """What a task has written until now, also while it runs.

    Raises:
        InvalidInput: there is no such stream, or no such rank.
        NoSuchOutput: the attempt has ended or has not begun, or its output is gone.
        EngineError: it cannot be read now.
    """
    job, task, rank = wanted.job, wanted.task, wanted.rank
    if wanted.stream not in STREAMS:
        raise InvalidInput("stream", wanted.stream, " or ".join(STREAMS))
    view = driver.core.state.jobs.get(job)
    attempt = None if view is None else view.attempts.get(task)
    if view is None or attempt is None or wanted.attempt not in (None, attempt.number):
        return await output_of(driver.journal, driver.outputs, wanted)
    if (rank is None) != (view.width == 1) or not 0 <= (rank or 0) < view.width:
        raise InvalidInput("rank", rank, f"0 to {view.width - 1}" if view.width > 1 else "none for this job")
    name = driver.outputs.show(job, task, attempt.number, rank, wanted.stream)
    if not name:  # its end is about to be reported
        return _part_of(io.BytesIO(), wanted)
    return await _read(driver.outputs, name, wanted, runs=True)


async def output_of(journal: Journal, outputs: Outputs, wanted: OutputWanted) -> OutputPart:
    """What a task that has ended, or one member of a gang, wrote to a stream.

    Raises:
        InvalidInput: there is no such stream, or no such rank.
        NoSuchOutput: the task has no result, or no longer has one; or its output is gone.
        EngineError: it cannot be read now.
    """
    job, task, rank = wanted.job, wanted.task, wanted.rank
    if wanted.stream not in STREAMS:
        raise InvalidInput("stream", wanted.stream, " or ".join(STREAMS))
    found, _ = journal.results([TaskRange(job, task, task + 1)], 1)
    if not found:
        raise NoSuchOutput(f"there is no result of task {task} of job {job}", "It has not ended, or was cleared.")
    result = _result.decode(found[0])
    if wanted.attempt not in (None, result.attempt):
        raise NoSuchOutput(f"attempt {wanted.attempt} at task {task} of job {job} is over", "It was made again.")
    if rank is not None and not 0 <= rank < len(result.members):
        raise InvalidInput("rank", rank, f"0 to {len(result.members) - 1}" if result.members else "none for this job")
    ending = result.ending if rank is None else result.members[rank]
    is_out = wanted.stream == "stdout"
    name, tail = (ending.stdout_path, ending.stdout) if is_out else (ending.stderr_path, ending.stderr)
    return await _read(outputs, name, wanted) if name else _part_of(io.BytesIO(tail), wanted)


async def _read(outputs: Outputs, name: str, wanted: OutputWanted, *, runs: bool = False) -> OutputPart:
    """A part of what the engine keeps under a name: from its file if that is on this machine, else piece by piece."""
    path = outputs.locate(name)
    if path is None:
        first = await outputs.read(name, wanted.offset, _next(wanted.limit))
        return OutputPart(None, _pieces(outputs, name, wanted, first, runs=runs))
    try:
        return _part_of(opened(path), wanted)
    except OSError as error:
        if runs and isinstance(error, FileNotFoundError):  # nothing was written yet, or its end is about to be reported
            return _part_of(io.BytesIO(), wanted)
        said = f"the {wanted.stream} of task {wanted.task} of job {wanted.job} cannot be read" + " any more" * (
            not runs
        )
        raise NoSuchOutput(f"{said}: {error.strerror or error}") from error


def _part_of(file: BinaryIO, wanted: OutputWanted) -> OutputPart:
    """A part of a file that is open."""
    end = file.seek(0, io.SEEK_END)
    size = end - file.seek(min(wanted.offset, end))
    size = size if wanted.limit is None else min(size, wanted.limit)
    return OutputPart(size, pieces_of(file, size))


async def pieces_of(file: BinaryIO, size: int) -> AsyncIterator[bytes]:
    """This many bytes of a file, from where it is; no thread is needed to read it. It is closed at the end."""
    with file:
        while size > 0 and (piece := file.read(min(size, PIECE))):
            size -= len(piece)
            yield piece


async def _pieces(
    outputs: Outputs, name: str, wanted: OutputWanted, piece: bytes, *, runs: bool
) -> AsyncIterator[bytes]:
    """An output as the engine sends it, from the piece that was read first."""
    offset, left = wanted.offset, wanted.limit
    while piece:
        yield piece
        offset += len(piece)
        left = None if left is None else left - len(piece)
        if left == 0:
            return
        try:
            piece = await outputs.read(name, offset, _next(left))
        except NoSuchOutput:
            if runs:
                return  # it has ended meanwhile; the rest is in its result, or is kept with it
            raise


def _next(left: int | None) -> int:
    return ASKED_BYTES if left is None else min(ASKED_BYTES, left)
