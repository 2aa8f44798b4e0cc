"""What a user submits: a job of one of four forms, with its terms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import field, replace
from enum import Enum, IntEnum
from typing import Any, Final, TypeAlias

from headway.model.instant import NEVER, SECOND, Duration, Instant, to_seconds
from headway.model.value import value

JobId = int
"""The number of an accepted job, unique for ever. The last tie between jobs is broken by it."""

TaskKey = tuple[JobId, int]
"""A task: the number of its job, and its own."""

ESTIMATE_DEFAULT: Final[Duration] = 600 * SECOND
"""The assumed run time of a task without an estimate."""

COUNT_MAX: Final = 2**31 - 1
"""How many tasks a job may have, and how many retries a task."""

WIDTH_MAX: Final = 2**24
"""How many slots a job may need at once: more than any machine has, and as many as a client can wait for."""

SIZE_RANGE: Final = (1e-18, 1e18)
"""The size of a task, in whatever unit, and a workload may be at most this: sums and shares of them stay finite."""

PENALTY_MAX: Final = 1e290
"""No job, and no window of a service, costs more: so sums of penalties stay finite."""

NAME_MAX: Final = 1000
"""How long the name of a job, and of its user, may be, in characters."""

FEATURES_MAX: Final = 64
"""So many numbers describe a job at most."""

BYTES_MAX: Final = 2**62
"""More memory than any node has, and more than any task sends; no limit may be higher."""

VARIABLE_NAME: Final = "the name of a variable, not empty, without spaces, `=` and zero bytes"
"""What may be the name of a variable that a task gets, in words."""

_NOT_IN_NAMES: Final = re.compile(r"[\s=\0]")

_TIME: Final = f"less than {NEVER // SECOND} seconds"


def is_variable_name(name: str) -> bool:
    """Whether a task can get a variable of this name.

    >>> is_variable_name("OMP_NUM_THREADS"), is_variable_name("A B"), is_variable_name("")
    (True, False, False)
    """
    return name != "" and _NOT_IN_NAMES.search(name) is None


class Kind(IntEnum):
    """How the tasks of a job belong together."""

    BAG = 0
    """Independent tasks, each on one slot (Lin14, Chang16, Kim12)."""

    RIGID = 1
    """One task that needs `width` slots at once, all or none (MEASY14)."""

    WORKFLOW = 2
    """Tasks with precedence, each of which needs a number of cores of one node (DN13)."""

    SERVICE = 3
    """Instances that answer requests, each on one slot, until the service is cancelled (Chang16)."""


BATCH: Final = frozenset((Kind.BAG, Kind.RIGID, Kind.WORKFLOW))
"""The kinds of jobs that end by themselves: those that most of Headway's own policies serve."""


class PenaltyShape(Enum):
    """How the penalty of a late job grows with its tardiness x, in seconds (DN13)."""

    LINEAR = "linear"
    SQUARE_ROOT = "sqrt"
    SQUARE = "square"

    def of(self, tardiness_seconds: float) -> float:
        """The penalty at rate 1 of a job that is this late; 0 when it is not late."""
        late = max(0.0, tardiness_seconds)
        if self is PenaltyShape.SQUARE_ROOT:
            return math.sqrt(late)
        return late * late if self is PenaltyShape.SQUARE else late


SHAPES: Final = tuple(PenaltyShape)
"""The shapes in order. Columns of many jobs have the place of a shape here."""


def cost_of(rate: float, shape: PenaltyShape, late: Duration) -> float:
    """The penalty of being late by so much: the rate times the shape of the tardiness, at most `PENALTY_MAX`.

    >>> cost_of(3.0, PenaltyShape.SQUARE, 2 * SECOND), cost_of(1e300, PenaltyShape.SQUARE, NEVER)
    (12.0, 1e+290)
    """
    return min(rate * shape.of(to_seconds(late)), PENALTY_MAX)


