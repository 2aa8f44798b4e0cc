"""Services in the core: instances fail, are asked to leave, and start again; windows are kept."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Conclude, JobStatus, Kill, Launch, Suspend
from headway.model.events import (
    JobCancelled,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeResized,
    PolicyChosen,
    TaskEnded,
    TaskSaved,
    WindowEnded,
    Woke,
)
from headway.model.job import Service, flaw
from headway.model.node import Capabilities
from headway.model.outcome import Outcome
from headway.model.plan import Reason
from headway.model.seen import WINDOWS_KEPT
from headway.model.window import Window
from headway.policies import registry
from headway.testing import job, node


def core(policy: str = "instances", slots: int = 4, **of_node: Any) -> Scheduler:
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node("n", slots=slots, **of_node)))
    return scheduler


def fed(scheduler: Scheduler, *events: Any) -> list[Action]:
    """What the core asks for, wakes apart; each event is followed by a wake."""
    found = []
    for event in events:
        found += [*scheduler.handle(event), *scheduler.handle(Woke(event.at))]
        scheduler.check()
    return [action for action in found if isinstance(action, Launch | Kill | Suspend | Conclude)]


def service(number: int = 1, **terms: Any) -> Service:
    return Service(number, **{"most": 2, "retries": 2, "threshold": 5, "window": 10, **terms})


def launches(actions: list[Action]) -> list[tuple[int, int]]:
    return [(action.task, action.slots) for action in actions if isinstance(action, Launch)]


def test_a_service_has_an_instance_on_each_slot_up_to_its_most() -> None:
    scheduler = core()
    assert launches(fed(scheduler, JobSubmitted(0, service()))) == [(0, 0b1), (1, 0b10)]
    assert launches(fed(scheduler, JobSubmitted(0, service(2, most=9)))) == [(0, 0b100), (1, 0b1000)]
    assert scheduler.explain(1).reason is Reason.RUNS
    assert scheduler.explain(2).reason is Reason.NO_SHARE


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.EXITED, Outcome.RAISED, Outcome.REFUSED])
def test_instances_that_end_soon_again_and_again_fail_the_service(outcome: Outcome) -> None:
    """Together, not each for itself; what still runs is killed then."""
    scheduler = core()
    fed(scheduler, JobSubmitted(0, service()))
    assert launches(fed(scheduler, TaskEnded(1, 1, 0, 1, outcome))) == [(0, 0b1)]
    assert launches(fed(scheduler, TaskEnded(2, 1, 1, 1, outcome))) == [(1, 0b10)]
    assert fed(scheduler, TaskEnded(3, 1, 0, 2, outcome)) == [Kill(1, 1, 2)]
    assert fed(scheduler, TaskEnded(4, 1, 1, 2, Outcome.KILLED)) == [Conclude(1, JobStatus.FAILED)]


def test_an_instance_that_has_run_for_a_window_pardons_the_failures_before() -> None:
    scheduler = core()
    fed(scheduler, JobSubmitted(0, service(retries=1)))
    for turn in range(5):
        at = 20 * turn + 15
        assert launches(fed(scheduler, TaskEnded(at, 1, 0, turn + 1, Outcome.EXITED))), "it had run for a window"
    assert launches(fed(scheduler, TaskEnded(96, 1, 1, 1, Outcome.EXITED)))
    assert not launches(fed(scheduler, TaskEnded(97, 1, 1, 2, Outcome.EXITED))), "the second within a window"


def test_who_is_killed_from_outside_or_lost_with_a_node_starts_again() -> None:
    scheduler = core(slots=1)
    scheduler.handle(NodeJoined(0, node("m", slots=1)))
    fed(scheduler, JobSubmitted(0, service(retries=0)))
    assert not fed(scheduler, NodeDown(3, "m"))
    fed(scheduler, NodeJoined(4, node("m", slots=1)))
    assert set(scheduler.state.jobs[1].attempts) == {0, 1}


@pytest.mark.parametrize(
    "event",
    [NodeDrained(5, "n"), NodeResized(5, "n", 1), PolicyChosen(5, "easy")],
    ids=["drained", "smaller", "policy"],
)
def test_an_instance_that_loses_its_slot_is_asked_to_leave_and_finishes_what_it_has(event: Any) -> None:
    scheduler = core(slots=2)
    fed(scheduler, JobSubmitted(0, service()))
    suspended = fed(scheduler, event)
    gone = [1] if isinstance(event, NodeResized) else [0, 1]
    assert suspended == [Suspend(1, task, 1) for task in gone]
    assert fed(scheduler, TaskSaved(6, 1, 1, 1)) == [], "an instance has nothing to save"
    for task in gone:
        assert fed(scheduler, TaskEnded(7, 1, task, 1, Outcome.EXITED)) == [], "it is no failure, and nothing starts"
    assert scheduler.state.jobs[1].failures == {}
    assert scheduler.status(1) is (JobStatus.RUNNING if isinstance(event, NodeResized) else JobStatus.WAITING)


def test_where_nothing_can_be_suspended_an_instance_is_killed() -> None:
    scheduler = core(slots=2, capabilities=Capabilities(moves=False))
    fed(scheduler, JobSubmitted(0, service()))
    assert fed(scheduler, NodeDrained(5, "n")) == [Kill(1, 0, 1), Kill(1, 1, 1)]


def test_instances_go_on_under_a_new_policy_that_serves_them() -> None:
    scheduler = core()
    fed(scheduler, JobSubmitted(0, service()))
    assert fed(scheduler, PolicyChosen(5, "instances")) == []
    assert fed(scheduler, PolicyChosen(6, "services:batch=easy")) == [], "they take their slots along"
    assert {pool.name: pool.slots for pool in scheduler.state.others} == {"service 1": 0b11, "batch": 0b1100}


def test_a_policy_for_batch_jobs_lets_services_wait_and_says_so() -> None:
    scheduler = core("tempo")
    assert fed(scheduler, JobSubmitted(0, service())) == []
    assert scheduler.explain(1).reason is Reason.NOT_SERVED
    assert launches(fed(scheduler, JobSubmitted(1, job(2)))) == [(0, 0b1)]
    assert len(launches(fed(scheduler, PolicyChosen(2, "instances")))) == 2


def test_windows_are_kept_the_last_ones() -> None:
    scheduler = core()
    fed(scheduler, JobSubmitted(0, service()))
    for number in range(WINDOWS_KEPT + 5):
        fed(scheduler, WindowEnded(10 * number + 10, 1, Window(10 * number, 10, arrivals=number)))
    assert [window.arrivals for window in scheduler.state.jobs[1].windows] == list(range(5, WINDOWS_KEPT + 5))
    ignored = scheduler.ignored
    fed(scheduler, JobSubmitted(900, job(2)), WindowEnded(901, 2, Window(0, 10)), WindowEnded(902, 3, Window(0, 10)))
    assert scheduler.ignored == ignored + 2, "of a batch job, and of no job"


def test_a_window_of_no_length_tells_nothing_of_a_service() -> None:
    scheduler = core("services:batch=easy")
    fed(scheduler, JobSubmitted(0, service()), WindowEnded(10, 1, Window(10, 0, arrivals=3)))
    assert scheduler.ignored == 1
    assert scheduler.state.jobs[1].windows == ()


def test_a_service_ends_when_it_is_cancelled_and_its_slots_go_to_others() -> None:
    scheduler = core("services:batch=easy", slots=2)
    fed(scheduler, JobSubmitted(0, service(most=1, least=1)), JobSubmitted(0, job(2, width=2, estimate=5)))
    assert scheduler.status(2) is JobStatus.WAITING
    assert fed(scheduler, JobCancelled(3, 1)) == [Suspend(1, 0, 1)], "it may finish what it does"
    ended = fed(scheduler, TaskEnded(4, 1, 0, 1, Outcome.KILLED))
    assert Conclude(1, JobStatus.CANCELLED) in ended
    assert launches(ended) == [(0, 0b11)], "the job that needs both"


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"most": 0}, "most is 0; allowed: 1 to"),
        ({"least": 3}, "least is 3; allowed: 0 to 2"),
        ({"least": -1}, "least is -1; allowed: 0 to 2"),
        ({"fraction": 0.0}, "fraction is 0.0; allowed: more than 0, at most 1"),
        ({"fraction": 1.1}, "fraction is 1.1; allowed: more than 0, at most 1"),
        ({"fraction": float("nan")}, "fraction is nan; allowed: more than 0, at most 1"),
        ({"threshold": 0}, "threshold is 0.0; allowed: more than 0"),
        ({"window": -5}, "window is -5e-06; allowed: more than 0"),
        ({"window": 4}, "window is 4e-06; allowed: 5e-06 seconds or more, the threshold"),
        ({"estimate": 5}, "estimate is 5e-06; allowed: none: a service runs until it is cancelled"),
        ({"due": 5}, "due is 5e-06; allowed: none: a service runs until it is cancelled"),
        ({"rate": -1.0}, "rate is -1.0; allowed: a finite number, 0 or more"),
    ],
)
def test_wrong_terms_are_named(terms: dict[str, Any], words: str) -> None:
    assert flaw(service()) is None
    found = flaw(service(**terms))
    assert found is not None
    assert found.startswith(words)


def test_more_instances_than_the_cluster_has_slots_can_never_be() -> None:
    scheduler = core(slots=3)
    assert scheduler.flaw_of(service(most=9, least=3)) is None
    assert (
        scheduler.flaw_of(service(most=9, least=4)) == "least is 4; allowed: at most 3, the slots of the whole cluster"
    )
