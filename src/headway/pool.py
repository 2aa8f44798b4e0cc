"""The code around an executor's calls in the tasks' processes: what is done once in each process, and chunks.

It is imported there and by callers, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

from headway.errors import HeadwayError


class InitializerFailed(HeadwayError, BrokenExecutor):
    """An executor's initializer raised in one of its processes; no call can be run."""


_begun: dict[str, str] = {}
"""By executor: what went wrong when its initializer was called in this process; empty text: nothing."""


class Prepared:
    """A function that is called in a process only after the executor's initializer has been, once.

    Args:
        executor: a text that no other executor has.
        initializer, initargs: what is called first.
        function: what is called then.
    """

    def __init__(
        self,
        executor: str,
        initializer: Callable[..., object],
        initargs: tuple[Any, ...],
        function: Callable[..., Any],
    ) -> None:
        self._executor = executor
        self._initializer = initializer
        self._initargs = initargs
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it.

        Raises:
            InitializerFailed: the initializer raised, now or when it was called in this process.
        """
        failure = _begun.get(self._executor)
        if failure is None:
            _begun[self._executor] = failure = self._begin()
        if failure:
            raise InitializerFailed(f"the executor's initializer raised {failure}", "No call is run without it.")
        return self._function(*args, **kwargs)

    def _begin(self) -> str:
        try:
            self._initializer(*self._initargs)
        except BaseException as error:  # noqa: BLE001  # whatever it raises, also SystemExit
            return repr(error)
        return ""


class Chunk:
    """Several calls of a function as one: what `map` sends with a `chunksize`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What each call gives; the first that raises ends it."""
        return [self._function(*arguments) for arguments in calls]
