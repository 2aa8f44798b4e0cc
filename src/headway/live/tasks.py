"""The tasks of a job, one by one: how far each is, what it waits for, and where it runs or will run."""

from __future__ import annotations

import asyncio
from typing import Final

from headway import wire
from headway.live.driver import Driver
from headway.live.reports import slot_names
from headway.live.store.journal import JobRow
from headway.model.instant import to_seconds
from headway.model.job import JobId, Workflow
from headway.model.outcome import Outcome
from headway.model.slots import numbers
from headway.model.snapshot import JobView

LOOKED_AT_ONCE: Final = 200
"""After this many tasks, other requests are served."""

_SUCCEEDED: Final = Outcome.SUCCEEDED.value


async def task_list(driver: Driver, row: JobRow, first: int, limit: int) -> wire.TaskList:
    """Tasks of a job from one number on, in order; each as it is when its turn comes."""
    count, looking = row.spec.tasks, _Looking(driver, row)
    last = min(first + limit, count)
    found: list[wire.TaskState] = []
    for begin in range(first, last, LOOKED_AT_ONCE):
        found += looking.states(begin, min(begin + LOOKED_AT_ONCE, last))
        await asyncio.sleep(0)
    return wire.TaskList(tuple(found), last < count)


def names_of(driver: Driver, job: JobId) -> tuple[str, ...]:
    """What the tasks of a job are called; empty if they have no names, or those are not kept."""
    kept = driver.open.get(job)
    work = kept.work if kept is not None and kept.work is not None else driver.journal.kept_work(job)
    return work.names if isinstance(work, wire.Steps) else ()


class _Looking:
    """Looks at the tasks of one job.

    Attributes:
        ended: the outcomes that were asked for, by task; empty for a task without one.
        lost: of tasks that were looked at, whether one before it failed or was cancelled, so that it never runs.
    """

    def __init__(self, driver: Driver, row: JobRow) -> None:
        self.driver = driver
        self.job = row.id
        self.spec = row.spec
        self.names = names_of(driver, row.id)
        self.graph = row.spec.graph if isinstance(row.spec, Workflow) else ()
        self.ended: dict[int, str] = {}
        self.lost: dict[int, bool] = {}

    def states(self, first: int, last: int) -> list[wire.TaskState]:
        """The states of these tasks."""
        self.ended |= dict.fromkeys(range(first, last), "") | dict(self.driver.journal.outcomes(self.job, first, last))
        view = self.driver.core.state.jobs.get(self.job)
        return [self._state(task, view) for task in range(first, last)]

    def _state(self, task: int, view: JobView | None) -> wire.TaskState:
        name = self.names[task] if self.names else ""
        number = self.spec.numbers[task] if self.spec.numbers else task
        word = self.ended[task]
        if word:
            return wire.TaskState(task, "succeeded" if word == _SUCCEEDED else self._failed(word), name, number)
        if view is None:
            return wire.TaskState(task, "never ran", name, number)
        attempt = view.attempts.get(task)
        if attempt is not None:
            slots = slot_names(self.driver, attempt.seats or numbers(attempt.slots))
            return wire.TaskState(
                task, "running", name, number, slots=slots, attempt=attempt.number, start=to_seconds(attempt.start)
            )
        if task in view.dropped:
            return wire.TaskState(task, "cancelled", name, number)
        before = self.graph[task].after if self.graph else ()
        if (view.failed or view.dropped) and self._is_lost(task):
            culprits = tuple(other for other in before if self._is_over(other))
            return wire.TaskState(task, "never runs", name, number, culprits)
        waits = tuple(other for other in before if self._word(other) != _SUCCEEDED) if before else ()
        start, node = view.planned.get(task, (view.promise, ""))
        return wire.TaskState(
            task,
            "waits" if waits else "ready",
            name,
            number,
            waits,
            node=node,
            start=None if start is None else to_seconds(start),
        )

    @staticmethod
    def _failed(word: str) -> wire.TaskStateWord:
        return "cancelled" if word == Outcome.CANCELLED.value else "failed"

    def _word(self, task: int) -> str:
        """The outcome of a task, empty if it has none."""
        if task not in self.ended:
            self.ended[task] = dict(self.driver.journal.outcomes(self.job, task, task + 1)).get(task, "")
        return self.ended[task]

    def _is_over(self, task: int) -> bool:
        """Whether a task can no longer succeed."""
        word = self._word(task)
        return word != _SUCCEEDED if word else self._is_lost(task)

    def _is_lost(self, task: int) -> bool:
        """Whether a task that has no outcome never runs, because one before it can no longer succeed."""
        left = [task]
        while left:
            here = left[-1]
            if here in self.lost:
                left.pop()
                continue
            before = self.graph[here].after if self.graph else ()
            unknown = [other for other in before if not self._word(other) and other not in self.lost]
            if unknown:
                left += unknown
                continue
            self.lost[here] = any(
                self._word(other) != _SUCCEEDED if self._word(other) else self.lost[other] for other in before
            )
        return self.lost[task]
