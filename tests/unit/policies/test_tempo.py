"""`tempo`: which jobs get slots, which get the rest, what is killed; over whole runs, and beside the best order."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.metrics import summarise
from headway.model.actions import Action, Kill, Launch, Wake
from headway.model.events import JobChanged, JobSubmitted, NodeDrained, NodeJoined, Outcome, TaskEnded, Woke
from headway.model.instant import NEVER, SECOND
from headway.model.job import JobSpec, Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.plan import Plan, Reason
from headway.model.policy import Policy
from headway.model.schedule import Schedule
from headway.model.slots import numbers
from headway.model.snapshot import Snapshot
from headway.model.workload import Workload, workload_us
from headway.policies import registry, tempo
from headway.sim.experiment import run
from headway.sim.kernel import Simulation
from headway.testing import job, node

from ...effort import one_in


class Cluster:
    """A scheduler under a policy, and the jobs submitted to it; times in seconds. Kills take effect at once."""

    def __init__(self, slots: int | list[float], *jobs: JobSpec, policy: str = "tempo") -> None:
        """`slots` is the number of slots, or the speed of each."""
        self.scheduler = Scheduler(registry.find, policy)
        speeds = [1.0] * slots if isinstance(slots, int) else slots
        for number, speed in enumerate(speeds):
            self.scheduler.handle(NodeJoined(0, NodeSpec(f"n{number}", speed=speed)))
        self.submit(*jobs)

    def submit(self, *jobs: JobSpec, at: float = 0) -> list[Action]:
        for spec in jobs:
            self.scheduler.handle(JobSubmitted(round(at * SECOND), spec))
        return self.wake(at)

    def wake(self, at: float) -> list[Action]:
        done, asked = list[Action](), self.scheduler.handle(Woke(now := round(at * SECOND)))
        while asked:
            done += asked
            asked = [
                action
                for kill in asked
                if isinstance(kill, Kill)
                for action in self.scheduler.handle(TaskEnded(now, kill.job, kill.task, kill.attempt, Outcome.KILLED))
            ] + self.scheduler.handle(Woke(now))
        self.scheduler.check()
        assert not self.scheduler.refusals
        return done

    @property
    def counts(self) -> dict[int, int]:
        """How many slots each job has."""
        return {number: view.held.bit_count() for number, view in self.scheduler.state.jobs.items()}

    @property
    def runs(self) -> dict[int, list[int]]:
        """On which slots tasks of each job run."""
        jobs = self.scheduler.state.jobs.items()
        return {
            number: sorted(slot for attempt in view.attempts.values() for slot in numbers(attempt.slots))
            for number, view in jobs
        }


def bag(number: int, tasks: int = 1, estimate: float | None = 10, **terms: Any) -> JobSpec:
    return job(number, tasks=tasks, estimate=estimate, **terms)


class TestWhoHolds:
    def test_each_job_one_slot_in_order_of_priority_and_the_rest_where_waiting_costs_most(self) -> None:
        """Job 2 is short and due soon. The others have time, and job 1 has the higher priority."""
        jobs = (
            bag(1, 20, 10, priority=9, due=900),
            bag(2, 6, 5, priority=1, due=12),
            bag(3, 20, 10, priority=5, due=900),
        )
        assert Cluster(8, *jobs).counts == {1: 1, 2: 6, 3: 1}

    def test_where_slots_are_few_the_lowest_priorities_hold_none(self) -> None:
        jobs = [bag(number, priority=number, due=10) for number in (1, 2, 3, 4)]
        assert Cluster(3, *jobs).counts == {1: 0, 2: 1, 3: 1, 4: 1}

    def test_no_lower_priority_is_let_in_where_that_saves_less(self) -> None:
        """One slot for each of three jobs, or two for the one that is late at once: fewer jobs in work are better."""
        jobs = bag(1, 2, 10, priority=9, due=10), bag(2, 2, 1000, priority=8, due=9000), bag(3, priority=7, due=9000)
        assert Cluster(2, *jobs).counts == {1: 2, 2: 0, 3: 0}

    def test_what_a_rigid_job_costs_is_that_of_all_its_slots(self) -> None:
        """Its task is hardly longer than those of the bag, but the bag has half as much work."""
        jobs = (job(1, width=4, estimate=10, due=100), bag(2, 2, 9, due=100), bag(3, 2, 9, due=100))
        assert Cluster(4, *jobs).counts == {1: 0, 2: 2, 3: 2}

    def test_equal_priorities_go_by_cost_alone(self) -> None:
        jobs = bag(1, 4, 50, due=10), bag(2, 2, 10, due=10), bag(3, 2, 20, due=10)
        assert Cluster(4, *jobs).counts == {1: 0, 2: 2, 3: 2}

    def test_without_the_floor_all_go_by_cost_alone(self) -> None:
        jobs = bag(1, 20, 100, priority=9, due=9000), bag(2, 8, 5, priority=1, due=12)
        assert Cluster(8, *jobs, policy="tempo:floor=false").counts == {1: 0, 2: 8}

    def test_jobs_without_a_due_date_get_what_is_left(self) -> None:
        assert Cluster(4, bag(1, 9), bag(2, 3, due=5), policy="tempo:floor=false").counts == {1: 1, 2: 3}

    @pytest.mark.parametrize("policy", ["tempo", "tempo:strict=false"])
    def test_priority_decides_among_jobs_without_a_due_date(self, policy: str) -> None:
        """The least important job is the shortest, and came first."""
        jobs = bag(1, 2, 1, priority=1), bag(2, 9, 10, priority=5), bag(3, 4, 10, priority=9)
        assert Cluster(2, *jobs, policy=policy).counts == {1: 0, 2: 0, 3: 2}
        assert Cluster(6, *jobs, policy=policy).counts == {1: 0, 2: 2, 3: 4}
        assert Cluster(16, *jobs, policy=policy).counts == {1: 2, 2: 9, 3: 4}

    def test_a_floor_that_is_not_strict_ends_where_slots_are_too_few_for_one_each(self) -> None:
        """Job 3 is urgent, and has the lowest priority."""
        jobs = bag(1, 4, 10, priority=9, due=900), bag(2, 4, 10, priority=8, due=900), bag(3, 4, 10, priority=1, due=11)
        assert Cluster(3, *jobs, policy="tempo:strict=false").counts == {1: 1, 2: 1, 3: 1}
        assert Cluster(2, *jobs, policy="tempo:strict=false").counts == {1: 0, 2: 0, 3: 2}
        assert Cluster(2, *jobs).counts == {1: 2, 2: 0, 3: 0}

    def test_a_rigid_job_counts_with_all_its_slots_where_slots_are_few(self) -> None:
        """Three slots are enough for two jobs, but not if one of them needs three."""
        hurried = bag(3, 3, 10, priority=1, due=11)
        wide = job(1, width=3, estimate=9, priority=9, due=900)
        assert Cluster(3, wide, hurried, policy="tempo:strict=false").counts == {1: 0, 3: 3}

    def test_an_unknown_run_time_is_at_most_the_time_to_the_due_date(self) -> None:
        """By the core's default of 600 s, job 1 would have 40 times the work of job 2, and so be last in a crowd."""
        hurried, other = bag(1, 2, None, priority=3, due=12), bag(2, 2, 15, priority=1, due=12)
        assert Cluster(2, hurried, other, policy="tempo:floor=false").counts == {1: 2, 2: 0}

    def test_priorities_of_zero_and_less_are_served_too(self) -> None:
        assert Cluster(2, bag(1, priority=-3, due=5), bag(2, priority=0, due=5)).counts == {1: 1, 2: 1}

    def test_without_kills_no_more_than_the_due_date_needs(self) -> None:
        """100 s of work in 50 s need two slots. The rest waits for new jobs. A job that is late takes all."""
        assert Cluster(8, bag(1, 10, due=50), policy="tempo:kill=false").counts == {1: 2}
        assert Cluster(8, bag(1, 10, due=0), policy="tempo:kill=false").counts == {1: 8}


