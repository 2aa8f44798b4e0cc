"""What becomes of the jobs of a live state if every task takes as long as estimated: a simulation that begins there.

Core and policy are the real ones, restored from a record of the state; only the machines are simulated. So the forecast
of a job follows from the rules that will be applied to it, under every policy, and no rule is written twice.

Events from outside are left out: nodes stay as they are, and nobody submits or cancels anything. A decider is not asked
about the future; the policy runs instead, as it does when a decider fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify
from itertools import islice
from typing import Final

import numpy as np

from headway.core.record import JobRecord, NodeRecord, PoolRecord, StateRecord
from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.errors import in_short
from headway.model.actions import Action, Conclude, Launch
from headway.model.events import Event, TaskEnded, Woke
from headway.model.forecast import ASSUMED_MAX, AWAITED_MAX, Awaited, Expected, Forecast
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome
from headway.model.schedule import NOT_YET
from headway.model.slots import Slots, numbers
from headway.model.snapshot import USE_UNKNOWN, AttemptView, NodeView, PolicySource
from headway.model.tier import Tier
from headway.model.workload import Workload, workload_us
from headway.sim.kernel import END, WAKE, Simulation
from headway.sim.tiers import FULL, Running, TwoTiers
from headway.sim.world import World

WORK_MAX: Final = 100_000
"""A forecast ends after this much work. Each event counts 1. Each round counts 1 for each 100 waiting jobs, and 1 for
each job that has a promise."""

WORLD: Final = World(
    tiers=TwoTiers(loss=(0.0225, 0.0225), single=(0.86, 0.86), several=(0.43, 0, 0.43, 0.43), cpu=(0.7, 0.7)),
    migration_cost=0,
)
"""Everything takes as long as estimated. The cost of two tiers is the middle of what MEASY14 measured."""


def forecast(record: StateRecord, policies: PolicySource, work_max: int = WORK_MAX) -> Forecast:
    """What is expected of the open jobs of a state.

    The limit counts work, not seconds, so that the same state gives the same forecast everywhere.

    Args:
        record: the state, as `Scheduler.dump` gives it.
        work_max: see `WORK_MAX`.

    Raises:
        HeadwayError: there is no such policy.
    """
    jobs = tuple(job.spec.id for job in record.jobs)
    ahead = _Ahead(quiet(record), policies, work_max)
    until, failure = None, ""
    try:
        ahead.look()
    except _FarEnough:
        until = ahead.scheduler.state.now
    except Exception as raised:  # noqa: BLE001  # a policy, maybe a third party's, fails as it would in a round
        until, failure = ahead.scheduler.state.now, in_short(f"{record.policy} raised {raised!r}")
    return Forecast(record.now, until, record.estimate_default, tuple(ahead.expected(jobs)), failure)


def quiet(record: StateRecord) -> StateRecord:
    """The state from which a simulation continues. Jobs are numbered by their places.

    Nodes send no heartbeats and report no starts. Attempts that were launched ahead of their turn wait instead. The
    decider is left out; if there was one, a round of the policy is due.
    """
    ids = {job.spec.id: place for place, job in enumerate(record.jobs)}
    is_advised = bool(record.decider) and not record.decider_failed
    return replace(
        record,
        nodes=tuple(map(_quiet_node, record.nodes)),
        departed=tuple(map(_quiet_node, record.departed)),
        jobs=tuple(_quiet_job(job, ids) for job in record.jobs),
        arrived=None if is_advised or record.arrived is None else tuple(ids[job] for job in record.arrived),
        suspicions=tuple(replace(kept, job=ids[kept.job]) for kept in record.suspicions),
        isolations=tuple(replace(kept, job=ids[kept.job]) for kept in record.isolations),
        pools=tuple(_quiet_pool(pool, ids, is_advised=is_advised) for pool in record.pools),
        decider="",
        question=None,
        round_due=record.round_due or is_advised,
        wake_at=record.now if is_advised else record.wake_at,
    )


def _quiet_pool(pool: PoolRecord, ids: Mapping[JobId, int], *, is_advised: bool) -> PoolRecord:
    arrived = None if is_advised or pool.arrived is None else tuple(ids[job] for job in pool.arrived)
    jobs = tuple(ids[job] for job in pool.jobs)
    return replace(pool, jobs=jobs, arrived=arrived, round_due=pool.round_due or is_advised)


def _quiet_node(node: NodeRecord) -> NodeRecord:
    spec = replace(node.spec, read_ahead=0, lease=None, reports_start=False)
    return replace(node, spec=spec, heard_until=NEVER)


def _quiet_job(job: JobRecord, ids: Mapping[JobId, int]) -> JobRecord:
    queued = [attempt.task for attempt in job.attempts if attempt.queued]
    attempts = tuple(replace(attempt, running=True) for attempt in job.attempts if not attempt.queued)
    before = tuple(ids[number] for number in job.after)
    spec = replace(job.spec, id=ids[job.spec.id], after=before, fetches=False)
    again = tuple(sorted((*(job.again or ()), *queued))) if queued else job.again
    return replace(job, spec=spec, attempts=attempts, after=before, again=again)


class _FarEnough(Exception):
    """The limit of work is reached."""


class _ByBelief:
    """Run times as the core estimates them when an attempt starts; a `Timing`."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def plain(self) -> list[int] | None:
        """None: the core learns meanwhile."""
        return None

    def run_time(self, job: int, task: int, attempt: int, slots: Slots, nodes: Sequence[NodeView]) -> Duration:
        """How long the attempt runs if it continues from no checkpoint."""
        return self._state.time_of(self._state.jobs[job], task, slots)


