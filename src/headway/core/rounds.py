"""A scheduling round: show the policy the state, check its plan against the state, carry out what passes the check.

A plan may be refused in part; each refusal is counted under the name of its rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headway.core import moving
from headway.core.pool import Pool
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId
from headway.model.plan import Allocation, Claim, Deal, Decision, Lend, Plan, Promise, Rent, Switch
from headway.model.policy import Policy
from headway.model.seen import JobView
from headway.model.tier import Tier

# Module constants, because looking up a member of an enumeration is slow.
FOREGROUND: Final = Tier.FOREGROUND
BACKGROUND: Final = Tier.BACKGROUND
FREE: Final = Claim.FREE

USER_AT_BOUND: Final = "user_at_bound"
"""The rule that refuses what is beyond the slots that a user may have at once."""


def ask(pool: Pool, policy: Policy, *, added: bool) -> tuple[Plan, Exception | None]:
    """Call the policy.

    Args:
        added: it is not one of Headway's own (`is_added`), so its plan is checked before any of it is carried out.

    Returns:
        The plan, and what the policy raised, if it raised: then the plan is empty, and running tasks continue.
    """
    try:
        plan = policy(pool)
        if not isinstance(plan, Plan):
            raise TypeError(f"the policy gave {plan!r}, which is not a plan")
        if added:
            check_types(plan)
    except Exception as raised:  # noqa: BLE001  a policy, maybe a third party's, must not take the cluster down
        pool.profile = pool.layout = None
        pool.given.clear()
        return Plan(), raised
    return plan, None


def check_types(plan: Plan) -> None:
    """Refuse a plan with parts of wrong types. So what begins to be carried out is carried out to its end.

    Raises:
        TypeError: a part is not of the type it must be, or an instant is beyond all instants.
    """
    if (type(plan.allocations), type(plan.promises)) != (list, list):
        raise TypeError("the policy gave allocations or promises that are no list")
    if not {type(plan.lends), type(plan.deals)} <= {list, tuple}:
        raise TypeError("the policy gave lends or deals that are no list")
    for wanted in plan.allocations:
        kinds = (type(wanted), type(wanted.job), type(wanted.slots), type(wanted.claim), type(wanted.tier))
        if kinds != _ALLOCATION or type(wanted.task) not in _NUMBER_OR_NONE:
            raise TypeError(f"the policy gave {wanted!r}, which is no allocation")
        if wanted.seats and (type(wanted.seats) is not tuple or {*map(type, wanted.seats)} != {int}):
            raise TypeError(f"the policy gave the seats {wanted.seats!r}, which are no numbers of slots")
        numbered = (wanted.job, wanted.task or 0, *wanted.seats)
        if wanted.slots.bit_length() > _SLOTS_MAX or max(map(abs, numbered)) > _NUMBER_MAX:
            raise TypeError("the policy gave numbers that no job, task or slot has")
    for kept in plan.promises:
        of_promise = (type(kept), type(kept.job), type(kept.start), type(kept.node))
        if of_promise != _PROMISE or abs(kept.start) > NEVER or abs(kept.job) > _NUMBER_MAX:
            raise TypeError(f"the policy gave {kept!r}, which is no promise")
    for lend in plan.lends:
        of_lend = (type(lend), type(lend.slots), type(lend.pool), type(lend.claim))
        if of_lend != _LEND or lend.slots < 0 or lend.slots.bit_length() > _SLOTS_MAX:
            raise TypeError(f"the policy gave {lend!r}, which lends no slots")
    for deal in plan.deals:
        if (type(deal), type(deal.job), type(deal.pool), type(deal.claim)) != _DEAL or abs(deal.job) > _NUMBER_MAX:
            raise TypeError(f"the policy gave {deal!r}, which deals no job")
    if type(plan.switches) not in (list, tuple):
        raise TypeError("the policy gave switches that are no list")
    for switch in plan.switches:
        if (type(switch), type(switch.node), type(switch.on)) != _SWITCH:
            raise TypeError(f"the policy gave {switch!r}, which switches no node")
    if type(plan.rents) not in (list, tuple) or type(plan.returns) not in (list, tuple):
        raise TypeError("the policy gave rents or returns that are no list")
    for rent in plan.rents:
        of_rent = (type(rent), type(rent.site), type(rent.type), type(rent.why))
        if of_rent != _RENT or type(rent.job) not in _NUMBER_OR_NONE or abs(rent.job or 0) > _NUMBER_MAX:
            raise TypeError(f"the policy gave {rent!r}, which rents no machine")
    if {*map(type, plan.returns)} - {int} or max(map(abs, plan.returns), default=0) > _NUMBER_MAX:
        raise TypeError(f"the policy gave the returns {plan.returns!r}, which are no numbers of rentals")
    if type(plan.wake) not in _NUMBER_OR_NONE or abs(plan.wake or 0) > NEVER:
        raise TypeError(f"the policy wants to be woken at {plan.wake!r}, which is no instant")


_ALLOCATION: Final = (Allocation, int, int, Claim, Tier)
_NUMBER_MAX: Final = 1 << 53
_SLOTS_MAX: Final = 1 << 24
"""Bounds of what a plan may name, so that it can be recorded; no cluster comes near."""

_LEND: Final = (Lend, int, str, Claim)
_DEAL: Final = (Deal, int, str, Claim)
_SWITCH: Final = (Switch, str, bool)
_RENT: Final = (Rent, str, str, str)
_PROMISE: Final = (Promise, int, int, str)
_NUMBER_OR_NONE: Final = (int, type(None))
"""The types that the parts of a plan must have."""


Planned = tuple[JobId, int, Instant, str]
"""A job, a task, the start that it is promised, and the node."""


def carry_out(
    pool: Pool, plan: Plan, refusals: Counter[str]
) -> tuple[list[tuple[JobId, Instant | None]], list[Planned]]:
    """Commit what a plan wants now and keep what it promises; returns the promises that have changed, also of tasks."""
    if pool.refused:
        pool.refused.clear()
    if plan.allocations:
        commit(pool, plan.allocations, refusals)
    if pool.given:
        pool.keep_runs()
    starts = promised(pool, plan)
    planned = keep_places(pool, plan)
    pool.forget_planned()
    if plan.layout is not None and not pool.refused:
        pool.layout = plan.layout
    changed = []
    for promised_to, begin in starts.items():
        job = pool.jobs.get(promised_to)
        if job is not None and job.pool is pool and not job.attempts and job.promise != begin:
            pool.promise(job, begin)
            changed.append((promised_to, begin))
    return changed, planned


def keep_places(pool: Pool, plan: Plan) -> list[Planned]:
    """Keep what a plan promises to tasks on nodes; returns what has changed."""
    changed = []
    again: dict[JobId, set[int]] = {}
    for kept in plan.promises:
        task, job = kept.task, pool.jobs.get(kept.job)
        if task is None or job is None or job.pool is not pool or not kept.node:
            continue
        if not 0 <= task < job.tasks or job.endless or task in job.attempts or job.cancelled:
            continue
        if task < job.fresh or job.graph:  # it may have ended since a decider was asked
            if job.id not in again:
                again[job.id] = {*job.again, *job.apart}
            waits = task in again[job.id] or (bool(job.missing) and job.missing[task] > 0 and task not in job.dropped)
            if not waits:
                continue
        node = pool.nodes.get(kept.node)
        start = kept.start
        if node is None or not node.slots & (pool.up | pool.off):
            start, plan.layout = NEVER, None
        if start >= NEVER:
            pool.look_at_plan(job)
        if job.planned.get(task, (NEVER,))[0] != start or (start < NEVER and job.planned[task][1] != kept.node):
            pool.plan_task(job, task, start, kept.node)
            changed.append((kept.job, task, start, kept.node))
    if changed:
        pool.layout, pool.strayed = None, False
    return changed


def carry_out_again(pool: Pool, decision: Decision, refusals: Counter[str]) -> None:
    """Do what a round decided when it was held."""
    pool.refused.clear()
    commit(pool, decision.allocations, refusals)
    pool.layout = None
    for number, task, start, node in decision.planned:
        if number in pool.jobs:
            pool.plan_task(pool.jobs[number], task, start, node)
            pool.strayed = False
    pool.forget_planned()
    for promised_to, begin in decision.promises:
        job = pool.jobs.get(promised_to)
        if job is not None and job.pool is pool:
            pool.promise(job, begin)


def promised(pool: Pool, plan: Plan) -> dict[JobId, Instant | None]:
    """The start that each job has been promised that a plan promises something; None: none any more."""
    starts: dict[JobId, Instant | None] = {}
    told: dict[JobId, set[int | None]] = {}
    for promise in plan.promises:
        job, start = promise.job, promise.start
        before = starts.get(job)
        if before is None or start < before:  # of a workflow's tasks the first to start counts
            starts[job] = start if start < NEVER else None
        if promise.node:
            told.setdefault(job, set()).add(promise.task)
    for job, tasks in told.items():  # of those that keep their promises, too
        view = pool.jobs.get(job)
        kept = [at for task, (at, _) in view.planned.items() if task not in tasks] if view is not None else []
        first = starts[job]
        starts[job] = min(kept if first is None else [first, *kept], default=None)
    return starts


def planned_by(plan: Plan) -> tuple[Planned, ...]:
    """What a plan promises to tasks on nodes, but for those that it starts."""
    starts = {(wanted.job, wanted.task) for wanted in plan.allocations}
    kept = [promise for promise in plan.promises if promise.node and (promise.job, promise.task) not in starts]
    return tuple([(one.job, one.task, one.start, one.node) for one in kept if one.task is not None])


def commit(pool: Pool, allocations: Sequence[Allocation], refusals: Counter[str]) -> None:
    """Carry out the plan's allocations: first what is given up, then what is taken."""
    for wanted in allocations if pool.allocated else ():
        job = pool.jobs.get(wanted.job)
        if job is None or job.pool is not pool or not job.held or wanted.task is not None:
            continue
        if job.held != wanted.slots or wanted.tier is BACKGROUND:
            pool.give_up(job, job.held if job.rigid else job.held & ~wanted.slots)
    for wanted in allocations:
        job = pool.jobs.get(wanted.job)
        rule = "job_unknown" if job is None or job.pool is not pool else take(pool, job, wanted, refusals)
        if rule is not None:
            refusals[rule] += 1
            pool.refused.add(wanted.job)
            pool.arrived = None  # the policy must not assume that it got all it wanted


