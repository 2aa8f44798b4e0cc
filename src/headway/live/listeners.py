"""Callers that wait for messages, and when they are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

GATHER_SECONDS: Final = 0.010
"""A caller with messages is answered after so long, unless nothing more is to come for now: then at once.

So the ends of many short tasks come many at a time, and that of a single task without delay.
"""


class Listeners:
    """Who waits for messages about what. A key is a job's id, the negative number of a client, or 0 for everything.

    Args:
        has_work: whether more messages about a key are to come without anybody submitting anything.
    """

    def __init__(self, has_work: Callable[[int], bool]) -> None:
        self._has_work = has_work
        self._waiting: dict[int, dict[asyncio.Future[None], bool]] = {}

    def is_quiet(self, keys: Iterable[int]) -> bool:
        """Whether no more messages are to come about these keys."""
        return not any(map(self._has_work, keys))

    async def hear(self, keys: Sequence[int], timeout_seconds: float, *, quiet: bool) -> None:
        """Wait until there is news about one of the keys (`quiet`: until it has become quiet), or the time is up."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for key in keys:
            self._waiting.setdefault(key, {})[waiting] = quiet
        try:
            await asyncio.wait((waiting,), timeout=timeout_seconds)
        finally:
            for key in keys:
                others = self._waiting[key]
                del others[waiting]
                if not others:
                    del self._waiting[key]

    def tell(self, keys: Iterable[int]) -> None:
        """There is news about these keys."""
        for key in keys:
            for waiting, quiet in self._waiting.get(key, {}).items():
                if not waiting.done() and not (quiet and self._has_work(key)):
                    waiting.set_result(None)

    def release(self) -> None:
        """Wake everybody."""
        for others in self._waiting.values():
            for waiting in others:
                if not waiting.done():
                    waiting.set_result(None)
