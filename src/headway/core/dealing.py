"""Slots and jobs that change their pool, as the plan of a top level says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from headway.core import nodes
from headway.core.pool import Pool, pool_of
from headway.core.state import State
from headway.model.job import JobId
from headway.model.plan import Deal, Lend
from headway.model.slots import NO_SLOTS, Slots, numbers
from headway.model.snapshot import JobView, all_slots, with_slots
from headway.model.tier import Tier

MakePool = Callable[[str], Pool]
"""Makes the pool of a name, with its policy."""


def carry_out(
    state: State, lends: Sequence[Lend], deals: Sequence[Deal], make: MakePool, refusals: Counter[str]
) -> None:
    """Lend the slots, then deal the jobs. What contradicts the state is refused and counted under its rule.

    Args:
        make: makes a pool that is named for the first time.
    """
    dealt = {deal.job: deal.pool for deal in deals}
    for lend in lends:
        _lend(state, lend, dealt, make, refusals)
    for deal in deals:
        rule = _deal(state, deal)
        if rule is not None:
            refusals[rule] += 1


def merge(state: State) -> None:
    """Give all slots and jobs back to the first pool; the others do not exist any more. What runs continues."""
    for pool in state.others:
        for job in list(pool.jobs.values()):
            _move_job(job, pool, state)
        _move_slots(pool.slots, pool, state)
    state.others.clear()
    state.due.clear()
    state.pools.clear()
    state.last = ""


def _lend(state: State, lend: Lend, dealt: dict[JobId, str], make: MakePool, refusals: Counter[str]) -> None:
    target = _pool(state, lend.pool)
    if target is None:
        target = make(lend.pool)
        state.others.append(target)
        state.pools[target.name] = target
    for pool, part in state.parts(lend.slots):
        if pool is target:
            continue
        for job in _going_along(pool, part, target, dealt):
            _move_job(job, pool, target)
        taken = part & (pool.busy | pool.behind | pool.allocated)
        if taken:
            refusals["slot_busy"] += 1
        _move_slots(part & ~taken, pool, target)
    nodes.compare(state)


def _going_along(pool: Pool, part: Slots, target: Pool, dealt: dict[JobId, str]) -> list[JobView]:
    """The jobs that go to the same pool as these slots, with all that they have; others have nothing there."""
    going: list[tuple[JobView, Slots]] = []
    staying = NO_SLOTS
    queued = [attempt.job for queue in pool.ahead.values() for attempt in queue]
    for job in dict.fromkeys([*with_slots(pool), *queued]):
        if dealt.get(job.id) == target.name:
            going.append((job, all_slots(job)))
        else:
            staying |= all_slots(job)
    before = -1
    while staying != before:
        before = staying
        for entry in list(going):
            if entry[1] & staying or entry[1] & ~part:
                staying |= entry[1]
                going.remove(entry)
    return [job for job, _ in going]


def _deal(state: State, deal: Deal) -> str | None:
    """Let a pool have a job; the rule that refuses it, or None."""
    job, target = state.jobs.get(deal.job), _pool(state, deal.pool)
    if job is None:
        return "job_unknown"
    if target is None:
        return "pool_unknown"
    if job.pool is not target:
        if job.release > state.now:
            return "before_release"
        if all_slots(job):
            return "job_has_slots"
        _move_job(job, pool_of(job), target)
    target.dealt += 1
    state.last = target.name
    return None


def _pool(state: State, name: str) -> Pool | None:
    return next((pool for pool in state.each() if pool.name == name), None)


def _move_slots(slots: Slots, source: Pool, target: Pool) -> None:
    """Slots change their pool; nothing there is of a job of their old pool."""
    if not slots:
        return
    state = target.state
    up, source.slots = slots & source.up, source.slots & ~slots
    source.up &= ~slots
    source.free &= ~slots
    target.slots |= slots
    target.up |= up
    target.free |= up & ~target.busy & ~target.allocated
    for pool in (source, target):
        if pool is not state:
            has = {id(state.slot_nodes[slot]) for slot in numbers(pool.slots)}
            pool.nodes = {name: node for name, node in state.nodes.items() if id(node) in has}
    if source is not state:
        source.look_at_everything()
    target.look_at_everything()


def _move_job(job: JobView, source: Pool, target: Pool) -> None:
    """A job changes its pool, with the places it has; its slots follow."""
    state = target.state
    waits = job.release <= state.now and job.ready > 0
    if waits:
        source.wait_no_more(job)
    if job.release <= state.now and not job.cancelled:
        source.unrank(job)
    if job.promise is not None:
        source.promise(job, None)
    if source is not state:
        del source.jobs[job.id]
        source.look_at_everything()
    if target is not state:
        target.jobs[job.id] = job
    job.pool = target
    if not job.attempts and not job.held:
        if waits:
            target.arrive(job)
        elif job.release <= state.now and not job.cancelled:
            target.rank(job)
        return
    for attempt in job.attempts.values():
        if attempt.queued:
            source.ahead.pop(attempt.slots.bit_length() - 1, None)
        else:
            source.leave_place(attempt)
    held, job.held = job.held, NO_SLOTS
    for slot in numbers(held):
        del source.owners[slot]
    source.allocated &= ~held
    for _, attempt in sorted(job.attempts.items()):
        if attempt.queued:
            target.queue_ahead(attempt)
        else:
            target.take_place(attempt)
        if attempt.goal is not None and attempt.goal.tier is Tier.BACKGROUND:
            source.behind &= ~attempt.goal.slots
            target.behind |= attempt.goal.slots
    target.own(job, held)
    if waits:
        target.wait(job)
    if job.release <= state.now and not job.cancelled:
        target.rank(job)
    target.look_at_everything()
