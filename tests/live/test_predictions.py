"""Run times are predicted live as in the simulator, and a server that starts again goes on from what it knew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from headway.errors import InvalidInput
from headway.foresight.rerun import past
from headway.history.predictors import predictor
from headway.live import reports
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import JobSubmitted
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.workload import workload_us
from headway.policies.registry import find
from headway.sim.kernel import Simulation
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

POLICY = "easy:backfill=shortest"
LASTED = (30, 10, 20)
"""Seconds that the first jobs run, one after the other, on a slot each."""


class Served:
    """A driver with four slots on an engine that runs what the test says, in a time that the test moves."""

    def __init__(self, driver: Driver, engine: FakeEngine, clock: ManualClock) -> None:
        self.driver, self.engine, self.clock = driver, engine, clock

    async def submit(self, width: int = 1, estimate: float = 100.0) -> int:
        done = await self.driver.submit(
            "ann", submission(new_job(name="flow", kind="rigid", width=width, estimate=estimate))
        )
        return done.jobs[0]

    async def run(self, seconds: float) -> None:
        """A job comes, runs for so long, and ends."""
        job = await self.submit()
        self.clock.advance(seconds)
        self.engine.end(job)
        while job in self.driver.core.state.jobs:
            await asyncio.sleep(0)

    def estimate(self, job: int) -> float:
        return self.driver.core.state.jobs[job].estimate / SECOND


@asynccontextmanager
async def served(folder: Path, estimates: str | None = "predicted") -> AsyncIterator[Served]:
    engine, clock = FakeEngine(), ManualClock(5)
    with closing(Journal(folder)) as journal:
        settings = DriverSettings(policy=POLICY, estimates=estimates)
        driver = Driver(journal, engine, clock, find, settings)
        await driver.start((node("a", slots=4),))
        try:
            yield Served(driver, engine, clock)
        finally:
            await driver.stop()


@pytest.mark.parametrize(("estimates", "expected"), [("predicted", 10.0), ("last-two", 15.0), ("user", 100.0)])
def test_it_is_as_in_the_simulator(tmp_path: Path, estimates: str, expected: float) -> None:
    """Three jobs one after the other, then a fourth: the same prediction from the same past."""
    release = [0, 30, 40, 60]
    workload = workload_us(
        release=[at * SECOND for at in release],
        runtime=[took * SECOND for took in (*LASTED, 5)],
        estimate=[100 * SECOND] * 4,
        width=[1] * 4,
        kind=[Kind.RIGID] * 4,
        user=["ann"] * 4,
    )
    events: list[object] = []
    Simulation(
        workload,
        [NodeSpec("a", 4)],
        find,
        POLICY,
        predictor=predictor(estimates),
        journal=events,  # type: ignore[arg-type]
    ).run()
    *_, last = (event for event in events if isinstance(event, JobSubmitted))
    assert (last.predicted or last.job.estimate) == expected * SECOND

    async def scenario() -> None:
        async with served(tmp_path, estimates) as live:
            for took in LASTED:
                await live.run(took)
            assert live.estimate(await live.submit()) == expected

    asyncio.run(scenario())


def test_a_job_that_runs_longer_than_predicted_is_not_killed_and_counts_as_its_user_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as live:
            for took in LASTED:
                await live.run(took)
            job = await live.submit()
            live.clock.advance(50)
            other = await live.submit()
            assert live.estimate(job) == 100
            assert live.estimate(other) == 10
            assert {key[0] for key in live.engine.running} == {job, other}
            told = reports.job_detail(live.driver, other, await reports.outlook_of(live.driver, other))
            assert told.job.estimate == 100, "what its user said"
            assert told.predicted == 10
            before = reports.job_detail(live.driver, job, await reports.outlook_of(live.driver, job))
            assert before.predicted is None, "it has run for longer"
            (attempt,) = told.attempts
            assert attempt.expected_end == live.clock.now() / SECOND + 100

    asyncio.run(scenario())


def test_after_a_restart_it_knows_as_much_as_before(tmp_path: Path) -> None:
    """What was predicted is in the journal; what the past tells is read from it."""

    async def scenario() -> None:
        async with served(tmp_path) as live:
            for took in LASTED:
                await live.run(took)
            running, waiting = await live.submit(), await live.submit(4)
        async with served(tmp_path) as live:
            assert [live.estimate(job) for job in (running, waiting)] == [10, 10]
            assert live.estimate(await live.submit()) == 10
        async with served(tmp_path, "user") as live:
            assert [live.estimate(job) for job in (running, waiting)] == [10, 10], "what was decided stays"
            assert live.estimate(await live.submit()) == 100

    asyncio.run(scenario())


def test_the_choice_is_that_of_the_last_run_unless_another_is_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path, None) as live:
            for took in LASTED:
                await live.run(took)
            assert live.estimate(await live.submit()) == 100, "at first what users say"
        for chosen, expected in (
            ("last-two", 15),
            (None, 15),
            ("predicted", 10),
            (None, 10),
            ("user", 100),
            (None, 100),
        ):
            async with served(tmp_path, chosen) as live:
                assert live.estimate(await live.submit()) == expected, chosen

    asyncio.run(scenario())


def test_who_runs_the_past_again_is_told_that_run_times_were_predicted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as live:
            for took in (*LASTED, 5):
                await live.run(took)

    asyncio.run(scenario())
    assert (
        "Predicted run times, of 3 jobs: other policies go by what their users said." in past(tmp_path, find).left_out
    )


def test_there_must_be_such_a_predictor() -> None:
    with pytest.raises(InvalidInput, match="estimates is 'best'"):
        DriverSettings(estimates="best")
