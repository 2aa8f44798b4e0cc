"""The commands that show sites and what is rented there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from headway.cli.paths import GivenPath
from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, clock, money, print_json, print_table, span
from headway.errors import HeadwayError
from headway.metrics import to_json
from headway.model.instant import SECOND, to_seconds
from headway.model.renting import UNIT
from headway.wire import OfferReport, RentingReport


@click.command()
@as_json
@asks_server
def sites(reach: Reach, as_json: bool) -> None:
    """Show the sites: what runs tasks there, their nodes, and whether machines can be rented there."""
    with reach() as client:
        found = client.sites()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(one.name, one.engine, f"{one.up} of {one.nodes}" if one.up < one.nodes else str(one.nodes)),
            *(f"{one.busy} of {one.slots} busy", _count(one.offers), _count(one.rented), one.gone),
        )
        for one in found
    ]
    headings = ("site", "engine", "nodes", "slots", "offers", "rented", "out of reach")
    print_table(headings, rows, right=("nodes", "offers", "rented"), fold=("out of reach",))


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be rented for the open jobs, and why; nothing is.")
@click.option("--cluster", type=GivenPath(dir_okay=False), help="With --dry-run: what this cluster file offers.")
@click.option("--policy", help="With --dry-run: under this policy, such as sites:top=prefer.")
@as_json
@asks_server
def rent(reach: Reach, dry_run: bool, cluster: str | None, policy: str | None, as_json: bool) -> None:
    """Show what is rented, since when, for whom and what it costs; and what can be rented.

    `headway node drain NODE` gives a machine back as soon as nothing runs there.

    With --dry-run the journal of the data directory is read, and the future of its open jobs is simulated, as if each
    task ran as long as it is expected to.
    """
    if dry_run:
        _try(reach.folder, cluster, policy, as_json=as_json)
        return
    if cluster is not None or policy is not None:
        raise click.UsageError("--cluster and --policy are for --dry-run.")
    with reach() as client:
        found = client.rentals()
    if as_json:
        print_json(found)
        return
    if not (found.offers or found.rentals or found.rented):
        click.echo("Nothing can be rented: the cluster file has no [[offer]].")
        return
    if found.rentals:
        rentals = [
            (
                *(one.node, one.type, one.stage, clock(one.asked), "" if one.job is None else str(one.job), one.user),
                *(money(one.cost), clock(one.paid_until), clock(one.reclaimed), one.why),
            )
            for one in found.rentals
        ]
        headings = ("machine", "type", "stage", "asked", "job", "user", "cost", "paid until", "taken back", "why")
        print_table(headings, rentals, right=("job", "cost"), fold=("why",), spare=("why",))
    else:
        click.echo("Nothing is rented now.")
    if found.offers:
        rows = [
            (
                *(one.site, one.type, str(one.slots), f"{one.speed:g}", f"{one.price:g}", _billed(one)),
                *(span(one.start_time), f"{one.left} of {one.limit}", "spot" if one.spot else "", one.trouble),
                clock(one.again),
            )
            for one in found.offers
        ]
        columns = ("site", "type", "slots", "speed", "an hour", "billed", "starts in", "left", "", "trouble", "again")
        print_table(columns, rows, right=columns[2:5], fold=("trouble",), title="Offers")
    click.echo(_paid(found))


def _try(folder: Path, cluster: str | None, policy: str | None, *, as_json: bool) -> None:
    """Show what would be rented."""
    from headway.config import read_renting
    from headway.foresight.present import present
    from headway.foresight.renting import would_rent
    from headway.policy_files import find

    renting = None if cluster is None else read_renting(cluster)
    if cluster is not None and renting is None:
        raise HeadwayError(
            f"{cluster} offers nothing to rent", "Write [[offer]] tables, see docs/how-to/rent-machines.md."
        )
    if policy is not None:
        find(policy)
    state = present(folder, find, round(time.time() * SECOND)).state
    found = would_rent(state, find, renting=renting, policy=policy)
    cost = sum(row.cost for row in found.machines) / UNIT
    if as_json:
        machines = [
            {
                "site": row.site,
                "type": row.type,
                "job": job,
                "at": to_seconds(row.asked),
                "until": to_seconds(row.until),
            }
            | {"cost": row.cost / UNIT, "why": row.why}
            for row, job in zip(found.machines, found.jobs, strict=True)
        ]
        told = {"machines": machines, "cost": cost, "late": found.late, "late_without": found.late_without}
        click.echo(to_json(told), nl=False)
        return
    if not found.machines:
        offers = renting is not None or (state.market is not None and state.market.renting.offers)
        click.echo("Nothing would be rented." if offers else "Nothing would be rented: nothing is offered.")
    else:
        rows = [
            (
                *(row.site, row.type, "" if job is None else str(job), clock(to_seconds(row.asked))),
                *(span(to_seconds(row.until - row.asked)), money(row.cost / UNIT), row.why),
            )
            for row, job in zip(found.machines, found.jobs, strict=True)
        ]
        headings = ("site", "type", "job", "from", "for", "cost", "why")
        print_table(headings, rows, right=("job", "cost"), fold=("why",), title="What would be rented")
        click.echo(f"That would cost {money(cost)}.")
    click.echo(f"Late: {_jobs(found.late)}; if nothing could be rented: {_jobs(found.late_without)}.")


def _jobs(jobs: Sequence[int]) -> str:
    named = ", ".join(map(str, jobs[:5])) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
    return f"job{'s' * (len(jobs) != 1)} {named}" if jobs else "no job"


def _billed(offer: OfferReport) -> str:
    return f"by {span(offer.period)}, {span(offer.minimum)} at least"


def _paid(found: RentingReport) -> str:
    """What was paid, in a sentence or two."""
    of_day = "" if found.budget_day is None else f" of {money(found.budget_day)}"
    of_job = "" if found.budget_job is None else f" A job may cost {money(found.budget_job)}."
    users = ", ".join(f"{user or 'nobody'} {money(paid)}" for user, paid in found.paid_by_user.items())
    so_far = f" So far, by user: {users}." if users else ""
    lost = f" Of {found.rented} machines {found.never_joined} never joined." if found.never_joined else ""
    return f"Paid today: {money(found.paid_today)}{of_day}.{of_job}{so_far}{lost}"


def _count(number: int) -> str:
    return str(number) if number else ""
