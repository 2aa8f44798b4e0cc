"""Summaries and files of schedules, with jobs that ended in every way."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import HeadwayError
from headway.metrics import frame, penalties, penalty_by_user, summarise, to_json, write_schedule
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, SECOND
from headway.model.job import PENALTY_MAX, SHAPES, Kind
from headway.model.schedule import NOT_YET, STATUSES, Course, Schedule, Totals, attempts_of, schedule_of
from headway.model.workload import workload_us

S = SECOND
COURSE = ("status", "holdings", "alone")


def finished(
    release: list[int],
    start: list[int],
    end: list[int],
    *,
    capacity: int = 4,
    run: dict[str, Any] | None = None,
    **terms: Any,
) -> Schedule:
    """A schedule of jobs with these times in seconds; `run` goes to the schedule, `terms` to the workload."""
    times = [np.array(column) * S for column in (release, start, end)]
    missing = [np.array(column) == NOT_YET for column in (start, end)]
    starts, ends = (np.where(gone, NOT_YET, column) for gone, column in zip(missing, times[1:], strict=True))
    workload = workload_us(**({"release": times[0], "runtime": np.maximum(ends - starts, 0)} | terms))
    course = {name: value for name, value in (run or {}).items() if name in COURSE}
    totals = {name: value for name, value in (run or {}).items() if name not in COURSE}
    return schedule_of(workload, Course(starts, ends, **course), capacity, Totals(**totals))


def test_times_of_jobs_that_succeeded() -> None:
    told = summarise(finished([0, 0, 10], [0, 20, 20], [20, 25, 50]))
    assert (told["jobs"], told["jobs_succeeded"], told["jobs_unfinished"]) == (3, 3, 0)
    assert told["wait_mean"] == 10
    assert (told["wait_p50"], told["wait_max"]) == (10, 20)
    assert told["wait_p95"] == pytest.approx(19)
    assert told["response_mean"] == pytest.approx((20 + 25 + 40) / 3)
    assert told["bounded_slowdown_mean"] == pytest.approx((1 + 2.5 + 40 / 30) / 3)
    assert told["makespan"] == 50
    assert told["utilisation"] == pytest.approx((20 + 5 + 30) / (4 * 50))
    assert told["tardiness_max"] != told["tardiness_max"], "no job has a due date"
    assert (told["deadline_miss_rate"], told["total_penalty"], told["jobs_due"]) == (0, 0, 0)


def test_lateness_counts_by_priority_and_by_rate() -> None:
    told = summarise(
        finished([0] * 3, [0] * 3, [10, 30, 5], due=[8 * S, 30 * S, NEVER], priority=[7, 9, 1], rate=[0.5, 1, 1])
    )
    assert told["jobs_due"] == 2
    assert told["deadline_miss_rate"] == 0.5
    assert (told["tardiness_mean"], told["tardiness_max"]) == (1, 2)
    assert told["deadline_miss_penalty"] == 14
    assert told["total_penalty"] == 1


def test_what_each_job_and_each_user_costs() -> None:
    _, root, square = range(len(SHAPES))
    done = finished(
        [0] * 4,
        [0] * 4,
        [10, 30, 5, 9],
        due=[6 * S, 26 * S, NEVER, 9 * S],
        rate=[0.5, 1e300, 1, 1],
        shape=[root, square, square, square],
        user=["ann", "bob", "ann", ""],
    )
    assert penalties(done).tolist() == [1, PENALTY_MAX, 0, 0]
    assert penalty_by_user(done) == {"": 0, "ann": 1, "bob": PENALTY_MAX}
    assert summarise(done)["total_penalty"] == PENALTY_MAX


def test_jobs_that_did_not_succeed_are_counted_and_late_to_the_end_of_the_run() -> None:
    ends = [STATUSES.index(status) for status in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)]
    waiting, running = STATUSES.index(JobStatus.WAITING), STATUSES.index(JobStatus.RUNNING)
    told = summarise(
        finished(
            [0] * 5,
            [0, 0, 0, NOT_YET, 1],
            [10, 10, 10, NOT_YET, NOT_YET],
            due=[9 * S, 99 * S, 9 * S, 9 * S, 30 * S],
            run={"status": [*ends, waiting, running], "until": 20 * S},
        )
    )
    assert {name: told[name] for name in told if name.startswith("jobs")} == {
        "jobs": 5,
        "jobs_succeeded": 1,
        "jobs_failed": 1,
        "jobs_cancelled": 1,
        "jobs_unfinished": 2,
        "jobs_due": 4,
    }
    assert told["deadline_miss_rate"] == 1, "nobody knows that the one that runs would have been in time"
    assert told["total_penalty"] == 1 + 11
    assert told["tardiness_mean"] == 1
    assert told["wait_mean"] == 0.25
    assert told["response_mean"] == 10


def test_a_job_that_never_ended_missed_its_due_date() -> None:
    """Until 20 s: one is in time; one waits, due at 15 s, and is 5 s late; one runs, due at 30 s, and just missed."""
    status = [STATUSES.index(each) for each in (JobStatus.SUCCEEDED, JobStatus.WAITING, JobStatus.RUNNING)]
    told = summarise(
        finished(
            [0] * 3,
            [0, NOT_YET, 10],
            [10, NOT_YET, NOT_YET],
            due=[12 * S, 15 * S, 30 * S],
            priority=[1, 3, 7],
            run={"status": status, "until": 20 * S},
        )
    )
    assert told["deadline_miss_rate"] == pytest.approx(2 / 3)
    assert told["deadline_miss_penalty"] == 3 * 5


def test_nothing_is_measured_of_nothing() -> None:
    told = summarise(finished([0], [NOT_YET], [NOT_YET]))
    assert math.isnan(told["wait_mean"])
    assert math.isnan(told["response_p99"])
    assert (told["makespan"], told["decision_ms_mean"]) == (0, 0)


def test_decisions_are_counted_and_timed() -> None:
    told = summarise(finished([0], [0], [1], run={"decisions": 4, "decision_seconds": 0.002}))
    assert (told["decisions"], told["decision_seconds_total"], told["decision_ms_mean"]) == (4, 0.002, 0.5)


def test_refusals_are_counted_over_all_rules() -> None:
    assert summarise(finished([0], [0], [1], run={"refused": {"slots_not_free": 2, "job_unknown": 1}}))["refusals"] == 3
    assert summarise(finished([0], [0], [1]))["refusals"] == 0


def test_without_records_a_job_holds_its_slots_from_start_to_end() -> None:
    """Low runs 0..10, high waits 5..10: half of two jobs for 5 of 20 s; and in one of two rounds."""
    told = summarise(finished([0, 5], [0, 10], [10, 20], priority=[1, 2], run={"rounds": [5 * S, 10 * S]}))
    assert told["priority_violation_rate"] == pytest.approx(0.5 * 5 / 20)
    assert told["priority_violation_rate_rounds"] == 0.25


def test_records_of_holdings_come_first() -> None:
    held = ([0, 5 * S, 8 * S], [0, 1, 0], [1, 1, 0])
    told = summarise(finished([0, 5], [0, 10], [10, 20], priority=[1, 2], run={"holdings": held}))
    assert told["priority_violation_rate"] == 0


def test_the_capacity_that_was_offered_may_change() -> None:
    told = summarise(finished([0], [0], [10], run={"offered": 40 * S, "busy": 30 * S}))
    assert told["utilisation"] == 0.75


def test_a_schedule_is_written_in_seconds(tmp_path: Path) -> None:
    workload = workload_us(label=["a,b", "c", "d"], release=[0, 1, S], runtime=[1, 1, 1], width=[2, 1, 1])
    written = schedule_of(workload, Course([0, 1_500_000, NOT_YET], [2 * S, 3 * S, NOT_YET], slots=[2, 1, 0]), 4)
    write_schedule(written, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (
        b'job,release,start,end,slots\n"a,b",0,0,2,2\nc,0.000001,1.5,3,1\nd,1,,,0\n'
    )
    write_schedule(written, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "job": ["a,b", "c", "d"],
        "release": [0, 1e-6, 1],
        "start": [0, 1.5, None],
        "end": [2, 3, None],
        "slots": [2, 1, 0],
    }


def test_a_long_schedule_is_written_whole(tmp_path: Path) -> None:
    jobs = 25_000
    at = np.arange(jobs) * S
    written = schedule_of(workload_us(release=at, runtime=at), Course(at, at + S), 1)
    write_schedule(written, tmp_path / "long.csv")
    with (tmp_path / "long.csv").open(newline="") as text:
        rows = list(csv.reader(text))[1:]
    assert [row[0] for row in rows] == [str(job) for job in range(jobs)]
    assert rows[-1] == ["24999", "24999", "24999", "25000", "1"]


def test_a_schedule_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"cannot write .*: No such file"):
        write_schedule(finished([0], [0], [1]), tmp_path / "absent" / "out.csv")


def test_json_has_null_for_what_is_no_number() -> None:
    told = to_json([{"policy": "easy", "metrics": {"a": math.nan, "b": np.float64(1.5), "c": np.int64(2)}}])
    assert json.loads(told) == [{"policy": "easy", "metrics": {"a": None, "b": 1.5, "c": 2}}]


@pytest.mark.long
def test_a_data_frame_has_a_row_a_job() -> None:
    pytest.importorskip("pandas")
    table = frame(finished([0, 5], [0, NOT_YET], [10, NOT_YET], due=[9 * S, NEVER]))
    assert table["end"].tolist()[0] == 10
    assert np.isnan(table["start"].iloc[1])
    assert np.isnan(table["due"].iloc[1])
    assert table["status"].tolist() == ["succeeded", "waiting"]
    assert table["alone"].tolist()[0] == 10
    assert np.isnan(table["alone"].iloc[1])
    assert len(table) == 2
    assert frame(finished([0], [0], [90], run={"alone": [30 * S]}))["alone"].tolist() == [30]


def test_the_slowdown_of_a_job_that_ran_behind_others_is_against_its_run_time_alone() -> None:
    """MEASY14 3.3: response / max(run time, 10 s). It ran slowly from 5 to 95; alone it takes 30 s, 2 s, or 95 s."""
    crawled = [
        finished([0], [5], [95], run={"alone": [alone * S], "migrations": 3, "kills": 2}) for alone in (30, 2, 95)
    ]
    told = [summarise(done) for done in crawled]
    assert [one["bounded_slowdown_mean"] for one in told] == pytest.approx([95 / 30, 9.5, 1])
    assert [one["response_mean"] for one in told] == [95] * 3
    assert (told[0]["migrations"], told[0]["kills"]) == (3, 2)
    assert summarise(finished([0], [5], [95]))["bounded_slowdown_mean"] == pytest.approx(95 / 90)


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HeadwayError, match=r"needs pandas\n.*headway\[frames\]"):
        frame(finished([0], [0], [1]))


def test_a_schedule_fills_in_what_a_plain_run_leaves_out() -> None:
    workload = workload_us(release=[3, 5], runtime=[10, 10], tasks=[6, 1], width=[1, 4])
    plain = schedule_of(workload, Course([3, NOT_YET], [13, NOT_YET]), 8)
    assert plain.slots.tolist() == [6, 4]
    assert plain.status.tolist() == [STATUSES.index(JobStatus.SUCCEEDED), STATUSES.index(JobStatus.WAITING)]
    assert (plain.begin, plain.until, plain.busy, plain.offered) == (3, 13, 60, 80)
    assert workload.kind.tolist() == [Kind.BAG, Kind.RIGID]


def test_attempts_on_scattered_slots_have_a_row_for_each_run() -> None:
    rows = attempts_of([(4, 2, 0, 0b1100, 0, 5, False, False), (7, 0, 1, 0b10011, 5, 9, True, False)])
    assert rows.job.tolist() == [4, 7, 7]
    assert (rows.first.tolist(), rows.count.tolist()) == ([2, 0, 4], [2, 2, 1])
    assert rows.wasted.tolist() == [False, True, True]
    assert len(attempts_of([])) == 0
