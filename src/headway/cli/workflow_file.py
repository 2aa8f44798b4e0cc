"""Workflows of programs from files: WfFormat, which other tools write, and a small YAML for people."""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.client.job import Task
from headway.client.workflow import Workflow
from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.files import KEPT_SCHEME, Input, Output, flaw, scheme, upload_of
from headway.model.instant import to_seconds
from headway.model.job import COUNT_MAX, PenaltyShape
from headway.model.node import SLOT_COUNT_MAX as CORES_MAX
from headway.times import seconds_of, when_of
from headway.traces.graphs import FILE_TASKS_MAX, Graph
from headway.traces.parts import JSONFile, line_of
from headway.traces.wfformat import read_wfformat
from headway.wire import check_env

WORKFLOW_FILE_MAX: Final = 256 << 20
"""Bytes of a file that describes a workflow."""

NO_ZERO: Final = "text without a zero byte"

JOB_TERMS: Final = (
    "name",
    "due",
    "priority",
    "rate",
    "shape",
    "estimate",
    "retries",
    "time_limit",
    "memory_limit",
    "env",
)
TASK_TERMS: Final = ("command", "after", "inputs", "outputs", "slots", "estimate", "retries", "env", "cwd")

Upload = Callable[[str], Input]
"""Has the server keep a file that is here."""


@dataclass(slots=True)
class _DescribedTask:
    """A task as a file describes it, with what an error about it names.

    Attributes:
        place: of the task in the file.
        inputs, outputs: what it reads and writes: URLs by path; an empty URL: of another task, or for others.
        after: names of tasks.
        fields: place and line of what the file says of it, by the key of YAML.
    """

    name: str
    place: str
    line: int | None
    argv: list[str]
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    slots: int = 1
    seconds: float | None = None
    retries: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    fields: dict[str, tuple[str, int | None]] = field(default_factory=dict)


class FileFlow(Workflow):
    """A workflow that a file describes. It knows where in the file everything is, for what is refused later."""

    source = ""
    steps: tuple[_DescribedTask, ...] = ()
    lines: Mapping[str, int] = {}

    def located(self, refusal: HeadwayError, overridden: Collection[str] = ()) -> HeadwayError:
        """A refusal with the place in the file of what it is about; as it is, if it is about something else.

        Args:
            overridden: terms that do not come from the file.
        """
        message = str(refusal.args[0]) if refusal.args else ""
        found = _OF_A_TASK.search(message)
        if found is not None and int(found[2]) < len(self.steps):
            step = self.steps[int(found[2])]
            name = _NAMED_IN_FILES.get(found[3], found[3])
            place, line = step.fields.get(name, (f"{step.place}.{name}", step.line))
            return self._refused(place, line, message[found.end() :], refusal.hint)
        found = _OF_ALL.search(message)
        if found is not None and found[1] in self.lines and found[1] not in overridden:
            return self._refused(found[1], self.lines[found[1]], message[found.end() :], refusal.hint)
        return refusal

    def _refused(self, place: str, line: int | None, rest: str, hint: str) -> InvalidInput:
        where = self.source if line is None else f"{self.source}:{line}"
        return InvalidInput.saying(f"{where}: {place}{rest}", hint)


_OF_A_TASK: Final = re.compile(r"\b(plan|work\.commands)\[(\d+)\]\.(\w+)(?= |\[)")
_OF_ALL: Final = re.compile(r"^(?:job .*: )?(\w+)(?= is .*; allowed: )", re.DOTALL)
_NAMED_IN_FILES: Final = {"cores": "slots", "argv": "command"}
"""What files call something that has another name where it is checked."""


def read(path: Path, upload: Upload) -> FileFlow:
    """The workflow that a file describes; `.json` is WfFormat, everything else YAML.

    Files that no task writes are those of the folder of the file; they are sent to the server.

    Raises:
        HeadwayError: the file cannot be read, or something in it is wrong; the message names its place.
    """
    try:
        with path.open("rb") as file:
            text = file.read(WORKFLOW_FILE_MAX + 1)
    except OSError as error:
        raise HeadwayError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(text) > WORKFLOW_FILE_MAX:
        raise InvalidInput("file", f"{len(text)} bytes or more", f"at most {WORKFLOW_FILE_MAX} bytes", source=str(path))
    if path.name.lower().endswith(".json"):
        flow, steps = _of_wfformat(text, path)
    else:
        flow, steps = _of_yaml(text, path)
    _add(flow, steps, path, upload)
    return flow


