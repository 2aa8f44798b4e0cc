"""Which processor each slot of the nodes of this machine has for itself."""

from __future__ import annotations

from collections.abc import Iterable

from headway.model.node import NodeSpec


class Pins:
    """The processor of each slot, which its two places share; if there are more slots than processors, slots share too.

    Args:
        processors: to be dealt in turn; none: slots have no processor of their own.
    """

    def __init__(self, processors: Iterable[int]) -> None:
        self._processors = sorted(processors)
        self._pinned: dict[tuple[str, int], int] = {}

    def give(self, node: NodeSpec) -> None:
        """Give slots that are new a processor each, in turn."""
        for slot in range(node.slots if self._processors else 0):
            turn = len(self._pinned) % len(self._processors)
            self._pinned.setdefault((node.name, slot), self._processors[turn])

    def of(self, node: str, slots: Iterable[int]) -> tuple[int, ...]:
        """The processors of these slots, rising, as far as the node has such slots; none if slots have none."""
        return tuple(sorted({self._pinned[node, slot] for slot in slots if (node, slot) in self._pinned}))
