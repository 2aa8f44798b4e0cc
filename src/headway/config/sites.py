"""The sites of a cluster file: `[[site]]`, each with an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headway.config.fields import A_NAME, SPAN, is_name, is_span
from headway.config.tables import ClusterFile
from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import Duration, from_seconds
from headway.model.node import NodeSpec
from headway.model.site import SiteTerms
from headway.times import seconds_of

if TYPE_CHECKING:
    from pathlib import Path

    from headway.engines.registry import SiteSpec

SITES_MAX: Final = 1000
"""Sites of a cluster that have a table."""

HERE: Final = "local"
"""The site of nodes that name none."""


def sites_of(file: ClusterFile) -> tuple[dict[str, SiteSpec], dict[str, SiteSpec], tuple[SiteTerms, ...]]:
    """The sites that have a table, by name; those of them whose engine finds their nodes; and the terms of all.

    Raises:
        InvalidInput: a field is wrong.
    """
    sites: dict[str, SiteSpec] = {}
    finding: dict[str, SiteSpec] = {}
    terms: list[SiteTerms] = []
    for number, table in enumerate(file.tables("site")):
        with file.reading("site", number):
            one, finds = _site(table, file.base, sites)
            terms.append(SiteTerms(one.name, _startup_of(table)))
            if len(sites) == SITES_MAX:
                raise InvalidInput("name", one.name, f"no more than {SITES_MAX} sites in all")
            sites[one.name] = one
            if finds:
                finding[one.name] = one
    return sites, finding, tuple(terms)


def _startup_of(table: Mapping[str, Any]) -> Duration:
    """How long a task at a site takes before it begins."""
    startup = table.get("startup", 0)
    if not is_span(startup):
        raise InvalidInput("startup", startup, SPAN)
    return from_seconds(seconds_of(startup, "startup"))


def _site(table: Mapping[str, Any], base: Path, others: Mapping[str, SiteSpec]) -> tuple[SiteSpec, bool]:
    """One [[site]] table, and whether its engine finds its nodes."""
    from headway.engines import registry  # few files have such tables

    name, engine = table.get("name"), table.get("engine", registry.LOCAL)
    if not isinstance(name, str) or not is_name(name):
        raise InvalidInput("name", name, A_NAME)
    if not isinstance(engine, str):
        raise InvalidInput("engine", engine, f"one of {', '.join(registry.names())}, in quotes")
    options = {field: value for field, value in table.items() if field not in ("name", "engine", "startup")}
    found = registry.site(name, engine, options, base)
    if name in others:
        raise InvalidInput("name", name, "a name that no other site has")
    registry.check_apart(found, others.values())
    return found, registry.kind(engine).finds


def check_site(name: str, sites: Mapping[str, SiteSpec], finding: Mapping[str, SiteSpec]) -> None:
    """Refuse a node at a site whose engine finds its nodes, or that has no table where others have.

    Raises:
        InvalidInput: it is at such a site.
    """
    listed = [site for site in sites if site not in finding]
    if name in finding:
        allowed = f"a site whose nodes are listed: {', '.join(listed or [HERE])}"
        hint = f"Engine {finding[name].engine} finds the nodes of site {name!r} by itself."
        raise InvalidInput("site", name, allowed, hint=hint)
    if sites and name not in sites and name != HERE:
        known = list(dict.fromkeys((*listed, HERE)))
        raise InvalidInput("site", name, f"a site of this file: {', '.join(known)}", hint=did_you_mean(name, known))


def check_all_have_nodes(
    file: ClusterFile, sites: Mapping[str, SiteSpec], finding: Mapping[str, SiteSpec], nodes: Sequence[NodeSpec]
) -> None:
    """Refuse a site without a node, whose engine does not find any.

    Raises:
        InvalidInput: there is one.
    """
    there = {node.site for node in nodes}
    for number, name in enumerate(sites):
        if name not in finding and name not in there:
            with file.reading("site", number):
                hint = f'Write site = "{name}" in the [[node]] tables of its nodes.'
                raise InvalidInput("name", name, "a site that a [[node]] of this file is at", hint=hint)


def check_listed(file: ClusterFile, sites: Sequence[SiteSpec]) -> None:
    """Refuse sites whose nodes are not listed.

    Raises:
        InvalidInput: there is one.
    """
    from headway.engines import registry

    for number, one in enumerate(sites):
        if registry.kind(one.engine).finds:
            with file.reading("site", number):
                allowed = "one whose nodes the file lists, in a simulation: nothing is there that finds nodes"
                hint = f"Write [[node]] tables for site {one.name!r} into a file of its own, without this [[site]]."
                raise InvalidInput("engine", one.engine, allowed, hint=hint)
