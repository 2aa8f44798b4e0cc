"""The performance model alone, without a loop: what is launched, moved and ended, and when attempts end."""

from __future__ import annotations

import pytest

from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.model.actions import ChangeTier, Launch
from headway.model.events import Event, JobSubmitted, NodeDown, NodeJoined, TaskEnded
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.machines import Machines, RemainingWork
from headway.sim.tiers import FULL, TwoTiers
from headway.sim.world import Stopwatch, World
from headway.testing import job

BACK = Tier.BACKGROUND
HALF = TwoTiers(loss=(0.5, 0.5), single=(1, 1), several=(1, 0, 1, 1))
"""In the foreground a job is half as fast while anything runs behind it; behind it, nothing is lost."""


def jobs(*seconds: int, cpu: float = 0.0) -> Workload:
    return workload_us(
        release=[0] * len(seconds), runtime=[time * SECOND for time in seconds], kind=int(Kind.RIGID), cpu=cpu
    )


def core(*events: Event, slots: int = 2, speed: float = 1.0) -> Scheduler:
    scheduler = Scheduler(registry.find, "fcfs")
    scheduler.handle(NodeJoined(0, NodeSpec("n", slots, speed=speed)))
    for event in events:
        scheduler.handle(event)
    return scheduler


def machines(workload: Workload, **terms: object) -> Machines:
    world = World(tiers=HALF, **terms)  # type: ignore[arg-type]
    return Machines(world, Stopwatch(world, workload), workload)


def state() -> State:
    return core().state


def ended(at: int, number: int, attempt: int = 1, outcome: Outcome = Outcome.SUCCEEDED) -> TaskEnded:
    return TaskEnded(at * SECOND, number, 0, attempt, outcome)


def launched(on: Machines, launch: Launch, at: int) -> int:
    """When an attempt that begins then will end, in whole seconds."""
    running = on.launch(launch, at * SECOND, state())
    assert running is not None
    assert running.end % SECOND == 0
    return running.end // SECOND


def test_an_attempt_takes_its_run_time_on_its_slots() -> None:
    assert launched(machines(jobs(7)), Launch(0, 0, 1, 0b1), 3) == 10
    fast = machines(jobs(8)).launch(Launch(0, 0, 1, 0b11), 0, core(speed=2.0).state)
    assert fast is not None
    assert fast.end == 4 * SECOND


def test_only_the_attempt_that_runs_is_due_and_only_at_its_end() -> None:
    there = machines(jobs(7))
    assert there.is_idle_but_for(())
    launched(there, Launch(0, 0, 2, 0b1), 0)
    assert not there.is_idle_but_for(())
    assert there.is_due(0, 0, 2, 7 * SECOND)
    assert not there.is_due(0, 0, 1, 7 * SECOND)
    assert not there.is_due(0, 0, 2, 8 * SECOND)
    there.end(ended(7, 0, attempt=1))
    assert not there.is_idle_but_for(()), "that was another attempt"
    there.end(ended(7, 0, attempt=2))
    assert there.is_idle_but_for(())
    assert not there.is_due(0, 0, 2, 7 * SECOND)


def test_a_foreground_is_slower_while_something_runs_behind_it() -> None:
    there = machines(jobs(10, 2))
    assert launched(there, Launch(0, 0, 1, 0b1), 0) == 10
    assert not there.shares
    assert there.launch(Launch(1, 0, 1, 0b1, BACK), 4 * SECOND, running(0, 1)) is None, "not known before all has moved"
    assert there.shares
    assert {one.job: one.end for one in there.changed(4 * SECOND)} == {0: 16 * SECOND, 1: 6 * SECOND}
    there.end(ended(6, 1))
    assert {one.job: one.end for one in there.changed(6 * SECOND)} == {0: 11 * SECOND}
    assert there.changed(6 * SECOND) == []
    there.end(ended(11, 0))
    assert there.alone == {0: 10 * SECOND, 1: 2 * SECOND}


def running(*numbers: int) -> State:
    """A state in which these jobs run, each on a slot."""
    return core(*[JobSubmitted(0, job(number, width=1)) for number in numbers], slots=len(numbers)).state


