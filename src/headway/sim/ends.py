"""Records when the jobs of a state start and end, and ends the simulation when there is no more to know."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.model.actions import Action
from headway.model.events import Event
from headway.model.instant import Instant
from headway.model.job import JobId


class Over(Exception):
    """All that was asked about has happened, or the limit of work is reached."""


class Ends(Recorder):
    """Ends the simulation when some jobs have ended, or after too much work.

    Args:
        jobs: those that are asked about.
        work_max: how many events are noted at most.
    """

    def __init__(self, core: Scheduler, jobs: Iterable[JobId], work_max: int) -> None:
        super().__init__(core, holdings=False)
        self._open: set[JobId] = set(jobs)
        self._work_left = work_max

    def take_over(self) -> None:
        """A start that is expected is that of the next task, not of those that run."""
        super().take_over()
        self.start.clear()

    def note(self, event: Event, actions: list[Action], start: Instant) -> None:
        """Record what an event has changed.

        Raises:
            Over: there is no more to know.
        """
        before = len(self.end)
        super().note(event, actions, start)
        self._work_left -= 1
        self._open.difference_update(islice(reversed(self.end), len(self.end) - before))
        if not self._open or self._work_left <= 0:
            raise Over
