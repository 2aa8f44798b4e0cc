"""`easy` and similar policies: which tasks of bags start beside a promise, and the reasons for jobs that never fit."""

from __future__ import annotations

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeDown, NodeJoined, NodeUp, Woke
from headway.model.instant import SECOND
from headway.model.job import JobSpec
from headway.model.plan import Reason
from headway.policies import registry
from headway.testing import job, node


def core(policy: str, *jobs: JobSpec, slots: int = 6) -> Scheduler:
    """A core after one round at time 0, for jobs that were submitted in this order."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node("a", slots=slots)))
    for spec in jobs:
        scheduler.handle(JobSubmitted(0, spec))
    scheduler.handle(Woke(0))
    scheduler.check()
    assert not scheduler.refusals
    return scheduler


def running(scheduler: Scheduler) -> dict[int, list[int]]:
    """The tasks that run, by job."""
    return {number: sorted(view.attempts) for number, view in scheduler.state.jobs.items() if view.attempts}


@pytest.mark.parametrize("policy", ["easy", "easy:per_instant=true", "easy:order=release,depth=1"])
class TestBesideAPromise:
    """Job 1 has 2 of 6 slots until 10 s, when job 2 needs 5. So of the 4 free slots, one is extra."""

    HEAD = (job(1, width=2, estimate=10), job(2, width=5, estimate=10))

    def test_late_tasks_take_what_is_extra_and_no_more(self, policy: str) -> None:
        scheduler = core(policy, *self.HEAD, job(3, tasks=4, estimate=20), job(4, tasks=1, estimate=20))
        assert running(scheduler) == {1: [0], 3: [0]}
        assert scheduler.state.jobs[2].promise == 10 * SECOND

    def test_tasks_that_end_in_time_take_all_that_is_free(self, policy: str) -> None:
        assert running(core(policy, *self.HEAD, job(3, tasks=9, estimate=10))) == {1: [0], 3: [0, 1, 2, 3]}

    def test_a_short_task_starts_though_a_long_one_before_it_does_not(self, policy: str) -> None:
        head = job(1, width=2, estimate=10), job(2, width=6, estimate=10)
        assert running(core(policy, *head, job(3, tasks=2, sizes=(3, 1), estimate=20))) == {1: [0], 3: [1]}


@pytest.mark.parametrize("policy", ["easy", "conservative", "easy:depth=2"])
def test_a_job_wider_than_what_is_up_never_fits_and_has_no_promise_until_it_does(policy: str) -> None:
    scheduler = Scheduler(registry.find, policy)
    for name in ("a", "b"):
        scheduler.handle(NodeJoined(0, node(name, slots=2)))
    scheduler.handle(NodeDown(SECOND, "b"))
    scheduler.handle(JobSubmitted(2 * SECOND, job(1, width=3, estimate=5)))
    scheduler.handle(JobSubmitted(2 * SECOND, job(2, width=2, estimate=5)))
    scheduler.handle(Woke(2 * SECOND))
    told = scheduler.explain(1)
    assert (told.reason, told.start) == (Reason.NEVER_FITS, None)
    assert scheduler.state.jobs[1].promise is None
    assert running(scheduler) == {2: [0]}
    scheduler.handle(NodeUp(3 * SECOND, "b"))
    scheduler.handle(Woke(3 * SECOND))
    assert scheduler.state.jobs[1].promise == 7 * SECOND
    scheduler.check()
