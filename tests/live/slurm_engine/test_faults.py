"""A server over Slurm while its daemons and the server die, by seed: each result comes once, whatever ran twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event

import pytest

from ...slurm import NODES, Cluster
from ...waiting import until
from ..conftest import Up
from ..dying import survived

pytestmark = pytest.mark.slow


@contextmanager
def administered(slurm: Cluster) -> Iterator[None]:
    """An administrator resumes the nodes that Slurm drains while the context lasts.

    A controller that was killed has forgotten the last seconds. It starts jobs again that had begun then, or gives
    their numbers to others. A node on which the first copy has not ended yet refuses the second one ("already
    running"), and Slurm drains that node ("Duplicate jobid") until somebody resumes it.
    """
    over = Event()

    def resume() -> None:
        while not over.wait(1.0):
            for name in NODES:
                shown = slurm.tried("scontrol", "show", "node", name, "--oneliner")
                if shown is not None and "Reason=Duplicate jobid" in shown.stdout:
                    slurm.tried("scontrol", "update", f"NodeName={name}", "State=RESUME")

    with ThreadPoolExecutor(1) as pool:
        resuming = pool.submit(resume)
        try:
            yield
        finally:
            over.set()
        resuming.result()


@pytest.mark.parametrize("seed", range(1, 7))
def test_whatever_dies_each_result_comes_once(slurm: Cluster, tmp_path: Path, seed: int) -> None:
    chance, up, log = Random(seed), Up(tmp_path), tmp_path / "ran"

    def kill_node() -> None:
        """Its jobs go on, until Slurm says that the node is down."""
        name = chance.choice(NODES)
        slurm.kill_node(name)
        time.sleep(5 * chance.random())
        slurm.start_node(name)

    def stop_node() -> None:
        """For longer than Slurm waits."""
        name = chance.choice(NODES)
        slurm.pause(name)
        time.sleep(3 + 3 * chance.random())
        slurm.resume(name)

    def kill_controller() -> None:
        """It forgets the jobs of the last seconds."""
        slurm.kill_controller()
        time.sleep(chance.random())
        slurm.start_controller()

    def stop_controller() -> None:
        slurm.stop_controller()
        time.sleep(2 * chance.random())
        slurm.start_controller()

    def kill_server() -> None:
        up.kill()
        time.sleep(chance.random())
        up.start(cluster=False)

    faults: list[Callable[[], None]] = [kill_node, stop_node, kill_controller, stop_controller, kill_server]
    chance.shuffle(faults)
    try:
        up.start("--slurm", "main", cluster=False)
        with administered(slurm):
            again = survived(up.data, faults, log, 0.3, up.stop)
    finally:
        up.kill()
        slurm.mend()
    until(lambda: not slurm.jobs())
    assert again <= len(faults) * len(NODES) * 4
    print(f"seed {seed}: {again} attempts ran again")
