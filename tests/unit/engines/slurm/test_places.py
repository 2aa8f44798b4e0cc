"""Slots of nodes, and who waits for them."""

from __future__ import annotations

from headway.engines.slurm.places import SlotQueues

A, B, C, D = ((1, task, 1) for task in range(4))


def test_what_is_free_is_taken_and_what_is_held_is_waited_for() -> None:
    places = SlotQueues()
    assert places.ask(A, [("n", 0), ("n", 1)])
    assert places.ask(B, [("m", 0)])
    assert not places.ask(C, [("n", 1)])
    assert places.waits(C)
    assert places.behind() == [(C, A)]
    assert list(places.next_after(A)) == [(C, ("n", 1))]
    assert places.holder(("n", 1)) == A
    assert places.leave(A) == [C]
    assert places.leave(C) == []


def test_none_is_taken_that_an_earlier_one_waits_for() -> None:
    places = SlotQueues()
    assert places.ask(A, [("n", 0)])
    assert not places.ask(B, [("n", 0), ("n", 1)])
    assert not places.ask(C, [("n", 1)])
    assert places.ask(D, [("n", 2)])
    assert list(places.next_after(A)) == [], "the one that waits wants more"
    assert places.behind() == [], "nobody has the slot that the last one waits for"
    assert places.leave(A) == [B]
    assert places.leave(B) == [C]


def test_what_waits_may_leave() -> None:
    places = SlotQueues()
    assert places.ask(A, [("n", 0)])
    assert not places.ask(B, [("n", 0), ("n", 1)])
    assert not places.ask(C, [("n", 1)])
    assert places.leave(B) == [C]
    assert places.leave(A) == []


def test_the_next_of_several_that_wait_for_a_place_is_the_one_that_came_first() -> None:
    places = SlotQueues()
    assert places.ask(A, [("n", 0)])
    assert not places.ask(B, [("n", 0)])
    assert not places.ask(C, [("n", 0)])
    assert list(places.next_after(A)) == [(B, ("n", 0))]
    assert list(places.next_after(B)) == []
    assert places.leave(A) == [B]
    assert list(places.next_after(B)) == [(C, ("n", 0))]
    assert places.leave(C) == []
    assert list(places.next_after(B)) == []
    assert places.leave(B) == []
    assert places.leave(B) == []
