"""Two places per slot: what may change its tier, swap or move, what is refused, and what happens on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.model.actions import Action, ChangeTier, Conclude, JobStatus, Kill, Launch, Settle, Suspend, Wake
from headway.model.events import (
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
    PolicyChosen,
    TaskEnded,
    TaskSaved,
    TierRefused,
    Woke,
)
from headway.model.instant import SECOND
from headway.model.job import JobSpec, TaskSpec
from headway.model.node import Capabilities
from headway.model.plan import Allocation, Claim, Plan
from headway.model.seen import JobView
from headway.model.snapshot import Snapshot, slots_by_use
from headway.model.tier import Tier
from headway.policies.place import ready_tasks
from headway.testing import job, node
from headway.wire.reading import any_form

FRONT, BACK = Tier
KILL, MIGRATE, SWAP, AFTER = Claim.KILL, Claim.MIGRATE, Claim.SWAP, Claim.AFTER


@dataclass
class Wishes:
    """A policy that wants what the test says, and remembers which jobs were new."""

    wanted: list[Allocation] = field(default_factory=list)
    arrived: list[JobView] | None = None
    per_instant: bool = False
    task_rounds: bool = False
    tiers: bool = True

    def __call__(self, view: Snapshot) -> Plan:
        plan, self.arrived = view.plan(), view.arrived
        plan.allocations.extend(self.wanted)
        return plan


class Core:
    """A scheduler of one node "a" that is checked after each event, and a restored copy that must answer alike."""

    def __init__(self, slots: int = 2) -> None:
        self.wishes = Wishes()
        self.scheduler = Scheduler(lambda text: self.wishes, "wishes")
        self.state = self.scheduler.state
        self.now = 0
        self.feed(NodeJoined(0, node("a", slots=slots)))

    def feed(self, event: Event, *wanted: Allocation) -> list[Action]:
        """The actions that follow from the event and the plan after it, without wakes."""
        self.wishes.wanted = list(wanted)
        stored = msgspec.json.encode(self.scheduler.dump())
        twin = Scheduler.restore(
            msgspec.json.decode(stored, type=StateRecord, dec_hook=any_form), lambda text: self.wishes
        )
        actions = self.scheduler.handle(event)
        self.scheduler.check()
        assert twin.handle(event) == actions
        assert twin.dump() == self.scheduler.dump()
        self.wishes.wanted = []
        return [action for action in actions if not isinstance(action, Wake)]

    def submit(self, *jobs: JobSpec) -> None:
        for spec in jobs:
            assert self.feed(JobSubmitted(self.now, spec)) == []

    def want(self, *wanted: Allocation) -> list[Action]:
        """Run a round with these wishes."""
        self.state.look_at_everything()
        return self.feed(Woke(self.now), *wanted)

    def refused(self, *wanted: Allocation) -> dict[str, int]:
        """The rules by which wishes are refused. Checks that there are no actions, and that nothing else changes."""
        before = self.scheduler.refusals.copy()
        places = self.places()
        assert self.want(*wanted) == []
        assert self.places() == places
        return dict(self.scheduler.refusals - before)

    def places(self) -> object:
        state = self.state
        held = [job.held for job in state.jobs.values()]
        return state.free, state.busy, state.behind, held, [(one.slots, one.tier) for one in state.attempts()]

    def end(self, number: int, attempt: int = 1, outcome: Outcome = Outcome.SUCCEEDED, task: int = 0) -> list[Action]:
        return self.feed(TaskEnded(self.now, number, task, attempt, outcome))


def hold(
    number: int, slots: int, claim: Claim = Claim.FREE, tier: Tier = FRONT, seats: tuple[int, ...] = ()
) -> Allocation:
    return Allocation(number, slots, None, claim, tier, seats)


def place(number: int, task: int, slots: int, claim: Claim = Claim.FREE, tier: Tier = FRONT) -> Allocation:
    return Allocation(number, slots, task, claim, tier)


def running(front: int = 0b01, back: int = 0b01, slots: int = 2, **terms: object) -> Core:
    """Job 1 in the foreground of some slots, job 2 in the background; `terms` are those of job 2."""
    core = Core(slots)
    core.submit(job(1, width=front.bit_count()), job(2, **{"width": back.bit_count(), "movable": True} | terms))
    core.want(hold(1, front), hold(2, back, tier=BACK))
    assert (core.state.busy, core.state.behind) == (front, back)
    return core


class TestStarting:
    def test_places_of_one_slot_are_taken_by_two_jobs_and_say_so(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1), job(2, width=1))
        assert core.want(hold(1, 1), hold(2, 1, tier=BACK)) == [Launch(1, 0, 1, 1), Launch(2, 0, 1, 1, BACK)]
        state = core.state
        assert ([entry[3].job.id for entry in state.running], [one.job.id for one in state.background]) == ([1], [2])
        assert (state.busy, state.behind, state.free, state.waiting) == (1, 1, 0, [])
        assert core.end(2) == [Settle(2, 0, 1, Outcome.SUCCEEDED), Conclude(2, JobStatus.SUCCEEDED)]
        assert (state.busy, state.behind) == (1, 0)

    def test_seats_are_handed_on(self) -> None:
        core = Core(3)
        core.submit(job(1, width=2), job(2, width=2))
        assert core.want(hold(1, 0b101, seats=(2, 0)), hold(2, 0b011, tier=BACK, seats=(1, 0))) == [
            Launch(1, 0, 1, 0b101, FRONT, (2, 0)),
            Launch(2, 0, 1, 0b011, BACK, (1, 0)),
        ]

    @pytest.mark.parametrize(("claim", "asked"), [(KILL, Kill(1, 0, 1)), (MIGRATE, Suspend(1, 0, 1)), (AFTER, None)])
    def test_who_takes_slots_ends_what_is_in_their_foreground_alone(self, claim: Claim, asked: Action | None) -> None:
        core = Core(2)
        core.submit(job(1, tasks=1, movable=True), job(2, width=2, movable=True), job(3, width=2))
        core.want(place(1, 0, 0b01), hold(2, 0b11, tier=BACK))
        assert core.want(hold(3, 0b11, claim)) == ([asked] if asked else [])
        assert [attempt.ending for attempt in core.state.background] == [False]
        assert core.state.jobs[3].held == 0b11
        core.end(1, outcome=Outcome.KILLED if claim is KILL else Outcome.SUCCEEDED)
        assert 3 in {attempt.job.id for _, _, _, attempt in core.state.running}

    @pytest.mark.parametrize("claim", [AFTER, KILL])
    def test_seats_are_kept_while_their_slots_are_waited_for(self, claim: Claim) -> None:
        core = Core(2)
        core.submit(job(1, width=1), job(2, width=2))
        core.want(hold(1, 0b01))
        core.want(hold(2, 0b11, claim, seats=(1, 0)))
        assert Launch(2, 0, 1, 0b11, FRONT, (1, 0)) in core.end(1)

    def test_tasks_of_bags_and_workflows_are_placed_in_the_background_one_by_one(self) -> None:
        core = Core(2)
        core.submit(job(1, tasks=2), job(2, graph=(TaskSpec(1), TaskSpec(1, 2, (0,)))))
        assert core.want(place(1, 1, 0b01, tier=BACK), place(2, 0, 0b10, tier=BACK)) == [
            Launch(1, 1, 1, 0b01, BACK),
            Launch(2, 0, 1, 0b10, BACK),
        ]
        assert list(ready_tasks(core.state.jobs[1], 9)) == [0]

    def test_a_follower_of_what_ended_in_the_background_is_not_taken_for_old(self) -> None:
        core = Core(1)
        core.submit(job(1, graph=(TaskSpec(1), TaskSpec(1, 1, (0,)))))
        core.want(place(1, 0, 1, tier=BACK))
        core.want()
        core.end(1)
        assert core.wishes.arrived is None, "the next task waits, though no job has come"

    def test_a_job_that_waits_for_slots_gives_them_up_for_the_background(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1), job(2, width=1))
        core.want(hold(1, 1), hold(2, 1, AFTER))
        assert core.state.jobs[2].held == 1
        assert core.want(hold(2, 1, tier=BACK)) == [Launch(2, 0, 1, 1, BACK)]
        assert core.state.allocated == 0


class TestRefusals:
    def test_not_movable(self) -> None:
        core = running(movable=False)
        assert core.refused(hold(2, 0b10, MIGRATE)) == {"not_movable": 1}
        core.now = 1
        core.feed(TaskSaved(1, 2, 0, 1))
        assert core.want(hold(2, 0b10, MIGRATE)) == [Suspend(2, 0, 1)], "it has saved a checkpoint"

    def test_not_to_be_killed(self) -> None:
        assert running(preemptible=False).refused(hold(2, 0b10, KILL)) == {"not_to_be_killed": 1}

    @pytest.mark.parametrize("claim", [Claim.FREE, AFTER, SWAP])
    def test_moves_by_kill_or_migrate(self, claim: Claim) -> None:
        assert running().refused(hold(2, 0b10, claim)) == {"moves_by_kill_or_migrate": 1}

    def test_ends_already(self) -> None:
        core = running()
        core.want(hold(2, 0b10, MIGRATE))
        assert core.refused(hold(2, 0b10, MIGRATE)) == {}, "it is on its way"
        assert core.refused(hold(2, 0b10, KILL)) == {}
        core = running(slots=3)
        core.want(hold(2, 0b10, MIGRATE, BACK))
        assert core.refused(hold(2, 0b100, KILL, BACK)) == {"ends_already": 1}
        assert core.refused(hold(2, 0b01, SWAP)) == {"ends_already": 1}

    def test_no_background_there(self) -> None:
        core = running()
        core.feed(NodeJoined(core.now, node("b", slots=1, capabilities=Capabilities(tiers=False))))
        core.submit(job(3, width=1), job(4, width=1, movable=True))
        assert core.refused(hold(3, 0b100, tier=BACK)) == {"no_background_there": 1}
        core.want(hold(4, 0b100))
        assert core.refused(hold(4, 0b100, tier=BACK)) == {"no_background_there": 1}, "a change"
        assert core.refused(hold(3, 0b100, SWAP)) == {"no_background_there": 1}, "nor can job 4 make room there"
        assert core.refused(hold(2, 0b100, KILL, BACK)) == {"no_background_there": 1}, "a move"
        assert core.refused(hold(2, 0b100, KILL, FRONT)) == {"slot_busy": 1}

    def test_nothing_moves_there(self) -> None:
        core = running()
        core.feed(NodeJoined(core.now, node("b", slots=1, capabilities=Capabilities(moves=False))))
        core.submit(job(3, width=1, movable=True), job(4, width=1))
        core.want(hold(3, 0b100))
        assert core.refused(hold(3, 0b010, MIGRATE)) == {"nothing_moves_there": 1}
        assert core.want(hold(4, 0b100, MIGRATE)) == [], "nor does job 3 make room"
        assert core.scheduler.refusals == {"nothing_moves_there": 2}
        core.feed(NodeLeft(core.now, "b"))
        assert (core.state.limits.fixed, core.state.limits.one_tier) == (0, 0)

    def test_background_taken(self) -> None:
        core = running()
        core.submit(job(3, width=1), job(4, width=1))
        assert core.refused(hold(3, 0b01, tier=BACK)) == {"background_taken": 1}
        assert core.refused(hold(1, 0b01, tier=BACK)) == {"background_taken": 1}, "a change"
        assert core.refused(hold(4, 0b01, SWAP)) == {"background_taken": 1}, "nor can job 1 make room there"
        core.want(hold(3, 0b10, tier=BACK))
        assert core.refused(hold(3, 0b01, MIGRATE, BACK)) == {"not_movable": 1}
        assert core.refused(hold(2, 0b10, MIGRATE, BACK)) == {"background_taken": 1}, "a move"

    def test_a_place_that_is_kept_for_a_move_is_taken(self) -> None:
        core = running(slots=3)
        core.submit(job(3, width=1))
        core.want(hold(2, 0b010, MIGRATE, BACK))
        assert core.refused(hold(3, 0b010, tier=BACK)) == {"background_taken": 1}
        core = running(slots=3)
        core.submit(job(3, width=1))
        core.want(hold(2, 0b010, MIGRATE))
        for claim in Claim:
            assert core.refused(hold(3, 0b010, claim)) == {"slot_allocated": 1}

    def test_slot_down(self) -> None:
        for tier in Tier:
            assert running().refused(hold(2, 0b100, MIGRATE, tier)) == {"slot_down": 1}
        core = Core(1)
        core.submit(job(1, width=1))
        assert core.refused(hold(1, 0b10, tier=BACK)) == {"slot_down": 1}
        core = running()
        core.feed(NodeDrained(0, "a"))
        assert core.refused(hold(2, 0b01)) == {"slot_down": 1}, "no place of a node that drains is given to another job"

    def test_slot_allocated(self) -> None:
        core = running(front=0b11, back=0b01, slots=3)
        core.submit(job(3, width=2))
        core.want(hold(3, 0b011, AFTER))
        assert core.refused(hold(2, 0b01, SWAP)) == {"slot_allocated": 1}
        assert core.refused(hold(2, 0b10, MIGRATE)) == {"slot_allocated": 1}
        assert core.refused(hold(1, 0b110, KILL)) == {"slot_allocated": 1}, "also what it has itself until it ends"

    def test_slot_busy(self) -> None:
        core = running(front=0b11)
        assert core.refused(hold(2, 0b01)) == {"slot_busy": 1}, "a change is no swap"
        assert core.refused(hold(2, 0b10, MIGRATE)) == {"slot_busy": 1}
        core.submit(job(3, tasks=1))
        assert core.refused(place(3, 0, 0b10, KILL)) == {"slot_busy": 1}

    def test_tier_refused(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1))
        core.want(hold(1, 1))
        core.want(hold(1, 1, tier=BACK))
        assert core.feed(TierRefused(0, 1, 0, 1, BACK)) == [ChangeTier(1, 0, 1, FRONT)]
        assert core.refused(hold(1, 1, tier=BACK)) == {"tier_refused": 1}

    @pytest.mark.parametrize("slots", [0b000, 0b011, 0b111])
    def test_width_differs(self, slots: int) -> None:
        core = running(slots=3)
        assert core.refused(hold(2, slots, MIGRATE, BACK)) == {"width_differs" if slots else "slot_down": 1}

    def test_more_than_one_node(self) -> None:
        core = Core(1)
        core.feed(NodeJoined(0, node("b", slots=2)))
        core.submit(job(1, graph=(TaskSpec(1, 2),), movable=True))
        core.want(place(1, 0, 0b110, tier=BACK))
        assert core.refused(place(1, 0, 0b011, MIGRATE, BACK)) == {"more_than_one_node": 1}

    @pytest.mark.parametrize("seats", [(0,), (0, 0), (0, 1), (0, 2, 2), (-1, 0), (2, 99)])
    def test_seats_differ_from_slots(self, seats: tuple[int, ...]) -> None:
        core = Core(3)
        core.submit(job(1, width=2))
        for tier in Tier:
            assert core.refused(hold(1, 0b101, tier=tier, seats=seats)) == {"seats_differ_from_slots": 1}

    def test_bags_are_held_in_the_foreground(self) -> None:
        core = Core(2)
        core.submit(job(1, tasks=2))
        assert core.refused(hold(1, 0b01, tier=BACK)) == {"bags_are_held_in_the_foreground": 1}

    def test_held_by_the_job_as_a_whole(self) -> None:
        core = Core(2)
        core.submit(job(1, tasks=2))
        core.want(hold(1, 0b01))
        assert core.refused(place(1, 0, 0b01, tier=BACK)) == {"held_by_the_job_as_a_whole": 1}
        assert core.refused(place(1, 0, 0b10, KILL)) == {"held_by_the_job_as_a_whole": 1}

    def test_not_to_be_pushed_back(self) -> None:
        core = Core(2)
        core.submit(job(1), job(2, width=1), job(3, width=1), job(4, width=1))
        core.want(hold(1, 0b01), hold(2, 0b10), hold(3, 0b10, tier=BACK))
        core.feed(PolicyChosen(0, "another"))
        assert core.refused(hold(4, 0b01, SWAP)) == {"not_to_be_pushed_back": 1}, "what a bag was given runs in front"
        core.feed(JobCancelled(0, 2))
        assert core.refused(hold(3, 0b10, SWAP)) == {"not_to_be_pushed_back": 1}, "it ends"
        core = Core(1)
        core.submit(job(1, width=1), job(2, width=1))
        core.want(hold(1, 1))
        core.want(hold(1, 1, tier=BACK))
        core.feed(TierRefused(0, 1, 0, 1, BACK))
        assert core.refused(hold(2, 1, SWAP)) == {"not_to_be_pushed_back": 1}, "the system does not let it go there"


class TestChanges:
    def test_to_the_other_place_and_back(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1, estimate=10))
        core.want(hold(1, 1))
        core.now = 4 * SECOND
        assert core.want(hold(1, 1, tier=BACK)) == [ChangeTier(1, 0, 1, BACK)]
        assert (core.state.busy, core.state.behind, core.state.free) == (0, 1, 1)
        core.now = 6 * SECOND
        assert core.want(hold(1, 1)) == [ChangeTier(1, 0, 1, FRONT)]
        (expected_end, _, _, attempt) = core.state.running[0]
        assert (attempt.start, attempt.since, expected_end) == (0, 6 * SECOND, 16 * SECOND), (
            "as if it had started again"
        )

    def test_a_swap_exchanges_two(self) -> None:
        core = running()
        assert core.want(hold(2, 0b01, SWAP)) == [ChangeTier(1, 0, 1, BACK), ChangeTier(2, 0, 1, FRONT)]
        assert core.want(hold(1, 0b01, SWAP)) == [ChangeTier(2, 0, 1, BACK), ChangeTier(1, 0, 1, FRONT)]
        assert core.state.jobs[2].tries == {0: 1}

    def test_a_swap_with_several_of_which_one_stands_elsewhere_too(self) -> None:
        core = Core(4)
        core.submit(job(1, width=1), job(2, width=2), job(3, width=2), job(4, width=1))
        core.want(hold(1, 0b0001), hold(2, 0b0110), hold(3, 0b0011, tier=BACK), hold(4, 0b0100, AFTER))
        assert core.want(hold(3, 0b0011, SWAP)) == [
            *(ChangeTier(1, 0, 1, BACK), ChangeTier(2, 0, 1, BACK), ChangeTier(3, 0, 1, FRONT)),
            Launch(4, 0, 1, 0b0100),
        ], "slot 2 goes to the one that waits for it"
        assert (core.state.busy, core.state.behind) == (0b0111, 0b0111)

    def test_who_starts_by_a_swap_pushes_back(self) -> None:
        core = Core(2)
        core.submit(job(1, width=2), job(2, width=1), job(3, tasks=2))
        core.want(hold(1, 0b11))
        assert core.want(hold(2, 0b01, SWAP, seats=(0,))) == [ChangeTier(1, 0, 1, BACK), Launch(2, 0, 1, 1, seats=(0,))]
        assert core.want(hold(3, 0b10)) == [Launch(3, 0, 1, 0b10)]
        assert (core.state.busy, core.state.behind, core.state.free) == (0b11, 0b11, 0)

    def test_a_task_that_starts_while_room_is_made_for_it_starts_once(self) -> None:
        core = Core(2)
        core.submit(job(1, width=2), job(2, tasks=1))
        core.want(hold(1, 0b11), hold(2, 0b10, AFTER))
        assert core.want(place(2, 0, 0b01, SWAP)) == [ChangeTier(1, 0, 1, BACK), Launch(2, 0, 1, 0b10)]
        assert core.scheduler.refusals == {"task_not_ready": 1}

    def test_under_a_policy_without_tiers_what_is_behind_comes_to_the_foreground_as_soon_as_that_is_free(self) -> None:
        core = running(front=0b011, back=0b010)
        core.submit(job(3, width=1), job(4, width=1))
        core.want(hold(3, 0b01, tier=BACK))
        core.wishes.tiers = False
        core.feed(PolicyChosen(0, "another"))
        assert core.state.behind == 0b11, "job 1 is in front of both"
        assert core.end(1)[2:] == [ChangeTier(2, 0, 1, FRONT), ChangeTier(3, 0, 1, FRONT)]
        assert (core.state.busy, core.state.behind) == (0b11, 0)

    def test_but_not_what_ends_or_cannot_and_not_where_somebody_waits_for_the_slot(self) -> None:
        core = running(back=0b10, slots=4)
        core.submit(job(3, width=1), job(4, width=1), job(5, width=1))
        core.want(hold(2, 0b01, MIGRATE, BACK), hold(3, 0b100, tier=BACK), hold(4, 0b1000, tier=BACK))
        core.want(hold(3, 0b100), hold(5, 0b1000))
        core.feed(TierRefused(0, 3, 0, 1, FRONT))
        core.wishes.tiers = False
        assert core.feed(PolicyChosen(0, "another")) == []
        assert [one.job.id for one in core.state.background] == [2, 3, 4]


class TestMoves:
    def test_by_migration_and_what_was_saved_counts(self) -> None:
        core = running(estimate=100)
        core.now = 5 * SECOND
        assert core.want(hold(2, 0b10, MIGRATE, seats=(1,))) == [Suspend(2, 0, 1)]
        assert (core.state.free, core.state.allocated, core.state.behind) == (0, 0b10, 0b01)
        core.now = 6 * SECOND
        assert core.feed(TaskSaved(core.now, 2, 0, 1)) == []
        assert core.end(2, outcome=Outcome.KILLED) == [Launch(2, 0, 2, 0b10, FRONT, (1,))]
        view = core.state.jobs[2]
        assert (view.moves, view.kills, view.lost, view.kept) == (1, 0, 0, {0: 0})
        assert view.attempts[0].expected_end == 106 * SECOND, "how far it came in the background nobody knows"
        core.now = 26 * SECOND
        core.want(hold(2, 0b10, tier=FRONT))
        core.feed(TaskSaved(core.now, 2, 0, 2))
        core.end(1)
        core.want(hold(2, 0b01, MIGRATE))
        assert core.end(2, 2, Outcome.KILLED) == [Launch(2, 0, 3, 0b01)]
        assert (view.moves, view.kept) == (2, {0: 20 * SECOND})
        assert view.attempts[0].expected_end == (26 + 80) * SECOND

    def test_no_run_time_is_observed_of_what_was_begun_in_the_background(self) -> None:
        """The first task ends 1 s after it has moved with its earlier work. The second was in front all the time."""
        core = Core()
        core.submit(job(1, width=1), job(2, tasks=2, movable=True, estimate=100))
        core.want(hold(1, 0b01), place(2, 0, 0b01, tier=BACK), place(2, 1, 0b10))
        core.now = 50 * SECOND
        core.end(2, task=1)
        view = core.state.jobs[2]
        assert view.estimate == 75 * SECOND
        core.want(place(2, 0, 0b10, MIGRATE))
        core.feed(TaskSaved(core.now, 2, 0, 1))
        assert core.end(2, outcome=Outcome.KILLED) == [Launch(2, 0, 2, 0b10)]
        core.now = 51 * SECOND
        core.end(2, 2)
        assert (view.estimate, view.ended) == (75 * SECOND, 2)

    def test_by_kill(self) -> None:
        core = running()
        core.now = SECOND
        assert core.want(hold(1, 0b10, KILL)) == [Kill(1, 0, 1)]
        core.now = 3 * SECOND
        assert core.end(1, outcome=Outcome.KILLED) == [Launch(1, 0, 2, 0b10)]
        assert (core.state.jobs[1].moves, core.state.jobs[1].kills, core.state.jobs[1].lost) == (0, 1, 3 * SECOND)

    def test_slots_it_has_already_may_be_among_the_new_ones(self) -> None:
        for tier in Tier:
            core = running(front=0b011, back=0b011, slots=3, width=2)
            number = 1 if tier is FRONT else 2
            core.want(hold(number, 0b110, KILL, tier))
            assert core.end(number, outcome=Outcome.KILLED) == [Launch(number, 0, 2, 0b110, tier)]

    def test_of_one_task_leaves_what_else_its_job_holds(self) -> None:
        core = Core(3)
        core.submit(job(1, tasks=3, movable=True))
        core.want(hold(1, 0b001), place(1, 1, 0b001, tier=BACK))
        assert core.want(place(1, 1, 0b010, MIGRATE)) == [Suspend(1, 1, 1)]
        assert core.state.jobs[1].held == 0b011
        assert core.end(1, task=1, outcome=Outcome.KILLED) == [Launch(1, 1, 2, 0b010)]
        assert core.state.jobs[1].held == 0b001

    def test_behind_a_slot_whose_foreground_its_job_gives_up(self) -> None:
        """The place behind it is another place, and is still kept for the task."""
        core = Core(2)
        core.submit(job(1, tasks=3, movable=True))
        core.want(hold(1, 0b11), place(1, 2, 0b01, tier=BACK))
        assert core.want(place(1, 2, 0b10, MIGRATE, BACK)) == [Suspend(1, 2, 1)]
        assert core.want(hold(1, 0b01)) == []
        assert (core.state.jobs[1].held, core.state.behind) == (0b01, 0b11)
        assert core.end(1, task=2, outcome=Outcome.KILLED) == [Launch(1, 2, 2, 0b10, BACK)]

    def test_a_task_goes_where_it_was_to_and_not_to_the_slot_that_its_own_job_waits_for(self) -> None:
        core = Core(2)
        core.submit(job(1, tasks=3, movable=True))
        core.want(place(1, 1, 0b01))
        core.want(hold(1, 0b01, AFTER), place(1, 1, 0b10, MIGRATE))
        assert core.end(1, task=1, outcome=Outcome.KILLED) == [Launch(1, 0, 1, 0b01), Launch(1, 1, 2, 0b10)]

    def test_success_before_it_is_asked_gives_the_kept_place_free(self) -> None:
        for tier, free in ((FRONT, 0b10), (BACK, 0b10)):
            core = running()
            core.want(hold(2, 0b10, MIGRATE, tier))
            core.state.arrived = []
            assert core.end(2) == [Settle(2, 0, 1, Outcome.SUCCEEDED), Conclude(2, JobStatus.SUCCEEDED)]
            assert (core.state.free, core.state.behind, core.state.allocated) == (free, 0, 0)

    def test_a_failure_on_the_way_is_tried_again_at_the_goal(self) -> None:
        core = running(retries=1)
        core.want(hold(2, 0b10, MIGRATE))
        assert core.end(2, outcome=Outcome.RAISED) == [Launch(2, 0, 2, 0b10)]

    def test_cancelled_on_the_way_it_is_killed_and_keeps_no_place(self) -> None:
        for tier in Tier:
            core = running()
            core.want(hold(2, 0b10, MIGRATE, tier))
            assert core.feed(JobCancelled(0, 2)) == [Kill(2, 0, 1)]
            assert core.end(2, outcome=Outcome.KILLED) == [
                Settle(2, 0, 1, Outcome.CANCELLED),
                Conclude(2, JobStatus.CANCELLED),
            ]
            assert (core.state.free, core.state.behind, core.state.allocated) == (0b10, 0, 0)

    def test_another_policy_need_not_keep_a_foreground_for_it(self) -> None:
        core = running()
        core.want(hold(2, 0b10, MIGRATE))
        core.feed(PolicyChosen(0, "another"))
        assert core.state.free == 0b10
        assert core.end(2, outcome=Outcome.KILLED) == []
        assert [view.id for view in core.state.waiting] == [2]

    def test_nor_need_a_plan_that_wants_something_else_for_its_job(self) -> None:
        core = running()
        core.submit(job(3, width=1))
        core.want(hold(2, 0b10, MIGRATE))
        assert core.want(hold(2, 0b01, tier=BACK), hold(3, 0b10)) == [Launch(3, 0, 1, 0b10)]
        assert core.end(2, outcome=Outcome.KILLED) == []
        assert core.scheduler.refusals == {}


class TestRefusedBySystem:
    def test_it_is_put_back(self) -> None:
        for old, new in ((FRONT, BACK), (BACK, FRONT)):
            core = Core(1)
            core.submit(job(1, width=1))
            core.want(hold(1, 1, tier=old))
            core.want(hold(1, 1, tier=new))
            assert core.feed(TierRefused(0, 1, 0, 1, new)) == [ChangeTier(1, 0, 1, old)]
            assert core.feed(TierRefused(0, 1, 0, 1, new)) == [], "an answer that came late"
            assert core.scheduler.ignored == 1
            assert core.feed(TierRefused(0, 1, 0, 1, old)) == [Kill(1, 0, 1)], "it is to be had nowhere"

    def test_where_its_place_has_gone_it_is_killed_whatever_its_job_says(self) -> None:
        core = running(preemptible=False)
        core.want(hold(2, 0b01, SWAP))
        assert core.feed(TierRefused(0, 2, 0, 1, FRONT)) == [Kill(2, 0, 1)]
        assert core.end(2, outcome=Outcome.KILLED) == []
        assert (core.state.busy, core.state.behind) == (0, 1)

    def test_also_where_somebody_waits_for_its_place(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1), job(2, width=1))
        core.want(hold(1, 1), hold(2, 1, AFTER))
        assert core.want(hold(1, 1, tier=BACK)) == [ChangeTier(1, 0, 1, BACK), Launch(2, 0, 1, 1)]
        assert core.feed(TierRefused(0, 1, 0, 1, BACK)) == [Kill(1, 0, 1)]

    def test_also_where_its_place_is_kept_for_somebody(self) -> None:
        core = Core(2)
        core.submit(job(1, width=1), job(2, width=1), job(3, width=2))
        core.want(hold(1, 0b01), hold(2, 0b10), hold(3, 0b11, AFTER))
        assert core.want(hold(1, 0b01, tier=BACK)) == [ChangeTier(1, 0, 1, BACK)]
        assert (core.state.busy, core.state.allocated) == (0b10, 0b11), "job 3 waits for the other slot"
        assert core.feed(TierRefused(0, 1, 0, 1, BACK)) == [Kill(1, 0, 1)]

    def test_on_a_node_that_drains_it_is_put_back_as_elsewhere(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1))
        core.want(hold(1, 1))
        core.want(hold(1, 1, tier=BACK))
        core.feed(NodeDrained(0, "a"))
        assert core.feed(TierRefused(0, 1, 0, 1, BACK)) == [ChangeTier(1, 0, 1, FRONT)]

    def test_what_ends_already_is_left_to_end(self) -> None:
        core = running()
        core.want(hold(2, 0b01, SWAP))
        core.want(hold(2, 0b10, MIGRATE))
        assert core.feed(TierRefused(0, 2, 0, 1, FRONT)) == []
        assert core.end(2, outcome=Outcome.KILLED) == [Launch(2, 0, 2, 0b10)]

    def test_what_is_not_the_current_attempt_is_ignored(self) -> None:
        core = running()
        core.want(hold(2, 0b01, SWAP))
        assert core.feed(TierRefused(0, 2, 0, 2, FRONT)) == core.feed(TierRefused(0, 9, 0, 1, FRONT)) == []
        assert core.scheduler.ignored == 2

    def test_it_comes_to_the_foreground_of_its_own_slots_by_a_move(self) -> None:
        core = Core(1)
        core.submit(job(1, width=1, movable=True))
        core.want(hold(1, 1, tier=BACK))
        core.want(hold(1, 1))
        core.feed(TierRefused(0, 1, 0, 1, FRONT))
        assert core.refused(hold(1, 1)) == {"tier_refused": 1}
        assert core.want(hold(1, 1, MIGRATE)) == [Suspend(1, 0, 1)]
        assert core.end(1, outcome=Outcome.KILLED) == [Launch(1, 0, 2, 1)]


class TestNodes:
    def test_one_that_is_lost_takes_both_places_with_it(self) -> None:
        core = running()
        core.feed(NodeDown(0, "a"))
        assert (core.state.busy, core.state.behind, len(core.state.waiting)) == (0, 0, 2)
        assert [view.losses for view in core.state.jobs.values()] == [{0: 1}, {0: 1}]
        core.feed(NodeUp(0, "a"))
        assert core.state.free == 0b11

    def test_one_that_is_removed_is_not_to_blame(self) -> None:
        core = running()
        core.feed(NodeLeft(0, "a"))
        assert core.state.nodes == {}
        assert [view.losses for view in core.state.jobs.values()] == [{}, {}]

    def test_one_that_drains_stays_until_its_background_is_empty(self) -> None:
        core = running()
        core.feed(NodeDrained(0, "a"))
        core.end(1)
        assert "a" in core.state.nodes
        core.end(2)
        assert core.state.nodes == {}

    def test_a_slot_that_is_taken_away_goes_when_its_background_is_empty_or_at_once(self) -> None:
        for at_once in (False, True):
            core = running(front=0b01, back=0b10)
            assert core.feed(NodeResized(0, "a", 1, at_once)) == []
            assert core.state.nodes["a"].slots == (0b01 if at_once else 0b11)
            assert len(core.state.waiting) == at_once
            if not at_once:
                core.end(2)
                assert core.state.nodes["a"].slots == 0b01

    @pytest.mark.parametrize("tier", list(Tier))
    @pytest.mark.parametrize("how", [NodeDown, NodeDrained, NodeLeft, NodeUp])
    def test_a_goal_that_is_lost_is_given_up_and_the_job_waits(self, tier: Tier, how: type) -> None:
        core = running(slots=1)
        core.feed(NodeJoined(0, node("b", slots=1)))
        core.want(hold(2, 0b10, MIGRATE, tier))
        core.feed(how(0, "b"))
        attempt = core.state.jobs[2].attempts[0]
        assert (attempt.goal, attempt.ending, core.state.behind) == (None, True, 0b01)
        assert core.end(2, outcome=Outcome.KILLED) == []
        assert [view.id for view in core.state.waiting] == [2]

    def test_a_part_of_what_moves_is_lost_while_the_goal_overlaps(self) -> None:
        core = Core(1)
        core.feed(NodeJoined(0, node("b", slots=2)))
        core.submit(job(1, width=2, movable=True))
        core.want(hold(1, 0b011, tier=BACK))
        core.want(hold(1, 0b110, MIGRATE, BACK))
        assert core.feed(NodeDown(0, "b")) == [Kill(1, 0, 1)], "what is left of it is of no use"
        assert core.state.behind == 0b001
        assert core.end(1, outcome=Outcome.KILLED) == []

    def test_what_is_left_of_it_uses_no_slot_that_is_lost(self) -> None:
        core = Core(1)
        core.feed(NodeJoined(0, node("b", slots=2)))
        core.submit(job(1, width=3, cpu=(0.2, 0.5, 0.5)))
        core.want(hold(1, 0b111, tier=BACK, seats=(2, 0, 1)))
        (attempt,) = core.state.background
        assert slots_by_use(attempt.job.spec, attempt.slots, attempt.seats) == ((0.2, 0b100), (0.5, 0b011))
        core.feed(NodeDown(0, "b"))
        left = slots_by_use(attempt.job.spec, attempt.slots, attempt.seats)
        assert sum(slots for _, slots in left) == attempt.slots == 0b001

    def test_a_lost_attempt_goes_on_at_its_goal(self) -> None:
        core = running(slots=1)
        core.feed(NodeJoined(0, node("b", slots=1)))
        core.want(hold(2, 0b10, MIGRATE))
        assert core.feed(NodeDown(0, "a")) == [Launch(2, 0, 2, 0b10)]


def test_a_policy_without_tiers_finds_nothing_in_the_background_whose_foreground_is_free() -> None:
    core = Core(slots=2)
    core.feed(JobSubmitted(0, job(1, width=2)), Allocation(1, 0b11))
    core.feed(JobSubmitted(0, job(2)), Allocation(2, 0b01, 0, tier=BACK))
    core.wishes.tiers = False
    assert core.feed(PolicyChosen(1, "another")) == []
    ended = core.feed(TaskEnded(2, 1, 0, 1))
    assert ended[-1:] == [ChangeTier(2, 0, 1, FRONT)]
    assert (core.state.busy, core.state.behind) == (0b01, 0)
