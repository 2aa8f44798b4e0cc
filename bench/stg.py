"""How near to the optimum workflows end: the Standard Task Graph Set on 2, 4, 8 and 16 nodes that are all alike.

    python bench/stg.py DATA [POLICY...]

DATA is a folder with the graphs (`stg-rnc50.tar.gz`) and their optimal makespans (`stg-rnc50-opt-m2.csv` and so on:
file, processors, makespan). `STG_EVERY=6` takes only every sixth graph.

Some of the published optima are below what can be proved to be a lower bound. There, the bound counts.

Source: Tobita & Kasahara, "A standard task graph set for fair evaluation of multiprocessor scheduling algorithms",
Journal of Scheduling 5, 2002.
"""

from __future__ import annotations

import csv
import os
import sys
from functools import cache
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np

from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import workload_us
from headway.sim.experiment import run
from headway.traces import read_workflows

NODES: Final = (2, 4, 8, 16)
POLICIES: Final = ("peft", "heft", "heft:improve=20", "heft:improve=200")


def main() -> None:
    """Print the section."""
    if not sys.argv[1:]:
        sys.exit(__doc__)
    folder, policies = Path(sys.argv[1]), sys.argv[2:] or POLICIES
    every = int(os.environ.get("STG_EVERY", "1"))
    graphs = read_workflows([folder / "stg-rnc50.tar.gz"])
    chosen = range(0, len(graphs), every)
    print("## Workflows against optimal makespans\n")
    print(
        f"{len(chosen)} graphs of 50 tasks; makespan over the optimum: the mean, the worst, and how many are optimal.\n"
    )
    print("| policy |", *(f" {nodes} nodes |" for nodes in NODES), " all | seconds a graph |", sep="")
    print("| --- |", " ---: |" * (len(NODES) + 2), sep="")
    for policy in policies:
        cells, means, began = [], [], process_time()
        for nodes in NODES:
            with (folder / f"stg-rnc50-opt-m{nodes}.csv").open() as file:
                optimal = [int(row[2]) for row in csv.reader(file)]
            over = np.array([compared(graphs.workflows[one], nodes, policy, optimal[one]) for one in chosen])
            cells.append(f" {over.mean():.4f}, {over.max():.3f}, {int((over < 1 + 1e-9).sum())} |")
            means.append(float(over.mean()))
        seconds = (process_time() - began) / len(chosen) / len(NODES)
        print(f"| `{policy}` |", *cells, f" {np.mean(means):.4f} | {seconds:.3f} |", sep="", flush=True)
    print("\n    python bench/stg.py DATA")


def compared(graph: tuple[TaskSpec, ...], nodes: int, policy: str, optimal: int) -> float:
    """The makespan over the optimum; over a lower bound, where that is above the published optimum."""
    takes = makespan(graph, nodes, policy)
    return takes / max(optimal, lower_bound(graph, nodes, optimal)) if takes > optimal else 1.0


@cache
def lower_bound(graph: tuple[TaskSpec, ...], nodes: int, least: int) -> int:
    """The least makespan, not below another one, in which no interval must hold more work than the nodes can do.

    Each task has an earliest end and a latest start, by the longest ways before and after it. What lies in an interval
    however it is moved between them must be done there.

    Source: energetic reasoning: Erschler, Lopez and Thuriot, "Raisonnement temporel sous contraintes de ressource",
    Revue d'intelligence artificielle 5(3), 1991.
    """
    lasts = np.array([task.estimate // SECOND for task in graph])
    head, tail = np.zeros(len(graph), int), np.zeros(len(graph), int)
    for task, spec in enumerate(graph):
        head[task] = max([head[before] + lasts[before] for before in spec.after], default=0)
    for task in reversed(range(len(graph))):
        for before in graph[task].after:
            tail[before] = max(tail[before], tail[task] + lasts[task])
    bound = max(least, int((head + lasts + tail).max()))
    while True:
        latest = bound - tail - lasts
        points = np.unique(np.concatenate([head, head + lasts, latest, latest + lasts]))
        for begin in points:
            ends = points[points > begin][:, None]
            part = np.minimum(np.minimum(lasts, head + lasts - begin), np.minimum(ends - latest, ends - begin))
            if (np.maximum(part, 0).sum(axis=1) > nodes * (ends[:, 0] - begin)).any():
                break
        else:
            return bound
        bound += 1


def makespan(graph: tuple[TaskSpec, ...], nodes: int, policy: str) -> float:
    """How long a workflow takes by itself, in seconds."""
    alone = workload_us(release=[0], runtime=[0], tasks=[len(graph)], kind=[Kind.WORKFLOW], workflows={0: graph})
    return float(run(alone, [NodeSpec(f"n{number}") for number in range(nodes)], policy).end[0]) / SECOND


if __name__ == "__main__":
    main()
