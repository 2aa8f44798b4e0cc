"""`headway up` with nodes that a real Dask and a real Slurm have, beside one of this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.engines.local.driver.host import put_down

from ..dask_site import Processes, certificates
from ..slurm import CPUS, NODES, Cluster
from ..waiting import paths_below, until
from .conftest import Up, headway

pytestmark = pytest.mark.thorough

DASK = """\
[[site]]
name = "cellar"
engine = "dask"
address = "{address}"
tls = "tls"
folder = "{folder}"

[[node]]
name = "here"
slots = 2
"""

SLURM = """\
[[site]]
name = "hpc"
engine = "slurm"
partition = "main"
folder = "shared"
poll = 0.5

[[node]]
name = "here"
slots = 2
"""


EVERY = """\
[[site]]
name = "desk"

[[site]]
name = "cellar"
engine = "dask"
address = "{address}"
tls = "tls"
folder = "{folder}"

[[site]]
name = "hpc"
engine = "slurm"
partition = "main"
folder = "shared"
poll = 0.5
startup = 5

[[node]]
name = "here"
site = "desk"
"""


def told(up: Up, *words: str) -> Any:
    done = headway(words[0], "--data", up.data, "--json", *words[1:])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def nodes(up: Up) -> dict[str, tuple[str, str, bool, int]]:
    return {one["name"]: (one["site"], one["engine"], one["up"], len(one["slots"])) for one in told(up, "nodes")}


def gone(up: Up) -> dict[str, str]:
    """The sites whose engine is gone, and why."""
    return {one["name"]: one["gone"] for one in told(up, "status")["server"]["sites"] if one.get("gone")}


def ran_on(up: Up, jobs: int) -> list[str]:
    """The nodes on which so many jobs ran, as each says in its output."""
    numbers = [told(up, "submit", "--", "sh", "-c", "echo $HEADWAY_NODE")["job"] for _ in range(jobs)]
    found = []
    for number in numbers:
        done = headway("result", "--data", up.data, number, "--wait")
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.strip())
    return sorted(found)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler and a worker `m1` of two threads, over TLS; nothing is left at the end."""
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    pytest.importorskip("cryptography", reason="it is not installed (pip install headway[tls])")
    site = Processes(tmp_path / "dask", certificates(tmp_path / "tls"))
    yield site.one(m1=2)
    site.end()
    for node in paths_below(tmp_path / "there", "nodes/*"):
        put_down(node)


def test_workers_of_dask_and_this_machine_are_two_sites_also_after_a_crash(tmp_path: Path, dask: Processes) -> None:
    (tmp_path / "there").mkdir()
    up = Up(tmp_path, DASK.format(address=dask.address, folder=tmp_path / "there"))
    up.start("--policy", "sites:top=rr,each=easy")
    both = {"m1": ("cellar", "dask", True, 2), "here": ("local", "local", True, 2)}
    try:
        until(lambda: nodes(up) == both)
        assert ran_on(up, 4) == ["here", "here", "m1", "m1"]
        wide = headway("node", "resize", "--data", up.data, "m1", "--slots", "3")
        assert "slots of node 'm1' is 3; allowed: 1 to 2: its worker has 2 threads" in wide.stderr
        up.kill()
        up.start(cluster=False)
        until(lambda: nodes(up) == both)
        assert ran_on(up, 2) == ["here", "m1"]
        up.stop()
        up.start("--dask", dask.address, "--dask-tls", str(dask.tls), cluster=False)
        until(lambda: nodes(up) == {"m1": ("dask", "dask", True, 2)})
        assert gone(up) == {}
        dask.kill("all")
        until(lambda: nodes(up) == {"m1": ("dask", "dask", False, 2)})
        until(lambda: "no Dask scheduler answers" in gone(up).get("dask", ""))
    finally:
        up.stop()


STARTED = """\
[[site]]
name = "desk"
engine = "dask"
start = "local"
options = {{ threads_per_worker = 2 }}
workers = 2
folder = "{folder}"
"""


