"""Commands that change which nodes are in service, while jobs run."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, counted, print_json, seconds_in
from headway.client.client import Client
from headway.wire import NodeChange

DRAIN_LOOK_SECONDS: Final = 0.2
"""How often it is looked whether a node that drains has left."""

one_or_more = click.IntRange(min=1)


@click.group()
def node() -> None:
    """Add, drain, remove, resize and switch nodes while jobs run; nothing that was accepted is lost."""


@node.command(short_help="Take another node into service.")
@click.argument("name")
@click.option("--slots", type=one_or_more, help="How many tasks run there at once; default: 1.")
@click.option("--speed", default=1.0, show_default=True, help="Work per second relative to a reference node.")
@click.option("--cores", type=one_or_more, help="Cores of the node; default: one for each slot.")
@click.option(
    "--kind", default="", help="Class of machines on which a task takes the same time; default: all nodes of its speed."
)
@click.option("--site", help="The site it belongs to; policies may part these. Default: local.")
@click.option("--lease", help="How long it may be silent before it is lost, as 30s; default that of the server.")
@as_json
@asks_server
def add(reach: Reach, name: str, slots: int | None, lease: str | None, as_json: bool, **terms: Any) -> None:
    """Add a node on the server's machine. Waiting jobs may start there at once.

    A node that an engine found, and that was drained or removed, is used again, with the slots that it has.
    """
    held = None if lease is None else seconds_in(lease, "--lease")
    with reach() as client:
        change = client.add_node(name, slots, lease=held, **terms)
    if change.awaited:
        tell(
            change, as_json, "is used again when its engine finds it", "is to be used when its engine finds it already"
        )
    else:
        tell(change, as_json, "is in service", "was in service with these terms already")


@node.command(short_help="Let a node start nothing more.")
@click.argument("name")
@as_json
@asks_server
def drain(reach: Reach, name: str, as_json: bool) -> None:
    """Start nothing more on a node. It leaves when its last running task has ended."""
    with reach() as client:
        change = client.drain_node(name)
    tell(change, as_json, "drains", "drains already")


@node.command(short_help="Drain a node, wait until it has left.")
@click.argument("name")
@click.option("--at-once", is_flag=True, help="End the tasks there; they are redone elsewhere.")
@as_json
@asks_server
def remove(reach: Reach, name: str, at_once: bool, as_json: bool) -> None:
    """Drain a node and wait until it has left. Ctrl-c ends only the waiting."""
    with reach() as client:
        if at_once:
            change = client.remove_node(name)
        else:
            change = client.drain_node(name)
            await_departure(client, name, as_json)
    tell(change, as_json, "has left", "has left")


@node.command(short_help="Give a node more or fewer slots.")
@click.argument("name")
@click.option("--slots", required=True, type=one_or_more, help="The new number of slots.")
@click.option("--at-once", is_flag=True, help="End tasks on removed slots at once; they are redone elsewhere.")
@as_json
@asks_server
def resize(reach: Reach, name: str, slots: int, at_once: bool, as_json: bool) -> None:
    """Give a node more or fewer slots. Slots that are removed finish what they run first."""
    with reach() as client:
        change = client.resize_node(name, slots, at_once=at_once)
    size = counted(slots, "slot")
    tell(change, as_json, f"has {size}", f"had {size} already")


@node.command(short_help="Let a node go off, and stay off.")
@click.argument("name")
@click.option("--by-hand", is_flag=True, help="It is off already: give up what is under way, and run no command.")
@as_json
@asks_server
def off(reach: Reach, name: str, by_hand: bool, as_json: bool) -> None:
    """Switch a node off when nothing runs there; nothing more starts. It stays off until `headway node on`.

    If it could not be switched off before, that is tried again now.
    """
    with reach() as client:
        change = client.switch_node_off(name, by_hand=by_hand)
    tell(change, as_json, "goes off when nothing runs there", f"is to be off already: it is {change.power}")


@node.command(short_help="Let a node come on that is off.")
@click.argument("name")
@click.option("--by-hand", is_flag=True, help="It is on already: give up what is under way, and only start its agent.")
@as_json
@asks_server
def on(reach: Reach, name: str, by_hand: bool, as_json: bool) -> None:
    """Switch a node on. `headway nodes` shows when it has come.

    If it could not be switched on before, that is tried again now.
    """
    with reach() as client:
        change = client.switch_node_on(name, by_hand=by_hand)
    tell(change, as_json, "comes on" if change.power != "on" else "is on", f"is {change.power} already")


def await_departure(client: Client, name: str, as_json: bool) -> None:
    """Wait until a node is no longer in service, and say so first if that takes a while."""
    said = as_json
    while any(known.name == name for known in client.nodes()):
        if not said:
            click.echo(f"Node {name} drains; waiting for what runs there.", err=True)
            said = True
        time.sleep(DRAIN_LOOK_SECONDS)


def tell(change: NodeChange, as_json: bool, became: str, was: str) -> None:
    """Print the effect of a change."""
    if as_json:
        print_json(change)
        return
    click.echo(f"Node {change.node} {became if change.changed else was}.")
    if change.trouble:
        click.echo(f"It could not be switched: {change.trouble}.", err=True)
    if change.redone:
        click.echo(f"Tasks that were ended there and are redone: {change.redone}.")
    if change.unfit:
        jobs = ", ".join(map(str, change.unfit))
        click.echo(f"Jobs that need more than there is now, and wait until it is there again: {jobs}.", err=True)
