"""Messages to clients: what has ended, and how many of them one answer holds."""

from __future__ import annotations

from typing import NamedTuple

from headway.model.instant import Instant
from headway.model.job import JobId


class MessageRow(NamedTuple):
    """A message; `result` is an encoded `TaskResult`, None if it was not asked for, is too large or was cleared."""

    number: int
    job: JobId
    task: int | None
    word: str
    result: bytes | None


NewMessage = tuple[int, int, JobId, int | None, Instant, str, int, bytes | None]
"""A message as it is written: number, client, job, task, instant, word, bytes of the files of its output, result."""


class Page:
    """The messages of one answer, in order of their numbers.

    It does not end between the last result of a job and the job's end if it may hold more than one message: a client
    that acknowledges that result may have the job cleared, and would never be told of its end.

    Args:
        limit: the most messages, >= 1.
        size_max: it is full when its results have this many bytes.

    Attributes:
        rows: the messages.
        is_full: whether it may be answered with these: the next one at most completes it.
        is_closed: whether there is a message behind the last one.
    """

    __slots__ = ("_limit", "_size_left", "is_closed", "is_full", "rows")

    def __init__(self, limit: int, size_max: int) -> None:
        self.rows: list[MessageRow] = []
        self.is_full = self.is_closed = False
        self._limit = limit
        self._size_left = size_max

    def add(self, row: MessageRow) -> None:
        """Add the next message, unless it is one for the next page."""
        if self.is_closed:
            return
        rows = self.rows
        if not self.is_full:
            rows.append(row)
            self._size_left -= len(row.result or b"")
            self.is_full = len(rows) >= self._limit or self._size_left <= 0
            return
        splits = row.task is None and rows[-1].job == row.job
        if splits and len(rows) < self._limit:
            rows.append(row)
        else:
            self.is_closed = True
            if splits and len(rows) > 1:
                del rows[-1]
