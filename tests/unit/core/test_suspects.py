"""Tasks that may kill nodes, case by case: what counts against them, what is reported, and what is recorded."""

from __future__ import annotations

import msgspec
import pytest

from headway.core import suspects
from headway.core.lifecycle import LOSSES_MAX, RULES
from headway.core.nodes import slot_statuses
from headway.core.record import StateRecord, SuspicionRecord, suspicion_record
from headway.core.scheduler import Scheduler
from headway.core.suspects import ALONE_MAX, ALONE_MOST, ONE_NODE_IN, PATIENCE_MOST, SUSPECT_PATIENCE
from headway.core.suspicion import Suspicion
from headway.model.actions import Action, Conclude, JobStatus, Kill, Launch, Settle
from headway.model.events import (
    ClockStepped,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeResized,
    NodeUp,
    Outcome,
    RulesChosen,
    TaskEnded,
    TasksCancelled,
    TaskStarted,
    Woke,
)
from headway.model.instant import SECOND
from headway.model.job import JobSpec, TaskSpec
from headway.model.node import SlotStatus
from headway.model.plan import Reason
from headway.model.seen import JobView
from headway.model.slots import numbers
from headway.policies import registry
from headway.testing import job, node
from headway.wire.reading import any_form


class Core:
    """A scheduler that is checked after each event, and a copy, restored before the event, that must answer alike."""

    def __init__(self, *slots: int, policy: str = "fcfs", rules: int = RULES, **terms: object) -> None:
        self.scheduler = Scheduler(registry.find, policy)
        self.now = 0
        if rules != RULES:
            self.feed(RulesChosen(0, rules))
        for number, count in enumerate(slots):
            self.feed(NodeJoined(0, node(f"n{number}", slots=count, **terms)))

    def feed(self, event: Event) -> list[Action]:
        stored = msgspec.json.encode(self.scheduler.dump())
        twin = Scheduler.restore(msgspec.json.decode(stored, type=StateRecord, dec_hook=any_form), registry.find)
        actions = self.scheduler.handle(event)
        self.scheduler.check()
        assert twin.handle(event) == actions
        assert twin.dump() == self.scheduler.dump()
        self.now = self.scheduler.state.now
        return [action for action in actions if isinstance(action, Launch | Kill | Settle | Conclude)]

    def submit(self, *jobs: JobSpec) -> list[Action]:
        return [action for spec in jobs for action in self.feed(JobSubmitted(self.now, spec))]

    def crash(self, name: str = "n0", after: int = SECOND) -> list[Action]:
        """A node is lost after a while, and back at once."""
        self.now += after
        said = [*self.feed(NodeDown(self.now, name)), *self.feed(NodeUp(self.now, name))]
        return [*said, *self.wake(self.now)]

    def end(self, job: int, task: int = 0, outcome: Outcome = Outcome.SUCCEEDED) -> list[Action]:
        attempt = self.scheduler.state.jobs[job].attempts[task].number
        return self.feed(TaskEnded(self.now, job, task, attempt, outcome))

    def wake(self, at: int) -> list[Action]:
        return self.feed(Woke(at))

    @property
    def alone(self) -> list[tuple[int, int]]:
        return [(one.job.id, one.task) for one in self.scheduler.state.attempts() if one.alone]

    @property
    def running(self) -> list[tuple[int, int]]:
        return sorted((one.job.id, one.task) for one in self.scheduler.state.attempts())


def test_one_loss_makes_nobody_a_suspect() -> None:
    core = Core(2)
    core.submit(job(1, tasks=2))
    core.crash()
    assert (core.alone, core.running) == ([], [(1, 0), (1, 1)])
    assert core.scheduler.state.jobs[1].losses == {0: 1, 1: 1}


def test_what_waits_to_run_alone_says_so_and_how_often_its_node_was_lost() -> None:
    core = Core(1, policy="easy")
    core.submit(job(1), job(2))
    core.crash()
    core.now += SECOND
    core.feed(NodeDown(core.now, "n0"))
    said = core.scheduler.explain(1)
    assert (said.reason, said.times) == (Reason.RUNS_ALONE_NEXT, 2)
    assert said.text == "it waits to run alone on its node, because its node was lost 2 times while it ran"
    assert core.scheduler.status(1) is JobStatus.WAITING


