"""Runs by a seed in which machines are rented: a provider that fails, beside all other faults; and the checks.

The provider outlives the driver, as a cloud does. It does what is asked or not, answers late or not at all, has nothing
left, refuses the credential for a while, ends machines and takes them back, with a clock that is off. It keeps its own
books, which are compared with what the core counts.

    python -m tests.faults.run --renting
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from headway.errors import EngineError
from headway.live.driver import Driver
from headway.live.outside import Surroundings
from headway.model.instant import SECOND
from headway.model.job import BATCH, JobId
from headway.model.node import NodeSpec
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.renting import UNIT, Money, Offer, Renting
from headway.model.snapshot import Snapshot
from headway.policies import registry
from headway.policies.backfill import Easy
from headway.renting.provider import NotRented, RentedMachine, Unsure

from .engine import SimEngine
from .virtual import BASE
from .world import World

PERIOD = 600 * SECOND
LONG = Offer("cloud", "long", 2, 36 * UNIT, period=PERIOD, minimum=PERIOD, start_time=5 * SECOND, limit=2)
SECONDLY = Offer("cloud", "secondly", 1, 36 * UNIT, 2.0, minimum=20 * SECOND, start_time=SECOND, limit=3, spot=True)
OFFERS = {offer.type: offer for offer in (LONG, SECONDLY)}


class Renter:
    """Rents for the jobs that wait, as much as it may, and gives some back early."""

    per_instant = task_rounds = True
    serves = BATCH

    def __call__(self, view: Snapshot) -> Plan:
        plan = Easy()(view)
        for job in list(view.waiting)[:2]:
            for offer in view.market.renting.offers:
                plan.rent(offer.site, offer.type, job.id, "it waits")
        for number, rental in view.market.rentals.items():
            if (number * 7 + view.now // SECOND) % 13 == 0 and not rental.is_over:
                plan.give_back(number)
        return plan


def find(text: str) -> Policy:
    """A policy by its text; one more than there are."""
    return Renter() if text == "renter" else registry.find(text)


@dataclass
class Rented:
    """A machine of the cloud."""

    machine: RentedMachine
    node: str
    since: float
    until: float | None = None


class Cloud:
    """A provider that fails.

    Attributes:
        ever: all machines there ever were, by token.
        faults: how often what happened.
    """

    def __init__(self, world: RentingWorld, random: Random) -> None:
        self._world = world
        self._random = random
        self.ever: dict[str, Rented] = {}
        self._notices: dict[str, float] = {}
        self.unsure = random.choice((0.0, 0.05, 0.3))
        self.none_left = random.choice((0.0, 0.1, 0.5))
        self.slow = random.choice((0.0, 0.5, 20.0))
        self.clock_off = random.choice((0.0, -300.0, 300.0))
        self.refused_until = random.choice((0.0, 0.0, 4.0))

    @property
    def alive(self) -> dict[str, Rented]:
        """Those there are."""
        return {token: one for token, one in self.ever.items() if one.until is None}

    async def _may_fail(self, what: str) -> None:
        await asyncio.sleep(0 if self._world.calm else self._random.random() * self.slow)
        if not self._world.calm and self._random.random() < self.unsure:
            self._world.told.faults[f"cloud: {what}"] += 1
            if self._random.random() < 0.3:
                await asyncio.sleep(20)
            raise Unsure("no answer within 20 s")

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        """One machine for a token."""
        await self._may_fail("lost requests for a machine")
        if not self._world.calm and self._world.loop.time() < self.refused_until:
            self._world.told.faults["cloud: refused credentials"] += 1
            raise NotRented("the credential is wrong")
        if token not in self.ever:
            if not self._world.calm and self._random.random() < self.none_left:
                self._world.told.faults["cloud: nothing left"] += 1
                raise NotRented("none is left")
            machine = RentedMachine(f"i-{len(self.ever) + 1}", token, type)
            self.ever[token] = Rented(machine, node, self._world.loop.time())
            self._world.told.done["machines rented"] += 1
        await self._may_fail("lost answers with a machine")
        return self._as_told(self.ever[token])

    async def end(self, token: str) -> bool:
        """Give back."""
        await self._may_fail("lost requests to give back")
        self.stop(token)
        await self._may_fail("lost answers to giving back")
        return self._world.calm or self._random.random() < 0.7

    async def machines(self) -> list[RentedMachine]:
        """All, also those that are gone."""
        await self._may_fail("lost lists")
        return [self._as_told(one) for one in self.ever.values()]

    async def reclaimed(self) -> dict[str, float]:
        """Notices, by a clock that is off."""
        await self._may_fail("lost notices")
        return {token: at for token, at in self._notices.items() if token in self.alive}

    async def close(self) -> None:
        """Nothing is open."""

    def _as_told(self, one: Rented) -> RentedMachine:
        return RentedMachine(one.machine.name, one.machine.token, one.machine.type, ended=one.until is not None)

    def stop(self, token: str) -> None:
        """A machine ends, whoever wants it."""
        one = self.alive.get(token)
        if one is not None:
            one.until = self._world.loop.time()
            self._world.site.die(one.node)

    async def harm(self) -> None:
        """Machines end by themselves, or are taken back after a notice."""
        while not self._world.calm:
            await asyncio.sleep(self._random.random() * 8)
            alive = sorted(self.alive)
            if not alive or self._world.calm:
                continue
            token = self._random.choice(alive)
            if self._random.random() < 0.5:
                self._world.told.faults["cloud: machines that ended"] += 1
                self.stop(token)
            else:
                self._world.told.faults["cloud: notices"] += 1
                self._notices[token] = BASE / SECOND + self._world.loop.time() + 30 + self.clock_off
                await asyncio.sleep(self._random.random() * 30)
                self.stop(token)

    def billed(self, now: float) -> Money:
        """What it bills in all."""
        return sum(
            OFFERS[one.machine.type].bill(round(((now if one.until is None else one.until) - one.since) * SECOND))
            for one in self.ever.values()
        )


class SomeNeverJoin(SimEngine):
    """Machines whose node does not start."""

    chance: Random
    share = 0.0

    async def join(self, node: NodeSpec) -> None:
        """Have one more node, or not."""
        if node.site == "cloud" and self.chance.random() < self.share:
            await asyncio.sleep(0.1)
            raise EngineError("its agent does not start")
        await super().join(node)


class RentingWorld(World):
    """A world in which machines are rented.

    Attributes:
        cloud: who rents them out.
    """

    find = staticmethod(find)
    cloud_type: type[Cloud] = Cloud

    def __init__(self, seed: int, **terms: Any) -> None:
        random = Random(f"headway {seed} renting")

        class Engine(SomeNeverJoin):
            chance = random
            share = random.choice((0.0, 0.0, 0.3))

        super().__init__(seed, engine_type=Engine, **terms)
        self.rates.policy = "renter"
        self.budget = random.choice((None, 40 * UNIT, 8 * UNIT, 0))
        self.renting = Renting(
            tuple(OFFERS.values()), self.budget, random.choice((None, 7 * UNIT)), limit=60 * SECOND, margin=10 * SECOND
        )
        self.cloud = self.cloud_type(self, Random(f"headway {seed} cloud"))

    def _surroundings(self) -> Surroundings:
        return Surroundings(providers=lambda _: {"cloud": self.cloud})

    def _troubles(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._troubles(), self.cloud.harm()]

    def _operation(
        self, random: Random, jobs: list[JobId], number: int
    ) -> tuple[str, Callable[[Driver], Awaitable[Any]]]:
        name, step = super()._operation(random, jobs, number)
        return (name, step) if name != "policies" else (name, lambda driver: driver.choose("renter", decider=""))

    def _check_started(self) -> None:
        super()._check_started()
        self._check_rented()

    def _check_rented(self) -> None:
        """No limit and no budget is exceeded."""
        assert self.driver is not None
        market = self.driver.core.state.market
        for offer in OFFERS.values():
            there = sum(1 for one in self.cloud.alive.values() if one.machine.type == offer.type)
            self._must(there <= offer.limit, f"{there} machines of type {offer.type} are rented")
        spent = max(market.spent.values(), default=0)
        self._must(self.budget is None or spent <= self.budget, f"{spent} of {self.budget} is spent")
        if self.budget == 0:
            self._must(not self.cloud.ever, "a machine was rented with a budget of 0")
        most = self.renting.budget_job if self.renting is not None else None
        for job, paid in market.by_job.items():
            self._must(most is None or paid <= most, f"{paid} of {most} is spent for job {job}")

    async def _calm(self, faulty: list[asyncio.Task[None]]) -> None:
        await super()._calm(faulty)
        end = self.loop.time() + 3 * PERIOD / SECOND
        while self.driver is None or self.driver.core.state.market.rentals or self.cloud.alive:
            if self.loop.time() > end:
                assert self.driver is not None
                rentals = {number: one.stage for number, one in self.driver.core.state.market.rentals.items()}
                self._must(False, f"machines are kept for nothing: {sorted(self.cloud.alive)}; rentals: {rentals}")
            await asyncio.sleep(5)
            self._check_rented()
        for one in self.cloud.ever.values():
            offer = OFFERS[one.machine.type]
            assert one.until is not None
            self.told.done["machine seconds"] += round(one.until - one.since)
            self.told.done["machine seconds billed"] += offer.billed(round((one.until - one.since) * SECOND)) // SECOND
        self.told.done["millionths billed"] += self.cloud.billed(self.loop.time())
        self.told.done["millionths counted"] += sum(self.driver.core.state.market.spent.values())
