"""A server for an experiment gets the nodes that were asked for."""

from __future__ import annotations

import pytest

from headway.config import parse_cluster
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.reproduce.server import table


@pytest.mark.parametrize(
    "node",
    [
        NodeSpec("machine", 8),
        NodeSpec('the "big" one', 3, 0.25, cores=12, site="cellar", kind="xeon-2014", lease=SECOND // 2),
    ],
)
def test_a_node_is_written_as_it_is_read(node: NodeSpec) -> None:
    assert parse_cluster(table(node)) == (node,)