def _add(flow: FileFlow, steps: Sequence[_DescribedTask], path: Path, upload: Upload) -> None:
    """Add the tasks, each after those that it waits for."""
    source = str(path)
    known = {step.name for step in steps}
    _check_apart(steps, source)
    given = _KeptFiles(steps, source)
    graph = Graph(source)
    for step in steps:
        graph.add(step.name, 0)
    for number, step in enumerate(steps):
        for before in step.after:
            if before not in known:
                hint = did_you_mean(before, list(known)) if len(known) < 10_000 else ""
                allowed = "the name of a task"
                raise InvalidInput(f"{step.place}.after", before, allowed, source=source, line=step.line, hint=hint)
            graph.link(graph.numbers[before], number)
        for file, url in step.inputs.items():
            if (origin := given.to(step, file, url)) is not None:
                graph.link(graph.numbers[origin[0].name], number)

    def circle(position: int, way: str) -> InvalidInput:
        step = steps[position]
        allowed = "tasks that do not wait for it"
        return InvalidInput(f"{step.place}.after", way, allowed, source=source, line=step.line)

    order = graph.finish(flow.name, circle).labels
    by_name, made, sent = {step.name: step for step in steps}, dict[str, Task](), dict[str, Input]()
    flow.source, flow.steps = source, tuple(by_name[name] for name in order)
    for name in order:
        step = by_name[name]
        inputs: dict[str, Any] = {}
        for file, url in step.inputs.items():
            if (origin := given.to(step, file, url)) is not None:
                inputs[file] = made[origin[0].name].file(origin[1])
            elif url:
                inputs[file] = url if scheme(url) else path.parent / url
            else:
                inputs[file] = sent[file] if file in sent else sent.setdefault(file, _sent(step, file, path, upload))
        made[name] = flow.command(
            step.argv,
            inputs=inputs,
            outputs={file: url or _kept(file) for file, url in step.outputs.items()},
            after=[made[before] for before in step.after],
            slots=step.slots,
            estimate=step.seconds,
            retries=step.retries,
            name=name,
            env=step.env,
            cwd=step.cwd or ("" if step.inputs or step.outputs else path.parent),
        )


class _KeptFiles:
    """The files that tasks give to the server: who gives which, by its path and by its `headway:NAME`.

    Raises:
        InvalidInput: two tasks list the same path.
    """

    def __init__(self, steps: Sequence[_DescribedTask], source: str) -> None:
        self._source = source
        self._by: dict[str, list[tuple[_DescribedTask, str]]] = {}
        listed: dict[str, _DescribedTask] = {}
        for step in steps:
            for file, url in step.outputs.items():
                if not url and (other := listed.setdefault(file, step)) is not step:
                    allowed = f"a file that no other task writes; {other.name} does"
                    raise InvalidInput(f"{step.place}.outputs", file, allowed, source=source, line=step.line)
                if not url or url.startswith(KEPT_SCHEME):
                    for key in (file, url or _kept(file)):
                        self._by.setdefault(key, []).append((step, file))

    def to(self, step: _DescribedTask, file: str, url: str) -> tuple[_DescribedTask, str] | None:
        """The task that gives this input, and the path of the file there; None: it comes from elsewhere.

        Raises:
            InvalidInput: several tasks do, or none does though the server is to have it of one.
        """
        if url and not _is_given(url):
            return None
        wanted = url or file
        # What a task puts back under the name of its input is no circle.
        by = [(giver, path) for giver, path in self._by.get(wanted, ()) if giver is not step or not giver.outputs[path]]
        if len(by) == 1 or not (by or url):
            return by[0] if by else None
        if by:
            names = ", ".join(giver.name for giver, _ in by[:_NAMED])
            allowed, hint = f"a file that one other task gives; these give it: {names}", ""
        else:
            allowed = f"{KEPT_SCHEME}NAME as another task puts it, or {KEPT_SCHEME}SHA256"
            hint = "Of another job, `headway result ID` prints where the server keeps its files."
        line = step.fields.get("inputs", ("", step.line))[1]
        raise InvalidInput(f"{step.place}.inputs", wanted, allowed, source=self._source, line=line, hint=hint)


