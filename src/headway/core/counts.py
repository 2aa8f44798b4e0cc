"""Counts of jobs and slots by status. They come from the indexes: not every job or slot is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headway.core.state import State
from headway.model.actions import JobStatus
from headway.model.node import SlotStatus
from headway.model.seen import JobView
from headway.model.slots import NO_SLOTS, count


def job_counts(state: State) -> dict[JobStatus, int]:
    """How many open jobs have each status."""
    attempts = chain(state.runs(), state.runs_behind(), state.waits_behind())
    running = {attempt.job.id: attempt.job for attempt in attempts}
    suspected = {order[1] for _, _, order, _ in state.suspects} - running.keys()
    apart = sum(not state.jobs[job].all_ready for job in suspected)
    waiting = state.totals().waiting - sum(job.ready > 0 and job.goes_to is None for job in running.values()) + apart
    if state.rations:
        bounded = chain(in_line(state), state.services.values())
        waiting += sum(is_kept_back(job) and job.id not in running for job in bounded)
    return {
        JobStatus.HELD: len(state.jobs) - len(running) - waiting,
        JobStatus.WAITING: waiting,
        JobStatus.RUNNING: len(running),
    }


def in_line(state: State) -> Iterator[JobView]:
    """The jobs with ready tasks of users with bounds, but for services."""
    for ration in state.rations.values():
        for line in ration.lines.values():
            yield from line


def is_kept_back(job: JobView) -> bool:
    """Whether the bound of its user lets policies see nothing of a job that waits."""
    return job.ration is not None and not job.ready and job.all_ready > 0 and job.goes_to is None and not job.after


def slot_counts(state: State) -> dict[SlotStatus, int]:
    """How many slots of the nodes in service have each status, from the sizes of the slot sets."""
    starting = in_service = NO_SLOTS
    for attempt in state.runs():
        if not attempt.running:
            starting |= attempt.slots
    for node in state.nodes.values():
        in_service |= node.slots
    totals = state.totals()
    busy = in_service & totals.busy & ~starting
    occupied = in_service & (totals.allocated | starting) & ~busy
    available = in_service & totals.up & ~busy & ~occupied
    return {
        SlotStatus.AVAILABLE: count(available),
        SlotStatus.OCCUPIED: count(occupied),
        SlotStatus.BUSY: count(busy),
        SlotStatus.DOWN: count(in_service & ~busy & ~occupied & ~available),
    }
