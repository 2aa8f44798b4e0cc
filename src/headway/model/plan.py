"""The plan language: a plan is a change of who holds which slots from now on.

What a plan does not name keeps what it holds, so a round costs what changes, not what runs or waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Literal

from headway.model.instant import Instant
from headway.model.job import JobId
from headway.model.slots import Slots, numbers, of_numbers
from headway.model.tier import Tier
from headway.model.value import value


class Claim(IntEnum):
    """How slots are obtained from whoever runs there; of a job that runs elsewhere, also how it comes to them."""

    FREE = 0
    """Nobody runs there: slots that are not available make the core refuse the allocation."""

    AFTER = 1
    """The running task ends first (Lin14 figure 3.2)."""

    KILL = 2
    """The running task is killed, to be redone later (Lin14 4.4); a job that moves is killed and starts anew."""

    MIGRATE = 3
    """The running task saves what it has done and ends, to go on later; a job that moves goes on at once (MEASY14)."""

    SWAP = 4
    """The tiers of the same slots are exchanged: who runs in the foreground there goes to the background."""


@value
class Allocation:
    """From now on the job, or one of its tasks, holds exactly these slots.

    Attributes:
        job: whose.
        slots: all the slots it shall hold. A job's ready tasks are fed to them one after the other without asking the
            policy again; a running task on a slot that is no longer held runs on to its end unless somebody claims the
            slot with `KILL`. A rigid job holds `width` slots or none. The empty set takes away what the job holds.
        task: None for the whole job; a task number to place this one task, whose slots return when it ends.
        claim: how slots are obtained on which something runs.
        tier: which of the places of these slots it shall have. A rigid job or a single task that runs is moved: to the
            other tier of the slots it has without being restarted, to other slots as `claim` says (`KILL`, `MIGRATE`).
            What runs on under an allocation of a whole bag is always in the foreground.
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
    """A start in the future that is held for a waiting job or task (the papers' reservation, shadow time).

    Attributes:
        start: `NEVER` takes an earlier promise back.
        slots: how many slots are kept for it.
    """

    job: JobId
    start: Instant
    slots: int
    task: int | None = None


class Reason(Enum):
    """Why a job waits, in terms a person can act on."""

    NOT_RELEASED = "its release date has not come"
    NO_ROOM_NOW = "not enough slots are free now"
    BEHIND_OTHERS = "jobs before it in the order of the policy come first"
    WOULD_DELAY = "starting it now would delay a start that is promised to another job"
    NEVER_FITS = "it needs more slots than the cluster has now"
    NO_SHARE = "the policy gives it no slots while others need them more"
    NOT_CONSIDERED = "the policy says nothing of it: it may not serve jobs of this kind or size"
    REFUSED = "the policy wants to start it in a way that contradicts the state, which is refused"
    NOT_NEEDED_YET = "by its estimates it will be on time with the slots it holds"
    RUNS_ALONE_NEXT = "it waits to run alone on its node, because its node was lost {times} times while it ran"
    TASKS_DEPEND = "its next tasks wait for tasks that are still running"
    STARTS_NOW = "it starts in the round that is due now"
    RUNS = "it holds slots"
    RUNS_BEHIND = "it runs in the background of its slots, on what others leave of them"


@value
class Waiting:
    """The answer to "why does it wait": a reason and, where the policy promises one, the expected start."""

    job: JobId
    reason: Reason
    start: Instant | None = None
    times: int = 0

    @property
    def text(self) -> str:
        """The reason, for people."""
        return self.reason.value.format(times=self.times)


@dataclass(slots=True, init=False)
class Plan:
    """What a policy wants and, where somebody asked, why.

    Attributes:
        recording: whether somebody reads `waiting` (`explain`); a round that nobody explains records nothing.
        allocations: who shall hold what from now on. Slots that one allocation gives up may be taken by another of
            the same plan, in whatever order they stand.
        promises: starts held for jobs that wait; a promise lasts until the job starts or is promised another start.
        waiting: an answer for each job the policy passed over.
        wake: the instant at which the policy wants another round even if nothing happens.
    """

    recording: bool
    allocations: list[Allocation]
    promises: list[Promise]
    waiting: list[Waiting]
    wake: Instant | None

    def __init__(self, recording: bool = False, wake: Instant | None = None) -> None:
        self.recording = recording
        self.allocations = []
        self.promises = []
        self.waiting = []
        self.wake = wake

    def hold(
        self,
        job: JobId,
        slots: Slots,
        claim: Claim = Claim.FREE,
        tier: Tier = Tier.FOREGROUND,
        seats: tuple[int, ...] = (),
    ) -> None:
        """From now on the job holds exactly these slots; a rigid job starts on them, or moves there."""
        self.allocations.append(Allocation(job, slots, None, claim, tier, seats))

    def place(
        self, job: JobId, task: int, slots: Slots, claim: Claim = Claim.FREE, tier: Tier = Tier.FOREGROUND
    ) -> None:
        """This one task starts on these slots, or moves there, and gives them back when it ends."""
        self.allocations.append(Allocation(job, slots, task, claim, tier))

    def promise(self, job: JobId, start: Instant, slots: int, task: int | None = None) -> None:
        """Hold a start in the future for a job that waits."""
        self.promises.append(Promise(job, start, slots, task))

    def pass_over(self, job: JobId, reason: Reason, start: Instant | None = None) -> None:
        """Say why a job does not start now; costs nothing unless somebody asked."""
        if self.recording:
            self.waiting.append(Waiting(job, reason, start))


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
class PlanRecord:
    """A plan as plain values: what a decider answers, and what the journal keeps of it."""

    allocations: tuple[AllocationRecord, ...] = ()
    promises: tuple[Promise, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    wake: Instant | None = None

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
        return cls(tuple(allocations), tuple(plan.promises), tuple(plan.waiting), plan.wake)

    def flaw(self, slots: int) -> str | None:
        """What is wrong with it where there are so many slots, as `field is value; allowed: ...`; None: nothing."""
        for position, wanted in enumerate(self.allocations):
            for slot in wanted.slots:
                if not 0 <= slot < slots:
                    return f"allocations[{position}].slots holds {slot}; allowed: 0 to {slots - 1}"
            if wanted.seats and sorted(wanted.seats) != sorted(wanted.slots):
                return f"allocations[{position}].seats is {list(wanted.seats)}; allowed: its slots in another order"
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