def test_two_attempts_may_swap_their_places() -> None:
    there = machines(jobs(10, 10))
    launched(there, Launch(0, 0, 1, 0b1), 0)
    there.launch(Launch(1, 0, 1, 0b1, BACK), 0, running(0, 1))
    assert {one.job: one.end for one in there.changed(0)} == {0: 20 * SECOND, 1: 10 * SECOND}
    there.change_tiers([ChangeTier(0, 0, 1, BACK), ChangeTier(1, 0, 1, Tier.FOREGROUND)], state())
    assert {one.job: one.end for one in there.changed(4 * SECOND)} == {0: 12 * SECOND, 1: 16 * SECOND}


def test_who_goes_to_the_other_tier_and_back_at_once_stays_where_it_was() -> None:
    there = machines(jobs(10))
    launched(there, Launch(0, 0, 1, 0b1), 0)
    there.change_tiers([ChangeTier(0, 0, 1, BACK), ChangeTier(0, 0, 1, Tier.FOREGROUND)], running(0))
    assert there.changed(4 * SECOND) == []
    assert there.is_due(0, 0, 1, 10 * SECOND)


def test_who_saves_goes_on_with_what_is_left_after_the_cost_of_moving() -> None:
    there = machines(jobs(10), migration_cost=3)
    launched(there, Launch(0, 0, 1, 0b1), 0)
    there.suspend(0, 0)
    assert there.saves(0, 0)
    there.end(ended(4, 0, outcome=Outcome.KILLED))
    assert not there.saves(0, 0)
    assert there.left(4 * SECOND) == {(0, 0): RemainingWork(6 * SECOND * FULL, 10 * SECOND)}
    assert launched(there, Launch(0, 0, 2, 0b10), 5) == 5 + 3 + 6


def test_who_is_killed_begins_again_after_the_cost_of_that() -> None:
    there = machines(jobs(10), kill_cost=3)
    launched(there, Launch(0, 0, 1, 0b1), 0)
    there.suspend(0, 0)
    there.kill(0, 0)
    assert not there.saves(0, 0), "it was to be moved, and is killed instead"
    there.end(ended(4, 0, outcome=Outcome.KILLED))
    assert launched(there, Launch(0, 0, 2, 0b1), 5) == 5 + 3 + 10


def test_what_was_lost_with_a_node_does_not_end() -> None:
    scheduler, there = core(JobSubmitted(0, job(0, width=1))), machines(jobs(10))
    launched(there, Launch(0, 0, 1, 0b1), 0)
    there.lose(scheduler.state)
    assert there.is_due(0, 0, 1, 10 * SECOND), "the core still has it"
    scheduler.handle(NodeDown(2 * SECOND, "n"))
    there.lose(scheduler.state)
    assert there.is_idle_but_for(())


@pytest.mark.parametrize("known", [False, True])
def test_what_runs_in_a_state_is_taken_over(known: bool) -> None:
    scheduler = core(JobSubmitted(0, job(5, width=1)), JobSubmitted(4 * SECOND, job(7, width=1, release=4)))
    world = World(tiers=HALF)
    there = Machines(world, Stopwatch(world, jobs(10, 99, 20), 5), jobs(10, 20), [5, 7])
    left = {(5, 0): RemainingWork(2 * SECOND * FULL, 10 * SECOND, 6 * SECOND)} if known else {}
    found = {one.job: one.end for one in there.take_over(scheduler.state, left)}
    assert found == {5: (6 + 2 if known else 10) * SECOND, 7: 24 * SECOND}
    now = 4 * SECOND
    rest = (
        RemainingWork(2 * SECOND * FULL, 10 * SECOND, 6 * SECOND)
        if known
        else RemainingWork(6 * SECOND * FULL, 6 * SECOND)
    )
    assert there.left(now)[5, 0] == rest
    assert there.is_due(7, 0, 1, 24 * SECOND)


def test_what_is_left_of_a_task_that_waits_is_taken_over_too() -> None:
    there = machines(jobs(10), migration_cost=0)
    waiting = core(NodeDown(0, "n"), JobSubmitted(0, job(0, width=1))).state
    assert there.take_over(waiting, {(0, 0): RemainingWork(3 * SECOND * FULL, 10 * SECOND)}) == []
    assert launched(there, Launch(0, 0, 1, 0b1), 5) == 8
