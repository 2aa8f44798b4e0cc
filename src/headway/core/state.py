"""All mutable state of the core. The indexes of its pools are in `pool`, the rules in `reactor` and `rounds`."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heappop, heappush, merge
from typing import Final, cast

from headway.core import lifecycle
from headway.core.pool import FOREGROUND, Pool, pool_of
from headway.core.suspicion import Isolation, Rank, Suspicion
from headway.core.views import predict, view_of
from headway.model.actions import Action, Conclude, JobStatus, ReturnMachine
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome
from headway.model.ration import Ration, by_rank, most_slots_for, uses_of
from headway.model.renting import Market, Rental, RentalStage
from headway.model.seen import AttemptView, JobView, NodeView
from headway.model.slots import NO_SLOTS, Slots

IDLE_UNKNOWN: Final[Slots] = -1
"""No set of slots: which nodes are idle is to be looked at again."""


class ClusterTotals:
    """What is where in all pools together.

    Attributes:
        up, free, busy, allocated: slots, as in `Snapshot`; those on their way to another pool are up, too.
        waiting: how many jobs wait.
    """

    __slots__ = ("allocated", "busy", "free", "up", "waiting")

    def __init__(self) -> None:
        self.up = self.free = self.busy = self.allocated = NO_SLOTS
        self.waiting = 0


def room_in(pool: Pool, job: JobView, left: int, most: int) -> tuple[int, int, bool]:
    """How many ready tasks of a job can start in the slots that are left to its user.

    Args:
        most: the slots that its user may have at once.

    Returns:
        How many; the slots that they need; and whether those behind it must wait until there is room for more of it.
    """
    if job.graph:
        return _room_in_workflow(pool, job, left, most)
    ready = min(job.all_ready, left // job.width)
    if ready or job.width <= left:
        return ready, ready * job.width, False
    return 0, 0, job.width <= most and job.width <= pool.up.bit_count()


def _room_in_workflow(pool: Pool, job: JobView, left: int, most: int) -> tuple[int, int, bool]:
    """The same for a workflow, whose tasks need slots by the nodes that there are."""
    specs = {(node.spec.slots, node.spec.cores): node.spec for node in pool.nodes.values() if node.slots & pool.up}
    needs = ready = 0
    for task in sorted(job.again):
        cores = job.graph[task].cores
        need = most_slots_for(cores, specs.values()) or most + 1
        if needs + need > left:
            return ready, needs, need <= most
        ready, needs = ready + 1, needs + need
    return ready, needs, False


def _by_end(entry: tuple[Instant, JobId, int, AttemptView]) -> tuple[Instant, JobId, int]:
    return entry[:3]


class State(Pool):
    """The core's state: the first pool, where jobs and slots come in, and what all pools share.

    Attributes:
        others: the pools that the policy of the first one has made, in order of making.
        due: those of them that require a round.
        unsettled: whether slots or jobs may wait to go to another pool.
        displaced: whether an instance of a service may run on a slot that its job does not have any more.
        actions: what the event under way asks of the driver, in sequence.
        leased: whether a node may have a lease.
        starts_reported: whether a node may report starts; then launched does not mean running.
        touched: jobs that may have or use other slots than before, if that is needed (then a list, emptied
            by its reader).
        draining: whether a node, or a slot of one, may be about to leave.
        departed: nodes that left, whose slot numbers a new node of the same site and size may take over.
        release_queue: jobs whose release date has not come, as a heap of `(release, id)`.
        estimate_default: the assumed run time of a task without an estimate.
        rules: the rules of the core, see `RulesChosen`.
        node_losses: how many nodes were lost.
        suspicions: what counts against tasks that are not settled, by job and task.
        suspects: tasks that wait to run alone, by their `Rank`.
        isolations: nodes that are set apart for suspected tasks.
        successors: jobs that come after a job in the system, by the id of that; in the order of their submission.
        switches: whether nodes may be switched off and on, or one is not on; once it was so, it stays so.
        dark: the nodes that are not on, by name.
        rents: whether machines can be rented, or could be; once it was so, it stays so.
        troubled: those of them that could not be switched and are tried again later, by name.
        switched: how often nodes were switched: the number of the last switch.
        services, flows: the services, and the workflows, in the system, by id.
        heads: the jobs that others come after and that wait or run, by id.
        alike: the first of those that will be on alike, and the slots of all of these; None: to be found again.
        idle: by site the idle nodes, by name, longest idle first, if nodes are switched off; see
            `headway.core.switching`.
        was_taken: the slots that were busy or allocated when that was noted last; `IDLE_UNKNOWN` if nodes have changed.
        expected: what the job of the next event will be, if that was made before.
        rations: the users with a bound on their slots, by name.
        stale: those of them of whose jobs policies may have to see more, or fewer, ready tasks.
        predictions: when attempts of jobs whose run times are predicted will have run for so long: a heap of
            `(expected end, job, task, number)`. Entries may be out of date.
    """

    __slots__ = (
        "actions",
        "alike",
        "dark",
        "departed",
        "displaced",
        "draining",
        "due",
        "estimate_default",
        "expected",
        "flows",
        "heads",
        "idle",
        "isolations",
        "leased",
        "node_losses",
        "others",
        "predictions",
        "rations",
        "release_queue",
        "rents",
        "rules",
        "services",
        "stale",
        "starts_reported",
        "successors",
        "suspects",
        "suspicions",
        "switched",
        "switches",
        "touched",
        "troubled",
        "unsettled",
        "was_taken",
    )

    def __init__(self, estimate_default: Duration) -> None:
        super().__init__()
        self.state = self
        self.others: list[Pool] = []
        self.due: list[Pool] = []
        self.unsettled = self.displaced = False
        self.actions: list[Action] = []
        self.draining = False
        self.departed: list[NodeView] = []
        self.release_queue: list[tuple[Instant, JobId]] = []
        self.estimate_default = estimate_default
        self.leased = False
        self.starts_reported = False
        self.touched: list[JobView] | None = None
        self.rules = lifecycle.RULES
        self.node_losses = 0
        self.suspicions: dict[tuple[JobId, int], Suspicion] = {}
        self.suspects: list[Rank] = []
        self.isolations: list[Isolation] = []
        self.successors: dict[JobId, list[JobView]] = {}
        self.switches = self.rents = False
        self.market = Market()
        self.dark: dict[str, NodeView] = {}
        self.troubled: dict[str, NodeView] = {}
        self.switched = 0
        self.alike: list[tuple[NodeView, Slots]] | None = None
        self.idle: dict[str, dict[str, NodeView]] = {}
        self.services: dict[JobId, JobView] = {}
        self.flows: dict[JobId, JobView] = {}
        self.heads: dict[JobId, JobView] = {}
        self.was_taken: Slots = IDLE_UNKNOWN
        self.expected: JobView | None = None
        self.predictions: list[tuple[Instant, JobId, int, int]] = []
        self.rations: dict[str, Ration] = {}
        self.stale: dict[str, Ration] = {}

    def enter(self, spec: JobSpec, predicted: Duration | None = None) -> None:
        """Add a submitted job to the system; it waits from its release date on.

        Args:
            predicted: see `JobSubmitted`.
        """
        expected, self.expected = self.expected, None
        is_made = expected is not None and expected.spec is spec
        job = expected if is_made and expected is not None else view_of(spec, self.estimate_default)
        if predicted is not None:
            predict(job, predicted)
            self.note_prediction(job)
        self.jobs[spec.id] = job
        job.pool = self
        if self.rations:
            job.ration = self.rations.get(spec.user)
            if job.ration is not None:
                self.stale[spec.user] = job.ration
        if job.endless:
            self.meet(job.kind)
        self.note_kind(job)
        before = [number for number in spec.after if number in self.jobs] if spec.after else ()
        if before:
            self.come_after(job, before)
        else:
            self.release(job)

    def note_prediction(self, job: JobView) -> None:
        """From now on policies must expect predicted run times, if that of this job is."""
        if job.predicted and not self.predicts:
            for pool in self.each():
                pool.predicts = True

    def release(self, job: JobView) -> None:
        """Let a job wait from its release date on, because it comes after no other job in the system."""
        if job.release > self.now:
            heappush(self.release_queue, job.order)
            self._let_rule_look()
        else:
            self._comes(job)

    def _comes(self, job: JobView) -> None:
        """A job begins to wait for slots; others may come after it."""
        self.note_head(job)
        self.arrive(job)

    def note_kind(self, job: JobView) -> None:
        """A job of this kind is in the system."""
        if job.endless:
            self.services[job.id] = job
        elif job.graph:
            self.flows[job.id] = job

    def note_head(self, job: JobView) -> None:
        """A job waits or runs, or another one comes after it."""
        if job.id in self.successors and not job.after and job.release <= self.now:
            self.heads[job.id] = job

    def come_after(self, job: JobView, before: Iterable[JobId]) -> None:
        """Hold a job until these jobs have succeeded."""
        job.after = set(before)
        job.release = NEVER
        for number in job.after:
            self.successors.setdefault(number, []).append(job)
            if number in self.jobs:  # else it is restored later
                self.note_head(self.jobs[number])
        self._let_rule_look()

    def _let_rule_look(self) -> None:
        """A job comes later: nodes that are off may have to be on by then."""
        if self.switches and not self.round_due:
            self.need_round()

    def go_without(self, number: JobId) -> list[JobView]:
        """A job has left the system. Returns the jobs that came after it."""
        found = self.successors.pop(number, [])
        for job in found:
            if isinstance(job.after, set):
                job.after.discard(number)
        return found

    def release_due_jobs(self) -> None:
        """Let every job wait whose release date has come."""
        while self.release_queue and self.release_queue[0][0] <= self.now:
            job = self.jobs.get(heappop(self.release_queue)[1])
            if job is not None:
                self._comes(job)

    def next_release(self) -> Instant:
        """The instant at which the next held job is released."""
        queue = self.release_queue
        while queue and queue[0][1] not in self.jobs:
            heappop(queue)  # cancelled before its release
        return queue[0][0] if queue else NEVER

    def leave(self, job: JobView, final: JobStatus) -> None:
        """A job leaves the system: jobs after it are released if it succeeded, and end otherwise."""
        leaving = [(job, final)]
        for one, status in leaving:
            del self.jobs[one.id]
            one.note = None  # it may lead back to the job, which then is not freed until cycles are looked for
            for index in (self.services, self.flows, self.heads):
                if index:
                    index.pop(one.id, None)
            pool = pool_of(one)
            if pool is not self:
                del pool.jobs[one.id]
            if pool.departing:
                pool.departing.pop(one.id, None)
            pool.unplan_job(one)
            if one.promise is not None:
                pool.promise(one, None)
            if one.ration is not None:
                self.stale[one.spec.user] = one.ration
            if one.endless:
                self.look_at_everything()  # its slots are for others now
            for number in one.after:
                self.successors[number].remove(one)
                if not self.successors[number]:
                    del self.successors[number]
                    self.heads.pop(number, None)
            if self.rents:
                self.market.forget(one.id)
            self.actions.append(Conclude(one.id, status))
            for successor in self.go_without(one.id) if one.id in self.successors else ():
                if status is not JobStatus.SUCCEEDED:
                    if not successor.cancelled:
                        successor.cancelled = True
                        leaving.append((successor, JobStatus.CANCELLED))
                elif not successor.after and not successor.cancelled:
                    successor.release = max(successor.spec.release, self.now)
                    successor.order = (successor.release, successor.id)
                    self.release(successor)

    def current(self, job: JobId, task: int, attempt: int) -> AttemptView | None:
        """The attempt with this number, if the core waits for it and no later one."""
        view = self.jobs.get(job)
        found = None if view is None else view.attempts.get(task)
        return found if found is not None and found.number == attempt else None

    def hand_back(self, rental: Rental) -> None:
        """A rented machine is no node any more, or will be none: it is given back."""
        if rental.stage is not RentalStage.RETURNS:
            rental.stage = RentalStage.RETURNS
            self.actions.append(ReturnMachine(rental.number, rental.offer.site, rental.node))

    def let_instances_leave(self) -> None:
        """Ask instances of services to end that run on slots that their jobs do not have any more."""
        self.displaced = False
        for job in self.services.values():
            for _, attempt in sorted(job.attempts.items()):
                if attempt.slots & ~job.held and not attempt.alone:
                    self.let_leave(attempt)

    def let_leave(self, attempt: AttemptView) -> None:
        """Ask an instance of a service to finish what it does and end."""
        if attempt.slots & self.limits.fixed:
            pool_of(attempt.job).ask_to_end(attempt)
        else:
            pool_of(attempt.job).ask_to_save(attempt)

    def set_apart(self, job: JobView, task: int) -> None:
        """A suspected task waits to run alone."""
        suspicion = self.suspicions[job.id, task]
        suspicion.waits = self.now
        job.apart = sorted([*job.apart, task])
        insort(self.suspects, suspicion.rank)
        pool_of(job).look_at_everything()

    def leave_apart(self, job: JobView, task: int) -> None:
        """A suspected task no longer waits to run alone."""
        job.apart = [other for other in job.apart if other != task]
        self.suspects.remove(self.suspicions[job.id, task].rank)

    def shift(self, by: Duration) -> None:
        """Time has jumped: every attempt counts as started later by this much, and its run time is not used for
        learning.
        """
        for job in self.jobs.values():
            for attempt in job.attempts.values():
                attempt.start += by
                attempt.since += by
                attempt.saved += by
                attempt.expected_end += by
                attempt.stepped = True
        for suspicion in self.suspicions.values():
            suspicion.waits += by
        self.predictions.clear()
        for pool in self.each():
            pool.running = [(attempt.expected_end, job, task, attempt) for _, job, task, attempt in pool.running]
            for _, _, _, attempt in pool.running:
                self.foresee(attempt)
            pool.profile = pool.layout = None
            pool.look_at_everything()

    # Bounds of users

    def bound(self, user: str, most: int | None) -> None:
        """From now on the tasks of a user may have so many slots at once; None: any number."""
        ration = self.rations.get(user)
        if ration is not None and most is not None:
            ration.allowed = max(most, ration.used)
            ration.most = most
            self.stale[user] = ration
            self._give_up_gathered(ration)
            return
        jobs = [job for job in self.jobs.values() if job.spec.user == user]
        if ration is not None:
            for job in jobs:
                pool_of(job).step_out(job)
                job.ration, job.uses = None, 0
                pool_of(job).look_at_everything()
            del self.rations[user]
            self.stale.pop(user, None)
        elif most is not None:
            ration = self.rations[user] = self.stale[user] = Ration(user, most)
            for job in jobs:
                job.ration = ration
                ration.use(job, uses_of(job))
                pool_of(job).step_in(job)
            ration.allowed = max(most, ration.used)
            self._give_up_gathered(ration)

    def _give_up_gathered(self, ration: Ration) -> None:
        """Slots that are kept for rigid jobs until they have enough are given up as far as the bound forbids them."""
        for job in sorted(ration.shown.values(), key=by_rank, reverse=True):
            if ration.used > ration.most and job.held and job.rigid:
                pool_of(job).give_up(job, job.held)

    def _bounded_services(self, ration: Ration) -> list[JobView]:
        """The services of a user that wait in a pool whose policy serves them."""
        found = [job for job in self.services.values() if job.ration is ration and job.release <= self.now]
        return [job for job in found if job.goes_to is None and job.kind in pool_of(job).serves]

    def share_all(self, *, is_restored: bool = False) -> None:
        """Let policies see as many ready tasks of users with bounds as these leave room for.

        Args:
            is_restored: nothing has changed since they saw them last.
        """
        while self.stale:
            ration = self.stale[next(iter(self.stale))]
            self.share(ration, is_restored=is_restored)
            jobs = [*ration.shown.values(), *self._bounded_services(ration)]
            for job in jobs:
                if job.ready > ration.seen.get(job.id, 0) and not is_restored:
                    pool_of(job).look_at_everything()
            ration.seen = {job.id: job.ready for job in jobs}
            ration.allowed = max(ration.most, ration.used if is_restored else min(ration.allowed, ration.used))
            del self.stale[ration.user]

    def share(self, ration: Ration, *, is_restored: bool = False) -> None:
        """Let the first jobs in each line of a user have as many ready tasks as the bound leaves room for."""
        for name, line in list(ration.lines.items()):
            pool = self.pools.get(name, self)
            for job, ready in self._sharing(cast(Pool, pool), ration, line):
                if ready:
                    ration.shown[job.id] = job
                else:
                    ration.shown.pop(job.id, None)
                self._see(job, ready)
                if not (ready or is_restored or job.promise is None):
                    pool_of(job).promise(job, None)
                    pool_of(job).look_at_everything()
        for job in self._bounded_services(ration):
            self._see(job, min(job.all_ready, ration.room))

    def _sharing(self, pool: Pool, ration: Ration, line: list[JobView]) -> list[tuple[JobView, int]]:
        """How many ready tasks are to be seen of the jobs in a line, of those that matter.

        A job for which there is not enough room stops those behind it, so that it need not wait for ever; but not if it
        can have no room, or no slots, as things are.
        """
        left = ration.room
        found: list[tuple[JobView, int]] = []
        given: set[JobId] = set()
        for job in line:
            if job.rigid and job.held:  # its slots count already
                continue
            if not left:
                break
            ready, needs, blocks = room_in(pool, job, left, ration.most)
            if ready:
                given.add(job.id)
                found.append((job, ready))
            left -= needs
            if blocks:
                break
        shown = [job for job in ration.shown.values() if job.pool is pool and job.id not in given]
        return found + [(job, 0) for job in shown if not job.rigid or not job.held]

    def _see(self, job: JobView, ready: int) -> None:
        """Policies see so many ready tasks of a job."""
        pool = pool_of(job)
        was, job.ready = job.ready, ready
        if ready and not was:
            pool.show(job)
        elif was and not ready:
            pool.wait_no_more(job)
            pool.arrived = None

    # Predictions

    def foresee(self, attempt: AttemptView) -> None:
        """Look at an attempt again when it has run in the foreground for as long as predicted."""
        if attempt.job.predicted:
            heappush(self.predictions, (attempt.expected_end, attempt.job.id, attempt.task, attempt.number))

    def time_said(self, job: JobView, task: int, slots: Slots) -> Duration:
        """How long a task runs on these slots by what is told to users.

        That is as `time_of`, but not a prediction: the policy may have asked for one that is mostly too short.
        """
        if not job.predicted:
            return self.time_of(job, task, slots)
        return self.run_time(job.sized(job.said, task), slots)

    def correct_predictions(self) -> None:
        """Where an attempt has run for longer than predicted, what the user said holds again."""
        late = self.predictions
        while late and late[0][0] < self.now:
            expected_end, number, task, tried = heappop(late)
            job = self.jobs.get(number)
            attempt = None if job is None else job.attempts.get(task)
            if attempt is None or attempt.number != tried or attempt.expected_end != expected_end:
                continue
            if attempt.job.predicted and attempt.tier is FOREGROUND and not attempt.queued:
                pool_of(attempt.job).correct_prediction(attempt.job)

    # All pools

    def each(self) -> list[Pool]:
        """All pools, the first one first."""
        return [self, *self.others]

    def parts(self, slots: Slots) -> list[tuple[Pool, Slots]]:
        """Which pools have which of these slots; those that have none of them are left out."""
        found: list[tuple[Pool, Slots]] = []
        for pool in self.each():
            part = slots & pool.slots
            if part:
                found.append((pool, part))
        return found

    def totals(self) -> ClusterTotals:
        """What is where in all pools together."""
        found = ClusterTotals()
        leaving = NO_SLOTS
        for pool in self.each():
            found.up |= pool.up
            for slots in pool.leaving.values():
                leaving |= slots
            found.free |= pool.free
            found.busy |= pool.busy
            found.allocated |= pool.allocated
            found.waiting += len(pool.waiting) + len(pool.unserved)
        for node in self.nodes.values() if leaving else ():
            if node.is_open:
                found.up |= leaving & node.slots & ~node.closing
        return found

    def runs(self) -> list[AttemptView]:
        """What runs in the foreground of any pool, soonest expected end first."""
        if not self.others:
            return [entry[-1] for entry in self.running]
        return [entry[-1] for entry in merge(*[pool.running for pool in self.each()], key=_by_end)]

    def runs_behind(self) -> list[AttemptView]:
        """What runs in the background of any pool."""
        return [attempt for pool in self.each() for attempt in pool.background]

    def waits_behind(self) -> list[AttemptView]:
        """What is queued behind another attempt on its slot, in any pool."""
        return [attempt for pool in self.each() for queue in pool.ahead.values() for attempt in queue]

    def runs_on(self, slots: Slots) -> list[AttemptView]:
        """What runs on any of these slots, in the foreground or behind."""
        return [attempt for pool, part in self.parts(slots) for attempt in pool.attempts_on(part)]

    def taken(self, slots: Slots) -> Slots:
        """Those of these slots on which something runs, in the foreground or behind."""
        found = NO_SLOTS
        for pool, part in self.parts(slots):
            found |= part & (pool.busy | pool.behind)
        return found

    def open_all(self, slots: Slots) -> None:
        """Slots of whatever pools can be allocated from now on."""
        for pool, part in self.parts(slots):
            pool.open_slots(part)
        self.let_top_level_look()

    def let_top_level_look(self) -> None:
        """What slots there are has changed: the top level may deal anew, also what it has dealt to other pools."""
        self.was_taken, self.alike, self.of_slots = IDLE_UNKNOWN, None, None
        if self.others:
            self.measured = True
            self.look_at_everything()

    def close_all(self, slots: Slots) -> None:
        """Slots of whatever pools are not allocated any more, and cannot be. What runs there continues."""
        for pool, part in self.parts(slots):
            pool.close_slots(part)
        self.let_top_level_look()

    def lose_all(self, slots: Slots, outcome: Outcome = Outcome.LOST) -> None:
        """Slots of whatever pools are gone, with what ran there; see `Pool.lose`."""
        for pool, part in self.parts(slots):
            pool.lose(part, outcome)

    def gain(self, slots: Slots) -> None:
        """There are new slots; they are of the first pool."""
        self.was_taken, self.alike, self.of_slots = IDLE_UNKNOWN, None, None
        self.slots |= slots

    def shed(self, slots: Slots) -> None:
        """Slots do not exist any more; nothing runs there and they are not allocated."""
        self.was_taken, self.alike, self.of_slots = IDLE_UNKNOWN, None, None
        for pool, part in self.parts(slots):
            pool.slots &= ~part
            pool.leaving = {name: slots & ~part for name, slots in pool.leaving.items() if slots & ~part}
