"""Plans of workflows, kept and mended: random workflows with links, wrong estimates, failing nodes, and other jobs."""

from __future__ import annotations

from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import Launch
from headway.model.events import Event, JobSubmitted, NodeDown, NodeJoined, PolicyChosen, TaskEnded, Woke
from headway.model.instant import SECOND, Instant
from headway.model.job import Kind, TaskSpec, Workflow
from headway.model.network import Link, LinkTerms, Network, Routes, place_of
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.slots import of_numbers
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.world import World

POLICIES = [
    "heft",
    "heft:holes=best",
    "heft:holes=best,order=workflow,average=all,improve=1,mend=5",
    "peft",
    "sites:top=rr,each=heft",
]
SEEDS = range(8)
BAG, WORKFLOW = Kind.BAG, Kind.WORKFLOW

Task = tuple[int, int]
"""A job and a task of it."""


def a_graph(chance: Random, widest: int) -> tuple[TaskSpec, ...]:
    tasks: list[TaskSpec] = []
    for task in range(chance.randint(1, 12)):
        after = tuple(sorted({chance.randrange(task) for _ in range(chance.randint(0, 3))})) if task else ()
        sends = tuple(chance.choice([0, 1, 3, 10**6]) for _ in after) if chance.random() < 0.7 else ()
        tasks.append(TaskSpec(chance.choice([0, 1, 5, 9, 30]) * SECOND, chance.randint(1, widest), after, sends))
    return tuple(tasks)


def a_cluster(chance: Random) -> tuple[list[NodeSpec], Network]:
    """Nodes of two sites, of one to four slots; the first of each site has four."""
    nodes = [
        NodeSpec(
            f"n{number}",
            slots=4 if number < 2 else chance.randint(1, 4),
            speed=chance.choice([1.0, 1.0, 0.5, 3.0]),
            site=f"s{number % 2}",
        )
        for number in range(chance.randint(2, 5))
    ]
    line = LinkTerms(chance.choice([0, 1, SECOND]), chance.choice([None, 1.0, 3e5]))
    links = (Link("n0", "n1", LinkTerms(2 * SECOND)), Link("s0", "s1", LinkTerms(SECOND, 1e6)))
    return nodes, Network(line, LinkTerms(SECOND), links[: chance.randint(0, 2)])


def a_workload(chance: Random, *, bags: bool) -> Workload:
    jobs = chance.randint(1, 8)
    kinds = [BAG if bags and chance.random() < 0.3 else WORKFLOW for _ in range(jobs)]
    graphs = {number: a_graph(chance, 4) for number, kind in enumerate(kinds) if kind is WORKFLOW}
    releases = sorted(chance.choice([0, 0, 3, 20, 40]) * SECOND for _ in range(jobs))
    tasks = [len(graphs.get(number, ())) or chance.randint(1, 5) for number in range(jobs)]
    runtimes = [chance.choice([1, 7]) * SECOND for _ in range(jobs)]
    return workload_us(
        release=releases,
        runtime=runtimes,
        estimate=[7 * SECOND] * jobs,
        tasks=tasks,
        kind=kinds,
        workflows=graphs,
    )


def outages_of(chance: Random, nodes: list[NodeSpec]) -> list[Outage]:
    """Of all nodes but the first of each site, one after the other."""
    begins = [chance.uniform(0, 60) for _ in nodes[2:]]
    return [
        Outage(node.name, begin, begin + chance.uniform(1, 30)) for node, begin in zip(nodes[2:], begins, strict=True)
    ]


