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
from headway.model.events import Incident, NodeClosed, NodeDown, NodeJoined, NodeUp, TaskEnded
from headway.model.outcome import Outcome
from headway.model.slots import numbers
from headway.policies.registry import find
from headway.testing import new_job, submission

from ...slurm import NODES, Cluster, mark
from ...waiting import becomes
from .conftest import SETTINGS

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]


def kept_out(journal: Journal) -> list[str]:
    """The nodes that an incident says are kept out."""
    found = [one for _, one in journal.events() if isinstance(one, Incident)]
    return [one.subject for one in found if one.kind == "node_kept_out"]


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


async def test_a_node_that_is_removed_stays_out_until_it_is_let_in_also_after_a_restart(
    slurm: Cluster, root: Path, tmp_path: Path
) -> None:
    name = sorted(NODES)[0]
    async with driving(tmp_path / "data", root) as (driver, _):
        await becomes(lambda: len(driver.core.state.nodes) == len(NODES))
        await driver.nodes.remove(name)
    async with driving(tmp_path / "data", root) as (driver, journal):
        await becomes(lambda: kept_out(journal) == [name])
        assert name not in driver.core.state.nodes
        assert await driver._engine.let_in(name)  # type: ignore[attr-defined]
        await becomes(lambda: name in driver.core.state.nodes)


async def test_a_node_that_drains_keeps_nothing_waiting_and_goes_on_with_what_it_runs(
    slurm: Cluster, root: Path, tmp_path: Path
) -> None:
    begun, door = tmp_path / "begun", tmp_path / "door"

    def of_nodes(journal: Journal) -> list[tuple[type, str]]:
        return [(type(one), one.name) for _, one in journal.events() if isinstance(one, NodeClosed | NodeDown | NodeUp)]

    async with driving(tmp_path / "data", root) as (driver, journal):
        await becomes(lambda: len(driver.core.state.nodes) == len(NODES))
        long = ("sh", "-c", f"touch {begun}; until test -e {door}; do sleep 0.1; done")
        await driver.submit("me", submission(new_job(argv=long)))
        await becomes(begun.exists)
        (attempt,) = driver.core.state.attempts()
        (name,) = {driver.core.state.slot_nodes[slot].spec.name for slot in numbers(attempt.slots)}
        mark(name, "drain")
        try:
            await becomes(lambda: of_nodes(journal) == [(NodeClosed, name)])
            await driver.submit("me", submission(new_job(tasks=12, argv=("true",))))
            await becomes(lambda: 2 not in driver.open)
            assert 1 in driver.open, "what has begun goes on"
            door.touch()
            await becomes(lambda: 1 not in driver.open)
            await becomes(lambda: of_nodes(journal)[1:] == [(NodeDown, name)])
        finally:
            mark(name, "resume")
        await becomes(lambda: of_nodes(journal)[2:] == [(NodeUp, name)])
        ended = [one for _, one in journal.events() if isinstance(one, TaskEnded)]
        assert {one.outcome for one in ended if one.job == 1} == {Outcome.SUCCEEDED}
