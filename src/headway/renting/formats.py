"""Reads price lists: Headway's own form, and two in which public lists of EC2 are found.

- A CSV with the columns `name, vcpu, memory, clock_speed_ghz, price` and others, of one region: as in the lists that
  come with comparisons of instances for databases. A row without a name separates groups. The price 9999 means that
  there is none, and the clock 0 that it is not known.
- JSON as in the package `ec2instances.info`: a list of types, each with its prices by region and operating system;
  those for Linux are taken. Types that a region has without a price for Linux are skipped.

What such a list leaves out is not guessed but skipped, and can be seen in `PriceList.skipped`. The speed of a core is
its clock in the CSV, and its share of the "ECU" in the JSON. Both are hints, not measures.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.renting.prices import NEEDED, OPTIONAL, Priced, PriceList, Skipped, money_of, price_list, row_of
from headway.traces.files import Bounded, opened

PRICE_LIST_MAX: Final = 64 << 20
"""Bytes of a price list."""

NO_PRICE: Final = 9999
"""What public lists say where there is no price."""

REGION: Final = "us-east-1"
"""Of a public list of one region."""

MACHINES_OF_TYPE_MAX: Final = 20
"""So many machines of a type may be rented by public lists, which say nothing of it: what EC2 allowed at first."""

_EC2: Final = ("name", "vcpu", "memory", "price")


def read_prices(path: str | Path) -> PriceList:
    """A price list, in whichever of the forms; it may be gzipped.

    Raises:
        InvalidInput: it names the file, the line, the field, the value and what is allowed.
        HeadwayError: it cannot be read, or is in none of the forms.
    """
    with opened(Path(path)) as whole:
        content = io.BufferedReader(Bounded(whole, PRICE_LIST_MAX, str(path))).read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} is not text in utf-8: {error.reason} at byte {error.start}") from error
    return parse_prices(text, source=str(path))


def parse_prices(text: str, *, source: str = "prices") -> PriceList:
    """The price list that a text contains; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_prices`.

    >>> found = parse_prices("region,type,cores,memory,price\\nhere,small,2,4,0.085")
    >>> [(offer.type, offer.slots, offer.price) for offer in found.offers("cloud", "here")]
    [('small', 2, 85000)]
    """
    if text.lstrip()[:1] in ("[", "{"):
        return _of_json(text, source)
    rows = _rows(text, source)
    _, head = next(rows, (0, []))
    names = [cell.strip() for cell in head]
    if all(name in names for name in _EC2):
        return _of_ec2(names, rows, source)
    known = (*NEEDED, *OPTIONAL)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidInput("column", name, ", ".join(known), source=source, line=1, hint=hint)
        if names.count(name) > 1:
            raise InvalidInput("column", name, "each once", source=source, line=1)
    if missing := [name for name in NEEDED if name not in names]:
        raise InvalidInput("columns", ", ".join(names), f"with {', '.join(missing)}", source=source, line=1)

    def found() -> Iterator[tuple[int, Priced]]:
        for line, cells in rows:
            if len(cells) != len(names):
                allowed = f"{len(names)} cells, as many as columns"
                raise InvalidInput("row", ",".join(cells), allowed, source=source, line=line)
            try:
                yield line, row_of(dict(zip(names, cells, strict=True)))
            except InvalidInput as flaw:
                raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line) from None

    return price_list(source, found())


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV, each with its first line; comments and empty lines are left out."""
    reader = csv.reader(io.StringIO(text), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells and not cells[0].startswith("#"):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise HeadwayError(f"{source}:{line}: this is no row of a CSV: {error}") from error


def _of_ec2(names: list[str], rows: Iterator[tuple[int, list[str]]], source: str) -> PriceList:
    found, skipped = list[tuple[int, Priced]](), list[Skipped]()
    for line, cells in rows:
        given = dict(zip(names, cells, strict=False))
        name = given.get("name", "").strip()
        if not name:
            skipped.append(Skipped(line, "", "it has no name"))
            continue
        try:
            price = money_of(given.get("price", ""))
            if price == money_of(NO_PRICE):
                skipped.append(Skipped(line, name, "it has no price"))
                continue
            plain = {"region": REGION, "type": name, "cores": given.get("vcpu", ""), "memory": given.get("memory", "")}
            clock = given.get("clock_speed_ghz", "").strip()
            is_known = clock not in ("", "0")
            row = row_of(
                {
                    **plain,
                    "price": given["price"],
                    "limit": str(MACHINES_OF_TYPE_MAX),
                    "speed": clock if is_known else "",
                }
            )
        except InvalidInput as flaw:
            names_there = {"cores": "vcpu", "speed": "clock_speed_ghz", "type": "name"}
            place = names_there.get(flaw.field, flaw.field)
            raise InvalidInput(place, flaw.value, flaw.allowed, source=source, line=line) from None
        found.append((line, row if is_known else _of_unknown_speed(row)))
    return price_list(source, found, skipped)


def _of_unknown_speed(row: Priced) -> Priced:
    return replace(row, speed=None)


def _of_json(text: str, source: str) -> PriceList:
    try:
        content = json.loads(text, parse_float=str)
    except (json.JSONDecodeError, RecursionError) as error:
        raise HeadwayError(f"{source} is not JSON: {error}") from error
    if not isinstance(content, list):
        raise InvalidInput("content", type(content).__name__, "a list of types of machine", source=source)
    found, skipped = list[tuple[int, Priced]](), list[Skipped]()
    for place, one in enumerate(content, 1):
        kind = one.get("instance_type") if isinstance(one, dict) else None
        pricing = one.get("pricing") if isinstance(one, dict) else None
        if not isinstance(kind, str) or not isinstance(pricing, dict):
            allowed = "an object with instance_type and pricing"
            raise InvalidInput(f"[{place - 1}]", one, allowed, source=source)
        for region, systems in pricing.items():
            linux = systems.get("linux") if isinstance(systems, dict) else None
            if not isinstance(linux, Mapping) or "ondemand" not in linux:
                skipped.append(Skipped(place, kind, f"it has no price for Linux in {region}"))
                continue
            found.append((place, _of_type(place, kind, region, one, linux, source)))
    by_line: dict[tuple[str, str], int] = {}
    for place, row in found:
        if by_line.setdefault((row.region, row.type), place) != place:
            allowed = f"one that no other has; it is also [{by_line[row.region, row.type] - 1}]"
            raise InvalidInput(f"[{place - 1}].instance_type", row.type, allowed, source=source)
    return price_list(source, found, skipped)


def _of_type(
    place: int, kind: str, region: str, one: Mapping[str, Any], linux: Mapping[str, Any], source: str
) -> Priced:
    units = str(one.get("ECU", ""))
    cells = {"region": region, "type": kind, "cores": str(one.get("vCPU", "")), "memory": str(one.get("memory", ""))}
    try:
        row = row_of({**cells, "price": str(linux["ondemand"]), "billed": "1", "limit": str(MACHINES_OF_TYPE_MAX)})
        if units in ("variable", "NA", ""):
            return _of_unknown_speed(row)
        share = row_of({**cells, "price": "0", "speed": units})
    except InvalidInput as flaw:
        there = {"cores": "vCPU", "price": f"pricing.{region}.linux.ondemand", "speed": "ECU", "type": "instance_type"}
        field = f"[{place - 1}].{there.get(flaw.field, flaw.field)}"
        raise InvalidInput(field, flaw.value, flaw.allowed, source=source) from None
    return replace(row, speed=cast(float, share.speed) / row.cores)
