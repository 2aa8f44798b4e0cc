"""Rented machines under a faulty site: limits and budgets hold, nothing is kept for nothing, and a replay is exact.

A `Cloud` takes the place of the driver and of the site that rents machines out. It keeps its own books: what it bills
is found from its own notes, and compared with what the core says.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest

from headway.advice.language import read_question, write_question
from headway.advice.snapshots import check_snapshot
from headway.core.scheduler import Scheduler
from headway.live.store.decisions import decided_row, event_of
from headway.live.store.decisions import replay as again
from headway.model.actions import Kill, Launch, RentMachine, ReturnMachine, Suspend, Wake
from headway.model.events import (
    Event,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    Reclaimed,
    Rented,
    RentFailed,
    RentingChosen,
    Returned,
    TaskEnded,
    Woke,
)
from headway.model.instant import HOUR, SECOND, Instant
from headway.model.job import BATCH, Bag
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.renting import UNIT, Offer, Renting
from headway.model.snapshot import Snapshot
from headway.policies.backfill import Easy
from headway.policies.registry import find as installed

HOURLY = Offer("cloud", "hourly", 2, 6 * UNIT, period=HOUR, minimum=HOUR, start_time=90 * SECOND, limit=3)
SECONDLY = Offer("cloud", "secondly", 1, 4 * UNIT, speed=2.0, start_time=20 * SECOND, limit=4, spot=True)
OFFERS = (HOURLY, SECONDLY)
SEEDS = range(40)


class Renter:
    """Rents a machine for each job that waits, of any offer; gives some back in between; starts tasks first come."""

    per_instant = True
    task_rounds = True
    serves = BATCH

    def __init__(self) -> None:
        self._starts = Easy()

    def __call__(self, view: Snapshot) -> Plan:
        plan = self._starts(view)
        for job in list(view.waiting)[:3]:
            for offer in view.market.renting.offers:
                plan.rent(offer.site, offer.type, job.id, why="it waits")
        for number, rental in view.market.rentals.items():
            if (number * 7 + view.now // SECOND) % 11 == 0 and not rental.is_over:
                plan.give_back(number)
        return plan


def find(text: str) -> Policy:
    return Renter() if text == "renter" else installed(text)


class Cloud:
    """A driver and a site: machines come late, twice, never, break, and are taken back."""

    def __init__(self, seed: int, budget_day: int | None, budget_job: int | None) -> None:
        self.chance = Random(seed)
        self.budget_day, self.budget_job = budget_day, budget_job
        self.core = Scheduler(find, "renter")
        self.heap: list[tuple[Instant, int, Event]] = []
        self.tie = count()
        self.rows: list[tuple[str, bytes]] = []
        self.machines: dict[int, tuple[Offer, Instant]] = {}  # those that exist, and since when
        self.asked: dict[int, Offer] = {}
        self.bills: list[int] = []
        self.of_job = Counter[int | None]()
        self.running: dict[tuple[int, int, int], int] = {}
        self.rented = Counter[str]()
        self.feed(RentingChosen(0, Renting(OFFERS, budget_day, budget_job)))
        self.feed(NodeJoined(0, NodeSpec("own", 2)))

    def expect(self, at: Instant, event: Event) -> None:
        heappush(self.heap, (at, next(self.tie), event))

    def feed(self, event: Event) -> None:
        """What an event leads to, and what can be seen of it from outside."""
        core = self.core
        if isinstance(event, TaskEnded):
            self.running.pop((event.job, event.task, event.attempt), None)
        if isinstance(event, Returned):
            if event.rental in self.machines:
                offer, since = self.machines.pop(event.rental)
                self.bills.append(offer.bill(event.at - since))
                self.of_job[core.state.market.rentals[event.rental].job] += self.bills[-1]
            del self.asked[event.rental]
        if isinstance(event, RentFailed):
            self.asked.pop(event.rental)
        actions = core.handle(event)
        assert core.failure is None, core.failure
        core.check()
        self.rows.append(decided_row(1, event.at, event, core.decided)[2:])
        for action in actions:
            self.perform(action, event.at)
        market = core.state.market
        if self.budget_day is not None:
            assert max(market.spent.values(), default=0) <= self.budget_day
        if self.budget_job is not None:
            assert max(market.by_job.values(), default=0) <= self.budget_job
        for offer in OFFERS:
            taken = sum(1 for one in market.rentals.values() if one.offer.type == offer.type)
            assert taken <= offer.limit

    def perform(self, action: object, now: Instant) -> None:
        chance = self.chance
        match action:
            case Wake():
                self.expect(max(now, action.at), Woke(action.at))
            case Launch():
                key = action.job, action.task, action.attempt
                self.running[key] = action.slots
                took = chance.choice([1, 20, 300, 4000]) * SECOND
                self.expect(now + took, TaskEnded(now + took, *key, Outcome.SUCCEEDED))
            case Kill() | Suspend():
                key = action.job, action.task, action.attempt
                self.expect(now, TaskEnded(now, *key, Outcome.KILLED))
            case RentMachine():
                self.ask(action, now)
            case ReturnMachine():
                at = now + chance.choice([0, 0, 1, 29]) * SECOND
                self.expect(at, Returned(at, action.rental))
            case _:
                pass

    def ask(self, action: RentMachine, now: Instant) -> None:
        """The answers may come late, twice or never; the machine may be taken back before it joins."""
        chance, number = self.chance, action.rental
        assert number not in self.asked, "one number, one machine"
        offer = next(one for one in OFFERS if one.type == action.type)
        self.asked[number] = offer
        self.rented[offer.type] += 1
        rental = self.core.state.market.rentals[number]
        assert rental.node == action.node
        fate = chance.random()
        answered = now + chance.choice([0, 1, 7]) * SECOND
        if fate < 0.15:
            self.expect(answered, RentFailed(answered, number, "none is left"))
            return
        self.expect(answered, Rented(answered, number, f"i-{number}"))
        if fate < 0.25:
            return  # it never joins
        at = answered + round(offer.start_time * chance.choice([0.5, 1.0, 3.0]))
        self.expect(at, NodeJoined(at, offer.node(action.node)))
        if chance.random() < 0.1:
            self.expect(at + SECOND, NodeJoined(at + SECOND, offer.node(action.node)))
        if chance.random() < 0.15:
            lost = at + chance.randint(1, 2000) * SECOND
            self.expect(lost, NodeDown(lost, action.node))
        if offer.spot and chance.random() < 0.3:
            told = at + chance.randint(0, 1000) * SECOND
            self.expect(told, Reclaimed(told, number, told + 120 * SECOND))

    def run(self) -> None:
        """All that happens, in order."""
        core = self.core
        steps = 0
        while self.heap:
            steps += 1
            assert steps < 20_000, "it never comes to an end"
            _, _, event = heappop(self.heap)
            if isinstance(event, RentFailed | Rented | Returned) and event.rental not in self.asked:
                continue
            if isinstance(event, Rented):
                rental = core.state.market.rentals[event.rental]
                self.machines[event.rental] = rental.offer, event.at
            if isinstance(event, NodeJoined) and event.node.site == "cloud":
                number = int(event.node.name.rpartition("r")[2])
                if number not in self.machines:
                    continue  # the site has ended it before
            if isinstance(event, TaskEnded) and (event.job, event.task, event.attempt) not in self.running:
                continue
            if isinstance(event, NodeDown) and event.name not in core.state.nodes:
                continue
            self.feed(event)
            for key in [key for key in self.running if core.state.current(*key) is None]:
                del self.running[key]


def jobs(chance: Random) -> list[JobSubmitted]:
    found, at = [], 0
    for number in range(chance.randint(1, 12)):
        at += chance.choice([0, 30, 600, 9000]) * SECOND
        spec = Bag(number, at, estimate=100 * SECOND, tasks=chance.randint(1, 9), user=chance.choice(["ann", "bob"]))
        found.append(JobSubmitted(at, spec))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_no_budget_is_exceeded_and_nothing_stays_rented(seed: int) -> None:
    chance = Random(f"budgets {seed}")
    day, job = chance.choice([None, 9 * UNIT, 40 * UNIT]), chance.choice([None, 7 * UNIT])
    cloud = Cloud(seed, day, job)
    for event in jobs(chance):
        cloud.expect(event.at, event)
    cloud.run()
    market = cloud.core.state.market
    assert not cloud.core.state.jobs, "all jobs have ended"
    assert not market.rentals
    assert not cloud.asked, "nothing is left behind"
    assert not cloud.machines
    assert sum(market.by_user.values()) >= sum(cloud.bills), "what is billed was counted"
    if job is not None:
        assert max((amount for one, amount in cloud.of_job.items() if one is not None), default=0) <= job


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_rented_is_the_same_after_a_replay_and_from_any_stored_state(seed: int) -> None:
    chance = Random(f"budgets {seed}")
    cloud = Cloud(seed, 40 * UNIT, None)
    for event in jobs(chance):
        cloud.expect(event.at, event)
    cloud.run()

    other = Scheduler(find, "renter")
    cut = chance.randrange(len(cloud.rows))
    for number, (name, body) in enumerate(cloud.rows):
        again(other, event_of(name, body), body)
        if number == cut:
            record = other.dump()
            check_snapshot(record)
            assert read_question(write_question(record)).snapshot == record
            other = Scheduler.restore(record, find)
            other.check()
    assert other.dump() == cloud.core.dump()
