"""The experiments of Kim12."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from headway.cli.output import make_folder
from headway.cli.paths import GivenPath
from headway.cli.report import Report

NAMES: Final = ("estimates", "sites", "live")
"""The experiments. The last one needs the machine for itself, and is performed only on request."""

USUAL: Final = NAMES[:2]

METHODS: Final = ("initial", "adaptive", "ours")
"""As in `headway.reproduce.kim12.live`; that takes long to import."""

SAMPLES: Final = {"estimates": 10, "sites": 20}
"""How many samples of each, unless something else is said."""


@click.command(short_help="Estimates from history, and due dates over grid and clouds (2012).")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=click.Choice(NAMES))
@click.option("--samples", type=click.IntRange(min=1), help="Samples of each; default: 10 of estimates, 20 of sites.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Fixes the first sample; others follow."
)
@click.option("--processes", type=click.IntRange(min=1), help="Simulations at once; default: one for each core.")
@click.option("--tasks", type=click.IntRange(min=2), default=100, show_default=True, help="live: so many real tasks.")
@click.option(
    "--method", "methods", multiple=True, type=click.Choice(METHODS), help="live: only under this method; default: all."
)
@click.option("--out", type=GivenPath(file_okay=False), help="Write pictures, tables and every run to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def kim12(
    what: tuple[str, ...],
    samples: int | None,
    seed: int,
    processes: int | None,
    tasks: int,
    methods: tuple[str, ...],
    out: str | None,
    as_json: bool,
) -> None:
    """Repeat the experiments of Kim12: WHAT is estimates, sites or live; default: the first two.

    estimates, which parameters of past runs matter by principal component analysis, estimates from similar past runs,
    and due dates that are kept. It needs scikit-learn.

    sites, due dates missed and money against load, tightness of due dates and error of estimates: on a grid alone, with
    a private cloud, with rented machines by the paper's rules and by ours.

    live, real tasks, a minute under each method: on this machine, with Dask, and on machines that are rented from a
    cloud on this machine (moto); due dates missed and money, beside what the simulator foresees. It needs
    headway[dask,aws] and moto[ec2,server].

    The trace of e-AIRS is not public: the runs are made up.
    """
    from headway.reproduce.kim12 import estimates, sites

    chosen = tuple(dict.fromkeys(what)) or USUAL
    if "estimates" in chosen:
        from headway.history.factors import check_learner

        check_learner()
    if "live" in chosen:
        from headway.reproduce.kim12.ec2 import check_installed

        check_installed()
    report = Report("kim12", None if out is None else Path(out), as_json)
    if report.folder is not None:
        make_folder(report.folder)
    taken = {name: samples or SAMPLES[name] for name in chosen if name in SAMPLES}
    seeds = {name: range(seed, seed + count) for name, count in taken.items()}
    markdown: list[str] = []
    if "estimates" in chosen:
        markdown += report.experiment(
            "estimates",
            taken["estimates"],
            partial(estimates.perform, seeds["estimates"]),
            "Estimates from similar past runs",
        )
    if "sites" in chosen:
        markdown += report.experiment(
            "sites",
            sites.runs(taken["sites"]),
            partial(sites.perform, seeds["sites"], processes=processes),
            "Due dates over grid, private and public cloud",
        )
    if "live" in chosen:
        from headway.reproduce.kim12 import live

        asked = live.Asked(tasks, seed, tuple(live.METHODS_OF[name] for name in dict.fromkeys(methods or METHODS)))
        markdown += report.experiment(
            "live", live.runs(asked), partial(live.perform, asked), "Live, beside the simulator"
        )
    report.text("tables.md", "\n".join(markdown))
    report.end({"samples": taken, "seed": seed} | ({"tasks": tasks} if "live" in chosen else {}))
