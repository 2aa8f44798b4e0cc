"""What a job sends to the server, and what the error names when something cannot be pickled."""

from __future__ import annotations

import functools
import math
import pickle
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from headway import HeadwayError, Job, Task, TaskFailed, wire
from headway.client.job import described
from headway.client.pickling import ends, pickled_arguments, pickled_function
from headway.errors import InvalidInput
from headway.model.events import Outcome
from headway.model.instant import SECOND
from headway.model.job import PenaltyShape

NOW = 1_000.0
LOCK = threading.Lock()


def uses_lock() -> bool:
    return LOCK.locked()


def sent(job: Job) -> wire.NewJob:
    return described(job, NOW)[0]


def test_a_plain_job_is_a_bag_without_terms() -> None:
    assert sent(Job("plain", [Task(len, "a"), Task(len, "b")])) == wire.NewJob(
        sent(Job("plain", [Task(len, "a"), Task(len, "b")])).work, kind="bag", tasks=2, name="plain"
    )


@pytest.mark.parametrize(
    "due", [90, 90.0, timedelta(seconds=90), datetime.fromtimestamp(1090, UTC), datetime.fromtimestamp(1090)]
)
def test_due_dates_as_people_give_them(due: Any) -> None:
    job = Job("j", [Task(len, "a")], release=due)
    job.due = due
    assert (sent(job).due, sent(job).release) == (1090, 1090)


def test_every_term_is_sent() -> None:
    job = Job(
        "all",
        [Task(len, "a")],
        priority=2,
        rate=3,
        shape="sqrt",
        estimate=4,
        workload=5,
        retries=6,
        time_limit=7,
        memory_limit=8,
        sizes=[3],
        profile={"xeon": 1.5},
        preemptible=False,
        cpu=0.5,
        movable=True,
        user="me",
    )
    assert sent(job) == wire.NewJob(
        sent(job).work,
        priority=2,
        rate=3,
        shape=PenaltyShape.SQUARE_ROOT,
        estimate=4,
        workload=5,
        retries=6,
        time_limit=7,
        memory_limit=8,
        sizes=(3,),
        profile={"xeon": 1.5},
        preemptible=False,
        cpu=(0.5,),
        movable=True,
        user="me",
        name="all",
    )


def test_a_profile_that_is_none() -> None:
    with pytest.raises(InvalidInput, match=r"profile\['xeon'\] is None; allowed: a finite number of seconds"):
        sent(Job("j", [Task(len, "a")], profile={"xeon": None}))  # type: ignore[dict-item]  # a user's mistake


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"priority": "high"}, "priority is 'high'; allowed: a finite number"),
        ({"priority": "5"}, "priority is '5'; allowed: a finite number"),
        ({"rate": None}, "rate is None; allowed: a finite number"),
        ({"workload": 10**400}, "workload is 10.*; allowed: a finite number"),
        ({"sizes": (1, "big")}, r"sizes\[1\] is 'big'; allowed: a finite number"),
        ({"features": {"mesh": "fine"}}, r"features\['mesh'\] is 'fine'; allowed: a finite number"),
        ({"features": {"fine": True}}, r"features\['fine'\] is True; allowed: a finite number"),
        ({"features": {"fine": np.True_}}, r"features\['fine'\] is .*True.*; allowed: a finite number"),
        ({"priority": True}, r"priority is True; allowed: a finite number"),
        ({"retries": True}, r"retries is True; allowed: a whole number"),
        ({"features": {"mesh": None}}, r"features\['mesh'\] is None; allowed: a finite number"),
        ({"features": {3: 1.0}}, r"features is \{3: 1.0\}; allowed: numbers by name"),
        ({"features": [1.0]}, r"features is \[1.0\]; allowed: numbers by name"),
        ({"cpu": "0.5"}, r"cpu\[0\] is '0'; allowed: a finite number"),
        ({"retries": 1.5}, "retries is 1.5; allowed: a whole number"),
        ({"memory_limit": "1G"}, "memory_limit is '1G'; allowed: a whole number"),
        ({"width": 2.5}, "width is 2.5; allowed: a whole number"),
    ],
)
def test_a_term_of_another_type_is_named(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        sent(Job("j", [Task(len, "a")], **terms))


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"cpu": 1.5}, r"cpu\[0\] is 1.5; allowed: 0 to 1, a share of a processor"),
        ({"cpu": (0.5, math.nan), "width": 2}, r"cpu\[1\] is nan; allowed: 0 to 1"),
        ({"cpu": [0.5] * 3, "width": 2}, r"cpu has 3 values; allowed: none, one for all, or one a process \(2\)"),
        ({"cpu": (0.5, 0.5)}, "cpu has 2 values"),
    ],
)
def test_the_use_of_a_processor_is_a_share_of_it(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadwayError, match=said):
        sent(Job("j", [Task(len, "a")], **terms))