def _kept(file: str) -> str:
    """The URL under which the server keeps a file that is only listed."""
    return KEPT_SCHEME + os.path.basename(file)


def _is_given(url: str) -> bool:
    """Whether a URL is the name that a task gives a file, and not what the server calls it."""
    return url.startswith(KEPT_SCHEME) and upload_of(url) is None and flaw(url, output=True) is None


_NAMED: Final = 4


def _check_apart(steps: Sequence[_DescribedTask], source: str) -> None:
    """Check that no two outputs are put in the same place."""
    taken: dict[str, str] = {}
    for step in steps:
        for file, url in step.outputs.items():
            there = f"{step.place}.outputs.{file}"
            if url and not url.startswith(KEPT_SCHEME) and "{i}" not in url and taken.setdefault(url, there) != there:
                allowed = f"a place where no other output is put; {taken[url]} is"
                line = step.fields.get("outputs", ("", step.line))[1]
                raise InvalidInput(there, url, allowed, source=source, line=line)


def _sent(step: _DescribedTask, file: str, path: Path, upload: Upload) -> Input:
    """A file that no task writes, sent to the server."""
    here = path.parent / file
    if not here.is_file():
        allowed = f"a file that another task writes, or one of the folder {path.parent}"
        raise InvalidInput(f"{step.place}.inputs", file, allowed, source=str(path), line=step.line)
    return upload(str(here))


# WfFormat

_RUNS: Final = "workflow.execution.tasks"
_LOCATED_MAX: Final = 100
"""In files with more tasks, to look up the line of each would take long; errors name the place all the same."""


class _Command(msgspec.Struct, gc=False):
    program: str = ""
    arguments: list[str] = []


class _Execution(msgspec.Struct, gc=False):
    id: str
    command: _Command | None = None


class _Specified(msgspec.Struct, gc=False):
    id: str
    inputFiles: list[str] = []
    outputFiles: list[str] = []


class _Runs(msgspec.Struct, gc=False):
    tasks: list[_Execution]


class _Tasks(msgspec.Struct, gc=False):
    tasks: list[_Specified]


class _Both(msgspec.Struct, gc=False):
    specification: _Tasks
    execution: _Runs


class _Whole(msgspec.Struct, gc=False):
    workflow: _Both
    name: str = ""


def _of_wfformat(text: bytes, path: Path) -> tuple[FileFlow, list[_DescribedTask]]:
    """A workflow of WfFormat: its commands, the files that tasks exchange by name, and estimates from its run times."""
    source = str(path)
    graph = read_wfformat(text, source, path.name.partition(".")[0])
    file = JSONFile(text, source)
    whole = file.decode(msgspec.json.Decoder(_Whole))
    numbers = {label: number for number, label in enumerate(graph.labels)}
    runs = {run.id: (place, run.command) for place, run in enumerate(whole.workflow.execution.tasks)}
    steps = []
    for place, task in enumerate(whole.workflow.specification.tasks):
        ran, command = runs[task.id]
        if command is None or not command.program:
            hint = "Only workflows whose tasks have commands can be run; `headway simulate` needs none."
            field_ = f"workflow.execution.tasks[{ran}].command.program"
            raise file.refuse(field_, "" if command is None else command.program, "a program", hint)
        for argument, words in enumerate((command.program, *command.arguments)):
            if "\0" in words:
                part = f"arguments[{argument - 1}]" if argument else "program"
                raise file.refuse(f"{_RUNS}[{ran}].command.{part}", words, NO_ZERO)
        spec = graph.tasks[numbers[task.id]]
        for which, names in (("inputFiles", task.inputFiles), ("outputFiles", task.outputFiles)):
            for name in names:
                there = f"workflow.specification.tasks[{place}].{which}"
                _check_path(name, there, source, line_of(text, there))
        steps.append(
            _DescribedTask(
                task.id,
                f"workflow.specification.tasks[{place}]",
                line_of(text, f"workflow.specification.tasks[{place}]") if len(runs) <= _LOCATED_MAX else None,
                [command.program, *command.arguments],
                dict.fromkeys(task.inputFiles, ""),
                dict.fromkeys(task.outputFiles, ""),
                [graph.labels[before] for before in spec.after],
                spec.cores,
                to_seconds(spec.estimate),
            )
        )
        if len(runs) <= _LOCATED_MAX:
            there = f"{_RUNS}[{ran}]"
            for name, key in (("slots", "coreCount"), ("estimate", "runtimeInSeconds"), ("command", "command")):
                steps[-1].fields[name] = f"{there}.{key}", line_of(text, f"{there}.{key}")
    return FileFlow(whole.name or graph.name), steps


