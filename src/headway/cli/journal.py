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
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
def check(data: str | None, as_json: bool) -> None:
    """Check whether the journal in DATA, or in a backup, and its files are as they were written.

    A server may run meanwhile. Nothing is changed. The exit status is 1 if something is wrong.
    """
    from headway.client.address import data_directory
    from headway.live.opening import has_been_used
    from headway.live.schema import FILE
    from headway.live.verification import flaws, whole_again

    folder, hint = Path(data or data_directory(None)), "Name the data directory of a server, or a backup."
    if not folder.is_dir():
        raise HeadwayError(f"there is no folder {folder}", hint)
    if not has_been_used(folder):
        raise HeadwayError(f"no server has used {folder}: there is no journal in it", hint)
    found = list(flaws(folder))
    if as_json:
        click.echo(json.dumps({"data": str(folder), "flaws": [flaw._asdict() for flaw in found]}))
    elif found:
        for flaw in found:
            click.echo(f"{os.path.join(folder, flaw.file)}: {flaw.what}")
        click.echo(whole_again(folder), err=True)
    else:
        click.echo(f"{folder / FILE} and what belongs to it are as they were written.")
    sys.exit(1 if found else 0)


@click.command()
@click.argument("goal", metavar="DEST", type=click.Path())
@click.option("--data", type=click.Path(file_okay=False), help="Data directory; default ~/.local/share/headway.")
def backup(goal: str, data: str | None) -> None:
    """Copy a data directory to DEST, as of one transaction; its server may run meanwhile.

    DEST is a folder that does not exist, or is empty. The copy contains the token: keep it as safe as the original.
    """
    from headway.cli.show import counted
    from headway.client.address import data_directory
    from headway.live.backup import back_up

    made = back_up(data_directory(data), Path(goal))
    click.echo(f"{goal} has the journal up to transaction {made.transaction}, and {counted(len(made.files), 'file')}.")


@click.command()
@click.argument("source", metavar="BACKUP", type=click.Path(file_okay=False, exists=True))
@click.argument("data", type=click.Path(file_okay=False))
def restore(source: str, data: str) -> None:
    """Put BACKUP in place as the data directory DATA. Its server must not be running.

    What happened since the backup is lost. A journal that is already there is moved into a folder of its own. Clients
    that used it before are refused: the jobs that they wait for may be gone, or have other numbers.
    """
    from headway.live.backup import restore as put

    transaction, aside = put(Path(source), Path(data))
    click.echo(
        f"{data} goes on from transaction {transaction}, with a new epoch. Restart the clients that used it before."
    )
    if aside is not None:
        click.echo(f"The journal that was there is in {aside}.")
