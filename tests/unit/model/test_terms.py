"""Jobs, nodes and instants: errors in their terms name the field, the value and what is allowed."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.actions import JobStatus
from headway.model.events import Outcome
from headway.model.instant import NEVER, SECOND, from_seconds, seconds_text, to_seconds
from headway.model.job import (
    FORMS,
    Bag,
    Flaw,
    JobSpec,
    Kind,
    PenaltyShape,
    Rigid,
    TaskSpec,
    Workflow,
    flaw,
    flaw_of_form,
)
from headway.model.node import NodeSpec, node_flaw

GRAPH = "one entry a task of a workflow, none for the other kinds"
BAG = Bag(1, tasks=3)
RIGID = Rigid(1, width=3)
WORKFLOW = Workflow(1, graph=(TaskSpec(5), TaskSpec(0, 2, (0,))))


@pytest.mark.parametrize("job", [BAG, RIGID, WORKFLOW], ids=["bag", "rigid", "workflow"])
def test_plain_jobs_have_no_flaw(job: JobSpec) -> None:
    assert flaw(job) is None
    assert flaw(Workflow(1, graph=(TaskSpec(5), TaskSpec(0, 2, (0,), (2**62,))))) is None
    assert flaw(replace(job, due=-5, estimate=0, priority=-1.5, rate=0, workload=0, retries=9)) is None


@pytest.mark.parametrize(
    ("job", "terms", "words"),
    [
        (BAG, {"tasks": 0}, "tasks is 0; allowed: 1 to"),
        (RIGID, {"width": 0}, "width is 0; allowed: 1 to 16777216"),
        (RIGID, {"width": 2**40}, "width is 1099511627776; allowed: 1 to 16777216"),
        (BAG, {"name": "n" * 1001}, "name is '1001 characters'; allowed: at most 1000"),
        (BAG, {"user": "u" * 1001}, "user is '1001 characters'; allowed: at most 1000"),
        (BAG, {"release": -1}, "release is -1e-06; allowed: 0 or later"),
        (BAG, {"estimate": -1}, "estimate is -1e-06; allowed: 0 or more"),
        (BAG, {"priority": math.nan}, "priority is nan; allowed: a finite number"),
        (BAG, {"priority": math.inf}, "priority is inf; allowed: a finite number"),
        (BAG, {"rate": -0.5}, "rate is -0.5; allowed: a finite number, 0 or more"),
        (BAG, {"workload": math.nan}, "workload is nan; allowed: 0 to 1e+18, or none"),
        (BAG, {"workload": 1e308}, "workload is 1e+308; allowed: 0 to 1e+18, or none"),
        (BAG, {"retries": -1}, "retries is -1; allowed: 0 to"),
        (BAG, {"time_limit": 0}, "time_limit is 0.0; allowed: more than 0"),
        (BAG, {"memory_limit": 0}, "memory_limit is 0; allowed: more than 0"),
        (BAG, {"sizes": (1.0,)}, "sizes is 1; allowed: one a task of a bag, or none"),
        (WORKFLOW, {"graph": ()}, "tasks is 0; allowed: 1 to"),
        (WORKFLOW, {"graph": (TaskSpec(1), TaskSpec(1, 0))}, "plan[1].cores is 0; allowed: 1 or more"),
        (WORKFLOW, {"graph": (TaskSpec(-1), TaskSpec(1))}, "plan[0].estimate is -1e-06; allowed: 0 or more"),
        (
            WORKFLOW,
            {"graph": (TaskSpec(1), TaskSpec(1, 1, (1,)))},
            "plan[1].after holds 1; allowed: numbers",
        ),
        (
            WORKFLOW,
            {"graph": (TaskSpec(1, 1, (1,)), TaskSpec(1))},
            "plan[0].after holds 1; allowed: numbers",
        ),
        (BAG, {"after": (0, 1)}, "after holds 1; allowed: ids of jobs that were submitted before"),
        (BAG, {"after": (-1,)}, "after holds -1; allowed: ids of jobs"),
        (WORKFLOW, {"graph": (TaskSpec(1), TaskSpec(1, 1, (-1,)))}, "plan[1].after holds -1; allowed: numbers of"),
        (
            WORKFLOW,
            {"graph": (TaskSpec(1), TaskSpec(1, 1, (0,), (1, 2)))},
            "plan[1].sends has 2 values; allowed: one for each of after, or none",
        ),
        (
            WORKFLOW,
            {"graph": (TaskSpec(1), TaskSpec(1, 1, (0,), (-1,)))},
            "plan[1].sends holds -1; allowed: bytes, 0 to 4611686018427387904",
        ),
    ],
)
def test_flaws_of_jobs(job: JobSpec, terms: dict[str, Any], words: str) -> None:
    found = flaw(replace(job, **terms))
    assert found is not None
    assert found.startswith(words)


@pytest.mark.parametrize(
    ("kind", "terms", "wrong"),
    [
        (Kind.BAG, {"tasks": 3, "sizes": 3}, None),
        (Kind.WORKFLOW, {"tasks": 3, "graph": 3}, None),
        (Kind.RIGID, {"width": 7}, None),
        (Kind.BAG, {"width": 2}, ("width", 2, "1 unless the job is rigid")),
        (Kind.RIGID, {"tasks": 2}, ("tasks", 2, "1 for a rigid job")),
        (Kind.BAG, {"graph": 1}, ("plan", 1, GRAPH)),
        (
            Kind.WORKFLOW,
            {"tasks": 3, "graph": 2},
            ("plan", 2, GRAPH),
        ),
        (Kind.WORKFLOW, {"graph": 1, "sizes": 1}, ("sizes", 1, "one a task of a bag, or none")),
        (Kind.BAG, {"tasks": 2, "sizes": 1}, ("sizes", 1, "one a task of a bag, or none")),
    ],
)
def test_terms_of_another_form_are_misplaced(kind: Kind, terms: dict[str, int], wrong: Flaw | None) -> None:
    assert flaw_of_form(kind, **{"tasks": 1, "width": 1, "graph": 0, "sizes": 0} | terms) == wrong


def test_a_form_has_its_own_terms_only() -> None:
    shared = {known.name for known in fields(JobSpec)}
    own = {kind: {known.name for known in fields(form)} - shared for kind, form in FORMS.items()}
    service = {"most", "least", "threshold", "fraction", "window"}
    parts = {Kind.BAG: {"tasks", "sizes"}, Kind.RIGID: {"width"}, Kind.WORKFLOW: {"graph"}, Kind.SERVICE: service}
    assert own == parts
    assert [(form(1).tasks, form(1).width, form(1).kind) for form in (Bag, Rigid)] == [(1, 1, 0), (1, 1, 1)]
    assert (WORKFLOW.tasks, WORKFLOW.width, WORKFLOW.kind) == (2, 1, Kind.WORKFLOW)
    assert [kind for kind, form in FORMS.items() if form(1).rigid] == [Kind.RIGID]
    assert [kind for kind, form in FORMS.items() if form(1).endless] == [Kind.SERVICE]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"name": ""}, "name is ''; allowed: a name"),
        ({"name": ".."}, "name is '..'; allowed: a name of at most 200 characters that can be printed"),
        ({"name": "a\nb"}, "name is 'a\\nb'; allowed: a name of at most 200 characters that can be printed"),
        ({"name": "a\0b"}, "name is 'a\\x00b'; allowed: a name"),
        ({"name": "x" * 201}, f"name is '{'x' * 201}'; allowed: a name"),
        ({"kind": "\x1b[31m"}, "kind is '\\x1b[31m'; allowed: a word of at most 200"),
        ({"site": "s" * 201}, f"site is '{'s' * 201}'; allowed: a word"),
        ({"slots": 0}, "slots is 0; allowed: 1"),
        ({"speed": 0.0}, "speed is 0.0; allowed: 1e-09 to 1e+09"),
        ({"speed": 1e-320}, "speed is 1e-320; allowed: 1e-09 to 1e+09"),
        ({"speed": math.inf}, "speed is inf; allowed: 1e-09 to 1e+09"),
        ({"speed": math.nan}, "speed is nan; allowed: 1e-09 to 1e+09"),
        ({"cores": 0}, "cores is 0; allowed: 1"),
        ({"lease": 0}, "lease is 0; allowed: more than 0"),
        ({"read_ahead": -1}, "read_ahead is -1; allowed: 0"),
        ({"short": 0}, "short is 0; allowed: more than 0"),
    ],
)
def test_flaws_of_nodes(terms: dict[str, Any], words: str) -> None:
    found = node_flaw(NodeSpec(**({"name": "n"} | terms)))
    assert found is not None
    assert found.startswith(words)


def test_a_plain_node_has_no_flaw() -> None:
    assert node_flaw(NodeSpec("n", slots=4, speed=0.1, cores=16, lease=1)) is None


@pytest.mark.parametrize(
    ("slots", "cores", "wanted", "takes"),
    [
        (4, None, 3, 3),
        (4, 4, 3, 3),
        (4, 16, 1, 1),
        (4, 16, 4, 1),
        (4, 16, 5, 2),
        (4, 2, 1, 2),
        (4, 2, 3, 6),
        (1, 8, 8, 1),
    ],
)
def test_slots_for_cores(slots: int, cores: int | None, wanted: int, takes: int) -> None:
    """A task needs ceil(c * slots / cores) slots. If that is more than there are, it never fits."""
    assert NodeSpec("n", slots=slots, cores=cores).slots_for(wanted) == takes


@pytest.mark.parametrize(("shape", "penalty"), [("linear", 9.0), ("sqrt", 3.0), ("square", 81.0)])
def test_penalty_shapes(shape: str, penalty: float) -> None:
    assert PenaltyShape(shape).of(9.0) == penalty
    assert PenaltyShape(shape).of(-4.0) == PenaltyShape(shape).of(0.0) == 0.0


@given(st.integers(-(10**15), 10**15))
def test_instants_survive_their_text(microseconds: int) -> None:
    text = seconds_text(microseconds)
    assert round(float(text) * SECOND) == microseconds or abs(microseconds) > 2**52
    whole, _, rest = text.lstrip("-").partition(".")
    assert int(whole) * SECOND + int(rest.ljust(6, "0")) == abs(microseconds)
    assert not rest.endswith("0")


def test_seconds_are_rounded_to_the_nearest_microsecond() -> None:
    assert from_seconds(1.0000004) == SECOND
    assert from_seconds(-0.0000006) == -1
    assert to_seconds(from_seconds(90.5)) == 90.5


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, NEVER / SECOND, 1e300])
def test_what_is_no_instant_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="is not a finite number of seconds"):
        from_seconds(seconds)


def test_whose_doing_an_end_is() -> None:
    own = {outcome for outcome in Outcome if outcome.is_own_doing}
    assert own == set(Outcome) - {Outcome.SUCCEEDED, Outcome.KILLED, Outcome.LOST}


def test_final_statuses() -> None:
    assert {status for status in JobStatus if status.is_final} == {
        JobStatus.SUCCEEDED,
        JobStatus.FAILED,
        JobStatus.CANCELLED,
    }
