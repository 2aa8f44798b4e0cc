"""Workflows as they are made: what is sent of them, and what is refused before anything is sent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headway import Input, InvalidInput, Job, NotPicklable, Output, Task, Workflow
from headway.client.job import described
from headway.client.workflow import Flow
from headway.errors import HeadwayError, TaskFailed
from headway.given import results, task_file_of
from headway.model.actions import JobStatus
from headway.model.outcome import Outcome
from headway.wire import Commands, Steps, TaskEnding, TaskResult


def double(value: int) -> int:
    return 2 * value


def steps_of(flow: Workflow) -> Steps:
    work = described(flow)[0].work
    assert isinstance(work, Steps)
    return work


def test_a_task_in_arguments_is_a_place_for_its_result_wherever_it_is() -> None:
    flow = Workflow()
    one, two = flow.task(double, 1), flow.task(double, 2)
    flow.task(max, {"deep": [(one, {"x": two})]}, key=two)
    work = steps_of(flow)
    assert work.needs == ((), (), (0, 1))
    assert [task.after for task in described(flow)[0].plan] == [(), (), (0, 1)]
    with results({0: pickle.dumps("first"), 1: pickle.dumps(["second"])}):
        args, kwargs = pickle.loads(work.calls.args[2])
    assert args == ({"deep": [("first", {"x": ["second"]})]},)
    assert kwargs["key"] is args[0]["deep"][0][1]["x"]  # the same result is the same object
    with pytest.raises(LookupError, match="the result of task 0 is only where a task runs that gets it"):
        pickle.loads(work.calls.args[2])


def test_functions_and_programs_are_told_apart_by_their_places() -> None:
    flow = Workflow()
    first = flow.command(["true"], outputs=["out/a.txt"])
    flow.task(double, 1, after=[first])
    flow.command(["cat", "a.txt"], inputs={"a.txt": first.file("out/a.txt"), "b": "/b"}, retries=2, slots=3)
    job = described(flow)[0]
    work = steps_of(flow)
    assert (work.programs, len(work.calls.args), len(work.commands)) == ((0, 2), 1, 2)
    assert work.commands[0].outputs == {"out/a.txt": "headway:a.txt"}
    assert work.commands[1].inputs == {"a.txt": "task:0/out/a.txt", "b": "/b"}
    assert [(task.cores, task.after, task.retries) for task in job.plan] == [
        (1, (), None),
        (1, (0,), None),
        (3, (0,), 2),
    ]
    assert work.names == ("true-0", "double-1", "cat-2")


def test_what_cannot_be_is_refused_before_anything_is_sent() -> None:
    flow, other = Workflow("f"), Workflow("g")
    foreign = other.task(double, 1)
    flow.task(double, foreign)
    with pytest.raises(NotPicklable, match="allowed: a task that was added to the same workflow before"):
        described(flow)
    late = Workflow("late")
    before = Task(double, 1)
    late.task(double, 1, after=before)
    late.add_task(before)
    with pytest.raises(HeadwayError, match="task 0 of job 'late' comes after a task that is not added before it"):
        described(late)
    circle = Workflow("circle")
    one = circle.task(double, 1)
    one.after(circle.task(double, one))
    with pytest.raises(HeadwayError, match="task 0 of job 'circle' comes after a task that is not added before it"):
        described(circle)
    twice = Workflow()
    for _ in range(2):
        twice.task(double, 1, name="same")
    with pytest.raises(InvalidInput, match="names is 'same'; allowed: a name that no other task has"):
        described(twice)
    negative = Workflow()
    negative.add_task(Task(double, 1), after=[negative.task(double, 2)], sends=[-1])
    with pytest.raises(InvalidInput, match=r"plan\[1\].sends holds -1; allowed: bytes, 0 to"):
        described(negative)
    eager = Workflow()
    eager.task(double, 1, retries=-1)
    with pytest.raises(HeadwayError, match="retries"):
        described(eager)
    with pytest.raises(InvalidInput, match="A result of a task goes to functions"):
        Workflow().command(["echo", foreign])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="allowed: a list: the program and its arguments"):
        Workflow().command("echo one")
    with pytest.raises(InvalidInput, match="after is 3; allowed: tasks of the workflow"):
        Workflow().task(double, 1, after=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="allowed: an argument, or an input, of a task of its workflow"):
        pickle.dumps(foreign.file("x"))


@pytest.mark.parametrize("terms", [{"width": 2}, {"together": True}, {"sizes": [1.0]}])
def test_terms_of_other_kinds_of_jobs_are_refused_when_given_or_later(terms: dict[str, Any]) -> None:
    (name,) = terms
    with pytest.raises(InvalidInput, match=f"{name} is .*; allowed: .* in a Workflow"):
        Workflow("wide", **terms)
    flow = Workflow("wide")
    flow.task(double, 1)
    setattr(flow, name, terms[name])
    with pytest.raises(InvalidInput, match=f"{name} is .*; allowed: .* in a Workflow"):
        described(flow)


def test_a_file_that_a_program_does_not_give_is_refused_at_once() -> None:
    flow = Workflow()
    sort = flow.command(["sort"], outputs={"out.txt": "headway:out.txt", "far": "/far", "d/e": "headway:e"})
    with pytest.raises(
        InvalidInput, match=r"file is 'ot.txt'; allowed: .* gives to the server: out.txt, d/e"
    ) as refused:
        sort.file("ot.txt")
    assert refused.value.hint == "Did you mean out.txt?"
    with pytest.raises(InvalidInput, match="It puts this one elsewhere"):
        sort.file("far")
    with pytest.raises(InvalidInput, match="and it gives none"):
        flow.command(["true"]).file("x")
    flow.command(["cat", "e"], inputs={"e": sort.file("d/e")})
    numbered = flow.command(["split"], outputs=["part{i}"])
    flow.command(["cat", "x"], inputs={"x": numbered.file(f"part{flow.tasks.index(numbered)}")})
    described(flow)
    flow.command(["cat", "x"], inputs={"x": numbered.file("part9")}, name="reads")
    with pytest.raises(InvalidInput, match=r"file of split-3, for reads is 'part9'; allowed: .*: part\{i\}"):
        described(flow)


def test_a_file_that_a_function_does_not_give_is_refused_when_it_is_submitted() -> None:
    flow = Workflow()
    made = flow.task(double, {"to": [Output("headway:made.csv")]}, Output("/elsewhere"), name="makes")
    flow.task(double, [made.file("made.csv")])
    described(flow)
    flow.task(double, {"from": made.file("mad.csv")}, name="reads")
    with pytest.raises(InvalidInput, match=r"file of makes, for reads is 'mad.csv'; allowed: .*: made.csv") as refused:
        described(flow)
    assert refused.value.hint == "Did you mean made.csv?"


def test_a_result_is_no_argument_in_a_bag_and_no_variable_of_a_function() -> None:
    one = Task(double, 1)

    def uses_it() -> object:
        return one

    flow = Workflow()
    flow.add_task(one)
    flow.task(uses_it)
    with pytest.raises(NotPicklable, match=r"the function .*uses_it cannot be pickled"):
        described(flow)
    with pytest.raises(NotPicklable, match="can be an argument in a Workflow"):
        described(Job("bag", [one, Task(double, one)]))


def test_a_job_of_programs_alone_is_sent_as_before() -> None:
    assert isinstance(described(Job("bag", [Task.command("true")] * 2))[0].work, Commands)


def test_a_file_of_a_task_is_known_by_its_url() -> None:
    assert [task_file_of(url) for url in ("task:7/a/b.txt", "task:7", "task:x/y", "/task:1/a")] == [
        (7, "a/b.txt"),
        None,
        None,
        None,
    ]
    assert Input("task:7/a/b.txt").url == "task:7/a/b.txt"


def test_of_tasks_that_never_ran_each_names_the_one_that_failed_itself() -> None:
    workflow = Workflow("long")
    before: list[Task] = []
    for number in range(300):
        before = [workflow.task(double, number, after=before)]
    flow = Flow(workflow, lambda job: False)
    flow.comes_after([(task - 1,) if task else () for task in range(300)])
    flow.accepted(4)
    failed = TaskEnding(Outcome.EXITED, exit_code=1)
    flow.settled(TaskResult(4, 0, 1, failed))
    flow.concluded(JobStatus.FAILED)
    for task in (1, 2, 299):
        with pytest.raises(TaskFailed, match=r"did not run, because task 0 \(double-0\) failed"):
            flow[task].result()
    assert flow["double-299"] is flow[299]
