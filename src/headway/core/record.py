"""The whole state as plain frozen values: for stored snapshots, for questions to a decider, and to compare two states.

Fields that can be left out have a default, so that a snapshot can be written by hand: a job that has just come is only
its `spec`, and a node that is up is only its `spec`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush
from operator import attrgetter

from headway.core import nodes
from headway.core.fleet import Fleet
from headway.core.pool import Pool
from headway.core.state import IDLE_UNKNOWN, State
from headway.core.suspicion import Isolation, Suspicion
from headway.core.views import view_of
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import ESTIMATE_DEFAULT, AnyJob, JobId
from headway.model.network import NO_NETWORK, Network, Routes
from headway.model.node import NodeSpec
from headway.model.plan import TIER_WORDS, TierWord
from headway.model.power import (
    AT_ONCE,
    POWER_WORDS,
    PowerWord,
    Switching,
    Trouble,
    by_site,
)
from headway.model.ration import Ration, uses_of
from headway.model.renting import MarketRecord
from headway.model.seen import AttemptView, Goal, JobView, NodeView, RunTimes
from headway.model.site import SiteTerms, by_name
from headway.model.slots import end_of, numbers, of_numbers
from headway.model.tier import Tier
from headway.model.window import Window


@dataclass(frozen=True, slots=True)
class GoalRecord:
    """Where an attempt that was asked to end continues; see `headway.model.seen.Goal`."""

    slots: tuple[int, ...]
    tier: TierWord
    seats: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt that was launched; `slots` as slot numbers, `saved` None if it has saved no checkpoint.

    `since` is None if it has not changed its tier. The other fields are those of `headway.model.seen.AttemptView`.
    """

    task: int
    slots: tuple[int, ...]
    start: Instant
    expected_end: Instant
    number: int = 1
    fed: bool = False
    ending: bool = False
    running: bool = True
    queued: bool = False
    saved: Instant | None = None
    tier: TierWord = "foreground"
    seats: tuple[int, ...] = ()
    since: Instant | None = None
    saving: bool = False
    pinned: bool = False
    goal: GoalRecord | None = None
    stepped: bool = False
    alone: bool = False
    struck: bool = False


@dataclass(frozen=True, slots=True)
class TimesRecord:
    """Observed run times: for which class of nodes ("": converted to speed 1), how many, their mean and spread."""

    node_class: str
    count: int
    mean: Duration
    spread: Duration


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """Where and when a task of a workflow succeeded whose followers need what it sends."""

    task: int
    node: str
    site: str
    at: Instant


@dataclass(frozen=True, slots=True)
class PlannedRecord:
    """A task of a workflow that is promised a start on a node."""

    task: int
    start: Instant
    node: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job in the system and how far it is; slots as their numbers, counts by task as pairs.

    The fields are those of `headway.model.seen.JobView`. A field that is None follows from the others: terms and
    `release` are those of `spec` (a job with `after` has no release yet), tasks with attempts are no longer ready, and
    all others are as they were when the job was submitted.
    """

    spec: AnyJob
    estimate: Duration | None = None
    priority: float | None = None
    due: Instant | None = None
    fresh: int | None = None
    again: tuple[int, ...] | None = None
    unfinished: int | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    held: tuple[int, ...] = ()
    seats: tuple[int, ...] = ()
    promise: Instant | None = None
    missing: tuple[int, ...] | None = None
    tries: tuple[tuple[int, int], ...] = ()
    failures: tuple[tuple[int, int], ...] = ()
    losses: tuple[tuple[int, int], ...] = ()
    ended: int = 0
    spent: Duration = 0
    failed: bool = False
    cancelled: bool = False
    times: tuple[TimesRecord, ...] = ()
    kept: tuple[tuple[int, Duration], ...] = ()
    lost: Duration = 0
    kills: int = 0
    moves: int = 0
    size_left: float | None = None
    dropped: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()
    strikes: tuple[tuple[int, int], ...] = ()
    after: tuple[JobId, ...] = ()
    release: Instant | None = None
    windows: tuple[Window, ...] = ()
    cost: float = 0.0
    outputs: tuple[OutputRecord, ...] = ()
    planned: tuple[PlannedRecord, ...] = ()
    dealt_from: str = ""
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node, the numbers of its slots, and its latest measurements, as pairs.

    Attributes:
        places: slot number by index, also those it had before it was made smaller; None: the next ones in order.
        closing: slots that it is to lose, still busy.
        power, power_until, comes_back, kept_off, idle_since, switch, by_hand, trouble, went_off, closed: as in
            `headway.model.seen.NodeView`.
    """

    spec: NodeSpec
    places: tuple[int, ...] | None = None
    up: bool = True
    draining: bool = False
    closing: tuple[int, ...] = ()
    heard_until: Instant = NEVER
    measures: tuple[tuple[str, float], ...] = ()
    apart: bool = False
    power: PowerWord = "on"
    power_until: Instant = NEVER
    comes_back: bool = False
    kept_off: bool = False
    idle_since: Instant = NEVER
    switch: int = 0
    by_hand: bool = False
    trouble: Trouble | None = None
    went_off: Switching = AT_ONCE
    closed: bool = False


