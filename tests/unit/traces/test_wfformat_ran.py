"""What ran of a workflow, written as WfFormat."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import __version__
from headway.errors import HeadwayError, InvalidInput
from headway.metrics import write_tasks
from headway.model.instant import SECOND, to_seconds
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule, task_runs
from headway.model.workload import Workload, workload_us
from headway.sim.experiment import run
from headway.sim.faults import Outage
from headway.traces import read_workload
from headway.traces.wfformat_ran import instance, write_wfformat

S = SECOND
CLUSTER = (NodeSpec("a", 2, site="here"), NodeSpec("b c", 1, speed=2.0, cores=4, site="there"))
TASKS = (TaskSpec(4 * S), TaskSpec(2 * S, 1, (0,), (50,)), TaskSpec(6 * S, 2, (0,)), TaskSpec(S, 1, (1, 2), (0, 7)))
LABELS = ("split", "a b", "a_b", "join")


def flow(tasks: tuple[TaskSpec, ...] = TASKS, labels: tuple[str, ...] = LABELS, release: int = 3 * S) -> Workload:
    return workload_us(
        release=[0, release],
        runtime=[S, S],
        tasks=[1, len(tasks)],
        width=[3, 1],
        kind=[Kind.RIGID, Kind.WORKFLOW],
        label=["wide", "flow"],
        workflows={1: tasks},
        task_labels={1: labels} if labels else {},
    )


def ran(workload: Workload | None = None, **how: Any) -> Schedule:
    return run(flow() if workload is None else workload, CLUSTER, "fcfs", record=True, **how)


def test_what_ran_is_written_with_all_that_tools_want() -> None:
    assert instance(ran(), 1) == {
        "name": "flow",
        "description": f"What Headway {__version__} ran",
        "createdAt": "1970-01-01T00:00:11.500000+00:00",
        "schemaVersion": "1.5",
        "runtimeSystem": {"name": "Headway", "version": __version__},
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": "split",
                        "id": "split",
                        "parents": [],
                        "children": ["a_b", "a_b-2"],
                        "inputFiles": [],
                        "outputFiles": ["split.to.a_b"],
                    },
                    {
                        "name": "a b",
                        "id": "a_b",
                        "parents": ["split"],
                        "children": ["join"],
                        "inputFiles": ["split.to.a_b"],
                        "outputFiles": [],
                    },
                    {
                        "name": "a_b",
                        "id": "a_b-2",
                        "parents": ["split"],
                        "children": ["join"],
                        "inputFiles": [],
                        "outputFiles": ["a_b-2.to.join"],
                    },
                    {
                        "name": "join",
                        "id": "join",
                        "parents": ["a_b", "a_b-2"],
                        "children": [],
                        "inputFiles": ["a_b-2.to.join"],
                        "outputFiles": [],
                    },
                ],
                "files": [{"id": "split.to.a_b", "sizeInBytes": 50}, {"id": "a_b-2.to.join", "sizeInBytes": 7}],
            },
            "execution": {
                "makespanInSeconds": 8.5,
                "executedAt": "1970-01-01T00:00:03+00:00",
                "tasks": [
                    executed("split", 2, 3, "b c"),
                    executed("a_b", 1, 5, "b c"),
                    executed("a_b-2", 6, 5, "a", cores=2),
                    executed("join", 0.5, 11, "b c"),
                ],
                "machines": [
                    {"nodeName": "a", "cpu": {"coreCount": 2}},
                    {"nodeName": "b c", "cpu": {"coreCount": 4}},
                ],
            },
        },
    }


def executed(label: str, seconds: float, at: int, node: str, cores: int = 1) -> dict[str, Any]:
    return {
        "id": label,
        "runtimeInSeconds": seconds,
        "coreCount": cores,
        "executedAt": f"1970-01-01T00:00:{at:02}+00:00",
        "machines": [node],
    }


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    done = ran()
    write_wfformat(done, 1, tmp_path / name)
    again = read_workload(tmp_path / name)
    lasted = {each.task: each.end - each.start for each in task_runs(done, 1)}
    for number, (task, was) in enumerate(zip(again.workflows[0], TASKS, strict=True)):
        sends = was.sends if any(was.sends) else ()
        assert (task.estimate, task.cores, task.after, task.sends) == (lasted[number], was.cores, was.after, sends)
    assert again.task_labels == {0: ("split", "a_b", "a_b-2", "join")}


@given(st.data())
def test_any_graph_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    tasks = []
    for number in range(data.draw(st.integers(1, 8))):
        after = tuple(sorted(data.draw(st.sets(st.integers(0, number - 1))))) if number else ()
        sends = tuple(data.draw(st.integers(0, 2**62)) for _ in after)
        estimate, cores = data.draw(st.integers(0, 10**15)), data.draw(st.integers(1, 2))
        tasks.append(TaskSpec(estimate, cores, after, sends if any(sends) else ()))
    labels = tuple(data.draw(st.lists(st.text(max_size=3), min_size=len(tasks), max_size=len(tasks))))
    done = run(flow(tuple(tasks), labels), (NodeSpec("a", 3),), "fcfs", record=True)
    path = tmp_path_factory.mktemp("out") / "out.json"
    write_wfformat(done, 1, path)
    ids = [task["id"] for task in json.loads(path.read_text("utf-8"))["workflow"]["specification"]["tasks"]]
    assert len(set(ids)) == len(tasks)
    assert all(re.fullmatch("[0-9a-zA-Z._-]+", each) for each in ids)
    again = read_workload(path).workflows[0]
    assert [(task.cores, task.after, task.sends) for task in again] == [
        (task.cores, task.after, task.sends) for task in tasks
    ]
    assert [task.estimate for task in again] == pytest.approx([task.estimate for task in tasks], abs=1)


def test_the_same_run_is_written_alike(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_wfformat(ran(), 1, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_tasks_that_did_not_succeed_have_their_estimates_and_are_read_again(tmp_path: Path) -> None:
    stuck = ran(flow(release=0), outages=[Outage("b c", 0, None), Outage("a", 3, None)])
    written = instance(stuck, 1)
    assert written["description"].endswith("; 4 of 4 tasks did not succeed: their run times are estimates")
    assert written["workflow"]["execution"] == {
        "makespanInSeconds": to_seconds(stuck.until),
        "executedAt": "1970-01-01T00:00:00+00:00",
        "tasks": [
            {"id": task, "runtimeInSeconds": seconds, "coreCount": cores}
            for task, seconds, cores in (("split", 4, 1), ("a_b", 2, 1), ("a_b-2", 6, 2), ("join", 1, 1))
        ],
    }
    unfinished = ran(outages=[Outage("a", 5, None), Outage("b c", 6, None)])
    written = instance(unfinished, 1)
    assert "; 2 of 4 tasks" in written["description"]
    execution = written["workflow"]["execution"]
    assert [task["id"] for task in execution["tasks"] if "machines" in task] == ["split", "a_b"]
    assert [machine["nodeName"] for machine in execution["machines"]] == ["b c"]
    for name, done in (("stuck", stuck), ("unfinished", unfinished)):
        write_wfformat(done, 1, tmp_path / f"{name}.json")
        again = read_workload(tmp_path / f"{name}.json").workflows[0]
        assert [task.after for task in again] == [task.after for task in TASKS]
        assert again[2:] == (TaskSpec(6 * S, 2, (0,)), TaskSpec(S, 1, (1, 2), (0, 7)))


def test_only_workflows_are_written() -> None:
    with pytest.raises(InvalidInput, match="job is 'wide'; allowed: a workflow"):
        instance(ran(), 0)


def test_what_ran_where_must_have_been_recorded(tmp_path: Path) -> None:
    done = run(flow(), CLUSTER, "fcfs")
    for write in (lambda path: write_wfformat(done, 1, path), lambda path: write_tasks(done, path)):
        with pytest.raises(HeadwayError, match="the schedule does not say what ran where"):
            write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_times_beyond_the_calendar_are_its_end() -> None:
    late = ran(flow(release=10**18))
    assert instance(late, 1)["createdAt"] == "9999-12-31T00:00:00+00:00"


def test_tasks_that_were_lost_are_counted_once(tmp_path: Path) -> None:
    done = ran(outages=[Outage("b c", 4, 20)])
    assert done.attempts is not None
    assert done.attempts.wasted.any()
    write_tasks(done, tmp_path / "tasks.csv")
    assert (tmp_path / "tasks.csv").read_text() == (
        "job,task,node,start,end,slots\n"
        "wide,0,a;b c,0,1,3\n"
        "flow,split,a,4,8,1\n"
        "flow,a b,a,8,10,1\n"
        "flow,a_b,a,10,16,2\n"
        "flow,join,a,16,17,1\n"
    )


def test_the_example_of_the_how_to_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "how-to" / "workflows.md"
    *_, example = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    write_wfformat(ran(), 1, "montage.json")
    Path("epigenomics.xml").write_text('<adag><job id="one" runtime="2"/></adag>')
    exec(example, {})
    assert len(read_workload("ran.json").workflows[0]) == len(TASKS)
    assert Path("tasks.csv").read_text().splitlines()[-1] == "epigenomics,one,big,0,2,1"
