"""Queues of rigid jobs: strict order, EASY backfilling, conservative backfilling.

Bags and workflows may stand in the same queues: each of their ready tasks counts as a small job of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from typing import ClassVar, Final

from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import Kind
from headway.model.plan import Plan, Reason
from headway.model.slots import Slots, count, lowest
from headway.model.snapshot import JobView, Snapshot
from headway.policies.order import ordered, require_order
from headway.policies.place import ready_tasks, room_for
from headway.policies.profile import Profile

# Names of their own, for a member of an enumeration is slow to find.
BAG: Final = Kind.BAG
RIGID: Final = Kind.RIGID
WORKFLOW: Final = Kind.WORKFLOW


@dataclass(frozen=True, slots=True)
class Easy:
    """EASY backfilling: a later job may start early if that does not delay the first one that waits.

    After each event: start jobs from the head of the queue while they fit. The shadow time is the earliest time by
    estimates at which the head then fits; extra slots are those free then minus the head's. Of the rest, in order, what
    fits now starts if it ends by the shadow time by its estimate, or needs no more than the extra slots, which it then
    uses up.

    Args:
        order: release, shortest, widest, due or priority.
        per_instant: one pass for all events of an instant, instead of one after each event.

    Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; the wording of MEASY14.
    """

    order: str = "release"
    per_instant: bool = False
    task_rounds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_order(self.order)

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        queue = view.waiting
        newcomers = view.arrived
        if self.order != "release":
            queue = ordered(queue, self.order)
        elif newcomers is not None and len(newcomers) < len(queue):
            # Nothing has happened but that jobs came: the head still waits, and what could not start before it cannot
            # now, because the shadow time is the same and has come nearer.
            room = count(view.free)
            if any(job.width <= room for job in newcomers):
                head = queue[0]
                self._backfill(view, plan, head, slots_needed(view, head), newcomers, 0, view.free, [])
            return plan
        free = view.free
        started: list[tuple[Instant, int]] = []
        for position, job in enumerate(queue):
            free, needed = start(view, plan, job, free, started)
            if needed:
                self._backfill(view, plan, job, needed, queue, position + 1, free, started)
                break
        return plan

    def _backfill(
        self,
        view: Snapshot,
        plan: Plan,
        head: JobView,
        needed: int,
        queue: list[JobView],
        position: int,
        free: Slots,
        started: list[tuple[Instant, int]],
    ) -> None:
        """Promise the head its shadow time; start what fits beside it from `position` of the queue on."""
        room = count(free)
        shadow, extra = shadow_of(view, started, room, needed)
        limit, uniform, recording = shadow - view.now, view.uniform, plan.recording
        if shadow < NEVER and (shadow != head.promise or recording):
            plan.promise(head.id, shadow, needed)
        if recording:
            plan.pass_over(head.id, Reason.NO_ROOM_NOW if shadow < NEVER else Reason.NEVER_FITS)
        elif not room:
            return
        for job in queue[position:] if position else queue:
            width = job.width
            if width > room:
                if recording:
                    plan.pass_over(job.id, Reason.NO_ROOM_NOW)
            elif job.kind is not RIGID:
                free, extra = self._backfill_tasks(view, plan, job, free, extra, limit)
                room = count(free)
            else:
                estimate = job.estimate if uniform else view.time_of(job, 0, lowest(free, width))
                if estimate > limit:
                    if width > extra:
                        if recording:
                            plan.pass_over(job.id, Reason.WOULD_DELAY)
                        continue
                    extra -= width
                slots = lowest(free, width)
                plan.hold(job.id, slots)
                free ^= slots
                room -= width
                if not room and not recording:
                    return

    def _backfill_tasks(
        self, view: Snapshot, plan: Plan, job: JobView, free: Slots, extra: int, limit: Duration
    ) -> tuple[Slots, int]:
        """Start ready tasks of a bag or workflow beside a promise; what stays free, and what stays extra."""
        placed, alike = False, job.kind is BAG and not job.mean_size
        for task in ready_tasks(job, count(free) if alike else job.ready):
            slots = room_for(view, job, task, free)
            late = slots and view.time_of(job, task, slots) > limit
            if not slots or (late and count(slots) > extra):
                if alike:
                    break
                continue
            if late:
                extra -= count(slots)
            plan.place(job.id, task, slots)
            free &= ~slots
            placed = True
        if not placed:
            plan.pass_over(job.id, Reason.WOULD_DELAY)
        return free, extra


@dataclass(frozen=True, slots=True)
class Strict:
    """A queue without backfilling: jobs start in order, and the first that does not fit holds up the rest.

    Args:
        order: release, shortest, widest, due or priority.
        per_instant: one pass for all events of an instant, instead of one after each event.
    """

    order: str = "release"
    per_instant: bool = False
    task_rounds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_order(self.order)

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        queue = view.waiting
        if self.order != "release":
            queue = ordered(queue, self.order)
        elif view.arrived is not None and len(view.arrived) < len(queue):
            return plan  # the head still waits
        free, started = view.free, list[tuple[Instant, int]]()
        for position, job in enumerate(queue):
            free, needed = start(view, plan, job, free, started)
            if needed:
                plan.pass_over(job.id, Reason.NO_ROOM_NOW)
                if plan.recording:
                    for behind in queue[position + 1 :]:
                        plan.pass_over(behind.id, Reason.BEHIND_OTHERS)
                break
        return plan


@dataclass(frozen=True, slots=True)
class Conservative:
    """Conservative backfilling: every waiting job is promised a start, while estimates hold never a later one.

    A new job gets the earliest start that delays nobody. When slots become free before their time, each job in order is
    moved to the earliest start that the promises of all others leave (compression). When promises cannot all be kept,
    because jobs outlast their estimates or slots went down, all are made anew, in order.

    Args:
        per_instant: one pass for all events of an instant, instead of one after each event.

    Source: Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the
    IBM SP2 with backfilling", IEEE TPDS 12(6), 2001.
    """

    per_instant: bool = False
    task_rounds: ClassVar[bool] = False

    def __call__(self, view: Snapshot) -> Plan:
        plan, now = view.plan(), view.now
        free = view.free
        promised = [job for job in view.waiting if job.promise is not None]
        moving = view.waiting if view.arrived is None else view.arrived
        if not moving:
            return plan
        profile = Profile.build(now, count(free), _future(view, promised))
        anew = view.arrived is None and min(profile.free) < 0
        if anew:
            profile = Profile.build(now, count(free), _future(view, []))
        for job in moving:
            if job.kind is not RIGID:
                free = self._start_tasks(view, plan, job, free, profile)
                continue
            duration = _length(view, job)
            if job.promise is not None and not anew:
                profile.take(max(now, job.promise), duration, -job.width)
            begin = profile.earliest(job.width, duration, now)
            if begin < NEVER:
                profile.take(begin, duration, job.width)
                if begin == now and job.width <= count(free):
                    slots = lowest(free, job.width)
                    plan.hold(job.id, slots)
                    free ^= slots
                    continue
                if begin != job.promise:
                    plan.promise(job.id, begin, job.width)
                plan.pass_over(job.id, Reason.NO_ROOM_NOW if job.width > count(free) else Reason.WOULD_DELAY, begin)
            else:
                if job.promise is not None:  # slots went down
                    plan.promise(job.id, NEVER, job.width)
                plan.pass_over(job.id, Reason.NEVER_FITS)
        return plan

    def _start_tasks(self, view: Snapshot, plan: Plan, job: JobView, free: Slots, profile: Profile) -> Slots:
        """Start the ready tasks of a bag or workflow that fit now beside every promise; they get no promises."""
        placed, alike = False, job.kind is BAG and not job.mean_size
        for task in ready_tasks(job, count(free) if alike else job.ready):
            slots = room_for(view, job, task, free)
            duration = max(1, view.time_of(job, task, slots)) if slots else 1
            if not slots or profile.earliest(count(slots), duration, view.now) != view.now:
                if alike:
                    break
                continue
            plan.place(job.id, task, slots)
            profile.take(view.now, duration, count(slots))
            free &= ~slots
            placed = True
        if not placed:
            plan.pass_over(job.id, Reason.NO_ROOM_NOW if not free else Reason.WOULD_DELAY)
        return free


def _future(view: Snapshot, promised: list[JobView]) -> list[tuple[Instant, int]]:
    """When slots become free by estimates, and when promises take and return them.

    What should have ended by now counts as free: whoever is promised its slots waits for it, and keeps the promise.
    An estimate of nothing counts as a microsecond.
    """
    now = view.now
    changes = [(max(end, attempt.start + 1), count(attempt.slots & view.up)) for end, _, _, attempt in view.running]
    for job in promised:
        begin = max(now, job.promise or now)
        changes.append((begin, -job.width))
        changes.append((begin + _length(view, job), job.width))
    return changes


def _length(view: Snapshot, job: JobView) -> Duration:
    """How long a promise to a rigid job keeps its slots: its estimate where it runs slowest."""
    return max(1, job.estimate if view.uniform or not view.up else view.time_of(job, 0, view.up))


def start(
    view: Snapshot, plan: Plan, job: JobView, free: Slots, started: list[tuple[Instant, int]]
) -> tuple[Slots, int]:
    """Start the head of a queue, or those of its ready tasks that fit.

    Returns:
        What stays free, and how many slots the job still waits for; 0: none.
    """
    if job.kind is RIGID:
        width = job.width
        if width > count(free):
            return free, width
        slots = lowest(free, width)
        plan.hold(job.id, slots)
        started.append((view.now + view.time_of(job, 0, slots), width))
        return free ^ slots, 0
    alike, needed = job.kind is BAG and not job.mean_size, 0
    for task in ready_tasks(job, count(free) + 1 if alike else job.ready):
        slots = room_for(view, job, task, free)
        if not slots:
            needed = needed or slots_needed(view, job, task)
            if alike:
                break
            continue
        plan.place(job.id, task, slots)
        started.append((view.now + view.time_of(job, task, slots), count(slots)))
        free &= ~slots
    return free, needed


def slots_needed(view: Snapshot, job: JobView, task: int | None = None) -> int:
    """How many slots the head of a queue waits for: its width, or those of its next task where they are fewest."""
    if job.kind is not WORKFLOW:
        return job.width
    cores = job.spec.plan[ready_tasks(job, 1)[0] if task is None else task].cores
    sizes = (node.spec.slots_for(cores) for node in view.nodes.values() if node.slots & view.up)
    return min(sizes, default=cores)


def shadow_of(view: Snapshot, started: list[tuple[Instant, int]], free: int, needed: int) -> tuple[Instant, int]:
    """The earliest time by estimates at which `needed` slots are free, and how many more are free then.

    Args:
        started: `(expected end, slots)` of what starts in this round, besides what runs.
        free: slots that stay free now.

    Returns:
        `(NEVER, 0)` if it takes slots that are not up.
    """
    shadow, up = NEVER, view.up
    if started:
        running = ((end, (attempt.slots & up).bit_count()) for end, _, _, attempt in view.running)
        for end, slots in merge(running, sorted(started)):
            if end > shadow:
                break
            free += slots
            if free >= needed and shadow == NEVER:
                shadow = end
    else:  # the same, and most rounds: nothing to merge
        for end, _, _, attempt in view.running:
            if end > shadow:
                break
            free += (attempt.slots & up).bit_count()
            if free >= needed and shadow == NEVER:
                shadow = end
    return (shadow, free - needed) if shadow < NEVER else (NEVER, 0)
