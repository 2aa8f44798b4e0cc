"""Which attempts have the slots of nodes, and which wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from headway.engines.base import AttemptKey

NodeSlot = tuple[str, int]
"""Node and slot."""


class SlotQueues:
    """Slots of nodes: each belongs to one attempt at a time; those that wait get theirs in the order they came."""

    def __init__(self) -> None:
        self._held: dict[NodeSlot, AttemptKey] = {}
        self._of: dict[AttemptKey, frozenset[NodeSlot]] = {}
        self._came: dict[AttemptKey, int] = {}
        self._numbers = count()
        self._lines: dict[NodeSlot, dict[AttemptKey, None]] = {}

    def ask(self, key: AttemptKey, places: Iterable[NodeSlot]) -> bool:
        """Take places, or wait for them; returns whether it has them. None is taken that an earlier one waits for."""
        wanted = self._of[key] = frozenset(places)
        if any(place in self._held or place in self._lines for place in wanted):
            self._came[key] = next(self._numbers)
            for place in wanted:
                self._lines.setdefault(place, {})[key] = None
            return False
        self._held.update(dict.fromkeys(wanted, key))
        return True

    def leave(self, key: AttemptKey) -> list[AttemptKey]:
        """Give up what it has or waits for; returns those that have theirs now, in order."""
        wanted = self._of.pop(key, frozenset())
        if self._came.pop(key, None) is None:
            for place in wanted:
                del self._held[place]
        else:
            for place in wanted:
                self._leave_line(place, key)
        heads = {next(iter(self._lines[place])) for place in wanted if place in self._lines}
        lucky = []
        for waiting in sorted(heads, key=self._came.__getitem__):
            its = self._of[waiting]
            if all(place not in self._held and next(iter(self._lines[place])) == waiting for place in its):
                lucky.append(waiting)
                del self._came[waiting]
                for place in its:
                    self._leave_line(place, waiting)
                    self._held[place] = waiting
        return lucky

    def _leave_line(self, place: NodeSlot, key: AttemptKey) -> None:
        line = self._lines[place]
        del line[key]
        if not line:
            del self._lines[place]

    def waits(self, key: AttemptKey) -> bool:
        """Whether it waits for its places."""
        return key in self._came

    def holder(self, place: NodeSlot) -> AttemptKey | None:
        """Who has a place."""
        return self._held.get(place)

    def next_after(self, key: AttemptKey) -> Iterator[tuple[AttemptKey, NodeSlot]]:
        """Those that wait for nothing but a place that this one has, and are the next to get it."""
        for place in sorted(self._of.get(key, ())):
            if self._held.get(place) == key and place in self._lines:
                first = next(iter(self._lines[place]))
                if len(self._of[first]) == 1:
                    yield first, place

    def behind(self) -> list[tuple[AttemptKey, AttemptKey]]:
        """Those that wait for a single slot, and who has it."""
        single = [(key, next(iter(self._of[key]))) for key in self._came if len(self._of[key]) == 1]
        return [(key, self._held[place]) for key, place in single if place in self._held]
