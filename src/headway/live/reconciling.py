"""Brings the core and the tables into agreement again after part of the journal was lost.

A job continues if its row, its work and its functions are there, and the core counts as many of its tasks settled as
there are results. What other jobs have done is not known: they end as cancelled, and their results are kept.
A job that the core does not know starts again if none of its tasks has been settled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headway.core.scheduler import Scheduler
from headway.live.store.journal import EndedRow, JobRow
from headway.live.store.messages import NewMessage
from headway.model.actions import JobStatus
from headway.model.events import Event, Incident, JobCancelled, JobSubmitted, TaskEnded
from headway.model.instant import Instant
from headway.model.job import JobId
from headway.model.outcome import Outcome


@dataclass(slots=True)
class Reconciled:
    """Rows to be written: of jobs that ended, see `Batch.ended`, and the messages about them."""

    ended: list[EndedRow] = field(default_factory=list)
    messages: list[NewMessage] = field(default_factory=list)


def reconcile(
    core: Scheduler,
    now: Instant,
    feed: Callable[[Event], None],
    rows: Mapping[JobId, JobRow],
    progress: Mapping[JobId, tuple[int, int, int]],
    lacking: Mapping[JobId, str],
    message: int,
) -> Reconciled:
    """Feed the core the events that it needs.

    Args:
        now: the instant of these events.
        feed: lets the core handle an event, which is recorded.
        rows: open jobs as the journal has them; with their `progress`, and what they are `lacking`.
        message: the greatest number of a message so far.
    """
    made = Reconciled()

    def leave(job: JobId) -> None:
        feed(JobCancelled(now, job))
        view = core.state.jobs.get(job)
        for attempt in () if view is None else list(view.attempts.values()):
            feed(TaskEnded(now, job, attempt.task, attempt.number, Outcome.KILLED))

    def end(row: JobRow, why: str) -> None:
        done, failed, _ = progress.get(row.id, (0, 0, 0))
        word = JobStatus.CANCELLED.value
        made.ended.append((word, row.started, now, done, failed, False, None, row.id))
        made.messages.append((message + 1 + len(made.messages), row.client, row.id, None, now, word, 0, None))
        feed(Incident(now, "loss_accepted", f"job {row.id}", f"it was ended: {why}"))

    for job, view in list(core.state.jobs.items()):
        row = rows.get(job)
        if row is None:
            leave(job)
            continue
        done, _, cancelled = progress.get(job, (0, 0, 0))
        settled, results = row.spec.tasks - view.unfinished, done + cancelled
        if job in lacking:
            leave(job)
            end(row, lacking[job])
        elif settled != results:
            leave(job)
            end(row, f"{settled} of its tasks were settled as far as is known, and there are {results} results")
    for job, row in rows.items():
        if job in core.state.jobs or any(job == ended[-1] for ended in made.ended):
            continue
        if job in lacking:
            end(row, lacking[job])
        elif job in progress:
            end(row, "what was done of it is not known any more")
        else:
            feed(JobSubmitted(now, row.spec))
            feed(Incident(now, "loss_accepted", f"job {job}", "it begins again: what happened of it is lost"))
    return made
