"""What would be rented for open jobs: found from a state, which stays as it is."""

from __future__ import annotations

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.foresight.renting import would_rent
from headway.model.events import JobSubmitted, NodeJoined, RentingChosen, Woke
from headway.model.instant import HOUR, SECOND
from headway.model.job import Bag, Service
from headway.model.node import NodeSpec
from headway.model.renting import UNIT, Offer, Renting
from headway.policies.registry import find

OFFERED = Renting((Offer("public", "small", 2, UNIT, period=HOUR, minimum=HOUR, start_time=60 * SECOND, limit=9),))


def state(renting: Renting | None, policy: str = "sites:top=prefer") -> StateRecord:
    """Ten tasks of ten minutes on two slots, due in half an hour, and a job without a due date."""
    core = Scheduler(find, policy)
    core.handle(NodeJoined(0, NodeSpec("own", 2)))
    if renting is not None:
        core.handle(RentingChosen(0, renting))
    core.handle(JobSubmitted(0, Bag(3, 0, estimate=600 * SECOND, tasks=10, due=1800 * SECOND)))
    core.handle(JobSubmitted(0, Bag(4, 0, estimate=600 * SECOND, tasks=10)))
    core.handle(Woke(0))
    return core.dump()


def test_it_says_what_would_be_rented_for_which_job_and_what_would_be_late_without() -> None:
    found = would_rent(state(OFFERED), find)
    assert [(row.type, row.cost, job) for row, job in zip(found.machines, found.jobs, strict=True)] == [
        ("small", UNIT, 3)
    ]
    assert "4 tasks of job 3" in found.machines[0].why
    assert (found.late, found.late_without) == ((), (3,))


def test_other_offers_and_another_policy_can_be_tried_where_there_are_none() -> None:
    before = state(None, "edf")
    assert not would_rent(before, find).machines
    assert not would_rent(before, find, renting=OFFERED).machines, "edf rents nothing"
    found = would_rent(before, find, renting=OFFERED, policy="sites:top=prefer,rent=each")
    assert [row.asked for row in found.machines] == [0] * 4
    assert before == state(None, "edf")
    assert not would_rent(state(OFFERED), find, renting=Renting()).machines


def test_a_service_that_never_ends_does_not_keep_it_from_an_answer() -> None:
    core = Scheduler(find, "services:batch=fcfs,on=private,beside=sites:top=prefer")
    core.handle(NodeJoined(0, NodeSpec("own", 2, site="private")))
    core.handle(NodeJoined(0, NodeSpec("east", 2, site="east")))
    core.handle(RentingChosen(0, OFFERED))
    core.handle(JobSubmitted(0, Service(2, window=20 * SECOND, threshold=SECOND)))
    core.handle(JobSubmitted(0, Bag(3, 0, estimate=600 * SECOND, tasks=10, due=1800 * SECOND)))
    core.handle(Woke(0))
    found = would_rent(core.dump(), find)
    assert [(row.type, job) for row, job in zip(found.machines, found.jobs, strict=True)] == [("small", 3)]
    assert (found.late, found.late_without) == ((), (3,))
