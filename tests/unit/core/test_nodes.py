"""Nodes join, drain, leave and are resized while jobs run: what starts where, what is lost, what is kept."""

from __future__ import annotations

import msgspec
import pytest

from headway.core.lifecycle import LOSSES_MAX
from headway.core.nodes import slot_statuses
from headway.core.record import StateRecord, fleet_of
from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Conclude, JobStatus, Kill, Launch
from headway.model.events import (
    Event,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeResized,
    NodeUp,
    Outcome,
    TaskEnded,
    Woke,
)
from headway.model.job import JobSpec, TaskSpec
from headway.model.node import SlotStatus
from headway.model.plan import Reason
from headway.policies import registry
from headway.testing import job, node
from headway.wire.reading import any_form

FREE, OCCUPIED, BUSY, DOWN = SlotStatus.AVAILABLE, SlotStatus.OCCUPIED, SlotStatus.BUSY, SlotStatus.DOWN


class Core:
    """A scheduler that is checked after each event, and copies, restored before the event, that must answer alike.

    The second one begins with the same fleet as the first, after that has handled the event.
    """

    def __init__(self, *slots: int, policy: str = "fcfs", read_ahead: int = 0) -> None:
        self.scheduler = Scheduler(registry.find, policy)
        for name, count in zip("abc", slots, strict=False):
            self.feed(NodeJoined(0, node(name, slots=count, read_ahead=read_ahead)))

    def feed(self, event: Event) -> list[Action]:
        stored = msgspec.json.encode(self.scheduler.dump())
        record = msgspec.json.decode(stored, type=StateRecord, dec_hook=any_form)
        fleet = fleet_of(record)
        actions = self.scheduler.handle(event)
        self.scheduler.check()
        for _ in range(2):
            twin = Scheduler.restore(record, registry.find, fleet)
            twin.check()
            assert twin.handle(event) == actions
            assert twin.dump() == self.scheduler.dump()
        return [action for action in actions if isinstance(action, Launch | Kill | Conclude)]

    def submit(self, *jobs: JobSpec) -> list[Action]:
        return [action for spec in jobs for action in self.feed(JobSubmitted(0, spec))]

    def end(self, job: int, task: int = 0, attempt: int = 1, outcome: Outcome = Outcome.SUCCEEDED) -> list[Action]:
        return self.feed(TaskEnded(1, job, task, attempt, outcome))

    def wake(self) -> list[Action]:
        return self.feed(Woke(1))

    def resize(self, slots: int, *, name: str = "a", at_once: bool = False) -> list[Action]:
        return self.feed(NodeResized(1, name, slots, at_once))

    @property
    def running(self) -> list[tuple[int, int, int]]:
        return sorted((a.job.id, a.task, a.slots) for a in self.scheduler.state.attempts())

    @property
    def statuses(self) -> list[SlotStatus]:
        return slot_statuses(self.scheduler.state)

    @property
    def nodes(self) -> dict[str, int]:
        return {name: view.spec.slots for name, view in self.scheduler.state.nodes.items()}