@value
class TaskSpec:
    """One task of a workflow.

    Attributes:
        estimate: expected run time on a node of speed factor 1.
        cores: cores of one node that it uses while it runs, >= 1.
        after: numbers of the tasks of the same job that must have succeeded before it may start; each smaller than
            its own number, so that a workflow is acyclic by construction.
        sends: bytes that each of `after` sends to it, in the same order; empty: none of them sends any.
        retries: how often it is tried again after a failure that it caused itself, >= 0; None: as its job says.
        assumed: whether `estimate` is the client's default, because none was given.
    """

    estimate: Duration
    cores: int = 1
    after: tuple[int, ...] = ()
    sends: tuple[int, ...] = ()
    retries: int | None = None
    assumed: bool = False


class _AnyJob:
    """A job of any form. Decoders choose the form by `kind`."""

    __slots__ = ()


@value
class JobSpec(_AnyJob):
    """The terms that jobs of all forms have; its form (`Bag`, `Rigid`, `Workflow`, `Service`) adds what it consists of.

    Attributes:
        id: unique for ever.
        release: earliest start.
        estimate: expected run time of a task on a node of speed factor 1; None if unknown.
        due: wanted completion; None for a job without one. It may lie before `release`.
        priority: higher is more important.
        rate: penalty per unit of the penalty shape, >= 0.
        shape: how the penalty grows with tardiness.
        user: who submitted it.
        name: for people.
        workload: amount of work of the whole job in the user's own unit; None: tasks times estimate.
        retries: how often a task is tried again after a failure that it caused itself, >= 0. A task lost with its node
            or killed by the scheduler is always redone, and not counted here.
        time_limit: a task that runs longer is ended by its engine; None: no limit.
        memory_limit: bytes of memory of a task's process; None: no limit.
        profile: expected run time of a task (of mean size) by class of nodes, see `NodeSpec.node_class`; for other
            classes `estimate` and the node's speed are used.
        preemptible: whether its running tasks may be killed to make room for another job.
        fetches: whether its tasks first wait for input that is fetched: until they start, their slots are occupied.
        cpu: the share of a processor that its processes would use if they had one for themselves, 0 to 1, if known:
            one value for all of them, or one for each process of a rigid job; empty: unknown.
        movable: whether its tasks save their work when they are asked to move to other slots. Those that have
            saved a checkpoint can be moved in any case.
        leased: whether it is cancelled when its client has been silent for a while, because no one else can fetch its
            results. The driver does that, not the core.
        after: ids of earlier jobs, smaller than its own, that must have succeeded before it may start: it is released
            with the last of them, or at `release` if that is later. If one ends otherwise, it ends as cancelled. Jobs
            that are not in the system when it is submitted count as succeeded; this was checked before it was accepted.
        retry_of: the job whose failed tasks it runs again; None: of none. It changes nothing.
        numbers: of such a job the number that each of its tasks has for its work (`{i}`, HEADWAY_TASK), as in the job
            before; empty: its own.
        features: numbers that describe it, by name, from which history tells how long it runs, such as the size of a
            mesh; in order of their names. They change nothing else.
        kind: which form it has; it cannot be chosen.
    """

    id: JobId
    release: Instant = 0
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
    profile: tuple[tuple[str, Duration], ...] = ()
    preemptible: bool = True
    fetches: bool = False
    cpu: tuple[float, ...] = ()
    movable: bool = False
    leased: bool = False
    after: tuple[JobId, ...] = ()
    retry_of: JobId | None = None
    numbers: tuple[int, ...] = ()
    features: tuple[tuple[str, float], ...] = ()
    kind: Kind = field(default=Kind.BAG, init=False)

    def penalty_of(self, late: Duration) -> float:
        """What it costs to be late by so much (Chang16, equation 1)."""
        return cost_of(self.rate, self.shape, late)

    def said(self, task: int) -> Duration | None:  # of a workflow each task has its own
        """What its terms say of the run time of a task; None: nothing."""
        return self.estimate

    @property
    def tasks(self) -> int:
        """How many tasks it has, >= 1."""
        return 1

    @property
    def width(self) -> int:
        """How many slots its one task needs at once, >= 1; 1 unless it is rigid."""
        return 1

    @property
    def rigid(self) -> bool:
        """Whether it is one task that needs all its slots at once, or none."""
        return False

    @property
    def endless(self) -> bool:
        """Whether its tasks never end by themselves."""
        return False

    def retries_of(self, task: int) -> int:
        """How often a task is tried again after a failure that it caused itself, >= 0."""
        return self.retries


