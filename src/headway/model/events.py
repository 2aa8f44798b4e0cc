"""Facts, in the past tense, each with its instant. The only way the state of the core changes.

`by` is the owner of the token that came with the request; empty: it was not requested. It changes nothing.

Events are fed in the order of their instants. They are what the journal keeps: the same events give the same state and
the same actions on every machine.
"""

from __future__ import annotations

from headway.model.instant import Duration, Instant
from headway.model.job import AnyJob, JobId, PenaltyShape
from headway.model.network import Network
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import PlanRecord
from headway.model.power import Switching
from headway.model.renting import Renting
from headway.model.site import SiteTerms
from headway.model.tier import Tier
from headway.model.value import value
from headway.model.window import Window


@value
class JobSubmitted:
    """A job was accepted. Its `flaw` is None: it was checked before it was accepted.

    `predicted` is how long a task of it runs on a node of speed factor 1 by what earlier jobs tell, >= 1; None: nothing
    was asked of them. It counts as the job's estimate, if it is shorter than that, until an attempt has run longer.
    """

    at: Instant
    job: AnyJob
    by: str = ""
    predicted: Duration | None = None


@value
class JobCancelled:
    """A user with the right to do so asked to end the job: waiting tasks are dropped, running ones killed.

    `reason` says why if it was not asked for; empty: it was.
    """

    at: Instant
    job: JobId
    reason: str = ""
    by: str = ""


@value
class TasksCancelled:
    """A user with the right to do so asked to end these tasks of a job; the others continue.

    Those that wait are dropped, those that run killed. Tasks that have ended, or that the job does not have, are
    skipped.
    """

    at: Instant
    job: JobId
    tasks: tuple[int, ...]
    by: str = ""


@value
class JobChanged:
    """New terms of a job; None keeps a term as it is. What is not a term of the job's form is ignored."""

    at: Instant
    job: JobId
    priority: float | None = None
    due: Instant | None = None
    rate: float | None = None
    shape: PenaltyShape | None = None
    threshold: Duration | None = None
    fraction: float | None = None
    least: int | None = None
    by: str = ""


@value
class TaskStarted:
    """The engine has begun to run an attempt (only on nodes that report starts): its slots are busy from now on."""

    at: Instant
    job: JobId
    task: int
    attempt: int


@value
class TaskEnded:
    """An attempt has ended. An attempt the core no longer waits for is ignored (fencing)."""

    at: Instant
    job: JobId
    task: int
    attempt: int
    outcome: Outcome = Outcome.SUCCEEDED


@value
class TaskStruck:
    """An attempt was ended by what need not be its task's doing, so at first it does not count against the task.

    Attributes:
        outcome: SIGNALLED by a user, by the kernel when memory ran out, or by the task itself: it is not known which.
            REFUSED, RAISED or EXITED, because the disk of its node was full.
    """

    at: Instant
    job: JobId
    task: int
    attempt: int
    outcome: Outcome = Outcome.SIGNALLED


@value
class RulesChosen:
    """From now on the core follows these rules; a journal from before is replayed by those under which it was written.

    Attributes:
        rules: 1: a task lost with its nodes ten times is given up, and an attempt runs from its launch on. 2: a task
            that may be the cause runs alone until that is known, and an attempt runs from when its start is reported.
            3: the shorter the tasks of a bag are, the more of them are launched ahead of their turn. 4: a node that
            an operator keeps off is kept off though it was lost, and one that is being switched is not lost. 5: a
            node takes over the numbers of slots only from one of its own site that has left, and the top level may deal
            again when a node leaves that was down.
    """

    at: Instant
    rules: int


@value
class WindowEnded:
    """A window of a service has ended: so much came, and so much was answered in time."""

    at: Instant
    job: JobId
    window: Window


@value
class TierRefused:
    """The engine could not give an attempt the other place on its slots: it keeps running where it was.

    Attributes:
        tier: the one it was to get.
    """

    at: Instant
    job: JobId
    task: int
    attempt: int
    tier: Tier


@value
class TaskSaved:
    """An attempt has saved a checkpoint: its work until now is not lost if it ends early."""

    at: Instant
    job: JobId
    task: int
    attempt: int


@value
class NodeJoined:
    """A node joins, for the first time or again under its old name after it left."""

    at: Instant
    node: NodeSpec
    by: str = ""


@value
class NodeDown:
    """A node stopped answering or died: what ran there is lost; its slots are down until it is back.

    Attributes:
        excused: what ran there cannot have been the cause, so the loss counts against none of it.
    """

    at: Instant
    name: str
    excused: bool = False


@value
class NodeUp:
    """A node that was down is back, running nothing of what it ran before."""

    at: Instant
    name: str


@value
class NodeClosed:
    """Nothing more starts on a node until it opens again: so says what it is part of, such as Slurm.

    What runs there goes on. What was launched and has not begun is taken back.
    """

    at: Instant
    name: str


@value
class NodeOpened:
    """A node that was closed can be used again."""

    at: Instant
    name: str


@value
class NodeDrained:
    """A node is to start nothing more; what runs there may end. It leaves with the last end."""

    at: Instant
    name: str
    by: str = ""


@value
class NodeLeft:
    """A node was removed for good on request; what ran there is redone."""

    at: Instant
    name: str
    by: str = ""


@value
class NodeResized:
    """A node has this number of slots from now on.

    Surplus slots start nothing more and go when they are idle; with `at_once` their tasks are ended and redone.
    """

    at: Instant
    name: str
    slots: int
    at_once: bool = False
    by: str = ""


