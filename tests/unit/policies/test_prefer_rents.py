"""Machines that `sites:top=prefer` rents: for what is in time nowhere else, as few and as late as due dates allow."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.metrics import summarise
from headway.model.events import JobSubmitted, NodeJoined, RentingChosen, Woke
from headway.model.instant import HOUR, SECOND
from headway.model.job import Bag, Kind
from headway.model.node import NodeSpec
from headway.model.plan import Reason
from headway.model.renting import UNIT, Offer, Renting
from headway.model.schedule import Schedule
from headway.model.workload import Workload, workload_us
from headway.policies.registry import find
from headway.sim.kernel import Simulation
from headway.sim.world import World

SMALL = Offer("public", "small", 1, UNIT, period=HOUR, minimum=HOUR, start_time=120 * SECOND, limit=10)
LARGE = replace(SMALL, type="large", slots=4, price=3 * UNIT)
OWN = (NodeSpec("grid", 2, site="grid"),)
BOTH = Renting((SMALL, LARGE))


def bags(*jobs: tuple[int, int, int, int]) -> Workload:
    """Bags by release, tasks, run time of each, and due date, in seconds."""
    release, tasks, time, due = zip(*jobs, strict=True)
    return workload_us(
        release=[at * SECOND for at in release],
        runtime=[one * SECOND for one in time],
        estimate=[one * SECOND for one in time],
        tasks=list(tasks),
        due=[at * SECOND for at in due],
        kind=int(Kind.BAG),
    )


def simulate(workload: Workload, rule: str, renting: Renting = BOTH, world: World | None = None) -> Schedule:
    def audit(core: Scheduler) -> None:
        core.check()

    policy = f"sites:top=prefer,rent={rule}"
    return Simulation(workload, OWN, find, policy, renting=renting, record=True, audit=audit, world=world).run()


def test_each_task_that_would_be_late_gets_the_cheapest_machine_on_which_it_is_not() -> None:
    """Two slots do six of the ten tasks in time; the paper rents a small machine for each of the other four."""
    done = simulate(bags((0, 10, 600, 1800)), "each")
    assert summarise(done)["deadline_miss_rate"] == 0
    assert [(row.type, row.asked, row.job) for row in done.rentals] == [("small", 0, 0)] * 4
    assert summarise(done)["money"] == 4.0


def test_the_cheapest_set_is_shared_and_asked_for_as_late_as_the_due_date_allows() -> None:
    """Two small machines do two tasks each. With a quarter to spare, that takes 1,620 s, and a minute is reserved."""
    done = simulate(bags((0, 10, 600, 1800)), "cheapest")
    assert (summarise(done)["deadline_miss_rate"], summarise(done)["money"]) == (0, 2.0)
    assert [(row.type, row.asked) for row in done.rentals] == [("small", 120 * SECOND)] * 2


def test_what_could_wait_is_done_without_a_machine_if_something_ends_early() -> None:
    """The tasks take half as long as expected, which is known before a machine must be asked for."""
    workload = bags((0, 10, 600, 3100))
    early = replace(workload, estimate=2 * workload.estimate)
    assert [len(simulate(early, rule).rentals) for rule in ("each", "cheapest")] == [6, 0]


def test_without_a_due_date_or_where_all_is_in_time_nothing_is_rented() -> None:
    for workload in (bags((0, 3, 600, 1800)), replace(bags((0, 30, 600, 1)), due=bags((0, 1, 1, 10**8)).due)):
        for rule in ("each", "cheapest"):
            assert not simulate(workload, rule).rentals


@pytest.mark.parametrize("rule", ["each", "cheapest"])
def test_a_budget_is_kept_and_what_it_has_no_room_for_runs_where_it_ends_first(rule: str) -> None:
    done = simulate(bags((0, 10, 600, 1800)), rule, replace(BOTH, budget_job=UNIT))
    assert summarise(done)["money"] == 1.0
    assert not done.refused, "what a budget has no room for is not asked for"
    assert summarise(done)["jobs_succeeded"] == 1


def test_a_machine_that_jobs_share_counts_in_the_budget_of_one_of_them() -> None:
    """The one with the most tasks there, as long as its budget allows."""
    workload = bags((0, 2, 600, 10**8), (0, 1, 600, 1500), (0, 3, 600, 1500))
    done = simulate(workload, "cheapest", Renting((LARGE,)))
    assert [(row.type, row.job) for row in done.rentals] == [("large", 2)]
    assert [row.user for row in done.rentals] == ["" if done.user is None else str(done.user[2])]
    assert not simulate(workload, "cheapest", Renting((LARGE,), budget_job=2 * UNIT)).rentals
    poor = simulate(bags((0, 2, 600, 10**8), (0, 9, 600, 1500)), "cheapest", Renting((LARGE,), budget_job=3 * UNIT))
    assert sum(row.cost for row in poor.rentals) == 3 * UNIT


@pytest.mark.parametrize("rule", ["each", "cheapest"])
def test_what_is_placed_anew_at_once_is_rented_for_only_once(rule: str) -> None:
    """The first job waits on the grid. Of the two that come later one can be saved, and one cannot: so all is placed
    again in the order of due dates, in the same round."""
    workload = bags((0, 4, 600, 10**8), (10, 1, 600, 780), (10, 1, 600, 700))
    done = simulate(workload, f"{rule},queue=due")
    assert [(row.type, row.asked, row.job) for row in done.rentals] == [("small", 10 * SECOND, 1)]
    assert summarise(done)["money"] == 1.0
    assert (done.end > done.due).tolist() == [False, False, True]


def test_it_is_explained_what_a_job_waits_for() -> None:
    core = Scheduler(find, "sites:top=prefer,rent=each")
    for event in (
        NodeJoined(0, OWN[0]),
        RentingChosen(0, replace(BOTH, budget_day=UNIT)),
        JobSubmitted(0, Bag(1, 0, estimate=600 * SECOND, tasks=2, due=700 * SECOND)),
        JobSubmitted(0, Bag(2, 0, estimate=600 * SECOND, tasks=1, due=800 * SECOND)),
        JobSubmitted(0, Bag(3, 0, estimate=600 * SECOND, tasks=1, due=800 * SECOND)),
        Woke(0),
    ):
        core.handle(event)
    (rental,) = core.state.market.rentals.values()
    assert (rental.job, rental.why) == (2, "the cheapest of 2 types on which task 0 of job 2 ends in time")
    waits = [core.explain(2), core.explain(3)]
    assert [(why.reason, why.start) for why in waits] == [
        (Reason.MACHINE_COMES, 120 * SECOND),
        (Reason.NOT_TO_BE_RENTED, 600 * SECOND),
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", ["each", "cheapest"])
def test_whatever_comes_every_job_ends_and_nothing_stays_rented(rule: str, seed: int) -> None:
    chance = Random(seed)
    jobs, at = [], 0
    for _ in range(12):
        at += chance.choice([0, 60, 900, 4000])
        time = chance.choice([30, 400, 2000])
        jobs.append((at, chance.randint(1, 9), time, at + chance.choice([100, 2500, 9000])))
    renting = Renting((replace(SMALL, spot=True, period=SECOND, minimum=60 * SECOND), LARGE), 20 * UNIT)
    done = simulate(bags(*jobs), rule, renting, World(noise=0.4, seed=seed, spot_life=1800.0))
    assert summarise(done)["jobs_succeeded"] == len(jobs)
    assert sum(row.cost for row in done.rentals) == round(float(summarise(done).get("money", 0.0)) * UNIT)
    assert all(row.until < 1 << 60 for row in done.rentals)
