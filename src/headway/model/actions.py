"""What the core wants done, in the imperative. A driver performs actions in sequence, after their event is durable."""

from __future__ import annotations

from enum import Enum

from headway.model.instant import Instant
from headway.model.job import JobId
from headway.model.outcome import Outcome
from headway.model.slots import Slots
from headway.model.tier import Tier
from headway.model.value import value


class JobStatus(Enum):
    """The status of a job."""

    HELD = "held"
    """Its release date has not come, or a job that it comes after has not ended."""
    WAITING = "waiting"
    RUNNING = "running"
    """At least one task has slots."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """At least one task failed for good."""
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self in _FINAL


_FINAL = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


@value
class Launch:
    """Start an attempt on exactly these slots, all at once.

    Owed in reply: `TaskStarted` if the node reports starts, then `TaskEnded`; or `TaskEnded` with `REFUSED`.
    A rigid job is one task on all its slots. `attempt` counts from 1 for each task; later answers with an older
    number are ignored.

    Attributes:
        tier: which of the two places of its slots it has.
        seats: the slots in the order of its processes; empty: rising.
    """

    job: JobId
    task: int
    attempt: int
    slots: Slots
    tier: Tier = Tier.FOREGROUND
    seats: tuple[int, ...] = ()


@value
class Kill:
    """End an attempt now, with all its processes. Owed in reply: `TaskEnded`, `KILLED` unless it ended before."""

    job: JobId
    task: int
    attempt: int


@value
class Suspend:
    """End an attempt but keep its work, because it continues elsewhere.

    Owed in reply: `TaskSaved` if it saved something, then `TaskEnded`, `KILLED` unless it ended before.
    """

    job: JobId
    task: int
    attempt: int


@value
class ChangeTier:
    """Give a running attempt the other place on its slots, without restarting it.

    Several of one event exchange places: the first may go where the next one still is. Owed in reply: nothing, or
    `TierRefused`.
    """

    job: JobId
    task: int
    attempt: int
    tier: Tier


@value
class Settle:
    """A task has its final outcome: keep the result of this attempt and tell waiting callers."""

    job: JobId
    task: int
    attempt: int
    outcome: Outcome


@value
class Conclude:
    """Nothing more will happen to the job: tell waiting callers.

    Tasks that were not settled before never ran to their end: the job was cancelled, or a task they depend on failed.
    """

    job: JobId
    status: JobStatus


@value
class Wake:
    """Feed `Woke` at this instant, after every other event of that instant. Waking too often does no harm."""

    at: Instant


@value
class SwitchOff:
    """Switch a node off, on which nothing runs. Owed in reply: `NodeOff` or `SwitchFailed`, with this number.

    Attributes:
        switch: counts from 1 in the whole cluster; older switches of this node are given up.
        by_hand: an operator has done it: no command is run.
    """

    node: str
    switch: int
    by_hand: bool = False


@value
class SwitchOn:
    """Switch a node on. Owed in reply: `NodeOn` or `SwitchFailed`, with this number; see `SwitchOff`."""

    node: str
    switch: int
    by_hand: bool = False


@value
class RentMachine:
    """Rent a machine, and let it join as a node of this name.

    Owed in reply: `Rented` or `RentFailed`, with this number; when the machine can be used, `NodeJoined`. To ask twice
    with one number gives one machine.

    Attributes:
        rental: counts from 1 in the whole cluster.
        site, type: what was offered.
    """

    rental: int
    site: str
    type: str
    node: str


@value
class ReturnMachine:
    """Give a machine back, also one of which it is not known yet whether there is one. Owed in reply: `Returned`."""

    rental: int
    site: str
    node: str


@value
class Consult:
    """Ask the decider for a plan. Owed in reply: `Advised` or `DeciderFailed` with this number.

    At most one question is open. Until it is answered, running tasks continue.
    """

    question: int


Action = (
    Launch
    | Kill
    | Suspend
    | ChangeTier
    | Settle
    | Conclude
    | Consult
    | Wake
    | SwitchOff
    | SwitchOn
    | RentMachine
    | ReturnMachine
)
