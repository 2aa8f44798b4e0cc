"""HEFT (Topcuoglu, Hariri and Wu 2002) without communication: by hand, compared with a static twin, and with a peer.

Headway computes the schedule again in every round. In a simulation it must follow the one schedule of the paper's
static algorithm.
"""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import Conclude, JobStatus, Launch, Settle
from headway.model.events import JobSubmitted, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.testing import job

# The graph of the paper's figure 2. Costs are three times the mean over its three processors, so that they are whole.
PAPER = {
    0: (39, ()),
    1: (50, (0,)),
    2: (43, (0,)),
    3: (38, (0,)),
    4: (35, (0,)),
    5: (38, (0,)),
    6: (33, (2,)),
    7: (30, (1, 3, 5)),
    8: (50, (1, 3, 4)),
    9: (44, (6, 7, 8)),
}
Graph = dict[int, tuple[int, tuple[int, ...]]]
"""By task, its cost at speed 1 and the tasks before it, which have smaller numbers."""
Placed = dict[int, tuple[int, int, int]]
"""By task, its node, its start and its end."""


def follow(graph: Graph, speeds: list[int], *, slots: int = 1, cores: dict[int, int] | None = None) -> Placed:
    """Run the graph under the policy. Returns the place and time of every attempt."""
    plan = tuple(TaskSpec(cost, (cores or {}).get(task, 1), before) for task, (cost, before) in graph.items())
    workload = workload_us(release=[0], runtime=[0], tasks=len(plan), kind=Kind.WORKFLOW, workflows={0: plan})
    nodes = [NodeSpec(f"n{number}", slots=slots, speed=speed) for number, speed in enumerate(speeds)]
    placed: Placed = {}

    def audit(scheduler: Scheduler) -> None:
        scheduler.check()
        for view in scheduler.state.jobs.values():
            for task, attempt in view.attempts.items():
                node = (attempt.slots.bit_length() - 1) // slots
                placed[task] = (node, attempt.start, attempt.expected_end)

    simulation = Simulation(workload, nodes, registry.find, "heft", audit=audit)
    schedule: Schedule = simulation.run()
    assert placed.keys() == graph.keys()
    assert schedule.end[0] == max(end for _, _, end in placed.values())
    return placed


def static(graph: Graph, speeds: list[int]) -> Placed:
    """The paper's algorithm, literally, on nodes of one core: rank all tasks, then place one after the other.

    Ties: the lower number among equal ranks, the first node among equal ends.
    """
    rank: dict[int, float] = {}
    for task in reversed(graph):
        mean = graph[task][0] * float(np.mean(1 / np.array(speeds)))
        rank[task] = mean + max((rank[after] for after in graph if task in graph[after][1]), default=0.0)
    placed: Placed = {}
    for task in sorted(graph, key=lambda task: (-rank[task], task)):
        cost, before = graph[task]
        ready = max((placed[other][2] for other in before), default=0)
        options = []
        for node, speed in enumerate(speeds):
            lasts = cost // speed
            taken = sorted(placed[other][1:] for other in placed if placed[other][0] == node)
            starts = [ready] + [end for _, end in taken if end >= ready]
            fitting = [at for at in starts if all(at + lasts <= begin or end <= at for begin, end in taken)]
            options.append((min(fitting) + lasts, node, min(fitting)))
        end, node, begin = min(options)
        placed[task] = (node, begin, end)
    return placed


def draw(chance: Random, *, tasks: int, ties: bool) -> Graph:
    """A random graph with one first and one last task. Its costs are divisible by all speeds up to 5."""
    graph: Graph = {}
    for task in range(tasks):
        cost = 60 * (chance.randint(1, 3) if ties else chance.randint(1, 10**7))
        before = tuple(sorted({chance.randrange(task) for _ in range(chance.randint(1, 3))})) if task else ()
        graph[task] = (cost, before)
    cost, _ = graph.pop(tasks - 1)
    inner = {other for _, before in graph.values() for other in before}
    graph[tasks - 1] = (cost, tuple(task for task in graph if task not in inner))
    return graph


