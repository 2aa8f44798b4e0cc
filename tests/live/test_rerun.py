"""What a server was given, run again: the same policy repeats the schedule, another one has the same jobs."""

from __future__ import annotations

from pathlib import Path

from headway.foresight.rerun import past, rerun
from headway.live.store.history import history
from headway.policies.registry import find

from .test_decisions import TWO, work
from .test_driver import rig, run


def test_the_same_policy_repeats_what_is_recorded_and_another_runs_the_same_jobs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="edf") as live:
            await work(live)
            while live.running:
                await live.advance(1)
                await live.end(*live.running[0])

    run(scenario)
    recorded = history(tmp_path, find)
    told = past(tmp_path, find)
    same = rerun(tmp_path, find, "edf", told)
    assert same.repeated
    assert same.done.start.tolist() == recorded.start.tolist()
    assert same.done.end.tolist() == recorded.end.tolist()
    other = rerun(tmp_path, find, "fcfs", told)
    assert not other.repeated
    assert sorted(other.done.label.tolist()) == sorted(told.workload.label.tolist())
    assert (other.done.end > other.done.start).all()
