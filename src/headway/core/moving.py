"""Attempts that change from one place of their slots to the other, or move to other slots (MEASY14).

A change of the tier restarts nothing. A move ends the attempt, killed or saved, and the next attempt starts at its
goal; until then the places there are kept for it.
"""

from __future__ import annotations

from operator import itemgetter

from headway.core.pool import Pool
from headway.model.instant import NEVER, Instant
from headway.model.job import Kind
from headway.model.plan import Allocation, Claim
from headway.model.seen import AttemptView, Goal, JobView
from headway.model.slots import NO_SLOTS, Slots, count, lowest, outside
from headway.model.tier import Tier


def move(pool: Pool, attempt: AttemptView, wanted: Allocation) -> str | None:
    """Bring a running attempt to the place that the allocation names; returns the rule that refuses it, or None."""
    if attempt.fed:
        return "held_by_the_job_as_a_whole"
    if attempt.alone:
        return "runs_alone"
    restarts = attempt.pinned and wanted.claim in (Claim.MIGRATE, Claim.KILL)
    if wanted.slots == attempt.slots and (wanted.tier is attempt.tier or not restarts):
        return None if wanted.tier is attempt.tier else change(pool, attempt, wanted.claim)
    if attempt.ending:
        goal = attempt.goal
        under_way = goal is not None and (goal.slots, goal.tier) == (wanted.slots, wanted.tier)
        return None if under_way else "ends_already"
    given = pool.given.get((attempt.job.id, attempt.task)) if pool.given else None
    if given is not None and given.slots is not wanted.slots:
        given = None
    is_free = given is not None and given.were_free and pool.giving is not None and wanted.tier is Tier.FOREGROUND
    if not is_free and (rule := flaw_of_fit(pool, attempt.job, attempt.task, wanted.slots)):
        return rule
    if attempt.job.rigid and not pool.limits.are_together(wanted.slots):
        return "more_than_one_site"
    ration = attempt.job.ration
    if ration is not None and count(wanted.slots) - count(attempt.slots) > ration.room:
        return "user_at_bound"
    if wanted.claim is Claim.MIGRATE and attempt.slots & pool.limits.fixed:
        return "nothing_moves_there"
    if wanted.claim is Claim.MIGRATE and not attempt.movable:
        return "not_movable"
    if wanted.claim is Claim.KILL and not attempt.job.spec.preemptible:
        return "not_to_be_killed"
    if wanted.claim not in (Claim.MIGRATE, Claim.KILL):
        return "moves_by_kill_or_migrate"
    here = attempt.slots if wanted.tier is attempt.tier else 0
    if not is_free and (rule := taken(pool, outside(wanted.slots, here), wanted.tier)):
        return rule
    if wanted.tier is Tier.FOREGROUND:
        if wanted.slots & pool.allocated:  # some of its own slots, too, may be another's when it ends
            return "slot_allocated"
        pool.own(attempt.job, wanted.slots)
    else:
        pool.behind |= wanted.slots
    attempt.goal = Goal(wanted.slots, wanted.tier, wanted.seats)
    if given is not None:
        attempt.goal.bounds = given.bounds
    if wanted.claim is Claim.MIGRATE:
        pool.ask_to_save(attempt)
    else:
        pool.ask_to_end(attempt)
    return None


def flaw_of_fit(pool: Pool, job: JobView, task: int, slots: int) -> str | None:
    """Why a task cannot run on exactly these slots: a bag's task needs one, a workflow's its cores of one node."""
    if not slots or slots & pool.up != slots:
        return "slot_down"
    if job.kind is Kind.BAG:
        return None if slots == 1 << slots.bit_length() - 1 else "width_differs"
    if not job.graph:
        return None if slots.bit_count() == job.width else "width_differs"
    node = pool.slot_nodes[slots.bit_length() - 1]
    if slots & ~node.slots:
        return "more_than_one_node"
    return None if slots.bit_count() == node.spec.slots_for(job.graph[task].cores) else "width_differs"


def taken(pool: Pool, slots: Slots, tier: Tier) -> str | None:
    """The rule that forbids taking these places now, or None."""
    if slots & pool.up != slots:
        return "slot_down"
    if tier is Tier.BACKGROUND:
        if slots & pool.limits.one_tier:
            return "no_background_there"
        return "background_taken" if slots & pool.behind else None
    if slots & pool.allocated:
        return "slot_allocated"
    return "slot_busy" if slots & pool.busy else None