@value
class Bag(JobSpec):
    """Independent tasks, each on one slot (Lin14, Chang16, Kim12).

    Attributes:
        tasks: how many, >= 1.
        sizes: the work of each task in the user's own unit, each > 0; empty: all alike.
    """

    tasks: int = 1
    sizes: tuple[float, ...] = ()
    kind: Kind = field(default=Kind.BAG, init=False)


@value
class Rigid(JobSpec):
    """One task that needs several slots at once, all or none (MEASY14).

    Attributes:
        width: how many, >= 1.
    """

    width: int = 1
    kind: Kind = field(default=Kind.RIGID, init=False)

    @property
    def rigid(self) -> bool:
        """It is."""
        return True


@value
class Workflow(JobSpec):
    """Tasks with precedence, each of which needs a number of cores of one node (DN13).

    Attributes:
        graph: the tasks in order of their numbers, at least one. Outside, in requests and files, it is called `plan`.
    """

    graph: tuple[TaskSpec, ...] = ()
    kind: Kind = field(default=Kind.WORKFLOW, init=False)

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return len(self.graph)

    def said(self, task: int) -> Duration | None:
        """What its terms say of the run time of a task; None: nothing, and a client has put in the default."""
        own = self.graph[task]
        return None if own.assumed else own.estimate

    def retries_of(self, task: int) -> int:
        """How often a task is tried again: as it says, or else its job."""
        own = self.graph[task].retries
        return self.retries if own is None else own


@value
class Service(JobSpec):
    """Instances that answer requests, each on one slot, until the service is cancelled (Chang16).

    An instance is a task that never ends by itself. The core knows nothing of requests, only of `Window`s of them.
    Answers that are late cost `rate` times the shape of what the share of those in time lacks of `fraction`.

    Attributes:
        most: how many instances there may be at once, >= 1.
        least: how many it is to have at least, 0 to `most`.
        threshold: an answer later than this is late.
        fraction: which share of the answers of a window are to be in time, above 0 and at most 1.
        window: how long a window is, at least `threshold`. An instance that fails sooner after its start counts
            against `retries`.
    """

    most: int = 1
    least: int = 0
    threshold: Duration = SECOND
    fraction: float = 0.9
    window: Duration = 20 * SECOND
    kind: Kind = field(default=Kind.SERVICE, init=False)

    @property
    def endless(self) -> bool:
        """It is."""
        return True

    @property
    def tasks(self) -> int:
        """How many instances there may be at once."""
        return self.most

    def penalty(self, share: float) -> float:
        """What a window costs with this share of answers in time (Chang16, equation 2)."""
        return min(self.rate * self.shape.of(self.fraction - share), PENALTY_MAX)


def changed(
    job: JobSpec,
    rate: float | None = None,
    shape: PenaltyShape | None = None,
    threshold: Duration | None = None,
    fraction: float | None = None,
    least: int | None = None,
) -> JobSpec:
    """A job with other terms, as far as its form has them; None keeps a term as it is.

    >>> changed(Bag(7, tasks=3), rate=2.0, least=1) == Bag(7, tasks=3, rate=2.0)
    True
    """
    of_service = {"threshold": threshold, "fraction": fraction, "least": least} if isinstance(job, Service) else {}
    terms: dict[str, Any] = {"rate": rate, "shape": shape, **of_service}
    return replace(job, **{name: term for name, term in terms.items() if term is not None})


