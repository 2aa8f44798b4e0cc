"""`easy` and similar policies: which tasks of bags start beside a promise, and the reasons for jobs that never fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headway import NodeSpec, simulate, workload_of
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
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


def by_hand(jobs: list[tuple[int, int, int, int]], slots: int, key: Callable[[int], tuple[int, int]]) -> list[int]:
    """When each job starts under EASY, by a loop that looks at everything anew after each event.

    Args:
        jobs: release, width, run time, estimate; in order of release.
        key: the order in which those behind the head are looked at.
    """
    starts: dict[int, int] = {}
    ended: set[int] = set()
    come = 0
    while len(ended) < len(jobs):
        ends = {
            starts[number] + jobs[number][2]: number for number in sorted(starts, reverse=True) if number not in ended
        }
        now = min([*ends, *(jobs[number][0] for number in range(come, min(come + 1, len(jobs))))])
        if now in ends:
            ended.add(ends[now])
        else:
            come += 1
        queue = [number for number in range(come) if number not in starts]
        free = slots - sum(jobs[number][1] for number in starts if number not in ended)
        while queue and jobs[queue[0]][1] <= free:
            starts[queue[0]] = now
            free -= jobs[queue.pop(0)][1]
        if not queue:
            continue
        left = sorted((max(now, starts[one] + jobs[one][3]), jobs[one][1]) for one in starts if one not in ended)
        available, shadow = free, now
        for end, width in left:
            if available >= jobs[queue[0]][1] and end > shadow:
                break
            available, shadow = available + width, end
        extra = available - jobs[queue[0]][1]
        for number in sorted(queue[1:], key=key):
            _, width, _, estimate = jobs[number]
            if width <= free and (now + estimate <= shadow or width <= extra):
                extra -= width if now + estimate > shadow else 0
                free -= width
                starts[number] = now
    return [starts[number] for number in range(len(jobs))]


@pytest.mark.parametrize("backfill", ["", "release", "shortest", "widest"])
@pytest.mark.parametrize("seed", range(10))
def test_jobs_behind_the_head_go_in_the_order_of_backfill(seed: int, backfill: str) -> None:
    rng = np.random.default_rng(seed)
    count = 150  # so that the queue gets long
    release = np.cumsum(rng.integers(1, 20, count)).tolist()
    width, runtime = rng.integers(1, 9, count).tolist(), rng.integers(1, 200, count).tolist()
    estimate = [took + int(rng.integers(0, 100)) for took in runtime]
    jobs = list(zip(release, width, runtime, estimate, strict=True))
    keys: dict[str, Callable[[int], tuple[int, int]]] = {
        "shortest": lambda number: (estimate[number], number),
        "widest": lambda number: (-width[number], number),
    }
    log = workload_of(kind=[1] * count, release=release, width=width, runtime=runtime, estimate=estimate)
    found = simulate(log, [NodeSpec("n", slots=10)], f"easy:backfill={backfill}" if backfill else "easy")
    assert found.seconds("start").astype(int).tolist() == by_hand(
        jobs, 10, keys.get(backfill, lambda number: (release[number], number))
    )


def test_an_order_of_backfilling_that_is_none_or_has_no_use_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"backfill of policy easy is 'short'; allowed: release, shortest"):
        registry.find("easy:backfill=short")
    with pytest.raises(InvalidInput, match="none with depth=inf"):
        registry.find("easy:depth=inf,backfill=shortest")
