"""Queues of rigid jobs: strict order, and backfilling beside as many promises as wanted.

Bags and workflows may stand in the same queues: each of their ready tasks counts as a small job of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from sys import maxsize
from typing import Final

from headway.errors import InvalidInput
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, Kind
from headway.model.kept_profile import KeptProfile, PromisedPlace
from headway.model.plan import Plan, Reason
from headway.model.profile import Profile
from headway.model.queue import SHORT_QUEUE, Queue
from headway.model.seen import JobView
from headway.model.slots import NO_SLOTS, Slots, count, lowest
from headway.model.snapshot import FreeSlots, Snapshot
from headway.model.value import value
from headway.policies.order import ORDERS, check_order
from headway.policies.place import next_task, ready_tasks, room_for

# Module constants, because looking up a member of an enumeration is slow.
BAG: Final = Kind.BAG


@value
class Easy:
    """EASY backfilling: a later job may start early if that does not delay the first ones that wait.

    After each event jobs start from the head of the queue while they fit. The first `depth` that cannot start are
    promised a start, as early as what runs and the other promises leave by estimates. Of the rest, in order of
    `backfill`, what fits now starts if it delays no promise.

    A promise lasts as long as the job is among the first `depth` of the queue. While estimates are right, it never gets
    later: when slots become free early, each job in order moves to the earliest start that the promises of all others
    leave (compression). If jobs run longer than their estimates, or slots go down, not all promises can be kept. Then
    all are made again, in order.

    With one promise this is simple: it is the shadow time, the earliest at which the head fits, and what
    starts beside it ends by then, or takes no more than the extra slots at that time, which it uses up.

    Where run times are predicted, most of the predictions are too short, on purpose. A head that needs more than half
    of the slots waits for almost all that runs, so it would almost surely start later than promised, and wait for what
    was started beside it. So beside such a head jobs count as long as their users say. Predictions still say in which
    order they start.

    Args:
        order: release, shortest, widest, weighted, due or priority.
        depth: how many jobs are promised a start. 0: none (greedy), 1: EASY, inf: all (conservative).
        per_instant: one pass for all events of an instant, instead of one after each event.
        backfill: the order of those behind the promised ones, one of the same; empty: as `order`.
        quantile: where run times are predicted (`--estimates`), which quantile of its run times is a job's estimate, 0
            to 1. A low one is best here: what might be short is tried early, and what runs on counts as long as its
            user said.

    Raises:
        InvalidInput: the depth is negative or not a whole number, there is no such order, none is behind, or the
            quantile is out of range.

    Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995, in the wording of MEASY14; many promises: Mu'alem and
    Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with
    backfilling", IEEE TPDS 12(6), 2001; backfilling the shortest first: Tsafrir, Etsion and Feitelson, "Backfilling
    using system-generated predictions rather than user runtime estimates", IEEE TPDS 18(6), 2007.
    """

    order: str = "release"
    depth: float = 1.0
    per_instant: bool = False
    backfill: str = ""
    quantile: float = 0.2

    def __post_init__(self) -> None:
        if not (self.depth >= 0 and (self.depth == math.inf or self.depth == int(self.depth))):
            raise InvalidInput("depth", self.depth, "0, 1, 2, ... or inf", hint="1 is EASY, inf is conservative.")
        if not 0 <= self.quantile <= 1:
            raise InvalidInput("quantile", self.quantile, "0 to 1")
        check_order(self.order)
        if self.backfill:
            check_order(self.backfill, "backfill")
            if self.depth == math.inf:
                raise InvalidInput("backfill", self.backfill, "none with depth=inf: all jobs are promised a start")

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def _behind(
        self, view: Snapshot, queue: Queue, begin: int | list[JobView]
    ) -> tuple[Queue, int | list[JobView], Collection[JobId]]:
        """The queue to backfill from, where in it to begin, and which of its jobs are not to be looked at."""
        if not self.backfill or self.backfill == self.order:
            return queue, begin, ()
        behind = view.waiting if self.backfill == "release" else view.waiting_by(ORDERS[self.backfill])
        if isinstance(begin, list):
            return behind, begin, ()
        return behind, 0, {job.id for job in queue[:begin]}

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        queue = view.waiting if self.order == "release" else view.waiting_by(ORDERS[self.order])
        if self.depth != 1.0:
            return self._promise_many(view, plan, queue)
        newcomers, room = view.arrived, view.room()
        started: list[Started] = [*view.coming]
        said: list[Started] | None = [*view.coming] if view.predicts else None
        begin: int | list[JobView] = 0
        if newcomers is not None and queue and queue[0] not in newcomers:
            # Only jobs have come since: the head still waits, and what could not start before it cannot
            # start now, because the shadow time is the same and has come nearer.
            for job in newcomers:
                if job.width <= room:
                    break
            else:
                return plan
            head, begin, free = queue[0], newcomers, view.free_slots()
            needed = slots_needed(view, head)
        elif not queue:
            return plan
        else:
            kept, free = 0, view.free_slots()
            for position, head in enumerate(queue, 1):
                kept += head.promise is not None
                if head.rigid and head.width > free.room:
                    begin, needed = position, head.width
                    break
                needed = start(view, plan, head, free, started, said)
                if needed:
                    begin = position
                    break
            else:
                return plan
            if len(view.promised) > kept:
                withdraw(view, plan, queue[:position])
        if said is not None and 2 * needed <= count(view.up | view.off):
            said = None  # the head is not wide
        if said is None:
            shadow = shadow_of(view, started, free.room, needed)
        else:
            shadow = shadow_said(view, said, free.room, needed)
        if shadow[0] != head.promise or plan.recording:
            promise(plan, head, shadow[0], needed, Reason.NO_ROOM_NOW)
        if free.room or plan.recording:
            backfill(view, plan, *self._behind(view, queue, begin), free, shadow, as_said=said is not None)
        return plan

    def _promise_many(self, view: Snapshot, plan: Plan, queue: Queue) -> Plan:
        """The same beside any number of promises."""
        if self.depth == math.inf and not plan.recording:
            kept_profile, without = profile_of_all(view, queue)
            if kept_profile is not None:
                if view.arrived is not None:
                    return promise_all(view, plan, without, kept_profile)
                since, now = kept_profile.look(), view.now
                moving = [job for job in queue if job.promise is None or not now < job.promise <= since]
                return promise_all(view, plan, moving, kept_profile)
        now, free = view.now, view.free_slots()
        front = queue if self.depth >= len(queue) else queue[: int(self.depth)]
        kept = [job for job in front if job.promise is not None]
        newcomers = view.arrived
        if newcomers is not None and len(front) < len(queue) and not set(newcomers).isdisjoint(front):
            newcomers = None  # they have taken the place of jobs whose promises end
        profile = Profile.build(now, free.room, _future(view, kept))
        all_again = newcomers is None and min(profile.free) < 0
        if all_again:
            profile = Profile.build(now, free.room, _future(view, []))
        blocked = [] if newcomers is None else list(kept)
        looked, uniform = 0, view.uniform
        for job in queue if newcomers is None else [job for job in front if job.promise is None]:
            if len(blocked) >= self.depth:
                break
            looked += 1
            plain = uniform and job.rigid
            wanted, length = (job.width, job.estimate or 1) if plain else _claim(view, job)
            if job.promise is not None and looked <= self.depth and not all_again:
                profile.take(max(now, job.promise), length, -wanted)
            ever = True
            if not job.rigid:
                task = start_tasks(view, plan, job, free, profile)
                if task is None:
                    continue
                wanted, length = _claim(view, job, task)
                ever = (
                    room_for(view, job, task, view.up | view.off) != NO_SLOTS
                )  # of one node, which the profile does not see
            begin = profile.earliest(wanted, length, now) if ever else NEVER
            if begin < NEVER:
                profile.take(begin, length, wanted)
            if begin == now and job.rigid and wanted <= free.room:
                plan.hold(job.id, free.take(job))
                continue
            blocked.append(job)
            if begin != job.promise or plan.recording:
                promise(plan, job, begin, wanted, Reason.NO_ROOM_NOW if wanted > free.room else Reason.WOULD_DELAY)
        if len(view.promised) > len(kept):
            withdraw(view, plan, [*front, *blocked])
        if (newcomers is None or len(front) < len(queue)) and (free.room or plan.recording):
            begin_behind = looked if newcomers is None else newcomers
            backfill(view, plan, *self._behind(view, queue, begin_behind), free, profile)
        return plan


def profile_of_all(view: Snapshot, queue: Queue) -> tuple[KeptProfile | None, list[JobView]]:
    """The profile with every promise, and the waiting jobs that have none.

    There is none if bags or workflows wait: what their promises take changes with the next task. If not all promises
    can be kept, it has none of them, because all are made again.
    """
    without = [job for job in queue if job.promise is None]
    kept = view.profile
    if len(view.promised) != len(queue) - len(without) or any(not job.rigid for job in without):
        view.profile = None
        return None, without
    if kept is None or kept.unconfirmed:
        places, uniform = {}, view.uniform
        for job in queue:
            if job.promise is not None:
                if not job.rigid:
                    view.profile = None
                    return None, without
                wanted, length = (job.width, job.estimate or 1) if uniform else _claim(view, job)
                places[job.id] = PromisedPlace(max(view.now, job.promise), wanted, length)
        kept = view.keep_profile(places)
    kept.catch_up(view.now)
    if view.arrived is None and kept.is_overdrawn():
        kept = view.keep_profile({})
    return kept, without


def promise_all(view: Snapshot, plan: Plan, jobs: Iterable[JobView], kept: KeptProfile) -> Plan:
    """Promise each of these jobs in order the earliest start that the promises of all others leave.

    It is the general algorithm of `Easy` for promises without number, which looks only at what may have changed.
    """
    now, free, uniform = view.now, view.free_slots(), view.uniform
    for job in jobs:
        was = job.promise
        if view.limits.is_split and view.limits.most_together(view.up) < job.width:
            promise(plan, job, NEVER, job.width, Reason.NEVER_FITS)
            continue
        place = None if was is None else kept.promised.get(job.id)
        if place is not None:
            kept.bring_forward(place)
        else:
            wanted, length = (job.width, job.estimate or 1) if uniform else _claim(view, job)
            place = kept.add(job.id, wanted, length)
            if place is None:
                if was is not None:
                    plan.promise(job.id, NEVER, job.width)
                    view.profile = None  # it has lost its promise
                continue
        begin = place.begin
        if begin == now and job.width <= free.room:
            plan.hold(job.id, free.take(job))
            kept.want(place)
        elif begin != was:
            plan.promise(job.id, begin, job.width)
            kept.want(place)
    return plan


@value
class Strict:
    """A queue without backfilling: jobs start in order, and the first that does not fit delays all jobs behind it.

    Args:
        order: release, shortest, widest, weighted, due or priority.
        per_instant: one pass for all events of an instant, instead of one after each event.
    """

    order: str = "release"
    per_instant: bool = False

    def __post_init__(self) -> None:
        check_order(self.order)

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        plan, queue = view.plan(), queue_of(view, self.order)
        if view.arrived is not None and queue and queue[0] not in view.arrived:
            return plan  # the head still waits
        free, started = view.free_slots(), list[Started]()
        for position, job in enumerate(queue):
            if start(view, plan, job, free, started):
                plan.pass_over(job.id, Reason.NO_ROOM_NOW)
                for behind in view.asked(queue, position + 1):
                    plan.pass_over(behind.id, Reason.BEHIND_OTHERS)
                break
        return plan


def queue_of(view: Snapshot, order: str) -> Queue:
    """The waiting jobs in the named order."""
    return view.waiting if order == "release" else view.waiting_by(ORDERS[order])


@dataclass(slots=True)
class Shadow:
    """Beside one promise: jobs that end within `limit`, or take no more than the slots that are `extra` after it.

    Attributes:
        as_said: whether they count as long as their users say, even where a shorter time is predicted.
    """

    limit: Duration
    extra: int
    as_said: bool

    def admit(self, width: int, duration: Duration) -> bool:
        """Take this many slots now for this long, if that is allowed. Returns whether it is."""
        if duration > self.limit:
            if width > self.extra:
                return False
            self.extra -= width
        return True

    def steps(self, room: int) -> list[tuple[int, Duration]]:
        """For each width up to `room`: how long a job of this width may take to start now; see `Queue.fitting`."""
        return [(room, self.limit), (min(room, self.extra), NEVER)]


def backfill(
    view: Snapshot,
    plan: Plan,
    queue: Queue,
    begin: int | list[JobView],
    passed: Collection[JobId],
    free: FreeSlots,
    beside: tuple[Instant, int] | Profile,
    *,
    as_said: bool = False,
) -> None:
    """Start what fits beside what is promised.

    Args:
        begin: the place in the queue from which on jobs are looked at; or the jobs themselves.
        passed: jobs that are not looked at, because they have started, or are promised a start.
        beside: the shadow time and the extra slots of one promise, or what is left by many.
        as_said: whether jobs count as long as their users say, even where a shorter time is predicted.
    """
    recording, uniform, is_split = plan.recording, view.uniform, view.limits.is_split
    room = free.room
    if isinstance(beside, tuple):
        many, limit, extra = None, beside[0] - view.now, beside[1]
    else:
        many, limit, extra = beside, 0, 0
    steps: list[tuple[int, Duration]] = []
    candidates: Iterable[JobView]
    if isinstance(begin, list):
        candidates = sorted(begin, key=queue.key) if len(begin) > 1 else begin
    elif len(queue) <= SHORT_QUEUE:
        candidates = queue[begin:]
    else:
        steps = (many or Shadow(limit, extra, as_said)).steps(room) if uniform else [(room, NEVER)]
        candidates = view.fitting(queue, steps, begin)
    for job in candidates:
        if passed and job.id in passed:
            continue
        width = job.width
        if width > room or (is_split and job.rigid and not free.has(width)):
            if recording:
                plan.pass_over(job.id, Reason.NO_ROOM_NOW)
            continue
        if job.rigid:
            duration = job.estimate if uniform else view.time_of(job, 0, lowest(free.slots, width))
            if as_said and job.predicted:
                duration += longer(view, job, 0, NO_SLOTS if uniform else lowest(free.slots, width))
            late = duration > limit if many is None else not many.admit(width, duration)
            if late:
                if width > extra:
                    if recording:
                        plan.pass_over(job.id, Reason.WOULD_DELAY)
                    continue
                extra -= width
            plan.hold(job.id, free.take(job))
            room -= width
        else:
            gap = many or Shadow(limit, extra, as_said)
            start_tasks(view, plan, job, free, gap)
            if isinstance(gap, Shadow):
                extra = gap.extra
            was, room = room, free.room
            if room == was:
                plan.pass_over(job.id, Reason.WOULD_DELAY)
        if not room and not recording:
            return
        if steps:
            steps[:] = (many or Shadow(limit, extra, as_said)).steps(room) if uniform else [(room, NEVER)]


Started = tuple[Instant, int]
"""What starts in this round: when it is expected to end, and how many slots it takes."""


def longer(view: Snapshot, job: JobView, task: int, slots: Slots) -> Duration:
    """How much longer a task runs on these slots by what its user says than by what is predicted, if anything is."""
    if not job.predicted:
        return 0
    more = job.said - job.estimate
    return more if view.uniform and not job.mean_size else view.run_time(job.sized(more, task), slots)


def start(
    view: Snapshot,
    plan: Plan,
    job: JobView,
    free: FreeSlots,
    started: list[Started],
    said: list[Started] | None = None,
) -> int:
    """Start the head of a queue, or those of its ready tasks that fit; how many slots it still waits for; 0: none.

    Args:
        started, said: what has started is added, with its end by its estimate, and by what its user says.
    """
    if job.rigid:
        width = job.width
        if width > free.room:
            return width
        slots = free.take(job)
        if not slots:
            plan.pass_over(job.id, Reason.NEVER_FITS)
            return 0
        plan.hold(job.id, slots)
        end = view.now + (job.estimate if view.uniform else view.time_of(job, 0, slots))
        started.append((end, width))
        if said is not None:
            said.append((end + longer(view, job, 0, slots), width))
        return 0
    task = start_tasks(view, plan, job, free, None, started, said)
    return 0 if task is None else slots_needed(view, job, task)


def start_tasks(
    view: Snapshot,
    plan: Plan,
    job: JobView,
    free: FreeSlots,
    gap: Shadow | Profile | None,
    started: list[Started] | None = None,
    said: list[Started] | None = None,
) -> int | None:
    """Start those ready tasks of a bag or workflow that fit in the gap, if there is one.

    Returns:
        The first of the tasks that cannot start; None: all start.
    """
    blocked, is_bag = None, job.kind is BAG
    alike = is_bag and not job.mean_size
    too_many = maxsize  # so many cores, or more, no node has free
    for task in ready_tasks(job, free.room + 1 if alike else job.ready):
        if not free.room:
            return task if blocked is None else blocked
        if is_bag:
            slots = free.first()
        else:
            cores = job.graph[task].cores
            slots = room_for(view, job, task, free.slots) if cores < too_many else NO_SLOTS
            if not slots:
                too_many = min(too_many, cores)
        duration, number = (view.time_of(job, task, slots), 1 if is_bag else count(slots)) if slots else (0, 0)
        if slots and isinstance(gap, Shadow) and gap.as_said:
            duration += longer(view, job, task, slots)
        if not slots or (gap is not None and not gap.admit(number, duration)):
            blocked = task if blocked is None else blocked
            if alike:
                break
            continue
        plan.place(job.id, task, slots)
        if started is not None:
            started.append((view.now + duration, number))
        if said is not None:
            said.append((view.now + duration + longer(view, job, task, slots), number))
        if is_bag:
            free.take_first(job, task, slots)
        else:
            free.take_these(slots, number)
    return blocked


def slots_needed(view: Snapshot, job: JobView, task: int | None = None) -> int:
    """How many slots the head of a queue waits for: its width, or the least that its next task needs."""
    if not job.graph:
        return job.width
    cores = job.graph[next_task(job) if task is None else task].cores
    sizes = (node.spec.slots_for(cores) for node in view.nodes.values() if node.slots & (view.up | view.off))
    return min(sizes, default=cores)


def shadow_of(view: Snapshot, started: list[Started], free: int, needed: int) -> tuple[Instant, int]:
    """The earliest time by estimates at which `needed` slots are free, and how many more are free then.

    Args:
        started: when slots become free besides those of what runs: of what starts in this round, and of nodes that are
            not on.
        free: slots that stay free now.

    Returns:
        `(NEVER, 0)` if it takes slots that are not up.
    """
    shadow, coming = NEVER, sorted(started, reverse=True)
    for end, _, _, attempt in view.running:
        while coming and coming[-1][0] <= end and coming[-1][0] <= shadow:
            begun, slots = coming.pop()
            free += slots
            if free >= needed and shadow == NEVER:
                shadow = begun
        if end > shadow:
            break
        free += attempt.frees if attempt.frees >= 0 else view.freed_by(attempt)
        if free >= needed and shadow == NEVER:
            shadow = end
    while coming and coming[-1][0] <= shadow:
        begun, slots = coming.pop()
        free += slots
        if free >= needed and shadow == NEVER:
            shadow = begun
    return (shadow, free - needed) if shadow < NEVER else (NEVER, 0)


def shadow_said(view: Snapshot, said: list[Started], free: int, needed: int) -> tuple[Instant, int]:
    """As `shadow_of`, but by what users say of run times, even where shorter ones are predicted."""
    ends = [*said]
    for end, _, task, attempt in view.running:
        frees = attempt.frees if attempt.frees >= 0 else view.freed_by(attempt)
        ends.append((end + longer(view, attempt.job, task, attempt.slots), frees))
    ends.sort()
    shadow = NEVER
    for end, slots in ends:
        if end > shadow:
            break
        free += slots
        if free >= needed:
            shadow = end
    return (shadow, free - needed) if shadow < NEVER else (NEVER, 0)


def promise(plan: Plan, job: JobView, begin: Instant, slots: int, reason: Reason) -> None:
    """Promise a job a start, if it is a new one, and say why it waits."""
    if begin != (NEVER if job.promise is None else job.promise):
        plan.promise(job.id, begin, slots)
    if begin < NEVER:
        plan.pass_over(job.id, reason, begin)
    else:
        plan.pass_over(job.id, Reason.NEVER_FITS)


def withdraw(view: Snapshot, plan: Plan, others: Iterable[JobView]) -> None:
    """Take back the promises of all but these jobs: newcomers have come before the others."""
    for job in sorted(view.promised.keys() - {job.id for job in others}):
        plan.promise(job, NEVER, 0)


def _future(view: Snapshot, promised: Iterable[JobView]) -> list[tuple[Instant, int]]:
    """When slots become free by estimates, and when promises take and return them.

    Attempts that should have ended by now count as free: a job that is promised their slots waits for them, and keeps
    its promise. An estimate of 0 counts as a microsecond.
    """
    now, uniform = view.now, view.uniform
    changes = view.expected_ends()
    for job in promised:
        plain = uniform and job.rigid
        wanted, length = (job.width, job.estimate or 1) if plain else _claim(view, job)
        begin = max(now, job.promise or now)
        changes += (begin, -wanted), (begin + length, wanted)
    return changes


def _claim(view: Snapshot, job: JobView, task: int | None = None) -> tuple[int, Duration]:
    """How many slots a promise keeps, and for how long: where the job, or its next task, runs slowest."""
    first = next_task(job) if task is None else task
    slots = view.up | view.off
    length = view.time_of(job, first, slots) if slots else job.estimate_of(first)
    return slots_needed(view, job, first), max(1, length)
