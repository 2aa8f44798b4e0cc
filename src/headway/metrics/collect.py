"""The measures of a whole schedule, and schedules as files and data frames."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.metrics import measures
from headway.metrics.batches import BATCHES, WARM_UP, Interval, batch_means
from headway.metrics.energy import energy_of
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, SECOND, seconds_text, to_seconds
from headway.model.job import SHAPES
from headway.model.renting import UNIT
from headway.model.schedule import NOT_YET, STATUSES, Schedule, task_runs
from headway.model.workload import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

Metrics = dict[str, float | int]
SCHEDULE_COLUMNS: Final = ("job", "release", "start", "end", "slots")
TASK_COLUMNS: Final = ("job", "task", "node", "start", "end", "slots")


def summarise(schedule: Schedule) -> Metrics:
    """All measures of a schedule by name; times in seconds, `nan` for a mean or percentile of nothing.

    - `jobs`, and of these `jobs_succeeded`, `jobs_failed`, `jobs_cancelled`, `jobs_unfinished`; `jobs_due`: those that
      have a due date and were not cancelled.
    - `wait_…` (from release to first start) of jobs that started; `response_…` and `bounded_slowdown_…` (10 s) of jobs
      that succeeded; `tardiness_…` of those of them that have a due date; each `mean`, `p50`, `p95`, `p99`, `max`.
    - `deadline_miss_rate` of the jobs with a due date: late, or failed or unfinished. `deadline_miss_penalty` (Lin14)
      and `total_penalty` (rate times the shape of tardiness) over them. A job that did not succeed is as late as the
      end of the run is after its due date; one that was cancelled is not late.
    - `priority_violation_rate` over time and `priority_violation_rate_rounds` over planning rounds (Lin14).
    - `utilisation`; `work_lost`, slot-seconds of attempts that had to be redone, and how many of them were `kills`;
      `migrations`, of attempts that continued elsewhere with their work; `makespan`; `decisions`,
      `decision_seconds_total`, `decision_ms_mean`; `refusals`, of parts of plans.
    - `energy_joules`, if all nodes say what they draw (DN13).
    - `money`, what rented machines cost, if any was rented (Kim12).
    - `services_penalty`, what the windows of the services cost (Chang16).
    """
    succeeded = schedule.has(JobStatus.SUCCEEDED)
    failed, cancelled = schedule.has(JobStatus.FAILED), schedule.has(JobStatus.CANCELLED)
    has_due, late = _lateness(schedule)
    over_time, over_rounds = _priority_violation_rates(schedule)
    ended = schedule.end != NOT_YET
    return {
        "jobs": len(schedule),
        "jobs_succeeded": int(succeeded.sum()),
        "jobs_failed": int(failed.sum()),
        "jobs_cancelled": int(cancelled.sum()),
        "jobs_unfinished": int((~(succeeded | failed | cancelled)).sum()),
        "jobs_due": int(has_due.sum()),
        **{
            name: told for measure, values in stays(schedule).items() for name, told in _spread(measure, values).items()
        },
        **_spread("tardiness", late[succeeded & has_due]),
        "deadline_miss_rate": measures.deadline_miss_rate(((late > 0) | ~succeeded)[has_due]),
        "deadline_miss_penalty": measures.deadline_miss_penalty(schedule.priority[has_due], late[has_due]),
        "total_penalty": float(penalties(schedule).sum()),
        "priority_violation_rate": over_time,
        "priority_violation_rate_rounds": over_rounds,
        "utilisation": measures.utilisation(schedule.busy, schedule.offered),
        "work_lost": schedule.lost / SECOND,
        "kills": schedule.kills,
        "migrations": schedule.migrations,
        "makespan": measures.makespan(schedule.release, schedule.end[ended]) / SECOND,
        "decisions": schedule.decisions,
        "decision_seconds_total": schedule.decision_seconds,
        "decision_ms_mean": schedule.decision_seconds / schedule.decisions * 1000 if schedule.decisions else 0.0,
        "refusals": schedule.refusals,
        "services_penalty": sum([service.penalty for service in schedule.services]),
        **({} if (energy := energy_of(schedule)) is None else {"energy_joules": energy.joules}),
        **({"money": sum(row.cost for row in schedule.rentals) / UNIT} if schedule.rentals else {}),
    }


def _lateness(schedule: Schedule) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which jobs can be late, and by how many seconds each is; see `summarise`."""
    cancelled = schedule.has(JobStatus.CANCELLED)
    completion = np.where(schedule.has(JobStatus.SUCCEEDED), schedule.end, schedule.until)
    return (schedule.due < NEVER) & ~cancelled, _seconds(measures.tardiness(completion, schedule.due))


