"""List scheduling of batch jobs by an order of `headway.policies.sequence` (Chang16 V.B.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from headway.errors import InvalidInput, did_you_mean
from headway.model.plan import Plan, Reason
from headway.model.queue import Queue, by_order
from headway.model.seen import JobView
from headway.model.slots import count
from headway.model.snapshot import Snapshot
from headway.model.value import value
from headway.policies.anneal import annealed
from headway.policies.backfill import Started, slots_needed, start
from headway.policies.lin14 import finish
from headway.policies.listing import SlotTimes
from headway.policies.place import Dealing
from headway.policies.sequence import SEQUENCES, Load


@value
class Listed:
    """Batch jobs in an order by what their lateness costs; each free slot takes a task of the first job that has one.

    With `every_task` the order is made anew whenever a task ends, as in the paper. Otherwise a slot goes on with tasks
    of its job until a job comes, ends, or has no more tasks to start: that is cheaper, above all live. Meanwhile the
    jobs ahead get the slots that are expected to be free first.

    Args:
        order: greedy, edf, lst, lstr, hprf, wspt or atc.
        every_task: whether each task end is followed by a new order.
        per_instant: one round for all events of an instant, instead of one after each event.
    """

    order: str = "greedy"
    every_task: bool = False
    per_instant: bool = True

    def __post_init__(self) -> None:
        if self.order not in SEQUENCES:
            raise InvalidInput("order", self.order, ", ".join(SEQUENCES), hint=did_you_mean(self.order, SEQUENCES))

    @property
    def task_rounds(self) -> bool:
        """No: tasks that are placed one by one leave a free slot, which is followed by a round in any case."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        return self._start_tasks(view) if self.every_task else self._share_out(view)

    def _start_tasks(self, view: Snapshot) -> Plan:
        """Free slots take tasks, each for itself."""
        plan, free, begun = view.plan(), view.free_slots(), list[Started]()
        if free.room or view.recording:
            for job in self._ranked(view, [job for job in view.waiting if job.ready], count(view.up)):
                needed = 1
                if free.room:
                    needed = start(view, plan, job, free, begun)
                if needed and view.recording:
                    fits = slots_needed(view, job) <= count(view.up | view.off)
                    plan.pass_over(job.id, Reason.NO_ROOM_NOW if fits else Reason.NEVER_FITS)
        return plan

    def _share_out(self, view: Snapshot) -> Plan:
        """Slots are allocated to jobs, which go on with them until the next round."""
        dealing, jobs = Dealing(view, soonest=True), view.in_order(by_order)
        ready = [job for job in jobs if job.ready]
        return share_out(view, dealing, jobs, self._ranked(view, ready, dealing.size))

    def _ranked(self, view: Snapshot, ready: Sequence[JobView], slots: int) -> Iterator[JobView]:
        pace = pace_of(view)
        loads = [load_of(job, pace, begun=not self.every_task) for job in ready]
        for place in SEQUENCES[self.order](loads, max(1, slots), view.now):
            yield ready[place]


@value
class Annealed:
    """Batch jobs in an order of little penalty, found by simulated annealing; free slots take tasks in this order.

    A round knows the order of the round before by the promised starts: they are what follows from the order if tasks
    take as long as estimated. It follows this order, and improves it when jobs have come.

    Args:
        steps: how many jobs a round in which jobs have come places in trials; see `headway.policies.anneal`.
        first: the same of a round that finds no order from before.
        seed: what is drawn in the search.
        per_instant: one round for all events of an instant, instead of one after each event.
    """

    steps: int = 5_000
    first: int = 1_000_000
    seed: int = 0
    per_instant: bool = True

    def __post_init__(self) -> None:
        for name, steps in (("steps", self.steps), ("first", self.first)):
            if steps < 0:
                raise InvalidInput(name, steps, "a whole number, 0 or more")

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        dealing, jobs = Dealing(view, soonest=True), view.in_order(by_order)
        ready = [job for job in jobs if job.ready]
        free = free_slots(view)
        if not free.slots or not ready:
            return share_out(view, dealing, jobs, iter(ready))
        pace = pace_of(view)
        loads = [load_of(job, pace) for job in ready]
        before = order_before(ready)
        effort = self.steps if before else self.first
        order = annealed(loads, free, effort, self.seed, before)
        plan = share_out(view, dealing, jobs, iter([ready[place] for place in order]))
        begin = view.now
        for place in order:
            job, begin = ready[place], max(free.times[0], begin + 1)  # of jobs that start at once, the first one first
            free.run(loads[place].tasks, loads[place].run_time)
            if begin != job.promise and not job.attempts:
                plan.promise(job.id, begin, job.width)
        return plan


def share_out(view: Snapshot, dealing: Dealing, jobs: Queue, ranked: Iterator[JobView]) -> Plan:
    """Allocate slots to jobs with ready tasks in an order, each as many as it can use, then to those whose last tasks
    run.
    """
    if dealing.size:
        running = (job for job in jobs if not job.ready)
        for job in dealing.while_slots_are_left(chain(ranked, running)):
            dealing.deal(job, dealing.size)
    return finish(view, dealing, jobs, Reason.BEHIND_OTHERS)


def order_before(jobs: Sequence[JobView]) -> list[int]:
    """Positions of the jobs that the round before had in its order: those that run, then by promised start."""
    places: list[tuple[bool, int, int]] = []
    for place, job in enumerate(jobs):
        if job.attempts:
            places.append((False, min([attempt.start for attempt in job.attempts.values()]), place))
        elif job.promise is not None:
            places.append((True, job.promise, place))
    return [place for _, _, place in sorted(places)]


def free_slots(view: Snapshot) -> SlotTimes:
    """When the slots that are up, or may come up, are free, by estimates; what should have ended ends now."""
    later = [(max(end, view.now), slots) for end, slots in view.expected_ends()]
    return SlotTimes([(view.now, count(view.up | view.off) - sum([slots for _, slots in later])), *later])


def pace_of(view: Snapshot) -> float:
    """The mean speed factor of the slots that are up."""
    if view.uniform:
        return 1.0
    slots = [(node.spec.speed, count(node.slots & view.up)) for node in view.nodes.values()]
    there = sum([number for _, number in slots])
    return sum([speed * number for speed, number in slots]) / there if there else 1.0


def load_of(job: JobView, pace: float, *, begun: bool = False) -> Load:
    """What has not started of a job. A rigid job counts as one task on each of its slots, a workflow as a bag of its
    unfinished tasks, as if each had the mean of their slot times.

    Args:
        pace: the speed factor of the slots.
        begun: whether the tasks of a bag that run count as if they had not started. Then a round does not change the
            order by what it starts, and jobs do not take slots from each other in turn.
    """
    run_time = float(job.estimate)
    tasks = job.ready + len(job.attempts) if begun else job.ready
    if job.rigid:
        tasks = job.width
    elif job.graph:
        tasks = job.unfinished - len(job.attempts)
        run_time = job.slot_time
    elif job.mean_size:
        run_time *= job.left / job.unfinished
    return Load(tasks, max(1, round(run_time / pace)), job.due, job.spec.rate, job.spec.shape)
