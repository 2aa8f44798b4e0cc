"""Commands about a data directory and its journal: whether it is whole, and copies of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from headway.errors import HeadwayError


@click.command()
@click.argument("data", required=False, type=click.Path(file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Say it as one object of JSON.")
def check(data: str | None, as_json: bool) -> None:
    """See whether the journal in DATA, or in a backup, is as it was written, and the files that belong to it.

    A server may run meanwhile. Nothing is changed. The exit status is 1 where something is wrong.
    """
    from headway.client.address import data_directory
    from headway.live.schema import FILE
    from headway.live.verification import WHOLE_AGAIN, flaws

    folder = Path(data or data_directory(None))
    if not folder.is_dir():
        raise HeadwayError(f"there is no folder {folder}", "Name the data directory of a server, or a backup.")
    found = list(flaws(folder))
    if as_json:
        click.echo(json.dumps({"data": str(folder), "flaws": [flaw._asdict() for flaw in found]}))
    elif found:
        for flaw in found:
            click.echo(f"{os.path.join(folder, flaw.file)}: {flaw.what}")
        click.echo(WHOLE_AGAIN.replace("DATA", str(folder)), err=True)
    else:
        click.echo(f"{folder / FILE} and what belongs to it are as they were written.")
    sys.exit(1 if found else 0)
