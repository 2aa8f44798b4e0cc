"""The whole state as plain frozen values: what a stored snapshot holds, and what two states are compared by."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from heapq import heappush

from headway.core.state import State, followers
from headway.model.instant import Duration, Instant
from headway.model.job import JobId, JobSpec
from headway.model.node import NodeSpec
from headway.model.slots import numbers, span
from headway.model.snapshot import AttemptView, JobView, NodeView


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt that holds slots; `slots` as slot numbers."""

    task: int
    number: int
    slots: tuple[int, ...]
    start: Instant
    expected_end: Instant
    fed: bool
    ending: bool
    running: bool
    queued: bool


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job in the system and how far it is; counts by task as pairs."""

    spec: JobSpec
    estimate: Duration
    priority: float
    due: Instant
    ready: int
    fresh: int
    again: tuple[int, ...]
    unfinished: int
    attempts: tuple[AttemptRecord, ...]
    held: tuple[int, ...]
    promise: Instant | None
    missing: tuple[int, ...]
    tries: tuple[tuple[int, int], ...]
    failures: tuple[tuple[int, int], ...]
    losses: tuple[tuple[int, int], ...]
    ended: int
    spent: Duration
    failed: bool
    cancelled: bool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node and the number of its first slot."""

    spec: NodeSpec
    first: int
    up: bool
    draining: bool
    heard_until: Instant


@dataclass(frozen=True, slots=True)
class StateRecord:
    """Everything the core knows at an instant, between two events."""

    now: Instant
    policy: str
    estimate_default: Duration
    period: Duration | None
    wake_at: Instant
    round_at: Instant
    round_due: bool
    arrived: tuple[JobId, ...] | None
    jobs: tuple[JobRecord, ...]
    nodes: tuple[NodeRecord, ...]
    departed: tuple[NodeRecord, ...]
    rounds: int
    ignored: int
    refusals: tuple[tuple[str, int], ...]


def job_record(job: JobView) -> JobRecord:
    """One job as plain values."""
    return JobRecord(
        spec=job.spec,
        estimate=job.estimate,
        priority=job.priority,
        due=job.due,
        ready=job.ready,
        fresh=job.fresh,
        again=tuple(sorted(job.again)),
        unfinished=job.unfinished,
        attempts=tuple(
            AttemptRecord(
                attempt.task,
                attempt.number,
                tuple(numbers(attempt.slots)),
                attempt.start,
                attempt.expected_end,
                attempt.fed,
                attempt.ending,
                attempt.running,
                attempt.queued,
            )
            for _, attempt in sorted(job.attempts.items())
        ),
        held=tuple(numbers(job.held)),
        promise=job.promise,
        missing=tuple(job.missing),
        tries=tuple(sorted(job.tries.items())),
        failures=tuple(sorted(job.failures.items())),
        losses=tuple(sorted(job.losses.items())),
        ended=job.ended,
        spent=job.spent,
        failed=job.failed,
        cancelled=job.cancelled,
    )


def node_record(node: NodeView) -> NodeRecord:
    """One node as plain values."""
    return NodeRecord(node.spec, node.first, node.up, node.draining, node.heard_until)


def restore_nodes(state: State, record: StateRecord) -> None:
    """Lay the nodes anew into an empty state, each with the slot numbers it had."""
    size = max((node.first + node.spec.slots for node in (*record.nodes, *record.departed)), default=0)
    views = [
        NodeView(kept.spec, kept.first, span(kept.first, kept.spec.slots)) for kept in (*record.departed, *record.nodes)
    ]
    filler = views[0] if views else None
    state.slot_nodes = [filler] * size if filler is not None else []
    state.speeds = [1.0] * size
    for kept, node in zip((*record.departed, *record.nodes), views, strict=True):
        node.up, node.draining, node.heard_until = kept.up, kept.draining, kept.heard_until
        state.slot_nodes[kept.first : kept.first + kept.spec.slots] = [node] * kept.spec.slots
        state.speeds[kept.first : kept.first + kept.spec.slots] = [kept.spec.speed] * kept.spec.slots
    state.departed = views[: len(record.departed)]
    for node in views[len(record.departed) :]:
        state.nodes[node.spec.name] = node
        state.starts_reported = state.starts_reported or node.spec.reports_start
        state.draining = state.draining or node.draining
        if node.up and not node.draining:
            state.up |= node.slots
    state.uniform = all(node.spec.speed == 1.0 for node in state.nodes.values())


def restore_job(state: State, record: JobRecord) -> None:
    """Put one job back, with what it holds and runs, into a state whose nodes are there."""
    job = JobView(record.spec, record.estimate)
    job.priority, job.due, job.promise = record.priority, record.due, record.promise
    job.ready, job.fresh, job.again = record.ready, record.fresh, list(record.again)
    job.ended, job.spent = record.ended, record.spent
    job.unfinished, job.failed, job.cancelled = record.unfinished, record.failed, record.cancelled
    job.missing = list(record.missing)
    job.followers = followers(record.spec)
    job.tries, job.failures, job.losses = dict(record.tries), dict(record.failures), dict(record.losses)
    for kept in record.attempts:
        slots = sum(1 << slot for slot in kept.slots)
        attempt = AttemptView(job, kept.task, kept.number, slots, kept.start, kept.expected_end, kept.fed)
        attempt.ending, attempt.running, attempt.queued = kept.ending, kept.running, kept.queued
        job.attempts[kept.task] = attempt
        if kept.queued:
            state.ahead.setdefault(kept.slots[0], []).append(attempt)
        else:
            insort(state.running, (kept.expected_end, job.id, kept.task, attempt))
            state.busy |= slots
    state.jobs[job.id] = job
    state.own(job, sum(1 << slot for slot in record.held))
    if job.release > state.now:
        heappush(state.release_queue, job.order)
    elif job.ready:
        state.wait(job)
