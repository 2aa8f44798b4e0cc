"""What a policy gives away of the free slots: on a large machine by runs, on a small one as a set, and always alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.model.instant import SECOND
from headway.model.job import Bag, Rigid
from headway.model.node import NodeSpec
from headway.model.seen import JobView, NodeView
from headway.model.slots import bounds, count, lowest, of_bounds, of_numbers, span
from headway.model.snapshot import LARGE, FreeSlots, Snapshot

SHIFT = LARGE - 64
"""On the large machine all slots are so much higher."""


def view_of(members: frozenset[int], shift: int) -> Snapshot:
    view = Snapshot()
    node = NodeView(NodeSpec("n", shift + 64), range(shift + 64), span(0, shift + 64), shift + 64)
    view.slot_nodes = [node] * node.size
    view.up = view.slots = node.slots
    view.free = of_numbers(sorted(members)) << shift
    return view


def rigid(number: int, width: int) -> JobView:
    return JobView(Rigid(number, width=width, estimate=SECOND), SECOND)


steps = st.lists(st.tuples(st.sampled_from(["take", "first", "these", "leave"]), st.integers(1, 9)), max_size=8)


def give(free: FreeSlots, step: str, number: int, job: int) -> int:
    """Give some away, as far as there are enough; which ones."""
    width = min(number, free.room)
    if not width:
        return 0
    if step == "take":
        return free.take(rigid(job, width))
    if step == "first":
        slots = free.first()
        free.take_first(JobView(Bag(job, tasks=number, estimate=SECOND), SECOND), number - 1, slots)
        return slots
    slots = free.slots ^ lowest(free.slots, free.room - width)  # the highest
    if step == "these":
        free.take_these(slots, width)
    else:
        free.leave(free.slots ^ slots)
    return slots


@given(st.frozensets(st.integers(0, 63)), steps)
def test_large_and_small_machines_give_the_same_slots(
    members: frozenset[int], given_away: list[tuple[str, int]]
) -> None:
    small, large = view_of(members, 0), view_of(members, SHIFT)
    assert large.is_large
    assert not small.is_large
    here, there = small.free_slots(), large.free_slots()
    before, gone = small.free, 0
    for job, (step, number) in enumerate(given_away):
        slots = give(here, step, number, job)
        assert give(there, step, number, job) == slots << SHIFT
        gone |= slots
        assert here.slots == before ^ gone
        assert there.slots == here.slots << SHIFT
        assert there.runs == bounds(there.slots)
        assert here.room == there.room == count(here.slots)
    assert (small.free, large.free) == (before, before << SHIFT), "the view stays as it is"
    assert not small.given
    for (job, _), told in large.given.items():
        assert told.were_free
        assert told.slots == of_bounds(told.bounds), job
        assert told.slots & gone << SHIFT == told.slots


@given(st.frozensets(st.integers(0, 63), min_size=1), st.integers(1, 64))
def test_runs_that_a_policy_chooses(members: frozenset[int], width: int) -> None:
    view = view_of(members, SHIFT)
    free, width = view.free_slots(), min(width, len(members))
    chosen = view.free ^ lowest(view.free, len(members) - width)
    assert free.take_runs(rigid(1, width), bounds(chosen)) == chosen
    assert (free.slots, free.room) == (view.free ^ chosen, len(members) - width)
    assert free.runs == bounds(free.slots)
    assert view.given.keys() == {(1, 0)}


def test_those_of_a_plan_that_came_to_nothing_are_free_in_the_next_round() -> None:
    view = view_of(frozenset(range(10)), SHIFT)
    view.free_slots().take(rigid(1, 4))
    free = view.free_slots()
    assert free.runs == [SHIFT, SHIFT + 10]
    assert (free.room, free.slots) == (10, span(SHIFT, 10))
    assert not view.given
