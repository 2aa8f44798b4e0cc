"""The Standard Workload Format of the Parallel Workloads Archive: one line for each job, with 18 numbers; -1: unknown.

Reading always cleans a log in the same way. Jobs that cannot be run again are left out and counted by reason.

Source: Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", JSSPP 1999; version 2.2
of the format at the Parallel Workloads Archive.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from headway.errors import InvalidInput
from headway.model.instant import NEVER, SECOND, seconds_text
from headway.model.job import Kind
from headway.model.workload import FloatArray, Workload
from headway.traces.files import reading, writing
from headway.traces.formats import READABLE_HINT
from headway.traces.transforms import cut_at_estimates

AsKind = Literal["rigid", "bags"]

FIELDS: Final = 18
_JOB, _SUBMIT, _RUN, _ALLOCATED, _CPU_TIME, _REQUESTED, _REQUESTED_TIME, _USER = 0, 1, 3, 4, 5, 7, 8, 11
NO_RUN_TIME: Final = "no run time"
_DIGITS_MAX: Final = 9
NO_SIZE: Final = "no size"
TOO_WIDE: Final = "wider than the machine"
BROKEN: Final = "broken line"

LARGEST: Final = NEVER / SECOND / 4
"""The greatest time of a file in seconds. The sum of a few such times is still a valid instant."""

OVERUSE: Final = 1.1
"""CPU use above this is more than an error of rounding."""

BYTE_ORDER_MARK: Final = "\ufeff".encode().decode("latin-1")
"""With which some editors begin a file in UTF-8, read as Latin-1."""

_CHUNK = 1 << 17  # characters; large enough to be fast, small enough for any memory
_BROKEN_SHOWN = 5


def _is_instant(seconds: Any) -> Any:
    return (seconds >= 0) & (seconds <= LARGEST)


def _is_time(seconds: Any) -> Any:
    return (seconds == -1) | _is_instant(seconds)


def _is_whole(number: Any) -> Any:
    return (np.floor(number) == number) & (np.abs(number) < 2**53)


_INSTANT: Final = f"seconds, 0 to {math.floor(LARGEST)}"

# Field, its position, a test of a value or a whole column, and what is allowed.
_CHECKS: Final = (
    ("job number", _JOB, _is_whole, "a whole number"),
    ("submit time", _SUBMIT, _is_instant, _INSTANT),
    ("run time", _RUN, _is_time, f"{_INSTANT}, or -1 where unknown"),
    ("allocated processors", _ALLOCATED, _is_whole, "a whole number"),
    ("requested processors", _REQUESTED, _is_whole, "a whole number"),
    ("requested time", _REQUESTED_TIME, _is_time, f"{_INSTANT}, or -1 where unknown"),
    ("user", _USER, _is_whole, "a whole number"),
)

_END: Final = -(2**62)
"""Stands for the end of a line among its numbers."""

_POINT: Final = _END + 1
"""Stands for a decimal point; the digits after it follow, with a 1 before them, so that zeros count."""

_TENS: Final = 10 ** np.arange(16, dtype=np.int64)


@dataclass(slots=True)
class _ReadSoFar:
    """What was read so far: chunks of the columns that are kept, and counts of the lines and jobs left out."""

    columns: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    unsaid: int = 0
    overused: int = 0
    flaws: list[InvalidInput] = field(default_factory=list)
    machine: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count


def read_swf(
    path: str | Path,
    *,
    machine: int | None = None,
    cut_at_estimate: bool = True,
    as_kind: AsKind = "rigid",
) -> Workload:
    """A log in Standard Workload Format, plain or gzipped, as a workload.

    Left out and counted in `dropped`: broken lines (their first numbers are in `notes`), jobs without run time or size,
    rigid jobs wider than the machine. Jobs are in order of submission, then number. `notes` says what was changed, and
    for how many jobs.

    - The size is the number of requested processors, or else of the allocated ones.
    - The estimate is the requested time, or the run time if that is 0 or unknown.
    - The label is the job's number in the log.
    - The CPU use is the CPU time divided by the run time, at most 1, if both are known.

    Args:
        machine: slots, >= 1; None: as the log's header says (MaxProcs, else MaxNodes), or any number if it does not.
        cut_at_estimate: jobs that ran longer than their estimate are ended there, as most batch systems do.
        as_kind: "rigid": a job needs all its processors at once; "bags": each processor is a task of its own that
            runs for the job's run time (Lin14 6.3), and no job is too wide.

    Raises:
        InvalidInput: the log has no valid job; the message says what is wrong with the first line.
        HeadwayError: the file cannot be read.
    """
    path = Path(path)
    if machine is not None and machine < 1:
        raise InvalidInput("machine", machine, "1 slot or more")
    gathered = _ReadSoFar()
    with reading(path, "latin-1") as text:
        line = 1
        for lines in _chunks(text):
            if not gathered.columns:
                _read_header(lines, gathered)
            rows = _rows(lines)
            if rows is None:
                rows = _whole_rows(path, lines, line, gathered)
            if len(rows):
                _keep(rows, gathered)
            line += len(lines)
    workload = _workload(path, gathered, machine, as_kind)
    return cut_at_estimates(workload) if cut_at_estimate else workload


def processors_of(path: str | Path) -> int | None:
    """The processors of the machine, by the header of a log (MaxProcs, else MaxNodes); None if it does not say.

    Raises:
        HeadwayError: the file cannot be read.
    """
    gathered = _ReadSoFar()
    with reading(Path(path), "latin-1") as text:
        _read_header(next(_chunks(text), []), gathered)
    return _processors(gathered)


def _processors(gathered: _ReadSoFar) -> int | None:
    return gathered.machine.get("MaxProcs") or gathered.machine.get("MaxNodes")


def _chunks(text: TextIO) -> Iterator[list[str]]:
    """The lines of a file, many at a time, without the mark at its beginning."""
    lines = text.readlines(_CHUNK)
    if lines:
        lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
    while lines:
        yield lines
        lines = text.readlines(_CHUNK)


def _read_header(lines: Sequence[str], gathered: _ReadSoFar) -> None:
    for line in lines:
        if size := re.match(r"\s*;\s*(MaxProcs|MaxNodes):\s*(\d+)", line):
            if len(size[2]) > _DIGITS_MAX:
                raise InvalidInput(size[1], size[2], f"a whole number of at most {_DIGITS_MAX} digits")
            gathered.machine.setdefault(size[1], int(size[2]))


def _rows(lines: Sequence[str]) -> FloatArray | None:
    """The jobs of some lines, shape (jobs, FIELDS); None if a line is broken."""
    jobs = [line for line in lines if line.partition(";")[0].strip()]
    if not jobs:
        return np.empty((0, FIELDS))
    try:
        rows = _parsed(jobs)
    except ValueError:
        return None
    if rows.shape != (len(jobs), FIELDS) or not np.isfinite(rows).all():
        return None
    return rows if all(is_right(rows[:, at]).all() for _, at, is_right, _ in _CHECKS) else None


def _parsed(jobs: Sequence[str]) -> FloatArray:
    """The numbers of some lines, one row for each.

    Raises:
        ValueError: one is no number, or the lines have different numbers of fields.
    """
    rows = _plain("".join(jobs), len(jobs))
    return np.loadtxt(jobs, comments=";", ndmin=2) if rows is None else rows


def _plain(text: str, lines: int) -> FloatArray | None:
    """The numbers of lines in which all are plainly written, as in most logs, in a fifth of the time; else None.

    They are read as whole numbers. A decimal is one before the point and one after it; their quotient by a power of ten
    is the nearest float, as long as the digits of both make a whole number that a float can be.
    """
    text = text if text.endswith("\n") else text + "\n"
    if not text.isascii() or "+" in text:
        return None
    signs = np.frombuffer(text.encode("ascii"), dtype=np.uint8)  # the sign before the first is the end of the last line
    minus, points = np.flatnonzero(signs == ord("-")), np.flatnonzero(signs == ord("."))
    first, last = signs[minus + 1], signs[points - 1]  # of the digits behind a minus, and of those before a point
    if not ((signs[minus - 1] <= ord(" ")) & (first > ord("0")) & (first <= ord("9"))).all():
        return None
    if not ((last >= ord("0")) & (last <= ord("9"))).all():
        return None
    marked = text.replace("\n", f" {_END} ").replace(".", f" {_POINT} 1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how older versions say that a text is not all numbers
            found = np.fromstring(marked, dtype=np.int64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    numbers = found.astype(np.float64)
    decimals, points = len(points), np.flatnonzero(found == _POINT)
    if len(points) != decimals:
        return None
    if decimals:
        before, after = np.abs(numbers[points - 1]), found[points + 1]
        tens = _TENS[np.searchsorted(_TENS, after, side="right") - 1]
        digits = before * tens + (after - tens)
        if (np.diff(points) < 3).any() or (after > _TENS[-1]).any() or (digits >= 2**53).any():
            return None
        numbers[points - 1] = np.copysign(digits / tens, numbers[points - 1])
        kept = np.ones(len(numbers), dtype=np.bool_)
        kept[points] = kept[points + 1] = False
        numbers = numbers[kept]
    if len(numbers) != lines * (FIELDS + 1):
        return None
    rows = numbers.reshape(lines, FIELDS + 1)
    return rows[:, :FIELDS] if (rows[:, FIELDS] == _END).all() else None


def _whole_rows(path: Path, lines: Sequence[str], first_line: int, gathered: _ReadSoFar) -> FloatArray:
    """The jobs of some lines. Broken lines are left out and counted."""
    rows = []
    for number, line in enumerate(lines, first_line):
        fields = line.partition(";")[0].split()
        if not fields:
            continue
        try:
            rows.append(_row(fields))
        except InvalidInput as flaw:
            gathered.drop(BROKEN, 1)
            if len(gathered.flaws) < _BROKEN_SHOWN:
                gathered.flaws.append(InvalidInput(flaw.field, flaw.value, flaw.allowed, source=str(path), line=number))
    return np.array(rows).reshape(-1, FIELDS)


def _row(fields: Sequence[str]) -> list[float]:
    """The numbers of one line.

    Raises:
        InvalidInput: the line is broken.
    """
    if len(fields) != FIELDS:
        raise InvalidInput("number of fields", len(fields), str(FIELDS))
    numbers = []
    for position, written in enumerate(fields, 1):
        try:
            numbers.append(float(written))
        except ValueError:
            raise InvalidInput(f"field {position}", written, "a number") from None
        if not math.isfinite(numbers[-1]):
            raise InvalidInput(f"field {position}", written, "a finite number")
    for name, at, is_right, allowed in _CHECKS:
        if not is_right(numbers[at]):
            raise InvalidInput(name, fields[at], allowed)
    return numbers


def _keep(rows: FloatArray, gathered: _ReadSoFar) -> None:
    """Convert rows to the columns of a workload, and keep the jobs that can be run again."""
    requested = rows[:, _REQUESTED]
    size = np.where(requested > 0, requested, rows[:, _ALLOCATED])
    timed, sized = rows[:, _RUN] >= 0, size > 0
    gathered.drop(NO_RUN_TIME, int((~timed).sum()))
    gathered.drop(NO_SIZE, int((timed & ~sized).sum()))
    good = timed & sized
    rows, size = rows[good], size[good]
    runtime, asked, used = rows[:, _RUN], rows[:, _REQUESTED_TIME], rows[:, _CPU_TIME]
    cpu = np.full(len(rows), np.nan)
    np.divide(used, runtime, out=cpu, where=(used >= 0) & (runtime > 0))
    estimate = np.where(asked > 0, asked, runtime)
    gathered.unsaid += int((asked <= 0).sum())
    gathered.overused += int((cpu > OVERUSE).sum())
    for name, values in (
        ("label", rows[:, _JOB]),
        ("release", np.rint(rows[:, _SUBMIT] * SECOND)),
        ("size", size),
        ("runtime", np.rint(runtime * SECOND)),
        ("estimate", np.rint(estimate * SECOND)),
        ("user", rows[:, _USER]),
    ):
        gathered.columns.setdefault(name, []).append(values.astype(np.int64))
    gathered.columns.setdefault("cpu", []).append(np.minimum(cpu, 1.0))


def _workload(path: Path, gathered: _ReadSoFar, machine: int | None, as_kind: AsKind) -> Workload:
    # One column at a time, so that memory never holds two copies of the whole log.
    columns: dict[str, Any] = {name: np.concatenate(gathered.columns.pop(name)) for name in list(gathered.columns)}
    notes = []
    if gathered.flaws:
        lines = ", ".join(str(flaw.line) for flaw in gathered.flaws)
        notes.append(f"broken lines left out: {gathered.dropped[BROKEN]}, first {lines}; {gathered.flaws[0]}")
    if machine is None:
        machine = _processors(gathered)
    if columns and machine and as_kind == "rigid":
        fits = columns["size"] <= machine
        gathered.drop(TOO_WIDE, int((~fits).sum()))
        if not fits.all():
            columns = {name: column[fits] for name, column in columns.items()}
    jobs = len(columns["label"]) if columns else 0
    if not jobs:
        raise _nothing_left(path, gathered)
    if gathered.unsaid:
        notes.append(f"jobs without an estimate, or with 0; their run time is used instead: {gathered.unsaid}")
    if gathered.overused:
        notes.append(f"jobs with a tenth more CPU time than run time; their CPU use counts as 1: {gathered.overused}")
    if not _is_ordered(columns["release"], columns["label"]):
        release = columns["release"]
        if late := int((release < np.maximum.accumulate(release)).sum()):
            notes.append(f"jobs that stood behind one submitted later, put in order: {late}")
        order = np.lexsort((columns["label"], columns["release"]))
        for name in columns:
            columns[name] = columns[name][order]
    users, which = np.unique(columns.pop("user"), return_inverse=True)
    names = np.array([str(user) if user >= 0 else "" for user in users.tolist()], dtype=object)
    size = columns.pop("size")
    rigid = as_kind == "rigid"
    return Workload(
        **columns,
        tasks=_constant(1, jobs, np.int64) if rigid else size,
        width=size if rigid else _constant(1, jobs, np.int64),
        due=_constant(NEVER, jobs, np.int64),
        priority=_constant(0, jobs, np.float64),
        rate=_constant(1, jobs, np.float64),
        user=names[which],
        shape=_constant(0, jobs, np.int8),
        kind=_constant(Kind.RIGID if rigid else Kind.BAG, jobs, np.int8),
        dropped=gathered.dropped,
        notes=tuple(notes),
    )


def _constant(value: float, jobs: int, dtype: Any) -> NDArray[Any]:
    """A read-only column of one value that needs no memory for its length."""
    return np.broadcast_to(np.array(value, dtype=dtype), jobs)


def _is_ordered(release: NDArray[np.int64], label: NDArray[np.int64]) -> bool:
    gaps = np.diff(release)
    return bool(((gaps > 0) | ((gaps == 0) & (np.diff(label) >= 0))).all())


def _nothing_left(path: Path, gathered: _ReadSoFar) -> InvalidInput:
    if list(gathered.dropped) == [BROKEN]:
        gathered.flaws[0].hint = f"No line of the file is a job of the Standard Workload Format. {READABLE_HINT}"
        return gathered.flaws[0]
    reasons = ", ".join(f"{reason}: {count}" for reason, count in gathered.dropped.items())
    first = f" The first broken line: {gathered.flaws[0]}." if gathered.flaws else ""
    hint = f"All records are left out: {reasons}.{first}" if reasons else "The file holds no record."
    return InvalidInput("number of jobs", 0, "1 or more", source=str(path), hint=hint)


def write_swf(workload: Workload, path: str | Path, header: Sequence[tuple[str, object]] = ()) -> None:
    """Write a workload in Standard Workload Format, gzipped if the name ends in .gz.

    The format has no fields for due dates, priorities and penalty rates. If the processes of a job differ in CPU use,
    their mean is written. Processors are the width of a rigid job, or the tasks of a bag. If the labels of the jobs are
    not distinct whole numbers, the jobs are numbered from 1. The same applies to users.

    Args:
        header: names and values for the header, besides the format's version and the number of jobs: the size of the
            machine as `MaxProcs` and `MaxNodes`, when the log begins as `UnixStartTime`, and whatever else is known.

    Raises:
        InvalidInput: the workload contains a workflow, for which the format has no fields.
        HeadwayError: the file cannot be written.
    """
    if (workload.kind == Kind.WORKFLOW).any():
        raise InvalidInput("kind", "workflow", "rigid or bag", source=str(path))
    jobs = _numbers(workload.label.tolist())
    if len(set(jobs)) < len(jobs):
        jobs = list(range(1, len(jobs) + 1))
    users = _numbers(workload.user.tolist())
    sizes = (workload.tasks * workload.width).tolist()
    cpu_time = np.where(np.isnan(workload.cpu), -SECOND, np.rint(workload.cpu * workload.runtime)).astype(np.int64)
    times = zip(*(c.tolist() for c in (workload.release, workload.runtime, cpu_time, workload.estimate)), strict=True)
    with writing(Path(path)) as text:
        text.write(f"; Version: 2.2\n; MaxJobs: {len(workload)}\n; MaxRecords: {len(workload)}\n")
        text.writelines(f"; {name}: {value}\n" for name, value in (*header, ("Note", "written by Headway")))
        for job, user, size, (release, runtime, used, estimate) in zip(jobs, users, sizes, times, strict=True):
            asked = "-1" if estimate < 0 else seconds_text(estimate)
            submitted, ran, cpu = seconds_text(release), seconds_text(runtime), seconds_text(used)
            text.write(f"{job} {submitted} -1 {ran} {size} {cpu} -1 {size} {asked} -1 1 {user} -1 -1 -1 -1 -1 -1\n")


def _numbers(names: Sequence[Any]) -> list[int]:
    """Whole numbers for names: the names if all are whole numbers, else from 1 in order of appearance; "" has -1."""
    written = {name: str(name) for name in names}
    if all(text.isdecimal() or not text for text in written.values()):
        return [int(written[name]) if written[name] else -1 for name in names]
    numbered = {text: number for number, text in enumerate(dict.fromkeys(filter(None, written.values())), 1)}
    return [numbered.get(written[name], -1) for name in names]
