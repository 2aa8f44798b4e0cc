"""List scheduling of many equal tasks at a time against one task at a time."""

from __future__ import annotations

import heapq
import math
from random import Random

import pytest

from headway.model.instant import NEVER
from headway.model.job import PenaltyShape
from headway.policies.listing import SlotTimes, ends, penalties, total_penalty
from headway.policies.sequence import SEQUENCES, Load


@pytest.mark.parametrize("seed", range(20))
def test_each_task_goes_to_the_slot_that_is_free_first(seed: int) -> None:
    chance = Random(seed)
    for _ in range(50):
        free = [chance.randint(0, 30) for _ in range(chance.randint(1, 6))]
        loads = [
            Load(chance.randint(0, chance.choice([3, 60])), chance.randint(0, 20), until=chance.randint(0, 20))
            for _ in range(chance.randint(1, 8))
        ]
        heap, wanted = sorted(free), []
        for load in loads:
            last = load.until
            for _ in range(load.tasks):
                last = max(last, heapq.heappushpop(heap, heap[0] + load.run_time) + load.run_time)
            wanted.append(last)
        found = ends(loads, range(len(loads)), SlotTimes([(at, 1) for at in free]))
        assert found == wanted


def test_a_million_tasks_cost_no_more_than_a_few() -> None:
    free = SlotTimes([(at, 1) for at in range(10)])
    assert free.run(1_000_000, 7) == 700_001 + 7  # two start at 700,001: from 1 and from 8 on
    assert free.copy().equals(free)
    assert sum(count for _, count in free.items()) == 10


@pytest.mark.parametrize("seed", range(3))
def test_wide_jobs_by_the_number_of_slots(seed: int) -> None:
    """c_B(m) of jobs wider than there are slots, which run in rounds, against one task at a time."""
    chance = Random(seed)
    loads = [
        Load(chance.randint(1, 90), chance.randint(1, 40), chance.randint(0, 500), float(chance.randint(0, 9)))
        for _ in range(12)
    ]
    for slots, (cost, last) in enumerate(penalties(loads, 40, SEQUENCES["greedy"], 3)[1:], 1):
        heap, done = [3] * slots, [0] * len(loads)
        for place in SEQUENCES["greedy"](loads, slots, 3):
            for _ in range(loads[place].tasks):
                end = heap[0] + loads[place].run_time
                heapq.heapreplace(heap, end)
                done[place] = max(done[place], end)
        assert (cost, last) == (total_penalty(loads, done), max(done))


def test_no_slots() -> None:
    with pytest.raises(ValueError, match="1 tasks cannot run on 0 slots"):
        ends([Load(1, 5)], [0], SlotTimes([(0, 0)]))
    with pytest.raises(ValueError, match="0 tasks cannot run on 1 slots"):
        SlotTimes([(0, 1)]).run(0, 5)


def test_penalties_have_their_shapes() -> None:
    second = 1_000_000
    loads = [Load(1, 9 * second, 0, 2.0, shape) for shape in PenaltyShape]
    found = ends(loads, range(3), SlotTimes([(0, 3)]))
    assert total_penalty(loads, found) == 2 * (9 + 3 + 81)
    assert total_penalty([Load(1, 5, NEVER, 9.0)], [10**12]) == 0


def test_penalties_by_the_number_of_slots() -> None:
    assert penalties([], 2, SEQUENCES["edf"], now=7) == [(0, 7)] * 3
    assert penalties([Load(0, 5, 10, 1.0, until=2_000_010)], 1, SEQUENCES["edf"]) == [(2.0, 2_000_010)] * 2
    found = penalties([Load(2, 5_000_000, 5_000_000), Load(1, 1, 0, 0.0)], 4, SEQUENCES["edf"])
    assert found[0] == (math.inf, NEVER)
    assert [cost for cost, _ in found[1:]] == [5.000001, 0.000001, 0.0, 0.0]
