"""What a server has run, from its journal: measures as of a simulation, and files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from headway.cli.paths import GivenPath
from headway.cli.show import begun, clock, counted
from headway.cli.simulate import print_metrics, renting_told
from headway.cli.written import FilesWanted, names_files
from headway.errors import InvalidInput
from headway.metrics import summarise, to_json
from headway.model.instant import to_seconds
from headway.model.schedule import Schedule

_NAMED: Final = 8


@click.command()
@click.argument("data", required=False, type=GivenPath(file_okay=False))
@names_files
@click.option("--job", type=int, metavar="ID", help="Write only this workflow with --wfformat, under the name given.")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; times in seconds.")
def history(files: FilesWanted, data: str | None, job: int | None, as_json: bool) -> None:
    """Measure what the server of the data directory DATA has run, and write it to files.

    The journal keeps events for a while (`headway up --keep-events`). A server may run meanwhile. Jobs are called by
    their ids, tasks by their numbers, and times are seconds since the Unix epoch. --wfformat writes a file for each
    workflow, with its id before the ending if there are several; with --job only that of one. Tasks that did not
    succeed have their estimates there.
    """
    from headway.client.address import data_directory
    from headway.live.store.history import history as recorded
    from headway.live.store.history import known_since
    from headway.policy_files import find

    if job is not None and files.wfformat is None:
        raise InvalidInput("--job", job, "a workflow that is written with --wfformat")
    folder = Path(data or data_directory(None))
    done = recorded(folder, find, record=files.by_task)
    since = known_since(folder)
    workflow = None if job is None else _position(done, job)
    written = files.write(done, workflow=workflow)
    metrics = summarise(done)
    if as_json:
        told = {
            "jobs": len(done),
            "since": None if since is None else to_seconds(since),
            "metrics": metrics,
            **(renting_told(done) if done.rentals else {}),
            "written": list(map(str, written)),
        }
        click.echo(to_json(told), nl=False)
        return
    when = "" if since is None else f" since {clock(to_seconds(since))}"
    click.echo(f"{begun(counted(len(done), 'job'))}{when}, from the journal in {folder}.")
    print_metrics({"live": metrics}, {"live": done})
    if written:
        several = files.wfformat is not None and workflow is None and len(done.workflows) > 1
        said = " Each workflow has a file of its own; --job ID writes one under the name given." if several else ""
        click.echo(f"Written: {', '.join(map(str, written))}.{said}")


def _position(done: Schedule, job: int) -> int:
    """Where a workflow is in a schedule.

    Raises:
        InvalidInput: it is not there.
    """
    for position in done.workflows:
        if str(done.label[position]) == str(job):
            return position
    some = [str(done.label[position]) for position in done.workflows]
    named = ", ".join(some[:_NAMED]) + (f" and {len(some) - _NAMED} more" if len(some) > _NAMED else "")
    raise InvalidInput("--job", job, f"the id of a workflow: {named}" if some else "a workflow, and no job is one")