FORMS: Final[dict[Kind, type[JobSpec]]] = {
    Kind.BAG: Bag,
    Kind.RIGID: Rigid,
    Kind.WORKFLOW: Workflow,
    Kind.SERVICE: Service,
}
"""The class of each kind."""

AnyJob: TypeAlias = JobSpec
"""A job of any form, as decoders are asked for it."""

# Decoders take a data class for the form itself, and ask about a class that is none. So this is what they see.
globals()["AnyJob"] = _AnyJob


Flaw = tuple[str, object, str]
"""A term that is wrong, what is given, and what is allowed."""

_Check = tuple[bool, str, object, str]


def flaw_of_form(kind: Kind, tasks: int, width: int, graph: int, sizes: int) -> Flaw | None:
    """What is wrong with what a job of this kind consists of, where it is told by the terms of all forms.

    Args:
        graph: how many tasks of a workflow are described.
        sizes: how many tasks have a size.
    """
    return _first_wrong(
        (
            (1 <= tasks <= COUNT_MAX, "tasks", tasks, f"1 to {COUNT_MAX}"),
            (1 <= width <= WIDTH_MAX, "width", width, f"1 to {WIDTH_MAX}"),
            (kind is not Kind.RIGID or tasks == 1, "tasks", tasks, "1 for a rigid job"),
            (kind is Kind.RIGID or width == 1, "width", width, "1 unless the job is rigid"),
            (
                graph == (tasks if kind is Kind.WORKFLOW else 0),
                "plan",
                graph,
                "one entry a task of a workflow, none for the other kinds",
            ),
            (not sizes or (kind is Kind.BAG and sizes == tasks), "sizes", sizes, "one a task of a bag, or none"),
        )
    )


