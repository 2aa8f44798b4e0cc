"""Commands about a data directory and its journal: whether it is whole, and copies of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headway.cli.paths import GivenPath
from headway.errors import HeadwayError
from headway.model.instant import SECOND

if TYPE_CHECKING:
    from headway.live.store.redeciding import Difference

DIFFERENCES_SHOWN: Final = 20
"""How many differences are printed at most."""


@click.command()
@click.argument("data", required=False, type=GivenPath(file_okay=False))
@click.option("--decide", is_flag=True, help="Also ask the policies of today what they would have decided.")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
def check(data: str | None, decide: bool, as_json: bool) -> None:
    """Check whether the journal in DATA, or in a backup, and its files are as they were written.

    A server may run meanwhile. Nothing is changed. The exit status is 1 if something is wrong, or if with --decide a
    policy would decide otherwise today than is recorded; a server that starts repeats what is recorded.
    """
    from headway.client.address import data_directory
    from headway.live.store.opening import has_been_used
    from headway.live.store.redeciding import rounds
    from headway.live.store.schema import FILE
    from headway.live.store.verification import flaws, whole_again

    folder, hint = Path(data or data_directory(None)), "Name the data directory of a server, or a backup."
    if not folder.is_dir():
        raise HeadwayError(f"there is no folder {folder}", hint)
    if not has_been_used(folder):
        raise HeadwayError(f"no server has used {folder}: there is no journal in it", hint)
    found, asked, unrecorded = list(flaws(folder)), 0, 0
    others: list[Difference] = []
    if decide and not found:
        from headway.policies.registry import find

        for held in rounds(folder, find):
            asked += held.recorded
            unrecorded += not held.recorded
            others += [] if held.difference is None else [held.difference]
    if as_json:
        told: dict[str, object] = {"data": str(folder), "flaws": [flaw._asdict() for flaw in found]}
        if decide:
            told |= {"rounds": asked, "unrecorded": unrecorded}
            told["differences"] = [each._asdict() | {"at": each.at / SECOND} for each in others]
        click.echo(json.dumps(told))
    elif found:
        for flaw in found:
            click.echo(f"{os.path.join(folder, flaw.file)}: {flaw.what}")
        click.echo(whole_again(folder), err=True)
    else:
        click.echo(f"{folder / FILE} and what belongs to it are as they were written.")
        if decide:
            _say_decided(others, asked, unrecorded)
    sys.exit(1 if found or others else 0)


def _say_decided(others: Sequence[Difference], asked: int, unrecorded: int) -> None:
    from headway.cli.show import clock, counted

    for each in others[:DIFFERENCES_SHOWN]:
        pool = f" in pool {each.pool}" if each.pool else ""
        under = f", under {each.policy}" if each.policy else ""  # one that is not there names none for its pools
        click.echo(f"Event {each.event} ({each.kind}, {clock(each.at / SECOND)}){pool}{under}:")
        click.echo(f"  then   {each.then}")
        click.echo(f"  today  {each.today}")
    if len(others) > DIFFERENCES_SHOWN:
        click.echo(f"And {counted(len(others) - DIFFERENCES_SHOWN, 'more round')}; --json lists them all.")
    would = f"{len(others)} of {counted(asked, 'round')} would be decided otherwise today."
    click.echo(would if others else f"The policies would decide the same today in {counted(asked, 'round')}.")
    if unrecorded:
        click.echo(f"Not compared, because an older Headway did not record them: {counted(unrecorded, 'round')}.")


@click.command()
@click.argument("goal", metavar="DEST", type=GivenPath())
@click.option("--data", type=GivenPath(file_okay=False), help="Data directory; default ~/.local/share/headway.")
def backup(goal: str, data: str | None) -> None:
    """Copy a data directory to DEST, as of one transaction; its server may run meanwhile.

    DEST is a folder that does not exist, or is empty. The copy contains the token: keep it as safe as the original.
    """
    from headway.cli.show import counted
    from headway.client.address import data_directory
    from headway.live.store.backup import back_up

    made = back_up(data_directory(data), Path(goal))
    click.echo(f"{goal} has the journal up to transaction {made.transaction}, and {counted(len(made.files), 'file')}.")


@click.command()
@click.argument("source", metavar="BACKUP", type=GivenPath(file_okay=False, exists=True))
@click.argument("data", type=GivenPath(file_okay=False))
def restore(source: str, data: str) -> None:
    """Put BACKUP in place as the data directory DATA. Its server must not be running.

    What happened since the backup is lost. A journal that is already there is moved into a folder of its own. Clients
    that used it before are refused: the jobs that they wait for may be gone, or have other numbers.
    """
    from headway.live.store.backup import restore as put

    transaction, aside = put(Path(source), Path(data))
    click.echo(
        f"{data} goes on from transaction {transaction}, with a new epoch. Restart the clients that used it before."
    )
    if aside is not None:
        click.echo(f"The journal that was there is in {aside}.")