# YAML


class _YamlPart:
    """A part of a file in YAML, with its place for errors.

    Args:
        node: as PyYAML composes it.
        place: such as `tasks.sort.after`.
        source: the file.
    """

    def __init__(self, node: Any, place: str, source: str) -> None:
        self.node = node
        self.place = place
        self.source = source

    @property
    def line(self) -> int:
        """Its line, counted from 1."""
        return int(self.node.start_mark.line) + 1

    def refuse(self, allowed: str, value: object = None, hint: str = "") -> InvalidInput:
        """The error for it."""
        given = self._shown() if value is None else value
        return InvalidInput(self.place or "file", given, allowed, source=self.source, line=self.line, hint=hint)

    def _shown(self) -> object:
        kind = type(self.node).__name__
        return self.node.value if kind == "ScalarNode" else {"MappingNode": "a mapping"}.get(kind, "a list")

    def fields(self, known: Sequence[str] = ()) -> dict[str, _YamlPart]:
        """The values of a mapping by their keys, each known and given once."""
        if type(self.node).__name__ != "MappingNode":
            raise self.refuse("a mapping: KEY: VALUE")
        found: dict[str, _YamlPart] = {}
        for key, value in self.node.value:
            name = key.value if type(key).__name__ == "ScalarNode" else ""
            there = _YamlPart(value, f"{self.place}.{name}".removeprefix("."), self.source)
            if "\0" in name:
                raise _YamlPart(key, self.place or "file", self.source).refuse(NO_ZERO, name)
            if not name or name in found or (known and name not in known):
                at = _YamlPart(key, self.place or "file", self.source)
                allowed = f"{', '.join(known)}, each once" if known else "a name that is not empty, each once"
                raise at.refuse(allowed, name, did_you_mean(name, known) if known else "")
            found[name] = there
        return found

    def items(self) -> Iterator[_YamlPart]:
        """The values of a list; of a text only itself."""
        kind = type(self.node).__name__
        if kind == "ScalarNode":
            yield self
        elif kind == "SequenceNode":
            for number, value in enumerate(self.node.value):
                yield _YamlPart(value, f"{self.place}[{number}]", self.source)
        else:
            raise self.refuse("a list, or one text")

    def text(self) -> str:
        """A text; numbers are texts as they are written."""
        if type(self.node).__name__ != "ScalarNode":
            raise self.refuse("a text")
        if "\0" in self.node.value:
            raise self.refuse(NO_ZERO)
        return str(self.node.value)

    def whole(self, least: int, most: int = COUNT_MAX) -> int:
        """A whole number."""
        try:
            number = int(self.text())
        except ValueError:
            number = -1
        if not least <= number <= most:
            raise self.refuse(f"a whole number, {least} to {most}")
        return number

    def number(self, least: float = -math.inf) -> float:
        """A finite number."""
        try:
            number = float(self.text())
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < least:
            raise self.refuse("a finite number" if least == -math.inf else f"a finite number, {least:g} or more")
        return number

    def seconds(self, *, positive: bool = False) -> float:
        """A span such as 90s."""
        text = self.text()
        try:
            found = seconds_of(float(text) if text.replace(".", "", 1).isdigit() else text, self.place)
        except InvalidInput as error:
            raise self.refuse(error.allowed) from None
        if positive and not found:
            raise self.refuse("a duration of more than 0")
        return found


