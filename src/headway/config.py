"""The cluster file: which sites and nodes there are and the lines between them, in TOML.

```toml
[[site]]           # a place under one engine; sites of this machine need no table
name = "cellar"
engine = "local"   # what runs tasks there: local, dask, slurm, or what a package adds; default "local"
startup = 0        # how long a task holds its slots there before it begins: seconds, or "2m"; default 0

[[node]]
name = "big"       # unique in the cluster
slots = 8          # shares of the node that a task can hold; default 1
speed = 1.5        # work per second relative to a reference node; default 1
cores = 16         # default one a slot
site = "cellar"    # default "local"; one whose engine does not find its nodes by itself
kind = "xeon-2014" # class of machines on which a task runs alike; default: all of one speed are
lease = 30         # silence after which it counts as lost: seconds, or "1m"; default that of `up --lease`
idle_watts = 75    # what it draws when nothing runs there, and when all its slots are busy; both or none
peak_watts = 94
count = 3          # that many alike, named big-1, big-2, big-3; default one, named big

[power]            # switch idle nodes off; without it, they stay on
off_after = "10m"  # idle for so long: seconds, or a duration in quotes; without it, only by `headway node off`
off_seconds = 30   # how long it takes until a node is off, and until it is on
on_seconds = 120
off_watts = 5      # what it draws when it is off; default 0
switch_joules = 0  # what switching on takes beyond its idle power; default 0
min_on = 1         # so many nodes of the site stay on; default 0
off_command = ["/usr/local/bin/node-off"]   # on a server: run with the node's name as the last argument
on_command = ["/usr/local/bin/node-on"]
limit = "10m"      # on a server: a node that is not off, or on, after this counts as stuck

[network]          # what data that tasks send takes; without it, it costs nothing
within = { bandwidth = 1.25e9, latency = "50us" }   # between nodes of one site
between = { bandwidth = 125e6, latency = "20ms" }   # between nodes of different sites

[[link]]           # other than that
between = ["big-1", "big-3"]   # two nodes, or two sites
bandwidth = 12.5e6 # bytes per second; default: any number of bytes in no time
latency = 0.1      # seconds, or a duration in quotes; default 0
```

Machines that can be rented, and what they may cost in all:

```toml
[[offer]]
site = "public"    # where; no [[node]] need be there
type = "c5.large"  # its name there
slots = 2          # of the node that it is; also speed, cores and kind, as of a [[node]]
price = 0.085      # of an hour, in whatever currency
billed = 1         # in whole periods of this: seconds, or a duration in quotes such as "1h"; default 1
minimum = 60       # billed at least; default 60
start = "90s"      # from asking for it until it is a node, by estimate; default 0
limit = 20         # so many at once; 0: no more than there are; default 1
spot = true        # can be taken back at any time; default false

[[prices]]         # more offers, from a price list (docs/reference/price-lists.md)
site = "public"
file = "ec2.csv"   # a relative path counts from the cluster file
region = "us-east-1"
types = ["c5.large", "m5.large"]   # default: all of the region
spot = true        # also machines that can be taken back, as "c5.large/spot"; default false
reference = "m5.large"   # the type of speed 1; default: speeds as in the list
start = "90s"      # of all of them, instead of what the list says; also limit
limit = 20

[renting]
budget_day = 20    # what is paid in one day, by UTC; default: any amount
budget_job = 5     # for one job; default: any amount
limit = "10m"      # a machine that has not joined so long after it should have is given back; default 10 min
margin = "60s"     # given back so long before more would have to be paid; default 60 s
```

Who rents machines out on a server (a simulation needs none), once for each site with offers:

```toml
[[provider]]
site = "public"
provider = "aws"   # aws, slurm or processes; what else its table has is said in `headway.renting.registry`
region = "eu-west-1"
image = "ami-0123456789abcdef0"
```

Where sites differ, write [[power]] instead, once for each site, with `site = "cellar"`; one without it is for all
others.

The sites are preferred in the order of their tables, by a policy that prefers sites (`sites:top=prefer`). Those without
a table come last.

Dask and Slurm find their nodes by themselves: no [[node]] names such a site. What else its table has is said by the
engine (`headway.engines.registry`); a relative folder counts from the file's own.

```toml
[[site]]
name = "attic"
engine = "dask"
address = "tls://10.0.0.1:8786"   # of the scheduler
tls = "/etc/headway/tls"          # folder with ca.crt, node.crt and node.key

[[site]]
name = "desk"
engine = "dask"
start = "local"                   # start a cluster: "local", "ssh", or a class such as "dask_jobqueue.PBSCluster"
options = { threads_per_worker = 4 }   # the arguments of that class
workers = 2

[[site]]
name = "hpc"
engine = "slurm"
partition = "main"
folder = "/shared/headway"        # which the server and the site's nodes share
```
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.instant import SECOND, Duration, from_seconds, to_seconds
from headway.model.network import BANDWIDTH_RANGE, Link, LinkTerms, Network
from headway.model.node import CAPABILITIES, CAPABLE, SPEED_RANGE, WATTS_MAX, NodeSpec, Power, can_be_shown
from headway.model.power import LIMIT, Switching
from headway.model.renting import (
    DAY,
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
from headway.model.renting import LIMIT as RENTING_LIMIT
from headway.model.site import SiteTerms
from headway.times import seconds_of, span_of

if TYPE_CHECKING:
    from headway.engines.registry import SiteSpec
    from headway.renting.prices import PriceList
    from headway.renting.registry import ProviderSpec

_MOST = 1_000_000  # of anything that is counted: more is a slip of the finger

FILE_MAX: Final = 1 << 20
"""Bytes of a cluster file."""

LINE_MAX: Final = 2000
"""Characters of one of its lines: no value is that long, and TOML takes its time with thousands of brackets or dots."""

NODES_MAX: Final = 100_000
"""Nodes of a cluster."""

SLOTS_MAX: Final = 1 << 24
"""Slots of all of them."""

SITES_MAX: Final = 1000
"""Sites of a cluster that have a table."""


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip(". ")) and can_be_shown(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= _MOST


def _is_cannot(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name in CAPABILITIES for name in value)


def _is_repeat(value: object) -> bool:
    return type(value) is int and 1 <= value <= NODES_MAX


def _is_limit(value: object) -> bool:
    return type(value) is int and 0 <= value <= MACHINES_MAX


def _is_path(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_name(one) for one in value)


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
_Fields = Mapping[str, tuple[Callable[[object], bool], str]]
"""For each field of a table whether a value is allowed, and which are."""

_FIELDS: Final[_Fields] = {
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


def _is_span(value: object) -> bool:
    try:
        seconds = span_of(value, "latency") if isinstance(value, str) else value
    except InvalidInput:
        return False
    return type(seconds) in (int, float) and 0 <= seconds <= 1e9  # type: ignore[operator]  # as above


def _is_bandwidth(value: object) -> bool:
    return type(value) in (int, float) and BANDWIDTH_RANGE[0] <= value <= BANDWIDTH_RANGE[1]  # type: ignore[operator]


_LINE: Final[_Fields] = {
    "bandwidth": (_is_bandwidth, "bytes per second, a number from {:g} to {:g}".format(*BANDWIDTH_RANGE)),
    "latency": (_is_span, 'seconds, 0 to 1e9, or a duration in quotes such as "20ms"'),
}
_DEFAULTS: Final = ("within", "between")
_HERE: Final = "local"  # the site of nodes that name none
_KEYS: Final = ("site", "node", "power", "network", "link", "offer", "prices", "renting", "provider")


def _is_joules(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= JOULES_MAX  # type: ignore[operator]  # as above


def _is_least(value: object) -> bool:
    return type(value) is int and 0 <= value <= NODES_MAX


def _is_command(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word for word in value)


JOULES_MAX: Final = 1e12
"""No switching takes more."""

_SPAN: Final = 'seconds, 0 to 1e9, or a duration in quotes such as "10m"'
_COMMAND: Final = "a list of words in quotes: a program and its arguments"
_SWITCHING: Final[_Fields] = {
    "site": (_is_name, _NAME),
    "off_after": (_is_span, _SPAN),
    "off_seconds": (_is_span, _SPAN),
    "on_seconds": (_is_span, _SPAN),
    "off_watts": (_is_watts, _WATTS),
    "switch_joules": (_is_joules, f"joules, a number from 0 to {JOULES_MAX:g}"),
    "min_on": (_is_least, f"a whole number from 0 to {NODES_MAX}"),
    "off_command": (_is_command, _COMMAND),
    "on_command": (_is_command, _COMMAND),
    "limit": (_is_lease, 'seconds, more than 0, or a duration in quotes such as "10m"'),
}


_PRICE: Final = f"a number from 0 to {PRICE_MAX // UNIT}"
_DAY: Final = 'seconds, at most a day, or a duration in quotes such as "1h"'


def _is_price(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= PRICE_MAX // UNIT  # type: ignore[operator]  # as above


def _is_budget(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST * 1000  # type: ignore[operator]  # as above


def _is_within_a_day(value: object) -> bool:
    return _is_span(value) and from_seconds(seconds_of(value, "time")) <= DAY  # type: ignore[arg-type]  # it is one


def _is_period(value: object) -> bool:
    return _is_within_a_day(value) and seconds_of(value, "time") >= 1  # type: ignore[arg-type]  # it is one


_OFFER: Final[_Fields] = {
    "site": (_is_name, _NAME),
    "type": (_is_name, _NAME),
    "slots": (_is_count, _COUNT),
    "price": (_is_price, f"of an hour: {_PRICE}"),
    "speed": _FIELDS["speed"],
    "cores": (_is_count, _COUNT),
    "kind": (_is_name, _NAME),
    "billed": (_is_period, f"{_DAY}, and at least a second"),
    "minimum": (_is_within_a_day, _DAY),
    "start": (_is_within_a_day, _DAY),
    "limit": (_is_limit, f"a whole number from 0 to {MACHINES_MAX}"),
    "spot": (lambda value: isinstance(value, bool), "true or false"),
}
_PRICES: Final[_Fields] = {
    "site": (_is_name, _NAME),
    "file": (_is_path, "the path of a price list, in quotes"),
    "region": (_is_name, _NAME),
    "types": (_is_names, "a list of names of types, in quotes"),
    "spot": (lambda value: isinstance(value, bool), "true or false"),
    "reference": (_is_name, _NAME),
    "start": (_is_within_a_day, _DAY),
    "limit": _OFFER["limit"],
}
_RENTING: Final[_Fields] = {
    "budget_day": (_is_budget, "an amount, 0 or more"),
    "budget_job": (_is_budget, "an amount, 0 or more"),
    "limit": (_is_lease, 'seconds, more than 0, or a duration in quotes such as "10m"'),
    "margin": (_is_within_a_day, _DAY),
}


def uniform_cluster(slots: int) -> tuple[NodeSpec, ...]:
    """One node of speed factor 1 with this many slots.

    Raises:
        InvalidInput: `slots` is less than 1 or more than a million.
    """
    if not _is_count(slots):
        raise InvalidInput("slots", slots, _COUNT)
    return (NodeSpec("cluster", slots=slots),)


def read_cluster(path: str | Path, *, simulated: bool = False) -> tuple[NodeSpec, ...]:
    """The nodes that a cluster file declares, in its order.

    Args:
        simulated: there must be no others, because nothing will be there to find them.

    Raises:
        InvalidInput: a field is unknown, missing or has a value that is not allowed; it names the file, the field, the
            value, what is allowed and, where nodes are written as `[[node]]`, the line.
        HeadwayError: the file cannot be read.
    """
    found = _read(path)
    if simulated:
        _check_listed(found.sites, _text(path), str(path))
    return found.nodes


def read_sites(path: str | Path) -> tuple[SiteSpec, ...]:
    """The sites of a cluster file that have a table, in its order.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _read(path).sites


