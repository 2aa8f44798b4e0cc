"""Workload tables: defaults, errors with their line, and the same jobs again after writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import NEVER, SECOND
from headway.model.job import SHAPES, Kind
from headway.model.workload import workload_us
from headway.traces import line_of, read_table, read_workload, write_table, write_workload

HEADING = "job,release,tasks,width,runtime,estimate,due,priority,rate,user"


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, name: str = "jobs.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return write


def test_every_column_is_read(table: Callable[..., Path]) -> None:
    jobs = read_table(table(HEADING, "bills,1.5,3,,10,12,60,5,2.5,eve"))
    assert jobs.label.tolist() == ["bills"]
    assert jobs.release.tolist() == [1_500_000]
    assert (jobs.tasks.tolist(), jobs.width.tolist(), jobs.kind.tolist()) == ([3], [1], [Kind.BAG])
    assert (jobs.runtime.tolist(), jobs.estimate.tolist()) == ([10 * SECOND], [12 * SECOND])
    assert (jobs.due.tolist(), jobs.priority.tolist(), jobs.rate.tolist()) == ([60 * SECOND], [5], [2.5])
    assert jobs.user.tolist() == ["eve"]
    assert jobs.notes == ()


def test_cpu_use_is_read_and_unknown_where_it_is_not_said(table: Callable[..., Path]) -> None:
    spans = read_table(table("release,runtime,estimate,due", "1m,1h30m,2 h 00 min,1d"))
    assert [spans.seconds(name)[0] for name in ("release", "runtime", "estimate", "due")] == [60, 5400, 7200, 86_400]
    known = read_table(table("width,runtime,cpu", "2,5,0.4", "1,5,1", "3,5,", "3,5,0"))
    assert [None if np.isnan(use) else use for use in known.cpu.tolist()] == [0.4, 1.0, None, 0.0]
    assert np.isnan(read_table(table("runtime", "5")).cpu).all()


def test_the_penalty_of_each_job_grows_in_its_own_shape(table: Callable[..., Path], tmp_path: Path) -> None:
    jobs = read_table(table("runtime,shape", "1,square", "1,", "1,SQRT", "1,linear"))
    assert [SHAPES[place].value for place in jobs.shape.tolist()] == ["square", "linear", "sqrt", "linear"]
    assert jobs.take(slice(2, 3)).shape.tolist() == [jobs.shape[2]]
    write_table(jobs, tmp_path / "again.csv")
    assert read_table(tmp_path / "again.csv").shape.tolist() == jobs.shape.tolist()
    assert not read_table(table("runtime", "1")).shape.any(), "linear"


def test_jobs_come_after_others_by_their_labels(table: Callable[..., Path], tmp_path: Path) -> None:
    jobs = read_table(
        table("job,release,runtime,after", "late,5,1,early", "early,2,1,", "last,9,1,late; early", "alone,9,1,")
    )
    assert jobs.label.tolist() == ["early", "late", "last", "alone"]
    assert jobs.after == {1: (0,), 2: (0, 1)}
    assert jobs.take(slice(1, 3)).after == {0: (), 1: (0,)}
    write_table(jobs, tmp_path / "again.csv")
    assert read_table(tmp_path / "again.csv").after == jobs.after


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("a,0,1,b",), ":2: after is 'b'; allowed: labels of jobs that stand before it"),
        (("a,0,1,", "b,0,1,a;a ;c"), ":3: after is 'c'"),
        (("a,0,1,b", "b,0,1,"), ":2: after is 'b'"),
        (("a,1,1,", "b,0,1,a"), ":3: after is 'a'"),
        (("a,1,1,a",), ":2: after is 'a'"),
    ],
)
def test_what_a_job_cannot_come_after_is_said_with_its_line(
    table: Callable[..., Path], lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_table(table("job,release,runtime,after", *lines))
    assert said in str(refused.value)


def test_an_empty_cell_is_the_default(table: Callable[..., Path]) -> None:
    jobs = read_table(table(HEADING, ",,,,10,,,,,"))
    assert jobs.label.tolist() == [1]
    assert (jobs.release.tolist(), jobs.tasks.tolist(), jobs.width.tolist()) == ([0], [1], [1])
    assert jobs.estimate.tolist() == [10 * SECOND]
    assert (jobs.due.tolist(), jobs.priority.tolist(), jobs.rate.tolist()) == ([NEVER], [0], [1])
    assert (jobs.user.tolist(), jobs.kind.tolist()) == ([""], [Kind.BAG])


def test_columns_come_in_any_order_and_may_be_left_out(table: Callable[..., Path]) -> None:
    jobs = read_table(table("width, Runtime ,release", "4,10,3", "", "2,5,1"))
    assert (jobs.label.tolist(), jobs.width.tolist()) == ([2, 1], [2, 4])
    assert jobs.release.tolist() == [SECOND, 3 * SECOND]


def test_a_job_with_a_width_is_rigid(table: Callable[..., Path]) -> None:
    jobs = read_table(table("tasks,width,runtime", "1,1,1", ",2,1", "3,1,1", "1,,1"))
    assert jobs.kind.tolist() == [Kind.RIGID, Kind.RIGID, Kind.BAG, Kind.BAG]


def test_estimate_and_run_time_stand_for_each_other(table: Callable[..., Path]) -> None:
    jobs = read_table(table("runtime,estimate", "5,", ",7", "3,none"))
    assert jobs.runtime.tolist() == [5 * SECOND, 7 * SECOND, 3 * SECOND]
    assert jobs.estimate.tolist() == [5 * SECOND, 7 * SECOND, -1]


def test_a_due_date_before_release_is_allowed_and_said(table: Callable[..., Path]) -> None:
    jobs = read_table(table("release,runtime,due", "5,1,9", "5,1,4", "5,1,3"))
    assert jobs.due.tolist() == [9 * SECOND, 4 * SECOND, 3 * SECOND]
    assert jobs.notes == ("jobs due before their release: 2, first in line 3",)


def test_labels_that_are_not_all_plain_numbers_stay_as_written(table: Callable[..., Path]) -> None:
    assert read_table(table("job,runtime", "007,1", "8,1")).label.tolist() == ["007", "8"]
    assert read_table(table("job,runtime", "7,1", "8,1")).label.tolist() == [7, 8]


WRONG_CELLS = [
    ("cpu", "1.1", "a number from 0 to 1; empty where unknown"),
    ("cpu", "-0.1", "a number from 0 to 1"),
    ("cpu", "nan", "a number from 0 to 1"),
    ("cpu", "much", "a number from 0 to 1"),
    ("release", "-1", "seconds, 0 or more"),
    ("release", "noon", "seconds, 0 or more"),
    ("release", "1e30", "seconds, 0 or more"),
    ("release", "18:00", "seconds, 0 or more, or a duration such as 1h30m"),
    ("tasks", "0", "a whole number from 1"),
    ("tasks", "1.5", "a whole number from 1"),
    ("width", "-2", "a whole number from 1"),
    ("runtime", "-0.5", "seconds, 0 or more"),
    ("runtime", "nan", "seconds, 0 or more"),
    ("estimate", "-1", "seconds, 0 or more, or a duration such as 1h30m, or none"),
    ("due", "-3", "seconds, 0 or more, or a duration such as 1h30m; empty for none"),
    ("priority", "high", "a number"),
    ("priority", "inf", "a number"),
    ("rate", "-1", "a number, 0 or more"),
    ("shape", "cube", "linear, sqrt, square"),
]


@pytest.mark.parametrize(("column", "value", "allowed"), WRONG_CELLS)
def test_a_wrong_value_is_named_with_its_place(
    table: Callable[..., Path], column: str, value: str, allowed: str
) -> None:
    names = dict.fromkeys([*HEADING.split(","), "cpu", "shape"], "") | {"runtime": "1"}
    path = table(",".join(names), ",".join(names.values()), ",".join((names | {column: value}).values()))
    with pytest.raises(InvalidInput) as refusal:
        read_table(path)
    wrong = refusal.value
    assert (wrong.field, wrong.value, wrong.source, wrong.line) == (column, value, str(path), 3)
    assert wrong.allowed.startswith(allowed)
    assert f"jobs.csv:3: {column} is {value!r}; allowed: {allowed}" in str(wrong)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((HEADING, ",,2,2,1,,,,,"), "jobs.csv:2: width is 2; allowed: 1 where a job has several tasks"),
        (
            (HEADING, ",,,,,,,,,"),
            "jobs.csv:2: runtime is ''; allowed: seconds, 0 or more, or a duration such as 1h30m; it may be empty only",
        ),
        (("runtime,estimate", ",none"), "jobs.csv:2: runtime is ''"),
        (("job,runtime", "a,1", "a,2"), "jobs.csv:3: job is 'a'; allowed: a name that no other line has"),
        (("job,runtime", "a"), "jobs.csv:2: number of cells is 1; allowed: 2, as in the heading"),
        (("job,runtim", "a,1"), "jobs.csv:1: column is 'runtim'; .*\nDid you mean runtime?"),
        (("job,colour", "a,1"), "jobs.csv:1: column is 'colour'; allowed: job, release"),
        (("runtime,runtime", "1,1"), "jobs.csv:1: column is 'runtime'; allowed: each column once"),
        (("job,release", "1,1"), "jobs.csv:1: columns is 'job,release'; allowed: runtime, estimate or both"),
        ((HEADING,), "jobs.csv: number of jobs is 0"),
        (("",), "jobs.csv:1: heading is ''"),
        (("1 0 -1 10 1",), "jobs.csv:1: column is '1 0 -1 10 1'"),
    ],
)
def test_a_wrong_table_is_refused(table: Callable[..., Path], lines: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_table(table(*lines))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"job,runtime\n\xff\xfe,1\n")
    with pytest.raises(HeadwayError, match=r"jobs.csv is not text in utf-8"):
        read_table(path)
    path.write_bytes(b'job,runtime\n"a\x00b,1\n')
    with pytest.raises(HeadwayError, match=r"jobs.csv:2"):
        read_table(path)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"\xef\xbb\xbfjob,runtime\r\n1,2\r\n")
    assert read_table(path).runtime.tolist() == [2 * SECOND]


def test_a_table_is_as_it_was_after_writing(tmp_path: Path) -> None:
    jobs = workload_us(
        label=["a,b", 'c"d'],
        release=[0, 1],
        runtime=[1, SECOND],
        estimate=[-1, SECOND],
        tasks=[3, 1],
        width=[1, 2],
        due=[NEVER, 5],
        priority=[0.1, -2.0],
        user=["", "eve"],
    )
    for name in ("jobs.csv", "jobs.csv.gz"):
        write_workload(jobs, tmp_path / name)
        again = read_workload(tmp_path / name)
        for column in ("label", "release", "tasks", "width", "runtime", "estimate", "due", "priority", "rate", "kind"):
            assert getattr(again, column).tolist() == getattr(jobs, column).tolist(), column
        assert again.user.tolist() == jobs.user.tolist()


def test_a_workflow_has_no_place_in_a_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kind is 'workflow'"):
        write_table(workload_us(release=[0], runtime=[1], kind=Kind.WORKFLOW), tmp_path / "flow.csv")


def test_tables_can_be_taken_as_bags_or_as_rigid_jobs(table: Callable[..., Path]) -> None:
    path = table("tasks,width,runtime", "3,,1", ",4,1")
    bags, rigid = read_workload(path, as_kind="bags"), read_workload(path, as_kind="rigid")
    assert (bags.tasks.tolist(), bags.width.tolist(), set(bags.kind)) == ([3, 4], [1, 1], {Kind.BAG})
    assert (rigid.tasks.tolist(), rigid.width.tolist(), set(rigid.kind)) == ([1, 1], [3, 4], {Kind.RIGID})


def test_under_another_name_a_file_is_what_it_looks_like(table: Callable[..., Path]) -> None:
    swf = "1 0 -1 10 -1 -1 -1 2 -1 -1 1 7 -1 -1 -1 -1 -1 -1"
    assert read_workload(table(swf, name="log.txt")).width.tolist() == [2]
    assert read_workload(table("; Note: a, b", swf, name="log.txt")).width.tolist() == [2]
    assert read_workload(table("runtime,width", "1,3", name="jobs.txt")).width.tolist() == [3]
    assert read_workload(table("RUNTIME,width", "1,3", name="JOBS.CSV")).width.tolist() == [3]


def test_nothing_is_written_under_a_name_that_tells_no_form(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"file name is 'jobs.txt'; allowed: a name that ends in .swf"):
        write_workload(workload_us(release=[0], runtime=[1]), tmp_path / "jobs.txt")
    assert not (tmp_path / "jobs.txt").exists()


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"cannot write .*: No such file"):
        write_table(workload_us(release=[0], runtime=[1]), tmp_path / "absent" / "jobs.csv")


def test_large_numbers_keep_every_microsecond(table: Callable[..., Path]) -> None:
    jobs = read_table(table("release,runtime", "1700000000.123457,0.1"))
    assert jobs.release.tolist() == [1_700_000_000_123_457]
    assert jobs.runtime.dtype == np.int64


def test_the_line_of_a_job_is_found_by_its_label(table: Callable[..., Path], tmp_path: Path) -> None:
    named = table("runtime,job", "1,a", "", "2,b", '3,"c d"')
    assert [line_of(named, label) for label in ("a", "b", "c d")] == [2, 4, 5]
    assert [line_of(table("runtime", "1", "", "2"), label) for label in (1, 2)] == [2, 4]
    half = table("job,runtime", "x,1", ",2")
    assert read_table(half).label.tolist() == ["x", "2"]
    assert line_of(half, "2") == 3
    log = table("; Note: 7", "7 0 -1 1 1", " 71 0 -1 1 1", name="log.swf")
    assert (line_of(log, 7), line_of(log, 71)) == (2, 3)
    with pytest.raises(KeyError):
        line_of(log, 8)
