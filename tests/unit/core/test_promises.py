"""The promised start of a job, and what `explain` says of it."""

from __future__ import annotations

from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeDown, NodeJoined, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import TaskSpec
from headway.policies.registry import find
from headway.testing import job, node


def test_a_workflow_is_promised_the_start_of_its_first_task_and_told_the_same() -> None:
    core = Scheduler(find, "heft:per_instant=false")
    core.handle(NodeJoined(0, node(slots=1)))
    core.handle(JobSubmitted(0, job(1, estimate=100)))
    core.handle(JobSubmitted(0, job(2, graph=(TaskSpec(10 * SECOND), TaskSpec(10 * SECOND, 1, (0,))))))
    assert core.state.jobs[2].promise == core.explain(2).start == 100 * SECOND
    core.handle(TaskEnded(60 * SECOND, 1, 0, 1))
    assert core.state.jobs[2].promise is None  # it runs
    core.check()


def test_a_promise_moves_forward_when_slots_are_free_early() -> None:
    core = Scheduler(find, "conservative")
    core.handle(NodeJoined(0, node(slots=2)))
    for number, width in ((1, 1), (2, 1), (3, 2), (4, 2)):
        core.handle(JobSubmitted(0, job(number, width=width, estimate=100 * (1 if number != 2 else 2))))
    assert [core.state.jobs[waits].promise for waits in (3, 4)] == [200 * SECOND, 300 * SECOND]
    core.handle(TaskEnded(50 * SECOND, 2, 0, 1))
    assert [core.state.jobs[waits].promise for waits in (3, 4)] == [100 * SECOND, 200 * SECOND]
    assert [core.explain(waits).start for waits in (3, 4)] == [100 * SECOND, 200 * SECOND]
    core.handle(Woke(50 * SECOND))
    core.check()


def test_a_task_that_no_node_can_hold_is_promised_nothing_and_keeps_nobody_waiting() -> None:
    core = Scheduler(find, "conservative")
    for name, slots in (("wide", 3), ("a", 1), ("b", 2)):
        core.handle(NodeJoined(0, node(name, slots=slots, cores=slots)))
    core.handle(NodeDown(0, "wide"))
    core.handle(JobSubmitted(0, job(1, graph=(TaskSpec(10 * SECOND, 3),))))
    core.handle(JobSubmitted(0, job(2, estimate=10)))
    assert core.state.jobs[1].promise is None  # three slots are free, but not of one node
    assert core.state.jobs[2].attempts.keys() == {0}
    core.check()
