"""A trace on a running server: its jobs as tasks that sleep, submitted one after the other at their times."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from headway.client.client import Client
from headway.client.job import Job, Task
from headway.client.waiters import Waiter
from headway.errors import HeadwayError
from headway.model.instant import NEVER, from_seconds, to_seconds
from headway.model.job import SHAPES, Kind
from headway.model.schedule import NOT_YET, STATUSES, Course, Schedule, schedule_of
from headway.model.workload import BagTimes, Workload
from headway.wire import JobReport


class Replay:
    """Submits the jobs of a workload at their releases, counted from the first one, and reports the outcome.

    A task sleeps as long as it runs on a node of speed factor 1, wherever it runs. Jobs keep priority, penalty rate and
    shape, estimate, sizes of tasks, profile, width, user, and the time they have until their due date.

    Attributes:
        waiters: of the jobs submitted so far, in the order of the workload.
    """

    def __init__(self, client: Client, workload: Workload) -> None:
        self.waiters: list[Waiter] = []
        self._client = client
        self._workload = workload

    def submit(self) -> None:
        """Submit all jobs, each at its time; those of one instant together. Returns when the last is accepted.

        Raises:
            HeadwayError: the server refuses a job; jobs submitted before it continue.
        """
        release = self._workload.release
        begin = time.monotonic()
        for first, last in _batches(release.tolist()):
            # Made before its time, because making it takes time too.
            jobs = [job_of(self._workload, position) for position in range(first, last)]
            left = begin + to_seconds(int(release[first] - release[0])) - time.monotonic()
            time.sleep(max(0.0, left))
            self.waiters += self._client.submit(jobs)

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return sum(waiter.done() for waiter in self.waiters)

    def wait(self) -> None:
        """Wait until all submitted jobs have ended, in whatever way."""
        if self.waiters:
            self._client.wait(*self.waiters)

    def schedule(self, slots: int) -> Schedule:
        """The outcome of the jobs, as the server reports it; microseconds since the first release.

        Only the server's journal knows which job had how many slots when. In this schedule a job has its largest number
        from start to end.

        Args:
            slots: of the cluster.

        Raises:
            HeadwayError: not all jobs of the workload were submitted.
        """
        if len(self.waiters) < len(self._workload):
            raise HeadwayError(f"{len(self.waiters)} of {len(self._workload)} jobs were submitted")
        return reported([self._client.job(waiter.job).job for waiter in self.waiters], self._workload, slots)


def _batches(releases: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First position, and the one after the last, of all jobs released at one instant."""
    first = 0
    for position in range(1, len(releases) + 1):
        if position == len(releases) or releases[position] != releases[first]:
            yield first, position
            first = position


def job_of(workload: Workload, position: int) -> Job:
    """A job of a workload as a client submits it, to be released at once; its tasks sleep."""
    due, estimate = int(workload.due[position]), int(workload.estimate[position])
    runtime = int(workload.runtime[position])
    job = Job(
        f"job {workload.label[position]}",
        due=None if due >= NEVER else to_seconds(due - int(workload.release[position])),
        priority=float(workload.priority[position]),
        rate=float(workload.rate[position]),
        shape=SHAPES[workload.shape[position]],
        estimate=None if estimate < 0 else to_seconds(estimate),
        cpu=workload.uses.get(position, None if math.isnan(cpu := float(workload.cpu[position])) else cpu),
        user=str(workload.user[position]),
    )
    if workload.kind[position] == Kind.RIGID:
        job.width = int(workload.width[position])
        job.add_task(_nap(runtime))
    elif position in workload.workflows:
        for spec in workload.workflows[position]:
            before = [job.tasks[number] for number in spec.after]
            task = _nap(spec.estimate).after(*before, sends=spec.sends)
            job.add_task(task, cores=spec.cores, estimate=to_seconds(spec.estimate))
    else:
        times = workload.bags.get(position, BagTimes())
        job.sizes = times.sizes
        job.profile = {node_class: to_seconds(run_time) for node_class, run_time in times.profile}
        for lasts in times.tasks or [runtime] * int(workload.tasks[position]):
            job.add_task(_nap(lasts))
    return job


def _nap(microseconds: int) -> Task:
    return Task(time.sleep, to_seconds(microseconds))


def reported(reports: Sequence[JobReport], workload: Workload, slots: int) -> Schedule:
    """A schedule from a server's reports on the jobs of a workload, in its order; as `Replay.schedule`."""
    begin = min(report.release for report in reports)

    def since(instant: float | None, otherwise: int) -> int:
        return otherwise if instant is None else from_seconds(instant) - from_seconds(begin)

    release = np.array([since(report.release, 0) for report in reports], dtype=np.int64)
    due = [since(report.due, NEVER) for report in reports]
    submitted = replace(workload, release=release, due=np.array(due, dtype=np.int64))
    return schedule_of(
        submitted,
        Course(
            [since(report.started, NOT_YET) for report in reports],
            [since(report.ended, NOT_YET) for report in reports],
            slots=np.minimum(np.maximum(workload.tasks, workload.width), slots),
            status=[STATUSES.index(report.status) for report in reports],
        ),
        slots,
    )
