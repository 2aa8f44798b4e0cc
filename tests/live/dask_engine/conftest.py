"""What tests of the engine for Dask share: a real cluster, each worker a process, and nothing left at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")

from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.settings import DaskSettings
from headway.engines.local.driver.host import mark_of, put_down
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.processes import marked

from ...dask_site import Processes
from ...waiting import paths_below

LEASE = 3.0
"""Seconds. No process waits that long for a processor, even on a busy machine."""


@pytest.fixture(params=["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param == "uvloop"})


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Path]:
    """The folder of agents on the workers' machine. When the test is over, no process that belongs to it is left."""
    folder = tmp_path / "there"
    folder.mkdir()
    yield folder
    nodes = [node for node in paths_below(folder, "nodes/*") if node.is_dir()]
    left = [pid for node in nodes for pid in marked(mark_of(node))]
    for node in nodes:
        put_down(node)
    assert left == []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Processes]:
    """Where scheduler and workers are started."""
    site = Processes(tmp_path / "dask")
    yield site
    site.end()


@pytest.fixture
def make(tmp_path: Path, there: Path, site: Processes) -> Callable[..., DaskEngine]:
    """An engine for this cluster; with the same name, the one of a server that was started again."""

    def make(name: str = "engine", **agents: float) -> DaskEngine:
        terms = LocalSettings(**{"lease": LEASE, **agents})  # type: ignore[arg-type]
        settings = DaskSettings(site.address, site.tls, folder=str(there), period=0.1, agents=terms)
        return DaskEngine(tmp_path / name, settings)

    return make
