"""Workflows of programs from files: what is read, and what is said of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.workflow_file import read
from headway.client.job import described
from headway.errors import HeadwayError, InvalidInput
from headway.files import Input
from headway.wire import NewJob, Steps

YAML = """\
name: night
due: 1h
rate: 2
shape: sqrt
retries: 1
estimate: 90
env: {MODE: fast}
tasks:
  report:
    command: cat sorted.txt
    inputs: [sorted.txt]
    after: check
  sort:
    command: [sort, -o, sorted.txt, raw.txt]
    inputs: [raw.txt]
    outputs: [sorted.txt]
    slots: 2
    estimate: 5m
    retries: 0
  check: {command: "true", after: [sort], env: {MODE: slow}}
"""


def uploaded(path: str) -> Input:
    return Input(f"headway:{'a' * 64}/{Path(path).name}")


def given(folder: Path, text: str, name: str = "flow.yaml") -> NewJob:
    (folder / name).write_text(text)
    (folder / "raw.txt").write_text("b\na\n")
    return described(read(folder / name, uploaded))[0]


def test_yaml_is_read_with_its_terms_in_an_order_in_which_it_can_run(tmp_path: Path) -> None:
    job = given(tmp_path, YAML)
    work = job.work
    assert isinstance(work, Steps)
    assert (job.name, job.rate, job.shape.value, job.retries, job.estimate) == ("night", 2.0, "sqrt", 1, 90.0)
    assert work.names == ("sort", "check", "report")
    assert [(task.cores, task.estimate, task.after, task.retries) for task in job.plan] == [
        (2, 300.0, (), 0),
        (1, 90.0, (0,), None),
        (1, 90.0, (0, 1), None),
    ]
    sort, check, report = work.commands
    assert sort.argv == ("sort", "-o", "sorted.txt", "raw.txt")
    assert sort.inputs == {"raw.txt": f"headway:{'a' * 64}/raw.txt"}  # sent from the folder of the file
    assert sort.outputs == {"sorted.txt": "headway:sorted.txt"}
    assert report.inputs == {"sorted.txt": "task:0/sorted.txt"}
    assert work.needs == ((), (), (0,))
    assert (sort.env, check.env) == ({"MODE": "fast"}, {"MODE": "slow"})
    assert check.cwd == str(tmp_path)  # without files it runs beside the file


KEPT = """\
tasks:
  a: {command: x, inputs: [raw.txt], outputs: {raw.txt: "headway:better.txt", log: "headway:log"}}
  b: {command: x, inputs: [raw.txt], outputs: {log: "headway:log"}}
  c: {command: x, inputs: {here.txt: "headway:better.txt"}, outputs: [d/out]}
  d: {command: x, inputs: {e: "headway:out"}}