class TestResized:
    def test_slots_that_come_are_used_at_once(self) -> None:
        core = Core(1)
        core.submit(job(1, tasks=3))
        assert core.resize(3) == [Launch(1, 1, 1, 0b010), Launch(1, 2, 1, 0b100)]
        assert core.nodes == {"a": 3}

    def test_slots_that_come_have_numbers_that_no_other_node_has(self) -> None:
        core = Core(1, 2)
        core.submit(job(1, tasks=5))
        assert core.resize(3) == [Launch(1, 3, 1, 0b01000), Launch(1, 4, 1, 0b10000)]
        view = core.scheduler.state.nodes["a"]
        assert [view.index_of(slot) for slot in (0, 3, 4)] == [0, 1, 2]

    def test_idle_slots_that_go_are_gone(self) -> None:
        core = Core(3)
        assert core.resize(1) == []
        assert core.statuses == [FREE, DOWN, DOWN]
        core.submit(job(1, tasks=2))
        assert core.running == [(1, 0, 0b001)]

    def test_busy_slots_that_go_finish_what_they_run_and_start_nothing_more(self) -> None:
        core = Core(2)
        core.submit(job(1, tasks=4))
        assert core.resize(1) == []
        assert core.statuses == [BUSY, BUSY]
        assert core.end(1, 1) == []
        assert core.statuses == [BUSY, DOWN]
        assert core.end(1, 0) == [Launch(1, 2, 1, 0b01)]

    def test_slots_that_go_at_once_lose_what_runs_there(self) -> None:
        core = Core(3)
        core.submit(job(1, tasks=3))
        assert core.resize(1, at_once=True) == []
        assert core.statuses == [BUSY, DOWN, DOWN]
        view = core.scheduler.state.jobs[1]
        assert (view.again, view.losses, view.kills) == ([1, 2], {}, 0)
        assert core.end(1, 1) == [], "the answer of a task that was lost counts no more"
        assert core.end(1, 0) == [Launch(1, 1, 2, 0b001)]

    def test_a_slot_that_comes_back_while_it_is_busy_keeps_what_it_runs(self) -> None:
        core = Core(2)
        core.submit(job(1, tasks=4))
        core.resize(1)
        assert core.resize(3) == [Launch(1, 2, 1, 0b100)]
        assert core.statuses == [BUSY, BUSY, BUSY]
        assert core.end(1, 1) == [Launch(1, 3, 1, 0b010)]

    def test_a_slot_that_comes_back_has_its_old_number(self) -> None:
        core = Core(2, 1)
        core.resize(1)
        core.resize(2)
        assert list(core.scheduler.state.nodes["a"].places) == [0, 1]
        assert core.statuses == [FREE, FREE, FREE]

    def test_a_node_that_is_down_comes_back_of_its_new_size(self) -> None:
        core = Core(2, 1)
        core.feed(NodeDown(1, "a"))
        core.resize(3)
        assert core.statuses == [DOWN, DOWN, FREE, DOWN]
        core.feed(NodeUp(2, "a"))
        assert core.statuses == [FREE] * 4
        core.feed(NodeDown(3, "a"))
        core.resize(1)
        core.feed(NodeUp(4, "a"))
        assert core.statuses == [FREE, DOWN, FREE, DOWN]

    def test_a_rigid_job_that_holds_a_slot_that_goes_and_waits_for_others_holds_none_any_more(self) -> None:
        core = Core(3, policy="priority:reserve=1")
        core.submit(job(1, tasks=1))
        assert core.wake() == [Launch(1, 0, 1, 0b001)]
        core.submit(job(2, width=3, priority=9))
        core.wake()
        assert core.statuses == [BUSY, OCCUPIED, OCCUPIED]
        core.resize(2)
        core.wake()
        assert core.statuses == [BUSY, FREE, DOWN]

    @pytest.mark.parametrize("at_once", [False, True])
    def test_a_rigid_job_cut_by_it(self, at_once: bool) -> None:
        core = Core(3)
        core.submit(job(1, width=3))
        if not at_once:
            assert core.resize(2) == []
            assert core.statuses == [BUSY] * 3
            assert core.end(1) == [Conclude(1, JobStatus.SUCCEEDED)]
            assert core.statuses == [FREE, FREE, DOWN]
            return
        assert core.resize(2, at_once=True) == [Kill(1, 0, 1)]
        assert core.end(1, outcome=Outcome.KILLED) == []
        assert core.scheduler.explain(1).reason is Reason.NEVER_FITS
        assert core.resize(3) == [Launch(1, 0, 2, 0b111)]

    def test_what_is_queued_behind_a_task_on_a_slot_that_goes_is_called_back(self) -> None:
        core = Core(2, read_ahead=2, policy="priority")
        core.submit(job(1, tasks=40))
        core.wake()
        for task in range(4):  # short tasks: from now on slots get their next ones ahead of their turn
            core.end(1, task)
        ahead = [a for a in core.scheduler.state.attempts() if a.queued and a.slots == 0b10]
        assert ahead
        assert core.resize(1) == [Kill(1, a.task, a.number) for a in ahead]

    @pytest.mark.parametrize("slots", [0, -1, 2])
    def test_a_size_that_is_none_or_the_same_changes_nothing(self, slots: int) -> None:
        core = Core(2)
        assert core.resize(slots) == []
        assert core.scheduler.ignored == 1

    def test_an_unknown_node_is_let_be(self) -> None:
        core = Core(2)
        core.resize(3, name="x")
        assert (core.scheduler.ignored, core.nodes) == (1, {"a": 2})


