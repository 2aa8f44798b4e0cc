"""What it takes to send data from one node to another: latency and bandwidth of the lines between nodes and sites."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from headway.model.instant import LONGEST, SECOND, Duration
from headway.model.node import NodeSpec
from headway.model.value import value

BANDWIDTH_RANGE: Final = (1e-3, 1e18)
"""Bytes per second that a line may have."""


@value
class LinkTerms:
    """What sending takes: the latency, and the bytes over the bandwidth. Transfers do not slow each other down.

    Attributes:
        latency: until the first byte arrives, >= 0.
        bandwidth: bytes per second, see `BANDWIDTH_RANGE`; None: any number of bytes in no time.
    """

    latency: Duration = 0
    bandwidth: float | None = None

    def time(self, size: int) -> Duration:
        """How long so many bytes take, rounded up.

        >>> LinkTerms(5, 2e6).time(3)
        7
        """
        sent = 0 if self.bandwidth is None else math.ceil(size * SECOND / self.bandwidth)
        return min(self.latency + sent, LONGEST)


INSTANT: Final = LinkTerms()
"""A line that costs nothing."""


@value
class Link:
    """A line between two nodes, or between all nodes of two sites, in both directions.

    Attributes:
        one, other: names of two nodes, or of two sites; that of a node counts first.
    """

    one: str
    other: str
    line: LinkTerms


@value
class Network:
    """The lines of a cluster. Within a node nothing has to be sent.

    A link of two nodes counts before one of their sites, and that before `within` and `between`.

    Attributes:
        within: between nodes of one site.
        between: between nodes of different sites.
        links: lines between those that they name, no pair twice.
    """

    within: LinkTerms = INSTANT
    between: LinkTerms = INSTANT
    links: tuple[Link, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether sending costs nothing anywhere.

        >>> Network().is_free, Network(between=LinkTerms(latency=1)).is_free
        (True, False)
        """
        return self.within == self.between == INSTANT and all(link.line == INSTANT for link in self.links)


NO_NETWORK: Final = Network()
"""Sending costs nothing."""

NodePlace = tuple[str, str]
"""The names of a node and of its site."""


def place_of(node: NodeSpec) -> NodePlace:
    """Where a node is."""
    return node.name, node.site


class Routes:
    """The lines of a network, found by the two places that they connect.

    Attributes:
        network: of which they are.
        is_free: whether sending costs nothing anywhere.
    """

    __slots__ = ("_links", "is_free", "network")

    def __init__(self, network: Network) -> None:
        self.network = network
        self.is_free = network.is_free
        self._links: dict[NodePlace, LinkTerms] = {}
        for link in network.links:
            self._links[link.one, link.other] = self._links[link.other, link.one] = link.line

    def line(self, one: NodePlace, other: NodePlace) -> LinkTerms:
        """The line between two places; within a node it costs nothing."""
        if one[0] == other[0]:
            return INSTANT
        if self._links:
            found = self._links.get((one[0], other[0])) or self._links.get((one[1], other[1]))
            if found is not None:
                return found
        return self.network.within if one[1] == other[1] else self.network.between

    def time(self, size: int, one: NodePlace, other: NodePlace) -> Duration:
        """How long so many bytes take from one place to another. Where there are none, nothing is sent."""
        return 0 if self.is_free or not size else self.line(one, other).time(size)

    def mean(self, places: Sequence[NodePlace], *, distinct: bool) -> tuple[float, float]:
        """The mean latency in microseconds, and the mean time in microseconds for a byte, over all pairs of places.

        Args:
            distinct: only pairs of two places, as in Topcuoglu, Hariri and Wu 2002; otherwise each place makes a pair
                with itself, too, in which sending takes no time.
        """
        pairs = len(places) * (len(places) - 1 if distinct else len(places) + 1) / 2
        if self.is_free or pairs == 0:
            return 0.0, 0.0
        lines = Counter[LinkTerms]()
        if self._links:  # they may be of single nodes
            for number, one in enumerate(places):
                for other in places[:number]:
                    lines[self.line(one, other)] += 1
        else:
            sites = Counter(site for _, site in places)
            inside = sum(nodes * (nodes - 1) // 2 for nodes in sites.values())
            lines[self.network.within] += inside
            lines[self.network.between] += len(places) * (len(places) - 1) // 2 - inside
        latency = sum(count * line.latency for line, count in lines.items())
        byte = sum(count * SECOND / line.bandwidth for line, count in lines.items() if line.bandwidth is not None)
        return latency / pairs, byte / pairs
