"""Bounds on the slots of users, case by case: what policies see, what is refused, what is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec
import pytest

from headway.core.counts import job_counts
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.model.actions import Action, JobStatus, Kill, Launch, Suspend
from headway.model.events import (
    Event,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    NodeUp,
    Outcome,
    SlotsBounded,
    TaskEnded,
    TierRefused,
    Woke,
)
from headway.model.instant import SECOND
from headway.model.job import JobSpec, Service, TaskSpec
from headway.model.plan import Allocation, Claim, Plan, Reason
from headway.model.policy import Policy
from headway.model.snapshot import Snapshot
from headway.model.tier import Tier
from headway.policies import registry
from headway.testing import job, node
from headway.wire.reading import any_form


@dataclass
class Told:
    """Plans that the test gives, each once."""

    plans: list[Plan] = field(default_factory=list)
    per_instant: bool = False
    task_rounds: bool = False
    tiers: bool = True

    def __call__(self, view: Snapshot) -> Plan:
        return self.plans.pop(0) if self.plans else view.plan()


class Core:
    """A scheduler that is checked after each event, and a copy restored before it, that must answer alike."""

    def __init__(self, slots: int = 8, *, policy: str = "fcfs", told: Policy | None = None, **terms: object) -> None:
        self.find = registry.find if told is None else lambda text: told
        self.scheduler = Scheduler(self.find, policy)
        self.alike = told is None
        self.now = 0
        self.feed(NodeJoined(0, node("n", slots=slots, **terms)))

    def feed(self, event: Event) -> list[Action]:
        stored = msgspec.json.encode(self.scheduler.dump())
        actions = self.handled(event, stored)
        while self.scheduler.wake_at <= self.scheduler.state.now:
            actions += self.handled(Woke(self.scheduler.state.now), msgspec.json.encode(self.scheduler.dump()))
        return actions

    def handled(self, event: Event, stored: bytes) -> list[Action]:
        actions = self.scheduler.handle(event)
        self.scheduler.check()
        if self.alike:
            record = msgspec.json.decode(stored, type=StateRecord, dec_hook=any_form)
            twin = Scheduler.restore(record, self.find)
            assert twin.handle(event) == actions
            assert twin.dump() == self.scheduler.dump()
        return [action for action in actions if isinstance(action, Launch | Kill | Suspend)]

    def bound(self, most: int | None, user: str = "ann") -> list[tuple[int, int]]:
        return launched(self.feed(SlotsBounded(self.now, user, most)))

    def submit(self, *jobs: JobSpec) -> list[tuple[int, int]]:
        return launched([action for spec in jobs for action in self.feed(JobSubmitted(self.now, spec))])

    def end(self, number: int, task: int = 0, outcome: Outcome = Outcome.SUCCEEDED) -> list[tuple[int, int]]:
        attempt = self.scheduler.state.jobs[number].attempts[task].number
        return launched(self.feed(TaskEnded(self.now, number, task, attempt, outcome)))

    def used(self, user: str = "ann") -> int:
        return self.scheduler.state.rations[user].used

    def seen(self) -> list[tuple[int, int]]:
        """The waiting jobs that policies see, with their ready tasks."""
        return [(view.id, view.ready) for view in self.scheduler.state.waiting]


def launched(actions: list[Action]) -> list[tuple[int, int]]:
    return [(action.job, action.task) for action in actions if isinstance(action, Launch)]


def test_policies_see_as_many_tasks_as_the_bound_leaves_room_for() -> None:
    core = Core(slots=3)
    core.bound(8)
    core.submit(job(1, tasks=1000, user="ann"))
    assert (core.used(), core.seen()) == (3, [(1, 5)])
    core.submit(job(2, tasks=10, user="ann"), job(3, tasks=10, user="bob"))
    assert core.seen() == [(1, 5), (3, 10)]
    assert job_counts(core.scheduler.state) == {JobStatus.HELD: 0, JobStatus.WAITING: 2, JobStatus.RUNNING: 1}


def test_a_round_starts_no_more_than_allowed_and_others_get_the_rest() -> None:
    core = Core(slots=8)
    core.bound(4)
    assert core.submit(job(1, tasks=3, user="ann"), job(2, tasks=3, user="ann")) == [(1, 0), (1, 1), (1, 2), (2, 0)]
    assert core.submit(job(3, tasks=9, user="bob")) == [(3, 0), (3, 1), (3, 2), (3, 3)]
    assert not core.scheduler.refusals


def test_when_tasks_end_the_next_of_the_same_user_go_on() -> None:
    core = Core(slots=8)
    core.bound(2)
    core.submit(job(1, tasks=2, user="ann"), job(2, tasks=2, user="ann"))
    assert core.end(1, 0) == [(2, 0)]
    assert core.end(2, 0) == [(2, 1)]
    assert core.end(1, 1, Outcome.EXITED) == []  # it had no retries, and nothing waits


def test_of_a_users_jobs_those_of_higher_priority_come_first_then_those_due_first() -> None:
    core = Core(slots=8)
    core.bound(1)
    core.submit(job(1, user="ann"), job(2, user="ann"), job(3, user="ann", due=50), job(4, user="ann", priority=1.0))
    assert [core.end(1), core.end(4), core.end(3)] == [[(4, 0)], [(3, 0)], [(2, 0)]]


def test_a_changed_priority_changes_who_comes_first() -> None:
    core = Core(slots=8)
    core.bound(1)
    core.submit(*[job(number, user="ann") for number in (1, 2, 3)])
    core.feed(JobChanged(0, 3, priority=2.0))
    assert core.end(1) == [(3, 0)]


def test_a_wide_job_waits_for_its_room_and_those_behind_it_let_it_have_it() -> None:
    core = Core(slots=8)
    core.bound(4)
    core.submit(job(1, tasks=3, user="ann"), job(2, width=4, user="ann"), job(3, tasks=9, user="ann"))
    assert [core.end(1, task) for task in range(2)] == [[], []]
    assert core.end(1, 2) == [(2, 0)]
    assert core.end(2) == [(3, task) for task in range(4)]


def test_what_may_have_no_slots_now_does_not_stop_others() -> None:
    """A node is lost, and a job of six slots cannot run on the four that are left; later it can."""
    core = Core(slots=4)
    core.feed(NodeJoined(0, node("m", slots=4)))
    core.bound(6)
    core.submit(job(1, tasks=2, user="ann"))
    core.feed(NodeDown(0, "m"))
    core.submit(job(2, width=6, user="ann"), job(3, user="ann"))
    assert core.seen() == []
    assert [view.id for view in core.scheduler.state.jobs.values() if view.attempts] == [1, 3]
    core.feed(NodeUp(0, "m"))
    assert [core.end(1, 0), core.end(3, 0), core.end(1, 1)] == [[], [], [(2, 0)]]


def test_a_lower_bound_ends_nothing_and_nothing_starts_until_there_is_room() -> None:
    core = Core(slots=8)
    core.submit(job(1, tasks=20, user="ann"))
    assert core.bound(6) == []
    assert core.used() == 8
    assert [core.end(1, 0), core.end(1, 1), core.end(1, 2)] == [[], [], [(1, 8)]]
    assert core.bound(7) == [(1, 9)]
    assert core.bound(None) == [(1, 10)]
    assert not core.scheduler.state.rations


def test_a_bound_that_is_as_it_was_is_no_news() -> None:
    core = Core()
    core.bound(3)
    ignored = core.scheduler.ignored
    core.bound(3)
    core.bound(None, "bob")
    assert core.scheduler.ignored == ignored + 2


def test_a_plan_that_goes_beyond_the_bound_is_refused_with_its_rule() -> None:
    told = Told()
    core = Core(slots=8, told=told)
    core.bound(3)
    core.submit(job(1, tasks=9, user="ann"), job(2, width=2, user="ann"), job(3, tasks=2, user="bob"))
    told.plans.append(
        plan_of(
            *(Allocation(1, 1 << slot, task=slot) for slot in range(5)), Allocation(2, 0b1100000), Allocation(3, 1 << 7)
        )
    )
    core.scheduler.state.look_at_everything()
    core.feed(Woke(0))
    assert core.scheduler.refusals == Counter(user_at_bound=3)
    assert (core.used(), len(core.scheduler.state.jobs[3].attempts)) == (3, 1)


def plan_of(*allocations: Allocation) -> Plan:
    plan = Plan()
    plan.allocations += allocations
    return plan


def test_a_move_to_more_slots_needs_room_for_them() -> None:
    """A task of two cores has one slot on a node with two cores for each, and is to go where it needs two."""
    told = Told()
    core = Core(slots=2, told=told, cores=4)
    core.feed(NodeJoined(0, node("m", slots=2)))
    core.bound(2)
    told.plans.append(plan_of(Allocation(1, 0b01, task=0)))
    core.submit(job(1, graph=(TaskSpec(9, 2),), user="ann"))
    told.plans.append(plan_of(Allocation(2, 0b10, task=0)))
    core.submit(job(2, user="ann"))
    told.plans.append(plan_of(Allocation(1, 0b1100, task=0, claim=Claim.KILL)))
    core.scheduler.state.look_at_everything()
    core.feed(Woke(0))
    assert core.scheduler.refusals == Counter(user_at_bound=1)


def test_the_background_counts_and_a_change_of_tier_changes_nothing() -> None:
    told = Told()
    core = Core(slots=4, told=told)
    core.bound(4)
    told.plans.append(plan_of(Allocation(1, 0b11)))
    core.submit(job(1, width=2, user="ann"))
    told.plans.append(plan_of(Allocation(2, 0b11, tier=Tier.BACKGROUND)))
    core.submit(job(2, width=2, user="ann"))
    assert core.used() == 4
    told.plans.append(plan_of(Allocation(2, 0b11, claim=Claim.SWAP)))
    core.scheduler.state.look_at_everything()
    core.feed(Woke(0))
    assert core.scheduler.state.jobs[1].attempts[0].tier is Tier.BACKGROUND
    assert core.used() == 4
    core.feed(TierRefused(0, 2, 0, 1, Tier.FOREGROUND))
    assert core.used() == 4


def test_a_rigid_job_counts_from_the_moment_it_has_slots_kept() -> None:
    told = Told()
    core = Core(slots=4, told=told)
    core.bound(3)
    told.plans.append(plan_of(Allocation(1, 0b1000)))
    core.submit(job(1, tasks=1, user="bob"))
    told.plans.append(plan_of(Allocation(1, 0), Allocation(2, 0b1100, claim=Claim.AFTER)))
    core.submit(job(2, width=2, user="ann"))
    assert (core.used(), core.seen()) == (2, [(2, 1)])
    told.plans.append(plan_of(Allocation(3, 0b0011)))
    core.submit(job(3, tasks=2, user="ann"))
    assert (core.used(), len(core.scheduler.state.jobs[3].attempts)) == (3, 1)
    assert core.end(1) == [(2, 0)]
    assert core.used() == 3


def test_slots_that_are_kept_for_a_rigid_job_are_given_up_when_the_bound_is_lowered() -> None:
    told = Told()
    core = Core(slots=4, told=told)
    core.bound(3)
    told.plans += [plan_of(Allocation(1, 0b1000))]
    core.submit(job(1, tasks=1, user="bob"))
    told.plans += [plan_of(Allocation(1, 0), Allocation(2, 0b1100, claim=Claim.AFTER))]
    core.submit(job(2, width=2, user="ann"))
    core.bound(1)
    assert (core.used(), core.scheduler.state.allocated) == (0, 0)


def test_instances_of_services_count_for_the_user_of_the_service() -> None:
    core = Core(slots=8, policy="instances")
    core.bound(3)
    service = Service(1, most=5, least=5 - 2, window=10 * SECOND, threshold=SECOND, user="ann")
    assert core.submit(service) == [(1, 0), (1, 1), (1, 2)]
    assert core.used() == 3
    assert core.scheduler.flaw_of(Service(2, most=5, least=4, window=SECOND, threshold=1, user="ann")) == (
        "least is 4; allowed: at most 3, the slots that user 'ann' may have at once"
    )


@pytest.mark.parametrize("ending", [Outcome.KILLED, Outcome.LOST, Outcome.EXITED])
def test_whatever_an_attempt_ends_by_its_slots_count_no_more(ending: Outcome) -> None:
    core = Core(slots=4)
    core.bound(2)
    core.submit(job(1, tasks=4, user="ann", retries=1))
    assert launched(core.feed(TaskEnded(0, 1, 0, 1, ending))) == [(1, 0)]  # again, and no more than that
    assert core.used() == 2


def test_a_cancelled_job_counts_until_its_tasks_have_ended() -> None:
    core = Core(slots=4)
    core.bound(2)
    core.submit(job(1, tasks=4, user="ann"), job(2, user="ann"))
    assert core.feed(JobCancelled(0, 1)) == [Kill(1, 0, 1), Kill(1, 1, 1)]
    assert core.used() == 2
    assert core.end(1, 0, Outcome.KILLED) == [(2, 0)]


def test_a_lost_node_takes_its_tasks_off_the_count() -> None:
    core = Core(slots=2)
    core.feed(NodeJoined(0, node("m", slots=2)))
    core.bound(2)
    core.submit(job(1, tasks=4, user="ann"))
    assert core.used() == 2
    assert launched(core.feed(NodeDown(0, "n"))) == [(1, 0), (1, 1)]
    assert core.used() == 2


def test_tasks_that_are_queued_behind_others_have_no_slots_of_their_own() -> None:
    core = Core(slots=1, policy="tempo", read_ahead=2)
    core.bound(1)
    core.submit(job(1, tasks=30, user="ann"))
    for task in range(4):
        core.end(1, task)
    queued = [one for one in core.scheduler.state.jobs[1].attempts.values() if one.queued]
    assert len(queued) > 1
    assert core.used() == 1
    core.end(1, 4)
    assert core.used() == 1


def test_what_can_never_run_within_the_bound_is_not_accepted() -> None:
    core = Core(slots=8, cores=16)
    core.bound(2)
    told = "allowed: at most 2, the slots that user 'ann' may have at once"
    assert core.scheduler.flaw_of(job(1, width=3, user="ann")) == f"width is 3; {told}"
    plan = (TaskSpec(1, 2), TaskSpec(1, 6))
    assert core.scheduler.flaw_of(job(1, graph=plan, user="ann")) == (
        f"plan[1].cores is 6, which may need 3 slots; {told}"
    )
    assert core.scheduler.flaw_of(job(1, width=3, user="bob")) is None
    assert core.scheduler.flaw_of(job(1, width=2, user="ann")) is None
    core.bound(0)
    assert core.scheduler.flaw_of(job(1, user="ann")) == (
        "tasks is 1; allowed: none, because user 'ann' may have no slots"
    )


def test_who_waits_at_the_bound_is_told_so() -> None:
    core = Core(slots=8)
    core.bound(3)
    core.submit(job(1, tasks=2, user="ann"), job(2, width=3, user="ann"))
    said = core.scheduler.explain(2)
    assert (said.reason, said.user, said.most, said.used) == (Reason.USER_AT_BOUND, "ann", 3, 2)
    assert said.text == (
        "user ann may have 3 slots at once and has 2; the rest is not enough, or for other jobs; "
        "it goes on when tasks of this user end"
    )
    core.submit(job(3, user="ann", priority=5.0))
    assert core.scheduler.explain(2).text == (
        "user ann is at the bound of 3 slots at once; it goes on when tasks of this user end"
    )
    core.bound(1)
    assert core.scheduler.explain(2).text.startswith("user ann is at the bound of 1 slot at once; ")


def test_without_bounds_nothing_is_counted() -> None:
    core = Core(slots=8)
    core.submit(job(1, tasks=20, user="ann"))
    view = core.scheduler.state.jobs[1]
    assert (view.ration, view.uses, view.ready, view.all_ready) == (None, 0, 12, 12)