class TestKills:
    def test_a_task_with_time_gives_way_to_one_that_has_none(self) -> None:
        cluster = Cluster(2, bag(1, 2, 100, priority=5, due=500))
        done = cluster.submit(bag(2, 1, 2, priority=1, due=24), at=20)
        assert Kill(1, 1, 1) in done
        assert cluster.runs == {1: [0], 2: [1]}
        assert cluster.scheduler.state.jobs[1].kills == 1

    def test_nothing_is_killed_as_long_as_the_wait_costs_nothing(self) -> None:
        """Slots are free at 30, and job 2 can wait until 40, so a wake is asked for then. The others are late."""
        cluster = Cluster(2, bag(1, 2, 30, priority=5, due=500))
        done = cluster.submit(bag(2, 1, 10, priority=1, due=50), at=20)
        assert not any(isinstance(action, Kill) for action in done)
        assert Wake(40 * SECOND) in done
        done = cluster.wake(40)
        assert sum(isinstance(action, Kill) for action in done) == 1
        assert len(cluster.runs[2]) == 1

    def test_the_task_that_has_run_least_goes_first(self) -> None:
        cluster = Cluster(2, bag(1, 1, 100, due=900))
        cluster.submit(bag(2, 1, 100, due=900), at=30)
        cluster.submit(bag(3, 1, 1, due=42), at=40)
        assert cluster.runs == {1: [0], 2: [], 3: [1]}

    def test_no_kill_that_costs_more_than_the_wait(self) -> None:
        """Job 1 is late by itself, has a high weight, and would lose 20 s to save a wait of 10 s."""
        cluster = Cluster(1, bag(1, 1, 30, priority=9, due=0))
        assert not any(isinstance(action, Kill) for action in cluster.submit(bag(2, 1, 1, priority=9, due=0), at=20))

    @pytest.mark.parametrize("policy", ["tempo", "tempo:kill=false"])
    def test_what_is_not_to_be_killed_is_not(self, policy: str) -> None:
        cluster = Cluster(1, bag(1, 1, 100, due=900, preemptible=policy != "tempo"), policy=policy)
        done = cluster.submit(bag(2, 1, 1, priority=3, due=21), at=20)
        assert not any(isinstance(action, Kill) for action in done)
        assert cluster.counts == {1: 0, 2: 1}
        assert cluster.runs == {1: [0], 2: []}

    def test_what_has_just_begun_is_left_alone(self) -> None:
        cluster = Cluster(1, bag(1, 1, 100, due=900))
        assert not any(isinstance(action, Kill) for action in cluster.submit(bag(2, 1, 1, due=1)))

    def test_each_kill_makes_the_next_one_dearer(self) -> None:
        """The same job comes twice, 10 s after job 1 began. The first kill costs 20 s, saves 27; the next costs 40."""
        cluster = Cluster(1, bag(1, 1, 100, priority=1, due=0), policy="tempo:floor=false")
        assert Kill(1, 0, 1) in cluster.submit(bag(2, 1, 10, priority=0.3, due=0), at=10)
        cluster.scheduler.handle(TaskEnded(20 * SECOND, 2, 0, 1))
        cluster.wake(20)
        assert cluster.runs == {1: [0]}
        done = cluster.submit(bag(3, 1, 10, priority=0.3, due=0), at=30)
        assert not any(isinstance(action, Kill) for action in done)
        assert cluster.runs == {1: [0], 3: []}

    def test_work_that_stands_before_a_job_makes_its_kill_dearer(self) -> None:
        """Job 1 would end at 100 s and is due at 130 s. With 60 s of work before it, it is late already."""
        for work, kills in ((0, True), (50, False)):
            cluster = Cluster(1, bag(1, 1, 100, priority=1, due=130), policy="tempo:floor=false")
            urgent = [bag(2, 1, 10, priority=0.2, due=0), *([bag(3, 1, work, priority=0.3, due=0)] if work else [])]
            done = cluster.submit(*urgent, at=10)
            assert any(isinstance(action, Kill) for action in done) == kills

    @pytest.mark.parametrize("due", [(50, 70), (70, 50)])
    def test_it_wakes_when_the_first_job_becomes_urgent(self, due: tuple[float, float]) -> None:
        cluster = Cluster(2, bag(1, 2, 300, priority=5, due=900))
        done = cluster.submit(*(bag(number, 1, 10, priority=1, due=at) for number, at in enumerate(due, 2)), at=20)
        assert next(action.at for action in done if isinstance(action, Wake)) == 40 * SECOND

    def test_a_job_redoes_at_most_so_much_work(self) -> None:
        """A task of 100 s that has run 30 s: a kill loses 0.3 of its job's work."""
        for redo, kills in ((0, False), (0.25, False), (0.35, True)):
            cluster = Cluster(1, bag(1, 1, 100, due=900), policy=f"tempo:floor=false,redo={redo}")
            done = cluster.submit(bag(2, 1, 1, due=32), at=30)
            assert (Kill(1, 0, 1) in done) == kills, redo

    def test_what_was_redone_before_counts(self) -> None:
        """Two kills of 30 s each would be 0.6 of the work of job 1."""
        cluster = Cluster(1, bag(1, 1, 100, due=900), policy="tempo:floor=false,redo=0.5")
        assert Kill(1, 0, 1) in cluster.submit(bag(2, 1, 1, due=32), at=30)
        cluster.scheduler.handle(TaskEnded(31 * SECOND, 2, 0, 1))
        cluster.wake(31)
        assert cluster.runs == {1: [0]}
        assert not any(isinstance(action, Kill) for action in cluster.submit(bag(3, 1, 1, due=63), at=61))

    def test_without_redone_work_all_slots_are_used(self) -> None:
        assert Cluster(8, bag(1, 10, due=50), policy="tempo:redo=0").counts == {1: 8}