@dataclass(frozen=True, slots=True)
class SuspicionRecord:
    """What counts against a task, see `headway.core.suspicion.Suspicion`."""

    job: JobId
    task: int
    losses: tuple[int, ...] = ()
    alone: int = 0
    elsewhere: int = 0
    age: Duration = 0
    cleared: int = 0
    waits: Instant = 0
    let_go: bool = False
    guilty: bool = False


@dataclass(frozen=True, slots=True)
class IsolationRecord:
    """The nodes, by name, that are set apart for a task; whether it runs there."""

    job: JobId
    task: int
    nodes: tuple[str, ...]
    runs: bool


@dataclass(frozen=True, slots=True)
class RationRecord:
    """So many slots the tasks of a user may have at once."""

    user: str
    most: int


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """A pool that a top level has made; slots as their numbers.

    Attributes:
        policy: the text of its policy.
        jobs: in order of coming.
        dealt, round_at, round_due, arrived, consulted, strayed: as in `headway.core.pool.Pool`.
        leaving, departing: slots, as their numbers, and jobs that are to go to other pools, by the names of these.
    """

    name: str
    slots: tuple[int, ...]
    policy: str = ""
    jobs: tuple[JobId, ...] = ()
    dealt: int = 0
    round_at: Instant = NEVER
    round_due: bool = False
    arrived: tuple[JobId, ...] | None = None
    consulted: bool = True
    leaving: tuple[tuple[str, tuple[int, ...]], ...] = ()
    departing: tuple[tuple[JobId, str], ...] = ()
    strayed: bool = False


@dataclass(frozen=True, slots=True)
class StateRecord:
    """Everything the core knows at an instant, between two events.

    `rules` is 1 if it was written by a Headway that knew no others. `pools` are all but the first, of which most other
    fields tell. `last` is the pool to which a job was dealt last, `measured` and `strayed` are as in `Snapshot`,
    `was_taken`, `switches` and `switched` are as in `headway.core.state.State`. `market` is None if nothing
    could ever be rented.
    """

    now: Instant
    nodes: tuple[NodeRecord, ...]
    jobs: tuple[JobRecord, ...]
    policy: str = ""
    estimate_default: Duration = ESTIMATE_DEFAULT
    period: Duration | None = None
    wake_at: Instant = NEVER
    round_at: Instant = NEVER
    round_due: bool = False
    arrived: tuple[JobId, ...] | None = None
    departed: tuple[NodeRecord, ...] = ()
    rounds: int = 0
    ignored: int = 0
    refusals: tuple[tuple[str, int], ...] = ()
    decider: str = ""
    decider_failed: bool = False
    questions: int = 0
    question: int | None = None
    rules: int = 1
    node_losses: int = 0
    suspicions: tuple[SuspicionRecord, ...] = ()
    isolations: tuple[IsolationRecord, ...] = ()
    pools: tuple[PoolRecord, ...] = ()
    consulted: bool = True
    leaving: tuple[tuple[str, tuple[int, ...]], ...] = ()
    departing: tuple[tuple[JobId, str], ...] = ()
    last: str = ""
    measured: bool = False
    network: Network = NO_NETWORK
    sites: tuple[SiteTerms, ...] = ()
    switching: tuple[Switching, ...] = ()
    was_taken: tuple[int, ...] | None = None
    strayed: bool = False
    switches: bool = False
    switched: int = 0
    market: MarketRecord | None = None
    rations: tuple[RationRecord, ...] = ()


