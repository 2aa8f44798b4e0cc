"""Predictions as a core gets them: with the submission of a job, from the jobs that had ended by then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headway.core.scheduler import Scheduler
from headway.history.predictors import Predictor
from headway.model.actions import Action, Conclude, JobStatus, Settle
from headway.model.events import Event, JobSubmitted, TaskEnded
from headway.model.instant import Duration
from headway.model.job import JobId
from headway.model.outcome import Outcome
from headway.model.policy import quantile_of
from headway.model.seen import AttemptView, JobView
from headway.model.tier import Tier


@dataclass(slots=True)
class _Open:
    """An open job, how many of its tasks have succeeded undisturbed, and how long these ran on slots of speed 1."""

    job: JobView
    tasks: int = 0
    spent: Duration = 0


class Predictions:
    """Stands beside a core: it adds predictions to events, and learns from what the core says of ended jobs.

    Args:
        predictor: makes the predictions.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._open: dict[JobId, _Open] = {}
        self._ending: AttemptView | None = None

    def told(self, event: Event, core: Scheduler) -> Event:
        """The event as the core is to handle it: a job comes with what is predicted, at the policy's quantile."""
        self._ending = None
        if isinstance(event, JobSubmitted):
            found = self.predictor.run_time(event.job, quantile_of(core.state.policy))
            return event if found is None else replace(event, predicted=max(1, found))
        if isinstance(event, TaskEnded):
            self._ending = core.state.current(event.job, event.task, event.attempt)
        return event

    def note(self, event: Event, actions: Iterable[Action], core: Scheduler) -> None:
        """Learn from what followed. Call it when the core has handled an event of `told`, before the next one."""
        if isinstance(event, JobSubmitted):
            self.follow(core.state.jobs.get(event.job.id))
        for action in actions:
            if isinstance(action, Settle):
                if action.outcome is Outcome.SUCCEEDED and self._ending is not None:
                    self._count(self._ending, core)
            elif isinstance(action, Conclude):
                known = self._open.pop(action.job, None)
                if known is not None and known.tasks and action.status is JobStatus.SUCCEEDED:
                    self.predictor.learn(known.job.spec, known.spent // known.tasks)

    def follow(self, job: JobView | None) -> None:
        """Learn from a job when it has ended; not from a service, which has no end of its own. None is skipped."""
        if job is not None and not job.endless:
            self._open[job.id] = _Open(job)

    def _count(self, attempt: AttemptView, core: Scheduler) -> None:
        """A task has succeeded: its run time counts if it ran alone in the foreground, from beginning to end."""
        known = self._open.get(attempt.job.id)
        if known is None or attempt.queued or attempt.stepped or attempt.tier is not Tier.FOREGROUND:
            return
        if attempt.since == attempt.start and not (known.job.moves or known.job.kills):
            known.tasks += 1
            known.spent += round((core.state.now - attempt.start) * core.state.slowest(attempt.slots))
