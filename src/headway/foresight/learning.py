"""How long tasks run, learnt from the jobs that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from headway.core.record import StateRecord, placed
from headway.foresight.futures import Exactly, RunTime, RunTimesOf
from headway.history.prior import PRIOR
from headway.history.similar import Similar, running_of, sample_of
from headway.history.tasks import as_job, mean_estimate
from headway.model.instant import SECOND, Duration
from headway.model.job import ESTIMATE_DEFAULT, AnyJob, JobId, Rigid, Service, Workflow
from headway.model.workload import Workload

NONE_LEARNT: Final[Mapping[JobId, Duration]] = {}


class RunTimesKnown:
    """How long tasks run, by the last jobs like theirs that had ended.

    Args:
        default: the core's estimate of a task whose job has none.
    """

    def __init__(self, default: Duration) -> None:
        self._default = default
        self._similar = Similar()

    def learn(self, spec: AnyJob, took: Duration) -> None:
        """A job has ended, whose tasks ran so long in the mean."""
        if took > 0:
            self._similar.learn(as_job(spec, mean_estimate(spec)), took)

    def __call__(self, spec: AnyJob, task: int) -> RunTime:
        """The run time of a task of a job, if nothing runs."""
        return self.beside(())(spec, task)

    def beside(
        self, running: Iterable[tuple[AnyJob, Duration]], own: Mapping[JobId, Duration] = NONE_LEARNT
    ) -> RunTimesOf:
        """The run times of tasks while jobs run, each for so long by now.

        Args:
            running: of workflows nothing is known from it, because their tasks differ.
            own: what tasks of open jobs tell of their others, see `own_run_times`. Where nothing else is known,
                the others take about as long.
        """
        beside = running_of((job, ran) for job, ran in running if not isinstance(job, Workflow | Service))
        found: dict[tuple[object, ...], RunTime] = {}

        def run_time(spec: AnyJob, task: int) -> RunTime:
            if spec.id in own and not self.knows(spec):
                return sample_of([(share * own[spec.id] / SECOND, 1.0) for share in PRIOR])
            estimate = spec.said(task)
            alike = spec.user, spec.name, estimate, spec.width, spec.features
            known = found.get(alike)
            if known is None:
                sample = self._similar.sample(as_job(spec, estimate), running=beside)
                known = found[alike] = sample or Exactly(self._default / SECOND)
            return known

        return run_time

    def at(self, state: StateRecord) -> RunTimesOf:
        """The run times of tasks as they are known in a state, from what runs there too."""
        return self.beside(running_in(state), own_run_times(state))

    def unknown(self, state: StateRecord) -> set[JobId]:
        """The open jobs of which nothing tells how long they run: no estimate, no past, and no task that has ended.

        Not services: they do not end.
        """
        own = own_run_times(state)
        jobs = (job.spec for job in state.jobs if not isinstance(job.spec, Service))
        return {spec.id for spec in jobs if spec.id not in own and not self.knows(spec)}

    def knows(self, spec: AnyJob) -> bool:
        """Whether anything is known of the run times of all tasks of a job: estimates, or the past."""
        tasks = range(spec.tasks) if isinstance(spec, Workflow) else (0,)
        return all(self._similar.knows(as_job(spec, estimate)) for estimate in {spec.said(task) for task in tasks})


def own_run_times(state: StateRecord) -> dict[JobId, Duration]:
    """What the core has learnt of the tasks of open jobs without an estimate from those that have ended."""
    return {
        job.spec.id: job.estimate
        for job in state.jobs
        if job.ended and job.estimate and job.spec.estimate is None and not isinstance(job.spec, Workflow | Service)
    }


def running_in(state: StateRecord) -> Iterator[tuple[AnyJob, Duration]]:
    """The jobs of which tasks run and none has ended, with how long these have run in the mean, at speed factor 1."""
    speeds = {slot: node.spec.speed for node, places in placed(state) for slot in places}
    for job in state.jobs:
        ran = [
            (state.now - attempt.start) * min(speeds[slot] for slot in attempt.slots)
            for attempt in job.attempts
            if attempt.running and attempt.start < state.now
        ]
        if ran and not job.ended:
            yield job.spec, round(sum(ran) / len(ran))


class RunTimesOfLog:
    """The same for the jobs of a log, by their positions, for trials of forecasts: a user's jobs are all alike."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known = RunTimesKnown(ESTIMATE_DEFAULT)

    def _terms(self, position: int) -> AnyJob:
        log = self._workload
        estimate = max(0, int(log.estimate[position])) or None  # below 0: there is none
        width = int(log.width[position])
        return Rigid(id=position, release=0, user=str(log.user[position]), name="job", estimate=estimate, width=width)

    def learn(self, position: int) -> None:
        """A job has ended."""
        self._known.learn(self._terms(position), int(self._workload.runtime[position]))

    def knows(self, position: int) -> bool:
        """Whether anything is known of the run time of a job."""
        return self._known.knows(self._terms(position))

    def expected(self, positions: Iterable[int], state: StateRecord) -> dict[int, RunTime]:
        """How long the tasks of jobs run, by what has been learnt and what runs in a state."""
        ran = ((self._terms(job.id), ran) for job, ran in running_in(state))
        known = self._known.beside(ran)
        return {position: known(self._terms(position), 0) for position in positions}