@pytest.mark.parametrize("policy", ["fcfs", "easy", "deadline", "tempo", "workload", "heft"])
def test_the_rest_of_the_cluster_goes_on_beside_one_suspect_in_so_many_nodes(policy: str) -> None:
    nodes = 2 * ONE_NODE_IN
    core = Core(*[2] * nodes, policy=policy)
    core.submit(*(job(number, estimate=100) for number in range(1, 2 * nodes + 1)))
    core.wake(core.now)
    for _ in range(2):
        core.crash("n0")
        core.crash("n1")
        core.wake(core.now)
    state = core.scheduler.state
    assert 1 <= sum(known.apart for known in state.nodes.values()) <= nodes // ONE_NODE_IN
    assert len(core.running) >= 2 * (nodes - 4), "the others run on"


def test_a_suspect_that_fails_by_itself_while_it_runs_alone_is_cleared() -> None:
    core = Core(2)
    core.submit(job(1, retries=1), job(2))
    core.crash()
    core.crash()
    ((first, _),) = core.alone
    core.end(first, outcome=Outcome.RAISED if first == 1 else Outcome.SUCCEEDED)
    assert not any(key[0] == first and known.runs_alone for key, known in core.scheduler.state.suspicions.items())


def test_a_loss_elsewhere_meanwhile_speaks_for_a_suspect() -> None:
    core = Core(1, 1)
    core.feed(NodeDown(0, "n1"))
    core.submit(job(1))
    for _ in range(2 + ALONE_MAX - 1):
        core.crash()
    assert core.alone == [(1, 0)]
    core.feed(NodeUp(core.now, "n1"))
    core.feed(NodeDown(core.now, "n1"))
    core.crash()
    assert core.alone == [(1, 0)], "nodes are lost without it, too"
    core.now += SECOND
    assert core.feed(NodeDown(core.now, "n0")) == [
        Settle(1, 0, 2 + ALONE_MAX + 1, Outcome.LOST),
        Conclude(1, JobStatus.FAILED),
    ]


def test_what_has_run_for_hours_does_not_keep_a_node_for_hours() -> None:
    core = Core(2)
    core.submit(job(1))
    core.crash(after=3600 * SECOND)
    core.crash(after=3600 * SECOND)
    begun = core.now
    core.wake(begun + ALONE_MOST - 1)
    assert core.alone == [(1, 0)]
    core.wake(begun + ALONE_MOST)
    assert (core.alone, core.running) == ([], [(1, 0)])
    core.crash(after=3600 * SECOND)
    core.crash(after=3600 * SECOND)
    core.wake(core.now + ALONE_MOST)
    assert core.alone == [(1, 0)], "the second time it takes longer"


def test_nodes_with_the_least_running_are_set_apart_first() -> None:
    core = Core(2, 2, 2)
    core.submit(job(1, tasks=3))
    state = core.scheduler.state
    assert {slot for one in state.attempts() for slot in numbers(one.slots)} == {0, 1, 2}
    ranked = suspects._ranked(state, state, idle_only=False)
    assert [node.spec.name for node in ranked] == ["n2", "n1", "n0"]
    assert [node.spec.name for node in suspects._ranked(state, state, idle_only=True)] == ["n2"]


def test_a_node_that_has_left_is_not_usable_whatever_came_under_its_name() -> None:
    core = Core(1, 1)
    state = core.scheduler.state
    before = state.nodes["n0"]
    assert suspects._is_usable(before)
    core.feed(NodeLeft(0, "n0"))
    core.feed(NodeJoined(0, node("n0", slots=1)))
    assert not suspects._is_usable(before)
    assert suspects._is_usable(state.nodes["n0"])


def test_a_suspect_that_is_cancelled_is_done_with() -> None:
    for cancel in (JobCancelled(0, 1), TasksCancelled(0, 1, (0, 1))):
        core = Core(2, 2)
        core.submit(job(1, tasks=2), job(2, tasks=2))
        core.crash()
        core.now += SECOND
        core.feed(NodeDown(core.now, "n0"))
        assert core.scheduler.state.jobs[1].apart == [0, 1]
        assert core.feed(cancel)[-1] == Conclude(1, JobStatus.CANCELLED)
        assert (core.scheduler.state.suspects, core.scheduler.state.suspicions) == ([], {})


def test_of_those_that_wait_what_is_cancelled_waits_no_more_and_the_others_do() -> None:
    core = Core(2)
    core.submit(job(1, tasks=2))
    core.crash()
    core.now += SECOND
    core.feed(NodeDown(core.now, "n0"))
    core.feed(TasksCancelled(core.now, 1, (0,)))
    assert core.scheduler.state.jobs[1].apart == [1]
    assert [rank[-1] for rank in core.scheduler.state.suspects] == [1]


