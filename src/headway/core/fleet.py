"""The nodes with which a core begins that continues from a record of a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headway.model.instant import NEVER
from headway.model.power import POWER_STATES, PowerState
from headway.model.seen import NodeView
from headway.model.slots import NO_SLOTS, count, end_of, in_order, of_numbers, outside
from headway.model.snapshot import Limits

if TYPE_CHECKING:
    from headway.core.record import NodeRecord
    from headway.core.state import State


class Fleet:
    """The nodes of a record. Each core that begins with them has views of its own; what never changes is shared.

    So it costs little to begin with thousands of nodes again and again, as the futures of a forecast do.

    Args:
        placed: each node, departed ones first, and the numbers of its slots.
        departed: how many of them have departed.
    """

    __slots__ = (
        "_departed",
        "_draining",
        "_leased",
        "_limits",
        "_nodes",
        "_slots",
        "_speeds",
        "_starts_reported",
        "_up",
    )

    def __init__(self, placed: Iterable[tuple[NodeRecord, Sequence[int]]], departed: int) -> None:
        self._departed = departed
        self._nodes: list[NodeView] = []
        self._speeds: list[float] = []
        self._slots = self._up = NO_SLOTS
        self._limits = Limits()
        self._starts_reported = self._leased = self._draining = False
        for kept, numbers in placed:
            node = _view(kept, in_order(numbers))
            self._nodes.append(node)
            self._speeds += [1.0] * (end_of(node.places) - len(self._speeds))
            if kept.spec.speed != 1.0:
                for place in node.places:
                    self._speeds[place] = kept.spec.speed
        for node in self._nodes[departed:]:
            self._count(node)

    def _count(self, node: NodeView) -> None:
        """Count a node that is there with the others."""
        self._slots |= node.slots
        self._limits.note(node.spec, node.slots)
        if node.is_open:
            self._up |= outside(node.slots, node.closing) if node.closing else node.slots
        self._starts_reported = self._starts_reported or node.spec.reports_start
        self._leased = self._leased or node.heard_until < NEVER or node.spec.lease is not None
        self._draining = self._draining or node.draining or bool(node.closing) or node.waits_to_go_off

    def join(self, state: State) -> None:
        """Put the nodes into a state that has none, each with the slot numbers it had."""
        views = [node.copy() for node in self._nodes]
        state.slot_nodes = views[:1] * len(self._speeds)
        for node in views:
            places = node.places
            if isinstance(places, range):
                state.slot_nodes[places.start : places.stop] = [node] * len(places)
            else:
                for place in places:
                    state.slot_nodes[place] = node
        state.speeds = self._speeds.copy()
        state.departed = views[: self._departed]
        for node in views[self._departed :]:
            state.nodes[node.spec.name] = node
            if node.power is not PowerState.ON:
                state.dark[node.spec.name] = node
                if node.is_put_off:
                    state.troubled[node.spec.name] = node
        state.slots, state.up = self._slots, self._up
        state.limits.take_over(self._limits)
        state.starts_reported, state.leased, state.draining = self._starts_reported, self._leased, self._draining


def _view(kept: NodeRecord, places: Sequence[int]) -> NodeView:
    """One node as it was."""
    own = places[: kept.spec.slots]
    closing, slots, size = of_numbers(kept.closing), of_numbers(own), len(own)
    if closing:
        slots |= closing
        size = count(slots)
    node = NodeView(kept.spec, places, slots, size)
    node.up, node.draining, node.heard_until, node.closing = kept.up, kept.draining, kept.heard_until, closing
    node.measures = dict(kept.measures)
    node.apart, node.closed = kept.apart, kept.closed
    node.power, node.power_until = POWER_STATES[kept.power], kept.power_until
    node.comes_back, node.kept_off, node.idle_since = kept.comes_back, kept.kept_off, kept.idle_since
    node.switch, node.by_hand, node.trouble, node.went_off = kept.switch, kept.by_hand, kept.trouble, kept.went_off
    return node
