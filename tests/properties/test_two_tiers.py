"""The simulator with two tiers, compared with a twin that computes everything again at every event, process by process.

Both have the same core. The twin does not use the kernel's heap, its shortcuts or its performance model, and keeps
progress as fractions. A failure names its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from random import Random

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import ChangeTier, Conclude, Kill, Launch, Suspend, Wake
from headway.model.events import (
    Event,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    NodeUp,
    Outcome,
    TaskEnded,
    TaskSaved,
    Woke,
)
from headway.model.instant import from_seconds, to_seconds
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.plan import Allocation, Claim, Plan
from headway.model.policy import Policy
from headway.model.slots import numbers, of_numbers
from headway.model.snapshot import Snapshot
from headway.model.tier import Tier
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.specs import specs
from headway.sim.tiers import TwoTiers
from headway.sim.world import World

HORIZON = 400
"""Until then places are given at random; afterwards to whoever comes first."""

MOVES_MAX = 6
"""So often a job starts at most by being moved, or it might be moved for ever at one instant."""


@dataclass(frozen=True)
class AtRandom:
    """Random starts, tiers, swaps and moves, also such that the core must refuse."""

    seed: int
    per_instant: bool = False
    task_rounds: bool = False
    tiers: bool = True

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        if view.now >= HORIZON:
            free = view.free
            for job in view.waiting:
                if job.kind is Kind.RIGID and job.width <= free.bit_count():
                    slots = of_numbers(list(numbers(free))[: job.width])
                    plan.hold(job.id, slots)
                    free &= ~slots
                elif job.kind is Kind.BAG and free:
                    plan.hold(job.id, job.held | (free & -free))
                    free &= free - 1
            return plan
        attempts = sorted(view.attempts(), key=lambda attempt: (attempt.job.id, attempt.task))
        numbered = [attempt.number for attempt in attempts]
        chance = Random(repr((self.seed, view.now, view.busy, view.behind, view.allocated, numbered)))
        for job in view.waiting:
            if chance.random() < 0.6:
                tier = Tier(chance.random() < 0.5)
                slots = self.some(chance, view, view.free if tier is Tier.FOREGROUND else view.up, job.width)
                claim = chance.choice(list(Claim))
                task = None if job.kind is Kind.RIGID else job.again[0] if job.again else job.fresh
                plan.allocations.append(Allocation(job.id, slots, task, claim, tier, self.seats(chance, slots)))
        for attempt in attempts:
            if attempt.number < MOVES_MAX and chance.random() < 0.3:
                tier, task = Tier(chance.random() < 0.4), None if attempt.job.kind is Kind.RIGID else attempt.task
                slots, claim = attempt.slots, Claim.SWAP
                if chance.random() < 0.5:
                    room = view.free if tier is Tier.FOREGROUND else view.up & ~view.behind
                    slots = self.some(chance, view, room | slots, attempt.job.width)
                    claim = chance.choice([Claim.MIGRATE, Claim.MIGRATE, Claim.KILL])
                seats = self.seats(chance, slots)
                plan.allocations.append(Allocation(attempt.job.id, slots, task, claim, tier, seats))
        plan.wake = view.now + chance.choice([1, 7, 30])
        return plan

    def some(self, chance: Random, view: Snapshot, room: int, width: int) -> int:
        places = list(numbers(room)) if room.bit_count() >= width else range(len(view.slot_nodes))
        return of_numbers(chance.sample(places, width))

    def seats(self, chance: Random, slots: int) -> tuple[int, ...]:
        order = list(numbers(slots))
        chance.shuffle(order)
        return tuple(order) if chance.random() < 0.5 else ()


@dataclass
class Attempt:
    """What runs in the twin.

    Attributes:
        left: microseconds at full rate that are left of its `total`.
        since: the instant to which `left` applies; in the future while it stands still.
        came: when it came to its tier.
        uses: CPU use of its process on each slot.
    """

    number: int
    slots: int
    tier: Tier
    left: Fraction
    total: int
    since: int
    came: int
    uses: dict[int, float]
    rate: Fraction = Fraction(0)


class Twin:
    """A simulator that is slow and obvious."""

    def __init__(
        self, workload: Workload, nodes: list[NodeSpec], policy: Policy, world: World, outages: list[Outage]
    ) -> None:
        self.workload, self.world, self.nodes = workload, world, nodes
        self.turns: list[tuple[int, int, NodeDown | NodeUp]] = []
        for place, outage in enumerate(outages):
            assert outage.until is not None
            at, back = from_seconds(outage.at), from_seconds(outage.until)
            self.turns.append((at, 2 * place, NodeDown(at, outage.node)))
            self.turns.append((back, 2 * place + 1, NodeUp(back, outage.node)))
        self.core = Scheduler(lambda text: policy, "policy")
        self.now = 0
        self.running: dict[tuple[int, int], Attempt] = {}
        self.asked: list[tuple[int, int, int, int]] = []
        self.wakes: list[int] = []
        self.saving: set[tuple[int, int]] = set()
        self.saved: dict[tuple[int, int], tuple[Fraction, int]] = {}
        self.killed: set[tuple[int, int]] = set()
        self.ends: dict[int, int] = {}
        self.counts: Counter[str] = Counter()
        self.cpu = world.tiers.cpu_use(workload, world.seed).tolist()
        self.losses = world.tiers.losses(len(workload), world.seed)
        self.gains = world.tiers.gains(workload.width, world.seed)

    def run(self) -> None:
        submitted = list(specs(self.workload, movable=True))
        self.now = submitted[0].release
        for node in self.nodes:
            self.feed(NodeJoined(self.now, node))
        while len(self.ends) < len(self.workload):
            coming: list[tuple[int, int, int, int, int]] = [(at, 0, *which) for at, *which in self.asked]
            for (job, task), one in self.running.items():
                if one.rate or not one.left:
                    takes = ceil(one.left / one.rate) if one.left else 0
                    coming.append((one.since + takes, 0, job, task, one.number))
            if submitted:
                coming.append((submitted[0].release, 2, 0, 0, 0))
            coming += [(max(at, self.now), 3, at, 0, 0) for at in self.wakes]
            coming += [(at, 1, which, 0, 0) for at, which, _ in self.turns]
            at, what, job, task, number = min(coming)
            self.go_on(at)
            if what == 1:
                turn = next(turn for turn in self.turns if turn[1] == job)
                self.turns.remove(turn)
                self.feed(turn[2])
            elif what == 2:
                self.feed(JobSubmitted(at, submitted.pop(0)))
            elif what == 3:
                self.wakes.remove(job)
                self.feed(Woke(job))
            else:
                self.end(job, task, number)

    def go_on(self, at: int) -> None:
        for one in self.running.values():
            if at > one.since:
                one.left = max(Fraction(0), one.left - one.rate * (at - one.since))
                one.since = at
        self.now = at

    def end(self, job: int, task: int, number: int) -> None:
        place = job, task
        if number > 0:
            self.leave(place)
            self.saved.pop(place, None)
            self.feed(TaskEnded(self.now, job, task, number))
            return
        self.asked.remove((self.now, job, task, number))
        one = self.running.get(place)
        saving = place in self.saving
        if saving:
            self.feed(TaskSaved(self.now, job, task, -number))
        if one is not None and one.number == -number:
            self.leave(place)
            if saving:
                self.saving.remove(place)
                self.saved[place] = one.left, one.total
            elif place not in self.saved:
                self.killed.add(place)
            self.counts["migrations" if saving else "kills"] += 1
        self.feed(TaskEnded(self.now, job, task, -number, Outcome.KILLED))

    def leave(self, place: tuple[int, int]) -> None:
        self.account(self.running.pop(place))

    def account(self, one: Attempt) -> None:
        if one.tier is Tier.FOREGROUND:
            self.counts["busy"] += one.slots.bit_count() * max(0, self.now - one.came)

    def feed(self, event: Event) -> None:
        actions = self.core.handle(event)
        if isinstance(event, NodeDown):
            for (job, task), one in list(self.running.items()):
                known = self.core.state.jobs[job].attempts.get(task)
                if known is None or known.number != one.number:
                    self.leave((job, task))
                    self.saving.discard((job, task))
                    self.counts["lost"] += 1
        for action in actions:
            match action:
                case Launch(job=job, task=task, attempt=number, slots=slots, tier=tier, seats=seats):
                    speed = min(self.core.state.speeds[slot] for slot in numbers(slots))
                    total, start = round(int(self.workload.runtime[job]) / speed), self.now
                    start += from_seconds(self.world.decision_time or 0)
                    left, since = Fraction(total), start
                    if (job, task) in self.saved:
                        before, of = self.saved[job, task]
                        left = Fraction(ceil(before * 1_000_000 * total / of) if of else 0, 1_000_000)
                        since += from_seconds(self.world.migration_cost)
                    elif (job, task) in self.killed:
                        self.killed.remove((job, task))
                        since += from_seconds(self.world.kill_cost)
                    each = self.workload.uses.get(job, (self.cpu[job],) * slots.bit_count())
                    uses = dict(zip(seats or numbers(slots), each, strict=True))
                    self.running[job, task] = Attempt(number, slots, tier, left, total, since, start, uses)
                    self.counts["behind"] += tier is Tier.BACKGROUND
                case Suspend(job=job, task=task, attempt=number):
                    self.saving.add((job, task))
                    self.asked.append((self.now, job, task, -number))
                case Kill(job=job, task=task, attempt=number):
                    self.saving.discard((job, task))
                    self.asked.append((self.now, job, task, -number))
                case ChangeTier(job=job, task=task, tier=tier):
                    one = self.running[job, task]
                    self.account(one)
                    one.tier, one.came = tier, max(one.came, self.now)
                    self.counts["changes"] += 1
                case Wake(at=at):
                    self.wakes.append(at)
                case Conclude(job=job):
                    self.ends[job] = self.now
        self.core.check()
        for (job, _), one in self.running.items():
            one.rate = Fraction(self.rate(job, one), 1_000_000)

    def rate(self, job: int, one: Attempt) -> int:
        """Parts of a million (MEASY14 3.2), process by process."""
        others = {slot: of for of in self.running.values() if of.tier is not one.tier for slot in numbers(of.slots)}
        met = [slot for slot in numbers(one.slots) if slot in others]
        if one.tier is Tier.FOREGROUND:
            return 1_000_000 - (int(self.losses[job] * 1_000_000) if met else 0)
        if not met and self.world.tiers.alone:
            return 1_000_000
        shares = [1.0]
        for slot in met:
            idle = 1.0 - others[slot].uses[slot]
            shares.append(min(1.0, idle / one.uses[slot]) if one.uses[slot] else 1.0)
        return int(self.gains[job] * min(shares) * 1_000_000)


def drawn(chance: Random, slots: int) -> Workload:
    """A few jobs of all sizes; some say their CPU use."""
    jobs = chance.randint(1, 9)
    kind = [chance.choice([int(Kind.RIGID)] * 3 + [int(Kind.BAG)]) for _ in range(jobs)]
    width = [chance.randint(1, slots) if of == Kind.RIGID else 1 for of in kind]
    uses = {
        job: tuple(chance.choice([0.0, 0.25, 0.7, 1.0]) for _ in range(width[job]))
        for job in range(jobs)
        if kind[job] == Kind.RIGID and chance.random() < 0.4
    }
    return workload_us(
        release=sorted(chance.choice([0, 0, 5, 40, chance.randint(0, 300)]) for _ in range(jobs)),
        runtime=[chance.choice([0, 1, 10, 50, chance.randint(0, 200)]) for _ in range(jobs)],
        estimate=[chance.choice([-1, 20, 100]) for _ in range(jobs)],
        tasks=[1 if of == Kind.RIGID else chance.randint(1, 3) for of in kind],
        width=width,
        kind=kind,
        cpu=[chance.choice([np.nan, 0.3, 0.5, 0.96, 1.0]) for _ in range(jobs)],
        uses=uses,
    )


def compare(seed: int, policy_of: Callable[[int], Policy]) -> Counter[str]:
    """Compare both simulators in one random case."""
    chance = Random(seed)
    slots = chance.randint(1, 5)
    nodes = [NodeSpec("a", slots=slots)]
    if chance.random() < 0.3:
        nodes.append(NodeSpec("b", slots=2, speed=chance.choice([0.5, 3.0])))
    world = World(
        seed=seed,
        decision_time=chance.choice([0, 0, 2e-6]),
        tiers=TwoTiers(alone=chance.random() < 0.7),
        migration_cost=chance.choice([0, 3e-6, 20e-6]),
        kill_cost=chance.choice([0, 0, 4e-6]),
    )
    workload = drawn(chance, slots)
    policy = policy_of(seed)
    outages = []
    if len(nodes) > 1 and chance.random() < 0.5:
        ends = [to_seconds(at) for at in sorted(chance.sample(range(1, 500), 4))]
        outages = [Outage("b", *ends[:2]), Outage(chance.choice("ab"), *ends[2:])]
    twin = Twin(workload, nodes, policy, world, outages)
    twin.run()
    simulation = Simulation(workload, nodes, lambda text: policy, "policy", world=world, outages=outages)
    schedule = simulation.run()
    assert schedule.end.tolist() == [twin.ends[job] for job in range(len(workload))], f"seed {seed}"
    counts = twin.counts
    assert (schedule.kills, schedule.migrations, schedule.busy) == (
        counts["kills"],
        counts["migrations"],
        counts["busy"],
    ), f"seed {seed}"
    assert simulation.scheduler.refusals == twin.core.refusals, f"seed {seed}"
    return counts


def at_random(seed: int) -> Policy:
    return AtRandom(seed, per_instant=seed % 2 == 0)


def of_the_paper(seed: int) -> Policy:
    return registry.find(("keasy", "reasy", "measy", "measy:per_instant=true,order=shortest")[seed % 4])


def test_every_job_ends_when_the_twin_ends_it() -> None:
    counts: Counter[str] = Counter()
    for seed in range(100):
        counts += compare(seed, at_random)
    assert min(counts[what] for what in ("behind", "changes", "kills", "migrations")) > 50
    assert counts["lost"] > 5


def test_every_job_ends_when_the_twin_ends_it_under_the_policies_of_the_paper() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1000, 1100):
        counts += compare(seed, of_the_paper)
    assert min(counts[what] for what in ("behind", "changes", "kills", "migrations")) > 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy_of", [at_random, of_the_paper])
def test_every_job_ends_when_the_twin_ends_it_at_length(policy_of: Callable[[int], Policy]) -> None:
    for seed in range(10_000, 13_000):
        compare(seed, policy_of)
