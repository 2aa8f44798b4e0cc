"""A step of the clock: no task counts as longer because of it, no node as silent, and nothing is learnt."""

from __future__ import annotations

import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Conclude, Launch
from headway.model.events import (
    ClockStepped,
    Event,
    JobSubmitted,
    NodeJoined,
    NodesHeard,
    Outcome,
    Rented,
    RentFailed,
    RentingChosen,
    TaskEnded,
    Woke,
)
from headway.model.instant import SECOND
from headway.model.renting import UNIT, Offer, Renting
from headway.policies.registry import find
from headway.testing import job, node


class Core:
    """A scheduler that is stored and restored before each event."""

    def __init__(self, slots: int = 2, policy: str = "fcfs", **terms: float) -> None:
        self.core = Scheduler(find, policy)
        self.feed(NodeJoined(0, node("n", slots=slots, **terms)))

    def feed(self, event: Event) -> list[Action]:
        record = self.core.dump()
        self.core = Scheduler.restore(record, find)
        assert self.core.dump() == record
        actions = self.core.handle(event)
        self.core.check()
        return actions

    def end(self, at: float, task: int) -> list[Action]:
        return self.feed(TaskEnded(round(at * SECOND), 1, task, 1, Outcome.SUCCEEDED))

    @property
    def learnt(self) -> list[int]:
        """How many run times were observed, by class of nodes."""
        return [times.count for times in self.core.state.jobs[1].times.values()]


def test_nothing_is_learnt_of_what_ran_meanwhile() -> None:
    core = Core()
    core.feed(JobSubmitted(0, job(1, tasks=6, estimate=10)))
    core.end(4, 0)
    believed = core.core.state.jobs[1].estimate
    assert (believed != 10 * SECOND, core.learnt) == (True, [1])
    core.feed(ClockStepped(3605 * SECOND, 3600 * SECOND))
    core.end(3606, 1)
    core.end(3606, 2)
    assert (core.core.state.jobs[1].estimate, core.learnt) == (believed, [1])
    core.end(3610, 3)
    assert core.learnt == [2], "this one began after the step"


@pytest.mark.parametrize("by", [0, 3600])
def test_run_times_stay_what_they_were(by: int) -> None:
    core = Core()
    core.feed(JobSubmitted(0, job(1, tasks=2, estimate=100)))
    core.feed(ClockStepped((10 + by) * SECOND, by * SECOND))
    starts = [attempt.start for attempt in core.core.state.attempts()]
    ends = [attempt.expected_end for attempt in core.core.state.attempts()]
    assert (starts, ends) == ([by * SECOND] * 2, [(100 + by) * SECOND] * 2)
    core.feed(TaskEnded((20 + by) * SECOND, 1, 0, 1, Outcome.LOST))
    assert core.core.state.jobs[1].lost == 20 * SECOND


def test_a_lease_goes_on_from_where_it_was() -> None:
    core = Core(lease=5)
    core.feed(JobSubmitted(0, job(1)))
    core.feed(NodesHeard(3 * SECOND, ("n",)))
    core.feed(ClockStepped(3604 * SECOND, 3600 * SECOND))
    core.feed(Woke(3607 * SECOND))
    assert core.core.state.nodes["n"].up
    core.feed(Woke(3608 * SECOND))
    assert not core.core.state.nodes["n"].up


def test_what_is_due_by_then_starts() -> None:
    core = Core()
    core.feed(JobSubmitted(0, job(1, release=1000)))
    assert not any(isinstance(action, Launch) for action in core.feed(Woke(5 * SECOND)))
    assert any(isinstance(action, Launch) for action in core.feed(ClockStepped(1005 * SECOND, 1000 * SECOND)))
    assert any(isinstance(action, Conclude) for action in core.end(1006, 0))


def test_time_does_not_step_back() -> None:
    core = Core()
    core.feed(JobSubmitted(0, job(1)))
    core.feed(ClockStepped(5 * SECOND, -3 * SECOND))
    assert core.core.ignored == 1
    assert not core.core.state.jobs[1].attempts[0].stepped


def test_a_machine_that_is_rented_has_as_long_to_come_and_its_cost_counts_on() -> None:
    """It may have been billed while the clock stood still."""
    core = Core(policy="sites:top=prefer,rent=each")
    offer = Offer("cloud", "small", 1, UNIT, start_time=100 * SECOND, limit=2)
    core.feed(RentingChosen(0, Renting((offer,))))
    core.feed(JobSubmitted(0, job(1, tasks=3, estimate=1000, due=1500)))
    core.feed(Woke(0))
    core.feed(Rented(0, 1, "i-1"))
    hour = 3600 * SECOND
    core.feed(ClockStepped(hour, hour))
    core.feed(Woke(hour))
    (rental,) = core.core.state.market.rentals.values()
    assert (rental.comes, rental.ready_at) == (True, hour + 100 * SECOND), "not given back as one that never joins"
    assert rental.cost(hour) == UNIT
    core.feed(RentFailed(hour, 1, "none is left"))
    core.feed(ClockStepped(2 * hour, hour))
    (trouble,) = core.core.state.market.troubles.values()
    assert trouble.again == 2 * hour + 60 * SECOND