def flaw(job: JobSpec) -> str | None:
    """What is wrong with a job's terms, as `field is value; allowed: ...`, times in seconds; None when nothing is."""
    graph = job.graph if isinstance(job, Workflow) else ()
    sizes = job.sizes if isinstance(job, Bag) else ()
    checks: tuple[_Check, ...] = (
        (len(job.name) <= NAME_MAX, "name", f"{len(job.name)} characters", f"at most {NAME_MAX}"),
        (len(job.user) <= NAME_MAX, "user", f"{len(job.user)} characters", f"at most {NAME_MAX}"),
        (0 <= job.release < NEVER, "release", to_seconds(job.release), f"0 or later, {_TIME}"),
        (
            job.estimate is None or 0 <= job.estimate < NEVER,
            "estimate",
            _seconds(job.estimate),
            f"0 or more, {_TIME}, or none",
        ),
        (job.due is None or -NEVER < job.due < NEVER, "due", _seconds(job.due), f"{_TIME} from zero, or none"),
        (math.isfinite(job.priority), "priority", job.priority, "a finite number"),
        (math.isfinite(job.rate) and job.rate >= 0, "rate", job.rate, "a finite number, 0 or more"),
        (
            job.workload is None or 0 <= job.workload <= SIZE_RANGE[1],
            "workload",
            job.workload,
            f"0 to {SIZE_RANGE[1]:g}, or none",
        ),
        (0 <= job.retries <= COUNT_MAX, "retries", job.retries, f"0 to {COUNT_MAX}"),
        (
            job.time_limit is None or 0 < job.time_limit < NEVER,
            "time_limit",
            _seconds(job.time_limit),
            f"more than 0, {_TIME}, or none",
        ),
        (
            job.memory_limit is None or 0 < job.memory_limit < BYTES_MAX,
            "memory_limit",
            job.memory_limit,
            f"more than 0, less than {BYTES_MAX}, or none",
        ),
        (len(job.numbers) in (0, job.tasks), "numbers", len(job.numbers), "one a task, or none"),
        (len(job.features) <= FEATURES_MAX, "features", f"{len(job.features)} of them", f"at most {FEATURES_MAX}"),
    )
    of_service = _flaw_of_service(job) if isinstance(job, Service) else None
    wrong = of_service or flaw_of_form(job.kind, job.tasks, job.width, len(graph), len(sizes)) or _first_wrong(checks)
    if wrong is not None:
        term, given, allowed = wrong
        return f"{term} is {given!r}; allowed: {allowed}"
    for number, size in enumerate(sizes):
        if not SIZE_RANGE[0] <= size <= SIZE_RANGE[1]:
            return f"sizes[{number}] is {size!r}; allowed: " + "{:g} to {:g}".format(*SIZE_RANGE)
    if len(job.cpu) not in (0, 1, job.width):
        return f"cpu has {len(job.cpu)} values; allowed: none, one for all, or one a process ({job.width})"
    for number, use in enumerate(job.cpu):
        if not 0 <= use <= 1:
            return f"cpu[{number}] is {use!r}; allowed: 0 to 1, a share of a processor"
    for node_class, time in job.profile:
        if not 0 <= time < NEVER:
            return f"profile[{node_class}] is {to_seconds(time)!r}; allowed: 0 or more, {_TIME}"
    for feature, amount in job.features:
        if not 0 < len(feature) <= NAME_MAX:
            return f"features has a name of {len(feature)} characters; allowed: 1 to {NAME_MAX}"
        if not math.isfinite(amount):
            return f"features[{feature}] is {amount!r}; allowed: a finite number"
    for place, number in enumerate(job.numbers):
        if not 0 <= number < COUNT_MAX:
            return f"numbers[{place}] is {number!r}; allowed: numbers of tasks, 0 or more"
    for before_it in job.after:
        if not 0 <= before_it < job.id:
            return f"after holds {before_it!r}; allowed: ids of jobs that were submitted before"
    for number, task in enumerate(graph):
        if task.cores < 1:
            return f"plan[{number}].cores is {task.cores!r}; allowed: 1 or more"
        if not 0 <= task.estimate < NEVER:
            return f"plan[{number}].estimate is {to_seconds(task.estimate)!r}; allowed: 0 or more, {_TIME}"
        for before in task.after:
            if not 0 <= before < number:
                return f"plan[{number}].after holds {before!r}; allowed: numbers of earlier tasks"
        if task.retries is not None and not 0 <= task.retries <= COUNT_MAX:
            return f"plan[{number}].retries is {task.retries!r}; allowed: 0 to {COUNT_MAX}, or none"
        if len(task.sends) not in (0, len(task.after)):
            return f"plan[{number}].sends has {len(task.sends)} values; allowed: one for each of after, or none"
        for sent in task.sends:
            if not 0 <= sent <= BYTES_MAX:
                return f"plan[{number}].sends holds {sent!r}; allowed: bytes, 0 to {BYTES_MAX}"
    return None


def _flaw_of_service(job: Service) -> Flaw | None:
    return _first_wrong(
        (
            (1 <= job.most <= COUNT_MAX, "most", job.most, f"1 to {COUNT_MAX}"),
            (0 <= job.least <= job.most, "least", job.least, f"0 to {job.most}, its most instances"),
            (0 < job.threshold < NEVER, "threshold", to_seconds(job.threshold), f"more than 0, {_TIME}"),
            (0 < job.fraction <= 1, "fraction", job.fraction, "more than 0, at most 1"),
            (0 < job.window < NEVER, "window", to_seconds(job.window), f"more than 0, {_TIME}"),
            (
                job.window >= job.threshold,
                "window",
                to_seconds(job.window),
                f"{to_seconds(job.threshold):g} seconds or more, the threshold",
            ),
            (job.estimate is None, "estimate", _seconds(job.estimate), "none: a service runs until it is cancelled"),
            (job.due is None, "due", _seconds(job.due), "none: a service runs until it is cancelled"),
            (not job.profile, "profile", job.profile, "none for a service"),
            (job.workload is None, "workload", job.workload, "none for a service"),
        )
    )


def _first_wrong(checks: Iterable[_Check]) -> Flaw | None:
    return next(((term, given, allowed) for right, term, given, allowed in checks if not right), None)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else to_seconds(microseconds)
