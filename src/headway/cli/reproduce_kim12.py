"""The experiments of Kim12."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from headway.cli.output import make_folder
from headway.cli.report import Report

NAMES: Final = ("estimates",)
"""The experiments."""


@click.command(short_help="Estimates from history, and due dates that can be kept (2012).")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=click.Choice(NAMES))
@click.option("--samples", type=click.IntRange(min=1), default=10, show_default=True, help="Samples of runs.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Fixes the first sample; others follow."
)
@click.option("--out", type=click.Path(file_okay=False), help="Write pictures, tables and every run to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def kim12(what: tuple[str, ...], samples: int, seed: int, out: str | None, as_json: bool) -> None:
    """Repeat what Kim12 does with the history of a program.

    estimates, which parameters of past runs matter by principal component analysis, estimates from similar past runs,
    and due dates that are kept. The trace of e-AIRS is not public: the runs are made up. It needs scikit-learn.
    """
    from headway.history.factors import check_learner
    from headway.reproduce.kim12 import estimates

    check_learner()
    report = Report("kim12", None if out is None else Path(out), as_json)
    if report.folder is not None:
        make_folder(report.folder)
    seeds = range(seed, seed + samples)
    markdown = report.experiment(
        "estimates", samples, partial(estimates.perform, seeds), "Estimates from similar past runs"
    )
    report.text("tables.md", "\n".join(markdown))
    report.end({"samples": samples, "seed": seed})
