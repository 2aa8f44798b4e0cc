"""What a simulation writes to a folder: schedules, metrics, and the pictures that suit a run of its size."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from headway.cli.show import counted, seconds_in, span
from headway.errors import HeadwayError, InvalidInput
from headway.metrics import to_json, write_schedule, write_services, write_tasks
from headway.model.policy import uses_tiers
from headway.model.schedule import Schedule
from headway.model.workload import Workload
from headway.policies.registry import find
from headway.times import span_text

GANTT_JOBS_MAX: Final = 300
"""Of runs of more jobs no Gantt chart is drawn unless a part is asked for: single jobs could not be distinguished."""

ATTEMPTS_MAX: Final = 200_000
"""Runs with more tasks have none either, because recording what ran where takes memory."""

GRAPHS_MAX: Final = 10
"""Of more workflows no graphs are drawn."""

GRAPH_TASKS_MAX: Final = 300
"""Nor is that of a workflow of more tasks: its lines could not be distinguished."""

PART_ATTEMPTS_MAX: Final = 2_000_000
"""Nor a part of runs of more tasks."""


@dataclass(frozen=True, slots=True)
class PictureFolder:
    """A folder, and which pictures of schedules go there.

    Attributes:
        folder: made when something is written.
        subject: the title of the pictures: jobs, slots and load.
        slots: of the cluster.
        jobs, tasks: of the workload.
        start, end: the part of the runs to draw, in seconds on the clock of the log; None: from the first release,
            up to the end.
    """

    folder: Path
    subject: str
    slots: int
    jobs: int
    tasks: int
    start: float | None = None
    end: float | None = None

    @property
    def is_part(self) -> bool:
        """Whether a part of the runs was asked for."""
        return self.start is not None or self.end is not None

    @property
    def has_gantt(self) -> bool:
        """Whether Gantt charts are drawn."""
        return self.is_part or (self.jobs <= GANTT_JOBS_MAX and self.tasks <= ATTEMPTS_MAX)

    def records(self, policy: str) -> bool:
        """Whether runs under a policy must record what ran where: for a Gantt chart, or for the tiers."""
        return self.has_gantt or (uses_tiers(find(policy)) and self.tasks <= PART_ATTEMPTS_MAX)

    def write(self, schedules: Mapping[str, Schedule], metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Write schedules, metrics as JSON and CSV, and pictures if matplotlib is installed.

        Returns:
            Sentences: what pictures show, if that depends on the run, and the names of all files.

        Raises:
            HeadwayError: something cannot be written.
        """
        make_folder(self.folder)
        written = [*_write_metrics(self.folder, metrics)]
        for text, done in schedules.items():
            written.append(file_for(self.folder / "schedule.csv", text))
            write_schedule(done, written[-1])
            if done.services:
                written.append(file_for(self.folder / "services.csv", text))
                write_services(done, written[-1])
            if done.workflows and done.attempts is not None:
                written.append(file_for(self.folder / "tasks.csv", text))
                write_tasks(done, written[-1])
        said = []
        if find_spec("matplotlib") is None:
            click.echo("No pictures: install matplotlib with `pip install 'headway[plot]'`.", err=True)
        else:
            for text, done in schedules.items():
                written += self._draw(text, done)
            written += self._draw_graphs(next(iter(schedules.values())))
            if len(metrics) > 1:
                from headway import pictures

                written.append(self.folder / "comparison.png")
                pictures.comparison(metrics, written[-1], title=self.subject)
                if all("energy_joules" in one for one in metrics.values()):
                    written.append(self.folder / "energy.png")
                    _draw_energy(metrics, written[-1], self.subject)
            said = self._remarks(schedules)
        return [*said, f"Written to {self.folder}: {', '.join(path.name for path in written)}."]

    def _draw(self, text: str, done: Schedule) -> list[Path]:
        """Draw one schedule. Returns the names of the files."""
        from headway import pictures

        title = f"{text}, {self.subject}"
        gantt, allocation, timeline = (
            file_for(self.folder / f"{kind}.png", text) for kind in ("gantt", "allocation", "timeline")
        )
        written = []
        if not self.has_gantt or (self.is_part and self.jobs > GANTT_JOBS_MAX):
            pictures.timeline(done, timeline, slots=self.slots, title=title)
            written.append(timeline)
        if self._is_drawn(done):
            span = {"start": self.start, "end": self.end}
            pictures.gantt(done, gantt, slots=self.slots, title=title, **span)
            pictures.allocation(done, allocation, title=title, **span)
            written += [gantt, allocation]
        return written

    def _draw_graphs(self, done: Schedule) -> list[Path]:
        """Draw the graphs of workflows, which are the same in all runs. Returns the names of the files."""
        from headway import pictures

        written = []
        for job, graph in done.workflows.items() if len(done.workflows) <= GRAPHS_MAX else ():
            if len(graph) <= GRAPH_TASKS_MAX:
                label = str(done.label[job])
                written.append(file_for(self.folder / "workflow.png", label))
                pictures.workflow(graph, written[-1], labels=done.task_labels.get(job, ()), title=label)
        return written

    def _is_drawn(self, done: Schedule) -> bool:
        """Whether a Gantt chart of a schedule would show anything."""
        ran = done.attempts is not None and len(done.attempts) > 0
        return self.has_gantt and ran and not self._is_past(done)

    def _is_past(self, done: Schedule) -> bool:
        """Whether it had ended before the part that was asked for."""
        return self.start is not None and self.start * 1e6 >= done.until

    def _remarks(self, schedules: Mapping[str, Schedule]) -> list[str]:
        if not self.has_gantt:
            many = f"{self.jobs:,} jobs" if self.jobs > GANTT_JOBS_MAX else f"{self.tasks:,} tasks"
            most = GANTT_JOBS_MAX if self.jobs > GANTT_JOBS_MAX else ATTEMPTS_MAX
            over_time = "Pictures show queue, use, wait and lateness over time"
            why = f"a Gantt chart of {many} (more than {most:,}) could not be read"
            return [f"{over_time}: {why}. --from and --to draw one of a part."]
        said = []
        for text, done in schedules.items():
            if self._is_past(done):
                until = span(self.start or 0)
                said.append(f"{text}: there is no Gantt chart, for the run had ended by {until} (--from).")
            elif not self._is_drawn(done):
                said.append(f"{text}: there is no Gantt chart, for no task ran.")
        return said