@pytest.mark.parametrize("policy", [*POLICIES, "edf", "easy"])
def test_no_task_begins_before_its_inputs_are_there(policy: str) -> None:
    """Whatever the policy: data is sent as soon as a task has ended, and nothing begins without it."""
    for seed in SEEDS:
        chance = Random(seed)
        nodes, network = a_cluster(chance)
        workload = a_workload(chance, bags=policy != "easy")
        routes, where = Routes(network), dict[Task, tuple[NodeSpec, Instant, Instant]]()

        def audit(scheduler: Scheduler, where: dict[Task, tuple[NodeSpec, Instant, Instant]] = where) -> None:
            scheduler.check()
            for job in scheduler.state.jobs.values():
                for task, attempt in job.attempts.items():
                    node = scheduler.state.slot_nodes[attempt.slots.bit_length() - 1].spec
                    where[job.id, task] = node, attempt.start, attempt.expected_end

        journal: list[Event] = []
        simulation = Simulation(workload, nodes, registry.find, policy, network=network, audit=audit, journal=journal)
        simulation.run()
        ends = {(event.job, event.task): event.at for event in journal if isinstance(event, TaskEnded)}
        for number, graph in workload.workflows.items():
            for task, spec in enumerate(graph):
                if policy == "easy" and (number, task) not in ends:
                    continue  # it does not serve all of them
                node, start, expected = where[number, task]
                end = ends[number, task]
                assert end == expected, f"seed {seed}: task {task} of job {number}"
                begin = end + int(-spec.estimate // node.speed)
                assert begin >= start
                for before, size in zip(spec.after, spec.sends or (0,) * len(spec.after), strict=True):
                    sent = routes.time(size, place_of(where[number, before][0]), place_of(node))
                    assert begin >= ends[number, before] + sent, f"seed {seed}: task {task} of job {number}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("trouble", ["none", "noise", "outages", "bags"])
def test_what_is_kept_between_rounds_decides_nothing(policy: str, trouble: str) -> None:
    """What is derived again in each round from the promises gives the same events as what was kept."""
    for seed in SEEDS:
        journals = []
        for forgets in (False, True):
            chance = Random(seed)
            nodes, network = a_cluster(chance)
            workload = a_workload(chance, bags=trouble == "bags")

            def audit(scheduler: Scheduler, forgets: bool = forgets) -> None:
                scheduler.check()
                for pool in scheduler.state.each() if forgets else ():
                    pool.layout = None

            journal: list[Event] = []
            Simulation(
                workload,
                nodes,
                registry.find,
                policy,
                network=network,
                audit=audit,
                journal=journal,
                world=World(noise=0.5 if trouble != "none" else 0.0, seed=seed),
                outages=outages_of(chance, nodes) if trouble == "outages" else [],
            ).run()
            ended = {(event.job, event.task) for event in journal if isinstance(event, TaskEnded)}
            assert len(ended) == int(workload.tasks.sum()), f"seed {seed}: some tasks have not run"
            journals.append(journal)
        assert journals[0] == journals[1], f"seed {seed}"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_restored_state_decides_as_the_one_that_went_on(policy: str) -> None:
    for seed in SEEDS:
        chance = Random(seed)
        nodes, network = a_cluster(chance)
        events: list[Event] = []
        Simulation(
            a_workload(chance, bags=True),
            nodes,
            registry.find,
            policy,
            network=network,
            journal=events,
            world=World(noise=0.5, seed=seed),
            outages=outages_of(chance, nodes),
        ).run()
        goes_on = Scheduler(registry.find, policy)
        for number, event in enumerate(events):
            restored = Scheduler.restore(goes_on.dump(), registry.find)
            restored.check()
            assert restored.handle(event) == goes_on.handle(event), f"seed {seed}, event {number}"
            assert restored.dump() == goes_on.dump(), f"seed {seed}, event {number}"


@pytest.mark.parametrize("policy", ["heft", "heft:holes=best", "heft:order=workflow", "peft"])
def test_while_estimates_hold_every_task_starts_when_it_was_promised(policy: str) -> None:
    """All jobs come together, so that no later one takes what is left; then the first promise of a task holds."""
    for seed in SEEDS:
        chance = Random(seed)
        nodes, network = a_cluster(chance)
        graphs = [a_graph(chance, 4) for _ in range(chance.randint(1, 5))]
        graphs = [tuple(TaskSpec(max(1, t.estimate), t.cores, t.after, t.sends) for t in graph) for graph in graphs]
        workload = workload_us(
            release=[0] * len(graphs),
            runtime=[0] * len(graphs),
            tasks=[len(graph) for graph in graphs],
            kind=[WORKFLOW] * len(graphs),
            workflows=dict(enumerate(graphs)),
        )
        promised, started = dict[Task, tuple[Instant, str]](), dict[Task, tuple[Instant, str]]()

        def audit(
            scheduler: Scheduler,
            promised: dict[Task, tuple[Instant, str]] = promised,
            started: dict[Task, tuple[Instant, str]] = started,
        ) -> None:
            state = scheduler.state
            for job in state.jobs.values():
                for task, place in job.planned.items():
                    assert promised.setdefault((job.id, task), place) == place
                for task, attempt in job.attempts.items():
                    name = state.slot_nodes[attempt.slots.bit_length() - 1].spec.name
                    started[job.id, task] = attempt.start, name

        Simulation(workload, nodes, registry.find, policy, network=network, audit=audit).run()
        assert started.keys() == {(number, task) for number, graph in enumerate(graphs) for task in range(len(graph))}
        for place, promise in promised.items():
            assert started[place] == promise, f"seed {seed}: {place}"


def test_a_policy_that_comes_later_plans_what_is_there() -> None:
    spec = Workflow(1, graph=(TaskSpec(5 * SECOND, 9), TaskSpec(5 * SECOND), TaskSpec(5 * SECOND, 1, (1,))))
    scheduler = Scheduler(registry.find, "edf")
    scheduler.handle(JobSubmitted(0, spec))
    scheduler.handle(NodeJoined(0, NodeSpec("n")))
    job = scheduler.state.jobs[1]
    assert not scheduler.state.unplanned
    scheduler.handle(PolicyChosen(SECOND, "heft"))
    scheduler.handle(Woke(SECOND))
    assert job.planned == {2: (6 * SECOND, "n")}, "task 0 is wider than the node"
    scheduler.handle(NodeJoined(2 * SECOND, NodeSpec("wide", slots=9)))
    scheduler.handle(Woke(2 * SECOND))
    assert job.attempts[0].slots == of_numbers(range(1, 10))
    assert job.planned == {2: (6 * SECOND, "n")}
    scheduler.check()
    scheduler.handle(NodeDown(3 * SECOND, "n"))
    scheduler.handle(Woke(3 * SECOND))
    assert job.planned == {1: (7 * SECOND, "wide"), 2: (12 * SECOND, "wide")}
    assert scheduler.restore(scheduler.dump(), registry.find).state.agenda == scheduler.state.agenda
    scheduler.handle(PolicyChosen(4 * SECOND, "edf"))
    assert not job.planned
    assert not scheduler.state.agenda
    scheduler.check()


def test_after_a_failure_the_task_and_those_after_it_get_new_places_and_others_keep_theirs() -> None:
    """Two chains of three tasks, each on a node. The first task of one fails at its end, and is tried again."""
    chains = [TaskSpec(10 * SECOND, 1, (task - 1,) if task % 3 else ()) for task in range(6)]
    scheduler = Scheduler(registry.find, "heft")
    for name in ("a", "b"):
        scheduler.handle(NodeJoined(0, NodeSpec(name)))
    scheduler.handle(JobSubmitted(0, Workflow(1, graph=tuple(chains), retries=1)))
    scheduler.handle(Woke(0))
    job = scheduler.state.jobs[1]
    there = {task: attempt.slots for task, attempt in job.attempts.items()}
    assert job.planned == {
        task: ((10 if task % 3 == 1 else 20) * SECOND, "a" if task < 3 else "b") for task in (1, 2, 4, 5)
    }
    scheduler.handle(TaskEnded(10 * SECOND, 1, 3, 1))
    scheduler.handle(TaskEnded(10 * SECOND, 1, 0, 1, Outcome.RAISED))
    scheduler.handle(Woke(10 * SECOND))
    assert {task: attempt.slots for task, attempt in job.attempts.items()} == {0: there[0], 4: there[3]}
    assert job.attempts[0].number == 2
    assert job.planned == {1: (20 * SECOND, "a"), 2: (30 * SECOND, "a"), 5: (20 * SECOND, "b")}
    scheduler.check()


def four_tasks(policy: str) -> tuple[Scheduler, list[tuple[int, int, int]]]:
    """Four tasks of 10 s on two nodes. The first takes 30 s. Returns each start in seconds, task and slots."""
    scheduler = Scheduler(registry.find, f"{policy}per_instant=false")
    for name in ("a", "b"):
        scheduler.handle(NodeJoined(0, NodeSpec(name)))
    actions = [*scheduler.handle(JobSubmitted(0, Workflow(1, graph=(TaskSpec(10 * SECOND),) * 4)))]
    for at, task in ((10, 1), (20, 3), (30, 0)):
        actions += scheduler.handle(TaskEnded(at * SECOND, 1, task, 1))
        scheduler.check()
    started = {task: attempt.start for task, attempt in scheduler.state.jobs[1].attempts.items()}
    launched = [action for action in actions if isinstance(action, Launch)]
    return scheduler, [(started.get(one.task, -1) // SECOND, one.task, one.slots) for one in launched]


def test_an_idle_node_takes_what_waits_behind_a_late_task() -> None:
    """Task 2 was to follow task 0, which is late. At 20 s the other node has nothing left to do, and takes it."""
    _, mended = four_tasks("heft:")
    assert mended[-1] == (20, 2, 0b10)
    _, kept = four_tasks("heft:mend=0,")
    assert kept[-1] == (30, 2, 0b01)


@pytest.mark.parametrize("policy", ["heft:order=due", "peft"])
@pytest.mark.parametrize("most", [3, 20], ids=["few", "all"])
def test_mended_plans_end_sooner_than_kept_ones_and_are_consistent(policy: str, most: int) -> None:
    """Run times differ from their estimates by a factor. Every task starts after those before it, and runs once."""
    spans = []
    for text in (f"{policy}{',' if ':' in policy else ':'}mend={number}" for number in (0, most)):
        total = 0
        for seed in range(4):
            chance = Random(seed)
            nodes = [NodeSpec(f"n{number}", slots=1 + number % 2, speed=1.0 + number % 3) for number in range(4)]
            graphs = [
                tuple(TaskSpec(max(1, t.estimate), min(2, t.cores), t.after) for t in a_graph(chance, 2))
                for _ in range(6)
            ]
            workload = workload_us(
                release=[0] * 6,
                runtime=[0] * 6,
                tasks=[len(graph) for graph in graphs],
                kind=[WORKFLOW] * 6,
                workflows=dict(enumerate(graphs)),
            )

            def audit(scheduler: Scheduler) -> None:
                scheduler.check()
                for job in scheduler.state.jobs.values():
                    for task, (start, _) in job.planned.items():
                        before = [other for other in job.graph[task].after if other in job.planned]
                        assert all(job.planned[other][0] <= start for other in before)

            schedule = Simulation(
                workload, nodes, registry.find, text, audit=audit, world=World(noise=0.5, seed=seed)
            ).run()
            total += int(schedule.end.max())
        spans.append(total)
    assert spans[1] < spans[0]
