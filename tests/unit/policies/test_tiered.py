"""`keasy`, `reasy` and `measy`: what may come to the foreground beside a promise, slot by slot."""

from __future__ import annotations

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import JobCancelled, JobSubmitted, NodeJoined, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import JobSpec, TaskSpec
from headway.model.plan import Reason
from headway.model.tier import Tier
from headway.policies import registry
from headway.testing import job, node

EVERY = ["keasy", "reasy", "measy"]


def core(policy: str, slots: int, *jobs: JobSpec) -> Scheduler:
    """A core after one round at time 0, for jobs that were submitted in this order."""
    scheduler = Scheduler(registry.find, f"{policy}:per_instant=true")
    scheduler.handle(NodeJoined(0, node("a", slots=slots)))
    submit(scheduler, 0, *jobs)
    return scheduler


def submit(scheduler: Scheduler, at: int, *jobs: JobSpec) -> None:
    for spec in jobs:
        scheduler.handle(JobSubmitted(at * SECOND, spec))
    scheduler.handle(Woke(at * SECOND))
    scheduler.check()
    assert not scheduler.refusals


def front(scheduler: Scheduler) -> dict[int, list[int]]:
    """The tasks in the foreground, by job."""
    found: dict[int, list[int]] = {}
    for attempt in scheduler.state.attempts():
        if attempt.tier is Tier.FOREGROUND:
            found.setdefault(attempt.job.id, []).append(attempt.task)
    return {number: sorted(tasks) for number, tasks in sorted(found.items())}


@pytest.mark.parametrize("policy", EVERY)
class TestBesideAPromise:
    """Job 1 has 2 of 6 slots until 10 s, when job 2 needs 5. So of the 4 free slots, one is extra."""

    HEAD = (job(1, width=2, estimate=10), job(2, width=5, estimate=10))

    def test_late_jobs_share_what_is_extra(self, policy: str) -> None:
        scheduler = core(policy, 6, *self.HEAD, *(job(number, width=1, estimate=20) for number in (3, 4)))
        assert front(scheduler) == {1: [0], 3: [0]}

    def test_what_ends_in_time_takes_nothing_of_it(self, policy: str) -> None:
        jobs = (job(3, width=1, estimate=10), job(4, width=1, estimate=20), job(5, width=1, estimate=20))
        assert front(core(policy, 6, *self.HEAD, *jobs)) == {1: [0], 3: [0], 4: [0]}

    def test_late_tasks_of_a_bag_take_what_is_extra_and_no_more(self, policy: str) -> None:
        scheduler = core(policy, 6, *self.HEAD, job(3, tasks=4, estimate=20), job(4, width=1, estimate=20))
        assert front(scheduler) == {1: [0], 3: [0]}

    def test_tasks_that_end_in_time_take_all_that_is_free(self, policy: str) -> None:
        scheduler = core(policy, 6, *self.HEAD, job(3, tasks=9, estimate=10))
        assert front(scheduler) == {1: [0], 3: [0, 1, 2, 3]}

    def test_a_short_task_starts_though_a_long_one_before_it_does_not(self, policy: str) -> None:
        head = job(1, width=2, estimate=10), job(2, width=6, estimate=10)
        assert front(core(policy, 6, *head, job(3, tasks=2, sizes=(3, 1), estimate=20))) == {1: [0], 3: [1]}

    def test_newcomers_find_what_is_left_of_it(self, policy: str) -> None:
        scheduler = core(policy, 6, *self.HEAD, job(3, width=1, estimate=20))
        submit(scheduler, 1, job(4, width=1, estimate=20), job(5, width=1, estimate=9))
        assert front(scheduler) == {1: [0], 3: [0], 5: [0]}


def pinned() -> Scheduler:
    """`reasy` at 4 s: job 1 has slots 0 and 1 until 10 s. Job 3 is the head, and waits behind it for slots 0 to 2."""
    jobs = job(1, width=2, estimate=10), job(2, width=2, estimate=4), job(3, width=3, estimate=30)
    scheduler = core("reasy", 4, *jobs)
    assert {attempt.job.id: attempt.slots for attempt in scheduler.state.background} == {3: 0b0111}
    scheduler.handle(TaskEnded(4 * SECOND, 2, 0, 1))
    assert scheduler.state.free == 0b1100
    return scheduler


