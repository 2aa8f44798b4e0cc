"""The energy of a period: what the processors counted until now stands beside what the model says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from headway import wire
from headway.errors import Unavailable
from headway.live.meter import EnergyMeter
from headway.model.instant import SECOND, to_seconds
from headway.testing import ManualClock

from .test_rapl import zone

NOTHING = wire.EnergyByModel(0.0, 0.0, 0.0, {}, {}, {}, ())


def saying(text: str) -> tuple[str, ...]:
    """A process that prints this instead of finding anything."""
    return (sys.executable, "-c", f"import sys; sys.stdout.write({text!r})")


def test_what_was_counted_until_now_is_in_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
        clock = ManualClock()
        begin = clock.now()
        meter = EnergyMeter(saying(msgspec.json.encode(NOTHING).decode()), tmp_path, clock, tmp_path)
        meter.rapl.start()
        counter.write_text("500000\n")
        clock.advance(3)  # long before it is read again by itself
        found = await meter.report(None, None)
        meter.rapl.stop()
        assert found.counted == wire.EnergyCounted(
            to_seconds(begin), to_seconds(begin + 3 * SECOND), 0.5, {"package-0": 0.5}
        )
        assert (found.model, found.why_not) == (NOTHING, "")
        none = await meter.report(begin + SECOND, begin + 2 * SECOND)
        assert none.counted is None
        assert "has not read them twice" in none.why_not

    asyncio.run(scenario())


def test_a_process_that_fails_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        command = (sys.executable, "-c", "raise SystemExit('there is no journal')")
        with pytest.raises(Unavailable, match="it was not found: there is no journal"):
            await EnergyMeter(command, tmp_path, ManualClock(), tmp_path).report(None, None)

    asyncio.run(scenario())
