"""The performance model of two tiers: ends worked out by hand, progress that is exact, and bad input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from headway.config import uniform_cluster
from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.plan import Allocation, Claim, Plan
from headway.model.schedule import Schedule
from headway.model.snapshot import Snapshot
from headway.model.tier import Tier
from headway.model.workload import Workload, workload_us
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.tiers import FULL, Occupancy, SimulatedAttempt, TwoTiers
from headway.sim.world import World

FRONT, BACK = Tier
CLEAR = TwoTiers(loss=(0.02, 0.02), single=(0.9, 0.9), several=(0.5, 0.0, 0.5, 0.5))
"""No draws: 2 % loss, gains of 0.9 for one process and 0.5 for several."""


@dataclass(frozen=True)
class Timetable:
    """Allocations at given seconds, and nothing else."""

    script: Mapping[float, Sequence[Allocation]] = field(default_factory=dict)
    per_instant: bool = True
    task_rounds: bool = False
    tiers: bool = True

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        times = {round(at * SECOND): wanted for at, wanted in self.script.items()}
        plan.allocations.extend(wanted for wanted in times.get(view.now, ()) if wanted.job in view.jobs)
        plan.wake = min((at for at in times if at > view.now), default=None)
        return plan


def rigid(runtime: Sequence[float], **columns: Any) -> Workload:
    """Rigid jobs that are all released at 0; run times in seconds."""
    times = [round(value * SECOND) for value in runtime]
    return workload_us(kind=[int(Kind.RIGID)] * len(times), release=[0] * len(times), runtime=times, **columns)


def run(
    workload: Workload, script: Mapping[float, Sequence[Allocation]], slots: int = 1, **world: Any
) -> tuple[list[int], Schedule]:
    """The ends of the jobs, in microseconds, and the rest of the schedule."""
    model = World(**({"tiers": CLEAR} | world))
    policy = Timetable(script)
    simulation = Simulation(
        workload,
        [NodeSpec("n", slots=slots)],
        lambda text: policy,
        "timetable",
        world=model,
        record=True,
        audit=lambda scheduler: scheduler.check(),
    )
    schedule = simulation.run()
    assert not simulation.scheduler.refusals
    return schedule.end.tolist(), schedule


def front(job: int, slots: int, claim: Claim = Claim.FREE, seats: tuple[int, ...] = ()) -> Allocation:
    return Allocation(job, slots, None, claim, FRONT, seats)


def back(job: int, slots: int, claim: Claim = Claim.FREE, seats: tuple[int, ...] = ()) -> Allocation:
    return Allocation(job, slots, None, claim, BACK, seats)


# By hand


def test_behind_a_foreground_of_60_percent_a_process_that_wants_all_finds_40() -> None:
    ends, schedule = run(rigid([100, 60], cpu=[0.6, 1.0]), {0: [front(0, 1), back(1, 1)]})
    # In front: a rate of 0.98 all the time, so 100 s / 0.98, rounded up to whole microseconds.
    # Behind: a rate of 0.9 * 0.4 / 1 = 0.36 until then, and full rate for what is left of 60 s.
    assert ends == [102_040_817, 102_040_817 + 23_265_306]
    assert schedule.busy == 102_040_817, "time in the background is no slot time"


def test_the_foreground_loses_only_while_something_runs_behind_it() -> None:
    ends, _ = run(rigid([100, 9], cpu=[0.6, 1.0]), {0: [front(0, 1), back(1, 1)]})
    assert ends == [100_500_000, 25_000_000]  # 25 s at 0.98 are 24.5 s of work
    ends, _ = run(rigid([100, 9], cpu=[0.6, 1.0]), {0: [front(0, 1)], 50: [back(1, 1)]})
    assert ends == [100_500_000, 75_000_000]


def test_what_a_job_takes_alone_is_its_run_time_and_of_a_bag_its_span() -> None:
    kinds = [int(Kind.RIGID), int(Kind.BAG)]
    work = workload_us(kind=kinds, release=[0, 0], runtime=[100 * SECOND, 60 * SECOND], tasks=[1, 1], cpu=[0.6, 1.0])
    ends, schedule = run(work, {0: [front(1, 1), back(0, 1)]})
    assert schedule.alone is not None
    assert schedule.alone.tolist() == [100 * SECOND, ends[1]]


def test_who_wants_less_than_is_idle_gets_all_it_wants() -> None:
    ends, _ = run(rigid([100, 9], cpu=[0.6, 0.3]), {0: [front(0, 1), back(1, 1)]})
    assert ends[1] == 10_000_000


def test_behind_a_foreground_that_leaves_nothing_nothing_goes_on() -> None:
    ends, _ = run(rigid([98, 10], cpu=[1.0, 1.0]), {0: [front(0, 1), back(1, 1)]})
    assert ends == [100_000_000, 110_000_000]


def test_a_job_without_any_work_ends_also_where_nothing_goes_on() -> None:
    assert run(rigid([98, 0], cpu=[1.0, 1.0]), {0: [front(0, 1)], 5: [back(1, 1)]})[0] == [98_000_000, 5_000_000]


def test_a_job_is_as_slow_as_its_slowest_process() -> None:
    # In front: 0.2 of slot 0, 0.7 of slot 1. Behind: a job of processes that want 1 and 0.6; of several: gain 0.5.
    uses = {2: (1.0, 0.6)}
    jobs = rigid([1000, 1000, 10], width=[1, 1, 2], cpu=[0.2, 0.7, 0.8], uses=uses)
    start = [front(0, 1), front(1, 2)]
    straight, _ = run(jobs, {0: [*start, back(2, 3)]}, 2)
    assert straight[2] == 40_000_000  # 0.8 / 1 on slot 0, but 0.3 / 0.6 on slot 1: a quarter
    crossed, _ = run(jobs, {0: [*start, back(2, 3, seats=(1, 0))]}, 2)
    assert crossed[2] == 66_666_667  # 0.3 / 1 on slot 1: 0.15
    # The processes in front may be the ones that differ.
    jobs = rigid([1000, 10], width=[2, 2], cpu=[0.45, 0.8], uses={0: (0.2, 0.7)})
    assert run(jobs, {0: [front(0, 3), back(1, 3)]}, 2)[0][1] == 53_333_334  # 0.3 / 0.8 on slot 1: 0.1875
    # What started before there was a background had its seats then.
    late = run(jobs, {0: [front(0, 3, seats=(1, 0))], 5: [back(1, 3)]}, 2)
    assert late[0][1] == 58_333_334


def test_on_slots_without_foreground_one_goes_at_full_rate_or_as_behind_others() -> None:
    jobs = rigid([9, 1], cpu=[0.5, 1.0])
    assert run(jobs, {0: [back(0, 1)], 9: [front(1, 2)]}, 2)[0][0] == 9_000_000
    split = replace(CLEAR, alone=False)
    assert run(jobs, {0: [back(0, 1)], 9: [front(1, 2)]}, 2, tiers=split)[0][0] == 10_000_000
    # One slot of two is shared: the slowest process counts, and the job of several has a gain of 0.5.
    jobs = rigid([10, 100], width=[2, 1], cpu=[1.0, 0.5])
    assert run(jobs, {0: [back(0, 3), front(1, 1)]}, 2)[0][0] == 40_000_000


def test_a_swap_exchanges_rates_and_restarts_nothing() -> None:
    ends, schedule = run(
        rigid([100, 60], cpu=[0.5, 0.5]),
        {0: [front(0, 1), back(1, 1)], 50: [front(1, 1, Claim.SWAP)]},
    )
    # Until 50: 49 s and 0.9 * 1 * 50 = 45 s. Then 15 s at 0.98 in front; behind 0.9 until then, then all.
    assert ends[1] == 50_000_000 + 15_306_123
    left = Fraction(51) - Fraction(9, 10) * Fraction(15_306_123, SECOND)
    assert ends[0] == ends[1] + -(-left * SECOND // 1)
    assert (schedule.migrations, schedule.kills) == (0, 0)
    assert schedule.busy == 50_000_000 + 15_306_123
    assert schedule.attempts is not None
    assert sorted(zip(schedule.attempts.start, schedule.attempts.behind, strict=True)) == [
        (0, False),
        (0, True),
        (50_000_000, False),
        (50_000_000, True),
    ]


def test_a_migration_keeps_what_was_done_and_stands_still_for_its_cost() -> None:
    jobs, script = rigid([100, 60], cpu=[0.5, 0.5]), {0: [front(0, 1), back(1, 1)], 50: [front(1, 2, Claim.MIGRATE)]}
    ends, schedule = run(jobs, script, 2)
    assert ends == [101_000_000, 50_000_000 + 20_000_000 + 15_000_000]  # after 50 s at 0.98 nothing is behind job 0
    assert (schedule.migrations, schedule.kills) == (1, 0)
    assert run(jobs, script, 2, migration_cost=0)[0][1] == 65_000_000
    assert run(jobs, script, 2, migration_cost=7e-6)[0][1] == 65_000_007


def test_while_a_migration_stands_still_it_has_its_place() -> None:
    jobs = rigid([100, 60, 9], cpu=[0.5, 0.5, 1.0])
    script = {0: [front(0, 1), back(1, 1)], 50: [front(1, 2, Claim.MIGRATE), back(2, 2)]}
    ends, _ = run(jobs, script, 2)
    assert ends[2] == 70_000_000  # 0.9 * 0.5
    assert ends[1] == 85_000_000  # nothing is behind it any more when it continues


def test_a_job_that_moves_by_kill_starts_again_and_pays_for_it() -> None:
    jobs, script = rigid([100, 60], cpu=[0.5, 0.5]), {0: [front(0, 1), back(1, 1)], 50: [front(1, 2, Claim.KILL)]}
    ends, schedule = run(jobs, script, 2)
    assert ends == [101_000_000, 110_000_000]
    assert (schedule.migrations, schedule.kills) == (0, 1)
    assert run(jobs, script, 2, kill_cost=3e-6)[0][1] == 110_000_003


def test_a_move_while_standing_still_loses_nothing_and_pays_again() -> None:
    script = {0: [front(0, 1)], 50: [front(0, 2, Claim.MIGRATE)], 55: [front(0, 4, Claim.MIGRATE)]}
    ends, schedule = run(rigid([100]), script, 3)
    assert ends == [50_000_000 + 5_000_000 + 20_000_000 + 50_000_000]
    assert schedule.migrations == 2


def test_what_was_saved_for_a_move_outlasts_a_node() -> None:
    script = {0: [front(0, 1)], 50: [front(0, 2, Claim.MIGRATE)], 90: [front(0, 1)]}
    policy = Timetable(script)
    nodes = [NodeSpec("a"), NodeSpec("b")]
    outage = Outage("b", 90, None)
    schedule = Simulation(rigid([100]), nodes, lambda text: policy, "t", world=World(), outages=[outage]).run()
    assert schedule.end.tolist() == [160_000_000]  # 50 s were saved; it pauses for 20 s, and 50 s are left


def test_a_launch_that_comes_later_than_its_decision_goes_on_later() -> None:
    jobs = rigid([100, 9], cpu=[0.6, 1.0])
    ends, _ = run(jobs, {0: [front(0, 1), back(1, 1)]}, decision_time=1.0)
    assert ends == [101_500_000, 26_000_000]


def test_a_change_and_a_start_in_one_plan_leave_each_its_place() -> None:
    """Job 0 goes to the background, job 1 starts in front, and both change again. The last entry in the plan counts."""
    jobs = rigid([10, 10], cpu=[0.5, 0.5])
    script = {0: [front(0, 1)], 1: [front(1, 1, Claim.SWAP), front(0, 1, Claim.SWAP)]}
    ends, schedule = run(jobs, script)
    assert ends[0] == 1_000_000 + 9_183_674  # in front for all its time, 9 s of it at 0.98
    assert schedule.attempts is not None
    assert schedule.attempts.behind.sum() == 2


def test_jobs_have_the_cpu_use_that_the_workload_says_whatever_the_scheduler_is_told() -> None:
    jobs = rigid([100, 9], cpu=[0.6, 1.0])
    told = {}

    @dataclass(frozen=True)
    class Reader(Timetable):
        def __call__(self, view: Snapshot) -> Plan:
            told.update({job.id: job.spec.cpu for job in view.jobs.values()})
            return Timetable.__call__(self, view)

    for known, expected in (
        ("given", {0: (0.6,), 1: (1.0,), 2: ()}),
        ("unknown", {0: (), 1: (), 2: ()}),
        ("drawn", {0: (0.6,), 1: (1.0,), 2: (1.0,)}),
    ):
        policy = Reader({0: [front(0, 1), back(1, 1)], 200: [front(2, 1)]})
        silent = rigid([100, 9, 1], cpu=[0.6, 1.0, np.nan])
        world = World(tiers=CLEAR, cpu=known)  # type: ignore[arg-type]
        schedule = Simulation(silent, uniform_cluster(1), lambda text, policy=policy: policy, "t", world=world).run()
        assert told == expected
        assert schedule.end.tolist()[:2] == run(jobs, {0: [front(0, 1), back(1, 1)]})[0]


# Exactness


def test_progress_does_not_depend_on_how_often_it_is_asked() -> None:
    for seed in range(300):
        chance = Random(seed)
        total = chance.choice([0, 1, 7, 10**6, 10**13 + chance.randrange(10**6)])
        once, often = (SimulatedAttempt(0, 0, 1, 1, BACK, 5, total) for _ in range(2))
        exact, now, rate = Fraction(total), 5, FULL
        for _ in range(chance.randint(1, 6)):
            rate = chance.choice([0, 1, 333_333, 980_001, FULL, chance.randint(1, FULL)])
            for running in (once, often):
                running.go_on(now, rate)
            span = chance.choice([0, 1, 3, 10**5, 10**12])
            steps = sorted(chance.randint(0, span) for _ in range(5))
            for step in steps:
                often.go_on(now + step, rate)
            now += span
            exact = max(Fraction(0), exact - Fraction(rate, FULL) * span)
        for running in (once, often):
            running.go_on(now, rate)
            assert Fraction(running.left, FULL) == exact, seed
            if not rate:
                assert (running.end == -1) == bool(exact)
            elif exact:
                needed = exact / Fraction(rate, FULL)
                assert running.end == now + -(-needed // 1), seed
        assert once.end == often.end


def test_rates_are_those_of_the_formula_wherever_jobs_stand() -> None:
    """No rate in `Occupancy` is out of date, whatever enters, leaves or changes: each equals the formula."""
    for seed in range(60):
        chance = Random(seed)
        jobs = 12
        cpu = [chance.choice([0.0, 0.3, 0.6, 1.0]) for _ in range(jobs)]
        losses = [chance.uniform(0.005, 0.04) for _ in range(jobs)]
        gains = [chance.uniform(0.2, 0.9) for _ in range(jobs)]
        alone = chance.random() < 0.5
        places, there = Occupancy(cpu, losses, gains, alone=alone), {}
        for now in range(40):
            job = chance.randrange(jobs)
            running = there.pop(job, None)
            if running is not None:
                places.leave(running)
            tier = Tier(chance.random() < 0.5)
            taken = sum(one.slots for one in there.values() if one.tier is tier)
            slots = chance.getrandbits(6) & ~taken
            if slots and chance.random() < 0.8:
                running = there[job] = SimulatedAttempt(job, 0, 1, slots, tier, now, 10**9)
                running.rate = -1
                if chance.random() < 0.4:
                    running.uses = {slot: chance.choice([0.2, 0.9]) for slot in range(6) if slots >> slot & 1}
                places.enter(running)
            for changed in places.changed(now):
                assert there[changed.job] is changed
            for one in there.values():
                assert one.rate == naive_rate(one, list(there.values()), cpu, losses, gains, alone), (seed, now)


def naive_rate(
    one: SimulatedAttempt,
    everybody: list[SimulatedAttempt],
    cpu: list[float],
    losses: list[float],
    gains: list[float],
    alone: bool,
) -> int:
    """The formulas of MEASY14 3.2, process by process."""
    used = {(slot, of.tier): of for of in everybody for slot in range(6) if of.slots >> slot & 1}
    mine = [slot for slot in range(6) if one.slots >> slot & 1]
    if one.tier is FRONT:
        behind = any((slot, BACK) in used for slot in mine)
        return FULL - int(losses[one.job] * FULL) if behind else FULL
    if alone and not any((slot, FRONT) in used for slot in mine):
        return FULL
    shares = []
    for slot in mine:
        first = used.get((slot, FRONT))
        if first is None:
            shares.append(1.0)
            continue
        idle = 1.0 - (cpu[first.job] if first.uses is None else first.uses[slot])
        wants = cpu[one.job] if one.uses is None else one.uses[slot]
        shares.append(1.0 if idle >= wants else idle / wants)
    return int(gains[one.job] * min(shares) * FULL)


# Draws


def test_draws_are_within_their_ranges_and_fixed_by_the_seed() -> None:
    tiers, width = TwoTiers(), np.array([1, 5] * 5000)
    losses, gains = np.array(tiers.losses(10_000, 3)), np.array(tiers.gains(width, 3))
    assert (losses.min() >= 0.005, losses.max() <= 0.04) == (True, True)
    assert losses.mean() == pytest.approx(0.0225, abs=0.0005)
    single, several = gains[width == 1], gains[width > 1]
    assert (single.min() >= 0.80, single.max() <= 0.92) == (True, True)
    assert single.mean() == pytest.approx(0.86, abs=0.003)
    assert (several.min() >= 0.198, several.max() <= 0.766) == (True, True)
    assert several.mean() == pytest.approx(0.44, abs=0.02)  # the lower end is cut off nearer to the mean
    assert several.std() == pytest.approx(0.12, abs=0.02)
    assert tiers.losses(10_000, 3) == losses.tolist() != tiers.losses(10_000, 4)
    assert tiers.gains(width, 3) == gains.tolist() != tiers.gains(width, 4)


def test_cpu_use_is_drawn_only_where_nobody_says_it() -> None:
    jobs = rigid([1] * 4000, width=[1, 2] * 2000, cpu=[np.nan, np.nan, 0.25, 0.25] * 1000)
    use = TwoTiers().cpu_use(jobs, 1)
    assert set(use[0::4]) == {1.0}, "of one process"
    assert (use[1::4].min() >= 0.4, use[1::4].max() <= 1) == (True, True)
    assert use[1::4].mean() == pytest.approx(0.7, abs=0.02)
    assert set(use[2::4]) == set(use[3::4]) == {0.25}
    assert (use == TwoTiers().cpu_use(jobs, 1)).all()
    assert (use != TwoTiers().cpu_use(jobs, 2)).any()


# Bad input


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"loss": (0.04, 0.005)}, r"tiers\.loss is \(0\.04, 0\.005\)"),
        ({"single": (0.8, 1.2)}, r"tiers\.single is \(0\.8, 1\.2\)"),
        ({"several": (0.5, 0.1, -0.1, 0.7)}, r"tiers\.several"),
        ({"several": (0.9, 0.1, 0.2, 0.7)}, "a mean from the least to the greatest"),
        ({"several": (0.5, -0.1, 0.2, 0.7)}, "a deviation >= 0"),
        ({"cpu": (-0.5, 1.0)}, r"tiers\.cpu is \(-0\.5, 1\.0\)"),
        ({"cpu": (float("nan"), 1.0)}, r"tiers\.cpu"),
    ],
)
def test_shares_outside_0_to_1_are_refused(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        TwoTiers(**terms)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"migration_cost": -1}, "migration_cost is -1; allowed: seconds, 0 or more"),
        ({"kill_cost": -20}, "kill_cost is -20; allowed: seconds, 0 or more"),
        ({"cpu": "guessed"}, "cpu is 'guessed'; allowed: given, drawn, unknown"),
    ],
)
def test_a_world_that_cannot_be_is_refused(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        World(**terms)