def _of_yaml(text: bytes, path: Path) -> tuple[FileFlow, list[_DescribedTask]]:
    """A workflow in YAML: see docs/reference/workflow-files.md."""
    import yaml  # only here, and not small

    source = str(path)
    try:
        whole = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error)
        line = None if mark is None else mark.line + 1
        raise InvalidInput("YAML", said, "well-formed YAML", source=source, line=line) from error
    except RecursionError as error:
        raise InvalidInput("YAML", "something of many layers", "a workflow, which has few", source=source) from error
    if whole is None:
        raise InvalidInput("tasks", "missing", "one task or more", source=source)
    fields = _YamlPart(whole, "", source).fields((*JOB_TERMS, "tasks"))
    if "tasks" not in fields:
        raise InvalidInput("tasks", "missing", "one task or more", source=source)
    tasks = fields.pop("tasks")
    steps = [_step(name, task) for name, task in tasks.fields().items()]
    if not steps:
        raise tasks.refuse("one task or more")
    if len(steps) > FILE_TASKS_MAX:
        raise tasks.refuse(f"at most {FILE_TASKS_MAX:,} tasks", len(steps))
    flow = FileFlow(**_terms(fields, path))
    flow.lines = {name: node.line for name, node in fields.items()}
    return flow, steps


def _terms(fields: Mapping[str, _YamlPart], path: Path) -> dict[str, Any]:
    """The terms of the workflow as `Workflow` has them."""
    from headway.cli.show import bytes_in

    found: dict[str, Any] = {"name": path.name.partition(".")[0]}
    for name, node in fields.items():
        match name:
            case "estimate" | "time_limit":
                found[name] = node.seconds(positive=name == "time_limit")
            case "retries":
                found[name] = node.whole(0)
            case "priority":
                found[name] = node.number()
            case "rate":
                found[name] = node.number(0)
            case "env":
                found[name] = _env(node)
            case "shape":
                if node.text() not in (words := [shape.value for shape in PenaltyShape]):
                    raise node.refuse(", ".join(words))
                found[name] = node.text()
            case "due" | "memory_limit":
                try:
                    found[name] = (
                        when_of(node.text(), name, time.time()) if name == "due" else bytes_in(node.text(), name)
                    )
                except InvalidInput as error:
                    raise node.refuse(error.allowed) from None
            case _:
                found[name] = node.text()
    return found


def _step(name: str, node: _YamlPart) -> _DescribedTask:
    """A task."""
    fields = node.fields(TASK_TERMS)
    if "command" not in fields:
        raise InvalidInput(
            f"{node.place}.command", "missing", "a program and its arguments", source=node.source, line=node.line
        )
    command = fields["command"]
    try:
        argv = (
            [item.text() for item in command.items()]
            if type(command.node).__name__ == "SequenceNode"
            else shlex.split(command.text())
        )
    except ValueError as error:
        raise command.refuse(f"a program and its arguments ({error})") from None
    if not argv or not argv[0]:
        raise command.refuse("a program and its arguments")
    step = _DescribedTask(name, node.place, node.line, argv)
    step.fields = {key: (value.place, value.line) for key, value in fields.items()}
    for key, value in fields.items():
        match key:
            case "after":
                step.after = [item.text() for item in value.items()]
            case "inputs":
                step.inputs = _files(value, Input)
            case "outputs":
                step.outputs = _files(value, Output)
            case "slots":
                step.slots = value.whole(1, CORES_MAX)
            case "estimate":
                step.seconds = value.seconds()
            case "retries":
                step.retries = value.whole(0)
            case "env":
                step.env = _env(value)
            case "cwd":
                step.cwd = value.text()
    return step


def _env(node: _YamlPart) -> dict[str, str]:
    found = {name: value.text() for name, value in node.fields().items()}
    for name, value in node.fields().items():
        try:
            check_env({name: found[name]}, value.place)
        except InvalidInput as error:
            raise value.refuse(error.allowed, name) from None
    return found


def _files(node: _YamlPart, kind: type[Input | Output]) -> dict[str, str]:
    """Files by path: with URLs if it is a mapping, else with empty ones."""
    if type(node.node).__name__ == "MappingNode":
        found = {}
        for path, url in node.fields().items():
            _check_path(path, url.place, node.source, url.line)
            try:
                if kind is Output or not _is_given(url.text()):
                    kind(url.text())
            except InvalidInput as error:
                raise url.refuse(error.allowed) from None
            found[path] = url.text()
        return found
    paths = {}
    for item in node.items():
        _check_path(item.text(), item.place, node.source, item.line)
        paths[item.text()] = ""
    return paths


def _check_path(path: str, place: str, source: str, line: int | None) -> None:
    if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        allowed = "a path within the task's folder, such as data/one.csv"
        raise InvalidInput(place, path, allowed, source=source, line=line)
