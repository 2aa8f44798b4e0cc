"""The state of a server at an instant, read from its journal, and what its past tells of run times."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.foresight.futures import Exactly, RunTime, RunTimesOf
from headway.foresight.learning import FEW, OWN, PRIOR, Shares
from headway.live.store.decisions import event_of
from headway.live.store.history import Told, reading
from headway.model.instant import SECOND, Duration, Instant
from headway.model.job import AnyJob, JobId, JobSpec
from headway.model.schedule import Schedule
from headway.model.snapshot import PolicySource
from headway.times import clock_text

LEAST: Final = 3
"""So many jobs without an estimate say how long others like them run."""


@dataclass(frozen=True, slots=True)
class Present:
    """A server at an instant.

    Attributes:
        state: its core; `now` is the instant.
        done: what became of the jobs until then.
        specs: the terms of all jobs that the journal knows.
    """

    state: StateRecord
    done: Schedule
    specs: Mapping[JobId, JobSpec]


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
        told = Told(Scheduler.restore(beginning.state, policies), record=True)
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
    return Present(replace(state, now=now), told.schedule(until=now), told.specs)


class RunTimesKnown:
    """How long tasks run, by the last jobs like theirs that had ended; a `RunTimesOf`.

    With an estimate, what earlier jobs of the same user and name took of theirs says how long. With few of these, so do
    others of the user, and of all, beside `PRIOR`: other programs may be estimated in other ways. Without, only jobs of
    the same user and name say anything: what is known of them is times, not shares of an estimate.

    Args:
        default: the core's estimate of a task whose job has none.
    """

    def __init__(self, default: Duration) -> None:
        self._default = default
        self._seen: dict[tuple[str, ...], deque[float]] = defaultdict(lambda: deque(maxlen=OWN))

    def learn(self, spec: AnyJob, took: Duration) -> None:
        """A job has ended, whose tasks ran so long in the mean."""
        if took > 0:
            for like in _likes(spec):
                self._seen[like].append(took / (spec.estimate or self._default))

    def __call__(self, spec: AnyJob, task: int) -> RunTime:
        """The run time of a task of a job."""
        same, *others = _likes(spec) or (NOTHING,)
        similar = list(self._seen.get(same, ()))
        if len(similar) < FEW and spec.estimate:
            similar += PRIOR
            for like in others:
                if len(similar) < 2 * FEW:
                    similar += list(self._seen.get(like, ()))[-FEW:]
        estimate = (spec.estimate or self._default) / SECOND
        return Shares(estimate, tuple(sorted(similar))) if similar else Exactly(estimate)

    def knows(self, spec: AnyJob) -> bool:
        """Whether anything is known of the run times of a job: an estimate, or the past."""
        return bool(spec.estimate) or any(len(self._seen.get(like, ())) >= LEAST for like in _likes(spec))


NOTHING: Final = ("", "", "")
"""What no job is like."""


def _likes(spec: AnyJob) -> tuple[tuple[str, ...], ...]:
    """To what a job belongs, the narrowest first."""
    if spec.estimate:
        return (spec.user, spec.name), (spec.user,), ()
    return ((spec.user, spec.name, "without"),) if spec.name else ()


def run_times_known(now: Present) -> RunTimesKnown:
    """What the past of a server tells of run times."""
    known, done = RunTimesKnown(now.state.estimate_default), now.done
    still = {job.spec.id for job in now.state.jobs}
    for place in np.argsort(done.end, kind="stable").tolist():
        job = int(done.label[place])
        if job not in still:
            known.learn(now.specs[job], int(done.runtime[place]))
    return known


def with_told(known: RunTimesOf, told: Mapping[JobId, Duration]) -> RunTimesOf:
    """The same, where the run times of some jobs are told: in microseconds, by job."""
    return lambda spec, task: Exactly(told[spec.id] / SECOND) if spec.id in told else known(spec, task)
