"""The files that a command writes about a run, besides pictures: of a simulation, or of the history of a server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headway.cli.output import PART_ATTEMPTS_MAX, file_for
from headway.cli.paths import WrittenPath
from headway.errors import HeadwayError, InvalidInput
from headway.metrics import write_schedule, write_tasks
from headway.model.schedule import Schedule
from headway.model.workload import Workload

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class FilesWanted:
    """Which files are wanted of each run; None: not that one.

    Attributes:
        schedule: CSV with a line for each job.
        tasks: CSV with a line for each task.
        wfformat: what ran of a workflow, as WfFormat.
    """

    schedule: str | None
    tasks: str | None
    wfformat: str | None

    @property
    def by_task(self) -> bool:
        """Whether it must be recorded what ran where."""
        return self.tasks is not None or self.wfformat is not None

    def check(self, workload: Workload) -> None:
        """See before a long run that there is something to write, and not too much.

        Args:
            workload: what is to run.

        Raises:
            HeadwayError: there is too much to record, or workflows are wanted where none are.
        """
        tasks = int(workload.tasks.sum())
        if self.by_task and tasks > PART_ATTEMPTS_MAX:
            raise HeadwayError(
                f"{tasks:,} tasks are too many to record what ran where",
                f"At most {PART_ATTEMPTS_MAX:,} can be: leave jobs out with --first.",
            )
        self._check_workflows(workload.workflows)

    def _check_workflows(self, workflows: Mapping[int, object]) -> None:
        if self.wfformat is not None and not workflows:
            raise InvalidInput("--wfformat", self.wfformat, "an option for workflows, and no job is one")

    def write(self, done: Schedule, policy: str = "", workflow: int | None = None) -> list[Path]:
        """Write what is wanted of a run.

        Args:
            policy: stands before the endings of the files; empty: nothing does.
            workflow: the position of the only one that is wanted as WfFormat; None: all. One alone has the name that
                was given.

        Returns:
            The names of the files.

        Raises:
            HeadwayError: one cannot be written, or workflows are wanted where none are.
        """
        self._check_workflows(done.workflows)
        written = []
        if self.schedule is not None:
            written.append(_named(self.schedule, policy))
            write_schedule(done, written[-1])
        if self.tasks is not None:
            written.append(_named(self.tasks, policy))
            write_tasks(done, written[-1])
        if self.wfformat is not None:
            from headway.traces.wfformat_ran import write_wfformat

            wanted = list(done.workflows) if workflow is None else [workflow]
            for job in wanted:
                written.append(_named(self.wfformat, policy, str(done.label[job]) if len(wanted) > 1 else ""))
                write_wfformat(done, job, written[-1])
        return written


def _named(path: str, *parts: str) -> Path:
    """The name of a file, with these parts before its ending."""
    return file_for(Path(path), " ".join(filter(None, parts))) if any(parts) else Path(path)


def names_files(command: Command) -> Command:
    """Give a command the options that say which files it writes; it gets them as `files`."""

    @click.option("--schedule", type=WrittenPath(), help="Write a CSV file: job,release,start,end,slots.")
    @click.option(
        "--schedule-tasks",
        type=WrittenPath(),
        help="Write a CSV file with a line for each task: job,task,node,start,end,slots.",
    )
    @click.option(
        "--wfformat",
        type=WrittenPath(),
        help="Write what ran of each workflow as WfFormat 1.5 (.json, .json.gz), for tools of WfCommons.",
    )
    @functools.wraps(command)
    def with_options(schedule: str | None, schedule_tasks: str | None, wfformat: str | None, **rest: Any) -> Any:
        return command(files=FilesWanted(schedule, schedule_tasks, wfformat), **rest)

    return with_options
