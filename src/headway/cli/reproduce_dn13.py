"""The experiments of DN13, repeated: published numbers beside ours, tables, pictures, every run as CSV."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final, cast

import click

from headway import policy_files
from headway.cli.output import make_folder
from headway.cli.paths import GivenPath
from headway.cli.report import Report

GENERATED: Final = ("series-parallel", "heterogeneous-parallel", "homogeneous-parallel", "single-task", "mix")
KINDS: Final = (*GENERATED, "real")
"""As in `headway.workloads.dn13`; that takes long to import."""

SIZES: Final = ("alike", "drawn", "equal")


NAMES: Final = ("instances", "live")
"""The experiments. The second needs the machine for itself, and is performed only on request."""


@click.command(short_help="Workflows over several sites, with energy and penalties (2013).")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Only instances of this kind; real: drawn from the workflows in $HEADWAY_DATA. Default: all but real.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Instances of each kind; the paper has 5.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first; others follow.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Workflows of an instance, as in the paper.",
)
@click.option(
    "--sites",
    type=click.Choice(SIZES),
    default="alike",
    show_default=True,
    help="How many processors the sites have: all as many; drawn; or all of equal capacity.",
)
@click.option(
    "--commands",
    type=click.IntRange(min=12),
    default=200,
    show_default=True,
    help="live: commands of each of the two workflows.",
)
@click.option("--policy", "added", multiple=True, help="One more policy: NAME[:KEY=VALUE,...].")
@click.option(
    "--processes", type=click.IntRange(min=1), help="How many processes work at once; default: one for each processor."
)
@click.option("--out", type=GivenPath(file_okay=False), help="Write pictures, tables and every run to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def dn13(
    what: tuple[str, ...],
    kinds: tuple[str, ...],
    samples: int,
    seed: int,
    jobs: int,
    sites: str,
    commands: int,
    added: tuple[str, ...],
    processes: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Repeat the experiments of DN13, and compare its published numbers with ours.

    25 instances of 1,000 workflows at five sites, under the two schedulers of the paper and under ours: makespan,
    energy and penalties (table 1, figure 1). That is instances, the default.

    live runs two workflows of real commands at two sites of this machine for a minute, and compares their makespan with
    what the simulator foresees.
    """
    from headway.reproduce.dn13 import instances, live
    from headway.workloads.dn13 import Size

    for text in added:
        policy_files.find(text)
    report = Report("dn13", None if out is None else Path(out), as_json)
    if report.folder is not None:
        make_folder(report.folder)
    asked = instances.Asked(
        range(seed, seed + samples),
        jobs,
        cast(Size, sites),
        kinds or GENERATED,
        tuple(dict.fromkeys(added)),
        processes,
        instances.folder_of_workflows(),
    )
    tables = []
    if not what or "instances" in what:
        tables += report.experiment("instances", instances.runs(asked), partial(instances.perform, asked))
    if "live" in what:
        wanted = live.Asked(commands, seed, policy=added[0] if added else live.POLICY)
        title = "" if what == ("live",) else "Live"
        tables += report.experiment("live", live.runs(wanted), partial(live.perform, wanted), title)
    report.text("tables.md", "\n".join(tables))
    report.end({"sites": sites, "jobs": jobs, "samples": samples, "seed": seed})
