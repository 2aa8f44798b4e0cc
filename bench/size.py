"""Whether the cost grows with the machine: the same jobs on 4,008 slots, and a hundred times as wide on 400,800.

python bench/size.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

import logs
import measure
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.sim import experiment

SLOTS = 4_008
NODES = (4, 8, 16, 32, 48, 64, 96, 192, 300, 574)
"""Slots of the nodes: each of these sizes three times."""

TIMES = 100
BAGS = "bags, "
"""Before the name of a policy: the jobs are bags, of as many tasks as the rigid jobs are wide, but at most 64."""

POLICIES = {
    "easy": 20_000,
    "fcfs": 20_000,
    "conservative": 20_000,
    "measy": 3_000,
    "priority": 4_000,
    "deadline": 4_000,
    "tempo": 4_000,
    f"{BAGS}easy": 2_000,
    f"{BAGS}priority": 1_000,
    f"{BAGS}deadline": 1_000,
    f"{BAGS}tempo": 1_000,
}
"""How many jobs under which policies."""


def simulate(text: str, jobs: int, times: int) -> float:
    """Simulate generated jobs on a machine of so many times its size; the processor seconds of it.

    Rigid jobs are wider by as much. The tasks of bags stay as they are: each is an event, so more of them would be more
    work.
    """
    log = logs.Log("sizes", "", slots=SLOTS, jobs=jobs, load=0.85)
    workload = logs.made(log)
    nodes = [NodeSpec(f"n{number}-{size}", size * times) for number in range(3) for size in NODES]
    nodes.append(NodeSpec("last", SLOTS * times - sum(node.slots for node in nodes)))
    if text.startswith(BAGS):
        tasks = np.minimum(workload.width, 64)
        workload = replace(workload, tasks=tasks, width=np.ones_like(tasks), kind=np.full(jobs, Kind.BAG, np.int8))
        text = text.removeprefix(BAGS)
    else:
        workload = replace(workload, width=workload.width * times)
    began = time.process_time()
    experiment.run(workload, nodes, text)
    return time.process_time() - began


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--one", nargs=2)
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(simulate(given.one[0], POLICIES[given.one[0]], int(given.one[1]))))
        return
    places = [(text, compiled, times) for text in POLICIES for compiled in (False, True) for times in (1, TIMES)]
    commands = {
        (text, compiled, times): (
            *(str(measure.COMPILED / "python") if compiled else sys.executable, __file__, "--one", text, str(times)),
        )
        for text, compiled, times in places
    }
    runs = measure.alternating({it: partial(measure.run, command) for it, command in commands.items()}, given.rounds)
    rows = []
    for text, jobs in POLICIES.items():
        for compiled in (False, True):
            small, large = runs[text, compiled, 1], runs[text, compiled, TIMES]
            took = [median(json.loads(run.output) for run in several) for several in (small, large)]
            memory = [measure.megabytes(several) for several in (small, large)]
            rows.append(
                (
                    f"`{text}`, compiled" if compiled else f"`{text}`",
                    f"{jobs:,}",
                    *(f"{seconds:.2f}" for seconds in took),
                    f"{took[1] / took[0]:.1f}",
                    *(f"{megabytes:.0f}" for megabytes in memory),
                    f"{memory[1] / memory[0]:.1f}",
                )
            )
    measure.section(
        "The size of the machine",
        f"""Generated jobs on {SLOTS:,} slots in {3 * len(NODES) + 1} nodes of many sizes, then on {TIMES} times the
        slots. Rigid jobs are {TIMES} times as wide there, and except for `measy`, whose background draws by width, the
        schedules are equal. Bags, of at most 64 tasks, stay as they are, because {TIMES} times the tasks would be
        {TIMES} times the events. Processor seconds of the simulation alone, medians of {given.rounds} runs; the most
        memory of the whole process in MB. Wanted: at most twice the time and twice the memory.""",
        measure.table(
            ("policy", "jobs", "seconds", "of the large one", "ratio", "MB", "of the large one", "ratio"), rows
        ),
    )


if __name__ == "__main__":
    main()
