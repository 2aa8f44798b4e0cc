"""The tasks of a job, one by one: how far each is, what it waits for, and where it runs or will run."""

from __future__ import annotations

import asyncio
from typing import Final

from headway import wire
from headway.live.driver import Driver
from headway.live.reports import hindrance, slot_names, why_ended
from headway.live.store.journal import JobRow
from headway.model.actions import JobStatus
from headway.model.instant import to_seconds
from headway.model.job import JobId, Workflow
from headway.model.outcome import Outcome
from headway.model.seen import JobView
from headway.model.slots import numbers

TASKS_LOOKED_AT_ONCE: Final = 200
"""After this many tasks, other requests are served."""

_SUCCEEDED: Final = Outcome.SUCCEEDED.value

_NOBODY: Final = -1

_JOB_CANCELLED: Final = "its job was cancelled"


async def task_list(driver: Driver, row: JobRow, first: int, limit: int) -> wire.TaskList:
    """Tasks of a job from one number on, in order; each as it is when its turn comes."""
    count, looking = row.spec.tasks, _Looking(driver, row)
    last = min(first + limit, count)
    found: list[wire.TaskState] = []
    for begin in range(first, last, TASKS_LOOKED_AT_ONCE):
        found += looking.states(begin, min(begin + TASKS_LOOKED_AT_ONCE, last))
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
        causes: of tasks that were looked at, the one before it, at whatever distance, because of which it never runs:
            it failed or was cancelled; `_NOBODY` of a task that can still run.
    """

    def __init__(self, driver: Driver, row: JobRow) -> None:
        self.driver = driver
        self.job = row.id
        self.row = row
        self.spec = row.spec
        self.names = names_of(driver, row.id)
        self.graph = row.spec.graph if isinstance(row.spec, Workflow) else ()
        self.ended: dict[int, str] = {}
        self.causes: dict[int, int] = {}

    def states(self, first: int, last: int) -> list[wire.TaskState]:
        """The states of these tasks."""
        self._look(first, last)
        view = self.driver.core.state.jobs.get(self.job)
        return [self._state(task, view) for task in range(first, last)]

    def _look(self, first: int, last: int) -> None:
        self.ended |= dict.fromkeys(range(first, last), "") | dict(self.driver.journal.outcomes(self.job, first, last))

    def _state(self, task: int, view: JobView | None) -> wire.TaskState:
        name = self.names[task] if self.names else ""
        number = self.spec.numbers[task] if self.spec.numbers else task
        word = self.ended[task]
        if word:
            return wire.TaskState(task, "succeeded" if word == _SUCCEEDED else self._failed(word), name, number)
        before = self.graph[task].after if self.graph else ()
        if view is None:
            culprits = tuple(other for other in before if self._is_over(other))
            return wire.TaskState(task, "never ran", name, number, culprits, why=self._why(task))
        attempt = view.attempts.get(task)
        if attempt is not None:
            slots = slot_names(self.driver, attempt.seats or numbers(attempt.slots))
            return wire.TaskState(
                task,
                "running",
                name,
                number,
                slots=slots,
                attempt=attempt.number,
                start=to_seconds(attempt.start),
                hindered=hindrance(self.driver, view, task),
            )
        if task in view.dropped:
            return wire.TaskState(task, "cancelled", name, number)
        if view.cancelled:
            return wire.TaskState(task, "never runs", name, number, why=_JOB_CANCELLED)
        if (view.failed or view.dropped) and self._cause(task) != _NOBODY:
            culprits = tuple(other for other in before if self._is_over(other))
            return wire.TaskState(task, "never runs", name, number, culprits, why=self._why(task))
        waits = self._awaited(before, view.missing[task]) if before else ()
        start, node = view.planned.get(task, (view.promise, ""))
        return wire.TaskState(
            task,
            "waits" if waits else "ready",
            name,
            number,
            waits,
            node=node,
            start=None if start is None else to_seconds(start),
            hindered=hindrance(self.driver, view, task),
        )

    def _awaited(self, before: tuple[int, ...], missing: int) -> tuple[int, ...]:
        """Those tasks before one that have not succeeded; `missing` says how many: mostly none or all of them."""
        if not missing:
            return ()
        if missing == len(set(before)):
            return before
        return tuple(other for other in before if self._word(other) != _SUCCEEDED)

    @staticmethod
    def _failed(word: str) -> wire.TaskStateWord:
        return "cancelled" if word == Outcome.CANCELLED.value else "failed"

    def _word(self, task: int) -> str:
        """The outcome of a task, empty if it has none."""
        if task not in self.ended:
            first = task - task % TASKS_LOOKED_AT_ONCE  # who asks for one asks for its neighbours too
            self._look(first, first + TASKS_LOOKED_AT_ONCE)
        return self.ended[task]

    def _is_over(self, task: int) -> bool:
        """Whether a task can no longer succeed."""
        word = self._word(task)
        return word != _SUCCEEDED if word else self._cause(task) != _NOBODY

    def _why(self, task: int) -> str:
        """Why a task that has no outcome never runs."""
        cause = self._cause(task)
        if cause != _NOBODY:
            number = self.spec.numbers[cause] if self.spec.numbers else cause
            known = (self.names[cause] if self.names else "", f"was {number}" if number != cause else "")
            named = f" ({', '.join(filter(None, known))})" if any(known) else ""
            word = "was cancelled" if self._failed(self._word(cause)) == "cancelled" else "failed"
            return f"task {cause}{named} {word}"
        if self.row.status is JobStatus.CANCELLED:
            return f"{_JOB_CANCELLED}{why_ended(self.driver, self.row)}"
        return f"its job has ended: {self.row.status.value}" if self.row.status else ""

    def _cause(self, task: int) -> int:
        """Because of which task one that has no outcome never runs; `_NOBODY` if it can still run."""
        left = [task]
        while left:
            here = left[-1]
            if here in self.causes:
                left.pop()
                continue
            before = self.graph[here].after if self.graph else ()
            unknown = [other for other in before if not self._word(other) and other not in self.causes]
            if unknown:
                left += unknown
                continue
            open_or_lost = [other for other in before if self._word(other) != _SUCCEEDED]
            found = [other if self._word(other) else self.causes[other] for other in open_or_lost]
            self.causes[here] = min((cause for cause in found if cause != _NOBODY), default=_NOBODY)
        return self.causes[task]
