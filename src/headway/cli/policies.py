"""The command that lists the policies."""

from __future__ import annotations

import json

import click

from headway.cli.show import as_json, print_table


@click.command()
@as_json
def policies(as_json: bool) -> None:
    """List the available policies, with their parameters and defaults; a policy is named NAME[:KEY=VALUE,...]."""
    from headway.policies.registry import installed

    offers = installed()
    if as_json:
        told = [
            {
                "policy": offer.name,
                "summary": offer.summary,
                "parameters": {known.name: known.plain for known in offer.parameters},
            }
            for offer in offers
        ]
        # Not `print_json`: a parameter may have the name of a time in a report, but another unit.
        click.echo(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))
        return
    rows = [
        (offer.name, offer.summary, ", ".join(f"{p.name}={p.default}" for p in offer.parameters)) for offer in offers
    ]
    print_table(("policy", "what it does", "parameters"), rows, fold=("what it does", "parameters"))
