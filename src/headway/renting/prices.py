"""Price lists: which types of machine can be rented in which region, and what they cost.

```csv
region,type,cores,memory,price,spot_price,start,billed,minimum,limit,speed
eu-west-1,c5.large,2,4,0.096,0.035,90s,1,60,20,1
eu-west-1,c5.xlarge,4,8,0.192,,90s,1,60,20,1
```

The first five columns are needed: `cores` is a whole number, `memory` is in GiB, `price` is of an hour, in whatever
currency. `spot_price` is that of a machine that can be taken back at any time; empty: there is none. The last six are
as in an `[[offer]]` of a cluster file: what is not given is as there. Lines that begin with `#` and empty lines are
skipped. Public lists in other forms are read too, see `headway.renting.formats`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import DAY, SECOND, Duration, from_seconds
from headway.model.node import SLOT_COUNT_MAX, SPEED_RANGE, can_be_shown
from headway.model.renting import MACHINES_MAX, PRICE_MAX, UNIT, Money, Offer
from headway.times import span_of

NEEDED: Final = ("region", "type", "cores", "memory", "price")
"""The columns that a price list has."""

OPTIONAL: Final = ("spot_price", "start", "billed", "minimum", "limit", "speed")
"""The columns that it may have."""

SPOT: Final = "/spot"
"""What the name of an offer ends with whose machines can be taken back; before it stands the type."""

PRICES: Final = f"a number from 0 to {PRICE_MAX // UNIT}, of an hour"
_SPAN: Final = 'seconds, at most a day, or a duration such as "90s"'
_MEMORY_MAX: Final = 1e9
_PLAIN: Final = Offer("", "", 1, 0)  # with every default


@dataclass(frozen=True, slots=True)
class Priced:
    """A type of machine in a region.

    Attributes:
        cores: also how many tasks it runs at once.
        memory: GiB.
        price: of an hour.
        spot_price: of an hour of a machine that can be taken back at any time; None: there is none.
        start_time, period, minimum, limit: as in an `Offer`.
        speed: of one of its cores, in whatever unit the list has; None: not known.
    """

    region: str
    type: str
    cores: int
    memory: float
    price: Money
    spot_price: Money | None = None
    start_time: Duration = 0
    period: Duration = _PLAIN.period
    minimum: Duration = _PLAIN.minimum
    limit: int = _PLAIN.limit
    speed: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row of a public list that offers nothing.

    Attributes:
        place: its line, or its number in a list.
        type: as it is named there; empty: not at all.
        why: in words.
    """

    place: int
    type: str
    why: str


@dataclass(frozen=True, slots=True)
class PriceList:
    """What can be rented where.

    Attributes:
        source: what errors call it.
        rows: in the order of the list.
        skipped: rows of a public list that offer nothing.
    """

    source: str
    rows: tuple[Priced, ...]
    skipped: tuple[Skipped, ...] = ()
    _by_name: Mapping[tuple[str, str], Priced] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {(row.region, row.type): row for row in self.rows})

    @property
    def regions(self) -> list[str]:
        """The regions, in order of their names."""
        return sorted({row.region for row in self.rows})

    def types(self, region: str) -> list[str]:
        """The types of a region, in the order of the list.

        Raises:
            InvalidInput: there is no such region.
        """
        found = [row.type for row in self.rows if row.region == region]
        if not found:
            raise InvalidInput(
                *("region", region, f"one of {', '.join(self.regions)}"),
                source=self.source,
                hint=did_you_mean(region, self.regions),
            )
        return found

    def priced(self, region: str, type: str) -> Priced:
        """A type in a region.

        Raises:
            InvalidInput: there is no such region, or the type does not exist there.
        """
        found = self._by_name.get((region, type))
        if found is None:
            here = self.types(region)
            elsewhere = [other for other in self.regions if (other, type) in self._by_name]
            hint = f"It can be had in {', '.join(elsewhere)}." if elsewhere else did_you_mean(type, here)
            raise InvalidInput(
                "type", type, f"one of the {len(here)} types of region {region}", source=self.source, hint=hint
            )
        return found

    def offers(
        self,
        site: str,
        region: str,
        types: Collection[str] | None = None,
        *,
        spot: bool = False,
        reference: str = "",
        start_time: Duration | None = None,
        limit: int | None = None,
    ) -> tuple[Offer, ...]:
        """What can be rented at a site, in the order of the list.

        Args:
            types: these only; None: all of the region.
            spot: also those that can be taken back, named with `SPOT` at the end.
            reference: the type that has speed 1; the others are as much faster as the list says. Empty: as they stand
                in the list, and 1 where it does not know.
            start_time, limit: of all of them, instead of what the list says.

        Raises:
            InvalidInput: there is no such region or type, or the list does not know how fast one is.
        """
        rows = [self.priced(region, type) for type in (self.types(region) if types is None else types)]
        unit = self._speed(self.priced(region, reference)) if reference else None
        found = []
        for row in rows:
            speed = (row.speed or 1.0) if unit is None else self._speed(row) / unit
            offer = Offer(
                *(site, row.type, row.cores, row.price, speed, row.cores, row.type),
                period=row.period,
                minimum=row.minimum,
                start_time=row.start_time if start_time is None else start_time,
                limit=row.limit if limit is None else limit,
            )
            found.append(offer)
            if spot and row.spot_price is not None:
                found.append(_as_spot(offer, row.spot_price))
        return tuple(found)

    def _speed(self, row: Priced) -> float:
        if row.speed is None:
            raise InvalidInput(
                *("reference", row.type, "types of which the list says how fast they are"),
                source=self.source,
                hint="Name the types that are wanted, and leave this one out.",
            )
        return row.speed


