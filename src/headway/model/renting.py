"""Machines that are rented: what can be had, what it costs, and what has been asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Final, Literal

from headway.model.instant import DAY, HOUR, NEVER, SECOND, Duration, Instant
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.power import again_after
from headway.model.value import value

Money = int
"""Millionths of a unit of a currency, whichever that is: whole numbers, so that sums are exact."""

UNIT: Final[Money] = 1_000_000
"""One of the currency."""


MINIMUM: Final[Duration] = 60 * SECOND
"""What is billed at least, unless an offer says otherwise."""

STEP_LEAST: Final[Duration] = 60 * SECOND
"""What is billed by the second is paid for this long ahead, so that not every second is a decision."""

JOIN_LIMIT: Final[Duration] = 600 * SECOND
"""A machine that has not joined so long after it should have is given back."""

MARGIN: Final[Duration] = 60 * SECOND
"""A machine is given back so long before more would have to be paid, because that takes time too."""

PRICE_MAX: Final[Money] = 10**6 * UNIT
"""Nothing costs more in an hour."""

WHY_MAX: Final = 500
"""Characters that are kept of why a machine was rented."""

MACHINES_MAX: Final = 100_000
"""So many machines of a type can be rented at most."""


@value
class Offer:
    """A type of machine that can be rented at a site.

    Attributes:
        site: where.
        type: its name there.
        slots, speed, cores, kind: of a node that it is, as in `NodeSpec`; `kind` empty: its type.
        price: of an hour.
        period: what is begun of this is billed.
        minimum: what is billed at least.
        start_time: from asking for it until it is a node, by estimate.
        limit: so many at the same time; 0: no more, what is rented goes on.
        spot: whether it can be taken back at any time.
    """

    site: str
    type: str
    slots: int
    price: Money
    speed: float = 1.0
    cores: int | None = None
    kind: str = ""
    period: Duration = SECOND
    minimum: Duration = MINIMUM
    start_time: Duration = 0
    limit: int = 1
    spot: bool = False

    def billed(self, time: Duration) -> Duration:
        """What is billed of the time that a machine was rented for.

        >>> [Offer("cloud", "small", 2, UNIT, period=HOUR).billed(time * SECOND) // SECOND for time in (0, 1, 3601)]
        [3600, 3600, 7200]
        """
        return max(self.minimum, -(-max(1, time) // self.period) * self.period)

    def bill(self, time: Duration) -> Money:
        """What a machine costs that was rented for so long.

        >>> [Offer("cloud", "small", 2, 3 * UNIT, period=HOUR).bill(hours * HOUR) / UNIT for hours in (1, 2)]
        [3.0, 6.0]
        """
        return -(-self.price * self.billed(time) // HOUR)

    @property
    def step(self) -> Duration:
        """For how long is paid at a time, once the minimum is over: whole periods."""
        return -(-max(self.period, STEP_LEAST) // self.period) * self.period

    def node(self, name: str) -> NodeSpec:
        """The node that a machine of this type is."""
        return NodeSpec(name, self.slots, self.speed, self.cores, self.site, kind=self.kind or self.type)


@value
class Renting:
    """What can be rented, and within which bounds.

    Attributes:
        offers: each type of a site once.
        budget_day: what all machines may cost that is paid in one day, by UTC; None: any amount.
        budget_job: what all machines may cost that are rented for one job.
        limit: so long after it should have joined, a machine counts as one that never will.
        margin: a machine is given back so long before more would have to be paid.
    """

    offers: tuple[Offer, ...] = ()
    budget_day: Money | None = None
    budget_job: Money | None = None
    limit: Duration = JOIN_LIMIT
    margin: Duration = MARGIN


def offer_flaw(offer: Offer) -> str | None:
    """What is wrong with an offer, as `field is value; allowed: ...`; None when nothing is."""
    checks: tuple[tuple[bool, str, object, str], ...] = (
        (bool(offer.type.strip(". ")) and offer.type.isprintable(), "type", offer.type, "a name that can be printed"),
        (offer.slots >= 1, "slots", offer.slots, "1 or more"),
        (0 <= offer.price <= PRICE_MAX, "price", offer.price / UNIT, f"0 to {PRICE_MAX // UNIT} an hour"),
        (offer.speed > 0, "speed", offer.speed, "more than 0"),
        (SECOND <= offer.period <= DAY, "period", offer.period / SECOND, f"1 to {DAY // SECOND} s"),
        (0 <= offer.minimum <= DAY, "minimum", offer.minimum / SECOND, f"0 to {DAY // SECOND} s"),
        (0 <= offer.start_time < DAY, "start_time", offer.start_time / SECOND, f"0 to {DAY // SECOND} s"),
        (0 <= offer.limit <= MACHINES_MAX, "limit", offer.limit, f"0 to {MACHINES_MAX}"),
    )
    for right, field, value_, allowed in checks:
        if not right:
            return f"{field} is {value_!r}; allowed: {allowed}"
    return None


class RentalStage(IntEnum):
    """How far a rental is."""

    ASKED = 0
    """It was asked for; whether there is a machine is not known yet."""
    STARTS = 1
    """There is a machine, which is billed; it is no node yet."""
    SERVES = 2
    """It is a node."""
    ENDS = 3
    """It is given back as soon as nothing runs there."""
    RETURNS = 4
    """It is being given back; it is billed until that is known to be done."""


StageWord = Literal["asked", "starts", "serves", "ends", "returns"]

STAGE_WORDS: Final[dict[RentalStage, StageWord]] = {
    RentalStage.ASKED: "asked",
    RentalStage.STARTS: "starts",
    RentalStage.SERVES: "serves",
    RentalStage.ENDS: "ends",
    RentalStage.RETURNS: "returns",
}
"""How the stages are written."""

STAGES: Final = {word: stage for stage, word in STAGE_WORDS.items()}
"""The stages by their words."""


_MARK: Final = "-r"


def node_name(site: str, number: int) -> str:
    """How the node is named that a rental is.

    >>> node_name("cloud", 7)
    'cloud-r7'
    """
    return f"{site}{_MARK}{number}"


def may_be_rented(node: str, site: str) -> bool:
    """Whether a node has a name that a rental of a site could have.

    >>> may_be_rented("cloud-r7", "cloud"), may_be_rented("cloud-rack", "cloud"), may_be_rented("cloud-r7", "clouds")
    (True, False, False)
    """
    before, mark, number = node.rpartition(_MARK)
    return bool(mark) and before == site and number.isdecimal()


class Rental:
    """A machine that was asked for, from then until it is given back.

    Attributes:
        number: counts from 1 in the whole cluster.
        offer: what was asked for, at the price of then.
        job: for which job; None: for no one job.
        user: whose job that is; empty: of nobody.
        why: the policy's words.
        asked: when; as much later as the clock was put forward before it came.
        since: from when on it counts as billed: since it was asked for.
        paid: until when its cost is counted in the budgets.
        stage: how far it is.
        machine: its name at the site that rents it out; empty: not known.
        reclaimed: when the site takes it back; `NEVER`: that is not known.
        day: the day, counted from the epoch by UTC, to which the last payment counts.
    """

    __slots__ = (
        "asked",
        "day",
        "job",
        "machine",
        "number",
        "offer",
        "paid",
        "reclaimed",
        "since",
        "stage",
        "user",
        "why",
    )

    def __init__(self, number: int, offer: Offer, job: JobId | None, user: str, why: str, now: Instant) -> None:
        self.number = number
        self.offer = offer
        self.job = job
        self.user = user
        self.why = why
        self.asked = self.since = now
        self.paid: Instant = now + offer.billed(offer.step)
        self.day = now // DAY
        self.stage = RentalStage.ASKED
        self.machine = ""
        self.reclaimed: Instant = NEVER

    @property
    def node(self) -> str:
        """The name of the node that it is, or will be.

        >>> Rental(7, Offer("cloud", "small", 2, UNIT), None, "", "", 0).node
        'cloud-r7'
        """
        return node_name(self.offer.site, self.number)

    @property
    def ready_at(self) -> Instant:
        """When it is a node, by estimate."""
        return self.asked + self.offer.start_time

    @property
    def comes(self) -> bool:
        """Whether it is no node yet and will be."""
        return self.stage is RentalStage.ASKED or self.stage is RentalStage.STARTS

    @property
    def is_over(self) -> bool:
        """Whether nothing more starts there."""
        return self.stage >= RentalStage.ENDS

    def billed_until(self, now: Instant) -> Instant:
        """Until when is billed what it would be if it were given back now."""
        return self.since + self.offer.billed(now - self.since)

    def pays_at(self, margin: Duration) -> Instant:
        """When it must be said whether it is paid for longer."""
        return self.paid - min(margin, self.offer.step // 2)

    def next_paid(self, now: Instant, margin: Duration) -> Instant:
        """Until when it is paid then: for one step more, or as many as are needed if that was to be said earlier."""
        return self.paid + self.offer.step * (1 + max(0, now - self.pays_at(margin)) // self.offer.step)

    def cost(self, until: Instant) -> Money:
        """What it costs if it is given back then: what the offer bills since it was asked for; nothing if none came.

        >>> rental = Rental(7, Offer("cloud", "small", 2, 3 * UNIT, period=HOUR), None, "", "", 0)
        >>> rental.cost(2 * HOUR)
        0
        >>> rental.machine = "i-7"
        >>> rental.cost(2 * HOUR) / UNIT
        6.0
        """
        return self.offer.bill(until - self.since) if self.machine else 0

    @property
    def committed(self) -> Money:
        """What it costs if it is given back when nothing more is paid."""
        return self.offer.bill(self.paid - self.since)


@value
class OfferTrouble:
    """What was asked for has not come, or has ended by itself.

    Attributes:
        detail: why, for people; empty: one has come since.
        times: how often since one was given back in order.
        again: from when on it may be asked for again.
    """

    detail: str
    times: int
    again: Instant


class Market:
    """What can be rented and what is: one for all pools. Policies read it, only the core changes it.

    Attributes:
        renting: what can be rented; nothing, until that is said.
        rentals: those that are not over, by number.
        nodes: the same by the name of the node.
        count: the number of the last one that was asked for.
        spent: what is paid or committed, by day since the epoch, by UTC; days before yesterday are dropped.
        by_job: the same by job that machines were rented for, as long as it is in the system, or one of them is rented.
        by_user: the same by its user; of no job: the empty name.
        troubles: by site and type, what has not come or has ended by itself, since one was given back in order.
        never_joined: how many machines were given back because they never joined.
    """

    __slots__ = ("by_job", "by_user", "count", "never_joined", "nodes", "rentals", "renting", "spent", "troubles")

    def __init__(self) -> None:
        self.renting = Renting()
        self.rentals: dict[int, Rental] = {}
        self.nodes: dict[str, Rental] = {}
        self.count = self.never_joined = 0
        self.spent: dict[int, Money] = {}
        self.by_job: dict[JobId, Money] = {}
        self.by_user: dict[str, Money] = {}
        self.troubles: dict[tuple[str, str], OfferTrouble] = {}

    @property
    def is_used(self) -> bool:
        """Whether anything can be rented, or is."""
        return bool(self.renting.offers or self.rentals)

    def may_name(self, node: str) -> bool:
        """Whether a machine that is rented, or may be, could have this name as a node."""
        sites = {one.site for one in (*self.renting.offers, *[rental.offer for rental in self.rentals.values()])}
        return any(may_be_rented(node, site) for site in sites)

    def offer(self, site: str, kind: str) -> Offer | None:
        """The offer of this type at this site."""
        return next((one for one in self.renting.offers if (one.site, one.type) == (site, kind)), None)

    def left(self, offer: Offer) -> int:
        """How many more machines of an offer can be had."""
        taken = sum(1 for one in self.rentals.values() if one.offer.site == offer.site and one.offer.type == offer.type)
        return max(0, offer.limit - taken)

    def can_be_had(self, offer: Offer, now: Instant) -> bool:
        """Whether one more can be asked for: the limit is not reached, and no trouble says to wait."""
        trouble = self.troubles.get((offer.site, offer.type))
        return self.left(offer) > 0 and (trouble is None or trouble.again <= now)

    def room(self, job: JobId | None, now: Instant) -> Money | None:
        """What may still be paid today, and for a job; None: any amount."""
        renting, bounds = self.renting, list[Money]()
        if renting.budget_day is not None:
            bounds.append(renting.budget_day - self.spent.get(now // DAY, 0))
        if renting.budget_job is not None and job is not None:
            bounds.append(renting.budget_job - self.by_job.get(job, 0))
        return min(bounds) if bounds else None

    def pay(self, rental: Rental, amount: Money, now: Instant) -> None:
        """Count an amount in the budgets of today, of the rental's job and of its user."""
        rental.day = now // DAY
        self._count(rental, amount)
        for old in [known for known in self.spent if known < rental.day - 1]:
            del self.spent[old]

    def settle(self, rental: Rental, billed: Money) -> None:
        """Count what a rental has cost in the end, instead of what was committed."""
        self._count(rental, billed - rental.committed)

    def forget(self, job: JobId) -> None:
        """A job is not in the system; what it has paid is forgotten when nothing more is."""
        if job in self.by_job and not any(rental.job == job for rental in self.rentals.values()):
            del self.by_job[job]

    def _count(self, rental: Rental, amount: Money) -> None:
        self.spent[rental.day] = self.spent.get(rental.day, 0) + amount
        if rental.job is not None and rental.job in self.by_job:
            self.by_job[rental.job] += amount
        self.by_user[rental.user] = self.by_user.get(rental.user, 0) + amount

    def has_failed(self, offer: Offer, detail: str, now: Instant) -> None:
        """One has not come: it is not asked for again for a while, which grows."""
        times = self._times(offer) + 1
        self._not_before(offer, detail, times, now + again_after(times, self.renting.limit))

    def has_ended(self, offer: Offer, detail: str, now: Instant) -> None:
        """One has ended by itself: another may be asked for at once, but not again and again."""
        times = self._times(offer)
        again = now + again_after(times, self.renting.limit) if times else now
        self._not_before(offer, detail, times + 1, again)

    def has_come(self, offer: Offer) -> None:
        """One is a node: others may be asked for."""
        if times := self._times(offer):
            self._not_before(offer, "", times, 0)

    def went_well(self, offer: Offer, now: Instant) -> None:
        """One was given back in order: what was before does not count any more."""
        trouble = self.troubles.get((offer.site, offer.type))
        if trouble is not None and trouble.again <= now:
            del self.troubles[offer.site, offer.type]

    def shift(self, forward: Duration) -> None:
        """The clock was put forward: machines have as long to come as before.

        What they cost counts on: that the clock stood still while they were billed is not known.
        """
        for rental in self.coming():
            rental.asked += forward
        for key, trouble in self.troubles.items():
            self.troubles[key] = replace(trouble, again=min(NEVER - 1, trouble.again + forward))

    def _times(self, offer: Offer) -> int:
        trouble = self.troubles.get((offer.site, offer.type))
        return 0 if trouble is None else trouble.times

    def _not_before(self, offer: Offer, detail: str, times: int, again: Instant) -> None:
        self.troubles[offer.site, offer.type] = OfferTrouble(detail, times, min(NEVER - 1, again))

    def next_again(self, now: Instant) -> Instant:
        """When something may be asked for again that may not now."""
        return min([one.again for one in self.troubles.values() if one.again > now], default=NEVER)

    def coming(self) -> Iterator[Rental]:
        """The machines that are no nodes yet and will be."""
        return (one for one in self.rentals.values() if one.comes)


NO_MARKET: Final = Market()
"""Where nothing can be rented."""


@value
class RentalRecord:
    """A `Rental` as plain values."""

    number: int
    offer: Offer
    job: JobId | None
    user: str
    why: str
    asked: Instant
    since: Instant
    paid: Instant
    stage: StageWord
    machine: str = ""
    reclaimed: Instant = NEVER
    day: int = 0


@value
class MarketRecord:
    """A `Market` as plain values."""

    renting: Renting
    rentals: tuple[RentalRecord, ...] = ()
    count: int = 0
    spent: tuple[tuple[int, Money], ...] = ()
    by_job: tuple[tuple[JobId, Money], ...] = ()
    by_user: tuple[tuple[str, Money], ...] = ()
    troubles: tuple[tuple[str, str, OfferTrouble], ...] = ()
    never_joined: int = 0

    @classmethod
    def of(cls, market: Market) -> MarketRecord | None:
        """Write a market down; None: nothing was ever said of it."""
        if not (market.is_used or market.count):
            return None
        return cls(
            market.renting,
            tuple(
                RentalRecord(
                    *(one.number, one.offer, one.job, one.user, one.why, one.asked, one.since, one.paid),
                    STAGE_WORDS[one.stage],
                    one.machine,
                    one.reclaimed,
                    one.day,
                )
                for one in market.rentals.values()
            ),
            market.count,
            tuple(sorted(market.spent.items())),
            tuple(sorted(market.by_job.items())),
            tuple(sorted(market.by_user.items())),
            tuple((*key, trouble) for key, trouble in sorted(market.troubles.items())),
            market.never_joined,
        )

    def market(self) -> Market:
        """The market that was written down."""
        market = Market()
        market.renting, market.count, market.never_joined = self.renting, self.count, self.never_joined
        for kept in self.rentals:
            rental = Rental(kept.number, kept.offer, kept.job, kept.user, kept.why, kept.asked)
            rental.since, rental.paid, rental.stage = kept.since, kept.paid, STAGES[kept.stage]
            rental.machine, rental.reclaimed, rental.day = kept.machine, kept.reclaimed, kept.day
            market.rentals[kept.number] = market.nodes[rental.node] = rental
        market.spent, market.by_job, market.by_user = dict(self.spent), dict(self.by_job), dict(self.by_user)
        market.troubles = {(site, kind): trouble for site, kind, trouble in self.troubles}
        return market


def renting_flaw(renting: Renting) -> str | None:
    """What is wrong with all of it, as `field is value; allowed: ...`; None when nothing is."""
    seen = set[tuple[str, str]]()
    for position, offer in enumerate(renting.offers):
        wrong = offer_flaw(offer)
        if wrong is None and (offer.site, offer.type) in seen:
            wrong = f"type is {offer.type!r}; allowed: one that no other offer of site {offer.site!r} has"
        if wrong is not None:
            return f"offers[{position}].{wrong}"
        seen.add((offer.site, offer.type))
    return None
