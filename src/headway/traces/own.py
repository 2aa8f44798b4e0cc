"""Workflows with their terms: Headway's own file in JSON, which begins with `{"headway": "workflows"`.

```json
{
  "headway": "workflows",
  "jobs": [
    {
      "name": "a", "release": 0, "due": 100, "priority": 0, "rate": 1, "shape": "linear", "user": "ann",
      "tasks": [
        {"runtime": 5},
        {"runtime": 9.5, "cores": 2, "after": [0], "sends": [4096]}
      ]
    }
  ]
}
```

Times are in seconds. Only the tasks of a job and their run times must be there. A task is known by its place, and comes
after tasks that stand before it; `sends` has the bytes that each of these sends to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from headway.errors import InvalidInput
from headway.model.instant import NEVER, from_seconds, to_seconds
from headway.model.job import BYTES_MAX, SHAPES, Kind, PenaltyShape, TaskSpec
from headway.model.workload import Workload
from headway.traces.files import writing
from headway.traces.graphs import BYTES, CORES, TIME, ReadTerms, ReadWorkflow, is_cores, is_time
from headway.traces.parts import JSONFile
from headway.traces.swf import LARGEST

OWN_MARK: Final = "workflows"


class _Task(msgspec.Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    runtime: float
    cores: int = 1
    after: list[int] = []
    sends: list[int] = []


class _Job(msgspec.Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    tasks: list[_Task]
    name: str | int = ""
    release: float = 0.0
    due: float | None = None
    priority: float = 0.0
    rate: float = 1.0
    shape: PenaltyShape = PenaltyShape.LINEAR
    user: str = ""


class _Whole(msgspec.Struct, forbid_unknown_fields=True):
    headway: Literal["workflows"]
    jobs: list[msgspec.Raw]


def read_own(text: bytes, source: str) -> Iterator[ReadWorkflow]:
    """The workflows in a file.

    Args:
        text: its content.
        source: what errors call it.

    Raises:
        InvalidInput: something in it is wrong. The message names its place.
    """
    file = JSONFile(text, source)
    whole = file.decode(msgspec.json.Decoder(_Whole))
    if not whole.jobs:
        raise file.refuse("jobs", [], "one job or more")
    decoder = msgspec.json.Decoder(_Job)
    for number, raw in enumerate(whole.jobs):
        place = f"jobs[{number}]"
        job = file.decode(decoder, raw, place)
        for field, value, right, allowed in (
            ("release", job.release, is_time(job.release), TIME),
            ("due", job.due, job.due is None or 0 <= job.due <= LARGEST, f"{TIME}, or null"),
            ("priority", job.priority, math.isfinite(job.priority), "a finite number"),
            ("rate", job.rate, math.isfinite(job.rate) and job.rate >= 0, "a finite number, 0 or more"),
            ("tasks", len(job.tasks), bool(job.tasks), "one task or more"),
        ):
            if not right:
                raise file.refuse(f"{place}.{field}", value, allowed)
        terms = ReadTerms(
            from_seconds(job.release),
            NEVER if job.due is None else from_seconds(job.due),
            job.priority,
            job.rate,
            job.shape,
            job.user,
        )
        tasks = tuple(_task(file, f"{place}.tasks[{index}]", task, index) for index, task in enumerate(job.tasks))
        yield ReadWorkflow(str(job.name) if job.name != "" else str(number), (), tasks, terms)


def _task(file: JSONFile, place: str, task: _Task, number: int) -> TaskSpec:
    after = tuple(task.after)
    for field, value, right, allowed in (
        ("runtime", task.runtime, is_time(task.runtime), TIME),
        ("cores", task.cores, is_cores(task.cores), CORES),
        (
            "after",
            after,
            len(set(after)) == len(after) and all(0 <= before < number for before in after),
            "numbers of tasks before it, each once",
        ),
        ("sends", task.sends, len(task.sends) in (0, len(after)), "one amount for each of `after`, or none"),
        ("sends", task.sends, all(0 <= size <= BYTES_MAX for size in task.sends), BYTES),
    ):
        if not right:
            raise file.refuse(f"{place}.{field}", value, allowed)
    sends = tuple(task.sends)
    return TaskSpec(from_seconds(task.runtime), task.cores, after, sends if any(sends) else ())


def write_own(workload: Workload, path: str | Path) -> None:
    """Write workflows with their terms; gzipped if the name ends in .gz. Estimates are the run times.

    Raises:
        InvalidInput: a job is no workflow.
        HeadwayError: the file cannot be written.
    """
    for place, kind in enumerate(workload.kind.tolist()):
        if kind != Kind.WORKFLOW:
            label = workload.label[place]
            raise InvalidInput("kind", Kind(kind).name.lower(), "workflow", source=f"{path}, job {label}")
    with writing(Path(path)) as text:
        text.write(f'{{"headway": "{OWN_MARK}", "jobs": [\n')
        for place in range(len(workload)):
            text.write(msgspec.json.encode(_job(workload, place)).decode())
            text.write(",\n" if place + 1 < len(workload) else "\n")
        text.write("]}\n")


def _job(workload: Workload, place: int) -> _Job:
    due = int(workload.due[place])
    return _Job(
        [
            _Task(to_seconds(task.estimate), task.cores, list(task.after), list(task.sends))
            for task in workload.workflows[place]
        ],
        name=_plain(workload.label[place]),
        release=to_seconds(int(workload.release[place])),
        due=None if due >= NEVER else to_seconds(due),
        priority=float(workload.priority[place]),
        rate=float(workload.rate[place]),
        shape=SHAPES[int(workload.shape[place])],
        user=str(workload.user[place]),
    )


def _plain(label: Any) -> str | int:
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int) else str(value)
