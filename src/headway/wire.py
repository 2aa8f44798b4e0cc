"""What goes over HTTP: every body as a type, every route as a value. Client and server are built from this alone.

Bodies are MessagePack (`application/msgpack`), or JSON where a caller sends or asks for `application/json`; bytes are
base64 in JSON. Instants are integer microseconds since the Unix epoch, durations integer microseconds. Every route but
`HEALTH` demands `Authorization: Bearer TOKEN`. An answer of status 400 or above is an `ErrorBody`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal

import msgspec

from headway.errors import InvalidInput
from headway.model.actions import JobStatus
from headway.model.events import Outcome
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, JobSpec, Kind, PenaltyShape, TaskSpec
from headway.model.node import NodeSpec

API: Final = "/v1"
MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of a job, a task or a message, as a caller names it: what the journal can look for."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Anything a caller sends: unknown fields are refused."""


class Answer(msgspec.Struct, frozen=True):
    """Anything that comes back: a caller reads past fields that it does not know."""


class Calls(Request, frozen=True, tag="calls"):
    """Python functions to be called, one call a task; of a rigid job one a slot, by rank, or one for all its slots.

    Attributes:
        functions: names (`blob_name`) of the blobs that hold the functions, made by cloudpickle.
        args: per call, `(args, kwargs)` made by cloudpickle.
        chosen: per call, which of `functions` it is; empty: always the first.
        inputs, outputs: URLs that the arguments name, as `headway.Input` and `headway.Output`, each once.
    """

    functions: tuple[str, ...]
    args: tuple[bytes, ...]
    chosen: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class Command(Request, frozen=True):
    """A program to be run. In `argv`, paths and URLs `{i}` stands for the task's number, of a rigid job for the rank.

    Attributes:
        argv: program and arguments; no shell is involved.
        cwd: folder it runs in; empty: the one the server was started in, or, where it has inputs or outputs, a folder
            of the attempt's own (which HEADWAY_SCRATCH names in any case).
        env: variables added to the node's environment.
        stdin, stdout, stderr: paths of files; empty: nothing to read, output kept (its last part) with the result.
        inputs: files that are fetched before it starts: the URL of each by its path within the attempt's folder.
        outputs: files of the attempt's folder that are put somewhere when it has succeeded: URLs by path.
    """

    argv: tuple[str, ...]
    cwd: str = ""
    env: dict[str, str] = {}
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}


class Commands(Request, frozen=True, tag="commands"):
    """Programs to be run: one for every task alike, or one each; of a rigid job one for every slot, or one each."""

    commands: tuple[Command, ...]


Work = Calls | Commands


class NewJob(Request, frozen=True):
    """A job to be accepted: the terms of `headway.model.job.JobSpec` and the work of its tasks.

    `release` None means at once; `user` empty means the owner of the token; `profile` has run times by class of nodes.
    """

    work: Work
    kind: Literal["bag", "rigid", "workflow"] = "bag"
    tasks: int = 1
    width: int = 1
    release: Instant | None = None
    estimate: Duration | None = None
    due: Instant | None = None
    priority: float = 0.0
    rate: float = 1.0
    shape: PenaltyShape = PenaltyShape.LINEAR
    user: str = ""
    name: str = ""
    workload: float | None = None
    retries: int = 0
    time_limit: Duration | None = None
    memory_limit: int | None = None
    plan: tuple[TaskSpec, ...] = ()
    sizes: tuple[float, ...] = ()
    profile: dict[str, Duration] = {}
    preemptible: bool = True

    def spec(self, job: JobId, now: Instant, user: str) -> JobSpec:
        """The job as the core is told of it."""
        return JobSpec(
            id=job,
            kind=Kind[self.kind.upper()],
            release=now if self.release is None else self.release,
            tasks=self.tasks,
            width=self.width,
            estimate=self.estimate,
            due=self.due,
            priority=self.priority,
            rate=self.rate,
            shape=self.shape,
            user=self.user or user,
            name=self.name,
            workload=self.workload,
            retries=self.retries,
            time_limit=self.time_limit,
            memory_limit=self.memory_limit,
            plan=self.plan,
            sizes=self.sizes,
            profile=tuple(sorted(self.profile.items())),
            preemptible=self.preemptible,
            fetches=bool(urls_of(self.work)[0]),
        )


