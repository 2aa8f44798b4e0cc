"""A real server of two sites: this machine, and a farm of another package whose engine finds its nodes by itself."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.store.journal import Journal
from headway.model.events import NodeLeft

from ..waiting import until
from .conftest import Up, headway

FARMING = """\
import asyncio
from pathlib import Path

from msgspec import structs

from headway.engines import base
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.registry import EngineKind, Option
from headway.errors import EngineError
from headway.model.node import Capabilities, NodeSpec


class Farm(LocalEngine):
    # Its nodes are those that a file names, while there is one.

    def __init__(self, place, options):
        super().__init__(place.folder)
        self.list = Path(options["list"])
        self.begun = False

    def around(self):
        try:
            return self.list.read_text().split()
        except FileNotFoundError:
            raise EngineError("the farm does not answer") from None

    async def start(self, nodes, report, files):
        around, nodes = self.around(), list(nodes)
        if self.begun:
            await self.stop()
        self.begun = True
        found = await super().start([one for one in nodes if one.name in around], report, files)
        named = {one.name for one in nodes}
        for name in around:
            if name not in named:
                spec = NodeSpec(name, slots=2, capabilities=Capabilities(tiers=False, moves=False, shares_files=False))
                await self.join(spec)
                asyncio.get_running_loop().call_soon(report, base.NodeFound(spec))
        return structs.replace(found, absent=frozenset(named.difference(around)))

    def launch(self, assignment):
        self.around()
        super().launch(assignment)


FARM = EngineKind("farm", "A farm.", Farm, (Option("list", "a file", required=True, is_folder=True),))
"""

CLUSTER = """\
[[site]]
name = "field"
engine = "farm"
list = "farm.txt"

[[site]]
name = "cellar"

[[node]]
name = "n"
slots = 2
site = "cellar"
"""


class Sites(Up):
    """The server; its folder has the list of the farm's nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, CLUSTER)
        self.folder = folder
        self.list = folder / "farm.txt"
        self.list.write_text("f g")

    def ask(self, command: str, *words: object) -> str:
        done = headway(command, "--data", self.data, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def told(self, *words: object) -> Any:
        return json.loads(self.ask(*words, "--json"))

    def nodes(self) -> dict[str, tuple[str, str, bool]]:
        return {one["name"]: (one["site"], one["engine"], one["up"]) for one in self.told("nodes")}

    def runs(self) -> dict[str, int]:
        """How many attempts run on each node."""
        return {one["name"]: len(one["attempts"]) for one in self.told("nodes")}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Sites]:
    (tmp_path / "farming.py").write_text(FARMING)
    (tmp_path / "farming-1.dist-info").mkdir()
    (tmp_path / "farming-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: farming\nVersion: 1\n")
    (tmp_path / "farming-1.dist-info" / "entry_points.txt").write_text("[headway.engines]\nfarm = farming:FARM\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        server = Sites(tmp_path)
        yield server
        server.stop()


ALL = {"f": ("field", "farm", True), "g": ("field", "farm", True), "n": ("cellar", "local", True)}


def test_jobs_run_at_both_sites_and_their_output_comes_from_both(up: Sites) -> None:
    up.start("--policy", "sites:top=rr,each=easy")
    until(lambda: up.nodes() == ALL)
    table = up.ask("nodes").splitlines()
    assert table[0].split()[:3] == ["node", "site", "engine"]
    status = up.ask("status")
    assert "field (farm), cellar (local)" in status
    assert "gone" not in status
    write = "echo $HEADWAY_NODE; head -c 20000 /dev/zero | tr '\\0' x"
    jobs = [up.ask("submit", "--", "sh", "-c", write).strip() for _ in range(4)]
    where = Counter[str]()
    for job in jobs:
        node, rest = up.ask("result", job, "--wait").split("\n", 1)
        assert rest.strip() == "x" * 20_000
        where[{"n": "cellar"}.get(node, "field")] += 1
    assert where == {"cellar": 2, "field": 2}, "the top level deals them in turn"
    metrics = {one["node"] for one in until(lambda: up.told("metrics", "--metric", "node.processes"))}
    assert metrics == {"n"}, "nothing is measured on this machine of nodes that are elsewhere"


def test_what_happens_at_one_site_leaves_the_other_alone_and_lasts_over_restarts(up: Sites) -> None:
    up.start()
    until(lambda: up.nodes() == ALL)
    gate = up.folder / "gate"
    gate.touch()
    job = up.ask(
        *("submit", "--tasks", 6, "--", "sh", "-c", f"while [ -e {gate} ]; do sleep 0.01; done; echo {{i}}")
    ).strip()
    until(lambda: up.runs() == {"n": 2, "f": 2, "g": 2})

    up.agent("f").send_signal(signal.SIGKILL)
    until(lambda: any(one["kind"] == "node_lost" and one["subject"] == "f" for one in up.told("incidents")))
    until(lambda: up.runs() == {"n": 2, "f": 2, "g": 2})
    attempts = {run["attempt"] for one in up.told("nodes") if one["name"] in "ng" for run in one["attempts"]}
    assert attempts == {1}, "what runs elsewhere goes on"

    up.kill()
    up.start(cluster=False)
    until(lambda: up.nodes() == ALL)
    until(lambda: up.runs() == {"n": 2, "f": 2, "g": 2})
    attempts = {run["attempt"] for one in up.told("nodes") if one["name"] in "ng" for run in one["attempts"]}
    assert attempts == {1}, "after a crash too"

    up.list.unlink()
    extra = up.ask("submit", "--tasks", 6, "--", "sleep", 1).strip()  # more than the other site has slots for
    gate.unlink()
    assert up.ask("result", job, "--wait").split() == [str(number) for number in range(6)]
    up.ask("wait", extra)
    until(lambda: up.nodes() == {**ALL, "f": ("field", "farm", False), "g": ("field", "farm", False)})
    assert "the engine of field: the farm does not answer" in " ".join(up.ask("status").split())
    up.list.write_text("f g")
    until(lambda: up.nodes() == ALL)
    assert "the farm does not answer" not in up.ask("status")

    up.stop()
    up.start("--slots", "1", cluster=False)
    assert up.nodes() == {"cluster": ("local", "local", True)}
    assert "sites" not in up.told("status")["server"] or up.told("status")["server"]["sites"] == []
    up.stop()
    journal = Journal(up.data)
    left = [event.name for _, event in journal.events() if isinstance(event, NodeLeft)]
    journal.close()
    assert sorted(left) == ["f", "g", "n"]


def test_a_server_of_found_nodes_alone_starts_without_one_of_its_own(up: Sites) -> None:
    (up.folder / "cluster.toml").write_text(CLUSTER.partition('[[site]]\nname = "cellar"')[0])
    up.start()
    until(lambda: up.nodes() == {name: ALL[name] for name in "fg"})
    assert up.ask("submit", "--wait", "--", "sh", "-c", "echo hello").strip() == "hello"
    refused: subprocess.CompletedProcess[str] = headway("node", "add", "mine", "--data", up.data)
    assert refused.returncode == 2
    assert "This server has no engine of its own machine" in refused.stderr
    service = headway("serve", "s", "--command", "cat", "--data", up.data)
    assert service.returncode == 2
    assert "this server has no services" in service.stderr
    up.kill()
    up.start(cluster=False)
    until(lambda: up.nodes() == {name: ALL[name] for name in "fg"})