def read_terms(path: str | Path) -> tuple[SiteTerms, ...]:
    """What policies know of the sites of a cluster file that have a table, the preferred one first.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _read(path).terms


def _text(path: str | Path) -> str:
    """What a cluster file says."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_MAX + 1)
        if len(content) > FILE_MAX:
            raise HeadwayError(f"{path} has more than {FILE_MAX} bytes, too many for a cluster file")
        return content.decode("utf-8")
    except OSError as error:
        raise HeadwayError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} is not text in utf-8: {error.reason} at byte {error.start}") from error


def read_network(path: str | Path) -> Network:
    """The lines that a cluster file declares between its nodes.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _read(path).network


def read_switching(path: str | Path) -> tuple[Switching, ...]:
    """How the nodes of a cluster file are switched off and on; empty: they stay on.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _read(path).switching


def read_renting(path: str | Path) -> Renting | None:
    """What can be rented by a cluster file; None: nothing.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _read(path).renting


def read_providers(path: str | Path) -> tuple[ProviderSpec, ...]:
    """Who rents machines out, by a cluster file.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _read(path).providers


def write_cluster(nodes: Sequence[NodeSpec], path: str | Path, *, about: str = "") -> None:
    """Write a cluster file that declares these nodes; alike ones that are numbered from 1 stand in one table.

    Args:
        about: a line on top, for people.

    Raises:
        HeadwayError: the file cannot be written.
    """
    tables: list[tuple[NodeSpec, str, int]] = []
    for node in nodes:
        stem, _, number = node.name.rpartition("-")
        if tables and stem:
            first, name, count = tables[-1]
            if name == stem and number == str(count + 1) and replace(first, name=node.name) == node:
                tables[-1] = first, name, count + 1
                continue
        tables.append((node, stem, 1) if number == "1" and stem else (node, node.name, 0))
    try:
        head = f"# {about}\n\n" if about else ""
        Path(path).write_text(head + "\n".join(_table(*table) for table in tables), encoding="utf-8")
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error


