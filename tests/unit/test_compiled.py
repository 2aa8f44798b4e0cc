"""The compiled core acts exactly like plain Python under every policy, and replays its journals alike.

Where the core is compiled (`make test-compiled`) another process runs the same sources as plain Python.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import pickle
import pkgutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway
from headway.cli.main import is_compiled
from headway.core.scheduler import Scheduler
from headway.model.events import Event
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import drawn_outages
from headway.sim.kernel import Simulation
from headway.sim.world import World

ROOT = Path(__file__).resolve().parents[2]
POLICIES = [
    # How good its order is does not matter here.
    *("anneal:steps=200,first=1000" if offer.name == "anneal" else offer.name for offer in registry.installed()),
    *("easy:order=shortest", "easy:order=due,per_instant=true", "measy:order=shortest", "deadline:emergency=5"),
    *("tempo:kill=true", "conservative:per_instant=true"),
]
NODES = [NodeSpec("a", 8), NodeSpec("b", 6, speed=1.5, cores=12), NodeSpec("c", 4, speed=0.5, kind="old")]
ALIKE = [NodeSpec("all", 32)]


def rigid(jobs: int = 200) -> Workload:
    """Rigid jobs with too long and too short estimates and partly idle processes."""
    chance = np.random.default_rng(7)
    runtime = np.rint(chance.lognormal(5, 2, jobs)).astype(np.int64) * SECOND
    return workload_us(
        release=np.cumsum(np.rint(chance.exponential(60, jobs)).astype(np.int64)) * SECOND,
        runtime=runtime,
        estimate=np.rint(runtime * chance.choice((0.5, 1, 2, 7), jobs)).astype(np.int64),
        width=np.minimum(32, 2 ** chance.integers(0, 6, jobs)),
        kind=np.full(jobs, Kind.RIGID, dtype=np.int8),
        due=np.cumsum(chance.integers(0, 300, jobs)) * SECOND,
        priority=chance.integers(1, 9, jobs).astype(np.float64),
        cpu=chance.uniform(0.3, 1.0, jobs),
    )


def mixed(jobs: int = 80) -> Workload:
    """Bags, rigid jobs and workflows, some with due dates."""
    chance = np.random.default_rng(11)
    kinds = chance.choice((Kind.BAG, Kind.RIGID, Kind.WORKFLOW), jobs, p=(0.6, 0.3, 0.1)).astype(np.int8)
    diamond = tuple(
        TaskSpec(spent * SECOND, after=after) for spent, after in ((5, ()), (9, (0,)), (4, (0,)), (2, (1, 2)))
    )
    return workload_us(
        release=np.cumsum(chance.integers(0, 40, jobs)) * SECOND,
        runtime=chance.integers(1, 90, jobs) * SECOND,
        estimate=np.where(chance.random(jobs) < 0.3, -1, chance.integers(1, 120, jobs) * SECOND),
        tasks=np.where(kinds == Kind.BAG, chance.integers(1, 30, jobs), np.where(kinds == Kind.WORKFLOW, 4, 1)),
        width=np.where(kinds == Kind.RIGID, chance.integers(1, 9, jobs), 1),
        kind=kinds,
        due=np.cumsum(chance.integers(10, 60, jobs)) * SECOND,
        priority=chance.integers(1, 9, jobs).astype(np.float64),
        workflows={int(position): diamond for position in np.flatnonzero(kinds == Kind.WORKFLOW)},
    )


def simulated(policy: str) -> tuple[list[list[Event]], list[str]]:
    """The journals of two simulations under a policy, and digests of all results."""
    outages = drawn_outages(NODES, mean_up_seconds=900, mean_down_seconds=60, begin=0, until=2000, seed=3)
    journals, found = [], []
    for workload, nodes, world, down in (
        (rigid(), ALIKE, World(), []),
        (mixed(), NODES, World(noise=0.3, seed=5), outages),
    ):
        journal: list[Event] = []
        simulation = Simulation(
            workload, nodes, registry.find, policy, world=world, outages=down, record=True, journal=journal
        )
        schedule = simulation.run()
        assert schedule.attempts is not None
        columns = [schedule.start, schedule.end, schedule.slots, schedule.status, schedule.rounds]
        columns += [getattr(schedule.attempts, name) for name in ("job", "first", "count", "start", "end", "wasted")]
        found += [digest(column.tobytes()) for column in columns]
        found += [digest(repr(journal).encode()), digest(repr(simulation.scheduler.dump()).encode())]
        journals.append(journal)
    return journals, found


def replayed(policy: str, journal: list[Event]) -> list[str]:
    """Digests of the actions of a scheduler for these events, and of its final state."""
    scheduler = Scheduler(registry.find, policy)
    actions = [scheduler.handle(event) for event in journal]
    scheduler.check()
    return [digest(repr(actions).encode()), digest(repr(scheduler.dump()).encode())]


def digest(written: bytes) -> str:
    return hashlib.sha256(written).hexdigest()


def main(journals: Path) -> None:
    """Print the results of every policy here, and of the journals that another process has written."""
    given: dict[str, list[list[Event]]] = pickle.loads(journals.read_bytes())
    told = {
        policy: (simulated(policy)[1], [replayed(policy, journal) for journal in written])
        for policy, written in given.items()
    }
    print(json.dumps({"compiled": is_compiled(), "told": told}))


class Bounded(list[Event]):
    """A journal that takes only this many events."""

    def append(self, event: Event) -> None:
        assert len(self) < 20_000, "events follow each other without end"
        super().append(event)


def test_emergencies_do_not_take_slots_from_each_other_for_ever() -> None:
    """A job expected five slots, then four with a task on one of them. Another emergency killed that task."""
    outages = drawn_outages(NODES, mean_up_seconds=900, mean_down_seconds=60, begin=0, until=2000, seed=3)
    world = World(noise=0.3, seed=5)
    policy = "deadline:emergency=5"
    Simulation(mixed(), NODES, registry.find, policy, world=world, outages=outages, journal=Bounded()).run()


@pytest.mark.timeout(600)  # two processes simulate under every policy
@pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here; `make test-compiled` compiles it")
def test_compiled_and_plain_decide_and_replay_alike_under_every_policy(tmp_path: Path) -> None:
    here = {policy: simulated(policy) for policy in POLICIES}
    halves = [dict(list(here.items())[first::2]) for first in (0, 1)]
    asked = []
    for number, half in enumerate(halves):
        journals = tmp_path / f"journals-{number}"
        journals.write_bytes(pickle.dumps({policy: written for policy, (written, _) in half.items()}))
        asked.append([sys.executable, __file__, str(journals)])
    # Plain Python takes most of the time, so two processes share the policies.
    with ThreadPoolExecutor(len(asked)) as pool:
        told = list(pool.map(run_plain, asked))
    for plain, half in zip(told, halves, strict=True):
        assert not plain["compiled"]
        assert plain["told"] == {
            policy: [found, [replayed(policy, journal) for journal in written]]
            for policy, (written, found) in half.items()
        }


def run_plain(command: list[str]) -> dict[str, Any]:
    """What `main` prints where the sources are read as they are."""
    ran = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def to_be_compiled() -> list[str]:
    """The names of the modules that pyproject.toml lists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    paths = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return [".".join(Path(path).with_suffix("").parts[1:]) for path in paths]