def test_where_the_head_waits_for_its_own_slots_what_is_late_goes_elsewhere() -> None:
    scheduler = pinned()
    submit(scheduler, 4, *(job(number, width=1, estimate=99) for number in (4, 5)))
    assert front(scheduler) == {1: [0], 4: [0]}
    assert scheduler.state.jobs[4].slots == 0b1000
    submit(scheduler, 5, job(6, width=1, estimate=5))
    assert front(scheduler) == {1: [0], 4: [0], 6: [0]}
    for number in (1, 6):
        scheduler.handle(TaskEnded(10 * SECOND, number, 0, 1))
    submit(scheduler, 10)
    assert front(scheduler) == {3: [0], 4: [0]}


def test_what_waits_behind_a_head_in_the_background_is_told_why() -> None:
    scheduler = pinned()
    submit(scheduler, 4, job(4, width=3, estimate=99))
    assert scheduler.explain(4).reason is Reason.NO_ROOM_NOW


def test_late_tasks_take_all_slots_that_the_head_does_not_wait_for() -> None:
    """Task 1 of job 3 is the head and waits behind job 1 for slot 0. The three free slots are of no use to it."""
    bags = (job(number, tasks=2, estimate=lasts) for number, lasts in ((1, 4), (2, 10), (3, 20)))
    scheduler = core("reasy", 5, *bags)
    assert [(one.job.id, one.task, one.slots) for one in scheduler.state.background] == [(3, 1, 0b00001)]
    for number, task in ((1, 1), (2, 0), (2, 1)):
        scheduler.handle(TaskEnded(3 * SECOND, number, task, 1))
    submit(scheduler, 3, job(4, width=4, estimate=4), job(5, tasks=3, estimate=5))
    assert front(scheduler) == {1: [0], 3: [0], 5: [0, 1, 2]}


def test_what_is_late_and_wider_than_the_slots_elsewhere_waits() -> None:
    scheduler = pinned()
    submit(scheduler, 4, job(4, width=2, estimate=99))
    assert front(scheduler) == {1: [0]}


def test_what_ends_in_time_goes_elsewhere_too_and_uses_up_what_is_extra() -> None:
    """Job 4 has the slot for which the head does not wait. So job 5 has to wait, but does not delay job 6."""
    scheduler = pinned()
    submit(scheduler, 4, *(job(number, width=1, estimate=lasts) for number, lasts in ((4, 2), (5, 99), (6, 1))))
    assert front(scheduler) == {1: [0], 4: [0], 6: [0]}
    assert scheduler.state.jobs[4].slots == 0b1000


@pytest.mark.parametrize("policy", EVERY)
def test_no_task_of_a_workflow_goes_behind_before_an_earlier_one_that_finds_no_room(policy: str) -> None:
    """One place in the background is left. Task 0 needs two, and task 1 must not overtake it."""
    tasks = tuple(TaskSpec(estimate=10 * SECOND, cores=cores) for cores in (2, 1))
    jobs = job(1, width=2, estimate=90), job(2, width=1, estimate=5)
    scheduler = core(policy, 2, *jobs, job(3, graph=tasks, estimate=10))
    assert {attempt.job.id: attempt.tier for attempt in scheduler.state.attempts()} == {
        1: Tier.FOREGROUND,
        2: Tier.BACKGROUND,
    }


@pytest.mark.parametrize("policy", EVERY)
def test_the_busiest_processes_stand_where_nobody_is_behind_them(policy: str) -> None:
    """Job 3 has nothing before it on slots 2 and 3. The idlest process of job 2, which comes first, goes there."""
    jobs = job(1, width=2, estimate=1), job(2, width=3, estimate=99, cpu=(0.9, 0.5, 0.9))
    scheduler = core(policy, 4, *jobs, job(3, width=2, estimate=9, cpu=(0.2, 0.2)))
    assert {one.job.id: one.slots for one in scheduler.state.background} == {3: 0b1100}
    scheduler.handle(TaskEnded(SECOND, 1, 0, 1))
    submit(scheduler, 1)
    assert scheduler.state.jobs[2].attempts[0].seats == (0, 2, 1)


