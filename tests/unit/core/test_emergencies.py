"""Emergency jobs (Lin14 4.4): running tasks make room at once and are redone, and the cost is counted."""

from __future__ import annotations

from typing import Any

from headway.core.scheduler import Scheduler
from headway.model.actions import Kill, Launch
from headway.model.events import JobCancelled, JobSubmitted, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.policies import registry
from headway.testing import job, node

POLICY = "priority:emergency=100"


def busy_cluster(policy: str = POLICY, **terms: Any) -> Scheduler:
    """Four slots, all running tasks of job 1."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node("a", slots=4)))
    scheduler.handle(JobSubmitted(0, job(1, tasks=8, estimate=100, **terms)))
    scheduler.handle(Woke(0))
    assert scheduler.state.busy == 0b1111
    return scheduler


def arrive(scheduler: Scheduler, **terms: Any) -> list[Any]:
    at = 10 * SECOND
    return [*scheduler.handle(JobSubmitted(at, job(2, **terms))), *scheduler.handle(Woke(at))]


def test_an_emergency_kills_as_many_tasks_as_it_needs_and_they_are_redone() -> None:
    scheduler = busy_cluster()
    actions = arrive(scheduler, tasks=2, priority=100)
    kills = [action for action in actions if isinstance(action, Kill)]
    assert len(kills) == 2
    for kill in kills:
        scheduler.handle(TaskEnded(11 * SECOND, kill.job, kill.task, kill.attempt, Outcome.KILLED))
    state = scheduler.state
    assert state.jobs[2].attempts.keys() == {0, 1}
    assert sorted(state.jobs[1].again) == sorted(kill.task for kill in kills)
    assert (state.jobs[1].kills, state.jobs[1].lost) == (2, 22 * SECOND)
    for task in (0, 1):
        actions = scheduler.handle(TaskEnded(20 * SECOND, 2, task, 1))
    actions += scheduler.handle(Woke(20 * SECOND))
    redone = [(action.task, action.attempt) for action in actions if isinstance(action, Launch)]
    assert redone == sorted((kill.task, 2) for kill in kills)
    scheduler.check()


def test_a_job_that_is_no_emergency_waits_for_the_running_tasks() -> None:
    scheduler = busy_cluster()
    assert not [action for action in arrive(scheduler, tasks=2, priority=99) if isinstance(action, Kill)]
    assert scheduler.state.jobs[2].held.bit_count() == 2


def test_the_workload_and_deadline_policies_know_emergencies_too() -> None:
    for policy in ("deadline:emergency=100", "workload:emergency=100"):
        actions = arrive(busy_cluster(policy), tasks=1, priority=100, due=30)
        assert len([action for action in actions if isinstance(action, Kill)]) == 1, policy


def test_a_task_that_is_not_to_be_killed_ends_first() -> None:
    scheduler = busy_cluster(preemptible=False)
    assert not [action for action in arrive(scheduler, tasks=2, priority=100) if isinstance(action, Kill)]
    assert scheduler.refusals == {"not_to_be_killed": 2}
    slots = scheduler.state.jobs[2].held
    task = next(task for task, attempt in scheduler.state.jobs[1].attempts.items() if attempt.slots & slots)
    actions = scheduler.handle(TaskEnded(50 * SECOND, 1, task, 1))
    assert [action.job for action in actions if isinstance(action, Launch)] == [2]
    scheduler.check()


def test_a_cancelled_job_has_lost_nothing_to_others() -> None:
    scheduler = busy_cluster()
    scheduler.handle(JobCancelled(SECOND, 1))
    view = scheduler.state.jobs[1]
    scheduler.handle(TaskEnded(2 * SECOND, 1, 0, 1, Outcome.KILLED))
    assert (view.kills, view.lost) == (0, 0)


def last_tasks(**terms: Any) -> Scheduler:
    """Four slots, on which the last tasks of job 1 run."""
    scheduler = Scheduler(registry.find, POLICY)
    scheduler.handle(NodeJoined(0, node("a", slots=4)))
    scheduler.handle(JobSubmitted(0, job(1, tasks=4, estimate=100, **terms)))
    scheduler.handle(Woke(0))
    assert not scheduler.state.jobs[1].ready
    return scheduler


def test_the_last_tasks_of_a_bag_make_room_as_well() -> None:
    scheduler = last_tasks()
    assert len([action for action in arrive(scheduler, tasks=2, priority=100) if isinstance(action, Kill)]) == 2
    assert not scheduler.refusals
    scheduler.check()


def test_but_not_those_of_an_emergency_of_its_rank_nor_those_not_to_be_killed() -> None:
    for terms in ({"priority": 100}, {"preemptible": False}):
        scheduler = last_tasks(**terms)
        assert not [action for action in arrive(scheduler, tasks=2, priority=100) if isinstance(action, Kill)], terms
        assert not scheduler.refusals
