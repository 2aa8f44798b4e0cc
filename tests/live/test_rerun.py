"""What a server was given, run again: the same policy repeats the schedule, another one has the same jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.rerun import rerun as rerun_command
from headway.foresight.rerun import of_those_run, past, rerun
from headway.live.store.history import history
from headway.metrics import summarise
from headway.model.instant import SECOND
from headway.policies.registry import find
from headway.testing import new_job, node
from headway.wire import JobChange

from .test_decisions import TWO, work
from .test_driver import rig, run


def record_work(folder: Path) -> None:
    """Let a server under edf do its work until all of it has ended."""

    async def scenario() -> None:
        async with rig(folder, TWO, policy="edf") as live:
            await work(live)
            while live.running:
                await live.advance(1)
                await live.end(*live.running[0])

    run(scenario)


def test_the_same_policy_repeats_what_is_recorded_and_another_runs_the_same_jobs(tmp_path: Path) -> None:
    record_work(tmp_path)
    recorded = history(tmp_path, find)
    told = past(tmp_path, find)
    same = rerun(tmp_path, find, "edf", told)
    assert same.repeated
    assert same.done.start.tolist() == recorded.start.tolist()
    assert same.done.end.tolist() == recorded.end.tolist()
    assert summarise(of_those_run(told)) | {"decisions": 0} == summarise(recorded) | {"decisions": 0}
    other = rerun(tmp_path, find, "fcfs", told)
    assert not other.repeated
    assert sorted(other.done.label.tolist()) == sorted(told.workload.label.tolist())
    assert (other.done.end > other.done.start).all()


def test_a_policy_that_another_one_stood_in_for_meanwhile_repeats_nothing(tmp_path: Path) -> None:
    """On one slot `edf` lets a later job overtake; before it, and after it, `fcfs` plans."""

    async def scenario() -> None:
        async with rig(tmp_path, (node("a", slots=1),), policy="fcfs") as live:
            await live.submit(new_job(), new_job(estimate=9.0, due=99.0), new_job(estimate=9.0, due=9.0))
            await live.driver.choose("edf")
            await live.advance(1)
            await live.end(1)
            assert live.running == [(3, 0, 1)]
            await live.driver.choose("fcfs")
            for job in (3, 2):
                await live.advance(1)
                await live.end(job)

    run(scenario)
    told = past(tmp_path, find)
    assert told.policy == "fcfs"
    again = rerun(tmp_path, find, "fcfs", told)
    assert not again.repeated
    assert again.done.label[again.done.start.argsort()].tolist() == [1, 2, 3]


def test_a_policy_that_is_chosen_again_repeats_what_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="fcfs") as live:
            await live.driver.choose("edf")
            await work(live)
            await live.driver.choose("edf")
            while live.running:
                await live.advance(1)
                await live.end(*live.running[0])

    run(scenario)
    assert rerun(tmp_path, find, "edf", past(tmp_path, find)).repeated


def test_what_is_compared_with_others_has_only_the_jobs_that_they_run(tmp_path: Path) -> None:
    """On two slots, a job of 10 s has ended; another one has run since 5 s, and 35 s more have passed."""

    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="edf") as live:
            await live.submit(new_job(estimate=10.0, due=live.clock.now() / SECOND + 20))
            await live.advance(5)
            await live.submit(new_job(estimate=99.0, due=live.clock.now() / SECOND + 1))
            await live.advance(5)
            await live.end(*live.running[0])
            await live.advance(35)

    run(scenario)
    told = past(tmp_path, find)
    seen = summarise(of_those_run(told))
    assert (seen["jobs"], seen["deadline_miss_rate"]) == (1, 0)
    assert (seen["makespan"], seen["utilisation"]) == (10, 0.5)
    assert summarise(told.done)["jobs"] == 2


def test_what_is_asked_of_a_job_that_has_ended_is_not_said_to_be_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="edf") as live:
            await live.submit(new_job(estimate=10.0), new_job(estimate=10.0))
            await live.driver.change(1, JobChange(priority=3))
            await live.advance(10)
            await live.end(*live.running[0])
            await live.end(*live.running[0])
            await live.driver.change(1, JobChange(priority=4))
            await live.driver.cancel([1])

    run(scenario)
    assert past(tmp_path, find).left_out == ("Once: changes of jobs, whose last terms count from the beginning.",)


def test_of_what_the_command_tells_for_programs_the_record_is_as_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_work(tmp_path)
    rerun_command(["--json", "--policy", "edf", "--policy", "fcfs", str(tmp_path)], standalone_mode=False)
    told = {one["policy"]: one["as_recorded"] for one in json.loads(capsys.readouterr().out)}
    assert told == {"recorded": True, "edf": True, "fcfs": False}