def test_a_job_with_tasks_that_are_no_suspects_waits_for_room_as_any_other() -> None:
    core = Core(2, policy="easy")
    core.submit(job(1, tasks=3))
    core.crash()
    core.now += SECOND
    core.feed(NodeDown(core.now, "n0"))
    view = core.scheduler.state.jobs[1]
    assert (view.apart, view.ready) == ([0, 1], 1)
    assert core.scheduler.explain(1).reason is not Reason.RUNS_ALONE_NEXT


def test_what_a_node_was_lost_with_while_it_ran_alone_comes_before_what_was_there_as_often() -> None:
    core = Core(2)
    core.submit(job(1), job(2))
    core.crash()
    core.crash()
    assert core.alone == [(1, 0)]
    core.crash()
    assert core.alone == [(1, 0)]


def test_a_node_that_shrinks_or_drains_before_it_is_empty_is_not_waited_for() -> None:
    core = Core(2, 2)
    core.submit(job(1, width=2), job(2, tasks=2))
    core.crash()
    core.now += SECOND
    core.feed(NodeDown(core.now, "n0"))
    core.wake(core.now + SUSPECT_PATIENCE)
    assert core.scheduler.state.nodes["n1"].apart
    core.feed(NodeResized(core.now, "n1", 1))
    assert not core.scheduler.state.nodes["n1"].apart
    core.feed(NodeResized(core.now, "n1", 2))
    core.wake(core.now + 1)
    assert core.scheduler.state.nodes["n1"].apart
    core.feed(NodeDrained(core.now, "n1"))
    assert not core.scheduler.state.nodes["n1"].apart


def test_of_several_nodes_that_are_set_apart_all_must_stay_usable() -> None:
    core = Core(2, 2, 2)
    core.submit(job(1, width=4))
    core.crash()
    core.end(1, outcome=Outcome.KILLED)
    core.submit(job(2, tasks=9))  # takes the place of job 1 as soon as that is lost
    core.now += SECOND
    core.feed(NodeDown(core.now, "n0"))
    core.end(1, outcome=Outcome.KILLED)
    core.wake(core.now + SUSPECT_PATIENCE)
    nodes = core.scheduler.state.nodes
    assert [nodes[name].apart for name in ("n1", "n2")] == [True, True]
    core.feed(NodeDrained(core.now, "n1"))
    assert [nodes[name].apart for name in ("n1", "n2")] == [False, False]


def test_waiting_is_not_counted_while_there_is_no_node_nor_when_the_clock_steps() -> None:
    core = Core(1)
    core.submit(job(1))
    core.crash()
    core.now += SECOND
    core.feed(NodeDown(core.now, "n0"))
    core.now += 2 * PATIENCE_MOST
    assert core.feed(NodeUp(core.now, "n0")) == [Launch(1, 0, 3, 1)]
    assert core.alone == [(1, 0)]
    core = Core(1, 2)
    core.submit(job(2, tasks=2), job(1))
    for number in range(2):
        core.now += SECOND
        where = next(one for one in core.scheduler.state.attempts() if one.job.id == 1)
        name = core.scheduler.state.slot_nodes[where.slots.bit_length() - 1].spec.name
        core.feed(NodeDown(core.now, name))
        if not number:
            core.feed(NodeUp(core.now, name))
    waits = {key: known.waits for key, known in core.scheduler.state.suspicions.items()}
    core.feed(ClockStepped(core.now + 1000 * SECOND, 1000 * SECOND))
    assert {key: known.waits - 1000 * SECOND for key, known in core.scheduler.state.suspicions.items()} == waits


def test_a_workflow_waits_for_a_suspected_task_and_goes_on_after_it() -> None:
    core = Core(2, policy="heft")
    core.submit(job(1, graph=(TaskSpec(SECOND, 2), TaskSpec(SECOND, 1, (0,)))))
    core.wake(0)
    core.crash()
    core.crash()
    assert core.alone == [(1, 0)]
    assert slot_statuses(core.scheduler.state) == [SlotStatus.BUSY] * 2
    core.end(1)
    core.wake(core.now)
    assert (core.alone, core.running) == ([], [(1, 1)])


