"""What is known of a program from its past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.paths import GivenPath, PicturePath
from headway.cli.show import counted, print_table, span
from headway.cli.submit import numbers_in
from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.metrics import to_json
from headway.model.actions import JobStatus

if TYPE_CHECKING:
    from headway.foresight.programs import KnownProgram
    from headway.history.factors import Factors
    from headway.history.similar import Sample

RUNS_SHOWN: Final = 10
"""Similar runs in the table; --json has all."""

JOB_ENDS: Final = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
"""What becomes of jobs."""


@click.command()
@click.argument("name", required=False)
@click.option("--user", help="Only jobs of this user.")
@click.option(
    "--feature",
    "features",
    metavar="NAME=NUMBER",
    multiple=True,
    help="A feature of a run that is planned: which past runs were similar, and how long it will take.",
)
@click.option("--out", type=PicturePath(), help="Draw which features matter: .png, .svg or .pdf.")
@click.option("--data", type=GivenPath(file_okay=False), help="Data directory; default ~/.local/share/headway.")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; times in seconds.")
def profile(
    name: str | None, user: str | None, features: tuple[str, ...], out: str | None, data: str | None, as_json: bool
) -> None:
    """Show what is known of the programs that a server has run: how they ended, how long, and which features matter.

    A program is what the jobs of one name and user run. With NAME it is shown how long those ran that succeeded, and
    how much each feature matters for that: what jobs were submitted with (`submit --feature mesh=1e6`), numbers in the
    command (`--mesh 1e6`), tasks, width, estimate, hour of the week, the size of uploads, and the nodes. Reads the
    journal; the server may run. What is told of features needs scikit-learn.
    """
    from headway.client.address import data_directory
    from headway.foresight.programs import programs

    planned = numbers_in(features, "--feature")
    if name is None and (planned or out):
        raise HeadwayError("--feature and --out are about one program", "Name it: headway profile NAME.")
    ran = programs(Path(data_directory(data)))
    every = [one for one in ran if user in (None, one.user)]
    if ran and not every:
        whose = {one.user for one in ran}
        hint = did_you_mean(str(user), whose) or f"Jobs of {', '.join(sorted(whose))} have."
        raise InvalidInput("--user", user, "one of whom a job has ended", hint=hint)
    if name is None:
        _list(every, as_json=as_json)
        return
    found = [one for one in every if one.name == name]
    if not found:
        known = {one.name for one in every}
        raise InvalidInput("name", name, "that of a job that has ended", hint=did_you_mean(name, known))
    if len(found) > 1:
        users = ", ".join(one.user for one in found)
        raise HeadwayError(f"several users have jobs named {name}: {users}", "Say whose with --user.")
    _tell(found[0], planned, out, as_json=as_json)


def _list(programs: list[KnownProgram], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"programs": [_object(one) for one in programs]}), nl=False)
        return
    if not programs:
        click.echo("No job has ended yet.")
        return
    rows = [
        (
            *(one.name or "(no name)", one.user, *_ends(one)),
            *((span(one.bounds[2]), f"{span(one.bounds[0])} to {span(one.bounds[-1])}") if one.runs else ("", "")),
            "" if one.asked is None else f"{one.asked:.1f} times",
        )
        for one in programs
    ]
    headings = ("program", "user", "succeeded", "failed", "cancelled", "median", "90 % of them", "estimate was")
    print_table(headings, rows, right=headings[2:])


def _ends(program: KnownProgram) -> tuple[str, str, str]:
    """How many of its last jobs succeeded, failed and were cancelled; empty: none."""
    succeeded, failed, cancelled = (program.ended[status] for status in JOB_ENDS)
    return (
        f"{succeeded:,}",
        f"{failed:,} ({program.failed_share:.0%})" if failed else "",
        f"{cancelled:,}" if cancelled else "",
    )


def _tell(program: KnownProgram, planned: dict[str, float], out: str | None, *, as_json: bool) -> None:
    from headway.history.described import RUNS_LEAST
    from headway.history.factors import SAME_IN_ALL, Factors, has_learner
    from headway.history.features import is_own

    is_asked, whose = bool(planned or out), program.user or "nobody"
    if not program.runs:
        if is_asked:
            hint = "Without --feature and --out it is told how they ended."
            raise HeadwayError(f"no job named {program.name} has succeeded", hint)
        if as_json:
            click.echo(to_json(_object(program) | {"features": None}), nl=False)
        else:
            click.echo(f"No job named {program.name} of {whose} has succeeded. {_how_ended(program)}")
        return
    described, took = [run.features for run in program.runs], [run.took for run in program.runs]
    for name in planned:
        known = {feature for run in described for feature in run}
        if name not in known:
            hint = did_you_mean(name, known) or f"Its runs have {', '.join(sorted(known))}."
            raise InvalidInput("--feature", name, "a feature of its earlier runs", hint=hint)
    factors = Factors(described, took) if is_asked or (len(took) >= RUNS_LEAST and has_learner()) else None
    last = program.runs[-1 if factors is None else factors.compared[-1]]
    named = {name for run in program.runs for name, _ in run.job.features if not is_own(name)}
    if planned:  # what is not said of it is as of the last run, but for what users themselves say of each
        planned = {name: value for name, value in last.features.items() if name not in named} | planned
    similar = None if factors is None or not planned else factors.similar(planned)
    sample = None if factors is None or not planned else factors.sample(planned)
    if out is not None and factors is not None:
        _draw(program, factors, out)
    if as_json:
        told = _object(program) | {"features": None if factors is None else _features(factors)}
        if sample is not None and similar is not None:
            told |= {"similar": [{"took": took[one], **described[one]} for one in similar], "expected": _bounds(sample)}
        click.echo(to_json(told), nl=False)
        return
    low, _, middle, _, high = program.bounds
    if program.others:
        click.echo(_how_ended(program))
    spread = "" if len(program.runs) == 1 else f" in the median, nine in ten of them for {span(low)} to {span(high)}"
    click.echo(f"{counted(len(program.runs), 'job')} named {program.name} of {whose} ran for {span(middle)}{spread}.")
    if program.asked is not None:
        click.echo(f"Their estimates were {program.asked:.1f} times as long, in the median.")
    if factors is None:
        if len(took) >= RUNS_LEAST:
            click.echo('Which features matter is told with scikit-learn: pip install "headway[predict]".')
        return
    lacking = [
        f"Nothing can be told of {feature}: {why}."
        for feature, why in factors.left_out.items()
        if feature in named or why != SAME_IN_ALL
    ]
    if not factors.influence:
        differ = any(why != SAME_IN_ALL for why in factors.left_out.values())
        what = "in nothing that all of them have" if differ else "in nothing that is known"
        click.echo("\n".join((f"Its {counted(len(took), 'run')} differ {what}.", *lacking)))
        return
    click.echo(f"\nHow much each feature matters, by {counted(len(factors.compared), 'run')}:")
    rows = [
        (name, f"{share:.0%}", *(f"{value:g}" for value in (min(of), max(of))))
        for name, share in factors.influence.items()
        for of in [[described[number][name] for number in factors.compared]]
    ]
    print_table(("feature", "influence", "least", "most"), rows, right=("influence", "least", "most"))
    if others := len(took) - len(factors.compared):
        click.echo(f"Not compared: {counted(others, 'run')} without a feature that nearly all have.")
    for line in lacking:
        click.echo(line)
    if sample is None or similar is None:
        return
    click.echo("\nThe most similar runs:")
    names = factors.names
    shown = [(span(took[one]), *(f"{described[one][name]:g}" for name in names)) for one in similar[:RUNS_SHOWN]]
    print_table(("ran", *names), shown, right=("ran", *names))
    low, _, middle, _, high = _bounds(sample).values()
    click.echo(f"It is expected to run for {span(middle)}, and with 90 % for {span(low)} to {span(high)}.")


def _how_ended(program: KnownProgram) -> str:
    """How its last jobs ended, in sentences."""
    ended, failed = program.ended, program.failed_share
    counts = [f"{count:,} {status.value}" for status in JOB_ENDS if (count := ended[status])]
    told = f"Of the last {counted(ended.total(), 'job')}: {', '.join(counts)}"
    told += f"; {failed:.0%} of those that were not cancelled failed." if failed else "."
    why = ", ".join(f"{word} ({count:,})" for word, count in program.failed_with.most_common())
    return f"{told} Why: {why}." if why else told


def _bounds(sample: Sample) -> dict[str, float]:
    from headway.history.bounds import LEVELS

    return {f"{level:g}": sample.quantile(level) for level in LEVELS}


def _object(program: KnownProgram) -> dict[str, Any]:
    return {
        "program": program.name,
        "user": program.user,
        "runs": len(program.runs),
        "ended": {status.value: program.ended[status] for status in JOB_ENDS},
        "failed_share": program.failed_share,
        "failed_with": dict(program.failed_with.most_common()),
        "run_time": _bounds(program.sample) if program.runs else None,
        "estimate_ratio": program.asked,
    }


def _features(factors: Factors) -> dict[str, Any]:
    return {
        "compared": len(factors.compared),
        "influence": factors.influence,
        "left_out": factors.left_out,
        "components": [
            {"explained": one.explained, "loadings": dict(one.loadings), "run_time": one.run_time}
            for one in factors.components
        ],
    }


def _draw(program: KnownProgram, factors: Factors, out: str) -> None:
    from headway import pictures
    from headway.pictures import Mean

    if not factors.influence:
        raise HeadwayError("there is nothing to draw", "The features are the same in all runs.")
    told = {name: Mean(share, 0.0) for name, share in factors.influence.items()}
    pictures.bars({program.name: told}, out, measure="influence on the run time")
