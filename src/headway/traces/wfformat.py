"""Workflows of WfCommons: WfFormat 1.5, JSON with what a workflow consists of, and how it ran once.

Source: the schema of WfFormat 1.5 (Coleman et al., "WfCommons: a framework for enabling scientific workflow research
and development", Future Generation Computer Systems 128, 2022).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from headway.errors import InvalidInput, did_you_mean
from headway.traces.formats import not_readable
from headway.traces.graphs import BYTES, CORES, TIME, Graph, ReadWorkflow, bytes_of, is_cores, is_time

VERSIONS: Final = ("1.5", "1.6")
"""The versions that can be read; 1.6 only adds to 1.5."""

_SPECIFIED: Final = "workflow.specification.tasks"
_RAN: Final = "workflow.execution.tasks"
_FILES: Final = "workflow.specification.files"
_HINT_TASKS_MAX: Final = 10_000  # among more, to look for a similar id would take long
_BYTE: Final = re.compile(r" \(byte (\d+)\)$")
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
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


T = TypeVar("T")


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
    return _Reader(text, source).read(name)


class _Reader:
    """Reads one file."""

    def __init__(self, text: bytes, source: str) -> None:
        self._text = text
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
            task = self._decoded(decoder, raw, f"{_SPECIFIED}[{number}]")
            self._add(task, number, runs)
            named.append((task.parents, task.children))
            for which, name_of, into in (
                ("inputFiles", task.inputFiles, reads),
                ("outputFiles", task.outputFiles, writes),
            ):
                into.append(self._files(name_of, files, sizes, f"{_SPECIFIED}[{number}].{which}"))
        if not len(self._graph):
            raise self._refuse(_SPECIFIED, [], "one task or more")
        for number, (parents, children) in enumerate(named):
            self._link(number, parents, children)
        by_number = array("q", [0 if sizes is None else sizes[file] for file in files])
        self._send(reads, writes, by_number)

        def refuse(position: int, way: str) -> InvalidInput:
            return self._refuse(f"{_SPECIFIED}[{position}].parents", way, "tasks that do not wait for it")

        return self._graph.finish(name, refuse)

    def _refuse(self, field: str, value: object, allowed: str, hint: str = "") -> InvalidInput:
        return InvalidInput(field, value, allowed, source=self._source, hint=hint)

    def _decoded_whole(self) -> _Workflow:
        try:
            whole = msgspec.json.decode(self._text, type=_Versioned)
            if whole.schemaVersion not in VERSIONS:
                if whole.schemaVersion is None:
                    raise not_readable(Path(self._source), "JSON")
                raise self._refuse("schemaVersion", whole.schemaVersion, " or ".join(VERSIONS), _OLDER)
        except msgspec.ValidationError as error:
            raise not_readable(Path(self._source), "JSON") from error
        except msgspec.DecodeError as error:
            raise self._malformed(error) from error
        except UnicodeDecodeError as error:
            raise self._undecoded(error) from error
        except RecursionError as error:
            raise self._refuse("JSON", "something of many layers", "a workflow, which has few") from error
        return self._decoded(msgspec.json.Decoder(_Workflow), whole.workflow, "workflow")

    def _malformed(self, error: msgspec.DecodeError) -> InvalidInput:
        said = str(error)
        at = _BYTE.search(said)
        line = None if at is None else self._text.count(b"\n", 0, int(at[1])) + 1
        said = _BYTE.sub("", said).removeprefix("JSON is malformed: ")
        return InvalidInput("JSON", said, "well-formed JSON", source=self._source, line=line)

    def _decoded(self, decoder: msgspec.json.Decoder[T], raw: msgspec.Raw, place: str) -> T:
        """A part of the file as what it is to be.

        Raises:
            InvalidInput: it is something else.
        """
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError as error:
            said, within = _PLACE.fullmatch(str(error)).groups("")  # type: ignore[union-attr]  # it fits any line
            allowed = said[:1].lower() + said[1:].replace("`", "")
            raise self._refuse(place + within, _value_at(raw, within), allowed) from error
        except msgspec.DecodeError as error:
            raise self._malformed(error) from error
        except UnicodeDecodeError as error:
            raise self._undecoded(error, place) from error

    def _undecoded(self, error: UnicodeDecodeError, place: str = "JSON") -> InvalidInput:
        return self._refuse(place, error.object[:20], "text in utf-8")

    def _add(self, task: _Task, number: int, runs: Mapping[str, tuple[float, float]]) -> None:
        field = f"{_SPECIFIED}[{number}].id"
        if not task.id or task.id in self._graph.numbers:
            raise self._refuse(field, task.id, "an id that no other task has")
        if task.id not in runs:
            hint = "The run time of every task must be known, as runtimeInSeconds."
            raise self._refuse(field, task.id, f"a task that {_RAN} has, too", hint)
        self._graph.add(task.id, *runs[task.id])

    def _runs(self, raws: Sequence[msgspec.Raw]) -> dict[str, tuple[float, float]]:
        """The run time of each task, and its cores."""
        found: dict[str, tuple[float, float]] = {}
        decoder = msgspec.json.Decoder(_Run)
        for number, raw in enumerate(raws):
            place = f"{_RAN}[{number}]"
            run = self._decoded(decoder, raw, place)
            seconds, cores = run.runtimeInSeconds, 1.0 if run.coreCount is None else max(run.coreCount, 0)
            if run.id in found:
                raise self._refuse(f"{place}.id", run.id, "an id that no other task has")
            if seconds is None or not is_time(seconds):
                raise self._refuse(f"{place}.runtimeInSeconds", seconds, TIME)
            if not is_cores(-(-cores // 1)):
                raise self._refuse(f"{place}.coreCount", run.coreCount, CORES)
            found[run.id] = seconds, cores
        return found

    def _sizes(self, raws: Sequence[msgspec.Raw]) -> dict[str, int]:
        """The size of each file."""
        found: dict[str, int] = {}
        decoder = msgspec.json.Decoder(_File)
        for number, raw in enumerate(raws):
            place = f"{_FILES}[{number}]"
            file = self._decoded(decoder, raw, place)
            size = bytes_of(file.sizeInBytes)
            if file.id in found:
                raise self._refuse(f"{place}.id", file.id, "an id that no other file has")
            if size is None:
                raise self._refuse(f"{place}.sizeInBytes", file.sizeInBytes, BYTES)
            found[file.id] = size
        return found

    def _files(
        self, names: Sequence[str], files: dict[str, int], sizes: Mapping[str, int] | None, place: str
    ) -> array[int]:
        """The numbers of these files, each once; new files get the next ones."""
        for number, name in enumerate(names):
            if sizes is not None and name not in sizes:
                raise self._refuse(f"{place}[{number}]", name, f"the id of a file that {_FILES} has")
        return array("q", [files.setdefault(name, len(files)) for name in dict.fromkeys(names)])

    def _link(self, number: int, parents: Sequence[str], children: Sequence[str]) -> None:
        graph = self._graph
        for which, labels in (("parents", parents), ("children", children)):
            for index, label in enumerate(labels):
                other = graph.numbers.get(label)
                if other is None:
                    field = f"{_SPECIFIED}[{number}].{which}[{index}]"
                    hint = did_you_mean(label, graph.numbers) if len(graph) <= _HINT_TASKS_MAX else ""
                    raise self._refuse(field, label, "the id of a task", hint)
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


def _value_at(raw: msgspec.Raw, within: str) -> object:
    """The value at a place within a part of the file, for an error."""
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "something that cannot be shown"
    for key, index in _STEP.findall(within):
        value = value[int(index)] if index else value[key]
    return value
