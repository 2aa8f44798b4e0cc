"""Which slots a job gets once their number is known: shared by all policies that share out slots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Final

from headway.model.instant import Instant
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.plan import Claim, Plan
from headway.model.seen import JobView
from headway.model.slots import NO_SLOTS, Slots, count, lowest, numbers, of_numbers
from headway.model.snapshot import FreeSlots, Snapshot

BAG: Final = Kind.BAG
"""A name of its own, because looking up a member of an enumeration is slow."""


def ready_tasks(job: JobView, most: int) -> Iterable[int]:
    """The numbers of up to `most` ready tasks, lowest first among those to be redone, then the fresh ones.

    Of many, only as many are sorted as are taken. A user's bound may leave room for fewer than there are.
    """
    most = min(most, job.ready)
    if not job.again:
        return range(job.fresh, min(job.tasks, job.fresh + most))
    return islice(chain(_rising(job.again), range(job.fresh, job.tasks)), most)


def ready_in_workflow(job: JobView) -> Iterable[int]:
    """The numbers of the ready tasks of a workflow, in any order."""
    return job.again if job.ready == len(job.again) else ready_tasks(job, job.ready)


def next_task(job: JobView) -> int:
    """The first of the ready tasks of a job that has some."""
    return job.again[0] if job.again else job.fresh


def _rising(heap: list[int]) -> Iterator[int]:
    """What is in a heap, in order; it stays as it is."""
    front = [(heap[0], 0)]
    while front:
        number, place = heappop(front)
        yield number
        for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
            heappush(front, (heap[child], child))


def room_for(view: Snapshot, job: JobView, task: int, free: Slots) -> Slots:
    """Free slots on which this task of a bag or workflow can start; the empty set if there is no room.

    A workflow's task takes its cores on the fastest node that has them free, the first of equals.
    """
    if job.kind is Kind.BAG:
        return view.first_of(free)
    cores, best, fastest = job.graph[task].cores, NO_SLOTS, 0.0
    for node in view.nodes.values():
        needed, here = node.spec.slots_for(cores), free & node.slots
        if node.spec.speed > fastest and count(here) >= needed:
            best, fastest = lowest(here, needed), node.spec.speed
    return best


def lowest_idle(free: FreeSlots, job: JobView, idle: Slots, wanted: int) -> tuple[Slots, int]:
    """Up to so many of some idle slots for a job, the lowest ones, and how many they are."""
    if job.rigid and wanted == job.width and wanted <= free.room and free.are(idle):
        return free.take(job), wanted
    slots = lowest(idle, wanted)
    return slots, count(slots)


class Dealing:
    """Slots being shared out in one round: to the jobs in the policy's order, to each at most as many as it can use.

    These are all slots that are up and on which no rigid job and no single task runs. If nodes differ, a job first gets
    those on which it runs fastest. How many of each class it gets is decided at once; which ones, only when all jobs
    have got theirs. So each job keeps its slots and those on which it runs, and only what it gives up passes to
    another. There the running task ends first (claim `AFTER`, Lin14 figure 3.2), unless the job is an emergency.

    Args:
        emergency: jobs of this priority or a higher one do not wait for the tasks that run on their slots, and may have
            those on which less important bags run their last tasks.
        soonest: whether of the slots on which others still run those pass first that are expected to be free first.

    Attributes:
        size: how many slots can be shared out.
        widest: how many of them one rigid job could have.
        dealt: the slots of each job that got some, by job id; complete once the plan is written.
        shares: by job id, how many slots of each class it got that are not chosen yet.
        classes: a node of each class and the slots of all its nodes, fastest first.
        room: how many slots of each class are left.
        left: slots not chosen yet.
        is_idle: whether nothing runs on slots that can be shared out.
        last: by job id, the slots on which run the last tasks of bags with nothing more to start. These bags get them
            or, if it lacks others, a rigid job: another bag would have to wait for the tasks to end, and then the slots
            are shared out anyway.
        ending: the slots of `last` together.
        placed: job, task and slots of the tasks of workflows that start now.
        kept: the tasks of workflows that start now or for which slots are kept.
    """

    def __init__(self, view: Snapshot, emergency: float = math.inf, *, soonest: bool = False) -> None:
        self.view = view
        self.emergency = emergency
        self.soonest = soonest
        alone: list[Slots] = []
        self.running: dict[int, Slots] = {}
        for _, job, _, attempt in view.running:
            if not attempt.fed:
                alone.append(attempt.slots)
            elif not attempt.ending:
                self.running[job] = self.running.get(job, NO_SLOTS) | attempt.slots
        self.last = {job: slots & view.up for job, slots in self.running.items() if not view.jobs[job].ready}
        self.is_idle = len(alone) == len(view.running)
        self.free = view.free_slots()
        if self.is_idle and not view.allocated:
            self.left: Slots = view.free
        else:
            taken = view.busy if self.is_idle else NO_SLOTS
            for slots in () if self.is_idle else alone:
                taken |= slots
            self.left = view.up ^ (view.up & taken)
        self.size = view.room() if self.left == view.free else count(self.left)
        self.widest = view.limits.most_together(self.left) if view.limits.is_split else self.size
        self.ending: Slots = NO_SLOTS
        for slots in self.last.values():
            self.ending |= slots
        if self.ending:
            self.left ^= self.left & self.ending
        self.classes = classes_of(view)
        one = len(self.classes) == 1 and not self.ending
        self.room = [self.size] if one else [count(self.left & slots) for _, slots in self.classes]
        self.shares: dict[int, list[int]] = {}
        self.dealt: dict[int, Slots] = {}
        self.placed: list[tuple[int, int, Slots]] = []
        self.kept: set[tuple[int, int]] = set()

    def usable(self, job: JobView) -> int:
        """How many slots the job could use: for its ready tasks, and for running ones that can stay where they are.

        A workflow's are counted until they are all that there are to share out.
        """
        if job.rigid:
            return job.width if job.ready else 0
        if job.graph:
            nodes, plan = self.view.nodes.values(), job.graph
            found = 0
            for task in ready_in_workflow(job):
                found += max((node.spec.slots_for(plan[task].cores) for node in nodes), default=1)
                if found >= self.size + self.has(job):
                    break
            return found
        return job.ready + count(self.running.get(job.id, NO_SLOTS))

    def has(self, job: JobView) -> int:
        """How many slots the job has got."""
        return count(self.dealt.get(job.id, NO_SLOTS)) + sum(self.shares.get(job.id, ()))

    def ranking(self, job: JobView) -> Sequence[int]:
        """The classes by how fast the job runs there, fastest first."""
        positions = range(len(self.classes))
        if len(positions) < 2 or not job.times:
            return positions
        return sorted(positions, key=lambda position: (job.time_on(self.classes[position][0]), position))

    def offers(self, job: JobView) -> list[int]:
        """How many more slots of each class a bag could use: where it runs, and one for each of its ready tasks."""
        if job.id in self.last:
            return [count(self.last[job.id] & slots) for _, slots in self.classes]
        running = self.running.get(job.id, NO_SLOTS) & self.left
        own = [count(running & slots) for _, slots in self.classes] if running else [0] * len(self.classes)
        has = self.shares.get(job.id) or [0] * len(self.classes)
        addable = job.ready - sum(max(0, got - mine) for got, mine in zip(has, own, strict=True))
        found = [0] * len(self.classes)
        for position in self.ranking(job):
            stays = max(0, own[position] - has[position])
            found[position] = offered = min(self.room[position], stays + addable)
            addable -= max(0, offered - stays)
        return found

    def _keep_last(self, bag: JobView) -> None:
        """Give a bag all slots that are left of those on which its last tasks run."""
        slots = self.last[bag.id]
        if slots:
            self.last[bag.id] = NO_SLOTS
            self.ending ^= slots
            self.dealt[bag.id] = self.dealt[bag.id] | slots if bag.id in self.dealt else slots

    def deal(self, job: JobView, most: int) -> None:
        """Give the job up to `most` more slots; a rigid job gets its width or nothing, a workflow whole tasks."""
        if job.rigid and job.width > sum(self.room) + count(self.ending):
            return  # as most of thousands that wait: so this is looked at first
        if job.kind is BAG and not job.ready:  # thousands of bags may run their last tasks
            if job.id not in self.last:
                return
            if most >= count(self.running[job.id]):
                self._keep_last(job)
                return
        wanted = min(most, self.usable(job) - self.has(job))
        if wanted <= 0:
            return
        if job.graph:
            self._deal_tasks(job, wanted)
            return
        if job.rigid and self.view.limits.is_split:
            self._deal_together(job)
            return
        spare = self.last.get(job.id, NO_SLOTS)
        if job.rigid:
            wanted, spare, offers = job.width, self.ending, self.room
        else:
            offers = [] if spare else self.offers(job)
            if job.priority >= self.emergency and job.ready:
                spare = sum(slots for bag, slots in self.last.items() if self._makes_room(self.view.jobs[bag], job))
        share, gained = self.shares.setdefault(job.id, [0] * len(self.classes)), 0
        for position in self.ranking(job) if offers else ():
            gets = min(offers[position], wanted - gained)
            share[position] += gets
            self.room[position] -= gets
            gained += gets
        self._deal_last(job, lowest(spare, wanted - gained))

    def _makes_room(self, bag: JobView, job: JobView) -> bool:
        """Whether a bag's last tasks may be killed for an emergency."""
        return bag.spec.preemptible and bag.priority < job.priority

    def _deal_last(self, job: JobView, slots: Slots) -> None:
        """Give the job slots on which a bag's last tasks run."""
        if slots:
            for bag in (job.id,) if job.id in self.last else self.last:
                self.last[bag] ^= self.last[bag] & slots
            self.ending ^= self.ending & slots
            self.dealt[job.id] = self.dealt.get(job.id, NO_SLOTS) | slots

    def _deal_tasks(self, job: JobView, wanted: int) -> None:
        """Place a workflow's ready tasks; if a node has no room now, keep its slots until bags have left them."""
        self._choose()
        gained = 0
        for task in ready_tasks(job, job.ready):
            if gained >= wanted or not self.left:
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
                self._give(job.id, slots)
                self.room = [count(self.left & of_class) for _, of_class in self.classes]
                gained += count(slots)

    def _deal_together(self, job: JobView) -> None:
        """Give a rigid job the slots that its members can have together soonest, if enough of them are left."""
        self._choose()
        parts = self.view.limits.together(self.left | self.ending, job.width)
        if parts:
            chosen = min([self._soonest(part, job.width) for part in parts], key=self._last)
            self._deal_last(job, chosen & self.ending)
            self._give(job.id, chosen & self.left)
            self.room = [count(self.left & of_class) for _, of_class in self.classes]

    def _last(self, slots: Slots) -> Instant:
        """When the last task on these slots is expected to end; 0 if all are idle."""
        ends = self.ends()
        return max([ends.get(slot, 0) for slot in numbers(slots & self.view.busy)], default=0)

    def _give(self, job: int, slots: Slots) -> None:
        self.left ^= self.left & slots
        self.dealt[job] = self.dealt[job] | slots if job in self.dealt else slots

    def _choose(self) -> None:
        """Turn shares into slots: first what the job has and runs on, then what it has, then what it runs on; then idle
        slots; then the rest.
        """
        view, busy = self.view, NO_SLOTS if self.is_idle else self.view.busy
        shares = {job: share for job, share in self.shares.items() if any(share)}
        for kind in range(5):
            for job, share in shares.items():
                if not any(share):
                    continue
                preferred = self.left
                if kind == 3:
                    if busy:
                        preferred ^= preferred & busy
                elif kind < 3:
                    running, held = self.running.get(job, NO_SLOTS), view.jobs[job].held
                    preferred &= (held & running, held, running)[kind]
                for position, lacking in enumerate(share):
                    if lacking and preferred:
                        found = preferred & self.classes[position][1]
                        if kind == 3:
                            slots, gained = lowest_idle(self.free, view.jobs[job], found, lacking)
                        else:
                            late = self.soonest and kind == 4
                            slots = self._soonest(found, lacking) if late else lowest(found, lacking)
                            gained = count(slots)
                        share[position] -= gained
                        self._give(job, slots)
        self.shares.clear()

    def _soonest(self, slots: Slots, most: int) -> Slots:
        """Up to `most` of these slots, those first that are expected to be free first."""
        ends, busy = self.ends(), slots & self.view.busy
        later = sorted([(ends.get(slot, 0), slot) for slot in numbers(busy)])
        if later and later[0][0] <= 0:  # at the beginning of time
            return of_numbers(sorted(numbers(slots), key=lambda slot: (ends.get(slot, 0), slot))[:most])
        soonest = lowest(slots ^ busy, most)
        lacking = most - count(soonest)
        return soonest | of_numbers([slot for _, slot in later[:lacking]])

    def ends(self) -> dict[int, Instant]:
        """When the task on each busy slot that can be shared out is expected to end."""
        return {
            attempt.slots.bit_length() - 1: end for end, _, _, attempt in self.view.running if attempt.fed
        }  # what is fed runs on one slot

    def while_slots_are_left(self, jobs: Iterable[JobView]) -> Iterator[JobView]:
        """The jobs one after the other, until one with ready tasks finds that all slots it might get are given out."""
        for job in jobs:
            needs_room = job.ready and job.priority < self.emergency
            if not any(self.room) and (needs_room or not self.ending):
                return
            yield job

    def _may_kill(self, job: JobView, slots: Slots) -> bool:
        """Whether a job is an emergency for all that run on these slots.

        None of them is as urgent. Otherwise two emergencies could take a slot from each other for ever, at one instant.
        """
        return job.priority >= self.emergency and not any(
            running & slots and other != job.id and self.view.jobs[other].priority >= job.priority
            for other, running in self.running.items()
        )

    def write(self, plan: Plan) -> Plan:
        """Put the result into the plan: only the jobs for which it is a change."""
        self._choose()
        for holder in set(self.view.owners.values()):
            self.dealt.setdefault(holder.id, NO_SLOTS)
        for dealt, slots in sorted(self.dealt.items()):
            job = self.view.jobs[dealt]
            if not job.graph and slots != job.held:
                plan.hold(job.id, slots, Claim.KILL if self._may_kill(job, slots) else Claim.AFTER)
        for placed, task, slots in self.placed:
            plan.place(placed, task, slots)
        return plan


def classes_of(view: Snapshot) -> list[tuple[NodeSpec, Slots]]:
    """A node of each class and the slots that the pool has there, fastest class first, then in order of joining.

    Where the nodes differ, the slots are all of these nodes, also those of other pools.
    """
    if view.uniform:
        return [(node.spec, view.slots) for node in view.nodes.values()][:1]
    found: dict[tuple[float, str], tuple[NodeSpec, Slots]] = {}
    for node in view.nodes.values():
        spec = node.spec
        first, slots = found.get((spec.speed, spec.kind), (spec, NO_SLOTS))
        found[spec.speed, spec.kind] = first, slots | node.slots
    return sorted(found.values(), key=lambda known: -known[0].speed)
