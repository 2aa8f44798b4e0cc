"""A job as the core sees it when it comes."""

from __future__ import annotations

from typing import Final

from headway.model.instant import Duration
from headway.model.job import JobSpec, Kind
from headway.model.snapshot import JobView, RunTimes

# Module constants, because looking up a member of an enumeration is slow.
BAG: Final = Kind.BAG
WORKFLOW: Final = Kind.WORKFLOW


def view_of(spec: JobSpec, estimate_default: Duration) -> JobView:
    """A job as it is when it has just been submitted.

    Args:
        estimate_default: the assumed run time of a task without an estimate.
    """
    estimate = spec.estimate
    if estimate is None and spec.plan:
        estimate = sum(task.estimate for task in spec.plan) // len(spec.plan)
    if estimate is None and spec.profile:
        estimate = sum(run_time for _, run_time in spec.profile) // len(spec.profile)
    job = JobView(spec, estimate_default if estimate is None else estimate)
    if spec.kind is WORKFLOW:
        job.missing = [len(set(task.after)) for task in spec.plan]
        job.followers = followers(spec)
        job.again = [number for number, missing in enumerate(job.missing) if not missing]
        job.ready, job.fresh = len(job.again), job.tasks
    elif spec.kind is BAG:
        job.observed = RunTimes(job.estimate, count=int(estimate is not None))
    if spec.profile:
        job.times = {node_class: RunTimes(run_time, count=1) for node_class, run_time in spec.profile}
    return job


def followers(spec: JobSpec) -> list[list[int]]:
    """Per task of a workflow, the tasks that wait for it; empty for the other kinds."""
    waiting: list[list[int]] = [[] for _ in spec.plan]
    for number, task in enumerate(spec.plan):
        for before in set(task.after):
            waiting[before].append(number)
    return waiting
