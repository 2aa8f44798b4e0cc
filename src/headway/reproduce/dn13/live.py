"""Workflows of real commands over two sites of this machine, and the same in the simulator: is the makespan foreseen?

Each site gets a workflow of the shape of Montage, the astronomers' one that papers about workflows use most, whose
commands sleep. The simulator gets the same graphs and the same cluster. Once it takes launches as immediate; once it is
told how much longer than it slept a task held its slot, which is measured.

Source of the shape: G. Juve et al., "Characterizing and profiling scientific workflows", Future Generation Computer
Systems 29, 2013, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from headway.client.client import Client
from headway.client.workflow import Workflow
from headway.errors import HeadwayError
from headway.metrics import summarise
from headway.model.instant import from_seconds, to_seconds
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.reproduce.experiment import Progress, Result
from headway.reproduce.live import of_server
from headway.reproduce.server import own_server
from headway.reproduce.tables import Table
from headway.sim.experiment import run
from headway.sim.world import World

COMMANDS: Final = 200
"""Commands of each workflow."""

LEAST: Final = 12
SECONDS: Final = 1.0
"""How long a command sleeps on average."""

POLICY: Final = "sites:top=rr,each=heft"
END_SECONDS: Final = 600.0

Graph = tuple[TaskSpec, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for.

    Attributes:
        commands: of each workflow, `LEAST` or more.
        seed: fixes how long they sleep.
        seconds: how long they sleep on average.
        policy: under which they run.
    """

    commands: int = COMMANDS
    seed: int = 0
    seconds: float = SECONDS
    policy: str = POLICY


@dataclass(frozen=True, slots=True)
class Twice:
    """Makespans in seconds.

    Attributes:
        live: of the server.
        simulated: with immediate launches.
        late: by how many seconds a task held its slot longer than it slept, on average.
        delayed: simulated with that much between a round and its launches.
    """

    live: float
    simulated: float
    late: float
    delayed: float


def machines() -> tuple[NodeSpec, ...]:
    """Two sites: one of two nodes with two slots each, one of one node with four."""
    return (
        NodeSpec("east-1", 2, site="east"),
        NodeSpec("east-2", 2, site="east"),
        NodeSpec("west-1", 4, site="west"),
    )


def montage(commands: int, seed: int = 0, seconds: float = SECONDS) -> tuple[Graph, tuple[str, ...]]:
    """A workflow of the shape of Montage, and the names of its tasks.

    Images are projected, each pair that overlaps is compared, the differences are fitted together, each image is
    corrected, and they are added up. Run times are uniform in half to one and a half times the mean.

    >>> graph, names = montage(12)
    >>> names[0], names[-1], graph[-1].after, len(graph)
    ('project-0', 'view', (10,), 12)
    """
    images = max(2, round((commands - 5) / 4.5))
    pairs = commands - 5 - 2 * images
    chance = np.random.default_rng([commands, seed])
    after: list[tuple[int, ...]] = [()] * images
    names = [f"project-{image}" for image in range(images)]
    for pair in range(pairs):
        one, step = pair % images, 1 + pair // images
        after.append(tuple(sorted({one, (one + step) % images})))
        names.append(f"compare-{pair}")
    fit = len(after)
    after += [tuple(range(images, fit)) or tuple(range(images)), (fit,)]
    after += [tuple(sorted({image, fit + 1})) for image in range(images)]
    table = len(after)
    after += [tuple(range(fit + 2, table)), (table,), (table + 1,)]
    names += ["fit", "model", *(f"correct-{image}" for image in range(images)), "table", "add", "view"]
    times = np.round(seconds * chance.uniform(0.5, 1.5, len(after)), 3)
    graph = tuple(
        TaskSpec(from_seconds(time), after=before) for time, before in zip(times.tolist(), after, strict=True)
    )
    return graph, tuple(names)


def flow_of(name: str, graph: Graph, names: Sequence[str]) -> Workflow:
    """A workflow whose commands sleep as long as its tasks run on a node of speed factor 1."""
    flow = Workflow(name)
    for spec, task in zip(graph, names, strict=True):
        seconds = to_seconds(spec.estimate)
        before = [flow.tasks[other] for other in spec.after]
        flow.command(["sleep", f"{seconds:.6f}"], after=before, slots=spec.cores, estimate=seconds, name=task)
    return flow


def workload_of_graphs(graphs: Sequence[Graph]) -> Workload:
    """The same workflows for the simulator, all released at once."""
    means = [sum(task.estimate for task in graph) // len(graph) for graph in graphs]
    return workload_us(
        release=[0] * len(graphs),
        runtime=means,
        estimate=means,
        tasks=[len(graph) for graph in graphs],
        kind=int(Kind.WORKFLOW),
        workflows=dict(enumerate(graphs)),
    )


def twice(asked: Asked, ended: Callable[[int], object] = lambda tasks: None) -> Twice:
    """Run a workflow at each site, live and in the simulator.

    Args:
        ended: told how many commands have ended.

    Raises:
        HeadwayError: the server does not start, or a command does not succeed.
    """
    made = [montage(asked.commands, asked.seed + number, asked.seconds) for number in range(2)]
    graphs = [graph for graph, _ in made]
    with TemporaryDirectory(prefix="headway-reproduce-") as name:
        folder = Path(name)
        with own_server(folder, machines(), asked.policy), Client(data=folder) as client:
            client.choose_policy(period=0)  # as in the simulation, the policy runs only when something happens
            waiters = list(client.submit([flow_of(f"montage-{number}", *one) for number, one in enumerate(made)]))
            for looks in count(1):
                try:
                    client.wait(*waiters, timeout=1.0)
                    break
                except TimeoutError:
                    ended(sum(waiter.progress[0] for waiter in waiters))
                    if looks > END_SECONDS:
                        raise HeadwayError(f"the workflows did not end within {END_SECONDS:.0f} s") from None
            failed = sum(waiter.progress[1] for waiter in waiters)
        if failed:
            raise HeadwayError(f"{failed} commands failed")
        schedule = of_server(folder)
    work = sum(task.estimate * task.cores for graph in graphs for task in graph)
    late = max(0.0, to_seconds(schedule.busy - work) / sum(map(len, graphs)))
    worlds = World(), World(decision_time=late)
    simulated, delayed = (
        float(summarise(run(workload_of_graphs(graphs), machines(), asked.policy, world=world))["makespan"])
        for world in worlds
    )
    return Twice(float(summarise(schedule)["makespan"]), simulated, late, delayed)


def runs(asked: Asked) -> int:
    """How many commands run live."""
    return 2 * asked.commands


def perform(asked: Asked, progress: Progress) -> Result:
    """Run it, and say what came of it."""
    found = twice(asked, progress)
    progress(runs(asked))
    told = [
        ("live", found.live, 0.0),
        ("simulated", found.simulated, found.live / found.simulated - 1),
        ("simulated, with the time of launches", found.delayed, found.live / found.delayed - 1),
    ]
    cells = [(name, f"{seconds:.2f} s", f"{off:+.1%}" if name != "live" else "") for name, seconds, off in told]
    return Result(
        about=(
            f"Two workflows of {asked.commands} commands, at two sites of this machine with four slots each, under "
            f"{asked.policy}. A command held its slot {1000 * found.late:.1f} ms longer than it slept, on average."
        ),
        tables=(Table("Makespan live and as the simulator foresees it", ("", "makespan", "live is"), cells),),
        statements=(),
        columns=("run", "makespan", "live_is", "late"),
        rows=[(name, seconds, off, found.late) for name, seconds, off in told],
    )
