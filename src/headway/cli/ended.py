"""What a job runs, and how its tasks ended, as `headway job` shows it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import click

from headway.cli.show import print_table, span
from headway.model.outcome import Outcome
from headway.wire import JobDetail, Ran, TaskReport

STDERR_SHOWN: Final = 3
"""Failed tasks of which the last lines are printed."""


def ran(work: Ran | None) -> str:
    """What a job runs, in a line."""
    if work is None:
        return ""
    if work.argv:
        return shlex.join(work.argv) + ("  (the first task; each has a command of its own)" if work.each else "")
    return ", ".join(work.functions) or "Python functions"


def print_ended(detail: JobDetail) -> None:
    """Print where ended tasks ran, how they ended, and what failed ones wrote last."""
    if not detail.ended:
        if detail.job.failed:
            click.echo("Why tasks failed is not kept any more: their results were fetched by their client, or cleared.")
        return
    rows = [
        (
            str(one.task) + (f" (was {one.number})" if one.number != one.task else ""),
            one.name,
            str(one.attempt or ""),  # cancelled before it began
            slots_in_short(one.slots),
            span(one.seconds) if one.attempt else "",
            one.outcome.value,
            "" if one.outcome is Outcome.SUCCEEDED else why(one),
        )
        for one in detail.ended
    ]
    more = detail.job.settled - len(rows)
    title = "Ended tasks" + (f" ({more} more are not shown)" if more > 0 else "")
    columns = ("task", "name", "attempt", "ran on", "for", "ended as", "why")
    print_table(columns, rows, title=title, right=("attempt", "for"), fold=("ran on", "why"))
    for one in [one for one in detail.ended if one.stderr][:STDERR_SHOWN]:
        click.echo(f"stderr of task {one.task}, last lines:")
        click.echo(textwrap.indent(one.stderr, "  "))


def why(task: TaskReport) -> str:
    """Why a task failed, in a line: for an exception the last line of its traceback."""
    lines = task.detail.strip().splitlines()
    return lines[-1].strip() if lines else ""


def failure(detail: JobDetail, task: int | None = None) -> str:
    """How a task failed, this one or the first: a sentence; empty if none did, or why is not kept."""
    for one in detail.ended:
        if task in (None, one.task) and one.task in detail.failed and why(one):
            named = f" ({one.name})" if one.name else ""
            return f"Task {one.task}{named} of job {detail.job.id} ended as {one.outcome.value}: {why(one)}."
    return ""


def ranges(found: Sequence[int]) -> str:
    """Numbers in rising order, in short.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7, 8'
    """
    return ", ".join(_in_short(found))


def slots_in_short(names: Iterable[str]) -> str:
    """Slots as NODE/SLOT; of a node with many the first and the last of each row.

    >>> slots_in_short(["a/0", "a/1", "a/2", "a/3", "a/5", "b/0", "b/1"])
    'a/0-3, a/5, b/0, b/1'
    """
    apart = (name.rpartition("/") for name in names)
    on_nodes = groupby(apart, key=itemgetter(0))
    return ", ".join(f"{node}/{part}" for node, found in on_nodes for part in _in_short(int(one[2]) for one in found))


def _in_short(found: Iterable[int]) -> list[str]:
    groups: list[list[int]] = []
    for number in found:
        if groups and groups[-1][-1] == number - 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    rows = ((f"{row[0]}-{row[-1]}",) if len(row) > 2 else map(str, row) for row in groups)
    return list(chain.from_iterable(rows))
