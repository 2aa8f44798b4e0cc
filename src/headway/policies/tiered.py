"""EASY backfilling with a background tier: KEASY, REASY and MEASY.

Jobs that EASY cannot start yet run behind others meanwhile, on what these leave of their processors. When their turn in
the foreground comes, they are killed and start again (KEASY), wait for the foreground of their own slots (REASY), or
migrate and keep their work (MEASY).

Source: MEASY14, algorithms 1 to 3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from sys import maxsize
from typing import Any, Final

from headway.errors import InvalidInput
from headway.model.instant import NEVER, Duration, Instant
from headway.model.plan import Allocation, Claim, Plan, Reason
from headway.model.queue import Key, Queue
from headway.model.seen import USE_UNKNOWN, AttemptView, JobView
from headway.model.slots import (
    NO_SLOTS,
    Slots,
    below,
    bounds,
    count,
    cut,
    end_of_shared,
    lowest,
    numbers,
    of_bounds,
    of_numbers,
    outside,
    shared,
    size,
    unite,
)
from headway.model.snapshot import LARGE, Snapshot, slots_by_use
from headway.model.tier import Tier
from headway.model.value import value
from headway.policies.backfill import BAG, Started, promise, queue_of, shadow_of, slots_needed, withdraw
from headway.policies.order import by_estimate, check_order
from headway.policies.place import ready_tasks, room_for

MOVES: Final = ("kill", "wait", "migrate")

Candidate = tuple[JobView, AttemptView | None]
"""A job that could come to the foreground: one that waits, or one that runs in the background as this attempt."""


@value
class TieredEasy:
    """EASY backfilling whose waiting jobs run in the background meanwhile.

    After each event: (1) candidates for the foreground, those that wait and those in the background, come there in
    order while they fit; (2) the first that does not is promised its shadow time, and of the rest comes what fits now
    and does not delay it; (3) what still waits goes to the background, shortest first, where it fits: its busiest
    processes behind the idlest ones. All times are estimates, also for jobs that have run in the background, because
    it is not known how much they did there.

    Args:
        moves: how a job comes from the background to other slots: "kill" (it starts again, KEASY), "wait" (never: it
            waits for the foreground of its own slots, REASY) or "migrate" (its work is kept, MEASY; a job that saves no
            checkpoints starts again).
        order: release, shortest, widest, weighted, due or priority.
        threshold: CPU use above which nothing runs behind a process in the foreground, 0 to 1.
        per_instant: one pass for all events of an instant, instead of one after each event.
    """

    moves: str
    order: str = "release"
    threshold: float = 0.96
    per_instant: bool = False

    def __post_init__(self) -> None:
        check_order(self.order)
        if self.moves not in MOVES:
            raise InvalidInput("moves", self.moves, ", ".join(MOVES))
        if not 0 <= self.threshold <= 1:
            raise InvalidInput("threshold", self.threshold, "0 to 1")

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    @property
    def tiers(self) -> bool:
        """It places jobs in the background."""
        return True

    def __call__(self, view: Snapshot) -> Plan:
        is_large = view.up.bit_length() >= LARGE and not view.limits.one_tier
        made = LargeDeployment if is_large else Deployment
        deployment, fixed = made(view, self.moves, self.threshold), view.limits.fixed
        background = [
            attempt
            for attempt in view.background
            if not attempt.ending and (not attempt.pinned or how_it_moves(attempt, self.moves, fixed) is not None)
        ]
        queue = queue_of(view, self.order)
        if self.order != "release":
            background.sort(key=_of_its_job(queue.key))
        newcomers = view.arrived
        if newcomers is not None:
            head = next(_merged(queue, background, queue.key), None)
            if head is None:
                return deployment.plan
            job, attempt = head
            # A head that fits, but cannot leave its own slots, does not end step 1.
            blocks = job not in newcomers if attempt is None else _width_of(attempt) > view.room()
            if blocks:  # only jobs have come since: the head still waits, and so do all that waited beside it
                newcomers = sorted(newcomers, key=queue.key) if len(newcomers) > 1 else newcomers
                if newcomers and (view.room() or view.recording):
                    deployment.backfill(head, ((job, None) for job in newcomers), deployment.needed(head))
                deployment.fill_background(newcomers)
                return deployment.plan
        passed, needed, position, behind = deployment.start_in_order(queue, background)
        if passed:
            fitting = view.fitting(queue, deployment.steps, position)
            rest = _merged(fitting, background[behind:], queue.key)
            deployment.backfill(passed[0], chain(passed[1:], rest), needed)
        if view.waiting:
            deployment.fill_background(None)
        return deployment.plan


def _width_of(attempt: AttemptView) -> int:
    """On how many slots an attempt runs that was not asked to end: so it has lost none."""
    return attempt.job.width if attempt.job.rigid else count(attempt.slots)


def _of_its_job(key: Key) -> Callable[[AttemptView], Any]:
    return lambda attempt: key(attempt.job)


def _merged(waiting: Iterable[JobView], background: list[AttemptView], key: Key) -> Iterator[Candidate]:
    """Both in order; of one job first what runs."""
    behind = iter(background)
    attempt = next(behind, None)
    for job in waiting:
        while attempt is not None and key(attempt.job) <= key(job):
            yield attempt.job, attempt
            attempt = next(behind, None)
        yield job, None
    while attempt is not None:
        yield attempt.job, attempt
        attempt = next(behind, None)


class Deployment:
    """Places of the slots being given to jobs in one round.

    Attributes:
        plan: what is given so far.
        free: foreground places that are left.
        steps: what may still come to the foreground, as of `Queue.fitting`.
        started: what comes to the foreground in this round.
    """

    def __init__(self, view: Snapshot, moves: str, threshold: float) -> None:
        self.view = view
        self.moves = moves
        self.threshold = threshold
        self.plan = view.plan()
        self.free = view.free_slots()
        # Moves under way have their slots already, and will be running there.
        self.started: list[Started] = [
            (view.now + view.time_of(attempt.job, attempt.task, goal.slots), count(goal.slots))
            for attempt in view.background
            if (goal := attempt.goal) is not None and goal.tier is Tier.FOREGROUND
        ]
        self.steps: list[tuple[int, Duration]] = [(self.free.room, NEVER)]
        self._came: list[tuple[JobView, Allocation]] = []
        self._placed: set[tuple[int, int]] = set()
        self._left: Slots = NO_SLOTS
        self._groups: list[tuple[float, Slots]] = []

    # The foreground

    def needed(self, candidate: Candidate) -> int:
        """How many slots a candidate waits for."""
        job, attempt = candidate
        if attempt is not None:
            return _width_of(attempt)
        return job.width if job.rigid else slots_needed(self.view, job)

    def start_in_order(self, queue: Queue, background: list[AttemptView]) -> tuple[list[Candidate], int, int, int]:
        """Step 1: bring candidates to the foreground while they fit.

        Returns:
            Those passed over, the last of which does not fit; how many slots the first of them waits for; and how many
            of the queue and of the background were looked at.
        """
        limits = self.view.limits
        most = limits.most_together(self.view.up) if limits.is_split else maxsize
        passed: list[Candidate] = []
        position = behind = first_needs = 0
        while position < len(queue) or behind < len(background):
            attempt = background[behind] if behind < len(background) else None
            if attempt is not None and (position == len(queue) or queue.key(attempt.job) <= queue.key(queue[position])):
                behind += 1
                job, needed = attempt.job, _width_of(attempt)
            else:
                attempt, job = None, queue[position]
                position += 1
                if job.rigid and most < job.width:
                    self.plan.pass_over(job.id, Reason.NEVER_FITS)
                    continue
                needed = job.width if job.rigid else self._start_tasks(job)
            if attempt is None and not job.rigid:
                fits = came = not needed
            else:
                fits = needed <= self.free.room
                came = fits and self._deploy(job, attempt, needed)
            if not came:  # it does not fit, or the foreground of its own slots is taken (REASY)
                passed.append((job, attempt))
                first_needs = first_needs or needed
            if not fits:
                break
        return passed, first_needs, position, behind

    def backfill(self, head: Candidate, rest: Iterable[Candidate], needed: int) -> None:
        """Step 2: promise the head its shadow time; bring to the foreground what does not delay it."""
        view, plan, recording = self.view, self.plan, self.plan.recording
        job, attempt = head
        kept = attempt.slots if attempt is not None and self._how_it_moves(attempt) is None else NO_SLOTS
        if kept:  # it can use only the foreground of its own slots
            shadow, extra = self._end_on(kept), self._room_beside(kept)
        else:
            shadow, extra = shadow_of(view, self.started, self.free.room, needed)
        if attempt is None:
            promise(plan, job, shadow, needed, Reason.NO_ROOM_NOW)
        if len(view.promised) > (attempt is None and job.promise is not None):
            withdraw(view, plan, [job])
        if not self.free.room and not recording:
            return
        limit, uniform, room = shadow - view.now, view.uniform, self.free.room
        steps = self.steps
        steps[:] = [(room, limit if uniform else NEVER), (min(room, extra), NEVER)]
        for job, attempt in rest:
            if not job.rigid:
                if attempt is None:
                    extra = self._backfill_tasks(job, limit, extra, kept)
                else:
                    extra = self._backfill_attempt(attempt, limit, extra, kept)
                room = self.free.room
                if not room and not recording:
                    return
                steps[:] = [(room, limit if uniform else NEVER), (min(room, extra), NEVER)]
                continue
            width = job.width
            reason = Reason.NO_ROOM_NOW
            if width <= room and (attempt is not None or self.free.has(width)):
                estimate = job.estimate
                if not uniform:
                    estimate = view.time_of(job, 0, lowest(self.free.slots, width))
                late, reason = estimate > limit, Reason.WOULD_DELAY
                if (not late or width <= extra) and self._deploy(job, attempt, width, kept, late=late):
                    room -= width
                    if not room and not recording:
                        return
                    extra = min(extra - width if late else extra, self._room_beside(kept))
                    steps[:] = [(room, limit if uniform else NEVER), (min(room, extra), NEVER)]
                    continue
            if recording and attempt is None:
                plan.pass_over(job.id, reason)

    def _room_beside(self, kept: Slots) -> int:
        """How many foreground places are left that are not kept."""
        return count(outside(self.free.slots, kept)) if kept else self.free.room

    def _end_on(self, slots: Slots) -> Instant:
        """When by estimates the foreground of these slots is free."""
        return max(
            (end for end, _, _, attempt in self.view.running if attempt.slots & slots),
            default=self.view.now,
        )

    def _deploy(
        self, job: JobView, attempt: AttemptView | None, width: int, kept: Slots = NO_SLOTS, *, late: bool = False
    ) -> bool:
        """Bring a candidate that fits to the foreground; returns whether that was possible.

        Args:
            kept: slots for which the head waits; jobs that are `late` must not take them.
        """
        shut = kept if late else NO_SLOTS
        if attempt is not None and not job.rigid:
            slots, seats, claim = self._place_for(attempt, self._free_but(shut))
            if not slots:
                return False
        elif attempt is not None and not attempt.pinned and self._can_come_forward(attempt, shut):
            slots, seats, claim = attempt.slots, attempt.seats, Claim.FREE  # it stays where it is: tiers are swapped
        elif attempt is None:
            claim = Claim.FREE
            slots, seats = self._idlest(job, width, kept, shut, None)
        else:
            moves = self._how_it_moves(attempt)
            if moves is None:
                return False
            claim = moves
            slots, seats = self._idlest(job, width, kept, shut, attempt)
        task = attempt.task if attempt is not None and not job.rigid else None
        self._give(Allocation(job.id, slots, task, claim, Tier.FOREGROUND, seats), job)
        return True

    def _give(self, wanted: Allocation, job: JobView) -> None:
        view = self.view
        self.plan.allocations.append(wanted)
        width = job.width if job.rigid else count(wanted.slots)
        self._leave_free(job, wanted, width)
        self.started.append((view.now + view.time_of(job, wanted.task or 0, wanted.slots), width))
        self._placed.add((job.id, wanted.task or 0))
        self._came.append((job, wanted))

    def _leave_free(self, job: JobView, wanted: Allocation, width: int) -> None:
        """Foreground places are given away."""
        self.free.take_these(wanted.slots, width)

    def _free_but(self, shut: Slots) -> Slots:
        """The foreground places that are left but for some."""
        return outside(self.free.slots, shut) if shut else self.free.slots

    def _can_come_forward(self, attempt: AttemptView, shut: Slots) -> bool:
        """Whether the foreground of an attempt's own slots is left, and none of it shut."""
        return attempt.slots & self._free_but(shut) == attempt.slots

    def _idlest(
        self, job: JobView, width: int, kept: Slots, shut: Slots, attempt: AttemptView | None
    ) -> tuple[Slots, tuple[int, ...]]:
        """Free foreground places for the processes of a job, the busiest where least is done in the background.

        Of equals those first behind which the last in order of the candidates runs (reading, from figure 1: J6 leaves
        the foreground of P2 to J7, which comes next and then need not move).

        Args:
            kept: places to take last.
            shut: places not to take.
            attempt: the job itself, if it is in the background.
        """
        view, free, own = self.view, self._free_but(shut), NO_SLOTS if attempt is None else attempt.slots
        behind = view.behind ^ (view.behind & own)
        alone = free ^ (free & behind)
        if not kept and len(job.spec.cpu) <= 1 and count(alone) >= width:
            return lowest(alone, width), ()
        groups = [(0.0, alone)]
        groups += [
            (use, outside(slots & free, own))
            for attempt in reversed(view.background)
            for use, slots in slots_by_use(attempt.job.spec, attempt.slots, attempt.seats)
            if outside(slots & free, own)
        ]
        groups.sort(key=_by_use)
        if kept:
            others = [(use, outside(slots, kept)) for use, slots in groups]
            groups = others + [(use, slots & kept) for use, slots in groups]
        return seated(job, width, groups)

    def _start_tasks(self, job: JobView) -> int:
        """Start the ready tasks of a bag or workflow that fit; how many slots the first that does not waits for."""
        alike, needed = job.kind is BAG and not job.mean_size, 0
        for task in ready_tasks(job, self.free.room + 1 if alike else job.ready):
            if needed and not self.free.room:
                break
            slots = room_for(self.view, job, task, self.free.slots)
            if slots:
                self._give(Allocation(job.id, slots, task), job)
                continue
            needed = needed or slots_needed(self.view, job, task)
            if alike:
                break
        return needed

    def _backfill_tasks(self, job: JobView, limit: Instant, extra: int, kept: Slots) -> int:
        """Start ready tasks of a bag or workflow beside a promise; how many slots stay extra."""
        alike, placed = job.kind is BAG and not job.mean_size, False
        for task in ready_tasks(job, self.free.room + len(self._placed) if alike else job.ready):
            if (job.id, task) in self._placed:
                continue
            slots = room_for(self.view, job, task, self.free.slots)
            late = bool(slots) and self.view.time_of(job, task, slots) > limit
            if late:
                slots = room_for(self.view, job, task, outside(self.free.slots, kept))
            if not slots or (late and count(slots) > extra):
                if alike:
                    break
                continue
            self._give(Allocation(job.id, slots, task), job)
            extra = min(extra - count(slots) if late else extra, self._room_beside(kept))
            placed = True
        if not placed:
            self.plan.pass_over(job.id, Reason.WOULD_DELAY)
        return extra

    def _backfill_attempt(self, attempt: AttemptView, limit: Duration, extra: int, kept: Slots) -> int:
        """Bring a task of a bag or workflow back to the foreground beside a promise; how many slots stay extra.

        On another node it may need more slots, and take longer, than where it is.
        """
        job, task = attempt.job, attempt.task
        slots, seats, claim = self._place_for(attempt, self.free.slots)
        late = bool(slots) and self.view.time_of(job, task, slots) > limit
        if late:
            slots, seats, claim = self._place_for(attempt, outside(self.free.slots, kept))
        if not slots or (late and count(slots) > extra):
            return extra
        self._give(Allocation(job.id, slots, task, claim, Tier.FOREGROUND, seats), job)
        return min(extra - count(slots) if late else extra, self._room_beside(kept))

    def _place_for(self, attempt: AttemptView, free: Slots) -> tuple[Slots, tuple[int, ...], Claim]:
        """Where a task of a bag or workflow comes back to the foreground, and how; no slots: nowhere."""
        if not attempt.pinned and attempt.slots & free == attempt.slots:
            return attempt.slots, attempt.seats, Claim.FREE  # it stays where it is: tiers are swapped
        moves = self._how_it_moves(attempt)
        if moves is None:
            return NO_SLOTS, (), Claim.FREE
        return room_for(self.view, attempt.job, attempt.task, free), (), moves

    def _how_it_moves(self, attempt: AttemptView) -> Claim | None:
        return how_it_moves(attempt, self.moves, self.view.limits.fixed)

    # The background

    def fill_background(self, waiting: list[JobView] | None) -> None:
        """Step 3: jobs that still wait go behind others where they fit, shortest first, busy behind idle.

        Args:
            waiting: the jobs that are new; None: look at all waiting jobs.
        """
        view = self.view
        room, placed = self._look_behind(), self._placed
        if not room or (waiting is not None and all(job.width > room for job in waiting)):
            return
        steps: list[tuple[int, Duration]] = [(room, NEVER)]
        by_length = view.waiting_by(by_estimate).fitting(steps) if waiting is None else sorted(waiting, key=by_estimate)
        shortest = iter(by_length)
        first = next(  # in one expression: compiled code makes a list of a generator that has a name
            (job for job in shortest if job.width <= room and (not job.rigid or (job.id, 0) not in placed)),
            None,
        )
        if first is None:
            return
        room = self._group_by_use()
        for job in chain((first,), shortest):
            if not room:
                return
            if job.width > room:
                continue
            if not job.rigid:
                room = self._put_tasks_behind(job)
            elif (job.id, 0) not in placed:
                slots, seats = self._put_behind(job)
                self.plan.hold(job.id, slots, Claim.FREE, Tier.BACKGROUND, seats)
                room -= job.width
            steps[0] = (room, NEVER)

    def _stay_in_front(self) -> Iterator[AttemptView]:
        """The attempts that come to the foreground of their own slots, and leave the background."""
        for job, wanted in self._came:
            attempt = job.attempts.get(wanted.task or 0)
            if attempt is not None and attempt.slots == wanted.slots and wanted.claim is Claim.FREE:
                yield attempt

    def _look_behind(self) -> int:
        """Find the background places that are vacant, and say how many they are."""
        view = self.view
        left = outside(view.up, view.behind)
        if view.limits.one_tier:
            left = outside(left, view.limits.one_tier)
        for attempt in self._stay_in_front():
            left |= attempt.slots
        self._left = left & view.up
        return count(self._left)

    def _group_by_use(self) -> int:
        """Group these places by whom they are behind, and say how many any job may take."""
        self._groups = self._behind_whom(self._left)
        return _room_in(self._groups)

    def _put_behind(self, job: JobView) -> tuple[Slots, tuple[int, ...]]:
        """Take places for a rigid job that fits."""
        slots, seats = seated(job, job.width, self._groups)
        self._groups = _without(self._groups, slots)
        return slots, seats

    def _behind_whom(self, left: Slots) -> list[tuple[float, Slots]]:
        """Those of these background places that any job may take, by the CPU use in their foreground, least first."""
        threshold, groups, fronted = self.threshold, [], NO_SLOTS
        front = [(one.job, one.slots, one.seats) for _, _, _, one in self.view.running]
        front += [(job, wanted.slots, wanted.seats) for job, wanted in self._came]
        for job, taken, seats in front:
            here = taken & left
            if not here:
                continue
            fronted |= here
            if len(job.spec.cpu) <= 1:
                use = job.spec.cpu[0] if job.spec.cpu else USE_UNKNOWN
                if use <= threshold:
                    groups.append((use, here))
                continue
            for use, slots in slots_by_use(job.spec, taken, seats):
                if use <= threshold and slots & left:
                    groups.append((use, slots & left))
        groups.sort()
        if left ^ fronted:
            groups.insert(0, (0.0, left ^ fronted))
        return groups

    def _put_tasks_behind(self, job: JobView) -> int:
        """Put ready tasks of a bag or workflow behind others; how many places are left."""
        groups = self._groups
        room = _room_in(groups)
        for task in ready_tasks(job, room + len(self._placed) if job.kind is BAG else job.ready):
            if (job.id, task) in self._placed:
                continue
            if job.kind is BAG:
                found = next((slots & -slots for _, slots in groups if slots), NO_SLOTS)
            else:
                found = room_for(self.view, job, task, sum(slots for _, slots in groups))
            if not found:
                break
            self.plan.place(job.id, task, found, Claim.FREE, Tier.BACKGROUND)
            groups = _without(groups, found)
        self._groups = groups
        return _room_in(groups)


