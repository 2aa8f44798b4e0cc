"""What it takes to plan workflows, and to simulate a thousand of them at five sites.

    python bench/workflows.py

Processor time, the least of several runs, so that other programs on the machine matter little.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Final

import measure
from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NetworkChosen, NodeJoined
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec, Workflow
from headway.model.network import LinkTerms, Network
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.experiment import run

SIZES: Final = ((1000, 32), (10_000, 128))
"""Tasks of one workflow, and nodes of one slot."""

POLICIES: Final = ("heft", "heft:holes=best", "peft")
JOBS: Final = 1000
PROCESSORS: Final = ((1, 7.2), (2, 20.8), (4, 46.88), (2, 26.64), (6, 107.6))
"""Cores, and billions of operations per second, of DN13's processors, from memory."""

REFERENCE: Final = 11.72
"""Billions of operations per second of a core of speed factor 1."""

LINE: Final = LinkTerms(1000, 1.25e8)


def main() -> None:
    """Print the section."""
    if sys.argv[1:]:
        run(instance(float(sys.argv[2])), sites(), sys.argv[1])
        return
    heads = (f"{tasks:,} tasks on {nodes} nodes" for tasks, nodes in SIZES)
    plans = [
        (f"`{policy}`", *(f"{1000 * planned(policy, tasks, nodes):.1f}" for tasks, nodes in SIZES))
        for policy in POLICIES
    ]
    runs: list[tuple[str, ...]] = []
    for policy in ("sites:top=rr,each=heft", "sites:top=rr,each=heft:holes=best"):
        for gap in (0, 60):
            seconds, megabytes = whole(policy, gap)
            come = "together" if not gap else f"every {gap} s"
            runs.append((f"`{policy}`", come, f"{seconds:.1f}", f"{megabytes:.0f}"))
    count = sum(map(len, instance(0.0).workflows.values()))
    measure.section(
        "Workflows: planned and simulated",
        """One workflow of tasks that send data to each other is planned on nodes of four speeds; the processor time of
        the policy's round, in milliseconds.""",
        measure.table(("policy", *heads), plans),
        measure.paragraph(
            f"""A simulation of {JOBS:,} workflows with {count:,} tasks at five sites of 100 nodes of up to six cores,
            without sending; processor time of the whole process, and its memory."""
        ),
        measure.table(("policy", "workflows come", "seconds", "MB"), runs),
    )


def planned(policy: str, tasks: int, nodes: int) -> float:
    """Seconds of processor time to plan a workflow."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NetworkChosen(0, Network(LINE, LINE)))
    for number in range(nodes):
        scheduler.handle(NodeJoined(0, NodeSpec(f"n{number}", speed=float(1 + number % 4))))
    scheduler.handle(JobSubmitted(0, Workflow(1, graph=graph(random.Random(1), tasks, back=50, widest=1, most=10**9))))
    return least(lambda: scheduler.state.policy(scheduler.state), 5 if tasks < 5000 else 2)


def least(call: Callable[[], object], runs: int) -> float:
    """The least processor time of some calls."""
    times = []
    for _ in range(runs):
        began = process_time()
        call()
        times.append(process_time() - began)
    return min(times)


def graph(chance: random.Random, tasks: int, *, back: int, widest: int, most: int) -> tuple[TaskSpec, ...]:
    """A workflow whose tasks come after up to three of the last `back` ones, and send up to `most` bytes."""
    made = []
    for task in range(tasks):
        count = chance.randint(1, 3) if task and chance.random() < 0.9 else 0
        after = tuple(sorted({chance.randrange(max(0, task - back), task) for _ in range(count)}))
        sends = tuple(chance.randint(1, most) for _ in after) if most else ()
        lasts = round(10 * 720 ** chance.random() * SECOND)
        made.append(TaskSpec(lasts, chance.randint(1, widest), after, sends))
    return tuple(made)


def instance(gap: float) -> Workload:
    """Workflows of 3 to 117 tasks that come one after the other, with so many seconds between them."""
    chance = random.Random(1)
    graphs = {
        number: graph(chance, chance.randint(3, 117), back=8, widest=chance.randint(1, 6), most=0)
        for number in range(JOBS)
    }
    return workload_us(
        release=[round(number * gap * SECOND) for number in graphs],
        runtime=[0] * JOBS,
        tasks=[len(tasks) for tasks in graphs.values()],
        kind=[Kind.WORKFLOW] * JOBS,
        workflows=graphs,
    )


def sites() -> list[NodeSpec]:
    """Five sites of 100 nodes."""
    chance = random.Random(1)
    nodes = []
    for number in range(500):
        cores, speed = chance.choice(PROCESSORS) if number % 100 else PROCESSORS[-1]
        nodes.append(NodeSpec(f"n{number}", cores, speed / cores / REFERENCE, site=f"s{number // 100}"))
    return nodes


def whole(policy: str, gap: int) -> tuple[float, float]:
    """Processor seconds and megabytes of a process that does nothing but one simulation."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, __file__, policy, str(gap)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1024


if __name__ == "__main__":
    main()
