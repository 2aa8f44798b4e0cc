"""`headway simulate` with workflows, and `headway history`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.live.store.journal import Batch, Journal
from headway.model.events import Event, JobSubmitted, NodeJoined, Outcome, TaskEnded
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec, Workflow
from headway.model.node import NodeSpec
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.traces import read_workload

from ...rows import event_row

STG = "4\n0 0 0\n1 5 1 0\n2 4 1 1\n3 3 1 1\n4 2 2 2 3\n5 0 1 4\n"
DAX = """\
<adag><job id="one" runtime="2"/><job id="two" runtime="3"/><child ref="two"><parent ref="one"/></child></adag>
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.stg"
    path.write_text(STG)
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text('[[node]]\nname = "a"\nslots = 1\n[[node]]\nname = "b"\nslots = 1\nspeed = 0.5\nsite = "far"\n')
    return path


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_workflow_is_simulated_and_described(headway: Any, graph: Path) -> None:
    ran = headway("simulate", graph, "--slots", 2)
    assert (ran.status, ran.out.splitlines()[0]) == (
        0,
        "A workflow of 4 tasks and 4 edges, on 2 slots; critical path 11 s.",
    )
    (told,) = json.loads(headway("simulate", graph, "--slots", 2, "--json").out)
    assert (told["jobs"], told["metrics"]["makespan"]) == (1, 11)
    (told,) = json.loads(headway("simulate", graph, "--slots", 1, "--json").out)
    assert told["metrics"]["makespan"] == 14


def test_several_files_are_workflows_that_run_together(headway: Any, graph: Path, tmp_path: Path) -> None:
    (tmp_path / "two.xml").write_text(DAX)
    ran = headway("simulate", graph, tmp_path / "two.xml", graph, "--slots", 2, "--schedule", tmp_path / "out.csv")
    assert ran.out.startswith("3 workflows of 10 tasks and 9 edges in all, on 2 slots; longest critical path 11 s.\n")
    assert [line.split(",")[0] for line in lines(tmp_path / "out.csv")] == ["job", "graph", "two", "graph-2"]


def test_tasks_are_written_with_their_nodes(headway: Any, graph: Path, cluster: Path, tmp_path: Path) -> None:
    ran = headway("simulate", graph, "--cluster", cluster, "--schedule-tasks", tmp_path / "out.csv")
    assert (ran.status, ran.out.splitlines()[-1]) == (0, f"Written: {tmp_path / 'out.csv'}.")
    assert lines(tmp_path / "out.csv") == [
        "job,task,node,start,end,slots",
        "graph,1,a,0,5,1",
        "graph,2,a,5,9,1",
        "graph,3,b,5,11,1",
        "graph,4,a,11,13,1",
    ]


