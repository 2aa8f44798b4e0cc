"""What goes over HTTP: every body as a type, every route as a value. Client and server are built from this alone.

Bodies are MessagePack (`application/msgpack`), or JSON where a caller sends or asks for `application/json`; bytes are
base64 in JSON. Instants are integer microseconds since the Unix epoch, durations integer microseconds. Every route but
`HEALTH` demands `Authorization: Bearer TOKEN`. An answer of status 400 or above is an `ErrorBody`.
"""

# ruff: noqa: F401  # what its modules hold is asked for here

from __future__ import annotations

from headway.wire.base import (
    API,
    JSON,
    MSGPACK,
    OCTETS,
    Answer,
    Done,
    ErrorBody,
    Health,
    Number,
    Request,
    Route,
    encode,
)
from headway.wire.jobs import (
    AttemptReport,
    Explanation,
    JobChange,
    JobDetail,
    JobList,
    JobReport,
    JobsNamed,
    RunTimes,
    TasksNamed,
)
from headway.wire.operation import (
    CheckerChange,
    CheckerReport,
    CollectorReport,
    IncidentReport,
    Incidents,
    Metric,
    Metrics,
    NewNode,
    NodeChange,
    NodeList,
    NodeReport,
    NodeSize,
    PolicyChoice,
    PolicyText,
    RequestReport,
    Requests,
    Statistics,
)
from headway.wire.results import (
    Acknowledgement,
    Message,
    Messages,
    Results,
    ResultsWanted,
    TaskEnding,
    TaskRange,
    TaskResult,
    Upload,
)
from headway.wire.routes import (
    ACKNOWLEDGE,
    ADD_NODE,
    CANCEL,
    CANCEL_TASKS,
    CHANGE,
    CHECKER,
    CHOOSE,
    CLEAR,
    DOWNLOAD,
    DRAIN_NODE,
    EXPLAIN,
    HEALTH,
    INCIDENTS,
    JOB,
    JOBS,
    MESSAGES,
    METRICS,
    NODES,
    OPENAPI,
    OUTPUT,
    POLICY,
    REMOVE_NODE,
    REQUESTS,
    RESIZE_NODE,
    RESULTS,
    ROUTES,
    SET_CHECKER,
    SHUTDOWN,
    STATISTICS,
    SUBMIT,
    UPLOAD,
    UPLOADED,
)
from headway.wire.work import (
    Calls,
    Command,
    Commands,
    NewJob,
    Submission,
    Submitted,
    Work,
    blob_name,
    check_work,
    urls_of,
)