class TestDrained:
    def test_an_idle_node_leaves_at_once(self) -> None:
        core = Core(1, 1)
        core.feed(NodeDrained(1, "a"))
        assert core.nodes == {"b": 1}

    def test_a_busy_one_leaves_with_its_last_task_and_what_waits_goes_elsewhere(self) -> None:
        core = Core(2, 1)
        core.submit(job(1, tasks=6))
        assert core.feed(NodeDrained(1, "a")) == []
        assert core.end(1, 0) == []
        assert core.end(1, 2) == [Launch(1, 3, 1, 0b100)]
        assert core.nodes == {"a": 2, "b": 1}
        assert core.end(1, 1) == []
        assert core.nodes == {"b": 1}

    def test_one_that_dies_has_left_by_that_and_nothing_is_lost(self) -> None:
        core = Core(1, 1)
        core.submit(job(1, tasks=2))
        core.feed(NodeDrained(1, "a"))
        assert core.feed(NodeDown(1, "a")) == []
        assert core.nodes == {"b": 1}
        assert core.end(1, 1) == [Launch(1, 0, 2, 0b10)]

    def test_one_that_was_made_smaller_before_leaves_with_the_last_task_on_any_slot(self) -> None:
        core = Core(2, 1)
        core.submit(job(1, tasks=3))
        core.resize(1)
        core.feed(NodeDrained(1, "a"))
        core.end(1, 0)
        assert core.nodes == {"a": 1, "b": 1}
        core.end(1, 1)
        assert core.nodes == {"b": 1}


class TestLeft:
    def test_a_task_is_not_given_up_however_often_its_node_is_removed(self) -> None:
        core = Core(1)
        core.submit(job(1))
        for attempt in range(1, 2 * LOSSES_MAX):
            core.feed(NodeLeft(attempt, "a"))
            assert core.feed(NodeJoined(attempt, node("a", slots=1))) == [Launch(1, 0, attempt + 1, 0b1)]

    def test_what_ran_there_is_redone_elsewhere(self) -> None:
        core = Core(1, 1)
        core.submit(job(1, tasks=2))
        assert core.feed(NodeLeft(1, "a")) == []
        assert core.end(1, 1) == [Launch(1, 0, 2, 0b10)]
        assert core.end(1, 0, 2) == [Conclude(1, JobStatus.SUCCEEDED)]

    def test_a_new_node_of_its_size_takes_over_the_numbers_of_its_slots(self) -> None:
        core = Core(2, 1)
        core.feed(NodeLeft(1, "a"))
        core.feed(NodeJoined(2, node("c", slots=2, speed=2.0)))
        view = core.scheduler.state.nodes["c"]
        assert list(view.places) == [0, 1]
        assert core.scheduler.state.speeds == [2.0, 2.0, 1.0]

    def test_a_job_that_nothing_is_wide_enough_for_any_more_says_so_and_waits(self) -> None:
        core = Core(2, 2)
        plan = (TaskSpec(1), TaskSpec(1, 2, (0,)))
        core.feed(NodeResized(0, "b", 1))
        core.submit(job(1, width=3), job(2, width=3), job(3, graph=plan), job(4, tasks=1))
        core.feed(NodeLeft(1, "a"))
        core.end(1, outcome=Outcome.KILLED)
        for number in (1, 2, 3):
            assert core.scheduler.flaw_of_fit(core.scheduler.state.jobs[number].spec)
            assert core.scheduler.explain(number).reason is Reason.NEVER_FITS
        assert core.scheduler.flaw_of_fit(job(9, tasks=99)) is None
        core.feed(NodeJoined(2, node("c", slots=4)))
        assert core.scheduler.explain(2).reason is not Reason.NEVER_FITS


def test_nodes_are_alike_again_when_the_odd_one_has_left() -> None:
    """By speed or by kind. Rounds are quick if all nodes are alike."""
    for odd in (node("odd", speed=2.0), node("odd", kind="old")):
        scheduler = Scheduler(registry.find, "fcfs")
        scheduler.handle(NodeJoined(0, node("a")))
        assert scheduler.state.uniform
        scheduler.handle(NodeJoined(0, odd))
        assert not scheduler.state.uniform
        scheduler.handle(NodeLeft(1, "odd"))
        assert scheduler.state.uniform
        scheduler.check()


def test_nodes_are_alike_again_when_the_one_that_is_not_has_gone() -> None:
    """If tasks take equally long everywhere, rounds cost less. The check of the state includes this."""
    core = Core(2)
    core.feed(NodeJoined(0, node("fast", slots=2, speed=2.0)))
    assert not core.scheduler.state.uniform
    core.feed(NodeLeft(1, "fast"))
    assert core.scheduler.state.uniform
