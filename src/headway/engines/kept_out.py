"""The nodes that an engine would find, and does not use because an operator drained or removed them.

They stay out until somebody names them, also when their machine, or the server, is started again: a file has their
names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from headway.engines.base import Noticed
from headway.errors import InvalidInput

log = logging.getLogger(__name__)

_FILE: Final = "kept-out.json"


class KeptOut:
    """The nodes of an engine that are kept out.

    Args:
        folder: of the engine, on this machine or shared; it need not be there before `load`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._names: set[str] = set()
        self._let_in: set[str] = set()
        self._there: dict[str, str] = {}

    def __contains__(self, name: object) -> bool:
        """Whether a node is not to be used."""
        return name in self._names

    @property
    def known(self) -> frozenset[str]:
        """The names of those that are kept out, and of those that were and have been let in."""
        return frozenset(self._names | self._let_in)

    def load(self, served: Iterable[str]) -> None:
        """Learn what an earlier engine kept out; what is in service is not.

        Args:
            served: names of the nodes that are in service.
        """
        try:
            self._names |= set(msgspec.json.decode(self._path.read_bytes(), type=list[str]))
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, so every node is used: %s", self._path, error)
        self._names -= set(served)

    def add(self, name: str, mark: str = "") -> None:
        """Keep a node out.

        Args:
            mark: what tells this start of its machine from others; empty: that is not known.
        """
        self._let_in.discard(name)
        self._names.add(name)
        if mark:
            self._there[name] = mark
        self._store()

    def let_in(self, name: str) -> bool:
        """Keep a node out no longer; returns whether it was."""
        if name not in self._names:
            return False
        self._names.discard(name)
        self._let_in.add(name)
        self._there.pop(name, None)
        self._store()
        return True

    def news(self, there: Mapping[str, str]) -> list[Noticed]:
        """What an operator should know: which of those that are kept out have come, each once for each start.

        Args:
            there: all nodes that could be used now, each with its mark (see `add`).
        """
        here = {name: there[name] for name in self._names & there.keys()}
        come = sorted(name for name, mark in here.items() if self._there.get(name) != mark)
        self._there = here
        said = "it is there, and is not used, because it was drained or removed: `headway node add {}` takes it back"
        return [Noticed("node_kept_out", name, said.format(name)) for name in come]

    def _store(self) -> None:
        draft = self._path.with_suffix(".draft")
        try:
            draft.write_bytes(msgspec.json.encode(sorted(self._names)))
            draft.replace(self._path)
        except OSError as error:
            log.warning("which nodes are kept out is forgotten at the next start: %s", error)


def check_slots(name: str, slots: int | None, has: int | None) -> None:
    """Check that a number of slots does not contradict what a found node has.

    Args:
        slots: as somebody wants them; None: as many as it has.
        has: how many slots it has; None: it is not there, so that is not known.

    Raises:
        InvalidInput: it does.
    """
    if slots is not None and slots != has:
        allowed = "none: its engine says how many it has, when it is there" if has is None else f"{has}, or none"
        raise InvalidInput(f"slots of node {name!r}", slots, allowed, hint="`headway node resize` changes them later.")