def pool_record(pool: Pool) -> PoolRecord:
    """One pool as plain values."""
    return PoolRecord(
        name=pool.name,
        slots=tuple(numbers(pool.slots)),
        policy=pool.text,
        jobs=tuple(pool.jobs),
        dealt=pool.dealt,
        round_at=pool.round_at,
        round_due=pool.round_due,
        arrived=None if pool.arrived is None else tuple(job.id for job in pool.arrived),
        consulted=pool.consulted,
        leaving=leaving_record(pool),
        departing=departing_record(pool),
        strayed=pool.strayed,
    )


def taken_record(state: State) -> tuple[int, ...] | None:
    """The slots that were busy or allocated when that was noted last; None: it is to be looked at again."""
    return None if state.was_taken == IDLE_UNKNOWN else tuple(numbers(state.was_taken))


def leaving_record(pool: Pool) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Which slots are to go to which pools."""
    return tuple((name, tuple(numbers(slots))) for name, slots in pool.leaving.items())


def departing_record(pool: Pool) -> tuple[tuple[JobId, str], ...]:
    """Which jobs are to go to which pools."""
    return tuple((number, job.goes_to or "") for number, job in pool.departing.items())


def job_record(job: JobView) -> JobRecord:
    """One job as plain values."""
    observed = [] if job.observed is None else [("", job.observed)]
    return JobRecord(
        spec=job.spec,
        estimate=job.estimate,
        priority=job.priority,
        due=job.due,
        fresh=job.fresh,
        again=tuple(sorted(job.again)),
        unfinished=job.unfinished,
        attempts=tuple(
            AttemptRecord(
                task=attempt.task,
                slots=tuple(numbers(attempt.slots)),
                start=attempt.start,
                expected_end=attempt.expected_end,
                number=attempt.number,
                fed=attempt.fed,
                ending=attempt.ending,
                running=attempt.running,
                queued=attempt.queued,
                saved=attempt.saved if attempt.saved > attempt.start else None,
                tier=TIER_WORDS[attempt.tier],
                seats=attempt.seats,
                since=attempt.since if attempt.since > attempt.start else None,
                saving=attempt.saving,
                pinned=attempt.pinned,
                goal=goal_record(attempt.goal),
                stepped=attempt.stepped,
                alone=attempt.alone,
                struck=attempt.struck,
            )
            for _, attempt in sorted(job.attempts.items())
        ),
        held=tuple(numbers(job.held)),
        seats=job.seats,
        promise=job.promise,
        missing=tuple(job.missing),
        tries=tuple(sorted(job.tries.items())),
        failures=tuple(sorted(job.failures.items())),
        losses=tuple(sorted(job.losses.items())),
        ended=job.ended,
        spent=job.spent,
        failed=job.failed,
        cancelled=job.cancelled,
        times=tuple(
            TimesRecord(node_class, times.count, times.mean, times.spread)
            for node_class, times in (*observed, *sorted(job.times.items()))
        ),
        kept=tuple(sorted(job.kept.items())),
        lost=job.lost,
        kills=job.kills,
        moves=job.moves,
        size_left=job.size_left,
        dropped=tuple(sorted(job.dropped)),
        apart=tuple(job.apart),
        strikes=tuple(sorted(job.strikes.items())),
        after=tuple(sorted(job.after)),
        release=None if job.after or job.release == job.spec.release else job.release,
        windows=job.windows,
        cost=job.cost,
        outputs=tuple(OutputRecord(task, *where, at) for task, (where, at) in sorted(job.outputs.items())),
        planned=tuple(PlannedRecord(task, *place) for task, place in sorted(job.planned.items())),
        dealt_from=job.dealt_from,
        predicted=job.predicted,
    )


def blocked(missing: Sequence[int], dropped: Collection[int]) -> int:
    """How many tasks each task of a workflow waits for, not counting cancelled ones."""
    return sum(1 for task, count in enumerate(missing) if count and task not in dropped)


def goal_record(goal: Goal | None) -> GoalRecord | None:
    """The goal of an attempt, as plain values."""
    return None if goal is None else GoalRecord(tuple(numbers(goal.slots)), TIER_WORDS[goal.tier], goal.seats)


def node_record(node: NodeView) -> NodeRecord:
    """One node as plain values."""
    return NodeRecord(
        node.spec,
        tuple(node.places),
        node.up,
        node.draining,
        tuple(numbers(node.closing)),
        node.heard_until,
        tuple(sorted(node.measures.items())),
        node.apart,
        POWER_WORDS[node.power],
        node.power_until,
        node.comes_back,
        node.kept_off,
        node.idle_since,
        node.switch,
        node.by_hand,
        node.trouble,
        node.went_off,
        node.closed,
    )


def suspicion_record(suspicion: Suspicion) -> SuspicionRecord:
    """What counts against one task, as plain values."""
    return SuspicionRecord(
        suspicion.job.id,
        suspicion.task,
        tuple(suspicion.losses),
        suspicion.alone,
        suspicion.elsewhere,
        suspicion.age,
        suspicion.cleared,
        suspicion.waits,
        suspicion.let_go,
        suspicion.guilty,
    )


def isolation_record(isolation: Isolation) -> IsolationRecord:
    """Nodes that are set apart, as plain values."""
    names = tuple(node.spec.name for node in isolation.nodes)
    return IsolationRecord(isolation.job.id, isolation.task, names, isolation.attempt is not None)


def restore_state(record: StateRecord, fleet: Fleet | None = None) -> State:
    """The state of a record, with all its indexes.

    Args:
        fleet: its nodes, see `fleet_of`; None: they are worked out.
    """
    state = State(record.estimate_default)
    state.now = record.now
    state.routes = Routes(record.network)
    state.sites = by_name(record.sites)
    state.switching = by_site(record.switching)
    (fleet or fleet_of(record)).join(state)
    state.switches = record.switches or bool(state.switching or state.dark)
    state.switched = record.switched
    if record.market is not None:
        state.market, state.rents = record.market.market(), True
    for node in sorted(state.nodes.values(), key=attrgetter("idle_since")):
        if node.idle_since < NEVER:
            state.idle.setdefault(node.spec.site, {})[node.spec.name] = node
    state.was_taken = IDLE_UNKNOWN if record.was_taken is None else of_numbers(record.was_taken)
    state.rations = {kept.user: Ration(kept.user, kept.most) for kept in record.rations}
    homes: dict[JobId, Pool] = {}
    for part in record.pools:
        homes |= dict.fromkeys(part.jobs, restore_pool(state, part))
    going = dict(record.departing)
    for part in record.pools:
        going |= dict(part.departing)
    for job in record.jobs:
        restore_job(state, homes.get(job.spec.id, state), job, going.get(job.spec.id))
    for number in state.successors:
        state.note_head(state.jobs[number])
    restore_suspicions(state, record)
    restore_rounds(state, record)
    for pool, part in zip(state.others, record.pools, strict=True):
        pool.jobs = {number: state.jobs[number] for number in part.jobs}
        restore_rounds(pool, part)
    state.due = [pool for pool in state.others if pool.round_due]
    state.unsettled = any(pool.leaving or pool.departing for pool in state.each())
    state.last, state.measured = record.last, record.measured
    nodes.compare(state)
    return state


def restore_rounds(pool: Pool, record: StateRecord | PoolRecord) -> None:
    """Restore what a pool knows of its rounds, and of what leaves it; it already has its jobs."""
    pool.leaving = {name: of_numbers(slots) for name, slots in record.leaving}
    pool.departing = {number: pool.jobs[number] for number, _ in record.departing}
    for leaving in pool.leaving.values():
        pool.up &= ~leaving
    pool.free = pool.up & ~pool.busy & ~pool.allocated
    pool.arrived = None if record.arrived is None else [pool.jobs[number] for number in record.arrived]
    pool.round_due, pool.round_at, pool.consulted = record.round_due, record.round_at, record.consulted
    pool.strayed = record.strayed


def restore_pool(state: State, record: PoolRecord) -> Pool:
    """Put a pool without jobs into a state that already has its nodes."""
    pool = Pool(record.name)
    pool.state, pool.now, pool.text, pool.dealt = state, state.now, record.policy, record.dealt
    pool.slot_nodes, pool.speeds, pool.limits = state.slot_nodes, state.speeds, state.limits
    pool.routes, pool.switching = state.routes, state.switching
    pool.market, pool.sites, pool.predicts = state.market, state.sites, state.predicts
    pool.slots = of_numbers(record.slots)
    state.slots &= ~pool.slots
    pool.up = state.up & pool.slots
    state.up &= ~pool.slots
    pool.nodes = {name: node for name, node in state.nodes.items() if node.slots & pool.slots}
    state.others.append(pool)
    state.pools[pool.name] = pool
    return pool


def placed(record: StateRecord) -> Iterator[tuple[NodeRecord, Sequence[int]]]:
    """Each node, departed ones first, and the numbers of its slots: its own, else the next ones in order."""
    last = 0
    for node in (*record.departed, *record.nodes):
        places = range(last, last + node.spec.slots) if node.places is None else node.places
        yield node, places
        last = max(last, end_of(places))


def slots_in(record: StateRecord) -> int:
    """One more than the greatest number of a slot."""
    return max((end_of(places) for _, places in placed(record)), default=0)


def fleet_of(record: StateRecord) -> Fleet:
    """The nodes of a record, for any number of cores that begin with it."""
    return Fleet(placed(record), len(record.departed))


def restore_suspicions(state: State, record: StateRecord) -> None:
    """Restore what counts against tasks, and which nodes are set apart, in a state that already has its jobs."""
    state.rules, state.node_losses = record.rules, record.node_losses
    for kept in record.suspicions:
        suspicion = Suspicion(state.jobs[kept.job], kept.task)
        suspicion.losses, suspicion.alone, suspicion.elsewhere = list(kept.losses), kept.alone, kept.elsewhere
        suspicion.age, suspicion.cleared, suspicion.waits = kept.age, kept.cleared, kept.waits
        suspicion.let_go, suspicion.guilty = kept.let_go, kept.guilty
        state.suspicions[kept.job, kept.task] = suspicion
    for job in state.jobs.values():
        for task in job.apart:
            state.suspects.append(state.suspicions[job.id, task].rank)
    state.suspects.sort()
    for apart in record.isolations:
        job = state.jobs[apart.job]
        isolation = Isolation(job, apart.task, [state.nodes[name] for name in apart.nodes])
        isolation.attempt = job.attempts[apart.task] if apart.runs else None
        state.isolations.append(isolation)


def restore_job(state: State, pool: Pool, record: JobRecord, goes_to: str | None) -> None:
    """Restore one job of a pool, with its allocation and its attempts, in a state that already has its nodes."""
    job = view_of(record.spec, state.estimate_default)
    job.pool, job.goes_to, job.dealt_from = pool, goes_to, record.dealt_from
    job.windows, job.cost, job.predicted = record.windows, record.cost, record.predicted
    state.note_prediction(job)
    job.outputs = {kept.task: ((kept.node, kept.site), kept.at) for kept in record.outputs}
    if job.endless:
        pool.meet(job.kind)
        state.displaced = True
    for name in ("estimate", "priority", "due", "fresh", "unfinished", "size_left", "release"):
        value = getattr(record, name)
        if value is not None:
            setattr(job, name, value)
    state.note_kind(job)
    job.order = (job.release, job.id)
    attempted = {kept.task for kept in record.attempts}
    if record.fresh is None and not job.graph:
        job.fresh = max(attempted, default=-1) + 1
    if record.again is None:
        elsewhere = {*attempted, *record.dropped, *record.apart}
        job.again = [task for task in job.again if task not in elsewhere]
    else:
        job.again = sorted(record.again)
    if record.missing is not None:
        job.missing = list(record.missing)
    if record.cancelled:
        job.fresh, job.again = job.tasks, []
    job.ready = job.all_ready
    job.ration = state.rations.get(record.spec.user)
    if record.unfinished is None:
        job.unfinished = job.ready + len(attempted) + len(record.apart) + blocked(job.missing, record.dropped)
    pool.promise(job, record.promise)
    job.seats, job.ended, job.spent = record.seats, record.ended, record.spent
    job.failed, job.cancelled, job.dropped = record.failed, record.cancelled, set(record.dropped)
    job.apart, job.strikes = sorted(record.apart), dict(record.strikes)
    job.tries, job.failures, job.losses = dict(record.tries), dict(record.failures), dict(record.losses)
    job.kept, job.lost, job.kills, job.moves = dict(record.kept), record.lost, record.kills, record.moves
    for known in record.times:
        times = RunTimes(known.mean, count=known.count, spread=known.spread)
        if known.node_class:
            job.times = {**job.times, known.node_class: times}
        else:
            job.observed = times
    for kept in record.attempts:
        slots = of_numbers(kept.slots)
        tier = Tier[kept.tier.upper()]
        attempt = AttemptView(
            job, kept.task, kept.number, slots, kept.start, kept.expected_end, kept.fed, tier, kept.seats
        )
        attempt.ending, attempt.running, attempt.queued = kept.ending, kept.running, kept.queued
        attempt.saving, attempt.pinned, attempt.stepped = kept.saving, kept.pinned, kept.stepped
        attempt.alone, attempt.struck = kept.alone, kept.struck
        if kept.since is not None:
            attempt.since = kept.since
        if kept.goal is not None:
            attempt.goal = Goal(of_numbers(kept.goal.slots), Tier[kept.goal.tier.upper()], kept.goal.seats)
            if attempt.goal.tier is Tier.BACKGROUND:
                pool.behind |= attempt.goal.slots
        attempt.saved = kept.start if kept.saved is None else kept.saved
        job.attempts[kept.task] = attempt
        job.tries.setdefault(kept.task, kept.number)
        if kept.queued:
            pool.ahead.setdefault(kept.slots[0], []).append(attempt)
        else:
            pool.take_place(attempt)
    state.jobs[job.id] = job
    for planned in record.planned:
        pool.plan_task(job, planned.task, planned.start, planned.node)
    pool.own(job, of_numbers(record.held))
    if record.after:
        state.come_after(job, record.after)
    elif job.release > state.now:
        heappush(state.release_queue, job.order)
    elif job.ready:
        pool.wait(job)
    if job.ration is not None:
        job.ration.use(job, uses_of(job) - job.uses)
