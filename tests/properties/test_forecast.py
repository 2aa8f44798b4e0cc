"""Forecasts come true to the microsecond if tasks take as long as estimated, under every policy.

Two things stand for what really happens: `Machines`, which shares nothing with the simulator, and for policies with a
background, the simulator itself from the beginning. A failure names its seed.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import settings

from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Conclude, Kill, Launch, Settle, Wake
from headway.model.events import Event, JobCancelled, JobSubmitted, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.forecast import Forecast
from headway.model.instant import SECOND, Instant
from headway.model.job import JobSpec, Kind, TaskSpec, Workflow
from headway.model.node import NodeSpec
from headway.model.policy import uses_tiers
from headway.model.slots import numbers
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim.forecast import WORLD, forecast
from headway.sim.kernel import Simulation
from headway.testing import job, node


def texts() -> list[str]:
    """Every policy, with values for its required parameters, and a few with other parameters."""
    named = []
    for offer in (offer for offer in registry.installed() if offer.name != "instances"):  # it serves no such jobs
        few = ["steps=50,first=200"] if offer.name == "anneal" else []  # how good its order is does not matter here
        needed = ",".join([*few, *(f"{known.name}=5" for known in offer.parameters if known.required)])
        named.append(f"{offer.name}:{needed}" if needed else offer.name)
    return [*named, "sites:top=prefer", "tempo:kill=false", "deadline:emergency=1", "easy:order=weighted,depth=3"]


POLICIES = [text for text in texts() if not uses_tiers(registry.find(text))]
TIERED = [text for text in texts() if uses_tiers(registry.find(text))]
NODES = (node("a", slots=2), node("b", slots=2, speed=2.0), node("c", slots=1, kind="old"))
PERIODS = (None, 7 * SECOND)
SEEDS = range(max(3, settings().max_examples // 7))


def drawn(chance: Random) -> list[JobSpec]:
    """Jobs of every kind, with gaps in their ids. Times are whole seconds on nodes of either speed."""
    jobs = []
    for number in range(chance.randint(2, 12)):
        estimate = 2 * chance.randint(1, 20)
        terms = {
            "release": chance.choice([0, 0, 0, chance.randint(1, 60)]),
            "estimate": estimate,
            "due": chance.choice([None, chance.randint(5, 300)]),
            "priority": chance.randint(0, 3),
            "rate": chance.choice([1.0, 2.0]),
            "preemptible": chance.random() < 0.8,
        }
        if jobs and chance.random() < 0.2:
            terms["after"] = (chance.choice(jobs).id,)
        kind = chance.random()
        if kind < 0.2:
            terms["width"] = chance.randint(1, 5)
        elif kind < 0.4:
            terms["graph"] = plan(chance)
        else:
            terms["tasks"] = chance.randint(1, 8)
        jobs.append(job(10 + 3 * number, **terms))
    return jobs


def plan(chance: Random) -> tuple[TaskSpec, ...]:
    return tuple(
        TaskSpec(
            2 * chance.randint(1, 20) * SECOND,
            chance.randint(1, 2),
            tuple(before for before in range(number) if chance.random() < 0.3),
        )
        for number in range(chance.randint(1, 5))
    )


class Machines:
    """Runs every attempt for exactly its estimate on the slowest of its slots, and records what happens.

    Attributes:
        started, ended: instants at which attempts of each job were launched, and at which jobs ended.
    """

    def __init__(self, policy: str, jobs: list[JobSpec], period: int | None) -> None:
        self.core = Scheduler(registry.find, policy, period=period)
        self.specs = {spec.id: spec for spec in jobs}
        self.started: dict[int, list[Instant]] = {spec.id: [] for spec in jobs}
        self.ended: dict[int, Instant] = {}
        self._heap: list[tuple[Instant, int, int, int, int]] = []
        for one in NODES:
            self.feed(NodeJoined(0, one))
        for spec in jobs:
            self.feed(JobSubmitted(0, spec))

    def feed(self, event: Event) -> None:
        for action in self.core.handle(event):
            self.do(action)
        assert self.core.failure is None

    def do(self, action: Action) -> None:
        now = self.core.state.now
        match action:
            case Launch(job=of, task=task, attempt=attempt):
                self.started[of].append(now)
                heappush(self._heap, (now + self.run_time(action), 0, of, task, attempt))
            case Kill(job=of, task=task, attempt=attempt):
                heappush(self._heap, (now, 0, of, task, -attempt))
            case Wake(at=at):
                heappush(self._heap, (max(at, now), 1, 0, 0, 0))
            case Conclude(job=of):
                self.ended[of] = now
            case _:
                assert isinstance(action, Settle)

    def run_time(self, launch: Launch) -> int:
        spec = self.specs[launch.job]
        said = spec.graph[launch.task].estimate if isinstance(spec, Workflow) else spec.estimate
        assert said is not None
        nodes: list[NodeSpec] = [self.core.state.slot_nodes[slot].spec for slot in numbers(launch.slots)]
        return round(said / min(one.speed for one in nodes))

    def go_on(self) -> bool:
        """Feed everything that happens at the next instant. Returns whether there was anything."""
        if not self._heap or (len(self.ended) == len(self.specs)):
            return False
        at = self._heap[0][0]
        while self._heap and self._heap[0][0] == at:
            _, rank, of, task, attempt = heappop(self._heap)
            if rank:
                self.feed(Woke(at))
            elif self.core.state.current(of, task, abs(attempt)) is not None:
                self.feed(TaskEnded(at, of, task, abs(attempt), Outcome.KILLED if attempt < 0 else Outcome.SUCCEEDED))
        return True


def compare(made: Forecast, started: dict[int, list[Instant]], ended: dict[int, Instant]) -> None:
    """Check that a forecast is what really followed."""
    assert not made.failure
    assert made.until is None
    for expected in made.jobs:
        assert expected.end == ended.get(expected.job), expected
        assert expected.start == next(iter(started[expected.job]), None), expected
        assert not expected.end_assumes


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_expected_at_any_instant_comes_true(policy: str) -> None:
    awaited = 0
    for seed in SEEDS:
        chance = Random(f"{policy} {seed}")
        machines = Machines(policy, drawn(chance), chance.choice(PERIODS))
        made: list[tuple[Forecast, dict[int, int]]] = []
        while machines.go_on():
            if chance.random() < 0.2:
                seen = {of: len(launches) for of, launches in machines.started.items()}
                made.append((forecast(machines.core.dump(), registry.find), seen))
        for one, seen in made:
            later = {of: launches[seen[of] :] for of, launches in machines.started.items()}
            compare(one, later, machines.ended)
            awaited += sum(len(expected.awaits) for expected in one.jobs)
    assert awaited, "nothing was ever waited for"


@pytest.mark.parametrize("policy", TIERED)
def test_with_a_background_it_is_what_a_simulation_gives(policy: str) -> None:
    for seed in SEEDS:
        chance = Random(f"{policy} {seed}")
        jobs = chance.randint(2, 15)
        estimates = [chance.randint(1, 40) * SECOND for _ in range(jobs)]
        widths = [chance.randint(1, 4) for _ in range(jobs)]
        workload = workload_us(
            release=[0] * jobs, runtime=estimates, estimate=estimates, width=widths, kind=int(Kind.RIGID), cpu=0.4
        )
        nodes = (node("a", slots=2), node("b", slots=2))
        done = Simulation(workload, nodes, registry.find, policy, world=WORLD).run()
        core = Scheduler(registry.find, policy)
        for one in nodes:
            core.handle(NodeJoined(0, one))
        for number, (estimate, width) in enumerate(zip(estimates, widths, strict=True)):
            spec = job(number, estimate=estimate / SECOND, width=width, cpu=(0.4,), movable=True)
            core.handle(JobSubmitted(0, spec))
        made = forecast(core.dump(), registry.find)
        assert [expected.end for expected in made.jobs] == done.end.tolist(), seed
        started = {attempt.job.id for attempt in core.state.attempts()}
        for expected, start in zip(made.jobs, done.start.tolist(), strict=True):
            assert expected.start == start or expected.job in started, seed


def test_the_state_is_left_as_it_was() -> None:
    machines = Machines("tempo", drawn(Random(1)), None)
    machines.go_on()
    machines.feed(JobCancelled(machines.core.state.now, 10))
    before = machines.core.dump()
    assert forecast(before, registry.find) == forecast(before, registry.find)
    assert machines.core.dump() == before