def test_terms_may_be_numbers_of_numpy() -> None:
    array = np.array([3, 1])
    job = Job(
        tasks=[Task(len, "a")],
        priority=array[0],
        rate=array.mean(),
        retries=array[0],
        sizes=array[:1],
        cpu=array[:1] / 4,
    )
    new = sent(job)
    assert msgspec.msgpack.decode(wire.encode(new), type=wire.NewJob) == new
    assert (new.priority, new.rate, new.retries, new.sizes, new.cpu) == (3.0, 2.0, 3, (3.0,), (0.75,))


def test_a_workflow_knows_what_comes_before_what() -> None:
    job = Job("flow", estimate=20)
    first = job.add_task(Task(len, "a"), estimate=3)
    second = job.add_task(Task(len, "b"), cores=2)
    job.add_task(Task(len, "c").after(first, second, first))
    assert sent(job).kind == "workflow"
    assert sent(job).plan == (
        wire.PlannedTask(3),
        wire.PlannedTask(20, 2),
        wire.PlannedTask(20, 1, (0, 1)),
    )


def test_the_task_of_a_workflow_without_an_estimate_has_the_default_and_says_that_nobody_said_so() -> None:
    job = Job("flow")
    first = job.add_task(Task(len, "a"))
    job.add_task(Task(len, "b").after(first), estimate="10m")
    assert sent(job).plan == (wire.PlannedTask(600, assumed=True), wire.PlannedTask(600, 1, (0,)))
    assert [sent(job).spec(1, 0, "me").said(task) for task in (0, 1)] == [None, 600 * SECOND]


def test_a_rigid_job() -> None:
    new = sent(Job("gang", [Task.command("solve")], width=4))
    assert (new.kind, new.tasks, new.width, new.plan) == ("rigid", 1, 4, ())


def test_commands_run_where_they_were_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = Task.command(Path("run.sh"), "{i}", "{x}", cwd="sub", env={"A": "b"}, stdin="in{i}", stderr="/tmp/e")
    assert task.program == wire.Command(
        ("run.sh", "{i}", "{x}"),
        cwd=str(tmp_path / "sub"),
        env={"A": "b"},
        stdin=str(tmp_path / "sub" / "in{i}"),
        stderr="/tmp/e",
    )


def test_a_function_that_is_no_task_yet_is_named() -> None:
    tasks: list[Any] = [Task(len, "a"), len]
    with pytest.raises(InvalidInput, match=r"tasks\[1\] of job 'sizes' is <built-in function len>; allowed: a Task"):
        described(Job("sizes", tasks))


def test_tasks_and_jobs_show_what_they_are() -> None:
    assert repr(Task(len, "a")) == "Task(len, 'a')"
    assert repr(Task(max, 1, key=abs)) == "Task(max, 1, key=<built-in function abs>)"
    assert repr(Task.command("echo", "a")) == "Task.command('echo', 'a')"
    assert repr(Job("n", [Task(len, "")])) == "<Job 'n': bag, tasks=1>"


@pytest.mark.parametrize(
    ("task", "culprit"),
    [
        (Task(print, 1, LOCK), r"task 1 of job 'j': argument 1, of type _thread\.lock"),
        (Task(print, 1, end=LOCK), r"argument 'end', of type _thread\.lock"),
        (Task(lambda: LOCK), r"task 1 of job 'j': the function .*<lambda> cannot be pickled: it uses 'LOCK'"),
        (Task(LOCK.acquire), "cannot be pickled: it uses its object"),
        (Task(functools.partial(print, LOCK)), "cannot be pickled"),
    ],
)
def test_what_cannot_be_pickled_is_named(task: Task, culprit: str) -> None:
    with pytest.raises(HeadwayError, match=culprit) as caught:
        described(Job("j", [Task(len, ""), task]))
    assert "inside the function" in caught.value.hint


