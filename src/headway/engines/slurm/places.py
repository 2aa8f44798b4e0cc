"""Which attempts have the slots of nodes, and which wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from headway.engines.base import AttemptKey

Place = tuple[str, int]
"""Node and slot."""


class Places:
    """Slots of nodes: each belongs to one attempt at a time; those that wait get theirs in the order they came."""

    def __init__(self) -> None:
        self._held: dict[Place, AttemptKey] = {}
        self._waiting: dict[AttemptKey, frozenset[Place]] = {}

    def ask(self, key: AttemptKey, places: Iterable[Place]) -> bool:
        """Take places, or wait for them; returns whether it has them. None is taken that an earlier one waits for."""
        wanted = frozenset(places)
        if any(place in self._held for place in wanted) or any(wanted & earlier for earlier in self._waiting.values()):
            self._waiting[key] = wanted
            return False
        self.hold(key, wanted)
        return True

    def hold(self, key: AttemptKey, places: Iterable[Place]) -> None:
        """Take places, whoever had them."""
        self._held.update(dict.fromkeys(places, key))

    def leave(self, key: AttemptKey) -> list[AttemptKey]:
        """Give up what it has or waits for; returns those that have theirs now, in order."""
        self._waiting.pop(key, None)
        for place in [place for place, holder in self._held.items() if holder == key]:
            del self._held[place]
        taken, lucky = set(self._held), []
        for waiting, wanted in tuple(self._waiting.items()):
            if not wanted & taken:
                lucky.append(waiting)
                del self._waiting[waiting]
                self.hold(waiting, wanted)
            taken |= wanted
        return lucky

    def waits(self, key: AttemptKey) -> bool:
        """Whether it waits for its places."""
        return key in self._waiting

    def behind(self) -> list[tuple[AttemptKey, AttemptKey]]:
        """Those that wait for a single slot, and who has it."""
        single = [(key, next(iter(wanted))) for key, wanted in self._waiting.items() if len(wanted) == 1]
        return [(key, self._held[place]) for key, place in single if place in self._held]
