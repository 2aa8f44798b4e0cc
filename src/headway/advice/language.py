"""Questions to a decider and its answers as JSON. docs/reference/decider.md describes every field.

Slots are lists of numbers, claims and kinds are words, instants and durations are integer microseconds. Fields that are
left out have their defaults. A question with an unknown field is refused; in an answer, unknown fields are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, cast, get_args, get_type_hints

import msgspec

from headway.core.record import StateRecord, slots_in
from headway.errors import Contradiction, HeadwayError, NoAdvice, did_you_mean
from headway.model.instant import NEVER, Instant
from headway.model.job import FORMS, AnyJob, Bag, JobId, JobSpec, Kind, Service, TaskSpec, Workflow, flaw_of_form
from headway.model.plan import (
    AllocationRecord,
    ClaimWord,
    DealRecord,
    LendRecord,
    Plan,
    PlanRecord,
    Promise,
    Reason,
    Rent,
    Switch,
    TierWord,
    Waiting,
)
from headway.wire import Answer, Number, Request, Route
from headway.wire.reading import with_whole_numbers

When = Annotated[int, msgspec.Meta(ge=-NEVER, le=NEVER)]
"""An instant in JSON from outside."""

ReasonName = Literal[
    "NOT_RELEASED",
    "AFTER_JOBS",
    "NO_ROOM_NOW",
    "BEHIND_OTHERS",
    "WOULD_DELAY",
    "NEVER_FITS",
    "NO_SHARE",
    "NOT_CONSIDERED",
    "NOT_SERVED",
    "REFUSED",
    "NOT_NEEDED_YET",
    "SITE_BUSY",
    "SLOTS_KEPT",
    "BEHIND_PRIORITY",
    "TASKS_DEPEND",
    "SLOTS_BUSY",
    "STARTS_NOW",
    "RUNS",
    "RUNS_BEHIND",
    "RUNS_ALONE_NEXT",
    "NODES_COME_ON",
    "NODES_STUCK",
    "MACHINE_COMES",
    "NOT_TO_BE_RENTED",
    "USER_AT_BOUND",
]
"""The names of `headway.model.plan.Reason`."""


class _OfAJob(Request, frozen=True):
    id: JobId


class Question(Request, frozen=True):
    """A question: which plan for this snapshot?

    Attributes:
        snapshot: the state.
        policy: the policy to use, as `NAME[:key=value,...]`; empty: the decider's own choice.
        explain: whether the answer should give a reason for every waiting job.
    """

    snapshot: StateRecord
    policy: str = ""
    explain: bool = False


class AllocationText(Answer, frozen=True, omit_defaults=True):
    """Allocate exactly these slots to the job, or to this task of it; see `headway.model.plan.Allocation`."""

    job: Number
    slots: tuple[Number, ...]
    task: Number | None = None
    claim: ClaimWord = "free"
    tier: TierWord = "foreground"
    seats: tuple[Number, ...] = ()


class PromiseText(Answer, frozen=True, omit_defaults=True):
    """A future start on this many slots, reserved for a waiting job or task, of a workflow also on this node."""

    job: Number
    start: When
    slots: Number
    task: Number | None = None
    node: str = ""


class WaitingText(Answer, frozen=True, omit_defaults=True):
    """Why a job waits, and its expected start if there is one."""

    job: Number
    reason: ReasonName
    start: When | None = None


class LendText(Answer, frozen=True, omit_defaults=True):
    """Let a pool have these slots; only for a server whose policy is a top level, see `headway.model.plan.Lend`."""

    slots: tuple[Number, ...]
    pool: str
    claim: ClaimWord = "free"


class DealText(Answer, frozen=True, omit_defaults=True):
    """Let a pool have this job; only for a server whose policy is a top level, see `headway.model.plan.Deal`."""

    job: Number
    pool: str
    claim: ClaimWord = "free"


class SwitchText(Answer, frozen=True):
    """Let a node be on, or off; see `headway.model.plan.Switch`."""

    node: str
    on: bool


class RentText(Answer, frozen=True, omit_defaults=True):
    """Let a machine be rented; see `headway.model.plan.Rent`."""

    site: str
    type: str
    job: Number | None = None
    why: str = ""


class PlanText(Answer, frozen=True, omit_defaults=True):
    """A plan: a change of allocations. Jobs that it does not name keep what they have.

    Attributes:
        wake: when the decider wants to be asked again even if nothing happens.
        now: the instant of the snapshot that the plan is for; optional. A plan for another instant is rejected.
    """

    allocations: tuple[AllocationText, ...] = ()
    promises: tuple[PromiseText, ...] = ()
    waiting: tuple[WaitingText, ...] = ()
    wake: When | None = None
    now: When | None = None
    lends: tuple[LendText, ...] = ()
    deals: tuple[DealText, ...] = ()
    switches: tuple[SwitchText, ...] = ()
    rents: tuple[RentText, ...] = ()
    returns: tuple[Number, ...] = ()


class PolicyOffer(Answer, frozen=True):
    """An available policy: what it does, and its parameters with their defaults ("": required)."""

    policy: str
    summary: str
    parameters: dict[str, str | int | float | bool]


class Policies(Answer, frozen=True):
    """The policies of a decider; `default` is used if a question names none."""

    default: str
    policies: tuple[PolicyOffer, ...]


PLAN: Final = Route("plan", "POST", "/v1/plan", PlanText, Question, summary="The plan for a snapshot.")
POLICIES: Final = Route("policies", "GET", "/v1/policies", Policies, summary="The policies that can be asked for.")


_SHARED: Final = [known for known in dataclasses.fields(JobSpec) if known.init]
_shared: Final = attrgetter(*(known.name for known in _SHARED))
_KINDS: Final = [kind.name.lower() for kind in Kind]
_hints: Final = get_type_hints(JobSpec)
_of_service: Final = get_type_hints(Service)
_SERVICE: Final = [known for known in dataclasses.fields(Service) if known.init and known.name not in (*_hints, "most")]

JobTerms: Final[Any] = msgspec.defstruct(
    "JobSpec",
    [
        *((known.name, _hints[known.name], known.default) for known in _SHARED if known.name != "id"),
        ("kind", Literal["bag", "rigid", "workflow", "service"], _KINDS[0]),
        ("tasks", int, 1),
        ("width", int, 1),
        ("plan", tuple[TaskSpec, ...], ()),
        ("sizes", tuple[float, ...], ()),
        *((known.name, _of_service[known.name], known.default) for known in _SERVICE),
    ],
    bases=(_OfAJob,),
    frozen=True,
    module=__name__,
    namespace={"__doc__": JobSpec.__doc__},
)
"""What is told of a job: the terms that all have, its kind, and the terms of all forms."""


# Questions


def write_question(snapshot: StateRecord, *, policy: str = "", explain: bool = False) -> bytes:
    """A question as JSON; fields that have their defaults are left out."""
    body: dict[str, Any] = {"policy": policy, "snapshot": written(snapshot)}
    if explain:
        body["explain"] = True
    return msgspec.json.encode(body)


def written(value: Any) -> Any:
    """A record as plain values, with defaults left out. Jobs have the terms of all forms."""
    if isinstance(value, JobSpec):
        value = terms_of(value)
    form = _FORMS.get(type(value))
    if form is not None:
        names, defaults, parts = form
        return {
            name: part if type(part) in _PLAIN else written(part)
            for name, default, part in zip(names, defaults, parts(value), strict=True)
            if part is not default and part != default
        }
    if type(value) is tuple:
        is_plain = not value or (type(value[0]) not in _FIELDS and not isinstance(value[0], JobSpec))
        return value if is_plain else [written(part) for part in value]
    return value


def terms_of(job: JobSpec) -> Any:
    """What a decider is told of a job, as `JobTerms`."""
    graph = job.graph if isinstance(job, Workflow) else ()
    sizes = job.sizes if isinstance(job, Bag) else ()
    own = [getattr(job, known.name, known.default) for known in _SERVICE]
    return JobTerms(*_shared(job), _KINDS[job.kind], job.tasks, job.width, graph, sizes, *own)


def read_question(body: bytes) -> Question:
    """A question from JSON, with its types checked. `check_snapshot` checks whether its snapshot makes sense.

    Raises:
        Contradiction: a job has terms that jobs of its kind do not have.
        HeadwayError: it is not JSON, or a field is unknown or of the wrong type; the message names it.
    """
    try:
        plain = msgspec.json.decode(body)
        if isinstance(plain, dict) and isinstance(plain.get("snapshot"), dict):
            _tidy(plain["snapshot"], StateRecord, "snapshot")
        try:
            return msgspec.convert(plain, Question, dec_hook=_job)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
        return msgspec.convert(with_whole_numbers(plain), Question, dec_hook=_job)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HeadwayError(f"the question is not valid: {error}", "GET /openapi.json describes it.") from None


def _tidy(plain: Mapping[str, Any], kind: type, path: str) -> None:
    """Check that a record has no unknown fields, and replace what is told of jobs by jobs."""
    fields = {name: nested for name, nested, _ in _FIELDS[kind]}
    for name, value in plain.items():
        if name not in fields:
            hint = did_you_mean(name, fields) or f"Its fields are {', '.join(fields)}."
            raise HeadwayError(f"{path}.{name}: there is no such field", hint)
        nested = fields[name]
        if nested is JobTerms and isinstance(value, dict):
            _tidy(value, JobTerms, f"{path}.{name}")
            cast(dict[str, Any], plain)[name] = _job_of(value, f"{path}.{name}")
        elif nested in _FIELDS:
            for place, part in enumerate(value) if isinstance(value, list) else ():
                if isinstance(part, dict):
                    _tidy(part, nested, f"{path}.{name}[{place}]")
            if isinstance(value, dict):
                _tidy(value, nested, f"{path}.{name}")


def _job_of(plain: dict[str, Any], path: str) -> JobSpec:
    """A job from what is told of it; its fields are known."""
    kind = plain.get("kind", _KINDS[0])
    if kind not in _KINDS:
        raise HeadwayError(f"{path}.kind is {kind!r}; allowed: {', '.join(_KINDS)}")
    try:
        terms = msgspec.convert(with_whole_numbers(plain), JobTerms)
    except msgspec.ValidationError as error:
        raise HeadwayError(f"the question is not valid: {error}".replace("`$", f"`$.{path}")) from None
    form = Kind[kind.upper()]
    wrong = flaw_of_form(form, terms.tasks, terms.width, len(terms.plan), len(terms.sizes))
    if wrong is not None:
        term, given, allowed = wrong
        raise Contradiction(f"{path}.{term} is {given!r}; allowed: {allowed}")
    told: dict[Kind, dict[str, Any]] = {
        Kind.BAG: {"tasks": terms.tasks, "sizes": terms.sizes},
        Kind.RIGID: {"width": terms.width},
        Kind.WORKFLOW: {"graph": terms.plan},
        Kind.SERVICE: {"most": terms.tasks} | {known.name: getattr(terms, known.name) for known in _SERVICE},
    }
    return FORMS[form](*_shared(terms), **told[form])


def _job(kind: Any, found: Any) -> JobSpec:
    """The `dec_hook` for snapshots whose jobs `_tidy` has already made."""
    if not isinstance(found, JobSpec):
        raise ValueError(f"Expected `object`, got `{type(found).__name__}`")
    return found


def _fields_of(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """Each field of a record: its name, the record it is made of, if it is, and its default."""
    hints = get_type_hints(kind)
    found = []
    for name, default in _names_of(kind):
        hint = JobTerms if hints[name] is AnyJob else hints[name]
        nested = next((part for part in (hint, *get_args(hint)) if _is_record(part)), None)
        found.append((name, nested, default))
    return tuple(found)


def _names_of(kind: type) -> list[tuple[str, Any]]:
    if kind is JobTerms:
        return [(known.name, known.default) for known in msgspec.structs.fields(kind)]
    return [(known.name, known.default) for known in dataclasses.fields(kind)]


def _is_record(hint: Any) -> bool:
    return hint is JobTerms or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def _records() -> dict[type, tuple[tuple[str, Any, Any], ...]]:
    """The fields of every record that a snapshot is made of."""
    found: dict[type, tuple[tuple[str, Any, Any], ...]] = {}
    left: list[type] = [StateRecord]
    while left:
        kind = left.pop()
        if kind not in found:
            found[kind] = _fields_of(kind)
            left += [nested for _, nested, _ in found[kind] if nested is not None]
    return found


_FIELDS: Final = _records()

RECORDS: Final = frozenset(_FIELDS)
"""The records in a snapshot; other fields than theirs are refused."""

_FORMS: Final = {
    kind: (names := tuple(name for name, _, _ in known), tuple(default for _, _, default in known), attrgetter(*names))
    for kind, known in _FIELDS.items()
}
"""For every record the names of its fields, their defaults, and a function that gets all of them at once."""

_PLAIN: Final = frozenset((int, float, str, bool))


# Answers


def plan_text(plan: Plan, now: Instant | None = None) -> PlanText:
    """A plan as JSON, in answer to a snapshot of this instant."""
    record = PlanRecord.of(plan)
    return PlanText(
        tuple(
            AllocationText(wanted.job, wanted.slots, wanted.task, wanted.claim, wanted.tier, wanted.seats)
            for wanted in record.allocations
        ),
        tuple(PromiseText(kept.job, kept.start, kept.slots, kept.task, kept.node) for kept in record.promises),
        tuple(WaitingText(said.job, cast(ReasonName, said.reason.name), said.start) for said in record.waiting),
        record.wake,
        now,
        tuple(LendText(lend.slots, lend.pool, lend.claim) for lend in record.lends),
        tuple(DealText(deal.job, deal.pool, deal.claim) for deal in record.deals),
        tuple(SwitchText(switch.node, switch.on) for switch in record.switches),
        tuple(RentText(rent.site, rent.type, rent.job, rent.why) for rent in record.rents),
        record.returns,
    )


def read_plan(body: bytes, snapshot: StateRecord) -> PlanRecord:
    """A plan from JSON, in answer to a snapshot.

    Raises:
        NoAdvice: it is not JSON, a field is missing or has the wrong type or range, a slot does not exist, or it is for
            another instant.
    """
    try:
        text = _plan_text.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NoAdvice(f"its answer is no plan: {error}{_allowed(str(error))}") from None
    if text.now is not None and text.now != snapshot.now:
        raise NoAdvice(f"its answer is about the instant {text.now}, the question was about {snapshot.now}")
    plan = PlanRecord(
        tuple(
            AllocationRecord(wanted.job, wanted.slots, wanted.task, wanted.claim, wanted.tier, wanted.seats)
            for wanted in text.allocations
        ),
        tuple(Promise(kept.job, kept.start, kept.slots, kept.task, kept.node) for kept in text.promises),
        tuple(Waiting(said.job, Reason[said.reason], said.start) for said in text.waiting),
        text.wake,
        tuple(LendRecord(lend.slots, lend.pool, lend.claim) for lend in text.lends),
        tuple(DealRecord(deal.job, deal.pool, deal.claim) for deal in text.deals),
        tuple(Switch(switch.node, switch.on) for switch in text.switches),
        tuple(Rent(rent.site, rent.type, rent.job, rent.why) for rent in text.rents),
        text.returns,
    )
    wrong = plan.flaw(slots_in(snapshot))
    if wrong is not None:
        raise NoAdvice(f"its answer is no plan: {wrong}")
    return plan


def _allowed(error: str) -> str:
    """The allowed words, if the error is about a word that is not allowed."""
    words = _WORDS.get(error.rpartition(".")[2].rstrip("`"), ()) if error.startswith("Invalid enum value") else ()
    return f"; allowed: {', '.join(words)}" if words else ""


_WORDS: Final = {"claim": get_args(ClaimWord), "tier": get_args(TierWord), "reason": get_args(ReasonName)}
_plan_text: Final = msgspec.json.Decoder(PlanText)