def test_a_closure_is_carried_by_value() -> None:
    offset = 3
    assert pickle.loads(pickled_function(lambda x: x + offset, "a call"))(4) == 7


class Strange:
    def __reduce__(self) -> Any:
        raise RecursionError("always")


def test_an_argument_that_raises_what_it_likes() -> None:
    with pytest.raises(HeadwayError, match=r"argument 0, of type .*Strange"):
        pickled_arguments((Strange(),), {}, "a call")


def test_what_belongs_to_the_script_travels_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        pass

    blob = pickled_arguments((Point(),), {}, "a call")
    assert b"Point" in blob
    assert type(pickle.loads(blob)[0][0]).__name__ == "Point"


def result(outcome: Outcome, **rest: Any) -> wire.TaskResult:
    return wire.TaskResult(7, 3, 1, wire.TaskEnding(outcome, **rest))


@pytest.mark.parametrize(
    ("outcome", "rest", "message"),
    [
        (Outcome.EXITED, {"detail": "exit status 2"}, "task 3 of job 7 failed: exit status 2"),
        (Outcome.SIGNALLED, {"detail": "killed by SIGSEGV"}, "SIGSEGV"),
        (Outcome.OUT_OF_TIME, {}, "out of time"),
        (Outcome.LOST, {}, "lost"),
        (Outcome.RAISED, {"detail": "an exception that cannot be pickled"}, "cannot be pickled"),
    ],
)
def test_ends_that_are_no_results(outcome: Outcome, rest: dict[str, Any], message: str) -> None:
    ((value, error),) = ends(result(outcome, **rest))
    assert value is None
    assert isinstance(error, TaskFailed)
    assert message in error.args[0]
    assert (error.job, error.task) == (7, 3)


def test_a_memory_error_is_itself() -> None:
    ((_, error),) = ends(result(Outcome.OUT_OF_MEMORY, value=pickle.dumps(MemoryError("too much"))))
    assert isinstance(error, MemoryError)


def test_a_value_that_cannot_be_read_here() -> None:
    ((_, error),) = ends(result(Outcome.SUCCEEDED, value=b"cno_such_module\nName\n."))
    assert isinstance(error, TaskFailed)
    assert "no_such_module" in error.args[0]
    assert isinstance(error.__cause__, ModuleNotFoundError)


def test_the_ranks_of_a_gang() -> None:
    good = wire.TaskEnding(Outcome.SUCCEEDED, value=pickle.dumps(5))
    bad = wire.TaskEnding(Outcome.EXITED, detail="exit status 2")
    killed = wire.TaskEnding(Outcome.KILLED)
    assert ends(wire.TaskResult(7, 0, 1, wire.TaskEnding(Outcome.SUCCEEDED), (good, good))) == [(5, None)] * 2
    first, second, third = ends(wire.TaskResult(7, 0, 1, bad, (killed, good, bad)))
    assert second == (5, None)
    assert first == third
    assert isinstance(first[1], TaskFailed)
    assert "exit status 2" in str(first[1])


