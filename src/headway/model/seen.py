"""What a policy sees of attempts, jobs and nodes, see `headway.model.snapshot`. Only the core writes to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headway.model.instant import LONGEST, NEVER, SECOND, Duration, Instant
from headway.model.job import Bag, JobId, JobSpec, TaskSpec, Workflow
from headway.model.network import NodePlace
from headway.model.node import NodeSpec
from headway.model.power import AT_ONCE, PowerState, Switching, Trouble
from headway.model.ration import Ration
from headway.model.slots import (
    NO_SLOTS,
    Slots,
)
from headway.model.tier import Tier
from headway.model.window import Window

if TYPE_CHECKING:
    from headway.model.snapshot import Snapshot

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


class JobView:
    """A job in the system: its terms and how far it is.

    Attributes:
        id, spec, kind, width, rigid, endless: as submitted.
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
        note: for its policy, which may keep here what it has worked out of the job, and finds it in the next round. No
            decision may depend on whether it is there: whoever reads it checks that it holds.
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
        "endless",
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
        "note",
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
        "rigid",
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
        self.rigid = spec.rigid
        self.endless = spec.endless
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
        self.note: object = None

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
        if self.endless or spec.profile or spec.said(task) is not None:
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
        return self.graph[task].estimate if self.graph else self.sized(self.estimate, task)

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
        closed: whether nothing more starts on it until it opens again; only while it is up.
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
        "closed",
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

    def __init__(self, spec: NodeSpec, places: Sequence[int] = (), slots: Slots = NO_SLOTS, size: int = 0) -> None:
        self.spec = spec
        self.places = places
        self.slots = slots
        self.size = size
        self.closing: Slots = NO_SLOTS
        self.up = True
        self.draining = self.closed = False
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

    def copy(self) -> NodeView:
        """Another view of the same node, for a core of its own."""
        made = NodeView(self.spec, self.places, self.slots, self.size)
        made.closing = self.closing
        made.up, made.draining, made.closed, made.apart = self.up, self.draining, self.closed, self.apart
        made.heard_until = self.heard_until
        if self.measures:
            made.measures = self.measures.copy()
        made.power, made.power_until, made.idle_since = self.power, self.power_until, self.idle_since
        made.comes_back, made.kept_off, made.switch = self.comes_back, self.kept_off, self.switch
        made.by_hand, made.trouble, made.went_off = self.by_hand, self.trouble, self.went_off
        return made

    @property
    def is_open(self) -> bool:
        """Whether its slots can be allocated, but for those that it is to lose."""
        return self.may_start and not self.apart and self.power is PowerState.ON

    @property
    def may_start(self) -> bool:
        """Whether it is there and something may start on it, now or when it is on."""
        return self.up and not (self.draining or self.closed)

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


def all_slots(job: JobView) -> Slots:
    """All slots that a job has, and those that its attempts move to."""
    slots = job.slots
    for attempt in job.attempts.values():
        if attempt.goal is not None:
            slots |= attempt.goal.slots
    return slots
