"""Lin14's four policies against cases worked out by hand; each test names the section it checks."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.actions import Action, Launch
from headway.model.events import JobChanged, JobSubmitted, NodeDown, NodeJoined, NodeUp, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import JobSpec
from headway.model.node import NodeSpec
from headway.model.slots import numbers
from headway.policies import registry
from headway.testing import job


class Cluster:
    """A scheduler with its nodes, and the jobs that were submitted to it; times in seconds."""

    def __init__(self, policy: str, slots: int | list[float], *jobs: JobSpec, at: float = 0) -> None:
        """`slots` is the number of slots, or the speed of each."""
        self.scheduler = Scheduler(registry.find, policy)
        self.now = round(at * SECOND)
        if isinstance(slots, int):
            nodes = [NodeSpec("n", slots=slots)]
        else:
            nodes = [NodeSpec(f"w{number}", speed=speed) for number, speed in enumerate(slots)]
        for node in nodes:
            self.scheduler.handle(NodeJoined(self.now, node))
        self.submit(*jobs)

    def submit(self, *jobs: JobSpec, at: float | None = None) -> None:
        """Submit jobs at one instant. The round takes place after the last of them."""
        self.now = self.now if at is None else round(at * SECOND)
        for spec in jobs:
            self.scheduler.handle(JobSubmitted(self.now, spec))
        self.plan()

    def plan(self) -> list[Action]:
        actions = self.scheduler.handle(Woke(self.now))
        self.scheduler.check()
        assert not self.scheduler.refusals
        return actions

    def end(self, of: int, *tasks: int, at: float) -> list[Action]:
        """Let tasks end, all at one instant."""
        self.now, actions = round(at * SECOND), list[Action]()
        for task in tasks:
            attempt = self.scheduler.state.jobs[of].attempts[task].number
            actions += self.scheduler.handle(TaskEnded(self.now, of, task, attempt))
        return actions + self.plan()

    @property
    def counts(self) -> list[int]:
        """How many slots each job has, in order of submission."""
        return [view.held.bit_count() for view in self.scheduler.state.jobs.values()]

    @property
    def slots(self) -> dict[int, list[int]]:
        """Which slots each job has."""
        return {number: list(numbers(view.held)) for number, view in self.scheduler.state.jobs.items()}


def bag(number: int, tasks: int, estimate: float | None = 10, **terms: Any) -> JobSpec:
    return job(number, tasks=tasks, estimate=estimate, **terms)


class TestPriority:
    """5.1 and algorithm 1."""

    def test_the_plain_policy_fills_jobs_in_order_of_priority_each_up_to_its_tasks(self) -> None:
        """5.1: "assign x workers", x the minimum of idle workers and tasks; r = 0."""
        jobs = bag(1, 5, priority=1), bag(2, 4, priority=3), bag(3, 20, priority=2)
        assert Cluster("priority", 10, *jobs).counts == [0, 4, 6]

    def test_low_priority_jobs_may_starve(self) -> None:
        """5.1: "this assignment might cause starvation"."""
        assert Cluster("priority", 3, bag(1, 9, priority=1), bag(2, 9)).counts == [3, 0]

    @pytest.mark.parametrize(
        ("reserve", "first"),
        [(0.3, 7), (0.25, 7), (0.9, 1), (0.8, 2), (0.7, 3), (0.95, 1), (1, 1), (0.05, 9)],
    )
    def test_the_first_job_gets_at_most_its_share_and_each_next_job_one_slot(self, reserve: float, first: int) -> None:
        """Algorithm 1, reading of line 3: floor((1 - r) m), computed exactly (0.2 * 10 is 2), and at least one."""
        jobs = [bag(number, 20, priority=9 - number) for number in range(4)]
        cluster = Cluster(f"priority:reserve={reserve}", 10, *jobs)
        assert cluster.counts == [first, *[1] * min(3, 10 - first), *[0] * (3 - min(3, 10 - first))]

    def test_what_the_first_job_cannot_use_goes_to_the_others_one_each(self) -> None:
        """5.1: "the remaining workers, including those … because of the task amount limit … one job receives one"."""
        jobs = bag(1, 2, priority=3), bag(2, 20, priority=2), bag(3, 20, priority=1)
        assert Cluster("priority:reserve=0.2", 10, *jobs).counts == [2, 1, 1]

    def test_jobs_beyond_the_last_slot_get_none(self) -> None:
        """Algorithm 1, line 5: i runs to min(m - c, n)."""
        jobs = [bag(number, 20, priority=9 - number) for number in range(6)]
        assert Cluster("priority:reserve=0.5", 6, *jobs).counts == [3, 1, 1, 1, 0, 0]

    @pytest.mark.parametrize("reserve", [0, 0.5, 1])
    def test_a_single_slot_goes_to_the_first_job(self, reserve: float) -> None:
        """Reading of line 3: at least one worker when m >= 1."""
        assert Cluster(f"priority:reserve={reserve}", 1, bag(1, 3), bag(2, 3, priority=1)).counts == [0, 1]

    def test_spare_slots_go_by_priority_or_by_due_date_each_job_up_to_its_tasks(self) -> None:
        """5.5, after algorithm 1 has left five of ten slots idle."""
        jobs = bag(1, 20, priority=3, due=90), bag(2, 4, priority=2, due=30), bag(3, 3, priority=1, due=60)
        assert Cluster("priority:reserve=0.7", 10, *jobs).counts == [3, 1, 1]
        assert Cluster("priority:reserve=0.7,spare=priority", 10, *jobs).counts == [8, 1, 1]
        assert Cluster("priority:reserve=0.7,spare=due", 10, *jobs).counts == [3, 4, 3]

    def test_equal_priorities_go_by_submission_then_by_id(self) -> None:
        """Reading: all ties are broken by id at last."""
        cluster = Cluster("priority", 2, bag(5, 1), bag(3, 1), bag(4, 1))
        assert cluster.slots == {5: [], 3: [0], 4: [1]}
        earlier = Cluster("priority", 1, bag(9, 1, release=1), bag(2, 1, release=2), at=3)
        assert earlier.slots == {9: [0], 2: []}

    @pytest.mark.parametrize("reserve", [-0.1, 1.1, "nan"])
    def test_the_rate_lies_between_0_and_1(self, reserve: object) -> None:
        with pytest.raises(InvalidInput, match=r"reserve (of policy priority )?is .*; allowed: (0 to 1|a number)"):
            registry.find(f"priority:reserve={reserve}")


class TestProportion:
    """5.2 and algorithm 2."""

    def test_slots_are_in_proportion_to_the_workloads(self) -> None:
        jobs = bag(1, 20, workload=50), bag(2, 20, workload=30), bag(3, 20, workload=20)
        assert Cluster("proportion", 10, *jobs).counts == [5, 3, 2]

    def test_without_a_workload_of_its_own_a_job_has_tasks_times_estimate(self) -> None:
        """3.1: "counting the number of unprocessed tasks or summing the workloads"."""
        jobs = bag(1, 30, estimate=10), bag(2, 10, estimate=20), bag(3, 10, estimate=10)
        assert Cluster("proportion", 12, *jobs).counts == [6, 4, 2]

    def test_priority_only_breaks_the_ties_of_the_rounding(self) -> None:
        """Reading of line 2: ceil(10 / 3) = 4 for the first two in order of priority, and the rest for the third."""
        jobs = bag(1, 9, workload=1), bag(2, 9, workload=1, priority=1), bag(3, 9, workload=1, priority=2)
        assert Cluster("proportion", 10, *jobs).counts == [2, 4, 4]
        heavy = bag(1, 99, workload=90), bag(2, 99, workload=10, priority=9)
        assert Cluster("proportion", 10, *heavy).counts == [9, 1]

    def test_a_job_gets_no_more_than_it_has_tasks(self) -> None:
        """Reading of line 5: min(…, workers left, tasks of the job)."""
        jobs = bag(1, 2, workload=90), bag(2, 20, workload=10)
        assert Cluster("proportion", 10, *jobs).counts == [2, 1]
        assert Cluster("proportion:spare=priority", 10, *jobs).counts == [2, 8]

    def test_a_workload_of_nothing_still_gets_a_slot(self) -> None:
        assert Cluster("proportion", 10, bag(1, 3, workload=0), bag(2, 30, workload=5)).counts == [1, 9]
        assert Cluster("proportion", 10, bag(1, 3, workload=0), bag(2, 30, workload=0)).counts == [3, 7]

    def test_shares_follow_the_workload_that_is_left(self) -> None:
        """4.4: planned again with fresh statistics. Two jobs of 12 tasks on 4 slots; nine tasks of the first end."""
        cluster = Cluster("proportion", 4, bag(1, 12), bag(2, 12))
        assert cluster.counts == [2, 2]
        for at, task in enumerate(range(9), 1):
            cluster.end(1, task, at=at)
        cluster.submit(bag(3, 1, estimate=0.001))  # causes a round: 3 tasks against 12, and almost nothing
        assert cluster.counts == [1, 3, 0]

    def test_figure_3_2(self) -> None:
        """3.5.3: five workers each, then J3 gets w3, w4, w8 and w9, each when its current task has ended."""
        cluster = Cluster("proportion", 10, bag(1, 60, workload=30), bag(2, 60, workload=30))
        assert cluster.slots == {1: [0, 1, 2, 3, 4], 2: [5, 6, 7, 8, 9]}
        cluster.submit(bag(3, 80, workload=40, priority=1), at=1)
        assert cluster.slots == {1: [0, 1, 2], 2: [5, 6, 7], 3: [3, 4, 8, 9]}
        assert len(cluster.scheduler.state.running) == 10
        assert not cluster.scheduler.state.jobs[3].attempts
        # Task 3 of J1 runs on w3. When it ends, w3 runs a task of J3 at once. Task 0 is followed by a task of J1.
        state = cluster.scheduler.state
        assert state.jobs[1].attempts[3].slots == 1 << 3
        assert Launch(3, 0, 1, 1 << 3) in cluster.end(1, 3, at=10)
        assert Launch(1, 5, 1, 1 << 0) in cluster.end(1, 0, at=11)
        assert Launch(3, 1, 1, 1 << 8) in cluster.end(2, 3, at=12)
        assert Launch(3, 2, 1, 1 << 4) in cluster.end(1, 4, at=13)
        assert Launch(3, 3, 1, 1 << 9) in cluster.end(2, 4, at=14)
        running = {
            number: sorted(numbers(sum(a.slots for a in view.attempts.values()))) for number, view in state.jobs.items()
        }
        assert running == {1: [0, 1, 2], 2: [5, 6, 7], 3: [3, 4, 8, 9]}


class TestWorkload:
    """5.3 and algorithm 3; reading: the workload must be done within one planning period."""

    def test_the_fastest_slots_that_do_the_workload_within_the_period(self) -> None:
        """60 s of work in 10 s: speeds 4 and 2 suffice (th 6). The next job, of 20 s, gets the other two."""
        jobs = bag(1, 6, priority=2), bag(2, 2, priority=1), bag(3, 5)
        cluster = Cluster("workload:period=10,spare=none", [1.0, 4.0, 1.0, 2.0], *jobs)
        assert cluster.slots == {1: [1, 3], 2: [0, 2], 3: []}

    def test_one_slot_more_where_they_do_not_quite_suffice(self) -> None:
        jobs = bag(1, 7, priority=2), bag(2, 2, priority=1)
        cluster = Cluster("workload:period=10,spare=none", [1.0, 4.0, 1.0, 2.0], *jobs)
        assert cluster.slots == {1: [0, 1, 3], 2: [2]}

    def test_no_more_slots_than_tasks(self) -> None:
        """Line 11: k < n_i."""
        jobs = bag(1, 2, estimate=600, priority=2), bag(2, 1, estimate=600, priority=1)
        assert Cluster("workload:period=10,spare=none", 8, *jobs).counts == [2, 1]

    @pytest.mark.parametrize(("period", "slots"), [(100, 1), (50, 2), (34, 3), (33, 4), (10, 10), (5, 10)])
    def test_on_slots_alike(self, period: int, slots: int) -> None:
        """100 s of work in ten tasks of 10 s."""
        assert Cluster(f"workload:period={period},spare=none", 16, bag(1, 10)).counts == [slots]

    def test_remaining_slots_go_to_jobs_still_in_need(self) -> None:
        """Line 17, by priority by default (5.5)."""
        jobs = bag(1, 10, priority=1, due=50), bag(2, 10, priority=2, due=90)
        assert Cluster("workload:period=100,spare=none", 16, *jobs).counts == [1, 1]
        assert Cluster("workload:period=100", 16, *jobs).counts == [6, 10]
        assert Cluster("workload:period=100,spare=due", 16, *jobs).counts == [10, 6]

    @pytest.mark.parametrize("period", ["0", "-1", "inf", "nan"])
    def test_the_period_is_a_positive_time(self, period: str) -> None:
        with pytest.raises(InvalidInput, match=r"period (of policy workload )?is"):
            registry.find(f"workload:period={period}")


class TestDeadline:
    """5.4 and algorithm 4; reading: th < 1 / d, where d is the time left until the due date."""

    @pytest.mark.parametrize(("due", "slots"), [(160, 1), (80, 1), (40, 2), (20, 4), (10, 8), (39, 3), (41, 2)])
    def test_a_due_date_twice_as_tight_takes_twice_as_many_slots(self, due: int, slots: int) -> None:
        """5.4.2: eight tasks of 10 s, so a single worker needs T = 80 s."""
        assert Cluster("deadline:spare=none,foresight=false", 16, bag(1, 8, due=due)).counts == [slots]

    def test_on_slots_of_different_speeds(self) -> None:
        """Four tasks of 10 s: T is 20 on speed 2 and 40 on speed 1. Due in 16: 1/20 is too little."""
        jobs = bag(1, 4, due=16), bag(2, 4, due=40)
        cluster = Cluster("deadline:spare=none,foresight=false", [1.0, 1.0, 2.0, 1.0], *jobs)
        assert cluster.slots == {1: [0, 2], 2: [1]}

    def test_the_condition_holds_with_equality(self) -> None:
        """sum(1 / T) >= 1 / d: T is 20, 40 and 40, due in 10: 1/20 + 1/40 + 1/40 = 1/10, so three are enough."""
        cluster = Cluster("deadline:spare=none,foresight=false", [1.0, 1.0, 2.0, 1.0], bag(1, 4, due=10))
        assert cluster.slots == {1: [0, 1, 2]}

    def test_when_not_all_can_be_met_priority_counts(self) -> None:
        """5.4: "tends to meet the deadlines for jobs with higher priority"."""
        jobs = bag(1, 8, due=20), bag(2, 8, due=20, priority=1), bag(3, 8, due=20)
        assert Cluster("deadline:spare=none,foresight=false", 6, *jobs).counts == [2, 4, 0]

    @pytest.mark.parametrize("due", [50, 20])
    def test_a_job_past_its_due_date_wants_a_slot_for_each_task(self, due: int) -> None:
        """Reading; also at the very instant of the due date."""
        assert Cluster("deadline:spare=none,foresight=false", 16, bag(1, 8, due=due), at=50).counts == [8]

    def test_a_job_without_a_due_date_gets_spare_slots_only(self) -> None:
        jobs = bag(1, 8, priority=9), bag(2, 8, due=40)
        assert Cluster("deadline:spare=none,foresight=false", 16, *jobs).counts == [0, 2]
        assert Cluster("deadline:spare=priority,foresight=false", 12, *jobs).counts == [8, 4]
        assert Cluster("deadline:spare=due,foresight=false", 12, *jobs).counts == [4, 8]
        assert Cluster("deadline:foresight=false", 12, *jobs).counts == [4, 8]

    def test_spare_slots_go_one_job_after_the_other(self) -> None:
        """5.5: "allocate the rest workers one by one until workers are used up or every job has obtained enough"."""
        jobs = bag(1, 6, due=60, priority=1), bag(2, 6, due=30, priority=2), bag(3, 6, due=90, priority=3)
        assert Cluster("deadline:spare=none,foresight=false", 10, *jobs).counts == [1, 2, 1]
        assert Cluster("deadline:spare=priority,foresight=false", 10, *jobs).counts == [1, 3, 6]
        assert Cluster("deadline:spare=due,foresight=false", 10, *jobs).counts == [3, 6, 1]

    def test_more_slots_as_the_due_date_comes_near(self) -> None:
        """5.4: "the closer the deadline is, the more worker a job should get"; tasks take twice their estimate."""
        cluster = Cluster("deadline:spare=none,foresight=false", 16, bag(1, 8, due=50))
        assert cluster.counts == [2]
        cluster.end(1, 0, 1, at=20)  # the estimate is the mean of 10, 20 and 20 s; 6 such tasks are left, and 30 s
        cluster.submit(bag(2, 1, due=999))
        assert cluster.counts == [4, 1]
        cluster.end(2, 0, at=31)  # still 100 s of work, 19 s left
        assert cluster.counts == [6]

    def test_fewer_slots_when_tasks_are_light(self) -> None:
        """6.2: "each task execution progress is going faster than expected, so the system decided to decrease"."""
        cluster = Cluster("deadline:spare=none,foresight=false", 8, bag(1, 24, None, due=3600))
        assert cluster.counts == [4]  # 24 tasks of the default estimate, 600 s, in an hour
        cluster.end(1, 0, 1, 2, 3, at=60)  # a default is not an observation: 20 tasks of 60 s are left
        cluster.submit(bag(2, 1, due=9999))
        assert cluster.counts == [1, 1]

    def test_a_spread_of_run_times_is_met_with_caution(self) -> None:
        """4.4: run-time statistics correct the estimate; `caution` adds spreads to the mean. Observed: 10 and 30 s."""
        counts = []
        for policy in ("deadline:spare=none,foresight=false", "deadline:spare=none,caution=1,foresight=false"):
            cluster = Cluster(policy, 16, bag(1, 12, None, due=6000))
            cluster.end(1, 0, at=10)
            cluster.end(1, 1, at=30)
            view = cluster.scheduler.state.jobs[1]
            assert (view.estimate, view.observed.spread) == (20 * SECOND, 12_500_000)  # 5, then 20
            cluster.scheduler.handle(JobChanged(cluster.now, 1, due=80 * SECOND))
            cluster.plan()
            counts += cluster.counts
        assert counts == [4, 7]  # 10 tasks in 50 s, of 20 s and of 32.5 s

    def test_a_job_that_lost_workers_catches_up(self) -> None:
        """6.2: eight workers, one job due after 4 minutes, six of them down from 0:55 to 1:55."""
        cluster = Cluster("deadline:spare=none,foresight=false", [1.0] * 8, bag(1, 90, due=240))
        view = cluster.scheduler.state.jobs[1]
        workers = [f"w{worker}" for worker in range(2, 8)]
        held = {0: cluster.counts[0]}
        for second in range(5, 241, 5):
            ended = [task for task, attempt in view.attempts.items() if attempt.expected_end == second * SECOND]
            cluster.end(1, *sorted(ended), at=second)
            for worker in workers if second in (55, 115) else ():
                change = NodeDown if second == 55 else NodeUp
                cluster.scheduler.handle(change(cluster.now, worker))
            cluster.plan()
            held[second] = view.held.bit_count()
            if not cluster.scheduler.state.jobs:
                break
        assert {held[second] for second in range(0, 55, 5)} == {4}  # 900 s of work in 240 s
        assert {held[second] for second in range(55, 115, 5)} == {2}
        assert held[115] == 5  # 58 tasks are left, and 125 s
        assert not cluster.scheduler.state.jobs, "not done by the due date"


def test_edf_is_what_lin14_compares_with() -> None:
    """6.3.2: jobs by due date, each up to its tasks; those without a due date last."""
    jobs = bag(1, 6), bag(2, 6, due=90), bag(3, 6, due=30, priority=-1), bag(4, 1, due=30)
    assert Cluster("edf", 14, *jobs).counts == [1, 6, 6, 1]


@pytest.mark.parametrize("policy", ["priority", "proportion", "workload", "deadline"])
def test_spare_rules_by_name(policy: str) -> None:
    with pytest.raises(InvalidInput, match=r"spare of policy \w+ is 'duee'; allowed: none, priority, due"):
        registry.find(f"{policy}:spare=duee")