class Submission(Request, frozen=True):
    """Jobs to be accepted all together or not at all.

    Attributes:
        key: idempotency key; a submission with a key that this caller used before is not accepted again but answered
            as the first time. Empty: none.
        client: who wants the messages about these jobs, a text of the caller's choice; see `MESSAGES`.
        blobs: functions by `blob_name`; those that the server has may be left out (it says so if it has not).
    """

    jobs: tuple[NewJob, ...]
    key: str = ""
    client: str = ""
    blobs: dict[str, bytes] = {}


class Submitted(Answer, frozen=True):
    """The ids of the accepted jobs, in order; messages about them have numbers greater than `cursor`."""

    jobs: tuple[JobId, ...]
    cursor: int
    repeated: bool = False


class JobReport(Answer, frozen=True):
    """A job and how far it is.

    Attributes:
        done: tasks with a final outcome; `failed` of them without success.
        running: attempts that run.
        started, ended: the first launch and the end; None where that has not come.
    """

    id: JobId
    name: str
    user: str
    kind: str
    status: JobStatus
    tasks: int
    width: int
    done: int
    failed: int
    running: int
    priority: float
    rate: float
    shape: PenaltyShape
    estimate: Duration | None
    submitted: Instant
    release: Instant
    due: Instant | None
    started: Instant | None
    ended: Instant | None


class AttemptReport(Answer, frozen=True):
    """An attempt that runs: on which slots, as `NODE/SLOT` with slots counted from 0 on each node.

    `expected_end` is None where nobody gave an estimate and none of the job's tasks has ended yet.
    """

    job: JobId
    task: int
    attempt: int
    slots: tuple[str, ...]
    started: Instant
    expected_end: Instant | None


class RunTimes(Answer, frozen=True):
    """How long a job's tasks ran on one class of nodes.

    Attributes:
        tasks: how many have ended there.
        mean, spread: recency-weighted; what the user said of the class, if that was anything, counts as one of them.
    """

    node_class: str
    tasks: int
    mean: Duration
    spread: Duration


class JobDetail(Answer, frozen=True):
    """A job with what runs of it, what it holds, the start it is promised, and how its tasks fared.

    Attributes:
        times: of a bag; by class of nodes.
        lost: slot time of attempts that are redone because they were killed or lost, less what checkpoints keep.
        kills: how many were killed for other jobs.
    """

    job: JobReport
    attempts: tuple[AttemptReport, ...]
    slots: tuple[str, ...]
    promise: Instant | None
    times: tuple[RunTimes, ...] = ()
    lost: Duration = 0
    kills: int = 0


class JobList(Answer, frozen=True):
    """Jobs in order of their ids; `more` says whether the limit cut the list."""

    jobs: tuple[JobReport, ...]
    more: bool = False


class JobChange(Request, frozen=True):
    """New terms of a job; None leaves a term as it is."""

    priority: float | None = None
    due: Instant | None = None


class JobsNamed(Request, frozen=True):
    """Some jobs by their ids."""

    jobs: tuple[Number, ...]


class Explanation(Answer, frozen=True):
    """Why a job waits: the reason's name and its words, and the expected start where the policy promises one.

    Attributes:
        by: who says so: the text of the policy, or the URL of the decider; empty where it needs neither.
        note: why it is the policy that says so, where a decider should.
    """

    job: JobId
    status: JobStatus
    reason: str
    text: str
    start: Instant | None
    by: str = ""
    note: str = ""


class NewNode(Request, frozen=True):
    """A node to be taken into service: the terms of `headway.model.node.NodeSpec`."""

    name: str
    slots: int = 1
    speed: float = 1.0
    cores: int | None = None
    site: str = "local"
    lease: Duration | None = None
    kind: str = ""

    def spec(self, read_ahead: int) -> NodeSpec:
        """The node as the core is told of it."""
        return NodeSpec(read_ahead=read_ahead, **msgspec.structs.asdict(self))


class NodeSize(Request, frozen=True):
    """How many slots a node shall have. Those beyond go when they are idle, or at once with what runs there."""

    slots: int
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
    every: Duration | None = None


class IncidentReport(Answer, frozen=True):
    """Something an operator should know of; `number` is that of its event in the journal.

    Attributes:
        kind: a word such as `collector_failed` or `node_lost`.
        subject: what it is about: a node, a collector, a job, a URL.
    """

    number: int
    at: Instant
    kind: str
    subject: str
    detail: str


