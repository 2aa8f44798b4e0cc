"""Who changes from one place of its slots to the other, and who moves to other slots (MEASY14).

Nothing is restarted by a change of the tier. A move ends the attempt, killed or saved, and the next attempt starts at
its goal: until then the places there are kept for it.
"""

from __future__ import annotations

from headway.core.state import State
from headway.model.job import Kind
from headway.model.plan import Allocation, Claim
from headway.model.slots import NO_SLOTS, Slots, of_numbers
from headway.model.snapshot import AttemptView, Goal
from headway.model.tier import Tier


def move(state: State, attempt: AttemptView, wanted: Allocation) -> str | None:
    """Bring a running attempt to the place that the allocation names; the rule that refuses it, or None."""
    if attempt.fed:
        return "held_by_the_job_as_a_whole"
    if wanted.slots == attempt.slots:
        return None if wanted.tier is attempt.tier else change(state, attempt, wanted.claim)
    if attempt.job.kind is not Kind.RIGID:
        return "only_rigid_jobs_move"
    if attempt.ending:
        return "ends_already"
    if wanted.slots.bit_count() != attempt.job.width:
        return "width_differs"
    if wanted.claim is Claim.MIGRATE and not attempt.movable:
        return "not_movable"
    if wanted.claim is Claim.KILL and not attempt.job.spec.preemptible:
        return "not_to_be_killed"
    if wanted.claim not in (Claim.MIGRATE, Claim.KILL):
        return "moves_by_kill_or_migrate"
    here = attempt.slots if wanted.tier is attempt.tier else 0
    if rule := taken(state, wanted.slots & ~here, wanted.tier):
        return rule
    if wanted.tier is Tier.FOREGROUND:
        state.own(attempt.job, wanted.slots)
    else:
        state.behind |= wanted.slots
    attempt.goal = Goal(wanted.slots, wanted.tier, wanted.seats)
    if wanted.claim is Claim.MIGRATE:
        state.ask_to_save(attempt)
    else:
        state.ask_to_end(attempt)
    return None


def taken(state: State, slots: Slots, tier: Tier) -> str | None:
    """The rule that keeps these places from being taken now, or None."""
    if slots & ~state.up:
        return "slot_down"
    if tier is Tier.BACKGROUND:
        return "background_taken" if slots & state.behind else None
    if slots & state.allocated:
        return "slot_allocated"
    return "slot_busy" if slots & state.busy else None


def change(state: State, attempt: AttemptView, claim: Claim) -> str | None:
    """Give an attempt the other place of its slots; the rule that refuses it, or None."""
    if attempt.ending:
        return "ends_already"
    if attempt.pinned:
        return "tier_refused"
    slots, exchanged = attempt.slots, [attempt]
    rule = taken(state, slots, Tier.BACKGROUND if attempt.tier is Tier.FOREGROUND else Tier.FOREGROUND)
    if rule == "slot_busy" and claim is Claim.SWAP:
        displaced = [one for one in state.attempts_on(slots) if one.tier is Tier.FOREGROUND]
        exchanged, rule = [*displaced, attempt], stays(state, displaced, slots)
    if rule is None:
        state.change_tiers(exchanged)
    return rule


def push_back(state: State, slots: Slots) -> str | None:
    """Send what runs in the foreground of these slots to the background; the rule that refuses it, or None."""
    displaced = [attempt for attempt in state.attempts_on(slots) if attempt.tier is Tier.FOREGROUND]
    rule = stays(state, displaced)
    if rule is None:
        state.change_tiers(displaced)
    return rule


def stays(state: State, displaced: list[AttemptView], leaving: Slots = NO_SLOTS) -> str | None:
    """The rule by which one of these attempts cannot go to the background of its slots, or None.

    Args:
        leaving: background places that are given up for them.
    """
    for attempt in displaced:
        if attempt.fed or attempt.pinned or attempt.ending:
            return "not_to_be_pushed_back"
        if attempt.slots & state.behind & ~leaving:
            return "background_taken"
    return None


def put_back(state: State, attempt: AttemptView) -> None:
    """An attempt could not be given the place it has by the state: it gets its old one, or ends if that is taken."""
    attempt.pinned = True
    old = Tier.BACKGROUND if attempt.tier is Tier.FOREGROUND else Tier.FOREGROUND
    if taken(state, attempt.slots, old):
        state.ask_to_end(attempt)
    else:
        state.change_tiers([attempt])
    state.look_at_everything()


def are_seats(seats: tuple[int, ...], slots: Slots) -> bool:
    """Whether these are the numbers of these slots, each once."""
    return len(seats) == slots.bit_count() and of_numbers(seats) == slots
