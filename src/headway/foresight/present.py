"""The state of a server at an instant, read from its journal, and what its past tells of run times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.foresight.futures import Exactly, RunTime, RunTimesOf
from headway.foresight.learning import RunTimesKnown
from headway.live.store.decisions import event_of
from headway.live.store.history import ReplayRecorder, read_past, reading
from headway.live.store.past import PastJob
from headway.model.actions import JobStatus
from headway.model.instant import SECOND, Duration, Instant
from headway.model.job import AnyJob, JobId, JobSpec
from headway.model.policy import PolicySource
from headway.model.schedule import Schedule
from headway.times import clock_text

RunTimesTold = Mapping[JobId, tuple[Duration, ...]]
"""By job, how long its tasks run, in microseconds: one time for all of them, or one each."""


@dataclass(frozen=True, slots=True)
class Present:
    """A server at an instant.

    Attributes:
        state: its core; `now` is the instant.
        done: what became of the jobs until then.
        specs: the terms of all jobs that the journal knows.
        past: jobs that had ended, also those that the journal has deleted, in the order of their ends.
    """

    state: StateRecord
    done: Schedule
    specs: Mapping[JobId, JobSpec]
    past: tuple[PastJob, ...] = ()


def present(folder: Path, policies: PolicySource, at: Instant | None = None) -> Present:
    """Read a journal; its server may run.

    Args:
        folder: the data directory.
        at: an instant, microseconds since the Unix epoch; None: that of the last event.

    Raises:
        HeadwayError: there is no journal.
        InvalidInput: the instant is before its first event.
    """
    with reading(folder) as beginning:
        begins = beginning.state.now
        told = ReplayRecorder(Scheduler.restore(beginning.state, policies), record=True)
        told.take_over()
        for kind, body in beginning.rows:
            event = event_of(kind, body)
            begins = begins or event.at
            if at is not None and event.at > at:
                break
            told.take(event, body)
    if at is not None and at < begins:
        known = clock_text(begins / SECOND)
        raise InvalidInput("at", clock_text(at / SECOND), f"{known} or later, where the journal begins")
    state = told.core.dump()
    now = state.now if at is None else at
    past = tuple(job for job in read_past(folder) if job.ended <= now)
    return Present(replace(state, now=now), told.schedule(until=now), told.specs, past)


def run_times_known(now: Present) -> RunTimesKnown:
    """What the past of a server tells of run times: what its forecasts go by, and what only the journal knows."""
    known, done = RunTimesKnown(now.state.estimate_default), now.done
    past = {one.job.id for one in now.past}
    found = [(one.ended, one.job, one.took) for one in now.past if one.succeeded]
    for place in np.flatnonzero(done.has(JobStatus.SUCCEEDED)).tolist():
        job = int(done.label[place])
        if job not in past:
            found.append((int(done.end[place]), now.specs[job], int(done.runtime[place])))
    for _, spec, took in sorted(found, key=lambda one: (one[0], one[1].id)):
        known.learn(spec, took)
    return known


def with_told(known: RunTimesOf, told: RunTimesTold) -> RunTimesOf:
    """The same, where the run times of some jobs are told."""

    def run_time(spec: AnyJob, task: int) -> RunTime:
        times = told.get(spec.id)
        return known(spec, task) if times is None else Exactly(times[task if len(times) > 1 else 0] / SECOND)

    return run_time
