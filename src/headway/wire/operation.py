"""What operators read and change: nodes, what decides, the status checker, how the server fares."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.wire.base import Answer, Cores, NodeName, NodeText, Request, Span, Speed
from headway.wire.jobs import AttemptReport


class NewNode(Request, frozen=True):
    """A node to be taken into service: the terms of `headway.model.node.NodeSpec`."""

    name: NodeName
    slots: Cores = 1
    speed: Speed = 1.0
    cores: Cores | None = None
    site: NodeText = "local"
    lease: Span | None = None
    kind: NodeText = ""

    def spec(self, read_ahead: int) -> NodeSpec:
        """The node as the core is told of it."""
        return NodeSpec(read_ahead=read_ahead, **msgspec.structs.asdict(self))


class NodeSize(Request, frozen=True):
    """How many slots a node shall have. Those beyond go when they are idle, or at once with what runs there."""

    slots: Cores
    at_once: bool = False


class NodeChange(Answer, frozen=True):
    """What a change of a node meant.

    Attributes:
        changed: False: it was so already.
        redone: tasks that ran there and were ended; they start again elsewhere.
        unfit: jobs that wait and need more slots at once, or larger nodes, than there are now.
    """

    node: str
    changed: bool
    redone: int = 0
    unfit: tuple[JobId, ...] = ()


class NodeReport(Answer, frozen=True):
    """A node; `slots` has the status of each of its slots: available, occupied, busy or down.

    Attributes:
        closing: slots that it shall not have any more and that are still busy.
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


class NodeList(Answer, frozen=True):
    """The nodes in order of joining."""

    nodes: tuple[NodeReport, ...]


class PolicyText(Answer, frozen=True):
    """What decides.

    Attributes:
        policy: as `NAME[:key=value,...]`; it stands in for the decider where there is one.
        decider: the URL where plans come from; empty: from the policy.
        decider_failed: whether the policy stands in for it now.
        period: a round is held at least this often while there are jobs; None: only when something happens.
    """

    policy: str
    decider: str = ""
    decider_failed: bool = False
    period: Duration | None = None


Period = Annotated[
    int,
    msgspec.Meta(ge=0, lt=NEVER, extra_json_schema={"anyOf": [{"const": 0}, {"type": "integer", "minimum": 100_000}]}),
]


class PolicyChoice(Request, frozen=True):
    """What shall decide from now on.

    Attributes:
        policy: empty: the one that does.
        decider: None: as it is; empty: none.
        period: None: as it is; 0: none.
    """

    policy: str = ""
    decider: str | None = None
    period: Period | None = None


class Metric(Answer, frozen=True):
    """What a collector measured on a node; `metric` is `COLLECTOR.NAME`."""

    at: Instant
    node: str
    metric: str
    value: float


class Metrics(Answer, frozen=True):
    """Metrics in order of instant, node and name; `more`: there are some that were found after the last of these."""

    metrics: tuple[Metric, ...]
    more: bool = False


class CollectorReport(Answer, frozen=True):
    """A collector and how it fares.

    Attributes:
        status: `works`; `fails`, and is asked again later; `hangs`, and is asked again when it has come back.
        answered: when it last answered; None: not since the server started.
        detail: what is wrong; empty where nothing is.
    """

    name: str
    status: Literal["works", "fails", "hangs"]
    answered: Instant | None
    detail: str = ""


class CheckerReport(Answer, frozen=True):
    """Whether the status checker runs, its period, and its collectors by name."""

    on: bool
    every: Duration
    collectors: tuple[CollectorReport, ...]


class CheckerChange(Request, frozen=True):
    """New settings of the status checker; None leaves one as it is."""

    on: bool | None = None
    every: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 100_000, "maximum": 86_400_000_000})] | None = None


class IncidentReport(Answer, frozen=True):
    """Something an operator should know of; `number` is that of its event in the journal.

    Attributes:
        kind: a word such as `collector_failed` or `node_lost`.
        subject: what it is about: a node, a collector, a job, a URL.
        by: the caller who asked for what led to it; empty: nobody did.
    """

    number: int
    at: Instant
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
    at: Instant
    by: str
    kind: str
    subject: str
    detail: str


class Requests(Answer, frozen=True):
    """The latest requests, in order; `more` says whether the limit left earlier ones out."""

    requests: tuple[RequestReport, ...]
    more: bool = False


class Statistics(Answer, frozen=True):
    """How the server fares.

    Attributes:
        version, pid, started: of the server process.
        policy: what decides.
        jobs: jobs in the system; `waiting` tasks ready to start and `running` attempts of them in the foreground.
        slots, free, busy: slots that are up; of them allocated to nobody; of them running an attempt.
        rounds: calls of the policy; `refusals` of parts of its plans, by rule; `ignored` late answers.
        commits: transactions since the server started.
        recorded: number of the journal's last event.
        full: what the disk said when it last refused to take more; empty while it takes all.
        listeners: callers that wait for messages.
        background: attempts that run in the background.
        short: why nothing new is taken on, or no upload, for want of room; empty while all is.
        free_bytes: of the disk of the data directory; new work may not use the last `reserve_bytes` of them.
        stored_bytes: of output and uploads that are kept; `stored_max` at most.
    """

    version: str
    pid: int
    started: Instant
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
