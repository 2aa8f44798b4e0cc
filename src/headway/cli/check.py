"""Commands about the measures of the status checker, and about incidents and requests."""

from __future__ import annotations

from collections.abc import Sequence

import click

from headway.cli.reach import Reach, asks_server
from headway.cli.show import amount, as_json, clock, instant_in, print_json, print_table, seconds_in, span, when
from headway.errors import HeadwayError, did_you_mean


@click.command()
@click.argument("node", required=False)
@click.option("--metric", help="Only this one, as COLLECTOR.NAME.")
@click.option(
    "--since", metavar="TIME", help="All measurements since then: 18:00, or 10m ago; default: the latest ones."
)
@as_json
@asks_server
def metrics(reach: Reach, node: str | None, metric: str | None, since: str | None, as_json: bool) -> None:
    """Show what collectors measured on the nodes, or on one of them."""
    start = None if since is None else max(0.0, instant_in(since, "--since", towards="past"))
    with reach() as client:
        found = client.metrics(node=node, metric=metric, since=start)
        known = [] if found or node is None else [one.name for one in client.nodes()]
    if known and node not in known:
        raise HeadwayError(
            f"there is no node {node!r}", did_you_mean(str(node), known) or "`headway nodes` lists them."
        )
    if as_json:
        print_json(found)
    elif not found:
        others = "; `headway metrics` shows what was" if metric else ""
        click.echo(f"Nothing was found{f' of {metric}' if metric else ''} yet{others}.")
    elif start is not None:
        values = [(clock(one.at), one.node, one.metric, amount(one.metric, one.value)) for one in found]
        print_table(("at", "node", "metric", "value"), values, right=("value",))
    else:
        nodes = sorted({one.node for one in found})
        table = {(one.metric, one.node): amount(one.metric, one.value) for one in found}
        rows = [(name, *(table.get((name, node), "") for node in nodes)) for name in sorted({m for m, _ in table})]
        print_table(("metric", *nodes), rows, right=nodes)
        click.echo(f"As found {when(max(one.at for one in found))}.")


@click.command()
@click.argument("switch", type=click.Choice(("on", "off")), required=False)
@click.option("--every", metavar="SPAN", help="Its period from now on, as 5s.")
@as_json
@asks_server
def checker(reach: Reach, switch: str | None, every: str | None, as_json: bool) -> None:
    """Show the status checker and its collectors, switch it on or off, or change its period. Jobs are not affected."""
    period = None if every is None else seconds_in(every, "--every")
    with reach() as client:
        if switch is None and period is None:
            found = client.checker()
        else:
            found = client.set_checker(on=None if switch is None else switch == "on", every=period)
    if as_json:
        print_json(found)
        return
    click.echo(f"It is {'on' if found.on else 'off'}, with a period of {span(found.every)}.")
    if not found.collectors:
        click.echo("There are no collectors.")
        return
    rows = [(one.name, one.status, when(one.answered), " ".join(one.detail.split())) for one in found.collectors]
    print_table(("collector", "status", "answered", "what is wrong"), rows, fold=("what is wrong",))


@click.command()
@click.option("--last", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many: the latest.")
@as_json
@asks_server
def incidents(reach: Reach, last: int, as_json: bool) -> None:
    """List what an operator should know of: lost nodes, collectors that fail and the like; the latest last."""
    with reach() as client:
        found = client.incidents(last=last)
    rows = [(clock(one.at), one.kind, one.subject, " ".join(one.detail.split()), one.by) for one in found]
    _print_latest(found, ("at", "kind", "of", "detail", "asked by"), rows, as_json, "There are no incidents.")


@click.command()
@click.option("--last", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many: the latest.")
@as_json
@asks_server
def requests(reach: Reach, last: int, as_json: bool) -> None:
    """List who asked for what: jobs submitted, cancelled or changed; changes of nodes, policy and decider."""
    with reach() as client:
        found = client.requests(last=last)
    rows = [(clock(one.at), one.by, one.kind, one.subject, " ".join(one.detail.split())) for one in found]
    _print_latest(found, ("at", "by", "what", "of", "detail"), rows, as_json, "There are no requests.")


@click.command()
@click.option("--user", help="Only of this user; an empty name: of callers without a valid token.")
@click.option("--since", metavar="TIME", help="Only since then: 18:00, or 10m ago.")
@click.option("--last", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many: the latest.")
@as_json
@asks_server
def audit(reach: Reach, user: str | None, since: str | None, last: int, as_json: bool) -> None:
    """List who did what, and what was refused to whom; the latest last."""
    start = None if since is None else max(0.0, instant_in(since, "--since", towards="past"))
    with reach() as client:
        found = client.audit(user=user, since=start, last=last)
    rows = [
        (
            clock(one.at),
            one.by or "nobody known",
            f"{one.kind} {one.status}" if one.status else one.kind,
            one.subject,
            " ".join(one.detail.split()),
            f"{one.peer}, {one.times} times" if one.times > 1 else one.peer,
        )
        for one in found
    ]
    columns = ("at", "by", "what", "of", "detail", "from")
    _print_latest(found, columns, rows, as_json, "There are no such entries.")


def _print_latest(
    found: Sequence[object], columns: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool, none: str
) -> None:
    """Print the records of a server, as a table or in JSON; `none` is printed if there are none."""
    if as_json:
        print_json(found)
    elif not found:
        click.echo(none)
    else:
        print_table(columns, rows, fold=("of", "detail"))