def change(pool: Pool, attempt: AttemptView, claim: Claim) -> str | None:
    """Give an attempt the other place of its slots; returns the rule that refuses it, or None."""
    if attempt.ending:
        return "ends_already"
    if attempt.pinned:
        return "tier_refused"
    slots, exchanged = attempt.slots, [attempt]
    rule = taken(pool, slots, Tier.BACKGROUND if attempt.tier is Tier.FOREGROUND else Tier.FOREGROUND)
    if rule == "slot_busy" and claim is Claim.SWAP:
        displaced = [one for one in pool.attempts_on(slots) if one.tier is Tier.FOREGROUND]
        exchanged, rule = [*displaced, attempt], stays(pool, displaced, slots)
    if rule is None:
        pool.change_tiers(exchanged)
    return rule


def together(pool: Pool, width: int, tier: Tier) -> Slots:
    """The slots that the members of a rigid job can have together soonest, by expected ends; none if too few are up.

    In the background, only what can be had now.
    """
    limits = pool.limits
    idle = outside(pool.up, pool.behind | limits.one_tier) if tier is Tier.BACKGROUND else pool.free
    fitting = limits.together(idle, width)
    if fitting or tier is Tier.BACKGROUND:
        return lowest(min(fitting, key=count, default=NO_SLOTS), width)
    to_be_had = [_soonest(pool, part, width) for part in limits.together(outside(pool.up, pool.allocated), width)]
    return min(to_be_had, key=itemgetter(0), default=(NEVER, NO_SLOTS))[1]


def _soonest(pool: Pool, part: Slots, width: int) -> tuple[Instant, Slots]:
    """So many of these slots, those that are free and those that are expected to be free soonest, and when all are."""
    found = part & pool.free
    for end, _, _, attempt in pool.running:
        if end == NEVER:
            break
        found |= lowest(part & attempt.slots, width - count(found))
        if count(found) == width:
            return end, found
    return NEVER, NO_SLOTS


def push_back(pool: Pool, slots: Slots) -> str | None:
    """Send what runs in the foreground of these slots to the background; returns the rule that refuses it, or None."""
    displaced = [attempt for attempt in pool.attempts_on(slots) if attempt.tier is Tier.FOREGROUND]
    rule = stays(pool, displaced)
    if rule is None:
        pool.change_tiers(displaced)
    return rule


def stays(pool: Pool, displaced: list[AttemptView], leaving: Slots = NO_SLOTS) -> str | None:
    """The rule by which one of these attempts cannot go to the background of its slots, or None.

    Args:
        leaving: background places that are given up for them.
    """
    for attempt in displaced:
        if attempt.fed or attempt.pinned or attempt.ending:
            return "not_to_be_pushed_back"
        if attempt.slots & pool.limits.one_tier:
            return "no_background_there"
        if outside(attempt.slots & pool.behind, leaving):
            return "background_taken"
    return None


def bring_forward(pool: Pool) -> None:
    """Bring attempts to the foreground of their slots where possible, because the new policy uses no background."""
    for attempt in list(pool.background):
        if not attempt.ending and not attempt.pinned and not attempt.slots & ~pool.free:
            pool.change_tiers([attempt])


def put_back(pool: Pool, attempt: AttemptView) -> None:
    """An attempt could not get the place that the state gives it: it goes back to its old one, or ends if that is
    taken.

    It also ends if it was put back before. An attempt that is already ending leaves its place in any case.
    """
    refused_before, attempt.pinned = attempt.pinned, True
    if not attempt.ending:
        pool.look_at_everything()
        old = Tier.BACKGROUND if attempt.tier is Tier.FOREGROUND else Tier.FOREGROUND
        others = pool.behind if old is Tier.BACKGROUND else pool.busy | pool.allocated
        if refused_before or attempt.slots & others:
            pool.ask_to_end(attempt)
        else:
            pool.change_tiers([attempt])


def are_seats(seats: tuple[int, ...], slots: Slots) -> bool:
    """Whether these are the numbers of these slots, each once."""
    return len(set(seats)) == len(seats) == count(slots) and all(seat >= 0 and slots >> seat & 1 for seat in seats)
