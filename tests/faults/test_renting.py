"""Rented machines under faults by the seed: no budget is exceeded, and nothing is kept for nothing.

`make faults RENTING=1 SEEDS=1000` runs longer ones. Run one again: `RentingWorld(SEED, faulty_seconds=SHORT).run()`.
"""

from __future__ import annotations

import asyncio

import pytest

from headway.renting.provider import RentedMachine

from .renting import Cloud, Rented, RentingWorld
from .world import Wrong

SHORT = 6.0
"""Seconds of faults in each of the runs here."""

SEEDS = 20
CHUNK = 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_what_is_rented_is_given_back_and_no_budget_is_exceeded(first: int) -> None:
    crashes = rented = 0
    for seed in range(first, first + CHUNK):
        told = RentingWorld(seed, faulty_seconds=SHORT).run()
        crashes += sum(told.crashes.values())
        rented += told.done["machines rented"]
    assert crashes >= 2 * CHUNK
    assert rented >= CHUNK


class TwoForOne(Cloud):
    """With each token it rents one more machine."""

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        machine = await super().start(token, type, node)
        await asyncio.sleep(0)
        more = RentedMachine(f"{machine.name}-more", f"more-{len(self.ever)}", type)
        self.ever[more.token] = Rented(more, f"{node}-more", self._world.loop.time())
        return machine


class GivesNothingBack(Cloud):
    """It says that a machine is gone, and lists it no more, but lets it run."""

    def stop(self, token: str) -> None:
        pass


@pytest.mark.long
@pytest.mark.parametrize(
    ("cloud", "said"),
    [(TwoForOne, r"machines of type .* are rented|machines are kept for nothing"), (GivesNothingBack, "machines")],
)
def test_a_provider_that_breaks_its_promise_is_noticed(cloud: type[Cloud], said: str) -> None:
    class World(RentingWorld):
        cloud_type = cloud

    def run() -> None:
        for seed in range(1, 9):
            World(seed, faulty_seconds=SHORT).run()

    with pytest.raises(Wrong, match=said):
        run()
