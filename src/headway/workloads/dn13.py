"""Instances of DN13: workflows of five kinds with due dates, for five sites of multi-core machines.

The paper's 25 instances are not published. These follow its text, and readings where it is silent: see
docs/papers/dn13.md.

Source: B. Dorronsoro, S. Nesmachnow, "A Two-level Job Scheduler for Large Distributed Systems", sections 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from headway.errors import InvalidInput, did_you_mean
from headway.model.graph import length_of
from headway.model.instant import Duration, from_seconds
from headway.model.job import SHAPES, Kind, PenaltyShape, TaskSpec
from headway.model.node import NodeSpec, Power
from headway.model.workload import Workload, workload_us
from headway.workloads.generated import check_whole

JOBS_OF_INSTANCE: Final = 1000
"""Workflows of an instance, as in the paper."""

SITE_PROCESSORS: Final = 100
"""Processors of each site: the most of the paper."""

REAL: Final = "real"
"""The kind of instances whose workflows are drawn from given ones, see `drawn`."""

PROCESSORS_SINGLE: Final = 10
"""Processors of each site for single tasks and for real workflows: on 500 processors the longest task or critical path
alone would decide the makespan."""


class Processor(NamedTuple):
    """A processor of the time of the paper: name, cores, billions of operations a second, and watts.

    Source: from memory; the paper says "real ones taken from the current market".
    """

    name: str
    cores: int
    gflops: float
    idle: float
    peak: float


MARKET: Final = (
    Processor("celeron-430", 1, 7.2, 75, 94),
    Processor("pentium-e5300", 2, 20.8, 68, 109),
    Processor("core-i7-870", 4, 46.88, 76, 214),
    Processor("core-i5-661", 2, 26.64, 74, 131),
    Processor("core-i7-980x", 6, 107.6, 102, 210),
)
"""One site has each of these."""

REFERENCE: Final = 11.72
"""Billions of operations a second of a core of speed factor 1: of a Core i7-870."""

WIDEST: Final = max(processor.cores for processor in MARKET)
SHORTEST_TASK, LONGEST_TASK = 10.0, 7200.0
"""Run times of tasks on a core of speed factor 1 for each core that they use, in seconds."""

TASKS_OF_WORKFLOW: Final = (3, 132)
"""How many tasks a workflow has, but for single tasks."""

BRANCHES: Final = 12
"""The most tasks of a series-parallel workflow that can run at once."""

Size = Literal["alike", "drawn", "equal"]
SIZES: Final[dict[Size, str]] = {
    "alike": "all of as many processors",
    "drawn": "of 1 to 100 processors, drawn",
    "equal": "all of equal capacity",
}
"""How large sites are, in words."""

Graph = list[TaskSpec]


class _Draw:
    """Draws tasks, and workflows of each kind."""

    def __init__(self, chance: np.random.Generator) -> None:
        self.chance = chance
        self.widest = 1

    def whole(self, least: int, most: int) -> int:
        return int(self.chance.integers(least, most, endpoint=True))

    def span(self) -> Duration:
        return from_seconds(round(math.exp(self.chance.uniform(math.log(SHORTEST_TASK), math.log(LONGEST_TASK))), 3))

    def task(self, after: Sequence[int] = ()) -> TaskSpec:
        return TaskSpec(self.span(), self.whole(1, self.widest), tuple(after))

    def single(self) -> Graph:
        return [TaskSpec(self.span(), self.widest)]

    def heterogeneous(self) -> Graph:
        """A task, then many at once, then one after all of these."""
        inner = self.whole(TASKS_OF_WORKFLOW[0] - 2, TASKS_OF_WORKFLOW[1] - 2)
        return [self.task(), *(self.task((0,)) for _ in range(inner)), self.task(range(1, inner + 1))]

    def homogeneous(self) -> Graph:
        """The same, with inner tasks that are all alike."""
        inner = self.whole(TASKS_OF_WORKFLOW[0] - 2, TASKS_OF_WORKFLOW[1] - 2)
        one = self.task((0,))
        return [self.task(), *([one] * inner), self.task(range(1, inner + 1))]

    def series_parallel(self) -> Graph:
        """Stages of several tasks at once, each joined by one task."""
        tasks = self.whole(*TASKS_OF_WORKFLOW)
        graph, last = [self.task()], [0]
        while len(graph) < tasks:
            if len(last) > 1:
                graph.append(self.task(last))
                last = [len(graph) - 1]
            first = len(graph)
            graph += [self.task(last) for _ in range(min(self.whole(1, BRANCHES), tasks - first))]
            last = list(range(first, len(graph))) or last
        return graph


KINDS: Final[dict[str, Callable[[_Draw], Graph]]] = {
    "series-parallel": _Draw.series_parallel,
    "heterogeneous-parallel": _Draw.heterogeneous,
    "homogeneous-parallel": _Draw.homogeneous,
    "single-task": _Draw.single,
}
MIX: Final = "mix"
MIXED: Final = (0.3, 0.3, 0.3, 0.1)
"""The shares of the kinds in a mix."""

NAMES: Final = (*KINDS, MIX)

FROM_MEMORY: Final = "The five sites of DN13. Speeds and watts of their processors are from memory, not from the paper."
"""The kinds of instances."""

_HOUR_SECONDS: Final = 3600.0
RATES: Final = {
    PenaltyShape.SQUARE_ROOT: _HOUR_SECONDS**-0.5,
    PenaltyShape.LINEAR: 1 / _HOUR_SECONDS,
    PenaltyShape.SQUARE: _HOUR_SECONDS**-2,
}
"""Penalty rates by which tardiness counts in hours, in any shape. In seconds, the square would swamp the others."""


def instance(
    kind: str, seed: int = 0, jobs: int = JOBS_OF_INSTANCE, nodes: Sequence[NodeSpec] | None = None
) -> Workload:
    """An instance of DN13: workflows that are all there at the start, each with a due date and a penalty shape.

    The most cores of a job are uniform in 1..6, those of its tasks in 1..that. Run times are log-uniform in 10..7200 s.
    A job is due 1.5 times its critical path at speed factor 1 after the start, plus a uniform share of 0 to 1.2 of the
    lower bound of the makespan.

    Args:
        kind: one of `NAMES`.
        seed: fixes everything.
        jobs: how many workflows.
        nodes: for whose lower bound due dates are drawn; None: those of `cluster`.

    Raises:
        InvalidInput: one of these is not allowed.
    """
    check_kind(kind)
    check_whole("seed", seed, 0)
    check_whole("jobs", jobs, 1, 1_000_000)
    chance = np.random.default_rng([NAMES.index(kind), seed])
    draw = _Draw(chance)
    graphs: list[tuple[TaskSpec, ...]] = []
    for _ in range(jobs):
        one = kind if kind != MIX else str(chance.choice(tuple(KINDS), p=MIXED))
        draw.widest = draw.whole(1, WIDEST)
        graphs.append(tuple(KINDS[one](draw)))
    return _workload(chance, graphs, cluster(kind, seed) if nodes is None else nodes)


def drawn(graphs: Sequence[Sequence[TaskSpec]], seed: int, jobs: int, nodes: Sequence[NodeSpec]) -> Workload:
    """An instance whose workflows are drawn from given ones, with replacement; due dates are drawn as in `instance`.

    Tasks that need more cores than the largest processor has get as many as it has. Nothing is sent.

    Raises:
        InvalidInput: there are no workflows, or a number is not allowed.
    """
    check_whole("seed", seed, 0)
    check_whole("jobs", jobs, 1, 1_000_000)
    if not graphs:
        raise InvalidInput("workflows", 0, "at least one")
    chance = np.random.default_rng([len(NAMES), seed])
    plain = [tuple(TaskSpec(task.estimate, min(task.cores, WIDEST), task.after) for task in graph) for graph in graphs]
    return _workload(chance, [plain[place] for place in chance.integers(0, len(plain), jobs).tolist()], nodes)


def _workload(
    chance: np.random.Generator, graphs: Sequence[tuple[TaskSpec, ...]], nodes: Sequence[NodeSpec]
) -> Workload:
    """Workflows that are all there at the start, with due dates and shapes of penalties that are drawn."""
    jobs = len(graphs)
    paths = [length_of(graph) for graph in graphs]
    bound = lower_bound(graphs, nodes)
    shapes = chance.integers(0, len(SHAPES), jobs).tolist()
    due = [round(1.5 * path + chance.uniform(0, 1.2) * bound) for path in paths]
    means = [sum(task.estimate for task in graph) // len(graph) for graph in graphs]
    return workload_us(
        release=[0] * jobs,
        runtime=means,
        estimate=means,
        tasks=[len(graph) for graph in graphs],
        due=due,
        rate=[RATES[SHAPES[shape]] for shape in shapes],
        shape=shapes,
        kind=int(Kind.WORKFLOW),
        workflows=dict(enumerate(graphs)),
    )


def check_kind(kind: str) -> None:
    """Raise `InvalidInput` unless it is a kind of instance that is generated."""
    if kind not in NAMES:
        raise InvalidInput("kind", kind, ", ".join(NAMES), hint=did_you_mean(kind, NAMES))


def cluster(kind: str, seed: int = 0, size: Size = "alike", processors: int | None = None) -> tuple[NodeSpec, ...]:
    """Five sites, each of processors of one model; a core is a slot.

    Args:
        kind: of the instance, or `REAL`: sites for single tasks and for real workflows are smaller.
        seed: fixes sizes that are drawn.
        size: how many processors each site has, see `SIZES`.
        processors: the most that a site has; None: 100, for single tasks and real workflows 10.

    Raises:
        InvalidInput: one of these is not allowed.
    """
    if kind != REAL:
        check_kind(kind)
    if size not in SIZES:
        raise InvalidInput("size", size, ", ".join(SIZES), hint=did_you_mean(size, SIZES))
    check_whole("seed", seed, 0)
    most = PROCESSORS_SINGLE if kind in ("single-task", REAL) else SITE_PROCESSORS
    if processors is not None:
        check_whole("processors", processors, 1, 10_000)
        most = processors
    least = min(model.gflops for model in MARKET)
    number = len(NAMES) + [*NAMES, REAL].index(kind)
    sizes = np.random.default_rng([number, seed]).integers(1, most, len(MARKET), endpoint=True)
    many = {
        "alike": [most] * len(MARKET),
        "drawn": sizes.tolist(),
        "equal": [max(1, round(most * least / model.gflops)) for model in MARKET],
    }[size]
    return tuple(
        NodeSpec(
            f"{model.name}-{number}",
            model.cores,
            model.gflops / model.cores / REFERENCE,
            site=model.name,
            power=Power(model.idle, model.peak),
        )
        for model, count in zip(MARKET, many, strict=True)
        for number in range(1, count + 1)
    )


def lower_bound(graphs: Sequence[Sequence[TaskSpec]], nodes: Sequence[NodeSpec]) -> float:
    """No schedule on these sites has a shorter makespan, in microseconds; all jobs are there at the start.

    It is the larger of two bounds:

    - the critical path of each job, on the fastest site that can hold it;
    - what fits side by side. Give a task of w cores the weight u(w), and let K(c) be the most that tasks on c cores can
      weigh together. Then the weighted time of all tasks is at most the makespan times the sum of K over the machines,
      for any u. With u(w) = w this is work over capacity; other weights know that beside a task of 5 cores only one
      more core of 6 can be used. All rising u in 0..6 are tried, for all jobs and for those that need most cores.

    Args:
        graphs: the workflows; tasks need at most 6 cores.
        nodes: machines whose cores are slots, all alike within a site.

    Raises:
        InvalidInput: a task needs more cores than any machine has.
    """
    sites = {node.site: node for node in nodes}
    machines = {name: sum(node.site == name for node in nodes) for name in sites}
    demands = [max(task.cores for task in graph) for graph in graphs]
    widest = max(demands, default=1)
    if widest > max(node.slots for node in sites.values()):
        raise InvalidInput("cores", widest, f"at most {max(node.slots for node in sites.values())}")
    bound = 0.0
    times = np.zeros((widest + 1, widest))  # by least demand of the job and by cores of the task
    for graph, demand in zip(graphs, demands, strict=True):
        fastest = max(node.speed for node in sites.values() if node.slots >= demand)
        bound = max(bound, length_of(graph) / fastest)
        for task in graph:
            times[: demand + 1, task.cores - 1] += task.estimate
    for weights in _rising(widest, widest):
        most = {slots: _most(weights, slots) for slots in {node.slots for node in sites.values()}}
        for demand in range(1, widest + 1):
            able = [name for name, node in sites.items() if node.slots >= demand]
            held = sum(machines[name] * sites[name].speed * most[sites[name].slots] for name in able)
            if held:
                bound = max(bound, float(times[demand] @ np.asarray(weights)) / held)
    return bound


def _rising(length: int, most: int, least: int = 0) -> list[tuple[int, ...]]:
    """All sequences of whole numbers of this length that never fall, from `least` to `most`."""
    if not length:
        return [()]
    return [(first, *rest) for first in range(least, most + 1) for rest in _rising(length - 1, most, first)]


def _most(weights: Sequence[int], slots: int) -> int:
    """The most that tasks weigh together that fit on so many slots side by side."""
    best = [0] * (slots + 1)
    for held in range(1, slots + 1):
        best[held] = max(best[held - cores] + weight for cores, weight in enumerate(weights, 1) if cores <= held)
    return best[slots]