@value
class NodeSwitched:
    """An operator wants a node on or off.

    A node that is to go off starts nothing more, and goes off when nothing runs there. It stays off until an operator
    wants it on.

    Attributes:
        by_hand: the operator has switched it: whatever is under way there is given up, and no command is run.
    """

    at: Instant
    name: str
    on: bool
    by: str = ""
    by_hand: bool = False


@value
class NodeOff:
    """A node that was going off is off.

    Attributes:
        switch: the number of the switch that this answers. An answer to another one than the last of its node is
            ignored; 0, in older journals: it is not known.
    """

    at: Instant
    name: str
    switch: int = 0


@value
class NodeOn:
    """A node that was coming on is on, running nothing; in older journals also: one that was to go off has not.

    Attributes:
        switch: as of `NodeOff`.
    """

    at: Instant
    name: str
    switch: int = 0


@value
class SwitchFailed:
    """A node could not be switched off or on: it is tried again later.

    Attributes:
        switch: as of `NodeOff`.
        serves: whether it is in service: it was to go off, and its agent runs again.
        detail: why, for people.
    """

    at: Instant
    name: str
    switch: int
    serves: bool
    detail: str


@value
class SwitchingChosen:
    """From now on nodes are switched off and on by these settings; at first none is. One that is stuck is down."""

    at: Instant
    settings: tuple[Switching, ...]


@value
class RentingChosen:
    """From now on this can be rented; at first nothing can. What is rented already stays, at the price it had."""

    at: Instant
    renting: Renting


@value
class Rented:
    """There is a machine that was asked for; it counts as billed since it was asked for.

    Attributes:
        rental: the number of `RentMachine`.
        machine: its name at the site that rents it out.
    """

    at: Instant
    rental: int
    machine: str


@value
class RentFailed:
    """There will be no machine: the site has refused it, or it has ended before it was a node."""

    at: Instant
    rental: int
    detail: str


@value
class Reclaimed:
    """The site will take a machine back."""

    at: Instant
    rental: int
    until: Instant


@value
class Returned:
    """A machine is gone, or there never was one; it is not billed any more."""

    at: Instant
    rental: int


@value
class SlotsBounded:
    """From now on the tasks of a user may have so many slots at once; None: any number, as at first."""

    at: Instant
    user: str
    most: int | None


@value
class NodeMeasured:
    """What collectors measured on a node, by name; values of other names stay."""

    at: Instant
    name: str
    values: tuple[tuple[str, float], ...]


@value
class NetworkChosen:
    """From now on these are the lines between nodes and sites; at first sending costs nothing."""

    at: Instant
    network: Network


@value
class SitesChosen:
    """From now on these are the sites of the cluster, in order of preference; at first nothing is known of them."""

    at: Instant
    sites: tuple[SiteTerms, ...]


@value
class NodesHeard:
    """Signs of life of nodes with leases: each lease starts again now."""

    at: Instant
    names: tuple[str, ...]


@value
class PolicyChosen:
    """From now on this policy makes the plans; its text is `NAME[:key=value,...]`."""

    at: Instant
    policy: str
    by: str = ""


@value
class PeriodChosen:
    """From now on the policy runs at least this often while jobs are in the system; None: only when things happen."""

    at: Instant
    period: Duration | None
    by: str = ""


@value
class DeciderChosen:
    """From now on the decider at this URL makes the plans, or the policy if it fails. Empty: always the policy."""

    at: Instant
    url: str
    by: str = ""


@value
class Advised:
    """The decider's answer to a question. An answer to another question than the open one is ignored."""

    at: Instant
    question: int
    plan: PlanRecord


@value
class DeciderFailed:
    """The decider gave no usable answer to the open question: the policy makes the plans until the decider is back."""

    at: Instant
    question: int
    detail: str


@value
class DeciderBack:
    """The decider answers again."""

    at: Instant


@value
class Incident:
    """Something an operator should know about; it changes nothing.

    Attributes:
        kind: a word such as `collector_failed`.
        subject: what it is about: a node, a collector, a job, a URL.
        detail: for people.
    """

    at: Instant
    kind: str
    subject: str
    detail: str
    by: str = ""


@value
class ClockStepped:
    """The clock was set, or the machine slept: what runs now continues, but its instants no longer give its run time.

    Attributes:
        at: an instant after the step.
        forward: how far time has jumped forward with it, >= 0; 0 if the clock was set back, because time never goes
            back.
    """

    at: Instant
    forward: Duration


@value
class Woke:
    """An instant has come at which the core asked to be woken."""

    at: Instant


Asked = (
    JobSubmitted
    | JobCancelled
    | TasksCancelled
    | JobChanged
    | NodeJoined
    | NodeDrained
    | NodeLeft
    | NodeResized
    | NodeSwitched
    | PolicyChosen
    | PeriodChosen
    | DeciderChosen
    | Incident
)
"""Events that may be requests of a person or program: `by` says whose."""

Event = (
    JobSubmitted
    | JobCancelled
    | TasksCancelled
    | JobChanged
    | TaskStarted
    | TaskEnded
    | TaskSaved
    | TaskStruck
    | RulesChosen
    | WindowEnded
    | TierRefused
    | NodeJoined
    | NodeDown
    | NodeUp
    | NodeClosed
    | NodeOpened
    | NodeDrained
    | NodeLeft
    | NodeResized
    | NodeSwitched
    | NodeOff
    | NodeOn
    | SwitchFailed
    | SwitchingChosen
    | RentingChosen
    | Rented
    | RentFailed
    | Reclaimed
    | Returned
    | SlotsBounded
    | NodeMeasured
    | NetworkChosen
    | SitesChosen
    | NodesHeard
    | PolicyChosen
    | PeriodChosen
    | DeciderChosen
    | Advised
    | DeciderFailed
    | DeciderBack
    | Incident
    | ClockStepped
    | Woke
)
