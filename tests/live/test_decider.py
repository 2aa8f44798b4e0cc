"""A real `headway decider` process: it decides as the policy in process does, simulated and live, and may be lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_of
from headway.sim.experiment import run
from headway.sim.faults import Outage

CLUSTER = (NodeSpec("slow", 5), NodeSpec("fast", 3, speed=2.0))


class Process:
    """`headway decider`, until it is ended."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headway", "decider", "--json", *words], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self.url: str = json.loads(said.readline())["url"]

    def end(self, number: int = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
        return self._process.wait(60)


@pytest.fixture(scope="module")
def decider() -> Iterator[str]:
    """The URL of one."""
    process = Process()
    yield process.url
    assert process.end() == 0


def workload(seed: int, jobs: int = 80) -> Workload:
    """Jobs of all three kinds on a crowded cluster, with many ends and submissions in the same second."""
    chance = np.random.default_rng(seed)
    kind = chance.choice([Kind.BAG, Kind.RIGID, Kind.WORKFLOW], jobs, p=[0.5, 0.3, 0.2])
    runtime = chance.integers(1, 20, jobs) * 2 * SECOND
    plan = (TaskSpec(4 * SECOND), TaskSpec(6 * SECOND, 2, (0,)), TaskSpec(2 * SECOND, 1, (0,)))
    return workload_of(
        release=np.sort(chance.integers(0, 60, jobs)) * SECOND,
        runtime=runtime,
        estimate=runtime + chance.integers(0, 10, jobs) * SECOND,
        tasks=np.where(kind == Kind.BAG, chance.integers(1, 9, jobs), np.where(kind == Kind.WORKFLOW, 3, 1)),
        width=np.where(kind == Kind.RIGID, chance.integers(1, 8, jobs), 1),
        kind=kind,
        due=chance.integers(10, 300, jobs) * SECOND,
        priority=chance.integers(0, 5, jobs).astype(float),
        workflows={int(job): plan for job in np.flatnonzero(kind == Kind.WORKFLOW)},
    )


@pytest.mark.parametrize(
    "policy",
    [
        "easy:per_instant=true",
        "easy:order=shortest,per_instant=true",
        "conservative:per_instant=true",
        "deadline",
        "proportion",
        "workload:period=5",
        "heft",
    ],
)
def test_a_decider_gives_the_schedule_of_the_policy_in_process(policy: str, decider: str) -> None:
    jobs, outages = workload(3), [Outage("fast", 20 * SECOND, 35 * SECOND)]
    here = run(jobs, CLUSTER, policy, outages=outages, record=True)
    there = run(jobs, CLUSTER, policy, outages=outages, record=True, decider=decider)
    assert there.decisions > 80
    assert here.attempts is not None
    assert there.attempts is not None
    for column in ("job", "first", "count", "start", "end", "wasted"):
        assert (getattr(here.attempts, column) == getattr(there.attempts, column)).all(), column
    assert (here.end == there.end).all()
    assert here.refused == there.refused
    assert here.decisions == there.decisions
