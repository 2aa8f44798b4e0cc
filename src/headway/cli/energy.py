"""The command that shows what the nodes took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, clock, energy_text, instant_in, print_json, print_table

JOBS_SHOWN: Final = 20
"""So many jobs are shown; with --json more."""

NO_JOB: Final = "(no job)"
OTHER_JOBS: Final = "(other jobs)"
"""The names of what is not told job by job, so that everything adds up."""


@click.command()
@click.option("--since", metavar="TIME", help="From then on: 18:00, or 10m ago; default: since the server started.")
@click.option("--until", metavar="TIME", help="Until then; default: now.")
@as_json
@asks_server
def energy(reach: Reach, since: str | None, until: str | None, as_json: bool) -> None:
    """Show what the nodes took, by node, site, user and job, and what of it was for no job.

    It follows from what the nodes draw idle and at their peak (the cluster file says it) and from what ran. Where the
    processors of this machine count what they take, that is shown beside it.
    """
    first = None if since is None else max(0.0, instant_in(since, "--since", towards="past"))
    last = None if until is None else max(0.0, instant_in(until, "--until", towards="past"))
    with reach() as client:
        found = client.energy(since=first, until=last)
    if as_json:
        print_json(found)
        return
    model = found.model
    click.echo(f"From {clock(model.since)} to {clock(model.until)} the nodes took {energy_text(model.joules)}.")
    if model.known_since is not None and model.known_since > model.since:
        click.echo(f"The journal knows only what happened since {clock(model.known_since)}.")
    if model.unknown:
        click.echo(f"Nodes that do not say what they draw, and count as 0: {', '.join(model.unknown)}.")
    rows = [(name, energy_text(joules), energy_text(model.idle.get(name, 0.0))) for name, joules in model.nodes.items()]
    if rows:
        print_table(("node", "energy", "of it for no job"), rows, right=("energy", "of it for no job"))
    _print("site", model.sites)
    none = {NO_JOB: model.idle_joules} if model.nodes else {}
    _print("user", {**model.users, **none})
    others = model.other_jobs + sum(job.joules for job in model.jobs[JOBS_SHOWN:])
    jobs = {f"{job.job}": job.joules for job in model.jobs[:JOBS_SHOWN]}
    _print("job", {**jobs, **({OTHER_JOBS: others} if others > 0 else {}), **none})
    if found.counted is not None:
        click.echo(
            f"The processors of this machine counted {energy_text(found.counted.joules)} "
            f"from {clock(found.counted.since)} to {clock(found.counted.until)}."
        )
        _print("zone", found.counted.zones)
    else:
        click.echo(f"The processors' own counters say nothing: {found.why_not}.")


def _print(what: str, values: Mapping[str, float]) -> None:
    if values:
        print_table(
            (what, "energy"), [(name, energy_text(joules)) for name, joules in values.items()], right=("energy",)
        )
