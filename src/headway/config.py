"""The cluster file: which nodes there are, in TOML.

```toml
[[node]]
name = "big"       # unique in the cluster
slots = 8          # shares of the node that a task can hold; default 1
speed = 1.5        # work per second relative to a reference node; default 1
cores = 16         # default one a slot
site = "cellar"    # default "local"
kind = "xeon-2014" # class of machines on which a task runs alike; default: all of one speed are
lease = 30         # silence after which it counts as lost: seconds, or "1m"; default that of `up --lease`
idle_watts = 75    # what it draws when nothing runs there, and when all its slots are busy; both or none
peak_watts = 94
count = 3          # that many alike, named big-1, big-2, big-3; default one, named big
```
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.instant import from_seconds
from headway.model.node import CAPABILITIES, CAPABLE, SPEED_RANGE, WATTS_MAX, NodeSpec, Power, can_be_shown
from headway.times import seconds_of, span_of

_MOST = 1_000_000  # of anything that is counted: more is a slip of the finger

FILE_MAX: Final = 1 << 20
"""Bytes of a cluster file."""

LINE_MAX: Final = 2000
"""Characters of one of its lines: no value is that long, and TOML takes its time with thousands of brackets or dots."""

NODES_MAX: Final = 100_000
"""Nodes of a cluster."""

SLOTS_MAX: Final = 1 << 24
"""Slots of all of them."""


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip(". ")) and can_be_shown(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= _MOST


def _is_cannot(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name in CAPABILITIES for name in value)


def _is_repeat(value: object) -> bool:
    return type(value) is int and 1 <= value <= NODES_MAX


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 < value <= 1e9  # type: ignore[operator]  # of a type that has an order


def _is_lease(value: object) -> bool:
    try:
        return _is_amount(span_of(value, "lease") if isinstance(value, str) else value)
    except InvalidInput:
        return False


def _is_speed(value: object) -> bool:
    return type(value) in (int, float) and SPEED_RANGE[0] <= value <= SPEED_RANGE[1]  # type: ignore[operator]  # as above


def _is_watts(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= WATTS_MAX  # type: ignore[operator]  # as above


_WATTS = f"watts, a number from 0 to {WATTS_MAX:g}"
_NAME, _COUNT = "a name, in quotes", f"a whole number from 1 to {_MOST}"
_FIELDS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "name": (_is_name, _NAME),
    "slots": (_is_count, _COUNT),
    "speed": (_is_speed, "a number from {:g} to {:g}".format(*SPEED_RANGE)),
    "cores": (_is_count, _COUNT),
    "site": (_is_name, _NAME),
    "kind": (_is_name, _NAME),
    "lease": (_is_lease, 'seconds, more than 0, or a duration in quotes such as "1m"'),
    "idle_watts": (_is_watts, _WATTS),
    "peak_watts": (_is_watts, _WATTS),
    "cannot": (_is_cannot, f"a list of some of {', '.join(CAPABILITIES)}"),
    "count": (_is_repeat, f"a whole number from 1 to {NODES_MAX}"),
}


def uniform_cluster(slots: int) -> tuple[NodeSpec, ...]:
    """One node of speed factor 1 with this many slots.

    Raises:
        InvalidInput: `slots` is less than 1 or more than a million.
    """
    if not _is_count(slots):
        raise InvalidInput("slots", slots, _COUNT)
    return (NodeSpec("cluster", slots=slots),)


def read_cluster(path: str | Path) -> tuple[NodeSpec, ...]:
    """The nodes that a cluster file declares, in its order.

    Raises:
        InvalidInput: a field is unknown, missing or has a value that is not allowed; it names the file, the field, the
            value, what is allowed and, where nodes are written as `[[node]]`, the line.
        HeadwayError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_MAX + 1)
        if len(content) > FILE_MAX:
            raise HeadwayError(f"{path} has more than {FILE_MAX} bytes, too many for a cluster file")
        text = content.decode("utf-8")
    except OSError as error:
        raise HeadwayError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} is not text in utf-8: {error.reason} at byte {error.start}") from error
    return parse_cluster(text, source=str(path))


def parse_cluster(text: str, *, source: str = "cluster") -> tuple[NodeSpec, ...]:
    """The nodes that the text of a cluster file declares; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> [node.name for node in parse_cluster('node = [{name = "a", count = 2}, {name = "b"}]')]
    ['a-1', 'a-2', 'b']
    """
    for place, row in enumerate(text.splitlines(), 1):
        if len(row) > LINE_MAX:
            field, _, value = row.partition("=")
            allowed = f"a value within a line of {LINE_MAX} characters"
            raise InvalidInput(field.strip() or "line", value.strip(), allowed, source=source, line=place)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HeadwayError(f"{source} is not TOML: {error}") from error
    except RecursionError as error:
        raise HeadwayError(
            f"{source} is not TOML of nodes: it is nested too deeply", "Write one [[node]] each."
        ) from error
    for key in (key for key in content if key != "node"):
        raise InvalidInput("key", key, "node", source=source, hint=did_you_mean(key, ["node"]))
    tables = content.get("node")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput("node", tables, "one [[node]] table or more", source=source)
    nodes: dict[str, NodeSpec] = {}
    slots = 0
    for number, table in enumerate(tables):
        try:
            for node in _nodes(table):
                if node.name in nodes:
                    raise InvalidInput("name", node.name, "a name that no other node has")
                if len(nodes) == NODES_MAX:
                    raise InvalidInput("count", table.get("count", 1), f"no more than {NODES_MAX} nodes in all")
                slots += node.slots
                if slots > SLOTS_MAX:
                    raise InvalidInput("slots", node.slots, f"no more than {SLOTS_MAX} slots in all")
                nodes[node.name] = node
        except InvalidInput as flaw:
            line = _line(text, number, flaw.field)
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
    return tuple(nodes.values())


def _nodes(table: Mapping[str, Any]) -> Iterator[NodeSpec]:
    for field, value in table.items():
        if field not in _FIELDS:
            raise InvalidInput(field, value, f"only {', '.join(_FIELDS)}", hint=did_you_mean(field, _FIELDS))
        is_allowed, allowed = _FIELDS[field]
        if not is_allowed(value):
            raise InvalidInput(field, value, allowed)
    if "name" not in table:
        raise InvalidInput("name", None, _NAME)
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
        raise InvalidInput("idle_watts", None, f"{_WATTS}, as peak_watts is given")
    if peak is None:
        raise InvalidInput("peak_watts", None, f"{_WATTS}, as idle_watts is given")
    if peak < idle:
        raise InvalidInput("peak_watts", peak, f"{idle:g}, its idle_watts, or more")
    return Power(float(idle), float(peak))


def _line(text: str, table: int, field: str) -> int | None:
    """The line of a field of a [[node]] table, of its heading if the field is not there; None for inline tables."""
    seen = -1
    heading = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            if seen == table:
                break
            if re.match(r"\s*\[\[\s*[\"']?node[\"']?\s*\]\]", line):
                seen += 1
                heading = number if seen == table else None
        elif heading and re.match(rf"\s*[\"']?{re.escape(field)}[\"']?\s*=", line):
            return number
    return heading
