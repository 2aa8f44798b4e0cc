"""What a forecast says besides starts and ends: what jobs wait for, what was assumed, how far it goes."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import (
    DeciderChosen,
    Event,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    TaskEnded,
    TaskSaved,
    Woke,
)
from headway.model.forecast import Awaited, Expected, Forecast, is_at_risk, without_basis
from headway.model.instant import SECOND
from headway.model.job import ESTIMATE_DEFAULT, PenaltyShape, Service, TaskSpec
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.slots import numbers, of_numbers
from headway.model.snapshot import Snapshot
from headway.policies import registry
from headway.sim.forecast import WIDE, _Leavers, forecast
from headway.testing import job, node

ONE_SLOT = NodeJoined(0, node("a"))


def core_of(policy: str, *events: Event, estimate_default: int = 600) -> Scheduler:
    core = Scheduler(registry.find, policy, estimate_default=estimate_default * SECOND)
    for event in events:
        core.handle(event)
    core.handle(Woke(core.state.now))
    return core


def made(core: Scheduler, **terms: Any) -> Forecast:
    return forecast(core.dump(), registry.find, **terms)


def of(core: Scheduler, number: int) -> Expected:
    (found,) = (expected for expected in made(core).jobs if expected.job == number)
    return found


def submitted(number: int, at: int = 0, **terms: object) -> JobSubmitted:
    return JobSubmitted(at * SECOND, job(number, **terms))


TIERED = ("keasy", "reasy", "measy")
PLAIN = [name for name in registry.BUILT_IN if name not in ("workload", "instances", *TIERED)]


@pytest.mark.parametrize("policy", [*PLAIN, "workload:period=5"])
def test_under_every_policy_job_task_and_slot_are_named(policy: str) -> None:
    core = core_of(policy, ONE_SLOT, submitted(7, estimate=10, width=1), submitted(9, estimate=4, width=1))
    (last,) = (job for job in core.state.jobs.values() if not job.attempts)
    first = 16 - last.id
    ends = core.state.runs()[0].expected_end
    assert of(core, last.id) == Expected(last.id, ends, 14 * SECOND, (Awaited(first, 0, 0b1, None, ends),)), (
        "the other one runs first, whichever that is"
    )


@pytest.mark.parametrize("policy", TIERED)
def test_behind_others_as_well(policy: str) -> None:
    """One of three jobs runs in the background. The third waits for the slot, in the foreground or behind."""
    jobs = [submitted(number, estimate=10, width=1, cpu=(0.9,), movable=True) for number in (1, 2, 3)]
    found = of(core_of(policy, ONE_SLOT, *jobs), 3)
    assert [(one.job, one.slots, one.start, one.end) for one in found.awaits] == [(1, 0b1, None, found.start)]
    assert found.start is not None
    assert found.end is not None
    assert 10 * SECOND <= found.start < found.end


def test_a_job_whose_slots_are_busy_waits_for_the_task_that_runs_there() -> None:
    core = core_of("deadline", NodeJoined(0, node("a", slots=2)), submitted(1, tasks=9, estimate=30))
    core.handle(submitted(2, 5, estimate=2, due=12))
    core.handle(Woke(5 * SECOND))
    assert core.state.jobs[2].held, "slots are given to it while tasks of the other job run there"
    found = of(core, 2)
    assert (found.start, found.end) == (30 * SECOND, 32 * SECOND)
    assert [(one.job, one.start, one.end) for one in found.awaits] == [(1, None, 30 * SECOND)]


def test_who_comes_before_is_named_with_what_runs() -> None:
    core = core_of("fcfs", ONE_SLOT, submitted(1, estimate=5), submitted(2, estimate=3), submitted(3, estimate=1))
    assert of(core, 3).awaits == (
        Awaited(1, 0, 0b1, None, 5 * SECOND),
        Awaited(2, 0, 0b1, 5 * SECOND, 8 * SECOND),
    )


def test_of_a_wide_job_those_are_named_that_end_last() -> None:
    before = [submitted(number, estimate=number) for number in range(1, 13)]
    core = core_of("fcfs", NodeJoined(0, node("a", slots=12)), *before, submitted(20, width=12, estimate=1))
    assert [one.job for one in of(core, 20).awaits] == list(range(5, 13))
    assert of(core, 20).start == 12 * SECOND


def test_the_next_task_of_a_workflow_waits_for_those_before_it_wherever_they_run() -> None:
    plan = (TaskSpec(2 * SECOND), TaskSpec(9 * SECOND), TaskSpec(SECOND, after=(0, 1)))
    found = of(core_of("heft", NodeJoined(0, node("a", slots=2)), submitted(1, graph=plan)), 1)
    assert (found.start, found.end) == (9 * SECOND, 10 * SECOND)
    assert [(one.job, one.task, one.end) for one in found.awaits] == [(1, 0, 2 * SECOND), (1, 1, 9 * SECOND)]
    assert {one.slots for one in found.awaits} == {0b1, 0b10}


class TestWithoutEstimates:
    def test_what_rests_on_an_assumption_says_whose(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1), submitted(2, estimate=3), estimate_default=60)
        assert of(core, 1) == Expected(1, None, 60 * SECOND, end_assumes=(1,))
        found = of(core, 2)
        assert (found.start, found.end) == (60 * SECOND, 63 * SECOND)
        assert found.start_assumes == found.end_assumes == (1,)

    def test_what_comes_before_rests_on_nothing(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, estimate=5), submitted(2))
        assert not of(core, 1).end_assumes
        found = of(core, 2)
        assert (found.start, found.start_assumes, found.end_assumes) == (5 * SECOND, (), (2,))

    def test_what_runs_beside_it_already_rests_on_nothing(self) -> None:
        core = core_of("fcfs", NodeJoined(0, node("a", slots=2)), submitted(1), submitted(2, estimate=900))
        assert (of(core, 1).end_assumes, of(core, 2).end_assumes) == ((1,), ())

    def test_in_the_background_it_rests_on_the_foreground(self) -> None:
        others = {"width": 1, "cpu": (0.9,), "movable": True}
        core = core_of("measy", ONE_SLOT, submitted(1, **others), submitted(2, estimate=900, **others))
        assert [attempt.tier.name for attempt in core.state.attempts()] == ["FOREGROUND", "BACKGROUND"]
        assert of(core, 2).end_assumes == (1,)

    def test_those_of_which_the_past_tells_nothing_either_are_named_first(self) -> None:
        jobs = [submitted(number) for number in range(1, 11)]
        core = core_of("fcfs", ONE_SLOT, *jobs, submitted(11, estimate=1))
        assert of(core, 11).end_assumes == (1, 2, 3, 4, 5, 6, 7, 8)
        found = made(core, unknown={10}).jobs
        assert found[-1].end_assumes == (10, 1, 2, 3, 4, 5, 6, 7)
        assert without_basis(found, {10}) == {10, 11}

    def test_what_was_learnt_of_other_tasks_is_an_estimate(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, tasks=3), submitted(2, estimate=1))
        core.handle(TaskEnded(8 * SECOND, 1, 0, 1))
        assert of(core, 1) == Expected(1, 16 * SECOND, 24 * SECOND, (Awaited(1, 1, 0b1, None, 16 * SECOND),))
        assert of(core, 2).end == 25 * SECOND

    def test_a_plan_and_a_profile_are_estimates(self) -> None:
        plan = (TaskSpec(2 * SECOND), TaskSpec(3 * SECOND, after=(0,)))
        core = core_of("heft", ONE_SLOT, submitted(1, graph=plan))
        assert (of(core, 1).end, of(core, 1).end_assumes) == (5 * SECOND, ())
        core = core_of("fcfs", NodeJoined(0, node("a", kind="old")), submitted(1, profile=(("old", 9 * SECOND),)))
        assert (of(core, 1).end, of(core, 1).end_assumes) == (9 * SECOND, ())

    def test_of_a_workflow_those_count_that_still_run_and_have_none(self) -> None:
        plan = (TaskSpec(ESTIMATE_DEFAULT, assumed=True), TaskSpec(3 * SECOND, after=(0,)))
        core = core_of("heft", ONE_SLOT, submitted(1, graph=plan), submitted(2, estimate=1))
        found = of(core, 1)
        assert (found.start, found.end) == (ESTIMATE_DEFAULT, ESTIMATE_DEFAULT + 3 * SECOND)
        assert found.start_assumes == found.end_assumes == (1,)
        core.handle(TaskEnded(8 * SECOND, 1, 0, 1))
        found = of(core, 1)
        assert (found.end, found.start_assumes, found.end_assumes) == (11 * SECOND, (), ())
        assert not of(core, 2).end_assumes

    def test_an_estimate_of_a_task_of_a_workflow_is_one_also_if_it_is_as_the_default(self) -> None:
        plan = (TaskSpec(ESTIMATE_DEFAULT),)
        core = core_of("heft", ONE_SLOT, submitted(1, graph=plan))
        assert (of(core, 1).end, of(core, 1).end_assumes) == (ESTIMATE_DEFAULT, ())


class TestFromTheMiddle:
    def test_what_should_have_ended_ends_now(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, estimate=5), submitted(2, estimate=5))
        core.handle(Woke(9 * SECOND))
        assert (of(core, 1).end, of(core, 2).start) == (9 * SECOND, 9 * SECOND)

    def test_what_was_saved_need_not_be_done_again(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, estimate=10), submitted(2, estimate=1))
        core.handle(TaskSaved(6 * SECOND, 1, 0, 1))
        core.handle(NodeDown(6 * SECOND, "a"))
        core.handle(NodeJoined(7 * SECOND, node("a")))
        assert of(core, 1).end == 11 * SECOND

    def test_what_is_being_killed_ends_now(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, estimate=50), submitted(2, estimate=5))
        core.handle(JobCancelled(3 * SECOND, 1))
        assert (of(core, 2).start, of(core, 2).end) == (3 * SECOND, 8 * SECOND)

    def test_what_was_launched_ahead_of_its_turn_still_runs(self) -> None:
        core = core_of("edf", NodeJoined(0, node("a", read_ahead=4)), submitted(1, tasks=20))
        for task in range(6):
            core.handle(TaskEnded((task + 1) * SECOND // 100, 1, task, 1))
        assert any(attempt.queued for attempt in core.state.attempts())
        assert of(core, 1).end == 20 * SECOND // 100

    def test_where_its_node_is_down_it_is_not_expected_to_end(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, estimate=5), NodeDown(0, "a"))
        assert of(core, 1) == Expected(1)
        assert made(core).until is None

    def test_a_decider_is_stood_in_for_by_the_policy(self) -> None:
        core = core_of("fcfs", DeciderChosen(0, "http://there"), ONE_SLOT, submitted(1, estimate=5))
        assert core.question is not None
        assert (of(core, 1).start, of(core, 1).end) == (0, 5 * SECOND)


class TestBounds:
    def test_it_looks_no_further_than_so_much_work(self) -> None:
        core = core_of("fcfs", ONE_SLOT, submitted(1, tasks=10, estimate=1), submitted(2, estimate=1))
        near = made(core, work_max=5)
        assert near.until == 5 * SECOND
        assert near.jobs == (Expected(1, SECOND, None, (Awaited(1, 0, 0b1, None, SECOND),)), Expected(2))
        assert made(core).until is None

    def test_a_policy_that_fails_is_told_of(self) -> None:
        @dataclass(frozen=True)
        class Failing:
            per_instant: bool = False
            task_rounds: bool = False

            def __call__(self, view: Snapshot) -> Plan:
                raise RuntimeError("no idea")

        def find(text: str) -> Policy:
            return Failing()

        core = core_of("fcfs", ONE_SLOT, submitted(1, tasks=1, estimate=1), submitted(2, estimate=1))
        found = forecast(replace(core.dump(), policy="mine"), find)
        assert "mine raised" in found.failure
        assert "no idea" in found.failure
        assert found.jobs == (Expected(1), Expected(2))


def test_at_risk_is_what_a_tenth_more_would_make_late() -> None:
    assert not is_at_risk(10, 110, 120)
    assert is_at_risk(10, 110, 119)


@pytest.mark.parametrize(("shape", "penalty"), [("linear", 12.0), ("sqrt", 6.0), ("square", 48.0)])
def test_what_a_job_costs_if_it_ends_as_expected(shape: str, penalty: float) -> None:
    """Job 1 ends 4 s late, by a due date that it got later; job 2 in time; job 3 has no due date."""
    costs = {"rate": 3.0, "shape": PenaltyShape(shape), "estimate": 7, "width": 1}
    core = core_of(
        "fcfs",
        ONE_SLOT,
        submitted(1, due=100, **costs),
        submitted(2, due=14, **costs),
        submitted(3, **costs),
        JobChanged(0, 1, due=3 * SECOND),
    )
    assert [(one.job, one.end, one.penalty) for one in made(core).jobs] == [
        (1, 7 * SECOND, penalty),
        (2, 14 * SECOND, 0.0),
        (3, 21 * SECOND, 0.0),
    ]
    assert [(one.end, one.penalty) for one in made(core, work_max=1).jobs][1:] == [(None, 0.0)] * 2


def test_instances_of_services_go_on_and_end_only_where_their_slots_are_wanted() -> None:
    """The forecast ends with the last job: nothing is simulated of what services do behind it."""
    core = core_of("services:top=sf,batch=fcfs", NodeJoined(0, node("a", slots=4)), JobSubmitted(0, Service(1, most=4)))
    assert len(core.state.jobs[1].attempts) == 4
    core.handle(submitted(2, tasks=3, estimate=10, due=15, rate=2.0))
    found = made(core, work_max=40)
    assert (found.until, found.failure) == (None, "")
    assert [(one.job, one.start, one.end) for one in found.jobs] == [(1, None, None), (2, 0, 20 * SECOND)]
    assert found.jobs[1].penalty == 10.0


@pytest.mark.parametrize("policy", ["easy", "tempo", "sites:each=tempo"])
def test_a_job_whose_release_date_is_far_off_is_forecast_without_the_rounds_until_then(policy: str) -> None:
    core, days = Scheduler(registry.find, policy, period=SECOND), 400 * 86_400
    core.handle(NodeJoined(0, node("n", slots=1)))
    core.handle(JobSubmitted(1, job(1, estimate=1)))
    core.handle(JobSubmitted(2, job(2, estimate=1, release=days)))
    _, later = forecast(core.dump(), registry.find).jobs
    assert (later.start, later.end) == (days * SECOND, (days + 1) * SECOND)


@pytest.mark.parametrize("seed", range(20))
def test_who_left_each_slot_last_is_known_of_narrow_and_wide_tasks(seed: int) -> None:
    chance = random.Random(seed)
    leavers, by_slot = _Leavers(), dict[int, Awaited]()
    for number in range(60):
        width = chance.choice((1, 2, WIDE - 1, WIDE, 3 * WIDE))
        slots = of_numbers(chance.sample(range(4 * WIDE), width))
        told = {slot: left for left, there in leavers.on(slots) for slot in numbers(there)}
        assert told == {slot: by_slot[slot] for slot in numbers(slots) if slot in by_slot}
        leavers.note(left := Awaited(number, 0, 0, None, number), slots)
        by_slot |= dict.fromkeys(numbers(slots), left)