class TestEveryKindOfJob:
    def test_a_rigid_job_gathers_its_slots(self) -> None:
        cluster = Cluster(4, bag(1, 4, 10, due=900))
        cluster.submit(job(2, width=3, estimate=5, priority=2, due=8), at=2)
        assert cluster.counts == {1: 1, 2: 3}
        assert cluster.runs[1] == [0, 1, 2, 3]
        for number in (0, 1, 2, 3):
            cluster.scheduler.handle(TaskEnded(10 * SECOND, 1, number, 1))
        cluster.wake(10)
        assert len(cluster.runs[2]) == 3

    def test_a_workflow_takes_cores_of_one_node(self) -> None:
        scheduler = Scheduler(registry.find, "tempo")
        scheduler.handle(NodeJoined(0, node("a", slots=2)))
        scheduler.handle(NodeJoined(0, node("b", slots=2)))
        scheduler.handle(JobSubmitted(0, bag(1, 1, 10, due=900)))
        scheduler.handle(JobSubmitted(0, job(2, graph=(TaskSpec(5 * SECOND, cores=2),) * 2, due=9)))
        launched = [action for action in scheduler.handle(Woke(0)) if isinstance(action, Launch)]
        assert (2, 0b1100) in [(action.job, action.slots) for action in launched]
        scheduler.check()
        assert not scheduler.refusals

    def test_it_says_why_a_job_waits(self) -> None:
        cluster = Cluster(1, bag(1, priority=2, due=5), bag(2, priority=1, due=5), job(3, width=2, estimate=1))
        reasons = [cluster.scheduler.explain(number).reason for number in (2, 3)]
        assert reasons == [Reason.NO_SHARE, Reason.NEVER_FITS]


