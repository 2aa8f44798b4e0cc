"""Wrong estimates: plans of workflows that are kept, mended, or made anew at every end.

    python bench/mending.py [PICTURE.png]

Twelve workflows on eight nodes of four speeds, generated ones and, if `HEADWAY_DATA` has them, real ones. Run times
are their estimates times a log-normal factor. Makespans are compared with those of plans made anew, means of seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from heapq import merge
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np

from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.snapshot import Snapshot
from headway.model.workload import Workload, workload_us
from headway.policies.heft import Heft
from headway.policies.layout import follow, lacking, mend
from headway.reproduce.dn13.instances import folder_of_workflows, real_graphs
from headway.sim.experiment import run
from headway.sim.world import World
from workflows import graph

NOISES: Final = (0.0, 0.1, 0.3, 0.5)
SEEDS: Final = range(4)
JOBS: Final = 12
TASKS_MOST: Final = 132
NODES: Final = [NodeSpec(f"n{number}", speed=float(1 + number % 4)) for number in range(8)]


class Anew:
    """HEFT, with new places for all that waits in every round."""

    per_instant = True
    task_rounds = True
    rounds = 0

    def __call__(self, view: Snapshot) -> Plan:
        self.rounds += 1
        heft = Heft()
        window = list(merge(*view.agenda.values()))
        if lacking(view) or not window:
            return heft(view)
        plan = view.plan()
        follow(view, plan, view.free, mend(view, plan, window, heft._give, ()))
        return plan


class Counted:
    """HEFT, and how many plans it has mended: rounds that promise tasks other starts though none lacks a place."""

    per_instant = True
    task_rounds = True

    def __init__(self, policy: Heft) -> None:
        self.policy, self.rounds, self.mended = policy, 0, 0

    def __call__(self, view: Snapshot) -> Plan:
        self.rounds += 1
        lacks = bool(lacking(view))
        plan = self.policy(view)
        self.mended += bool(plan.promises) and not lacks
        return plan


def main() -> None:
    """Print the section; draw the picture if asked for."""
    print("## Workflows: wrong estimates\n")
    print("| workflows | noise | kept | mended | anew, seconds | mended of rounds | kept, ms a round | mended | anew |")
    print("| --- |" + " ---: |" * 8)
    curves: dict[str, list[float]] = {}
    for name, draw in sources().items():
        for noise in NOISES:
            kept, mended, anew = Counted(Heft(mend=0)), Counted(Heft()), Anew()
            (of_kept, ms), (of_mended, ms_mended), (of_anew, ms_anew) = (
                measured(policy, draw, noise) for policy in (kept, mended, anew)
            )
            ratios = [float((one / of_anew).mean()) for one in (of_kept, of_mended)]
            curves.setdefault(f"{name}: kept", []).append(ratios[0])
            curves.setdefault(f"{name}: mended", []).append(ratios[1])
            print(
                f"| {name} | {noise:g} | {ratios[0]:.3f} | {ratios[1]:.3f} | {of_anew.mean():,.0f} | "
                f"{mended.mended} of {mended.rounds} | {ms / kept.rounds:.2f} | {ms_mended / mended.rounds:.2f} | "
                f"{ms_anew / anew.rounds:.2f} |",
                flush=True,
            )
    print("\n    python bench/mending.py")
    if sys.argv[1:]:
        draw_curves(curves, Path(sys.argv[1]))


def sources() -> dict[str, Callable[[random.Random], tuple[TaskSpec, ...]]]:
    """What draws a workflow, by name."""
    found = {"generated": lambda chance: graph(chance, chance.randint(10, 60), back=10, widest=1, most=0)}
    if folder := folder_of_workflows():
        real = [tuple(TaskSpec(one.estimate, 1, one.after) for one in each) for each in real_graphs(folder)]
        some = [each for each in real if len(each) <= TASKS_MOST]
        found["real"] = lambda chance: chance.choice(some)
    return found


def measured(
    policy: Policy, draw: Callable[[random.Random], tuple[TaskSpec, ...]], noise: float
) -> tuple[np.ndarray, float]:
    """The makespans in seconds, and milliseconds of processor time in all."""
    began = process_time()
    spans = []
    for seed in SEEDS:
        chance = random.Random(seed)
        schedule = run(
            workload([draw(chance) for _ in range(JOBS)]), NODES, policy, world=World(noise=noise, seed=seed)
        )
        spans.append(schedule.end.max() / 1e6)
    return np.array(spans), 1000 * (process_time() - began)


def workload(graphs: list[tuple[TaskSpec, ...]]) -> Workload:
    """Workflows that come together."""
    return workload_us(
        release=[0] * len(graphs),
        runtime=[0] * len(graphs),
        tasks=[len(each) for each in graphs],
        kind=[Kind.WORKFLOW] * len(graphs),
        workflows=dict(enumerate(graphs)),
    )


def draw_curves(curves: dict[str, list[float]], path: Path) -> None:
    """Makespan over that of plans made anew, against noise."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.4), layout="constrained")
    for (name, values), style in zip(curves.items(), ("C3-o", "C0-o", "C3--s", "C0--s"), strict=False):
        axes.plot(NOISES, values, style, label=name)
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.set(xlabel="noise: sigma of the log-normal factor on run times", ylabel="makespan, anew = 1")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