def test_read_ahead_tasks_are_there_as_well() -> None:
    core = Core(1, read_ahead=3, policy="priority")
    core.submit(job(1, tasks=20))
    core.wake(0)
    for task in range(5):
        core.end(1, task)
    assert len(core.running) > 1
    core.crash(after=1)
    assert len(core.scheduler.state.suspicions) > 1
    core.crash(after=1)
    assert len(core.alone) == len(core.running) == 1, "nothing is launched behind what runs alone"


def test_a_record_of_a_task_alone_holds_nothing_against_it() -> None:
    assert suspicion_record(Suspicion(JobView(job(1), SECOND), 3)) == SuspicionRecord(1, 3)


def test_a_record_without_rules_is_of_before_and_decided_by_its_rules() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(Scheduler(registry.find, "fcfs").dump()))
    for name in ("rules", "node_losses", "suspicions", "isolations"):
        del stored[name]
    record = msgspec.json.decode(msgspec.json.encode(stored), type=StateRecord, dec_hook=any_form)
    core = Scheduler.restore(record, registry.find)
    assert core.state.rules == 1
    core.handle(NodeJoined(0, node("a", slots=2)))
    core.handle(JobSubmitted(0, job(1, tasks=2)))
    said = []
    for at in range(1, LOSSES_MAX + 1):
        said += [*core.handle(NodeDown(at, "a")), *core.handle(NodeUp(at, "a"))]
    assert [one for one in said if isinstance(one, Settle)] == [
        Settle(1, 0, LOSSES_MAX, Outcome.LOST),
        Settle(1, 1, LOSSES_MAX, Outcome.LOST),
    ]


# Run times count from the start


def fetching(core: Core, *jobs: JobSpec) -> None:
    core.submit(*jobs)


def started(core: Core, at: int, job: int = 1, task: int = 0, attempt: int = 1) -> None:
    core.feed(TaskStarted(at, job, task, attempt))


@pytest.mark.parametrize("rules", [1, 2])
def test_the_run_time_of_what_fetches_counts_from_its_start(rules: int) -> None:
    core = Core(1, rules=rules)
    core.submit(job(1, tasks=2, estimate=10, fetches=True))
    attempt = core.scheduler.state.jobs[1].attempts[0]
    assert (attempt.running, attempt.expected_end) == (False, 10 * SECOND)
    started(core, 60 * SECOND)
    counts_from = 60 * SECOND if rules == 2 else 0
    assert (attempt.running, attempt.start, attempt.expected_end) == (True, counts_from, counts_from + 10 * SECOND)
    started(core, 62 * SECOND)  # reported again after a restart
    assert attempt.start == counts_from
    core.now = 64 * SECOND
    core.end(1)
    view = core.scheduler.state.jobs[1]
    took = 64 * SECOND - counts_from
    assert view.spent == took
    assert view.times["speed=1"].mean == took


@pytest.mark.parametrize("terms", [{"width": 2}, {"graph": (TaskSpec(10 * SECOND, 2),)}], ids=["rigid", "workflow"])
def test_so_it_does_of_rigid_jobs_and_workflows(terms: dict[str, object]) -> None:
    core = Core(2, policy="heft" if "plan" in terms else "easy")
    core.submit(job(1, estimate=10, fetches=True, **terms))
    core.wake(0)
    started(core, 60 * SECOND)
    ((expected_end, *_),) = core.scheduler.state.running
    assert expected_end == 70 * SECOND
    core.now = 63 * SECOND
    core.end(1)


def test_what_was_queued_and_fetches_counts_from_its_start_too() -> None:
    core = Core(1, read_ahead=2, policy="priority")
    core.submit(job(1, tasks=20, fetches=True))
    core.wake(0)
    for task in range(6):
        attempt = core.scheduler.state.jobs[1].attempts[task]
        if not attempt.running:
            started(core, core.now, 1, task)
        core.end(1, task)
    (runs,) = (one for one in core.scheduler.state.attempts() if not one.queued)
    assert not runs.running, "it has only begun to fetch"
    queued = [one for one in core.scheduler.state.attempts() if one.queued]
    assert queued
    started(core, core.now + 5 * SECOND, 1, runs.task, runs.number)
    assert runs.start == core.now


def test_a_node_that_reports_starts_counts_from_them() -> None:
    core = Core(1, reports_start=True)
    core.submit(job(1, estimate=10))
    started(core, 3 * SECOND)
    assert core.scheduler.state.jobs[1].attempts[0].start == 3 * SECOND
