"""MEASY14, the worked examples of section 2. Sizes and times of the figures are lost. These fit the text, which says
for each job when it starts, where it moves, and when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from headway.metrics import summarise
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.tier import Tier
from headway.model.workload import workload_us
from headway.sim.experiment import run
from headway.sim.tiers import TwoTiers
from headway.sim.world import World

HALF_IDLE = 0.5
FIGURE_1 = (  # width, run time; the first of them is J1
    (2, 10),
    (4, 6),
    (2, 5),
    (1, 11),
    (1, 2),
    (1, 3),
    (1, 5),
    (1, 4),
    (1, 5),
)

# No loss in the foreground. A job behind a half idle process advances 2 units in 5, as J5 to J8 do.
TIERS = TwoTiers(loss=(0, 0), single=(0.8, 0.8), several=(0.8, 0, 0.8, 0.8))


def simulated(
    jobs: Sequence[tuple[int, float]],
    policy: str,
    *,
    slots: int = 5,
    several: float | Sequence[float] = HALF_IDLE,
    estimates: Sequence[int] | None = None,
) -> Schedule:
    """All jobs are released at 0. A single process uses all of its processor; one of several uses this share."""
    width = np.array([width for width, _ in jobs])
    runtime = (np.array([time for _, time in jobs]) * SECOND).astype(np.int64)
    workload = workload_us(
        release=[0] * len(jobs),
        runtime=runtime,
        width=width,
        kind=1,
        estimate=runtime if estimates is None else np.array(estimates) * SECOND,
        cpu=np.where(width == 1, 1.0, several),
    )
    world = World(tiers=TIERS, migration_cost=0)
    return run(workload, [NodeSpec("n", slots)], f"{policy}:per_instant=true", world=world, record=True)


def ran(done: Schedule, job: int) -> list[tuple[int, list[int], int, int]]:
    """Where a job ran, as (tier, processors, from, until), J1 and P1 being the first."""
    assert done.attempts is not None
    attempts = done.attempts
    rows: dict[tuple[int, int, int], list[int]] = {}
    for row in np.flatnonzero(attempts.job == job - 1):
        key = int(attempts.behind[row]), attempts.start[row] // SECOND, math.ceil(attempts.end[row] / SECOND)
        first = int(attempts.first[row])
        rows.setdefault(key, []).extend(range(first + 1, first + 1 + int(attempts.count[row])))
    return [(tier, slots, start, end) for (tier, start, end), slots in rows.items()]


FG, BG = Tier.FOREGROUND, Tier.BACKGROUND


def end(done: Schedule, job: int) -> float:
    return float(done.end[job - 1]) / SECOND


def test_figure_1a_keasy() -> None:
    done = simulated([*FIGURE_1, (1, 8), (5, 2), (1, 6)], "keasy")
    # Time 0: J1 by FCFS, J3 and J4 by backfilling, J5 to J8 behind them. None is behind J4, which is a single process.
    assert [ran(done, job)[0][:3] for job in (1, 3, 4)] == [(FG, [1, 2], 0), (FG, [3, 4], 0), (FG, [5], 0)]
    assert [ran(done, job)[0][:3] for job in (5, 6, 8, 7)] == [(BG, [slot], 0) for slot in (1, 2, 3, 4)]
    # Time 5: J3 and J5 depart. J6 starts again elsewhere, J7 swaps its tier, J8 is now behind J6.
    assert end(done, 3) == end(done, 5) == 5
    assert ran(done, 6) == [(BG, [2], 0, 5), (FG, [3], 5, 8)]
    assert ran(done, 7) == [(BG, [4], 0, 5), (FG, [4], 5, 8)], "it had advanced 2 of 5 units, and keeps them"
    assert {ran(done, job)[0][0] for job in (9, 10)} == {BG}
    # J8 cannot be backfilled, as its original execution time is 4. Yet it ends at 10: no job is before it from 8 on.
    assert ran(done, 8) == [(BG, [3], 0, 10)]
    assert end(done, 1) == end(done, 8) == 10
    # J2 has its reservation. J9 starts again at 11, when J4 has ended and it is the head.
    assert ran(done, 2) == [(FG, [1, 2, 3, 4], 10, 16)]
    assert ran(done, 9)[-1] == (FG, [5], 11, 16)
    # J10 has not finished at 16: it comes to the foreground, J11 is reserved, J12 leapfrogs it.
    assert ran(done, 10)[-1][0] == FG
    assert done.start[11] < done.start[10]


def test_figure_1a_when_j10_ends_in_the_background() -> None:
    done = simulated([*FIGURE_1, (1, 5.5), (5, 2), (1, 9)], "keasy", several=[0.5, 0.25] + [0.5] * 10)
    assert 10 < end(done, 10) < 16
    assert ran(done, 11) == [(FG, [1, 2, 3, 4, 5], 16, 18)], "J11 runs at once"


def test_figure_1b_reasy() -> None:
    done = simulated([*FIGURE_1, (1, 8), (5, 2), (1, 6)], "reasy")
    assert ran(done, 6)[0][:3] == (BG, [2], 0)
    assert len(ran(done, 6)) == 1, "at 5 it stays where it is, though a foreground is idle elsewhere"
    assert done.kills == done.migrations == 0
    assert ran(done, 9)[0][0] == BG
    assert len({tuple(slots) for _, slots, _, _ in ran(done, 9)}) == 1, "J9 is pinned where it first ran"


def test_measy_moves_where_keasy_kills() -> None:
    jobs = [*FIGURE_1, (1, 8), (5, 2), (1, 6)]
    keasy, measy = simulated(jobs, "keasy"), simulated(jobs, "measy")
    assert ran(measy, 6)[1][:3] == (FG, [3], 5)
    assert end(measy, 6) == 6, "2 of its 3 units were done when it moved"
    assert (keasy.kills, keasy.migrations) == (2, 0), "J6 and J9"
    assert measy.kills == 0
    assert measy.migrations >= 2
    assert summarise(measy)["response_mean"] < summarise(keasy)["response_mean"]


@pytest.mark.parametrize("policy", ["keasy", "reasy", "measy"])
class TestBusyProcesses:
    """Figures 2 to 4: all processes use all of their processors, and the background tier still pays."""

    def test_figures_2_and_3_exact_run_times(self, policy: str) -> None:
        jobs = [(2, 10), (3, 5), (1, 12)]
        easy, tiers = simulated(jobs, "easy", slots=3, several=1.0), simulated(jobs, policy, slots=3, several=1.0)
        assert [end(easy, job) for job in (1, 2, 3)] == [10, 15, 27]
        assert [end(tiers, job) for job in (1, 2, 3)] == [10, 15, 17], "J3 was not fit for backfilling"

    def test_figure_4_a_run_time_that_was_overestimated(self, policy: str) -> None:
        jobs, estimates = [(2, 10), (3, 5), (1, 4)], [10, 5, 20]
        easy = simulated(jobs, "easy", slots=3, several=1.0, estimates=estimates)
        tiers = simulated(jobs, policy, slots=3, several=1.0, estimates=estimates)
        assert (end(easy, 3), end(tiers, 3)) == (19, 4)
        assert summarise(tiers)["response_mean"] < summarise(easy)["response_mean"]
