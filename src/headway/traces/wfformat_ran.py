"""What ran of a workflow, as WfFormat 1.5: so that tools of WfCommons read it, and `headway simulate` again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from headway import __version__
from headway.errors import InvalidInput
from headway.model.instant import SECOND, Instant, to_seconds
from headway.model.job import TaskSpec
from headway.model.node import NodeSpec
from headway.model.schedule import NOT_YET, Schedule, TaskRun, task_runs
from headway.traces.files import writing

WFFORMAT_VERSION: Final = "1.5"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_NOT_IN_IDS: Final = re.compile(r"[^0-9a-zA-Z._-]")

Written = dict[str, Any]


def write_wfformat(schedule: Schedule, job: int, path: str | Path) -> None:
    """Write a workflow and how it ran; gzipped if the name ends in .gz.

    - An edge that carries bytes is a file, which the one task writes and the other reads.
    - The run time of a task is that from its start to its end, on the node that is named, with what it waited there for
      its inputs; of a task that moved with its work, in all places together. A task that failed or did not run
      has its estimate, but no point in time and no machine; the description says how many there are.
    - Points in time are on the clock of the schedule, whose zero is written as 1970. The makespan counts from the
      release.
    - Ids have only letters, digits and `._-`, as the format wants; a task keeps its label as its name.

    Args:
        job: the position of the workflow in the schedule.

    Raises:
        InvalidInput: the job is no workflow.
        HeadwayError: the file cannot be written, or it was not recorded what ran where.
    """
    written = msgspec.json.encode(instance(schedule, job))
    with writing(Path(path)) as text:
        text.write(msgspec.json.format(written, indent=1).decode())
        text.write("\n")


def instance(schedule: Schedule, job: int) -> Written:
    """What `write_wfformat` writes, as objects of JSON.

    Raises:
        InvalidInput: the job is no workflow.
        HeadwayError: it was not recorded what ran where.
    """
    tasks = schedule.workflows.get(job)
    label = str(schedule.label[job])
    if tasks is None:
        raise InvalidInput("job", label, "a workflow")
    labels = [schedule.task_label(job, task) for task in range(len(tasks))]
    ids = list(unique_ids(labels))
    runs = task_runs(schedule, job)
    ended = int(schedule.end[job])
    until = schedule.until if ended == NOT_YET else ended
    release = int(schedule.release[job])
    execution: Written = {
        "makespanInSeconds": to_seconds(max(0, until - release)),
        "executedAt": _at(min([run.start for run in runs], default=release)),
        "tasks": list(_executed(runs, tasks, ids)),
    }
    if runs:
        execution["machines"] = _machines(runs, schedule)
    never = len(tasks) - len({run.task for run in runs})
    aside = f"; {never} of {len(tasks)} tasks did not succeed: their run times are estimates" if never else ""
    return {
        "name": label or "workflow",
        "description": f"What Headway {__version__} ran{aside}",
        "createdAt": _at(until),
        "schemaVersion": WFFORMAT_VERSION,
        "runtimeSystem": {"name": "Headway", "version": __version__},
        "workflow": {"specification": _specification(tasks, labels, ids), "execution": execution},
    }


def unique_ids(labels: Iterable[str]) -> Iterator[str]:
    """Ids that the format allows, in place of labels; of equal ones the second gets a 2 at its end, and so on.

    >>> list(unique_ids(["a b", "a_b", "", "c.1"]))
    ['a_b', 'a_b-2', '_', 'c.1']
    """
    taken: dict[str, int] = {}
    for label in labels:
        plain = _NOT_IN_IDS.sub("_", label) or "_"
        found = plain
        while found in taken:
            taken[plain] += 1
            found = f"{plain}-{taken[plain]}"
        taken[found] = 1
        yield found


def _specification(tasks: Sequence[TaskSpec], labels: Sequence[str], ids: Sequence[str]) -> Written:
    """Tasks, what waits for what, and a file for each edge that carries bytes."""
    children: list[list[str]] = [[] for _ in tasks]
    reads: list[list[str]] = [[] for _ in tasks]
    writes: list[list[str]] = [[] for _ in tasks]
    edges = [
        (parent, number, sent)
        for number, task in enumerate(tasks)
        for parent, sent in zip(task.after, task.sends or (0,) * len(task.after), strict=True)
    ]
    carrying = [edge for edge in edges if edge[2]]
    names = list(unique_ids(f"{ids[parent]}.to.{ids[child]}" for parent, child, _ in carrying))
    for parent, child, _ in edges:
        children[parent].append(ids[child])
    for name, (parent, child, _) in zip(names, carrying, strict=True):
        writes[parent].append(name)
        reads[child].append(name)
    return {
        "tasks": [
            {
                "name": labels[number] or ids[number],
                "id": ids[number],
                "parents": [ids[parent] for parent in task.after],
                "children": children[number],
                "inputFiles": reads[number],
                "outputFiles": writes[number],
            }
            for number, task in enumerate(tasks)
        ],
        "files": [{"id": name, "sizeInBytes": sent} for name, (_, _, sent) in zip(names, carrying, strict=True)],
    }


def _executed(runs: Sequence[TaskRun], tasks: Sequence[TaskSpec], ids: Sequence[str]) -> Iterator[Written]:
    """The tasks in the order of their numbers: those that succeeded, and the others with their estimates."""
    by_task: dict[int, list[TaskRun]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    for number, task in enumerate(tasks):
        parts = by_task.get(number)
        if parts is None:
            yield {"id": ids[number], "runtimeInSeconds": to_seconds(task.estimate), "coreCount": task.cores}
            continue
        yield {
            "id": ids[number],
            "runtimeInSeconds": to_seconds(sum(part.end - part.start for part in parts)),
            "coreCount": task.cores,
            "executedAt": _at(parts[0].start),
            "machines": list(dict.fromkeys(node for part in parts for node in part.nodes)),
        }


def _machines(runs: Sequence[TaskRun], schedule: Schedule) -> list[Written]:
    """The nodes on which something ran, in the order of the cluster."""
    used = {node for run in runs for node in run.nodes}
    return [_machine(spec) for spec, _ in schedule.nodes if spec.name in used]


def _machine(spec: NodeSpec) -> Written:
    return {"nodeName": spec.name, "cpu": {"coreCount": spec.cores or spec.slots}}


def _at(instant: Instant) -> str:
    """A point in time as the format has it."""
    if instant // SECOND >= (_LATEST - _EPOCH).total_seconds():
        return _LATEST.isoformat()
    return (_EPOCH + timedelta(microseconds=instant)).isoformat()