class LargeDeployment(Deployment):
    """The same on a large machine, where sets of slots are handled by their runs. It gives the same plan."""

    def __init__(self, view: Snapshot, moves: str, threshold: float) -> None:
        super().__init__(view, moves, threshold)
        self._vacant: list[int] = []
        self._runs: list[tuple[float, list[int]]] = []
        self._fronts: list[tuple[float, int, list[int]]] = []

    def _leave_free(self, job: JobView, wanted: Allocation, width: int) -> None:
        attempt = job.attempts.get(0) if job.rigid else None
        if attempt is not None and attempt.slots is wanted.slots:  # it stays on its own slots
            self.free.come_forward(attempt)
        elif not job.rigid or (job.id, 0) not in self.view.given:
            super()._leave_free(job, wanted, width)

    def _can_come_forward(self, attempt: AttemptView, shut: Slots) -> bool:
        if shut:
            return super()._can_come_forward(attempt, shut)
        return size(shared(self.view.bounds_of(attempt), self.free.runs)) == attempt.job.width

    def _idlest(
        self, job: JobView, width: int, kept: Slots, shut: Slots, attempt: AttemptView | None
    ) -> tuple[Slots, tuple[int, ...]]:
        if kept or len(job.spec.cpu) > 1:
            return super()._idlest(job, width, kept, shut, attempt)
        view, runs = self.view, self.free.runs
        vacant = view.vacant_behind()
        if attempt is not None:
            vacant = list(vacant)
            unite(vacant, view.bounds_of(attempt))
        taken = shared(runs, vacant, width)
        lacking = width - size(taken)
        if lacking:
            groups: list[tuple[float, list[int]]] = []
            for other in reversed(view.background):
                if other.job is not job:
                    groups += self._by_use(other)
            groups.sort(key=_use_of_runs)
            for _, behind in groups:
                here = shared(behind, runs, lacking)
                if here:
                    unite(taken, here)
                    lacking -= size(here)
                    if not lacking:
                        break
        return self.free.take_runs(job, taken), ()

    def _by_use(self, attempt: AttemptView) -> list[tuple[float, list[int]]]:
        """The runs on which an attempt is, by the CPU use of its processes, least first."""
        spec = attempt.job.spec
        if len(spec.cpu) <= 1:
            return [(spec.cpu[0] if spec.cpu else USE_UNKNOWN, self.view.bounds_of(attempt))]
        return [(use, bounds(slots)) for use, slots in slots_by_use(spec, attempt.slots, attempt.seats)]

    def _look_behind(self) -> int:
        self._vacant = list(self.view.vacant_behind())
        for attempt in self._stay_in_front():
            unite(self._vacant, shared(self.view.bounds_of(attempt), self._up()))
        return size(self._vacant)

    def _up(self) -> list[int]:
        up = self.view.up
        return [0, up.bit_length()] if up == below(up.bit_length()) else bounds(up)

    def _group_by_use(self) -> int:
        """The same, but which places are behind whom is found when they are taken."""
        view, vacant, fronts = self.view, self._vacant, self._fronts
        front: list[tuple[float, list[int]]] = []
        for _, _, _, runs in view.running:
            front += self._by_use(runs)
        for job, wanted in self._came:
            attempt, given = job.attempts.get(wanted.task or 0), view.given.get((job.id, wanted.task or 0))
            if given is not None:
                front.append((job.spec.cpu[0] if job.spec.cpu else USE_UNKNOWN, given.bounds))
            elif attempt is not None and attempt.slots == wanted.slots:
                front += self._by_use(attempt)
            else:
                front += [(use, bounds(slots)) for use, slots in slots_by_use(job.spec, wanted.slots, wanted.seats)]
        room = size(vacant)
        for use, taken in front:
            if use > self.threshold:
                room -= size(shared(taken, vacant))
            else:
                end = taken[-1]
                if not bisect_left(vacant, end) & 1:  # the last of them is not vacant
                    end = end_of_shared(taken, vacant)
                if end:
                    fronts.append((use, end, taken))
        fronts.sort(reverse=True)
        idle = list(self.free.runs)
        if view.allocated:
            unite(idle, bounds(outside(view.allocated & view.up, view.busy)))
        alone = shared(idle, vacant)
        if alone:
            self._runs.append((0.0, alone))
        return room

    def _look_at_next(self) -> None:
        """Find the places behind the next one of those in the foreground."""
        use, _, taken = self._fronts.pop()
        self._runs.append((use, shared(taken, self._vacant)))

    def _put_behind(self, job: JobView) -> tuple[Slots, tuple[int, ...]]:
        if len(job.spec.cpu) > 1:
            self._as_sets()
            slots, seats = super()._put_behind(job)
            self._as_runs()
            return slots, seats
        lacking, runs, taken = job.width, self._runs, list[int]()
        while lacking:
            if not runs:
                self._look_at_next()
            part = cut(runs[0][1], lacking)
            lacking -= size(part)
            unite(taken, part)
            if not runs[0][1]:
                del runs[0]
        return self.view.give_behind(job, taken), ()

    def _put_tasks_behind(self, job: JobView) -> int:
        self._as_sets()
        room = super()._put_tasks_behind(job)
        self._as_runs()
        return room

    def _as_sets(self) -> None:
        while self._fronts:
            self._look_at_next()
        self._groups = [(use, of_bounds(here)) for use, here in self._runs]

    def _as_runs(self) -> None:
        self._runs = [(use, bounds(slots)) for use, slots in self._groups]


