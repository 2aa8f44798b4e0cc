"""What a task of a workflow gets from tasks before it: results, as arguments, and files.

Where a task is submitted, a result has a place in its arguments and a file a URL, `task:NUMBER/NAME`. Where it runs,
both are there. The client sends only their numbers, so neither passes through it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

TASK_SCHEME: Final = "task:"
"""How the URL of a file begins that an earlier task of the same workflow gave to the server."""

GIVEN_MAX: Final = 8 << 20
"""The most bytes that a task gets as results of others, pickled. They go through the server's loop in one piece."""

_FILE: Final = r"task:(\d{1,10})/([^\0]+)"

_results: ContextVar[Mapping[int, Any] | None] = ContextVar("results", default=None)


class _ResultsByTask(dict[int, Any]):
    """The results that a task gets, by the tasks' numbers; each is unpickled once, when it is asked for."""

    def __init__(self, pickled: Mapping[int, bytes]) -> None:
        super().__init__()
        self._pickled = pickled

    def __missing__(self, task: int) -> Any:
        self[task] = value = pickle.loads(self._pickled[task])
        return value


@contextmanager
def results(pickled: Mapping[int, bytes]) -> Iterator[None]:
    """Arguments that are unpickled in the body, in this thread, have these results in their places."""
    token = _results.set(_ResultsByTask(pickled))
    try:
        yield
    finally:
        _results.reset(token)


def result_of(task: int) -> Any:
    """The result of an earlier task: what stands in pickled arguments instead of it.

    Raises:
        LookupError: it is not here. Only the task that gets it has it.
    """
    there = _results.get()
    if there is None:
        raise LookupError(f"the result of task {task} is only where a task runs that gets it")
    return there[task]


def task_file(task: int, name: str) -> str:
    """The URL of a file that a task gives to the server under a name.

    >>> task_file(3, "sorted.txt"), task_file_of("task:3/sorted.txt"), task_file_of("task:x")
    ('task:3/sorted.txt', (3, 'sorted.txt'), None)
    """
    return f"{TASK_SCHEME}{task}/{name}"


def task_file_of(url: str) -> tuple[int, str] | None:
    """The number of a task and the name of a file that it gives; None for every other URL."""
    match = re.fullmatch(_FILE, url)
    return match and (int(match[1]), match[2])
