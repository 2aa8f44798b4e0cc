"""What operators read and change: nodes, policy and decider, the status checker, figures about the server."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.wire.base import (
    LONGEST_SECONDS,
    Answer,
    Cores,
    NodeName,
    NodeText,
    Request,
    Span,
    Speed,
    optional_microseconds,
)
from headway.wire.jobs import AttemptReport


class NewNode(Request, frozen=True):
    """A node to be added: the terms of `headway.model.node.NodeSpec`; or one that its engine is to find again.

    Attributes:
        slots: None: one; of a node that is to be found again, as many as it has.
        site: None: where a node of this name was found, and then drained or removed; else `local`.
    """

    name: NodeName
    slots: Cores | None = None
    speed: Speed = 1.0
    cores: Cores | None = None
    site: NodeText | None = None
    lease: Span | None = None
    kind: NodeText = ""

    def spec(self, read_ahead: int) -> NodeSpec:
        """The node as the core learns of it."""
        terms = msgspec.structs.asdict(self)
        terms |= {"slots": 1 if self.slots is None else self.slots, "site": "local" if self.site is None else self.site}
        terms["lease"] = optional_microseconds(self.lease, "lease")
        return NodeSpec(read_ahead=read_ahead, **terms)


class NodeSize(Request, frozen=True):
    """The new number of slots of a node. Surplus slots go when they are idle, or at once with what runs there."""

    slots: Cores
    at_once: bool = False


class NodeChange(Answer, frozen=True):
    """What a change of a node meant.

    Attributes:
        changed: False: nothing had to be changed.
        redone: tasks that ran there and were ended; they start again elsewhere.
        unfit: jobs that wait and need more slots at once, or larger nodes, than there are now.
        power: of a node that was to be switched, what it is now: on, going off, off, coming on or down; else empty.
        trouble: why it could not be switched before, if so.
        awaited: it is in service as soon as its engine finds it.
    """

    node: str
    changed: bool
    redone: int = 0
    unfit: tuple[JobId, ...] = ()
    power: str = ""
    trouble: str = ""
    awaited: bool = False


class NodeReport(Answer, frozen=True):
    """A node; `slots` has the status of each of its slots: available, occupied, busy or down.

    Attributes:
        closing: slots that it is to lose and that are still busy.
        cannot: what its engine cannot do there: tiers, moves, read_ahead, adopts, shares_files, spans.
        up: whether it is in service: it answers, and is not off, nor being switched off or on.
        power: whether it is on: on, going off, off or coming on.
        kept_off: whether an operator wants it off.
        trouble: why it could not be switched, if it was not since.
        failures: how often in a row it could not be switched.
        again: when that is tried again, in seconds since the Unix epoch; None: that is not to come.
        engine: what runs tasks there: local is the server's own machine.
        found: whether its engine finds it by itself.
        closed: whether its engine takes nothing new there for now.
    """

    name: str
    site: str
    speed: float
    cores: int | None
    up: bool
    draining: bool
    slots: tuple[str, ...]
    attempts: tuple[AttemptReport, ...]
    kind: str = ""
    closing: int = 0
    cannot: tuple[str, ...] = ()
    power: str = "on"
    kept_off: bool = False
    trouble: str = ""
    failures: int = 0
    again: float | None = None
    engine: str = "local"
    found: bool = False
    closed: bool = False


class NodeList(Answer, frozen=True):
    """The nodes in order of joining."""

    nodes: tuple[NodeReport, ...]


class EnergyOfJob(Answer, frozen=True):
    """What a job took, in joules."""

    job: JobId
    user: str
    joules: float


class EnergyByModel(Answer, frozen=True):
    """What the nodes took in a period, in joules, by what they draw idle and at their peak and by what ran.

    Attributes:
        since, until: the period, in seconds since the Unix epoch; it begins with the first node.
        joules: of all nodes; it is that of all users, or of all jobs, and what is of none.
        nodes, sites, users: by name.
        jobs: those that took most, at most a thousand.
        unknown: nodes that do not say what they draw; they count as 0.
        known_since: from when on the journal knows what happened; None: from its beginning.
        idle: by name of the node, what is of no job: for slots on which nothing ran, and while it was off or switched.
        idle_joules: of all nodes.
        other_jobs: of the jobs that are not among `jobs`.
    """

    since: float
    until: float
    joules: float
    nodes: dict[str, float]
    sites: dict[str, float]
    users: dict[str, float]
    jobs: tuple[EnergyOfJob, ...]
    unknown: tuple[str, ...] = ()
    known_since: float | None = None
    idle: dict[str, float] = msgspec.field(default_factory=dict)
    idle_joules: float = 0.0
    other_jobs: float = 0.0


class EnergyCounted(Answer, frozen=True):
    """What the counters of the server's own processors have counted, in joules.

    Attributes:
        since, until: the part of the period for which there are readings.
        joules: of all zones.
        zones: by the name of a processor or its memory.
    """

    since: float
    until: float
    joules: float
    zones: dict[str, float]


class EnergyReport(Answer, frozen=True):
    """What a period took.

    Attributes:
        model: by the model.
        counted: by the processors' counters; None: they say nothing, and `why_not` says why.
    """

    model: EnergyByModel
    counted: EnergyCounted | None = None
    why_not: str = ""


class PolicyText(Answer, frozen=True):
    """What makes the plans.

    Attributes:
        policy: as `NAME[:key=value,...]`; it runs if there is no decider or the decider fails.
        decider: the URL of the decider; empty: none.
        decider_failed: whether the policy runs now because the decider has failed.
        period: the policy runs at least this often while there are jobs; None: only when something happens.
    """

    policy: str
    decider: str = ""
    decider_failed: bool = False
    period: float | None = None


Period = Annotated[
    float,
    msgspec.Meta(
        ge=0,
        lt=LONGEST_SECONDS,
        extra_json_schema={"anyOf": [{"const": 0}, {"type": "number", "minimum": 0.1}]},
    ),
]


class PolicyChoice(Request, frozen=True):
    """A choice of policy, decider and period from now on.

    Attributes:
        policy: empty: no change.
        decider: None: no change; empty: none.
        period: None: no change; 0: none.
    """

    policy: str = ""
    decider: str | None = None
    period: Period | None = None


class Metric(Answer, frozen=True):
    """What a collector measured on a node; `metric` is `COLLECTOR.NAME`."""

    at: float
    node: str
    metric: str
    value: float


class Metrics(Answer, frozen=True):
    """Metrics in order of instant, node and name; `more`: there are some that were found after the last of these."""

    metrics: tuple[Metric, ...]
    more: bool = False


class CollectorReport(Answer, frozen=True):
    """A collector and its state.

    Attributes:
        status: `works`; `fails`, and is called again later; `hangs`, and is called again when it has come back.
        answered: when it last answered; None: not since the server started.
        detail: what is wrong; empty if nothing is.
    """

    name: str
    status: Literal["works", "fails", "hangs"]
    answered: float | None
    detail: str = ""


class CheckerReport(Answer, frozen=True):
    """Whether the status checker runs, its period, and its collectors by name."""

    on: bool
    every: float
    collectors: tuple[CollectorReport, ...]


class CheckerChange(Request, frozen=True):
    """New settings of the status checker; None leaves one as it is."""

    on: bool | None = None
    every: Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0.1, "maximum": 86_400})] | None = None


class IncidentReport(Answer, frozen=True):
    """Something an operator should know about; `number` is that of its event in the journal.

    Attributes:
        kind: a word such as `collector_failed` or `node_lost`.
        subject: what it is about: a node, a collector, a job, a URL.
        by: the caller whose request led to it; empty: it was not requested.
    """

    number: int
    at: float
    kind: str
    subject: str
    detail: str
    by: str = ""


class Incidents(Answer, frozen=True):
    """The latest incidents, in order; `more` says whether the limit left earlier ones out."""

    incidents: tuple[IncidentReport, ...]
    more: bool = False


class RequestReport(Answer, frozen=True):
    """What a caller asked for and got; `number` is that of its event in the journal.

    Attributes:
        by: the owner of the token that the request came with.
        kind: a word such as `job_submitted` or `policy_chosen`.
        subject: what it is about: a job, a node, what decides.
    """

    number: int
    at: float
    by: str
    kind: str
    subject: str
    detail: str


class Requests(Answer, frozen=True):
    """The latest requests, in order; `more` says whether the limit left earlier ones out."""

    requests: tuple[RequestReport, ...]
    more: bool = False


class SiteReport(Answer, frozen=True):
    """A site and its engine.

    Attributes:
        engine: what runs tasks there: local is the server's own machine.
        gone: why the engine can do nothing now; empty: it can.
    """

    name: str
    engine: str
    gone: str = ""


class SlotsOfUser(Answer, frozen=True):
    """How many slots the tasks of a user have, and may have at once."""

    used: int
    most: int


class Statistics(Answer, frozen=True):
    """Figures about the server.

    Attributes:
        version, pid, started: of the server process.
        policy: the current policy.
        jobs: jobs in the system; `waiting` tasks ready to start and `running` attempts of them in the foreground. Of
            these, `starting` have not begun: they fetch their inputs, or wait in the queue of their site.
        slots, free, busy: slots that are up; those not allocated; those that run an attempt.
        rounds: calls of the policy; `refusals` of parts of its plans, by rule; `ignored` late answers.
        commits: transactions since the server started.
        recorded: number of the journal's last event.
        full: the error of the disk when it last refused; empty while it accepts everything.
        listeners: callers that wait for messages.
        background: attempts that run in the background.
        short: why nothing new, or no upload, is accepted for lack of room; empty while everything is.
        free_bytes: of the disk of the data directory; new work may not use the last `reserve_bytes` of them.
        stored_bytes: of output and uploads that are kept; `stored_max` at most.
        sites: those that the server was told of; nodes of all others are on its own machine.
        users: those whose slots are bounded, by name.
    """

    version: str
    pid: int
    started: float
    policy: str
    jobs: int
    waiting: int
    running: int
    slots: int
    free: int
    busy: int
    rounds: int
    refusals: dict[str, int]
    ignored: int
    commits: int
    recorded: int
    full: str
    listeners: int
    background: int = 0
    short: str = ""
    free_bytes: int = 0
    reserve_bytes: int = 0
    stored_bytes: int = 0
    stored_max: int = 0
    sites: tuple[SiteReport, ...] = ()
    starting: int = 0
    users: dict[str, SlotsOfUser] = msgspec.field(default_factory=dict)
