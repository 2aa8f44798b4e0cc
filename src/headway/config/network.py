"""The lines between nodes and sites of a cluster file: `[network]` and `[[link]]`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from headway.config.fields import Fields, check_fields, is_number, is_span
from headway.config.tables import ClusterFile
from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import from_seconds
from headway.model.network import BANDWIDTH_RANGE, Link, LinkTerms, Network
from headway.model.node import NodeSpec
from headway.times import span_of


def _is_bandwidth(value: object) -> bool:
    return is_number(value, *BANDWIDTH_RANGE)


_LINE: Final[Fields] = {
    "bandwidth": (_is_bandwidth, "bytes per second, a number from {:g} to {:g}".format(*BANDWIDTH_RANGE)),
    "latency": (is_span, 'seconds, 0 to 1e9, or a duration in quotes such as "20ms"'),
}
_DEFAULTS: Final = ("within", "between")


def network_of(file: ClusterFile, nodes: Sequence[NodeSpec], known: Collection[str]) -> Network:
    """The lines between these nodes and these sites.

    Raises:
        InvalidInput: a field is wrong.
    """
    lines, links = dict[str, LinkTerms](), dict[frozenset[str], Link]()
    network = file.table("network")
    tables = file.tables("link")
    with file.reading("network"):
        for field, value in network.items():
            if field not in _DEFAULTS:
                raise InvalidInput(field, value, f"only {', '.join(_DEFAULTS)}", hint=did_you_mean(field, _DEFAULTS))
            if not isinstance(value, dict):
                raise InvalidInput(field, value, "{ bandwidth = ..., latency = ... }")
            try:
                lines[field] = _between(value)
            except InvalidInput as flaw:
                raise InvalidInput(f"{field}.{flaw.field}", flaw.value, flaw.allowed, hint=flaw.hint) from None
    names, sites = {node.name for node in nodes}, {node.site for node in nodes}.union(known)
    for number, table in enumerate(tables):
        with file.reading("link", number):
            link = _link(table, names, sites)
            if links.setdefault(frozenset((link.one, link.other)), link) is not link:
                raise InvalidInput("between", table["between"], "a pair that no other [[link]] names")
    return Network(**lines, links=tuple(links.values()))


def _link(table: Mapping[str, Any], names: Collection[str], sites: Collection[str]) -> Link:
    """One [[link]] table."""
    pair = table.get("between")
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        raise InvalidInput("between", pair, 'two nodes or two sites, in quotes, as in ["a", "b"]')
    one, other = pair
    if not ({one, other} <= set(names) or {one, other} <= set(sites)):
        known = [*names] if one in names or other in names else [*names, *sites]
        unknown = one if one not in known else other
        raise InvalidInput("between", unknown, "two nodes or two sites of this file", hint=did_you_mean(unknown, known))
    if one == other:
        raise InvalidInput("between", pair, "two different ones; [network] has `within`, for the nodes of one site")
    return Link(one, other, _between({field: value for field, value in table.items() if field != "between"}))


def _between(table: Mapping[str, Any]) -> LinkTerms:
    """Bandwidth and latency, as tables have them."""
    check_fields(table, _LINE)
    latency, bandwidth = table.get("latency", 0), table.get("bandwidth")
    seconds = span_of(latency, "latency") if isinstance(latency, str) else latency
    return LinkTerms(from_seconds(seconds), None if bandwidth is None else float(bandwidth))
