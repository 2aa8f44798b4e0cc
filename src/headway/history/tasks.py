"""The tasks of workflows as history sees them: each like a job of its own that has the estimate of that task.

So what has been learnt of other jobs, times or shares of estimates, counts for them too.
"""

from __future__ import annotations

from headway.model.instant import Duration
from headway.model.job import Bag, JobSpec, Workflow


def mean_estimate(job: JobSpec) -> Duration | None:
    """What a job's terms say of the mean run time of its tasks; None: nothing, or not of all."""
    if not isinstance(job, Workflow):
        return job.estimate
    found = [estimate for task in range(job.tasks) if (estimate := job.said(task)) is not None]
    return sum(found) // len(found) if len(found) == job.tasks else None


def as_job(job: JobSpec, estimate: Duration | None) -> JobSpec:
    """The terms of a job that tell how long others like it run, of a workflow as if it were a bag."""
    if not isinstance(job, Workflow):
        return job
    terms = job.id, job.release, estimate, job.due, job.priority, job.rate, job.shape, job.user, job.name
    return Bag(*terms, features=job.features, tasks=job.tasks)
