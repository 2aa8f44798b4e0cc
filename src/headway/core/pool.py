"""A pool: slots and jobs of their own, with every index that a policy and the core need. The rules are elsewhere.

The state is the first pool. While its policy deals slots and jobs to others, what is left in it has not been dealt.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from headway.core import lifecycle
from headway.core.views import more, unpredict, without
from headway.model.actions import ChangeTier, Kill, Launch, Settle, Suspend
from headway.model.instant import LONGEST, NEVER, Duration, Instant
from headway.model.job import BATCH, JobId, Kind
from headway.model.kept_profile import KeptProfile
from headway.model.network import place_of
from headway.model.outcome import Outcome
from headway.model.policy import Policy, is_added, serves_of, uses_tiers
from headway.model.queue import Key, Queue, by_order
from headway.model.ration import Ration
from headway.model.seen import AttemptView, Goal, JobView, RunTimes
from headway.model.slots import NO_SLOTS, Slots, count, first, numbers, outside, take_out, unite
from headway.model.snapshot import Snapshot
from headway.model.tier import Tier

if TYPE_CHECKING:
    from headway.core.state import State

_by_task = attrgetter("task")

# Module constants, because looking up a member of an enumeration is slow.
BAG: Final = Kind.BAG
FOREGROUND: Final = Tier.FOREGROUND
BACKGROUND: Final = Tier.BACKGROUND
SUCCEEDED: Final = Outcome.SUCCEEDED
CANCELLED: Final = Outcome.CANCELLED
KILLED: Final = Outcome.KILLED
LOST: Final = Outcome.LOST


def _by_slot(owned: tuple[int, JobView]) -> int:
    return owned[0]


def _by_job(attempt: AttemptView) -> tuple[tuple[Instant, JobId], int]:
    return attempt.job.order, attempt.task


class Pool(Snapshot):
    """A part of the cluster: what its policy sees, and what only the core needs.

    Attributes:
        state: what all pools share.
        round_due: whether something has happened that requires a round.
        ahead: attempts launched ahead of their turn, by slot, in order of task; no entry where there are none.
        prepared_orders, prepared_queues: those of `orders` and `queues` that the policy chosen next is to find.
        departing: jobs that go to other pools when nothing of them runs, by id.
        refused: jobs for which something was refused in the last round.
        policy, text: what decides in this pool, and the text that stands for it.
        added: whether the policy is not one of Headway's own.
        consulted: whether the last question to a decider was about this pool.
        per_instant, task_rounds, tiers: what the policy wants, see `Policy` and `uses_tiers`.
        round_at: when it wants a round even if nothing happens.
    """

    __slots__ = (
        "added",
        "ahead",
        "consulted",
        "departing",
        "per_instant",
        "policy",
        "prepared_orders",
        "prepared_queues",
        "refused",
        "round_at",
        "round_due",
        "state",
        "task_rounds",
        "text",
        "tiers",
    )

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.state: State
        self.policy: Policy
        self.text = ""
        self.added = self.per_instant = self.tiers = False
        self.round_at: Instant = NEVER
        self.round_due = False
        self.consulted = True
        self.ahead: dict[int, list[AttemptView]] = {}
        self.prepared_orders: set[Key] = set()
        self.prepared_queues: set[Key] = set()
        self.departing: dict[JobId, JobView] = {}
        self.refused: set[JobId] = set()
        self.task_rounds = False

    def obey(self, policy: Policy, text: str) -> None:
        """A policy decides from now on."""
        self.policy, self.text, self.added = policy, text, is_added(policy)
        self.profile = None
        self.per_instant, self.task_rounds, self.tiers = policy.per_instant, policy.task_rounds, uses_tiers(policy)
        self.layout = self.unplanned = None
        serves = serves_of(policy)
        if serves != self.serves:
            self._serve(serves)

    def _serve(self, serves: frozenset[Kind]) -> None:
        """The policy serves jobs of these kinds: it sees them from now on, and no others."""
        jobs = [job for job in self.jobs.values() if job.pool is self]
        bounded = [job for job in jobs if job.ration is not None]
        for job in bounded:
            self.step_out(job)
        for job in jobs:
            for index in self.indexes_of(job):
                index.discard(job)
        self.serves, self.serves_all = serves, serves >= BATCH | {job.kind for job in jobs}
        for job in jobs:
            for index in self.indexes_of(job):
                index.add(job)
        for job in bounded:
            self.step_in(job)

    def meet(self, kind: Kind) -> None:
        """A job of this kind comes to the pool; the policy may not serve it."""
        if kind not in self.serves:
            self.serves_all = False

    def disobey(self) -> None:
        """What the policy has promised and allocated is void. What runs continues."""
        for job in list(self.promised.values()):
            self.promise(job, None)
        self.unplan_all()
        for _, job in sorted({job.id: job for job in self.owners.values()}.items()):
            self.give_up(job, job.held)

    # Jobs

    def rank(self, job: JobView) -> None:
        """Put a job in its place in every order that was asked for."""
        if self.orders and not self.hides(job):
            for ranked in self.orders.values():
                ranked.add(job)

    def unrank(self, job: JobView) -> None:
        """Take a cancelled or ended job out of every order."""
        if self.orders and not self.hides(job):
            for ranked in self.orders.values():
                ranked.discard(job)

    def indexes_of(self, job: JobView) -> list[Queue]:
        """Every order and queue with the job: it must leave them before a term changes, and return after."""
        if job.release > self.now or job.goes_to is not None:
            return []
        orders = [] if job.cancelled or self.hides(job) else self.orders.values()
        return [*orders, *(self._queues_of(job) if job.ready else ())]

    def _queues_of(self, job: JobView) -> Iterable[Queue]:
        """Where a job waits."""
        if job.kind in self.serves:
            return self.queues.values()
        return (self.unserved,)

    def arrive(self, job: JobView) -> None:
        """A job begins to wait for slots."""
        self.look_at_plan(job)
        self.wait(job)
        if self.orders:
            self.rank(job)
        if job.ration is None and self.arrived is not None and (self.serves_all or not self.hides(job)):
            if self.waiting[-1] is job:
                self.arrived.append(job)
            else:
                self.arrived = None  # it comes before others, and they may wait for it
        if not self.round_due:
            self.need_round()

    def look_at_everything(self) -> None:
        """The next round must not rely on the last one: more than new jobs has happened."""
        self.arrived = None
        if not self.round_due:
            self.need_round()

    def need_round(self) -> None:
        """Something has happened that requires a round."""
        self.round_due = True
        if self is not self.state:
            self.state.due.append(self)

    def wait(self, job: JobView) -> None:
        """Put a job with ready tasks in its place among the waiting jobs, as far as the bound of its user allows."""
        if job.goes_to is not None:
            return
        ration = job.ration
        if ration is not None and job.kind in self.serves:
            job.ready = 0
            ration.seen.pop(job.id, None)
            if not job.endless:
                ration.line_up(self.name, job)
                ration.shown[job.id] = job
            if job.rigid and job.held:  # its slots count already
                job.ready = 1
                self.show(job)
            self.state.stale[ration.user] = ration
            return
        self.show(job)

    def show(self, job: JobView) -> None:
        """Put a job in its place among the waiting jobs."""
        for queue in self.queues.values() if self.serves_all else self._queues_of(job):
            queue.add(job)

    def step_out(self, job: JobView) -> None:
        """Before a job changes its place or its terms: all its ready tasks are seen, as if its user had no bound."""
        ration = job.ration
        if ration is None or not job.all_ready or job.goes_to is not None or job.release > self.now:
            return
        if job.kind in self.serves:
            if not job.endless:
                ration.step_out(self.name, job)
            if not job.ready:
                self.show(job)
            job.ready = job.all_ready
            self.state.stale[ration.user] = ration

    def step_in(self, job: JobView) -> None:
        """After such a change: the bound counts again."""
        if job.ration is not None and job.ready and job.goes_to is None and job.release <= self.now:
            self.wait_no_more(job)
            self.wait(job)

    def wait_no_more(self, job: JobView) -> None:
        """Remove a job without ready tasks from the waiting jobs."""
        if job.goes_to is not None:
            return
        for queue in self.queues.values() if self.serves_all else self._queues_of(job):
            queue.discard(job)

    def forget_orders(self) -> None:
        """Drop the orders and queues that are kept up to date and were not prepared for the next policy."""
        orders, queues = self.prepared_orders, self.prepared_queues
        self.orders = {key: ranked for key, ranked in self.orders.items() if key in orders}
        self.queues = {key: queue for key, queue in self.queues.items() if key is by_order or key in queues}
        orders.clear()
        queues.clear()

    def promise(self, job: JobView, start: Instant | None) -> None:
        """Record the start that a job is promised, or that it has no promise."""
        job.promise = start
        if self.profile is not None and not self.profile.promise(self.now, job.id, start):
            self.profile = None
        if start is None:
            self.promised.pop(job.id, None)
        else:
            self.promised[job.id] = job

    # Plans of workflows

    def look_at_plan(self, job: JobView) -> None:
        """A task of the job may have no place in the plan, or keep one for nothing."""
        if self.unplanned is not None and job.kind in self.placed and self._sees(job):
            self.unplanned[job.id] = job

    def plan_task(self, job: JobView, task: int, start: Instant, node: str) -> None:
        """Promise a task a start on a node instead of what it was promised; `NEVER`: promise it none."""
        if task in job.planned:
            self._leave_agenda(job, task)
        if start < NEVER:
            job.planned[task] = start, node
            insort(self.agenda.setdefault(node, []), (start, job.id, task))

    def unplan(self, job: JobView, task: int) -> None:
        """A task is not promised a start on a node any more."""
        self.layout = None
        self._leave_agenda(job, task)

    def _leave_agenda(self, job: JobView, task: int) -> None:
        start, node = job.planned.pop(task)
        agenda = self.agenda[node]
        del agenda[bisect_left(agenda, (start, job.id, task))]
        if not agenda:
            del self.agenda[node]

    def unplan_job(self, job: JobView) -> None:
        """No task of a job is promised a start on a node any more."""
        if job.planned:
            for task in list(job.planned):
                self.unplan(job, task)
        if self.unplanned is not None:
            self.unplanned.pop(job.id, None)

    def unplan_all(self, slots: Slots = -1) -> None:
        """Nothing is promised any more on the nodes of these slots; -1: on no node."""
        self.layout = None
        for node in [node for node in self.agenda if slots == -1 or self.state.nodes[node].slots & slots]:
            for _, number, task in self.agenda.pop(node):
                job = self.jobs[number]
                del job.planned[task]
                self.look_at_plan(job)

    def forget_planned(self) -> None:
        """Jobs of which all tasks have places need not be looked at again."""
        if self.unplanned:
            self.unplanned = {number: job for number, job in self.unplanned.items() if job.may_lack_places}

    def plan_anew(self) -> None:
        """There may be better places than those that are promised, and places for what had none."""
        self.unplan_all()
        self.unplanned = None

    def take_task(self, job: JobView, task: int | None = None) -> int:
        """Take a ready task of the job, the one named or the lowest numbered; return its number."""
        if task is None:
            if job.again:
                task = heappop(job.again)
            else:
                task = job.fresh
                job.fresh += 1
        elif task == job.fresh:
            job.fresh += 1
        elif task > job.fresh:
            for skipped in range(job.fresh, task):
                heappush(job.again, skipped)
            job.fresh = task + 1
        elif task == job.again[0]:
            heappop(job.again)
        else:
            job.again.remove(task)
            heapify(job.again)
        if job.ration is not None:
            self._take_within(job, job.ration)
            return task
        job.ready -= 1
        if not job.ready:
            self.wait_no_more(job)
        return task

    def _take_within(self, job: JobView, ration: Ration) -> None:
        """A ready task was taken of a job whose user has a bound; one that is launched behind another need not have
        been seen by the policy.
        """
        if job.ready:
            job.ready -= 1
            if not job.ready:
                self.wait_no_more(job)
        if not job.all_ready and job.goes_to is None and not job.endless and job.kind in self.serves:
            ration.step_out(self.name, job)
        self.state.stale[ration.user] = ration

    def is_ready(self, job: JobView, task: int) -> bool:
        """Whether this task could start now."""
        return job.fresh <= task < job.tasks or task in job.again

    def give_back(self, job: JobView, task: int) -> None:
        """Make a task ready, again or for the first time."""
        heappush(job.again, task)
        if task not in job.planned:
            self.look_at_plan(job)
        ration = job.ration
        if ration is not None and job.goes_to is None and job.kind in self.serves:
            if not job.endless and job.all_ready == 1:
                ration.line_up(self.name, job)
            self.state.stale[ration.user] = ration
            return
        job.ready += 1
        if job.ready == 1:
            self.wait(job)

    # Attempts

    def launch(
        self,
        job: JobView,
        task: int,
        slots: Slots,
        fed: bool,
        tier: Tier = FOREGROUND,
        seats: tuple[int, ...] = (),
        bounds: list[int] | None = None,
    ) -> None:
        """Start an attempt at a task that was taken, on free places.

        Args:
            bounds: the `bounds` of the slots, if they are known.
        """
        state = self.state
        job.tries[task] = number = job.tries.get(task, 0) + 1
        plain = job.rigid and self.uniform and not (job.kept or self.sites)
        expected_end = self.now + job.estimate if plain else self._expected_end(job, task, slots)
        attempt = AttemptView(job, task, number, slots, self.now, expected_end, fed, tier, seats)
        job.attempts[task] = attempt
        if job.ration is not None:
            self._use(job, job.ration, slots)
        if self.profile is not None:
            if tier is FOREGROUND and job.rigid:
                self.profile.start(self.now, job.id, job.width, max(expected_end, self.now + 1))
            else:
                self.profile = None
        if job.promise is not None:
            self.promise(job, None)
        if self.layout is not None and job.planned.get(task, (NEVER,))[0] != self.now:
            self.layout = None
        if task in job.planned:
            self._leave_agenda(job, task)
        if tier is FOREGROUND:
            insort(self.running, (expected_end, job.id, task, attempt))
            if job.predicted:
                state.foresee(attempt)
            given = self.given.get((job.id, task)) if self.given else None
            if given is not None and given.slots is slots and given.were_free and self.giving is not None:
                attempt.bounds, attempt.frees = given.bounds, job.width
                self.toggle(attempt, job.width)
            else:
                if self._toggled:
                    self._look_at_toggled()
                was_free, was_busy = self._free, self._busy
                taken = was_free & slots
                are_free, counts = taken == slots, not job.graph
                self._free, self._busy = was_free ^ taken, was_busy | slots
                self.giving = None
                if bounds is None and given is not None and given.slots is slots:
                    bounds = given.bounds
                if bounds is None or not are_free:
                    self.kept_runs = None
                elif self.kept_runs is not None:
                    take_out(self.kept_runs, bounds)
                if bounds is not None:
                    attempt.bounds = bounds
                    attempt.frees = job.width if are_free else -1
                self.counted = self.counted - job.width if self.counted >= 0 and counts and are_free else -1
                are_idle = are_free or not was_busy & slots
                self.count_busy = self.count_busy + job.width if self.count_busy >= 0 and counts and are_idle else -1
        else:
            given = self.given.get((job.id, task)) if self.given else None
            if given is not None and given.slots is slots:
                attempt.bounds = given.bounds
            self._run_behind(attempt, is_new=True)
        if state.touched is not None:
            state.touched.append(job)
        if state.starts_reported or job.spec.fetches:
            attempt.running = self._runs_from_launch(job, slots)
        state.actions.append(Launch(job.id, task, number, slots, tier, seats))

    def _use(self, job: JobView, ration: Ration, slots: Slots) -> None:
        """An attempt at a task of a user with a bound has slots from now on."""
        if job.rigid:
            ration.recount(job)
        else:
            ration.use(job, count(slots))
        self.state.stale[ration.user] = ration
        if len(ration.lines) > 1 or self.state.services:
            self.state.share(ration)  # others see the same room

    def keep_runs(self) -> None:
        """A plan was carried out: the runs of the free slots are kept if what was given, and no more, was taken."""
        if self.giving is not None and self.giving.room == self.counted:
            self.kept_runs = self.giving.runs
        self.giving = None
        self.given.clear()

    def busy_slots(self) -> int:
        """How many slots are busy. They are counted only if it could not be followed since the last time."""
        if self.count_busy < 0:
            self.count_busy = count(self.busy)
        return self.count_busy

    def _runs_from_launch(self, job: JobView, slots: Slots) -> bool:
        return not (job.spec.fetches or any(self.slot_nodes[slot].spec.reports_start for slot in numbers(slots)))

    def begin(self, attempt: AttemptView) -> None:
        """A launched attempt that is not queued has begun to run now."""
        self.profile = self.layout = None
        if attempt.tier is FOREGROUND:
            self._leave_running(attempt)
        attempt.start = attempt.since = attempt.saved = self.now
        attempt.stepped = False
        attempt.expected_end = self._expected_end(attempt.job, attempt.task, attempt.slots, begun=True)
        if attempt.tier is FOREGROUND:
            insort(self.running, (attempt.expected_end, attempt.job.id, attempt.task, attempt))
            self.state.foresee(attempt)
        self.arrived = None  # it ends later than expected

    def change_tiers(self, attempts: list[AttemptView]) -> None:
        """Move each of these attempts to the other place of its slots; they may take each other's."""
        vacated = NO_SLOTS
        self.profile = self.layout = None
        for attempt in attempts:
            if attempt.tier is FOREGROUND:
                self._leave_running(attempt)
                self.busy ^= self.busy & attempt.slots
                vacated |= attempt.slots
            else:
                self.background.remove(attempt)
                self._leave_behind(attempt)
        for attempt in attempts:
            job, slots = attempt.job, attempt.slots
            attempt.since = self.now
            attempt.expected_end = self._expected_end(job, attempt.task, slots, begun=True)
            attempt.tier = BACKGROUND if attempt.tier is FOREGROUND else FOREGROUND
            self.take_place(attempt)
            if self.state.touched is not None:
                self.state.touched.append(job)
            self.state.actions.append(ChangeTier(job.id, attempt.task, attempt.number, attempt.tier))
        vacated = outside(vacated, self.busy)
        if vacated:
            self._vacate(vacated)

    def take_place(self, attempt: AttemptView) -> None:
        """Count the time of an attempt from now on in its current tier."""
        if attempt.tier is FOREGROUND:
            self._run(attempt)
        else:
            self._run_behind(attempt)

    def leave_place(self, attempt: AttemptView) -> None:
        """An attempt goes to another pool, with its slots."""
        self.profile = self.layout = None
        if attempt.tier is FOREGROUND:
            self._leave_running(attempt)
            self.busy ^= self.busy & attempt.slots
        else:
            self.background.remove(attempt)
            self._leave_behind(attempt)

    def queue_ahead(self, attempt: AttemptView) -> None:
        """Put an attempt in its place among those that wait behind another one on its slot."""
        insort(self.ahead.setdefault(attempt.slots.bit_length() - 1, []), attempt, key=_by_task)

    def _run(self, attempt: AttemptView) -> None:
        self.profile = self.layout = None
        job, slots = attempt.job, attempt.slots
        is_whole = job.rigid and attempt.bounds is not None and slots & self.up == slots
        attempt.frees = job.width if is_whole else -1
        insort(self.running, (attempt.expected_end, job.id, attempt.task, attempt))
        self.state.foresee(attempt)
        self.busy |= slots
        counted, taken = self.counted, self.free & slots
        self.free ^= taken
        if attempt.frees >= 0 and taken == slots and counted >= 0:
            self.counted = counted - job.width

    def _run_behind(self, attempt: AttemptView, *, is_new: bool = False) -> None:
        insort(self.background, attempt, key=_by_job)
        before, self.behind = self.behind, self.behind | attempt.slots
        if is_new and attempt.bounds is not None and self.of_behind == before and self.of_up == self.up:
            take_out(self.bare, attempt.bounds)
            self.of_behind = self.behind

    def _leave_behind(self, attempt: AttemptView) -> None:
        before, slots = self.behind, attempt.slots
        self.behind = before ^ (before & slots)
        is_known = attempt.bounds is not None and self.of_behind == before and self.of_up == self.up
        if is_known and attempt.bounds is not None and slots & self.up == slots and slots & before == slots:
            unite(self.bare, attempt.bounds)
            self.of_behind = self.behind

    def _leave_running(self, attempt: AttemptView) -> None:
        del self.running[bisect_left(self.running, (attempt.expected_end, attempt.job.id, attempt.task))]

    def _startup_on(self, slots: Slots) -> Duration:
        """How long an attempt holds these slots before it begins its work."""
        return max([self.startup_at(self.slot_nodes[slot].spec) for slot in numbers(slots)])

    def _expected_end(self, job: JobView, task: int, slots: Slots, *, begun: bool = False) -> Instant:
        """The expected end of an attempt that starts now, from its last checkpoint if it has one.

        It begins its work when its site lets it, and all that other tasks send to it has arrived.

        Args:
            begun: whether it is known that it has begun now.
        """
        alike = self.uniform and not job.mean_size and not job.graph
        run_time = job.estimate if alike else self.time_of(job, task, slots)
        begin = self.now
        if self.sites and not begun:
            begin += self._startup_on(slots)
        if job.outputs:
            begin = max(begin, self.inputs_at(job, task, self.slot_nodes[slots.bit_length() - 1].spec))
        return begin + (max(0, run_time - job.kept.get(task, 0)) if job.kept else run_time)

    def correct_prediction(self, job: JobView) -> None:
        """An attempt has run for longer than predicted: the job's estimate is what the user said, and all know it."""
        running = [attempt for attempt in job.attempts.values() if not attempt.queued and attempt.tier is FOREGROUND]
        before = [self._expected_end(job, attempt.task, attempt.slots) for attempt in running]
        indexes = self.indexes_of(job)
        for index in indexes:
            index.discard(job)
        unpredict(job)
        for index in indexes:
            index.add(job)
        for attempt, was in zip(running, before, strict=True):
            self._leave_running(attempt)
            attempt.expected_end += self._expected_end(job, attempt.task, attempt.slots) - was
            insort(self.running, (attempt.expected_end, job.id, attempt.task, attempt))
        self.profile = self.layout = None
        self.look_at_everything()

    def end(self, attempt: AttemptView, outcome: Outcome, *, struck: bool = False) -> None:
        """An attempt has ended: settle its task or make it ready again, then pass its slots on.

        Args:
            struck: by what need not be its task's doing, see `TaskStruck`.
        """
        job, task = attempt.job, attempt.task
        if attempt.struck and outcome is KILLED:
            outcome = LOST  # with the node on which a part of it ran
        del job.attempts[task]
        if attempt.queued:
            self._leave_queue(attempt)
        elif attempt.tier is FOREGROUND:
            self._leave_running(attempt)
        else:
            self.background.remove(attempt)
        if self.state.touched is not None:
            self.state.touched.append(job)
        if outcome is not SUCCEEDED or attempt.expected_end != self.now:
            self.layout, self.strayed = None, bool(self.agenda)
        if job.endless:
            outcome = lifecycle.end_of_instance(job, attempt, outcome, self.now)
        succeeded = outcome is SUCCEEDED
        suspicion = self.state.suspicions.get((job.id, task)) if self.state.suspicions else None
        guilty = suspicion is not None and suspicion.guilty
        if outcome is LOST and self.state.rules < lifecycle.ISOLATING:
            job.losses = more(job.losses, task)
            guilty = job.losses[task] >= lifecycle.LOSSES_MAX
        elif not succeeded and outcome.is_own_doing:
            if struck:
                job.strikes = more(job.strikes, task)
            if not struck or job.strikes[task] > lifecycle.STRIKES_MAX:
                job.failures = more(job.failures, task)
            if suspicion is not None:
                suspicion.clear()
        if succeeded or lifecycle.verdict(job, task, outcome, guilty=guilty) is lifecycle.Verdict.SETTLE:
            if succeeded:
                if isinstance(job.dropped, set):
                    job.dropped.discard(task)
            elif job.cancelled or task in job.dropped:
                outcome = CANCELLED
            self._settle(job, attempt, outcome)
        else:
            if not attempt.queued:
                self._lose_work(attempt, outcome)
            if suspicion is not None and suspicion.runs_alone:
                self.state.set_apart(job, task)
            else:
                self.give_back(job, task)
        if job.failed and job.endless:
            self._close_service(job)
        goal, goes_on, ration = attempt.goal, False, job.ration
        if ration is not None and not job.rigid and not attempt.queued:
            ration.use(job, -count(attempt.slots))
        if goal is not None:
            self.leave_goal(attempt, goal)
            goes_on = self.is_ready(job, task)
        if ration is not None:
            if job.rigid:
                ration.recount(job)
            goes_on = goes_on and goal is not None and count(goal.slots) <= ration.room
        if goes_on:
            self.take_task(job, task)  # before its slots go to the next job, maybe its own
        if ration is not None:
            self._pass_room_on(ration, attempt, goal if goes_on else None)
        if attempt.tier is BACKGROUND:
            self._leave_behind(attempt)
        elif not attempt.queued:
            if self.profile is not None:
                self._end_in_profile(self.profile, attempt)
            frees = self.freed_by(attempt) if job.kind is BAG else attempt.frees
            known = not job.graph and frees == job.width
            self._vacate(attempt.slots, frees, job.width if known else -1, attempt)
        if not attempt.fed or self.task_rounds or not succeeded:
            self.look_at_everything()
        if goal is not None and goes_on:
            if ration is not None:
                ration.used -= count(goal.slots)
            bounds = goal.bounds if goal.tier is FOREGROUND else None
            self.launch(job, task, goal.slots, fed=False, tier=goal.tier, seats=goal.seats, bounds=bounds)
        if not job.attempts:
            self.conclude_if_done(job)

    def _pass_room_on(self, ration: Ration, attempt: AttemptView, goal: Goal | None) -> None:
        """An attempt of a user with a bound has ended: others see the room that it leaves, before its slots go to them.

        Args:
            goal: where its task continues: room for that is kept.
        """
        if goal is not None:
            ration.used += count(goal.slots)
        self.state.stale[ration.user] = ration
        if not (self.ahead and attempt.slots.bit_length() - 1 in self.ahead):  # else one that is queued there runs
            self.state.share(ration)

    def _close_service(self, job: JobView) -> None:
        """A service has failed: nothing more of it starts, and its instances end."""
        self.step_out(job)
        for task in list(job.apart):
            self.state.leave_apart(job, task)
        if job.ready:
            job.ready, job.fresh, job.again = 0, job.tasks, []
            self.wait_no_more(job)
        job.unfinished = len(job.attempts)
        self.give_up(job, job.held)
        for _, attempt in sorted(job.attempts.items()):
            self.ask_to_end(attempt)

    def _end_in_profile(self, profile: KeptProfile, attempt: AttemptView) -> None:
        """The slots of an ended attempt become free, earlier than expected or not; nobody waits for just these."""
        if self.allocated or self.ahead:
            self.profile = None
        else:
            end = max(attempt.expected_end, attempt.start + 1)
            profile.end(self.now, self.freed_by(attempt), end)

    def leave_goal(self, attempt: AttemptView, goal: Goal) -> None:
        """Release what was kept for an attempt that moves."""
        attempt.goal = None
        if goal.tier is BACKGROUND:
            kept = outside(goal.slots, attempt.slots) if attempt.tier is BACKGROUND else goal.slots
            self.behind = outside(self.behind, kept)
        elif kept := goal.slots & attempt.job.held:
            if attempt.job.rigid:
                self.let_go(attempt.job, attempt.job.held, goal.bounds)
            else:
                self.let_go(attempt.job, kept)
        self.look_at_everything()

    def close_task(self, job: JobView, task: int, attempt: int, outcome: Outcome) -> None:
        """A task has its final outcome: drop what was counted about it."""
        job.unfinished -= 1
        if task in job.planned:
            self.unplan(job, task)
        if outcome is not SUCCEEDED:
            self.look_at_plan(job)
        job.tries.pop(task, None)
        for counts in (job.failures, job.losses, job.strikes, job.kept):
            if counts:
                without(counts, task)
        if self.state.suspicions:
            self.state.suspicions.pop((job.id, task), None)
        if job.mean_size:
            job.size_left = max(0.0, job.size_left - job.sizes[task])  # sums of fractions are not exact
        self.state.actions.append(Settle(job.id, task, attempt, outcome))

    def _settle(self, job: JobView, attempt: AttemptView, outcome: Outcome) -> None:
        on_its_own = attempt.tier is FOREGROUND and attempt.since == attempt.start and not attempt.stepped
        if job.kept and attempt.task in job.kept and (job.moves or job.kills):
            on_its_own = False  # what it went on from may have been done in the background
        if job.observed is not None and outcome is SUCCEEDED and on_its_own and not attempt.queued:
            self._observe(job, attempt)
        self.close_task(job, attempt.task, attempt.number, outcome)
        if outcome is not SUCCEEDED:
            job.failed = job.failed or outcome is not CANCELLED
            return
        job.ended += 1
        job.spent += 0 if attempt.queued else self.now - attempt.start
        if job.sends:
            job.outputs[attempt.task] = place_of(self.slot_nodes[attempt.slots.bit_length() - 1].spec), self.now
        if job.followers and not job.cancelled:
            missing = job.missing
            assert isinstance(missing, list)
            for follower in job.followers[attempt.task]:
                missing[follower] -= 1
                if not missing[follower] and follower not in job.dropped:
                    self.give_back(job, follower)

    def _observe(self, job: JobView, attempt: AttemptView) -> None:
        """Correct the estimate of a bag's tasks by the run time of this one."""
        assert job.observed is not None
        node = self.slot_nodes[attempt.slots.bit_length() - 1].spec
        took = self.now - attempt.start + job.kept.get(attempt.task, 0)
        if self.sites and self._runs_from_launch(job, attempt.slots):
            took = max(0, took - self.startup_at(node))  # its site's time is not its own
        if job.mean_size:
            took = min(round(took * job.mean_size / job.sizes[attempt.task]), LONGEST)
        here = job.times.get(node.node_class)
        if here is None:
            here = RunTimes(took)
            job.times = {**job.times, node.node_class: here}
        here.add(took)
        job.observed.add(took if node.speed == 1.0 else min(round(took * node.speed), LONGEST))
        job.predicted = False
        if job.observed.mean == job.estimate:
            return
        before = [(index, index.key(job)) for index in self.indexes_of(job)]
        was, job.estimate = job.estimate, job.observed.mean
        moving = [index for index, key in before if index.key(job) != key]
        if moving:
            job.estimate = was
            for index in moving:
                index.discard(job)
            job.estimate = job.observed.mean
            for index in moving:
                index.add(job)

    def _lose_work(self, attempt: AttemptView, outcome: Outcome) -> None:
        """Count the lost work of an attempt that is to be redone, without what its last checkpoint keeps."""
        job = attempt.job
        if outcome is KILLED and attempt.ending:
            job.moves += attempt.saving
            job.kills += not attempt.saving
        if attempt.tier is FOREGROUND:
            job.lost += (self.now - max(attempt.since, attempt.saved)) * count(attempt.slots)
        if attempt.saved > attempt.start:
            # It is unknown how much it did in the background, so that time does not count.
            kept = attempt.saved - attempt.since if attempt.tier is FOREGROUND else 0
            job.kept = more(job.kept, attempt.task, max(0, kept))

    def _vacate(self, slots: Slots, counted: int = -1, width: int = -1, attempt: AttemptView | None = None) -> None:
        """Pass on the slots of an ended attempt: to what is queued there, or to their owners, or set them free.

        Args:
            counted: how many of them are up; -1: they were not counted.
            width: how many they are; -1: they were not counted.
            attempt: which has ended; None: attempts that have gone to the background.
        """
        if self.ahead and (slot := slots.bit_length() - 1) in self.ahead:
            self._promote(slot)
            return
        bounds = None if attempt is None else attempt.bounds
        claimed = slots & self.allocated
        if attempt is not None and bounds is not None and counted == width > 0 and not claimed:
            self.toggle(attempt, -width)
            self.giving = None
            if self.kept_runs is not None:
                unite(self.kept_runs, bounds)
            self.look_at_everything()
            return
        if self._toggled:
            self._look_at_toggled()
        was_free, was_busy = self._free, self._busy
        ended = was_busy & slots
        self._busy = was_busy ^ ended
        if ended:
            self.count_busy = self.count_busy - width if self.count_busy >= 0 and width > 0 else -1
        freed = slots if counted == width > 0 else slots & self.up
        if claimed:
            freed &= ~claimed
        if freed:
            self._free = was_free | freed
            self.kept_runs = self.giving = None
            is_followed = self.counted >= 0 and counted >= 0 and not claimed
            self.counted = self.counted + counted if is_followed else -1
            self.look_at_everything()
        if claimed:
            self.feed_all(claimed)

    def feed_all(self, slots: Slots) -> None:
        """Start what can start on these slots, on which nothing runs, or give them back, see `feed`."""
        for slot, owner in self.owners_on(slots):
            if owner.held and (owner.rigid or self.owners.get(slot) is owner):
                self.feed(owner, slot)

    def owners_on(self, slots: Slots) -> list[tuple[int, JobView]]:
        """The slots of these that are allocated, each with its job; of those of a rigid job only the lowest."""
        if not self.claimants:
            return [(slot, self.owners[slot]) for slot in numbers(slots & self.allocated)]
        found, rest = [], slots & self.allocated
        for job in self.claimants.values():
            here = job.held & rest
            if here:
                found.append((first(here), job))
                rest ^= here
        found += [(slot, self.owners[slot]) for slot in numbers(rest)]
        found.sort(key=_by_slot)
        return found

    def feed(self, job: JobView, slot: int) -> None:
        """Start what can start on a slot of the job on which nothing runs, or give the slot back."""
        if not job.ready:
            self.let_go(job, job.held if job.rigid else 1 << slot)
            self.look_at_everything()
        elif not job.rigid:
            self.launch(job, self.take_task(job), 1 << slot, fed=True)
            self._read_ahead(job, slot)
        elif not job.held & self.busy:
            slots, seats = job.held, job.seats
            self.let_go(job, slots)
            self.launch(job, self.take_task(job), slots, fed=False, seats=seats)

    def _read_ahead(self, job: JobView, slot: int) -> None:
        """Launch short tasks behind the running one, as long as every slot of the job has its next task."""
        rules = self.state.rules
        depth = lifecycle.ahead_of_turn(job, self.slot_nodes[slot].spec, rules)
        if not depth:
            return
        queue, held = self.ahead.get(slot, []), job.held.bit_count()
        if rules >= lifecycle.READING_BY_TIME:
            depth = min(depth, job.all_ready // held)
        while len(queue) < depth and job.all_ready > held:
            task = self.take_task(job)
            job.tries[task] = number = job.tries.get(task, 0) + 1
            expected_end = self._expected_end(job, task, 1 << slot)
            attempt = AttemptView(job, task, number, 1 << slot, self.now, expected_end, True)
            attempt.queued = True
            attempt.running = rules < lifecycle.ISOLATING or self._runs_from_launch(job, attempt.slots)
            job.attempts[task] = attempt
            insort(queue, attempt, key=_by_task)
            self.state.actions.append(Launch(job.id, task, number, attempt.slots))
        if queue:
            self.ahead[slot] = queue

    def _leave_queue(self, attempt: AttemptView) -> None:
        slot = attempt.slots.bit_length() - 1
        self.ahead[slot].remove(attempt)
        if not self.ahead[slot]:
            del self.ahead[slot]

    def _promote(self, slot: int) -> None:
        """The first attempt queued on a slot has begun to run there."""
        attempt = self.ahead[slot][0]
        self._leave_queue(attempt)
        job = attempt.job
        attempt.queued = attempt.stepped = False
        if job.ration is not None:
            self._use(job, job.ration, attempt.slots)
        attempt.start = attempt.since = attempt.saved = self.now
        attempt.expected_end = self._expected_end(job, attempt.task, attempt.slots)
        insort(self.running, (attempt.expected_end, job.id, attempt.task, attempt))
        self.state.foresee(attempt)
        if self.owners.get(slot) is job:
            self._read_ahead(job, slot)

    def conclude_if_done(self, job: JobView) -> None:
        """Drop a job if nothing more can happen to it, and report how it ended."""
        final = lifecycle.final_status(job)
        if final is not None:
            if job.held:
                self.let_go(job, job.held)
            if self.state.suspicions:
                for known in [known for known in self.state.suspicions if known[0] == job.id]:
                    del self.state.suspicions[known]
            if self.orders and not job.cancelled:
                self.unrank(job)
            self.state.leave(job, final)
            self.look_at_everything()

    def ask_to_end(self, attempt: AttemptView) -> None:
        """Ask the driver to kill an attempt, once."""
        if not attempt.ending or attempt.saving:
            attempt.ending, attempt.saving = True, False
            self.state.actions.append(Kill(attempt.job.id, attempt.task, attempt.number))

    def ask_to_save(self, attempt: AttemptView) -> None:
        """Ask the driver, once, to end an attempt that is to continue elsewhere or later."""
        if not attempt.ending:
            attempt.ending = attempt.saving = True
            self.state.actions.append(Suspend(attempt.job.id, attempt.task, attempt.number))

    def attempts_on(self, slots: Slots) -> list[AttemptView]:
        """The attempts that run on any of these slots, soonest expected end first, then those in the background."""
        found = [attempt for _, _, _, attempt in self.running if attempt.slots & slots]
        if slots & self.behind:
            found += [attempt for attempt in self.background if attempt.slots & slots]
        return found

    def _launched(self) -> Iterator[AttemptView]:
        """Every attempt that has not ended, from the indexes: not every job is looked at."""
        for _, _, _, attempt in self.running:
            yield attempt
        yield from self.background
        for ahead in self.ahead.values():
            yield from ahead

    def queued_on(self, slots: Slots) -> list[AttemptView]:
        """The attempts queued on any of these slots, by slot and task: a restored state must name them in this order.

        `ahead` itself has the order in which slots got their first queued attempt, which no record keeps.
        """
        there = sorted(slot for slot in self.ahead if slots >> slot & 1)
        return [attempt for slot in there for attempt in self.ahead[slot]]

    # Allocations

    def own(self, job: JobView, slots: Slots) -> None:
        """Allocate slots that are not allocated."""
        self.profile = self.layout = None
        job.held |= slots
        self.allocated |= slots
        given = self.given.get((job.id, 0)) if self.given and job.rigid else None
        if given is not None and given.slots is not slots:
            given = None
        if given is not None and given.were_free and self.giving is not None:
            self._free = self.free ^ slots
            if self.counted >= 0:
                self.counted -= job.width
        else:
            self.free ^= self.free & slots
        if not job.rigid:
            for slot in numbers(slots):
                self.owners[slot] = job
        elif slots:
            self.owners[first(slots) if given is None else given.bounds[0]] = self.claimants[job.id] = job
            if job.ration is not None:
                job.ration.recount(job)
                self.state.stale[job.ration.user] = job.ration
        if self.state.touched is not None:
            self.state.touched.append(job)

    def let_go(self, job: JobView, slots: Slots, bounds: list[int] | None = None) -> None:
        """End the job's allocation of these slots; running tasks continue.

        Args:
            bounds: the `bounds` of the slots, if they are known and all that a rigid job has.
        """
        self.profile = self.layout = None
        self.forget_owner(job, slots, -1 if bounds is None else bounds[0])
        job.held ^= job.held & slots
        if job.ration is not None and job.rigid:
            job.ration.recount(job)
            self.state.stale[job.ration.user] = job.ration
        job.seats = ()
        self.allocated ^= self.allocated & slots
        idle = slots & self.up
        idle ^= idle & self.busy
        counted, runs = self.counted, self.kept_runs
        self.free |= idle
        if bounds is not None and idle == slots:
            self.counted = counted + job.width if counted >= 0 else -1
            if runs is not None:
                unite(runs, bounds)
                self.kept_runs = runs
        if job.endless:
            self.state.displaced = True
        for slot in numbers(slots) if self.ahead else ():
            for attempt in self.ahead.get(slot, ()):
                self.ask_to_end(attempt)
        if self.state.touched is not None:
            self.state.touched.append(job)

    def forget_owner(self, job: JobView, slots: Slots, lowest: int = -1) -> None:
        """Slots that are allocated to a job, of a rigid one all, are its own no more.

        Args:
            lowest: the number of the lowest of them; -1: it must be found.
        """
        if not job.rigid:
            for slot in numbers(slots):
                del self.owners[slot]
        elif slots:
            assert slots == job.held, f"rigid job {job.id} gives up some of its slots"
            del self.owners[first(slots) if lowest < 0 else lowest], self.claimants[job.id]

    def give_up(self, job: JobView, slots: Slots) -> None:
        """End the job's allocation of these slots. Attempts that were to move to some of them do not go there."""
        for attempt in job.attempts.values():
            goal = attempt.goal
            if goal is not None and goal.tier is FOREGROUND and goal.slots & slots:
                self.leave_goal(attempt, goal)
        if slots & job.held:
            self.let_go(job, slots & job.held)

    # Nodes

    def forget_counts(self) -> None:
        """Other slots are up than before, or attempts lose some: what was counted by them is void."""
        self.profile = self.layout = None
        self.state.stale.update(self.state.rations)
        for _, _, _, attempt in self.running:
            attempt.frees = -1

    def open_slots(self, slots: Slots) -> None:
        """Slots can be allocated from now on, but for those that are to leave."""
        self.forget_counts()
        for leaving in self.leaving.values():
            slots &= ~leaving
        self.up |= slots
        self.free |= slots & ~self.busy & ~self.allocated
        self.plan_anew()
        self.look_at_everything()

    def close_slots(self, slots: Slots) -> None:
        """Close slots: they are not allocated any more, and cannot be. What runs there continues."""
        self.forget_counts()
        self.unplan_all(slots)
        self.up ^= self.up & slots
        self.free ^= self.free & slots
        for slot, owner in self.owners_on(slots):
            self.let_go(owner, owner.held if owner.rigid else 1 << slot)
        moving = {attempt.job.id for attempt in self._launched() if attempt.goal is not None}
        for job in [job for number, job in self.jobs.items() if number in moving] if moving else ():
            for attempt in job.attempts.values():
                if attempt.goal is not None and attempt.goal.slots & slots:
                    self.leave_goal(attempt, attempt.goal)
        self.look_at_everything()

    def dim(self, slots: Slots) -> None:
        """Slots on which nothing runs cannot be allocated: their node goes off. What is planned there stays planned."""
        self.forget_counts()
        self.up ^= self.up & slots
        self.free ^= self.free & slots
        self.arrived = None

    def light(self, slots: Slots) -> None:
        """Slots of a node that has come on can be allocated again."""
        self.forget_counts()
        for leaving in self.leaving.values():
            slots &= ~leaving
        self.up |= slots
        self.free |= slots & ~self.busy & ~self.allocated
        self.look_at_everything()

    def lose(self, slots: Slots, outcome: Outcome = LOST) -> None:
        """The slots are gone with what ran there; members of the same attempts elsewhere are killed.

        `outcome` is KILLED if it was requested: then the tasks are not suspected, see `lifecycle`.
        """
        self.forget_counts()
        for attempt in self.queued_on(slots):
            self.end(attempt, outcome)
        for attempt in self.attempts_on(slots):
            if attempt.slots & ~slots:
                if attempt.tier is FOREGROUND:
                    self.busy ^= self.busy & attempt.slots & slots
                else:
                    self.behind ^= self.behind & attempt.slots & slots
                ration = attempt.job.ration
                if ration is not None and not attempt.job.rigid:
                    ration.use(attempt.job, -count(attempt.slots & slots))
                attempt.slots ^= attempt.slots & slots
                attempt.frees, attempt.bounds = -1, None
                attempt.struck = attempt.struck or (outcome is LOST and self.state.rules >= lifecycle.ISOLATING)
                self.ask_to_end(attempt)
            else:
                self.end(attempt, outcome)


def pool_of(job: JobView) -> Pool:
    """The pool of a job."""
    return cast(Pool, job.pool)