def _table(node: NodeSpec, name: str, count: int) -> str:
    """A node, or so many of a name, as a table."""
    fields: list[tuple[str, object]] = [
        ("name", name),
        ("slots", node.slots),
        ("speed", node.speed),
        ("site", node.site),
    ]
    if node.cores is not None:
        fields.append(("cores", node.cores))
    if node.kind:
        fields.append(("kind", node.kind))
    if node.power is not None:
        fields += [("idle_watts", node.power.idle), ("peak_watts", node.power.peak)]
    if node.capabilities.lacking:
        fields.append(("cannot", list(node.capabilities.lacking)))
    if node.lease is not None:
        fields.append(("lease", to_seconds(node.lease)))
    if count:
        fields.append(("count", count))
    # Names and lists of names are written in JSON as in TOML.
    return "[[node]]\n" + "".join(f"{field} = {json.dumps(value, ensure_ascii=False)}\n" for field, value in fields)


def parse_cluster(text: str, *, source: str = "cluster") -> tuple[NodeSpec, ...]:
    """The nodes that the text of a cluster file declares; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> [node.name for node in parse_cluster('node = [{name = "a", count = 2}, {name = "b"}]')]
    ['a-1', 'a-2', 'b']
    """
    return _parse(text, source).nodes


def parse_network(text: str, *, source: str = "cluster") -> Network:
    """The lines that the text of a cluster file declares; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> parse_network('node = [{name = "a"}]\\n[network]\\nbetween = {latency = 2}').between
    LinkTerms(latency=2000000, bandwidth=None)
    """
    return _parse(text, source)[1]


