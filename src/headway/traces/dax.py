"""Workflows of Pegasus: DAX, XML with `<job>`s, the files that each `<uses>`, and `<child>`s with their `<parent>`s.

The file is read piece by piece, and never as a tree. What it does not need is skipped. It may not declare entities, and
nothing outside the file is ever read.

Source: the schemas 2.1 to 3.6 of DAX, Pegasus WMS (Deelman et al., "Pegasus, a workflow management system for science
automation", Future Generation Computer Systems 46, 2015).
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final
from xml.parsers import expat

from headway.errors import InvalidInput, did_you_mean
from headway.traces.formats import not_readable
from headway.traces.graphs import BYTES, CORES, EDGES_MAX, TIME, Graph, ReadWorkflow, bytes_of, is_cores, is_time

_CHUNK: Final = 1 << 16
_JOBS: Final = ("job", "dax", "dag")
_PROFILES: Final = ("runtime", "cores")
_PROFILE_MAX: Final = 100  # characters of a number
_LINKS: Final = ("input", "output", "inout", "none", "checkpoint")
_UNTOLD: Final = -1
_HINT_JOBS_MAX: Final = 10_000  # among more, to look for a similar id would take long

Attributes = dict[str, str]


def read_dax(file: BinaryIO, source: str, name: str) -> ReadWorkflow:
    """The workflow in a DAX file.

    - A task is a job, labelled by its `id`. Its run time is the attribute `runtime`, or else the profile `runtime`, in
      seconds; its cores are the profile `cores`, or else 1.
    - A parent sends its child the files that are an output of the parent and an input of the child, each as large as
      the parent says, or else the child.

    Args:
        source: what errors call the file.
        name: of the workflow.

    Raises:
        InvalidInput: something in it is wrong, or jobs wait for each other in a circle. The message names the line.
        NotReadable: it is other XML.
    """
    return _DaxReader(source).read(file, name)


class _DaxReader:
    """Takes elements as they begin and end."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._graph = Graph(source)
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._has_begun = False
        self._job: Attributes | None = None
        self._profile = self._text = ""
        self._child = ""
        self._files: dict[str, int] = {}
        self._writes: list[dict[int, int]] = []  # by job: the size of each file; _UNTOLD: it is not told
        self._reads: list[dict[int, int]] = []
        self._early: list[tuple[str, str, int]] = []  # parent, child and line, where a job comes later in the file
        self._lines: dict[int, int] = {}

    def read(self, file: BinaryIO, name: str) -> ReadWorkflow:
        """The workflow, once the file is at its end."""
        try:
            while chunk := file.read(_CHUNK):
                self._parser.Parse(chunk, False)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            said = expat.ErrorString(error.code)
            if not self._has_begun:
                raise not_readable(Path(self._source), "XML or HTML", f"Line {error.lineno}: {said}.") from error
            raise InvalidInput("XML", said, "well-formed XML", source=self._source, line=error.lineno) from error
        except (LookupError, ValueError) as error:  # of an encoding that Python does not have, or not for XML
            raise self._refuse("encoding", str(error), "one of one byte a character, UTF-8 or UTF-16") from error
        if not len(self._graph):
            raise InvalidInput("number of jobs", 0, "1 or more", source=self._source)
        for parent, child, line in self._early:
            self._link(parent, child, line)
        self._send()

        def refuse(position: int, way: str) -> InvalidInput:
            field, line = f"parents of job {self._graph.label(position)}", self._lines.get(position)
            return InvalidInput(field, way, "jobs that do not wait for it", source=self._source, line=line)

        return self._graph.finish(name, refuse)

    def _refuse(self, field: str, value: object, allowed: str, hint: str = "") -> InvalidInput:
        line = self._parser.CurrentLineNumber
        return InvalidInput(field, value, allowed, source=self._source, line=line, hint=hint)

    def _doctype(self, name: str, *_: object) -> None:
        if name.lower() == "html":
            raise not_readable(Path(self._source), "XML or HTML")
        raise self._refuse("document type", name, "none, because it could declare entities", "Remove <!DOCTYPE ...>.")

    def _begin(self, tag: str, attributes: Attributes) -> None:
        tag = tag.rpartition(":")[2]
        if not self._has_begun:
            if tag != "adag":
                why = f"A workflow of Pegasus begins with adag, not {tag}."
                raise not_readable(Path(self._source), "XML or HTML", why)
            self._has_begun = True
        elif tag in _JOBS:
            self._begin_job(attributes)
        elif tag == "uses" and self._job is not None:
            self._use(attributes)
        elif tag == "profile" and self._job is not None:
            key = attributes.get("key", "").removeprefix("pegasus.")
            if key in _PROFILES:
                self._profile, self._text = key, ""
                self._parser.CharacterDataHandler = self._say
        elif tag == "child":
            self._child = self._named(attributes, tag)
        elif tag == "parent":
            if not self._child:
                raise self._refuse("parent", attributes.get("ref"), "a part of a <child>")
            parent, child, line = self._named(attributes, tag), self._child, self._parser.CurrentLineNumber
            if parent in self._graph.numbers and child in self._graph.numbers:
                self._link(parent, child, line)
            elif len(self._early) < EDGES_MAX:
                self._early.append((parent, child, line))
            else:
                raise self._refuse("number of parents", EDGES_MAX + 1, f"at most {EDGES_MAX}")

    def _say(self, text: str) -> None:
        self._text = (self._text + text)[:_PROFILE_MAX]

    def _end(self, tag: str) -> None:
        tag = tag.rpartition(":")[2]
        if tag in _JOBS:
            self._end_job()
        elif tag == "profile" and self._profile and self._job is not None:
            self._job.setdefault(self._profile, self._text.strip())
            self._profile, self._parser.CharacterDataHandler = "", None
        elif tag == "child":
            self._child = ""

    def _named(self, attributes: Attributes, tag: str) -> str:
        found = attributes.get("ref", "")
        if not found:
            raise self._refuse(f"ref of {tag}", found, "the id of a job")
        return found

    def _begin_job(self, attributes: Attributes) -> None:
        label = attributes.get("id", "")
        if self._job is not None:
            raise self._refuse("job", label, "a job that is part of no other")
        if not label or label in self._graph.numbers:
            raise self._refuse("id of job", label, "an id that no other job has")
        self._job = {key: attributes[key] for key in ("id", *_PROFILES) if key in attributes}
        self._writes.append({})
        self._reads.append({})

    def _end_job(self) -> None:
        """Its profiles are known now."""
        job, self._job = self._job, None
        if job is None:
            return
        label, told = job["id"], job.get("runtime")
        seconds, cores = _number(told), _number(job.get("cores", "1"))
        if seconds is None or not is_time(seconds):
            raise self._refuse(f"runtime of job {label}", told, TIME)
        if cores is None or not is_cores(cores):
            raise self._refuse(f"cores of job {label}", job["cores"], CORES)
        self._graph.add(label, seconds, cores)

    def _use(self, attributes: Attributes) -> None:
        name = attributes.get("file") or attributes.get("name", "")
        link = attributes.get("link", "none")
        if link not in _LINKS:
            raise self._refuse(f"link of file {name}", link, ", ".join(_LINKS), did_you_mean(link, _LINKS))
        told, size = attributes.get("size"), _UNTOLD
        if told is not None:
            number = _number(told)
            amount = None if number is None else bytes_of(number)
            if amount is None:
                raise self._refuse(f"size of file {name}", told, BYTES)
            size = amount
        if not name:
            raise self._refuse("file that a job uses", name, "a name, as attribute file or name")
        number_of_file = self._files.setdefault(name, len(self._files))
        if link in ("output", "inout"):
            self._writes[-1][number_of_file] = size
        if link in ("input", "inout"):
            self._reads[-1][number_of_file] = size

    def _link(self, parent: str, child: str, line: int) -> None:
        numbers = self._graph.numbers
        for field, label in (("child", child), (f"parent of job {child}", parent)):
            if label not in numbers:
                hint = did_you_mean(label, numbers) if len(numbers) <= _HINT_JOBS_MAX else ""
                raise InvalidInput(field, label, "the id of a job", source=self._source, line=line, hint=hint)
        self._graph.link(numbers[parent], numbers[child])
        self._lines[numbers[child]] = line

    def _send(self) -> None:
        """What parents write and their children read is sent."""
        for child, reads in enumerate(self._reads):
            for parent in self._graph.parents(child) if reads else ():
                writes = self._writes[parent]
                few, many = (reads, writes) if len(reads) < len(writes) else (writes, reads)
                sent = 0
                for file in few:
                    if file in many:
                        sent += writes[file] if writes[file] != _UNTOLD else max(reads[file], 0)
                self._graph.link(parent, child, sent)


def _number(text: str | None) -> float | None:
    """The number in a text; None if there is none."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
