"""Workloads from files, and transforms of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.errors import InvalidInput
from headway.model.workload import Workload
from headway.traces import swf
from headway.traces.files import reading
from headway.traces.formats import HINT, check_format, not_readable
from headway.traces.swf import AsKind, read_swf, write_swf
from headway.traces.table import labels, read_table, write_table
from headway.traces.transforms import as_bags, as_rigid, cut_at_estimates

__all__ = [
    "is_log",
    "line_of",
    "processors_of",
    "read_swf",
    "read_table",
    "read_workload",
    "write_swf",
    "write_table",
    "write_workload",
]


def read_workload(
    path: str | Path,
    *,
    machine: int | None = None,
    cut_at_estimate: bool | None = None,
    as_kind: AsKind | None = None,
) -> Workload:
    """The workload in a file: a log (.swf, .swf.gz) or a table (.csv, .csv.gz).

    If the file has another name, its first line tells which of the two it is.

    Args:
        machine: for logs, as in `read_swf`.
        cut_at_estimate: whether jobs that ran longer than their estimate are ended there, as most batch systems do;
            None: yes in a log, no in a table.
        as_kind: "rigid": a job needs all its processors or tasks at once; "bags": each is a task of its own. None:
            jobs of a log are rigid, those of a table are what the table says.

    Raises:
        InvalidInput: the content is wrong.
        NotReadable: it is in another format; the message names the format.
        HeadwayError: the file cannot be read.
    """
    check_format(Path(path))
    try:
        if is_log(path):
            cut = cut_at_estimate is not False
            return read_swf(path, machine=machine, cut_at_estimate=cut, as_kind=as_kind or "rigid")
        workload = cut_at_estimates(read_table(path)) if cut_at_estimate else read_table(path)
    except InvalidInput as error:
        if _is_log(path) is None and error.hint.endswith(HINT):
            raise not_readable(Path(path), "", str(error.args[0])) from error
        raise
    if as_kind == "bags":
        return as_bags(workload)
    return as_rigid(workload) if as_kind == "rigid" else workload


def processors_of(path: str | Path) -> int | None:
    """The processors of a log's machine, as its header says. None if it does not say, and for a table.

    Raises:
        NotReadable: the file is in another format; the message names the format.
        HeadwayError: the file cannot be read.
    """
    check_format(Path(path))
    return swf.processors_of(path) if is_log(path) else None


def write_workload(workload: Workload, path: str | Path, header: Sequence[tuple[str, object]] = ()) -> None:
    """Write a workload as a log or a table, depending on the file name.

    Args:
        header: as in `write_swf`; a table has no place for it.

    Raises:
        InvalidInput: the name is that of neither, or the workload contains workflows.
        HeadwayError: the file cannot be written.
    """
    log = _is_log(path)
    if log is None:
        raise InvalidInput("file name", Path(path).name, "a name that ends in .swf, .swf.gz, .csv or .csv.gz")
    if log:
        write_swf(workload, path, header)
    else:
        write_table(workload, path)


def line_of(path: str | Path, label: object) -> int:
    """The line number, from 1, of the job with this label in a file that `read_workload` has read.

    Raises:
        KeyError: there is no such job.
        HeadwayError: the file cannot be read.
    """
    log = is_log(path)
    with reading(Path(path), "latin-1" if log else "utf-8-sig") as text:
        numbered = ((number, line.split()[:1]) for number, line in enumerate(text, 1)) if log else labels(text)
        for number, found in numbered:
            if found == [str(label)]:
                return number
    raise KeyError(label)


def is_log(path: str | Path) -> bool:
    """Whether a file is a log or else a table, by its name, or else by its first line.

    Raises:
        HeadwayError: its name does not say, and it cannot be read.
    """
    named = _is_log(path)
    return _looks_like_log(Path(path)) if named is None else named


def _is_log(path: str | Path) -> bool | None:
    """Whether a name is that of a log or of a table; None: of neither."""
    name = Path(path).name.lower().removesuffix(".gz")
    return True if name.endswith(".swf") else False if name.endswith(".csv") else None


def _looks_like_log(path: Path) -> bool:
    with reading(path, "latin-1") as text:
        first = text.readline()
    return first.lstrip().startswith(";") or "," not in first