def parse_switching(text: str, *, source: str = "cluster") -> tuple[Switching, ...]:
    """How the nodes of the text of a cluster file are switched off and on; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> parse_switching('node = [{name = "a"}]\\n[power]\\noff_after = 60')[0].off_after
    60000000
    """
    return _parse(text, source).switching


def parse_renting(text: str, *, source: str = "cluster") -> Renting | None:
    """What can be rented by the text of a cluster file; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> offer = '[[offer]]\\nsite = "cloud"\\ntype = "small"\\nslots = 2\\nprice = 0.085'
    >>> renting = parse_renting('node = [{name = "a"}]\\n' + offer)
    >>> [(one.type, one.price) for one in renting.offers]
    [('small', 85000)]
    """
    return _parse(text, source).renting


def parse_sites(text: str, *, source: str = "cluster", base: Path = Path()) -> tuple[SiteSpec, ...]:
    """The sites that have a table in the text of a cluster file; `source` is what errors call it.

    Args:
        base: where relative folders count from.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> [site.engine for site in parse_sites('[[site]]\\nname = "cellar"\\n[[node]]\\nname = "a"\\nsite = "cellar"')]
    ['local']
    """
    return _parse(text, source, base).sites


def parse_terms(text: str, *, source: str = "cluster", base: Path = Path()) -> tuple[SiteTerms, ...]:
    """The same of the text of a cluster file; `source` is what errors call it.

    Args:
        base: where relative folders count from.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> parse_terms('[[site]]\\nname = "cellar"\\nstartup = "2m"\\n[[node]]\\nname = "a"\\nsite = "cellar"')
    (SiteTerms(name='cellar', startup=120000000),)
    """
    return _parse(text, source, base).terms


