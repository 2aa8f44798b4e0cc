"""Which slots a job gets once it is known how many: shared by all policies that deal out slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest

from headway.model.instant import Duration
from headway.model.job import Kind
from headway.model.plan import Claim, Plan
from headway.model.slots import NO_SLOTS, Slots, count, lowest, numbers
from headway.model.snapshot import JobView, Snapshot


def ready_tasks(job: JobView, most: int) -> list[int]:
    """The numbers of up to `most` ready tasks, lowest first among those to be redone, then the fresh ones."""
    again = nsmallest(most, job.again)
    return again + list(range(job.fresh, min(job.tasks, job.fresh + most - len(again))))


def task_estimate(job: JobView, task: int) -> Duration:
    """Expected run time of one task of the job on a node of speed factor 1."""
    return job.spec.plan[task].estimate if job.kind is Kind.WORKFLOW else job.estimate


def room_for(view: Snapshot, job: JobView, task: int, free: Slots) -> Slots:
    """Free slots on which this task of a bag or workflow can start; the empty set where there is no room.

    A workflow's task takes its cores on the fastest node that has them free, the first of equals.
    """
    if job.kind is Kind.BAG:
        return free & -free
    cores, best, fastest = job.spec.plan[task].cores, NO_SLOTS, 0.0
    for node in view.nodes.values():
        needed, here = node.spec.slots_for(cores), free & node.slots
        if node.spec.speed > fastest and count(here) >= needed:
            best, fastest = lowest(here, needed), node.spec.speed
    return best


class Dealing:
    """Slots being dealt to jobs in one round, the jobs in the policy's order, each up to what it can use.

    Dealt are the slots that are up and on which no rigid job and no single task runs. A bag keeps the slots on which
    its own tasks run, then gets slots that are idle, then slots that another bag gives up: there the running task ends
    first (claim `AFTER`, Lin14 figure 3.2). Where speeds differ the fastest slots go first.

    Attributes:
        left: slots not dealt yet.
        last: by job id, the slots on which run the last tasks of bags with nothing more to start. They are dealt to
            these bags or, where it lacks others, to a rigid job: another bag would have to wait for them to end, and
            then they are dealt anyway.
        dealt: the slots of each job that got some, by job id.
        placed: job, task and slots of the tasks of workflows that start now.
        kept: the tasks of workflows that start now or for which slots are kept.
    """

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        taken = NO_SLOTS
        self.running: dict[int, Slots] = {}
        for _, job, _, attempt in view.running:
            if not attempt.fed:
                taken |= attempt.slots
            elif not attempt.ending:
                self.running[job] = self.running.get(job, NO_SLOTS) | attempt.slots
        self.last = {job: slots & view.up for job, slots in self.running.items() if not view.jobs[job].ready}
        self.left: Slots = view.up & ~taken
        self.size = count(self.left)
        for slots in self.last.values():
            self.left &= ~slots
        self.dealt: dict[int, Slots] = {}
        self.placed: list[tuple[int, int, Slots]] = []
        self.kept: set[tuple[int, int]] = set()

    def usable(self, job: JobView) -> int:
        """How many slots the job could use: for its ready tasks and for those that run and can go on where they are."""
        if job.kind is Kind.RIGID:
            return job.width if job.ready else 0
        if job.kind is Kind.WORKFLOW:
            nodes, plan = self.view.nodes.values(), job.spec.plan
            sizes = (max((node.spec.slots_for(plan[task].cores) for node in nodes), default=1) for task in job.again)
            return sum(sizes)
        return job.ready + count(self.running.get(job.id, NO_SLOTS))

    def in_need(self) -> list[JobView]:
        """The jobs that could use more slots than they were dealt, in order of release."""
        return [
            job
            for job in self.view.jobs.values()
            if job.release <= self.view.now
            and not job.cancelled
            and self.usable(job) > count(self.dealt.get(job.id, NO_SLOTS))
        ]

    def addable(self, job: JobView) -> int:
        """How many slots a bag could use besides those on which it runs: one for each ready task."""
        running = self.running.get(job.id, NO_SLOTS)
        return max(0, job.ready - count(self.dealt.get(job.id, NO_SLOTS) & ~running))

    def by_speed(self, job: JobView) -> Iterator[int]:
        """The slots left that the job could use, each a set of one, fastest first.

        Of equals the job's own come first, then idle ones, then the lowest.
        """
        speeds, running, idle = self.view.speeds, self.running.get(job.id, NO_SLOTS), ~self.view.busy
        own, addable = running | job.held, self.addable(job) if job.kind is Kind.BAG else self.size
        left = self.last.get(job.id, self.left)
        for slot in sorted(
            numbers(left), key=lambda slot: (-speeds[slot], not own >> slot & 1, not idle >> slot & 1, slot)
        ):
            if running >> slot & 1 or addable:
                addable -= not running >> slot & 1
                yield 1 << slot

    def deal(self, job: JobView, most: int) -> int:
        """Give the job up to `most` more slots; a rigid job gets its width or nothing, a workflow whole tasks.

        Returns:
            How many slots it got.
        """
        has = self.dealt.get(job.id, NO_SLOTS)
        wanted = min(most, self.usable(job) - count(has))
        if wanted <= 0:
            return 0
        if job.kind is Kind.WORKFLOW:
            return self._deal_tasks(job, wanted)
        gained = self._best(job, job.width if job.kind is Kind.RIGID else wanted)
        if job.kind is Kind.RIGID:
            gained |= lowest(sum(self.last.values()), job.width - count(gained))
            if count(gained) < job.width:
                return 0
        self.left &= ~gained
        for bag in self.last:
            self.last[bag] &= ~gained
        self.dealt[job.id] = has | gained
        return count(gained)

    def _best(self, job: JobView, wanted: int) -> Slots:
        if not self.view.uniform:
            chosen = NO_SLOTS
            for slot, _ in zip(self.by_speed(job), range(wanted), strict=False):
                chosen |= slot
            return chosen
        running = self.running.get(job.id, NO_SLOTS)
        chosen = lowest(self.last.get(job.id, self.left) & running, wanted)
        addable = self.addable(job)
        for preferred in (job.held, ~self.view.busy, -1):
            lacking = wanted - count(chosen)
            if lacking <= 0:
                break
            if job.kind is Kind.BAG:
                lacking = min(lacking, addable - count(chosen & ~running))
            chosen |= lowest(self.left & preferred & ~chosen, lacking)
        return chosen

    def _deal_tasks(self, job: JobView, wanted: int) -> int:
        """Place a workflow's ready tasks; where a node has no room now, keep its slots until bags have left them."""
        gained = 0
        for task in ready_tasks(job, job.ready):
            if gained >= wanted:
                break
            if (job.id, task) in self.kept:
                continue
            slots = room_for(self.view, job, task, self.left & self.view.free)
            if slots:
                self.placed.append((job.id, task, slots))
            else:
                slots = room_for(self.view, job, task, self.left)
            if slots:
                self.kept.add((job.id, task))
                self.left &= ~slots
                self.dealt[job.id] = self.dealt.get(job.id, NO_SLOTS) | slots
                gained += count(slots)
        return gained

    def while_slots_are_left(self, jobs: Iterable[JobView]) -> Iterator[JobView]:
        """The jobs one after the other, until one with ready tasks finds all slots dealt."""
        for job in jobs:
            if not self.left and (job.ready or not any(self.last.values())):
                return
            yield job

    def write(self, plan: Plan) -> Plan:
        """Put what was dealt into the plan: only the jobs for which it is a change."""
        for holder in set(self.view.owners.values()):
            self.dealt.setdefault(holder.id, NO_SLOTS)
        for dealt, slots in sorted(self.dealt.items()):
            job = self.view.jobs[dealt]
            if job.kind is not Kind.WORKFLOW and slots != job.held:
                plan.hold(job.id, slots, Claim.AFTER)
        for placed, task, slots in self.placed:
            plan.place(placed, task, slots)
        return plan
