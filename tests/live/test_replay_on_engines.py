"""Live is simulated on the engines of other machines too: a workload on a real Dask and a real Slurm of eight slots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.errors import HeadwayError
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.workload import Workload, workload_us
from headway.reproduce.live import REPLAYED, SLOTS, replayed, twice
from headway.reproduce.samples import open_log

from ..dask_site import Processes, certificates
from ..slurm import Cluster

pytestmark = pytest.mark.thorough


@pytest.fixture
def dask_file(tmp_path: Path) -> Iterator[Path]:
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    site = Processes(tmp_path / "dask", certificates(tmp_path / "tls")).one(a=2, b=2, c=2, d=2)
    file = tmp_path / "dask.toml"
    file.write_text(f'[[site]]\nname = "farm"\nengine = "dask"\naddress = "{site.address}"\ntls = "{site.tls}"\n')
    yield file
    site.end()


@pytest.fixture
def slurm_file(slurm: Cluster, tmp_path: Path) -> Path:
    file = tmp_path / "slurm.toml"
    file.write_text('[[site]]\nname = "hpc"\nengine = "slurm"\npartition = "main"\nslots = 2\n')
    return file


@pytest.fixture(params=["dask", "slurm"])
def cluster(request: pytest.FixtureRequest) -> Path:
    """A cluster file of a site whose engine finds four nodes of two slots."""
    file: Path = request.getfixturevalue(f"{request.param}_file")
    return file


def bags() -> Workload:
    """Four jobs that come while others hold all slots; under `edf` the last to come is the first to go on."""
    return workload_us(
        release=[0, SECOND // 10, SECOND // 5, SECOND // 2],
        runtime=[SECOND, SECOND // 2, SECOND // 2, SECOND // 5],
        tasks=[8, 8, 4, 4],
        kind=[Kind.BAG] * 4,
        due=[60 * SECOND, 50 * SECOND, 40 * SECOND, 30 * SECOND],
    )


def test_a_few_jobs_take_as_long_as_in_the_simulation_with_such_launches(cluster: Path) -> None:
    found = twice(bags(), "edf", cluster)
    assert found.live["jobs_succeeded"] == 4
    assert (
        0 < found.late < 20 * SECOND
    )  # on a busy machine it takes longer to launch, and the simulation knows by how much
    for measure in ("response_mean", "makespan"):
        *_, apart = found.differences(measure)
        assert abs(apart) < 0.05, (measure, found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_sample_of_lin14_takes_as_long_as_in_the_simulation(cluster: Path) -> None:
    """Mean responses within 5 %, or within 2 % of a simulation that knows how long each launch took."""
    for found in replayed(open_log(None), REPLAYED, cluster=cluster):
        away, _, held = found.differences("response_mean")
        assert abs(away) <= 0.05 or abs(held) <= 0.02, found


def test_a_cluster_of_another_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "nine.toml"
    file.write_text(f'[[node]]\nname = "n"\nslots = {SLOTS + 1}\n')
    with pytest.raises(HeadwayError, match="the cluster has 9 slots; the experiment needs 8"):
        twice(bags(), "edf", file)