def test_a_cluster_that_the_server_starts_outlives_it_only_if_it_was_killed(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    (tmp_path / "there").mkdir()
    up = Up(tmp_path, STARTED.format(folder=tmp_path / "there"))
    both = {f"desk-{number}": ("desk", "dask", True, 2) for number in range(2)}

    def keepers() -> list[int]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if "headway.engines.dask.keeper" in process.cmdline() and str(tmp_path) in process.cmdline()[-1]:
                    found.append(process.pid)
        return found

    up.start("--policy", "easy")
    try:
        until(lambda: nodes(up) == both)
        assert set(ran_on(up, 2)) <= both.keys()
        before = keepers()
        assert len(before) == 1
        up.kill()
        up.start(cluster=False)
        until(lambda: nodes(up) == both)
        assert keepers() == before
        assert set(ran_on(up, 2)) <= both.keys()
    finally:
        up.stop()
    until(lambda: keepers() == [])


def test_nodes_of_slurm_and_this_machine_are_two_sites_also_after_a_crash(tmp_path: Path, slurm: Cluster) -> None:
    up = Up(tmp_path, SLURM)
    up.start("--policy", "sites:top=rr,each=easy")
    every = dict.fromkeys(NODES, ("hpc", "slurm", True, CPUS)) | {"here": ("local", "local", True, 2)}
    try:
        until(lambda: nodes(up) == every)
        first, *_, last = ran_on(up, 2)
        assert {"here"} < {first, last} <= {"here", *NODES}
        up.kill()
        up.start(cluster=False)
        until(lambda: nodes(up) == every)
        up.stop()
        up.start("--slurm", "main", "--slurm-folder", str(tmp_path / "shared"), cluster=False)
        until(lambda: nodes(up) == dict.fromkeys(NODES, ("slurm", "slurm", True, CPUS)))
        slurm.stop_controller()
        until(lambda: "Slurm does not answer" in gone(up).get("slurm", ""))
        slurm.start_controller()
        until(lambda: gone(up) == {})
    finally:
        up.stop()


def test_tasks_of_one_bag_run_at_three_sites_in_order_of_preference(
    tmp_path: Path, dask: Processes, slurm: Cluster
) -> None:
    """By their estimates two tasks end in time on the slot here and four with Dask, so two go to Slurm.

    The tasks really are short, and nothing is placed anew: so it does not matter how fast this machine is.
    """
    (tmp_path / "there").mkdir()
    up = Up(tmp_path, EVERY.format(address=dask.address, folder=tmp_path / "there"))
    up.start("--policy", "sites:top=prefer,adaptive=false")
    every = {"m1": ("cellar", "dask", True, 2), "here": ("desk", "local", True, 1)}
    every |= dict.fromkeys(NODES, ("hpc", "slurm", True, CPUS))
    try:
        until(lambda: nodes(up) == every)
        words = ["--tasks", "8", "--estimate", "10m", "--due", "25m", "--", "sh", "-c", "sleep 3; echo $HEADWAY_NODE"]
        job = told(up, "submit", *words)["job"]
        done = headway("result", "--data", up.data, job, "--wait")
        assert done.returncode == 0, done.stderr
        ran = sorted("hpc" if node in NODES else node for node in done.stdout.split())
        assert ran == ["here"] * 2 + ["hpc"] * 2 + ["m1"] * 4
        long = told(up, "submit", "--tasks", "8", "--estimate", "10m", "--due", "25m", "--", "sleep", "1000")["job"]
        why = told(up, "explain", str(long))["why_pool"]
        assert "1 task runs at site desk; " in why
        assert "1 task waits at site desk, which comes first; 2 tasks wait at site cellar" in why
        assert headway("cancel", "--data", up.data, long).returncode == 0
        wrong = headway("policy", "--data", up.data, "sites:top=prefer,order=cellar/moon")
        assert wrong.returncode
        assert "moon" in wrong.stderr
        assert "desk, cellar, hpc" in wrong.stderr
    finally:
        up.stop()


def test_each_gang_runs_within_one_engine_also_when_dask_slurmd_and_the_server_are_killed(
    tmp_path: Path, dask: Processes, slurm: Cluster
) -> None:
    """The Dask cluster does not come back: what ran there runs elsewhere. Slurm's nodes hold 16, which is the most."""
    (tmp_path / "there").mkdir()
    up = Up(tmp_path, EVERY.format(address=dask.address, folder=tmp_path / "there"))
    up.start("--policy", "tempo")
    sites = {"m1": "cellar", "here": "desk"} | dict.fromkeys(NODES, "hpc")
    try:
        until(lambda: {name: is_up for name, (_, _, is_up, _) in nodes(up).items()} == dict.fromkeys(sites, True))
        wide = headway("submit", "--data", up.data, "--width", "17", "--", "true")
        assert "needs 17 slots at once; the largest site has 16" in wide.stderr
        command = ("--retries", "0", "--", "sh", "-c", "echo $HEADWAY_NODE; sleep 1")
        gangs = {told(up, "submit", "--width", str(width), *command)["job"]: width for width in (2, 3, 16, 2)}
        bag = told(up, "submit", "--tasks", "6", *command)["job"]
        dask.kill("all")
        slurm.kill_node(NODES[0])
        up.kill()
        slurm.start_node(NODES[0])
        up.start(cluster=False)
        assert "no Dask scheduler answers" in gone(up)["cellar"]
        gangs[told(up, "submit", "--width", "16", *command)["job"]] = 16
        for job, width in gangs.items():
            ran = headway("result", "--data", up.data, job, "--wait").stdout.split()
            assert len(ran) == width
            assert len({sites[node] for node in ran}) == 1
        assert len(headway("result", "--data", up.data, bag, "--wait").stdout.split()) == 6
    finally:
        up.stop()