def test_the_graph_of_the_paper_by_hand() -> None:
    """Ranks 183, 144, 120, 132, 129, 112, 77, 74, 94, 44: in the order 0, 1, 3, 4, 2, 5, 8, 6, 7, 9 (figure 2)."""
    by_hand = {
        0: (0, 0, 39),
        1: (0, 39, 89),
        3: (1, 39, 77),
        4: (2, 39, 74),
        2: (2, 74, 117),
        5: (1, 77, 115),
        8: (0, 89, 139),
        6: (1, 117, 150),
        7: (2, 117, 147),
        9: (0, 150, 194),
    }
    assert static(PAPER, [1, 1, 1]) == by_hand
    assert follow(PAPER, [1, 1, 1]) == by_hand


def test_what_a_bag_before_it_takes_is_not_promised_to_a_workflow() -> None:
    """One slot per node. The bag has the first for 10 s, one workflow the second for 5 s; the other comes next."""
    scheduler = Scheduler(registry.find, "heft")
    for name in ("a", "b"):
        scheduler.handle(NodeJoined(0, NodeSpec(name)))
    scheduler.handle(JobSubmitted(0, job(1, estimate=10)))
    for number in (2, 3):
        scheduler.handle(JobSubmitted(0, job(number, graph=(TaskSpec(5 * SECOND),))))
    scheduler.handle(Woke(0))
    jobs = scheduler.state.jobs
    assert [view.slots for view in jobs.values()] == [0b01, 0b10, 0]
    assert jobs[3].promise == 5 * SECOND
    scheduler.handle(JobSubmitted(0, job(4, tasks=2, estimate=20)))
    scheduler.handle(TaskEnded(SECOND, 2, 0, 1))
    scheduler.handle(Woke(SECOND))
    assert jobs[3].slots == 0b10
    scheduler.check()


def test_a_bag_takes_what_is_free_beside_what_a_workflow_starts() -> None:
    scheduler = Scheduler(registry.find, "heft")
    scheduler.handle(NodeJoined(0, NodeSpec("a", slots=3)))
    scheduler.handle(JobSubmitted(0, job(1, tasks=2, estimate=10)))
    scheduler.handle(JobSubmitted(0, job(2, graph=(TaskSpec(4 * SECOND, cores=2),))))
    scheduler.handle(Woke(0))
    jobs = scheduler.state.jobs
    assert (jobs[1].slots, jobs[2].slots, jobs[2].promise) == (0b011, 0, 10 * SECOND)
    scheduler.check()


def test_a_task_goes_where_it_ends_first_though_it_starts_later_there() -> None:
    """Section 4.1: task 1 waits for the fast node, where it ends at 40. On the slow one it would end at 70."""
    graph: Graph = {0: (60, ()), 1: (60, (0,)), 2: (6, (0,))}
    assert follow(graph, [1, 3]) == {0: (1, 0, 20), 1: (1, 20, 40), 2: (0, 20, 26)}


def test_a_gap_is_used_where_a_task_fits() -> None:
    """Section 4.1, insertion: node 0 is idle from 10 to 40, before task 3, which waits for task 2. Task 4 fits."""
    graph: Graph = {0: (10, ()), 1: (40, ()), 2: (20, (1,)), 3: (30, (0, 1)), 4: (25, ())}
    placed = follow(graph, [1, 1])
    assert placed == static(graph, [1, 1])
    assert placed[4] == (1 - placed[1][0], 10, 35)


def test_tasks_of_several_cores_share_a_node() -> None:
    """Two nodes of two cores. Tasks 1 and 2 share one; task 3 needs a whole node and gets the other."""
    graph: Graph = {0: (10, ()), 1: (20, (0,)), 2: (20, (0,)), 3: (30, (0,)), 4: (5, (1, 2, 3))}
    placed = follow(graph, [1, 1], slots=2, cores={3: 2, 4: 2})
    assert placed == {0: (0, 0, 10), 3: (0, 10, 40), 1: (1, 10, 30), 2: (1, 10, 30), 4: (0, 40, 45)}


