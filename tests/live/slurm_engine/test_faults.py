"""A server over Slurm while its daemons and the server die, by seed: each result comes once, whatever ran twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ...slurm import NODES, Cluster
from ...waiting import until
from ..conftest import Up
from ..dying import survived

pytestmark = pytest.mark.slow


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
        again = survived(up.data, faults, log, 0.3, up.stop)
    finally:
        up.kill()
        slurm.mend()
    until(lambda: not slurm.jobs())
    assert again <= len(faults) * len(NODES) * 4
    print(f"seed {seed}: {again} attempts ran again")
