"""What can be rented by a cluster file, and from whom: `[[offer]]`, `[[prices]]`, `[renting]`, `[[provider]]`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

from headway.config.fields import (
    A_NAME,
    COUNT,
    MOST,
    SPAN_ABOVE_0,
    SPEED,
    Fields,
    check_fields,
    is_count,
    is_name,
    is_number,
    is_span,
    is_span_above_0,
    is_speed,
    is_whole,
)
from headway.config.tables import ClusterFile
from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import DAY, SECOND, Duration, from_seconds
from headway.model.node import NodeSpec
from headway.model.renting import (
    JOIN_LIMIT,
    MACHINES_MAX,
    MARGIN,
    MINIMUM,
    PRICE_MAX,
    UNIT,
    Money,
    Offer,
    Renting,
    may_be_rented,
    node_name,
)
from headway.times import seconds_of

if TYPE_CHECKING:
    from headway.renting.prices import PriceList
    from headway.renting.registry import ProviderSpec

_PRICE: Final = f"a number from 0 to {PRICE_MAX // UNIT}"
_DAY: Final = 'seconds, at most a day, or a duration in quotes such as "1h"'


def _is_limit(value: object) -> bool:
    return is_whole(value, 0, MACHINES_MAX)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(is_name(one) for one in value)


def _is_price(value: object) -> bool:
    return is_number(value, 0, PRICE_MAX // UNIT)


def _is_budget(value: object) -> bool:
    return is_number(value, 0, MOST * 1000)


def _is_within_a_day(value: object) -> bool:
    return is_span(value) and from_seconds(seconds_of(value, "time")) <= DAY  # type: ignore[arg-type]  # it is one


def _is_period(value: object) -> bool:
    return _is_within_a_day(value) and seconds_of(value, "time") >= 1  # type: ignore[arg-type]  # it is one


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_OFFER: Final[Fields] = {
    "site": (is_name, A_NAME),
    "type": (is_name, A_NAME),
    "slots": (is_count, COUNT),
    "price": (_is_price, f"of an hour: {_PRICE}"),
    "speed": (is_speed, SPEED),
    "cores": (is_count, COUNT),
    "kind": (is_name, A_NAME),
    "billed": (_is_period, f"{_DAY}, and at least a second"),
    "minimum": (_is_within_a_day, _DAY),
    "start": (_is_within_a_day, _DAY),
    "limit": (_is_limit, f"a whole number from 0 to {MACHINES_MAX}"),
    "spot": (_is_bool, "true or false"),
}
_PRICES: Final[Fields] = {
    "site": (is_name, A_NAME),
    "file": (_is_path, "the path of a price list, in quotes"),
    "region": (is_name, A_NAME),
    "types": (_is_names, "a list of names of types, in quotes"),
    "spot": (_is_bool, "true or false"),
    "reference": (is_name, A_NAME),
    "start": (_is_within_a_day, _DAY),
    "limit": _OFFER["limit"],
}
_RENTING: Final[Fields] = {
    "budget_day": (_is_budget, "an amount, 0 or more"),
    "budget_job": (_is_budget, "an amount, 0 or more"),
    "limit": (is_span_above_0, SPAN_ABOVE_0),
    "margin": (_is_within_a_day, _DAY),
}


def renting_of(file: ClusterFile, nodes: Sequence[NodeSpec]) -> Renting | None:
    """What can be rented; None: nothing is said of it.

    Raises:
        InvalidInput: a field is wrong.
    """
    bounds = file.table("renting")
    offers = dict[tuple[str, str], Offer]()
    several: tuple[tuple[str, Callable[[Mapping[str, Any]], Sequence[Offer]]], ...] = (
        ("offer", lambda table: (_offer(table),)),
        ("prices", lambda table: _offers_of(table, file.base)),
    )
    for name, read in several:
        for number, table in enumerate(file.tables(name)):
            with file.reading(name, number):
                for one in read(table):
                    _check_offer(one, offers, nodes)
                    offers[one.site, one.type] = one
    with file.reading("renting"):
        check_fields(bounds, _RENTING)
    if not offers:
        if bounds:
            allowed = "with [[offer]] or [[prices]] tables: there is nothing to rent"
            raise InvalidInput("renting", bounds, allowed, source=file.source)
        return None

    def money(field: str) -> Money | None:
        return round(bounds[field] * UNIT) if field in bounds else None

    def span(field: str, default: Duration) -> Duration:
        return from_seconds(seconds_of(bounds[field], field)) if field in bounds else default

    return Renting(
        tuple(offers.values()),
        money("budget_day"),
        money("budget_job"),
        span("limit", JOIN_LIMIT),
        span("margin", MARGIN),
    )


def providers_of(file: ClusterFile, renting: Renting | None) -> tuple[ProviderSpec, ...]:
    """Who rents machines out at sites with offers.

    Raises:
        InvalidInput: a field is wrong.
    """
    tables = file.tables("provider")
    if not tables:
        return ()
    from headway.renting import registry  # few files have such tables
    from headway.renting.prices import type_of

    offered = list(dict.fromkeys(offer.site for offer in renting.offers)) if renting is not None else []
    found: dict[str, ProviderSpec] = {}
    for number, table in enumerate(tables):
        with file.reading("provider", number):
            site, kind = table.get("site"), table.get("provider")
            if site not in offered:
                allowed = f"a site with [[offer]] or [[prices]]: {', '.join(offered) or 'there is none'}"
                raise InvalidInput("site", site, allowed, hint=did_you_mean(str(site), offered))
            if site in found:
                raise InvalidInput("site", site, "a site that no other [[provider]] names")
            options = {field: value for field, value in table.items() if field not in ("site", "provider")}
            registry.check(str(kind), options)
            if kind == "aws":  # there the name of a type says whether it can be taken back
                for one in renting.offers if renting is not None else ():
                    if one.site == site and one.spot != type_of(one.type)[1]:
                        allowed = "of offers of AWS, a type that ends in /spot if spot = true, and only then"
                        raise InvalidInput("type", one.type, allowed)
            for field in registry.FOLDER_OPTIONS:
                if field in options:
                    options[field] = str(file.base.absolute() / options[field])
            found[site] = registry.ProviderSpec(site, str(kind), options)
    return tuple(found.values())


def _check_offer(one: Offer, others: Collection[tuple[str, str]], nodes: Sequence[NodeSpec]) -> None:
    """Refuse an offer that there is already, or whose machines could be named as a node.

    Raises:
        InvalidInput: it is one.
    """
    if (one.site, one.type) in others:
        raise InvalidInput("type", one.type, f"one that no other offer of site {one.site!r} has")
    taken = next((node.name for node in nodes if may_be_rented(node.name, one.site)), None)
    if taken is not None:
        first, second = node_name(one.site, 1), node_name(one.site, 2)
        hint = f"Machines that are rented there are named {first}, {second} and so on."
        raise InvalidInput("site", one.site, f"one whose machines are not named as node {taken!r}", hint=hint)


def _offers_of(table: Mapping[str, Any], base: Path) -> Sequence[Offer]:
    """The offers of a [[prices]] table."""
    check_fields(table, _PRICES)
    for field in ("site", "file", "region"):
        if field not in table:
            raise InvalidInput(field, None, _PRICES[field][1])
    path = base / table["file"]
    try:
        there = path.stat()
    except OSError as error:
        raise InvalidInput("file", table["file"], f"a price list that can be read: {error.strerror or error}") from None
    if not S_ISREG(there.st_mode):  # it is read again and again
        raise InvalidInput("file", table["file"], "a price list, which is a regular file")
    found = _price_list(path, there.st_mtime_ns, there.st_size)
    try:
        return found.offers(
            table["site"],
            table["region"],
            table.get("types"),
            spot=table.get("spot", False),
            reference=table.get("reference", ""),
            start_time=from_seconds(seconds_of(table["start"], "start")) if "start" in table else None,
            limit=table.get("limit"),
        )
    except InvalidInput as flaw:  # what was asked of the list stands in the cluster file
        of_types = "reference" if flaw.value == table.get("reference") else "types"
        field = of_types if flaw.field in ("type", "speed") else flaw.field
        raise InvalidInput(field, flaw.value, f"{flaw.allowed}, by {path}", hint=flaw.hint) from None


@lru_cache(maxsize=4)
def _price_list(path: Path, changed: int, size: int) -> PriceList:
    """A price list, read once as long as its file does not change: a server reads its cluster file many times."""
    from headway.renting.formats import read_prices

    return read_prices(path)


def _offer(table: Mapping[str, Any]) -> Offer:
    """One [[offer]] table."""
    from headway.renting.prices import money_of

    check_fields(table, _OFFER)
    for field in ("site", "type", "slots", "price"):
        if field not in table:
            raise InvalidInput(field, None, _OFFER[field][1])

    def span(field: str, default: Duration) -> Duration:
        return from_seconds(seconds_of(table[field], field)) if field in table else default

    return Offer(
        table["site"],
        table["type"],
        table["slots"],
        money_of(table["price"]),
        float(table.get("speed", 1)),
        table.get("cores"),
        table.get("kind", ""),
        span("billed", SECOND),
        span("minimum", MINIMUM),
        span("start", 0),
        table.get("limit", 1),
        table.get("spot", False),
    )
