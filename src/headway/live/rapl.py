"""The processors' own counters of energy (RAPL), as Linux shows them for Intel and AMD.

Each zone under `/sys/class/powercap` has a file `energy_uj`, which counts microjoules and begins again at 0 after
`max_energy_range_uj`. So the counters are read often enough that none goes round twice between two readings. A package
is a processor with all that is in it; of its parts only the memory (`dram`) is outside of what the package counts. Most
systems let only root read the counters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from headway.live.clock import Clock
from headway.model.instant import Instant

ROOT: Final = Path("/sys/class/powercap")

PREFIX: Final = "intel-rapl:"
"""How the zones are called, those of AMD too, as the driver is Intel's; `intel-rapl-mmio` counts the same again."""

READING_SECONDS: Final = 30.0
"""Seconds between two readings. At 1 kW a counter of the smallest range that is known, 65 kJ, goes round in 65 s."""

READINGS_KEPT: Final = 4096
"""So many readings are kept; then every second one of the older half is dropped."""


class Reading(NamedTuple):
    """What was counted since the first reading.

    Attributes:
        at: when it was read.
        joules: by the name of the zone.
    """

    at: Instant
    joules: Mapping[str, float]


class Counted(NamedTuple):
    """What the counters say of a period.

    Attributes:
        since, until: the period for which there are readings.
        joules: by the name of the zone.
    """

    since: Instant
    until: Instant
    joules: Mapping[str, float]


class Rapl:
    """Reads the counters and adds up what they count.

    Args:
        clock: the source of time.
        root: where the zones are.

    Attributes:
        why_not: why nothing is counted; empty: it is.
    """

    def __init__(self, clock: Clock, root: Path = ROOT) -> None:
        self._clock = clock
        self._next: asyncio.TimerHandle | None = None
        self._last: dict[Path, int] = {}
        self._ranges: dict[Path, int] = {}
        self._names: dict[Path, str] = {}
        self._joules: dict[str, float] = {}
        self._readings: list[Reading] = []
        self.why_not = ""
        self._find(root)

    def start(self) -> None:
        """Read now, and again and again, in the running event loop."""
        self.read()
        if not self.why_not:
            self._next = asyncio.get_running_loop().call_later(READING_SECONDS, self.start)

    def stop(self) -> None:
        """Read no more."""
        if self._next is not None:
            self._next.cancel()

    def read(self) -> None:
        """Read all counters, if they can be read; one that cannot be read any more ends this."""
        if self.why_not:
            return
        for zone, before in self._last.items():
            try:
                now = _number(zone / "energy_uj")
            except (OSError, ValueError) as error:
                self.why_not = f"{zone / 'energy_uj'} cannot be read any more: {_said(error)}"
                return
            counted = now - before if now >= before else now + self._ranges[zone] - before
            self._joules[self._names[zone]] += counted / 1e6
            self._last[zone] = now
        self._readings.append(Reading(self._clock.now(), dict(self._joules)))
        if len(self._readings) > READINGS_KEPT:
            older = READINGS_KEPT // 2
            self._readings[:older] = self._readings[:older:2]

    def total(self) -> Mapping[str, float]:
        """Joules by zone since the first reading, with what has been counted until now."""
        self.read()
        return dict(self._joules)

    def between(self, since: Instant, until: Instant) -> Counted | None:
        """What was counted in the part of a period for which there are readings; None: there are not two of them."""
        some = [reading for reading in self._readings if since <= reading.at <= until]
        if len(some) < 2:
            return None
        first, last = some[0], some[-1]
        return Counted(
            first.at, last.at, {name: joules - first.joules.get(name, 0.0) for name, joules in last.joules.items()}
        )

    def _find(self, root: Path) -> None:
        """Find the zones that count everything once, and read them for the first time."""
        try:
            zones = sorted(zone for zone in root.iterdir() if zone.name.startswith(PREFIX))
        except OSError as error:
            self.why_not = f"{root} cannot be read: {_said(error)}"
            return
        for zone in zones:
            try:
                name = (zone / "name").read_text(encoding="utf-8").strip()
                inner = zone.name.count(":") > 1
                if name != "dram" if inner else not name.startswith("package"):
                    continue
                self._ranges[zone] = _number(zone / "max_energy_range_uj")
                self._last[zone] = _number(zone / "energy_uj")
            except (OSError, ValueError) as error:
                self.why_not = f"{zone / 'energy_uj'} cannot be read: {_said(error)}"
                return
            number = zone.name.split(":")[1]
            self._names[zone] = f"dram-{number}" if inner else name
            self._joules[self._names[zone]] = 0.0
        if not self._last:
            self.why_not = f"there is no processor with such counters under {root}"


def _number(file: Path) -> int:
    return int(file.read_text(encoding="ascii"))


def _said(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