def take(pool: Pool, job: JobView, wanted: Allocation, refusals: Counter[str]) -> str | None:
    """Give the job or task what the allocation adds; the rule that refuses it, or None."""
    slots = wanted.slots
    if job.goes_to is not None:
        return "job_leaves"
    if wanted.seats and not moving.are_seats(wanted.seats, slots):
        return "seats_differ_from_slots"
    if job.rigid and not job.attempts and not pool.limits.are_together(slots):
        slots = moving.together(pool, job.width, wanted.tier)
        if not slots:
            return "more_than_one_site"
        wanted = Allocation(job.id, slots, wanted.task, Claim.AFTER, wanted.tier)
    if job.attempts and (job.rigid or wanted.task is not None):
        attempt = job.attempts.get(wanted.task or 0)
        if attempt is not None:
            return moving.move(pool, attempt, wanted)
    gained = slots & ~job.held if job.held else slots
    given = pool.given.get((wanted.job, wanted.task or 0)) if pool.given else None
    is_counted = given is not None and given.slots is slots
    is_given = given is not None and is_counted and given.were_free and pool.giving is not None and not job.held
    if wanted.task is None:
        if not gained:
            return None
        if job.graph:
            return "workflow_tasks_are_placed_one_by_one"
        if not job.ready and (job.rigid or gained & ~job.slots):  # a bag may take back where it runs
            return USER_AT_BOUND if job.all_ready else "no_ready_task"
        if job.ration is not None and job.rigid and job.width > job.ration.room:
            return USER_AT_BOUND
        if job.rigid and (job.held or (not (is_given or is_counted) and slots.bit_count() != job.width)):
            return "width_differs"
    else:
        if job.endless:
            return "slots_are_held_by_services"
        if not pool.is_ready(job, wanted.task):
            return "task_not_ready"
        if job.ration is not None and slots.bit_count() > job.ration.room:
            return USER_AT_BOUND
        if job.rigid or (job.held & slots and wanted.tier is FOREGROUND):
            return "held_by_the_job_as_a_whole"
        gained = slots
        if not is_given and (flaw := moving.flaw_of_fit(pool, job, wanted.task, slots)):
            return flaw
    if job.release > pool.now:
        return "before_release"
    if wanted.tier is BACKGROUND:
        if wanted.task is None and not job.rigid:
            return "bags_are_held_in_the_foreground"
        if rule := moving.taken(pool, slots, wanted.tier):
            return rule
        pool.launch(job, pool.take_task(job, wanted.task), slots, False, wanted.tier, wanted.seats)
        pool.arrived = None  # it may wait for other slots now than those that were kept for it
        return None
    if not is_given and gained & pool.free != gained:
        if gained & ~pool.up:
            return "slot_down"
        if gained & pool.allocated:
            return "slot_allocated"
        if wanted.claim is FREE or (wanted.task is not None and wanted.claim is not Claim.SWAP):
            return "slot_busy"
        if wanted.claim is not Claim.SWAP:
            claim(pool, job, wanted, gained, refusals)
            return None
        if rule := moving.push_back(pool, gained):
            return rule
        if wanted.task is not None and not pool.is_ready(job, wanted.task):
            return "task_not_ready"  # it has just started on another of the slots it waited for
    if wanted.task is not None:
        pool.launch(job, pool.take_task(job, wanted.task), slots, fed=False)
    elif job.rigid and not job.held:
        pool.launch(job, pool.take_task(job), slots, fed=False, seats=wanted.seats)
        job.attempts[0].frees = job.width
    else:
        pool.own(job, gained)
        pool.feed_all(gained)
    return None


def claim(pool: Pool, job: JobView, wanted: Allocation, gained: int, refusals: Counter[str]) -> None:
    """Allocate slots on some of which something runs: it ends first, or is killed, or saved to continue elsewhere."""
    at_once = gained ^ (gained & pool.busy)
    pool.own(job, gained)
    job.seats = wanted.seats if job.rigid else ()
    for attempt in () if wanted.claim is Claim.AFTER else pool.attempts_on(gained):
        if attempt.job is job or attempt.tier is BACKGROUND:
            continue
        if wanted.claim is Claim.MIGRATE:
            if attempt.slots & pool.limits.fixed:
                refusals["nothing_moves_there"] += 1
            elif attempt.movable:
                pool.ask_to_save(attempt)
            else:
                refusals["not_movable"] += 1
        elif attempt.job.spec.preemptible:
            pool.ask_to_end(attempt)
        else:
            refusals["not_to_be_killed"] += 1
    pool.feed_all(at_once)
