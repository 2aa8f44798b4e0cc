"""A driver with nodes of Slurm: jobs go there by themselves, and the nodes are known after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from headway.engines.slurm.engine import SlurmEngine
from headway.live.clock import SystemClock
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import NodeJoined, TaskEnded
from headway.model.outcome import Outcome
from headway.policies.registry import find
from headway.testing import new_job, submission

from ...slurm import NODES, Cluster
from ...waiting import becomes
from .conftest import SETTINGS

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]


@asynccontextmanager
async def driving(folder: Path, root: Path) -> AsyncIterator[tuple[Driver, Journal]]:
    """A driver with an engine of the partition `main`, and no other nodes."""
    with closing(Journal(folder)) as journal:
        driver = Driver(journal, SlurmEngine(root, SETTINGS), SystemClock(), find, DriverSettings(policy="fcfs"))
        await driver.start(())
        try:
            yield driver, journal
            driver.core.check()
        finally:
            await driver.stop()


async def test_jobs_run_on_the_nodes_that_are_found_and_these_are_known_later(
    slurm: Cluster, root: Path, tmp_path: Path
) -> None:
    def ends(journal: Journal) -> list[Outcome]:
        return [event.outcome for _, event in journal.events() if isinstance(event, TaskEnded)]

    async with driving(tmp_path / "data", root) as (driver, journal):
        await becomes(lambda: len(driver.core.state.nodes) == len(NODES))
        said = ("sh", "-c", "echo $HEADWAY_NODE $SLURM_JOB_ID")
        await driver.submit("me", submission(new_job(tasks=10, argv=said), new_job(argv=said, kind="rigid", width=6)))
        await becomes(lambda: len(ends(journal)) == 11)
        assert set(ends(journal)) == {Outcome.SUCCEEDED}
    async with driving(tmp_path / "data", root) as (driver, journal):
        assert sorted(driver.core.state.nodes) == sorted(NODES)
        assert all(view.up for view in driver.core.state.nodes.values())
        await driver.submit("me", submission(new_job(argv=("false",))))
        await becomes(lambda: ends(journal)[11:] == [Outcome.EXITED])
        assert len([event for _, event in journal.events() if isinstance(event, NodeJoined)]) == len(NODES)
