"""Rented machines: what plans want of them, within the budgets, and a rule beneath every policy that gives them back.

A plan says which machines are wanted (`plan.rent`), and may say which are not any more (`plan.give_back`). The core
refuses what is not offered, what is over the limit of its offer, and what a budget has no room for. What is asked for
is numbered. Its cost counts in the budgets before the driver asks for it: first what is billed at least, then, before
that is over, what comes next (`Offer.step`). So no budget can be exceeded, however often a driver asks again after a
crash: with one number there is one machine.

After the rounds of an event, the rule looks at each rented machine:

- One on which nothing runs is given back when more would have to be paid for it.
- One on which something runs is paid for longer. If a budget has no room for that, it is given back at once, with what
  runs there.
- One that has not joined long after it should have (`Renting.limit`) is given back, and counted.

A machine that is lost, or that its site wants back, is given back, too. What was asked for and has not come is not
asked for again for a while, which grows (`again_after`). So it is of what has ended by itself more than once since one
was given back in order. A machine that is being given back is paid until that is known to be done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headway.core import leases, nodes, suspects
from headway.core.pool import pool_of
from headway.core.state import State
from headway.core.switching import is_idle
from headway.model.actions import RentMachine
from headway.model.instant import NEVER, Instant
from headway.model.outcome import Outcome
from headway.model.plan import Rent, RentalRuling
from headway.model.renting import WHY_MAX, Rental, RentalStage, Renting, node_name
from headway.model.seen import NodeView

ASKED: Final = RentalStage.ASKED
STARTS: Final = RentalStage.STARTS
SERVES: Final = RentalStage.SERVES
ENDS: Final = RentalStage.ENDS
RETURNS: Final = RentalStage.RETURNS


def choose(state: State, renting: Renting) -> None:
    """From now on this can be rented."""
    state.rents = True
    state.market.renting = renting


# What plans want


def carry_out(state: State, rents: Sequence[Rent], returns: Sequence[int], refusals: Counter[str]) -> None:
    """Give back and rent what a plan wants; what cannot be is refused, and counted under its rule."""
    for number in returns:
        rental = state.market.rentals.get(number)
        if rental is None or rental.is_over:
            refusals["rental_unknown"] += 1
        else:
            end(state, rental)
    for wanted in rents:
        rule = _rent(state, wanted)
        if rule is not None:
            refusals[rule] += 1
    if returns:
        _look_at_suspects(state)


def _look_at_suspects(state: State) -> None:
    """Nodes have left, maybe such as were set apart."""
    if state.suspects or state.isolations:
        suspects.advance(state)


def _rent(state: State, wanted: Rent) -> str | None:
    """Ask for a machine; the rule that refuses it, or None."""
    market, now = state.market, state.now
    offer = market.offer(wanted.site, wanted.type)
    if offer is None:
        return "offer_unknown"
    user = ""
    if wanted.job is not None:
        if wanted.job not in state.jobs:
            return "job_unknown"
        user = state.jobs[wanted.job].spec.user
    if not market.can_be_had(offer, now):
        return "offer_not_to_be_had"
    number = market.count + 1
    while node_name(offer.site, number) in state.nodes:  # a node of somebody else
        number += 1
    rental = Rental(number, offer, wanted.job, user, wanted.why[:WHY_MAX], now)
    room = market.room(wanted.job, now)
    if room is not None and rental.committed > room:
        return "over_budget"
    market.count = number
    if wanted.job is not None:
        market.by_job.setdefault(wanted.job, 0)
    market.rentals[rental.number] = market.nodes[rental.node] = rental
    market.pay(rental, rental.committed, now)
    state.actions.append(RentMachine(rental.number, offer.site, offer.type, rental.node))
    return None


def end(state: State, rental: Rental, *, at_once: bool = False) -> None:
    """Give a machine back: as soon as nothing runs there, or at once with what does."""
    node = state.nodes.get(rental.node)
    if rental.stage is RETURNS:
        return
    if node is None:
        state.hand_back(rental)
        return
    rental.stage = ENDS
    if not node.draining:
        node.draining = state.draining = True
        state.close_all(node.slots)
        nodes.shed(state, node)
    if at_once and state.nodes.get(rental.node) is node:
        leases.take_down(state, node, Outcome.KILLED)


# What happens to machines


def has_joined(state: State, node: NodeView) -> None:
    """A node has joined that may be a rented machine. One that came too late has left again."""
    rental = state.market.nodes.get(node.spec.name)
    if rental is None:
        return
    if rental.is_over:
        node.draining = state.draining = True
        leases.take_down(state, node, Outcome.KILLED)
    else:
        rental.stage = SERVES
        state.market.has_come(rental.offer)


def has_begun(state: State, number: int, machine: str) -> bool:
    """There is a machine. Returns whether that was not known.

    It was begun at some time since it was asked for; it counts as billed since then, so that no bill is greater.
    """
    rental = state.market.rentals.get(number)
    if rental is None or rental.machine:
        return False
    rental.machine = machine
    if rental.stage is ASKED:
        rental.stage = STARTS
    return True


def has_failed(state: State, number: int, detail: str) -> bool:
    """There will be no machine."""
    rental = state.market.rentals.get(number)
    if rental is None:
        return False
    state.market.has_failed(rental.offer, detail, state.now)
    _is_over(state, rental)
    return True


def is_reclaimed(state: State, number: int, until: Instant) -> bool:
    """A site takes a machine back: what can save its work does, and nothing more starts there."""
    rental = state.market.rentals.get(number)
    if rental is None or rental.reclaimed < NEVER:
        return False
    rental.reclaimed = until
    node = state.nodes.get(rental.node)
    for attempt in () if node is None else state.runs_on(node.slots):
        if attempt.movable:
            pool_of(attempt.job).ask_to_save(attempt)
    end(state, rental)
    return True


def is_returned(state: State, number: int) -> bool:
    """A machine is gone."""
    rental = state.market.rentals.get(number)
    if rental is None:
        return False
    if rental.is_over:
        state.market.went_well(rental.offer, state.now)
    else:
        state.market.has_ended(rental.offer, "a machine has ended by itself", state.now)
    _is_over(state, rental)
    return True


def _is_over(state: State, rental: Rental) -> None:
    """Nothing more is paid for a machine; of what was counted, what was not billed is not."""
    market = state.market
    rental.stage = RETURNS
    market.settle(rental, rental.cost(state.now))
    del market.rentals[rental.number], market.nodes[rental.node]
    if rental.job is not None and rental.job not in state.jobs:
        market.forget(rental.job)
    node = state.nodes.get(rental.node)
    if node is not None:
        node.draining = state.draining = True
        leases.take_down(state, node, Outcome.LOST)
        if state.nodes.get(rental.node) is node:
            nodes.shed(state, node)


# The rule


def look(state: State) -> tuple[list[RentalRuling], Instant]:
    """What the rule does now with each machine, and when it is to look again even if nothing happens."""
    market, now = state.market, state.now
    found, again = list[RentalRuling](), market.next_again(now)
    left_today = market.room(None, now)
    left_by_job: dict[int, int | None] = {}
    margin = market.renting.margin
    for rental in market.rentals.values():
        node = state.nodes.get(rental.node)
        if rental.comes:
            late = rental.ready_at + market.renting.limit
            if now >= late:
                found.append(RentalRuling(rental.number, "end"))
                continue
            again = min(again, late)
        elif rental.stage is SERVES and node is not None and is_idle(state, node):
            last = rental.billed_until(now) - margin
            if now >= last:
                found.append(RentalRuling(rental.number, "end"))
                continue
            again = min(again, last)
        before = 0 if rental.stage is RETURNS else margin
        if now < rental.pays_at(before):
            again = min(again, rental.pays_at(before))
            continue
        paid = rental.next_paid(now, before)
        more = rental.offer.bill(paid - rental.since) - rental.committed
        job = rental.job if rental.job is not None and rental.job in market.by_job else None
        if job is not None and job not in left_by_job:
            left_by_job[job] = market.room(job, now)
        rooms = [room for room in (left_today, None if job is None else left_by_job[job]) if room is not None]
        if rental.stage is not RETURNS and rooms and min(rooms) < more:
            found.append(RentalRuling(rental.number, "stop"))
            continue
        found.append(RentalRuling(rental.number, "pay"))
        if left_today is not None:
            left_today -= more
        if job is not None and (room := left_by_job[job]) is not None:
            left_by_job[job] = room - more
        again = min(again, paid - (rental.paid - rental.pays_at(before)))
    return found, again


def obey(state: State, rulings: Sequence[RentalRuling]) -> None:
    """Do what the rule has found."""
    market, now = state.market, state.now
    for one in rulings:
        rental = market.rentals.get(one.rental)
        if rental is None:
            continue
        if one.ruling == "pay":
            committed = rental.committed
            rental.paid = rental.next_paid(now, 0 if rental.stage is RETURNS else market.renting.margin)
            market.pay(rental, rental.committed - committed, now)
            continue
        if rental.comes and now >= rental.ready_at + market.renting.limit:
            market.never_joined += 1
            market.has_failed(rental.offer, "it has not joined in time", now)
        end(state, rental, at_once=one.ruling == "stop")
    if rulings:
        _look_at_suspects(state)
