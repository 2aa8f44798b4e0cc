"""A server over Dask when the link to a worker is cut: nobody is told, and the worker goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...apart import Apart
from ...dask_site import Processes, certificates
from ...waiting import until
from ..conftest import Up
from ..dying import AHEAD, SHORT, is_up, survived

pytestmark = pytest.mark.thorough

LEASE = 2.0

THREADS = 2


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
    site.worker("near", THREADS)
    site.worker("far", THREADS, apart=apart)
    up = Up(tmp_path)

    def cut() -> None:
        """Its slots are free when its lease has ended; what ran there runs near, and goes on there meanwhile."""
        apart.cut()
        began = time.monotonic()
        until(lambda: not is_up(up.data, "far"))
        assert time.monotonic() - began > LEASE / 2, "only silence can tell"
        time.sleep(1.0)
        apart.mend()
        until(lambda: is_up(up.data, "far"))

    try:
        up.start("--dask", site.address, "--dask-tls", str(tls), "--lease", f"{LEASE:g}s", cluster=False)
        until(lambda: is_up(up.data, "near") and is_up(up.data, "far"))
        outcome = survived(up.data, [cut, cut], tmp_path / "ran", SHORT, up.stop)
    finally:
        up.kill()
        site.end()
    print(outcome)
    assert outcome.tasks == 2 * 200
    assert 0 < sum(outcome.again.values()) <= 2 * THREADS * (1 + AHEAD), "what ran there or was ahead there, twice"
