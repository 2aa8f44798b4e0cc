"""The commands that show sites and what is rented there."""

from __future__ import annotations

import click

from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, clock, print_json, print_table, span
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
@as_json
@asks_server
def rent(reach: Reach, as_json: bool) -> None:
    """Show what is rented, since when, for whom and what it costs; and what can be rented.

    `headway node drain NODE` gives a machine back as soon as nothing runs there.
    """
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
                *(_money(one.cost), clock(one.paid_until), clock(one.reclaimed), one.why),
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


def _billed(offer: OfferReport) -> str:
    return f"by {span(offer.period)}, {span(offer.minimum)} at least"


def _paid(found: RentingReport) -> str:
    """What was paid, in a sentence or two."""
    of_day = "" if found.budget_day is None else f" of {_money(found.budget_day)}"
    of_job = "" if found.budget_job is None else f" A job may cost {_money(found.budget_job)}."
    users = ", ".join(f"{user or 'nobody'} {_money(paid)}" for user, paid in found.paid_by_user.items())
    so_far = f" So far, by user: {users}." if users else ""
    lost = f" Of {found.rented} machines {found.never_joined} never joined." if found.never_joined else ""
    return f"Paid today: {_money(found.paid_today)}{of_day}.{of_job}{so_far}{lost}"


def _money(amount: float) -> str:
    """An amount, with as many digits as it needs: at least two behind the point.

    >>> _money(12.0), _money(0.0125)
    ('12.00', '0.0125')
    """
    digits = f"{amount:.4f}".rstrip("0")
    whole, _, part = digits.partition(".")
    return f"{whole}.{part:<02}" if len(part) < 2 else digits


def _count(number: int) -> str:
    return str(number) if number else ""
