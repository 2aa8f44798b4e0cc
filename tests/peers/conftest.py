"""A real server, as `headway up` starts it, for programs of others."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ..waiting import LIMIT


@contextlib.contextmanager
def serving(
    folder: Path, slots: int, python: str = sys.executable, *, sites: Sequence[str] = (), policy: str = ""
) -> Iterator[Path]:
    """A server with one node, or one at each site. Yields its data directory."""
    nodes = [
        f'[[node]]\nname = "{site or "n"}"\nslots = {slots}\nsite = "{site or "local"}"\n' for site in sites or ("",)
    ]
    (folder / "cluster.toml").write_text("\n".join(nodes))
    command = [python, "-m", "headway", "up", "--json", "--data", str(folder / "data")]
    command += ["--policy", policy] if policy else []
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--cluster", str(folder / "cluster.toml")], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert server.stdout is not None
        assert server.stdout.readline(), (folder / "log").read_text()
        yield folder / "data"
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a server with two slots, for all tests of a file."""
    with serving(tmp_path_factory.mktemp("up"), 2) as data:
        yield data
