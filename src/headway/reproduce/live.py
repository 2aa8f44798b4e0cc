"""Experiments of Lin14 with real processes: figure 6.1 with machines that die, and a sample that is replayed.

Both run servers of their own. Their data is in folders that are removed afterwards.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Final

import numpy as np

from headway.client.client import Client
from headway.client.replay import Replay
from headway.engines.local.driver.host import agent_of, node_folder
from headway.errors import HeadwayError
from headway.live.store.history import held, history
from headway.metrics import summarise
from headway.metrics.collect import Metrics
from headway.model.instant import SECOND, Duration, to_seconds
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import BagTimes, Workload
from headway.policies import registry
from headway.reproduce import failure
from headway.reproduce.failure import Curve, curve
from headway.reproduce.samples import Log, draw
from headway.reproduce.server import own_server
from headway.sim.experiment import run
from headway.sim.world import World
from headway.traces import transforms

SCALE: Final = 0.2
"""Factor on the times of figure 6.1 when it runs live: four minutes become 48 seconds."""

JOBS: Final = 60
SLOTS: Final = 8
LOAD: Final = 1.0
SECONDS: Final = 50.0
"""The least time of the replayed sample: all its work, spread over all slots. A run takes a little more."""

MIDDLE_LEAST: Final = SECOND // 5
SEEDS_MOST: Final = 100

REPLAYED: Final = ("priority", "deadline:spare=due,foresight=false", "edf")
END_SECONDS: Final = 900.0
"""A live run fails if it takes longer."""

FIND_SECONDS: Final = 60.0
"""A live run fails if engines take longer to find its nodes."""

LOOK_SECONDS: Final = 0.1

Tell = Callable[[str], None]


def failure_live(tell: Tell = lambda sentence: None) -> dict[str, Curve]:
    """Figure 6.1 with real processes: the curves `normal` and `failure`, both run at the same time. Under a minute.

    A machine is down when its node's agent was ended with SIGKILL and cannot be started again, because the experiment
    holds the lock of its folder. The server keeps trying, as with a machine that is switched off.

    Raises:
        HeadwayError: a server does not start, or a machine does not go down or come back.
    """
    over = Event()
    with ThreadPoolExecutor(2) as pool:
        runs = {"normal": pool.submit(_live, False, tell, over), "failure": pool.submit(_live, True, tell, over)}
        try:
            return {name: curve(done.result(), SCALE) for name, done in runs.items()}
        except BaseException:  # one has failed, or the user has interrupted: end the other early
            over.set()
            raise


def _live(fails: bool, tell: Tell, over: Event) -> Schedule:
    workload = failure.bag(SCALE)
    with TemporaryDirectory(prefix="headway-reproduce-") as name:
        folder = Path(name)
        with own_server(folder, failure.machines(), failure.POLICY) as server, Client(data=folder) as client:
            client.choose_policy(period=failure.PERIOD * SCALE)
            replayed = Replay(client, workload)
            down, back = failure.DOWN
            begin = time.monotonic()
            replayed.submit()
            if fails and not over.wait(begin + down * SCALE - time.monotonic()):
                with switched_off(folder, server["pid"], failure.failing()):
                    tell(f"{len(failure.failing())} nodes are down, with six of the eight slots.")
                    over.wait((back - down) * SCALE)
                tell("The nodes can come back.")
            _check_ended(replayed, over)
        return of_server(folder)


def _check_ended(replayed: Replay, over: Event) -> None:
    """Wait until all jobs have ended.

    Raises:
        HeadwayError: they have not ended in time, or `over` is set before.
    """
    end = time.monotonic() + END_SECONDS
    while replayed.ended < len(replayed.waiters):
        if over.wait(LOOK_SECONDS) or time.monotonic() > end:
            raise HeadwayError(f"the live run did not end within {END_SECONDS:.0f} s")


@contextmanager
def switched_off(folder: Path, server: int, names: Sequence[str]) -> Iterator[None]:
    """Keep nodes of a server down while the body runs: their agents are killed and cannot start again.

    Args:
        folder: the server's data directory.
        server: its process.
        names: of the nodes.

    Raises:
        HeadwayError: one does not go down.
    """
    locks = [os.open(node_folder(folder / "engine", name) / "lock", os.O_RDWR) for name in names]
    try:
        for agent in [agent_of(server, name) for name in names]:
            os.kill(agent, signal.SIGKILL)
        # A guard holds the lock until all processes of its node have ended; the server starts the node a moment later.
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        for lock in locks:
            os.close(lock)


@dataclass(frozen=True, slots=True)
class Twice:
    """One policy on the replayed sample, live and simulated.

    Attributes:
        late: by how many microseconds a task of the live run had its slot longer than it slept, on average. The time
            goes into starting its process, receiving the news of its end and storing it.
        delayed: the simulation in which every launch comes that much later than its round.
        held: the simulation in which each task has its slot as long as it had it live.
    """

    policy: str
    live: Metrics
    simulated: Metrics
    late: Duration
    delayed: Metrics
    held: Metrics

    def differences(self, measure: str) -> tuple[float, float, float]:
        """How much greater the live value is than those of the three simulations, as shares of these."""
        simulated, delayed, held = (
            self.live[measure] / found[measure] - 1 for found in (self.simulated, self.delayed, self.held)
        )
        return simulated, delayed, held


def sample(log: Log) -> tuple[int, Workload]:
    """The jobs that are replayed, with the seed of their sample: 60 jobs at a load of 1 on eight slots.

    It is the first sample in which half of the jobs have tasks of a fifth of a second or more after everything is
    scaled to a minute. Tasks of milliseconds would measure how fast processes start, and not the policy.

    Raises:
        HeadwayError: the log has no such sample.
    """
    for seed in range(SEEDS_MOST):
        drawn = transforms.with_load(transforms.first(draw(log, seed), JOBS), LOAD, SLOTS)
        scaled = transforms.scale_times(drawn, SECONDS / (float(transforms.work(drawn).sum()) / SLOTS))
        if np.median(scaled.runtime) >= MIDDLE_LEAST:
            return seed, scaled
    raise HeadwayError(f"{log.name} has too many short jobs to be replayed within a minute")


def replayed(
    log: Log,
    policies: Sequence[str] = REPLAYED,
    tell: Tell = lambda sentence: None,
    cluster: Path | None = None,
) -> list[Twice]:
    """One sample on a live cluster of eight slots and in the simulator, under each policy; about a minute each.

    Args:
        log: what is sampled.
        policies: by their text.
        tell: gets a sentence before each live run.
        cluster: a cluster file with eight slots, which engines may find; None: eight slots of this machine.

    Raises:
        HeadwayError: a server does not start, its cluster has not eight slots, or a job does not succeed.
    """
    seed, workload = sample(log)
    found = []
    for policy in policies:
        tell(f"{policy}: {len(workload)} jobs of sample {seed} on {SLOTS} slots, live.")
        found.append(twice(workload, policy, cluster))
    return found


def twice(workload: Workload, policy: str, cluster: Path | None = None) -> Twice:
    """A workload of bags live and simulated; `cluster` and errors as for `replayed`.

    The live run is measured like a simulation: `headway.metrics` gets a schedule made from the server's journal.
    """
    schedule, times, nodes = _replayed(workload, policy, cluster)
    live = summarise(schedule)
    if live["jobs_succeeded"] != len(workload):
        raise HeadwayError(f"under {policy} only {live['jobs_succeeded']} of {len(workload)} jobs succeeded")
    late = round((schedule.busy - int(workload.tasks @ workload.runtime)) / int(workload.tasks.sum()))
    worlds = World(), World(decision_time=to_seconds(max(0, late)))
    simulated, delayed = (summarise(run(workload, nodes, policy, world=world)) for world in worlds)
    as_live = summarise(run(as_held(workload, schedule, times), nodes, policy, world=World()))
    return Twice(policy, live, simulated, late, delayed, as_live)


def as_held(workload: Workload, schedule: Schedule, times: Mapping[tuple[int, int], Duration]) -> Workload:
    """The same bags, each task of which takes as long as it had its slot; what is known of them is as before.

    Args:
        schedule: what became of the workload: its jobs by their ids, in the same order.
        times: that each task had its slot, by job and task.
    """
    counts = workload.tasks.tolist()
    jobs = zip(schedule.label.tolist(), counts, strict=True)
    known = (workload.bags.get(place, BagTimes()) for place in range(len(counts)))
    bags = {
        place: BagTimes(tuple(times[job, task] for task in range(count)), sizes=bag.sizes, profile=bag.profile)
        for place, ((job, count), bag) in enumerate(zip(jobs, known, strict=True))
    }
    return replace(workload, bags=bags)


def of_server(folder: Path, *, record: bool = False) -> Schedule:
    """What a server ran that has ended, from its data directory; `record`: and which attempt ran on which slots."""
    return history(folder, registry.find, record=record)


def held_on_server(folder: Path) -> dict[tuple[int, int], Duration]:
    """How long each task of a server had its slot, by job and task, from its data directory."""
    return held(folder, registry.find)


def machines() -> tuple[NodeSpec, ...]:
    """The cluster of the replayed sample, unless a cluster file says which."""
    return (NodeSpec("machine", SLOTS),)


def _replayed(
    workload: Workload, policy: str, cluster: Path | None
) -> tuple[Schedule, dict[tuple[int, int], Duration], tuple[NodeSpec, ...]]:
    """What became of a workload on a server of its own, how long each task had its slot, and the server's nodes."""
    with TemporaryDirectory(prefix="headway-reproduce-") as name:
        folder = Path(name)
        with own_server(folder, cluster or machines(), policy), Client(data=folder) as client:
            client.choose_policy(period=0)  # as in the simulation, the policy runs only when something happens
            nodes = _found(client)
            replay = Replay(client, workload)
            replay.submit()
            _check_ended(replay, Event())
        return of_server(folder), held_on_server(folder), nodes


def _found(client: Client) -> tuple[NodeSpec, ...]:
    """The nodes of a server, when it has all slots of the experiment: engines find theirs one by one.

    Raises:
        HeadwayError: it has more, or not so many in time.
    """
    end = time.monotonic() + FIND_SECONDS
    while True:
        nodes = tuple(NodeSpec(node.name, len(node.slots), node.speed) for node in client.nodes() if node.up)
        slots = sum(node.slots for node in nodes)
        if slots == SLOTS:
            return nodes
        if slots > SLOTS or time.monotonic() > end:
            raise HeadwayError(f"the cluster has {slots} slots; the experiment needs {SLOTS}")
        time.sleep(LOOK_SECONDS)
