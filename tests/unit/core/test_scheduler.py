"""The scheduler's answers to questions, and special cases of its events that no transcript shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import pytest

from headway.core.counts import job_counts
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.actions import Conclude, JobStatus, Launch, Settle, Wake
from headway.model.events import (
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodesHeard,
    NodeUp,
    Outcome,
    PolicyChosen,
    TaskEnded,
    WindowEnded,
    Woke,
)
from headway.model.instant import NEVER, SECOND
from headway.model.job import JobSpec, Kind, PenaltyShape, Rigid, Service, TaskSpec
from headway.model.plan import Claim, Plan, Reason, Waiting
from headway.model.policy import Policy
from headway.model.queue import Queue, by_order
from headway.model.slots import NO_SLOTS
from headway.model.snapshot import Snapshot
from headway.model.window import Window
from headway.policies import registry
from headway.testing import job, node
from headway.wire.reading import any_form


def core(policy: str = "easy", *, slots: int = 2, **how: Any) -> Scheduler:
    scheduler = Scheduler(registry.find, policy, **how)
    scheduler.handle(NodeJoined(0, node("a", slots=slots)))
    return scheduler


def submit(scheduler: Scheduler, *jobs: JobSpec, at: float = 0) -> None:
    for spec in jobs:
        scheduler.handle(JobSubmitted(round(at * SECOND), spec))
    scheduler.check()


class TestObjection:
    def test_none_to_what_the_cluster_can_run(self) -> None:
        scheduler = core()
        plan = (TaskSpec(1, 2), TaskSpec(1, 1, (0,)))
        assert [scheduler.flaw_of(spec) for spec in (job(1, tasks=99), job(2, width=2), job(3, graph=plan))] == [
            None
        ] * 3

    def test_to_a_flaw(self) -> None:
        assert str(core().flaw_of(job(1, retries=-1))).startswith("retries is -1; allowed: 0 to ")

    def test_to_a_width_beyond_the_whole_cluster(self) -> None:
        assert core().flaw_of(job(1, width=3)) == "width is 3; allowed: at most 2, the slots of the whole cluster"

    def test_to_a_task_that_no_node_can_hold(self) -> None:
        scheduler = core()
        scheduler.handle(NodeJoined(0, node("b", slots=2, cores=4)))
        assert scheduler.flaw_of(job(1, graph=(TaskSpec(1, 4),))) is None
        assert (
            scheduler.flaw_of(job(1, graph=(TaskSpec(1), TaskSpec(1, 5))))
            == "plan[1].cores is 5; allowed: at most 4, those of the largest node"
        )

    def test_slots_that_are_down_count_and_those_that_drain_do_not(self) -> None:
        scheduler = core()
        scheduler.handle(NodeJoined(0, node("b", slots=1)))
        submit(scheduler, job(1, width=3))
        scheduler.handle(NodeDown(1, "b"))
        assert scheduler.flaw_of(job(2, width=3)) is None
        scheduler.handle(NodeUp(2, "b"))
        scheduler.handle(NodeDrained(3, "a"))
        assert scheduler.flaw_of(job(2, width=3)) is not None
        assert scheduler.flaw_of(job(2, width=1)) is None

    def test_to_an_id_that_is_taken(self) -> None:
        scheduler = core()
        submit(scheduler, job(1))
        assert scheduler.flaw_of(job(1)) == "id is 1; allowed: one that no other job has"

    def test_to_anything_wide_where_there_is_no_node(self) -> None:
        scheduler = Scheduler(registry.find, "easy")
        assert scheduler.flaw_of(job(1, width=1)) == "width is 1; allowed: at most 0, the slots of the whole cluster"
        said = "plan[0].cores is 1; allowed: at most 0, those of the largest node"
        assert scheduler.flaw_of(job(1, graph=(TaskSpec(1),))) == said


class TestExplain:
    @pytest.mark.parametrize("policy", sorted(registry.BUILT_IN))
    def test_every_job_of_every_kind_has_one_answer_and_asking_changes_nothing(self, policy: str) -> None:
        scheduler = core(policy, slots=3)
        plan = (TaskSpec(5 * SECOND), TaskSpec(5 * SECOND, 3), TaskSpec(5 * SECOND, 1, (0, 1)))
        submit(
            scheduler,
            *(job(number, tasks=4, estimate=5, due=20) for number in (1, 2)),
            *(job(number, width=width, estimate=9) for number, width in ((3, 2), (4, 3), (5, 1))),
            *(job(number, graph=plan, due=99) for number in (6, 7)),
            job(8, release=50),
        )
        scheduler.handle(Woke(0))
        before = scheduler.dump()
        for number in range(1, 9):
            answer = scheduler.explain(number)
            assert answer.job == number
            assert (answer.reason is Reason.NOT_RELEASED) == (number == 8)
            runs = bool(scheduler.state.jobs[number].attempts)
            assert answer.start is None or 0 <= answer.start < NEVER, number
            assert runs or answer.reason is not Reason.RUNS, number
            assert answer.reason is not Reason.STARTS_NOW, number
        assert scheduler.dump() == before

    def test_easy(self) -> None:
        scheduler = core("easy", slots=4)
        submit(scheduler, job(1, width=2, estimate=10), job(2, width=4, estimate=5), job(3, width=2, estimate=11))
        submit(scheduler, job(4, width=3, estimate=1))
        assert scheduler.explain(2) == Waiting(2, Reason.NO_ROOM_NOW, 10 * SECOND)
        assert scheduler.explain(3) == Waiting(3, Reason.WOULD_DELAY)
        assert scheduler.explain(4) == Waiting(4, Reason.NO_ROOM_NOW)
        assert scheduler.explain(1).reason is Reason.RUNS
        scheduler.handle(NodeJoined(1, node("b", slots=1)))
        scheduler.handle(NodeDown(2, "a"))
        assert scheduler.explain(1) == Waiting(1, Reason.NEVER_FITS, nodes=("a",))
        assert scheduler.explain(1).text == "it needs more slots than the cluster has now, while node a is down"

    def test_strict(self) -> None:
        scheduler = core("fcfs")
        submit(scheduler, job(1, width=1), job(2, width=2), job(3, width=1))
        assert [scheduler.explain(number).reason for number in (2, 3)] == [Reason.NO_ROOM_NOW, Reason.BEHIND_OTHERS]
        for name in ("b", "c"):
            scheduler.handle(NodeJoined(1, node(name, slots=1)))
        for name in ("a", "b"):
            scheduler.handle(NodeDown(2, name))
        assert scheduler.explain(2).text == "jobs before it in the order of the policy come first"
        scheduler.handle(JobCancelled(3, 1))
        assert scheduler.explain(2).text == "it needs more slots than the cluster has now, while nodes a, b are down"

    def test_conservative(self) -> None:
        scheduler = core("conservative", slots=3)
        submit(scheduler, job(1, width=2, estimate=10), job(2, width=2, estimate=5), job(3, width=2, estimate=5))
        submit(scheduler, job(4, width=1, estimate=20))
        assert scheduler.explain(2) == Waiting(2, Reason.NO_ROOM_NOW, 10 * SECOND)
        assert scheduler.explain(3) == Waiting(3, Reason.NO_ROOM_NOW, 15 * SECOND)
        scheduler.handle(NodeDown(SECOND, "a"))
        assert scheduler.explain(3) == Waiting(3, Reason.NEVER_FITS, nodes=("a",))

    def test_shares(self) -> None:
        scheduler = core("priority")
        submit(scheduler, job(1, tasks=9, priority=1), job(2, tasks=9), job(3, width=2))
        scheduler.handle(Woke(0))
        assert scheduler.explain(2) == Waiting(2, Reason.NO_SHARE)
        assert scheduler.explain(1).reason is Reason.RUNS
        scheduler.handle(PolicyChosen(0, "edf:per_instant=false"))
        assert scheduler.explain(2) == Waiting(2, Reason.BEHIND_OTHERS)

    def test_a_due_date_that_needs_no_more_slots(self) -> None:
        scheduler = core("deadline:spare=none", slots=4)
        submit(scheduler, job(1, tasks=9, due=1000, estimate=1), job(2, tasks=3))
        scheduler.handle(Woke(0))
        assert scheduler.explain(2) == Waiting(2, Reason.NOT_NEEDED_YET)

    def test_a_workflow(self) -> None:
        scheduler = core("heft", slots=2)
        submit(scheduler, job(1, graph=(TaskSpec(5), TaskSpec(5), TaskSpec(5, 1, (0, 1)))), job(2, width=1))
        scheduler.handle(Woke(0))
        assert scheduler.explain(1) == Waiting(1, Reason.TASKS_DEPEND)
        for task in (0, 1):
            scheduler.handle(TaskEnded(5, 1, task, 1))
        scheduler.handle(Woke(5))
        assert scheduler.explain(1) == Waiting(1, Reason.RUNS)

    def test_between_an_event_and_its_round(self) -> None:
        scheduler = core("fcfs:per_instant=true")
        submit(scheduler, job(1, width=1))
        assert scheduler.explain(1) == Waiting(1, Reason.STARTS_NOW, 0)

    def test_an_unknown_job(self) -> None:
        for ask in (core().explain, core().status):
            with pytest.raises(KeyError):
                ask(7)


def test_a_policy_that_raises_changes_nothing_and_is_counted() -> None:
    class Broken:
        per_instant: ClassVar[bool] = False
        task_rounds: ClassVar[bool] = False

        def __call__(self, view: Snapshot) -> Plan:
            if view.waiting:
                raise ArithmeticError("no")
            return view.plan()

    def find(text: str) -> Policy:
        return Broken() if text == "broken" else registry.find(text)

    scheduler = Scheduler(find, "broken")
    scheduler.handle(NodeJoined(0, node("a")))
    assert scheduler.handle(JobSubmitted(1, job(1))) == []
    assert isinstance(scheduler.failure, ArithmeticError)
    assert scheduler.refusals == {"policy_raised_ArithmeticError": 1}
    scheduler.check()
    assert scheduler.handle(PolicyChosen(2, "fcfs")) == [Launch(1, 0, 1, 1)]
    assert scheduler.failure is None
    assert scheduler.policy == "fcfs"


def test_orders_that_a_former_policy_asked_for_are_not_kept_up_to_date() -> None:
    scheduler = core("edf")
    submit(scheduler, job(1, due=9), job(2, due=8))
    scheduler.handle(Woke(0))
    state = scheduler.state
    assert state.orders
    scheduler.handle(PolicyChosen(0, "easy:order=due"))
    scheduler.handle(PolicyChosen(0, "fcfs"))
    assert len(state.orders) == 0
    assert list(state.queues) == [by_order]


def test_a_round_follows_the_end_of_a_job_whose_slot_goes_straight_to_another() -> None:
    """The shares of the jobs that are left may be larger."""

    class Succession:
        per_instant: ClassVar[bool] = False
        task_rounds: ClassVar[bool] = False

        def __call__(self, view: Snapshot) -> Plan:
            plan = view.plan()
            *before, last = view.jobs
            for number in before:
                plan.hold(number, NO_SLOTS)
            plan.hold(last, 1, Claim.AFTER)
            return plan

    scheduler = Scheduler(lambda _: Succession(), "succession")
    scheduler.handle(NodeJoined(0, node("a", slots=1)))
    submit(scheduler, job(1), job(2, tasks=3))
    rounds = scheduler.rounds
    assert scheduler.handle(TaskEnded(1, 2, 0, 1)) == []  # nobody knows this attempt
    assert scheduler.handle(TaskEnded(1, 1, 0, 1))[-1] == Conclude(1, JobStatus.SUCCEEDED)
    assert scheduler.rounds == rounds + 1
    scheduler.handle(TaskEnded(2, 2, 0, 1))  # the slot goes on with the job's next task
    assert scheduler.rounds == rounds + 1


def test_what_is_not_a_plan_is_refused() -> None:
    class Absent:
        per_instant: ClassVar[bool] = False
        task_rounds: ClassVar[bool] = False

        def __call__(self, view: Snapshot) -> Plan:
            return None  # type: ignore[return-value]

    scheduler = Scheduler(lambda _: Absent(), "absent")
    scheduler.handle(NodeJoined(0, node("a")))
    assert scheduler.refusals == {"policy_raised_TypeError": 1}
    assert "None" in str(scheduler.failure)


@pytest.mark.parametrize(
    "write",
    [
        lambda plan: plan.hold(1, 1, tier=7),
        lambda plan: plan.hold(1, 1, tier="middle"),
        lambda plan: plan.hold(1, 1, claim="swap"),
        lambda plan: plan.hold(1, 1, seats=("a",)),
        lambda plan: plan.hold(1, 1, seats=[0]),
        lambda plan: plan.hold(1, 1.0),
        lambda plan: plan.hold([], 1),
        lambda plan: plan.place(1, "first", 1),
        lambda plan: plan.allocations.append((1, 1)),
        lambda plan: setattr(plan, "allocations", None),
        lambda plan: plan.promise(1, "later", 1),
        lambda plan: plan.promise(1, 1 << 70, 1),
        lambda plan: setattr(plan, "wake", float("nan")),
        lambda plan: setattr(plan, "wake", 1 << 70),
    ],
)
def test_a_plan_of_rubbish_changes_nothing_not_even_by_what_is_right_in_it(write: Callable[[Any], None]) -> None:
    class Rubbish:
        per_instant: ClassVar[bool] = False
        task_rounds: ClassVar[bool] = False

        def __call__(self, view: Snapshot) -> Plan:
            plan = view.plan()
            if view.waiting:
                plan.hold(2, 2)
                write(plan)
            return plan

    scheduler = Scheduler(lambda _: Rubbish(), "rubbish")
    scheduler.handle(NodeJoined(0, node("a", slots=2)))
    assert [scheduler.handle(JobSubmitted(1, job(number))) for number in (1, 2)] == [[], []]
    assert isinstance(scheduler.failure, TypeError | AttributeError)
    assert scheduler.refusals == {f"policy_raised_{type(scheduler.failure).__name__}": 2}
    scheduler.check()


@pytest.mark.parametrize("slots", [-1, -2, 1 << 70, 0b100])
def test_slots_that_there_are_none_of_are_refused(slots: int) -> None:
    class Beyond:
        per_instant: ClassVar[bool] = False
        task_rounds: ClassVar[bool] = False

        def __call__(self, view: Snapshot) -> Plan:
            plan = view.plan()
            for waiting in view.waiting:
                plan.hold(waiting.id, slots)
            return plan

    scheduler = Scheduler(lambda _: Beyond(), "beyond")
    scheduler.handle(NodeJoined(0, node("a", slots=2)))
    assert scheduler.handle(JobSubmitted(1, job(1))) == []
    assert scheduler.refusals == {"slot_down": 1}
    scheduler.check()


def test_a_policy_that_is_not_there_is_refused_and_the_old_one_stays() -> None:
    scheduler = core("fcfs")
    with pytest.raises(InvalidInput, match="policy is 'nope'"):
        scheduler.handle(PolicyChosen(1, "nope"))
    assert scheduler.policy == "fcfs"
    submit(scheduler, job(1), at=1)
    assert scheduler.state.jobs[1].attempts


def test_a_new_policy_forgets_the_promises_of_the_old_one() -> None:
    scheduler = core("conservative")
    submit(scheduler, job(1, width=2), job(2, width=2))
    assert scheduler.state.jobs[2].promise == 600 * SECOND
    scheduler.handle(PolicyChosen(1, "fcfs"))
    assert scheduler.state.jobs[2].promise is None


def test_events_of_the_past_count_as_now() -> None:
    scheduler = core()
    submit(scheduler, job(1, width=2, estimate=5), at=10)
    submit(scheduler, job(2, width=1, estimate=5), at=3)
    assert scheduler.state.now == 10 * SECOND
    assert scheduler.handle(TaskEnded(4 * SECOND, 1, 0, 1))[:2] == [
        Settle(1, 0, 1, Outcome.SUCCEEDED),
        Conclude(1, JobStatus.SUCCEEDED),
    ]
    assert scheduler.state.jobs[2].attempts[0].start == 10 * SECOND


@pytest.mark.parametrize("policy", ["fcfs", "easy", "fcfs:per_instant=true", "easy:per_instant=true"])
def test_a_job_that_comes_late_may_stand_before_the_head_of_the_queue(policy: str) -> None:
    """Its release date has passed, so it comes before job 2, which waits. By its estimate it would delay that one."""
    scheduler = core(policy, slots=3)
    submit(scheduler, job(1, width=2, estimate=100, release=1), job(2, width=3, release=5), at=5)
    scheduler.handle(Woke(5 * SECOND))
    scheduler.handle(JobSubmitted(6 * SECOND, job(3, width=1, estimate=999, release=2)))
    scheduler.handle(Woke(6 * SECOND))
    assert [number for number, view in scheduler.state.jobs.items() if view.attempts] == [1, 3]
    scheduler.check()


@pytest.mark.parametrize(("asks", "rounds"), [(True, 3), (False, 0)])
def test_a_policy_may_ask_for_a_round_at_every_end(asks: bool, rounds: int) -> None:
    @dataclass
    class Greedy:
        per_instant = False
        task_rounds = asks

        def __call__(self, view: Snapshot) -> Plan:
            plan = view.plan()
            if view.waiting and view.free:
                plan.hold(view.waiting[0].id, view.free)
            return plan

    scheduler = Scheduler(lambda _: Greedy(), "greedy")
    scheduler.handle(NodeJoined(0, node("a")))
    submit(scheduler, job(1, tasks=9))
    before = scheduler.rounds
    for task in range(3):
        scheduler.handle(TaskEnded(task + 1, 1, task, 1))
    assert scheduler.rounds - before == rounds
    assert scheduler.handle(TaskEnded(5, 1, 3, 1, Outcome.LOST)) == [Launch(1, 3, 2, 1)]
    assert scheduler.rounds - before == rounds + 1  # a failure is always news


def test_new_terms_of_a_job_bring_a_round() -> None:
    scheduler = core("priority:per_instant=false", slots=1)
    submit(scheduler, job(1, tasks=5), job(2, tasks=5))
    assert (scheduler.state.jobs[1].held, scheduler.state.jobs[2].held) == (1, 0)
    scheduler.handle(JobChanged(1, 2, priority=3))
    assert (scheduler.state.jobs[1].held, scheduler.state.jobs[2].held) == (0, 1)
    scheduler.handle(JobChanged(2, 2, due=77))
    assert (scheduler.state.jobs[2].priority, scheduler.state.jobs[2].due) == (3, 77)
    assert scheduler.state.jobs[2].spec.due is None
    scheduler.check()


def test_a_changed_rate_counts_in_every_order_by_it_and_is_restored() -> None:
    scheduler = core("easy:order=weighted", slots=1)
    submit(scheduler, *(Rigid(number, estimate=5, rate=float(number)) for number in (1, 2, 3)))
    scheduler.handle(JobChanged(1, 2, rate=9.0, shape=PenaltyShape.SQUARE, threshold=5, fraction=0.5, least=1))
    scheduler.check()
    assert scheduler.state.jobs[2].spec == Rigid(2, estimate=5, rate=9.0, shape=PenaltyShape.SQUARE)
    restored = Scheduler.restore(scheduler.dump(), registry.find)
    assert restored.state.jobs[2].spec == scheduler.state.jobs[2].spec
    for one in (scheduler, restored):
        assert [action.job for action in one.handle(TaskEnded(5, 1, 0, 1)) if isinstance(action, Launch)] == [2]


def test_a_service_has_new_terms_and_keeps_what_it_has_cost() -> None:
    scheduler = core("services", slots=2)
    submit(scheduler, Service(1, most=2, threshold=9, fraction=0.9, rate=10.0))
    full = Window(0, SECOND, arrivals=2, in_time=1)
    scheduler.handle(WindowEnded(1, 1, full))
    before = scheduler.state.jobs[1].cost
    scheduler.handle(JobChanged(2, 1, rate=100.0, threshold=7, fraction=0.6, least=2))
    scheduler.handle(JobChanged(2, 1, priority=3.0))
    assert scheduler.state.jobs[1].spec == Service(1, most=2, least=2, threshold=7, fraction=0.6, rate=100.0)
    assert scheduler.state.jobs[1].cost == before == pytest.approx(4.0)
    scheduler.handle(WindowEnded(3, 1, full))
    assert scheduler.state.jobs[1].cost == pytest.approx(4.0 + 10.0)
    scheduler.check()


class TestWaking:
    def test_rounds_are_held_periodically_while_jobs_are_in_the_system(self) -> None:
        """Lin14 4.4: the deadline approaches while nothing happens."""
        scheduler = core("deadline:spare=none,foresight=false", slots=8, period=10 * SECOND)
        scheduler.handle(Woke(0))
        rounds = scheduler.rounds
        submit(scheduler, job(1, tasks=8, estimate=10, due=80))
        assert scheduler.handle(Woke(0))[-1] == Wake(10 * SECOND)
        held = []
        for at in range(10, 80, 10):
            scheduler.handle(Woke(at * SECOND))
            held.append(scheduler.state.jobs[1].held.bit_count())
        assert held == [2, 2, 2, 2, 3, 4, 8]  # 80 s of work, 70, 60, … 10 s left
        assert scheduler.rounds == rounds + 8
        scheduler.handle(JobCancelled(80 * SECOND, 1))
        assert all(attempt.ending for attempt in scheduler.state.jobs[1].attempts.values())

    def test_a_policy_may_ask_to_be_woken(self) -> None:
        @dataclass
        class Patient:
            """Starts nothing before 5 s."""

            per_instant = False
            task_rounds = False

            def __call__(self, view: Snapshot) -> Plan:
                plan = view.plan()
                if view.now >= 5 and view.waiting:
                    plan.hold(view.waiting[0].id, view.free)
                elif view.waiting:
                    plan.wake = 5
                return plan

        scheduler = Scheduler(lambda _: Patient(), "patient")
        scheduler.handle(NodeJoined(0, node("a")))
        assert scheduler.handle(JobSubmitted(1, job(1))) == [Wake(5)]
        assert scheduler.handle(JobSubmitted(2, job(2))) == []  # it has already asked
        assert scheduler.handle(Woke(5)) == [Launch(1, 0, 1, 1)]

    @pytest.mark.parametrize(("wake", "is_taken"), [(NEVER, True), (-NEVER, True), (NEVER + 1, False), (5.0, False)])
    def test_a_wake_is_an_instant_or_the_plan_is_refused(self, wake: int, is_taken: bool) -> None:
        class Odd:
            per_instant = False
            task_rounds = False

            def __call__(self, view: Snapshot) -> Plan:
                plan = view.plan()
                for waiting in view.waiting:
                    plan.hold(waiting.id, view.free)
                plan.wake = wake
                return plan

        scheduler = Scheduler(lambda _: Odd(), "odd")
        scheduler.handle(NodeJoined(0, node("a")))
        scheduler.handle(JobSubmitted(1, job(1)))
        assert bool(scheduler.state.running) == is_taken
        assert (scheduler.refusals["policy_raised_TypeError"] == 0) == is_taken

    def test_waking_too_often_does_no_harm(self) -> None:
        scheduler = core("easy")
        submit(scheduler, job(1, release=9), job(2))
        before = scheduler.dump()
        for _ in range(3):
            assert scheduler.handle(Woke(0)) == []
        assert scheduler.dump() == before
        assert scheduler.handle(Woke(20 * SECOND)) == [Launch(1, 0, 1, 2)]

    def test_several_releases_and_leases_bring_one_wake_after_the_other(self) -> None:
        scheduler = core("fcfs")
        assert scheduler.handle(NodeJoined(0, node("b", lease=7))) == [Wake(7 * SECOND)]
        assert scheduler.handle(JobSubmitted(0, job(1, release=5))) == [Wake(5 * SECOND)]
        assert scheduler.handle(JobSubmitted(0, job(2, release=9))) == []
        assert scheduler.handle(Woke(5 * SECOND)) == [Launch(1, 0, 1, 1), Wake(7 * SECOND)]
        scheduler.handle(NodesHeard(6 * SECOND, ("b",)))
        assert scheduler.handle(Woke(7 * SECOND)) == [Wake(9 * SECOND)]
        assert scheduler.handle(Woke(9 * SECOND)) == [Launch(2, 0, 1, 2), Wake(13 * SECOND)]
        assert scheduler.state.nodes["b"].up


class TestNodes:
    def test_slots_are_numbered_in_order_of_joining_and_numbers_are_used_again(self) -> None:
        scheduler = core("fcfs", slots=2)
        for name, slots in (("b", 3), ("c", 2)):
            scheduler.handle(NodeJoined(0, node(name, slots=slots)))
        scheduler.handle(NodeLeft(1, "a"))
        scheduler.handle(NodeLeft(2, "b"))
        scheduler.handle(NodeJoined(3, node("d", slots=3, speed=2.0)))
        scheduler.handle(NodeJoined(3, node("e", slots=1)))
        scheduler.check()
        state = scheduler.state
        assert {name: view.places[0] for name, view in state.nodes.items()} == {"c": 5, "d": 2, "e": 7}
        assert state.up == 0b11111100
        assert (state.speeds[2:], state.uniform) == ([2.0] * 3 + [1.0] * 3, False)
        scheduler.handle(NodeLeft(4, "d"))
        assert state.uniform

    def test_another_node_of_a_known_name_is_ignored(self) -> None:
        scheduler = core(slots=2)
        scheduler.handle(NodeJoined(1, node("a", slots=3)))
        assert scheduler.ignored == 1
        assert scheduler.state.nodes["a"].spec.slots == 2

    @pytest.mark.parametrize("event", [NodeDown, NodeUp, NodeDrained, NodeLeft])
    def test_an_unknown_node_is_ignored(self, event: Any) -> None:
        scheduler = core()
        scheduler.handle(event(1, "z"))
        assert scheduler.ignored == 1

    def test_a_node_that_comes_back_unannounced_has_lost_what_it_ran(self) -> None:
        for event in (NodeUp(5, "a"), NodeJoined(5, node("a", slots=2))):
            scheduler = core(slots=2)
            submit(scheduler, job(1, width=2))
            assert scheduler.handle(event) == [Launch(1, 0, 2, 3)]
            scheduler.check()

    @pytest.mark.parametrize("how", ["lease", "down", "up", "left", "end"])
    def test_a_draining_node_leaves_however_its_last_attempt_ends(self, how: str) -> None:
        scheduler = Scheduler(registry.find, "fcfs")
        scheduler.handle(NodeJoined(0, node("a", lease=10)))
        submit(scheduler, job(1))
        scheduler.handle(NodeDrained(1, "a"))
        assert list(scheduler.state.nodes) == ["a"]
        events = {
            "lease": Woke(10 * SECOND),
            "down": NodeDown(2, "a"),
            "up": NodeUp(2, "a"),
            "left": NodeLeft(2, "a"),
            "end": TaskEnded(2, 1, 0, 1),
        }
        scheduler.handle(events[how])
        scheduler.check()
        assert not scheduler.state.nodes
        scheduler.handle(NodeJoined(20 * SECOND, node("a", lease=10)))
        assert scheduler.state.up == 1

    def test_a_draining_node_that_offers_itself_again_is_taken(self) -> None:
        scheduler = core("fcfs", slots=1)
        submit(scheduler, job(1))
        scheduler.handle(NodeDrained(1, "a"))
        assert scheduler.handle(NodeJoined(2, node("a"))) == [Launch(1, 0, 2, 1)]
        assert not scheduler.state.nodes["a"].draining
        scheduler.check()


def test_the_speed_of_the_slots_says_when_an_attempt_is_expected_to_end() -> None:
    scheduler = Scheduler(registry.find, "fcfs")
    for name, speed in (("slow", 0.5), ("fast", 3.0)):
        scheduler.handle(NodeJoined(0, node(name, speed=speed)))
    submit(scheduler, job(1, width=2, estimate=10))
    assert scheduler.state.jobs[1].attempts[0].expected_end == 20 * SECOND
    scheduler.handle(TaskEnded(0, 1, 0, 1))
    submit(scheduler, job(2, width=1), job(3, width=1, estimate=10))
    assert scheduler.state.jobs[3].attempts[0].expected_end == 3_333_334  # rounded up
    assert scheduler.state.jobs[2].attempts[0].expected_end == 1200 * SECOND  # the default of 600 s


def test_a_workflow_is_believed_to_take_what_its_tasks_take() -> None:
    scheduler = core("sjf:per_instant=true", slots=1)
    plan = (TaskSpec(1 * SECOND), TaskSpec(2 * SECOND, 1, (0,)), TaskSpec(6 * SECOND, 1, (0,)))
    submit(scheduler, job(1), job(2, graph=plan), job(3, graph=plan, estimate=9), job(4, width=1, estimate=5))
    assert [view.estimate for view in scheduler.state.jobs.values()] == [each * SECOND for each in (600, 3, 9, 5)]
    assert scheduler.state.jobs[2].workload == 9
    assert scheduler.handle(Woke(0)) == [Launch(2, 0, 1, 1)]


def test_the_default_estimate_can_be_set() -> None:
    scheduler = core(estimate_default=7)
    submit(scheduler, job(1), job(2, estimate=0))
    assert [view.attempts[0].expected_end for view in scheduler.state.jobs.values()] == [7, 0]


def test_the_check_finds_an_index_that_is_wrong() -> None:
    def spoil(scheduler: Scheduler, name: str, value: object) -> None:
        setattr(scheduler.state, name, value)

    for name, value in (
        ("free", 0),
        ("busy", 0b111),
        ("up", 0b1),
        ("waiting", Queue(by_order)),
        ("running", []),
        ("allocated", 1),
    ):
        scheduler = core()
        submit(scheduler, job(1, width=1), job(2, width=2))
        scheduler.check()
        spoil(scheduler, name, value)
        with pytest.raises(AssertionError):
            scheduler.check()


def test_a_stored_state_is_read_again_as_it_was() -> None:
    scheduler = core("conservative", slots=3, period=9 * SECOND)
    terms = {
        "due": 5,
        "priority": 2.5,
        "retries": 1,
        "workload": 3.0,
        "user": "ann",
        "name": "bills",
        "memory_limit": 9,
    }
    submit(scheduler, job(1, width=2, **terms), job(2, width=3), job(3, tasks=2), job(4, release=50))
    submit(scheduler, job(5, graph=(TaskSpec(1), TaskSpec(2, 1, (0,)))))
    scheduler.handle(NodeJoined(1, node("b", lease=30, speed=0.5, reports_start=True)))
    scheduler.handle(NodeLeft(2, "b"))
    scheduler.handle(TaskEnded(3, 1, 0, 1, Outcome.RAISED))
    record = scheduler.dump()
    for codec in (msgspec.json, msgspec.msgpack):
        read = codec.decode(codec.encode(record), type=StateRecord, dec_hook=any_form)
        assert read == record
        again = Scheduler.restore(read, registry.find)
        again.check()
        assert again.dump() == record
        assert replace(record, now=record.now + 1) != record


@dataclass(frozen=True)
class OnlyBags:
    """Deadline, for bags alone."""

    per_instant: ClassVar[bool] = True
    task_rounds: ClassVar[bool] = True
    serves: ClassVar[tuple[Kind, ...]] = (Kind.BAG,)

    def __call__(self, view: Snapshot) -> Plan:
        return registry.find("deadline")(view)


class TestJobsThatAPolicyDoesNotServe:
    def scheduler(self) -> Scheduler:
        scheduler = Scheduler(lambda text: OnlyBags() if text == "only_bags" else registry.find(text), "only_bags")
        scheduler.handle(NodeJoined(0, node("a", slots=3)))
        submit(scheduler, job(1, width=1), job(2, tasks=2), job(3, graph=(TaskSpec(5), TaskSpec(5, 1, (0,)))))
        scheduler.handle(Woke(0))
        return scheduler

    def test_it_does_not_see_them_and_they_say_why_they_wait(self) -> None:
        scheduler = self.scheduler()
        assert scheduler.state.running
        assert {entry[1] for entry in scheduler.state.running} == {2}
        assert [scheduler.explain(number) for number in (1, 3)] == [
            Waiting(1, Reason.NOT_SERVED),
            Waiting(3, Reason.NOT_SERVED),
        ]
        assert job_counts(scheduler.state)[JobStatus.WAITING] == 2

    def test_they_start_under_a_policy_that_serves_them(self) -> None:
        scheduler = self.scheduler()
        started = scheduler.handle(PolicyChosen(5, "easy"))
        scheduler.check()
        assert [action.job for action in started if isinstance(action, Launch)] == [1]
        scheduler.handle(PolicyChosen(6, "only_bags"))
        scheduler.check()
        assert scheduler.explain(3).reason is Reason.NOT_SERVED

    def test_they_can_be_changed_and_cancelled(self) -> None:
        scheduler = self.scheduler()
        scheduler.handle(JobChanged(1, 3, priority=5, due=9))
        scheduler.handle(JobCancelled(1, 1))
        scheduler.check()
        assert set(scheduler.state.jobs) == {2, 3}
        scheduler.handle(PolicyChosen(2, "heft"))
        assert (scheduler.state.jobs[3].priority, scheduler.state.waiting) == (5, [scheduler.state.jobs[3]])

    def test_a_state_that_was_stored_has_them_in_their_place(self) -> None:
        scheduler = self.scheduler()
        find = scheduler._policies
        again = Scheduler.restore(scheduler.dump(), find)
        again.check()
        assert again.explain(1) == Waiting(1, Reason.NOT_SERVED)
