"""A server over Dask when the link to a worker is cut: nobody is told, and the worker goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import Client

from ...apart import Apart
from ...dask_site import Processes, certificates
from ...waiting import until
from ..conftest import Up
from ..dying import survived

pytestmark = pytest.mark.thorough

LEASE = 2.0


@pytest.fixture
def apart() -> Iterator[Apart]:
    with Apart() as apart:
        yield apart


@pytest.mark.usefixtures("ended_agents")
def test_a_worker_that_was_cut_off_for_longer_than_its_lease_reports_nothing_twice(
    tmp_path: Path, apart: Apart
) -> None:
    tls = certificates(tmp_path / "tls", host=apart.near)
    site = Processes(tmp_path / "dask", tls, apart.near).scheduler()
    site.worker("near")
    site.worker("far", apart=apart)
    up = Up(tmp_path)

    def is_up(node: str) -> bool:
        with Client(data=up.data) as client:
            return any(one.name == node and one.up for one in client.nodes())

    def cut() -> None:
        """Its slots are free when its lease has ended; what ran there runs near, and goes on there meanwhile."""
        apart.cut()
        began = time.monotonic()
        until(lambda: not is_up("far"))
        assert time.monotonic() - began > LEASE / 2, "only silence can tell"
        time.sleep(1.0)
        apart.mend()
        until(lambda: is_up("far"))

    try:
        up.start("--dask", site.address, "--dask-tls", str(tls), "--lease", f"{LEASE:g}s", cluster=False)
        until(lambda: is_up("near") and is_up("far"))
        again = survived(up.data, [cut, cut], tmp_path / "ran", 0.2, up.stop)
    finally:
        up.kill()
        site.end()
    print(f"{again} attempts ran again")
    assert 0 < again <= 2 * 40, "what ran there, or was read ahead there, when the link was cut"
