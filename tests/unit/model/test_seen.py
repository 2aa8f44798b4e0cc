"""What policies see of nodes."""

from __future__ import annotations

import pytest

from headway.model.node import NodeSpec
from headway.model.power import PowerState, Switching, Trouble
from headway.model.seen import NodeView


@pytest.mark.skipif(not hasattr(NodeView, "__slots__"), reason="a compiled class does not list its attributes")
def test_a_copy_of_a_node_has_all_that_it_has_and_shares_nothing_that_changes() -> None:
    node, other = NodeView(NodeSpec("n", 3), (4, 5, 7), 0b10110000, 3), NodeView(NodeSpec("other"))
    node.up, node.draining, node.closed, node.apart, node.closing = False, True, True, True, 0b10000
    node.heard_until, node.idle_since, node.power_until = 1, 2, 3
    node.power, node.switch, node.measures = PowerState.COMING_ON, 4, {"load": 0.5}
    node.comes_back = node.kept_off = node.by_hand = True
    node.trouble, node.went_off = Trouble("fails", 1, 9), Switching("site")
    copy = node.copy()
    for name in NodeView.__slots__:
        assert getattr(copy, name) == getattr(node, name) != getattr(other, name), name
    copy.measures["load"] = 0.7
    assert node.measures == {"load": 0.5}
