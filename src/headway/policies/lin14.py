"""The four allocation policies of Lin14 (chapter 5), and the same way of dealing by other orders.

All of them plan all allocations again whenever something changes. A slot that passes to another job does so when
the task that runs on it ends (claim `AFTER`), so no work is lost. The readings are those of `docs/papers/lin14.md`.

Source: T.-C. Lin, "Job Dispatching and Scheduling under Heterogeneous Clusters", thesis, National Taiwan University,
2014.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import Final

from headway.errors import InvalidInput
from headway.model.instant import NEVER, Duration, Instant, from_seconds
from headway.model.job import Kind
from headway.model.plan import Plan, Reason
from headway.model.queue import Queue
from headway.model.seen import JobView
from headway.model.slots import NO_SLOTS, Slots, count, numbers, of_numbers
from headway.model.snapshot import Snapshot
from headway.model.value import value
from headway.policies.order import ORDERS, by_due, by_priority, check_order, with_due_date_by_priority
from headway.policies.place import Dealing

SPARE_RULES: Final = ("none", "priority", "due")
"""How slots that no job needs by the policy's own rule are dealt (Lin14 5.5)."""


def check_spare(rule: str) -> None:
    """Raise `InvalidInput` unless it names a rule for spare slots."""
    if rule not in SPARE_RULES:
        raise InvalidInput("spare", rule, ", ".join(SPARE_RULES))


def deal_spare(dealing: Dealing, rule: str) -> None:
    """Deal what is left to the jobs in need, one after the other, each up to what it can use (Lin14 5.5)."""
    if rule != "none":
        jobs = dealing.view.in_order(by_due if rule == "due" else by_priority)
        for job in dealing.while_slots_are_left(jobs):
            dealing.deal(job, dealing.size)


def finish(view: Snapshot, dealing: Dealing, jobs: Queue, short: Reason) -> Plan:
    """The plan of the slots dealt; with a reason for each job that got none and whose reason was asked for."""
    plan = dealing.write(view.plan())
    placed = {wanted.job for wanted in plan.allocations} if plan.recording else ()
    for job in view.asked(jobs):
        if job.ready and not dealing.dealt.get(job.id):
            width = job.width if job.rigid else 1
            room = Reason.NEVER_FITS if width > view.limits.most_together(view.up) else Reason.NO_ROOM_NOW
            plan.pass_over(job.id, short if width <= dealing.widest else room)
        elif job.ready and job.graph and job.id not in placed:
            plan.pass_over(job.id, Reason.NO_ROOM_NOW)  # its tasks are placed where slots are free
    return plan


@value
class Fill:
    """Jobs in order, each up to as many slots as it can use; what is left goes to the next.

    A rigid job that does not fit leaves the slots to those behind it.

    Args:
        order: release, shortest, widest, due or priority.
        per_instant: one round for all events of an instant, instead of one after each event.
    """

    order: str = "due"
    per_instant: bool = True

    def __post_init__(self) -> None:
        check_order(self.order)

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        dealing, jobs = Dealing(view), view.in_order(ORDERS[self.order])
        for job in dealing.while_slots_are_left(jobs):
            dealing.deal(job, dealing.size)
        return finish(view, dealing, jobs, Reason.BEHIND_OTHERS)


@value
class Priority:
    """Highest priority first, with a share of the slots reserved for the jobs behind the first (Lin14 5.1).

    The first job gets at most the share `1 - reserve`, rounded down, but at least one slot; each job behind it gets one
    slot, in order of priority; slots left over go to the spare rule. With `reserve=0` the policy is the plain one: jobs
    in order of priority, each up to its tasks.

    Args:
        reserve: share of the slots kept for jobs behind the first, 0 to 1.
        spare: none, priority or due.
        emergency: priority from which on a job does not wait for running tasks of others to end: they are killed and
            redone (Lin14 4.4), unless they are not to be killed.
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Lin14 algorithm 1; reading: line 3 as the text has it, `floor((1 - r) m)`.
    """

    reserve: float = 0.0
    spare: str = "none"
    emergency: float = math.inf
    per_instant: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.reserve <= 1:
            raise InvalidInput("reserve", self.reserve, "0 to 1")
        check_spare(self.spare)

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        dealing, jobs = Dealing(view, self.emergency), view.in_order(by_priority)
        if self.reserve == 0:
            for job in dealing.while_slots_are_left(jobs):
                dealing.deal(job, dealing.size)
        else:
            share = max(1, math.floor((1 - Fraction(str(self.reserve))) * dealing.size))
            for position, job in enumerate(dealing.while_slots_are_left(jobs)):
                dealing.deal(job, share if position == 0 else 1)
            deal_spare(dealing, self.spare)
        return finish(view, dealing, jobs, Reason.NO_SHARE)


