"""What is rented for tasks of bags that would be late everywhere else, within the budgets.

Which machines are the cheapest is decided in `headway.renting.choosing`. Here that is asked about what can be had in
this round and what comes already, and it is decided for which job a machine is rented, and until when renting can wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import JobId, TaskKey
from headway.model.plan import Rent
from headway.model.renting import Market, Money, Offer
from headway.renting.choosing import Choice, Hire, OpenTask, cheapest, cheapest_each
from headway.renting.packing import AtHand

EACH: Final = "each"
CHEAPEST: Final = "cheapest"
RENTS_NOTHING: Final = "no"
RENTS: Final = (EACH, CHEAPEST, RENTS_NOTHING)
"""How machines are chosen that are rented."""

SPARE: Final = 0.25
"""So much longer than expected a task may take, as a share of that, before a machine that comes late is too late."""

ASKED_EARLY: Final = (SECOND, 60 * SECOND)
"""A machine is asked for so long before it must be: a quarter of the shortest run time, within these."""

ROUND_EFFORT: Final = 1000
"""Bounds what is tried in a round to find the cheapest machines, see `headway.renting.packing`: rounds are many."""


@dataclass(slots=True)
class RentalPlan:
    """What a round rents, and which tasks wait for machines.

    Attributes:
        rents: the machines that are to be rented now.
        covered: the tasks that wait for a machine: for one of these, for one that comes already, or for one that need
            not be asked for yet.
        held: their jobs, and when the first machine of each comes.
        denied: the jobs with tasks for which a machine cannot be rented now.
        wake: when a machine is to be asked for, or can be again.
    """

    rents: list[Rent] = field(default_factory=list)
    covered: set[TaskKey] = field(default_factory=set)
    held: dict[JobId, Instant] = field(default_factory=dict)
    denied: set[JobId] = field(default_factory=set)
    wake: Instant = NEVER

    def hold(self, tasks: Collection[TaskKey], until: Instant) -> None:
        """These tasks wait for a machine that comes then."""
        self.covered.update(tasks)
        for job, _ in tasks:
            self.held[job] = min(until, self.held.get(job, NEVER))


def rented(tasks: Sequence[OpenTask], market: Market, now: Instant, *, rule: str, spare: float) -> RentalPlan:
    """Rent machines on which tasks end in time that do so nowhere else.

    Args:
        tasks: with one run time each, as it is expected.
        rule: one of `RENTS`.
        spare: as in `SPARE`.
    """
    found = RentalPlan()
    offers = [offer for offer in market.renting.offers if market.can_be_had(offer, now)]
    rentals = list(market.coming())
    machines = [
        AtHand(one.offer, one.since, one.paid, (max(now, one.ready_at),) * one.offer.slots, one.reclaimed)
        for one in rentals
    ]
    left = [market.left(offer) for offer in offers]
    if rule == EACH:
        choice = cheapest_each(tasks, offers, machines, now=now, left=left)
    else:
        choice = _cheapest(tasks, offers, machines, left, now, spare)
    for use in choice.uses:
        found.hold(use.tasks, rentals[use.machine].ready_at)
    paid, paid_for = 0, Counter[JobId]()
    for hire in choice.hires:
        if hire.at > now:
            found.wake = min(found.wake, hire.at)
        else:
            cost, room = hire.offer.bill(hire.offer.step), market.room(None, now)
            payer = None if room is not None and cost > room - paid else _payer(hire, cost, paid_for, market, now)
            if payer is None:
                found.denied.update(hire.jobs)
                continue
            paid += cost
            paid_for[payer] += cost
            found.rents.append(Rent(hire.offer.site, hire.offer.type, payer, hire.why))
        found.hold(hire.tasks, max(now, hire.at) + hire.offer.start_time)
    if len(offers) < len(market.renting.offers):
        found.denied.update(job for job, _ in choice.missed)
    if len(found.covered) < len(tasks):
        found.wake = min(found.wake, market.next_again(now))
    return found


def _payer(hire: Hire, cost: Money, paid: Mapping[JobId, Money], market: Market, now: Instant) -> JobId | None:
    """The job for which a machine is rented: of those that share it, that with the most tasks whose budget allows.

    Args:
        paid: what is rented for jobs in this round.
    """
    for job in hire.jobs:
        room = market.room(job, now)
        if room is None or cost <= room - paid[job]:
            return job
    return None


def _cheapest(
    tasks: Sequence[OpenTask],
    offers: Sequence[Offer],
    machines: Sequence[AtHand],
    left: Sequence[int],
    now: Instant,
    spare: float,
) -> Choice:
    """The cheapest set. Tasks that are in time nowhere with time to spare are to be so without."""
    reserve = max(ASKED_EARLY[0], min(ASKED_EARLY[1], min([task.times[0] for task in tasks]) // 4))
    spared = [replace(task, times=(round(task.times[0] * (1 + spare)),)) for task in tasks]
    choose = partial(
        cheapest, offers=offers, machines=machines, now=now, left=left, reserve=reserve, effort=ROUND_EFFORT
    )
    choice = choose(spared)
    if not choice.missed:
        return choice
    missed = set(choice.missed)
    return choose(
        [task if (task.job, task.task) in missed else longer for task, longer in zip(tasks, spared, strict=True)]
    )
