"""What a round costs with many slots: it grows with their number, not with its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.job import Kind, Rigid, TaskSpec, Workflow
from headway.model.policy import serves_of
from headway.model.slots import count
from headway.policies import registry
from headway.policies.tempo import ENOUGH, Tempo, TempoRound
from headway.testing import job, node

Lines = Callable[[Callable[[], object]], int]


def busy(policy: str, slots: int, *, waiting: int) -> Scheduler:
    """A cluster of which each slot runs the only task of a job, and on which more such jobs wait."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node(slots=slots)))
    scheduler.handle(Woke(0))
    for number in range(1, slots + waiting + 1):
        scheduler.handle(JobSubmitted(0, job(number, estimate=9, due=99 + number)))
        if number == slots:
            scheduler.handle(Woke(0))
    scheduler.handle(Woke(0))
    assert count(scheduler.state.totals().busy) == slots
    return scheduler


@pytest.mark.parametrize("policy", sorted(registry.BUILT_IN.keys() - {"instances"}))
def test_twice_the_slots_are_twice_the_work_of_a_round(policy: str, lines_run: Lines) -> None:
    few, many = (lines_run(ending(busy(policy, slots, waiting=20))) for slots in (150, 300))
    assert many <= 2.5 * few


def test_of_many_slots_a_round_of_tempo_looks_at_no_more_jobs_than_can_hold_one_each() -> None:
    slots = ENOUGH + 100
    scheduler = busy("tempo:strict=false", slots, waiting=2 * slots)
    looked_at = TempoRound(Tempo(strict=False), scheduler.state).by_job
    assert len(looked_at) == slots + 1
    ending(scheduler)()
    assert count(scheduler.state.busy) == slots  # the next one runs


def test_a_round_of_tempo_only_glances_at_rigid_jobs_that_are_too_wide(lines_run: Lines) -> None:
    few, many = (lines_run(ending(crowded(waiting))) for waiting in (100, 600))
    assert many - few < 500 * 10


def crowded(waiting: int) -> Scheduler:
    """A bag runs, and beside it rigid jobs wait that need more slots than there are for them."""
    scheduler = Scheduler(registry.find, "tempo")
    scheduler.handle(NodeJoined(0, node(slots=8)))
    scheduler.handle(JobSubmitted(0, job(1, tasks=20, estimate=9, due=99)))
    scheduler.handle(JobSubmitted(0, Rigid(2, width=6, estimate=60_000_000, priority=9)))
    scheduler.handle(Woke(0))
    for number in range(3, waiting + 3):
        scheduler.handle(JobSubmitted(0, Rigid(number, width=4, estimate=9_000_000)))
    scheduler.handle(Woke(0))
    assert count(scheduler.state.totals().busy) == 8
    return scheduler


def ending(scheduler: Scheduler) -> Callable[[], object]:
    """What ends one task and holds the round that follows."""

    def end() -> None:
        attempt = scheduler.state.runs()[0]
        scheduler.handle(TaskEnded(1_000_000, attempt.job.id, attempt.task, attempt.number, Outcome.SUCCEEDED))
        scheduler.handle(Woke(1_000_000))

    return end


PLANNED = {"heft", "peft"}
"""Policies that plan every task of a workflow when it comes."""


@pytest.mark.parametrize("policy", sorted(registry.BUILT_IN.keys() - {"instances"} - PLANNED))
def test_a_round_does_not_look_at_all_ready_tasks_of_a_workflow(policy: str, lines_run: Lines) -> None:
    if Kind.WORKFLOW not in serves_of(registry.find(policy)):
        pytest.skip("it serves no workflows")
    few, many = (lines_run(ending(flowing(policy, tasks))) for tasks in (100, 1000))
    assert many <= 1.3 * few


def flowing(policy: str, tasks: int) -> Scheduler:
    """A cluster on which some tasks of a workflow run, and the others are ready."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node(slots=4)))
    scheduler.handle(Woke(0))
    scheduler.handle(JobSubmitted(0, Workflow(1, graph=(TaskSpec(9_000_000),) * tasks, due=99_000_000)))
    scheduler.handle(Woke(0))
    assert count(scheduler.state.totals().busy) == 4
    return scheduler