def _as_spot(offer: Offer, price: Money) -> Offer:
    return replace(offer, type=offer.type + SPOT, price=price, spot=True)


def type_of(offer: str) -> tuple[str, bool]:
    """The type of a machine by the name of its offer, and whether it can be taken back.

    >>> type_of("c5.large"), type_of("c5.large/spot")
    (('c5.large', False), ('c5.large', True))
    """
    return offer.removesuffix(SPOT), offer.endswith(SPOT)


def money_of(given: object, name: str = "price") -> Money:
    """An amount as it is written, in millionths; what is less than one is rounded up.

    >>> money_of("0.0255000000"), money_of("0.00000012"), money_of("1e-3")
    (25500, 1, 1000)

    Raises:
        InvalidInput: it is no number, negative, or more than anything costs in an hour.
    """
    try:
        amount = Decimal(str(given).strip()) if not isinstance(given, bool) else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= PRICE_MAX // UNIT:
        raise InvalidInput(name, given, PRICES)
    return int((amount * UNIT).to_integral_value(ROUND_CEILING))


def row_of(cells: Mapping[str, str]) -> Priced:
    """A row of a price list by its columns; an empty cell is one that is not there.

    Raises:
        InvalidInput: one is missing or not allowed.
    """
    given = {name: cell.strip() for name, cell in cells.items() if cell.strip()}
    for name in NEEDED:
        if name not in given:
            raise InvalidInput(name, "", _ALLOWED[name])
    return Priced(
        region=_name(given, "region"),
        type=_name(given, "type"),
        cores=_count(given, "cores", SLOT_COUNT_MAX),
        memory=_number(given, "memory", 0.0, _MEMORY_MAX),
        price=money_of(given["price"]),
        spot_price=money_of(given["spot_price"], "spot_price") if "spot_price" in given else None,
        start_time=_span(given, "start", 0, 0),
        period=_span(given, "billed", _PLAIN.period, SECOND),
        minimum=_span(given, "minimum", _PLAIN.minimum, 0),
        limit=_count(given, "limit", MACHINES_MAX, least=0) if "limit" in given else _PLAIN.limit,
        speed=_number(given, "speed", *SPEED_RANGE) if "speed" in given else 1.0,
    )


_ALLOWED: Final = {
    "region": "a name that can be printed",
    "type": f"a name that can be printed and does not end with {SPOT}",
    "cores": f"a whole number from 1 to {SLOT_COUNT_MAX}",
    "memory": f"GiB, a number from 0 to {_MEMORY_MAX:g}",
    "price": PRICES,
    "billed": f"{_SPAN}, and at least a second",
    "start": f"{_SPAN}",
    "minimum": f"{_SPAN}",
    "limit": f"a whole number from 0 to {MACHINES_MAX}",
    "speed": "a number from {:g} to {:g}".format(*SPEED_RANGE),
}


def _name(given: Mapping[str, str], name: str) -> str:
    text = given[name]
    if not can_be_shown(text) or not text.strip(". ") or text.endswith(SPOT):
        raise InvalidInput(name, text, _ALLOWED[name])
    return text


def _count(given: Mapping[str, str], name: str, most: int, least: int = 1) -> int:
    text = given[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidInput(name, text, _ALLOWED[name])
    return int(text)


def _number(given: Mapping[str, str], name: str, least: float, most: float) -> float:
    try:
        found = float(given[name])
    except ValueError:
        found = float("nan")
    if not least <= found <= most:
        raise InvalidInput(name, given[name], _ALLOWED[name])
    return found


def _span(given: Mapping[str, str], name: str, default: Duration, least: Duration) -> Duration:
    if name not in given:
        return default
    try:
        found = from_seconds(span_of(given[name], name))
    except (InvalidInput, ValueError):
        found = -1
    if not least <= found <= DAY:
        raise InvalidInput(name, given[name], _ALLOWED[name])
    return found


def price_list(source: str, rows: Iterable[tuple[int, Priced]], skipped: Iterable[Skipped] = ()) -> PriceList:
    """A list of rows, each with its line.

    Raises:
        InvalidInput: none is left, or a type stands twice in a region.
    """
    lines: dict[tuple[str, str], int] = {}
    found = []
    for line, row in rows:
        first = lines.setdefault((row.region, row.type), line)
        if first != line:
            allowed = f"one that region {row.region} does not have yet; it stands in line {first}"
            raise InvalidInput("type", row.type, allowed, source=source, line=line)
        found.append(row)
    if not found:
        raise InvalidInput("price list", "empty", "one row or more with a price", source=source)
    return PriceList(source, tuple(found), tuple(skipped))
