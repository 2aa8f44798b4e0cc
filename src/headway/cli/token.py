"""The commands about the tokens of users."""

from __future__ import annotations

import click

from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, clock, limit_in, print_json, print_table
from headway.wire import Role

ROLES = [role.value for role in Role]


@click.group()
def token() -> None:
    """Make, list and revoke tokens: who may use the server, and as what. They count at once, without a restart."""


@token.command(short_help="Make a token for a user.")
@click.option("--user", required=True, metavar="NAME", help="Whose it is: the user of jobs that are submitted with it.")
@click.option(
    "--role",
    required=True,
    type=click.Choice(ROLES),
    help="viewer: sees; submitter: submits, and changes own jobs; operator: changes all; administrator: makes tokens.",
)
@click.option("--expires", metavar="SPAN", help="After this time it ends, as 30d; default: never.")
@click.option("--account", default="", metavar="NAME", help="The user's account of the system, if it has another name.")
@as_json
@asks_server
def create(reach: Reach, user: str, role: str, expires: str | None, account: str, as_json: bool) -> None:
    """Make a token and print it, this once: the server keeps only its hash."""
    span = None if expires is None else limit_in(expires, "--expires")
    with reach() as client:
        made = client.create_token(user, role, expires=span, account=account)
    if as_json:
        print_json(made)
        return
    click.echo(made.token)
    until = "" if made.about.expires is None else f" It ends {clock(made.about.expires)}."
    click.echo(f"This is token {made.about.id} of {user}, {role}.{until} It is not shown again.", err=True)


@token.command("list", short_help="List the tokens.")
@as_json
@asks_server
def list_(reach: Reach, as_json: bool) -> None:
    """List the tokens, without what has to be sent: only their owners know that."""
    with reach() as client:
        found = client.tokens()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("There are no tokens but that in the data directory. `headway token create` makes one.")
        return
    rows = [
        (
            one.id,
            one.user,
            one.role.value,
            clock(one.created),
            "never" if one.expires is None else clock(one.expires) if one.valid else "has ended",
            one.by,
            "" if one.account == one.user else one.account or "the server's",
        )
        for one in found
    ]
    print_table(("token", "user", "role", "made", "ends", "by", "account"), rows, fold=("user", "by", "account"))


@token.command(short_help="Revoke tokens.")
@click.argument("tokens", metavar="TOKEN...", nargs=-1, required=True)
@as_json
@asks_server
def revoke(reach: Reach, tokens: tuple[str, ...], as_json: bool) -> None:
    """Revoke tokens, by their ids in `headway token list`. What is under way with them ends at once; jobs go on."""
    with reach() as client:
        for one in tokens:
            client.revoke_token(one)
    if as_json:
        print_json({"revoked": tokens})
    else:
        click.echo(f"Revoked: {', '.join(tokens)}.")
