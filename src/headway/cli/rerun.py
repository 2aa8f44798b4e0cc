"""The recorded past of a server under other policies, beside what happened."""

from __future__ import annotations

from pathlib import Path

import click

from headway.cli.paths import GivenPath
from headway.cli.simulate import RunProgress, print_metrics
from headway.cli.written import FilesWanted, names_files
from headway.metrics import summarise, to_json
from headway.model.schedule import Schedule

RECORDED = "recorded"
"""What the table calls what happened."""


@click.command()
@click.argument("data", required=False, type=GivenPath(file_okay=False))
@click.option(
    "--policy",
    "texts",
    multiple=True,
    help="NAME[:KEY=VALUE,...], or FILE.py:NAME[,KEY=VALUE,...]; may be given many times; default: the server's own.",
)
@names_files
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list with an object for each; times in seconds.")
def rerun(files: FilesWanted, data: str | None, texts: tuple[str, ...], as_json: bool) -> None:
    """Let other policies decide about what the server of the data directory DATA was given.

    Jobs come when they came, run as long as they ran, and nodes are down when they were. A server may run meanwhile;
    jobs that have not ended are left out, also of what is recorded. The policy that the server had gives the recorded
    schedule, if it decides today as it did then. With several policies, --schedule and --schedule-tasks write a file
    for each, with the policy's name before its ending.
    """
    from headway.client.address import data_directory
    from headway.foresight.rerun import of_those_run, past
    from headway.foresight.rerun import rerun as run_again
    from headway.policy_files import find

    for text in texts:
        find(text)
    folder = Path(data or data_directory(None))
    told = past(folder, find)
    schedules: dict[str, Schedule] = {RECORDED: of_those_run(told)}
    repeated = []
    written = []
    for text in dict.fromkeys(texts or (told.policy,)):
        with RunProgress(text) as progress:
            found = run_again(folder, find, text, told, record=files.by_task, progress=progress)
        schedules[text] = schedules[RECORDED] if found.repeated else found.done
        repeated += [text] * found.repeated
        written += files.write(found.done, text if len(texts) > 1 else "")
    metrics = {text: summarise(done) for text, done in schedules.items()}
    if as_json:
        recorded = {RECORDED, *repeated}
        rows = [
            {"policy": text, "jobs": len(schedules[text]), "as_recorded": text in recorded, "metrics": one}
            for text, one in metrics.items()
        ]
        click.echo(to_json(rows), nl=False)
    else:
        print_metrics(metrics, schedules)
        for text in repeated:
            click.echo(f"{text} decides as it is recorded.")
        if len(told.left_out) and len(repeated) < len(metrics) - 1:
            click.echo("Not repeated:")
            for sentence in told.left_out:
                click.echo(f"  {sentence}")
        if written:
            click.echo(f"Written: {', '.join(map(str, written))}.")
