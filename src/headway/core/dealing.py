"""Slots and jobs that change their pool, as the plan of a top level says.

What is free goes at once, and so does a job together with all slots that it has. Anything else goes when what runs
there has ended (claims `AFTER`, `KILL`, `MIGRATE`). Until then the slots are *leaving* and take nothing new, and the
job is *departing*, so that nothing more of it starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from headway.core import nodes
from headway.core.pool import Pool, pool_of
from headway.core.state import State
from headway.model.job import JobId
from headway.model.plan import Claim, Deal, Lend
from headway.model.seen import AttemptView, JobView, all_slots
from headway.model.slots import NO_SLOTS, Slots, numbers
from headway.model.snapshot import with_slots
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
        rule = _deal(state, deal, refusals)
        if rule is not None:
            refusals[rule] += 1


def settle(state: State) -> None:
    """Let those slots and jobs go that wait for an end, where it has come."""
    state.unsettled = False
    for pool in state.each():
        for name, slots in list(pool.leaving.items()):
            idle = slots & ~(pool.busy | pool.behind)
            if idle:
                _stay(pool, idle)
                target = _pool(state, name)
                _move_slots(idle, pool, state if target is None else target)
                nodes.compare(state)
        for job in list(pool.departing.values()):
            if not job.attempts:
                target = _pool(state, job.goes_to or "")
                _move_job(job, pool, state if target is None else target)
        state.unsettled = state.unsettled or bool(pool.leaving or pool.departing)


def merge(state: State) -> None:
    """Give all slots and jobs back to the first pool; the others do not exist any more. What runs continues."""
    for pool in state.each():
        _stay(pool, pool.slots)
        for job in list(pool.departing.values()):
            _remain(pool, job)
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
        _stay(pool, part)
        if pool is target:
            continue
        for job in _going_along(pool, part, target, dealt):
            _move_job(job, pool, target)
        taken = part & (pool.busy | pool.behind | pool.allocated)
        _move_slots(part & ~taken, pool, target)
        if taken and lend.claim in _CLAIMS:
            _let_leave(pool, taken, target.name, lend.claim, refusals)
        elif taken:
            refusals["slot_busy"] += 1
    nodes.compare(state)
    settle(state)


_CLAIMS: Final = (Claim.AFTER, Claim.KILL, Claim.MIGRATE)


def _let_leave(pool: Pool, slots: Slots, name: str, claim: Claim, refusals: Counter[str]) -> None:
    """Start nothing more on these slots; they go to another pool when what runs there has ended."""
    pool.close_slots(slots)
    pool.leaving[name] = pool.leaving.get(name, NO_SLOTS) | slots
    for attempt in pool.attempts_on(slots):
        _urge(pool, attempt, claim, refusals)


def _urge(pool: Pool, attempt: AttemptView, claim: Claim, refusals: Counter[str]) -> None:
    """Ask an attempt to end as a claim says."""
    if claim is Claim.MIGRATE and attempt.slots & pool.limits.fixed:
        refusals["nothing_moves_there"] += 1
    elif claim is Claim.MIGRATE and attempt.movable:
        pool.ask_to_save(attempt)
    elif claim is Claim.MIGRATE:
        refusals["not_movable"] += 1
    elif claim is Claim.KILL and attempt.job.spec.preemptible:
        pool.ask_to_end(attempt)
    elif claim is Claim.KILL:
        refusals["not_to_be_killed"] += 1


def _stay(pool: Pool, slots: Slots) -> None:
    """These slots do not leave any more."""
    back = NO_SLOTS
    for name, leaving in list(pool.leaving.items()):
        back |= leaving & slots
        pool.leaving[name] = leaving & ~slots
        if not pool.leaving[name]:
            del pool.leaving[name]
    if back:
        pool.open_slots(_usable(pool.state, back))


def _let_depart(pool: Pool, job: JobView, name: str, claim: Claim, refusals: Counter[str]) -> None:
    """Start nothing more of a job; it goes to another pool when what runs of it has ended."""
    pool.step_out(job)
    if job.ready:
        pool.wait_no_more(job)
    if not job.cancelled:
        pool.unrank(job)
    if job.promise is not None:
        pool.promise(job, None)
    for attempt in job.attempts.values():
        if attempt.goal is not None:
            pool.leave_goal(attempt, attempt.goal)
    pool.give_up(job, job.held)
    pool.unplan_job(job)
    job.goes_to = name
    pool.departing[job.id] = job
    for _, attempt in sorted(job.attempts.items()):
        attempt.fed = attempt.fed and attempt.queued  # its slot goes to nobody's next task
        _urge(pool, attempt, claim, refusals)
    pool.look_at_everything()


def _remain(pool: Pool, job: JobView) -> None:
    """A job does not depart any more."""
    del pool.departing[job.id]
    job.goes_to = None
    if job.ready:
        pool.wait(job)
    if not job.cancelled:
        pool.rank(job)
    pool.look_at_plan(job)
    pool.look_at_everything()


def _usable(state: State, slots: Slots) -> Slots:
    """Those of these slots that could be allocated."""
    found = NO_SLOTS
    for node in {id(node): node for node in (state.slot_nodes[slot] for slot in numbers(slots))}.values():
        if node.is_open and state.nodes.get(node.spec.name) is node:
            found |= slots & node.slots & ~node.closing
    return found


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


def _deal(state: State, deal: Deal, refusals: Counter[str]) -> str | None:
    """Let a pool have a job; the rule that refuses it, or None."""
    job, target = state.jobs.get(deal.job), _pool(state, deal.pool)
    if job is None:
        return "job_unknown"
    if target is None:
        return "pool_unknown"
    pool = pool_of(job)
    if job.goes_to is not None:
        _remain(pool, job)
    if pool is not target:
        if job.release > state.now:
            return "before_release"
        if not all_slots(job):
            _move_job(job, pool, target)
        elif deal.claim in _CLAIMS:
            _let_depart(pool, job, target.name, deal.claim, refusals)
            settle(state)
        else:
            return "job_has_slots"
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
    up = _usable(state, slots)
    source.forget_counts()
    target.forget_counts()
    source.unplan_all(slots)
    target.plan_anew()
    source.slots &= ~slots
    source.up &= ~slots
    source.free &= ~slots
    target.slots |= slots
    target.up |= up
    target.free |= up & ~target.busy & ~target.allocated
    for pool in (source, target):
        if pool is not state:
            has = {id(state.slot_nodes[slot]) for slot in numbers(pool.slots)}
            pool.nodes = {name: node for name, node in state.nodes.items() if id(node) in has}
    state.of_slots = None
    if source is not state:
        source.look_at_everything()
    target.look_at_everything()


def _move_job(job: JobView, source: Pool, target: Pool) -> None:
    """A job changes its pool, with the places it has; its slots follow."""
    state = target.state
    source.step_out(job)
    if job.goes_to is not None:
        del source.departing[job.id]
    waits = job.release <= state.now and job.ready > 0
    if waits:
        source.wait_no_more(job)
    if job.release <= state.now and not job.cancelled:
        source.unrank(job)
    job.goes_to = None
    job.dealt_from = "" if state in (source, target) else source.name
    source.unplan_job(job)
    if job.promise is not None:
        source.promise(job, None)
    if source is not state:
        del source.jobs[job.id]
        source.look_at_everything()
    if target is not state:
        target.jobs[job.id] = job
    job.pool = target
    target.meet(job.kind)
    target.look_at_plan(job)
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
    held = job.held
    source.forget_owner(job, held)
    job.held = NO_SLOTS
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
