"""Reading ahead: launching short tasks behind others on their slot changes when things happen, never what happens."""

from __future__ import annotations

import random
from collections import Counter, deque
from functools import cache

import msgspec
import pytest

from headway.core.lifecycle import RULES, SHORTER_MAX
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Conclude, Kill, Launch, Settle
from headway.model.events import (
    Event,
    JobCancelled,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeUp,
    Outcome,
    PolicyChosen,
    RulesChosen,
    TaskEnded,
    Woke,
)
from headway.model.job import JobSpec
from headway.model.node import SHORT_TASK
from headway.model.slots import numbers
from headway.policies.registry import find
from headway.testing import job, node
from headway.wire.reading import any_form

from ..effort import seeds

MILLISECOND = 1000
DEPTH = 3

Key = tuple[int, int, int]


class Slots:
    """An engine that runs what it gets, in order on each slot."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[Key]] = {}
        self.concluded: Counter[int] = Counter()
        self.settled: Counter[tuple[int, int]] = Counter()
        self.deepest = 0
        self.to_kill: list[Key] = []

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Launch():
                    (slot,) = numbers(action.slots)
                    queue = self.queues.setdefault(slot, deque())
                    queue.append((action.job, action.task, action.attempt))
                    self.deepest = max(self.deepest, len(queue))
                case Kill():
                    self.to_kill.append((action.job, action.task, action.attempt))
                case Settle():
                    self.settled[action.job, action.task] += 1
                case Conclude():
                    self.concluded[action.job] += 1

    def next_end(self, chance: random.Random, at: int) -> TaskEnded | None:
        """What ends next: an attempt that is being killed, or the first of a slot."""
        while self.to_kill:
            key = self.to_kill.pop()
            for queue in self.queues.values():
                if key in queue:
                    queue.remove(key)
                    return TaskEnded(at, *key, Outcome.KILLED)
        busy = [slot for slot, queue in self.queues.items() if queue]
        if not busy:
            return None
        key = self.queues[chance.choice(busy)].popleft()
        outcome = Outcome.SUCCEEDED if chance.random() < 0.95 else Outcome.RAISED
        return TaskEnded(at, *key, outcome)

    def lose(self, slots: range) -> None:
        for slot in slots:
            self.queues.pop(slot, None)


@cache
def run(seed: int, *, calm: bool = False, rules: int = RULES) -> tuple[Slots, Scheduler, list[JobSpec], list[Event]]:
    """Bags of short tasks under a policy that moves slots between them, with cancels, outages and a drain."""
    chance = random.Random(seed)
    scheduler, engine, jobs, told = Scheduler(find, "deadline"), Slots(), list[JobSpec](), list[Event]()

    def feed(event: Event) -> None:
        told.append(event)
        engine.perform(scheduler.handle(event))
        scheduler.check()

    at = 0
    if rules != RULES:
        feed(RulesChosen(at, rules))
    for name in ("a", "b"):
        feed(NodeJoined(at, node(name, slots=2, read_ahead=DEPTH)))
    for step in range(400):
        at += chance.randrange(MILLISECOND)
        luck = chance.random()
        if step < 300 and luck < 0.05:
            jobs.append(job(len(jobs), tasks=chance.randrange(1, 40), priority=chance.randrange(5), retries=1))
            feed(JobSubmitted(at, jobs[-1]))
        elif luck < 0.06 and jobs and not calm:
            feed(JobCancelled(at, chance.choice(jobs).id))
        elif luck < 0.07 and not calm:
            engine.lose(range(2))
            feed(NodeDown(at, "a"))
        elif luck < 0.09 and not calm:
            engine.lose(range(2))  # a node that is back no longer runs what it ran
            feed(NodeUp(at, "a"))
        elif luck < 0.1 and step == 250 and not calm:
            feed(NodeDrained(at, "b"))
        elif luck < 0.11:
            feed(PolicyChosen(at, chance.choice(["deadline", "edf", "priority", "proportion"])))
        elif (ended := engine.next_end(chance, at)) is not None:
            feed(ended)
        feed(Woke(at))
    if not calm:
        engine.lose(range(2))
        feed(NodeUp(at, "a"))
    while (ended := engine.next_end(chance, at := at + 1)) is not None or scheduler.state.round_due:
        if ended is not None:
            feed(ended)
        feed(Woke(at))
    return engine, scheduler, jobs, told


@pytest.mark.parametrize("seed", seeds(range(12), range(12, 400)))
def test_every_task_is_settled_once_and_every_job_concluded_once(seed: int) -> None:
    engine, scheduler, jobs, told = run(seed)
    cancelled = {event.job for event in told if isinstance(event, JobCancelled)}
    assert not scheduler.state.jobs
    assert engine.concluded == Counter(submitted.id for submitted in jobs)
    assert max(engine.settled.values()) == 1
    for submitted in jobs:
        if submitted.id not in cancelled:
            assert sum(1 for known, _ in engine.settled if known == submitted.id) == submitted.tasks


def test_no_slot_is_given_more_than_its_task_and_what_may_be_read_ahead() -> None:
    deepest = [run(seed, calm=True, rules=2)[0].deepest for seed in range(5)]
    assert max(deepest) == 1 + DEPTH
    deepest = [run(seed, calm=True)[0].deepest for seed in range(5)]
    assert 1 + DEPTH < max(deepest) <= 1 + SHORTER_MAX * DEPTH


@pytest.mark.parametrize(
    ("milliseconds", "behind"), [(0.5, 24), (2.5, 24), (3, 18), (5, 12), (11, 3), (19.9, 3), (20, 0), (1000, 0)]
)
@pytest.mark.parametrize("times", [1, 100])
def test_the_shorter_the_tasks_the_more_are_read_ahead(milliseconds: float, behind: int, times: int) -> None:
    """Which ones are short is a fact of the node: the longer a launch takes, the longer they are."""
    scheduler, engine = Scheduler(find, "deadline"), Slots()
    milliseconds *= times
    where = node("a", slots=1, read_ahead=DEPTH, short=times * SHORT_TASK)
    events: list[Event] = [NodeJoined(0, where), JobSubmitted(0, job(1, tasks=100))]
    for number in range(7):
        at = round(number * milliseconds * MILLISECOND)
        events += [TaskEnded(at, 1, number - 1, 1, Outcome.SUCCEEDED)] if number else []
        events.append(Woke(at))
    for event in events:
        engine.perform(scheduler.handle(event))
    assert len(scheduler.state.ahead.get(0, ())) == behind


def test_each_slot_reads_ahead_no_more_than_its_share_of_what_is_left() -> None:
    scheduler, engine = Scheduler(find, "deadline"), Slots()
    for event in (NodeJoined(0, node("a", slots=4, read_ahead=DEPTH)), JobSubmitted(0, job(1, tasks=44)), Woke(0)):
        engine.perform(scheduler.handle(event))
    for task in range(5):
        engine.perform(scheduler.handle(TaskEnded(100 * task, 1, task, 1, Outcome.SUCCEEDED)))
    left = 44 - 5 - 4
    assert [len(queue) for queue in scheduler.state.ahead.values()] == [(left + 1) // 4, (left - (left + 1) // 4) // 4]


@pytest.mark.parametrize("seed", seeds(range(4), range(4, 100)))
def test_a_restored_core_goes_on_as_the_one_that_was_dumped(seed: int) -> None:
    *_, told = run(seed)
    core = twin = Scheduler(find, "deadline")
    for position, event in enumerate(told):
        actions = core.handle(event)
        if twin is not core:
            assert twin.handle(event) == actions
            assert twin.dump() == core.dump()
        if position % 50 == 25:
            kept = msgspec.msgpack.encode(core.dump())
            twin = Scheduler.restore(msgspec.msgpack.decode(kept, type=StateRecord, dec_hook=any_form), find)


def test_long_tasks_are_never_launched_ahead() -> None:
    scheduler = Scheduler(find, "deadline")
    scheduler.handle(NodeJoined(0, node(slots=1, read_ahead=DEPTH)))
    scheduler.handle(JobSubmitted(0, job(1, tasks=20)))
    actions = scheduler.handle(Woke(0))
    for at in range(1, 20):
        launched = [action for action in actions if isinstance(action, Launch)]
        assert len(launched) == 1
        actions = scheduler.handle(TaskEnded(at * 1000 * MILLISECOND, 1, launched[0].task, 1))