def penalties(schedule: Schedule) -> FloatArray:
    """What each job cost, shape (jobs,): its rate times the shape of its tardiness; see `summarise`."""
    has_due, late = _lateness(schedule)
    return measures.penalties(schedule.rate, np.where(has_due, late, 0.0), schedule.shape)


def penalty_by_user(schedule: Schedule) -> dict[str, float]:
    """What the jobs of each user cost, by name; "" for those without a user."""
    costs: dict[str, float] = {}
    for user, cost in zip(schedule.user.tolist(), penalties(schedule).tolist(), strict=True):
        costs[str(user)] = costs.get(str(user), 0.0) + cost
    return dict(sorted(costs.items()))


def intervals(schedule: Schedule, batches: int = BATCHES, *, warm_up: float = WARM_UP) -> dict[str, Interval]:
    """Means of `wait`, `response` and `bounded_slowdown` with 95 % confidence intervals, by their names in `summarise`.

    They cover the same jobs as there, in order of release, without those of the warm-up.

    Raises:
        InvalidInput: as of `headway.metrics.batches.batch_means`.
    """
    return {
        f"{measure}_mean": batch_means(values, batches, warm_up=warm_up) for measure, values in stays(schedule).items()
    }


def stays(schedule: Schedule) -> dict[str, FloatArray]:
    """How long jobs waited and stayed: `wait` (s) of those that started; `response` (s) and `bounded_slowdown` of those
    that succeeded; each in order of release.

    The slowdown is relative to the time that a job's work takes with its slots to itself.
    """
    succeeded, started = schedule.has(JobStatus.SUCCEEDED), schedule.start != NOT_YET
    alone = measures.wait(schedule.start, schedule.end) if schedule.alone is None else schedule.alone
    runs = _seconds(alone)[succeeded]
    responses = _seconds(measures.response(schedule.release, schedule.end))[succeeded]
    return {
        "wait": _seconds(measures.wait(schedule.release, schedule.start))[started],
        "response": responses,
        "bounded_slowdown": measures.bounded_slowdown(np.maximum(responses - runs, 0), runs),
    }


def _seconds(microseconds: NDArray[Any]) -> FloatArray:
    return microseconds / SECOND


def _spread(name: str, values: FloatArray) -> Metrics:
    middle, high, highest = measures.percentiles(values, (50, 95, 99)).tolist()
    mean, most = (float(values.mean()), float(values.max())) if len(values) else (math.nan, math.nan)
    return {
        f"{name}_mean": mean,
        f"{name}_p50": middle,
        f"{name}_p95": high,
        f"{name}_p99": highest,
        f"{name}_max": most,
    }


def _priority_violation_rates(schedule: Schedule) -> tuple[float, float]:
    if not len(schedule) or (schedule.priority == schedule.priority[0]).all():
        return 0.0, 0.0
    if schedule.holdings is not None:
        at, job, slots = schedule.holdings.at, schedule.holdings.job, schedule.holdings.slots
    else:
        job = np.flatnonzero(schedule.start != NOT_YET)
        at, slots = schedule.start[job], schedule.slots[job]
    steps = measures.violated_share(schedule.priority, schedule.release, schedule.end, at, job, slots)
    return measures.over_time(steps, schedule.until), measures.over_instants(steps, schedule.rounds)