"""


def test_a_file_put_to_the_server_is_read_by_its_path_or_its_name_there(tmp_path: Path) -> None:
    job = given(tmp_path, KEPT)
    assert isinstance(job.work, Steps)
    assert [one.inputs for one in job.work.commands] == [
        {"raw.txt": f"headway:{'a' * 64}/raw.txt"},  # what it puts back is not what it reads
        {"raw.txt": "task:0/raw.txt"},
        {"here.txt": "task:0/raw.txt"},
        {"e": "task:2/d/out"},
    ]
    for wrong, said in (
        ("{log: 'headway:log'}", "tasks.z.inputs is 'headway:log'; allowed: a file that one other task gives; these"),
        ("[log]", "tasks.z.inputs is 'log'; allowed: a file that one other task gives; these give it: a, b"),
        ("{g: 'headway:none'}", r"tasks.z.inputs is 'headway:none'; allowed: headway:NAME as .*\n.*headway result ID"),
    ):
        with pytest.raises(InvalidInput, match=rf"flow.yaml:6: {said}"):
            given(tmp_path, KEPT + f"  z: {{command: x, inputs: {wrong}}}\n")


CIRCLE = """\
tasks:
  a: {command: x, after: b}
  b: {command: x, inputs: f}
  c: {command: x, outputs: f, after: [a]}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: {}", ":1: tasks is 'a mapping'; allowed: one task or more"),
        ("name: x", "tasks is 'missing'; allowed: one task or more"),
        ("", "tasks is 'missing'"),
        ("[1, 2]", ":1: file is 'a list'; allowed: a mapping"),
        ("tasks:\n  a: {command: x, aftr: b}", ":2: tasks.a is 'aftr'; allowed: command, after"),
        ("tasks:\n  a: {after: b}", ":2: tasks.a.command is 'missing'; allowed: a program and its arguments"),
        ("tasks:\n  a: {command: x, after: b}", ":2: tasks.a.after is 'b'; allowed: the name of a task"),
        ("tasks:\n  a: {command: x, after: a}", "tasks.a.after is 'a after a'; allowed: tasks that do not wait for it"),
        (
            CIRCLE,
            "tasks.a.after is 'a after b after c after a'; allowed: tasks that do not wait for it",
        ),
        (
            "tasks:\n  a: {command: x}\n  a: {command: y}",
            ":3: tasks is 'a'; allowed: a name that is not empty",
        ),
        ("tasks:\n  a: {command: x, slots: 0}", ":2: tasks.a.slots is '0'; allowed: a whole number, 1 to"),
        (
            "tasks:\n  a:\n    command: x\n    retries: -1",
            ":4: tasks.a.retries is '-1'; allowed: a whole",
        ),
        ("tasks:\n  a: {command: x, estimate: soon}", ":2: tasks.a.estimate is 'soon'; allowed:"),
        ("tasks:\n  a: {command: x, inputs: [lost]}", ":2: tasks.a.inputs is 'lost'; allowed: a file that another"),
        ("tasks:\n  a: {command: x, inputs: [../b]}", "tasks.a.inputs[0] is '../b'; allowed: a path within the task's"),
        (
            "tasks:\n  a: {command: x, outputs: {f: 'headway:a/b'}}",
            "tasks.a.outputs.f is 'headway:a/b'; allowed:",
        ),
        (
            "tasks:\n  a: {command: x, outputs: [f]}\n  b: {command: x, outputs: [f]}",
            ":3: tasks.b.outputs is 'f'",
        ),
        ("tasks:\n  a: {command: [x, [y]]}", ":2: tasks.a.command[1] is 'a list'; allowed: a text"),
        ('tasks:\n  a: {command: "\'"}', ':2: tasks.a.command is "\'"; allowed: a program and its arguments'),
        ("shape: round\ntasks:\n  a: {command: x}", ":1: shape is 'round'; allowed: linear, sqrt, square"),
        ("rate: much\ntasks:\n  a: {command: x}", ":1: rate is 'much'; allowed: a finite number, 0 or more"),
        ("rate: -1\ntasks:\n  a: {command: x}", ":1: rate is '-1'; allowed: a finite number, 0 or more"),
        ("name: x\npriority: inf\ntasks:\n  a: {command: x}", ":2: priority is 'inf'; allowed: a finite number"),
        ("time_limit: 0\ntasks:\n  a: {command: x}", ":1: time_limit is '0'; allowed: a duration of more than 0"),
        (
            "tasks:\n  a:\n    command: x\n    slots: 1000001",
            ":4: tasks.a.slots is '1000001'; allowed: a whole number, 1 to 1000000",
        ),
        (
            'tasks:\n  a: {command: [x, "a\\0b"]}',
            ":2: tasks.a.command[1] is 'a\\x00b'; allowed: text without a zero byte",
        ),
        ('tasks:\n  "a\\0": {command: x}', ":2: tasks is 'a\\x00'; allowed: text without a zero byte"),
        (
            'tasks:\n  a: {command: x, env: {A: "\\0"}}',
            ":2: tasks.a.env.A is '\\x00'; allowed: text without a zero byte",
        ),
        ("tasks:\n  a: {command: x, env: {A B: c}}", ":2: tasks.a.env.A B is 'A B'; allowed: the name of a variable"),
        (
            "tasks:\n  a: {command: x, outputs: {f: /o}}\n  b: {command: x, outputs: {g: /o}}",
            ":3: tasks.b.outputs.g is '/o'; allowed: a place where no other output is put; tasks.a.outputs.f is",
        ),
        ("due: later\ntasks:\n  a: {command: x}", ":1: due is 'later'; allowed:"),
        ("tasks:\n  a: {command: x", ":3: YAML is"),
        ("a: " + "[" * 20000, "YAML is"),
    ],
)
def test_what_is_wrong_in_yaml_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        given(tmp_path, text)
    assert said in str(refused.value), str(refused.value)
    assert "flow.yaml" in str(refused.value)