def in_whole_parts(amounts: Sequence[float]) -> list[int]:
    """The amounts, >= 0, as multiples of one small part, so that they add up exactly; far faster than fractions.

    >>> in_whole_parts([1, 0.5, 0.75])
    [4, 2, 3]
    """
    ratios = [amount.as_integer_ratio() for amount in amounts]
    parts = max((parts for _, parts in ratios), default=1)  # each is a power of 2, so the greatest is a multiple of all
    return [number * (parts // of) for number, of in ratios]


@value
class Proportion:
    """Slots in proportion to the workload that is left of each job, also known as fair share (Lin14 5.2).

    Each job gets `ceil(m * workload / total)` slots, at least one, no more than are left and than it has tasks; the
    order by priority only says which jobs gain by the rounding.

    Args:
        spare: none, priority or due: what becomes of slots that jobs with few tasks leave over.
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Lin14 algorithm 2; reading: the factor m belongs into line 5.
    """

    spare: str = "none"
    per_instant: bool = True

    def __post_init__(self) -> None:
        check_spare(self.spare)

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        dealing, jobs = Dealing(view), view.in_order(by_priority)
        loads = in_whole_parts([job.workload for job in jobs])
        total = sum(loads)
        for job, load in zip(dealing.while_slots_are_left(jobs), loads, strict=False):
            dealing.deal(job, max(1, -(-dealing.size * load // total)) if total else dealing.size)
        deal_spare(dealing, self.spare)
        return finish(view, dealing, jobs, Reason.NO_SHARE)


def expected_run_time(dealing: Dealing, job: JobView, position: int, caution: float) -> Duration:
    """How long a task of the job is expected to run on a class of nodes, >= 1.

    Args:
        position: of the class, in `dealing.classes`.
        caution: as in `deal_pace`.
    """
    slower = round(caution * job.observed.spread) if caution and job.observed is not None else 0
    spec, _ = dealing.classes[position]
    return max(1, (job.estimate if dealing.view.uniform else job.time_on(spec)) + slower)


def deal_pace(dealing: Dealing, job: JobView, within: Duration, caution: float = 0.0) -> None:
    """Deal the fastest slots until together they finish the job's unfinished tasks within this many microseconds.

    Slot k alone needs `T_k` for all of them, its expected run time of one task times the tasks that are left, so this
    is the paper's condition that the sum of `1 / T_k` reach `1 / within`. With no time left the job wants a slot for
    each of its tasks.

    Args:
        caution: spreads of the observed run times that are added to their means.
    """
    wanted = 0
    left: float | Fraction = job.left
    if within <= 0:
        left, wanted = 0, dealing.size
    offers = dealing.offers(job) if len(dealing.classes) > 1 else [dealing.size]
    for position in dealing.ranking(job) if left else ():
        run_time = expected_run_time(dealing, job, position, caution)
        needed = -int(-left * run_time // within)
        takes = min(offers[position], needed)
        wanted += takes
        if takes == needed:
            break
        left = Fraction(left) - Fraction(takes * within, run_time)
    dealing.deal(job, wanted)


class Foresight:
    """What each slot does for a job by its due date: whole tasks, from when the slot can be had.

    A slot that can be had in `a` and needs `T` for a task ends `floor((d - a) / T)` tasks within `d`. Slots that a job
    is counted on are not counted on for those behind it.

    Attributes:
        idle: by class of nodes, those of the slots that are not counted on yet that can be had now.
        open: the others likewise, as `(when they are free, slot)`, soonest first.
        free_at: the same by slot: when it is free.
    """

    def __init__(self, dealing: Dealing) -> None:
        self.dealing, self.now = dealing, dealing.view.now
        ends = dealing.ends()
        self.idle: list[Slots] = []
        self.open: list[list[tuple[Instant, int]]] = []
        for _, slots in dealing.classes:
            here = dealing.left & slots
            busy = numbers(here & dealing.view.busy)
            later = sorted([(ends[slot], slot) for slot in busy if ends.get(slot, self.now) > self.now])
            self.open.append(later)
            self.idle.append(here ^ of_numbers([slot for _, slot in later]))
        self.free_at = [{slot: free for free, slot in openings} for openings in self.open]

    def deal(self, job: JobView, caution: float) -> None:
        """Deal a bag the slots that end all its tasks by its due date; if none do, one for each of its tasks."""
        dealing, wanted = self.dealing, 0
        own = dealing.running.get(job.id, NO_SLOTS)
        if not job.ready and (not own or (not job.mean_size and count(own) == job.unfinished)):
            dealing.deal(job, dealing.size)  # whatever is left of it runs
            return
        running = [attempt for attempt in job.attempts.values() if not attempt.ending and not attempt.queued]
        left = job.left - sum(job.sizes[at.task] / job.mean_size if job.mean_size else 1 for at in running)
        if left > 0:
            is_emergency = job.priority >= dealing.emergency
            offers = dealing.offers(job)
            for position in dealing.ranking(job):
                run_time = expected_run_time(dealing, job, position, caution)
                taken: list[tuple[Instant, int]] = []
                for free, slot in islice(self._ranked(position, own), offers[position]):
                    if left <= 0:
                        break
                    begins = self.now if is_emergency and not own >> slot & 1 else free
                    left -= max(0, (job.due - begins) // run_time)
                    taken.append((free, slot))
                wanted += len(taken)
                self._count_on(position, taken)
        dealing.deal(job, dealing.size if left > 0 or not job.ready else wanted)

    def _ranked(self, position: int, own: Slots) -> Iterator[tuple[Instant, int]]:
        """The openings of a class, a job's own first, each time those first that are free soonest; not all are read."""
        now, idle, free_at, openings = self.now, self.idle[position], self.free_at[position], self.open[position]
        own_idle = idle & own
        yield from [(now, slot) for slot in numbers(own_idle)]
        yield from sorted((free_at[slot], slot) for slot in numbers(own) if slot in free_at)
        for slot in numbers(idle ^ own_idle):
            yield now, slot
        for opening in openings:
            if not own >> opening[1] & 1:
                yield opening

    def _count_on(self, position: int, taken: list[tuple[Instant, int]]) -> None:
        later = [opening for opening in taken if opening[1] in self.free_at[position]]
        for opening in later:
            del self.open[position][bisect_left(self.open[position], opening)]
            del self.free_at[position][opening[1]]
        if len(later) < len(taken):
            self.idle[position] ^= self.idle[position] & of_numbers([slot for _, slot in taken])


@value
class ByWorkload:
    """By priority, as many of the fastest slots as do a job's workload within one planning period (Lin14 5.3).

    Args:
        period: seconds, > 0, in which the workload that is left of a job is to be done.
        spare: none, priority or due: which jobs get the leftover slots, which none needs by that rule.
        emergency: priority from which on a job does not wait for running tasks of others to end: they are killed and
            redone (Lin14 4.4), unless they are not to be killed.
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Lin14 algorithm 3; reading: its throughputs are compared with the workload of one planning period.
    """

    period: float = 60.0
    spare: str = "priority"
    emergency: float = math.inf
    per_instant: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.period < math.inf:
            raise InvalidInput("period", self.period, "a number of seconds greater than 0")
        check_spare(self.spare)

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        dealing, jobs = Dealing(view, self.emergency), view.in_order(by_priority)
        for job in dealing.while_slots_are_left(jobs):
            deal_pace(dealing, job, from_seconds(self.period))
        deal_spare(dealing, self.spare)
        return finish(view, dealing, jobs, Reason.NO_SHARE)


@value
class Deadline:
    """By priority, as many of the fastest slots as finish a job by its due date (Lin14 5.4).

    A job whose due date has passed wants as many slots as it has tasks; one without a due date gets spare slots only.

    Args:
        spare: none, priority or due: who gets the slots that no due date needs (Lin14 5.5). The thesis recommends due.
        caution: spreads of the run times observed of a job that are added to their mean before slots are counted, >= 0.
        emergency: priority from which on a job does not wait for running tasks of others to end: they are killed and
            redone (Lin14 4.4), unless they are not to be killed.
        foresight: whether bags count whole tasks, and each slot from when it can be had. Without it, as in the thesis,
            a job counts fractions of tasks, and as if it had every slot at once.
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Lin14 algorithm 4; reading: its condition is `th < 1 / d` with d the time left until the due date.
    """

    spare: str = "due"
    caution: float = 0.0
    emergency: float = math.inf
    foresight: bool = True
    per_instant: bool = True

    def __post_init__(self) -> None:
        check_spare(self.spare)
        if not 0 <= self.caution < math.inf:
            raise InvalidInput("caution", self.caution, "a number, 0 or more")

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        dealing = Dealing(view, self.emergency, soonest=self.foresight)
        jobs, foresight = view.in_order(by_priority), Foresight(dealing) if self.foresight else None
        for job in dealing.while_slots_are_left(view.in_order(with_due_date_by_priority)):
            if job.due == NEVER:
                break
            if foresight is not None and job.kind is Kind.BAG:
                foresight.deal(job, self.caution)
            else:
                deal_pace(dealing, job, job.due - view.now, self.caution)
        deal_spare(dealing, self.spare)
        short = Reason.NOT_NEEDED_YET if self.spare == "none" else Reason.NO_SHARE
        return finish(view, dealing, jobs, short)
