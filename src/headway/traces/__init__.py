"""Workloads from files, and transforms of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.errors import InvalidInput
from headway.model.workload import Workload
from headway.traces import swf
from headway.traces.files import reading
from headway.traces.formats import READABLE_HINT, Format, format_of, named_format, not_readable
from headway.traces.swf import BYTE_ORDER_MARK, AsKind, read_swf, write_swf
from headway.traces.table import labels, read_table, write_table
from headway.traces.transforms import as_bags, as_rigid, cut_at_estimates

__all__ = [
    "is_log",
    "line_of",
    "processors_of",
    "read_swf",
    "read_table",
    "read_workflows",
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
    """The workload in a file: a log (.swf, .swf.gz), a table (.csv, .csv.gz), or workflows (see `read_workflows`).

    If the file has another name, its beginning tells which it is.

    Args:
        machine: for logs, as in `read_swf`.
        cut_at_estimate: whether jobs that ran longer than their estimate are ended there, as most batch systems do;
            None: yes in a log, no in a table.
        as_kind: "rigid": a job needs all its processors or tasks at once; "bags": each is a task of its own. None:
            jobs of a log are rigid, those of a table are what the table says. Workflows stay what they are.

    Raises:
        InvalidInput: the content is wrong.
        NotReadable: it is in another format; the message names the format.
        HeadwayError: the file cannot be read.
    """
    found = format_of(Path(path))
    if found not in (Format.LOG, Format.TABLE):
        return read_workflows([path])
    try:
        if found is Format.LOG:
            cut = cut_at_estimate is not False
            return read_swf(path, machine=machine, cut_at_estimate=cut, as_kind=as_kind or "rigid")
        workload = cut_at_estimates(read_table(path)) if cut_at_estimate else read_table(path)
    except InvalidInput as error:
        if named_format(Path(path).name) is None and error.hint.endswith(READABLE_HINT):
            raise not_readable(Path(path), "", str(error.args[0])) from error
        raise
    if as_kind == "bags":
        return as_bags(workload)
    return as_rigid(workload) if as_kind == "rigid" else workload


def processors_of(path: str | Path) -> int | None:
    """The processors of a log's machine, as its header says. None if it does not say, and for other files.

    Raises:
        NotReadable: the file is in another format; the message names the format.
        HeadwayError: the file cannot be read.
    """
    return swf.processors_of(path) if is_log(path) else None


def write_workload(workload: Workload, path: str | Path, header: Sequence[tuple[str, object]] = ()) -> None:
    """Write a workload as a log, as a table, or workflows with their terms (.json), depending on the file name.

    Args:
        header: as in `write_swf`; other files have no place for it.

    Raises:
        InvalidInput: the name is of none of these, or the workload has workflows and the file is not for them, or other
            jobs and it is.
        HeadwayError: the file cannot be written.
    """
    named = named_format(Path(path).name)
    if named is Format.WFFORMAT:
        from headway.traces.own import write_own

        write_own(workload, path)
        return
    if named not in (Format.LOG, Format.TABLE):
        raise InvalidInput(
            "file name", Path(path).name, "a name that ends in .swf, .csv or .json, or in .gz after that"
        )
    if named is Format.LOG:
        write_swf(workload, path, header)
    else:
        write_table(workload, path)


def line_of(path: str | Path, label: object) -> int:
    """The line number, from 1, of the job with this label in a log or table that `read_workload` has read.

    Raises:
        KeyError: there is no such job.
        HeadwayError: the file cannot be read.
    """
    log = is_log(path)
    with reading(Path(path), "latin-1" if log else "utf-8-sig") as text:
        numbered = (
            ((number, line.removeprefix(BYTE_ORDER_MARK).split()[:1]) for number, line in enumerate(text, 1))
            if log
            else labels(text)
        )
        for number, found in numbered:
            if found == [str(label)]:
                return number
    raise KeyError(label)


def is_log(path: str | Path) -> bool:
    """Whether a file is a log, and not a table or workflows, by its beginning or its name.

    Raises:
        NotReadable: the file is in another format; the message names the format.
        HeadwayError: its name does not say, and it cannot be read.
    """
    return format_of(Path(path)) is Format.LOG


def read_workflows(paths: Sequence[str | Path]) -> Workload:
    """The workflows in files, as jobs in the order given. They are released at 0, unless a file tells their terms.

    A file is WfFormat (.json), DAX (.xml, .dax) or STG (.stg), plain or gzipped; a tar archive of such files; or
    workflows with their terms, as `write_workload` writes them. Of those without, a job is labelled by the name of its
    file without its endings; of several with one name the others get a number. Its
    `runtime` is the length of its critical path.

    Raises:
        InvalidInput: something in a file is wrong. The message names the file and the place in it.
        NotReadable: a file is of another format.
        HeadwayError: a file cannot be read, or is too large.
    """
    # Their readers are loaded where there are workflows: the command's help need not wait for them.
    from headway.traces.workflows import read

    return read([Path(path) for path in paths])
