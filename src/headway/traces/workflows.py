"""Workflows from files of any format that has them, one or many, as the jobs of one workload."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

import numpy as np

from headway.errors import HeadwayError, InvalidInput
from headway.model.graph import length_of
from headway.model.job import SHAPES, Kind
from headway.model.workload import Workload, workload_us
from headway.traces.dax import read_dax
from headway.traces.files import Bounded, decoded, opened, unzipped
from headway.traces.formats import Format, format_of, named_format, not_readable
from headway.traces.graphs import FILE_TASKS_MAX, ReadWorkflow
from headway.traces.own import read_own
from headway.traces.stg import read_stg
from headway.traces.wfformat import read_wfformat

FILE_MAX: Final = 1 << 30
"""Bytes of a file, decompressed."""

_WORKFLOWS: Final = (Format.WFFORMAT, Format.DAX, Format.STG)
_BOM: Final = b"\xef\xbb\xbf"


def read(paths: Sequence[Path]) -> Workload:
    """The workflows in files, see `headway.traces.read_workflows`."""
    found: list[ReadWorkflow] = []
    tasks = 0
    for path in paths:
        for workflow in _workflows(path):
            found.append(workflow)
            tasks += len(workflow.tasks)
            if tasks > FILE_TASKS_MAX:
                raise HeadwayError(f"the workflows have more than {FILE_TASKS_MAX:,} tasks in all", "Give fewer files.")
    return workload_us(
        release=[workflow.terms.release for workflow in found],
        runtime=[length_of(workflow.tasks) for workflow in found],
        due=[workflow.terms.due for workflow in found],
        priority=[workflow.terms.priority for workflow in found],
        rate=[workflow.terms.rate for workflow in found],
        shape=[SHAPES.index(workflow.terms.shape) for workflow in found],
        user=np.array([workflow.terms.user for workflow in found], dtype=object),
        tasks=[len(workflow.tasks) for workflow in found],
        kind=[int(Kind.WORKFLOW)] * len(found),
        label=list(_unique(workflow.name for workflow in found)),
        workflows={number: workflow.tasks for number, workflow in enumerate(found)},
        task_labels={number: workflow.labels for number, workflow in enumerate(found) if workflow.labels},
    )


def _workflows(path: Path) -> Iterator[ReadWorkflow]:
    """The workflows of one file."""
    found = format_of(path)
    if found in (Format.LOG, Format.TABLE):
        allowed = "workflows: .json, .xml, .stg, each also as .gz, or many of them in a .tar.gz"
        hint = "Several files at once are workflows. A log or a table is given alone."
        raise InvalidInput("file", str(path), allowed, hint=hint)
    with opened(path) as whole:
        if found is Format.TAR:
            yield from _members(path, whole)
        elif found is Format.OWN:
            yield from read_own(io.BufferedReader(Bounded(whole, FILE_MAX, str(path))).read(), str(path))
        else:
            yield _workflow(whole, found, str(path), path.name)


def _members(path: Path, whole: BinaryIO) -> Iterator[ReadWorkflow]:
    """The workflows in an archive, in its order. Files of other names are skipped."""
    some = False
    try:
        with tarfile.open(fileobj=io.BufferedReader(Bounded(whole, FILE_MAX, str(path))), mode="r|") as archive:
            for entry in archive:
                found = named_format(entry.name)
                if found not in _WORKFLOWS or not entry.isfile() or PurePosixPath(entry.name).name.startswith("."):
                    continue
                content = archive.extractfile(entry)
                assert content is not None
                some = True
                yield _workflow(unzipped(io.BytesIO(content.read())), found, f"{path}/{entry.name}", entry.name)
    except tarfile.TarError as error:
        raise HeadwayError(f"{path} is not a whole tar archive: {error}", "Fetch it again.") from error
    if not some:
        raise not_readable(path, "a tar archive without workflows (.json, .xml, .stg)")


def _workflow(whole: BinaryIO, found: Format, source: str, name: str) -> ReadWorkflow:
    """The workflow in the bytes of a file."""
    bounded = io.BufferedReader(Bounded(whole, FILE_MAX, source))
    label = name_of(name)
    if found is Format.DAX:
        return read_dax(bounded, source, label)
    if found is Format.WFFORMAT:
        return read_wfformat(bounded.read().removeprefix(_BOM), source, label)
    with decoded(bounded, source, "utf-8-sig") as text:
        return read_stg(text, source, label)


def name_of(path: str) -> str:
    """What a workflow is called, by its file.

    >>> name_of("50/rand0001.stg"), name_of("montage-1.5.json.gz")
    ('rand0001', 'montage-1.5')
    """
    name = PurePosixPath(path).name
    bare = name[:-3] if name.lower().endswith(".gz") else name
    return PurePosixPath(bare).stem if named_format(bare) is not None else bare


def _unique(names: Iterable[str]) -> Iterator[str]:
    """These names; of equal ones the second gets a 2 at its end, and so on.

    >>> list(_unique(["a", "b", "a", "a-2"]))
    ['a', 'b', 'a-2', 'a-2-2']
    """
    seen: dict[str, int] = {}
    for name in names:
        unique = name
        while unique in seen:
            seen[name] += 1
            unique = f"{name}-{seen[name]}"
        seen[unique] = 1
        yield unique
