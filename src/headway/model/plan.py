"""The plan language: a plan says how allocations change from now on.

Jobs that a plan does not name keep what they have. So a round costs what changes, not what runs or waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Literal

from headway.model.instant import Instant
from headway.model.job import JobId
from headway.model.slots import Slots, numbers, of_numbers
from headway.model.tier import Tier
from headway.model.value import value

NAMED_NODES: Final = 3
"""How many nodes a reason names."""


class Claim(IntEnum):
    """What happens to tasks that run on the wanted slots; for a job that runs elsewhere, also how it comes to them."""

    FREE = 0
    """Nothing runs there: slots that are not available make the core refuse the allocation."""

    AFTER = 1
    """The running task ends first (Lin14 figure 3.2)."""

    KILL = 2
    """The running task is killed, to be redone later (Lin14 4.4); a job that moves is killed and starts again."""

    MIGRATE = 3
    """The running task saves its work and ends, to continue later; a job that moves continues at once (MEASY14)."""

    SWAP = 4
    """The tiers of the same slots are exchanged: attempts in the foreground there go to the background."""


@value
class Allocation:
    """From now on the job, or one of its tasks, has exactly these slots.

    Attributes:
        job: whose.
        slots: all the slots that it is to have. A job's ready tasks start on them one after the other without another
            round. A running task on a slot that the job loses runs to its end, unless another job claims the slot with
            `KILL`. A rigid job has `width` slots or none. The empty set takes all slots away.
        task: None for the whole job; a task number to place this one task, whose slots return when it ends.
        claim: what happens to tasks that run on these slots.
        tier: which place of these slots it is to have. A running rigid job or single task is moved: to the other tier
            of its slots without a restart, to other slots as `claim` says (`KILL`, `MIGRATE`). What runs under an
            allocation of a whole bag is always in the foreground.
        seats: a rigid job's slots in the order of its processes, each slot once; empty: rising.
    """

    job: JobId
    slots: Slots
    task: int | None = None
    claim: Claim = Claim.FREE
    tier: Tier = Tier.FOREGROUND
    seats: tuple[int, ...] = ()


@value
class Promise:
    """A future start that is reserved for a waiting job or task (the papers' reservation, shadow time).

    Attributes:
        start: `NEVER` takes an earlier promise back.
        slots: how many slots are kept for it.
        node: the node on which a task of a workflow is to run then; empty: it is not said. What is promised so is kept
            until the task starts, the node is not up any more, or another promise takes its place.
    """

    job: JobId
    start: Instant
    slots: int
    task: int | None = None
    node: str = ""


@value
class Lend:
    """From now on these slots are of this pool. A pool that is named for the first time begins to exist.

    If jobs with slots among these are dealt to the same pool by the same plan, with all slots that they have, they go
    there at once, and what runs continues.

    Attributes:
        pool: its name; empty: the first one, which gets them back.
        claim: what happens to anything else that runs there. FREE: nothing runs there, else it is refused; AFTER: it
            ends first, and nothing more starts there; KILL, MIGRATE: it is killed, or saved, and then they go.
    """

    slots: Slots
    pool: str
    claim: Claim = Claim.FREE


@value
class Deal:
    """From now on this job is of this pool.

    Attributes:
        pool: its name; empty: the first one.
        claim: what happens if something of it runs on slots that do not go to the same pool. FREE: it is refused;
            AFTER: that ends first, and nothing more of it starts where it is; KILL, MIGRATE: it is killed, or saved.
    """

    job: JobId
    pool: str
    claim: Claim = Claim.FREE


@value
class Switch:
    """From now on this node is to be on, or off. Only a node on which nothing runs goes off.

    Attributes:
        node: its name.
    """

    node: str
    on: bool


@value
class Rent:
    """From now on a machine is wanted.

    Attributes:
        site, type: of the offer.
        job: for which job; None: for no one job.
        why: in words, for people.
    """

    site: str
    type: str
    job: JobId | None = None
    why: str = ""


class Reason(Enum):
    """Why a job waits, in terms a person can act on."""

    NOT_RELEASED = "its release date has not come"
    AFTER_JOBS = "it starts when {jobs} succeeded"
    NO_ROOM_NOW = "not enough slots are free now"
    BEHIND_OTHERS = "jobs before it in the order of the policy come first"
    WOULD_DELAY = "starting it now would delay a start that is promised to another job"
    NEVER_FITS = "it needs more slots than {where} has now{down}"
    NO_SHARE = "the policy gives it no slots while others need them more"
    NOT_CONSIDERED = "the policy says nothing of it: it may not serve jobs of this size"
    NOT_SERVED = "the policy does not serve jobs of its kind; choose another policy"
    REFUSED = "the policy wants to start it in a way that contradicts the state, which is refused"
    SLOTS_KEPT = "by its estimates it needs no more slots than it has; the policy keeps idle ones for more urgent jobs"
    BEHIND_PRIORITY = "a job of higher priority has no slot yet, and comes first, also on slots that are idle"
    NOT_NEEDED_YET = "by its estimates it will be on time with the slots it has"
    SITE_BUSY = "it waits for slots of the sites where it was placed, by preference of sites and by due date"
    NODES_COME_ON = "it waits for {nodes}, being switched on"
    MACHINE_COMES = "it waits for a machine that is being rented for it"
    NOT_TO_BE_RENTED = "it needs a rented machine to be on time, and none can be had now; `headway rent` says why"
    NODES_STUCK = (
        "it waits for {nodes}, which cannot be switched on; `headway nodes` says why, and when it is tried again"
    )
    USER_AT_BOUND = "user {user} {bound}; it goes on when tasks of this user end"
    RUNS_ALONE_NEXT = "it waits to run alone on its node, because its node was lost {times} times while it ran"
    TASKS_DEPEND = "its next tasks wait for tasks that are still running"
    STARTS_NOW = "it starts in the round that is due now"
    SLOTS_BUSY = "slots are given to it, and other tasks still run there"
    RUNS = "it runs"
    RUNS_BEHIND = "it runs in the background of its slots, on what others leave of them"


CLUSTER: Final = "the cluster"
ANYWHERE: Final = "any part of the cluster"
ANY_SITE: Final = "any site of the cluster"
"""Where a job may run: on all slots, within any one of several pools, or at any one site."""


def in_words(nodes: Sequence[str]) -> str:
    """The first of some nodes by their names, and how many more there are.

    >>> in_words(("a", "b"))
    'nodes a, b'
    """
    more = len(nodes) - NAMED_NODES
    return f"node{'s' * (len(nodes) > 1)} {', '.join(nodes[:NAMED_NODES])}" + (f" and {more} more" if more > 0 else "")


def while_down(nodes: Sequence[str]) -> str:
    """What is added to a reason for which these nodes, which are down, may be the cause; empty if there are none.

    >>> while_down(("a",))
    ', while node a is down'
    """
    return f", while {in_words(nodes)} {'are' if len(nodes) > 1 else 'is'} down" if nodes else ""


@value
class Waiting:
    """Why a job waits: a reason and, if the policy promises one, the expected start.

    Attributes:
        jobs: the jobs that it comes after and that have not ended.
        nodes: the nodes that are being switched on, or cannot be, or are down.
        where: the part of the cluster whose slots it may have.
        user, most, used: the user at whose bound it waits, the slots that this user may have at once, and has.
    """

    job: JobId
    reason: Reason
    start: Instant | None = None
    times: int = 0
    jobs: tuple[JobId, ...] = ()
    nodes: tuple[str, ...] = ()
    where: str = CLUSTER
    user: str = ""
    most: int = 0
    used: int = 0

    @property
    def text(self) -> str:
        """The reason, for people."""
        *some, last = map(str, self.jobs or ("",))
        jobs = f"jobs {', '.join(some)} and {last} have" if some else f"job {last} has"
        most = "1 slot" if self.most == 1 else f"{self.most} slots"
        bound = f"is at the bound of {most} at once"
        if self.used < self.most:
            bound = f"may have {most} at once and has {self.used}; the rest is not enough, or for other jobs"
        return self.reason.value.format(
            times=self.times,
            jobs=jobs,
            nodes=in_words(self.nodes),
            down=while_down(self.nodes),
            where=self.where,
            user=self.user,
            bound=bound,
        )


@dataclass(slots=True, init=False)
class Plan:
    """What a policy wants and, if asked for, why.

    Attributes:
        recording: whether reasons were asked for (`explain`). Otherwise `waiting` stays empty.
        about: the job whose reason was asked for; None: all jobs.
        allocations: which jobs have which slots from now on. Slots that one allocation gives up may be taken by another
            of the same plan, in whatever order they stand.
        promises: starts reserved for waiting jobs; a promise lasts until the job starts or is promised another start.
        waiting: an answer for each job that was asked about and that the policy passed over.
        wake: the instant at which the policy wants another round even if nothing happens.
        lends, deals: slots and jobs that change their pool. Only a top level may say so, see `TopLevel`; its plan is
            carried out in this order: lends, deals, allocations, promises.
        switches: nodes that are to be switched off or on, if their site has settings for it.
        rents: machines that are wanted.
        returns: the numbers of rentals that are to be given back as soon as nothing runs there.
        layout: what the policy wants to find in `Snapshot.layout` in its next round.
    """

    recording: bool
    about: JobId | None
    allocations: list[Allocation]
    promises: list[Promise]
    waiting: list[Waiting]
    wake: Instant | None
    lends: Sequence[Lend]
    deals: Sequence[Deal]
    switches: Sequence[Switch]
    rents: Sequence[Rent]
    returns: Sequence[int]
    layout: object | None = field(compare=False)

    def __init__(self, recording: bool = False, wake: Instant | None = None, about: JobId | None = None) -> None:
        self.recording = recording
        self.about = about
        self.allocations = []
        self.promises = []
        self.waiting = []
        self.wake = wake
        self.lends = self.deals = self.switches = self.rents = self.returns = ()
        self.layout = None

    def lend(self, pool: str, slots: Slots, claim: Claim = Claim.FREE) -> None:
        """Let a pool have these slots from now on."""
        lend = Lend(slots, pool, claim)
        if isinstance(self.lends, list):
            self.lends.append(lend)
        else:
            self.lends = [*self.lends, lend]

    def deal(self, pool: str, job: JobId, claim: Claim = Claim.FREE) -> None:
        """Let a pool have this job from now on."""
        deal = Deal(job, pool, claim)
        if isinstance(self.deals, list):
            self.deals.append(deal)
        else:
            self.deals = [*self.deals, deal]

    def switch(self, node: str, *, on: bool) -> None:
        """Let a node be switched on, or off if nothing runs there."""
        self.switches = [*self.switches, Switch(node, on)]

    def rent(self, site: str, type: str, job: JobId | None = None, why: str = "") -> None:
        """Let a machine of this type be rented, maybe for a job."""
        self.rents = [*self.rents, Rent(site, type, job, why)]

    def give_back(self, rental: int) -> None:
        """Let a machine be given back as soon as nothing runs there."""
        self.returns = [*self.returns, rental]

    def hold(
        self,
        job: JobId,
        slots: Slots,
        claim: Claim = Claim.FREE,
        tier: Tier = Tier.FOREGROUND,
        seats: tuple[int, ...] = (),
    ) -> None:
        """Allocate exactly these slots to the job from now on; a rigid job starts on them, or moves there."""
        self.allocations.append(Allocation(job, slots, None, claim, tier, seats))

    def place(
        self, job: JobId, task: int, slots: Slots, claim: Claim = Claim.FREE, tier: Tier = Tier.FOREGROUND
    ) -> None:
        """Start this one task on these slots, or move it there; it gives them back when it ends."""
        self.allocations.append(Allocation(job, slots, task, claim, tier))

    def promise(self, job: JobId, start: Instant, slots: int, task: int | None = None, node: str = "") -> None:
        """Reserve a future start for a waiting job, or for a task of it, maybe on a node."""
        self.promises.append(Promise(job, start, slots, task, node))

    def pass_over(self, job: JobId, reason: Reason, start: Instant | None = None) -> None:
        """Record why a job does not start now. Nothing is recorded unless its reason was asked for."""
        if self.recording and (self.about is None or self.about == job):
            self.waiting.append(Waiting(job, reason, start))


Ruling = Literal["pay", "end", "stop"]
"""What becomes of a rented machine: it is paid for longer; given back as soon as it is idle; or at once."""


@value
class RentalRuling:
    """What the rule for rented machines does with one of them."""

    rental: int
    ruling: Ruling


@value
class Decision:
    """What a round decided: enough to do the same again without the policy that was asked.

    Attributes:
        allocations: those of the plan.
        promises: the jobs whose promised start has changed, and the new one; None: none any more.
        wake: as in the plan.
        raised: the type of what the policy raised instead of giving a plan; empty: it gave one.
        forward: whether what ran in the background was brought to the foreground before, as for policies without tiers.
        consults: whether a question was sent to the decider; the rest is empty then.
        pool: whose round it was; empty: that of the first pool.
        lends, deals: those of the plan.
        then: what the later rounds of the same event decided, in other pools.
        about: of a question to the decider: the pools that it is about; empty: the first one.
        planned: the tasks that have other promises than before: job, task, start and node; `NEVER`: none any more.
        switches: nodes that the plan switches off or on.
        ruled: those that the rule for idle nodes switches, after all rounds of the event.
        rents, returns: those of the plan.
        ruled_rentals: what the rule for rented machines does, after all rounds of the event.
        look: when one of these rules looks again even if nothing happens; None: they need not.
    """

    allocations: tuple[Allocation, ...] = ()
    promises: tuple[tuple[JobId, Instant | None], ...] = ()
    wake: Instant | None = None
    raised: str = ""
    forward: bool = False
    consults: bool = False
    pool: str = ""
    lends: tuple[Lend, ...] = ()
    deals: tuple[Deal, ...] = ()
    then: tuple[Decision, ...] = ()
    about: tuple[str, ...] = ()
    planned: tuple[tuple[JobId, int, Instant, str], ...] = ()
    switches: tuple[Switch, ...] = ()
    ruled: tuple[Switch, ...] = ()
    look: Instant | None = None
    rents: tuple[Rent, ...] = ()
    returns: tuple[int, ...] = ()
    ruled_rentals: tuple[RentalRuling, ...] = ()


ClaimWord = Literal["free", "after", "kill", "migrate", "swap"]
TierWord = Literal["foreground", "background"]


@value
class AllocationRecord:
    """An `Allocation` with its slots as their numbers, its claim and its tier as words."""

    job: JobId
    slots: tuple[int, ...]
    task: int | None = None
    claim: ClaimWord = "free"
    tier: TierWord = "foreground"
    seats: tuple[int, ...] = ()


@value
class LendRecord:
    """A `Lend` with its slots as their numbers, and its claim as a word."""

    slots: tuple[int, ...]
    pool: str
    claim: ClaimWord = "free"


@value
class DealRecord:
    """A `Deal` with its claim as a word."""

    job: JobId
    pool: str
    claim: ClaimWord = "free"


@value
class PlanRecord:
    """A plan as plain values, for the answers of deciders."""

    allocations: tuple[AllocationRecord, ...] = ()
    promises: tuple[Promise, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    wake: Instant | None = None
    lends: tuple[LendRecord, ...] = ()
    deals: tuple[DealRecord, ...] = ()
    switches: tuple[Switch, ...] = ()
    rents: tuple[Rent, ...] = ()
    returns: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> PlanRecord:
        """Write a plan down."""
        allocations = (
            AllocationRecord(
                wanted.job,
                tuple(numbers(wanted.slots)),
                wanted.task,
                _CLAIMS[wanted.claim],
                TIER_WORDS[wanted.tier],
                wanted.seats,
            )
            for wanted in plan.allocations
        )
        lends = (LendRecord(tuple(numbers(lend.slots)), lend.pool, _CLAIMS[lend.claim]) for lend in plan.lends)
        deals = (DealRecord(deal.job, deal.pool, _CLAIMS[deal.claim]) for deal in plan.deals)
        rest = (tuple(plan.promises), tuple(plan.waiting), plan.wake)
        words = tuple(plan.switches), tuple(plan.rents), tuple(plan.returns)
        return cls(tuple(allocations), *rest, tuple(lends), tuple(deals), *words)

    def flaw(self, slots: int) -> str | None:
        """What is wrong with it on this many slots, as `field is value; allowed: ...`; None: nothing."""
        for position, wanted in enumerate(self.allocations):
            for slot in wanted.slots:
                if not 0 <= slot < slots:
                    return f"allocations[{position}].slots holds {slot}; allowed: 0 to {slots - 1}"
            if wanted.seats and sorted(wanted.seats) != sorted(wanted.slots):
                return f"allocations[{position}].seats is {list(wanted.seats)}; allowed: its slots in another order"
        for position, lend in enumerate(self.lends):
            for slot in lend.slots:
                if not 0 <= slot < slots:
                    return f"lends[{position}].slots holds {slot}; allowed: 0 to {slots - 1}"
        return None

    def plan(self) -> Plan:
        """The plan that was written down; it must have no flaw."""
        plan = Plan(wake=self.wake)
        plan.allocations.extend(
            Allocation(
                wanted.job,
                of_numbers(wanted.slots),
                wanted.task,
                Claim[wanted.claim.upper()],
                Tier[wanted.tier.upper()],
                wanted.seats,
            )
            for wanted in self.allocations
        )
        plan.promises.extend(self.promises)
        plan.waiting.extend(self.waiting)
        plan.lends = [Lend(of_numbers(lend.slots), lend.pool, Claim[lend.claim.upper()]) for lend in self.lends]
        plan.switches, plan.rents, plan.returns = self.switches, self.rents, self.returns
        plan.deals = [Deal(deal.job, deal.pool, Claim[deal.claim.upper()]) for deal in self.deals]
        return plan


_CLAIMS: Final[dict[Claim, ClaimWord]] = {
    Claim.FREE: "free",
    Claim.AFTER: "after",
    Claim.KILL: "kill",
    Claim.MIGRATE: "migrate",
    Claim.SWAP: "swap",
}

TIER_WORDS: Final[dict[Tier, TierWord]] = {Tier.FOREGROUND: "foreground", Tier.BACKGROUND: "background"}
"""How the tiers are written."""
