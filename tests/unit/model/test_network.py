"""How long data takes from node to node."""

from __future__ import annotations

import pytest

from headway.model.network import NO_NETWORK, Link, LinkTerms, Network, Routes

A, B, C = ("a", "s"), ("b", "s"), ("c", "t")
LINKED = Network(LinkTerms(1), LinkTerms(2), (Link("s", "t", LinkTerms(3)), Link("a", "c", LinkTerms(4))))


@pytest.mark.parametrize(
    ("network", "times"),
    [
        (NO_NETWORK, (0, 0, 0, 0)),
        (Network(LinkTerms(1), LinkTerms(2)), (0, 1, 2, 2)),
        (LINKED, (0, 1, 4, 3)),
    ],
)
def test_a_link_of_nodes_counts_before_one_of_sites(network: Network, times: tuple[int, ...]) -> None:
    routes = Routes(network)
    assert (routes.time(9, A, A), routes.time(9, A, B), routes.time(9, A, C), routes.time(9, B, C)) == times
    assert (routes.time(9, C, A), routes.time(9, C, B)) == times[2:]
    assert routes.time(0, A, C) == 0, "nothing is sent"


def test_bytes_take_time_and_it_is_rounded_up() -> None:
    assert LinkTerms(10, 3e6).time(7) == 13
    assert LinkTerms(10, 3e6).time(6) == 12
    assert LinkTerms(10).time(2**62) == 10


def test_means_over_pairs_of_nodes() -> None:
    """Lines of 1, 4 and 3 between three nodes: three pairs, or six with those of a node with itself."""
    assert Routes(LINKED).mean([A, B, C], distinct=True) == (8 / 3, 0)
    assert Routes(LINKED).mean([A, B, C], distinct=False) == (8 / 6, 0)
    plain = Routes(Network(LinkTerms(1, 1e6), LinkTerms(2, 2e6)))
    assert plain.mean([A, B, C], distinct=True) == ((1 + 2 + 2) / 3, (1 + 0.5 + 0.5) / 3)
    assert plain.mean([A], distinct=True) == (0, 0)
    assert Routes(NO_NETWORK).mean([A, B], distinct=True) == (0, 0)
