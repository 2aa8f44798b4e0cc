"""Workflows of WfCommons: WfFormat 1.5, JSON with what a workflow consists of, and how it ran once.

Source: the schema of WfFormat 1.5 (Coleman et al., "WfCommons: a framework for enabling scientific workflow research
and development", Future Generation Computer Systems 128, 2022).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.errors import InvalidInput, did_you_mean
from headway.traces.formats import not_readable
from headway.traces.graphs import BYTES, CORES, TIME, Graph, ReadWorkflow, bytes_of, is_cores, is_time
from headway.traces.parts import JSONFile

VERSIONS: Final = ("1.5", "1.6")
"""The versions that can be read; 1.6 only adds to 1.5."""

_SPECIFIED: Final = "workflow.specification.tasks"
_RAN: Final = "workflow.execution.tasks"
_FILES: Final = "workflow.specification.files"
_HINT_TASKS_MAX: Final = 10_000  # among more, to look for a similar id would take long
_OLDER: Final = (
    "WfCommons has a program that changes older files: wfcommons-migrate-instance.py in its repository WfFormat."
)

# Only what is needed; tasks stay bytes until their turn, so that a large file is never there as objects.


class _Versioned(msgspec.Struct, gc=False):
    schemaVersion: Any = None
    workflow: msgspec.Raw = msgspec.Raw(b"null")


class _Specification(msgspec.Struct, gc=False):
    tasks: list[msgspec.Raw]
    files: list[msgspec.Raw] | None = None


class _Execution(msgspec.Struct, gc=False):
    tasks: list[msgspec.Raw]


class _Workflow(msgspec.Struct, gc=False):
    specification: _Specification
    execution: _Execution | None = None


class _File(msgspec.Struct, gc=False):
    id: str
    sizeInBytes: float | int


class _Task(msgspec.Struct, gc=False):
    id: str
    parents: list[str]
    children: list[str] = []
    inputFiles: list[str] = []
    outputFiles: list[str] = []


class _Run(msgspec.Struct, gc=False):
    id: str
    runtimeInSeconds: float | None = None
    coreCount: float | None = None


def read_wfformat(text: bytes, source: str, name: str) -> ReadWorkflow:
    """The workflow in a file of WfFormat.

    - A task is labelled by its `id`. Its run time is `runtimeInSeconds` of its execution, whatever machine it ran on:
      the clock that files tell of machines is that of a moment, and differs by a factor of two between equal ones.
    - Its cores are `coreCount`, parts of a core counted as a whole one, or else 1.
    - It waits for its `parents`, and for those tasks that have it among their `children`.
    - A parent sends its child the files that it writes and the child reads.

    Args:
        text: the content of the file.
        source: what errors call the file.
        name: of the workflow.

    Raises:
        InvalidInput: something in it is wrong, or tasks wait for each other in a circle. The message names its place.
        NotReadable: it is other JSON.
    """
    return _WfFormatReader(text, source).read(name)


class _WfFormatReader:
    """Reads one file."""

    def __init__(self, text: bytes, source: str) -> None:
        self._file = JSONFile(text, source)
        self._source = source
        self._graph = Graph(source)

    def read(self, name: str) -> ReadWorkflow:
        """The workflow."""
        workflow = self._decoded_whole()
        specification = workflow.specification
        runs = self._runs([] if workflow.execution is None else workflow.execution.tasks)
        sizes = None if specification.files is None else self._sizes(specification.files)
        files: dict[str, int] = {}
        reads: list[array[int]] = []
        writes: list[array[int]] = []
        named: list[tuple[list[str], list[str]]] = []
        decoder = msgspec.json.Decoder(_Task)
        for number, raw in enumerate(specification.tasks):
            task = self._file.decode(decoder, raw, f"{_SPECIFIED}[{number}]")
            self._add(task, number, runs)
            named.append((task.parents, task.children))
            for which, name_of, into in (
                ("inputFiles", task.inputFiles, reads),
                ("outputFiles", task.outputFiles, writes),
            ):
                into.append(self._files(name_of, files, sizes, f"{_SPECIFIED}[{number}].{which}"))
        if not len(self._graph):
            raise self._file.refuse(_SPECIFIED, [], "one task or more")
        for number, (parents, children) in enumerate(named):
            self._link(number, parents, children)
        by_number = array("q", [0 if sizes is None else sizes[file] for file in files])
        self._send(reads, writes, by_number)

        def refuse(position: int, way: str) -> InvalidInput:
            return self._file.refuse(f"{_SPECIFIED}[{position}].parents", way, "tasks that do not wait for it")

        return self._graph.finish(name, refuse)

    def _decoded_whole(self) -> _Workflow:
        whole = self._file.decode(msgspec.json.Decoder(_Versioned))
        if whole.schemaVersion is None:
            raise not_readable(Path(self._source), "JSON")
        if whole.schemaVersion not in VERSIONS:
            raise self._file.refuse("schemaVersion", whole.schemaVersion, " or ".join(VERSIONS), _OLDER)
        return self._file.decode(msgspec.json.Decoder(_Workflow), whole.workflow, "workflow")

    def _add(self, task: _Task, number: int, runs: Mapping[str, tuple[float, float]]) -> None:
        field = f"{_SPECIFIED}[{number}].id"
        if not task.id or task.id in self._graph.numbers:
            raise self._file.refuse(field, task.id, "an id that no other task has")
        if task.id not in runs:
            hint = "The run time of every task must be known, as runtimeInSeconds."
            raise self._file.refuse(field, task.id, f"a task that {_RAN} has, too", hint)
        self._graph.add(task.id, *runs[task.id])

    def _runs(self, raws: Sequence[msgspec.Raw]) -> dict[str, tuple[float, float]]:
        """The run time of each task, and its cores."""
        found: dict[str, tuple[float, float]] = {}
        decoder = msgspec.json.Decoder(_Run)
        for number, raw in enumerate(raws):
            place = f"{_RAN}[{number}]"
            run = self._file.decode(decoder, raw, place)
            seconds, cores = run.runtimeInSeconds, 1.0 if run.coreCount is None else max(run.coreCount, 0)
            if run.id in found:
                raise self._file.refuse(f"{place}.id", run.id, "an id that no other task has")
            if seconds is None or not is_time(seconds):
                raise self._file.refuse(f"{place}.runtimeInSeconds", seconds, TIME)
            if not is_cores(-(-cores // 1)):
                raise self._file.refuse(f"{place}.coreCount", run.coreCount, CORES)
            found[run.id] = seconds, cores
        return found

    def _sizes(self, raws: Sequence[msgspec.Raw]) -> dict[str, int]:
        """The size of each file."""
        found: dict[str, int] = {}
        decoder = msgspec.json.Decoder(_File)
        for number, raw in enumerate(raws):
            place = f"{_FILES}[{number}]"
            file = self._file.decode(decoder, raw, place)
            size = bytes_of(file.sizeInBytes)
            if file.id in found:
                raise self._file.refuse(f"{place}.id", file.id, "an id that no other file has")
            if size is None:
                raise self._file.refuse(f"{place}.sizeInBytes", file.sizeInBytes, BYTES)
            found[file.id] = size
        return found

    def _files(
        self, names: Sequence[str], files: dict[str, int], sizes: Mapping[str, int] | None, place: str
    ) -> array[int]:
        """The numbers of these files, each once; new files get the next ones."""
        for number, name in enumerate(names):
            if sizes is not None and name not in sizes:
                raise self._file.refuse(f"{place}[{number}]", name, f"the id of a file that {_FILES} has")
        return array("q", [files.setdefault(name, len(files)) for name in dict.fromkeys(names)])

    def _link(self, number: int, parents: Sequence[str], children: Sequence[str]) -> None:
        graph = self._graph
        for which, labels in (("parents", parents), ("children", children)):
            for index, label in enumerate(labels):
                other = graph.numbers.get(label)
                if other is None:
                    field = f"{_SPECIFIED}[{number}].{which}[{index}]"
                    hint = did_you_mean(label, graph.numbers) if len(graph) <= _HINT_TASKS_MAX else ""
                    raise self._file.refuse(field, label, "the id of a task", hint)
                graph.link(*((other, number) if which == "parents" else (number, other)))

    def _send(self, reads: Sequence[array[int]], writes: Sequence[array[int]], sizes: Sequence[int]) -> None:
        """What parents write and their children read is sent."""
        written: dict[int, frozenset[int]] = {}  # by parent, as long as it is needed again
        for child, files in enumerate(reads):
            read = frozenset(files)
            for parent in self._graph.parents(child) if read else ():
                if parent not in written:
                    written[parent] = frozenset(writes[parent])
                self._graph.link(parent, child, sum([sizes[file] for file in read & written[parent]]))
