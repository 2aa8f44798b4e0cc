"""Allocations of Slurm whose nodes join as nodes of Headway: each runs a worker of Dask (docs/how-to/dask.md)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway.engines.base import NodeFound, NodeLost, Noticed
from headway.engines.trial import Trial

from ...dask_site import Processes
from ...slurm import NODES, Cluster
from ...waiting import LIMIT
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
