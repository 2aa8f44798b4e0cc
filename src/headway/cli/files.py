"""Files that the server keeps for tasks and with results."""

from __future__ import annotations

import click

from headway.cli.paths import GivenPath, WrittenPath
from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, print_json


@click.command()
@click.argument("path", type=GivenPath(dir_okay=False))
@click.option("--name", help="Name under which tasks find it; default: that of the file.")
@as_json
@asks_server
def upload(reach: Reach, path: str, name: str | None, as_json: bool) -> None:
    """Send a file to the server, which keeps it for tasks, and print its URL for `headway submit --input PATH=URL`.

    The server keeps it while an open job names it, and for an hour (`headway up --keep-uploads`) after its last use.
    """
    with reach() as client:
        url = client.upload(path, name).url
    print_json({"url": url}) if as_json else click.echo(url)


@click.command()
@click.argument("kept", metavar="URL")
@click.argument("path", type=WrittenPath())
@asks_server
def download(reach: Reach, kept: str, path: str) -> None:
    """Write a file that the server keeps to a path; its URL begins with `headway:`."""
    with reach() as client:
        client.download(kept, path)
