"""The nodes of the engine for Slurm: which are in service, and what Slurm says of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from headway.engines.base import (
    BEHIND_SECONDS,
    NodeBack,
    NodeFound,
    NodeGone,
    NodeLost,
    NodeReady,
    NodeShut,
    Noticed,
    Report,
)
from headway.engines.fit import check_most
from headway.engines.kept_out import KeptOut, check_slots
from headway.engines.slurm.jobs import cpus_of_slot, slots_of
from headway.engines.slurm.parsing import NodeStanding, SlurmNode
from headway.engines.slurm.settings import SLURM_SLOTS_MAX, SlurmSettings
from headway.errors import EngineError, InvalidInput
from headway.model.instant import from_seconds, to_seconds
from headway.model.node import Capabilities, NodeSpec

log = logging.getLogger(__name__)

SLURM_CAPABLE: Final = Capabilities(tiers=False, moves=False)
"""What can be done on nodes of Slurm."""

SHORT: Final = from_seconds(BEHIND_SECONDS / 2)
"""It takes Slurm up to a second to start a job. So what runs shorter than this is worth launching ahead of its turn."""

IN_VAIN_MOST: Final = 2
"""When so many jobs have ended on a node before our program had begun, it cannot be used: no Python, no Headway, ...

Jobs of one account count only if that account's jobs have begun on some node: otherwise it may be the account.
"""

_PAUSES: Final = (30.0, 600.0)
"""Seconds after which such a node is tried again, the first time and at most."""

_THERE: Final = "there"
"""The mark of a node that can be used: Slurm does not say when it was started."""

FOUND_AT_ONCE: Final = 200
"""So many nodes are reported as found before others have their turn."""


@dataclass(slots=True)
class NodeInService:
    """A node in service.

    Attributes:
        up: it can be launched on.
        closed: what runs there goes on, and nothing new is to start.
        in_vain: the accounts of the jobs that ended there, one after the other, before our program had begun.
        pause: for so many seconds it was not used the last time for that; `until`: not before this time.
        why: why it is not used until then.
    """

    spec: NodeSpec
    up: bool
    closed: bool = False
    in_vain: list[str] = field(default_factory=list)
    pause: float = 0.0
    until: float = 0.0
    why: str = ""


class NodesOwner(Protocol):
    """The engine, whose attempts run on the nodes."""

    def tell(self, report: Report) -> None:
        """Report something to the driver."""

    def drop_all(self, name: str) -> None:
        """Forget every attempt that has a part on a node."""


class NodesInService:
    """The nodes in service.

    Args:
        kept_out: those that were told to leave.

    Attributes:
        by_name: all that are in service, also those that are lost.
        seen: what Slurm said last of all nodes of the partition.
        joining: names of those that somebody is adding, so that they are not found meanwhile.
    """

    def __init__(self, settings: SlurmSettings, owner: NodesOwner, kept_out: KeptOut) -> None:
        self.by_name: dict[str, NodeInService] = {}
        self.seen: dict[str, SlurmNode] = {}
        self.joining: set[str] = set()
        self._kept_out = kept_out
        self._settings = settings
        self._owner = owner
        self._accounts: set[str] = set()

    @property
    def up(self) -> frozenset[str]:
        """Names of those that can be launched on."""
        return frozenset(name for name, node in self.by_name.items() if node.up)

    def clear(self) -> None:
        """None is in service any more."""
        self.by_name.clear()

    def begin(self, named: Iterable[NodeSpec]) -> None:
        """Take those into service that the driver knows.

        Raises:
            InvalidInput: a node has too few CPUs for its slots.
        """
        self._check_slots()
        for spec in named:
            if not spec.found:  # else it is found with fewer
                self.check_fit(spec)
            seen = self.seen.get(spec.name)
            closed = seen is not None and seen.standing is NodeStanding.CLOSED  # what runs there may be ours
            up = closed or (seen is not None and seen.standing is NodeStanding.READY)
            node = self.by_name[spec.name] = NodeInService(spec, up, closed)
            if node.up and seen is not None:
                self._shrinks(node, seen)

    def check_fit(self, node: NodeSpec) -> None:
        """A node has at most as many slots as Slurm has CPUs for them. It has no lease: Slurm says when it is lost."""
        seen = self.seen.get(node.name)
        if seen is None:
            check_most(node, SLURM_SLOTS_MAX)
        else:
            each = cpus_of_slot(seen, self._settings)
            shared = f", {each} for each slot" if each > 1 else ""
            check_most(node, slots_of(seen, self._settings), f"Slurm has {seen.cpus} CPUs for it{shared}")
        if node.lease is not None:
            raise InvalidInput(
                f"lease of node {node.name!r}", to_seconds(node.lease), "none: Slurm says when it is lost"
            )

    def may_open(self, name: str) -> bool:
        """Whether a node takes nothing new, but perhaps soon."""
        seen = self.seen.get(name)
        return seen is not None and seen.standing in (NodeStanding.CLOSED, NodeStanding.UNKNOWN)

    def add(self, node: NodeSpec) -> None:
        """Take one more into service.

        Raises:
            EngineError: it is not in the partition, or cannot be used now.
            InvalidInput: see `check_fit`.
        """
        seen = self.seen.get(node.name)
        if seen is None:
            known = ", ".join(sorted(self.seen)) or "none"
            said = f"partition {self._settings.partition!r} has no node {node.name!r}; it has: {known}"
            raise EngineError(said, "`sinfo` lists the nodes of each partition.")
        self.check_fit(node)
        if seen.standing is not NodeStanding.READY:
            why = f" ({seen.why})" if seen.why else ""
            raise EngineError(f"node {node.name!r} is {seen.state} in Slurm{why}", "`scontrol show node` says more.")
        self._kept_out.let_in(node.name)
        self.by_name[node.name] = NodeInService(node, up=True)

    def remove(self, name: str) -> bool:
        """Take one out of service, so that it is not found again before it is let in; returns whether it was there."""
        node = self.by_name.pop(name, None)
        if node is None:
            return False
        self._kept_out.add(name, _THERE if node.up else "")
        return True

    def let_in(self, name: str, slots: int | None) -> bool:
        """Find one again that was told to leave; returns whether it was kept out until now.

        Args:
            slots: how many it should have; None: as many as it has.

        Raises:
            InvalidInput: it has another number of slots, or this is not known.
        """
        seen = self.seen.get(name)
        check_slots(name, slots, None if seen is None else self._slots(seen))
        return self._kept_out.let_in(name)

    def _slots(self, node: SlurmNode) -> int:
        """How many slots a node gets that is found."""
        return min(self._settings.slots or slots_of(node, self._settings), SLURM_SLOTS_MAX)

    def _check_slots(self) -> None:
        """Check that each node of the partition has a CPU for each slot that the settings give it.

        Raises:
            InvalidInput: one has not.
        """
        slots = self._settings.slots
        for node in self.seen.values():
            if slots is not None and slots > node.cpus:
                where = f"node {node.name!r} of partition {self._settings.partition!r}"
                hint = "Leave it out: each node then has a slot for each core."
                raise InvalidInput("slots", slots, f"1 to {node.cpus}: {where} has no more CPUs", hint=hint)

    def find(self) -> bool:
        """Report nodes that are there and not known yet, some at once. Returns whether there may be more."""
        found = 0
        ready = {name: _THERE for name, node in self.seen.items() if node.standing is NodeStanding.READY}
        for noticed in self._kept_out.news(ready) if self._settings.find else ():
            self._owner.tell(noticed)
        for node in self.seen.values() if self._settings.find else ():
            known = node.name in self.by_name or node.name in self._kept_out or node.name in self.joining
            if known or node.standing is not NodeStanding.READY:
                continue
            slots = self._settings.slots or slots_of(node, self._settings)
            if slots > slots_of(node, self._settings):
                log.warning("node %s has %d CPUs, too few for %d slots, and is not used", node.name, node.cpus, slots)
                continue
            spec = NodeSpec(
                node.name,
                self._slots(node),
                site=self._settings.site,
                reports_start=True,
                read_ahead=self._settings.read_ahead,
                capabilities=SLURM_CAPABLE,
                short=SHORT,
            )
            self.by_name[node.name] = NodeInService(replace(spec, found=True), up=True)
            self._owner.tell(NodeFound(spec))
            found += 1
            if found == FOUND_AT_ONCE:
                return True
        return False

    def works(self, name: str, account: str) -> None:
        """Our program has run there, as this account; empty: as that of the server."""
        self._accounts.add(account)
        if (node := self.by_name.get(name)) is not None:
            node.in_vain.clear()
            node.pause = 0.0

    def in_vain(self, name: str, account: str, detail: str, now: float, working: frozenset[str]) -> None:
        """A job has ended there before our program had begun. After some, nothing is launched there for a while.

        Args:
            account: which it was to run as; empty: that of the server.
            detail: how it ended.
            now: the time of the event loop.
            working: nodes where something of ours has begun: that goes on.
        """
        node = self.by_name.get(name)
        if node is None or not node.up or now < node.until:
            return
        node.in_vain.append(account)
        is_one = bool(account) and len(set(node.in_vain)) == 1
        if len(node.in_vain) < IN_VAIN_MOST or (is_one and account not in self._accounts):
            return  # it may be the account
        node.in_vain.clear()
        node.pause = min(max(2 * node.pause, _PAUSES[0]), _PAUSES[1])
        node.until = now + node.pause
        node.why = (
            f"our program does not begin there; it is tried again in {node.pause:g} s. {' '.join(detail.split())}"
        )
        self._owner.tell(Noticed("node_not_started", name, node.why))
        if name in working:
            node.closed = True
            self._owner.tell(NodeShut(name, node.why))
        else:
            self._lose(node, node.why, excused=True)

    def take(self, seen: dict[str, SlurmNode], working: frozenset[str], haunted: frozenset[str], at: float) -> None:
        """Take in what Slurm says of the nodes.

        Args:
            at: the time of the event loop.
            working: nodes where something of ours has begun.
            haunted: nodes where Slurm still has a job of ours that is not wanted any more.
        """
        self.seen = seen
        for name, node in tuple(self.by_name.items()):
            now = seen.get(name)
            if node.up:
                if now is None:
                    self._lose(node, f"it has left partition {self._settings.partition!r}", gone=node.spec.found)
                    continue
                if now.standing is NodeStanding.UNKNOWN:
                    continue
                said = f"it is {now.state} in Slurm" + (f": {now.why}" if now.why else "")
                was_closed, is_tried = node.closed, at >= node.until
                node.closed = now.standing is NodeStanding.CLOSED or not is_tried
                if now.standing is NodeStanding.READY and not is_tried:
                    said = node.why
                if now.standing is NodeStanding.DOWN or (node.closed and name not in working):
                    drained = node.closed or now.state.lower().startswith("drained")
                    self._lose(node, said, excused=drained and name not in working)
                elif node.closed != was_closed:
                    self._owner.tell(NodeShut(name, said) if node.closed else NodeReady(name))
            elif now is not None and now.standing is NodeStanding.READY and name not in haunted and at >= node.until:
                node.up, node.closed = True, False
                if not self._shrinks(node, now):
                    self._owner.tell(NodeBack(name))

    def _shrinks(self, node: NodeInService, now: SlurmNode) -> bool:
        """Report a node that was found before if it has fewer slots now; returns whether it has."""
        most = slots_of(now, self._settings)
        if not node.spec.found or node.spec.slots <= most:
            return False
        node.spec = replace(node.spec, slots=most)
        self._owner.tell(NodeFound(node.spec))
        return True

    def _lose(self, node: NodeInService, detail: str, *, gone: bool = False, excused: bool = False) -> None:
        """A node is lost, and with it every attempt that has a part there.

        Args:
            gone: it is no longer in the partition.
            excused: somebody drained it, and nothing had begun there: what waited there is not the cause.
        """
        name = node.spec.name
        log.warning("node %s is lost: %s", name, detail)
        node.up = False
        self._owner.drop_all(name)
        if gone:
            del self.by_name[name]
            self._owner.tell(NodeGone(name, detail))
        else:
            self._owner.tell(NodeLost(name, detail, excused))
