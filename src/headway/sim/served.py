"""Services in a simulation: requests never reach the core, so each service keeps its own time between two windows.

What the core does to a service is how many instances it has when. What it learns is a `Window` now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Consult, Kill, Launch, Suspend, Wake
from headway.model.events import Event, JobCancelled, JobSubmitted, TaskEnded, WindowEnded
from headway.model.instant import Instant
from headway.model.job import JobId, Service
from headway.model.outcome import Outcome
from headway.model.window import Window

Place = tuple[JobId, int]


class Requests(Protocol):
    """The requests to a service, and how they fare."""

    @property
    def end(self) -> Instant:
        """When the last window ends; then the service is cancelled."""
        ...

    def start(self, instance: int, at: Instant) -> None:
        """An instance takes requests from this instant on."""
        ...

    def stop(self, instance: int, at: Instant) -> Instant:
        """An instance takes no more requests; when it has answered the one that it has."""
        ...

    def lose(self, instance: int, at: Instant) -> None:
        """An instance is gone. Another takes its request."""
        ...

    def window(self, until: Instant) -> Window:
        """The window that ends at this instant."""
        ...


class Served:
    """The services of a simulation.

    Args:
        services: the terms of each service, and its requests. Their ids are those of no other job.

    Attributes:
        windows: by service, all windows that have ended.
    """

    def __init__(self, services: Sequence[tuple[Service, Requests]]) -> None:
        self._services = {spec.id: (spec, requests) for spec, requests in services}
        self._running: dict[Place, int] = {}
        self.windows: dict[JobId, list[Window]] = {spec.id: [] for spec, _ in services}
        self.open = set(self._services)

    def has(self, action: Action) -> bool:
        """Whether an action is about a service."""
        return not isinstance(action, Wake | Consult) and action.job in self._services

    def begin(self) -> list[Event]:
        """What happens first: they are submitted."""
        return [JobSubmitted(spec.release, spec) for spec, _ in self._services.values()]

    def windows_end(self) -> list[tuple[Instant, JobId]]:
        """When the first window of each service ends."""
        return [(spec.release + spec.window, spec.id) for spec, _ in self._services.values()]

    def end_window(self, job: JobId, at: Instant) -> list[Event]:
        """A window of a service ends, and with the last one the service."""
        _, requests = self._services[job]
        window = requests.window(at)
        self.windows[job].append(window)
        events: list[Event] = [WindowEnded(at, job, window)]
        if at >= requests.end:
            self.open.discard(job)
            events.append(JobCancelled(at, job, "its requests have ended"))
        return events

    def next_window(self, job: JobId, at: Instant) -> Instant:
        """When the next window of a service ends."""
        return at + self._services[job][0].window

    def perform(self, action: Action, at: Instant) -> list[TaskEnded]:
        """Do what the core asks for; the ends that follow from that, maybe later."""
        if not isinstance(action, Launch | Kill | Suspend):
            return []
        place = action.job, action.task
        requests = self._services[action.job][1]
        if isinstance(action, Launch):
            self._running[place] = action.attempt
            requests.start(action.task, at)
            return []
        ended = at
        if self._running.pop(place, None) is not None:
            if isinstance(action, Suspend):
                ended = requests.stop(action.task, at)
            else:
                requests.lose(action.task, at)
        return [TaskEnded(ended, action.job, action.task, action.attempt, Outcome.KILLED)]

    def lose(self, core: Scheduler) -> None:
        """Forget the instances that the core has given up."""
        for place in list(self._running):
            view = core.state.jobs.get(place[0])
            attempt = None if view is None else view.attempts.get(place[1])
            if attempt is None or attempt.number != self._running[place]:
                del self._running[place]
                self._services[place[0]][1].lose(place[1], core.state.now)

    def penalty(self, job: JobId) -> float:
        """What the windows of a service have cost so far (Chang16, equation 2)."""
        spec = self._services[job][0]
        return sum([penalty_of(spec, window) for window in self.windows[job]])


def penalty_of(spec: Service, window: Window) -> float:
    """What a window costs: the rate times the shape of what its share in time lacks of the wanted fraction."""
    return spec.rate * spec.shape.of(spec.fraction - window.share)
