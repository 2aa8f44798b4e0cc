"""What users are told of sites, and of machines that are rented."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway import wire
from headway.live.sites import LOCAL_ENGINE
from headway.model.instant import DAY, NEVER, Instant, to_seconds
from headway.model.power import PowerState
from headway.model.renting import STAGE_WORDS, UNIT, Offer, Rental

if TYPE_CHECKING:
    from headway.live.driver import Driver


def site_list(driver: Driver) -> wire.SiteList:
    """The sites, with their nodes counted."""
    state, engines, gone = driver.core.state, driver.sites.engines, driver.sites.gone
    totals, market = state.totals(), state.market
    taken = totals.busy | totals.allocated
    offers = [offer.site for offer in market.renting.offers]
    rented = [rental.offer.site for rental in market.rentals.values()]
    nodes = list(state.nodes.values())
    found = list[wire.SiteDetail]()
    for name in dict.fromkeys((*engines, *(node.spec.site for node in nodes), *offers, *rented)):
        here = [node for node in nodes if node.spec.site == name]
        up = [node for node in here if node.up and (node.power is PowerState.ON or node.waits_to_go_off)]
        found.append(
            wire.SiteDetail(
                name,
                engines.get(name, LOCAL_ENGINE),
                gone.get(name, ""),
                len(here),
                len(up),
                sum((node.slots & totals.up).bit_count() for node in up),
                sum((node.slots & taken).bit_count() for node in here),
                offers.count(name),
                rented.count(name),
                driver.sites.finds(name),
            )
        )
    return wire.SiteList(tuple(found))


def renting_report(driver: Driver) -> wire.RentingReport:
    """What can be rented, what is, and what it costs."""
    market, now = driver.core.state.market, driver.now()
    renting = market.renting
    paid = {user: amount / UNIT for user, amount in sorted(market.by_user.items())}
    return wire.RentingReport(
        tuple(_offer(driver, offer, now) for offer in renting.offers),
        tuple(_rental(rental, now) for rental in market.rentals.values()),
        None if renting.budget_day is None else renting.budget_day / UNIT,
        None if renting.budget_job is None else renting.budget_job / UNIT,
        market.spent.get(now // DAY, 0) / UNIT,
        paid,
        market.count,
        market.never_joined,
    )


def _offer(driver: Driver, offer: Offer, now: Instant) -> wire.OfferReport:
    market = driver.core.state.market
    trouble = market.troubles.get((offer.site, offer.type))
    return wire.OfferReport(
        *(offer.site, offer.type, offer.slots, offer.speed, offer.price / UNIT),
        *(to_seconds(offer.period), to_seconds(offer.minimum), to_seconds(offer.start_time)),
        *(offer.limit, offer.spot, market.left(offer)),
        trouble="" if trouble is None else trouble.detail,
        again=None if trouble is None or trouble.again <= now else to_seconds(trouble.again),
    )


def _rental(rental: Rental, now: Instant) -> wire.RentalReport:
    is_there = bool(rental.machine)
    return wire.RentalReport(
        *(rental.number, rental.node, rental.offer.site, rental.offer.type, rental.job, rental.user, rental.why),
        STAGE_WORDS[rental.stage],
        to_seconds(rental.asked),
        to_seconds(rental.since) if is_there else None,
        to_seconds(rental.paid),
        rental.cost(now) / UNIT,
        rental.machine,
        None if rental.reclaimed >= NEVER else to_seconds(rental.reclaimed),
    )
