"""What a round costs with many slots: it grows with their number, not with its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.job import Kind, TaskSpec, Workflow
from headway.model.slots import count
from headway.model.snapshot import serves_of
from headway.policies import registry
from headway.policies.tempo import ENOUGH, Round, Tempo
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
    looked_at = Round(Tempo(strict=False), scheduler.state).by_job
    assert len(looked_at) == slots + 1
    ending(scheduler)()
    assert count(scheduler.state.busy) == slots  # the next one runs


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
