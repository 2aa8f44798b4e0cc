"""The rules of deciders, beyond what `tests/transcripts/decider.txt` shows."""

from __future__ import annotations

import pytest

from headway.core import audit
from headway.core.record import AttemptRecord, JobRecord, NodeRecord, StateRecord, restore_state
from headway.core.scheduler import Scheduler
from headway.model.actions import Action, Consult, Launch, Wake
from headway.model.events import (
    Advised,
    DeciderChosen,
    DeciderFailed,
    JobSubmitted,
    NodeJoined,
    PeriodChosen,
    TaskEnded,
    Woke,
)
from headway.model.instant import NEVER, SECOND
from headway.model.job import TaskSpec
from headway.model.plan import AllocationRecord, PlanRecord, Reason, Waiting
from headway.policies import registry
from headway.testing import job, node


def asked(policy: str = "fcfs", *, slots: int = 2) -> Scheduler:
    """A core with one job whose decider has been asked question 1, all at instant 0."""
    core = Scheduler(registry.find, policy)
    for event in (
        DeciderChosen(0, "http://there"),
        NodeJoined(0, node("a", slots=slots)),
        JobSubmitted(0, job(1, tasks=3)),
    ):
        core.handle(event)
    assert Consult(1) in core.handle(Woke(0))
    return core


def answer(core: Scheduler, plan: PlanRecord, *, at: int = 0, question: int = 1) -> list[Action]:
    actions = core.handle(Advised(at, question, plan))
    core.check()
    return actions


def hold(of: int, *slots: int) -> AllocationRecord:
    return AllocationRecord(of, slots)


def test_what_follows_from_a_plan_calls_for_no_other_question() -> None:
    """Bag 1 gives back the slot for which it has no task. Under a policy in process, no round follows from that."""
    core = asked(slots=4)
    actions = answer(core, PlanRecord((hold(1, 0, 1, 2, 3),)))
    assert [type(action) for action in actions] == [Launch, Launch, Launch]
    assert not core.state.round_due


def test_the_plans_wake_and_the_period_bring_the_next_question() -> None:
    core = asked()
    assert answer(core, PlanRecord(wake=5 * SECOND)) == [Wake(5 * SECOND)]
    assert core.handle(Woke(5 * SECOND)) == [Consult(2)]
    core.handle(PeriodChosen(5 * SECOND, 3 * SECOND))
    assert answer(core, PlanRecord(), at=6 * SECOND, question=2) == [Wake(6 * SECOND)]
    assert core.handle(Woke(6 * SECOND)) == [Consult(3)]
    assert answer(core, PlanRecord(), at=6 * SECOND, question=3) == [Wake(9 * SECOND)]
    assert core.handle(Woke(9 * SECOND)) == [Consult(4)]


@pytest.mark.parametrize(("wake", "asks"), [(-NEVER, [Wake(8)]), (0, [Wake(8)]), (NEVER, [])])
def test_a_wake_out_of_all_reason_harms_nobody(wake: int, asks: list[Action]) -> None:
    assert answer(asked(), PlanRecord(wake=wake), at=7) == asks


def test_slots_that_do_not_exist_are_a_failure_of_the_decider() -> None:
    core = asked()
    actions = answer(core, PlanRecord((hold(1, 0, 2),)))
    assert (core.decider_failed, core.question, core.refusals["slot_unknown"]) == (True, None, 1)
    assert [type(action) for action in actions] == [Launch, Launch], "the policy decides at once"


def test_a_decider_that_has_failed_is_asked_no_more_until_another_is_chosen() -> None:
    core = asked()
    core.handle(DeciderFailed(1, 1, "gone"))
    assert len(core.state.jobs[1].attempts) == 2
    assert not any(isinstance(action, Consult) for action in core.handle(TaskEnded(2, 1, 0, 1)))
    core.handle(DeciderChosen(3, "http://there"))
    assert core.handle(Woke(3)) == [Consult(2)]


def test_an_open_question_survives_a_restart() -> None:
    core = Scheduler.restore(asked().dump(), registry.find)
    assert core.question == 1
    core.handle(JobSubmitted(1, job(2)))
    actions = answer(core, PlanRecord((hold(1, 0),)), at=2)
    assert actions == [Launch(1, 0, 1, 1), Wake(2)]
    assert core.handle(Woke(2)) == [Consult(2)]


def test_reasons_come_from_whoever_decides() -> None:
    core = asked()
    plan = PlanRecord(waiting=(Waiting(1, Reason.NO_SHARE, 9),)).plan()
    assert core.reason_in(plan, 1) == Waiting(1, Reason.NO_SHARE, 9)
    assert core.known_reason(1) is None


def test_a_snapshot_written_by_hand_says_only_what_matters() -> None:
    """Fields that are left out follow from the rest: tasks with attempts are not ready, the others are."""
    plan = (TaskSpec(1), TaskSpec(1), TaskSpec(1, 1, (0, 1)))
    state = restore_state(
        StateRecord(
            5,
            (NodeRecord(node("a", slots=2)), NodeRecord(node("b", slots=3))),
            (
                JobRecord(job(1, tasks=4), attempts=(AttemptRecord(1, (0,), 0, 9, fed=True),), held=(0,)),
                JobRecord(job(2, width=2), attempts=(AttemptRecord(0, (2, 3), 1, 8),)),
                JobRecord(job(3, graph=plan), attempts=(AttemptRecord(1, (4,), 1, 8),)),
                JobRecord(job(4, width=1)),
                JobRecord(job(5, release=50)),
            ),
        )
    )
    assert [(known.id, known.ready, known.unfinished) for known in state.jobs.values()] == [
        (1, 2, 3),
        (2, 0, 1),
        (3, 1, 3),
        (4, 1, 1),
        (5, 1, 1),
    ]
    assert [known.id for known in state.waiting] == [1, 3, 4]
    assert (state.free, state.busy, state.allocated) == (0b00010, 0b11101, 0b00001)
    audit.check(state)
