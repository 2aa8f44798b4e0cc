"""What goes over HTTP is read as it was sent, in MessagePack and in JSON, and checked before it is used."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import wire
from headway.errors import InvalidInput
from headway.live.parts import WorkInParts
from headway.model.events import JobSubmitted
from headway.model.instant import SECOND
from headway.model.job import FORMS, AnyJob, Bag, JobSpec, PenaltyShape, Rigid, Service, TaskSpec, Workflow, flaw
from headway.wire.by_parts import ENCODED_AT_ONCE, by_parts
from headway.wire.reading import any_form, packed
from headway.wire.terms import SENT_AS, outward

COMMAND = wire.Command(("true",))
HANDLING = wire.Handling("module:function")

WHOLE = wire.NewJob(
    wire.Calls(("f", "g"), (b"\0", b"\xff"), (0, 1)),
    kind="workflow",
    tasks=2,
    release=1,
    estimate=2,
    due=3,
    priority=4.5,
    rate=0.5,
    shape=PenaltyShape.SQUARE,
    user="u",
    name="é",
    workload=6.0,
    retries=7,
    time_limit=8,
    memory_limit=9,
    plan=(wire.PlannedTask(1), wire.PlannedTask(2, 3, (0,), (70,))),
    profile={"old": 9, "new": 5},
    preemptible=False,
    cpu=(0.5,),
    movable=True,
    leased=True,
)


@pytest.mark.parametrize("codec", [msgspec.msgpack, msgspec.json])
@pytest.mark.parametrize(
    "body",
    [
        wire.Submission((WHOLE,), "key", "client", {"f": b"\0\1"}),
        wire.Submission((wire.NewJob(wire.Commands((COMMAND,))),)),
        wire.JobChange(due=5),
        wire.ResultsWanted((wire.TaskRange(1, 2, 3), wire.TaskRange(4))),
    ],
)
def test_a_body_is_read_as_it_was_sent(codec: Any, body: wire.Request) -> None:
    assert codec.decode(codec.encode(body), type=type(body)) == body


def test_a_request_with_an_unknown_field_is_refused_an_answer_is_not() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `prio`"):
        msgspec.json.decode(b'{"prio": 1}', type=wire.JobChange)
    assert msgspec.json.decode(b'{"version": "1", "new": 2}', type=wire.Health) == wire.Health("1")


def test_every_term_reaches_the_core() -> None:
    spec = WHOLE.spec(9, 1000, "owner")
    assert spec == Workflow(
        id=9,
        release=1 * SECOND,
        estimate=2 * SECOND,
        due=3 * SECOND,
        priority=4.5,
        rate=0.5,
        shape=PenaltyShape.SQUARE,
        user="u",
        name="é",
        workload=6.0,
        retries=7,
        time_limit=8 * SECOND,
        memory_limit=9,
        graph=(TaskSpec(1 * SECOND), TaskSpec(2 * SECOND, 3, (0,), (70,))),
        profile=(("new", 5 * SECOND), ("old", 9 * SECOND)),
        preemptible=False,
        cpu=(0.5,),
        movable=True,
        leased=True,
    )
    assert {known.name for known in fields(spec)} - {*outward(spec, wire.NewJob)} == {"id", "fetches", "kind", "graph"}
    assert wire.NewJob.of(spec, WHOLE.work, release=1) == WHOLE


def test_each_term_of_a_form_can_be_sent() -> None:
    told = {*wire.NewJob.__struct_fields__, *wire.ServiceTerms.__struct_fields__}
    terms = {SENT_AS.get(known.name, known.name) for form in FORMS.values() for known in fields(form)}
    assert terms - told == {"id", "fetches"}
    assert told - terms == {"work", "service", "replace"}


def in_order(known: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(known.items()))


times = st.integers(0, 10**15)  # microseconds that seconds can say exactly
shared = st.fixed_dictionaries(
    {},
    optional={
        "estimate": times,
        "due": times,
        "priority": st.floats(-9, 9),
        "rate": st.floats(0, 9),
        "shape": st.sampled_from(PenaltyShape),
        "user": st.text(max_size=9),
        "name": st.text(max_size=9),
        "workload": st.floats(0, 9),
        "retries": st.integers(0, 9),
        "time_limit": times,
        "memory_limit": st.integers(1, 9),
        "profile": st.dictionaries(st.text(max_size=3), times).map(in_order),
        "preemptible": st.booleans(),
        "cpu": st.tuples(st.floats(0, 1)),
        "movable": st.booleans(),
        "leased": st.booleans(),
        "retry_of": st.integers(1, 9),
        "features": st.dictionaries(st.text(min_size=1, max_size=3), st.floats(-9, 9)).map(
            lambda known: tuple(sorted(known.items()))
        ),
    },
)
planned = st.builds(TaskSpec, times, st.integers(1, 9), assumed=st.booleans(), retries=st.none() | st.integers(0, 9))
of_form = st.one_of(
    st.lists(st.floats(1, 9), min_size=1).map(lambda sizes: (Bag, {"tasks": len(sizes), "sizes": tuple(sizes)})),
    st.integers(1, 9).map(lambda width: (Rigid, {"width": width})),
    st.lists(planned, min_size=1).map(lambda graph: (Workflow, {"graph": tuple(graph)})),
    times.map(lambda window: (Service, {"most": 3, "least": 2, "window": window})),
)


@given(shared, of_form)
def test_a_job_is_told_in_a_request_and_read_again(
    terms: dict[str, Any], own: tuple[type[JobSpec], dict[str, Any]]
) -> None:
    form, of_its_own = own
    spec = form(7, **terms, **of_its_own)
    work = HANDLING if isinstance(spec, Service) else wire.Commands((COMMAND,))
    body = msgspec.json.encode(wire.NewJob.of(spec, work))
    assert msgspec.json.decode(body, type=wire.NewJob).spec(spec.id, spec.release, "") == spec


def test_every_form_gets_its_own_terms() -> None:
    work = wire.Commands((COMMAND,))
    sizes = wire.NewJob(work, tasks=2, sizes=(1.0, 2.0)).spec(1, 0, "")
    assert sizes == Bag(1, tasks=2, sizes=(1.0, 2.0))
    assert wire.NewJob(work, kind="rigid", width=3).spec(1, 0, "") == Rigid(1, width=3)
    with pytest.raises(InvalidInput, match="width is 3; allowed: 1 unless the job is rigid"):
        wire.NewJob(work, width=3).spec(1, 0, "")
    terms = wire.ServiceTerms(most=5, least=2, threshold=0.2, fraction=0.8, window=3.0)
    assert wire.NewJob(HANDLING, kind="service", service=terms).spec(1, 0, "") == Service(
        1, most=5, least=2, threshold=SECOND // 5, fraction=0.8, window=3 * SECOND
    )
    with pytest.raises(InvalidInput, match="service is None; allowed: the terms of a service"):
        wire.NewJob(HANDLING, kind="service").spec(1, 0, "")
    with pytest.raises(InvalidInput, match="allowed: the terms of a service, none for the other kinds"):
        wire.NewJob(work, service=terms).spec(1, 0, "")
    with pytest.raises(InvalidInput, match="tasks is 2; allowed: 1 for a service"):
        wire.NewJob(HANDLING, kind="service", tasks=2, service=terms).spec(1, 0, "")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"name": ""}, "name is ''; allowed: letters, digits"),
        ({"name": "a/b"}, "name is 'a/b'; allowed: letters"),
        ({"name": "x" * 101}, "allowed: letters, digits and . _ - in the name of a service, at most 100"),
        ({"service": wire.ServiceTerms(threshold=0.0)}, "service.threshold is 0.0; allowed: 0.001 to 86400"),
        ({"service": wire.ServiceTerms(window=0.01)}, "service.window is 0.01; allowed: 0.1 to 86400"),
        ({"service": None}, "work is 'handler'; allowed: a handler for a service, and only for one"),
        ({"work": wire.Commands((COMMAND,))}, "work is 'commands'; allowed: a handler for a service"),
        ({"work": wire.Handling()}, "work.handler is ''; allowed: a handler, a function or a command, one"),
        ({"work": wire.Handling("a:b", command=("c",))}, "a handler, a function or a command, one"),
        ({"work": wire.Handling("a")}, "work.handler is 'a'; allowed: module:function"),
        ({"work": wire.Handling(command=("",))}, "work.command"),
        ({"work": wire.Handling("a:b", env={"HEADWAY_JOB": "1"})}, "work.env is 'HEADWAY_JOB'"),
        ({"work": wire.Handling("a:b", limits=wire.RequestLimits(queue_max=0))}, "work.limits.queue_max is 0"),
        ({"work": wire.Handling("a:b", limits=wire.RequestLimits(time_limit=0.0))}, "work.limits.time_limit is 0.0"),
    ],
)
def test_a_wrong_term_of_a_service_is_named(job: dict[str, Any], said: str) -> None:
    terms = {"work": HANDLING, "kind": "service", "name": "s", "service": wire.ServiceTerms(), **job}
    with pytest.raises(InvalidInput) as refused:
        wire.check_work(wire.NewJob(**terms))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("written", "job"),
    [
        ({"id": 1}, Bag(1)),
        ({"id": 1, "kind": 0, "tasks": 3, "width": 1, "plan": [], "sizes": []}, Bag(1, tasks=3)),
        ({"id": 1, "kind": 1, "tasks": 1, "width": 4, "plan": [], "due": 9}, Rigid(1, width=4, due=9)),
        (
            {"id": 1, "kind": 2, "tasks": 2, "width": 1, "plan": [{"estimate": 3}, {"estimate": 4, "after": [0]}]},
            Workflow(1, graph=(TaskSpec(3), TaskSpec(4, after=(0,)))),
        ),
    ],
)
def test_jobs_that_were_written_before_there_were_forms_are_read(written: dict[str, object], job: JobSpec) -> None:
    """As in the journals of formats 1 to 4."""
    assert msgspec.convert(written, AnyJob, dec_hook=any_form) == job
    for known in (job, JobSubmitted(5, job)):
        kind = AnyJob if known is job else JobSubmitted
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=kind, dec_hook=any_form) == known


def test_what_is_left_out_is_as_the_model_has_it() -> None:
    spec = wire.NewJob(wire.Commands((COMMAND,))).spec(1, 1000, "owner")
    assert spec == Bag(id=1, release=1000, user="owner")
    assert flaw(spec) is None


@pytest.mark.parametrize(
    "job",
    [
        wire.NewJob(wire.Commands((COMMAND,)), tasks=5),
        wire.NewJob(wire.Commands((COMMAND,) * 5), tasks=5),
        wire.NewJob(wire.Commands((wire.Command(("true",), outputs={"a": "headway:", "b": "headway:"}),))),
        wire.NewJob(wire.Commands((COMMAND,) * 5), kind="rigid", width=5),
        wire.NewJob(wire.Calls(("f",), (b"",) * 5), tasks=5),
        wire.NewJob(wire.Calls(("f",), (b"",)), kind="rigid", width=5),
        wire.NewJob(wire.Calls(("f", "g"), (b"",), (1,)), kind="rigid", width=5),
    ],
)
def test_work_for_every_task_is_let_through(job: wire.NewJob) -> None:
    wire.check_work(job)


@pytest.mark.parametrize(
    ("work", "field"),
    [
        (wire.Commands((COMMAND,) * 2), r"work\.commands is 2; allowed: one, or one a task \(3\)"),
        (wire.Commands(()), r"work\.commands is 0"),
        (wire.Commands((wire.Command(()),)), r"work\.commands\[0\]\.argv is \(\)"),
        (wire.Commands((wire.Command(("",)),)), r"work\.commands\[0\]\.argv is \(''"),
        (
            wire.Commands((wire.Command(("true",), outputs={"a": "/one", "b": "/two", "c": "/two"}),)),
            r"work\.commands\[0\]\.outputs is '/two'; allowed: one output at each URL",
        ),
        (wire.Calls(("f",), (b"",)), r"work\.args is 1; allowed: one a task \(3\)"),
        (wire.Calls((), (b"",) * 3), r"work\.functions is \(\)"),
        (wire.Calls(("f",), (b"",) * 3, (0,)), r"work\.chosen is 1"),
        (wire.Calls(("f",), (b"",) * 3, (0, 1, 0)), r"work\.chosen is 1; allowed: 0 to 0"),
        (wire.Calls(("f",), (b"",) * 3, (0, -1, 0)), r"work\.chosen is -1"),
    ],
)
def test_missing_or_wrong_work_is_named(work: wire.Work, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        wire.check_work(wire.NewJob(work, tasks=3))


def test_routes_are_told_apart() -> None:
    assert len({(route.method, route.path) for route in wire.ROUTES}) == len(wire.ROUTES)
    assert len({route.name for route in wire.ROUTES}) == len(wire.ROUTES)
    declared = {value.name for value in vars(wire).values() if isinstance(value, wire.Route)}
    assert {route.name for route in wire.ROUTES} == declared
    assert all(route.summary for route in wire.ROUTES)


def test_work_that_was_stored_before_calls_had_folders_is_read_and_written_as_it_was() -> None:
    stored = msgspec.msgpack.encode({"type": "calls", "functions": ["f"], "args": [b"a"], "warm": "w", "paths": ["/p"]})
    work = msgspec.msgpack.decode(stored, type=wire.Work)
    assert work == wire.Calls(("f",), (b"a",), warm="w", paths=("/p",))
    assert (work.cwd, work.anywhere, work.env, work.fresh) == ("", False, {}, False)
    assert msgspec.msgpack.encode(work) == stored, "a submission that is repeated counts as the same"


def of_many_tasks(tasks: int) -> wire.NewJob:
    """A workflow whose tasks and terms need arrays and maps of each size that MessagePack tells apart."""
    commands = tuple(wire.Command(("echo", str(task)), outputs={"out": "headway:"}) for task in range(tasks))
    calls = wire.Calls((), ())
    gifts = {str(task): wire.Gift(b"value", {"out": "url"}) for task in range(tasks)}
    work = wire.Steps(calls, commands, tuple(range(tasks)), names=tuple(map(str, range(tasks))), given=gifts)
    plan = tuple(wire.PlannedTask(task, after=(task - 1,) if task else ()) for task in range(tasks))
    return wire.NewJob(work, kind="workflow", tasks=tasks, plan=plan, due=9, shape=PenaltyShape.SQUARE)


@pytest.mark.parametrize("tasks", [1, ENCODED_AT_ONCE, 2 * ENCODED_AT_ONCE + 1, 70_000])
def test_what_is_encoded_part_by_part_has_the_same_bytes(tasks: int) -> None:
    new = of_many_tasks(tasks)
    spec = new.spec(7, 5, "me")
    assert WorkInParts(by_parts(new)).whole() == wire.encode(new)
    assert WorkInParts(by_parts(spec)).whole() == wire.encode(spec)
    parts = sum(1 for _ in by_parts(spec))
    assert parts == (tasks - 1) // ENCODED_AT_ONCE, "one pause between two parts of the only long field"


def test_a_job_that_is_written_compressed_is_read_as_it_was() -> None:
    spec = of_many_tasks(3).spec(7, 5, "me")
    decode = msgspec.msgpack.Decoder(AnyJob, dec_hook=any_form).decode
    assert decode(packed(wire.encode(spec))) == spec == decode(wire.encode(spec))
