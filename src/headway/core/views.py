"""A job as the core sees it when it comes."""

from __future__ import annotations

from collections.abc import Mapping

from headway.model.instant import LONGEST, Duration
from headway.model.job import Bag, JobSpec, Service, Workflow
from headway.model.seen import JobView, RunTimes


def estimate_of(spec: JobSpec) -> Duration | None:
    """What a job's terms say of the run time of its tasks; None: nothing."""
    estimate = spec.estimate
    if estimate is None and isinstance(spec, Workflow):
        estimate = sum(task.estimate for task in spec.graph) // len(spec.graph)
    if isinstance(spec, Service):
        estimate = LONGEST  # an instance runs until it is asked to end
    if estimate is None and spec.profile:
        estimate = sum(run_time for _, run_time in spec.profile) // len(spec.profile)
    return estimate


def view_of(spec: JobSpec, estimate_default: Duration) -> JobView:
    """A job as it is when it has just been submitted.

    Args:
        estimate_default: the assumed run time of a task without an estimate.
    """
    estimate = estimate_of(spec)
    job = JobView(spec, estimate_default if estimate is None else estimate)
    if isinstance(spec, Workflow):
        job.missing, job.followers = edges(spec)
        job.again = [number for number, missing in enumerate(job.missing) if not missing]
        job.ready, job.fresh = len(job.again), job.tasks
    elif isinstance(spec, Bag):
        job.observed = RunTimes(job.estimate, count=int(estimate is not None))
    if spec.profile:
        job.times = {node_class: RunTimes(run_time, count=1) for node_class, run_time in spec.profile}
    return job


def predict(job: JobView, run_time: Duration) -> None:
    """Let a prediction take the place of a job's estimate, if it is shorter and one can say how long its tasks run."""
    if run_time < job.estimate and not (job.times or isinstance(job.spec, Workflow | Service)):
        job.estimate, job.predicted = run_time, True
        if job.observed is not None:
            job.observed = RunTimes(run_time, count=1)


def unpredict(job: JobView) -> None:
    """Let a prediction that did not hold give way to what the job's terms say."""
    job.estimate, job.predicted = job.said, False
    if job.observed is not None:
        job.observed = RunTimes(job.said, count=int(estimate_of(job.spec) is not None))


def more(counts: Mapping[int, int], task: int, by: int = 1) -> Mapping[int, int]:
    """Counts with so much more for a task: the same ones, unless they are the empty ones that all jobs share."""
    own = counts if isinstance(counts, dict) else {}
    own[task] = own.get(task, 0) + by
    return own


def without(counts: Mapping[int, int], task: int) -> Mapping[int, int]:
    """Counts with nothing for a task."""
    if isinstance(counts, dict):
        counts.pop(task, None)
    return counts


def edges(spec: Workflow) -> tuple[list[int], list[list[int]]]:
    """Per task of a workflow, for how many tasks it waits, and which tasks wait for it."""
    missing: list[int] = []
    waiting: list[list[int]] = [[] for _ in spec.graph]
    for number, task in enumerate(spec.graph):
        after = task.after if len(task.after) < 2 else sorted(set(task.after))
        missing.append(len(after))
        for before in after:
            waiting[before].append(number)
    return missing, waiting


def followers(spec: Workflow) -> list[list[int]]:
    """Per task of a workflow, the tasks that wait for it."""
    return edges(spec)[1]
