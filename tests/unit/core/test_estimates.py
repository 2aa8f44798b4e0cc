"""Estimates of run times (Lin14 4.4): corrected by what is observed, by class of nodes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import json

from headway.core.record import restore_state
from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeDown, NodeJoined, Outcome, TaskEnded, TaskSaved, Woke
from headway.model.instant import LONGEST, SECOND
from headway.model.job import SIZE_RANGE, flaw
from headway.model.node import SPEED_RANGE
from headway.model.seen import JobView, RunTimes
from headway.policies import registry
from headway.policies.order import ORDERS
from headway.testing import job, node
from headway.wire.reading import any_form


def core(*nodes: Any, policy: str = "edf:per_instant=false", **terms: Any) -> tuple[Scheduler, JobView]:
    """A scheduler with these nodes and job 1."""
    scheduler = Scheduler(registry.find, policy)
    for spec in nodes or (node("a", slots=2),):
        scheduler.handle(NodeJoined(0, spec))
    scheduler.handle(JobSubmitted(0, job(1, **terms)))
    return scheduler, scheduler.state.jobs[1]


def end(scheduler: Scheduler, task: int, at: float, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    attempt = scheduler.state.jobs[1].attempts[task].number
    scheduler.handle(TaskEnded(round(at * SECOND), 1, task, attempt, outcome))
    scheduler.check()


class TestRunTimes:
    def test_the_first_count_alike(self) -> None:
        times = RunTimes(600)
        for run_time in (10, 30, 50):
            times.add(run_time)
        assert (times.count, times.mean) == (3, 30)

    def test_what_somebody_expected_counts_as_one(self) -> None:
        times = RunTimes(100, count=1)
        times.add(20)
        assert (times.count, times.mean) == (2, 60)

    def test_later_ones_weigh_an_eighth_so_the_past_is_forgotten(self) -> None:
        times = RunTimes(0)
        for _ in range(100):
            times.add(1000)
        for _ in range(8):
            times.add(2000)
        assert times.mean == pytest.approx(2000 - 1000 * (7 / 8) ** 8, rel=0.01)
        for _ in range(40):
            times.add(2000)
        assert times.mean == pytest.approx(2000, rel=0.01)

    def test_the_spread_is_the_mean_deviation_and_vanishes_when_all_are_alike(self) -> None:
        times = RunTimes(0)
        for run_time in (100, 200) * 200:
            times.add(run_time)
        assert times.spread == pytest.approx(50, abs=8)
        for _ in range(200):
            times.add(150)
        assert times.spread <= 8


class TestBags:
    def test_a_default_is_forgotten_with_the_first_end(self) -> None:
        scheduler, view = core(tasks=4)
        assert view.estimate == 600 * SECOND
        end(scheduler, 0, at=5)
        assert view.estimate == 5 * SECOND

    def test_what_the_user_gave_counts_as_one_observation(self) -> None:
        scheduler, view = core(tasks=4, estimate=10)
        end(scheduler, 0, at=20)
        assert view.estimate == 15 * SECOND
        assert [attempt.expected_end for attempt in view.attempts.values()] == [10 * SECOND, 35 * SECOND]

    def test_failures_and_lost_attempts_say_nothing(self) -> None:
        scheduler, view = core(tasks=4, estimate=10, retries=3)
        end(scheduler, 0, at=1, outcome=Outcome.RAISED)
        scheduler.handle(NodeDown(2 * SECOND, "a"))
        assert view.estimate == 10 * SECOND

    def test_a_slow_node_counts_by_its_speed_and_is_remembered_by_itself(self) -> None:
        scheduler, view = core(node("fast", speed=2.0), node("slow", speed=0.5), tasks=6)
        assert [view.attempts[task].slots for task in (0, 1)] == [0b01, 0b10]
        end(scheduler, 0, at=5)
        assert view.estimate == 10 * SECOND
        assert {kind: times.mean for kind, times in view.times.items()} == {"speed=2": 5 * SECOND}
        end(scheduler, 1, at=30)  # not 20 s, which follows from its speed
        assert {kind: times.mean for kind, times in view.times.items()} == {
            "speed=0.5": 30 * SECOND,
            "speed=2": 5 * SECOND,
        }
        assert view.estimate == 12_500_000  # 10 and 15 s at speed 1
        assert scheduler.state.time_of(view, 5, 0b10) == 30 * SECOND

    def test_a_profile_says_how_long_a_task_takes_by_class(self) -> None:
        nodes = node("old", kind="xeon"), node("new", kind="epyc"), node("odd", speed=2.0, kind="arm")
        profile = (("xeon", 40 * SECOND), ("epyc", 10 * SECOND))
        scheduler, view = core(*nodes, tasks=9, profile=profile)
        assert view.estimate == 25 * SECOND  # their mean, where no estimate was given
        assert [scheduler.state.time_of(view, 0, 1 << slot) for slot in range(3)] == [
            40 * SECOND,
            10 * SECOND,
            12_500_000,
        ]

    def test_tasks_with_sizes_are_expected_and_observed_by_their_sizes(self) -> None:
        scheduler, view = core(tasks=4, estimate=10, sizes=(1.0, 1.0, 2.0, 4.0))
        assert [view.estimate_of(task) for task in range(4)] == [5 * SECOND, 5 * SECOND, 10 * SECOND, 20 * SECOND]
        assert (view.left, view.workload) == (4, 40)
        end(scheduler, 0, at=15)  # three times as long as expected
        assert view.estimate == 20 * SECOND
        assert (view.left, view.workload) == (3.5, 70)

    def test_orders_by_estimate_follow(self) -> None:
        scheduler, _ = core(tasks=9, estimate=10)
        scheduler.handle(JobSubmitted(0, job(2, estimate=30)))
        ranked = scheduler.state.in_order(ORDERS["shortest"])
        assert [view.id for view in ranked] == [1, 2]
        end(scheduler, 0, at=100)
        assert [view.id for view in scheduler.state.in_order(ORDERS["shortest"])] == [2, 1]
        scheduler.check()


class TestCheckpoints:
    def test_what_was_saved_is_not_lost_and_the_next_attempt_needs_only_the_rest(self) -> None:
        scheduler, view = core(tasks=1, estimate=100)
        scheduler.handle(TaskSaved(60 * SECOND, 1, 0, 1))
        scheduler.handle(NodeDown(70 * SECOND, "a"))
        assert (view.lost, view.kept) == (10 * SECOND, {0: 60 * SECOND})
        scheduler.handle(NodeJoined(80 * SECOND, node("b")))
        assert view.attempts[0].expected_end == 120 * SECOND
        scheduler.check()

    def test_the_run_time_observed_is_that_of_all_attempts(self) -> None:
        scheduler, view = core(node("a"), tasks=2, retries=1)
        scheduler.handle(TaskSaved(60 * SECOND, 1, 0, 1))
        end(scheduler, 0, at=70, outcome=Outcome.RAISED)
        end(scheduler, 0, at=100)
        assert view.estimate == 90 * SECOND  # 60 kept, 30 after it

    def test_a_save_of_an_older_attempt_is_ignored(self) -> None:
        scheduler, view = core(node("a"), tasks=1, retries=1)
        end(scheduler, 0, at=1, outcome=Outcome.RAISED)
        scheduler.handle(TaskSaved(2 * SECOND, 1, 0, 1))
        assert (scheduler.ignored, view.attempts[0].saved) == (1, SECOND)

    @pytest.mark.parametrize(("saves", "expected"), [(True, 100), (False, 75)])
    def test_what_was_killed_and_resumed_says_nothing_and_what_was_redone_whole_does(
        self, saves: bool, expected: float
    ) -> None:
        """Part of the saved work may have been done in the background, at an unknown speed."""
        scheduler, view = core(node("a"), policy="priority:emergency=9", tasks=2, estimate=100)
        scheduler.handle(Woke(0))
        if saves:
            scheduler.handle(TaskSaved(60 * SECOND, 1, 0, 1))
        scheduler.handle(JobSubmitted(70 * SECOND, job(2, estimate=5, priority=9)))
        scheduler.handle(Woke(70 * SECOND))
        assert view.attempts[0].ending
        end(scheduler, 0, at=70, outcome=Outcome.KILLED)
        scheduler.handle(TaskEnded(80 * SECOND, 2, 0, 1))
        scheduler.handle(Woke(80 * SECOND))
        assert (view.kills, view.kept) == (1, {0: 60 * SECOND} if saves else {})
        end(scheduler, 0, at=130)
        assert view.estimate == expected * SECOND


def test_what_was_learnt_is_kept_with_the_state() -> None:
    scheduler, view = core(node("fast", speed=2.0), node("slow", speed=0.5), tasks=6, sizes=(1, 2, 3, 4, 5, 6))
    end(scheduler, 0, at=5)
    scheduler.handle(TaskSaved(6 * SECOND, 1, 1, 1))
    scheduler.handle(NodeDown(7 * SECOND, "slow"))
    kept = restore_state(scheduler.dump()).jobs[1]
    for name in ("estimate", "lost", "kills", "kept", "left"):
        assert getattr(kept, name) == getattr(view, name)
    assert kept.observed is not None
    assert view.observed is not None
    assert (kept.observed.count, kept.observed.mean, kept.observed.spread) == (
        view.observed.count,
        view.observed.mean,
        view.observed.spread,
    )
    assert kept.times.keys() == view.times.keys() == {"speed=2"}


@pytest.mark.parametrize("speed", SPEED_RANGE)
def test_the_largest_terms_that_are_allowed_remain_numbers_that_can_be_kept(speed: float) -> None:
    scheduler, view = core(
        *(node("a", slots=2, speed=speed), node("b")),
        tasks=4,
        sizes=(SIZE_RANGE[0], 1.0, 1.0, SIZE_RANGE[1]),
        estimate=LONGEST / SECOND // 2,
        due=1,
    )
    while view.attempts:
        end(scheduler, min(view.attempts), at=10.0**9)
        kept = scheduler.dump()
        assert json.decode(json.encode(kept), type=type(kept), dec_hook=any_form) == kept
        assert max((attempt.expected_end for attempt in view.attempts.values()), default=0) < 2**63
        assert 0 <= view.size_left < math.inf
    assert view.ended == 4


def test_what_is_left_is_never_less_than_nothing() -> None:
    scheduler, view = core(tasks=3, sizes=(1e9, 1e-9, 1e-9))
    end(scheduler, 0, at=1)
    end(scheduler, 1, at=2)
    assert (view.unfinished, view.size_left) == (1, 0.0)


@pytest.mark.parametrize(
    ("terms", "wrong"),
    [
        ({"tasks": 2, "sizes": (1.0,)}, "sizes is 1; allowed: one a task of a bag, or none"),
        ({"tasks": 2, "sizes": (1.0, 0.0)}, "sizes[1] is 0.0; allowed: 1e-18 to"),
        ({"tasks": 2, "sizes": (1.0, 1.7e308)}, "sizes[1] is 1.7e+308; allowed: 1e-18 to 1e+18"),
        ({"profile": (("xeon", -1),)}, "profile[xeon] is -1e-06; allowed: 0 or more, less than"),
    ],
)
def test_wrong_terms(terms: dict[str, Any], wrong: str) -> None:
    assert str(flaw(job(1, **terms))).startswith(wrong)
