"""Cancelling of jobs and of single tasks."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify

from headway.core.pool import CANCELLED, Pool
from headway.model.seen import JobView


def drop_ready_tasks(pool: Pool, job: JobView) -> None:
    """Start nothing more of the job, because it was cancelled; slots that it has and does not use are freed."""
    pool.step_out(job)
    if job.ready:
        job.ready = 0
        job.fresh, job.again = job.tasks, []
        if job.release <= pool.now:
            pool.wait_no_more(job)
    for task in list(job.apart):
        pool.state.leave_apart(job, task)
    pool.give_up(job, job.held)


def open_tasks(job: JobView, tasks: Iterable[int]) -> list[int]:
    """Those of these tasks that can still be cancelled, rising: they wait or run, and are not cancelled yet."""
    again, missing = {*job.again, *job.apart}, job.missing
    return [
        task
        for task in sorted(set(tasks))
        if not job.cancelled
        and 0 <= task < job.tasks
        and task not in job.dropped
        and (task in job.attempts or task >= job.fresh or task in again or (bool(missing) and missing[task] > 0))
    ]


def drop_tasks(pool: Pool, job: JobView, tasks: list[int]) -> None:
    """Do not start these tasks of `open_tasks`. Those that run are asked to end, and settled when they have ended."""
    ready: set[int] = set()
    dropped = job.dropped if isinstance(job.dropped, set) else set[int]()
    job.dropped = dropped
    pool.look_at_plan(job)
    for task in tasks:
        dropped.add(task)
        attempt = job.attempts.get(task)
        if attempt is not None:
            pool.ask_to_end(attempt)
            continue
        if task in job.apart:
            pool.state.leave_apart(job, task)
        elif not job.missing or not job.missing[task]:
            ready.add(task)
        pool.close_task(job, task, job.tries.get(task, 0), CANCELLED)
    if not ready:
        return
    pool.step_out(job)
    skipped = range(job.fresh, max(ready) + 1)
    job.fresh = max(job.fresh, max(ready) + 1)
    job.again = [task for task in (*job.again, *skipped) if task not in ready]
    heapify(job.again)
    job.ready -= len(ready)
    if not job.ready:
        if job.release <= pool.now:
            pool.wait_no_more(job)
        if job.rigid:
            pool.give_up(job, job.held)
    else:
        pool.step_in(job)
