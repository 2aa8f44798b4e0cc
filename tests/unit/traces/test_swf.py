"""Logs in Standard Workload Format: what is read, and what is left out and why."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import NEVER, SECOND
from headway.model.job import Kind
from headway.model.workload import Workload, workload_us
from headway.traces import line_of, read_swf, read_workload, write_swf, write_workload
from headway.traces.swf import processors_of


def line(
    job: int = 1,
    submit: float = 0,
    run: float = 10,
    *,
    allocated: int = -1,
    requested: int = 1,
    time: float = -1,
    user: int = 7,
    cpu: float = -1,
) -> str:
    return f"{job} {submit} -1 {run} {allocated} {cpu} -1 {requested} {time} -1 1 {user} -1 -1 -1 -1 -1 -1\n"


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, name: str = "log.swf") -> Path:
        path = tmp_path / name
        path.write_text("".join(lines), "latin-1")
        return path

    return write


def seconds(column: np.ndarray) -> list[float]:
    return (column / SECOND).tolist()


def test_a_job_of_a_log_is_rigid_with_the_terms_the_log_gives(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(line(3, 5, 20, requested=4, time=60, user=12)))
    assert jobs.label.tolist() == [3]
    assert seconds(jobs.release) == [5]
    assert seconds(jobs.runtime) == [20]
    assert seconds(jobs.estimate) == [60]
    assert (jobs.tasks.tolist(), jobs.width.tolist(), jobs.kind.tolist()) == ([1], [4], [Kind.RIGID])
    assert (jobs.due.tolist(), jobs.priority.tolist(), jobs.rate.tolist()) == ([NEVER], [0], [1])
    assert jobs.user.tolist() == ["12"]
    assert (dict(jobs.dropped), jobs.notes) == ({}, ())


def test_as_bags_every_processor_is_a_task(log: Callable[..., Path]) -> None:
    jobs = read_swf(log("; MaxProcs: 2\n", line(requested=4)), as_kind="bags")
    assert (jobs.tasks.tolist(), jobs.width.tolist(), jobs.kind.tolist()) == ([4], [1], [Kind.BAG])


@pytest.mark.parametrize(("requested", "allocated", "size"), [(4, 8, 4), (-1, 8, 8), (0, 8, 8), (4, -1, 4)], ids=str)
def test_the_size_is_what_was_requested_else_what_was_allocated(
    log: Callable[..., Path], requested: int, allocated: int, size: int
) -> None:
    assert read_swf(log(line(requested=requested, allocated=allocated))).width.tolist() == [size]


def test_without_a_requested_time_the_run_time_is_the_estimate(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(line(1, run=10, time=-1), line(2, run=10, time=0)))
    assert seconds(jobs.estimate) == [10, 10]
    assert seconds(jobs.runtime) == [10, 10]
    assert jobs.notes == ("jobs without an estimate, or with 0; their run time is used instead: 2",)


def test_a_job_is_cut_at_its_estimate_unless_told_otherwise(log: Callable[..., Path]) -> None:
    path = log(line(run=100, time=60))
    cut, whole = read_swf(path), read_swf(path, cut_at_estimate=False)
    assert (seconds(cut.runtime), seconds(whole.runtime)) == ([60], [100])
    assert (seconds(cut.estimate), seconds(whole.estimate)) == ([60], [60])
    assert cut.notes == ("jobs that ran longer than their estimate, and are cut there: 1",)
    assert whole.notes == ()


def test_jobs_that_cannot_run_again_are_counted_by_reason(log: Callable[..., Path]) -> None:
    jobs = read_swf(
        log(
            line(1, run=-1),
            line(2, run=-1, requested=-1),
            line(3, requested=-1),
            line(4, requested=9),
            line(5, run=0, requested=8),
        ),
        machine=8,
    )
    assert jobs.label.tolist() == [5]
    assert dict(jobs.dropped) == {"no run time": 2, "no size": 1, "wider than the machine": 1}


@pytest.mark.parametrize(
    ("cpu", "run", "use"),
    [(5, 10, 0.5), (0, 10, 0.0), (10, 10, 1.0), (25, 10, 1.0), (-1, 10, None), (-3, 10, None), (5, 0, None)],
)
def test_cpu_use_is_cpu_time_by_run_time(log: Callable[..., Path], cpu: float, run: float, use: float | None) -> None:
    [found] = read_swf(log(line(run=run, cpu=cpu))).cpu.tolist()
    assert (None if np.isnan(found) else found) == use


def test_more_cpu_time_than_run_time_is_said_where_rounding_does_not_explain_it(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(*(line(job, cpu=cpu, time=60) for job, cpu in enumerate((9, 10, 11, 11.5, 25)))))
    assert jobs.cpu.tolist() == [0.9, 1, 1, 1, 1]
    assert jobs.notes == ("jobs with a tenth more CPU time than run time; their CPU use counts as 1: 2",)


def test_cpu_use_counts_the_run_time_that_was_and_stays_with_its_job(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(line(2, 5, 100, time=60, cpu=50), line(1, 1, 10, cpu=9)))
    assert jobs.cpu.tolist() == [0.9, 0.5]
    assert seconds(jobs.runtime) == [10, 60]


def test_cpu_use_is_written_and_read_again(tmp_path: Path) -> None:
    cpu = [0.123456789, 1.0, 0.0, np.nan]
    jobs = workload_us(release=[0, 1, 2, 3], runtime=[1000 * SECOND] * 4, width=[2, 1, 3, 2], cpu=cpu)
    write_swf(jobs, tmp_path / "jobs.swf")
    np.testing.assert_allclose(read_swf(tmp_path / "jobs.swf").cpu, cpu, atol=1e-9)


def test_a_header_is_written_and_what_it_says_is_read(tmp_path: Path) -> None:
    jobs = workload_us(release=[0, 1], runtime=[SECOND, SECOND], width=[2, 9])
    write_swf(jobs, tmp_path / "jobs.swf", [("MaxProcs", 8), ("Note", "seed 3")])
    text = (tmp_path / "jobs.swf").read_text()
    begin = (
        "; Version: 2.2\n; MaxJobs: 2\n; MaxRecords: 2\n; MaxProcs: 8\n; Note: seed 3\n; Note: written by Headway\n0 0"
    )
    assert text.startswith(begin)
    assert processors_of(tmp_path / "jobs.swf") == 8
    assert read_swf(tmp_path / "jobs.swf").width.tolist() == [2]
    write_swf(jobs, tmp_path / "jobs.swf")
    assert processors_of(tmp_path / "jobs.swf") is None


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("; MaxNodes: 4\n; MaxProcs: 8\n", [1, 2]),
        ("; MaxNodes: 4 (two racks)\n", [1]),
        ("; MaxNodes: 4\n; MaxProcs: -1\n", [1]),
        ("; Computer: none\n", [1, 2, 3]),
    ],
)
def test_the_header_says_how_wide_the_machine_is(log: Callable[..., Path], header: str, labels: list[int]) -> None:
    path = log(header, line(1, requested=4), line(2, requested=8), line(3, requested=16))
    assert read_swf(path).label.tolist() == labels
    assert read_swf(path, machine=16).label.tolist() == [1, 2, 3]


def test_jobs_come_in_order_of_submission_then_number(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(line(9, 5, time=60), line(4, 7, time=60), line(2, 5, time=60), line(3, 1, time=60)))
    assert jobs.label.tolist() == [3, 2, 9, 4]
    assert seconds(jobs.release) == [1, 5, 5, 7]
    assert jobs.notes == ("jobs that stood behind one submitted later, put in order: 2",)
    in_order = read_swf(log(line(9, 5, time=60), line(2, 5, time=60)))
    assert (in_order.label.tolist(), in_order.notes) == ([2, 9], ()), "the order of numbers is no matter"


def test_comments_empty_lines_line_ends_and_stray_bytes_do_no_harm(log: Callable[..., Path]) -> None:
    path = log(
        "; Partition: \xff\x80\n",
        "\n",
        "  ; indented\n",
        line(1, time=60).replace("\n", "\r\n"),
        "   \t \n",
        line(2, time=60).replace(" ", "\t"),
        "; between\n",
        line(3, time=60).replace("\n", " ; said later"),
    )
    jobs = read_swf(path)
    assert jobs.label.tolist() == [1, 2, 3]
    assert (dict(jobs.dropped), jobs.notes) == ({}, ())


def test_fractions_of_seconds_are_kept_to_the_microsecond(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(line(submit=1.25, run=0.000001)))
    assert (jobs.release.tolist(), jobs.runtime.tolist()) == ([1_250_000], [1])


BROKEN = {
    "too few fields": ("1 0 -1 10\n", "number of fields is 4; allowed: 18"),
    "too many fields": (line().strip() + " 5\n", "number of fields is 19; allowed: 18"),
    "a word": (line().replace("10", "ten"), "field 4 is 'ten'; allowed: a number"),
    "not finite": (line().replace("10", "nan"), "field 4 is 'nan'; allowed: a finite number"),
    "negative submission": (line(submit=-5), "submit time is '-5'; allowed: seconds, 0 to"),
    "submission unknown": (line(submit=-1), "submit time is '-1'; allowed: seconds, 0 to"),
    "negative run time": (
        line(run=-3),
        "run time is '-3'; allowed: seconds, 0 to 1152921504606, or -1 where unknown",
    ),
    "negative requested time": (line(time=-7), "requested time is '-7'"),
    "half a processor": (line().replace("7", "0.5"), "user is '0.5'; allowed: a whole number"),
    "beyond all time": (line(submit=1e15), "submit time is"),
}


@pytest.mark.parametrize(("broken", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_line_is_left_out_counted_and_shown(log: Callable[..., Path], broken: str, says: str) -> None:
    jobs = read_swf(log("; header\n", line(1), broken, line(2)))
    assert jobs.label.tolist() == [1, 2]
    assert dict(jobs.dropped) == {"broken line": 1}
    note, _ = jobs.notes
    assert note.startswith("broken lines left out: 1, first 3; ")
    assert f"log.swf:3: {says}" in note


def test_a_mark_at_the_beginning_is_not_part_of_the_first_line(log: Callable[..., Path]) -> None:
    mark = "\ufeff".encode().decode("latin-1")
    headed = log(mark, "; MaxProcs: 8\n", line(1, time=60))
    assert (processors_of(headed), read_swf(headed).notes) == (8, ())
    bare = log(mark, line(7), name="bare.swf")
    assert read_swf(bare).label.tolist() == [7]
    assert line_of(bare, 7) == 1


def test_if_nothing_is_left_the_first_broken_line_is_named_beside_the_reasons(log: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_swf(log(line(1, run=-1), line(2, submit=-5), line(3, submit=-5)))
    assert refused.value.hint.startswith("All records are left out: broken line: 2, no run time: 1. ")
    assert "The first broken line: " in refused.value.hint
    assert "log.swf:2: submit time is '-5'; allowed: seconds, 0 to" in refused.value.hint


def test_line_numbers_hold_throughout_a_long_log(log: Callable[..., Path]) -> None:
    lines = [line(job, job) for job in range(10_000)]
    broken = [2, 3_000, 9_998]
    for number in broken:
        lines[number - 1] = "broken\n"
    jobs = read_swf(log(*lines))
    assert len(jobs) == 9_997
    assert "first 2, 3000, 9998;" in jobs.notes[0]


def test_only_the_first_broken_lines_are_named(log: Callable[..., Path]) -> None:
    jobs = read_swf(log(line(1), *["x\n"] * 100))
    assert dict(jobs.dropped) == {"broken line": 100}
    assert "first 2, 3, 4, 5, 6;" in jobs.notes[0]


def test_a_wholly_broken_log_is_refused_with_its_first_broken_line(log: Callable[..., Path]) -> None:
    path = log("; header\n", "job,release\n", "1,2\n")
    with pytest.raises(InvalidInput, match="number of fields is 1; allowed: 18") as refusal:
        read_swf(path)
    assert (refusal.value.source, refusal.value.line) == (str(path), 2)
    assert "No line of the file is a job" in str(refusal.value)


@pytest.mark.parametrize("content", ["", "; only a header\n", "\n\n"])
def test_an_empty_log_is_refused(log: Callable[..., Path], content: str) -> None:
    with pytest.raises(InvalidInput, match=r"log.swf: number of jobs is 0; allowed: 1 or more(.|\n)*holds no record"):
        read_swf(log(content))


def test_a_log_of_which_nothing_is_left_says_why(log: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInput, match="no run time: 1, wider than the machine: 2"):
        read_swf(log(line(1, run=-1), line(2, requested=9), line(3, requested=9)), machine=8)


def test_a_machine_without_slots_is_refused(log: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInput, match="machine is 0; allowed: 1 slot or more"):
        read_swf(log(line()), machine=0)


def test_a_gzipped_log_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "zipped.swf"
    path.write_bytes(gzip.compress(line(5).encode()))
    assert read_swf(path).label.tolist() == [5]


def test_half_a_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.swf.gz"
    whole = gzip.compress("".join(line(job) for job in range(5_000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(HeadwayError, match=r"half.swf.gz is not a whole gzip file"):
        read_swf(path)


def test_an_absent_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"cannot read .*absent.swf: No such file"):
        read_swf(tmp_path / "absent.swf")
    with pytest.raises(HeadwayError, match=r"cannot read .*: Is a directory"):
        read_swf(tmp_path)


def same(one: Workload, other: Workload) -> bool:
    names = ("label", "release", "tasks", "width", "runtime", "estimate", "user", "kind")
    return all(getattr(one, name).tolist() == getattr(other, name).tolist() for name in names)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    jobs = workload_us(
        label=[7, 3],
        release=[0, 1_500_000],
        runtime=[SECOND, 0],
        width=[2, 1],
        kind=Kind.RIGID,
        estimate=[2 * SECOND, 1],
        user=["4", ""],
    )
    for name in ("jobs.swf", "jobs.swf.gz"):
        write_workload(jobs, tmp_path / name)
        assert same(read_workload(tmp_path / name), jobs)


def test_equal_workloads_give_equal_bytes(tmp_path: Path) -> None:
    jobs = workload_us(release=[0], runtime=[SECOND])
    write_swf(jobs, tmp_path / "one.swf.gz")
    write_swf(jobs, tmp_path / "two.swf.gz")
    assert (tmp_path / "one.swf.gz").read_bytes() == (tmp_path / "two.swf.gz").read_bytes()


def test_names_are_numbered_where_the_format_wants_numbers(tmp_path: Path) -> None:
    jobs = workload_us(release=[0, 0, 0], runtime=[1, 1, 1], label=["a", "b", "c"], user=["eve", "", "eve"])
    write_swf(jobs, tmp_path / "named.swf")
    again = read_swf(tmp_path / "named.swf")
    assert (again.label.tolist(), again.user.tolist()) == ([1, 2, 3], ["1", "", "1"])


def test_a_workflow_has_no_place_in_a_log(tmp_path: Path) -> None:
    jobs = workload_us(release=[0], runtime=[1], kind=Kind.WORKFLOW)
    with pytest.raises(InvalidInput, match="kind is 'workflow'"):
        write_swf(jobs, tmp_path / "flow.swf")


RECORDS = {
    "CTC-SP2-1996-3.1-cln.swf.gz": (77_222, {}),
    "HPC2N-2002-2.2-cln.swf.gz": (202_871, {}),
    "SDSC-SP2-1998-4.2-cln.swf.gz": (59_715, {"no run time": 5_671}),
    "SDSC-Par-1996-3.1-cln.swf.gz": (32_135, {}),
    "CEA-Curie-2011-2.1-cln.swf.gz": (312_826, {"no size": 19}),
    "NASA-iPSC-1993-3.1-cln.swf.gz": (18_239, {}),
    "lublin_256.swf.gz": (10_000, {}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", RECORDS)
def test_public_logs_hold_the_records_they_are_known_to_hold(shared_data: Callable[[str], Path], name: str) -> None:
    records, dropped = RECORDS[name]
    jobs = read_swf(shared_data(f"swf/{name}"))
    assert dict(jobs.dropped) == dropped
    assert len(jobs) == records - sum(dropped.values())
    assert (np.diff(jobs.release) >= 0).all()


def test_a_machine_of_thousands_of_digits_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(f"; MaxProcs: {'9' * 5000}\n{' '.join(['1'] * 18)}\n")
    with pytest.raises(InvalidInput, match=r"MaxProcs is '999.*allowed: a whole number of at most 9 digits"):
        read_swf(tmp_path / "log.swf")
