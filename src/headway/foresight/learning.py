"""How long tasks run, learnt from the jobs that have ended."""

from __future__ import annotations

from headway.foresight.futures import Exactly, RunTime
from headway.history.similar import Similar
from headway.history.tasks import as_job, mean_estimate, said
from headway.model.instant import SECOND, Duration
from headway.model.job import ESTIMATE_DEFAULT, AnyJob, Rigid, Workflow
from headway.model.workload import Workload


class RunTimesKnown:
    """How long tasks run, by the last jobs like theirs that had ended; a `RunTimesOf`.

    Args:
        default: the core's estimate of a task whose job has none.
    """

    def __init__(self, default: Duration) -> None:
        self._default = default
        self._similar = Similar()
        self._found: dict[tuple[object, ...], RunTime] = {}

    def learn(self, spec: AnyJob, took: Duration) -> None:
        """A job has ended, whose tasks ran so long in the mean."""
        if took > 0:
            self._similar.learn(as_job(spec, mean_estimate(spec)), took)
            self._found.clear()

    def __call__(self, spec: AnyJob, task: int) -> RunTime:
        """The run time of a task of a job."""
        estimate = said(spec, task)
        alike = spec.user, spec.name, estimate, spec.width, spec.features
        found = self._found.get(alike)
        if found is None:
            sample = self._similar.sample(as_job(spec, estimate))
            found = self._found[alike] = sample or Exactly(self._default / SECOND)
        return found

    def knows(self, spec: AnyJob) -> bool:
        """Whether anything is known of the run times of all tasks of a job: estimates, or the past."""
        tasks = range(spec.tasks) if isinstance(spec, Workflow) else (0,)
        return all(self._similar.knows(as_job(spec, estimate)) for estimate in {said(spec, task) for task in tasks})


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

    def expected(self, position: int) -> RunTime:
        """How long the tasks of a job run, by what has been learnt."""
        return self._known(self._terms(position), 0)