class _Parsed(NamedTuple):
    """What a cluster file says: None of `renting`: nothing of it."""

    nodes: tuple[NodeSpec, ...]
    network: Network
    switching: tuple[Switching, ...]
    sites: tuple[SiteSpec, ...]
    renting: Renting | None
    terms: tuple[SiteTerms, ...]
    providers: tuple[ProviderSpec, ...]


def _read(path: str | Path) -> _Parsed:
    """The same of a file: relative folders count from where it is."""
    return _parse(_text(path), str(path), Path(path).parent)


def _parse(text: str, source: str, base: Path = Path()) -> _Parsed:
    """What the text of a cluster file says."""
    import tomllib  # seldom wanted: a simulation may be told its slots

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
    for key in (key for key in content if key not in _KEYS):
        raise InvalidInput("key", key, ", ".join(_KEYS), source=source, hint=did_you_mean(key, _KEYS))
    sites, finding, terms = _sites(content, text, source, base)
    tables = content.get("node", [] if finding else None)
    if not isinstance(tables, list) or not (tables or finding) or not all(isinstance(table, dict) for table in tables):
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
                _check_site(node.site, sites, finding)
                nodes[node.name] = node
        except InvalidInput as flaw:
            line = _line(text, "node", number, flaw.field)
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
    found = list(nodes.values())
    for number, name in enumerate(sites):
        if name not in finding and not any(node.site == name for node in found):
            line, allowed = _line(text, "site", number, "name"), "a site that a [[node]] of this file is at"
            hint = f'Write site = "{name}" in the [[node]] tables of its nodes.'
            raise InvalidInput("name", name, allowed, source=source, line=line, hint=hint)
    network = _network(content, found, sites, text, source)
    switching = _switching(content, found, finding, text, source)
    renting = _renting(content, found, text, source, base)
    lenders = _providers(content, renting, text, source, base)
    return _Parsed(tuple(found), network, switching, tuple(sites.values()), renting, terms, lenders)