def wfformat(**changes: Any) -> str:
    tasks: dict[str, Any] = {
        "a": {"id": "a", "parents": [], "children": ["b"], "inputFiles": ["raw.txt"], "outputFiles": ["data/out.txt"]},
        "b": {"id": "b", "parents": ["a"], "children": [], "inputFiles": ["data/out.txt"], "outputFiles": []},
    }
    runs: dict[str, Any] = {
        "a": {"id": "a", "runtimeInSeconds": 1.5, "coreCount": 2, "command": {"program": "sort", "arguments": ["x"]}},
        "b": {"id": "b", "runtimeInSeconds": 2, "command": {"program": "cat"}},
    }
    for name, change in changes.items():
        which, _, task = name.partition("_")
        if which != "size":
            (tasks if which == "task" else runs)[task] |= change
    sizes = [{"id": name, "sizeInBytes": changes.get("size", {"by": 3})["by"]} for name in ("raw.txt", "data/out.txt")]
    specification = {"tasks": list(tasks.values()), "files": sizes}
    execution = {"tasks": list(runs.values())}
    return json.dumps(
        {"name": "two", "schemaVersion": "1.5", "workflow": {"specification": specification, "execution": execution}}
    )


def test_wfformat_is_run_by_its_commands_and_files_by_name(tmp_path: Path) -> None:
    job = given(tmp_path, wfformat(), "flow.json")
    assert isinstance(job.work, Steps)
    assert (job.name, job.work.names) == ("two", ("a", "b"))
    assert [(task.cores, task.estimate, task.after) for task in job.plan] == [(2, 1.5, ()), (1, 2.0, (0,))]
    assert [command.argv for command in job.work.commands] == [("sort", "x"), ("cat",)]
    assert job.work.commands[1].inputs == {"data/out.txt": "task:0/data/out.txt"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task_b": {"parents": ["lost"]}}, "workflow.specification.tasks[1].parents[0] is 'lost'; allowed: the id of"),
        ({"task_a": {"parents": ["b"]}}, "is 'a after b after a'; allowed: tasks that do not wait for it"),
        ({"run_b": {"command": None}}, "workflow.execution.tasks[1].command.program is ''; allowed: a program"),
        ({"run_a": {"runtimeInSeconds": -1}}, "workflow.execution.tasks[0].runtimeInSeconds is -1.0; allowed: seconds"),
        ({"task_a": {"outputFiles": ["/out"]}}, "allowed: the id of a file"),
        (
            {"run_a": {"command": {"program": "x", "arguments": ["a\0b"]}}},
            ":1: workflow.execution.tasks[0].command.arguments[0] is 'a\\x00b'; allowed: text without a zero byte",
        ),
        ({"size": {"by": -3}}, "workflow.specification.files[0].sizeInBytes is -3; allowed: a whole number of bytes"),
    ],
)
def test_what_is_wrong_in_wfformat_is_said_with_its_place(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        given(tmp_path, wfformat(**changes), "flow.json")
    assert said in str(refused.value), str(refused.value)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (
            "job 'night': plan[0].cores is 2; allowed: at most 1",
            "flow.yaml:17: tasks.sort.slots is 2; allowed: at most 1",
        ),
        ("work.commands[2].env['A'] is 1; allowed: text", "flow.yaml:10: tasks.report.env['A'] is 1; allowed: text"),
        ("job 'night': retries is 1; allowed: 0", "flow.yaml:5: retries is 1; allowed: 0"),
        ("job 'night': rate is 2; allowed: 0", "job 'night': rate is 2; allowed: 0"),  # not from the file
        ("job 'night': user is 'x'; allowed: 'y'", "job 'night': user is 'x'; allowed: 'y'"),
        ("the disk is full", "the disk is full"),
    ],
)
def test_what_a_server_refuses_is_said_with_its_line(tmp_path: Path, refused: str, said: str) -> None:
    (tmp_path / "flow.yaml").write_text(YAML)
    (tmp_path / "raw.txt").write_text("b")
    told = read(tmp_path / "flow.yaml", uploaded).located(HeadwayError(refused, "a hint"), {"rate"})
    assert str(told).removeprefix(f"{tmp_path}/") == f"{said}\na hint"


def test_what_a_server_refuses_of_wfformat_is_said_with_its_line(tmp_path: Path) -> None:
    text = json.dumps(json.loads(wfformat()), indent=1)
    (tmp_path / "flow.json").write_text(text)
    (tmp_path / "raw.txt").write_text("b")
    flow = read(tmp_path / "flow.json", uploaded)
    told = flow.located(HeadwayError("job 'two': plan[0].cores is 2; allowed: at most 1"))
    line = text[: text.index('"coreCount"')].count("\n") + 1
    assert str(told) == f"{tmp_path}/flow.json:{line}: workflow.execution.tasks[0].coreCount is 2; allowed: at most 1"


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"lost.yaml cannot be read: No such file"):
        read(tmp_path / "lost.yaml", uploaded)