class TestWhereTasksRun:
    """The folder, the variables and the processes of tasks."""

    def calls(self, **terms: Any) -> wire.Calls:
        work = sent(Job("j", [Task(len, "a")], **terms)).work
        assert isinstance(work, wire.Calls)
        return work

    def commands(self, *tasks: Task, **terms: Any) -> tuple[wire.Command, ...]:
        work = sent(Job("j", tasks, **terms)).work
        assert isinstance(work, wire.Commands)
        return work.commands

    def test_functions_run_where_they_are_submitted_or_in_the_folder_that_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        here = str(tmp_path)
        assert (self.calls().cwd, self.calls().anywhere) == (here, True)
        assert (self.calls(cwd="sub").cwd, self.calls(cwd="sub").anywhere) == (f"{here}/sub", False)
        assert self.calls(cwd=Path("/data")).cwd == "/data"

    def test_programs_have_folders_of_their_own(self) -> None:
        with pytest.raises(InvalidInput, match=r"allowed: none in a job of programs: say Task\.command"):
            self.commands(Task.command("true"), cwd="/data")

    def test_variables_by_value_or_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HERE", "this")
        assert self.calls().env == {}
        assert self.calls(env={"A": "1"}).env == {"A": "1"}
        assert self.calls(env=["HERE"]).env == {"HERE": "this"}
        assert self.commands(Task.command("true", env=["HERE"]))[0].env == {"HERE": "this"}

    def test_a_programs_own_variables_come_on_top_of_its_jobs(self) -> None:
        first, second = Task.command("true", env={"A": "own"}), Task.command("true")
        found = self.commands(first, second, env={"A": "job", "B": "job"})
        assert [one.env for one in found] == [{"A": "own", "B": "job"}, {"A": "job", "B": "job"}]

    @pytest.mark.parametrize(
        ("env", "said"),
        [
            (["HEADWAY_NOWHERE"], "env is 'HEADWAY_NOWHERE'; allowed: the name of a variable that is set here"),
            ("HOME", "env is 'HOME'; allowed: values by name, or a list of names"),
            ({"A": 1}, r"env\['A'\] is 1; allowed: text"),
            ({"A=B": "1"}, "env is 'A=B'; allowed: the name of a variable, not empty, without spaces"),
            ({"A B": "1"}, "env is 'A B'; allowed: the name of a variable, not empty, without spaces"),
            ({"A\tB": "1"}, r"env is 'A\\tB'; allowed: the name of a variable"),
            ({"": "1"}, "env is ''; allowed: the name of a variable"),
            ({"A\0": "1"}, r"env is 'A\\x00'; allowed: the name of a variable"),
            ({"HEADWAY_RANK": "1"}, "env is 'HEADWAY_RANK'; allowed: any variable but those that Headway sets"),
            ({"A": "\0"}, r"env\['A'\] is '\\x00'; allowed: text without a zero byte"),
            ({"A": "\udcff"}, "allowed: text that can be written in UTF-8"),
        ],
    )
    def test_what_no_variable_can_be_is_refused(self, env: Any, said: str) -> None:
        for tasks in ([Task(len, "a")], [Task.command("true")]):
            with pytest.raises(InvalidInput, match=said):
                described(Job("j", tasks, env=env), NOW)

    def test_a_fresh_process_is_not_shared(self) -> None:
        assert self.calls(fresh=True).fresh
        with pytest.raises(InvalidInput, match="fresh is True; allowed: false with warm"):
            self.calls(fresh=True, warm=True)

    def test_a_word_of_a_command_is_text(self) -> None:
        with pytest.raises(InvalidInput, match=r"argv is .*; allowed: text that can be written in UTF-8"):
            Task.command("echo", "\udcff")


@pytest.mark.parametrize(
    ("tasks", "terms", "said"),
    [
        ([Task.command("true", stdout="/o.txt")] * 3, {}, "stdout is '/o.txt'; allowed: a file for each task"),
        ([Task.command("true", stderr="/o.txt")], {"width": 2}, "stderr is '/o.txt'; allowed: a file for each task"),
        ([Task.command("a", stdout="/{i}"), Task.command("b", stdout="/0")], {}, "stdout is '/0'"),
        ([Task.command("a", outputs={"x": "/o"}), Task.command("b", outputs={"y": "/o"})], {}, "output is '/o'"),
    ],
)
def test_tasks_that_would_write_the_same_file_are_refused(tasks: list[Task], terms: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        described(Job("j", tasks, **terms), NOW)


def test_tasks_may_share_a_device_and_what_the_server_keeps_has_names_of_its_own() -> None:
    task = Task.command("true", stdout="/dev/null", outputs={"x": "headway:x"})
    assert sent(Job("j", [task] * 3)).tasks == 3
    assert sent(Job("j", [Task.command("true", stdout="/{i}")] * 3)).tasks == 3
