"""Commands that print the state of jobs and wait for their end. Their exit status is for scripts."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from headway.cli.main import GOES_ON, INTERRUPTED
from headway.cli.progress import progress
from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, counted, done, print_json, print_table, seconds_in, span, when
from headway.client.client import PATIENCE_SECONDS, Client
from headway.model.actions import JobStatus
from headway.model.job import JobId
from headway.wire import Cost, Costs, JobReport, Statistics
from headway.wire.base import JOBS_MAX, WAIT_MAX


@click.command()
@click.argument("numbers", metavar="[ID]...", type=int, nargs=-1)
@as_json
@asks_server
def status(reach: Reach, numbers: tuple[int, ...], as_json: bool) -> int:
    """Print the state of jobs, one line each: ID STATUS DONE/TASKS, and how many tasks failed or were cancelled.

    DONE counts the tasks that have succeeded.

    Without ID, print how the server fares: its policy, jobs and slots, and what late jobs cost, so far and expected.

    Exit status: 0 all have succeeded; 1 one has failed or was cancelled; 3 none of these, but one has not ended;
    2 one is not known, or no server answers.
    """
    with reach() as client:
        if not numbers:
            print_server(client.statistics(), client.costs(), as_json)
            return 0
        found = [client.job(number).job for number in numbers]
    print_json(found) if as_json else click.echo("\n".join(map(line_of, found)))
    return exit_status_of(found)


def print_server(server: Statistics, costs: Costs, as_json: bool) -> None:
    """How the server fares."""
    if as_json:
        print_json({"server": server, "penalties": costs})
        return
    total = costs.total
    lines = {
        "server": f"headway {server.version}, started {when(server.started)}",
        "policy": server.policy,
        "jobs": f"{server.jobs} open",
        "tasks": tasks_text(server),
        "slots": f"{server.busy} of {server.slots} busy",
        "penalty": f"{total.penalty:.4g} so far, {total.expected:.4g} expected" + unknown(total),
    }
    if server.sites:
        lines["sites"] = ", ".join(f"{site.name} ({site.engine})" for site in server.sites)
    if gone := [site for site in server.sites if site.gone]:
        lines["gone"] = "; ".join(f"the engine of {site.name}: {site.gone}" for site in gone)
    print_table(("", " "), list(lines.items()), fold=(" ",))
    if server.users:
        click.echo()
        slots = [(user, str(one.used), str(one.most)) for user, one in server.users.items()]
        print_table(("user", "slots", "at most"), slots, right=("slots", "at most"), fold=("user",))
    for of, by in ("user", costs.users), ("service", costs.services):
        named = [(name, cost) for name, cost in by.items() if cost.penalty or cost.expected]
        if named and (len(by) > 1 or of == "service"):
            click.echo()
            rows = [
                (name, str(cost.jobs), f"{cost.penalty:.4g}", f"{cost.expected:.4g}", str(cost.unknown or ""))
                for name, cost in named
            ]
            columns = (of, "jobs", "penalty so far", "expected", "end not known")
            print_table(columns, rows, right=columns[1:], fold=(of,))


def tasks_text(server: Statistics) -> str:
    """How many tasks run, start and wait."""
    starting = f"{server.starting} starting, " if server.starting else ""
    return f"{server.running - server.starting} running, {starting}{server.waiting} waiting"


def unknown(cost: Cost) -> str:
    """How many jobs have no expected end, if any."""
    return f"; the end of {counted(cost.unknown, 'job')} is not known" if cost.unknown else ""


@click.command()
@click.argument("numbers", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--timeout", metavar="SPAN", help="Wait no longer than this: 90s, 1h30m, ... The jobs continue.")
@as_json
@asks_server
def wait(reach: Reach, numbers: tuple[int, ...], timeout: str | None, as_json: bool) -> int:
    """Wait until these jobs have ended, in whatever way, and print one line for each.

    Exit status: 0 all have succeeded; 1 one has failed or was cancelled; 3 none of these, but one has not ended within
    --timeout; 2 one is not known, or no server answers; 130 after ctrl-c. The jobs continue, whatever happens to this
    command. If the server starts again within a minute, the command continues.
    """
    seconds = None if timeout is None else seconds_in(timeout, "--timeout")
    until = None if seconds is None else time.monotonic() + seconds
    patience = PATIENCE_SECONDS if seconds is None else min(seconds, PATIENCE_SECONDS)
    with reach(patience=patience) as client:
        try:
            await_jobs(client, numbers, until)
        except KeyboardInterrupt:
            click.echo("\nInterrupted. The jobs go on.", err=True)
            return INTERRUPTED
        found = [client.job(number).job for number in numbers]
    late = [job for job in found if not job.status.is_final]
    if late:
        which = f"Job {late[0].id}" if len(found) == 1 else f"{counted(len(late), 'job')} of {len(found)}"
        click.echo(f"{which} did not end within {span(seconds or 0)}.", err=True)
    print_json(found) if as_json else click.echo("\n".join(map(line_of, found)))
    return exit_status_of(found)


def line_of(job: JobReport) -> str:
    """The state of a job, in a line that a script can parse."""
    return f"{job.id} {job.status.value} {done(job)}"


def exit_status_of(jobs: Sequence[JobReport]) -> int:
    """0: all have succeeded; 1: one has not; 3: one has not ended."""
    if any(job.status in (JobStatus.FAILED, JobStatus.CANCELLED) for job in jobs):
        return 1
    return 0 if all(job.status.is_final for job in jobs) else GOES_ON


def await_jobs(client: Client, jobs: Sequence[JobId], until: float | None) -> None:
    """Wait until these jobs have ended, or until an instant of the monotonic clock."""
    named = list(dict.fromkeys(jobs))
    for first in range(0, len(named), JOBS_MAX):  # one after the other takes as long as the last job to end
        await_some(client, named[first : first + JOBS_MAX], until)


def await_some(client: Client, jobs: Sequence[JobId], until: float | None) -> None:
    """Wait for as many jobs as one request may name."""
    details = [client.job(number) for number in jobs]
    counts = {detail.job.id: detail.job.settled for detail in details}
    totals = {f"job {detail.job.id}": detail.job.tasks for detail in details}
    cursor = min(detail.cursor for detail in details)
    waits = {detail.job.id for detail in details if not detail.job.status.is_final}
    with progress(totals, lambda: list(counts.values())):
        while waits and (until is None or time.monotonic() < until):
            left = WAIT_MAX if until is None else max(0.0, min(WAIT_MAX, until - time.monotonic()))
            told = client.messages(*waits, after=cursor, wait=left)
            cursor = told.cursor
            for message in told.messages:
                counts[message.job] += message.task is not None
                if message.status is not None:
                    waits.discard(message.job)
