"""Where work runs: nodes of a site, with slots, cores and a speed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from headway.model.instant import NEVER, SECOND, Duration

NODE_NAME_MAX: Final = 200
"""How many characters the name of a node may have; its site and its kind too."""

SLOT_COUNT_MAX: Final = 1_000_000
"""How many slots, and cores, a node may have."""

SPEED_RANGE: Final = (1e-9, 1e9)
"""Speed factors that a node may have: with these, run times on it stay within the range of numbers."""


SHORT_TASK: Final[Duration] = SECOND // 50
"""Tasks of a bag that run shorter than this on average are worth launching ahead of their turn, as a rule."""


class SlotStatus(Enum):
    """The status of a slot (Lin14 3.5.1, with its four words)."""

    AVAILABLE = "available"
    OCCUPIED = "occupied"
    BUSY = "busy"
    DOWN = "down"


@lru_cache(maxsize=1024)
def _class_of_speed(speed: float) -> str:
    return f"speed={speed:g}"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the engine of a node can do there. Without one of these the core asks for nothing that needs it.

    Attributes:
        tiers: each slot has a background place beside the foreground, and attempts change from one to the other.
        moves: an attempt can be asked to save and to end, and its checkpoints are there for the next one elsewhere.
        read_ahead: tasks of a bag may be launched on a slot ahead of their turn.
        adopts: what runs goes on when the driver dies, and the next driver is told of it.
        shares_files: paths mean the same there as on the driver's machine, so files need not be sent.
        spans: what starts together may also have members on nodes of other sites.
    """

    tiers: bool = True
    moves: bool = True
    read_ahead: bool = True
    adopts: bool = True
    shares_files: bool = True
    spans: bool = True

    @property
    def lacking(self) -> tuple[str, ...]:
        """The names of those that it does not have.

        >>> Capabilities(moves=False).lacking
        ('moves',)
        """
        has = (self.tiers, self.moves, self.read_ahead, self.adopts, self.shares_files, self.spans)
        return tuple(name for name, can in zip(CAPABILITIES, has, strict=True) if not can)


CAPABILITIES: Final = ("tiers", "moves", "read_ahead", "adopts", "shares_files", "spans")
"""The names of what a node may be able to do, in the order of `Capabilities`."""

CAPABLE: Final = Capabilities()
"""Those of a node of this machine: all."""


@dataclass(frozen=True, slots=True)
class Power:
    """What a node draws from the mains: from `idle` to `peak` in proportion to its busy slots.

    Attributes:
        idle: watts when it is on and nothing runs there, >= 0.
        peak: watts when all its slots are busy, >= `idle`.

    Source: DN13, section 2; the linear model is a reading.
    """

    idle: float
    peak: float

    def at(self, share: float) -> float:
        """Watts when this share of its slots is busy.

        >>> Power(50.0, 90.0).at(0.5)
        70.0
        """
        return self.idle + (self.peak - self.idle) * share


WATTS_MAX: Final = 1e9
"""No node draws more."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One machine of a site.

    Attributes:
        name: unique in the cluster.
        slots: how many tasks it runs at once, >= 1.
        speed: work per second relative to a reference node, see `SPEED_RANGE`.
        cores: cores of the node; None: one for each slot. A task that needs c cores gets ceil(c * slots / cores) slots.
        site: the place it belongs to.
        lease: silence of the node longer than this means it is down; None: its engine itself reports every loss.
        read_ahead: how much work of a bag may be launched on a slot ahead of its turn, in tasks of `short`; of shorter
            tasks up to eight times as many. So the slot need not wait for its driver between two of them; 0: none.
        short: tasks of a bag that run longer than this on average are not launched ahead of their turn. The longer it
            takes from a launch to its start, the longer are the tasks for which that is worth it.
        kind: its class of machines, such as "xeon-2014"; on nodes of one kind a task is expected to take the same time.
        reports_start: whether its engine reports `TaskStarted`; otherwise a launched task counts as running at once.
        capabilities: what can be done there.
        found: whether its engine finds it and loses it by itself, so that no cluster file need name it.
        power: what it draws; None: not known.
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
    capabilities: Capabilities = CAPABLE
    found: bool = False
    power: Power | None = None
    short: Duration = SHORT_TASK

    @property
    def node_class(self) -> str:
        """The class by which run times are kept: its kind, or its speed if it has none.

        >>> NodeSpec("a", speed=1.5).node_class
        'speed=1.5'
        """
        return self.kind or _class_of_speed(self.speed)

    @property
    def together(self) -> str:
        """The members of a rigid job are on nodes of which this is the same: a site, or empty.

        >>> NodeSpec("a", site="hall", capabilities=Capabilities(spans=False)).together
        'hall'
        """
        return "" if self.capabilities.spans else self.site

    def slots_for(self, cores: int) -> int:
        """How many slots of this node a task with `cores` cores needs; it may exceed `slots`: then it never fits."""
        return cores if self.cores is None else -(-cores * self.slots // self.cores)


def node_flaw(node: NodeSpec) -> str | None:
    """What is wrong with a node, as `field is value; allowed: ...`; None when nothing is."""
    named = f"of at most {NODE_NAME_MAX} characters that can be printed"
    power = node.power or Power(0.0, 0.0)
    checks: tuple[tuple[bool, str, object, str], ...] = (
        (
            bool(node.name.strip(". ")) and can_be_shown(node.name),
            "name",
            node.name[: 2 * NODE_NAME_MAX],
            f"a name {named}",
        ),
        (can_be_shown(node.site), "site", node.site[: 2 * NODE_NAME_MAX], f"a word {named}"),
        (can_be_shown(node.kind), "kind", node.kind[: 2 * NODE_NAME_MAX], f"a word {named}"),
        (1 <= node.slots <= SLOT_COUNT_MAX, "slots", node.slots, f"1 to {SLOT_COUNT_MAX}"),
        (SPEED_RANGE[0] <= node.speed <= SPEED_RANGE[1], "speed", node.speed, "{:g} to {:g}".format(*SPEED_RANGE)),
        (
            node.cores is None or 1 <= node.cores <= SLOT_COUNT_MAX,
            "cores",
            node.cores,
            f"1 to {SLOT_COUNT_MAX}, or none",
        ),
        (node.lease is None or 0 < node.lease < NEVER, "lease", node.lease, "more than 0, or none"),
        (node.read_ahead >= 0, "read_ahead", node.read_ahead, "0 or more"),
        (0 < node.short < NEVER, "short", node.short, "more than 0"),
        (node.capabilities.read_ahead or not node.read_ahead, "read_ahead", node.read_ahead, "0: it cannot read ahead"),
        (0 <= power.idle <= WATTS_MAX, "power.idle", power.idle, f"0 to {WATTS_MAX:g} watts"),
        (power.idle <= power.peak <= WATTS_MAX, "power.peak", power.peak, f"{power.idle:g} to {WATTS_MAX:g} watts"),
    )
    for right, field, value, allowed in checks:
        if not right:
            return f"{field} is {value!r}; allowed: {allowed}"
    return None


def can_be_shown(text: str) -> bool:
    """Whether a text can be part of a line of a list, of a log and of a URL."""
    return len(text) <= NODE_NAME_MAX and text.isprintable()
