"""A server over Dask while everything that can die dies, by seed: each result comes once, whatever ran twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from ...dask_site import Processes
from ...waiting import LIMIT
from ..conftest import Up
from ..dying import survived

pytestmark = pytest.mark.thorough

WORKERS = ("a", "b", "c")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
@pytest.mark.usefixtures("ended_agents")
def test_whatever_dies_each_result_comes_once(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    site = Processes(tmp_path / "dask").scheduler()
    port = int(site.address.rpartition(":")[2])
    for name in WORKERS:
        site.worker(name)
    site.worker("nursed", nanny=True)
    up = Up(tmp_path)
    log = tmp_path / "ran"

    def kill_worker() -> None:
        name = chance.choice(WORKERS)
        site.kill(name)
        time.sleep(chance.random())
        site.worker(name)

    def kill_nanny() -> None:
        """Its worker ends with it, or goes on until another one of its name comes."""
        site.kill("nursed")
        time.sleep(chance.random())
        site.worker("nursed", nanny=True)

    def stop_worker() -> None:
        name = chance.choice(WORKERS)
        site.kill(name, signal.SIGSTOP)
        time.sleep(3 + 2 * chance.random())
        site.kill(name, signal.SIGCONT)

    def kill_agent() -> None:
        until = time.monotonic() + LIMIT
        while not (there := [found for name in WORKERS if (found := agent_of(name)) is not None]):
            assert time.monotonic() < until, "no node has an agent"
            time.sleep(0.05)
        chance.choice(there).kill()

    def kill_server() -> None:
        up.kill()
        time.sleep(chance.random())
        up.start(cluster=False)

    def kill_scheduler() -> None:
        site.kill("scheduler")
        time.sleep(chance.random())
        site.scheduler(port)
        for name in (*WORKERS, "nursed"):  # they end with their scheduler, unless they had not found it yet
            site.end_or_kill(name, 5.0)
            site.worker(name, nanny=name == "nursed")

    def agent_of(name: str) -> psutil.Process | None:
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                ours = "headway.engines.local.agent.guard" in words and f'"name":"{name}"' in words[4]
                if ours and str(tmp_path) in words[4] and (children := process.children()):
                    return children[0]
        return None

    faults: list[Callable[[], None]] = [kill_worker, kill_nanny, stop_worker, kill_agent, kill_server, kill_scheduler]
    chance.shuffle(faults)
    try:
        up.start("--dask", site.address, "--lease", "2s", cluster=False)
        again = survived(up.data, faults, log, 0.1, up.stop)
    finally:
        up.kill()
        site.end()
    # What ran on a node that was given up, or had read ahead there, runs again.
    assert again <= len(faults) * 40
    print(f"seed {seed}: {again} attempts ran again")
