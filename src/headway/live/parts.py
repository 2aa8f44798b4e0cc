"""Long work, done part by part: between the parts, others are served."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Dropped(Exception):
    """Nobody wants the work done any more."""


class WorkInParts(Generic[T]):
    """Work that is done by calling `step` until it returns True.

    Args:
        steps: the work; it pauses wherever it yields, and returns its result.
    """

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps
        self._error: BaseException | None = None
        self._result: list[T] = []

    def step(self) -> bool:
        """Do the next part, if any is left; returns whether the work is done, as `is_done` then says.

        Raises:
            Exception: what the work raised; then nothing of it is left.
        """
        if not self.is_done:
            self._go_on()
        if self._error is not None:
            raise self._error
        return self.is_done

    def do_rest(self) -> None:
        """Do all that is left. What the work raises is raised by the next `step`."""
        while not self.is_done:
            self._go_on()

    def whole(self) -> T:
        """Do all that is left; returns the result.

        Raises:
            Exception: what the work raised.
        """
        while not self.step():
            pass
        return self._result[0]

    def drop(self) -> None:
        """Leave the rest undone; the work may undo what it has done. Each later `step` raises `Dropped`."""
        if not self.is_done:
            self._error = Dropped("the work was dropped before it was done")
        self._steps.close()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return bool(self._result) or self._error is not None

    def _go_on(self) -> None:
        try:
            next(self._steps)
        except StopIteration as end:
            self._result.append(end.value)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