def test_who_goes_behind_its_own_slots_frees_room_for_who_waits_longest() -> None:
    """Job 3 is promised slots 1 and 2 at 10 s, then goes behind slots 0 and 2: now job 4 may take slot 2 until 100 s.

    It came before job 5, so it starts first, also in the round for job 5's arrival.
    """
    jobs = (job(1, width=1, estimate=100, cpu=(0.5,)), job(2, width=1, estimate=10, cpu=(1.0,)))
    scheduler = core("reasy", 3, *jobs, job(3, width=2, estimate=5), job(4, width=1, estimate=50))
    assert [(one.job.id, one.slots) for one in scheduler.state.background] == [(3, 0b101)]
    submit(scheduler, 1, job(5, width=1, estimate=50))
    assert front(scheduler) == {1: [0], 2: [0], 4: [0]}


@pytest.mark.parametrize("policy", EVERY)
def test_what_is_cancelled_behind_others_will_not_come_before_them(policy: str) -> None:
    """Job 3 needs the slots of job 1 until 100 s, and nothing else: job 4 may take the free slot meanwhile."""
    scheduler = core(policy, 3, job(1, width=2, estimate=100), job(2, width=2, estimate=5))
    assert [one.job.id for one in scheduler.state.background] == [2]
    scheduler.handle(JobCancelled(SECOND, 2))
    submit(scheduler, 1, job(3, width=3, estimate=5), job(4, width=1, estimate=50))
    assert front(scheduler) == {1: [0], 4: [0]}
    assert scheduler.state.jobs[3].promise == 100 * SECOND


@pytest.mark.parametrize("policy", ["keasy", "measy"])
def test_a_long_task_of_short_ones_stays_behind_others_until_the_head_has_started(policy: str) -> None:
    """Job 2 is promised three slots at 10 s; the first task of job 3 would take one of them until 50 s."""
    plan = (TaskSpec(50 * SECOND), *(TaskSpec(2 * SECOND, after=(0,)) for _ in range(6)))
    scheduler = core(policy, 3, job(1, width=2, estimate=10), job(2, width=3, estimate=60), job(3, graph=plan))
    assert [(one.job.id, one.slots) for one in scheduler.state.background] == [(3, 0b001)]
    submit(scheduler, 1, job(4, width=3))
    assert front(scheduler) == {1: [0]}
    assert not scheduler.state.background[0].ending


def test_a_head_that_fits_but_is_behind_taken_slots_does_not_hold_up_newcomers() -> None:
    """Algorithm 1, step 1, ends only where a job does not fit: job 3 does, but waits behind job 1 for slot 0."""
    jobs = job(1, width=1, estimate=10), job(2, width=2, estimate=4), job(3, width=2, estimate=30)
    scheduler = core("reasy", 3, *jobs)
    assert [(one.job.id, one.slots) for one in scheduler.state.background] == [(3, 0b011)]
    scheduler.handle(TaskEnded(4 * SECOND, 2, 0, 1))
    submit(scheduler, 4)
    submit(scheduler, 5, *(job(number, width=1, estimate=99) for number in (4, 5)))
    assert front(scheduler) == {1: [0], 4: [0], 5: [0]}


@pytest.mark.parametrize("policy", ["keasy", "measy"])
def test_a_task_that_needs_more_slots_of_another_node_takes_no_more_than_what_is_extra(policy: str) -> None:
    """The task of job 5 has one slot of node a in the background, and would need the four free ones of node b.

    Job 4 is the head. It gets five of the six slots at 10 s, when jobs 1 and 3 end. So one is extra.
    """
    scheduler = Scheduler(registry.find, f"{policy}:per_instant=true")
    scheduler.handle(NodeJoined(0, node("a", slots=1, cores=4)))
    scheduler.handle(NodeJoined(0, node("b", slots=5)))
    fronts = (job(number, width=width, estimate=lasts) for number, width, lasts in ((1, 1, 10), (2, 4, 4), (3, 1, 10)))
    submit(scheduler, 0, *fronts, job(4, width=5, estimate=10), job(5, graph=(TaskSpec(8 * SECOND, 4),)))
    assert {one.job.id: one.slots for one in scheduler.state.background} == {5: 0b000001, 4: 0b111110}
    scheduler.handle(TaskEnded(4 * SECOND, 2, 0, 1))
    submit(scheduler, 4)
    assert {one.job.id: one.ending for one in scheduler.state.background} == {4: False, 5: False}
    for number in (1, 3):
        scheduler.handle(TaskEnded(10 * SECOND, number, 0, 1))
    submit(scheduler, 10)
    assert front(scheduler) == {4: [0], 5: [0]}
