"""Orders that are improved step by step, against the optimum, which is found by trying everything."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim.experiment import run

Graph = tuple[TaskSpec, ...]


def draw(chance: Random) -> Graph:
    graph = []
    for task in range(7):
        after = tuple(sorted({chance.randrange(task) for _ in range(chance.randint(0, 2))})) if task else ()
        graph.append(TaskSpec(chance.randint(1, 9) * SECOND, 1, after))
    return tuple(graph)


def optimum(graph: Graph, nodes: int) -> int:
    """The least makespan on nodes that are alike, in seconds: some node is idle only until another task has ended.

    At each instant it tries every set of ready tasks that idle nodes can start, none included.
    """

    @cache
    def least(done: frozenset[int], running: frozenset[tuple[int, int]]) -> int:
        busy = {task for task, _ in running}
        ready = [task for task, spec in enumerate(graph) if task not in done | busy and done.issuperset(spec.after)]
        found = []
        for chosen in range(1 << len(ready)):
            started = [task for place, task in enumerate(ready) if chosen >> place & 1]
            if len(started) > nodes - len(running) or not (started or running):
                continue
            going = {*running, *((task, graph[task].estimate // SECOND) for task in started)}
            step = min(left for _, left in going)
            ended = {task for task, left in going if left == step}
            after = frozenset((task, left - step) for task, left in going if left > step)
            found.append(step + least(done | ended, after))
        return min(found, default=0)

    return least(frozenset(), frozenset())


def makespan(graph: Graph, nodes: int, policy: str) -> int:
    alone = workload_us(release=[0], runtime=[0], tasks=[len(graph)], kind=[Kind.WORKFLOW], workflows={0: graph})
    return int(run(alone, [NodeSpec(f"n{number}") for number in range(nodes)], policy).end[0]) // SECOND


def test_small_graphs_reach_the_optimum() -> None:
    """Of 20 graphs on two nodes HEFT misses some optima. With improvement none is missed, and none undercut."""
    plain = improved = least = 0
    for seed in range(20):
        graph = draw(Random(seed))
        best = optimum(graph, 2)
        ends = makespan(graph, 2, "heft"), makespan(graph, 2, "heft:improve=60")
        assert best <= ends[1] <= ends[0], f"seed {seed}"
        plain, improved, least = plain + ends[0], improved + ends[1], least + best
    assert plain > improved == least


def test_with_due_dates_tardiness_counts_first() -> None:
    """The latest starts are 0.5 s and 1 s. In that order the second is late by 9 s; in the other the first by 0.5 s."""
    workload = workload_us(
        release=[0, 0],
        runtime=[0, 0],
        tasks=[1, 1],
        due=[10 * SECOND + SECOND // 2, 2 * SECOND],
        kind=[Kind.WORKFLOW] * 2,
        workflows={0: (TaskSpec(10 * SECOND),), 1: (TaskSpec(SECOND),)},
    )
    for policy, ends in (("heft:order=due", [10, 11]), ("heft:order=due,improve=20", [11, 1])):
        assert (run(workload, [NodeSpec("n")], policy).end // SECOND).tolist() == ends


@pytest.mark.parametrize("text", ["heft:improve=-1", "heft:mend=-2", "peft:mend=-1"])
def test_numbers_of_tasks_and_steps_are_not_negative(text: str) -> None:
    with pytest.raises(InvalidInput, match="0 or more"):
        registry.find(text)
