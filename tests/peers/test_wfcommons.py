"""WfCommons' own tools read what Headway writes as WfFormat: what was simulated, and what a server ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, NodeSpec, Task
from headway.cli.main import main
from headway.sim.experiment import run
from headway.traces import read_workflows, read_workload
from headway.traces.wfformat_ran import write_wfformat

pytestmark = pytest.mark.peers

tools = pytest.importorskip("wfcommons.wfinstances", reason="wfcommons is not installed; `make peers` installs it")

CLUSTER = (NodeSpec("a", 4, site="here"), NodeSpec("b", 2, speed=2.0, site="there"))

IDS = {"type": "string", "pattern": "^[0-9a-zA-Z._-]*$"}
TEXT = {"type": "string", "minLength": 1}
TIME = {"type": "string", "minLength": 1, "format": "date-time"}


def of(required: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": required | more}


def some(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


# What the published schema of WfFormat 1.5 wants of the fields that Headway writes; wfcommons fetches the schema itself
# from the Internet.
SCHEMA = of(
    {
        "name": TEXT,
        "schemaVersion": {"enum": ["1.5"]},
        "workflow": of(
            {
                "specification": of(
                    {
                        "tasks": some(
                            of(
                                {"name": TEXT, "id": TEXT, "parents": some(IDS), "children": some(IDS)},
                                inputFiles=some(IDS),
                                outputFiles=some(IDS),
                            ),
                            1,
                        )
                    },
                    files=some(of({"id": TEXT, "sizeInBytes": {"type": "integer", "minimum": 0}})),
                )
            },
            execution=of(
                {
                    "makespanInSeconds": {"type": "number"},
                    "executedAt": TEXT,
                    "tasks": some(
                        of(
                            {"id": TEXT, "runtimeInSeconds": {"type": "number"}},
                            coreCount={"type": "number", "minimum": 1},
                        ),
                        1,
                    ),
                },
                machines=some(
                    of(
                        {"nodeName": TEXT | {"format": "hostname"}},
                        cpu=of({}, coreCount={"type": "integer", "minimum": 1}),
                    ),
                    1,
                ),
            ),
        ),
    },
    description=TEXT,
    createdAt=TIME,
    runtimeSystem=of({"name": TEXT, "version": TEXT}),
)

Read = Callable[[Path], Any]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a file as WfCommons does: by the schema, by its rules for what fits together, then as a graph."""
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))

    def instance(path: Path) -> Any:
        validator = tools.schema.SchemaValidator(str(schema))
        validator.validate_instance(json.loads(path.read_text("utf-8")))
        assert (validator.errors, validator.warnings) == ([], [])
        return tools.Instance(path, schema_file=str(schema))

    return instance


def test_wfcommons_reads_what_was_simulated(read: Read, tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("workflows")
    names = [
        "wfinstances/montage-chameleon-2mass-005d-001.json",
        "wfinstances/helloworld-forkjoin-10-chameleon.json",
        "wfinstances/sarek-dirt02-001.json",
        "dax/CyberShake_30.xml",
        "stg/stg-rnc50.tar.gz",
    ]
    workload = read_workflows([folder / name for name in names]).take(slice(0, 8))
    done = run(workload, CLUSTER, "fcfs", record=True)
    for job, tasks in workload.workflows.items():
        write_wfformat(done, job, tmp_path / "out.json")
        found = read(tmp_path / "out.json")
        assert (found.name, found.makespan) == (workload.label[job], done.end[job] / 1e6)
        assert len(found.workflow.nodes) == len(tasks)
        ids = workload.task_labels[job]
        edges = {(ids[before], ids[number]) for number, task in enumerate(tasks) for before in task.after}
        assert set(found.workflow.edges) == edges
        assert set(found.machines) == {"a", "b"}
        carried = sum(file.size for task in found.workflow.tasks.values() for file in task.output_files)
        assert carried == sum(sum(task.sends) for task in tasks)
        for number, label in enumerate(ids):
            task = found.workflow.tasks[label]
            node = task.machines[0].name
            lasts = tasks[number].estimate / 1e6 / (2 if node == "b" else 1)
            assert task.runtime == pytest.approx(lasts, abs=1e-6)


def test_wfcommons_analyses_what_was_simulated(read: Read, tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    workload = read_workload(shared_data("workflows/wfinstances/seismology-chameleon-100p-001.json"))
    write_wfformat(run(workload, CLUSTER, "fcfs", record=True), 0, tmp_path / "out.json")
    found = read(tmp_path / "out.json")
    assert len(found.roots()) == 100
    assert len(found.leaves()) == 1
    analyzer = tools.InstanceAnalyzer()
    analyzer.append_instance(found)
    found.workflow.write_json(tmp_path / "again.json")
    again = read_workload(tmp_path / "again.json")
    assert again.workflows[0] == read_workload(tmp_path / "out.json").workflows[0]


def test_wfcommons_reads_what_a_server_ran(read: Read, data: Path, tmp_path: Path) -> None:
    with Client(data=data) as client:
        job = Job("diamond")
        begin = job.add_task(Task.command("sleep", "0.2"))
        sides = [job.add_task(Task.command("sleep", "0.1"), after=[begin]) for _ in range(2)]
        job.add_task(Task.command("true"), after=sides)
        client.submit(job).result()
    with pytest.raises(SystemExit) as ended:
        main(["history", str(data), "--wfformat", str(tmp_path / "out.json")])
    assert not ended.value.code
    found = read(tmp_path / "out.json")
    assert set(found.workflow.edges) == {("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")}
    assert found.workflow.tasks["0"].runtime >= 0.2
    assert found.executed_at.year >= 2026
    assert found.makespan >= 0.3
    assert list(found.machines) == ["n"]
