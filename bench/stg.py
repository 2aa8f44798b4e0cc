"""How near to the optimum workflows end: the Standard Task Graph Set on 2, 4, 8 and 16 nodes that are all alike.

    python bench/stg.py DATA [POLICY...]

DATA is a folder with the graphs (`stg-rnc50.tar.gz`) and their optimal makespans (`stg-rnc50-opt-m2.csv` and so on:
file, processors, makespan). `STG_EVERY=6` takes only every sixth graph.

Source: Tobita & Kasahara, "A standard task graph set for fair evaluation of multiprocessor scheduling algorithms",
Journal of Scheduling 5, 2002.
"""

from __future__ import annotations

import csv
import os
import sys
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
            over = np.array([makespan(graphs.workflows[one], nodes, policy) / optimal[one] for one in chosen])
            cells.append(f" {over.mean():.4f}, {over.max():.3f}, {int((over < 1 + 1e-9).sum())} |")
            means.append(float(over.mean()))
        seconds = (process_time() - began) / len(chosen) / len(NODES)
        print(f"| `{policy}` |", *cells, f" {np.mean(means):.4f} | {seconds:.3f} |", sep="", flush=True)
    print("\n    python bench/stg.py DATA")


def makespan(graph: tuple[TaskSpec, ...], nodes: int, policy: str) -> float:
    """How long a workflow takes by itself, in seconds."""
    alone = workload_us(release=[0], runtime=[0], tasks=[len(graph)], kind=[Kind.WORKFLOW], workflows={0: graph})
    return float(run(alone, [NodeSpec(f"n{number}") for number in range(nodes)], policy).end[0]) / SECOND


if __name__ == "__main__":
    main()
