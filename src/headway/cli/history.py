"""What a server has run, from its journal: measures as of a simulation, and files for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from headway.cli.show import clock, counted
from headway.cli.simulate import print_metrics
from headway.cli.written import Files, names_files
from headway.metrics import summarise, to_json
from headway.model.instant import to_seconds


@click.command()
@click.argument("data", required=False, type=click.Path(file_okay=False))
@names_files
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; times in seconds.")
def history(files: Files, data: str | None, as_json: bool) -> None:
    """Measure what the server of the data directory DATA has run, and write it to files.

    The journal keeps events for a while (`headway up --keep-events`). A server may run meanwhile. Jobs are called by
    their ids, tasks by their numbers, and times are seconds since the Unix epoch. --wfformat writes a file for each
    workflow, with its id before the ending if there are several.
    """
    from headway.client.address import data_directory
    from headway.live.store.history import history as recorded
    from headway.live.store.history import known_since
    from headway.policy_files import find

    files.check()
    folder = Path(data or data_directory(None))
    done = recorded(folder, find, record=files.by_task)
    since = known_since(folder)
    written = files.write(done)
    metrics = summarise(done)
    if as_json:
        told = {"jobs": len(done), "since": None if since is None else to_seconds(since), "metrics": metrics}
        click.echo(to_json(told), nl=False)
        return
    when = "" if since is None else f" since {clock(to_seconds(since))}"
    click.echo(f"{counted(len(done), 'job')}{when}, from the journal in {folder}.")
    print_metrics({"live": metrics}, {"live": done})
    if written:
        click.echo(f"Written: {', '.join(map(str, written))}.")
