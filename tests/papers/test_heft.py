"""HEFT (Topcuoglu, Hariri and Wu 2002): by hand, compared with a static twin, and with a peer.

Headway plans once and follows the plan round by round. In a simulation the result must be the schedule of the paper's
static algorithm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.core.views import view_of
from headway.model.actions import Conclude, JobStatus, Launch, Settle
from headway.model.events import JobSubmitted, NetworkChosen, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.instant import SECOND, Duration
from headway.model.job import Kind, TaskSpec
from headway.model.network import Link, LinkTerms, Network
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import workload_us
from headway.policies import registry
from headway.policies.heft import Heft, upward_ranks
from headway.policies.holes import Holes, Times
from headway.policies.layout import Draft, Layout
from headway.sim.kernel import Simulation
from headway.testing import job
from headway.traces import read_workflows

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


Sends = dict[tuple[int, int], int]
"""By edge, bytes."""
Bandwidths = dict[tuple[int, int], int]
"""By pair of nodes, the smaller number first, bytes per microsecond."""


def follow(
    graph: Graph,
    speeds: list[int],
    *,
    slots: int = 1,
    cores: dict[int, int] | None = None,
    sends: Sends | None = None,
    bandwidths: Bandwidths | None = None,
    policy: str = "heft",
) -> Placed:
    """Run the graph under a policy. Returns the place and time of every attempt."""
    sizes = {
        task: tuple((sends or {}).get((other, task), 0) for other in before) for task, (_, before) in graph.items()
    }
    plan = tuple(
        TaskSpec(cost, (cores or {}).get(task, 1), before, sizes[task]) for task, (cost, before) in graph.items()
    )
    lines = {pair: LinkTerms(bandwidth=speed * 1e6) for pair, speed in (bandwidths or {}).items()}
    network = Network(links=tuple(Link(f"n{one}", f"n{other}", line) for (one, other), line in lines.items()))
    workload = workload_us(release=[0], runtime=[0], tasks=len(plan), kind=Kind.WORKFLOW, workflows={0: plan})
    nodes = [NodeSpec(f"n{number}", slots=slots, speed=speed) for number, speed in enumerate(speeds)]
    placed: Placed = {}

    def audit(scheduler: Scheduler) -> None:
        scheduler.check()
        for view in scheduler.state.jobs.values():
            for task, attempt in view.attempts.items():
                node = (attempt.slots.bit_length() - 1) // slots
                placed[task] = (node, attempt.start, attempt.expected_end)

    simulation = Simulation(workload, nodes, registry.find, policy, audit=audit, network=network)
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


@pytest.mark.parametrize(("order", "ends"), [("workflow", [30, 45]), ("pooled", [35, 25])])
def test_workflows_one_after_the_other_or_all_tasks_by_rank(order: str, ends: list[int]) -> None:
    """One after the other, the second workflow gets what the first leaves: its task of 1 s fits into the gap before the
    first one's last task, that of 15 s does not. By rank, that comes before the first one's last task.
    """
    first = (TaskSpec(10 * SECOND), TaskSpec(20 * SECOND), TaskSpec(10 * SECOND, 2, (0, 1)))
    workload = workload_us(
        release=[0, 0],
        runtime=[0, 0],
        tasks=[3, 2],
        kind=[Kind.WORKFLOW] * 2,
        workflows={0: first, 1: (TaskSpec(15 * SECOND), TaskSpec(1 * SECOND))},
    )
    policy, nodes = f"heft:order={order}", [NodeSpec("n", slots=2)]
    schedule = Simulation(workload, nodes, registry.find, policy, audit=Scheduler.check).run()
    assert (schedule.start // SECOND).tolist() == [0, 10]
    assert (schedule.end // SECOND).tolist() == ends


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


COSTS = [
    *((14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10)),
    *((13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16)),
]
"""Of the paper's figure 2: by task, its time on each of the three processors."""

SENDS = {
    1: {0: 18},
    2: {0: 12},
    3: {0: 9},
    4: {0: 11},
    5: {0: 14},
    6: {2: 23},
    7: {1: 19, 3: 27, 5: 15},
    8: {1: 16, 3: 23, 4: 13},
    9: {6: 17, 7: 11, 8: 13},
}
"""By task, the time that each task before it takes to send it what it needs."""


class OfTheFigure(Layout):
    """Processors that are faster for some tasks and slower for others. A task's estimate is its number and 1."""

    def lasts(self, estimate: Duration) -> Times:
        return np.array(COSTS[estimate - 1], dtype=np.int64)

    def mean_of(self, estimate: Duration) -> float:
        return sum(COSTS[estimate - 1]) / 3


def example() -> tuple[Scheduler, OfTheFigure, Draft]:
    """The paper's graph, to be laid out on its three processors; a byte takes a microsecond."""
    scheduler = Scheduler(registry.find, "edf")
    scheduler.handle(NetworkChosen(0, Network(LinkTerms(bandwidth=1e6))))
    for number in range(3):
        scheduler.handle(NodeJoined(0, NodeSpec(f"p{number}")))
    graph = [
        TaskSpec(task + 1, 1, tuple(SENDS.get(task, {})), tuple(SENDS.get(task, {}).values())) for task in range(10)
    ]
    draft = Draft(view_of(job(1, graph=tuple(graph)), 1), 0, lambda cores: True)
    return scheduler, OfTheFigure(scheduler.state, [draft], []), draft


