"""The nodes that a cluster file lists: `[[node]]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headway.config.fields import (
    A_NAME,
    COUNT,
    SPEED,
    WATTS,
    Fields,
    check_fields,
    is_count,
    is_name,
    is_span_above_0,
    is_speed,
    is_watts,
    is_whole,
)
from headway.config.sites import check_site
from headway.config.tables import ClusterFile
from headway.errors import InvalidInput
from headway.model.instant import from_seconds
from headway.model.node import CAPABILITIES, CAPABLE, NodeSpec, Power
from headway.times import seconds_of

if TYPE_CHECKING:
    from headway.engines.registry import SiteSpec

NODES_MAX: Final = 100_000
"""Nodes of a cluster."""

SLOTS_MAX: Final = 1 << 24
"""Slots of all of them."""


def _is_cannot(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name in CAPABILITIES for name in value)


def _is_repeat(value: object) -> bool:
    return is_whole(value, 1, NODES_MAX)


_FIELDS: Final[Fields] = {
    "name": (is_name, A_NAME),
    "slots": (is_count, COUNT),
    "speed": (is_speed, SPEED),
    "cores": (is_count, COUNT),
    "site": (is_name, A_NAME),
    "kind": (is_name, A_NAME),
    "lease": (is_span_above_0, 'seconds, more than 0, or a duration in quotes such as "1m"'),
    "idle_watts": (is_watts, WATTS),
    "peak_watts": (is_watts, WATTS),
    "cannot": (_is_cannot, f"a list of some of {', '.join(CAPABILITIES)}"),
    "count": (_is_repeat, f"a whole number from 1 to {NODES_MAX}"),
}


def uniform_cluster(slots: int) -> tuple[NodeSpec, ...]:
    """One node of speed factor 1 with this many slots.

    Raises:
        InvalidInput: `slots` is less than 1 or more than a million.
    """
    if not is_count(slots):
        raise InvalidInput("slots", slots, COUNT)
    return (NodeSpec("cluster", slots=slots),)


def nodes_of(file: ClusterFile, sites: Mapping[str, SiteSpec], finding: Mapping[str, SiteSpec]) -> tuple[NodeSpec, ...]:
    """The nodes that a cluster file lists, in its order.

    Args:
        sites: those that have a table, by name.
        finding: those of them whose engine finds their nodes.

    Raises:
        InvalidInput: a field is wrong, or there are neither nodes nor sites.
    """
    nodes: dict[str, NodeSpec] = {}
    slots = 0
    for number, table in enumerate(file.tables("node", least=0 if sites else 1)):
        with file.reading("node", number):
            for node in _nodes(table):
                if node.name in nodes:
                    raise InvalidInput("name", node.name, "a name that no other node has")
                if len(nodes) == NODES_MAX:
                    raise InvalidInput("count", table.get("count", 1), f"no more than {NODES_MAX} nodes in all")
                slots += node.slots
                if slots > SLOTS_MAX:
                    raise InvalidInput("slots", node.slots, f"no more than {SLOTS_MAX} slots in all")
                check_site(node.site, sites, finding)
                nodes[node.name] = node
    return tuple(nodes.values())


def _nodes(table: Mapping[str, Any]) -> Iterator[NodeSpec]:
    check_fields(table, _FIELDS)
    if "name" not in table:
        raise InvalidInput("name", None, A_NAME)
    terms = {field: value for field, value in table.items() if field not in ("name", "count")}
    terms["speed"] = float(terms.get("speed", 1))
    if lacking := terms.pop("cannot", ()):
        terms["capabilities"] = replace(CAPABLE, **dict.fromkeys(lacking, False))
    if "lease" in terms:
        terms["lease"] = from_seconds(seconds_of(terms["lease"], "lease"))
    if "idle_watts" in terms or "peak_watts" in terms:
        terms["power"] = _power(terms.pop("idle_watts", None), terms.pop("peak_watts", None))
    count = table.get("count")
    for name in [table["name"]] if count is None else [f"{table['name']}-{number + 1}" for number in range(count)]:
        yield NodeSpec(name, **terms)


def _power(idle: float | None, peak: float | None) -> Power:
    if idle is None:
        raise InvalidInput("idle_watts", None, f"{WATTS}, as peak_watts is given")
    if peak is None:
        raise InvalidInput("peak_watts", None, f"{WATTS}, as idle_watts is given")
    if peak < idle:
        raise InvalidInput("peak_watts", peak, f"{idle:g}, its idle_watts, or more")
    return Power(float(idle), float(peak))
