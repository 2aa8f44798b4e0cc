"""The recorder: by hand, and against a bystander who only looks at the state after each event."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.model.actions import JobStatus
from headway.model.events import (
    Event,
    JobCancelled,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeUp,
    TaskEnded,
    TaskStarted,
)
from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import SHAPES, JobId, JobSpec, Kind, PenaltyShape
from headway.model.outcome import Outcome
from headway.model.schedule import NOT_YET, STATUSES, Schedule
from headway.model.slots import numbers
from headway.model.tier import Tier
from headway.model.workload import workload_us
from headway.policies import registry
from headway.sim.faults import drawn_outages
from headway.sim.kernel import Simulation
from headway.sim.world import World
from headway.testing import job, node


class Recorded:
    """A core with its recorder; times in seconds."""

    def __init__(self, *events: Event, policy: str = "fcfs", **terms: bool) -> None:
        self.core = Scheduler(registry.find, policy)
        self.feed(*events)
        self.recorder = Recorder(self.core, **terms)
        self.specs: dict[JobId, JobSpec] = {}

    def feed(self, *events: Event) -> None:
        """Let the core handle what comes before the recorder."""
        for event in events:
            self.core.handle(event)

    def note(self, *events: Event, delay: float = 0) -> None:
        """Let the core handle events, and the recorder note them."""
        for event in events:
            actions = self.core.handle(event)
            assert self.core.failure is None
            self.recorder.note(event, actions, self.core.state.now + round(delay * SECOND))
            self.core.check()

    def submit(self, at: float, spec: JobSpec, delay: float = 0) -> None:
        self.specs[spec.id] = spec
        self.note(JobSubmitted(round(at * SECOND), spec), delay=delay)

    def end(
        self, at: float, number: JobId, task: int = 0, attempt: int = 1, outcome: Outcome = Outcome.SUCCEEDED
    ) -> None:
        self.note(TaskEnded(round(at * SECOND), number, task, attempt, outcome))

    def schedule(self) -> Schedule:
        due = {number: NEVER if spec.due is None else spec.due for number, spec in self.specs.items()}
        return self.recorder.schedule_by_release(
            self.specs, due, {number: spec.priority for number, spec in self.specs.items()}
        )


TWO = NodeJoined(0, node("n", slots=2))

Lines = Callable[[Callable[[], object]], int]


def test_starts_ends_waits_and_use() -> None:
    run = Recorded(TWO, run_times=True, attempts=True)
    before = run.core.rounds
    run.submit(2, job(1, width=2, estimate=9, release=2))
    run.submit(3, job(2, estimate=1, tasks=2, release=3, shape=PenaltyShape.SQUARE, user="eve"))
    run.end(7, 1)
    run.end(8, 2, 0)
    run.end(9, 2, 1, outcome=Outcome.EXITED)
    found = run.schedule()
    assert found.seconds("start").tolist() == [2, 7]
    assert found.seconds("end").tolist() == [7, 9]
    assert [STATUSES[status] for status in found.status] == [JobStatus.SUCCEEDED, JobStatus.FAILED]
    assert found.seconds("runtime").tolist() == [5, 1]
    assert (found.busy, found.lost, found.offered) == ((10 + 1 + 2) * SECOND, 2 * SECOND, 14 * SECOND)
    assert (found.begin, found.until) == (2 * SECOND, 9 * SECOND)
    assert (found.kills, found.migrations) == (0, 0)
    assert found.slots.tolist() == [2, 2]
    assert [SHAPES[place] for place in found.shape.tolist()] == [PenaltyShape.LINEAR, PenaltyShape.SQUARE]
    assert found.user.tolist() == ["", "eve"]
    assert found.held_at(4) == {0: 2}
    assert found.held_at(8) == {1: 1}
    assert found.decisions == run.core.rounds
    assert len(found.rounds) == run.core.rounds - before
    assert found.attempts is not None
    assert found.attempts.wasted.tolist() == [False, False, True]


def test_a_node_that_joins_before_the_first_job_costs_the_same_among_many(lines_run: Lines) -> None:
    """What is offered counts from the first job on: until then nobody needs to know how many slots are up."""

    def joining(others: int) -> Callable[[], object]:
        run = Recorded(*(NodeJoined(0, node(f"n{number}")) for number in range(others)))
        event = NodeJoined(0, node("last"))
        actions = run.core.handle(event)
        return lambda: run.recorder.note(event, actions, 0)

    few, many = (lines_run(joining(others)) for others in (2, 200))
    assert many == few


def test_until_the_end_of_a_job_that_never_came_to_the_core_slots_were_offered() -> None:
    run = Recorded()
    run.note(NodeJoined(0, node("n", slots=2)))
    run.recorder.conclude(1, 3 * SECOND, JobStatus.FAILED)
    run.submit(5, job(2, estimate=1, release=5))
    run.end(6, 2)
    assert run.schedule().offered == 2 * (3 + 1) * SECOND


def test_a_job_that_has_not_ended_is_as_it_is_now() -> None:
    run = Recorded(TWO)
    run.submit(0, job(1, width=2))
    run.submit(1, job(2, width=2))
    run.submit(4, job(3, release=9))
    found = run.schedule()
    assert [STATUSES[status].value for status in found.status] == ["running", "waiting", "held"]
    assert found.end.tolist() == [NOT_YET] * 3
    assert (found.busy, found.offered, found.until) == (8 * SECOND, 8 * SECOND, 4 * SECOND)


def test_slots_that_are_held_until_a_decision_is_made_are_not_busy() -> None:
    run = Recorded(TWO)
    run.submit(0, job(1, width=2), delay=1.5)
    run.end(4, 1)
    assert run.schedule().busy == 5 * SECOND
    assert run.schedule().seconds("start").tolist() == [1.5]
    run.submit(5, job(2, width=2, release=5), delay=3)
    run.note(NodeDown(6 * SECOND, "n"))
    assert run.schedule().busy == 5 * SECOND, "its attempt was lost before it began"
    assert run.schedule().lost == 0


def test_where_nodes_report_starts_a_task_runs_from_its_report_on() -> None:
    run = Recorded(NodeJoined(0, node("n", slots=1, reports_start=True)), run_times=True)
    run.submit(0, job(1, fetches=True))
    assert run.schedule().start.tolist() == [NOT_YET]
    run.note(TaskStarted(3 * SECOND, 1, 0, 1))
    run.note(TaskStarted(4 * SECOND, 1, 0, 1))  # reported again after a restart
    run.end(9, 1)
    found = run.schedule()
    assert found.seconds("start").tolist() == [3]
    assert found.seconds("runtime").tolist() == [6]
    assert found.busy == 9 * SECOND, "its slot was taken while it fetched"


def test_an_answer_of_an_earlier_attempt_ends_nothing() -> None:
    run = Recorded(TWO)
    run.submit(0, job(1, width=2))
    run.note(NodeDown(1 * SECOND, "n"), NodeUp(2 * SECOND, "n"))
    run.end(3, 1, attempt=1)
    assert run.schedule().end.tolist() == [NOT_YET]
    run.end(5, 1, attempt=2)
    found = run.schedule()
    assert found.seconds("end").tolist() == [5]
    assert (found.busy, found.lost, found.offered) == (8 * SECOND, 2 * SECOND, 8 * SECOND)


def test_slots_that_leave_when_they_are_idle_are_offered_until_then() -> None:
    run = Recorded(TWO, NodeJoined(0, node("m", slots=2)))
    run.submit(0, job(1, width=2))
    run.submit(0, job(2, width=2))
    run.note(NodeDrained(1 * SECOND, "n"))
    run.end(5, 1)
    run.end(9, 2)
    assert run.schedule().offered == (4 * 5 + 2 * 4) * SECOND


def test_jobs_from_before_only_keep_slots_busy() -> None:
    run = Recorded(TWO, JobSubmitted(0, job(1)), JobSubmitted(0, job(2, width=2)))
    run.note(JobCancelled(1 * SECOND, 2))
    run.submit(3, job(3, release=3))
    run.end(5, 1)
    run.end(6, 3)
    found = run.schedule()
    assert found.label.tolist() == [3]
    assert (found.busy, found.lost, found.kills) == ((2 + 3) * SECOND, 0, 0)
    assert found.until == 6 * SECOND


def test_jobs_from_before_can_be_taken_over() -> None:
    run = Recorded(TWO, JobSubmitted(0, job(1, width=2)), JobSubmitted(1 * SECOND, job(2, width=2)), run_times=True)
    run.recorder.take_over()
    run.specs = {number: view.spec for number, view in run.core.state.jobs.items()}
    run.end(4, 1)
    run.end(6, 2)
    found = run.schedule()
    assert found.seconds("start").tolist() == [0, 4]
    assert found.seconds("runtime").tolist() == [4, 2], "an attempt under way began before"
    assert found.busy == 2 * 5 * SECOND, "use counts from then on"
    assert found.decisions == 2
    assert found.held_at(1) == {0: 2}


# Against a bystander

POLICIES = [
    "easy",
    "deadline",
    "priority:emergency=4",
    "tempo",
    "heft",
    "sites:top=rr,each=edf",
    "keasy",
    "reasy",
    "measy",
]


class Bystander:
    """Looks at the state after each event, and knows nothing of events and actions."""

    def __init__(self) -> None:
        self.now: Instant = 0
        self.on = self.up = self.busy = self.offered = 0
        self.begun = False
        self.start: dict[JobId, Instant] = {}
        self.end: dict[JobId, Instant] = {}
        self.there: set[JobId] = set()
        self.held: dict[JobId, tuple[int, int]] = {}
        self.changes: list[tuple[Instant, JobId, int, int]] = []
        self.lost: dict[JobId, int] = {}
        self.kills: dict[JobId, int] = {}
        self.moves: dict[JobId, int] = {}
        self.struck: set[tuple[JobId, int, int]] = set()
        self.width: dict[tuple[JobId, int, int], int] = {}
        self.lost_with_nodes = 0

    def __call__(self, core: Scheduler) -> None:
        state = core.state
        self.busy += self.on * (state.now - self.now)
        self.offered += self.up * (state.now - self.now)
        self.begun = self.begun or bool(state.jobs)
        self.now = state.now
        front = [attempt for attempt in state.attempts() if attempt.tier is Tier.FOREGROUND]
        self.on = sum(len(list(numbers(attempt.slots))) for attempt in front) if self.begun else 0
        self.up = sum(one.spec.slots for one in state.nodes.values() if one.up) if self.begun else 0
        for number in self.there - state.jobs.keys():
            self.end[number] = state.now
        for number, view in state.jobs.items():
            for attempt in view.attempts.values():
                self.start.setdefault(number, attempt.start)
                key = number, attempt.task, attempt.number
                width = self.width.setdefault(key, attempt.slots.bit_count())
                if attempt.struck and key not in self.struck:  # a node was lost; what runs of it on others is killed
                    self.struck.add(key)
                    self.lost_with_nodes += (width - attempt.slots.bit_count()) * (state.now - attempt.start)
            self.lost[number], self.kills[number], self.moves[number] = view.lost, view.kills, view.moves
        for number in sorted(self.there | state.jobs.keys()):
            had = self.held.get(number, (0, 0))
            has = (0, 0)
            if number in state.jobs:
                view = state.jobs[number]
                whole = {
                    slot for attempt in view.attempts.values() if not attempt.fed for slot in numbers(attempt.slots)
                }
                used = {slot for one in view.attempts.values() if one in front for slot in numbers(one.slots)}
                has = len(whole | {*numbers(view.held)}), len(used)
            if has != had:
                self.held[number] = has
                self.changes.append((state.now, number, *has))
        self.there = set(state.jobs)


def lasting(changes: list[tuple[Instant, JobId, int, int]]) -> list[tuple[Instant, JobId, int, int]]:
    """The changes that last for longer than an instant, by job."""
    last = {(number, at): (slots, used) for at, number, slots, used in changes}
    found: list[tuple[Instant, JobId, int, int]] = []
    for (number, at), counts in sorted(last.items()):
        if counts != (found[-1][2:] if found and found[-1][1] == number else (0, 0)):
            found.append((at, number, *counts))
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_it_records_what_a_bystander_sees(policy: str) -> None:
    tiers = policy in ("keasy", "reasy", "measy")
    lost = kills = moves = 0
    for seed in range(4):
        chance = Random(f"{policy} {seed}")
        jobs = 40
        kinds = [Kind.RIGID if tiers or chance.random() < 0.4 else Kind.BAG for _ in range(jobs)]
        release = sorted(chance.randint(0, 90) * SECOND for _ in range(jobs))
        workload = workload_us(
            release=release,
            runtime=[chance.randint(1, 30) * SECOND for _ in range(jobs)],
            estimate=[chance.randint(1, 40) * SECOND for _ in range(jobs)],
            tasks=[1 if kind is Kind.RIGID else chance.randint(1, 8) for kind in kinds],
            width=[chance.randint(1, 3) if kind is Kind.RIGID else 1 for kind in kinds],
            kind=[int(kind) for kind in kinds],
            due=[at + chance.randint(5, 90) * SECOND for at in release],
            priority=[float(chance.randint(0, 4)) for _ in range(jobs)],
            cpu=0.5,
        )
        nodes = [node("a", slots=4, site="a"), node("b", slots=3, site="b", speed=2.0)]
        outages = drawn_outages(nodes, mean_up_seconds=80, mean_down_seconds=9, begin=0, until=200, seed=seed)
        seen = Bystander()
        schedule = Simulation(
            workload, nodes, registry.find, policy, outages=outages, audit=seen, world=World(migration_cost=0)
        ).run()
        where = f"seed {seed}"
        assert dict(enumerate(schedule.start.tolist())) == dict(sorted(seen.start.items())), where
        assert dict(enumerate(schedule.end.tolist())) == dict(sorted(seen.end.items())), where
        assert (schedule.busy, schedule.offered) == (seen.busy, seen.offered), where
        assert schedule.kills == sum(seen.kills.values()) + len(seen.struck), where
        assert schedule.migrations == sum(seen.moves.values()), where
        if schedule.holdings is not None:
            columns = schedule.holdings.at, schedule.holdings.job, schedule.holdings.slots, schedule.holdings.running
            assert lasting(list(zip(*(column.tolist() for column in columns), strict=True))) == lasting(seen.changes), (
                where
            )
        if not tiers:  # the core counts what was lost otherwise where there are two tiers
            assert schedule.lost == sum(seen.lost.values()) + seen.lost_with_nodes, where
        lost, kills, moves = lost + schedule.lost, kills + sum(seen.kills.values()), moves + schedule.migrations
    assert lost
    assert (kills > 0) is (policy in ("priority:emergency=4", "keasy", "tempo"))
    assert (moves > 0) is (policy == "measy")
