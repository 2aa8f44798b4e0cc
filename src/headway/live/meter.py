"""What the nodes take: by the model, found by a process beside the event loop, and by the processors' own counters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headway import wire
from headway.errors import Unavailable
from headway.live.clock import Clock
from headway.live.rapl import ROOT, Rapl
from headway.model.instant import Instant, to_seconds

METER_SECONDS_MAX: Final = 600.0
"""Seconds after which a process that has not answered hangs."""


class EnergyMeter:
    """Measures the energy of the nodes.

    Args:
        command: starts the process that finds it by the model; the data directory and two instants are appended.
        folder: the data directory.
        clock: the source of time.
        root: where the processors' counters are.

    Attributes:
        rapl: the counters.
    """

    def __init__(self, command: Sequence[str], folder: Path, clock: Clock, root: Path = ROOT) -> None:
        self._command = tuple(command)
        self._folder = folder
        self._clock = clock
        self._begin = clock.now()
        self._one = asyncio.Lock()
        self.rapl = Rapl(clock, root)

    async def report(self, since: Instant | None, until: Instant | None) -> wire.EnergyReport:
        """The energy of a period, one caller after the other.

        Args:
            since, until: default: since this server started, until now.

        Raises:
            Unavailable: it cannot be found; the message says why.
        """
        self.rapl.read()  # before what counts as now
        now = self._clock.now()
        first = self._begin if since is None else since
        last = max(first, now if until is None else min(now, until))
        async with self._one:
            model = await self._by_model(first, last)
        counted = self.rapl.between(first, last)
        counters = None
        if counted is not None:
            total = sum(counted.joules.values())
            counters = wire.EnergyCounted(
                to_seconds(counted.since), to_seconds(counted.until), total, dict(counted.joules)
            )
        why_not = self.rapl.why_not or ("" if counted else "the server has not read them twice in this period")
        return wire.EnergyReport(model, counters, why_not)

    async def _by_model(self, since: Instant, until: Instant) -> wire.EnergyByModel:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                *(str(self._folder), str(since), str(until)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 26,
            )
        except OSError as error:
            raise Unavailable(f"the process that finds it cannot be started: {error.strerror or error}") from error
        try:
            async with asyncio.timeout(METER_SECONDS_MAX):
                printed, complaints = await child.communicate()
        except TimeoutError:
            raise Unavailable(f"it was not found within {METER_SECONDS_MAX:g} s") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            lines = complaints.decode(errors="replace").strip().splitlines()
            raise Unavailable(f"it was not found: {lines[-1] if lines else f'exit code {child.returncode}'}")
        return msgspec.json.decode(printed, type=wire.EnergyByModel)
