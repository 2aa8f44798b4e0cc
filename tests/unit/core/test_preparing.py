"""The jobs are sorted for a policy before it is chosen, while the core goes on."""

from __future__ import annotations

from random import Random

import pytest

from headway.core import sorting
from headway.core.scheduler import Scheduler
from headway.model.actions import Launch
from headway.model.events import (
    Event,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeJoined,
    PolicyChosen,
    TaskEnded,
    Woke,
)
from headway.model.outcome import Outcome
from headway.model.queue import Queue
from headway.policies.order import by_due, by_priority
from headway.policies.registry import find
from headway.testing import job, node


class Twins:
    """Two schedulers that get the same events. One has the jobs sorted for its next policy, the other has not."""

    def __init__(self, policy: str) -> None:
        self.one, self.other = Scheduler(find, policy), Scheduler(find, policy)
        self.running: list[Launch] = []
        self.feed(NodeJoined(0, node("a", slots=4)))

    def feed(self, event: Event) -> None:
        """Let both handle it, and wake them if they want it now; they want the same."""
        actions = self.one.handle(event)
        assert actions == self.other.handle(event)
        self.running += [action for action in actions if isinstance(action, Launch)]
        if self.one.wake_at <= event.at:
            self.feed(Woke(event.at))

    def something(self, random: Random, number: int, now: int) -> None:
        """One of the events that change an order."""
        what = random.choice(("comes", "comes", "is held", "ends", "is cancelled", "changes"))
        if what in ("comes", "is held"):
            release = now / 1e6 + (what == "is held") * random.choice((0.00001, 0.0001))
            due = random.choice((None, random.randrange(100)))
            self.feed(JobSubmitted(now, job(number, due=due, priority=random.randrange(3), release=release)))
        elif what == "ends" and self.running:
            ended = self.running.pop(random.randrange(len(self.running)))
            self.feed(TaskEnded(now, ended.job, ended.task, ended.attempt, Outcome.SUCCEEDED))
        elif what == "is cancelled":
            self.feed(JobCancelled(now, random.randrange(number)))
        else:
            self.feed(JobChanged(now, random.randrange(number), float(random.randrange(3)), random.randrange(10**8)))


@pytest.mark.parametrize("policy", ["tempo", "deadline", "easy:order=due", "workload"])
@pytest.mark.parametrize("before", ["fcfs", "tempo:strict=false"])
def test_a_policy_finds_the_order_that_it_would_make(before: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "SORTED_AT_ONCE", 7)
    monkeypatch.setattr(sorting, "ADDED_AT_ONCE", 3)
    for seed in range(5):
        random, twins, now = Random(seed), Twins(before), 10
        for number in range(1, 60):
            twins.something(random, number, now := now + random.randrange(3))
        number = 60
        for _ in twins.one.prepare(policy):
            for _ in range(random.randrange(4)):
                twins.something(random, number, now := now + random.randrange(3))
                number += 1
            twins.one.check()
        twins.one.check()
        kept = {**twins.one.state.orders, **twins.one.state.queues}
        twins.feed(PolicyChosen(now, policy))
        found = {**twins.one.state.orders, **twins.one.state.queues}
        assert {key for key in found if found[key] is kept.get(key)} == found.keys()  # nothing was sorted again
        for later in range(number, number + 20):
            twins.something(random, later, now := now + random.randrange(3))
        assert twins.one.dump() == twins.other.dump()
        twins.one.check()
        twins.other.check()


def test_what_no_choice_followed_is_forgotten_with_the_next() -> None:
    scheduler = Scheduler(find, "fcfs")
    for _ in scheduler.prepare("tempo"):
        pass
    assert by_due in scheduler.state.orders
    for _ in scheduler.prepare("fcfs"):
        pass
    scheduler.handle(PolicyChosen(1, "fcfs"))
    assert not scheduler.state.orders


def test_a_preparation_that_is_given_up_leaves_nothing() -> None:
    scheduler = Scheduler(find, "fcfs")
    scheduler.handle(JobSubmitted(1, job(1)))
    under_way = scheduler.prepare("tempo")
    next(under_way)
    assert len(scheduler.state.orders) == 1
    del under_way
    assert not scheduler.state.orders


def test_an_order_that_was_asked_for_meanwhile_stays() -> None:
    scheduler = Scheduler(find, "fcfs")
    scheduler.handle(JobSubmitted(1, job(1)))
    asked: Queue | None = None
    for _ in scheduler.prepare("tempo"):
        asked = scheduler.state.in_order(by_priority) if asked is None else asked
    assert scheduler.state.orders[by_priority] is asked


def test_policies_of_others_are_not_asked_beforehand() -> None:
    def never(text: str) -> object:
        class Theirs:
            per_instant = task_rounds = False

            def __call__(self, view: object) -> object:
                raise AssertionError("it was asked")

        return Theirs()

    scheduler = Scheduler(find, "fcfs")
    scheduler._policies = never  # type: ignore[assignment]
    assert list(scheduler.prepare("theirs")) == []