class Incidents(Answer, frozen=True):
    """The latest incidents, in order; `more` says whether the limit left earlier ones out."""

    incidents: tuple[IncidentReport, ...]
    more: bool = False


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


class PolicyChoice(Request, frozen=True):
    """What shall decide from now on.

    Attributes:
        policy: empty: the one that does.
        decider: None: as it is; empty: none.
        period: None: as it is; 0: none.
    """

    policy: str = ""
    decider: str | None = None
    period: Annotated[int, msgspec.Meta(ge=0, lt=NEVER)] | None = None


class TaskEnding(Answer, frozen=True, omit_defaults=True):
    """How an attempt, or one member of a gang, ended.

    Attributes:
        value: what a function returned, or the exception it raised, pickled; None for a command, and where there is
            none or it cannot be pickled.
        detail: for people: the traceback where there is one, else a line such as `exit status 3`.
        exit_code: negative for a signal; None where no process ended of itself.
        stdout, stderr: the last part of what it wrote.
        stdout_path, stderr_path: files on the server's machine that have all of it, where that is more.
        seconds, cpu_seconds: from start to end, and of processor time.
        outputs: where each output was put: its URL, by its path for a program, by the URL it was asked for otherwise.
    """

    outcome: Outcome
    value: bytes | None = None
    detail: str = ""
    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_path: str = ""
    stderr_path: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    outputs: dict[str, str] = {}


class TaskResult(Answer, frozen=True, omit_defaults=True):
    """What came of a task, kept once.

    Attributes:
        ending: of a rigid job on several slots: SUCCEEDED without a value if all members succeeded, else the ending
            of the first that did not.
        members: of such a job: the ending of each member, by rank.
    """

    job: JobId
    task: int
    attempt: int
    ending: TaskEnding
    members: tuple[TaskEnding, ...] = ()


class TaskRange(Request, frozen=True):
    """Tasks of a job from number `first` on, up to but without `last`; None: to its end."""

    job: Number
    first: Number = 0
    last: Number | None = None


class ResultsWanted(Request, frozen=True):
    """Results of many tasks at once."""

    wanted: tuple[TaskRange, ...]


class Results(Answer, frozen=True):
    """Results that exist, in the order asked for; `more`: the answer was cut at its size limit, ask for the rest."""

    results: tuple[TaskResult, ...]
    more: bool = False


class Acknowledgement(Request, frozen=True):
    """A client has the results of these tasks, and they need not be kept for it any longer.

    Attributes:
        client: the text with which their jobs were submitted.
    """

    client: str
    results: tuple[TaskRange, ...]


class Upload(Answer, frozen=True):
    """A file that the server keeps; `name` is the SHA-256 of its bytes, in hexadecimal."""

    name: str
    size: int


class Message(Answer, frozen=True, omit_defaults=True):
    """A task has its final outcome (`task`, `outcome`), or nothing more will happen to a job (`status`).

    Attributes:
        number: messages are numbered in order, for ever.
        result: the task's result, where the caller asked for results and it is small.
    """

    number: int
    job: JobId
    task: int | None = None
    outcome: Outcome | None = None
    status: JobStatus | None = None
    result: TaskResult | None = None


class Messages(Answer, frozen=True):
    """Messages in order; ask again with `cursor` and nothing is missed and nothing comes twice."""

    messages: tuple[Message, ...]
    cursor: int


