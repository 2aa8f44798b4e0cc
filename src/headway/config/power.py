"""How nodes of a cluster file are switched off and on: `[power]`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from headway.config.fields import (
    A_NAME,
    SPAN,
    SPAN_ABOVE_0,
    WATTS,
    Fields,
    check_fields,
    is_name,
    is_number,
    is_span,
    is_span_above_0,
    is_watts,
    is_whole,
)
from headway.config.nodes import NODES_MAX
from headway.config.tables import ClusterFile
from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import Duration, from_seconds
from headway.model.node import NodeSpec
from headway.model.power import SWITCH_LIMIT, Switching
from headway.times import seconds_of

JOULES_MAX: Final = 1e12
"""No switching takes more."""


def _is_joules(value: object) -> bool:
    return is_number(value, 0, JOULES_MAX)


def _is_least(value: object) -> bool:
    return is_whole(value, 0, NODES_MAX)


def _is_command(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word for word in value)


_COMMAND: Final = "a list of words in quotes: a program and its arguments"
_SWITCHING: Final[Fields] = {
    "site": (is_name, A_NAME),
    "off_after": (is_span, SPAN),
    "off_seconds": (is_span, SPAN),
    "on_seconds": (is_span, SPAN),
    "off_watts": (is_watts, WATTS),
    "switch_joules": (_is_joules, f"joules, a number from 0 to {JOULES_MAX:g}"),
    "min_on": (_is_least, f"a whole number from 0 to {NODES_MAX}"),
    "off_command": (_is_command, _COMMAND),
    "on_command": (_is_command, _COMMAND),
    "limit": (is_span_above_0, SPAN_ABOVE_0),
}


def switching_of(file: ClusterFile, nodes: Sequence[NodeSpec], finding: Collection[str]) -> tuple[Switching, ...]:
    """How these nodes are switched off and on; not those of sites whose engine finds them.

    Raises:
        InvalidInput: a field is wrong, or contradicts the nodes.
    """
    tables = file.tables("power", or_one=True)
    sites = {node.site for node in nodes}
    own = {table.get("site") for table in tables if isinstance(table.get("site"), str)}
    found = dict[str, Switching]()
    for number, table in enumerate(tables):
        with file.reading("power", number):
            one = _switching_of(table)
            if one.site in finding:
                hint = "Nodes that an engine finds are switched where they come from."
                raise InvalidInput("site", one.site, "a site whose nodes are listed", hint=hint)
            if one.site and one.site not in sites:
                raise InvalidInput("site", one.site, "a site of this file", hint=did_you_mean(one.site, sites))
            if found.setdefault(one.site, one) is not one:
                raise InvalidInput("site", table.get("site"), "a site that no other [[power]] names")
            _check_power(one, [node for node in nodes if one.site == node.site or not (one.site or node.site in own)])
    return tuple(found.values())


def _check_power(one: Switching, nodes: Sequence[NodeSpec]) -> None:
    """Refuse settings that contradict the nodes for which they count.

    Raises:
        InvalidInput: they do.
    """
    sizes = Counter(node.site for node in nodes)
    if sizes:
        site, size = min(sizes.items(), key=lambda each: each[1])
        if one.min_on > size:
            hint = "" if one.site else f"Sites that differ have tables of their own: [[power]], with site = {site!r}."
            raise InvalidInput("min_on", one.min_on, f"0 to {size}, the nodes of site {site!r}", hint=hint)
    known = [(node.power.idle, node.name) for node in nodes if node.power is not None]
    if known and one.off_watts > min(known)[0]:
        idle, name = min(known)
        raise InvalidInput("off_watts", one.off_watts, f"0 to {idle:g}, the idle_watts of node {name!r}")


def _switching_of(table: Mapping[str, Any]) -> Switching:
    """One [power] table."""
    check_fields(table, _SWITCHING)

    def span(field: str) -> Duration | None:
        return from_seconds(seconds_of(table[field], field)) if field in table else None

    return Switching(
        table.get("site", ""),
        span("off_after"),
        span("off_seconds") or 0,
        span("on_seconds") or 0,
        float(table.get("off_watts", 0)),
        float(table.get("switch_joules", 0)),
        table.get("min_on", 0),
        tuple(table.get("off_command", ())),
        tuple(table.get("on_command", ())),
        span("limit") or SWITCH_LIMIT,
    )
