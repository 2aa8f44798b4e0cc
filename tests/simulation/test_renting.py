"""Machines that are rented in a simulation: when they come, what they cost, and what a future of them is like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.metrics import summarise
from headway.model.actions import JobStatus
from headway.model.instant import HOUR, NEVER, SECOND
from headway.model.job import BATCH, Kind
from headway.model.node import NodeSpec
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.renting import UNIT, Offer, Renting
from headway.model.schedule import STATUSES, Schedule, task_runs
from headway.model.snapshot import Snapshot
from headway.model.workload import Workload, workload_us
from headway.policies.backfill import Easy
from headway.policies.registry import find as installed
from headway.sim.kernel import Simulation
from headway.sim.world import World

HOURLY = Offer("cloud", "hourly", 1, 6 * UNIT, period=HOUR, start_time=100 * SECOND, limit=2)
SECONDLY = replace(HOURLY, type="secondly", period=SECOND, price=36 * UNIT, speed=2.0)
OWN = (NodeSpec("own", 1),)


class OneEach:
    """Rents a machine for each job that waits, if none was rented for it yet."""

    per_instant = task_rounds = True
    serves = BATCH

    def __call__(self, view: Snapshot) -> Plan:
        plan, market = Easy()(view), view.market
        asked = {rental.job for rental in market.rentals.values()} | {wanted.job for wanted in plan.allocations}
        for job in view.waiting:
            if job.id not in asked:
                plan.rent("cloud", market.renting.offers[0].type, job.id, "it waits")
        return plan


def find(text: str) -> Policy:
    return OneEach() if text == "one-each" else installed(text)


def bags(*run_times: int) -> Workload:
    return workload_us(
        release=[0] * len(run_times),
        runtime=[time * SECOND for time in run_times],
        estimate=[time * SECOND for time in run_times],
        kind=int(Kind.BAG),
        user=["ann"] * len(run_times),
    )


def simulate(workload: Workload, renting: Renting) -> Schedule:
    def audit(core: Scheduler) -> None:
        core.check()

    return Simulation(workload, OWN, find, "one-each", renting=renting, record=True, audit=audit).run()


def test_a_machine_comes_after_its_start_and_is_given_back_when_its_hour_is_over() -> None:
    done = simulate(bags(5000, 50), Renting((HOURLY,)))
    (row,) = done.rentals
    assert (row.node, row.type, row.job, row.user, row.asked) == ("cloud-r1", "hourly", 1, "ann", 0)
    assert (row.since, row.until) == (0, HOUR - 60 * SECOND)
    assert row.cost == 6 * UNIT
    assert summarise(done)["money"] == 6.0
    (run,) = task_runs(done, 1)
    assert (run.nodes, run.start, run.end) == (("cloud-r1",), 100 * SECOND, 150 * SECOND)


def test_what_is_billed_by_the_second_is_given_back_at_once() -> None:
    done = simulate(bags(5000, 50), Renting((SECONDLY,)))
    (row,) = done.rentals
    assert (row.since, row.until) == (0, 125 * SECOND), "its speed is 2, so the task takes 25 s"
    assert row.cost == 36 * UNIT * 125 // 3600


def test_a_task_that_runs_beyond_the_hour_pays_for_another() -> None:
    done = simulate(bags(9000, 3599), Renting((HOURLY,)))
    assert [(row.until, row.cost) for row in done.rentals] == [(2 * HOUR - 60 * SECOND, 12 * UNIT)]


def test_a_budget_ends_what_it_has_no_room_for() -> None:
    """The second hour is not paid for, so the task is killed, and runs again on the cluster's own slot."""
    done = simulate(bags(9000, 3599), Renting((HOURLY,), budget_job=7 * UNIT))
    first, *more = done.rentals
    assert (first.until, first.cost) == (HOUR - 60 * SECOND, 6 * UNIT)
    assert not more, "the job has used up its budget"
    assert done.refused["over_budget"] > 0
    assert task_runs(done, 1)[0].nodes == ("own",)
    assert done.lost == (HOUR - 160 * SECOND), "what it did there is lost"


