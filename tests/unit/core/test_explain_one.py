"""An explanation is about one job: it says what one about all jobs says, without a walk over those that wait."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.job import JobSpec
from headway.model.plan import Waiting
from headway.policies import registry
from headway.testing import job, node

Lines = Callable[[Callable[[], object]], int]

MIXED = sorted({"anneal:steps=50,first=200", *registry.BUILT_IN} - {"anneal", "heft"})
SCANNING = {
    "conservative",
    "heft",
    "proportion",
    "anneal",
    "atc",
    "greedy",
    "hprf",
    "lst",
    "lstr",
    "wspt",
    "services",
    "peft",
}
"""Their rounds themselves look at every job that waits."""


def loaded(policy: str, specs: list[JobSpec], *, slots: int = 8, speed: float = 1.0) -> Scheduler:
    """A scheduler with these jobs, after a round."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node("a", slots=slots)))
    scheduler.handle(NodeJoined(0, node("b", slots=slots, speed=speed)))
    scheduler.handle(Woke(0))
    for spec in specs:
        scheduler.handle(JobSubmitted(0, spec))
    scheduler.handle(Woke(0))
    return scheduler


def of_all(scheduler: Scheduler) -> dict[int, Waiting]:
    """The answers of one round that explains all jobs."""
    found = {}
    for pool in scheduler.state.each():
        arrived, pool.arrived, pool.recording = pool.arrived, None, True
        plan = registry.find(pool.text)(pool)
        pool.arrived, pool.recording = arrived, False
        for number, view in pool.jobs.items():
            if view.pool is pool:
                found[number] = scheduler.known_reason(number) or scheduler.reason_in(plan, number)
    return found


@pytest.mark.parametrize("policy", [*MIXED, "easy:depth=3", "easy:depth=0", "tempo:kill=false", "deadline:spare=none"])
def test_one_job_is_explained_as_all_jobs_are(policy: str) -> None:
    chance = Random(policy)
    specs = []
    for number in range(1, 301):  # more than a queue searches without blocks
        terms = {"estimate": chance.randint(1, 99), "due": chance.randint(50, 9999), "priority": chance.randint(0, 5)}
        if chance.random() < 0.7:
            specs.append(job(number, width=chance.randint(1, 18), **terms))
        else:
            specs.append(job(number, tasks=chance.randint(1, 4), **terms))
    specs = [spec for spec in specs if spec.width <= 16]
    scheduler = loaded(policy, specs, speed=chance.choice([1.0, 2.0]))
    for _ in range(2):
        wanted = of_all(scheduler)
        some = chance.sample(sorted(wanted), 15)
        assert {number: scheduler.explain(number) for number in some} == {number: wanted[number] for number in some}
        scheduler.check()
        for attempt in scheduler.state.runs()[: chance.randint(1, 3)]:
            at = scheduler.state.now + 1_000_000
            scheduler.handle(TaskEnded(at, attempt.job.id, attempt.task, attempt.number, Outcome.SUCCEEDED))
        scheduler.handle(Woke(scheduler.state.now))


@pytest.mark.parametrize("policy", sorted(registry.BUILT_IN.keys() - SCANNING))
def test_an_explanation_does_not_look_at_all_that_wait(policy: str, lines_run: Lines) -> None:
    few, many = (lines_run(explained(policy, waiting)) for waiting in (600, 1500))
    assert few <= many <= few + few // 10


def explained(policy: str, waiting: int) -> Callable[[], object]:
    """What explains the last of so many jobs, for the second time: the first may have made an index."""
    scheduler = loaded(policy, [job(number, estimate=9, due=99 + number) for number in range(1, waiting + 1)])
    scheduler.explain(waiting)
    return lambda: scheduler.explain(waiting)
