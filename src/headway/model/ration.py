"""How many slots the tasks of one user may have at once, and which of that user's jobs come next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.model.instant import Instant
from headway.model.job import JobId, JobSpec, Service, Workflow
from headway.model.node import NodeSpec

if TYPE_CHECKING:
    from headway.model.seen import JobView

Rank = tuple[float, Instant, tuple[Instant, JobId]]


def by_rank(job: JobView) -> Rank:
    """The order in which a user at the bound gets slots: highest priority, earliest due date, first come."""
    return -job.priority, job.due, job.order


class Ration:
    """The bound of one user.

    Attributes:
        user: whose it is.
        most: so many slots the tasks of this user may have at once, in the foreground and behind.
        used: so many they have. It is more than `most` only since the bound was lowered.
        allowed: what `used` may be until tasks end: `most`, or more since the bound was lowered.
        lines: by the name of their pool the jobs with tasks that could start but for the bound, in order of `by_rank`;
            services and what the policy does not serve are in none.
        shown: the jobs in lines of which policies see ready tasks, by id.
        seen: of how many ready tasks of each of these, and of services, the policies know.
    """

    __slots__ = ("allowed", "lines", "most", "seen", "shown", "used", "user")

    def __init__(self, user: str, most: int) -> None:
        self.user = user
        self.most = self.allowed = most
        self.used = 0
        self.lines: dict[str, list[JobView]] = {}
        self.shown: dict[JobId, JobView] = {}
        self.seen: dict[JobId, int] = {}

    @property
    def room(self) -> int:
        """How many more slots there may be."""
        return max(0, self.most - self.used)

    def use(self, job: JobView, more: int) -> None:
        """A job has so many slots more."""
        job.uses += more
        self.used += more

    def recount(self, job: JobView) -> None:
        """Count the slots of a rigid job again."""
        self.use(job, uses_of(job) - job.uses)

    def line_up(self, pool: str, job: JobView) -> None:
        """A job has tasks that could start."""
        insort(self.lines.setdefault(pool, []), job, key=by_rank)

    def step_out(self, pool: str, job: JobView) -> None:
        """A job that is in the line of a pool leaves it."""
        line = self.lines[pool]
        del line[bisect_left(line, by_rank(job), key=by_rank)]
        if not line:
            del self.lines[pool]
        self.shown.pop(job.id, None)


def most_slots_for(cores: int, nodes: Iterable[NodeSpec]) -> int:
    """How many slots a task with so many cores needs where it needs most of the nodes that can hold it; 0: none can."""
    return max([node.slots_for(cores) for node in nodes if node.slots_for(cores) <= node.slots], default=0)


def wider_than(job: JobSpec, user: str, most: int, nodes: Iterable[NodeSpec]) -> str | None:
    """Why a job could not run within a bound, as `field is value; allowed: ...`; None if it could."""
    allowed = f"allowed: at most {most}, the slots that user {user!r} may have at once"
    specs = {(node.slots, node.cores): node for node in nodes} if isinstance(job, Workflow) else {}
    for number, task in enumerate(job.graph if isinstance(job, Workflow) else ()):
        slots = most_slots_for(task.cores, specs.values())
        if slots > most:
            return f"plan[{number}].cores is {task.cores}, which may need {slots} slots; {allowed}"
    if job.rigid and job.width > most:
        return f"width is {job.width}; {allowed}"
    if isinstance(job, Service) and job.least > most:
        return f"least is {job.least}; {allowed}"
    return f"tasks is {job.tasks}; allowed: none, because user {user!r} may have no slots" if not most else None


def uses_of(job: JobView) -> int:
    """How many slots of a job count against a bound.

    A rigid job has its slots from the moment they are allocated to it until its attempt has ended. What is queued
    behind another task has none.
    """
    if job.rigid:
        return job.width if job.held or job.attempts else 0
    return sum([attempt.slots.bit_count() for attempt in job.attempts.values() if not attempt.queued])
