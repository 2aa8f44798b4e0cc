"""The answers of `explain` are true: the policy's own reasons, and refusals of the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeJoined, Woke
from headway.model.instant import SECOND
from headway.model.job import TaskSpec
from headway.model.plan import Plan, Reason
from headway.model.policy import Policy
from headway.model.snapshot import Snapshot
from headway.policies.registry import BUILT_IN, find
from headway.testing import job, node


@dataclass(frozen=True, slots=True)
class Blunder:
    """Places every job on slots that do not exist, and gives no reason for jobs that it does not place."""

    wants: bool
    per_instant: ClassVar[bool] = False
    task_rounds: ClassVar[bool] = False

    def __call__(self, view: Snapshot) -> Plan:
        """The plan."""
        plan = view.plan()
        for waiting in view.waiting if self.wants else ():
            plan.hold(waiting.id, 1 << 20)
        return plan


@dataclass(frozen=True, slots=True)
class Steady:
    """Names in each round all slots of every job."""

    per_instant: ClassVar[bool] = False
    task_rounds: ClassVar[bool] = False

    def __call__(self, view: Snapshot) -> Plan:
        """The plan."""
        plan = view.plan()
        for each in view.jobs.values():
            plan.hold(each.id, 0b11)
        return plan


def source(text: str) -> Policy:
    if text == "steady":
        return Steady()
    return Blunder(text == "blunder") if text in ("blunder", "silent") else find(text)


def cluster(policy: str) -> Scheduler:
    scheduler = Scheduler(source, policy)
    scheduler.handle(NodeJoined(0, node(slots=2)))
    return scheduler


@pytest.mark.parametrize("policy", ["deadline", "edf", "priority"])
def test_a_job_that_fits_the_cluster_but_not_what_can_be_dealt_now_waits_for_room(policy: str) -> None:
    scheduler = cluster(policy)
    for number in (1, 2):
        scheduler.handle(JobSubmitted(0, job(number, width=2, estimate=9)))
        scheduler.handle(Woke(0))
    assert scheduler.explain(2).reason is Reason.NO_ROOM_NOW


FORMS = {
    "bag": {"tasks": 3},
    "rigid": {"width": 2},
    "workflow": {"graph": (TaskSpec(5 * SECOND), TaskSpec(5 * SECOND, after=(0,)))},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "policy",
    [
        *(name for name in BUILT_IN if name != "sites"),
        *(f"sites:top=rr,each={each}" for each in ("deadline", "easy", "measy", "tempo")),
        "sites:top=prefer",
    ],
)
def test_no_policy_is_silent_about_a_job_that_waits(policy: str, form: str) -> None:
    """Behind a bag that keeps all slots busy: whatever the policy wants with the job, it says so."""
    for due in (None, 40, 4000):
        scheduler = cluster(policy)
        terms = {"estimate": 2, **FORMS[form]} | ({} if due is None else {"due": due})
        scheduler.handle(JobSubmitted(0, job(1, tasks=6, estimate=60)))
        scheduler.handle(Woke(0))
        scheduler.handle(JobSubmitted(SECOND, job(2, **terms)))
        scheduler.handle(Woke(SECOND))
        assert scheduler.explain(2).reason is not Reason.NOT_CONSIDERED, due


def test_a_job_the_policy_says_nothing_of_is_not_said_to_lack_room() -> None:
    scheduler = cluster("silent")
    scheduler.handle(JobSubmitted(0, job(1)))
    assert scheduler.explain(1).reason is Reason.NOT_CONSIDERED


def test_a_start_that_is_refused_every_round_is_not_said_to_come() -> None:
    scheduler = cluster("blunder")
    scheduler.handle(JobSubmitted(0, job(1)))
    assert scheduler.explain(1).reason is Reason.REFUSED
    assert scheduler.refusals == {"slot_down": 1}


@pytest.mark.parametrize("policy", ["keasy", "reasy", "measy"])
def test_in_the_background_or_behind_a_busy_process(policy: str) -> None:
    """Both slots are taken until 9. Behind half idle processes a job runs at once; behind busy ones it waits."""
    half, full = cluster(policy), cluster(policy)
    for scheduler, cpu in ((half, 0.5), (full, 1.0)):
        scheduler.handle(JobSubmitted(0, job(1, width=2, estimate=9, cpu=(cpu,))))
        for number in (2, 3):
            scheduler.handle(JobSubmitted(0, job(number, width=2, estimate=5)))
    assert half.explain(1).reason is full.explain(1).reason is Reason.RUNS
    assert half.explain(2).reason is Reason.RUNS_BEHIND
    assert half.explain(3).reason is Reason.NO_ROOM_NOW
    assert (full.explain(2).reason, full.explain(2).start) == (Reason.NO_ROOM_NOW, 9 * SECOND)
    assert full.explain(3).reason is Reason.NO_ROOM_NOW


def test_a_running_job_whose_slots_are_only_listed_again_is_not_said_to_start() -> None:
    scheduler = cluster("steady")
    scheduler.handle(JobSubmitted(0, job(1, tasks=10)))
    assert [attempt.task for attempt in scheduler.state.attempts()] == [0, 1]
    assert scheduler.explain(1).reason is Reason.RUNS
