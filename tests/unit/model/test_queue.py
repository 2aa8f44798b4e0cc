"""Queues, compared with a twin that sorts and looks at every job."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model import queue as module
from headway.model.instant import NEVER
from headway.model.job import Bag, Kind, Rigid
from headway.model.queue import Queue, by_order
from headway.model.seen import JobView

TERMS = st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(0, 9), st.sampled_from(list(Kind)[:2]))
STEPS = st.lists(st.tuples(st.integers(-1, 9), st.sampled_from([-1, 0, 3, 6, 9, NEVER])), max_size=3)


def waiting(number: int, release: int, width: int, estimate: int, kind: Kind = Kind.RIGID) -> JobView:
    return JobView(Rigid(number, release, width=width) if kind is Kind.RIGID else Bag(number, release), estimate)


def by_estimate(job: JobView) -> tuple[int, tuple[int, int]]:
    return job.estimate, job.order


def fits(job: JobView, steps: list[tuple[int, int]]) -> bool:
    length = job.estimate if job.kind is Kind.RIGID else 0
    return any(job.width <= width and length <= duration for width, duration in steps)


@pytest.mark.parametrize("key", [by_order, by_estimate])
@given(
    terms=st.lists(TERMS, max_size=40),
    work=st.lists(st.tuples(st.integers(0, 39), STEPS, st.integers(0, 20)), min_size=8, max_size=30),
)
def test_every_job_that_fits_is_found_in_order(
    key: module.Key, terms: list[tuple[int, int, int, Kind]], work: list[tuple[int, list[tuple[int, int]], int]]
) -> None:
    """In blocks of 3 to 6 jobs. A block is read only if one of its jobs fits."""
    with patch.object(module, "BLOCK", 3), patch.object(module, "SHORT_QUEUE", 6):
        jobs = [waiting(number, *terms) for number, terms in enumerate(terms)]
        queue, twin = Queue(key, jobs[::2]), jobs[::2]
        for number, steps, begin in work:
            for job in jobs[number : number + 3]:
                if job in twin:
                    twin.remove(job)
                    queue.discard(job)
                    queue.discard(job)  # it is not there
                else:
                    twin.append(job)
                    queue.add(job)
            queue.check()
            twin.sort(key=key)
            assert queue == twin
            found, rest = list(queue.fitting(steps, begin)), twin[begin:]
            assert [job for job in found if fits(job, steps)] == [job for job in rest if fits(job, steps)]
            assert found == [job for job in rest if job in found]
            if not begin and len(twin) > 6 and str(module.__file__).endswith(".py"):  # else the sizes are fixed
                assert len(found) <= 6 * sum(fits(job, steps) for job in twin)
            queue.check()


def test_steps_may_be_lowered_on_the_way() -> None:
    """When slots are used up, jobs that no longer fit are no longer found."""
    jobs = [waiting(number, number, 1 + number % 2, 10) for number in range(2000)]
    queue, steps, found = Queue(by_order, jobs), [(1, NEVER)], 0
    for _ in queue.fitting(steps):
        found += 1
        steps[0] = (0, NEVER)
    assert found == module.BLOCK  # the rest of the current block


def test_a_long_queue_that_empties_and_fills_again() -> None:
    """Blocks are split, joined and dropped."""
    chance, queue = Random(7), Queue(by_estimate)
    jobs = [waiting(number, 0, chance.randint(1, 8), chance.randint(0, 50)) for number in range(1500)]
    for few in (1500, 40, 900, 300, 0):
        for job in chance.sample(jobs, len(jobs)):
            if len(queue) < few and job not in queue:
                queue.add(job)
            elif len(queue) > few:
                queue.discard(job)
            if not job.id % 50:
                assert {*queue.fitting([(1, 3)])} >= {job for job in queue if job.width == 1 and job.estimate <= 3}
                queue.check()
        assert len(queue) == few
