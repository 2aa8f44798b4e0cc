"""Allocations of Slurm whose nodes join as nodes of Headway: each runs a worker of Dask (docs/how-to/dask.md)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway.engines.base import NodeFound, NodeLost, Noticed
from headway.engines.trial import Trial

from ...dask_site import Processes
from ...slurm import NODES, Cluster
from ...waiting import LIMIT, becomes
from .conftest import add

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]


async def test_a_worker_in_an_allocation_is_a_node_until_the_allocation_ends(slurm: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    from headway.engines.dask.engine import DaskEngine
    from headway.engines.dask.settings import DaskSettings

    site = Processes(tmp_path / "dask").scheduler()
    jobs = {}
    try:
        for name in NODES[:2]:
            worker = f"{sys.executable} -m dask worker {site.address} --name {name} --nthreads 2 --no-nanny"
            more = f"--no-dashboard --memory-limit 0 --local-directory {tmp_path}"
            words = ("-w", name, "-c", "2", "-o", str(tmp_path / f"{name}.out"), "--wrap", f"exec {worker} {more}")
            jobs[name] = slurm.run("sbatch", "--parsable", *words).strip()
        settings = DaskSettings(site.address, folder=str(tmp_path), period=0.2)
        async with Trial(DaskEngine(tmp_path / "engine", settings), LIMIT) as trial:
            await trial.engine.start((), trial._take, trial._files)
            found = {(await trial.told(NodeFound)).node.name for _ in jobs}
            assert found == set(jobs)
            keys = [
                trial.call(add, number, 1, node=NODES[number % 2], slots=(number // 2 % 2,)) for number in range(40)
            ]
            assert [await trial.value(key) for key in keys] == list(range(1, 41))
            slurm.run("scancel", jobs.pop(NODES[0]))
            assert (await trial.told(NodeLost)).node == NODES[0]
            assert await trial.value(trial.call(add, 1, 1, node=NODES[1])) == 2
            trial.disregard(Noticed)  # its worker may have lived for a moment longer than its agent
    finally:
        for job in jobs.values():
            slurm.run("scancel", job)
        site.end()


async def test_dask_jobqueue_asks_slurm_for_allocations_and_gives_them_back(slurm: Cluster, tmp_path: Path) -> None:
    for module in ("distributed", "dask_jobqueue"):
        pytest.importorskip(module, reason="it is not installed (pip install headway[dask] dask-jobqueue)")
    from headway.engines.dask.engine import DaskEngine
    from headway.engines.dask.settings import DaskSettings

    options = {
        "queue": "main",
        "cores": 2,
        "processes": 1,
        "memory": "1 GB",
        "walltime": "00:10:00",
        "worker_extra_args": ["--no-dashboard", "--memory-limit", "0"],
        "local_directory": str(tmp_path),
        "log_directory": str(tmp_path),
        "protocol": "tls://",
        "security": True,
        "shared_temp_directory": str(tmp_path),
        "scheduler_options": {"dashboard": False, "host": "127.0.0.1"},
    }
    settings = DaskSettings(
        start="dask_jobqueue.SLURMCluster", options=options, workers=2, folder=str(tmp_path), period=0.2
    )
    async with Trial(DaskEngine(tmp_path / "engine", settings), LIMIT) as trial:
        await trial.engine.start((), trial._take, trial._files)
        found = [(await trial.told(NodeFound)).node for _ in range(2)]
        assert [node.slots for node in found] == [2, 2]
        assert trial.engine._address.startswith("tls://")
        assert len(slurm.jobs("--states=running")) == 2
        keys = [
            trial.call(add, number, 1, node=found[number % 2].name, slots=(number // 2 % 2,)) for number in range(40)
        ]
        assert [await trial.value(key) for key in keys] == list(range(1, 41))
    await becomes(lambda: slurm.jobs() == [])
