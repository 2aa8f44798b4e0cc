"""Predicted run times in the core: they are estimates until an attempt has run longer."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import Kill, Launch
from headway.model.events import ClockStepped, JobSubmitted, NodeDown, NodeJoined, TaskEnded, Woke
from headway.model.job import Bag, JobSpec, Rigid, Service, TaskSpec, Workflow
from headway.model.outcome import Outcome
from headway.policies import registry
from headway.testing import node

EASY = "easy:backfill=shortest"


def core(policy: str = EASY, slots: int = 4) -> Scheduler:
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node("n", slots=slots)))
    return scheduler


def rigid(number: int, width: int = 1, estimate: int | None = 100, **terms: Any) -> Rigid:
    return Rigid(number, width=width, estimate=estimate, **terms)


def submit(scheduler: Scheduler, at: int, job: JobSpec, predicted: int | None = None) -> list[int]:
    """Submit a job. Returns which jobs start."""
    return happens(scheduler, JobSubmitted(at, job, predicted=predicted))  # type: ignore[arg-type]


def happens(scheduler: Scheduler, event: Any) -> list[int]:
    actions = [*scheduler.handle(event), *scheduler.handle(Woke(event.at))]
    scheduler.check()
    assert not any(isinstance(action, Kill) for action in actions), "nothing is killed by a prediction"
    return [action.job for action in actions if isinstance(action, Launch)]


def expected_end(scheduler: Scheduler, job: int) -> int:
    return scheduler.state.jobs[job].attempts[0].expected_end


def test_a_prediction_counts_as_the_estimate() -> None:
    scheduler = core()
    submit(scheduler, 0, rigid(1), predicted=30)
    assert scheduler.state.jobs[1].estimate == 30
    assert expected_end(scheduler, 1) == 30


@pytest.mark.parametrize("predicted", [100, 101, None])
def test_what_is_not_shorter_than_the_users_estimate_does_not_count(predicted: int | None) -> None:
    scheduler = core()
    submit(scheduler, 0, rigid(1), predicted)
    assert scheduler.state.jobs[1].estimate == 100
    assert not scheduler.state.jobs[1].predicted


@pytest.mark.parametrize(
    "job",
    [
        Workflow(1, graph=(TaskSpec(50, 1), TaskSpec(70, 1))),
        Service(1, threshold=5, window=10),
        Bag(1, tasks=2, estimate=100, profile=(("speed=1", 60),)),
    ],
    ids=["workflow", "service", "profile"],
)
def test_one_prediction_cannot_say_how_long_these_run(job: JobSpec) -> None:
    plain, told = core("tempo"), core("tempo")
    submit(plain, 0, job)
    submit(told, 0, job, predicted=3)
    assert told.dump() == plain.dump()


def test_what_runs_longer_than_predicted_counts_as_its_user_said() -> None:
    """Job 3 was promised a start at 10, so job 4 may only start beside it when that turns out to be wrong."""
    scheduler = core(slots=4)
    submit(scheduler, 0, rigid(1, 2, 500))
    submit(scheduler, 0, rigid(2, 1), predicted=10)
    assert submit(scheduler, 1, rigid(3, 2)) == []
    assert submit(scheduler, 2, rigid(4, 1, 50)) == [], "it would delay job 3"
    assert submit(scheduler, 10, rigid(5, 4)) == [], "at the predicted end it may just be about to end"
    assert submit(scheduler, 11, rigid(6, 4)) == [4], "job 2 is now expected to end at 100"
    assert expected_end(scheduler, 2) == 100
    assert not scheduler.state.jobs[2].predicted


def test_beside_a_head_of_at_most_half_of_the_slots_predictions_count() -> None:
    scheduler = core(slots=6)
    submit(scheduler, 0, rigid(1, 3, 500))
    submit(scheduler, 0, rigid(2, 2, 100), predicted=30)
    submit(scheduler, 0, rigid(3, 3))
    assert scheduler.state.jobs[3].promise == 30
    assert submit(scheduler, 1, rigid(4, 1, 200), predicted=20) == [4]


def test_beside_a_head_of_more_than_half_of_the_slots_jobs_count_as_their_users_say() -> None:
    """Job 3 needs almost all slots. What is promised to it, and what may start beside it, goes by the users."""
    scheduler = core(slots=6)
    submit(scheduler, 0, rigid(1, 2, 50))
    submit(scheduler, 0, rigid(2, 2, 100), predicted=30)
    submit(scheduler, 0, rigid(3, 5))
    assert scheduler.state.jobs[3].promise == 100
    assert submit(scheduler, 1, rigid(4, 2, 200), predicted=20) == [], "it may run on until 201"
    assert submit(scheduler, 1, rigid(5, 2, 99), predicted=40) == [5], "it ends by then, whatever is predicted"
    assert submit(scheduler, 2, rigid(6, 2, 60), predicted=50) == []
    assert submit(scheduler, 2, rigid(7, 2, 70), predicted=10) == []
    assert happens(scheduler, TaskEnded(20, 1, 0, 1, Outcome.SUCCEEDED)) == [7], "the shortest by predictions is first"
    assert scheduler.state.jobs[3].promise == 100


def test_what_starts_before_a_wide_head_counts_as_its_user_says_at_once() -> None:
    scheduler = core(slots=6)
    submit(scheduler, 0, rigid(1, 6, 40))
    submit(scheduler, 1, rigid(2, 4, 100), predicted=30)
    submit(scheduler, 2, rigid(3, 5))
    submit(scheduler, 3, rigid(4, 2, 200), predicted=20)
    assert happens(scheduler, TaskEnded(40, 1, 0, 1, Outcome.SUCCEEDED)) == [2]
    assert scheduler.state.jobs[3].promise == 140


def test_tasks_of_a_bag_beside_a_wide_head_count_as_its_user_says() -> None:
    scheduler = core(slots=6)
    submit(scheduler, 0, rigid(1, 4, 50))
    submit(scheduler, 0, rigid(2, 6))
    assert submit(scheduler, 1, Bag(3, tasks=2, estimate=100), predicted=20) == []
    assert submit(scheduler, 2, Bag(4, tasks=2, estimate=40), predicted=20) == [4, 4]


def test_users_are_taken_at_their_word_on_slots_of_other_speeds() -> None:
    scheduler = Scheduler(registry.find, EASY)
    scheduler.handle(NodeJoined(0, node("slow", slots=4, speed=0.5)))
    scheduler.handle(NodeJoined(0, node("fast", slots=2, speed=2.0)))
    submit(scheduler, 0, rigid(1, 6, 100), predicted=30)
    submit(scheduler, 1, rigid(2, 6))
    assert scheduler.state.jobs[2].promise == 200


def test_a_job_without_an_estimate_counts_as_any_such_job_then() -> None:
    scheduler = Scheduler(registry.find, EASY, estimate_default=77)
    scheduler.handle(NodeJoined(0, node("n", slots=4)))
    submit(scheduler, 0, rigid(1, 4, None), predicted=10)
    assert not scheduler.state.jobs[1].is_estimated(0), "users are told that nothing was said"
    submit(scheduler, 11, rigid(2, 4))
    assert expected_end(scheduler, 1) == 77


def test_a_bag_is_predicted_until_one_of_its_tasks_has_ended() -> None:
    scheduler = core("deadline")
    submit(scheduler, 0, Bag(1, tasks=9, estimate=100), predicted=30)
    assert scheduler.state.jobs[1].estimate == 30
    happens(scheduler, TaskEnded(20, 1, 0, 1, Outcome.SUCCEEDED))
    assert not scheduler.state.jobs[1].predicted
    assert 20 <= scheduler.state.jobs[1].estimate <= 30, "the mean of what was predicted and what was observed"


def test_all_tasks_of_a_bag_count_as_its_user_said_when_one_runs_longer() -> None:
    scheduler = core("deadline")
    submit(scheduler, 0, Bag(1, tasks=9, estimate=100), predicted=30)
    submit(scheduler, 31, rigid(2))
    job = scheduler.state.jobs[1]
    assert job.estimate == 100
    assert {attempt.expected_end for attempt in job.attempts.values()} == {100}
    happens(scheduler, TaskEnded(40, 1, 0, 1, Outcome.SUCCEEDED))
    assert 40 < job.estimate < 100


def test_an_attempt_that_starts_again_is_predicted_anew() -> None:
    """What was expected of the attempt before is forgotten."""
    scheduler = core(slots=2)
    scheduler.handle(NodeJoined(0, node("m", slots=2)))
    submit(scheduler, 0, rigid(1, 1, retries=1), predicted=30)
    assert happens(scheduler, NodeDown(20, "n")) == [1]
    submit(scheduler, 35, rigid(2))
    assert scheduler.state.jobs[1].predicted
    assert expected_end(scheduler, 1) == 50
    submit(scheduler, 51, rigid(3))
    assert expected_end(scheduler, 1) == 120


def test_a_step_of_the_clock_puts_off_what_is_predicted() -> None:
    scheduler = core()
    submit(scheduler, 0, rigid(1, 4), predicted=30)
    happens(scheduler, ClockStepped(1000, 990))
    submit(scheduler, 1001, rigid(2))
    assert expected_end(scheduler, 1) == 1020
    submit(scheduler, 1021, rigid(3))
    assert expected_end(scheduler, 1) == 1090


def test_a_stored_state_remembers_what_is_predicted() -> None:
    scheduler = core()
    submit(scheduler, 0, rigid(1, 4), predicted=30)
    submit(scheduler, 1, rigid(2, 4), predicted=5)
    restored = Scheduler.restore(scheduler.dump(), registry.find)
    for each in (scheduler, restored):
        submit(each, 31, rigid(3, 4))
        assert expected_end(each, 1) == 100
        assert each.state.jobs[2].predicted
    assert restored.dump() == scheduler.dump()


def test_users_are_told_what_they_said_themselves() -> None:
    """A policy may ask for a quantile that is mostly too low."""
    scheduler = core()
    submit(scheduler, 0, rigid(1, 4), predicted=30)
    job = scheduler.state.jobs[1]
    assert scheduler.state.time_of(job, 0, 0b1111) == 30
    assert scheduler.state.time_said(job, 0, 0b1111) == 100
