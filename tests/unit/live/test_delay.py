"""How late the event loop does what is due."""

from __future__ import annotations

import asyncio
import time

import pytest

from headway.live import delay
from headway.live.delay import BOUNDS, LoopDelay


def test_delays_are_sorted_into_classes() -> None:
    found = LoopDelay()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] + 0.0001, BOUNDS[-1] + 1):
        found.note(seconds)
    assert (found.counts[0], found.counts[1], found.counts[-1], sum(found.counts)) == (2, 1, 1, 4)
    assert found.seconds == pytest.approx(2 * BOUNDS[0] + 0.0001 + BOUNDS[-1] + 1)


def test_a_loop_that_is_held_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "DELAY_LOOK_SECONDS", 0.01)

    async def main() -> None:
        found = LoopDelay()
        found.start()
        time.sleep(0.15)  # blocking the loop is the purpose
        while not sum(found.counts):
            await asyncio.sleep(0.005)
        found.stop()
        looks = sum(found.counts)
        assert sum(number for number, bound in zip(found.counts, BOUNDS, strict=False) if bound <= 0.1) < looks
        assert found.seconds > 0.13
        await asyncio.sleep(0.05)
        assert sum(found.counts) == looks, "it was told to stop"

    asyncio.run(main())
