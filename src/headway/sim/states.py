"""A dumped state as the beginning of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import TaskKey
from headway.model.node import NodeSpec
from headway.model.seen import USE_UNKNOWN
from headway.model.workload import Workload, workload_us

if TYPE_CHECKING:
    from headway.core.record import AttemptRecord, JobRecord, NodeRecord, PoolRecord, StateRecord


class Origin:
    """A state with which many simulations begin; what all of them need of it is worked out once.

    Args:
        state: as `Scheduler.dump` gives it.

    Attributes:
        state: the same.
        quiet: the state as a simulation continues from it.
        fleet: its nodes.
        begun: the tasks that their nodes have reported to run, so that they do not wait for their site any more.
    """

    def __init__(self, state: StateRecord) -> None:
        from headway.core.record import fleet_of  # a simulation from the start loads no records of states

        self.state = state
        self.quiet = _quiet(state)
        self.fleet = fleet_of(self.quiet)
        self.begun = _reported(state) if state.sites else frozenset[TaskKey]()

    @staticmethod
    def of(state: StateRecord | Origin) -> Origin:
        """That of a state, or itself."""
        return state if isinstance(state, Origin) else Origin(state)


def _quiet(record: StateRecord) -> StateRecord:
    """The state from which a simulation continues.

    Nodes send no heartbeats and report no starts. What was launched and has not begun, in the queue of a batch system
    perhaps, begins now, or when its site's time is over. Attempts that were launched ahead of their turn wait instead.
    The decider is left out; if there was one, a round of the policy is due.
    """
    is_advised = bool(record.decider) and not record.decider_failed
    waits = any(not attempt.running for job in record.jobs for attempt in job.attempts)
    startups = _startups(record) if waits else {}
    return replace(
        record,
        nodes=tuple(map(_quiet_node, record.nodes)),
        departed=tuple(map(_quiet_node, record.departed)),
        jobs=tuple(_quiet_job(job, record.now, startups) for job in record.jobs),
        arrived=None if is_advised else record.arrived,
        pools=tuple(_advised_pool(pool) for pool in record.pools) if is_advised else record.pools,
        decider="",
        question=None,
        round_due=record.round_due or is_advised,
        wake_at=record.now if is_advised else record.wake_at,
    )


def quiet_spec(spec: NodeSpec) -> NodeSpec:
    """A node of a simulation. In virtual time messages take no time: nothing is read ahead, no heartbeat is needed."""
    return replace(spec, read_ahead=0, lease=None, reports_start=False)


def _advised_pool(pool: PoolRecord) -> PoolRecord:
    return replace(pool, arrived=None, round_due=True)


def _quiet_node(node: NodeRecord) -> NodeRecord:
    spec = node.spec
    if not spec.read_ahead and spec.lease is None and not spec.reports_start and node.heard_until == NEVER:
        return node  # as all of a simulation are: to copy thousands takes a good part of a forecast
    return replace(node, spec=quiet_spec(node.spec), heard_until=NEVER)


def _startups(record: StateRecord) -> dict[int, Duration]:
    """How long each slot is held before work begins there."""
    from headway.core.record import placed

    sites = {site.name: site.startup for site in record.sites}
    return {slot: sites.get(node.spec.site, 0) for node, places in placed(record) for slot in places}


def _quiet_job(job: JobRecord, now: Instant, startups: Mapping[int, Duration]) -> JobRecord:
    if not job.spec.fetches and all(attempt.running and not attempt.queued for attempt in job.attempts):
        return job  # nearly all are: to copy them takes a good part of a future
    queued = [attempt.task for attempt in job.attempts if attempt.queued]
    attempts = tuple(_begun(attempt, now, startups) for attempt in job.attempts if not attempt.queued)
    again = tuple(sorted((*(job.again or ()), *queued))) if queued else job.again
    return replace(job, spec=replace(job.spec, fetches=False), attempts=attempts, again=again)


def _begun(attempt: AttemptRecord, now: Instant, startups: Mapping[int, Duration]) -> AttemptRecord:
    """An attempt that runs. What has had its slots for longer than its site's time, and has not begun, begins now."""
    if attempt.running:
        return attempt
    later = max(0, now - max(startups[slot] for slot in attempt.slots) - attempt.start)
    since = None if attempt.since is None else attempt.since + later
    return replace(
        attempt, running=True, start=attempt.start + later, expected_end=attempt.expected_end + later, since=since
    )


def crowd(record: StateRecord, arrivals: Workload) -> Workload:
    """What machines must know of the jobs of a state, and of those that come later: width and CPU use of each."""
    specs, there = [job.spec for job in record.jobs], len(record.jobs)
    uses = {place: spec.cpu for place, spec in enumerate(specs) if len(spec.cpu) > 1}
    uses |= {there + position: use for position, use in arrivals.uses.items()}
    known = [USE_UNKNOWN if not spec.cpu else sum(spec.cpu) / len(spec.cpu) for spec in specs]
    jobs = there + len(arrivals)
    return workload_us(
        release=np.zeros(jobs, np.int64),
        runtime=np.zeros(jobs, np.int64),
        width=[*(spec.width for spec in specs), *arrivals.width.tolist()],
        cpu=[*known, *arrivals.cpu.tolist()],
        uses=uses,
    )


def _reported(state: StateRecord) -> frozenset[TaskKey]:
    from headway.core.record import placed

    reporting = {slot for node, places in placed(state) if node.spec.reports_start for slot in places}
    return frozenset(
        (job.spec.id, attempt.task)
        for job in state.jobs
        for attempt in job.attempts
        if attempt.running and not attempt.queued and not reporting.isdisjoint(attempt.slots)
    )
