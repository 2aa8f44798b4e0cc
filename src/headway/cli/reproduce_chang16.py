"""The experiments of Chang16, repeated: published numbers beside ours, tables, pictures, every run as CSV."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from headway import policy_files
from headway.cli.output import make_folder
from headway.cli.paths import GivenPath
from headway.cli.report import Report

NAMES: Final = ("estimates", "orders", "mixed", "switching", "live")
"""The experiments, as in `headway.reproduce.chang16.experiments`; that takes long to import."""

USUAL: Final = NAMES[:3]
"""Those that are performed unless it is said, which are the paper's. The last needs the machine for itself."""


@click.command(short_help="Batch jobs and services at the least penalty (2016).")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--samples", type=click.IntRange(min=2), default=10, show_default=True, help="Samples of the log; the paper has 10."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Fixes the first sample; others follow."
)
@click.option("--policy", "added", multiple=True, help="One more policy for orders: NAME[:KEY=VALUE,...].")
@click.option(
    "--data", type=GivenPath(file_okay=False), help="Folder that contains swf/ with the log; default $HEADWAY_DATA."
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="How many processes work at once; default: one for each processor."
)
@click.option("--out", type=GivenPath(file_okay=False), help="Write pictures, tables and every run to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def chang16(
    what: tuple[str, ...],
    samples: int,
    seed: int,
    added: tuple[str, ...],
    data: str | None,
    processes: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Repeat the experiments of Chang16, and compare its published numbers with ours.

    estimates, how well the penalty is foreseen in the middle of a run (figures 4 and 5); orders, what late jobs cost
    under several policies (figures 6 and 7); mixed, batch jobs and services on one cluster (figures 8 and 9). They run
    samples of SDSC-Par96 and of web servers' logs, or of generated ones where these are missing. By default: all three.

    switching is mixed with instances that warm up and with batch jobs that are killed, beyond the paper.

    live runs real jobs and services on this machine for seven minutes, and compares with what the simulator foresees.
    """
    from headway.reproduce.chang16.experiment import Asked
    from headway.reproduce.chang16.experiments import EXPERIMENTS
    from headway.reproduce.chang16.samples import open_log

    for text in added:
        policy_files.find(text)
    report = Report("chang16", None if out is None else Path(out), as_json)
    if report.folder is not None:
        make_folder(report.folder)
    log = open_log(data)
    hint = " Set HEADWAY_DATA, or give --data, to use the real one." if log.is_standin else ""
    click.echo(f"Log: {log.name}, {len(log.workload):,} jobs.{hint}", err=as_json)
    asked = Asked(log, range(seed, seed + samples), added, processes)
    markdown = []
    for one in [EXPERIMENTS[name] for name in NAMES if name in (what or USUAL)]:
        markdown += report.experiment(one.name, one.runs(asked), partial(one.perform, asked), one.title)
    report.text("tables.md", "\n".join(markdown))
    report.end({"log": {"name": log.name, "made_up": log.is_standin}, "samples": samples, "seed": seed})