@pytest.mark.parametrize("redo", [-0.1, float("-inf")])
def test_redone_work_is_a_number_from_zero(redo: float) -> None:
    with pytest.raises(InvalidInput, match="redo"):
        registry.find(f"tempo:redo={redo}")


@pytest.mark.parametrize("lookahead", [0, -1.0, float("inf"), float("nan")])
def test_a_lookahead_is_a_number_above_zero(lookahead: float) -> None:
    with pytest.raises(InvalidInput, match="lookahead"):
        registry.find(f"tempo:lookahead={lookahead}")


# Over whole runs


def bags(seed: int, jobs: int = 40) -> Workload:
    """A crowded cluster: bags of few to many tasks, due about when two slots would have done them."""
    chance = Random(seed)
    tasks = [chance.choice([1, 1, 2, 4, 8, 16]) for _ in range(jobs)]
    runtime = [chance.choice([1, 5, 20, 60]) * SECOND for _ in range(jobs)]
    release = sorted(chance.randint(0, 300) * SECOND for _ in range(jobs))
    due = [at + 2 * lasts * max(1, size // 4) for at, lasts, size in zip(release, runtime, tasks, strict=True)]
    priority = [float(chance.randint(0, 4)) for _ in range(jobs)]
    return workload_us(
        release=release, runtime=runtime, estimate=runtime, tasks=tasks, due=due, priority=priority, kind=Kind.BAG
    )


def audited(policy: str, workload: Workload, speeds: tuple[float, ...]) -> Schedule:
    nodes = [NodeSpec(f"n{number}", slots=2, speed=speed) for number, speed in enumerate(speeds)]
    simulation = Simulation(workload, nodes, registry.find, policy, audit=Scheduler.check)
    schedule = simulation.run()
    assert not simulation.scheduler.refusals
    assert (schedule.end >= 0).all()
    return schedule


@cache
def violated_by_edf(seed: int, speeds: tuple[float, ...]) -> float:
    return summarise(audited("edf", bags(seed), speeds))["priority_violation_rate"]


@pytest.mark.thorough
@pytest.mark.parametrize("speeds", [(1.0,) * 4, (0.5, 1.0, 1.0, 1.5)], ids=["alike", "mixed"])
@pytest.mark.parametrize("policy", one_in(3, ["tempo", "tempo:kill=false", "tempo:per_instant=false"]))
def test_no_priority_is_ever_violated(policy: str, speeds: tuple[float, ...]) -> None:
    for seed in range(4):
        found = summarise(audited(policy, bags(seed), speeds))
        assert found["priority_violation_rate"] == 0, f"seed {seed}"
        assert violated_by_edf(seed, speeds) > 0, f"seed {seed}"


@pytest.mark.skipif(not str(tempo.__file__).endswith(".py"), reason="a compiled module's constants are fixed")
@pytest.mark.parametrize("policy", ["tempo", "tempo:strict=false"])
def test_where_many_jobs_wait_those_that_are_due_first_are_looked_at(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With three instead of hundreds, no priority is violated, no job is forgotten, and the penalty hardly grows."""
    seeds, speeds = range(3), (1.0, 1.0)
    whole = [summarise(audited(policy, bags(seed), speeds)) for seed in seeds]
    monkeypatch.setattr(tempo, "LOOKED_AT_MOST", 3)
    few = [summarise(audited(policy, bags(seed), speeds)) for seed in seeds]
    assert {found["jobs_succeeded"] for found in few} == {40}
    assert policy != "tempo" or not any(found["priority_violation_rate"] for found in few)
    penalties = [sum(found["deadline_miss_penalty"] for found in runs) for runs in (whole, few)]
    assert penalties[0] < penalties[1] < 2 * penalties[0]


class Forgetful:
    """A policy that finds nothing in its jobs of what it kept there."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.per_instant, self.task_rounds = policy.per_instant, policy.task_rounds

    def __call__(self, view: Snapshot) -> Plan:
        for waits in view.jobs.values():
            waits.note = None
        return self.policy(view)


@pytest.mark.parametrize("policy", ["tempo", "tempo:strict=false", "tempo:floor=false,kill=false"])
def test_what_rounds_keep_with_jobs_changes_no_decision(policy: str) -> None:
    for seed, speeds in ((1, (1.0,) * 4), (2, (0.5, 1.0, 1.5))):
        kept, forgotten = (
            Simulation(
                bags(seed), [NodeSpec(f"n{n}", slots=2, speed=of) for n, of in enumerate(speeds)], source, policy
            )
            for source in (registry.find, lambda text: Forgetful(registry.find(text)))
        )
        assert kept.run().end.tolist() == forgotten.run().end.tolist(), f"seed {seed}"


@pytest.mark.skipif(not str(tempo.__file__).endswith(".py"), reason="a compiled module's constants are fixed")
@pytest.mark.parametrize("policy", ["tempo:strict=false", "tempo:floor=false"])
def test_how_many_jobs_are_dealt_to_at_once_does_not_matter(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most urgencies are equal here, so the order of jobs decides."""
    work = bags(3)
    alike = workload_us(release=[0] * 40, runtime=[SECOND] * 40, estimate=[SECOND] * 40, due=[9 * SECOND] * 40)
    for workload in (work, alike):
        ends = []
        for most in (1, 3, 1000):
            monkeypatch.setattr(tempo, "DEALT_AT_ONCE", most)
            ends.append(audited(policy, workload, (1.0,) * 4).end.tolist())
        assert ends[0] == ends[1] == ends[2]


def test_of_jobs_that_wait_as_they_did_a_round_works_out_nothing_anew() -> None:
    cluster = Cluster(2, *(bag(number, 2, 10, due=90) for number in range(40)), policy="tempo:strict=false")
    jobs = cluster.scheduler.state.jobs
    before = {number: waits.note for number, waits in jobs.items()}
    cluster.scheduler.handle(JobChanged(SECOND, 30, priority=2.0))
    first = next(number for number, runs in cluster.runs.items() if runs)
    cluster.scheduler.handle(TaskEnded(SECOND, first, 0, 1, Outcome.SUCCEEDED))
    cluster.wake(1)
    anew = {number for number, waits in jobs.items() if waits.note is not before[number]}
    assert {first, 30} <= anew
    assert len(anew) <= 4


def test_jobs_without_a_due_date_wait_behind_hundreds_that_have_one() -> None:
    """The most important of them is examined, and more of them than there are slots."""
    jobs = [bag(number, 1, 10, priority=0, due=90) for number in range(1, 40)]
    jobs += [bag(number, 1, 10, priority=number) for number in range(40, 60)]
    assert {number for number, slots in Cluster(3, *jobs).counts.items() if slots} == {57, 58, 59}
    counts = Cluster(50, *jobs, policy="tempo:floor=false").counts
    assert [number for number, slots in counts.items() if not slots] == list(range(40, 49))


def test_no_job_redoes_more_work_than_it_has() -> None:
    """A long task without hurry, and every 20 s a short one that cannot wait. Without a bound it would end last."""
    short = 60
    release = [20 * SECOND * number for number in range(short + 1)]
    runtime = [100 * SECOND, *([2 * SECOND] * short)]
    due = [NEVER, *(at + 3 * SECOND for at in release[1:])]
    jobs = workload_us(release=release, runtime=runtime, estimate=runtime, due=due, kind=Kind.BAG)
    for redo, ends in (("0.25", 122), ("1", 202), ("inf", 1302)):
        schedule = run(jobs, [NodeSpec("n")], f"tempo:strict=false,redo={redo}")
        assert schedule.lost <= float(redo) * 100 * SECOND
        assert schedule.kills > 0
        assert schedule.end[0] == ends * SECOND, redo


@pytest.mark.long
def test_it_comes_near_the_best_order_there_is() -> None:
    """Six jobs, one slot, all released at 0: total weighted tardiness, compared with the best of all 720 orders."""
    ratios: dict[str, list[float]] = {"tempo:floor=false": [], "edf": []}
    for seed in range(40):
        chance = Random(seed)
        lasts = [chance.randint(1, 20) for _ in range(6)]
        due = [chance.randint(1, 60) for _ in range(6)]
        weight = [chance.randint(1, 9) for _ in range(6)]
        best = min(
            sum(
                weight[of] * max(0, end - due[of])
                for of, end in zip(order, np.cumsum([lasts[o] for o in order]), strict=True)
            )
            for order in permutations(range(6))
        )
        seconds = [time * SECOND for time in lasts]
        workload = workload_us(
            release=[0] * 6,
            runtime=seconds,
            estimate=seconds,
            due=[time * SECOND for time in due],
            priority=[float(much) for much in weight],
            kind=Kind.BAG,
        )
        for policy, found in ratios.items():
            penalty = summarise(run(workload, [NodeSpec("n")], policy))["deadline_miss_penalty"]
            assert penalty >= best - 1e-6
            found.append((penalty + 1) / (best + 1))
    assert fmean(ratios["tempo:floor=false"]) < 1.25 < fmean(ratios["edf"])


class TestIdleSlots:
    """Without kills slots stay idle for jobs that may come, and each job that waits is told why."""

    def test_a_job_needs_no_more_than_it_has(self) -> None:
        cluster = Cluster(4, bag(1, 6, 10, due=900), policy="tempo:kill=false")
        assert cluster.counts == {1: 1}
        said = cluster.scheduler.explain(1)
        assert said.reason is Reason.SLOTS_KEPT
        assert "keeps idle ones for more urgent jobs" in said.text

    def test_one_of_higher_priority_has_no_slot_yet(self) -> None:
        wide = job(2, width=4, estimate=10, priority=2, due=900)
        cluster = Cluster(4, bag(1, 1, 10, priority=3, due=900), wide, bag(3, priority=1), policy="tempo:kill=false")
        assert cluster.counts == {1: 1, 2: 0, 3: 0}
        assert cluster.scheduler.explain(3).reason is Reason.BEHIND_PRIORITY

    def test_a_wide_one_does_not_fit_on_the_idle_ones(self) -> None:
        wide = job(2, width=4, estimate=10, due=900)
        cluster = Cluster(4, bag(1, 1, 10, due=900), wide, policy="tempo:kill=false,floor=false")
        assert cluster.counts == {1: 1, 2: 0}
        assert cluster.scheduler.explain(2).reason is Reason.NO_ROOM_NOW


@pytest.mark.parametrize("tasks", [1, 2])
def test_tasks_on_nodes_that_drain_are_no_reason_to_give_their_job_other_slots(tasks: int) -> None:
    cluster = Cluster(tasks + 1, bag(1, tasks=tasks, priority=2))
    for number in range(tasks):
        cluster.scheduler.handle(NodeDrained(SECOND, f"n{number}"))
    cluster.submit(bag(2, priority=1), at=1)
    assert cluster.runs == {1: list(range(tasks)), 2: [tasks]}


def test_a_slot_that_an_urgent_job_gives_up_for_a_kill_goes_to_the_next() -> None:
    """Slot 1 would be free first, but the task on slot 0 has just begun, so it costs less to kill that one."""
    cluster = Cluster(2, bag(1, estimate=90, priority=1), bag(2, estimate=100, priority=1))
    cluster.scheduler.handle(TaskEnded(90 * SECOND, 1, 0, 1, Outcome.SUCCEEDED))
    cluster.submit(bag(3, estimate=100, priority=1), at=90)
    assert cluster.runs == {2: [1], 3: [0]}
    for urgent in (bag(4, priority=4, due=105), bag(5, priority=3)):
        cluster.scheduler.handle(JobSubmitted(95 * SECOND, urgent))
    assert [type(action) for action in cluster.scheduler.handle(Woke(95 * SECOND))] == [Kill]
    held = {number: view.held for number, view in cluster.scheduler.state.jobs.items()}
    assert held == {2: 0, 3: 0, 4: 0b01, 5: 0b10}
