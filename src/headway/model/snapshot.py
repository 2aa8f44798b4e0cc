"""What a policy sees: a read-only view of the core's state at one instant, with the indexes the core keeps anyway.

It is not a copy. Only the core writes to these objects; a policy that does so breaks the core (tests compare the whole
state before and after each policy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headway.model.instant import LONGEST, NEVER, Duration, Instant
from headway.model.job import BATCH, JobId, JobSpec, Kind, TaskKey
from headway.model.kept_profile import KeptProfile, PromisedPlace
from headway.model.network import NO_NETWORK, Routes, place_of
from headway.model.node import NodeSpec
from headway.model.plan import Plan
from headway.model.power import PowerState, Switching, settings_of
from headway.model.queue import Key, Queue, Steps, by_order
from headway.model.renting import NO_MARKET
from headway.model.seen import USE_UNKNOWN, AttemptView, JobView, NodeView
from headway.model.site import NO_SITES, SiteTerms
from headway.model.slots import (
    NO_SLOTS,
    Slots,
    bounds,
    count,
    cut,
    lowest,
    numbers,
    of_bounds,
    outside,
    take_out,
)

BAG: Final = Kind.BAG  # looking up a member of an enumeration is slow
LARGE: Final = 1 << 14
"""Where slots have so high numbers, looking at a set once takes as long as a decision."""

NOT_MADE: Final = -1
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
            self._left: Slots = NOT_MADE
            self._owed: list[Slots] = []
            view.giving = self
            view.given.clear()
        else:
            self._left = view.free

    @property
    def slots(self) -> Slots:
        """Those that are left. On a large machine the set is made when it is asked for."""
        if self._is_large:
            if self._left == NOT_MADE:
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

    def has(self, width: int) -> bool:
        """Whether a rigid job can have so many of them."""
        return width <= (self._view.limits.most_together(self.slots) if self._view.limits.is_split else self.room)

    def take(self, job: JobView) -> Slots:
        """Give a rigid job the lowest ones; there are enough of them.

        Where its members must be together, it is given what it can have so, or else, to wait for it, those that it is
        to have already or the lowest; nothing if too few nodes are up for it.
        """
        if self._view.limits.is_split:
            return self._take_together(job)
        self.room -= job.width
        if self._is_large:
            return self._give(job, cut(self._changing(), job.width))
        slots = lowest(self._left, job.width)
        self._left ^= slots
        return slots

    def _take_together(self, job: JobView) -> Slots:
        limits, left, width = self._view.limits, self.slots, job.width
        parts = limits.together(left, width)
        if not parts and (job.held or limits.most_together(self._view.up) < width):
            return job.held
        slots = lowest(min(parts, key=count) if parts else left, width)
        if self._is_large:
            return self.take_runs(job, bounds(slots))
        self.room -= width
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
        separate: those by site, in order of names, where the members of a rigid job must not be also at another site.
        spanning: all others.
        is_split: whether a rigid job can have not all slots of the cluster together.
    """

    __slots__ = ("fixed", "is_split", "one_tier", "separate", "spanning")

    def __init__(self) -> None:
        self.one_tier: Slots = NO_SLOTS
        self.fixed: Slots = NO_SLOTS
        self.separate: dict[str, Slots] = {}
        self.spanning: Slots = NO_SLOTS
        self.is_split = False

    def note(self, node: NodeSpec, slots: Slots) -> None:
        """A node has these slots."""
        able = node.capabilities
        if not able.tiers:
            self.one_tier |= slots
        if not able.moves:
            self.fixed |= slots
        if able.spans:
            self.spanning |= slots
        elif node.site in self.separate:
            self.separate[node.site] |= slots
        else:
            self.separate = dict(sorted([*self.separate.items(), (node.site, slots)]))
        self._look()

    def forget(self, slots: Slots) -> None:
        """These slots are gone."""
        self.one_tier ^= self.one_tier & slots
        self.fixed ^= self.fixed & slots
        self.spanning ^= self.spanning & slots
        self.separate = {site: left for site, here in self.separate.items() if (left := outside(here, slots))}
        self._look()

    def _look(self) -> None:
        self.is_split = len(self.separate) + (self.spanning != NO_SLOTS) > 1

    def take_over(self, others: Limits) -> None:
        """Be as others are."""
        self.one_tier, self.fixed = others.one_tier, others.fixed
        self.separate, self.spanning, self.is_split = others.separate.copy(), others.spanning, others.is_split

    def together(self, slots: Slots, least: int = 1) -> list[Slots]:
        """The parts of these slots that members of one rigid job may have, those with so many or more."""
        parts = []
        for here in self.separate.values():
            part = slots & here
            if part:
                parts.append(part)
                slots ^= part
        return [part for part in [slots, *parts] if count(part) >= least]

    def are_together(self, slots: Slots) -> bool:
        """Whether members of one rigid job may have all of these slots."""
        return not self.is_split or len(self.together(slots)) <= 1

    def most_together(self, slots: Slots) -> int:
        """How many of these slots one rigid job can have at most."""
        return max(map(count, self.together(slots)), default=0) if self.is_split else count(slots)


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
        of_slots: what `kept_of_slots` gives, and its key; None as soon as usable slots come or go in any pool.
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
        "of_slots",
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
        self.of_slots: tuple[object, object] | None = None
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

    def kept_of_slots(self, key: object, make: Callable[[], object]) -> object:
        """What `make` gives: once, as long as the key stays equal and no usable slots come or go in any pool.

        It must follow from the key, and from what slots and nodes there are, alone.
        """
        if self.of_slots is None or self.of_slots[0] != key:
            self.of_slots = key, make()
        return self.of_slots[1]

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

    def slowest(self, slots: Slots) -> float:
        """The speed factor of the slowest of these slots."""
        return 1.0 if self.uniform else min([self.speeds[slot] for slot in numbers(slots)])

    def run_time(self, estimate: Duration, slots: Slots) -> Duration:
        """How long work of this estimate takes on these slots: as long as on the slowest of them, rounded up."""
        if self.uniform:
            return estimate
        slowest = self.slowest(slots)
        return estimate if slowest == 1.0 else min(-int(-estimate // slowest), LONGEST)


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
