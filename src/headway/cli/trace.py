"""Which jobs a command runs: files, and what is made of it; alike for commands that simulate and that replay."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import click
import numpy as np

from headway.cli.paths import GivenPath
from headway.cli.show import counted, span
from headway.errors import InvalidInput
from headway.model.instant import to_seconds
from headway.model.job import ESTIMATE_DEFAULT
from headway.model.workload import Workload

Command = Callable[..., Any]

AS_BAGS: Final = "--as bags makes its processors tasks of their own."
"""What can be done about a job that is wider than the cluster."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Files of jobs, and what is made of them.

    Attributes:
        files: a log, or tables and workflows, whose jobs are on one clock.
        kind: what a job with several processors is; None: as the file or the recipe has it.
        recipe: turns a log into a workload as a paper did.
        first: only this many jobs.
        load: the load to which gaps are scaled.
        seed: what fixes the chance in a recipe.
        cut: whether jobs end at their estimate; None: those of a log do.
        due_factor: jobs without a due date get one: their release plus this factor times their run time; None: none.
    """

    files: tuple[str, ...]
    kind: Literal["rigid", "bags"] | None
    recipe: str | None
    first: int | None
    load: float | None
    seed: int
    cut: bool | None = None
    due_factor: float | None = None

    @property
    def file(self) -> str:
        """The first file."""
        return self.files[0]

    @property
    def name(self) -> str:
        """What is run, in a few words."""
        more = len(self.files) - 1
        others = f" and {more} others" if more > 1 else " and another" if more else ""
        return f"{Path(self.file).name}{others}{f' ({self.recipe})' if self.recipe is not None else ''}"

    def read(self, slots: int, *, drop_wider: bool = True, if_wider: str = AS_BAGS) -> Workload:
        """The jobs to be run on this many slots: read, then recipe, then first, then load, then due dates.

        Args:
            drop_wider: leave jobs of a log out that want more slots at once, and count them; of a table, or else, such
                a job is an error.
            if_wider: what the user of the command can do about one.

        Raises:
            InvalidInput: the file's content or an option is wrong, or there are no jobs.
            HeadwayError: the file cannot be read.
        """
        from headway.traces import read_workflows, read_workload, transforms
        from headway.traces.formats import Format, format_of

        machine = slots if drop_wider else None
        kind = self.kind or ("bags" if self.recipe else None)
        read = partial(read_workload, machine=machine, cut_at_estimate=self.cut, as_kind=kind)
        formats = {file: format_of(Path(file)) for file in self.files} if len(self.files) > 1 else {}
        for file, found in formats.items():
            if found is Format.LOG:
                raise InvalidInput(
                    "FILE", file, "a table or workflows, if there are several", hint="A log is given alone."
                )
        if not formats:
            workload = read(self.file)
        elif Format.TABLE in formats.values():
            workload = transforms.together(*map(read, self.files))
        else:
            workload = read_workflows(self.files)
        if self.recipe is not None:
            workload = transforms.by_recipe(workload, self.recipe, seed=self.seed)
        if self.kind == "rigid" and self.recipe is not None:
            workload = transforms.as_rigid(workload)
        if self.first is not None:
            workload = transforms.first(workload, self.first)
        if self.load is not None:
            workload = transforms.with_load(workload, self.load, slots)
        if self.due_factor is not None:
            workload = transforms.missing_due_dates(workload, self.due_factor)
        if not len(workload):
            raise InvalidInput("jobs", 0, "at least one", source=self.file)
        self._refuse_wider(workload, slots, if_wider)
        return workload

    def without_run_times_as_estimates(self, workload: Workload) -> Workload:
        """The same jobs without estimates, if none has one of its own: readers take the run times instead.

        It is said what policies go by then.
        """
        if not (workload.estimate == workload.runtime).all():
            return workload
        click.echo(
            f"No job of {self.name} has an estimate of its own: its estimates are the run times. They are left out, "
            f"and policies assume {span(to_seconds(ESTIMATE_DEFAULT))} for each job.",
            err=True,
        )
        return replace(workload, estimate=np.full(len(workload), -1, dtype=np.int64))

    def _refuse_wider(self, workload: Workload, slots: int, if_wider: str) -> None:
        """See that every job fits on the cluster.

        Raises:
            InvalidInput: one does not; the line of the file that has it is named.
        """
        wider = (workload.width > slots).nonzero()[0]
        if len(wider):
            label, width = workload.label[wider[0]], int(workload.width[wider[0]])
            file, line = self._place_of(label)
            more = len(wider) - 1
            others = f" So are {more} others." if more > 1 else " So is 1 other." if more else ""
            raise InvalidInput(
                f"width of job {label}",
                width,
                f"at most {slots}, the slots of the cluster",
                source=file,
                line=line,
                hint=f"It is wider than the cluster.{others} {if_wider}",
            )

    def _place_of(self, label: object) -> tuple[str, int]:
        """The file and the line of a rigid job."""
        from headway.traces import line_of
        from headway.traces.formats import Format, format_of

        for file in self.files:
            if format_of(Path(file)) in (Format.LOG, Format.TABLE):  # others have no rigid jobs
                with suppress(KeyError):
                    return file, line_of(file, label)
        raise KeyError(label)

    def tell(self, workload: Workload, slots: int, whence: str = "") -> None:
        """Say what is run, and whence the number of slots is.

        Readers count what they leave out or cut over the whole log, also if only part is run. What is odd is said of
        the part that is run.
        """
        from headway.traces.oddities import oddities

        whole = self.first is None
        left_out = ", ".join(_dropped(count, reason) for reason, count in workload.dropped.items() if count)
        length = to_seconds(int(workload.release[-1] - workload.release[0]))
        click.echo(
            _workflows(workload, f"{counted(slots, 'slot')}{whence}")
            if len(workload.workflows) == len(workload)
            else f"{counted(len(workload), 'job')} released within {span(length)}, on {counted(slots, 'slot')}{whence}."
            + (f" Left out{'' if whole else ' of the whole log'}: {left_out}." if left_out else "")
        )
        for note in workload.notes:
            click.echo(note if whole else f"In the whole log: {note}")
        for sentence in oddities(workload):
            click.echo(sentence)


def _dropped(count: int, reason: str) -> str:
    """How many records were left out for a reason.

    >>> _dropped(2, "broken line"), _dropped(1, "wider than the machine"), _dropped(5671, "no run time")
    ('2 broken lines', '1 job wider than the machine', '5,671 jobs with no run time')
    """
    from headway.traces.swf import BROKEN

    if reason == BROKEN:
        return counted(count, reason)
    return f"{counted(count, 'job')} {'with ' if reason.startswith('no ') else ''}{reason}"


def _workflows(workload: Workload, slots: str) -> str:
    """How large workflows are, in words."""
    tasks = int(workload.tasks.sum())
    waits = sum([len(task.after) for graph in workload.workflows.values() for task in graph])
    longest = span(to_seconds(int(workload.runtime.max())))
    if len(workload) == 1:
        return (
            f"A workflow of {counted(tasks, 'task')} and {counted(waits, 'edge')}, on {slots}; critical path {longest}."
        )
    many = f"{len(workload):,} workflows of {tasks:,} tasks and {waits:,} edges in all"
    return f"{many}, on {slots}; longest critical path {longest}."


def names_trace(command: Command) -> Command:
    """Give a command the argument and options that say which jobs it runs; it gets them as `trace`."""

    @click.argument("files", metavar="FILE...", nargs=-1, required=True, type=GivenPath(dir_okay=False))
    @click.option(
        "--as", "kind", type=click.Choice(["rigid", "bags"]), help="How to read a job with several processors."
    )
    @click.option("--recipe", help="Turn the log into a workload as a paper did: lin14.")
    @click.option("--first", type=int, help="Only the first N jobs (of those that the recipe made).")
    @click.option("--load", type=float, help="Scale the gaps between releases so that the load is this.")
    @click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Seed of the random choices of a recipe and a simulation.",
    )
    @click.option(
        "--cut/--no-cut", default=None, help="Whether jobs end at their estimate; default: those of a log do."
    )
    @click.option(
        "--due-factor", type=float, help="Jobs without a due date get one: their release plus X times their run time."
    )
    @functools.wraps(command)
    def with_options(
        files: tuple[str, ...],
        kind: Any,
        recipe: str | None,
        first: int | None,
        load: float | None,
        seed: int,
        cut: bool | None,
        due_factor: float | None,
        **rest: Any,
    ) -> Any:
        return command(trace=Trace(files, kind, recipe, first, load, seed, cut, due_factor), **rest)

    return with_options