def test_what_simulations_and_forecasts_spend_their_time_in_is_to_be_compiled() -> None:
    core = {f"headway.core.{path.stem}" for path in (ROOT / "src/headway/core").glob("*.py")}
    rare = {
        f"headway.core.{name}" for name in ("__init__", "audit", "counts", "preparing", "record")
    }  # not run for every event
    loop = {
        "headway.sim.kernel",
        "headway.sim.machines",
        "headway.sim.tiers",
        "headway.sim.forecast",
        "headway.model.snapshot",
    }
    assert (core - rare) | loop <= {*to_be_compiled()}


def test_no_plain_class_inherits_from_a_compiled_one() -> None:
    """A compiled core would refuse it when its module is imported."""
    listed = to_be_compiled()
    for _, name, is_package in pkgutil.walk_packages(headway.__path__, "headway."):
        if not is_package and not name.endswith("__main__"):
            importlib.import_module(name)
    for name in listed:
        for one in vars(importlib.import_module(name)).values():
            for heir in one.__subclasses__() if isinstance(one, type) and one.__module__ == name else ():
                assert heir.__module__ in listed or not heir.__module__.startswith("headway."), heir


@pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here; `make test-compiled` compiles it")
def test_what_is_compiled_is_what_was_to_be() -> None:
    for name in to_be_compiled():
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        assert found.origin.endswith(tuple(EXTENSION_SUFFIXES)), name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