@pytest.mark.parametrize(("takes", "joins"), [(None, 100), (0.0, 0), (250.0, 250), (699.0, 699)])
def test_a_machine_joins_when_the_world_says_and_not_when_its_offer_does(takes: float | None, joins: int) -> None:
    world = World(machine_start=takes)
    done = Simulation(
        bags(5000, 900), OWN, find, "one-each", renting=Renting((HOURLY,)), record=True, world=world
    ).run()
    assert [node.name for node, _ in done.nodes] == ["own", "cloud-r1"]
    assert [since for number, since, _, _ in done.present if number == 1] == [joins * SECOND]
    assert task_runs(done, 1)[0].start == joins * SECOND
    assert [row.cost for row in done.rentals] == [HOURLY.price]


def test_a_machine_that_takes_longer_than_the_limit_is_given_back_before_it_joins() -> None:
    """The limit is ten minutes after it should have joined; it is billed for an hour, and its job waits for its own."""
    world = World(machine_start=701.0)
    done = Simulation(
        bags(1000, 900), OWN, find, "one-each", renting=Renting((HOURLY,)), record=True, world=world
    ).run()
    first = done.rentals[0]
    assert (first.until, first.cost) == (700 * SECOND, HOURLY.price)
    assert [node.name for node, _ in done.nodes] == ["own"]
    assert task_runs(done, 1)[0].nodes == ("own",)


def test_a_machine_cannot_take_less_than_no_time() -> None:
    with pytest.raises(InvalidInput, match="machine_start is -1"):
        World(machine_start=-1.0)


def test_spot_machines_are_taken_back_and_no_job_is_lost() -> None:
    """They are gone after ten minutes in the mean; what they have done is saved as soon as that is told."""
    spot = Renting((replace(SECONDLY, spot=True, limit=9),))
    world = World(spot_life=600.0, seed=3)
    done = Simulation(
        bags(5000, 900, 900, 900, 900), OWN, find, "one-each", renting=spot, record=True, world=world
    ).run()
    assert (done.status == STATUSES.index(JobStatus.SUCCEEDED)).all()
    assert (done.lost, done.migrations > 0) == (0, True)
    lives = [world.life(row.number) for row in done.rentals]
    for row, life in zip(done.rentals, lives, strict=True):
        assert life is not None
        assert row.until - row.asked <= round(life * SECOND) + 1
        assert row.cost == spot.offers[0].bill(row.until - row.since)


@pytest.mark.parametrize("offer", [HOURLY, SECONDLY])
@pytest.mark.parametrize("cut", [0, 50, 100, 120, 3500, 3541])
def test_a_future_of_a_state_is_what_the_simulation_would_have_gone_on_with(offer: Offer, cut: int) -> None:
    workload, renting = bags(5000, 50, 4000), Renting((offer,))
    whole = Simulation(workload, OWN, find, "one-each", renting=renting)
    done = whole.run()
    part = Simulation(workload, OWN, find, "one-each", renting=renting)
    part.advance(cut * SECOND)
    state: StateRecord = part.scheduler.dump()
    future = Simulation.from_state(
        state,
        find,
        timing={job.spec.id: int(workload.runtime[job.spec.id]) for job in state.jobs},
        left=part.left(),
    )
    rest = future.run()
    ends = {int(job): end for job, end in zip(done.label, done.end.tolist(), strict=True)}
    assert {int(job): end for job, end in zip(rest.label, rest.end.tolist(), strict=True)} == {
        job.spec.id: ends[job.spec.id] for job in state.jobs
    }
    open_at_cut = [row for row in done.rentals if row.until > cut * SECOND]
    assert [(row.number, row.until, row.cost) for row in rest.rentals] == [
        (row.number, row.until, row.cost) for row in open_at_cut
    ]
    assert all(row.until < NEVER for row in rest.rentals)