def _sites(
    content: Mapping[str, Any], text: str, source: str, base: Path
) -> tuple[dict[str, SiteSpec], dict[str, SiteSpec], tuple[SiteTerms, ...]]:
    """The sites that have a table, by name; those of them whose engine finds their nodes; and the terms of all."""
    tables = content.get("site", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput("site", tables, "[[site]] tables", source=source)
    sites: dict[str, SiteSpec] = {}
    finding: dict[str, SiteSpec] = {}
    terms: list[SiteTerms] = []
    for number, table in enumerate(tables):
        try:
            one, finds = _site(table, base, sites)
            terms.append(SiteTerms(one.name, _startup_of(table)))
            if len(sites) == SITES_MAX:
                raise InvalidInput("name", one.name, f"no more than {SITES_MAX} sites in all")
            sites[one.name] = one
            if finds:
                finding[one.name] = one
        except InvalidInput as flaw:
            line = _line(text, "site", number, flaw.field)
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
    return sites, finding, tuple(terms)


def _startup_of(table: Mapping[str, Any]) -> Duration:
    """How long a task at a site takes before it begins."""
    startup = table.get("startup", 0)
    if not _is_span(startup):
        raise InvalidInput("startup", startup, _SPAN)
    return from_seconds(seconds_of(startup, "startup"))


def _site(table: Mapping[str, Any], base: Path, others: Mapping[str, SiteSpec]) -> tuple[SiteSpec, bool]:
    """One [[site]] table, and whether its engine finds its nodes."""
    from headway.engines import registry  # few files have such tables

    name, engine = table.get("name"), table.get("engine", registry.LOCAL)
    if not isinstance(name, str) or not _is_name(name):
        raise InvalidInput("name", name, _NAME)
    if not isinstance(engine, str):
        raise InvalidInput("engine", engine, f"one of {', '.join(registry.names())}, in quotes")
    options = {field: value for field, value in table.items() if field not in ("name", "engine", "startup")}
    found = registry.site(name, engine, options, base)
    if name in others:
        raise InvalidInput("name", name, "a name that no other site has")
    registry.check_apart(found, others.values())
    return found, registry.kind(engine).finds


def _check_site(name: str, sites: Mapping[str, SiteSpec], finding: Mapping[str, SiteSpec]) -> None:
    """Refuse a node at a site whose engine finds its nodes, or that has no table where others have.

    Raises:
        InvalidInput: it is at such a site.
    """
    listed = [site for site in sites if site not in finding]
    if name in finding:
        allowed = f"a site whose nodes are listed: {', '.join(listed or [_HERE])}"
        hint = f"Engine {finding[name].engine} finds the nodes of site {name!r} by itself."
        raise InvalidInput("site", name, allowed, hint=hint)
    if sites and name not in sites and name != _HERE:
        known = list(dict.fromkeys((*listed, _HERE)))
        raise InvalidInput("site", name, f"a site of this file: {', '.join(known)}", hint=did_you_mean(name, known))


def _check_listed(sites: Sequence[SiteSpec], text: str, source: str) -> None:
    """Refuse sites whose nodes are not listed.

    Raises:
        InvalidInput: there is one.
    """
    from headway.engines import registry

    for number, one in enumerate(sites):
        if registry.kind(one.engine).finds:
            allowed = "one whose nodes the file lists, in a simulation: nothing is there that finds nodes"
            hint = f"Write [[node]] tables for site {one.name!r} into a file of its own, without this [[site]]."
            line = _line(text, "site", number, "engine")
            raise InvalidInput("engine", one.engine, allowed, source=source, line=line, hint=hint)


def _switching(
    content: Mapping[str, Any], nodes: Sequence[NodeSpec], finding: Collection[str], text: str, source: str
) -> tuple[Switching, ...]:
    """How these nodes are switched off and on; not those of sites whose engine finds them."""
    tables = content.get("power", [])
    tables = [tables] if isinstance(tables, dict) else tables
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput("power", tables, "one [power] table, or [[power]] tables", source=source)
    sites = {node.site for node in nodes}
    own = {table.get("site") for table in tables if isinstance(table.get("site"), str)}
    found = dict[str, Switching]()
    for number, table in enumerate(tables):
        try:
            one = _switching_of(table)
            if one.site in finding:
                hint = "Nodes that an engine finds are switched where they come from."
                raise InvalidInput("site", one.site, "a site whose nodes are listed", hint=hint)
            if one.site and one.site not in sites:
                raise InvalidInput("site", one.site, "a site of this file", hint=did_you_mean(one.site, sites))
            if found.setdefault(one.site, one) is not one:
                raise InvalidInput("site", table.get("site"), "a site that no other [[power]] names")
            _check_power(one, [node for node in nodes if one.site == node.site or not (one.site or node.site in own)])
        except InvalidInput as flaw:
            line = _line(text, "power", number, flaw.field)
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
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
    _check_fields(table, _SWITCHING)

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
        span("limit") or LIMIT,
    )


def _renting(
    content: Mapping[str, Any], nodes: Sequence[NodeSpec], text: str, source: str, base: Path
) -> Renting | None:
    """What can be rented; None: nothing is said of it."""
    bounds = content.get("renting", {})
    if not isinstance(bounds, dict):
        raise InvalidInput("renting", bounds, "one [renting] table", source=source)
    offers = dict[tuple[str, str], Offer]()
    several: tuple[tuple[str, Callable[[Mapping[str, Any]], Sequence[Offer]]], ...] = (
        ("offer", lambda table: (_offer(table),)),
        ("prices", lambda table: _offers_of(table, base)),
    )
    for name, read in several:
        tables = content.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise InvalidInput(name, tables, f"[[{name}]] tables", source=source)
        for number, table in enumerate(tables):
            try:
                for one in read(table):
                    _check_offer(one, offers, nodes)
                    offers[one.site, one.type] = one
            except InvalidInput as flaw:
                if flaw.source:  # it is in the price list
                    raise
                line = _line(text, name, number, flaw.field)
                raise InvalidInput(
                    flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint
                ) from None
    try:
        _check_fields(bounds, _RENTING)
    except InvalidInput as flaw:
        line = _line(text, "renting", 0, flaw.field)
        raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
    if not offers:
        if bounds:
            allowed = "with [[offer]] or [[prices]] tables: there is nothing to rent"
            raise InvalidInput("renting", bounds, allowed, source=source)
        return None

    def money(field: str) -> Money | None:
        return round(bounds[field] * UNIT) if field in bounds else None

    def span(field: str, default: Duration) -> Duration:
        return from_seconds(seconds_of(bounds[field], field)) if field in bounds else default

    return Renting(
        tuple(offers.values()),
        money("budget_day"),
        money("budget_job"),
        span("limit", RENTING_LIMIT),
        span("margin", MARGIN),
    )


