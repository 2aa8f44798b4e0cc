"""What users see of sites and of machines that are rented."""

from __future__ import annotations

from headway.model.job import JobId
from headway.wire.base import Answer


class SiteDetail(Answer, frozen=True):
    """A place with nodes, or where machines can be rented.

    Attributes:
        engine: what runs tasks there.
        gone: why that can do nothing now; empty: it can.
        nodes, up: how many nodes there are, and how many of them are in service.
        slots, busy: of the nodes in service, and how many of them are busy or allocated.
        offers: how many types of machines can be rented there.
        rented: how many machines are.
        finds: whether its engine finds its nodes by itself, so that nobody adds them.
    """

    name: str
    engine: str
    gone: str
    nodes: int
    up: int
    slots: int
    busy: int
    offers: int
    rented: int
    finds: bool = False


class SiteList(Answer, frozen=True):
    """The sites, in the order in which they were declared, then those that nodes have named."""

    sites: tuple[SiteDetail, ...]


class OfferReport(Answer, frozen=True):
    """A type of machine that can be rented; see `headway.model.renting.Offer`.

    Attributes:
        price: of an hour.
        period, minimum, start_time: in seconds.
        left: how many more can be had.
        trouble: why one has not come lately; empty: none has failed to.
        again: when one may be asked for again, in seconds since the Unix epoch; None: now.
    """

    site: str
    type: str
    slots: int
    speed: float
    price: float
    period: float
    minimum: float
    start_time: float
    limit: int
    spot: bool
    left: int
    trouble: str = ""
    again: float | None = None


class RentalReport(Answer, frozen=True):
    """A machine that was asked for and is not given back yet; times in seconds since the Unix epoch.

    Attributes:
        rental: its number.
        node: the name of the node that it is, or will be.
        job, user: for which job it was rented, and whose that is; None and empty: for no one job.
        why: the policy's words.
        stage: asked; starts: there is a machine; serves: it is a node; ends: it goes when nothing runs there; returns.
        asked: when.
        since: from when on it counts as billed; None: it is not known yet whether there is a machine.
        paid_until: until when its cost counts in the budgets.
        cost: what it costs if it is given back now.
        machine: its name at the site that rents it out; empty: not known.
        reclaimed: when the site takes it back; None: that is not known.
    """

    rental: int
    node: str
    site: str
    type: str
    job: JobId | None
    user: str
    why: str
    stage: str
    asked: float
    since: float | None
    paid_until: float
    cost: float
    machine: str = ""
    reclaimed: float | None = None


class RentingReport(Answer, frozen=True):
    """What can be rented, what is, and what it costs.

    Attributes:
        budget_day, budget_job: what may be paid in a day, by UTC, and for a job; None: any amount.
        paid_today: what counts in the budget of today.
        paid_by_user: what all machines have cost since the journal began, by user; of no job: the empty name.
        rented: how many machines were asked for since then.
        never_joined: how many of them were given back because they never joined.
    """

    offers: tuple[OfferReport, ...]
    rentals: tuple[RentalReport, ...]
    budget_day: float | None
    budget_job: float | None
    paid_today: float
    paid_by_user: dict[str, float]
    rented: int
    never_joined: int