def write_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write `job,release,start,end,slots` for each job, by release, then place; JSON if the name ends in .json.

    Times are exact seconds on the log's clock, without a decimal point if they are whole; what did not happen is empty
    (null). `slots` is the most that the job had at once.

    Raises:
        HeadwayError: the file cannot be written.
    """
    path = Path(path)
    try:
        with path.open("w", encoding="utf-8", newline="") as text:
            if path.suffix.lower() == ".json":
                text.write(to_json(_columns(schedule)))
            else:
                lines = csv.writer(text, lineterminator="\n")
                lines.writerow(SCHEDULE_COLUMNS)
                lines.writerows(_lines(schedule))
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error


def write_tasks(schedule: Schedule, path: str | Path) -> None:
    """Write a CSV file with `job,task,node,start,end,slots` for each task that ran, by job, then task.

    Times are seconds as in `write_schedule`. Attempts whose work was lost are left out. A task that moved with its work
    has a line for each place; of a rigid job on several nodes `node` names all, with `;` between them.

    Raises:
        HeadwayError: the file cannot be written, or the schedule has no attempts.
    """
    path = Path(path)
    found = task_runs(schedule)
    try:
        with path.open("w", encoding="utf-8", newline="") as text:
            lines = csv.writer(text, lineterminator="\n")
            lines.writerow(TASK_COLUMNS)
            for run in found:
                of = schedule.label[run.job], schedule.task_label(run.job, run.task), ";".join(run.nodes)
                lines.writerow((*of, seconds_text(run.start), seconds_text(run.end), run.slots))
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error


def _lines(schedule: Schedule, at_a_time: int = 10_000) -> Iterator[tuple[object, ...]]:
    """The cells of the CSV, some jobs at a time, so that the text of a long schedule needs no memory."""
    for begin in range(0, len(schedule), at_a_time):
        part = slice(begin, begin + at_a_time)
        times = (_texts(getattr(schedule, name)[part]) for name in ("release", "start", "end"))
        yield from zip(schedule.label[part].tolist(), *times, schedule.slots[part].tolist(), strict=True)


def _texts(instants: IntArray) -> list[object]:
    return ["" if instant == NOT_YET else seconds_text(instant) for instant in instants.tolist()]


def _columns(schedule: Schedule) -> dict[str, list[object]]:
    def seconds(instants: IntArray) -> list[object]:
        return [None if instant == NOT_YET else to_seconds(instant) for instant in instants.tolist()]

    return {
        "job": schedule.label.tolist(),
        "release": seconds(schedule.release),
        "start": seconds(schedule.start),
        "end": seconds(schedule.end),
        "slots": schedule.slots.tolist(),
    }


def to_json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON of metrics or of anything made of them; NaN becomes null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def frame(schedule: Schedule) -> pd.DataFrame:
    """The schedule as a data frame, one row for each job: its terms and what became of it, times in seconds.

    `alone` is how long its work takes with its slots to itself: from its start to its end, unless it ran on two tiers.
    What did not happen, and a due date that the job does not have, is NaN.

    Raises:
        HeadwayError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise HeadwayError("a data frame needs pandas", "Install it with: pip install 'headway[frames]'") from error

    def seconds(instants: IntArray) -> FloatArray:
        return np.where((instants == NOT_YET) | (instants >= NEVER), np.nan, instants / SECOND)

    is_over = (schedule.start != NOT_YET) & (schedule.end != NOT_YET)
    alone = measures.wait(schedule.start, schedule.end) if schedule.alone is None else schedule.alone
    return pandas.DataFrame(
        {
            "job": schedule.label,
            "release": seconds(schedule.release),
            "start": seconds(schedule.start),
            "end": seconds(schedule.end),
            "alone": seconds(np.where(is_over, alone, NOT_YET)),
            "slots": schedule.slots,
            "tasks": schedule.tasks,
            "width": schedule.width,
            "runtime": seconds(schedule.runtime),
            "due": seconds(schedule.due),
            "priority": schedule.priority,
            "rate": schedule.rate,
            "shape": [SHAPES[shape].value for shape in schedule.shape.tolist()],
            "user": schedule.user,
            "penalty": penalties(schedule),
            "status": [STATUSES[status].value for status in schedule.status.tolist()],
        }
    )
