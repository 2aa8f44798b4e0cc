"""A server for one experiment: `headway up` in a folder, for as long as it is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from headway.errors import HeadwayError
from headway.model.instant import to_seconds
from headway.model.node import NodeSpec

LOG_LAST: Final = 4000
"""Characters of a server's log that are shown when it fails."""

END_SECONDS: Final = 30
"""A server is killed if it has not ended this long after SIGINT."""


@contextmanager
def own_server(
    folder: Path, cluster: Sequence[NodeSpec] | Path, policy: str, environment: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Run a server on a free port, with its data in `folder`. Yields what it reports of itself.

    Args:
        folder: its data directory.
        cluster: its nodes, or the cluster file that says which they are.
        policy: by its text.
        environment: what it has in its environment besides that of this process.

    Raises:
        HeadwayError: it does not start, or ends by itself; the hint is the end of its log.
    """
    file, log = cluster if isinstance(cluster, Path) else folder / "cluster.toml", folder / "log"
    if not isinstance(cluster, Path):
        file.write_text("".join(map(table, cluster)), "utf-8")
    command = [sys.executable, "-m", "headway", "up", "--data", str(folder), "--cluster", str(file)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--policy", policy, "--json"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=None if environment is None else os.environ | dict(environment),
        )
        assert process.stdout is not None
        with process.stdout:
            said = ""
            try:
                said = process.stdout.readline()
                if not said:
                    raise HeadwayError("the server did not start", _tail(log))
                yield json.loads(said)
            except Exception as error:
                if said and (status := process.poll()) is not None:
                    raise HeadwayError(f"the server ended by itself, with status {status}", _tail(log)) from error
                raise
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-LOG_LAST:]


def table(node: NodeSpec) -> str:
    """A node in the form of a cluster file."""
    terms = {name: getattr(node, name) for name in ("name", "slots", "speed", "cores", "site", "kind")}
    terms["lease"] = None if node.lease is None else to_seconds(node.lease)
    terms["cannot"] = list(node.capabilities.lacking) or None
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in terms.items() if value not in (None, ""))
    return f"[[node]]\n{''.join(lines)}"
