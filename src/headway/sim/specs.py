"""The jobs of a workload as a scheduler gets them."""

from __future__ import annotations

from collections.abc import Iterator

from headway.model.instant import NEVER
from headway.model.job import JobId, JobSpec, Kind
from headway.model.workload import Workload


def specs(workload: Workload, chunk: int = 4096, *, movable: bool = False, first_id: JobId = 0) -> Iterator[JobSpec]:
    """The jobs of a workload in the order of their positions. Each is made when it is needed.

    Args:
        movable: whether tasks can be moved with the work that they have done.
        first_id: the id of the first job.
    """
    kinds, shape, uses, workflows, bags = tuple(Kind), workload.shape, workload.uses, workload.workflows, workload.bags
    befores = workload.after
    for first in range(0, len(workload), chunk):
        rows = slice(first, first + chunk)
        columns = (
            workload.release[rows].tolist(),
            workload.kind[rows].tolist(),
            workload.tasks[rows].tolist(),
            workload.width[rows].tolist(),
            workload.estimate[rows].tolist(),
            workload.due[rows].tolist(),
            workload.priority[rows].tolist(),
            workload.rate[rows].tolist(),
            map(str, workload.user[rows].tolist()),
            workload.cpu[rows].tolist(),
        )
        for position, row in enumerate(zip(*columns, strict=True), first):
            release, kind, tasks, width, estimate, due, priority, rate, user, cpu = row
            said, due = None if estimate < 0 else estimate, None if due >= NEVER else due
            terms = first_id + position, kinds[kind], release, tasks, width, said, due, priority, rate, shape, user
            cpus = uses.get(position, (cpu,) if cpu == cpu else ())
            after = befores.get(position, ()) if befores else ()
            if first_id and after:
                after = tuple([first_id + before for before in after])
            if position in workflows:
                yield JobSpec(*terms, plan=workflows[position], cpu=cpus, movable=movable, after=after)
            elif position in bags:
                bag = bags[position]
                yield JobSpec(*terms, sizes=bag.sizes, profile=bag.profile, cpu=cpus, movable=movable, after=after)
            else:
                yield JobSpec(*terms, cpu=cpus, movable=movable, after=after)
