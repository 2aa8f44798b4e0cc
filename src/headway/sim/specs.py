"""The jobs of a workload as a scheduler gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headway.model.instant import NEVER
from headway.model.job import SHAPES, Bag, JobId, JobSpec, Kind, Rigid, Workflow
from headway.model.workload import Workload

RIGID_NUMBER: Final = int(Kind.RIGID)


def specs(workload: Workload, chunk: int = 4096, *, movable: bool = False, first_id: JobId = 0) -> Iterator[JobSpec]:
    """The jobs of a workload in the order of their positions. Each is made when it is needed.

    Args:
        movable: whether tasks can be moved with the work that they have done.
        first_id: the id of the first job.
    """
    uses, workflows, bags = workload.uses, workload.workflows, workload.bags
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
            workload.shape[rows].tolist(),
            map(str, workload.user[rows].tolist()),
            workload.cpu[rows].tolist(),
        )
        for position, row in enumerate(zip(*columns, strict=True), first):
            release, kind, tasks, width, estimate, due, priority, rate, shape, user, cpu = row
            said, due = None if estimate < 0 else estimate, None if due >= NEVER else due
            cpus: tuple[float, ...] = (cpu,) if cpu == cpu else ()
            if uses:
                cpus = uses.get(position, cpus)
            after = befores.get(position, ()) if befores else ()
            if first_id and after:
                after = tuple([first_id + before for before in after])
            number = first_id + position
            if kind == RIGID_NUMBER:  # term by term, because compiled code then makes no tuple and dictionary of them
                yield Rigid(
                    number,
                    release,
                    said,
                    due,
                    priority,
                    rate,
                    SHAPES[shape],
                    user,
                    cpu=cpus,
                    movable=movable,
                    after=after,
                    width=width,
                )
                continue
            terms = number, release, said, due, priority, rate, SHAPES[shape], user
            if position in workflows:
                yield Workflow(*terms, graph=workflows[position], cpu=cpus, movable=movable, after=after)
            elif position in bags:
                bag = bags[position]
                of_bag = {"tasks": tasks, "sizes": bag.sizes, "profile": bag.profile}
                yield Bag(*terms, cpu=cpus, movable=movable, after=after, **of_bag)
            else:
                yield Bag(*terms, tasks=tasks, cpu=cpus, movable=movable, after=after)
