"""Conservative backfilling by a profile that is kept from round to round, against the general algorithm.

`easy` with a depth that no queue reaches is the same policy. It builds a new profile in every round and looks at every
promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import Kill
from headway.model.events import (
    ClockStepped,
    Event,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeResized,
    NodeUp,
    TaskEnded,
    Woke,
)
from headway.model.job import Bag, Rigid
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import Plan
from headway.model.snapshot import Snapshot
from headway.policies.backfill import Easy


@dataclass
class Both:
    """Asks both in each round, and compares.

    Attributes:
        kept: in how many rounds the kept profile was there before, with promises in it.
        forward: how many promises were brought forward in these.
        rounds: how many there were.
    """

    order: str
    per_instant: bool
    task_rounds: bool = False
    kept: int = 0
    forward: int = 0
    rounds: int = 0

    def __call__(self, view: Snapshot) -> Plan:
        slow = Easy(self.order, depth=1e9)(view)
        was = view.profile
        there = was is not None and bool(was.promised) and not was.unconfirmed
        fast = Easy(self.order, depth=float("inf"))(view)
        assert fast.allocations == slow.allocations
        assert fast.promises == slow.promises
        self.rounds += 1
        if there and view.profile is was:
            self.kept += 1
            before = {job.id: job.promise for job in view.promised.values()}
            self.forward += sum(kept.start < (before.get(kept.job) or 0) for kept in fast.promises)
        return fast


def life(seed: int, *, rare: bool) -> tuple[Both, Scheduler]:
    """Jobs come and end, early, in time or late; rarely anything else happens, if it may."""
    chance = Random(seed)
    policy = Both(chance.choice(["release", "shortest", "priority"]), per_instant=chance.random() < 0.3)

    def find(text: str) -> Both:
        return policy

    core = Scheduler(find, "both", estimate_default=7)
    nodes = [NodeSpec(f"n{number}", chance.randint(1, 9)) for number in range(chance.randint(1, 4))]
    if chance.random() < 0.2:
        nodes.append(NodeSpec("slow", 3, speed=0.5))
    now, number, down = 0, 0, set[str]()
    widest = sum(node.slots for node in nodes)
    asked: list[tuple[int, int, int]] = []

    def feed(event: Event) -> None:
        kills = [action for action in core.handle(event) if isinstance(action, Kill)]
        if core.failure is not None:
            raise core.failure  # the core would go on without a plan
        asked.extend((action.job, action.task, action.attempt) for action in kills)
        core.check()

    for node in nodes:
        feed(NodeJoined(now, node))
    late = chance.choice([0.0, 0.0, 0.3])
    for _ in range(120):
        running = [entry[-1] for entry in core.state.running]
        while asked:
            feed(TaskEnded(now, *asked.pop(), Outcome.KILLED))
        if running and not (chance.random() < late):
            now = min(now + chance.choice([0, 1, 1, 3, 9]), max(now, running[0].expected_end))
        else:
            now += chance.choice([0, 1, 3, 9])
        over = [attempt for attempt in running if attempt.expected_end <= now and chance.random() >= late]
        for attempt in over:
            feed(TaskEnded(now, attempt.job.id, 0, attempt.number))
        draw = chance.random()
        if draw < 0.55:
            width = min(widest, chance.choice([1, 1, 2, 3, 4, 8, widest]))
            estimate = chance.choice([None, 0, 1, 2, 5, 5, 20, 50, 90])
            release = now + chance.choice([0, 0, 0, 4])
            spec = Rigid(number, release, width=width, estimate=estimate, priority=chance.randint(0, 3))
            feed(JobSubmitted(now, spec))
            number += 1
        elif draw < 0.85:
            running = [entry[-1] for entry in core.state.running]
            if running:
                attempt = chance.choice(running)
                outcome = Outcome.SUCCEEDED if chance.random() < 0.9 else Outcome.RAISED
                feed(TaskEnded(now, attempt.job.id, 0, attempt.number, outcome))
        elif draw < 0.9 and core.state.jobs:
            feed(JobCancelled(now, chance.choice(list(core.state.jobs))))
        elif draw < 0.93 and core.state.jobs:
            feed(JobChanged(now, chance.choice(list(core.state.jobs)), priority=float(chance.randint(0, 3))))
        elif draw < 0.95 and core.state.waiting:
            core.explain(chance.choice(core.state.waiting).id)
            core.check()
        elif draw < 0.96:
            core = Scheduler.restore(core.dump(), find)
        elif draw < 0.97:
            feed(Woke(now))
        elif rare:
            node = chance.choice(nodes)
            feed(
                chance.choice(
                    [
                        NodeUp(now, node.name) if node.name in down else NodeDown(now, node.name),
                        NodeResized(now, node.name, chance.randint(1, 9)),
                        NodeDrained(now, "nobody"),
                        ClockStepped(now, chance.randint(1, 5)),
                    ]
                )
            )
            down = {name for name, known in core.state.nodes.items() if not known.up}
    return policy, core


@pytest.mark.parametrize("rare", [False, True])
def test_both_ways_promise_the_same(rare: bool) -> None:
    kept = forward = rounds = 0
    for seed in range(30):
        try:
            policy, _ = life(seed, rare=rare)
        except Exception as failure:
            failure.add_note(f"seed {seed}")
            raise
        kept, forward, rounds = kept + policy.kept, forward + policy.forward, rounds + policy.rounds
    assert kept > rounds / 3, "the profile is nearly always built again"
    assert forward > 30, "nothing was brought forward"


def test_bags_need_no_kept_profile() -> None:
    """What the promise of a bag takes changes with its next task: there the general algorithm decides."""
    policy = Both("release", per_instant=False)
    core = Scheduler(lambda _: policy, "both", estimate_default=7)
    core.handle(NodeJoined(0, NodeSpec("a", 2)))
    for number in range(3):
        core.handle(JobSubmitted(0, Rigid(number, width=2, estimate=5)))
    assert core.state.profile is not None
    core.handle(JobSubmitted(0, Bag(3, tasks=4, estimate=5)))
    assert core.state.profile is None
    core.check()