@pytest.mark.parametrize("ties", [False, True], ids=["plain", "ties"])
def test_running_follows_the_static_schedule(ties: bool) -> None:
    for seed in range(60):
        chance = Random(seed)
        graph = draw(chance, tasks=chance.randint(2, 20), ties=ties)
        speeds = [chance.randint(1, 5) for _ in range(chance.randint(1, 5))]
        assert follow(graph, speeds) == static(graph, speeds), f"seed {seed}: {graph} on {speeds}"


def test_workflows_are_served_in_order_of_submission() -> None:
    """The second workflow gets what the first leaves: its task fits into the gap before the first one's last task."""
    first = (TaskSpec(10 * SECOND), TaskSpec(20 * SECOND), TaskSpec(10 * SECOND, 2, (0, 1)))
    workload = workload_us(
        release=[0, 0],
        runtime=[0, 0],
        tasks=[3, 2],
        kind=[Kind.WORKFLOW] * 2,
        workflows={0: first, 1: (TaskSpec(10 * SECOND), TaskSpec(1 * SECOND))},
    )
    schedule = Simulation(workload, [NodeSpec("n", slots=2)], registry.find, "heft", audit=Scheduler.check).run()
    assert (schedule.start // SECOND).tolist() == [0, 10]
    assert (schedule.end // SECOND).tolist() == [30, 31]


def test_tasks_that_can_never_start_keep_no_room() -> None:
    """Task 0 fails. Task 1, which comes after it, has the higher rank, but must not keep the only slot from task 2."""
    scheduler = Scheduler(registry.find, "heft:per_instant=false")
    scheduler.handle(NodeJoined(0, NodeSpec("n")))
    scheduler.handle(JobSubmitted(0, job(1, graph=(TaskSpec(10), TaskSpec(100, 1, (0,)), TaskSpec(5)))))
    actions = scheduler.handle(TaskEnded(10, 1, 0, 1, Outcome.RAISED))
    assert actions == [Settle(1, 0, 1, Outcome.RAISED), Launch(1, 2, 1, 1)]
    actions = scheduler.handle(TaskEnded(15, 1, 2, 1))
    assert actions == [Settle(1, 2, 1, Outcome.SUCCEEDED), Conclude(1, JobStatus.FAILED)]
    scheduler.check()


@pytest.fixture(scope="module")
def saga() -> Any:
    """The peer. Warnings of its imports are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip("saga", reason="anrg-saga is not installed; `make peers` installs it")
        pytest.importorskip("saga.schedulers.heft")
    return found


@pytest.mark.peers
def test_makespans_are_those_of_anrg_saga(saga: Any) -> None:
    """On nodes of one core, without communication. Speeds differ and costs are large random numbers: no ties.

    With ties, the peer takes the first node of a Python set, so makespans could differ.
    """
    scheduler = saga.schedulers.heft.HeftScheduler()
    for seed in range(40):
        chance = Random(seed)
        graph = draw(chance, tasks=chance.randint(3, 30), ties=False)
        speeds = chance.sample([1, 2, 3, 4, 5], chance.randint(1, 5))
        names = [f"n{number}" for number in range(len(speeds))]
        network = saga.Network.create(
            nodes=list(zip(names, map(float, speeds), strict=True)),
            edges=[(one, other, 1.0) for one in names for other in names if one < other],
        )
        tasks = saga.TaskGraph.create(
            tasks=[(f"t{task}", float(cost)) for task, (cost, _) in graph.items()],
            dependencies=[(f"t{other}", f"t{task}", 0.0) for task in graph for other in graph[task][1]],
        )
        theirs = scheduler.schedule(network, tasks)
        ours = follow(graph, speeds)
        assert max(end for _, _, end in ours.values()) == theirs.makespan, f"seed {seed}: {graph} on {speeds}"
        for name, placed in theirs.items():
            for task in placed:
                assert ours[int(task.name[1:])] == (int(name[1:]), task.start, task.end), f"seed {seed}"