def _providers(
    content: Mapping[str, Any], renting: Renting | None, text: str, source: str, base: Path
) -> tuple[ProviderSpec, ...]:
    """Who rents machines out at sites with offers."""
    tables = content.get("provider", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput("provider", tables, "[[provider]] tables", source=source)
    if not tables:
        return ()
    from headway.renting import registry  # few files have such tables
    from headway.renting.prices import type_of

    offered = list(dict.fromkeys(offer.site for offer in renting.offers)) if renting is not None else []
    found: dict[str, ProviderSpec] = {}
    for number, table in enumerate(tables):
        try:
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
            for field in registry.FOLDERS:
                if field in options:
                    options[field] = str(base.absolute() / options[field])
            found[site] = registry.ProviderSpec(site, str(kind), options)
        except InvalidInput as flaw:
            line = _line(text, "provider", number, flaw.field)
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
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
    _check_fields(table, _PRICES)
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

    _check_fields(table, _OFFER)
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


def _network(
    content: Mapping[str, Any], nodes: Sequence[NodeSpec], known: Collection[str], text: str, source: str
) -> Network:
    """The lines between these nodes and these sites."""
    network, tables = content.get("network", {}), content.get("link", [])
    if not isinstance(network, dict):
        raise InvalidInput("network", network, "one [network] table", source=source)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput("link", tables, "[[link]] tables", source=source)
    lines, links = dict[str, LinkTerms](), dict[frozenset[str], Link]()
    try:
        for field, value in network.items():
            if field not in _DEFAULTS:
                raise InvalidInput(field, value, f"only {', '.join(_DEFAULTS)}", hint=did_you_mean(field, _DEFAULTS))
            if not isinstance(value, dict):
                raise InvalidInput(field, value, "{ bandwidth = ..., latency = ... }")
            try:
                lines[field] = _between(value)
            except InvalidInput as flaw:
                raise InvalidInput(f"{field}.{flaw.field}", flaw.value, flaw.allowed, hint=flaw.hint) from None
    except InvalidInput as flaw:
        line = _line(text, "network", 0, flaw.field.partition(".")[0])
        raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
    names, sites = {node.name for node in nodes}, {node.site for node in nodes}.union(known)
    for number, table in enumerate(tables):
        try:
            link = _link(table, names, sites)
            if links.setdefault(frozenset((link.one, link.other)), link) is not link:
                raise InvalidInput("between", table["between"], "a pair that no other [[link]] names")
        except InvalidInput as flaw:
            line = _line(text, "link", number, flaw.field)
            raise InvalidInput(flaw.field, flaw.value, flaw.allowed, source=source, line=line, hint=flaw.hint) from None
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
    _check_fields(table, _LINE)
    latency, bandwidth = table.get("latency", 0), table.get("bandwidth")
    seconds = span_of(latency, "latency") if isinstance(latency, str) else latency
    return LinkTerms(from_seconds(seconds), None if bandwidth is None else float(bandwidth))


def _check_fields(table: Mapping[str, Any], fields: _Fields) -> None:
    """Refuse a table that has another field, or one of a value that is not allowed.

    Raises:
        InvalidInput: it does.
    """
    for field, value in table.items():
        if field not in fields:
            raise InvalidInput(field, value, f"only {', '.join(fields)}", hint=did_you_mean(field, fields))
        is_allowed, allowed = fields[field]
        if not is_allowed(value):
            raise InvalidInput(field, value, allowed)


def _nodes(table: Mapping[str, Any]) -> Iterator[NodeSpec]:
    _check_fields(table, _FIELDS)
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


def _line(text: str, name: str, table: int, field: str) -> int | None:
    """The line of a field of a table of this name, of its heading if the field is not there; None for inline tables."""
    seen = -1
    heading = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            if seen == table:
                break
            if re.match(rf"\s*\[\[?\s*[\"']?{name}[\"']?\s*\]", line):
                seen += 1
                heading = number if seen == table else None
        elif heading and re.match(rf"\s*[\"']?{re.escape(field)}[\"']?\s*=", line):
            return number
    return heading