def test_the_example_of_the_paper_takes_80() -> None:
    """Figure 3a: the schedule of HEFT; table 3: its upward ranks."""
    _, layout, draft = example()
    ranks = upward_ranks(layout, draft.job, layout.mean_line(distinct=True))
    assert [round(rank, 3) for rank in ranks] == [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    Heft()._give(layout, [draft])
    assert max(draft.end.values()) == 80
    assert {name: [(task, start) for start, _, task in sorted(tasks)] for name, tasks in layout.placed.items()} == {
        "p0": [(1, 27), (7, 57)],
        "p1": [(3, 18), (5, 26), (8, 56), (9, 73)],
        "p2": [(0, 0), (2, 9), (4, 28), (6, 38)],
    }


def test_the_best_hole_is_the_tightest_one() -> None:
    """One node: two holes of 30 and 20 hold a task of 20, and the tighter one, which is later, gets it. One of 25 takes
    the other, one of 40 comes last.
    """
    holes = Holes([1], {1: [1]}, 0)
    holes.take(0, 30, 40, 1)
    holes.take(0, 60, 70, 1)
    assert holes.soonest(1, 20, 0) == (0, 0, 20)
    assert holes.best_hole(1, 20, 0) == (0, 40, 60)
    assert holes.best_hole(1, 25, 0) == (0, 0, 25)
    assert holes.best_hole(1, 40, 0) == holes.soonest(1, 40, 0) == (0, 70, 110)
    assert holes.best_hole(1, 20, 45) == (0, 70, 90), "it would not end before the next task"


def test_holes_on_some_of_the_cores() -> None:
    """A node of two cores, and one of one core. From 10 to 20 one core of the first is taken, from 12 to 16 both."""
    holes = Holes([2, 1], {1: [1, 1], 2: [2, 2]}, 0)
    holes.take(0, 10, 20, 1)
    assert holes.soonest(2, 10, 5) == (0, 20, 30), "the second node is too small"
    assert holes.best_hole(2, 10, 0) == (0, 0, 10)
    assert holes.best_hole(1, 10, 0) == (0, 0, 10), "one core of the first is free for ever: that is no hole"
    holes.take(0, 12, 16, 1)
    assert holes.best_hole(1, 10, 0) == (0, 0, 10), "now it is free from 0 to 12"
    assert holes.best_hole(1, 10, 3) == (1, 3, 13)


@pytest.fixture(scope="module")
def saga() -> Any:
    """The peer. Warnings of its imports are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip("saga", reason="anrg-saga is not installed; `make peers` installs it")
        pytest.importorskip("saga.schedulers.heft")
    return found


def assert_same(
    saga: Any,
    graph: Graph,
    speeds: list[int],
    sends: Sends,
    bandwidths: Bandwidths,
    which: str,
) -> None:
    """Check that a schedule is that of anrg-saga, task by task."""
    network = saga.Network.create(
        nodes=[(f"n{number}", float(speed)) for number, speed in enumerate(speeds)],
        edges=[(f"n{one}", f"n{other}", float(speed)) for (one, other), speed in bandwidths.items()],
    )
    tasks = saga.TaskGraph.create(
        tasks=[(f"t{task}", float(cost)) for task, (cost, _) in graph.items()],
        dependencies=[(f"t{other}", f"t{task}", float(size)) for (other, task), size in sends.items()],
    )
    theirs = saga.schedulers.heft.HeftScheduler().schedule(network, tasks)
    ours = follow(graph, speeds, sends=sends, bandwidths=bandwidths, policy="heft:average=all")
    assert max(end for _, _, end in ours.values()) == theirs.makespan, f"{which}: {graph} on {speeds}"
    for name, placed in theirs.items():
        for task in placed:
            assert ours[int(task.name[1:])] == (int(name[1:]), task.start, task.end), which


@pytest.mark.peers
@pytest.mark.parametrize("amount", [0, 10**6, 10**9], ids=["free", "little", "much"])
def test_schedules_are_those_of_anrg_saga(saga: Any, amount: int) -> None:
    """500 graphs on nodes of one core. Speeds differ and costs are large random numbers: no ties.

    With ties, the peer takes the first node of a Python set, so schedules could differ. All times are whole.

    Args:
        amount: the most bytes that a task sends; a byte takes a microsecond at most.
    """
    for seed in range(100 if not amount else 200):
        chance = Random(seed)
        graph = draw(chance, tasks=chance.randint(3, 30), ties=False)
        speeds = chance.sample([1, 2, 3, 4, 5], chance.randint(1, 5))
        sends = {(other, task): 60 * chance.randint(0, amount // 60) for task in graph for other in graph[task][1]}
        pairs = [(one, other) for one in range(len(speeds)) for other in range(one + 1, len(speeds))]
        bandwidths = {pair: chance.randint(1, 5) for pair in pairs}
        assert_same(saga, graph, speeds, sends, bandwidths, f"seed {seed}")


@pytest.mark.peers
def test_the_schedule_of_the_papers_graph_is_that_of_anrg_saga(saga: Any, shared_data: Callable[[str], Path]) -> None:
    """The graph of figure 1 in Pegasus' form, where a task takes as long on each processor of speed 1."""
    (tasks,) = read_workflows([shared_data("workflows/dax/HEFT_paper.xml")]).workflows.values()
    graph = {number: (60 * task.estimate // SECOND, task.after) for number, task in enumerate(tasks)}
    sends = {
        (other, number): 60 * size // 125  # as many units as in the figure
        for number, task in enumerate(tasks)
        for other, size in zip(task.after, task.sends or (0,) * len(task.after), strict=True)
    }
    assert (len(graph), len(sends)) == (10, 15)
    for speeds in ([3, 4, 5], [2, 3, 5], [1, 5]):
        pairs = [(one, other) for one in range(len(speeds)) for other in range(one + 1, len(speeds))]
        assert_same(saga, graph, speeds, sends, dict.fromkeys(pairs, 1), f"speeds {speeds}")
