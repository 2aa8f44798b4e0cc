"""Why a job waits, when it is expected to end, and what would help it to be on time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from headway.cli.ended import failure, slots_in_short
from headway.cli.live import age_of_forecast, at, costs, outlook, task_in, titled
from headway.cli.outlook import by_run_times, counter_offer
from headway.cli.reach import Reach, asks_server
from headway.cli.show import ANY_MOMENT, OVERDUE_SECONDS, as_json, clock, print_json, span, until, when
from headway.client.client import Client
from headway.model.actions import JobStatus
from headway.model.job import JobId
from headway.wire import AwaitedReport, Explanation, TaskState

FULLY_SERVED = ("RUNS_BEHIND", "TASKS_DEPEND", "STARTS_NOW")
"""Reasons of a job that runs of which no part waits for a decision."""

AWAITED_SHOWN = 5
"""Tasks that another one waits for, of which it is said how far they are."""


@click.command()
@click.argument("number", metavar="ID", type=int)
@click.option("--task", metavar="N", help="Say it of this task, by its number, or its name in a workflow.")
@as_json
@asks_server
def explain(reach: Reach, number: int, task: str | None, as_json: bool) -> None:
    """Say why a job waits, for which tasks, when it is expected to start and to end, by the estimates and as run times
    have been, and what would help where its due date is likely to be missed.
    """
    with reach() as client:
        if task is not None:
            state = client.tasks(number, task=task_in(client, number, task))[0]
            found = client.explain(number) if state.state == "ready" else None
            print_json({"task": state, "job": found}) if as_json else explain_task(client, number, state, found)
            return
        found = client.explain(number)
        if as_json:
            print_json(found)
            return
        for line in lines_of(found):
            click.echo(line)
        if not found.status.is_final:
            for line in counter_offer(client, found):  # takes longer
                click.echo(line)
        elif failed := failure(client.job(number)):
            click.echo(failed)


def lines_of(found: Explanation) -> Iterator[str]:
    """What there is to say of a job, in sentences."""
    if found.status.is_final:
        yield f"Job {found.job} {found.text.removeprefix('it ')}."
    elif found.reason == "RUNS":
        yield f"Job {found.job} is {'starting' if found.starting else 'running'}."
    elif found.status is JobStatus.RUNNING and found.reason not in FULLY_SERVED:
        yield f"Job {found.job} is running. Why not more of it: {found.text}."
    else:
        yield f"Job {found.job} is {found.status.value}: {found.text}."
    if found.start is not None and found.reason != "STARTS_NOW":
        what = "The start of its next task" if found.status is JobStatus.RUNNING else "Its start"
        yield promise_line(what, found.start)
    for hindered in found.hindered:
        yield f"{hindered[0].upper()}{hindered[1:]}."
    if found.note:
        yield f"By policy {found.by}; {found.note}."
    if found.why_pool:
        yield f"{found.why_pool[0].upper()}{found.why_pool[1:]}."
    if not found.status.is_final:
        yield from prospect_lines(found)


def explain_task(client: Client, job: JobId, state: TaskState, found: Explanation | None) -> None:
    """Say how far a task is, and what it waits for."""
    named = f"Task {titled(state)} of job {job}"
    if state.state == "running":
        click.echo(f"{named} is running on {slots_in_short(state.slots)}, since {clock(state.start)}.")
    elif state.why:
        click.echo(f"{named} {state.state}, because {state.why}.")
    elif state.after:
        others = [client.tasks(job, task=other)[0] for other in state.after[:AWAITED_SHOWN]]
        more = len(state.after) - len(others)
        which = ", ".join(f"{titled(other)} ({other.state})" for other in others) + (
            f" and {more} more" if more else ""
        )
        click.echo(f"{named} waits for {which}.")
    elif state.state == "ready":
        why = "" if found is None or found.reason in FULLY_SERVED else f". Of the job: {found.text}"
        click.echo(f"{named} is ready, and starts as soon as it gets slots{why}.")
    else:
        word = {"cancelled": "was cancelled"}.get(state.state, f"has {state.state}")
        ends = client.results(job, task=state.task) if state.state == "failed" else []
        detail = ends[0].ending.detail.strip().rpartition("\n")[2] or ends[0].ending.outcome.value if ends else ""
        why = f": {detail}" if detail else ""
        click.echo(f"{named} {word}{why}.")
    if state.start is not None and state.state in ("waits", "ready"):
        where = f" on {state.node}" if state.node else ""
        click.echo(promise_line(f"Its start{where}", state.start))
    if state.hindered:
        click.echo(f"{state.hindered[0].upper()}{state.hindered[1:]}.")


def promise_line(what: str, start: float) -> str:
    """What is promised, in a sentence; of a promise that has passed, that it is late."""
    if start > time.time() - OVERDUE_SECONDS:
        return f"{what} is promised {soon(start)}."
    return f"{what} was promised {at(start)}: it is late."


def prospect_lines(found: Explanation) -> Iterator[str]:
    """What an open job waits for and how long, in sentences."""
    for awaited in found.awaits:
        yield f"It waits for {awaited_text(awaited, found.job)}."
    if found.lack:
        yield f"When it ends is not computed: {found.lack}."
    start, end = found.expected_start, found.expected_end
    begins = "Its next task is expected" if found.status is JobStatus.RUNNING else "It is expected"
    if start is not None and not found.start_assumes:
        yield f"{begins} to start {soon(start)}."
    if end is not None and not found.assumes:
        yield f"It is expected to end {soon(end)}."
    if found.assumes:
        yield from assumption_lines(found, begins)
    elif found.kind == "service":
        yield "It is a service: it runs until it is cancelled."
    elif end is None and not found.lack:
        yield "It is not expected to end: no known event will give it the slots it needs."
    for told in by_run_times(found.chance):
        yield f"As run times have been, it {told}."
    if found.due is not None and found.outlook is not None:
        yield f"It is due {at(found.due)}: {outlook(found)}."
    if costs(found):
        yield f"Its penalty: {costs(found)}."
    if since := age_of_forecast(found):
        yield f"That was expected {since}."


def assumption_lines(found: Explanation, begins: str) -> Iterator[str]:
    """What can be said if an estimate is missing, and what to do about it."""
    others = [job for job in found.assumes if job != found.job]
    whose = f"{'job' if len(others) == 1 else 'jobs'} {', '.join(map(str, others))}" if others else "it"
    if others and found.job in found.assumes:
        whose = f"it or for {whose}"
    is_start_known = found.expected_start is None or not found.start_assumes
    what = "end" if is_start_known else "start and end"
    yield f"When it will {what} is not known, because there is no estimate for {whose}."
    times = [
        f"{word} {soon(instant)}"
        for word, instant in (
            ("start", None if is_start_known else found.expected_start),
            ("end", found.expected_end),
        )
        if instant is not None
    ]
    if times:
        yield f"If each such task takes {span(found.assumed)}, it will {' and '.join(times)}."
    yield "Submit jobs with `--estimate SPAN`, the expected run time of a task, to get a forecast."


def awaited_text(awaited: AwaitedReport, job: int) -> str:
    """A task that is waited for, where, and until when."""
    whose = "its own task" if awaited.job == job else f"job {awaited.job}, task"
    on = f"{whose} {awaited.task} on {slots_in_short(awaited.slots)}"
    if awaited.start is not None and awaited.end is None:
        on += ", which comes before it and for which there is no estimate"
    elif awaited.start is not None and awaited.end is not None:
        on += f", which is to start {until(awaited.start)} and to end {until(awaited.end)}"
    elif awaited.end is None:
        on += ", for which there is no estimate"
    elif awaited.end < time.time():
        on += f", which should have ended {when(awaited.end)}"
    else:
        on += f", which is expected to end {when(awaited.end)}"
    return on


def soon(instant: float) -> str:
    """An expected instant in words; if it has passed, any moment now."""
    return at(instant) if instant > time.time() else ANY_MOMENT
