"""Questions that were spoilt: each is refused with a message, or policies can rely on it."""

from __future__ import annotations

import copy
from collections import Counter
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from headway.advice.language import Question, read_question, write_question
from headway.core import audit
from headway.core.record import restore_state
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, PolicyRaised
from headway.model.instant import NEVER, SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.web.decider import decide

from .test_core import source

POLICIES = ["anneal:first=500", *sorted(registry.BUILT_IN)[1:4], "border:easy", "border:deadline", "sites"]
ODD: list[Any] = [
    *(None, 0, 1, -1, 2, 3, 17, 2**31, 2**62, 2**80, -(2**62), 0.5, -1.5, 1e300, True, "", "bag", "workflow", "x"),
    *([], [0], [0, 0], [1, 2], [-1], [[0, 1]], [["a", 1]], {}, {"name": "b"}),
]


def questions(seed: int, policy: str) -> list[bytes]:
    """Questions from a simulation of all kinds of jobs, with nodes that go down and, under a top level, pools."""
    chance = np.random.default_rng(seed)
    jobs = 30
    kind = chance.choice([Kind.BAG, Kind.RIGID, Kind.WORKFLOW], jobs)
    plan = (TaskSpec(4 * SECOND), TaskSpec(6 * SECOND, 2, (0,)), TaskSpec(2 * SECOND, 1, (0, 1)))
    workload = workload_us(
        release=np.sort(chance.integers(0, 40, jobs)) * SECOND,
        runtime=chance.integers(1, 20, jobs) * SECOND,
        tasks=np.where(kind == Kind.BAG, chance.integers(1, 9, jobs), np.where(kind == Kind.WORKFLOW, 3, 1)),
        width=np.where(kind == Kind.RIGID, chance.integers(1, 6, jobs), 1),
        kind=kind,
        due=chance.integers(10, 99, jobs) * SECOND,
        workflows={int(job): plan for job in np.flatnonzero(kind == Kind.WORKFLOW)},
    )
    found: list[bytes] = []

    def listen(scheduler: Scheduler) -> None:
        if scheduler.rounds % 7 == 0 and scheduler.state.jobs:
            found.append(write_question(scheduler.dump(), policy=scheduler.policy))
            sent = read_question(found[-1])
            assert sent == Question(scheduler.dump(), scheduler.policy), "a snapshot does not survive its trip"

    nodes = (NodeSpec("a", 4, site="here"), NodeSpec("b", 3, speed=2.0, cores=6, site="there"))
    outages = [Outage("b", 9, 20)]
    Simulation(workload, nodes, source, policy, outages=outages, audit=listen).run()
    return found


def spoil(plain: Any, chance: Random) -> None:
    """Change one value somewhere."""
    while True:
        place = chance.choice(list(plain) if isinstance(plain, dict) else range(len(plain)))
        if isinstance(plain[place], dict | list) and plain[place] and chance.random() < 0.9:
            plain = plain[place]
            continue
        match chance.randrange(4):
            case 0:
                del plain[place]
            case 1 if isinstance(plain, list):
                plain.append(copy.deepcopy(plain[place]))
            case 2 if isinstance(plain[place], int):
                plain[place] += chance.choice([-1, 1, 7, NEVER])
            case _:
                plain[place] = copy.deepcopy(chance.choice(ODD))
        return


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "policy"), [*enumerate(POLICIES)])
def test_a_spoilt_question_is_refused_or_can_be_relied_on(seed: int, policy: str) -> None:
    chance = Random(seed)
    came: Counter[str] = Counter()
    for question in questions(seed, policy):
        for _ in range(12):
            plain = msgspec.json.decode(question)
            for _ in range(chance.choice([1, 1, 3])):
                spoil(plain["snapshot"], chance)
            body = msgspec.json.encode(plain)
            try:
                sent = read_question(body)
                plan = decide(sent, source, "easy")
            except PolicyRaised as raised:
                raise AssertionError(f"{raised} for {body!r}") from raised
            except HeadwayError:
                came["refused"] += 1
                continue
            state = restore_state(sent.snapshot)
            try:
                audit.check(state)
            except AssertionError as odd:
                raise AssertionError(f"{odd} in {body!r}") from odd
            assert all(0 <= wanted.slots < 1 << len(state.slot_nodes) for wanted in plan.allocations)
            came["answered"] += 1
    assert min(came["refused"], came["answered"]) > 20, came
