"""A server over Dask while everything dies or stops that can, by seed: each result comes once, whatever ran twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil
import pytest

from ...dask_site import Processes, certificates
from ..conftest import Up
from ..dying import AHEAD, SHORT, Faults, survived

pytestmark = pytest.mark.thorough

WORKERS = ("a", "b", "c")

THREADS = 2

LEASE = ("--lease", "2s")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
@pytest.mark.usefixtures("ended_agents")
def test_whatever_dies_or_stops_each_result_comes_once(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    tls = certificates(tmp_path / "tls")
    site = Processes(tmp_path / "dask", tls).scheduler()
    port = int(site.address.rpartition(":")[2])
    for name in WORKERS:
        site.worker(name, THREADS)
    site.worker("nursed", THREADS, nanny=True)
    up = Up(tmp_path)
    ours = Faults(chance, up, LEASE, WORKERS, tmp_path)

    def kill_worker() -> None:
        name = chance.choice(WORKERS)
        site.kill(name)
        time.sleep(chance.random())
        site.worker(name, THREADS)

    def kill_nanny() -> None:
        """Its worker ends with it, or goes on until another one of its name comes."""
        site.kill("nursed")
        time.sleep(chance.random())
        site.worker("nursed", THREADS, nanny=True)

    def stop_nanny() -> None:
        """Its worker goes on."""
        stop("nursed")

    def stop_nanny_without_worker() -> None:
        """Its worker ends meanwhile, and is started again when the nanny goes on."""
        stop("nursed", lambda: [child.kill() for child in psutil.Process(site.running["nursed"].pid).children()])

    def stop_worker() -> None:
        """For longer than the lease of its node."""
        stop(chance.choice(WORKERS))

    def kill_scheduler() -> None:
        site.kill("scheduler")
        time.sleep(chance.random())
        site.scheduler(port)
        for name in (*WORKERS, "nursed"):  # they end with their scheduler, unless they had not found it yet
            site.end_or_kill(name, 5.0)
            site.worker(name, THREADS, nanny=name == "nursed")

    def stop_scheduler() -> None:
        """For less long than Dask keeps a worker of which it hears nothing."""
        stop("scheduler")

    def stop(name: str, meanwhile: Callable[[], object] = bool) -> None:
        site.kill(name, signal.SIGSTOP)
        meanwhile()
        time.sleep(3 + 2 * chance.random())
        site.kill(name, signal.SIGCONT)

    one = [kill_worker, kill_nanny, stop_nanny_without_worker, stop_worker, ours.kill_agent, ours.stop_agent]
    none = [ours.kill_server, ours.stop_server, stop_nanny, stop_scheduler]
    faults: list[Callable[[], None]] = [*one, *none, kill_scheduler]
    chance.shuffle(faults)
    try:
        up.start("--dask", site.address, "--dask-tls", str(tls), *LEASE, cluster=False)
        outcome = survived(up.data, faults, tmp_path / "ran", SHORT, up.stop)
    finally:
        up.kill()
        site.end()
    print(f"seed {seed}: {outcome}")
    assert outcome.tasks == 200 * 11
    lost = len(one) + len(WORKERS) + 1
    assert sum(outcome.again.values()) <= lost * THREADS * (1 + AHEAD), "what ran or was ahead on nodes that were lost"
