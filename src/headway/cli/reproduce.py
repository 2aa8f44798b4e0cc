"""The experiments of the papers, repeated: published figures beside ours, pictures, and every run as CSV."""

from __future__ import annotations

import click

from headway.cli.reproduce_chang16 import chang16
from headway.cli.reproduce_dn13 import dn13
from headway.cli.reproduce_kim12 import kim12
from headway.cli.reproduce_lin14 import lin14
from headway.cli.reproduce_measy14 import measy14


@click.group()
def reproduce() -> None:
    """Repeat the experiments of a paper, and compare its published figures with ours."""


reproduce.add_command(lin14)
reproduce.add_command(measy14)
reproduce.add_command(chang16)
reproduce.add_command(dn13)
reproduce.add_command(kim12)
