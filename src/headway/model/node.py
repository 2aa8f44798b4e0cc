"""Where work runs: nodes of a site, with slots, cores and a speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from headway.model.instant import Duration


class SlotStatus(Enum):
    """What a slot is doing (Lin14 3.5.1, its four words)."""

    AVAILABLE = "available"
    OCCUPIED = "occupied"
    BUSY = "busy"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One machine, as its site offers it.

    Attributes:
        name: unique in the cluster.
        slots: shares of the node that a task can hold, >= 1.
        speed: work per second relative to a reference node, > 0.
        cores: cores of the node; None: one a slot. A task that wants c cores holds ceil(c * slots / cores) slots.
        site: the place it belongs to.
        lease: silence of the node longer than this means it is down; None: its engine tells of every loss itself.
        read_ahead: how many short tasks of a bag may be launched on a slot ahead of their turn, so that it need not
            wait for its driver between two of them; 0: none.
        kind: its class of machines, such as "xeon-2014"; on nodes of one kind a task is expected to run alike.
        reports_start: whether its engine reports `TaskStarted`; otherwise a launched task counts as running at once.
    """

    name: str
    slots: int = 1
    speed: float = 1.0
    cores: int | None = None
    site: str = "local"
    lease: Duration | None = None
    reports_start: bool = False
    read_ahead: int = 0
    kind: str = ""

    @property
    def node_class(self) -> str:
        """The class by which run times are kept: its kind, where none is given its speed.

        >>> NodeSpec("a", speed=1.5).node_class
        'speed=1.5'
        """
        return self.kind or f"speed={self.speed:g}"

    def slots_for(self, cores: int) -> int:
        """How many slots of this node a task holds that wants `cores` cores; may exceed `slots`: it never fits."""
        return cores if self.cores is None else -(-cores * self.slots // self.cores)


def node_flaw(node: NodeSpec) -> str | None:
    """What is wrong with a node, as `field is value; allowed: ...`; None when nothing is."""
    checks: tuple[tuple[bool, str, object, str], ...] = (
        (bool(node.name), "name", node.name, "a name"),
        (node.slots >= 1, "slots", node.slots, "1 or more"),
        (math.isfinite(node.speed) and node.speed > 0, "speed", node.speed, "a number greater than 0"),
        (node.cores is None or node.cores >= 1, "cores", node.cores, "1 or more, or none"),
        (node.lease is None or node.lease > 0, "lease", node.lease, "more than 0, or none"),
        (node.read_ahead >= 0, "read_ahead", node.read_ahead, "0 or more"),
    )
    for right, field, value, allowed in checks:
        if not right:
            return f"{field} is {value!r}; allowed: {allowed}"
    return None
