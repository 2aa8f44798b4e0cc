"""Commands that change the terms of jobs, and run their failed tasks again."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from headway.cli.outlook import outlook_of, promise
from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, counted, instant_in, print_json
from headway.errors import HeadwayError
from headway.model.job import PenaltyShape

FORECASTS: Final = 10
"""Of how many changed jobs it is said whether they will be on time."""


@click.command()
@click.argument("numbers", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--due", help="New wanted completion: 18:00, tomorrow 6:00, or 1h30m from now; none: no due date.")
@click.option("--priority", type=float, help="New priority; higher is more important.")
@click.option("--rate", type=float, help="What lateness costs from now on, for each unit of its shape.")
@click.option(
    "--shape", type=click.Choice([shape.value for shape in PenaltyShape]), help="How the penalty grows from now on."
)
@click.option("--threshold", help="Of a service: a later answer is late: 200ms, 2s, ...")
@click.option("--fraction", type=float, help="Of a service: share of the answers that are to be in time.")
@click.option("--min", "least", type=int, help="Of a service: instances that it has at least.")
@as_json
@asks_server
def change(reach: Reach, numbers: tuple[int, ...], due: str | None, as_json: bool, **terms: Any) -> int:
    """Change terms of jobs and services that have not ended. Running tasks are not stopped.

    Exit status: 0 all were changed; 1 one of them has ended and stays as it was.
    """
    if due is None and all(term is None for term in terms.values()):
        raise HeadwayError("there is nothing to change", "Give --due, --priority, --rate or another option.")
    without_due = due is not None and due.strip().lower() == "none"
    at = None if due is None or without_due else instant_in(due, "--due")
    if at is not None and at < time.time():
        click.echo(f"Warning: {due} has passed.", err=True)
    with reach() as client:
        for number in numbers:
            client.job(number)  # an unknown job is reported before anything is changed
        changed = [
            number
            for number in dict.fromkeys(numbers)
            if client.change(number, due=at, without_due=without_due, **terms)
        ]
        outlooks = [] if as_json else [outlook_of(client, number) for number in changed[:FORECASTS]]
    ended = [number for number in dict.fromkeys(numbers) if number not in changed]
    if as_json:
        print_json({"changed": changed, "ended": ended})
    else:
        click.echo(f"Changed {counted(len(changed), 'job')}." if ended else "Changed.")
        for found in outlooks:
            if found is not None and found.due is not None:
                click.echo(promise(found), err=True)
        if len(changed) > FORECASTS:
            click.echo("`headway jobs` shows whether the others will be on time.", err=True)
        for number in ended:
            click.echo(f"Job {number} has ended; it stays as it was.", err=True)
    return 1 if ended else 0


@click.command()
@click.argument("number", metavar="ID", type=int)
@click.option("--due", help="Wanted completion, instead of that of the job: 18:00, tomorrow 6:00, or 1h30m from now.")
@click.option("--priority", type=float, help="Priority, instead of that of the job; higher is more important.")
@as_json
@asks_server
def retry(reach: Reach, number: int, due: str | None, priority: float | None, as_json: bool) -> None:
    """Run the failed tasks of an ended job again, as a new job, and print its id. Nothing else is redone.

    The new job has the terms of the old one and names it. In a workflow, tasks that could not run because of a failure
    run too. In the arguments of a program, {i} is the number that the task had in the old job.
    """
    at = None if due is None else instant_in(due, "--due")
    with reach() as client:
        waiter = client.retry(number, priority=priority, due=at)
        if as_json:
            print_json({"job": waiter.job, "retry_of": number})
            return
        click.echo(waiter.job)
        found = outlook_of(client, waiter.job)
    if found is not None and found.due is not None:
        click.echo(promise(found), err=True)
