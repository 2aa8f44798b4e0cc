"""The experiments of MEASY14, repeated: figures as tables and pictures, its statements, every run as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headway.cli.output import make_folder
from headway.cli.paths import GivenPath
from headway.cli.progress import progress
from headway.cli.report import Report

if TYPE_CHECKING:
    from headway.reproduce.measy14.figures import Runs
    from headway.reproduce.measy14.published import Answer, Statement

LOGS: Final = "logs"
FIGURES: Final = (*(f"fig{number}" for number in range(6, 15)), LOGS)

SCALE: Final = 0.1
"""Share of the paper's jobs by default, so that a run of everything takes minutes."""

COLUMNS: Final = (
    *("source", "load", "policy", "use", "cost", "jobs"),
    *("response_mean", "response_half_width", "bounded_slowdown_mean", "bounded_slowdown_half_width"),
    *("migrations", "kills", "utilisation", "lost", "seconds"),
)


@click.command(short_help="Parallel jobs on two tiers, with migration (KEASY, REASY, MEASY), figures 6 to 14.")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=click.Choice(FIGURES))
@click.option("--scale", type=float, default=SCALE, show_default=True, help="Share of the jobs; 1 is the paper's size.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Fixes jobs and their progress.")
@click.option(
    "--data", type=GivenPath(file_okay=False), help="Folder that contains swf/ with logs; default $HEADWAY_DATA."
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="How many processes work at once; default: one for each processor."
)
@click.option("--out", type=GivenPath(file_okay=False), help="Write pictures, tables and every run to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def measy14(
    what: tuple[str, ...],
    scale: float,
    seed: int,
    data: str | None,
    processes: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Repeat figures 6 to 14 of MEASY14, compare its statements with our results, and try the same on real logs.

    EASY, KEASY, REASY and MEASY on two workload models, against load (fig6, fig7), migrations (fig8), without knowledge
    of CPU use (fig9, fig10), at 100 % CPU use (fig11, fig12), against the cost of a migration (fig13, fig14); then on
    logs of real machines (logs). By default: all, the logs only if they are there. Shared runs are run once.
    """
    from headway.reproduce.measy14 import figures, published, runs

    wanted = [name for name in FIGURES if name in (what or FIGURES)]
    folder = runs.data_folder(data, needed=LOGS in what)
    report = Report("measy14", None if out is None else Path(out), as_json)
    if report.folder is not None:
        make_folder(report.folder)
    if folder is None and LOGS in wanted:
        wanted.remove(LOGS)
        report.aside("The logs are left out: set HEADWAY_DATA, or give --data, to the folder that holds swf/.")
    shown = [figures.FIGURES[name] for name in wanted]
    settings = dict.fromkeys(setting for figure in shown for setting in figure.settings())
    ended = [0]
    with progress({"runs": len({setting.plain for setting in settings})}, lambda: ended):
        found = runs.perform(
            settings,
            seed=seed,
            share=scale,
            folder=folder,
            processes=processes,
            progress=lambda done, _: ended.__setitem__(0, done),
        )
    markdown = []
    for figure in shown:
        for table in figures.tables(figure, found):
            report.heading(table.title)
            report.table(table.columns, table.rows, right=table.columns[1:])
            markdown.append(table.markdown())
            if any("*" in cell for row in table.rows for cell in row):
                report.say(figures.STAR)
        if drawing := report.drawing():
            from headway.reproduce.measy14.drawn import draw

            draw(figure, found, drawing / f"{figure.name}.png")
            report.written.append(f"{figure.name}.png")
    answers = [(statement, statement.judge(found)) for statement in published.told(wanted)]
    _tell(report, answers)
    if answers:
        markdown.append(published.table(answers).markdown())
    report.text("tables.md", "\n".join((*markdown, f"\\{figures.STAR}\n")))
    report.rows("runs.csv", COLUMNS, _rows(found))
    report.told["runs"] = [dict(zip(COLUMNS, row, strict=True)) for row in _rows(found)]
    report.end({"scale": scale, "seed": seed})


def _tell(report: Report, answers: Sequence[tuple[Statement, Answer]]) -> None:
    """Print what the paper says, with our answers."""
    if answers:
        report.heading("What the paper says, and what comes of our runs:")
    for statement, answer in answers:
        report.say(f"{answer.verdict}: {statement.words} {statement.published}".rstrip())
        report.say(f"    ours: {answer.ours}")
    report.told["statements"] = [
        {"figures": statement.figures, "words": statement.words, "published": statement.published} | asdict(answer)
        for statement, answer in answers
    ]


def _rows(found: Runs) -> list[tuple[object, ...]]:
    """Every run once, in the order of `COLUMNS`."""
    return [
        (
            *(setting.source, setting.load, setting.policy, setting.use, setting.cost, run.jobs),
            *(value for mean in (run.mean("response"), run.mean("slowdown")) for value in (mean.mean, mean.half_width)),
            *(run.migrations, run.kills, run.utilisation, run.lost, run.seconds),
        )
        for setting, run in found.items()
        if setting == run.setting
    ]
