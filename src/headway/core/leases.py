"""Leases: a node that is silent for longer than its lease is down, whatever it may still be doing.

Its later answers are ignored, because its attempts are no longer the current ones.
"""

from __future__ import annotations

from headway.core import lifecycle, nodes, suspects
from headway.core.state import State
from headway.model.instant import NEVER, Instant
from headway.model.outcome import Outcome
from headway.model.power import AT_ONCE, PowerState
from headway.model.seen import NodeView


def heard(state: State, node: NodeView) -> None:
    """The node gave a sign of life: its lease starts again now."""
    works = node.power is PowerState.ON or node.waits_to_go_off
    if node.spec.lease is not None and node.up and works:
        node.heard_until = state.now + node.spec.lease


def take_down(state: State, node: NodeView, outcome: Outcome = Outcome.LOST) -> None:
    """The node is lost with what ran there. Nothing starts on it until it is back. A draining node has left."""
    if node.up:
        node.up = node.closed = False
        forget_power(state, node)
        node.trouble = None
        node.heard_until = NEVER
        if outcome is Outcome.LOST and state.rules >= lifecycle.ISOLATING:
            suspects.note(state, node.slots)
        state.close_all(node.slots)
        state.lose_all(node.slots, outcome)
        if state.rents and outcome is Outcome.LOST and node.spec.name in state.market.nodes:
            node.draining = state.draining = True  # a rented machine is not waited for: another can be had
        nodes.shed(state, node)


def forget_power(state: State, node: NodeView) -> None:
    """A node is neither off nor about to be: it is on, or lost."""
    if node.power is not PowerState.ON:
        node.power, node.power_until, node.comes_back = PowerState.ON, NEVER, False
        node.by_hand, node.went_off, state.alike = False, AT_ONCE, None
        del state.dark[node.spec.name]
        state.troubled.pop(node.spec.name, None)


def bring_up(state: State, node: NodeView) -> None:
    """The node is back and runs nothing. A draining node has left."""
    take_down(state, node)
    if not node.draining:
        if state.suspects:
            suspects.wait_again(state)
        forget_power(state, node)
        node.up = True
        node.kept_off = node.kept_off and state.rules >= lifecycle.KEEPING_OFF
        if not node.apart:
            state.open_all(node.slots & ~node.closing)
        heard(state, node)


def expire(state: State) -> None:
    """Take down every node whose lease has run out."""
    for node in list(state.nodes.values()) if state.leased else ():
        if node.heard_until <= state.now:
            take_down(state, node)


def next_expiry(state: State) -> Instant:
    """The instant at which the first lease runs out unless its node gives a sign of life."""
    if not state.leased:
        return NEVER
    return min((node.heard_until for node in state.nodes.values()), default=NEVER)
