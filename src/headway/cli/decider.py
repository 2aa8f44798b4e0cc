"""A decider: any installed policy behind HTTP."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from headway.cli.paths import GivenPath
from headway.cli.up import log_to_stderr


@click.command()
@click.option("--policy", help="The policy for questions that name none; default: that of a new server.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port to listen on; default: any free port.")
@click.option(
    "--token-file", type=GivenPath(dir_okay=False), help="Demand the token in this file; created if there is none."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON that says where the decider is.")
def decider(policy: str | None, host: str, port: int, token_file: str | None, as_json: bool) -> None:
    """Make plans for other systems until you stop it (ctrl-c). Each snapshot is answered with a plan; nothing is kept.

    Any system can ask, see docs/reference/decider.md. `headway up --decider URL` does, and so does `headway simulate
    --decider URL`.
    """
    from headway.advice.language import PolicyOffer
    from headway.live.driver import FIRST_POLICY
    from headway.policies.registry import find, installed
    from headway.private import token_of
    from headway.web.decider import DeciderRoutes, run

    log_to_stderr()
    by_default = policy or FIRST_POLICY
    find(by_default)
    token = "" if token_file is None else token_of(Path(token_file))
    offers = tuple(
        PolicyOffer(offer.name, offer.summary, {known.name: known.plain for known in offer.parameters})
        for offer in installed()
    )

    def say(url: str) -> None:
        if as_json:
            click.echo(json.dumps({"url": url, "policy": by_default, "pid": os.getpid()}))
            return
        if not token and host not in ("127.0.0.1", "::1", "localhost"):
            click.echo("Anyone who can reach it may ask for plans; --token-file FILE demands a token.", err=True)
        click.echo(f"A decider answers at {url}, by default with the policy {by_default}; ctrl-c ends it.")

    run(DeciderRoutes(find, offers, by_default, token=token, token_file=token_file or ""), host, port, say)
