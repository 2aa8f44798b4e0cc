"""What policies share that give slots to tasks."""

from __future__ import annotations

from heapq import heapify
from random import Random

import pytest

from headway.model.job import TaskSpec, Workflow
from headway.model.seen import JobView
from headway.policies.place import next_task, ready_tasks


@pytest.mark.parametrize("seed", range(20))
def test_ready_tasks_are_those_to_be_redone_by_number_and_then_fresh_ones(seed: int) -> None:
    chance = Random(seed)
    job = JobView(Workflow(1, graph=(TaskSpec(1),) * 100), 1)
    job.again = chance.sample(range(60), chance.randint(0, 60))
    heapify(job.again)
    job.fresh = chance.randint(60, 100)
    before, every = list(job.again), [*sorted(job.again), *range(job.fresh, 100)]
    for most in (0, 1, 5, 60, 100, 1000):
        assert list(ready_tasks(job, most)) == every[:most]
    assert job.again == before, "it is only looked at"
    if every:
        assert next_task(job) == every[0]
