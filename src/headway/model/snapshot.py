"""What a policy sees: a read-only view of the core's state at one instant, with the indexes the core keeps anyway.

It is not a copy. Only the core writes to these objects; a policy that does so breaks the core (tests compare the whole
state before and after each policy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final, Protocol

from headway.model.instant import LONGEST, NEVER, SECOND, Duration, Instant
from headway.model.job import Bag, JobId, JobSpec, Kind, TaskKey, TaskSpec, Workflow
from headway.model.kept_profile import KeptProfile, PromisedPlace
from headway.model.network import NO_NETWORK, NodePlace, Routes, place_of
from headway.model.node import NodeSpec
from headway.model.plan import Plan
from headway.model.power import AT_ONCE, PowerState, Switching, Trouble, settings_of
from headway.model.queue import Key, Queue, Steps, by_order
from headway.model.ration import Ration
from headway.model.renting import NO_MARKET
from headway.model.site import NO_SITES, SiteTerms
from headway.model.slots import (
    NO_SLOTS,
    Slots,
    bounds,
    cut,
    lowest,
    numbers,
    of_bounds,
    of_numbers,
    outside,
    take_out,
)
from headway.model.tier import Tier
from headway.model.window import Window

BAG: Final = Kind.BAG  # looking up a member of an enumeration is slow
SERVICE: Final = Kind.SERVICE

NONE_COUNTED: Final[Mapping[Any, Any]] = MappingProxyType({})
"""What most jobs count of failures and the like. All share it: to create an empty dictionary for each takes time."""

NONE: Final[AbstractSet[int]] = frozenset()
"""The same for sets."""

WINDOWS_KEPT: Final = 16
"""So many of the last windows of a service are kept for policies."""

RECENT: Final = 8
"""The first run times have equal weight; each later one has a weight of 1/8, so that old ones fade."""


USE_UNKNOWN: Final = 0.7
"""The assumed share of a processor for a process of unknown CPU use: the middle of what MEASY14 assumes."""


class RunTimes:
    """Run times observed of a job's tasks, in microseconds for a task of mean size: recency-weighted mean and spread.

    A given estimate counts as one observation.

    Attributes:
        count: how many, including the estimate.
        mean: their mean.
        spread: their mean absolute deviation from the mean of their time; half the mean if there is only one.

    Source: Lin14 4.4; the spread as V. Jacobson, "Congestion avoidance and control", SIGCOMM 1988.
    """

    __slots__ = ("count", "mean", "spread")

    def __init__(self, mean: Duration, *, count: int = 0, spread: Duration | None = None) -> None:
        self.count = count
        self.mean = mean
        self.spread = mean // 2 if spread is None else spread

    def add(self, run_time: Duration) -> None:
        """Add one more."""
        self.count += 1
        if self.count == 1:
            self.mean, self.spread = run_time, run_time // 2
            return
        weight = min(self.count, RECENT)
        error = run_time - self.mean
        self.mean += error // weight
        self.spread += (abs(error) - self.spread) // weight


class Goal:
    """Where an attempt that was asked to end continues, or starts again: those places are kept for it.

    Attributes:
        slots, tier, seats: as in `Allocation`.
        bounds: the `bounds` of its slots, if they were given as `Given` says; else None.
    """

    __slots__ = ("bounds", "seats", "slots", "tier")

    def __init__(self, slots: Slots, tier: Tier, seats: tuple[int, ...]) -> None:
        self.bounds: list[int] | None = None
        self.slots = slots
        self.tier = tier
        self.seats = seats


class AttemptView:
    """A numbered try at a task, while it has slots.

    Attributes:
        job, task, number: which try of which task.
        slots: where it runs.
        tier: in which of the places of its slots.
        seats: its slots in the order of its processes; empty: rising.
        goal: where it goes when it has ended, if it is being moved.
        since: when it came into the tier it is in; its launch, unless it has changed.
        start: when it was launched.
        expected_end: `since` plus the estimate on the slowest of its slots; it may have passed. It is unknown
            how much it does in the background: there it counts as if it had just started in the foreground.
        fed: whether it runs under an allocation of its whole job, so that its slot goes to the next task of the job.
        ending: whether its end has been asked for.
        saving: whether it was asked to save its work first, to continue elsewhere or later.
        alone: whether it runs alone on its nodes, because it is suspected to be what kills them.
        struck: whether a part of it was lost with a node.
        pinned: whether its tier cannot be changed, because the engine could not.
        running: whether it is known to run (nodes that report starts).
        queued: whether it was launched ahead of its turn and waits behind another one on its slot; then `start` is its
            launch, and it is not among `Snapshot.running`.
        saved: what it did until then is in its last checkpoint; `start` if it has saved none.
        stepped: whether the clock was set while it ran, so that nothing is learnt from its run time.
        frees: see `Snapshot.freed_by`; -1: not counted since its slots or those that are up have changed.
        bounds: the `bounds` of its slots, if they were given as `Given` says; else None.
    """

    __slots__ = (
        *(
            "alone",
            "bounds",
            "ending",
            "expected_end",
            "fed",
            "frees",
            "goal",
            "job",
            "number",
            "pinned",
            "queued",
            "running",
            "saved",
        ),
        *("saving", "seats", "since", "slots", "start", "stepped", "struck", "task", "tier"),
    )

    def __init__(
        self,
        job: JobView,
        task: int,
        number: int,
        slots: Slots,
        start: Instant,
        expected_end: Instant,
        fed: bool,
        tier: Tier = Tier.FOREGROUND,
        seats: tuple[int, ...] = (),
    ) -> None:
        self.job = job
        self.task = task
        self.number = number
        self.slots = slots
        self.start = start
        self.expected_end = expected_end
        self.fed = fed
        self.ending = False
        self.alone = False
        self.struck = False
        self.saving = False
        self.pinned = False
        self.running = True
        self.queued = False
        self.stepped = False
        self.frees = -1
        self.bounds: list[int] | None = None
        self.saved = start
        self.since = start
        self.tier = tier
        self.seats = seats
        self.goal: Goal | None = None

    @property
    def movable(self) -> bool:
        """Whether it can continue elsewhere with its work kept."""
        return self.job.spec.movable or self.saved > self.start or self.task in self.job.kept


def slots_by_use(spec: JobSpec, slots: Slots, seats: tuple[int, ...] = ()) -> tuple[tuple[float, Slots], ...]:
    """Slots by the share of the processor that a job's processes use there, least first; `USE_UNKNOWN` if unknown.

    Args:
        slots: on which it runs; fewer than it had seats where a node was lost.
        seats: as in `Allocation`.

    >>> from headway.model.job import Rigid
    >>> slots_by_use(Rigid(1, width=3, cpu=(0.9, 0.5, 0.9)), 0b111)
    ((0.5, 2), (0.9, 5))
    """
    cpu = spec.cpu
    if len(cpu) <= 1:
        return ((cpu[0] if cpu else USE_UNKNOWN, slots),)
    by_use: dict[float, Slots] = {}
    for use, slot in zip(cpu, seats or numbers(slots), strict=False):
        by_use[use] = by_use.get(use, NO_SLOTS) | (1 << slot & slots)
    return tuple(sorted(by_use.items()))


class JobView:
    """A job in the system: its terms and how far it is.

    Attributes:
        id, spec, kind, width: as submitted.
        pool: of which it is.
        dealt_from: the pool where it was before it was dealt again; empty: it was dealt once, or never.
        goes_to: the pool to which it goes when nothing of it runs; until then nothing more of it starts. None: it
            stays.
        release: as submitted; of a job that comes after others, when the last of them has succeeded if that is later,
            `NEVER` until then.
        after: jobs in the system that must have succeeded before it may start.
        estimate: expected run time of a task (of mean size) on a node of speed factor 1: what the user gave, else the
            mean of a workflow's tasks, else the core's default; for a bag corrected by observed run times. A shorter
            prediction takes its place, see `predicted`.
        predicted: whether `estimate` is what was predicted when it was submitted, and holds: no attempt has run for
            longer, and no run time has been observed.
        said: the estimate as it was without a prediction, when the job was submitted.
        observed: run times of a bag's tasks on all nodes, converted to speed factor 1.
        times: the same by class of nodes, not converted; at first the job's profile.
        priority, due: as submitted or changed since; `due` is `NEVER` if there is none.
        order: `(release, id)`, the key by which every tie ends.
        tasks: number of tasks.
        ready: tasks that could start now and have not; of a user with a bound only as many as it leaves room for,
            see `all_ready`.
        ration: the bound of its user; None: it has none.
        uses: slots that count against the bound; 0 if there is none.
        fresh: bags and rigid jobs: the lowest task number that was never launched.
        again: numbers of ready tasks that are not fresh, as a heap: those to be redone, and all of a workflow's.
        apart: tasks that wait to run alone on a node, because they are suspected to be what kills nodes; rising. They
            are not ready: the core starts them.
        unfinished: tasks not settled yet.
        attempts: what runs, by task number.
        held: slots allocated to the job as a whole. Tasks placed one by one and started rigid jobs have theirs by
            running there; see `holds`.
        seats: for a rigid job that waits for slots allocated to it: these in the order of its processes; empty: rising.
        promise: the start promised to it; None if it has none.
        missing: workflows: per task, how many tasks before it have not succeeded.
        followers: workflows: per task, the tasks that wait for it.
        tries, failures, losses: per task not settled, attempts made, those that failed by themselves, and those lost
            with their nodes; absent means none.
        strikes: per task not settled, how many of its attempts were struck; absent means none.
        ended, spent: tasks that succeeded, and how long these ran in all.
        failed, cancelled: whether a task failed for good; whether its end was asked for.
        dropped: tasks whose own end was asked for, settled or not, less those that had succeeded by then.
        kept: per task not settled, how much of its run time its last checkpoint keeps; absent means none.
        lost: slot time of attempts that are redone because they were killed or lost, less what checkpoints keep.
        kills: how many were killed for other jobs, or to start again elsewhere.
        moves: how often it moved and kept its work.
        graph: the tasks of a workflow in order of their numbers; empty for other forms.
        slot_time: of a workflow the mean slot time of its tasks, in microseconds at speed factor 1; 0 for other forms.
        sizes: the work of each task of a bag in the user's own unit; empty: all alike.
        mean_size, size_left: of its tasks; of those not settled, in all. 0 if they have no sizes.
        windows: of a service the last that have ended, at most `WINDOWS_KEPT`, in order.
        cost: of a service what all its windows have cost so far.
        sends: workflows: whether a task sends anything to another.
        outputs: of these, where and when each task succeeded: from then on it sends.
        planned: per task that is promised a start on a node, that start and the name of the node; of a rigid job, which
            may need several, one of them.
    """

    __slots__ = (
        "after",
        "again",
        "apart",
        "attempts",
        "cancelled",
        "cost",
        "dealt_from",
        "dropped",
        "due",
        "ended",
        "estimate",
        "failed",
        "failures",
        "followers",
        "fresh",
        "goes_to",
        "graph",
        "held",
        "id",
        "kept",
        "kills",
        "kind",
        "losses",
        "lost",
        "mean_size",
        "missing",
        "moves",
        "observed",
        "order",
        "outputs",
        "planned",
        "pool",
        "predicted",
        "priority",
        "promise",
        "ration",
        "ready",
        "release",
        "said",
        "seats",
        "sends",
        "size_left",
        "sizes",
        "slot_time",
        "spec",
        "spent",
        "strikes",
        "tasks",
        "times",
        "tries",
        "unfinished",
        "uses",
        "width",
        "windows",
    )

    def __init__(self, spec: JobSpec, estimate: Duration) -> None:
        self.id: JobId = spec.id
        self.ration: Ration | None = None
        self.uses = 0
        self.pool: Snapshot
        self.dealt_from = ""
        self.goes_to: str | None = None
        self.spec = spec
        self.kind = spec.kind
        self.width = spec.width
        self.release = spec.release
        self.after: AbstractSet[JobId] = NONE
        self.said = self.estimate = estimate
        self.predicted = False
        self.priority = spec.priority
        self.due: Instant = NEVER if spec.due is None else spec.due
        self.order = (spec.release, spec.id)
        self.tasks = self.ready = self.unfinished = tasks = spec.tasks
        self.fresh = 0
        self.again: list[int] = []
        self.apart: Sequence[int] = ()
        self.attempts: dict[int, AttemptView] = {}
        self.held: Slots = NO_SLOTS
        self.seats: tuple[int, ...] = ()
        self.promise: Instant | None = None
        self.missing: Sequence[int] = ()
        self.followers: Sequence[Sequence[int]] = ()
        self.tries: dict[int, int] = {}
        self.failures: Mapping[int, int] = NONE_COUNTED
        self.losses: Mapping[int, int] = NONE_COUNTED
        self.strikes: Mapping[int, int] = NONE_COUNTED
        self.ended = 0
        self.spent: Duration = 0
        self.failed = False
        self.cancelled = False
        self.dropped: AbstractSet[int] = NONE
        self.observed: RunTimes | None = None
        self.times: Mapping[str, RunTimes] = NONE_COUNTED
        self.kept: Mapping[int, Duration] = NONE_COUNTED
        self.lost: Duration = 0
        self.kills = 0
        self.moves = 0
        self.graph: tuple[TaskSpec, ...] = spec.graph if isinstance(spec, Workflow) else ()
        self.slot_time = sum([task.estimate * task.cores for task in self.graph]) / tasks if self.graph else 0.0
        self.sizes: tuple[float, ...] = spec.sizes if isinstance(spec, Bag) else ()
        self.size_left = math.fsum(self.sizes) if self.sizes else 0.0
        self.mean_size = self.size_left / tasks if self.sizes else 0.0
        self.windows: tuple[Window, ...] = ()
        self.cost = 0.0
        self.sends = any(any(task.sends) for task in self.graph)
        self.outputs: dict[int, tuple[NodePlace, Instant]] = {}
        self.planned: dict[int, tuple[Instant, str]] = {}

    @property
    def holds(self) -> bool:
        """Whether it has slots: by an allocation of the whole job, or because a task placed by itself runs."""
        return self.held != NO_SLOTS or any(not attempt.fed for attempt in self.attempts.values())

    @property
    def slots(self) -> Slots:
        """All slots that are allocated to it or on which it runs."""
        slots = self.held
        for attempt in self.attempts.values():
            slots |= attempt.slots
        return slots

    @property
    def all_ready(self) -> int:
        """Tasks that could start now but for the bound of its user."""
        return self.tasks - self.fresh + len(self.again)

    def is_estimated(self, task: int) -> bool:
        """Whether a task's run time is known: its terms say it, or it never ends, or others of a bag have ended."""
        spec = self.spec
        if self.kind is SERVICE or spec.profile or spec.said(task) is not None:
            return True
        return not self.graph and self.ended > 0

    @property
    def may_lack_places(self) -> bool:
        """Whether a task waits without a promise on a node, or may be promised a start in vain."""
        waiting = self.unfinished - len(self.attempts) - len(self.apart)
        return len(self.planned) != waiting or self.failed or bool(self.dropped)

    @property
    def workload(self) -> float:
        """Remaining work: the user's own amount in proportion to what is left, else seconds at speed 1.

        Source: Lin14 3.1 (counting unprocessed tasks or summing their workloads).
        """
        if self.spec.workload is not None:
            return self.spec.workload * self.left / self.tasks
        return self.left * self.estimate / SECOND

    @property
    def left(self) -> float:
        """Unfinished tasks; if tasks have sizes, counted in tasks of mean size."""
        return max(0.0, self.size_left / self.mean_size) if self.mean_size else self.unfinished

    def estimate_of(self, task: int) -> Duration:
        """Expected run time of one task on a node of speed factor 1."""
        return self.graph[task].estimate if self.kind is Kind.WORKFLOW else self.sized(self.estimate, task)

    def sized(self, run_time: Duration, task: int) -> Duration:
        """Convert a time for a task of mean size to this task's size."""
        if not self.mean_size:
            return run_time
        return min(round(run_time * self.sizes[task] / self.mean_size), LONGEST)

    def time_on(self, node: NodeSpec) -> Duration:
        """Expected run time of a task of mean size on a slot of this node."""
        known = self.times.get(node.node_class) if self.times else None
        if known is not None:
            return known.mean
        return self.estimate if node.speed == 1.0 else min(-int(-self.estimate // node.speed), LONGEST)


class NodeView:
    """A node of the cluster: what it is, its slots and whether it can be used.

    Attributes:
        places: slot number by index on the node; an index it once had keeps its number.
        slots, size: the slots it has, and how many.
        closing: those of them that it is to lose and that are still busy.
        up: whether it answers.
        draining: whether nothing more starts on it, and it leaves when it is idle.
        apart: whether it is set apart for a suspected task: its slots are not up.
        heard_until: when its lease runs out.
        measures: its latest measurements, by name.
        power: whether it is on. A node that is not on is up, for it is not lost, but its slots are not; if it could not
            be switched and is not in service, it is down until it is on, or off.
        power_until: when it is off, or on, by estimate; `NEVER` if nothing changes, or if it waits to be idle first.
        switch: the number of its last switch; 0: none.
        by_hand: whether an operator has switched it, so that what is under way needs no command.
        trouble: why it could not be switched, if it was not since.
        went_off: the settings with which it went off, for when it is to come on and its site has none any more.
        comes_back: whether it comes on again as soon as it is off.
        kept_off: whether an operator wants it off, so that no plan and no rule switches it on.
        idle_since: since when it is idle, if nodes are switched off; else `NEVER`.
    """

    __slots__ = (
        "apart",
        "by_hand",
        "closing",
        "comes_back",
        "draining",
        "heard_until",
        "idle_since",
        "kept_off",
        "measures",
        "places",
        "power",
        "power_until",
        "size",
        "slots",
        "spec",
        "switch",
        "trouble",
        "up",
        "went_off",
    )

    def __init__(self, spec: NodeSpec, places: list[int]) -> None:
        self.spec = spec
        self.places = places
        self.slots: Slots = of_numbers(places[: spec.slots])
        self.size = self.slots.bit_count()
        self.closing: Slots = NO_SLOTS
        self.up = True
        self.draining = False
        self.apart = False
        self.heard_until: Instant = NEVER
        self.measures: dict[str, float] = {}
        self.power = PowerState.ON
        self.power_until: Instant = NEVER
        self.comes_back = self.kept_off = False
        self.idle_since: Instant = NEVER
        self.switch = 0
        self.by_hand = False
        self.trouble: Trouble | None = None
        self.went_off: Switching = AT_ONCE

    @property
    def is_open(self) -> bool:
        """Whether its slots can be allocated, but for those that it is to lose."""
        return self.up and not self.draining and not self.apart and self.power is PowerState.ON

    @property
    def waits_to_go_off(self) -> bool:
        """Whether it is in service and goes off as soon as nothing runs there, and it may be tried again."""
        return self.power is PowerState.GOING_OFF and self.power_until == NEVER

    @property
    def is_put_off(self) -> bool:
        """Whether it could not be switched, and is tried again later."""
        return self.trouble is not None and self.trouble.again < NEVER

    @property
    def is_switched(self) -> bool:
        """Whether it is being switched off or on."""
        moves = self.power is PowerState.COMING_ON or (self.power is PowerState.GOING_OFF and not self.waits_to_go_off)
        return moves and not self.is_put_off

    def index_of(self, slot: int) -> int:
        """The index of a slot on the node, counted from 0."""
        return self.places.index(slot)


LARGE: Final = 1 << 14
"""Where slots have so high numbers, looking at a set once takes as long as a decision."""

UNKNOWN: Final = -1
"""No set of slots: it has not been made."""


class Given:
    """Slots that a task was given to start on.

    Attributes:
        slots, bounds: the slots, and their `bounds`.
        were_free: whether they were free and nobody else's; else they are in the background.
    """

    __slots__ = ("bounds", "slots", "were_free")

    def __init__(self, slots: Slots, bounds: list[int], *, were_free: bool) -> None:
        self.slots = slots
        self.bounds = bounds
        self.were_free = were_free


class FreeSlots:
    """The free slots of a pool while a policy gives them away in its round, the lowest first.

    A policy has one of them in a round, from `Snapshot.free_slots`. On a large machine these are runs, which are kept
    from one round to the next, and the core need not look again at slots that were given here.

    Attributes:
        room: how many are left.
    """

    __slots__ = ("_is_large", "_left", "_owed", "_runs", "_view", "room")

    def __init__(self, view: Snapshot) -> None:
        self._view = view
        self.room = view.counted if view.counted >= 0 else view.room()
        self._is_large = is_large = len(view.slot_nodes) >= LARGE
        if is_large:
            self._runs = view.free_runs()
            self._left: Slots = UNKNOWN
            self._owed: list[Slots] = []
            view.giving = self
            view.given.clear()
        else:
            self._left = view.free

    @property
    def slots(self) -> Slots:
        """Those that are left. On a large machine the set is made when it is asked for."""
        if self._is_large:
            if self._left == UNKNOWN:
                self._left = self._view.free
            for slots in self._owed:
                self._left ^= slots
            self._owed.clear()
        return self._left

    def are(self, slots: Slots) -> bool:
        """Whether just these are left; False on a small machine, where that is not looked at."""
        return self._is_large and slots == self.slots

    @property
    def runs(self) -> list[int]:
        """The `bounds` of those that are left, on a large machine; to be read only."""
        return self._runs

    def take(self, job: JobView) -> Slots:
        """Give a rigid job the lowest ones; there are enough of them."""
        self.room -= job.width
        if self._is_large:
            return self._give(job, cut(self._changing(), job.width))
        slots = lowest(self._left, job.width)
        self._left ^= slots
        return slots

    def first(self) -> Slots:
        """The lowest of them; there are some."""
        return 1 << self._runs[0] if self._is_large else self._left & -self._left

    def take_first(self, job: JobView, task: int, slots: Slots) -> None:
        """Give a task of a bag the `first`, which these are."""
        self.room -= 1
        if self._is_large:
            self._view.given[job.id, task] = Given(slots, cut(self._changing(), 1), were_free=True)
            self._owed.append(slots)
        else:
            self._left ^= slots

    def take_these(self, slots: Slots, number: int) -> None:
        """Give some of them, so many, to a task that can run nowhere else."""
        self.room -= number
        if self._is_large:
            take_out(self._changing(), bounds(slots))
            self._owed.append(slots)
        else:
            self._left ^= slots

    def take_runs(self, job: JobView, taken: list[int]) -> Slots:
        """Give these to a rigid job, on a large machine: as many as it is wide, by their `bounds`."""
        self.room -= job.width
        take_out(self._changing(), taken)
        return self._give(job, taken)

    def come_forward(self, attempt: AttemptView) -> None:
        """An attempt comes to the foreground of its own slots, which are free, on a large machine."""
        self.room -= attempt.job.width
        take_out(self._changing(), self._view.bounds_of(attempt))
        self._owed.append(attempt.slots)

    def leave(self, left: Slots) -> None:
        """Only these are left: the others were given away by other means."""
        gone = self.slots ^ left
        if gone:
            self.room -= gone.bit_count()
            self._left = left
            if self._is_large:
                take_out(self._changing(), bounds(gone))

    def _changing(self) -> list[int]:
        """The runs, which are not those of what is free until the core has carried out what is planned."""
        self._view.kept_runs = None
        return self._runs

    def _give(self, job: JobView, taken: list[int]) -> Slots:
        slots = of_bounds(taken)
        self._view.given[job.id, 0] = Given(slots, taken, were_free=True)
        self._owed.append(slots)
        return slots


class Limits:
    """Slots of nodes that cannot do everything, see `headway.model.node.Capabilities`.

    Attributes:
        one_tier: without a background place.
        fixed: what runs there cannot save and continue elsewhere.
    """

    __slots__ = ("fixed", "one_tier")

    def __init__(self) -> None:
        self.one_tier: Slots = NO_SLOTS
        self.fixed: Slots = NO_SLOTS


FREE_ROUTES: Final = Routes(NO_NETWORK)
"""Where sending costs nothing."""


WORKFLOWS: Final = frozenset((Kind.WORKFLOW,))
"""The kinds of jobs that are planned task by task if nothing else is said."""

NO_SWITCHING: Final[Mapping[str, Switching]] = MappingProxyType({})
"""Nodes stay on."""


class Snapshot:
    """The state of a pool as its policy sees it. Where no policy deals, the first pool is the whole cluster.

    Attributes:
        now: the instant of the round.
        name: of the pool; empty: it is the first one.
        pools: those that the policy of the first pool has made, by name, in order of making; empty in these.
        slots: all that the pool has, also those that are not up.
        dealt: how many jobs the pool was dealt so far.
        last: the pool to which a job was dealt last.
        measured: whether windows of services have ended, or usable slots have come or gone in pools, since the last
            round of the first pool.
        jobs: every unfinished job of the pool by id, in order of coming: of the first pool every job in the system,
            released or not, also those that were dealt; of others those that were dealt to it.
        waiting: released jobs with ready tasks, in order of `(release, id)`. A bag that runs in part is among them as
            long as it has ready tasks.
        leaving: slots that go to other pools when nothing runs there, by the name of the pool. They are not up.
        promised: the waiting jobs that are promised a start, by id.
        agenda: the tasks that are promised a start on a node, by its name, soonest first, as `(start, job id, task)`;
            no entry where there are none.
        layout: what a policy keeps of its plan from one round to the next, so that it need not derive it again from the
            promises; None as soon as a task of a plan starts or ends at another time than planned, or places change.
        strayed: whether what ran has ended at another time than expected, or failed, since tasks were last promised
            starts on nodes, and others still are. Unlike `layout` it is part of the state.
        placed: the kinds of jobs of which `lacking_places` tells.
        unplanned: what `lacking_places` gives; None: it was not asked for since the policy was chosen, or much has
            changed.
        running: what runs in the foreground, as `(expected end, job id, task, attempt)`, soonest end first.
        background: what runs in the background, in order of jobs, then tasks.
        behind: slots whose background place is taken.
        free: slots that are up, run nothing and are not allocated. On a large machine, the set is made when it is asked
            for, like that of `busy`.
        up: slots that can be allocated.
        off: slots of nodes that are not on and may come on: they are not up.
        predicts: whether run times of jobs may be predicted, see `JobView.predicted`; once so, it stays so.
        coming: when these could be up, soonest first, and how many then; see `ready_at`.
        switching: how the nodes of sites are switched off and on, by site; those of all pools.
        market: what can be rented, and what is; that of all pools.
        busy: slots on which an attempt runs in the foreground.
        count_busy: how many these are; -1: that must be counted.
        allocated: slots allocated to jobs as a whole, including those on which another job's task still runs.
        owners: the job to which each slot is allocated; of the slots of a rigid job, which has them all or none, only
            the lowest is here.
        claimants: the rigid jobs to which slots are allocated, by id.
        nodes: the nodes by name, in order of joining: of the first pool all, of others those of which it has slots.
        speeds: speed factor by slot number.
        slot_nodes: node by slot number.
        limits: slots on which not everything can be done; those of all pools.
        routes: the lines between nodes; those of all pools.
        sites: what is known of sites, by name, the preferred one first; those of all pools.
        uniform: whether all nodes have speed factor 1 and are of one class.
        arrived: what is new since this policy's last round: None means look at everything; otherwise nothing has
            happened but that these jobs came, in order and behind all others, so that what could not start then still
            cannot. What that round itself placed in the background counts as having happened.
        orders: the lists of `in_order` that were asked for, kept up to date by the core.
        queues: the same of `waiting_by`; `waiting` is one of them.
        serves: the kinds of jobs that the policy serves, see `serves_of`; it does not see others.
        serves_all: whether no job of another kind has come.
        unserved: jobs that wait as those of `waiting` do, and that the policy does not serve.
        profile: that of `keep_profile`, kept up to date by the core as long as it can; None: there is none.
        bare, of_behind, of_up: the `bounds` of the slots that are up and have a vacant background place, as it was when
            the other two were what is now `behind` and `up`; see `vacant_behind`.
        counted: how many slots are free; -1: that must be counted.
        kept_runs: the `bounds` of the free slots, on large machines; None: they must be found.
        giving: what this round gives free slots from, as long as nothing else changes which slots are free.
        given: by job and task, what was given in this round; empty on small machines.
        recording: whether reasons were asked for.
        about: the job whose reason was asked for; None: all jobs.
    """

    __slots__ = (
        "about",
        "agenda",
        "allocated",
        "arrived",
        "background",
        "bare",
        "behind",
        "claimants",
        "coming",
        "counted",
        "dealt",
        "given",
        "giving",
        "jobs",
        "kept_runs",
        "last",
        "layout",
        "leaving",
        "limits",
        "market",
        "measured",
        "name",
        "nodes",
        "now",
        "of_behind",
        "of_up",
        "off",
        "orders",
        "owners",
        "placed",
        "pools",
        "predicts",
        "profile",
        "promised",
        "queues",
        "recording",
        "routes",
        "running",
        "serves",
        "serves_all",
        "sites",
        "slot_nodes",
        "slots",
        "speeds",
        "strayed",
        "switching",
        "uniform",
        "unplanned",
        "unserved",
        "up",
        "waiting",
        *("_busy", "_free", "_toggled", "count_busy"),
    )

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.pools: dict[str, Snapshot] = {}
        self.slots: Slots = NO_SLOTS
        self.dealt = 0
        self.leaving: dict[str, Slots] = {}
        self.last = ""
        self.measured = False
        self.now: Instant = 0
        self.jobs: dict[JobId, JobView] = {}
        self.waiting = Queue(by_order)
        self.serves = BATCH
        self.serves_all = True
        self.unserved = Queue(by_order)
        self.promised: dict[JobId, JobView] = {}
        self.agenda: dict[str, list[tuple[Instant, JobId, int]]] = {}
        self.placed: frozenset[Kind] = WORKFLOWS
        self.unplanned: dict[JobId, JobView] | None = None
        self.layout: object | None = None
        self.strayed = False
        self.running: list[tuple[Instant, JobId, int, AttemptView]] = []
        self.background: list[AttemptView] = []
        self.behind: Slots = NO_SLOTS
        self._free: Slots = NO_SLOTS
        self.up: Slots = NO_SLOTS
        self.off: Slots = NO_SLOTS
        self.predicts = False
        self.coming: list[tuple[Instant, int]] = []
        self.switching: Mapping[str, Switching] = NO_SWITCHING
        self.market = NO_MARKET
        self._busy: Slots = NO_SLOTS
        self._toggled: dict[AttemptView, Slots] = {}
        self.count_busy = 0
        self.allocated: Slots = NO_SLOTS
        self.owners: dict[int, JobView] = {}
        self.claimants: dict[JobId, JobView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.speeds: list[float] = []
        self.slot_nodes: list[NodeView] = []
        self.limits = Limits()
        self.routes = FREE_ROUTES
        self.sites: Mapping[str, SiteTerms] = NO_SITES
        self.uniform = True
        self.arrived: list[JobView] | None = None
        self.orders: dict[Key, Queue] = {}
        self.queues: dict[Key, Queue] = {by_order: self.waiting}
        self.profile: KeptProfile | None = None
        self.counted = 0
        self.kept_runs: list[int] | None = None
        self.giving: FreeSlots | None = None
        self.bare: list[int] = []
        self.of_behind: Slots = NO_SLOTS
        self.of_up: Slots = NO_SLOTS
        self.given: dict[TaskKey, Given] = {}
        self.recording = False
        self.about: JobId | None = None

    def in_order(self, key: Key) -> Queue:
        """The jobs whose release date has come and that are not cancelled, by a key; to be read only.

        The list is sorted when it is first asked for. From then on it is an index like the others, so a round does not
        pay for jobs it does not look at. Keys are named functions of a job's id, release and terms (those that are
        submitted or changed, and the estimate), and end in `order`.
        """
        ranked = self.orders.get(key)
        if ranked is None:
            here = (job for job in self.jobs.values() if job.pool is self and not self.hides(job))
            present = (job for job in here if job.release <= self.now and not job.cancelled)
            ranked = self.orders[key] = Queue(key, present)
        return ranked

    def hides(self, job: JobView) -> bool:
        """Whether the policy does not see a job of this pool: it is about to leave, or the policy does not serve it."""
        return job.goes_to is not None or (not self.serves_all and job.kind not in self.serves)

    def waiting_by(self, key: Key) -> Queue:
        """The jobs of `waiting` by another key; as in `in_order`, an index from when it is first asked for."""
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key, self.waiting)
        return queue

    def keep_profile(self, places: dict[JobId, PromisedPlace]) -> KeptProfile:
        """A new profile of all that runs and of these promises; like `in_order` an index from then on.

        Args:
            places: what the promise of each job in `promised` takes. One that has begun begins now.
        """
        self.profile = KeptProfile(self.now, self.room(), self.expected_ends(), places)
        return self.profile

    def lacking_places(self, kinds: frozenset[Kind] = WORKFLOWS) -> dict[JobId, JobView]:
        """The jobs of which a task may wait without being promised a start on a node, by id.

        Like `in_order` it is an index from when it is first asked for: later, jobs of which all tasks have places need
        not be looked at.

        Args:
            kinds: the kinds of jobs to whose tasks the policy promises starts on nodes.
        """
        if self.unplanned is None or self.placed != kinds:
            self.placed = kinds
            found = {number: job for number, job in self.jobs.items() if job.kind in kinds}
            self.unplanned = {number: job for number, job in found.items() if self._sees(job)}
        return self.unplanned

    def _sees(self, job: JobView) -> bool:
        return job.pool is self and job.goes_to is None and job.release <= self.now

    def take_layout(self) -> object | None:
        """What was kept in `layout`. It is the caller's, who may change it and keep it again with its plan."""
        found, self.layout = self.layout, None
        return found

    def expected_ends(self) -> list[tuple[Instant, int]]:
        """When slots become free by estimates, and how many: those of what runs, in its order, then those of nodes that
        are not on. An estimate of 0 counts as a microsecond.
        """
        ends = [(max(end, attempt.start + 1), self.freed_by(attempt)) for end, _, _, attempt in self.running]
        return ends + self.coming if self.coming else ends

    def ready_at(self, node: NodeView) -> Instant:
        """When a node that may come on could be on, if it is switched on now or has been; now, if it is on."""
        now, power = self.now, node.power
        if power is PowerState.ON:
            return now
        if power is PowerState.COMING_ON:
            return max(now + 1, node.power_until)
        settings = settings_of(node.spec.site, self.switching) or node.went_off
        off = now if power is PowerState.OFF or node.power_until == NEVER else max(now, node.power_until)
        return max(now + 1, off + settings.on_time)

    @property
    def is_large(self) -> bool:
        """Whether slots have so high numbers that sets of them are handled by their runs."""
        return len(self.slot_nodes) >= LARGE

    def room(self) -> int:
        """How many slots are free. They are counted only if the core could not follow since the last time."""
        if self.counted < 0:
            self.counted = self.free.bit_count()
        return self.counted

    def free_slots(self) -> FreeSlots:
        """The free slots, to be given away in this round."""
        return FreeSlots(self)

    def free_runs(self) -> list[int]:
        """The `bounds` of the free slots; to be read only. The core keeps them on large machines while it can."""
        if self.kept_runs is None:
            self.kept_runs = bounds(self.free)
        return self.kept_runs

    def first_of(self, free: Slots) -> Slots:
        """The lowest of some slots, as `lowest` finds it."""
        return free & -free if free.bit_length() < LARGE else lowest(free, 1)

    def give_behind(self, job: JobView, taken: list[int]) -> Slots:
        """The set of these slots, in the background of which a rigid job is to start in this round.

        Args:
            taken: as many as the job is wide, by their `bounds`.
        """
        slots = of_bounds(taken)
        self.given[job.id, 0] = Given(slots, taken, were_free=False)
        return slots

    def vacant_behind(self) -> list[int]:
        """The `bounds` of the slots that are up and have a vacant background place; to be read only.

        The core keeps them on large machines while it can.
        """
        if self.of_behind != self.behind or self.of_up != self.up:
            self.bare = bounds(outside(self.up, self.behind))
            self.of_behind, self.of_up = self.behind, self.up
        return self.bare

    def bounds_of(self, attempt: AttemptView) -> list[int]:
        """The `bounds` of the slots of an attempt. They are found once."""
        found = attempt.bounds
        if found is None:
            found = attempt.bounds = bounds(attempt.slots)
        return found

    @property
    def free(self) -> Slots:
        """Slots that are up, run nothing and are not allocated."""
        if self._toggled:
            self._look_at_toggled()
        return self._free

    @free.setter
    def free(self, slots: Slots) -> None:
        if self._toggled:
            self._look_at_toggled()
        self._free = slots
        self.counted = -1
        self.kept_runs = self.giving = None

    @property
    def busy(self) -> Slots:
        """Slots on which an attempt runs in the foreground."""
        if self._toggled:
            self._look_at_toggled()
        return self._busy

    @busy.setter
    def busy(self, slots: Slots) -> None:
        if self._toggled:
            self._look_at_toggled()
        self._busy = slots
        self.count_busy = -1

    def toggle(self, attempt: AttemptView, more: int) -> None:
        """All slots of an attempt, which were free, become busy; or all of them, which were busy, free.

        Few rounds need the sets, so here it is only noted.

        Args:
            more: how many more are busy then.
        """
        if attempt in self._toggled:
            del self._toggled[attempt]  # it has come and gone
        else:
            self._toggled[attempt] = attempt.slots
        if self.count_busy >= 0:
            self.count_busy += more
        if self.counted >= 0:
            self.counted -= more

    def _look_at_toggled(self) -> None:
        for slots in self._toggled.values():
            self._busy ^= slots
            self._free ^= slots
        self._toggled.clear()

    def freed_by(self, attempt: AttemptView) -> int:
        """How many of the slots of an attempt are up: so many become free when it ends.

        They are counted once: on large machines each look at a set of slots takes time.
        """
        if attempt.frees < 0:
            freed = attempt.slots & self.up
            attempt.frees = freed.bit_count() if attempt.job.kind is not BAG else 1 if freed else 0
        return attempt.frees

    def attempts(self) -> Iterator[AttemptView]:
        """Every attempt that was launched and has not ended, including those queued behind another."""
        for job in self.jobs.values():
            yield from job.attempts.values()

    def plan(self) -> Plan:
        """An empty plan for this round. It records reasons if they were asked for."""
        return Plan(self.recording, about=self.about)

    def asked(self, queue: Queue, begin: int = 0) -> Sequence[JobView]:
        """The jobs of a queue, from a place on, whose reasons were asked for; none in an ordinary round.

        An explanation is about one job, so it costs a round and no walk over the queue.
        """
        if not self.recording:
            return ()
        if self.about is None:
            return queue[begin:]
        job = self.jobs[self.about]
        place = queue.place(job)
        return () if place is None or place < begin else (job,)

    def fitting(self, queue: Queue, steps: Steps, begin: int = 0) -> Iterable[JobView]:
        """The jobs of a queue that could start, see `Queue.fitting`, and in their places those that are asked about."""
        if self.recording and self.about is None:
            return queue[begin:]
        found = queue.fitting(steps, begin)
        asked = self.asked(queue, begin)
        return _with(asked[0], found, queue.key) if asked else found

    def time_of(self, job: JobView, task: int, slots: Slots) -> Duration:
        """Expected run time of a job's task on these slots: as long as on the slowest of them for this job."""
        if self.uniform or not job.times:
            return self.run_time(job.estimate_of(task), slots)
        nodes = {id(node): node.spec for node in (self.slot_nodes[slot] for slot in numbers(slots))}
        return job.sized(max(job.time_on(spec) for spec in nodes.values()), task)

    def startup_at(self, node: NodeSpec) -> Duration:
        """How long a task holds a slot of this node before it begins its work."""
        terms = self.sites.get(node.site) if self.sites else None
        return 0 if terms is None else terms.startup

    def inputs_at(self, job: JobView, task: int, node: NodeSpec) -> Instant:
        """When what a task gets is on a node: each task before it has sent its part since its own end.

        What has not succeeded yet is left out. `-NEVER` if nothing has to be sent there.
        """
        latest = -NEVER
        if job.sends and not self.routes.is_free:
            spec, here = job.graph[task], place_of(node)
            for before, size in zip(spec.after, spec.sends, strict=False):
                sent = job.outputs.get(before)
                if sent is not None:
                    latest = max(latest, sent[1] + self.routes.time(size, sent[0], here))
        return min(latest, LONGEST)

    def run_time(self, estimate: Duration, slots: Slots) -> Duration:
        """How long work of this estimate takes on these slots: as long as on the slowest of them, rounded up."""
        if self.uniform:
            return estimate
        slowest = min(self.speeds[slot] for slot in numbers(slots))
        return estimate if slowest == 1.0 else min(-int(-estimate // slowest), LONGEST)


def all_slots(job: JobView) -> Slots:
    """All slots that a job has, and those that its attempts move to."""
    slots = job.slots
    for attempt in job.attempts.values():
        if attempt.goal is not None:
            slots |= attempt.goal.slots
    return slots


def with_slots(view: Snapshot) -> list[JobView]:
    """The jobs of a pool that run somewhere or have slots allocated to them: those that run first come first."""
    runs = [attempt.job for _, _, _, attempt in view.running]
    return list(dict.fromkeys([*runs, *(attempt.job for attempt in view.background), *view.owners.values()]))


def _with(asked: JobView, found: Iterable[JobView], key: Key) -> Iterator[JobView]:
    """Jobs in order, one of them in its place whether it was found or not."""
    place, is_due = key(asked), True
    for job in found:
        if is_due and key(job) >= place:
            is_due = False
            if job is not asked:
                yield asked
        yield job
    if is_due:
        yield asked


class Policy(Protocol):
    """A pure function from snapshot to plan. Its parameters are its fields; it keeps nothing between calls.

    Attributes:
        per_instant: run the policy once after all events of an instant, instead of after each event.
        task_rounds: run it at every task end, even if the slot simply continues with the job's next task.
    """

    @property
    def per_instant(self) -> bool:
        """Whether one round serves all events of an instant."""
        ...

    @property
    def task_rounds(self) -> bool:
        """Whether every task end is followed by a round."""
        ...

    def __call__(self, view: Snapshot) -> Plan: ...


class TopLevel(Policy, Protocol):
    """A policy that deals slots and jobs to pools, each of which has a policy of its own.

    If it has a method `part(pool)`, slots move between the pools for which that is equal: a job fits if all of them
    together have room for it. Otherwise one pool must have room. If it has a method `why(view, job)`, that says in
    words why a job is in its pool, for explanations; it changes nothing.
    """

    def lower(self, pool: str) -> str:
        """The text of the policy of a pool."""
        ...


def uses_tiers(policy: Policy) -> bool:
    """Whether a policy places jobs in the background; such a policy has an attribute `tiers` that is true.

    Under other policies, the core brings what still runs there to the foreground of its slots as soon as that is free.
    """
    return bool(getattr(policy, "tiers", False))


BATCH: Final = frozenset((Kind.BAG, Kind.RIGID, Kind.WORKFLOW))
"""The kinds of jobs that end by themselves: those that most of Headway's own policies serve."""

ALL_KINDS: Final = frozenset(Kind)
"""All kinds of jobs."""


def serves_of(policy: Policy) -> frozenset[Kind]:
    """The kinds of jobs that a policy serves: its attribute `serves`, or else those of `BATCH`.

    A policy does not see jobs of other kinds. They wait, and their reason is `Reason.NOT_SERVED`.
    """
    return frozenset(getattr(policy, "serves", BATCH))


QUANTILE: Final = 0.75
"""How likely a task is to run for no longer than predicted, unless a policy asks for another probability."""


def quantile_of(policy: Policy) -> float:
    """The quantile of its run times that a policy takes for a prediction: its attribute `quantile`, else `QUANTILE`."""
    return float(getattr(getattr(policy, "policy", policy), "quantile", QUANTILE))


def is_top_level(policy: Policy) -> bool:
    """Whether a policy deals slots and jobs to pools, see `TopLevel`."""
    return callable(getattr(policy, "lower", None))


def is_added(policy: Policy) -> bool:
    """Whether a policy is not one of Headway's own. Only for these are the sources, and so the types in plans, checked.

    A policy that wraps another, to time it, has that one as its `policy`.
    """
    return not type(getattr(policy, "policy", policy)).__module__.startswith("headway.")


PolicyFactory = Callable[..., Policy]
"""Makes a policy from its parameters, given by name."""

PolicySource = Callable[[str], Policy]
"""Finds the policy that a text `NAME[:key=value,...]` stands for."""
