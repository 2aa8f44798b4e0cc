"""How long it takes until a dead node and a hung one are noticed: kill -9 and kill -STOP on a real node's process.

python bench/notice.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import live
import measure
from headway.client.client import Client
from headway.engines.local.driver.host import agent_of

LEASES = (1.0, 3.0)
LIMIT_SECONDS = 60.0


def notice_seconds(client: Client, server: int, number: signal.Signals) -> float:
    """Seconds from a signal to the node's process until its loss is in the journal. Waits until the node is back."""
    known, began = len(client.incidents(last=1000)), time.time()
    os.kill(agent_of(server, client.nodes()[0].name), number)
    while len(told := client.incidents(last=1000)) == known:
        if time.time() > began + LIMIT_SECONDS:
            raise SystemExit(f"{number.name} was not noticed within {LIMIT_SECONDS:g} s")
        time.sleep(0.02)
    while not all(node.up for node in client.nodes()):
        time.sleep(0.02)
    return told[-1].at - began


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    rows = []
    for lease in LEASES:
        words = ("--lease", lease, "--check-every", 0)
        for number, word in ((signal.SIGKILL, "dead"), (signal.SIGSTOP, "hung")):
            # One server for each: a server whose node keeps dying starts it again after longer and longer pauses.
            with tempfile.TemporaryDirectory() as folder, live.server(Path(folder), words=words) as (client, server):
                took = [notice_seconds(client, server, number) for _ in range(rounds)]
            figures = (min(took), statistics.median(took), max(took))
            rows.append((f"{word} ({number.name})", f"{lease:g}", *(f"{value:.3f}" for value in figures)))
    measure.section(
        "Live: nodes that die or hang",
        f"""From the signal to a node's process until its loss is durable in the journal, {rounds} times each. `headway
        up --lease` says how long a node may be silent. It is asked three times per lease, so a hung node is noticed
        after 1 to 1.34 leases. Wanted: 0.1 s, and 1.34 leases.""",
        measure.table(("node", "lease, s", "least, s", "median, s", "most, s"), rows),
    )


if __name__ == "__main__":
    main()
