"""Nodes on whose disk a task found no room: others run what waits, until it is tried there again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from headway.engines.base import NodeReady
from headway.live.ledger import Ledger
from headway.live.turn import Turn
from headway.model.events import NodeClosed, NodeOpened
from headway.model.instant import SECOND, Duration, Instant
from headway.model.node import NodeSpec
from headway.model.seen import NodeView

FULL_AGAIN: Final[Duration] = 60 * SECOND
"""After this time tasks start again on a node whose disk was full."""


class RoomTried(NodeReady, frozen=True):
    """It is time to start tasks again on a node whose disk was full."""


class FullDisks:
    """The nodes that are closed because their disk is full.

    Args:
        ledger: feeds the core.
        disk_of: names the disk of a node; nodes of one disk are closed together.
        report: takes what becomes of a node.
        call_at: calls a function at an instant.
    """

    def __init__(
        self,
        ledger: Ledger,
        disk_of: Callable[[NodeSpec], str],
        report: Callable[[RoomTried], None],
        call_at: Callable[[Instant, Callable[[], object]], object],
    ) -> None:
        self._ledger = ledger
        self._disk_of = disk_of
        self._report = report
        self._call_at = call_at
        self._shut: set[str] = set()

    def shut(self, node: str) -> None:
        """The engine itself lets nothing start there now."""
        self._shut.add(node)

    def ready(self, node: str) -> None:
        """The engine lets tasks start there, or the node is another one now."""
        self._shut.discard(node)

    def met(self, turn: Turn, name: str) -> list[str]:
        """A task waited in vain for room on the disk of a node: let tasks start elsewhere, if there is a node of
        another disk where they can. Returns the nodes that are closed now.
        """
        nodes = self._ledger.core.state.nodes
        if name not in nodes:
            return []
        disk = self._disk_of(nodes[name].spec)
        usable = [node for node in nodes.values() if _is_usable(node)]
        full = [node.spec.name for node in usable if self._disk_of(node.spec) == disk]
        if len(full) == len(usable):
            return []
        for one in full:
            self._ledger.feed(turn, NodeClosed(turn.now, one))
            self._call_at(turn.now + FULL_AGAIN, partial(self._report, RoomTried(one)))
        return full

    def tried(self, turn: Turn, name: str) -> None:
        """Let tasks start there again, unless the engine does not."""
        if name not in self._shut:
            self._ledger.feed(turn, NodeOpened(turn.now, name))


def _is_usable(node: NodeView) -> bool:
    return node.up and node.may_start
