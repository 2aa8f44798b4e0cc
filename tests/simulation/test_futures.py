"""Many futures of one state. The true one equals the rest of the simulation that was cut, event by event.

A failure names its seed and the place of the cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import settings

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput
from headway.model.actions import JobStatus
from headway.model.events import (
    DeciderChosen,
    Event,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    PeriodChosen,
    PolicyChosen,
    SitesChosen,
    TaskEnded,
    TaskSaved,
    TaskStarted,
    Woke,
)
from headway.model.instant import SECOND, Instant, from_seconds
from headway.model.job import JobId, Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.plan import AllocationRecord, PlanRecord
from headway.model.policy import uses_tiers
from headway.model.schedule import STATUSES, Schedule
from headway.model.site import SiteTerms
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage, drawn_outages
from headway.sim.kernel import Simulation
from headway.sim.machines import RemainingWork
from headway.sim.tiers import TwoTiers
from headway.sim.world import Stopwatch, World
from headway.testing import job, node

from ..effort import one_in

# What jobs do to each other on two tiers is drawn by their places, which are others in the future of a state.
ALIKE = TwoTiers(loss=(0.0225, 0.0225), single=(0.86, 0.86), several=(0.43, 0, 0.43, 0.43), cpu=(0.7, 0.7))
SLOTS = {"a": 4, "b": 3, "c": 2}
SEEDS = range(max(3, settings().max_examples // 25))


def texts() -> list[str]:
    """Every policy, with values for its required parameters, and a few with other parameters."""
    named = []
    for offer in (offer for offer in registry.installed() if offer.name != "instances"):  # it serves no such jobs
        few = ["steps=50,first=200"] if offer.name == "anneal" else []  # how good its order is does not matter here
        needed = ",".join([*few, *(f"{known.name}=5" for known in offer.parameters if known.required)])
        named.append(f"{offer.name}:{needed}" if needed else offer.name)
    more = ["easy:per_instant=true", "deadline:emergency=1", "priority:emergency=4", "tempo:kill=false"]
    return [*named, *more, "sites:top=rr,each=easy", "sites:top=rr,each=tempo", "sites:top=rr,each=measy"]


def drawn(chance: Random, policy: str, *, chained: bool = True) -> tuple[Workload, list[NodeSpec]]:
    """Jobs of every kind that the policy can run, many of them at the same seconds, and nodes.

    Args:
        chained: whether jobs may come after others of the same second.
    """
    tiers, many = uses_tiers(registry.find(policy)) or "measy" in policy, chance.randint(10, 40)
    sites = policy.startswith("sites")
    release = sorted(chance.randint(0, 60) * SECOND for _ in range(many))
    runtime = [2 * chance.randint(1, 25) * SECOND for _ in range(many)]
    kinds = [Kind.RIGID if tiers else chance.choice((Kind.BAG, Kind.RIGID, Kind.WORKFLOW)) for _ in range(many)]
    flows = {
        number: tuple(
            TaskSpec(2 * chance.randint(1, 20) * SECOND, after=(task - 1,) if task and chance.random() < 0.5 else ())
            for task in range(chance.randint(1, 5))
        )
        for number, kind in enumerate(kinds)
        if kind is Kind.WORKFLOW
    }
    widest = 2 if sites else 6
    width = [chance.randint(1, widest) if kind is Kind.RIGID else 1 for kind in kinds]
    workload = workload_us(
        release=release,
        runtime=runtime,
        estimate=[
            time if number in flows else round(time * chance.choice((0.5, 1, 1.5)))
            for number, time in enumerate(runtime)
        ],
        tasks=[
            len(flows[number]) if number in flows else 1 if kind is Kind.RIGID else chance.randint(1, 6)
            for number, kind in enumerate(kinds)
        ],
        width=width,
        kind=[int(kind) for kind in kinds],
        due=[at + chance.randint(5, 200) * SECOND for at in release],
        priority=[float(chance.randint(0, 4)) for _ in range(many)],
        cpu=[chance.choice((0.4, 0.9)) for _ in range(many)],
        uses={number: tuple(chance.random() for _ in range(width[number])) for number in range(0, many, 5) if tiers},
        workflows=flows,
        after={
            number: (number - 1,)
            for number in range(1, many)
            if chained and release[number] == release[number - 1] and chance.random() < 0.3
        },
    )
    fast = chance.choice((1.0, 2.0))
    return workload, [
        NodeSpec(name, slots, speed=fast if name == "b" else 1.0, site=name if sites else "")
        for name, slots in SLOTS.items()
    ]


@dataclass
class Cut:
    """A state in the midst of a simulation, what it does not tell, and how many events had happened."""

    state: StateRecord
    left: dict[tuple[JobId, int], RemainingWork]
    events: int
    submitted: int


def cut_at(simulation: Simulation, journal: list[Event], wanted: set[int]) -> list[Cut]:
    """Run it, and cut it after these events."""
    found: list[Cut] = []

    def look(core: Scheduler) -> None:
        if len(journal) in wanted:
            submitted = sum(isinstance(event, JobSubmitted) for event in journal)
            found.append(Cut(core.dump(), simulation.left(), len(journal), submitted))

    simulation._audit = look
    simulation.run()
    return found


def story(events: list[Event], reported: Event | None = None) -> list[Event]:
    """The events, without wakes, of which there may be more than are needed, and without a save reported before."""
    return [event for event in events if not isinstance(event, Woke) and event != reported]


def compare(future: Schedule, whole: Schedule, cut: Instant) -> int:
    """Check that jobs end in a future as they did in the whole. Returns how many started after the cut."""
    later = 0
    for place, number in enumerate(future.label.tolist()):
        assert future.end[place] == whole.end[number], number
        assert future.status[place] == whole.status[number], number
        if whole.start[number] > cut:
            later += 1
            assert future.start[place] == whole.start[number], number
    return later


@pytest.mark.thorough
@pytest.mark.parametrize("policy", one_in(3, texts()))
def test_the_true_future_after_any_event_is_the_rest_of_the_simulation(policy: str) -> None:
    started = 0
    for seed in SEEDS:
        chance = Random(f"{policy} {seed}")
        workload, nodes = drawn(chance, policy, chained=False)
        world = World(tiers=ALIKE, noise=chance.choice((0, 0.3)), seed=seed)
        period = chance.choice((None, 7 * SECOND))
        journal: list[Event] = []
        whole = Simulation(workload, nodes, registry.find, policy, world=world, period=period, journal=journal).run()
        wanted = set(chance.sample(range(len(nodes), len(journal)), 4))
        again: list[Event] = []
        simulation = Simulation(workload, nodes, registry.find, policy, world=world, period=period, journal=again)
        for cut in cut_at(simulation, again, wanted):
            # Without a background, what is left follows from the run times and the starts.
            left = cut.left if uses_tiers(registry.find(policy)) or "measy" in policy else None
            rest: list[Event] = []
            future = Simulation.from_state(
                cut.state,
                registry.find,
                world=world,
                timing=Stopwatch(world, workload),
                left=left,
                arrivals=workload.take(slice(cut.submitted, None)),
                first_id=cut.submitted,
                audit=Scheduler.check,
                journal=rest,
            )
            where = f"seed {seed}, after {cut.events} events"
            scheduled = future.run()
            last = journal[cut.events - 1]
            saved = last if isinstance(last, TaskSaved) else None
            assert story(rest, saved) == story(journal[cut.events :]), where
            started += compare(scheduled, whole, cut.state.now)
    assert started, "nothing was left to start"


@pytest.mark.thorough
@pytest.mark.parametrize("policy", one_in(3, texts()))
def test_the_true_future_of_an_instant_has_the_same_outages_and_the_same_use(policy: str) -> None:
    tiers = uses_tiers(registry.find(policy)) or "measy" in policy
    down = 0
    for seed in SEEDS:
        chance = Random(f"{policy} at {seed}")
        workload, nodes = drawn(chance, policy)
        outages = drawn_outages(nodes, mean_up_seconds=40, mean_down_seconds=30, begin=0, until=300, seed=seed)
        delay = chance.choice((0, 1.5))
        world = World(tiers=ALIKE, decision_time=delay)
        journal: list[Event] = []
        terms = {"world": world, "outages": outages}
        simulation = Simulation(workload, nodes, registry.find, policy, journal=journal, **terms)  # type: ignore[arg-type]
        done = Simulation(workload, nodes, registry.find, policy, **terms).run()  # type: ignore[arg-type]
        soon = [outage for outage in outages if outage.at < 60]
        at = chance.randint(0, 120 * SECOND) if seed % 2 or not soon else from_seconds(soon[-1].at) + SECOND // 2
        at = max(at, int(workload.release[0]))
        simulation.advance(at)
        state, left, sofar, before = simulation.scheduler.dump(), simulation.left(), simulation.schedule(), len(journal)
        down += not all(one.up for one in state.nodes)
        assert state.now <= at
        whole = simulation.run()
        assert whole.end.tolist() == done.end.tolist()
        assert whole.busy == done.busy
        assert (whole.begin, whole.until, whole.offered) == (done.begin, done.until, done.offered)
        submitted = int((workload.release <= at).sum())
        rest: list[Event] = []
        future = Simulation.from_state(
            state,
            registry.find,
            timing=Stopwatch(world, workload),
            left=left if tiers or delay else None,
            arrivals=workload.take(slice(submitted, None)),
            first_id=submitted,
            journal=rest,
            **terms,  # type: ignore[arg-type]
        ).run()
        assert story(rest) == story(journal[before:]), f"seed {seed}"
        compare(future, whole, state.now + round(delay * SECOND))
        assert sofar.migrations + future.migrations == whole.migrations
        if len(future):
            assert (future.begin, future.until) == (state.now, whole.until)
            assert sofar.offered + future.offered == whole.offered, f"seed {seed}"
            assert sofar.kills + future.kills == whole.kills
        if not delay:
            assert sofar.busy + future.busy == whole.busy, f"seed {seed}"
    assert down, "no node was ever down"


# What can be different from one future to the next

FOUR = (node("n", slots=4),)


def at_five(policy: str = "fcfs") -> Scheduler:
    """At 5 s, job 1 runs on all four slots, until 10 s by its estimate. Jobs 2 and 3 wait for them."""
    core = Scheduler(registry.find, policy)
    for event in (
        NodeJoined(0, FOUR[0]),
        JobSubmitted(0, job(1, width=4, estimate=10)),
        JobSubmitted(1 * SECOND, job(2, width=4, estimate=20, release=1, due=100)),
        JobSubmitted(5 * SECOND, job(3, width=4, estimate=3, release=2, due=16)),
    ):
        core.handle(event)
    return core


def ends(schedule: Schedule) -> dict[int, float]:
    """When each job ends, in seconds."""
    return dict(zip(schedule.label.tolist(), schedule.seconds("end").tolist(), strict=True))


def test_jobs_run_as_long_as_estimated_if_nothing_else_is_known() -> None:
    found = Simulation.from_state(at_five().dump(), registry.find, record=True).run()
    assert ends(found) == {1: 10, 2: 30, 3: 33}
    assert found.seconds("start").tolist() == [0, 10, 30]
    assert (found.begin, found.until) == (5 * SECOND, 33 * SECOND)
    assert found.busy == found.offered == 4 * 28 * SECOND, "use counts from the state on"
    assert found.attempts is not None
    assert found.attempts.start.tolist() == [5 * SECOND, 10 * SECOND, 30 * SECOND]
    assert found.held_at(6) == {0: 4}
    assert found.held_at(12) == {1: 4}
    assert found.runtime.tolist() == [10 * SECOND, 20 * SECOND, 3 * SECOND]


def test_given_run_times_count_from_the_start_of_an_attempt() -> None:
    state = at_five().dump()
    found = Simulation.from_state(state, registry.find, timing={1: 7 * SECOND, 3: 1 * SECOND}).run()
    assert ends(found) == {1: 7, 2: 27, 3: 28}
    overdue = Simulation.from_state(state, registry.find, timing={1: 2 * SECOND}).run()
    assert ends(overdue)[1] == 5, "it has run for longer than that, so it ends at once"


def test_what_is_left_of_a_task_can_be_given() -> None:
    left = {(1, 0): RemainingWork(work=8_000_000 * SECOND, total=99 * SECOND)}
    assert ends(Simulation.from_state(at_five().dump(), registry.find, left=left).run()) == {1: 13, 2: 33, 3: 36}


def test_each_future_may_have_another_policy() -> None:
    state = at_five().dump()
    journal: list[Event] = []
    assert ends(Simulation.from_state(state, registry.find, "sjf", journal=journal).run()) == {1: 10, 3: 13, 2: 33}
    assert journal[0] == PolicyChosen(5 * SECOND, "sjf")
    assert ends(Simulation.from_state(state, registry.find, "fcfs").run()) == {1: 10, 2: 30, 3: 33}


def test_a_seed_draws_run_times_of_its_own_and_leaves_the_state_alone() -> None:
    state = at_five().dump()
    found = [
        ends(Simulation.from_state(state, registry.find, world=World(noise=0.5, seed=seed)).run())
        for seed in (*range(20), 0)
    ]
    assert found[0] == found[20]
    assert len({tuple(future.values()) for future in found}) == 20
    assert all(future[1] >= 5 for future in found)
    assert state == at_five().dump()


def test_jobs_may_come_later() -> None:
    state = at_five().dump()
    arrivals = workload_us(
        release=[6 * SECOND, 6 * SECOND],
        runtime=[SECOND, 2 * SECOND],
        width=[1, 4],
        kind=int(Kind.RIGID),
        after={1: (0,)},
    )
    found = Simulation.from_state(state, registry.find, "sjf", arrivals=arrivals).run()
    # Without an estimate they count as long as ten minutes, so they come last.
    assert ends(found) == {1: 10, 3: 13, 2: 33, 4: 34, 5: 36}
    later = Simulation.from_state(state, registry.find, "sjf", arrivals=arrivals, first_id=70).run()
    assert ends(later) == {1: 10, 3: 13, 2: 33, 70: 34, 71: 36}


def test_jobs_that_were_not_released_come_when_they_are() -> None:
    core = at_five()
    core.handle(JobSubmitted(5 * SECOND, job(4, width=1, estimate=2, release=50)))
    core.handle(JobSubmitted(5 * SECOND, job(5, width=1, estimate=2, after=(4,))))
    assert ends(Simulation.from_state(core.dump(), registry.find).run()) == {1: 10, 2: 30, 3: 33, 4: 52, 5: 54}


def test_a_node_that_is_down_comes_back_where_an_outage_says_so() -> None:
    core = at_five()
    core.handle(NodeDown(6 * SECOND, "n"))
    state = core.dump()
    never = Simulation.from_state(state, registry.find).run()
    assert never.end.tolist() == [-1, -1, -1]
    assert {STATUSES[status] for status in never.status.tolist()} == {JobStatus.WAITING}
    rounds = list[Event]()
    core.handle(PeriodChosen(7 * SECOND, 1 * SECOND))
    Simulation.from_state(core.dump(), registry.find, journal=rounds).run()
    assert 200 < len(rounds) < 400, "rounds that change nothing are not repeated for long"
    back = Simulation.from_state(state, registry.find, outages=[Outage("n", 0, 20)]).run()
    assert ends(back) == {1: 30, 2: 50, 3: 53}
    assert back.offered == 4 * 33 * SECOND, "no slot is up from 6 s until 20 s"
    assert back.lost == 0, "what was lost before the state belongs to no future"


def test_a_node_may_be_lost_later() -> None:
    found = Simulation.from_state(at_five().dump(), registry.find, outages=[Outage("n", 8, 9)]).run()
    assert ends(found) == {1: 19, 2: 39, 3: 42}
    assert found.lost == 4 * 3 * SECOND, "from the state on"


def test_what_only_a_server_does_is_left_out() -> None:
    """No heartbeats, no reports of starts, no input to be fetched, and no tasks launched ahead of their turn."""
    core = Scheduler(registry.find, "edf")
    core.handle(NodeJoined(0, node("n", slots=1, lease=9, reports_start=True, read_ahead=3)))
    core.handle(JobSubmitted(0, job(1, tasks=40, estimate=0.001)))
    core.handle(Woke(0))
    for task in range(20):
        core.handle(TaskStarted(0, 1, task, 1))
        core.handle(TaskEnded(0, 1, task, 1))
    core.handle(NodeJoined(0, node("m", slots=1, lease=9, reports_start=True)))
    core.handle(JobSubmitted(0, job(2, fetches=True, due=9)))
    core.handle(Woke(0))
    assert {attempt.job.id for attempt in core.state.attempts() if attempt.queued} == {1}
    assert {attempt.job.id for attempt in core.state.attempts() if not attempt.running} == {1, 2}
    found = Simulation.from_state(
        core.dump(), registry.find, timing={1: SECOND, 2: 99 * SECOND}, audit=Scheduler.check
    ).run()
    assert ends(found) == {1: 20, 2: 99}


@pytest.mark.parametrize(("startup", "at", "ends_at"), [(0, 0, 10), (0, 5, 15), (3, 2, 13), (3, 5, 15), (3, 40, 50)])
def test_what_waits_in_the_queue_of_its_site_begins_now_or_when_the_time_of_its_site_is_over(
    startup: int, at: int, ends_at: int
) -> None:
    """The next job is to begin then, also by what the core expects of the first one."""
    core = Scheduler(registry.find, "easy")
    core.handle(SitesChosen(0, (SiteTerms("far", startup * SECOND),)))
    core.handle(NodeJoined(0, node("n", slots=2, site="far", reports_start=True)))
    core.handle(JobSubmitted(0, job(1, width=2, estimate=10)))
    core.handle(JobSubmitted(0, job(2, width=2, estimate=1)))
    core.handle(Woke(0))
    core.handle(Woke(at * SECOND))
    found = Simulation.from_state(core.dump(), registry.find, audit=Scheduler.check).run()
    assert ends(found) == {1: ends_at, 2: ends_at + startup + 1}
    core.handle(TaskStarted(at * SECOND, 1, 0, 1))
    assert ends(Simulation.from_state(core.dump(), registry.find).run())[1] == at + 10


def test_a_decider_may_plan_a_future() -> None:
    class Backwards:
        """Starts the newest job first."""

        url = "http://there"
        asked = 0

        def __call__(self, snapshot: StateRecord) -> PlanRecord:
            self.asked += 1
            busy = {slot for one in snapshot.jobs for attempt in one.attempts for slot in attempt.slots}
            waiting = [one.spec.id for one in snapshot.jobs if not one.attempts]
            wanted = [] if busy or not waiting else [AllocationRecord(max(waiting), (0, 1, 2, 3))]
            return PlanRecord(tuple(wanted))

    decider = Backwards()
    found = Simulation.from_state(at_five().dump(), registry.find, decider=decider).run()
    assert ends(found) == {1: 10, 3: 13, 2: 33}
    assert decider.asked >= 3


def test_a_question_that_is_open_is_answered_by_the_policy() -> None:
    core = at_five()
    core.handle(DeciderChosen(5 * SECOND, "http://there"))
    core.handle(Woke(5 * SECOND))
    assert core.question is not None
    assert ends(Simulation.from_state(core.dump(), registry.find).run()) == {1: 10, 2: 30, 3: 33}


def test_a_simulation_can_be_stopped_and_goes_on() -> None:
    workload = workload_us(release=[0, SECOND], runtime=[10 * SECOND, 5 * SECOND], width=4, kind=int(Kind.RIGID))
    simulation = Simulation(workload, FOUR, registry.find, "fcfs")
    simulation.advance(3 * SECOND)
    part = simulation.schedule()
    assert part.start.tolist() == [0, -1]
    assert [STATUSES[status] for status in part.status.tolist()] == [JobStatus.RUNNING, JobStatus.WAITING]
    simulation.advance(10 * SECOND)
    assert simulation.schedule().end.tolist() == [10 * SECOND, -1], "all of that instant has happened"
    assert simulation.run().end.tolist() == [10 * SECOND, 15 * SECOND]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"first_id": 3}, "first_id is 3; allowed: 4 or more"),
        ({"outages": [Outage("m", 9)]}, "node of an outage is 'm'"),
        ({"arrivals": workload_us(release=[9 * SECOND], runtime=[1], width=5)}, "width is 5; allowed: at most 4"),
        ({"arrivals": workload_us(release=[4 * SECOND], runtime=[1])}, "release is 4.0; allowed: 5 or later"),
    ],
)
def test_what_cannot_be_is_refused(terms: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Simulation.from_state(at_five().dump(), registry.find, **terms)  # type: ignore[arg-type]


def test_a_policy_that_is_not_there_is_refused_unless_another_is_named() -> None:
    state = replace(at_five().dump(), policy="gone")
    with pytest.raises(HeadwayError, match="gone"):
        Simulation.from_state(state, registry.find)
    with pytest.raises(HeadwayError, match="nowhere"):
        Simulation.from_state(state, registry.find, "nowhere")
    assert ends(Simulation.from_state(state, registry.find, "fcfs").run()) == {1: 10, 2: 30, 3: 33}


def test_a_state_without_nodes_and_jobs_has_a_future_too() -> None:
    found = Simulation.from_state(Scheduler(registry.find, "fcfs").dump(), registry.find).run()
    assert (len(found), found.busy, found.offered) == (0, 0, 0)
