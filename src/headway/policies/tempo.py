"""One slot for each job in order of priority, the others where waiting costs most; tasks that can be redone give way.

The thesis of Lin14 ends with a trade-off: policies that keep to priorities miss due dates, and the other way round.
Three things take most of it away. A job is not violated as long as it has one slot, so that is what priority decides.
All other slots go by apparent tardiness cost: weight per work that is left, discounted by slack. And since slots are
dealt without waste while there is no hurry, a running task is killed and redone when that costs less than the wait.
`docs/policies/tempo.md` has the evidence.

Sources: A. Vepsalainen, T. Morton, "Priority rules for job shops with weighted tardiness costs", Management Science
33(8), 1987 (apparent tardiness cost); T.-C. Lin, thesis, National Taiwan University, 2014 (the measures, 4.4 on kills).
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import groupby, islice, takewhile
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from headway.errors import InvalidInput
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, Kind
from headway.model.node import NodeSpec
from headway.model.plan import Claim, Plan, Reason
from headway.model.seen import AttemptView, JobView
from headway.model.slots import NO_SLOTS, Slots, count, first, lowest, numbers, of_numbers
from headway.model.snapshot import Snapshot
from headway.model.value import value
from headway.policies.order import by_due, by_priority, without_due_date_by_priority
from headway.policies.place import classes_of, lowest_idle, ready_in_workflow, ready_tasks, room_for

LEAST_WEIGHT: Final = 1e-9
"""A job of priority 0 or less weighs this much: its tardiness costs nothing, but it is not to wait for ever."""


LOOKED_AT_MOST: Final = 500
"""Of the jobs that have a due date a round looks at so many of those that are due first, besides the most important."""


ENOUGH: Final = 1000
"""If there are more jobs than this, a round examines only as many as can have a slot each, running ones among them."""


DEALT_AT_ONCE: Final = 32
"""So many of the most urgent jobs are found in one go."""


class Opening(NamedTuple):
    """A slot and the microseconds until it is available: 0 if it is idle or is cleared by a kill."""

    within: float
    slot: int


class Lane:
    """The slots of one class of nodes that can be dealt, those first that can be had soonest, of equals the lowest.

    Slots that were dealt meanwhile may still be here; whoever looks says which are open.

    Attributes:
        idle: those that can be had at once.
        later: the others.
    """

    __slots__ = ("idle", "later")

    def __init__(self, idle: Slots, later: list[Opening]) -> None:
        self.idle = idle
        self.later = later

    def within(self, open_slots: Slots) -> float:
        """In how long the first open slot can be had; -1: there is none. Others before it are dropped."""
        if self.idle & open_slots:
            return 0.0
        later = self.later
        while later and not open_slots & 1 << later[0].slot:
            del later[0]
        return later[0].within if later else -1.0


NO_RUNS: Final[list[tuple[float, int]]] = []
"""Of a job of which nothing runs. All share it, and nobody adds to it: a round may see thousands of them."""


class Stake:
    """What is at stake for one job in a round. Amounts of work are microseconds at speed factor 1.

    Of a job of which nothing runs most of it follows from the job alone. Such a stake is kept with the job, and later
    rounds use it as long as it `holds`: a round costs little for what waits as it was.

    Attributes:
        seen: of the last round that looked at it.
        weight: cost of a microsecond of tardiness.
        due, is_due: instant of the due date, and whether there is one.
        task: work of one task, >= 1.
        running: of a bag, its running tasks that can stay: in how long they end, and on which slot.
        waiting: work of what has not started.
        work: of all that is left.
        least: how many slots it must have to have any.
        usable, wanted: how many slots it could use, and how many it may have; at least `least`, or `usable` is 0.
        need: how long it takes at best.
        urgency: cost per unit of work if it waits.
        rank: its place among those with a due date, or among those without: the least comes first.
        ahead: work of all that is left of it and of more urgent jobs; known once `TempoRound._reckon` was called.
        share: how many slots it should have.
        slots: the slots it should have; those that it takes by a kill are in `killed` too.
    """

    __slots__ = (
        *("ahead", "due", "job", "killed", "least", "need", "rank", "running", "seen", "share", "slots", "task"),
        *("urgency", "usable", "waiting", "wanted", "weight", "work"),
        *("_estimate", "_priority", "_ready", "_unfinished", "is_due"),
    )

    # A round makes thousands of them, so what is settled later is not set here.
    ahead: float
    rank: float
    need: float
    urgency: float
    usable: int
    wanted: int
    work: float
    _estimate: Duration
    _priority: float
    _unfinished: int

    def __init__(self, job: JobView, weight: float, task: float, waiting: float) -> None:
        self.job = job
        self.weight = weight
        self.due: Instant = job.due
        self.is_due = job.due < NEVER
        self.task = task
        self.running = NO_RUNS
        self.waiting = waiting
        self.seen: object = None
        self.least = 1
        self.share = 0
        self.slots: Slots = NO_SLOTS
        self.killed: Slots = NO_SLOTS
        self._ready = -1

    def keep(self) -> None:
        """Keep it with its job, of which nothing runs, and from which alone it was made."""
        job = self.job
        self._ready, self._unfinished = job.ready, job.unfinished
        self._estimate, self._priority = job.estimate, job.priority

    def holds(self) -> bool:
        """Whether it is what would be made anew.

        What it was made from is as it was: of what else is used, nothing changes unless a task is settled. And no round
        has dealt to it.
        """
        job = self.job
        return (
            self._ready == job.ready
            and not self.share
            and not job.attempts
            and self._unfinished == job.unfinished
            and self._estimate == job.estimate
            and self.due == job.due
            and self._priority == job.priority
        )

    def tardiness(self, at: float) -> float:
        """How late it is if it is done at an instant."""
        return max(0.0, at - self.due)


@value
class Tempo:
    """One slot for each job in order of priority, the rest where waiting costs most; may kill tasks for urgent jobs.

    Args:
        floor: whether no job has a slot while one of higher priority has none.
        strict: whether the floor also counts while there are too few slots for one each. If not, all slots then go
            where waiting costs most.
        kill: whether running tasks of bags are killed, to be redone, where that costs less than the wait. Without it
            no job gets more slots than it needs to be on time, so that some are idle when an urgent job comes.
        redo: how much work a job may redo because its tasks were killed, >= 0, as a share of all its work. With 0
            nothing is killed, and no slot is kept idle.
        lookahead: how early a due date is felt, > 0, as a part of the time the present jobs still need in all.
        per_instant: one round for all events of an instant, instead of one after each event.
    """

    floor: bool = True
    strict: bool = True
    kill: bool = True
    redo: float = 1.0
    lookahead: float = 0.2
    per_instant: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.lookahead < math.inf:
            raise InvalidInput("lookahead", self.lookahead, "a number greater than 0")
        if not self.redo >= 0:
            raise InvalidInput("redo", self.redo, "a number, 0 or more")

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        return TempoRound(self, view).plan()


# Names of their own, because looking up a member of an enumeration is slow.
BAG: Final = Kind.BAG


def _is_unknown(job: JobView) -> bool:
    """Whether the job has no estimate, and none of its tasks has ended yet."""
    return not job.ended and not job.times and job.spec.estimate is None


def expected_run_time(job: JobView) -> float:
    """How long a task is expected to run at speed factor 1, >= 1 microsecond.

    If it is not known, it is at most the time that the job had until its due date when it came: a due date is set in
    the belief that it can be met.
    """
    expected = job.estimate
    if job.due < NEVER and not job.ended and not job.times and job.spec.estimate is None:
        until_due = job.due - job.release
        if until_due < expected:
            expected = until_due
    return float(expected) if expected > 1 else 1.0


_rank: Final = attrgetter("rank")
_order: Final = attrgetter("job.order")


def _by_rank(stakes: list[Stake], are_by_order: bool) -> None:
    """Sort by rank, of equals by order. Most ranks are different, and to compare orders takes longer."""
    stakes.sort(key=_rank)
    if are_by_order:
        return
    begin, count = 0, len(stakes)
    while begin < count:
        rank, end = stakes[begin].rank, begin + 1
        while end < count and stakes[end].rank == rank:
            end += 1
        if end > begin + 1:
            stakes[begin:end] = sorted(stakes[begin:end], key=_order)
        begin = end


def _first_by_rank(stakes: list[Stake], most: int) -> list[Stake]:
    """The first ones by rank, of equals by order; so many, if there are as many."""
    if len(stakes) <= 2 * most:
        found = stakes.copy()
        _by_rank(found, are_by_order=False)
        return found[:most]
    found, last = list[Stake](), math.inf
    for stake in stakes:
        if stake.rank > last or (stake.rank == last and stake.job.order > found[-1].job.order):
            continue
        place = len(found)
        while place and (
            stake.rank < found[place - 1].rank
            or (stake.rank == found[place - 1].rank and stake.job.order < found[place - 1].job.order)
        ):
            place -= 1
        found.insert(place, stake)
        if len(found) > most:
            found.pop()
            last = found[-1].rank
    return found


class TempoRound:
    """One round of `Tempo`.

    Attributes:
        open: the slots that can be dealt and are not yet.
        free: the free slots.
        is_free: whether the open slots are those that `free` has left, of one class; then `open` and `lanes` are not
            made until they are needed.
        all_up: whether all slots are up on which a task of a bag or service runs, if one does.
        going: the bags of which a task runs that can go on, by id.
        capacity: work done per microsecond by one slot on average.
        stakes: of the jobs that could use a slot; most urgent first if `in_order`, as they are only where that matters.
        lanes: the open slots of each class of nodes, those first that can be had soonest.
        wake: when the next job becomes urgent.
    """

    def __init__(self, policy: Tempo, view: Snapshot) -> None:
        self.policy, self.view = policy, view
        classes = classes_of(view)
        self.classes = [(spec, slots & view.up) for spec, slots in classes] if len(classes) > 1 else classes
        self.going, alone = set[int](), list[Slots]()
        is_known = self.all_up = all_up = False
        one, several = dict[int, AttemptView](), dict[int, list[AttemptView]]()  # of each bag that runs
        for _, number, _, attempt in view.running:
            if not attempt.fed:
                alone.append(attempt.slots)
                continue
            if not is_known:
                is_known, self.all_up = True, view.busy & view.up == view.busy
                all_up = self.all_up
            if number not in one:
                one[number] = attempt
            elif number in several:
                several[number].append(attempt)
            else:
                several[number] = [one[number], attempt]
            if not attempt.ending and (all_up or attempt.slots & view.up):
                self.going.add(number)
        self.free = view.free_slots()
        are_alone = len(alone) == len(view.running)
        self.is_free = are_alone and len(classes) == 1 and not (view.allocated or view.limits.is_split)
        if self.is_free:
            self.open, self.size = NO_SLOTS, self.free.room
        else:
            others = view.busy if are_alone else NO_SLOTS
            for slots in () if others else alone:
                others |= slots
            self.open = view.up ^ (view.up & others)
            self.size = view.room() if self.open == view.free else count(self.open)
        self.widest = self.size
        if view.limits.is_split:
            self.widest = view.limits.most_together(self.open)
        if len(self.classes) == 1:
            speeds = self.classes[0][0].speed * self.size
        else:
            speeds = sum(spec.speed * count(slots & self.open) for spec, slots in self.classes)
        self.capacity = speeds / self.size if self.size else 1.0
        self._one, self._several = one, several
        self._by_job: dict[JobId, Stake] | None = None
        self.stakes: list[Stake] = []
        self.due_ones, self.others = list[Stake](), list[Stake]()  # the stakes with a due date, and those without
        self._seen, self._looked_at, self._is_sorted = object(), 0, True
        if self.size or one or view.owners:
            self._look()
        else:  # nothing to deal or to take back; what an empty cluster's round asks for is sorted before the first one
            for key in (by_priority, by_due, without_due_date_by_priority):
                view.in_order(key)
        self.in_order = self._is_reckoned = False
        self.lanes: list[Lane] = []
        self._on: dict[int, AttemptView] = {}
        self._concerned: dict[JobId, Stake] = {}  # that have slots or get some
        self.wake = NEVER
        if self.stakes and self.size:
            self._weigh()
            self._share()
        else:
            self.stakes, self.in_order = list(self.by_job.values()), True

    @property
    def by_job(self) -> dict[JobId, Stake]:
        """The jobs that could use a slot, by id, in order of priority. Few rounds need them so."""
        found = self._by_job
        if found is None:
            stakes = self.due_ones + self.others
            if self.others or not self._is_sorted:
                stakes.sort(key=lambda stake: by_priority(stake.job))
            found = self._by_job = {stake.job.id: stake for stake in stakes}
        return found

    def _make_open(self) -> None:
        """From now on what is open is looked at as a set."""
        if self.is_free:
            self.is_free, self.open = False, self.free.slots
            self.lanes = [self._lane(slots & self.open) for _, slots in self.classes]

    def _look(self) -> None:
        """Look at the jobs that may get a slot.

        A round need not look at all that wait. The floor is for the first by priority, and jobs without a due date come
        last and in order of priority: of both it is enough to see one bag more than there are slots. Of the jobs with
        a due date those are looked at that are due first.
        """
        view = self.view
        is_all = self._look_at_enough(view.in_order(by_priority))
        first = self._looked_at
        if not is_all:
            for job in islice(view.in_order(by_due), LOOKED_AT_MOST):
                if job.due == NEVER:
                    break
                if not job.rigid or (job.width <= self.widest and job.ready):
                    self._look_at(job)
            without = takewhile(lambda job: job.due == NEVER, view.in_order(without_due_date_by_priority))
            self._look_at_enough(without)
        for number in self._one:
            self._look_at(view.jobs[number])
        self._is_sorted = self._looked_at == first
        self.stakes = self.due_ones + self.others if self.others else self.due_ones

    def _look_at_enough(self, jobs: Iterable[JobView]) -> bool:
        """Look at jobs up to one bag with ready tasks more than there are slots; of many, bags that run count too.

        Rigid jobs that have no room are left out: in a long queue they are most.

        Returns:
            Whether those were all.
        """
        ready, bags, looked, size, widest = 0, 0, 0, self.size, self.widest
        for job in jobs:
            looked += 1
            if job.rigid:
                if job.width <= widest and job.ready:
                    self._look_at(job)
                continue
            self._look_at(job)
            if job.kind is BAG:
                if job.ready:
                    ready += 1
                    bags += 1
                elif job.id in self.going:
                    bags += 1
                if ready > size or (bags > size and looked > ENOUGH):
                    return False
        return True

    def _look_at(self, job: JobView) -> None:
        """Look at a job, unless this round has done so."""
        stake = job.note
        if isinstance(stake, Stake):
            if stake.seen is self._seen:
                return
            if not stake.holds():
                stake = job.note = self._anew(job)
        else:
            stake = job.note = self._anew(job)
        stake.seen = self._seen
        self._looked_at += 1
        if stake.usable:
            if stake.is_due:
                self.due_ones.append(stake)
            else:
                self.others.append(stake)

    def _anew(self, job: JobView) -> Stake:
        number = job.id
        if not job.attempts:
            stake = self._stake(job, ())
            if not job.graph:
                stake.keep()
            return stake
        if number not in self._one:
            return self._stake(job, ())
        if number in self._several:
            return self._stake(job, self._several[number])
        if job.ready:
            return self._stake(job, (self._one[number],))
        return self._with_one_left(job, self._one[number])

    # What is at stake

    def _rate(self, stake: Stake, slot: int) -> float:
        """Work a slot does for the job per microsecond."""
        return 1.0 if self.view.uniform else stake.task / self._time_on(stake, self.view.slot_nodes[slot].spec)

    def _time_on(self, stake: Stake, node: NodeSpec) -> float:
        """How long a task of the job is expected to run on a slot of this node."""
        if self.view.uniform:
            return stake.task
        return stake.task / node.speed if _is_unknown(stake.job) else float(max(1, stake.job.time_on(node)))

    def _with_one_left(self, job: JobView, attempt: AttemptView) -> Stake:
        """What is at stake for a bag of whose tasks just one is left and runs; a round may see thousands of them."""
        task, priority = expected_run_time(job), job.priority
        run_time = job.sized(round(task), attempt.task) if job.mean_size else round(task)
        waiting = (job.left if job.mean_size else job.unfinished) * task - run_time
        weight = priority if priority > LEAST_WEIGHT else LEAST_WEIGHT
        stake = Stake(job, weight, task, waiting if waiting > 0.0 else 0.0)
        if attempt.ending or not (self.all_up or attempt.slots & self.open):
            stake.work, stake.usable = stake.waiting, 0
        else:
            ends, slot = float(abs(attempt.expected_end - self.view.now) or 1), attempt.slots.bit_length() - 1
            stake.running = [(ends, slot)]
            stake.work = stake.waiting + (ends if self.view.uniform else ends * self._rate(stake, slot))
            stake.usable = 1
        return stake

    def _stake(self, job: JobView, attempts: Sequence[AttemptView]) -> Stake:
        task, priority = expected_run_time(job), job.priority
        left = job.left if job.mean_size else job.unfinished
        stake = Stake(job, priority if priority > LEAST_WEIGHT else LEAST_WEIGHT, task, left * task)
        if job.rigid:
            stake.least = job.width
            stake.usable = job.width
            stake.waiting = stake.work = job.width * task
            return stake
        if job.graph:
            nodes = [node.spec for node in self.view.nodes.values() if node.may_start]
            stake.usable = 0
            for core in (job.graph[ready].cores for ready in ready_in_workflow(job)):
                fitting = (node.slots_for(core) for node in nodes if node.slots_for(core) <= node.slots)
                stake.usable += max(fitting, default=0)  # what fits nowhere must not keep slots from others
                if stake.usable >= self.size:
                    break  # it cannot get more in any case
            stake.work = stake.waiting
            return stake
        waiting, work = stake.waiting, 0.0
        if attempts:
            running, now = list[tuple[float, int]](), self.view.now
            run_time, uniform, all_open = round(task), self.view.uniform, self.all_up
            for attempt in attempts:
                waiting -= job.sized(run_time, attempt.task) if job.mean_size else run_time
                if not attempt.ending and (all_open or attempt.slots & self.open):
                    slot, ends = attempt.slots.bit_length() - 1, float(abs(attempt.expected_end - now) or 1)
                    running.append((ends, slot))
                    work += ends if uniform else ends * self._rate(stake, slot)
            if len(running) > 1:
                running.sort(key=lambda run: (not job.held >> run[1] & 1, run))
            stake.running = running
        ready = job.ready
        if waiting < ready:
            waiting = float(ready)
        stake.waiting = waiting
        stake.work = work + waiting
        stake.usable = ready + len(stake.running)
        return stake

    def _weigh(self) -> None:
        """Settle how urgent each job is and in which order they stand; and when the next becomes urgent."""
        now, size, capacity, kill, wake = self.view.now, self.size, self.capacity, self.policy.kill, self.wake
        for stake in self.stakes:
            if stake.job.ready:
                longest = stake.task / capacity
            else:
                longest = stake.running[0][0] if len(stake.running) == 1 else max(stake.running)[0]
            usable = stake.usable
            stake.wanted = usable if kill else self._wanted(stake)
            need = stake.work / (usable if usable < size else size) / capacity
            stake.need = longest if longest > need else need
        work = math.fsum([stake.work for stake in self.due_ones])
        scale = self.policy.lookahead * work / size / capacity
        for stake in self.stakes:
            due = stake.due
            slack = due - now - stake.need
            if slack < 0.0:
                slack = 0.0
            # Falls like the exponential of the rule at first; made of exact operations, so every machine decides alike.
            discount = scale / (scale + slack) if scale else 0.0
            stake.urgency = urgency = stake.weight / stake.work * math.pow(discount * discount, 2.0)
            if not stake.is_due:
                stake.rank = -stake.job.priority
                continue
            stake.rank = -urgency
            if slack >= 1 and stake.job.ready and now + int(slack) < wake:
                wake = now + int(slack)
        self.wake = wake

    def _sort(self) -> None:
        """Put the stakes in order, most urgent first: those with a due date, then the others."""
        if self.in_order:
            return
        self.in_order = True
        due_ones, others = self.due_ones.copy(), self.others.copy()
        are_alike = not due_ones or due_ones[0].job.priority == due_ones[-1].job.priority
        _by_rank(due_ones, self._is_sorted and are_alike)
        _by_rank(others, self._is_sorted)
        self.stakes = due_ones + others

    def _expected(self, stake: Stake) -> float:
        """When a job would be done if all slots served the jobs in order of urgency."""
        if not self._is_reckoned:
            self._reckon()
        return self.view.now + max(stake.ahead / self.size / self.capacity, stake.need)

    def _reckon(self) -> None:
        """Add up the work of the jobs, the most urgent first."""
        self._sort()
        self._is_reckoned, ahead = True, 0.0
        for stake in self.stakes:
            ahead += stake.work
            stake.ahead = ahead

    # How many slots

    def _share(self) -> None:
        """Settle how many slots each job should have. `_boundary` says which jobs must have some and which may."""
        floor = self.policy.floor and (self.policy.strict or self._is_room_for_all())
        if not floor:
            self._deal(self._deal(self.size, self.due_ones), self.others)
            return
        self._sort()
        boundary, left = self._boundary(), self.size
        for stake in self.stakes:
            if stake.job.priority > boundary:
                stake.share = stake.least
                left -= stake.least
        for stake in self.stakes:
            if not left:
                break
            if stake.job.priority >= boundary:
                gets = stake.wanted - stake.share
                if gets > left:
                    gets = left
                if gets > 0 and stake.share + gets >= stake.least:
                    stake.share += gets
                    left -= gets

    def _is_room_for_all(self) -> bool:
        """Whether there are slots enough for one of each job; of a rigid one for its width."""
        return len(self.stakes) <= self.size and sum([stake.least for stake in self.stakes]) <= self.size

    def _deal(self, left: int, stakes: list[Stake]) -> int:
        """Deal slots without a floor, most urgent job first; returns how many are left.

        Few get any, so not all are sorted: the first ones are dealt to, then the first of those for which the rest is
        enough.
        """
        while left and stakes:
            for stake in _first_by_rank(stakes, min(left, DEALT_AT_ONCE)):
                if stake.least <= left:
                    stake.share = stake.wanted if stake.wanted < left else left
                    left -= stake.share
            stakes = [stake for stake in stakes if stake.least <= left and not stake.share] if left else []
        return left

    def _boundary(self) -> float:
        """The priority such that every job above it has a slot, none below it has, and most is saved.

        What is saved is the urgency of the jobs with slots, summed over their slots.
        """
        best, most, held, saved_above = -math.inf, -1.0, 0, 0.0
        for boundary, stakes in groupby(self.by_job.values(), key=lambda stake: stake.job.priority):
            if held >= self.size:
                break
            saved, left = saved_above, self.size - held
            for stake in self.stakes:
                if stake.job.priority >= boundary:
                    has = stake.least if stake.job.priority > boundary else 0
                    gets = min(left, stake.wanted - has)
                    if gets > 0 and has + gets >= stake.least:
                        saved += stake.urgency * gets
                        left -= gets
                        if not left:
                            break
            if saved >= most:
                best, most = boundary, saved
            for stake in stakes:
                held += stake.least
                saved_above += stake.urgency * stake.least
        return best

    def _wanted(self, stake: Stake) -> int:
        """Without kills: what it needs to be on time; all it can use if it is late."""
        within = stake.due - self.view.now
        if within <= 0 or stake.job.kind is not BAG:
            return stake.usable
        return min(stake.usable, math.ceil(stake.work / self.capacity / within))

    # Which slots

    def plan(self) -> Plan:
        """Deal the slots, most urgent job first, and write down what changes."""
        view, plan = self.view, self.view.plan()
        kept = []
        concerned = [stake for stake in self.stakes if stake.share or stake.running or stake.job.held]
        if not self.in_order:
            due_ones = [stake for stake in concerned if stake.is_due]
            others = [stake for stake in concerned if not stake.is_due] if self.others else []
            _by_rank(due_ones, are_by_order=False)
            _by_rank(others, are_by_order=False)
            concerned = due_ones + others
        self._concerned = {stake.job.id: stake for stake in concerned}
        for stake in concerned:  # each stays where it runs
            if stake.share >= len(stake.running) == 1:
                slot = stake.running[0][1]
                stake.slots = 1 << slot
                kept.append(slot)
                continue
            for _, slot in stake.running[: stake.share]:
                stake.slots |= 1 << slot
                kept.append(slot)
        if not self.is_free:
            self.open ^= self.open & of_numbers(kept)
            self.lanes = [self._lane(slots & self.open) for _, slots in self.classes]
        for stake in concerned:
            if stake.share and stake.job.graph:
                self._place(plan, stake)
            elif stake.job.ready and count(stake.slots) < stake.share:
                self._fill(stake)
        for owner in sorted({job.id for job in view.owners.values()} - self._concerned.keys()):
            plan.hold(owner, NO_SLOTS, Claim.AFTER)
        for stake in concerned:
            job = stake.job
            if 0 < stake.share < len(stake.running):  # no job claims what is left: jobs that run there may continue
                for _, slot in stake.running[stake.share :]:
                    if self.open & 1 << slot:
                        stake.slots |= 1 << slot
                        self.open ^= 1 << slot
            waits = stake.slots & ~stake.killed if stake.killed else stake.slots
            if not job.graph and waits != job.held:
                plan.hold(job.id, waits, Claim.AFTER)
            if stake.killed:
                plan.hold(job.id, stake.slots, Claim.KILL)
        if self.wake < NEVER:
            plan.wake = self.wake
        for job in view.asked(view.waiting):
            if (reason := self._reason(job)) is not None:
                plan.pass_over(job.id, reason)
            elif job.graph and job.ready and all(wanted.job != job.id for wanted in plan.allocations):
                plan.pass_over(job.id, Reason.NO_ROOM_NOW)  # its tasks are placed where slots are free
        return plan

    def _reason(self, job: JobView) -> Reason | None:
        """Why a job gets no slot, or no more of them while some are idle; None if it gets all it can use."""
        self._make_open()
        stake, idle = self.by_job.get(job.id), self.open & ~self.view.busy
        if job.width > self.view.limits.most_together(self.view.up):
            return Reason.NEVER_FITS
        if stake is not None and stake.share:
            return Reason.SLOTS_KEPT if idle and stake.share == stake.wanted < stake.usable else None
        if not idle:
            return Reason.NO_SHARE
        others = (other for other in self.stakes if other.job.priority > job.priority and not other.share)
        if self.policy.floor and any(others):
            return Reason.BEHIND_PRIORITY
        return Reason.NO_ROOM_NOW if job.width > self.view.limits.most_together(idle) else Reason.NO_SHARE

    def _lane(self, slots: Slots) -> Lane:
        """Slots of one class, those first that can be had soonest."""
        busy = slots & self.view.busy
        return Lane(slots ^ busy, sorted(map(self._opening, numbers(busy))))

    def _opening(self, slot: int) -> Opening:
        attempt = self._runs_on(slot)
        return Opening(0.0 if attempt is None else self._ends_in(attempt), slot)

    def _runs_on(self, slot: int) -> AttemptView | None:
        """What runs on a slot that can be dealt."""
        if not self._on:
            self._on = {
                attempt.slots.bit_length() - 1: attempt for _, _, _, attempt in self.view.running if attempt.fed
            }
        return self._on.get(slot)

    def _ends_in(self, attempt: AttemptView) -> float:
        """How long a task still runs; one that is over its time is taken to need as long again as it is over."""
        return float(abs(attempt.expected_end - self.view.now) or 1)

    def _best(self, stake: Stake) -> int:
        """The class with the open slot on which a task of the job would end first; -1: no slot is open."""
        best, ends_first = -1, math.inf
        for number, (spec, _) in enumerate(self.classes):
            within = self.lanes[number].within(self.open)
            if within >= 0.0:
                ends = within + self._time_on(stake, spec)
                if best < 0 or ends < ends_first:
                    best, ends_first = number, ends
        return best

    def _take_first(self, lane: Lane) -> Opening:
        """Take the first open slot of a lane that has one."""
        idle = lane.idle & self.open
        if idle:
            taken = Opening(0.0, first(idle))
            lane.idle ^= 1 << taken.slot
        else:
            taken = lane.later.pop(0)
        self.open ^= 1 << taken.slot
        return taken

    def _return(self, opening: Opening) -> None:
        self.open |= 1 << opening.slot
        number = next(number for number, (_, slots) in enumerate(self.classes) if slots & 1 << opening.slot)
        if opening.within:
            insort(self.lanes[number].later, opening)
        else:
            self.lanes[number].idle |= 1 << opening.slot

    def _fill(self, stake: Stake) -> None:
        """Give the job the slots it lacks: those it can have soonest, or some at once by a kill."""
        lacking = min(stake.share - count(stake.slots), stake.job.ready * stake.least)
        if stake.job.rigid:
            self._gather(stake, lacking)
            return
        self._make_open()
        openings: list[Opening] = []
        while len(openings) < lacking and (number := self._best(stake)) >= 0:
            openings.append(self._take_first(self.lanes[number]))
        if self.policy.kill and stake.job.kind is BAG and openings:
            openings = self._hasten(stake, openings)
        stake.slots |= of_numbers([opening.slot for opening in openings])

    def _gather(self, stake: Stake, lacking: int) -> None:
        """Give a rigid job all the slots it lacks, or none: first those it gathers already, then the soonest."""
        if self.is_free:
            if lacking <= self.free.room:
                stake.slots = self.free.take(stake.job)
            return
        others = self._leave_soonest(lacking) if self.view.limits.is_split else NO_SLOTS
        self._gather_open(stake, lacking)
        if others:
            self.open |= others
            self.lanes = [self._lane(slots & self.open) for _, slots in self.classes]

    def _leave_soonest(self, lacking: int) -> Slots:
        """Of what is open, leave only what members of a rigid job can have together soonest; returns the others."""
        all_open = self.open
        parts = [(self._within(part, lacking), part) for part in self.view.limits.together(all_open, lacking)]
        self.open = min(parts, key=itemgetter(0), default=(0.0, NO_SLOTS))[1]
        return all_open ^ self.open

    def _within(self, slots: Slots, lacking: int) -> float:
        """In how many microseconds so many of these slots are available."""
        lane = self._lane(slots)
        later = lacking - count(lane.idle)
        return lane.later[later - 1].within if later > 0 else 0.0

    def _gather_open(self, stake: Stake, lacking: int) -> None:
        """Give a rigid job the slots it lacks, or none, of those that are open."""
        held = lowest(stake.job.held & self.open, lacking)
        self.open ^= held
        lacking -= count(held)
        idle, later = NO_SLOTS, list[Opening]()
        while lacking and (number := self._best(stake)) >= 0:
            lane = self.lanes[number]
            here, gained = lowest_idle(self.free, stake.job, lane.idle & self.open, lacking)
            if here:  # as long as some are idle, this class stays the best
                lane.idle ^= here
                self.open ^= here
                idle = idle | here if idle else here
                lacking -= gained
            else:
                later.append(self._take_first(lane))
                lacking -= 1
        if not lacking:
            if later or held or stake.slots:
                idle |= stake.slots | held | of_numbers([opening.slot for opening in later])
            stake.slots = idle
            return
        busy = held & self.view.busy  # the tasks of workflows before it took more than their share
        for opening in [*later, *map(self._opening, numbers(busy))]:
            self._return(opening)
        idle |= held ^ busy
        self.open |= idle
        for lane, (_, slots) in zip(self.lanes, self.classes, strict=True):
            lane.idle |= idle & slots

    def _place(self, plan: Plan, stake: Stake) -> None:
        """Place a workflow's ready tasks; where a node has no room now, keep its slots until bags have left them."""
        self._make_open()
        job, gained = stake.job, 0
        for task in ready_tasks(job, job.ready):
            if gained >= stake.share or not self.open:
                break
            slots = room_for(self.view, job, task, self.open & self.view.free)
            if slots:
                plan.place(job.id, task, slots)
            else:
                slots = room_for(self.view, job, task, self.open)
            self.open ^= self.open & slots
            gained += count(slots)

    # Kills

    def _hasten(self, stake: Stake, openings: list[Opening]) -> list[Opening]:
        """Trade slots to wait for against slots at once, as long as a kill costs less than it saves."""
        now, job = self.view.now, stake.job
        own = [(ends, self._rate(stake, slot)) for ends, slot in stake.running if stake.slots >> slot & 1]
        done = now + self._duration(stake, own, openings)
        if done <= stake.due:
            return openings
        within_reach = self.open | of_numbers([opening.slot for opening in openings])
        victims = {
            slot: at
            for slot in numbers(within_reach & self.view.busy)
            if (at := self._runs_on(slot)) and self._may_kill(at, job)
        }
        while done > stake.due and victims:
            holds = min(done - now, stake.task / self.capacity * math.ceil(job.ready / max(1, stake.share)))
            cost, _, slot = min((*self._cost(attempt, holds), slot) for slot, attempt in victims.items())
            del victims[slot]
            given_up = next((opening for opening in openings if opening.slot == slot), None) or max(
                openings, key=lambda opening: (opening.within + stake.task / self._rate(stake, opening.slot), opening)
            )
            hastened = [opening for opening in openings if opening is not given_up] + [Opening(0.0, slot)]
            sooner = now + self._duration(stake, own, hastened)
            if stake.weight * (stake.tardiness(done) - stake.tardiness(sooner)) <= cost:
                if self.view.uniform:
                    break
                continue  # a dearer one may be faster
            self.open ^= self.open & 1 << slot
            if given_up.slot != slot:
                self._return(given_up)
            openings, done = hastened, sooner
            stake.killed |= 1 << slot
        return openings

    def _may_kill(self, attempt: AttemptView, job: JobView) -> bool:
        victim = attempt.job
        if victim is job or attempt.ending or not victim.spec.preemptible:
            return False
        if (
            victim.lost + self.view.now - attempt.saved
            > self.policy.redo * victim.tasks * self._concerned[victim.id].task
        ):
            return False
        return attempt.start < self.view.now  # what has just begun is left alone, so that every round leads somewhere

    def _cost(self, attempt: AttemptView, holds: float) -> tuple[float, float]:
        """The cost of killing a running task for a job that then has its slot for this long; and the work lost.

        It grows with each kill the job has suffered, so that two jobs do not kill each other's tasks for ever.
        """
        victim = self._concerned[attempt.job.id]
        lost, expected = float(self.view.now - attempt.saved), self._expected(victim)
        delay = (holds + lost) / max(1, victim.share)
        more = victim.tardiness(expected + delay) - victim.tardiness(expected)
        return victim.weight * more * (1 + victim.job.kills / victim.job.tasks), lost

    def _duration(self, stake: Stake, own: Iterable[tuple[float, float]], openings: Sequence[Opening]) -> float:
        """How long until the job is done on the slots it has and those it would get, each from when it can be had."""
        slots = [*own, *((opening.within, self._rate(stake, opening.slot)) for opening in openings)]
        slots.sort()
        first = min(within + stake.task / rate for within, rate in slots)
        left, since, rate = stake.waiting, 0.0, 0.0
        for within, gained in slots:
            done = rate * (within - since)
            if done >= left:
                break
            left, since, rate = left - done, within, rate + gained
        return max(first, since + left / rate)