class _Ahead(Simulation):
    """A simulation that begins with a state instead of a workload, and records what jobs wait for."""

    def __init__(self, record: StateRecord, policies: PolicySource, work_max: int) -> None:
        super().__init__(_workload(record), (), policies, record.policy, world=WORLD)
        self.scheduler = Scheduler.restore(record, lambda text: self._time(policies(text)))
        state = self.scheduler.state
        self._timing = _ByBelief(state)
        self._holdings = None
        self._record = record
        self._work_left = work_max
        self._unsaid = {job.id for job in state.jobs.values() if not job.is_estimated}
        self._assumed: dict[JobId, None] = {}
        self._assumed_at_start: dict[JobId, tuple[JobId, ...]] = {}
        self._assumed_at_end: dict[JobId, tuple[JobId, ...]] = {}
        self._began: dict[tuple[JobId, int], Instant] = {}
        self._workflows = {job.id: job.graph for job in state.jobs.values() if job.graph}
        self._settled: dict[tuple[JobId, int], tuple[Awaited, Slots]] = {}
        self._first: dict[int, Awaited] = {}
        self._last: dict[int, Awaited] = {}
        self._awaits: dict[JobId, tuple[Awaited, ...]] = {}

    def _check(self) -> None:
        """Check nothing: a job that does not fit now was accepted when it did. It is expected never to start."""

    def _submissions(self) -> Iterator[JobSpec]:
        return iter(())

    def look(self) -> None:
        """Simulate until nothing more happens.

        Raises:
            _FarEnough: the limit of work is reached.
        """
        self._take_over()
        self._loop(None)

    def _take_over(self) -> None:
        """Take over the running attempts. Each ends when that is expected now; at once if that time has passed."""
        state, heap = self.scheduler.state, self._heap
        for attempt in state.attempts():
            running = self._running_on(state, attempt)
            heap.append((running.end, END, running.job, running.task, running.number, None))
            if attempt.ending:
                ended = TaskEnded(state.now, running.job, running.task, running.number, Outcome.KILLED)
                heap.append((state.now, END, running.job, running.task, -running.number, ended))
                if attempt.saving:
                    self._saving.add((running.job, running.task))
        for job in state.jobs.values():
            for task, kept in job.kept.items():
                if task not in job.attempts:
                    whole = job.estimate_of(task)
                    self._saved[job.id, task] = max(0, whole - kept) * FULL, whole
        if state.runs_behind():
            changed = self._open_background().changed(state.now)
            heap += [(one.end, END, one.job, one.task, one.number, None) for one in changed if one.end >= 0]
        if self._record.wake_at < NEVER:
            at = max(state.now, self._record.wake_at)
            heap.append((at, WAKE, 0, 0, 0, Woke(at)))
        heapify(heap)

    def _running_on(self, state: State, attempt: AttemptView) -> Running:
        """How an attempt continues. Its progress in the background is not known, so it counts as none."""
        job, task = attempt.job, attempt.task
        left = max(0, state.time_of(job, task, attempt.slots) - job.kept.get(task, 0))
        if attempt.tier is Tier.FOREGROUND:
            left = max(0, attempt.since + left - state.now)
        running = Running(job.id, task, attempt.number, attempt.slots, attempt.tier, state.now, left)
        self._running[job.id, task] = running
        return running

    def _feed(self, event: Event, advice_seconds: float = 0.0) -> None:
        rounds = self.scheduler.rounds
        super()._feed(event, advice_seconds)
        self._work_left -= 1
        if self.scheduler.rounds != rounds:
            state = self.scheduler.state
            for pool in state.each():
                self._work_left -= len(pool.waiting) // 100 + len(pool.promised)
        if self._work_left <= 0:
            raise _FarEnough

    def _perform(self, actions: list[Action], thought: float) -> None:
        now = self.scheduler.state.now
        for action in actions:
            if type(action) is Launch:
                self._began[action.job, action.task] = now
                if self.start[action.job] < 0:
                    self._awaits[action.job] = self._before(action)
                    self._assumed_at_start[action.job] = tuple(islice(self._assumed, ASSUMED_MAX))
            elif type(action) is Conclude:
                own = [action.job] if action.job in self._assumed else []
                assumed = dict.fromkeys((*own, *islice(self._assumed, ASSUMED_MAX)))
                self._assumed_at_end[action.job] = tuple(assumed)[:ASSUMED_MAX]
        super()._perform(actions, thought)

    def _stop(self, job: int, task: int, at: Instant, *, wasted: bool) -> None:
        running = self._running[job, task]
        if job in self._unsaid and not wasted:
            self._assumed[job] = None
        left = Awaited(job, task, (), self._began.get((job, task)), at)
        if job in self._workflows:
            self._settled[job, task] = left, running.slots
        if running.tier is Tier.FOREGROUND:
            for slot in numbers(running.slots):
                self._last[slot] = left
                if left.start is None:
                    self._first[slot] = left
        super()._stop(job, task, at, wasted=wasted)

    def _before(self, launch: Launch) -> tuple[Awaited, ...]:
        """What the task waited for: tasks it comes after, and what ran on its slots first and last; ordered by end."""
        found: dict[Awaited, list[int]] = {}
        plan = self._workflows.get(launch.job, ())
        for task in plan[launch.task].after if plan else ():
            if (launch.job, task) in self._settled:
                left, slots = self._settled[launch.job, task]
                found[left] = list(numbers(slots))
        for slot in numbers(launch.slots):
            for there in (self._first.get(slot), self._last.get(slot)):
                if there is not None and slot not in found.setdefault(there, []):
                    found[there].append(slot)
        by_end = sorted(found, key=lambda one: (one.end, one.job, one.task))
        return tuple(replace(one, slots=tuple(found[one])) for one in by_end[-AWAITED_MAX:])

    def expected(self, ids: Sequence[JobId]) -> Iterator[Expected]:
        """The results of the forecast, with the ids that the jobs have in the live state."""

        def outside(jobs: Sequence[JobId]) -> tuple[JobId, ...]:
            return tuple(ids[job] for job in jobs)

        so_far = tuple(islice(self._assumed, ASSUMED_MAX))
        for place, job in enumerate(ids):
            start, end = self.start[place], self.end[place]
            yield Expected(
                job,
                None if start == NOT_YET else start,
                None if end == NOT_YET else end,
                tuple(replace(left, job=ids[left.job]) for left in self._awaits.get(place, ())),
                outside(self._assumed_at_start.get(place, ())),
                outside(self._assumed_at_end.get(place, so_far)),
            )


def _workload(record: StateRecord) -> Workload:
    """What the simulated machines must know of the jobs: the width of each and its CPU use."""
    specs = [job.spec for job in record.jobs]
    uses = {place: spec.cpu for place, spec in enumerate(specs) if len(spec.cpu) > 1}
    return workload_us(
        release=np.zeros(len(specs), np.int64),
        runtime=np.zeros(len(specs), np.int64),
        width=[spec.width for spec in specs],
        cpu=[USE_UNKNOWN if not spec.cpu else sum(spec.cpu) / len(spec.cpu) for spec in specs],
        uses=uses,
    )
