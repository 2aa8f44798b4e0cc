"""Services in a simulation: requests never reach the core, so each service keeps its own time between two windows.

What the core does to a service is how many instances it has when. What it learns is a `Window` now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from headway.core.scheduler import Scheduler
from headway.model.actions import (
    Action,
    Consult,
    Kill,
    Launch,
    RentMachine,
    ReturnMachine,
    Suspend,
    SwitchOff,
    SwitchOn,
    Wake,
)
from headway.model.events import Event, JobCancelled, JobSubmitted, TaskEnded, WindowEnded
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, Service, TaskKey
from headway.model.outcome import Outcome
from headway.model.schedule import ServiceRecord
from headway.model.window import Window
from headway.model.workload import IntArray
from headway.sim.requests import SimulatedRequests


class Answering(Protocol):
    """The requests to a service, and how they fare."""

    @property
    def end(self) -> Instant:
        """When the last window ends; then the service is cancelled."""
        ...

    def resize(self, instances: int, at: Instant) -> Instant:
        """So many instances take requests from this instant on. When all others have answered the one that they had."""
        ...

    def close(self, until: Instant) -> Window:
        """The window that ends at this instant."""
        ...

    def windows(self) -> list[Window]:
        """All windows that have ended, with what has become of their requests since."""
        ...


class KnownRequests:
    """Requests that are known beforehand, each served by the instance that is free first.

    An instance that is killed, or lost with its node, still answers the request that it has: another one would, a
    moment later.

    Args:
        service: its terms; its first window begins with its release.
        arrivals: when each request comes, in order, in microseconds.
        processing: how long each takes.
        end: when the last window ends; it is set to the end of a window.
        warm_up: how long a new instance takes until it serves.
    """

    def __init__(
        self,
        service: Service,
        arrivals: Sequence[int] | IntArray,
        processing: Sequence[int] | IntArray,
        end: Instant,
        *,
        warm_up: Duration = 0,
    ) -> None:
        begin, length = service.release, service.window
        self.end = begin + length * -(-max(1, end - begin) // length)
        self._requests = SimulatedRequests(arrivals, processing, service.threshold, warm_up=warm_up, start=begin)
        self._warm_up = warm_up
        self._first_ready = NEVER
        self._arrivals = np.asarray(arrivals, dtype=np.int64)
        self._processing = np.asarray(processing, dtype=np.int64)
        self._starts = [begin]
        self._parts = [0]
        self._closed: list[Window] = []
        self._instance_time = 0

    def resize(self, instances: int, at: Instant) -> Instant:
        """See `Answering`."""
        self._go(at)
        if instances > self._requests.units:
            self._first_ready = min(self._first_ready, at + self._warm_up)
        return max([at, *self._requests.resize(instances)])

    def close(self, until: Instant) -> Window:
        """See `Answering`."""
        self._go(until)
        begin = self._starts[-1]
        first, last = np.searchsorted(self._arrivals, (begin, until))
        processing, processing_variation = _mean_and_variation(self._processing[first:last])
        _, arrival_variation = _mean_and_variation(np.diff(self._arrivals[max(0, first - 1) : last]))
        window = Window(
            begin,
            until - begin,
            arrivals=int(last - first),
            in_time=self._in_time(len(self._closed), len(self._requests.windows)),
            queued=self._requests.queued(),
            instances=self._instance_time / (until - begin),
            processing=processing,
            processing_variation=processing_variation,
            arrival_variation=arrival_variation,
            warm_up=float(self._warm_up) if self._first_ready <= until else 0.0,
        )
        self._closed.append(window)
        self._starts.append(until)
        self._parts.append(len(self._requests.windows))
        self._instance_time = 0
        return window

    def windows(self) -> list[Window]:
        """See `Answering`."""
        return [
            replace(window, in_time=self._in_time(place, self._parts[place + 1]))
            for place, window in enumerate(self._closed)
        ]

    def _go(self, until: Instant) -> None:
        requests = self._requests
        if until > requests.now:
            self._instance_time += requests.units * (until - requests.now)
            requests.advance(until)

    def _in_time(self, place: int, until: int) -> int:
        return sum([part.in_time for part in self._requests.windows[self._parts[place] : until]])


def _mean_and_variation(values: IntArray) -> tuple[float, float]:
    """The mean, and the squared coefficient of variation; 0 without values."""
    mean = float(values.mean()) if len(values) else 0.0
    return mean, float(values.var()) / mean**2 if mean else 0.0


class Served:
    """The services of a simulation.

    Args:
        services: the terms of each service, and its requests. Their ids are those of no other job.

    Attributes:
        open: the services that have not ended.
    """

    def __init__(self, services: Sequence[tuple[Service, Answering]]) -> None:
        self._services = {spec.id: (spec, requests) for spec, requests in services}
        self._running: dict[TaskKey, int] = {}
        self.open = set(self._services)

    def has(self, action: Action) -> bool:
        """Whether an action is about a service."""
        return (
            not isinstance(action, Wake | Consult | SwitchOff | SwitchOn | RentMachine | ReturnMachine)
            and action.job in self._services
        )

    def begin(self) -> list[Event]:
        """What happens first: they are submitted."""
        return [JobSubmitted(spec.release, spec) for spec, _ in self._services.values()]

    def windows_end(self) -> list[tuple[Instant, JobId]]:
        """When the first window of each service ends."""
        return [(spec.release + spec.window, spec.id) for spec, _ in self._services.values()]

    def end_window(self, job: JobId, at: Instant) -> list[Event]:
        """A window of a service ends, and with the last one the service."""
        _, requests = self._services[job]
        events: list[Event] = [WindowEnded(at, job, requests.close(at))]
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
        key, ended = (action.job, action.task), at
        if isinstance(action, Launch):
            self._running[key] = action.attempt
            self._resize(action.job, at)
            return []
        if self._running.pop(key, None) is not None:
            idle = self._resize(action.job, at)
            ended = idle if isinstance(action, Suspend) else at
        return [TaskEnded(ended, action.job, action.task, action.attempt, Outcome.KILLED)]

    def lose(self, core: Scheduler) -> None:
        """Forget the instances that the core has given up."""
        for (job, task), number in list(self._running.items()):
            view = core.state.jobs.get(job)
            attempt = None if view is None else view.attempts.get(task)
            if attempt is None or attempt.number != number:
                del self._running[job, task]
                self._resize(job, core.state.now)

    def _resize(self, job: JobId, at: Instant) -> Instant:
        return self._services[job][1].resize(sum([1 for key in self._running if key[0] == job]), at)

    def records(self) -> tuple[ServiceRecord, ...]:
        """What has become of each service until now."""
        return tuple([ServiceRecord(spec, tuple(requests.windows())) for spec, requests in self._services.values()])
