"""Results that a client has received and has not acknowledged yet."""

from __future__ import annotations

from typing import Final

from headway.model.job import JobId
from headway.wire import TaskRange

EVERY_SECONDS: Final = 1.0
"""A result is acknowledged this long after it came, with all that came meanwhile, so that acknowledging costs
nothing.
"""


class Receipts:
    """Results received since the last acknowledgement. For one thread at a time."""

    def __init__(self) -> None:
        self._tasks: dict[JobId, list[int]] = {}
        self._ended: list[JobId] = []
        self._due: float | None = None

    def took(self, job: JobId, task: int) -> None:
        """The result of a task has arrived."""
        self._tasks.setdefault(job, []).append(task)

    def ended(self, job: JobId) -> None:
        """Everything about a job has arrived."""
        self._tasks.pop(job, None)
        self._ended.append(job)

    def wait(self, now: float) -> float | None:
        """Seconds until they must be acknowledged, 0 if that is now; None if there are none.

        Args:
            now: seconds on any clock that only goes forward.
        """
        if not (self._tasks or self._ended):
            return None
        if self._due is None:
            self._due = now + EVERY_SECONDS
        return max(0.0, self._due - now)

    def ranges(self) -> tuple[TaskRange, ...]:
        """What is to be acknowledged."""
        found = [TaskRange(job) for job in self._ended]
        for job, tasks in self._tasks.items():
            first = last = None
            for task in sorted(tasks):
                if last is not None and task != last:
                    found.append(TaskRange(job, first or 0, last))
                    first = None
                first = task if first is None else first
                last = task + 1
            found.append(TaskRange(job, first or 0, last))
        return tuple(found)

    def clear(self) -> None:
        """They are acknowledged."""
        self._tasks.clear()
        self._ended.clear()
        self._due = None
