"""A server over Slurm while everything dies or stops that can, by seed: each result comes once, whatever ran twice."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event

import psutil
import pytest

from headway.reproduce.kim12.dask import QUIET

from ...dask_site import Processes, certificates
from ...slurm import CPUS, NODES, Cluster
from ...waiting import until
from ..conftest import Up
from ..dying import AHEAD, SHORT, Faults, drawn, survived

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

THREADS = 2
"""Of the worker in each allocation."""

LEASE = ("--lease", "2s")


@contextmanager
def administered(slurm: Cluster, allocated: Callable[[str], list[str]] | None = None) -> Iterator[None]:
    """An administrator resumes the nodes that Slurm drains while the context lasts, and a user renews allocations.

    A controller that was killed has forgotten the last seconds. It starts jobs again that had begun then, or gives
    their numbers to others. A node on which the first copy has not ended yet refuses the second one ("already
    running"), and Slurm drains that node ("Duplicate jobid") until somebody resumes it.

    Args:
        allocated: the words of sbatch for an allocation of a node, which has the node's name; None: there are none.
    """
    over = Event()

    def resume() -> None:
        for name in NODES:
            shown = slurm.tried("scontrol", "show", "node", name, "--oneliner")
            if shown is not None and "Reason=Duplicate jobid" in shown.stdout:
                slurm.tried("scontrol", "update", f"NodeName={name}", "State=RESUME")

    def renew() -> None:
        jobs = slurm.tried("squeue", "--noheader", "--format=%j")
        for name in NODES:
            if allocated is not None and jobs is not None and name not in jobs.stdout.split():
                slurm.tried("sbatch", *allocated(name))

    def watch() -> None:
        while not over.wait(1.0):
            resume()
            renew()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield
        finally:
            over.set()
        watching.result()


class SlurmFaults:
    """What can befall the daemons of Slurm."""

    def __init__(self, chance: Random, slurm: Cluster) -> None:
        self._chance = chance
        self._slurm = slurm
        self.nodes = (self.kill_node, self.stop_node, self.stop_steps)
        self.controller = (self.kill_controller, self.end_controller, self.stop_controller, self.stop_munge)

    def kill_node(self) -> None:
        """Its jobs go on, until Slurm says that the node is down."""
        name = self._chance.choice(NODES)
        self._slurm.kill_node(name)
        self._wait(name)
        self._slurm.start_node(name)

    def stop_node(self) -> None:
        """For as long as Slurm waits, or a bit less."""
        name = self._chance.choice(NODES)
        self._slurm.pause(name)
        self._wait(name)
        self._slurm.resume(name)

    def stop_steps(self) -> None:
        """Of as many jobs as a node has: Slurm does not learn that they have ended, and cannot end them."""
        running = until(self._slurm.steps)
        stopped = self._chance.sample(running, min(CPUS, len(running)))
        for step in stopped:
            with suppress(psutil.NoSuchProcess):
                step.suspend()
        time.sleep(3 + 6 * self._chance.random())
        for step in stopped:
            with suppress(psutil.NoSuchProcess):
                step.resume()

    def kill_controller(self) -> None:
        """It forgets the jobs of the last seconds."""
        self._slurm.kill_controller()
        time.sleep(self._chance.random())
        self._slurm.start_controller()

    def end_controller(self) -> None:
        """In order: it forgets nothing."""
        self._slurm.stop_controller()
        time.sleep(2 * self._chance.random())
        self._slurm.start_controller()

    def stop_controller(self) -> None:
        """For longer than Slurm's commands wait: it does afterwards what they had asked for."""
        self._slurm.pause("slurmctld")
        time.sleep(3 + 3 * self._chance.random())
        self._slurm.resume("slurmctld")

    def stop_munge(self) -> None:
        """Nobody can prove who it is: commands and daemons of Slurm wait, and give up; nodes may be given up."""
        self._slurm.pause("munged")
        time.sleep(3 + 6 * self._chance.random())
        self._slurm.resume("munged")

    def _wait(self, name: str) -> None:
        """In half of all cases until Slurm has given the node up."""
        if self._chance.random() < 0.5:
            until(lambda: "down" in self._slurm.state(name))
        else:
            time.sleep(3 * self._chance.random())


@pytest.mark.parametrize(
    ("seed", "whole"), [(1, False), *(pytest.param(seed, True, marks=pytest.mark.slow) for seed in range(2, 5))]
)
def test_whatever_dies_or_stops_each_job_of_slurm_counts_once(
    slurm: Cluster, tmp_path: Path, seed: int, whole: bool
) -> None:
    chance, up = Random(seed), Up(tmp_path)
    ours, its = Faults(chance, up), SlurmFaults(chance, slurm)
    faults = drawn(chance, [its.nodes, its.controller, ours.server], whole=whole)
    try:
        up.start("--slurm", "main", cluster=False)
        with administered(slurm):
            outcome = survived(up.data, faults, tmp_path / "ran", 0.3, up.stop, tasks=200 if whole else 30)
    finally:
        up.kill()
        slurm.mend()
    until(lambda: not slurm.jobs())
    print(f"seed {seed}: {outcome}")
    assert outcome.tasks == (9 * 200 if whole else 3 * 30)
    lost = len(its.nodes) + len(its.controller) * len(NODES) if whole else 1 + len(NODES)
    assert sum(outcome.again.values()) <= lost * CPUS, "what ran on a node, or was forgotten by a controller"


@pytest.mark.parametrize(
    ("seed", "whole"), [(7, False), *(pytest.param(seed, True, marks=pytest.mark.slow) for seed in range(2, 7))]
)
@pytest.mark.usefixtures("ended_agents")
def test_whatever_dies_or_stops_each_result_of_an_allocation_comes_once(
    slurm: Cluster, tmp_path: Path, seed: int, whole: bool
) -> None:
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    chance, up = Random(seed), Up(tmp_path)
    ours, its = Faults(chance, up, LEASE, NODES, tmp_path), SlurmFaults(chance, slurm)
    tls = certificates(tmp_path / "tls")
    site = Processes(tmp_path / "dask", tls).scheduler()

    def allocated(name: str) -> list[str]:
        terms = {**QUIET, "TMPDIR": str(tmp_path / "there")}
        words = ["env", *(f"{key}={value}" for key, value in terms.items()), sys.executable]
        words += site.worker_words(name, THREADS)
        place = ["--job-name", name, "-w", name, "-c", str(THREADS), "--requeue", "-o", str(tmp_path / f"{name}.out")]
        return [*place, "--open-mode=append", "--wrap", f"exec {shlex.join(words)}"]

    def kill_worker() -> None:
        """Its allocation ends with it, and another one comes."""
        name = ours.node()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "dask" in words and name in words and str(site.folder) in words:
                process.kill()

    def cancel_allocation() -> None:
        slurm.run("scancel", f"--name={ours.node()}")

    lossy = [*ours.agents, kill_worker, cancel_allocation]
    faults = drawn(chance, [its.nodes, its.controller, ours.server, lossy], whole=whole)
    try:
        for name in NODES:
            slurm.run("sbatch", *allocated(name))
        up.start("--dask", site.address, "--dask-tls", str(tls), *LEASE, cluster=False)
        with administered(slurm, allocated):
            outcome = survived(up.data, faults, tmp_path / "ran", SHORT, up.stop)
    finally:
        up.kill()
        slurm.mend()
        site.end()
    print(f"seed {seed}: {outcome}")
    assert outcome.tasks == (13 if whole else 4) * 200
    assert sum(outcome.again.values()) <= len(faults) * THREADS * (1 + AHEAD), "what ran or was ahead on lost nodes"
