"""Sites in order of preference: which jobs go where, what is planned anew, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headway import NodeSpec, Schedule, simulate, workload_of
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.metrics.places import site_uses
from headway.model.events import JobSubmitted, NodeDown, NodeJoined, Outcome, SitesChosen, TaskEnded, TaskStarted, Woke
from headway.model.instant import SECOND
from headway.model.job import Bag, JobSpec, Kind, Rigid, TaskSpec, Workflow
from headway.model.policy import quantile_of
from headway.model.seen import RunTimes
from headway.model.site import SiteTerms
from headway.model.workload import BagTimes, Workload, workload_us
from headway.policies import registry
from headway.policies.prefer import Prefer
from headway.sim.kernel import Simulation

GRID, PRIVATE = NodeSpec("g", slots=2, site="grid"), NodeSpec("p", slots=4, site="private")


def ran_at(schedule: Schedule) -> dict[str, int]:
    """How many tasks ran at each site."""
    uses = site_uses(schedule)
    assert uses is not None
    return {name: use.tasks for name, use in uses.items()}


def bag(tasks: int, run_time: float, due: float | None = None, **more: Any) -> Workload:
    return workload_of(release=[0], tasks=[tasks], runtime=[run_time], estimate=[run_time], due=[due], **more)


def core(*nodes: NodeSpec, policy: str = "sites:top=prefer", sites: tuple[SiteTerms, ...] = ()) -> Scheduler:
    scheduler = Scheduler(registry.find, policy)
    if sites:
        scheduler.handle(SitesChosen(0, sites))
    for node in nodes:
        scheduler.handle(NodeJoined(0, node))
    return scheduler


def submit(scheduler: Scheduler, *jobs: JobSpec, at: int = 0) -> None:
    for job in jobs:
        scheduler.handle(JobSubmitted(at, job))
    scheduler.handle(Woke(at))
    scheduler.check()


def at_sites(scheduler: Scheduler, job: int) -> dict[str, list[int]]:
    """Where the tasks of a job run or wait, by site."""
    state = scheduler.state
    view, found = state.jobs[job], dict[str, list[int]]()
    for task, attempt in view.attempts.items():
        found.setdefault(state.slot_nodes[attempt.slots.bit_length() - 1].spec.site, []).append(task)
    for task, (_, node) in view.planned.items():
        found.setdefault(state.nodes[node].spec.site, []).append(task)
    return {site: sorted(tasks) for site, tasks in found.items()}


# Parameters


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sites:top=prefer,estimate=most", ["estimate", "most", "mean, or a number between 0 and 1"]),
        ("sites:top=prefer,estimate=1", ["estimate", "between 0 and 1"]),
        ("sites:top=prefer,order=grid//cloud", ["order", "grid//cloud", "separated by slashes"]),
        ("sites:top=prefer,order=grid/grid", ["order", "each once"]),
        ("sites:top=prefer,check=-1", ["check", "-1", "0 to 1e9"]),
        ("sites:top=prefer,each=heft", ["each", "heft", "with top=prefer: all sites have one queue"]),
        ("sites:top=prefer,queue=priority", ["queue", "priority", "release or due"]),
        ("sites:top=rr,order=grid", ["order", "grid", "only with top=prefer"]),
        ("sites:top=best", ["top", "best", "rr, lb, fill, prefer"]),
        ("sites:top=prefer,adaptive=maybe", ["adaptive", "true or false"]),
    ],
)
def test_what_is_not_allowed(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as wrong:
        registry.find(text)
    assert all(word in str(wrong.value) for word in words)


def test_a_site_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"moon.*allowed: a site of this cluster: grid, private"):
        simulate(bag(1, 1), [GRID, PRIVATE], "sites:top=prefer,order=grid/moon")


def test_predictions_are_asked_at_the_quantile_of_the_policy() -> None:
    assert quantile_of(registry.find("sites:top=prefer,estimate=0.9")) == 0.9
    assert quantile_of(registry.find("sites:top=prefer")) == 0.5


# Where tasks go


def test_tasks_of_one_bag_run_at_several_sites() -> None:
    """Three rounds of 10 s end at the first site in time, so two tasks are left for the second."""
    schedule = simulate(bag(8, 10, due=30), [GRID, PRIVATE], "sites:top=prefer", record=True)
    assert ran_at(schedule) == {"grid": 6, "private": 2}
    assert schedule.end[0] == 30 * SECOND


def test_longest_tasks_are_placed_first() -> None:
    """In order of number the task of 20 s would end at the first site only at 40 s, after its due date."""
    times = BagTimes((10 * SECOND, 10 * SECOND, 20 * SECOND), sizes=(1.0, 1.0, 2.0))
    jobs = workload_us(
        release=[0], runtime=[0], estimate=[40 * SECOND // 3], tasks=3, due=[20 * SECOND], bags={0: times}
    )
    schedule = simulate(jobs, [NodeSpec("g", site="grid"), PRIVATE], "sites:top=prefer", record=True)
    assert schedule.attempts is not None
    first = schedule.attempts.node == 0
    assert schedule.attempts.task[first].tolist() == [2]
    assert schedule.end[0] <= 20 * SECOND


def test_jobs_without_due_dates_wait_at_the_first_site() -> None:
    schedule = simulate(bag(6, 10), [GRID, PRIVATE], "sites:top=prefer", record=True)
    assert ran_at(schedule) == {"grid": 6, "private": 0}


def test_what_is_late_everywhere_goes_where_it_ends_first() -> None:
    schedule = simulate(bag(3, 10, due=5), [GRID, PRIVATE], "sites:top=prefer", record=True)
    assert ran_at(schedule) == {"grid": 2, "private": 1}
    assert schedule.end[0] == 10 * SECOND


def test_the_order_of_the_cluster_comes_before_that_of_joining_and_that_of_the_policy_before_both() -> None:
    terms = [SiteTerms("private"), SiteTerms("grid")]
    for policy, sites, expected in (
        ("sites:top=prefer", [], "grid"),
        ("sites:top=prefer", terms, "private"),
        ("sites:top=prefer,order=grid", terms, "grid"),
    ):
        schedule = simulate(bag(1, 5, due=9), [GRID, PRIVATE], policy, sites=sites, record=True)
        assert ran_at(schedule)[expected] == 1


def test_a_rigid_job_has_all_its_slots_at_one_site() -> None:
    jobs = workload_of(
        release=[0, 0], width=[2, 4], kind=[Kind.RIGID] * 2, runtime=[10, 10], estimate=[10, 10], due=[20, 20]
    )
    schedule = simulate(jobs, [GRID, PRIVATE], "sites:top=prefer", record=True)
    assert ran_at(schedule) == {"grid": 1, "private": 1}
    assert list(schedule.end / SECOND) == [10, 10]


def test_slots_are_kept_for_a_rigid_job_that_comes_next() -> None:
    """The bag that comes after it does not take the slot that is free first."""
    jobs = workload_of(
        release=[0, 1, 2],
        width=[1, 2, 1],
        tasks=[2, 1, 2],
        kind=[Kind.BAG, Kind.RIGID, Kind.BAG],
        runtime=[10, 5, 1],
        estimate=[10, 5, 1],
    )
    schedule = simulate(jobs, [GRID], "sites:top=prefer")
    assert list(schedule.start / SECOND) == [0, 10, 15]


def test_a_rigid_job_whose_site_has_become_too_small_goes_elsewhere() -> None:
    scheduler = core(NodeSpec("g1", 2, site="grid"), NodeSpec("g2", 2, site="grid"), PRIVATE)
    submit(scheduler, Bag(0, estimate=10 * SECOND, tasks=4, due=10 * SECOND))
    submit(scheduler, Rigid(1, estimate=10 * SECOND, width=4, due=50 * SECOND))
    assert at_sites(scheduler, 1) == {"grid": [0]}
    scheduler.handle(NodeDown(1, "g2"))
    scheduler.handle(Woke(1))
    assert at_sites(scheduler, 1) == {"private": [0]}
    scheduler.check()


def test_tasks_of_workflows_are_placed_when_those_before_them_have_ended() -> None:
    scheduler = core(NodeSpec("g", 2, site="grid"), NodeSpec("p", 4, cores=8, site="private"))
    graph = (TaskSpec(10 * SECOND, 2), TaskSpec(5 * SECOND, 8, after=(0,)))
    submit(scheduler, Workflow(0, graph=graph, due=60 * SECOND))
    assert at_sites(scheduler, 0) == {"grid": [0]}
    scheduler.handle(TaskEnded(10 * SECOND, 0, 0, 1, Outcome.SUCCEEDED))
    scheduler.handle(Woke(10 * SECOND))
    assert at_sites(scheduler, 0) == {"private": [1]}
    scheduler.check()


def test_services_are_not_served() -> None:
    assert Kind.SERVICE not in Prefer().serves


# Estimates


def test_a_quantile_leaves_room_for_longer_tasks() -> None:
    """Run times differ by half: with the mean six tasks are expected to end at the first site, with 0.95 fewer."""
    placed = {}
    for estimate in ("mean", "0.95"):
        scheduler = core(GRID, PRIVATE, policy=f"sites:top=prefer,estimate={estimate}")
        job = Bag(0, estimate=10 * SECOND, tasks=8, due=32 * SECOND)
        scheduler.state.now = 0
        submit(scheduler, job)
        view = scheduler.state.jobs[0]
        view.observed = RunTimes(10 * SECOND, count=4, spread=5 * SECOND)
        view.times = {GRID.node_class: view.observed}
        scheduler.state.plan_anew()
        scheduler.state.look_at_everything()
        scheduler.handle(Woke(0))
        placed[estimate] = len(at_sites(scheduler, 0)["grid"])
    assert placed["mean"] == 6
    assert placed["0.95"] < 6


def test_the_time_until_tasks_begin_is_not_learnt_as_their_run_time() -> None:
    jobs = bag(6, 10, due=100)
    schedule = simulate(jobs, [GRID, PRIVATE], "sites:top=prefer", sites=[SiteTerms("grid", 20 * SECOND)], record=True)
    # 30 s each: three rounds of two are over at 90 s. Learnt as 30 s plus 20 s, the last would go to the second site.
    assert ran_at(schedule) == {"grid": 6, "private": 0}
    assert schedule.end[0] == 90 * SECOND


# Adaptive scheduling


def late(policy: str) -> Schedule:
    """Two tasks take 25 s instead of 10 s, so that those behind them would be late."""
    jobs = workload_of(release=[0, 0], tasks=[2, 2], runtime=[25, 10], estimate=[10, 10], due=[40, 24], priority=[0, 0])
    return simulate(jobs, [GRID, PRIVATE], policy, record=True)


def test_what_waits_behind_a_delay_goes_elsewhere_in_time() -> None:
    assert list(late("sites:top=prefer,adaptive=false").end / SECOND) == [25, 35]
    schedule = late("sites:top=prefer")
    assert ran_at(schedule) == {"grid": 2, "private": 2}
    assert schedule.end[1] <= 24 * SECOND
    assert schedule.kills == 0


def test_a_job_that_is_due_sooner_goes_first_if_that_is_asked_for() -> None:
    """Behind what waits the second job would be late; before it, both are in time."""
    jobs = workload_of(release=[0, 1], tasks=[8, 2], runtime=[10, 10], estimate=[10, 10], due=[60, 25])
    nodes = [GRID, NodeSpec("p", site="private", speed=0.25)]
    late, in_time = (simulate(jobs, nodes, f"sites:top=prefer,queue={queue}") for queue in ("release", "due"))
    assert list(late.end / SECOND) == [40, 50]
    assert list(in_time.end / SECOND) == [50, 20]


def test_an_estimate_that_nothing_confirms_is_doubted_too() -> None:
    """With 0.9, a task of 10 s is expected to end by 18 s, so that two rounds are not over at 30 s."""
    schedule = simulate(bag(4, 10, due=30), [GRID, PRIVATE], "sites:top=prefer,estimate=0.9", record=True)
    assert ran_at(schedule) == {"grid": 2, "private": 2}


def test_delays_are_noticed_at_the_next_check_only() -> None:
    every = late("sites:top=prefer,check=13")
    assert every.start[1] == 13 * SECOND
    assert late("sites:top=prefer").start[1] < 13 * SECOND


def test_a_delay_that_endangers_nothing_moves_nothing() -> None:
    jobs = workload_of(release=[0, 0], tasks=[2, 2], runtime=[25, 10], estimate=[10, 10], due=[40, 40])
    schedule = simulate(jobs, [GRID, PRIVATE], "sites:top=prefer", record=True)
    assert ran_at(schedule) == {"grid": 4, "private": 0}


def test_within_a_site_a_free_slot_takes_what_waits_elsewhere() -> None:
    nodes = [NodeSpec("a", site="grid"), NodeSpec("b", site="grid")]
    jobs = workload_of(release=[0] * 4, tasks=[1] * 4, runtime=[30, 10, 5, 5], estimate=[10, 10, 5, 5])
    schedule = simulate(jobs, nodes, "sites:top=prefer,adaptive=false")
    assert list(schedule.end / SECOND) == [30, 10, 15, 20]


# What is said


def test_why_tasks_are_where_they_are() -> None:
    scheduler = core(GRID, PRIVATE, sites=(SiteTerms("grid"), SiteTerms("private", SECOND)))
    submit(scheduler, Bag(0, estimate=10 * SECOND, tasks=8, due=20 * SECOND, release=0))
    submit(scheduler, Bag(1, estimate=10 * SECOND, tasks=1, due=23 * SECOND))
    assert scheduler.why_there(0) == (
        "2 tasks run at site grid; 4 tasks run at site private; 2 tasks wait at site grid, which comes first. "
        "Sites by preference: grid, private"
    )
    assert scheduler.why_there(1) == (
        "1 task waits at site private, because task 0 would be late before: at grid it would end in 30 s, "
        "and it is due in 23 s. Sites by preference: grid, private"
    )
    explained = scheduler.explain(1)
    assert explained.reason.name == "SITE_BUSY"
    assert explained.start == 11 * SECOND
    scheduler.check()


def test_a_dumped_state_goes_on_with_the_same_places() -> None:
    scheduler = core(GRID, PRIVATE, sites=(SiteTerms("private", SECOND), SiteTerms("grid")))
    submit(scheduler, Bag(0, estimate=10 * SECOND, tasks=20, due=40 * SECOND))
    again = Scheduler.restore(scheduler.dump(), registry.find)
    assert again.state.agenda == scheduler.state.agenda
    assert again.dump() == scheduler.dump()
    for one in (scheduler, again):
        one.handle(SitesChosen(SECOND, (SiteTerms("grid"),)))
        one.handle(Woke(SECOND))
    assert again.dump() == scheduler.dump()


@pytest.mark.parametrize("at", [5, 12, 31, 50])
def test_what_is_foreseen_comes_true(at: int) -> None:
    """Of tasks that run, and of those that still wait for their site to let them begin."""
    chance = Random(1)
    run_times = [chance.randint(5, 40) for _ in range(20)]
    terms = {"runtime": run_times, "estimate": run_times, "due": [chance.randint(40, 160) for _ in run_times]}
    jobs = workload_of(release=sorted(chance.randint(0, 30) for _ in run_times), tasks=[2] * 20, **terms)
    sites = (SiteTerms("private", 7 * SECOND), SiteTerms("grid", 3 * SECOND))
    simulation = Simulation(jobs, [GRID, PRIVATE], registry.find, "sites:top=prefer", sites=sites)
    simulation.advance(at * SECOND)
    state = simulation.scheduler.dump()
    done = simulation.run()
    there = [job.spec.id for job in state.jobs]
    future = Simulation.from_state(state, registry.find, left=None).run()
    come = [int(label) for label in future.label.tolist()]
    assert sorted(come) == sorted(there)
    if max(there) == 19:  # all have come
        assert dict(zip(come, future.end.tolist(), strict=True)) == {job: done.end[job] for job in there}


def test_a_task_that_is_known_to_have_begun_does_not_wait_for_its_site_again() -> None:
    reporting = NodeSpec("c", site="cloud", reports_start=True)
    scheduler = core(reporting, sites=(SiteTerms("cloud", 20 * SECOND),))
    submit(scheduler, Bag(0, estimate=10 * SECOND, tasks=1))
    attempt = scheduler.state.jobs[0].attempts[0]
    assert attempt.expected_end == 30 * SECOND
    before = Simulation.from_state(scheduler.dump(), registry.find).run()
    assert before.end[0] == 30 * SECOND
    scheduler.handle(TaskStarted(6 * SECOND, 0, 0, 1))
    assert attempt.expected_end == 16 * SECOND
    assert Simulation.from_state(scheduler.dump(), registry.find).run().end[0] == 16 * SECOND
    scheduler.handle(TaskEnded(18 * SECOND, 0, 0, 1, Outcome.SUCCEEDED))
    scheduler.check()


# Cost


@pytest.mark.parametrize("tasks", [1, 100])
def test_placing_takes_work_in_proportion_to_tasks(
    tasks: int, lines_run: Callable[[Callable[[], object]], int]
) -> None:
    def placed(jobs: int) -> int:
        nodes = [NodeSpec(f"{site}{number}", 8, site=site) for site in ("grid", "private") for number in range(4)]
        scheduler = core(*nodes)
        for number in range(jobs // tasks):
            scheduler.handle(JobSubmitted(0, Bag(number, estimate=SECOND, tasks=tasks, due=jobs * SECOND // 100)))
        return lines_run(lambda: scheduler.handle(Woke(0)))

    assert placed(4000) < 5 * placed(1000)


def test_a_round_that_changes_nothing_does_not_look_at_what_waits(
    lines_run: Callable[[Callable[[], object]], int],
) -> None:
    def round_of(tasks: int) -> int:
        scheduler = core(NodeSpec("g", site="grid"), PRIVATE)
        submit(scheduler, Bag(0, estimate=10 * SECOND, tasks=tasks))
        scheduler.handle(TaskEnded(10 * SECOND, 0, 0, 1, Outcome.SUCCEEDED))
        return lines_run(lambda: scheduler.handle(Woke(10 * SECOND)))

    assert round_of(4000) <= round_of(1000) + 10