def _use_of_runs(group: tuple[float, list[int]]) -> float:
    return group[0]


def _room_in(groups: list[tuple[float, Slots]]) -> int:
    """How many places there are in groups of which no two have one in common."""
    every = NO_SLOTS
    for _, slots in groups:
        every |= slots
    return count(every)


def _without(groups: list[tuple[float, Slots]], taken: Slots) -> list[tuple[float, Slots]]:
    """The groups without some slots; groups that become empty are left out."""
    left = []
    for use, slots in groups:
        shared = slots & taken
        if shared:
            slots ^= shared
        if slots:
            left.append((use, slots))
    return left


def _by_use(group: tuple[float, Slots]) -> float:
    return group[0]


def how_it_moves(attempt: AttemptView, moves: str, fixed: Slots = NO_SLOTS) -> Claim | None:
    """How an attempt comes from the background to other slots; None: it waits for the foreground of its own.

    Args:
        fixed: slots from which nothing moves with its work.
    """
    if moves == "migrate" and attempt.movable and not attempt.slots & fixed:
        return Claim.MIGRATE
    return None if moves == "wait" or not attempt.job.spec.preemptible else Claim.KILL


def seated(job: JobView, width: int, groups: list[tuple[float, Slots]]) -> tuple[Slots, tuple[int, ...]]:
    """Slots for the processes of a rigid job out of groups of slots, idlest first: the busiest process gets the idlest.

    Returns:
        The slots and, where its processes differ, the slot of each.
    """
    cpu, slots = job.spec.cpu, NO_SLOTS
    if len(cpu) <= 1:
        lacking = width
        for _, group in groups:
            found = lowest(group, lacking)
            slots |= found
            lacking -= count(found)
            if not lacking:
                break
        return slots, ()
    rising = (slot for _, group in groups for slot in numbers(group))
    busiest = sorted(range(width), key=lambda process: (-cpu[process], process))
    seats = dict(zip(busiest, rising, strict=False))
    return of_numbers(seats.values()), tuple(seats[process] for process in range(width))
