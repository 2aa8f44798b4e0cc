"""Predictions, advice and forecasts go by the numbers of commands, where users say nothing of their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from headway import wire
from headway.foresight.follower import Follower
from headway.foresight.programs import programs
from headway.history.features import COMMAND, INPUTS
from headway.live import advising, intake
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.instant import SECOND
from headway.model.job import FEATURES_MAX
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

from .test_forecasts import COMMAND as FORECASTER
from .test_forecasts import ForecastProcess, OtherProcesses

STEPS = [(place * 7) % 20 * 10 + 10 for place in range(20)]
"""10 to 200 in a mixed order; a step takes a second."""


def solve(steps: int, **terms: Any) -> wire.NewJob:
    """A job without estimate whose command has numbers that matter, and others that do not."""
    return new_job(name="solve", argv=("solve", "--steps", str(steps), f"--seed={steps % 7}", "4", "wing.cfg"), **terms)


class Served:
    def __init__(self, driver: Driver, engine: FakeEngine, clock: ManualClock) -> None:
        self.driver, self.engine, self.clock = driver, engine, clock

    async def submit(self, job: wire.NewJob) -> int:
        return (await self.driver.submit("ann", submission(job))).jobs[0]

    async def run(self, steps: int) -> None:
        job = await self.submit(solve(steps))
        self.clock.advance(steps)
        self.engine.end(job)
        while job in self.driver.core.state.jobs:
            await asyncio.sleep(0)


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    engine, clock, process = FakeEngine(), ManualClock(5), ForecastProcess((*FORECASTER, str(folder)))
    with closing(Journal(folder)) as journal:
        processes = OtherProcesses(forecast=process, advise=process.advise)
        driver = Driver(journal, engine, clock, find, DriverSettings(policy="easy", **settings), processes=processes)
        await driver.start((node("a", slots=1),))
        try:
            yield Served(driver, engine, clock)
        finally:
            await driver.stop()
            process.stop()


def test_advice_and_forecasts_go_by_what_runs_with_like_numbers_took(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as live:
            for steps in STEPS:
                await live.run(steps)
            for steps, least, most in ((35, 10, 70), (185, 150, 205)):
                told = await advising.on_new(live.driver, wire.AdviceWanted(solve(steps), sure=0.5), "ann")
                assert told.due is not None
                assert least <= told.due - live.clock.now() / SECOND <= most
                job = await live.submit(solve(steps))
                with closing(Follower(tmp_path, find)) as follower:
                    follower.catch_up(live.driver.recorded)
                    state = follower.state(live.clock.now())
                    (one,) = follower.with_chances(state, follower.expected(state)).jobs
                assert one.chance is not None
                assert one.chance.end is not None
                assert one.chance.end.median is not None
                assert least <= (one.chance.end.median - live.clock.now()) / SECOND <= most
                live.engine.end(job)
                while job in live.driver.core.state.jobs:
                    await asyncio.sleep(0)

    asyncio.run(scenario())


def test_so_do_predictions_of_the_server_and_after_a_restart(tmp_path: Path) -> None:
    async def predicted(live: Served) -> list[float]:
        found = []
        for steps in (35, 185):
            job = await live.submit(solve(steps))
            found.append(live.driver.core.state.jobs[job].estimate / SECOND)
            await live.driver.cancel([job])
        return found

    async def scenario() -> None:
        async with served(tmp_path, estimates="predicted") as live:
            for steps in STEPS:
                await live.run(steps)
            short, long = await predicted(live)
            assert short <= 35 < 100 <= long, "they are such that four of five run longer"
        async with served(tmp_path) as again:
            assert await predicted(again) == [short, long]

    asyncio.run(scenario())


def spec_of(job: wire.NewJob) -> dict[str, float]:
    return dict(intake.spec_of(job, 1, "job", 0, "ann").features)


def test_they_have_names_of_their_own_and_are_told_once_in_a_profile(tmp_path: Path) -> None:
    of_solve = {"steps": 9.0, "seed": 2.0, "word 4": 4.0}
    assert spec_of(solve(9)) == {f"{COMMAND}{name}": value for name, value in of_solve.items()}
    assert spec_of(solve(9, features={"steps": 1.0}))["steps"] == 1.0

    async def scenario() -> None:
        async with served(tmp_path) as live:
            await live.run(9)

    asyncio.run(scenario())
    ((run,),) = (one.runs for one in programs(tmp_path))
    of_terms = {"tasks", "width", "hour of the week", "on speed=1"}
    assert run.features.keys() == {*of_solve, *of_terms}


def test_a_retry_has_the_numbers_of_what_it_runs() -> None:
    commands = tuple(wire.Command(("solve", "--mesh", mesh)) for mesh in ("3", "900", "3"))
    before = intake.spec_of(wire.NewJob(wire.Commands(commands), tasks=3), 1, "job", 0, "ann")
    assert dict(before.features) == {f"{COMMAND}mesh": 3.0}
    work = wire.Commands(commands[1:2])
    assert spec_of(wire.NewJob.of(before, work, tasks=1, retry_of=1)) == {f"{COMMAND}mesh": 900.0}


def test_only_numbers_that_tasks_have_in_common_are_of_the_job() -> None:
    commands = tuple(wire.Command(("solve", "--mesh", "3", f"--seed={seed}")) for seed in range(3))
    assert spec_of(wire.NewJob(wire.Commands(commands), tasks=3)) == {f"{COMMAND}mesh": 3.0}
    plan = tuple(wire.PlannedTask(1.0) for _ in commands)
    assert spec_of(wire.NewJob(wire.Commands(commands), kind="workflow", tasks=3, plan=plan)) == {}


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "1e400", "1e19", "9" * 200, "1e", "0x3", ""])
def test_what_is_no_number_that_counts_anything_is_none(word: str) -> None:
    assert spec_of(new_job(argv=("solve", "--mesh", word, f"of={word}"))) == {}


def test_a_job_is_accepted_whatever_its_command_is_like() -> None:
    many = {str(number): 1.0 for number in range(FEATURES_MAX)}
    assert spec_of(solve(9, features=many)) == many, "there is no room for more"
    assert len(spec_of(new_job(argv=("solve", *map(str, range(5000)))))) == 8
    assert spec_of(new_job(argv=("solve", f"--{'x' * 1000}=1", "--n=2"))) == {f"{COMMAND}n": 2.0}


def test_advice_knows_the_size_of_uploads_that_are_here(tmp_path: Path) -> None:
    there, elsewhere = "a" * 64, "b" * 64
    with closing(Journal(tmp_path)) as journal:
        journal.retained.keep_upload(there, 0, 7)
        inputs = {name: f"headway:{name}/in" for name in (there, elsewhere)}
        job = wire.NewJob(wire.Commands((wire.Command(("cat", "in"), inputs={**inputs, "far": "https://x/y"}),)))
        spec = job.spec(1, 0, "ann")
        assert dict(intake.at_once(intake.with_uploads(spec, job, journal)).features) == {INPUTS: 7.0}
        assert intake.at_once(intake.with_uploads(spec, new_job(), journal)) == spec