class Statistics(Answer, frozen=True):
    """How the server fares.

    Attributes:
        version, pid, started: of the server process.
        policy: what decides.
        jobs: jobs in the system; `waiting` tasks ready to start and `running` attempts of them.
        slots, free, busy: slots that are up; of them allocated to nobody; of them running an attempt.
        rounds: calls of the policy; `refusals` of parts of its plans, by rule; `ignored` late answers.
        commits: transactions since the server started.
        recorded: number of the journal's last event.
        full: what the disk said when it last refused to take more; empty while it takes all.
        listeners: callers that wait for messages.
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


class Health(Answer, frozen=True):
    """The server answers."""

    version: str


class Done(Answer, frozen=True):
    """What was asked for is durable; `changed` says how many jobs it concerned."""

    changed: int


class ErrorBody(Answer, frozen=True):
    """What is wrong and what to do next; `missing` names blobs that a submission has to bring."""

    error: str
    hint: str = ""
    missing: tuple[str, ...] = ()


class Route(msgspec.Struct, frozen=True):
    """One thing that can be asked for.

    Attributes:
        name: what it is called in `/openapi.json`.
        path: with `{job}` where a job's id stands, `{node}` a node's name, `{upload}` where the name of an upload does.
        query: parameters of the query string: name, type, what it means; those of a list may come many times.
        body, answer: types of what is sent and of what comes back; `bytes`: a file as it is (`OCTETS`).
    """

    name: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: Any
    body: Any = None
    query: tuple[tuple[str, Any, str], ...] = ()
    summary: str = ""


SUBMIT: Final = Route("submit", "POST", f"{API}/jobs", Submitted, Submission, summary="Submit jobs, all or none.")
JOBS: Final = Route(
    "jobs",
    "GET",
    f"{API}/jobs",
    JobList,
    query=(
        ("status", str, "only jobs of this status; `open`: those that are not ended"),
        ("user", str, "only jobs of this user"),
        ("after", Number, "only jobs with greater ids"),
        ("limit", int, "at most so many; default 1000"),
    ),
    summary="List jobs.",
)
JOB: Final = Route("job", "GET", f"{API}/jobs/{{job}}", JobDetail, summary="One job.")
CHANGE: Final = Route("change", "PATCH", f"{API}/jobs/{{job}}", Done, JobChange, summary="Change a job's terms.")
CANCEL: Final = Route("cancel", "POST", f"{API}/cancel", Done, JobsNamed, summary="Cancel jobs.")
EXPLAIN: Final = Route("explain", "GET", f"{API}/jobs/{{job}}/explain", Explanation, summary="Why a job waits.")
RESULTS: Final = Route("results", "POST", f"{API}/results", Results, ResultsWanted, summary="Fetch results.")
CLEAR: Final = Route(
    "clear", "POST", f"{API}/clear", Done, JobsNamed, summary="Let go of the results of ended jobs for good."
)
ACKNOWLEDGE: Final = Route(
    "acknowledge", "POST", f"{API}/acknowledge", Done, Acknowledgement, summary="Say that results have been received."
)
UPLOAD: Final = Route(
    "upload", "PUT", f"{API}/uploads/{{upload}}", Upload, bytes, summary="Have the server keep a file for tasks."
)
UPLOADED: Final = Route(
    "uploaded", "GET", f"{API}/uploads/{{upload}}", Upload, summary="Whether the server keeps a file."
)
DOWNLOAD: Final = Route(
    "download", "GET", f"{API}/uploads/{{upload}}/content", bytes, summary="Get a file that the server keeps."
)
MESSAGES: Final = Route(
    "messages",
    "GET",
    f"{API}/messages",
    Messages,
    query=(
        ("after", Number, "cursor: only messages with greater numbers; default 0"),
        ("client", str, "messages about the jobs that were submitted with this client text"),
        ("job", list[Number], "messages about this job; may be given many times, instead of `client`"),
        ("wait", float, "seconds to wait for a message if there is none, 0 to 60; default 0"),
        ("limit", int, "at most so many; default 1000"),
        ("results", int, "results up to so many bytes come with the messages; default 0: none do"),
    ),
    summary="Wait for messages (long poll).",
)
NODES: Final = Route("nodes", "GET", f"{API}/nodes", NodeList, summary="The nodes and what runs on them.")
ADD_NODE: Final = Route("add_node", "POST", f"{API}/nodes", NodeChange, NewNode, summary="Take a node into service.")
DRAIN_NODE: Final = Route(
    *("drain_node", "POST", f"{API}/nodes/{{node}}/drain", NodeChange),
    summary="Let a node start nothing more; it leaves when what runs there has ended.",
)
REMOVE_NODE: Final = Route(
    *("remove_node", "DELETE", f"{API}/nodes/{{node}}", NodeChange),
    summary="End a node at once; what runs there is redone elsewhere.",
)
RESIZE_NODE: Final = Route(
    *("resize_node", "PATCH", f"{API}/nodes/{{node}}", NodeChange, NodeSize),
    summary="Give a node more or fewer slots.",
)
POLICY: Final = Route("policy", "GET", f"{API}/policy", PolicyText, summary="What decides.")
CHOOSE: Final = Route("choose", "PUT", f"{API}/policy", PolicyText, PolicyChoice, summary="Change what decides.")
METRICS: Final = Route(
    "metrics",
    "GET",
    f"{API}/metrics",
    Metrics,
    query=(
        ("node", str, "only of this node"),
        ("metric", str, "only this one, as `COLLECTOR.NAME`"),
        ("since", Number, "those found at this instant or later; default: each as it was found last"),
        ("limit", int, "about so many: what was found at one instant comes together; default 1000"),
    ),
    summary="What collectors measured on nodes.",
)
CHECKER: Final = Route("checker", "GET", f"{API}/checker", CheckerReport, summary="The status checker.")
SET_CHECKER: Final = Route(
    "set_checker",
    "PATCH",
    f"{API}/checker",
    CheckerReport,
    CheckerChange,
    summary="Switch the status checker on or off, or change its period.",
)
INCIDENTS: Final = Route(
    "incidents",
    "GET",
    f"{API}/incidents",
    Incidents,
    query=(
        ("after", Number, "only those with greater numbers; default 0"),
        ("limit", int, "the latest so many; default 1000"),
    ),
    summary="What an operator should know of.",
)
STATISTICS: Final = Route("statistics", "GET", f"{API}/statistics", Statistics, summary="How the server fares.")
SHUTDOWN: Final = Route("shutdown", "POST", f"{API}/shutdown", Done, summary="End the server in order.")
HEALTH: Final = Route("health", "GET", "/health", Health, summary="Whether the server answers; needs no token.")
OPENAPI: Final = Route("openapi", "GET", "/openapi.json", Any, summary="This interface, described.")

ROUTES: Final = (
    *(SUBMIT, JOBS, JOB, CHANGE, CANCEL, EXPLAIN, RESULTS, CLEAR, MESSAGES),
    *(ACKNOWLEDGE, UPLOAD, UPLOADED, DOWNLOAD),
    *(NODES, ADD_NODE, DRAIN_NODE, REMOVE_NODE, RESIZE_NODE, POLICY, CHOOSE),
    *(METRICS, CHECKER, SET_CHECKER, INCIDENTS, STATISTICS, SHUTDOWN, HEALTH, OPENAPI),
)

encode = msgspec.msgpack.Encoder().encode


def blob_name(blob: bytes) -> str:
    """The name of a blob: the SHA-256 of its bytes, in hexadecimal."""
    return hashlib.sha256(blob).hexdigest()


def urls_of(work: Work) -> tuple[Collection[str], Collection[str]]:
    """URLs that work names: of inputs, of outputs. Those of commands may have `{i}` in them."""
    if isinstance(work, Calls):
        return work.inputs, work.outputs
    inputs = {url for command in work.commands for url in command.inputs.values()}
    return inputs, {url for command in work.commands for url in command.outputs.values()}


def check_work(job: NewJob, *, field: str = "work") -> None:
    """See that there is work for each task of a job, or for each slot of a rigid one.

    Raises:
        InvalidInput: too few or too many calls or commands, an empty command, an unknown function.
    """
    work = job.work
    rigid = job.kind == "rigid"
    each, count = ("slot", job.width) if rigid else ("task", job.tasks)
    if isinstance(work, Commands):
        if len(work.commands) not in (1, count):
            raise InvalidInput(f"{field}.commands", len(work.commands), f"one, or one a {each} ({count})")
        for number, command in enumerate(work.commands):
            if not command.argv or not command.argv[0]:
                raise InvalidInput(f"{field}.commands[{number}].argv", command.argv, "a program and its arguments")
            for name, paths in (("inputs", command.inputs), ("outputs", command.outputs)):
                for path in paths:
                    if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
                        allowed = "a path within the attempt's folder, such as data/one.csv"
                        raise InvalidInput(f"{field}.commands[{number}].{name}", path, allowed)
        return
    if len(work.args) != count and not (rigid and len(work.args) == 1):
        raise InvalidInput(f"{field}.args", len(work.args), f"one a {each} ({count})")
    if not work.functions:
        raise InvalidInput(f"{field}.functions", work.functions, "at least one name of a blob")
    if work.chosen and len(work.chosen) != len(work.args):
        raise InvalidInput(f"{field}.chosen", len(work.chosen), f"none, or one a call ({len(work.args)})")
    for number in work.chosen:
        if not 0 <= number < len(work.functions):
            raise InvalidInput(f"{field}.chosen", number, f"0 to {len(work.functions) - 1}")