def output_to(
    folder: str, subject: str, slots: int, workload: Workload, start: str | None = None, end: str | None = None
) -> PictureFolder:
    """The output of runs of a workload, checked before they begin.

    Raises:
        InvalidInput: `start` or `end` is not a time, or `end` is before `start` or the first release.
        HeadwayError: the folder cannot be made, or there is too much to draw a part.
    """
    times = [None if text is None else log_time_in(text, f"--{name}") for name, text in (("from", start), ("to", end))]
    found = PictureFolder(Path(folder), subject, slots, len(workload), int(workload.tasks.sum()), *times)
    first = int(workload.release[0]) / 1e6
    if found.end is not None and found.end <= max(first, found.start or 0.0):
        if found.start is not None and found.start >= first:
            raise InvalidInput("--to", end, f"a time after --from, {start}")
        raise InvalidInput("--to", end, f"a time after the first release, {span_text(first)} on the log's clock")
    if found.is_part and found.tasks > PART_ATTEMPTS_MAX:
        raise HeadwayError(
            f"--from and --to need what ran where, and {found.tasks:,} tasks are too many to record it",
            f"At most {PART_ATTEMPTS_MAX:,} can be: leave jobs out with --first.",
        )
    make_folder(found.folder)
    return found


def log_time_in(text: str, field: str) -> float:
    """Seconds on the clock of a log: a span such as `50h` or `2d` from its zero, or an ISO time where it has dates.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        return datetime.fromisoformat(text).timestamp() if "-" in text else seconds_in(text, field)
    except (ValueError, InvalidInput):
        allowed = "a time on the log's clock, as 50h or 2d, or, if the log has dates, 2030-01-31T18:00"
        raise InvalidInput(field, text, allowed) from None


def subject(name: str, workload: Workload, slots: int) -> str:
    """What pictures of runs are about, in a line: the name of the log, jobs, slots, load.

    >>> from headway import workload_of
    >>> subject("log.swf", workload_of(release=[0, 0], runtime=[5, 5]), 64)
    'log.swf: 2 jobs on 64 slots'
    """
    from headway.traces.transforms import offered_load

    told = f"{name}: {counted(len(workload), 'job')} on {counted(slots, 'slot')}"
    if workload.release[-1] == workload.release[0]:
        return told
    return f"{told}, offered load {offered_load(workload, slots):.2f}"


def make_folder(folder: Path) -> None:
    """Make a folder to write to, if there is none.

    Raises:
        HeadwayError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadwayError(f"cannot write to {folder}: {error.strerror or error}") from error


def file_for(path: Path, policy: str) -> Path:
    """A file name with the policy before its ending: `out.csv` and `easy:order=due` give `out-easy-order-due.csv`."""
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    bare = path.name.removesuffix(ending)
    return path.with_name(f"{bare}-{re.sub(r'[^A-Za-z0-9.]+', '-', policy).strip('-')}{ending}")


def _write_metrics(folder: Path, metrics: Mapping[str, Mapping[str, Any]]) -> tuple[Path, Path]:
    as_json, as_csv = folder / "metrics.json", folder / "metrics.csv"
    try:
        as_json.write_text(to_json(metrics), "utf-8")
        with as_csv.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            names = list(next(iter(metrics.values())))
            lines.writerow(["policy", *names])
            for text, told in metrics.items():
                lines.writerow([text, *("" if _is_nothing(told[name]) else told[name] for name in names)])
    except OSError as error:
        raise HeadwayError(f"cannot write to {folder}: {error.strerror or error}") from error
    return as_json, as_csv


def _is_nothing(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _draw_energy(metrics: Mapping[str, Mapping[str, float]], path: Path, title: str) -> None:
    """Draw energy against makespan, a point for each policy."""
    from headway import pictures
    from headway.pictures import Mean, Point

    points = {
        text: Point(Mean(one["makespan"] / 3600, 0.0), Mean(one["energy_joules"] / 3.6e6, 0.0))
        for text, one in metrics.items()
    }
    pictures.plane({"": points}, path, x="makespan, hours", y="energy, kWh", better="less", log=False, title=title)