def test_tasks_of_other_jobs_are_written_by_their_numbers(headway: Any, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job,tasks,width,runtime\nbag,2,,5\nwide,,2,3\n")
    headway("simulate", tmp_path / "jobs.csv", "--slots", 2, "--schedule-tasks", tmp_path / "out.csv")
    assert lines(tmp_path / "out.csv")[1:] == ["bag,0,cluster,0,5,1", "bag,1,cluster,0,5,1", "wide,0,cluster,5,8,2"]


def test_what_ran_is_written_for_each_policy_and_workflow(headway: Any, graph: Path, tmp_path: Path) -> None:
    (tmp_path / "two.xml").write_text(DAX)
    out = tmp_path / "out.json.gz"
    headway("simulate", graph, "--slots", 2, "--wfformat", out)
    assert read_workload(out).workflows[0] == read_workload(graph).workflows[0]
    words = ("--policy", "fcfs", "--policy", "easy", "--wfformat", out)
    ran = headway("simulate", graph, tmp_path / "two.xml", "--slots", 2, *words)
    assert sorted(path.name for path in tmp_path.glob("out-*")) == [
        *("out-easy-graph.json.gz", "out-easy-two.json.gz", "out-fcfs-graph.json.gz", "out-fcfs-two.json.gz"),
    ]
    assert ran.out.splitlines()[-1].startswith(f"Written: {tmp_path}/out-fcfs-graph.json.gz, ")


def test_only_workflows_are_written_as_such(headway: Any, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job,runtime\na,5\n")
    ran = headway("simulate", tmp_path / "jobs.csv", "--slots", 2, "--wfformat", tmp_path / "out.json")
    assert ran.status == 2
    assert ran.err.startswith(f"Error: --wfformat is '{tmp_path / 'out.json'}'; allowed: an option for workflows")


def test_what_cannot_be_written_is_said_before_the_run(headway: Any, graph: Path, tmp_path: Path) -> None:
    for option in ("--schedule", "--schedule-tasks", "--wfformat"):
        ran = headway("simulate", graph, "--slots", 2, option, tmp_path / "no" / "out.json")
        said = f"Error: cannot write {tmp_path}/no/out.json: there is no folder {tmp_path}/no\n"
        assert (ran.status, ran.err) == (2, said + "Make it, or name another.\n")


def test_a_workflow_does_not_say_how_large_its_machine_is(headway: Any, graph: Path) -> None:
    ran = headway("simulate", graph)
    assert ran.status == 2
    assert ran.err == (
        f"Error: {graph} does not say on what it is to run\n"
        "Say it with --slots N, at least 1 for its widest task, or with --cluster FILE.toml.\n"
    )


def test_a_task_wider_than_every_node_is_refused(headway: Any, tmp_path: Path, cluster: Path) -> None:
    path = tmp_path / "wide.xml"
    path.write_text('<adag><job id="huge" runtime="2"><profile key="cores">64</profile></job></adag>')
    ran = headway("simulate", path, "--cluster", cluster)
    said = "Error: job wide: cores of task huge is 64; allowed: at most 1, those of the largest node\n"
    assert (ran.status, ran.err) == (2, said)


def test_a_table_beside_a_workflow_is_on_the_same_clock(headway: Any, graph: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job,release,runtime\na,3,5\nb,1,20\n")
    ran = headway("simulate", graph, tmp_path / "jobs.csv", "--slots", 4, "--schedule", tmp_path / "done.csv")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("3 jobs released within 3 s, on 4 slots.")
    rows = [row.split(",") for row in (tmp_path / "done.csv").read_text().splitlines()]
    labels, releases = (rows[0].index(name) for name in ("job", "release"))
    assert [(row[labels], float(row[releases])) for row in rows[1:]] == [("graph", 0.0), ("b", 1.0), ("a", 3.0)]


def test_a_job_of_a_table_beside_others_that_is_too_wide_is_named_with_its_line(
    headway: Any, graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "jobs.csv").write_text("job,width,runtime\na,1,5\nb,9,5\n")
    ran = headway("simulate", graph, tmp_path / "jobs.csv", "--slots", 4)
    assert ran.status == 2
    assert f"{tmp_path / 'jobs.csv'}:3: width of job b is 9" in ran.err


def test_a_log_beside_other_files_is_refused(headway: Any, graph: Path, tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text("1 0 0 5 1 -1 -1 1 5 -1 1 1 1 1 1 -1 -1 -1\n")
    ran = headway("simulate", graph, tmp_path / "log.swf", "--slots", 4)
    assert ran.status == 2
    assert "allowed: a table or workflows, if there are several" in ran.err
    assert ran.err.endswith("A log is given alone.\n")


@pytest.mark.long
def test_out_gets_tasks_and_graphs(headway: Any, graph: Path, cluster: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "two.xml").write_text(DAX)
    headway("simulate", graph, tmp_path / "two.xml", "--cluster", cluster, "--out", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("allocation-easy.png", "gantt-easy.png", "metrics.csv", "metrics.json", "schedule-easy.csv"),
        *("tasks-easy.csv", "workflow-graph.png", "workflow-two.png"),
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a server that ran a workflow and a bag."""
    tasks = (TaskSpec(2 * SECOND), TaskSpec(3 * SECOND, 1, (0,), (5,)))
    workload = workload_us(
        release=[0, SECOND],
        runtime=[0, SECOND],
        tasks=[2, 2],
        kind=[Kind.WORKFLOW, Kind.BAG],
        workflows={0: tasks},
    )
    events: list[Event] = []
    Simulation(workload, [NodeSpec("a", 2)], registry.find, "fcfs", journal=events).run()
    folder = tmp_path / "data"
    folder.mkdir()
    journal = Journal(folder)
    journal.store_snapshot(0, Scheduler(registry.find, "fcfs").dump(), ())
    journal.write(Batch(events=[event_row(seq, event.at, event) for seq, event in enumerate(events, 1)]))
    journal.close()
    return folder


def test_the_history_of_a_server_is_measured_and_written(headway: Any, data: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.csv" for name in ("schedule", "tasks")}
    words = ("--schedule", files["schedule"], "--schedule-tasks", files["tasks"], "--wfformat", tmp_path / "out.json")
    ran = headway("history", data, *words)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0].startswith("2 jobs")
    assert ran.out.splitlines()[-1] == f"Written: {files['schedule']}, {files['tasks']}, {tmp_path / 'out.json'}."
    with files["tasks"].open(newline="") as rows:
        told = [tuple(row.values()) for row in csv.DictReader(rows)]
    assert told == [
        ("0", "0", "a", "0", "2", "1"),
        ("0", "1", "a", "2", "5", "1"),
        ("1", "0", "a", "1", "2", "1"),
        ("1", "1", "a", "2", "3", "1"),
    ]
    again = read_workload(tmp_path / "out.json").workflows[0]
    assert again == (TaskSpec(2 * SECOND), TaskSpec(3 * SECOND, 1, (0,), (5,)))


def test_a_workflow_that_failed_is_written_under_the_name_given_and_simulated_again(
    headway: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    tasks = (TaskSpec(2 * SECOND), TaskSpec(3 * SECOND, 1, (0,), (5,)), TaskSpec(SECOND, 1, (1,)))
    events: list[Event] = [
        NodeJoined(0, NodeSpec("a", 2)),
        *(JobSubmitted(0, Workflow(number, graph=tasks)) for number in (1, 2)),
        TaskEnded(2 * SECOND, 1, 0, 1),
        TaskEnded(2 * SECOND, 2, 0, 1, Outcome.EXITED),
        TaskEnded(4 * SECOND, 1, 1, 1, Outcome.EXITED),
    ]
    data.mkdir()
    journal = Journal(data)
    journal.store_snapshot(0, Scheduler(registry.find, "fcfs").dump(), ())
    rows = [event_row(seq, event.at, event) for seq, event in enumerate(events, 1)]
    journal.write(Batch(events=rows))
    journal.close()
    out = tmp_path / "ran.json"
    both = headway("history", data, "--wfformat", out)
    assert (both.status, both.err) == (0, "")
    names = [tmp_path / f"ran-{job}.json" for job in (1, 2)]
    said = "Each workflow has a file of its own; --job ID writes one under the name given."
    assert both.out.splitlines()[-1] == f"Written: {names[0]}, {names[1]}. {said}"
    assert not out.exists()
    one = headway("history", data, "--wfformat", out, "--job", "1", "--json")
    assert json.loads(one.out)["written"] == [str(out)]
    assert out.read_bytes() == names[0].read_bytes()
    for path in (out, *names):
        assert headway("simulate", path, "--slots", "2").status == 0
    assert read_workload(out).workflows[0] == tasks
    refused = headway("history", data, "--wfformat", out, "--job", "3")
    assert (refused.status, "--job is 3; allowed: the id of a workflow: 1, 2" in refused.err) == (2, True)
    assert headway("history", data, "--job", "1").status == 2


def test_the_history_of_a_server_as_json(headway: Any, data: Path) -> None:
    told = json.loads(headway("history", data, "--json").out)
    assert (told["jobs"], told["since"], told["metrics"]["makespan"]) == (2, None, 5)


def test_a_folder_without_a_journal_has_no_history(headway: Any, tmp_path: Path) -> None:
    ran = headway("history", tmp_path)
    assert ran.status == 2
    assert "cannot be read" in ran.err
