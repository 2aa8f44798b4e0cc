"""Every route as a value."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from headway.model.actions import JobStatus
from headway.wire.access import Audit, MadeToken, Myself, NewToken, TokenList
from headway.wire.base import (
    ANSWER_MAX,
    API,
    JOBS_MAX,
    LONGEST_SECONDS,
    WAIT_MAX,
    Done,
    Health,
    Limit,
    Number,
    Probability,
    Route,
)
from headway.wire.jobs import (
    Advice,
    Costs,
    Explanation,
    JobChange,
    JobDetail,
    JobList,
    JobsNamed,
    Retried,
    Retry,
    TaskList,
    TasksNamed,
)
from headway.wire.operation import (
    CheckerChange,
    CheckerReport,
    EnergyReport,
    Incidents,
    Metrics,
    NewNode,
    NodeChange,
    NodeList,
    NodeSize,
    PolicyChoice,
    PolicyText,
    Requests,
    Statistics,
)
from headway.wire.renting import RentingReport, SiteList
from headway.wire.results import Acknowledgement, Messages, Results, ResultsWanted, Upload
from headway.wire.roles import ADMINISTERS, ANYBODY, LOOK, OPERATES, OWN, SUBMITS
from headway.wire.services import ServiceList, ServiceReport
from headway.wire.work import AdviceWanted, Submission, Submitted

Status = Annotated[str, Meta(extra_json_schema={"enum": ["open", *(known.value for known in JobStatus)]})]
"""Of jobs, as one may ask for them."""

Moment = Annotated[float, Meta(ge=0, lt=LONGEST_SECONDS)]
"""An instant that has passed."""

Hand = Annotated[str, Meta(extra_json_schema={"enum": ["hand"]})]
Stream = Annotated[str, Meta(extra_json_schema={"enum": ["stdout", "stderr"]})]

SUBMIT: Final = Route(
    "submit", "POST", f"{API}/jobs", Submitted, Submission, summary="Submit jobs, all or none.", right=SUBMITS
)
JOBS: Final = Route(
    "jobs",
    "GET",
    f"{API}/jobs",
    JobList,
    query=(
        ("status", Status, "only jobs of this status; `open`: those that are not ended"),
        ("user", str, "only jobs of this user"),
        ("after", Number, "only jobs with greater ids"),
        ("limit", Limit, "at most so many; default 1000"),
    ),
    summary="List jobs.",
    right=LOOK,
)
JOB: Final = Route("job", "GET", f"{API}/jobs/{{job}}", JobDetail, summary="One job.", right=LOOK)
TASKS: Final = Route(
    "tasks",
    "GET",
    f"{API}/jobs/{{job}}/tasks",
    TaskList,
    query=(
        ("first", Number, "only from this task on; default 0"),
        ("limit", Limit, "at most so many; default 1000"),
    ),
    summary="The tasks of a job: how far each is, and what it waits for.",
    right=LOOK,
)
CHANGE: Final = Route(
    "change", "PATCH", f"{API}/jobs/{{job}}", Done, JobChange, summary="Change a job's terms.", right=OWN
)
CANCEL: Final = Route("cancel", "POST", f"{API}/cancel", Done, JobsNamed, summary="Cancel jobs.", right=OWN)
CANCEL_TASKS: Final = Route(
    "cancel_tasks",
    "POST",
    f"{API}/jobs/{{job}}/cancel",
    Done,
    TasksNamed,
    summary="Cancel tasks of a job.",
    right=OWN,
)
RETRY: Final = Route(
    "retry",
    "POST",
    f"{API}/jobs/{{job}}/retry",
    Retried,
    Retry,
    summary="Run the failed tasks of an ended job again, as a new job.",
    right=OWN,
)
EXPLAIN: Final = Route(
    "explain",
    "GET",
    f"{API}/jobs/{{job}}/explain",
    Explanation,
    query=(
        (
            "wait",
            Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": WAIT_MAX})],
            "seconds to wait for a forecast, 0 to 60; default 10, or 0.3 while the last one is at most 15 s old",
        ),
    ),
    summary="Why a job waits.",
    right=LOOK,
)
ADVISE: Final = Route(
    "advise",
    "POST",
    f"{API}/advice",
    Advice,
    AdviceWanted,
    summary="Which due date would be kept if a job were submitted now.",
    right=SUBMITS,
)
ADVISE_OPEN: Final = Route(
    "advise_open",
    "GET",
    f"{API}/jobs/{{job}}/advice",
    Advice,
    query=(("sure", Probability, "with which probability it is to be kept; default 0.9"),),
    summary="Which due date of an open job can be kept.",
    right=LOOK,
)
OUTPUT: Final = Route(
    "output",
    "GET",
    f"{API}/jobs/{{job}}/output",
    bytes,
    query=(
        ("task", Number, "of this task; default 0"),
        ("stream", Stream, "default stdout"),
        ("rank", Number, "of this member of a rigid job on several slots; default: of the task"),
        ("attempt", Number, "only of this attempt; default: of the one that settled the task, or runs"),
        ("offset", Number, "from this byte on; default 0"),
        ("limit", Number, "at most so many bytes; default: to the end"),
    ),
    summary="All that a task wrote.",
    right=OWN,
)
RESULTS: Final = Route("results", "POST", f"{API}/results", Results, ResultsWanted, summary="Fetch results.", right=OWN)
CLEAR: Final = Route(
    "clear",
    "POST",
    f"{API}/clear",
    Done,
    JobsNamed,
    summary="Let go of the results of ended jobs for good.",
    right=OWN,
)
ACKNOWLEDGE: Final = Route(
    "acknowledge",
    "POST",
    f"{API}/acknowledge",
    Done,
    Acknowledgement,
    summary="Say that results have been received.",
    right=OWN,
)
UPLOAD: Final = Route(
    "upload",
    "PUT",
    f"{API}/uploads/{{upload}}",
    Upload,
    bytes,
    summary="Have the server keep a file for tasks.",
    right=SUBMITS,
)
UPLOADED: Final = Route(
    "uploaded",
    "GET",
    f"{API}/uploads/{{upload}}",
    Upload,
    summary="Whether the server keeps a file.",
    right=SUBMITS,
)
DOWNLOAD: Final = Route(
    "download",
    "GET",
    f"{API}/uploads/{{upload}}/content",
    bytes,
    summary="Get a file that the server keeps.",
    right=SUBMITS,
)
MESSAGES: Final = Route(
    "messages",
    "GET",
    f"{API}/messages",
    Messages,
    query=(
        ("after", Number, "cursor: only messages with greater numbers; default 0"),
        ("client", str, "messages about the jobs that were submitted with this client text"),
        (
            "job",
            Annotated[list[Number], Meta(extra_json_schema={"maxItems": JOBS_MAX})],
            "messages about this job; may be given many times, instead of `client`",
        ),
        (
            "wait",
            Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": WAIT_MAX})],
            "seconds to wait for a message if there is none, 0 to 60; default 0",
        ),
        ("limit", Limit, "at most so many; default 1000"),
        (
            "results",
            Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": ANSWER_MAX})],
            "results up to so many bytes come with the messages; default 0: none do",
        ),
    ),
    summary="Wait for messages (long poll).",
    right=LOOK,
)
NODES: Final = Route("nodes", "GET", f"{API}/nodes", NodeList, summary="The nodes and what runs on them.", right=LOOK)
ADD_NODE: Final = Route(
    "add_node", "POST", f"{API}/nodes", NodeChange, NewNode, summary="Take a node into service.", right=OPERATES
)
DRAIN_NODE: Final = Route(
    *("drain_node", "POST", f"{API}/nodes/{{node}}/drain", NodeChange),
    summary="Let a node start nothing more; it leaves when what runs there has ended.",
    right=OPERATES,
)
REMOVE_NODE: Final = Route(
    *("remove_node", "DELETE", f"{API}/nodes/{{node}}", NodeChange),
    summary="End a node at once; what runs there is redone elsewhere.",
    right=OPERATES,
)
RESIZE_NODE: Final = Route(
    *("resize_node", "PATCH", f"{API}/nodes/{{node}}", NodeChange, NodeSize),
    summary="Give a node more or fewer slots.",
    right=OPERATES,
)
_BY_HAND: Final = (
    (
        "by",
        Hand,
        "it has been switched already: what is under way there is given up, and no command is run",
    ),
)
SWITCH_NODE_OFF: Final = Route(
    *("switch_node_off", "POST", f"{API}/nodes/{{node}}/off", NodeChange),
    query=_BY_HAND,
    summary="Let a node go off when nothing runs there, and stay off.",
    right=OPERATES,
)
SWITCH_NODE_ON: Final = Route(
    *("switch_node_on", "POST", f"{API}/nodes/{{node}}/on", NodeChange),
    query=_BY_HAND,
    summary="Let a node come on that is off.",
    right=OPERATES,
)
POLICY: Final = Route("policy", "GET", f"{API}/policy", PolicyText, summary="What decides.", right=LOOK)
CHOOSE: Final = Route(
    "choose", "PUT", f"{API}/policy", PolicyText, PolicyChoice, summary="Change what decides.", right=OPERATES
)
METRICS: Final = Route(
    "metrics",
    "GET",
    f"{API}/metrics",
    Metrics,
    query=(
        ("node", str, "only of this node"),
        ("metric", str, "only this one, as `COLLECTOR.NAME`"),
        ("since", Moment, "those found at this instant or later; default: each as it was found last"),
        ("limit", Limit, "about so many: what was found at one instant comes together; default 1000"),
    ),
    summary="What collectors measured on nodes.",
    right=LOOK,
)
CHECKER: Final = Route("checker", "GET", f"{API}/checker", CheckerReport, summary="The status checker.", right=LOOK)
SET_CHECKER: Final = Route(
    "set_checker",
    "PATCH",
    f"{API}/checker",
    CheckerReport,
    CheckerChange,
    summary="Switch the status checker on or off, or change its period.",
    right=OPERATES,
)
INCIDENTS: Final = Route(
    "incidents",
    "GET",
    f"{API}/incidents",
    Incidents,
    query=(
        ("after", Number, "only those with greater numbers; default 0"),
        ("limit", Limit, "the latest so many; default 1000"),
    ),
    summary="What an operator should know of.",
    right=LOOK,
)
ENERGY: Final = Route(
    "energy",
    "GET",
    f"{API}/energy",
    EnergyReport,
    query=(
        ("since", Moment, "from this instant on; default: since the server started"),
        ("until", Moment, "until this instant; default: now"),
    ),
    summary="What the nodes took, by node, site, user and job; and what the processors' counters say.",
    right=LOOK,
)
SITES: Final = Route(
    "sites", "GET", f"{API}/sites", SiteList, summary="The sites, what runs tasks there, and their nodes.", right=LOOK
)
RENTALS: Final = Route(
    "rentals",
    "GET",
    f"{API}/rentals",
    RentingReport,
    summary="What can be rented, which machines are, for whom, and what they cost.",
    right=LOOK,
)
PENALTIES: Final = Route(
    "penalties",
    "GET",
    f"{API}/penalties",
    Costs,
    summary="What late jobs and services cost, so far and expected, by user and service.",
    right=LOOK,
)
REQUESTS: Final = Route(
    "requests",
    "GET",
    f"{API}/requests",
    Requests,
    query=(
        ("after", Number, "only those with greater numbers; default 0"),
        ("limit", Limit, "the latest so many; default 1000"),
    ),
    summary="Who asked for what.",
    right=OPERATES,
)
AUDIT: Final = Route(
    "audit",
    "GET",
    f"{API}/audit",
    Audit,
    query=(
        ("user", str, "only what this user did; empty: callers without a valid token"),
        ("since", Moment, "only at this instant or later"),
        ("limit", Limit, "the latest so many; default 1000"),
    ),
    summary="Who did what, and who was refused what.",
    right=OPERATES,
)
TOKENS: Final = Route("tokens", "GET", f"{API}/tokens", TokenList, summary="The tokens of users.", right=ADMINISTERS)
CREATE_TOKEN: Final = Route(
    "create_token",
    "POST",
    f"{API}/tokens",
    MadeToken,
    NewToken,
    summary="Make a token for a user. To repeat it makes another.",
    right=ADMINISTERS,
)
REVOKE_TOKEN: Final = Route(
    "revoke_token",
    "DELETE",
    f"{API}/tokens/{{token}}",
    Done,
    summary="Revoke a token; what is under way with it ends at once.",
    right=ADMINISTERS,
)
MYSELF: Final = Route("myself", "GET", f"{API}/myself", Myself, summary="Whose token this is.", right=LOOK)
SERVICES: Final = Route(
    "services", "GET", f"{API}/services", ServiceList, summary="The services, and how they do.", right=LOOK
)
SERVICE: Final = Route(
    "service", "GET", f"{API}/services/{{service}}", ServiceReport, summary="One service.", right=LOOK
)
REQUEST: Final = Route(
    *("request", "POST", f"{API}/services/{{service}}/requests", bytes, bytes),
    summary="Ask a service. Body and answer are of any media type; the handler gets that of the body.",
    right=SUBMITS,
)
STATISTICS: Final = Route(
    "statistics", "GET", f"{API}/statistics", Statistics, summary="How the server fares.", right=LOOK
)
PROMETHEUS: Final = Route(
    "prometheus", "GET", "/metrics", str, summary="How the server fares, for Prometheus.", right=LOOK
)
SHUTDOWN: Final = Route(
    "shutdown", "POST", f"{API}/shutdown", Done, summary="End the server in order.", right=ADMINISTERS
)
HEALTH: Final = Route(
    "health", "GET", "/health", Health, summary="Whether the server answers; needs no token.", right=ANYBODY
)
OPENAPI: Final = Route("openapi", "GET", "/openapi.json", Any, summary="This interface, described.", right=LOOK)
ROUTES: Final = (
    *(SUBMIT, JOBS, JOB, TASKS, CHANGE, CANCEL, CANCEL_TASKS, RETRY, EXPLAIN, ADVISE, ADVISE_OPEN, OUTPUT),
    *(RESULTS, CLEAR, MESSAGES),
    *(ACKNOWLEDGE, UPLOAD, UPLOADED, DOWNLOAD),
    *(NODES, ADD_NODE, DRAIN_NODE, REMOVE_NODE, RESIZE_NODE, SWITCH_NODE_OFF, SWITCH_NODE_ON, POLICY, CHOOSE),
    *(SERVICES, SERVICE, REQUEST),
    *(
        METRICS,
        CHECKER,
        SET_CHECKER,
        INCIDENTS,
        REQUESTS,
        ENERGY,
        PENALTIES,
        SITES,
        RENTALS,
        AUDIT,
        TOKENS,
        CREATE_TOKEN,
        REVOKE_TOKEN,
        MYSELF,
        STATISTICS,
        PROMETHEUS,
        SHUTDOWN,
        HEALTH,
        OPENAPI,
    ),
)
