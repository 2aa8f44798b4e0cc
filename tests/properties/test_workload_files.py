"""Files: what is written is read again, and no line of text can crash a reader."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.model.instant import NEVER, SECOND
from headway.model.job import Kind
from headway.model.workload import COLUMNS, Workload, workload_us
from headway.traces import read_swf, read_table, transforms, write_swf, write_table
from headway.traces.table import TABLE_COLUMNS

times = st.integers(0, 2_000_000_000 * SECOND)
# What CSV and a stripped cell can contain.
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), max_size=8)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    jobs = draw(st.integers(1, 8))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=jobs, max_size=jobs))

    sizes = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 1000)), min_size=jobs, max_size=jobs))
    return workload_us(
        label=np.array(draw(st.lists(words.filter(bool), min_size=jobs, max_size=jobs, unique=True)), dtype=object),
        release=column(times),
        runtime=column(times),
        estimate=column(times | st.just(-1)),
        due=column(times | st.just(NEVER)),
        tasks=[1 if rigid else size for rigid, size in sizes],
        width=[size if rigid else 1 for rigid, size in sizes],
        kind=[Kind.RIGID if rigid else Kind.BAG for rigid, _ in sizes],
        priority=column(st.floats(allow_nan=False, allow_infinity=False)),
        rate=column(st.floats(0, allow_infinity=False)),
        user=np.array(column(words), dtype=object),
        cpu=column(st.floats(0, 1) | st.just(math.nan)),
    )


def rows(workload: Workload, *columns: str) -> list[tuple[object, ...]]:
    """The jobs as tuples that can be compared. An unknown CPU use becomes None."""
    known = (getattr(workload, name).tolist() for name in columns)
    return [tuple(None if value != value else value for value in job) for job in zip(*known, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@given(workloads())
def test_a_table_keeps_every_term_of_every_job(folder: Path, workload: Workload) -> None:
    write_table(workload, folder / "jobs.csv")
    again = read_table(folder / "jobs.csv")
    assert [str(label) for label in again.label] == workload.label.tolist()
    others = [name for name in COLUMNS if name != "label"]
    assert rows(again, *others) == rows(workload, *others)


@given(workloads(), st.permutations(range(len(TABLE_COLUMNS))))
def test_the_order_of_columns_does_not_matter(folder: Path, workload: Workload, order: list[int]) -> None:
    write_table(workload, folder / "jobs.csv")
    lines = list(csv.reader(io.StringIO((folder / "jobs.csv").read_text("utf-8"), newline="")))
    with (folder / "mixed.csv").open("w", encoding="utf-8", newline="") as text:
        csv.writer(text).writerows([line[column] for column in order] for line in lines)
    assert rows(read_table(folder / "mixed.csv"), *COLUMNS) == rows(read_table(folder / "jobs.csv"), *COLUMNS)


@given(workloads())
def test_a_log_keeps_times_and_sizes(folder: Path, workload: Workload) -> None:
    """Labels that are not numbers are lost, and all terms for which the format has no field. 0 is no estimate."""
    rigid = transforms.as_rigid(workload)
    write_swf(rigid, folder / "jobs.swf")
    again = read_swf(folder / "jobs.swf", cut_at_estimate=False)
    assert rows(again, "release", "tasks", "width", "runtime", "kind") == rows(
        rigid, "release", "tasks", "width", "runtime", "kind"
    )
    given_estimates = np.where(rigid.estimate > 0, rigid.estimate, rigid.runtime)
    assert again.estimate.tolist() == given_estimates.tolist()


@given(workloads(), st.randoms(use_true_random=False))
def test_lines_of_a_log_may_come_in_any_order(folder: Path, workload: Workload, chance: object) -> None:
    write_swf(workload, folder / "jobs.swf")
    lines = (folder / "jobs.swf").read_text().splitlines(keepends=True)
    chance.shuffle(lines)  # type: ignore[attr-defined]
    (folder / "mixed.swf").write_text("".join(lines))
    mixed, straight = read_swf(folder / "mixed.swf"), read_swf(folder / "jobs.swf")
    assert sorted(rows(mixed, "release", "label", "width", "runtime")) == rows(
        straight, "release", "label", "width", "runtime"
    )
    assert (np.diff(mixed.release) >= 0).all()


field = st.sampled_from(
    ["1", "0", "-1", "-2", "7.5", "1e3", "1e300", "nan", "inf", "x", "1_0", "٣", "\xa0", "\x00", ";"]
)
broken = st.lists(field, min_size=16, max_size=19).map(" ".join) | st.text(max_size=20)


@given(st.lists(broken, max_size=5))
def test_no_line_of_text_crashes_the_reader_of_logs(folder: Path, lines: list[str]) -> None:
    """A valid line is always read. Each line is a job, is left out and counted, or is not a record."""
    whole = "9 5 -1 3 1 -1 -1 1 -1 -1 1 2 -1 -1 -1 -1 -1 -1"
    (folder / "odd.swf").write_bytes("\n".join([whole, *lines]).encode("utf-8", "surrogatepass"))
    workload = read_swf(folder / "odd.swf")
    assert 9 in workload.label.tolist()
    read = (folder / "odd.swf").read_bytes().decode("latin-1")
    records = [line for line in io.StringIO(read, newline="") if line.partition(";")[0].strip()]
    assert len(workload) + sum(workload.dropped.values()) == len(records)


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_no_file_crashes_the_reader_of_tables(folder: Path, content: str | bytes) -> None:
    """It is read, or refused with a readable message."""
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    (folder / "odd.csv").write_bytes(b"job,runtime\n" + data)
    said = ""
    try:
        read_table(folder / "odd.csv")
    except HeadwayError as refusal:
        said = str(refusal)
    assert not said or "odd.csv" in said
