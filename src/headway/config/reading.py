"""What a cluster file declares, read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headway.config.network import network_of
from headway.config.nodes import nodes_of
from headway.config.power import switching_of
from headway.config.renting import providers_of, renting_of
from headway.config.sites import check_all_have_nodes, check_listed, sites_of
from headway.config.tables import ClusterFile, cluster_file, of_text
from headway.errors import InvalidInput
from headway.model.network import Network
from headway.model.node import NodeSpec
from headway.model.power import Switching
from headway.model.renting import Renting
from headway.model.site import SiteTerms

if TYPE_CHECKING:
    from headway.engines.registry import SiteSpec
    from headway.renting.registry import ProviderSpec


def read_cluster(path: str | Path, *, simulated: bool = False) -> tuple[NodeSpec, ...]:
    """The nodes that a cluster file declares, in its order.

    Args:
        simulated: there must be no others, because nothing will be there to find them.

    Raises:
        InvalidInput: a field is unknown, missing or has a value that is not allowed; it names the file, the field, the
            value, what is allowed and, where nodes are written as `[[node]]`, the line.
        HeadwayError: the file cannot be read.
    """
    file = cluster_file(path)
    found = _parsed(file)
    if simulated:
        check_listed(file, found.sites)
    return found.nodes


def read_sites(path: str | Path) -> tuple[SiteSpec, ...]:
    """The sites of a cluster file that have a table, in its order.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _parsed(cluster_file(path)).sites


def with_line(wrong: InvalidInput, path: str | Path) -> InvalidInput:
    """What an engine refuses of a site, `FIELD of site 'NAME'`, with the line of the cluster file that says it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    file = cluster_file(path)
    for number, table in enumerate(file.tables("site")):
        field = wrong.field.removesuffix(f" of site {table.get('name')!r}")
        if field != wrong.field:
            line = file.line("site", number, field)
            return InvalidInput(field, wrong.value, wrong.allowed, source=file.source, line=line, hint=wrong.hint)
    return wrong


def read_terms(path: str | Path) -> tuple[SiteTerms, ...]:
    """What policies know of the sites of a cluster file that have a table, the preferred one first.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _parsed(cluster_file(path)).terms


def read_network(path: str | Path) -> Network:
    """The lines that a cluster file declares between its nodes.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _parsed(cluster_file(path)).network


def read_switching(path: str | Path) -> tuple[Switching, ...]:
    """How the nodes of a cluster file are switched off and on; empty: they stay on.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _parsed(cluster_file(path)).switching


def read_renting(path: str | Path) -> Renting | None:
    """What can be rented by a cluster file; None: nothing.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _parsed(cluster_file(path)).renting


def read_providers(path: str | Path) -> tuple[ProviderSpec, ...]:
    """Who rents machines out, by a cluster file.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.
    """
    return _parsed(cluster_file(path)).providers


def parse_cluster(text: str, *, source: str = "cluster") -> tuple[NodeSpec, ...]:
    """The nodes that the text of a cluster file declares; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> [node.name for node in parse_cluster('node = [{name = "a", count = 2}, {name = "b"}]')]
    ['a-1', 'a-2', 'b']
    """
    return _parsed(of_text(text, source)).nodes


def parse_network(text: str, *, source: str = "cluster") -> Network:
    """The lines that the text of a cluster file declares; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> parse_network('node = [{name = "a"}]\\n[network]\\nbetween = {latency = 2}').between
    LinkTerms(latency=2000000, bandwidth=None)
    """
    return _parsed(of_text(text, source)).network


def parse_switching(text: str, *, source: str = "cluster") -> tuple[Switching, ...]:
    """How the nodes of the text of a cluster file are switched off and on; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> parse_switching('node = [{name = "a"}]\\n[power]\\noff_after = 60')[0].off_after
    60000000
    """
    return _parsed(of_text(text, source)).switching


def parse_renting(text: str, *, source: str = "cluster") -> Renting | None:
    """What can be rented by the text of a cluster file; `source` is what errors call it.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> offer = '[[offer]]\\nsite = "cloud"\\ntype = "small"\\nslots = 2\\nprice = 0.085'
    >>> renting = parse_renting('node = [{name = "a"}]\\n' + offer)
    >>> [(one.type, one.price) for one in renting.offers]
    [('small', 85000)]
    """
    return _parsed(of_text(text, source)).renting


def parse_sites(text: str, *, source: str = "cluster", base: Path = Path()) -> tuple[SiteSpec, ...]:
    """The sites that have a table in the text of a cluster file; `source` is what errors call it.

    Args:
        base: where relative folders count from.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> [site.engine for site in parse_sites('[[site]]\\nname = "cellar"\\n[[node]]\\nname = "a"\\nsite = "cellar"')]
    ['local']
    """
    return _parsed(of_text(text, source, base)).sites


def parse_terms(text: str, *, source: str = "cluster", base: Path = Path()) -> tuple[SiteTerms, ...]:
    """The same of the text of a cluster file; `source` is what errors call it.

    Args:
        base: where relative folders count from.

    Raises:
        InvalidInput, HeadwayError: as `read_cluster`.

    >>> parse_terms('[[site]]\\nname = "cellar"\\nstartup = "2m"\\n[[node]]\\nname = "a"\\nsite = "cellar"')
    (SiteTerms(name='cellar', startup=120000000),)
    """
    return _parsed(of_text(text, source, base)).terms


class _Parsed(NamedTuple):
    """What a cluster file says: None of `renting`: nothing of it."""

    nodes: tuple[NodeSpec, ...]
    network: Network
    switching: tuple[Switching, ...]
    sites: tuple[SiteSpec, ...]
    renting: Renting | None
    terms: tuple[SiteTerms, ...]
    providers: tuple[ProviderSpec, ...]


def _parsed(file: ClusterFile) -> _Parsed:
    """What a cluster file says, checked as a whole."""
    sites, finding, terms = sites_of(file)
    nodes = nodes_of(file, sites, finding)
    check_all_have_nodes(file, sites, finding, nodes)
    network = network_of(file, nodes, sites)
    switching = switching_of(file, nodes, finding)
    renting = renting_of(file, nodes)
    providers = providers_of(file, renting)
    return _Parsed(nodes, network, switching, tuple(sites.values()), renting, terms, providers)
